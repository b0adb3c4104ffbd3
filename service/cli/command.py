"""The `halftone` command: run it, look after it, ask it.

Commands that change declarations, keys or budgets work on the store itself, so the first admin key
needs no server; `query` talks to a running service over HTTP.
"""

import argparse
import os
import sys

from service import __version__
from service.cli import budgets, datasets, keys, query, serving
from service.cli.terminal import Stop
from service.core.errors import ServiceError
from service.settings import SettingsRefused
from service.store.migrate import StoreUnreachable


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="halftone",
        description="Ordinary aggregate SQL over private tables, with calibrated noise and a budget that holds.",
        epilog="Settings come from the environment (HALFTONE_…); docs/operating.md lists them.",
    )
    top.add_argument("--version", action="version", version=f"halftone {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in (serving, keys, datasets, budgets, query):
        group.add_commands(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    """0 when done, 1 when refused (with a sentence on standard error), 130 on Ctrl-C, 141 when nobody reads on."""
    options = parser().parse_args(argv)
    try:
        code = options.run(options)
        sys.stdout.flush()
    except (Stop, SettingsRefused, StoreUnreachable) as refused:
        print(refused, file=sys.stderr)
        return 1
    except ServiceError as refused:
        remedy = refused.extra.get("remedy")
        print(f"{refused.title}: {refused.detail}." + (f" Remedy: {remedy}." if remedy else ""), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read this has seen enough, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return int(code or 0)
