"""`make bench`: every module's ratios, side by side in one run, printed and kept in RESULTS.md.

A module of this package that offers `rows()` takes part: it returns (what, figure) pairs. Wall-clock
times mean little on a shared machine; ratios measured in the same run mean more.
"""

import importlib
import os
import pkgutil
import platform
import sys
from pathlib import Path

import benchmarks

RESULTS = Path(__file__).with_name("RESULTS.md")


def main(wanted: list[str]) -> None:
    """Run all modules, or the named ones, and write the table of those that ran."""
    quick = os.environ.get("HALFTONE_BENCH_QUICK") == "1"
    sections: dict[str, list[tuple[str, str]]] = {}
    for found in pkgutil.iter_modules(benchmarks.__path__):
        if found.name.startswith("_") or (wanted and found.name not in wanted):
            continue
        module = importlib.import_module(f"benchmarks.{found.name}")
        if not hasattr(module, "rows"):
            continue
        title = (module.__doc__ or found.name).strip().splitlines()[0]
        print(f"\n{title}", flush=True)
        sections[title] = []
        for what, figure in module.rows():
            print(f"  {what:<64} {figure}", flush=True)
            sections[title].append((what, figure))
    if not quick and not wanted:
        RESULTS.write_text(_markdown(sections))
        print(f"\nwritten to benchmarks/{RESULTS.name}")


def _markdown(sections: dict[str, list[tuple[str, str]]]) -> str:
    lines = [
        "# Benchmark results",
        "",
        "`make bench` measures these side by side in one run and writes this page.",
        f"Python {platform.python_version()}, {os.cpu_count()} cores.",
    ]
    for title, rows in sections.items():
        lines += ["", f"## {title}", "", "| what | figure |", "|---|---|"]
        lines += [f"| {what} | {figure} |" for what, figure in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
