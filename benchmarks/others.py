"""What do others feel of a crowd that asks for as much as it can?

Somebody asks a simple question and whether the service is ready, first alone, then beside each crowd, in one run of
one real process. Figures are the median beside the crowd over the median alone, and the worst single one.
"""

import tempfile
from pathlib import Path

from tests.fixtures.crowds import (
    NO_LIMITS,
    ORDERED,
    Seen,
    add_keys,
    endless_outer_sql,
    half_sent,
    look,
    many_estimates,
)
from tests.fixtures.process import start

TIMES_MAX = 3.0
ALONE_S, BESIDE_S = 3.0, 10.0


def figure(alone: Seen, beside: Seen) -> str:
    refused = sum(count for status, count in beside.statuses.items() if status >= 400)
    refused += sum(count for status, count in beside.ready.items() if status >= 400)
    worst = max(beside.seconds) / alone.median
    return f"{beside.median / alone.median:.1f} (worst {worst:.1f}; {refused} refused or not ready)"


def rows() -> list[tuple[str, str]]:
    """The lines of the benchmark table."""
    with tempfile.TemporaryDirectory() as folder:
        running = start(Path(folder), **NO_LIMITS)
        try:
            add_keys(running)
            found = []
            for what, attack, sql in (
                ("eight keys with lists of sixteen estimates", many_estimates, None),
                ("1,100 half-sent requests", half_sent, None),
                ("eight endless outer queries of one key", endless_outer_sql, ORDERED),
            ):
                asked = {} if sql is None else {"sql": sql}
                alone = look(running, ALONE_S, **asked)
                with attack(running):
                    beside = look(running, BESIDE_S, **asked)
                found.append((f"beside {what}: time / time alone (at most {TIMES_MAX:.0f})", figure(alone, beside)))
            return found
        finally:
            running.stop()
