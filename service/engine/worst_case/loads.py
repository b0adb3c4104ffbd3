"""Work and memory of operators, counted before anything runs: so many rows of this, so many bytes for that.

A load says what is done, not how long it takes: a machine's Speed turns it into seconds. Operators are few and coarse
on purpose. Each is timed as the slowest of what it stands for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Speed = Mapping[str, float]  # nanoseconds of each operator

# With all threads of one child working and nobody else: about twice what a slow machine of two cores takes. They serve
# until the machine was measured; what is never measured (what the service does with results, planning a statement)
# is scaled by the same ratio.
USUAL: Speed = {
    "read": 6.0,  # one value of a stored column
    "compute": 2.5,  # one node of an expression, on one row
    "part": 30.0,  # one function that is more than arithmetic, on one row: a part of a date, a logarithm
    "call": 90.0,  # one that writes a text: a number or a moment in letters
    "fail": 800.0,  # one cast that may fail: a row on which it does costs a whole error
    "text": 20.0,  # one byte of a text, by the dearest function on texts
    "copy": 0.3,  # one byte of a text that is read, hashed, compared or passed on
    "find": 15.0,  # a row's group, where groups are few
    "seek": 60.0,  # a row's group, where they are many
    "add": 4.0,  # one value into one aggregate
    "group": 150.0,  # a group that is made
    "build": 90.0,  # a row into the table of a hash join
    "probe": 25.0,  # a row against it, where it is small
    "miss": 10.0,  # a row that finds nothing in it
    "pair": 12.0,  # a row that a join yields
    "keep": 6.0,  # one value of a materialised row
    "order": 600.0,  # a row in a sort or a window
    "smallest": 90.0,  # a row in the lists of smallest hashes
    "hash": 12.0,  # one value hashed for a choice
    "send": 60.0,  # one integer of a result, to the service and into an array
    "name": 600.0,  # one key or text of a result or of a key table, as an object
    "statement": 2.5e7,  # one statement: message, plan, answer
    "node": 60_000.0,  # planning one node of an expression, wherever the statement repeats it
    "cell": 3_000.0,  # one released number: noise, interval, assembly
    "candidate": 1_800.0,  # one private key judged
}
NOT_MEASURED = ("name", "statement", "cell", "candidate")
SPARE = 1.5  # of the bytes of rows in a table: what DuckDB 2 needed at most, half-empty pages and pointers included
FEW = 20_000  # groups, or rows of a hash table, that stay in the caches of a core


@dataclass(frozen=True, slots=True)
class Load:
    """How often each operator is done, and the bytes that are held at a time."""

    done: Mapping[str, float] = field(default_factory=dict)
    held: int = 0

    def __add__(self, other: "Load") -> "Load":
        merged = dict(self.done)
        for operator, times in other.done.items():
            merged[operator] = merged.get(operator, 0.0) + times
        return Load(merged, self.held + other.held)

    def after(self, other: "Load") -> "Load":
        """Both, one after the other: what the first held is free again."""
        both = self + other
        return Load(both.done, max(self.held, other.held))

    def seconds(self, speed: Speed) -> float:
        return float(sum(speed[operator] * times for operator, times in self.done.items())) / 1e9


def load(held: int = 0, **done: float) -> Load:
    """A load in the operators' names: load(read=rows * 3, find=rows)."""
    return Load(done, held)


def grouped(rows: int, groups: int, *, aggregates: int, width: int) -> Load:
    """An aggregation: into one group, or by hash. Up to FEW groups a row finds its group in the cache; beyond, it is a
    miss at best, and every group that is made is another."""
    new = min(groups, rows)
    entry = width + 16 * aggregates + 24
    # Texts beyond a few bytes are hashed, compared and copied.
    texts = max(0, width - 64) * rows
    held = int(SPARE * new * entry) + (1 << 20)
    if new <= 1:
        return load(held, add=rows * max(1, aggregates))
    if new <= FEW:
        return load(held, find=rows, add=rows * aggregates, copy=texts)
    return load(held, seek=rows, group=new, add=rows * aggregates, copy=texts)


def hash_joined(here: int, there: int, pairs: int, *, width: int) -> Load:
    """A hash join of so many rows with so many: the smaller side is built, `width` bytes a row."""
    small, large = min(here, there), max(here, there)
    slower = 1 if small <= FEW else 2  # beyond the caches, a row takes longer to find
    found = min(large, pairs)  # a row that meets another is in a pair at least
    searched = load(probe=slower * found, miss=slower * (large - found))
    return load(int(SPARE * small * (width + 24)), build=small, pair=pairs) + searched


def materialised(rows: int, *, columns: int, width: int) -> Load:
    """A materialised WITH clause."""
    return load(int(SPARE * rows * (width + 8)), keep=rows * columns, copy=max(0, width - 64) * rows)


def ordered(rows: int, *, width: int) -> Load:
    """A sort or a window."""
    return load(int(SPARE * rows * (width + 16)), order=rows, copy=max(0, width - 64) * rows)
