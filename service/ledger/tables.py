"""The ledger's tables, with its invariants as constraints: the one place no Python can bypass.

Invariant J1: on every account, at every commit, some order has spent <= limit, and delta_spent <=
delta_limit. Invariant J2: entries are never changed or removed, accounts never removed, and what was
spent only falls when a later window opens. By W2 (service/ledger/allowances.py) failures and open holds together
are at most failures_allowed, for a dataset and for each person who asks it; neither failures nor late ever fall.
"""

import sqlalchemy as sa
from sqlalchemy import event

from service.core.amounts import CLOSED
from service.store.database import metadata

# Vectors have up to this many orders, infinity included; new accounts have six.
ORDERS = 6

# The limit of an order that the account does not have: nothing spent fits below it.
NO_ORDER = -1

# The limit of a quota that an admin has not set: more than anybody can spend.
UNLIMITED = CLOSED - 1

KINDS = (
    "open", "grant", "ceiling", "quota", "window", "reserve", "late", "settle", "safety", "pause", "resume", "source",
    "note",
)  # fmt: skip

SPENT = [f"spent_{i}" for i in range(ORDERS)]
LIMIT = [f"limit_{i}" for i in range(ORDERS)]
NUMBERS = [*SPENT, *LIMIT, "delta_spent", "delta_limit", "orders"]
EVENTS = ["failures", "failures_allowed", "open_holds", "late", "safety", "paused"]
PROMISES = ["epsilon_granted", "delta_granted", "epsilon_ceiling", "delta_ceiling"]


def _amounts_in_range(least: str, greatest: str) -> str:
    """Nothing spent is negative or above CLOSED, and no limit reaches CLOSED: a closed order stays closed."""
    return (
        f"{least}({', '.join(SPENT)}, delta_spent) >= 0 AND delta_spent <= delta_limit"
        f" AND {greatest}({', '.join(SPENT)}) <= {CLOSED} AND {greatest}({', '.join(LIMIT)}) < {CLOSED}"
    )


def _integers(names: list[str]) -> sa.CheckConstraint:
    """SQLite turns an integer that overflows into a float without a word."""
    rule = " AND ".join(f"typeof({name}) = 'integer'" for name in names)
    return sa.CheckConstraint(rule, name="integers_stay_integers").ddl_if(dialect="sqlite")


# What every query reads and moves. Few and small constraints: PostgreSQL reads them anew for each UPDATE.
account = sa.Table(
    "account",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False, index=True),
    *(sa.Column(name, sa.BigInteger, nullable=False) for name in NUMBERS),
    sa.Column("window_kind", sa.Text),  # day, week, month, or NULL: one budget for all time
    sa.Column("window_id", sa.Text),
    sa.CheckConstraint(" OR ".join(f"{s} <= {x}" for s, x in zip(SPENT, LIMIT, strict=True)), name="some_order_holds"),
    sa.CheckConstraint(_amounts_in_range("min", "max"), name="amounts_in_range").ddl_if(dialect="sqlite"),
    sa.CheckConstraint(_amounts_in_range("LEAST", "GREATEST"), name="amounts_in_range").ddl_if(dialect="postgresql"),
    _integers(NUMBERS),
)

# What an admin promised when a dataset's account was opened, and since.
promise = sa.Table(
    "promise",
    metadata,
    sa.Column("account_id", sa.Text, sa.ForeignKey("account.id"), primary_key=True),
    sa.Column("terms", sa.Text, nullable=False),
    *(sa.Column(name, sa.BigInteger, nullable=False) for name in PROMISES),
    sa.CheckConstraint(
        "0 <= epsilon_granted AND epsilon_granted <= epsilon_ceiling"
        " AND 0 <= delta_granted AND delta_granted <= delta_ceiling",
        name="grant_below_ceiling",
    ),
    _integers(PROMISES),
)

# Events, of a dataset ("dataset:…") and of each person who asked it ("person:…"): service/ledger/allowances.py.
# Every query moves two rows here, so they are few numbers and apart from the amounts.
allowance = sa.Table(
    "allowance",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False, index=True),
    sa.Column("owner", sa.Text),  # whose; NULL: the dataset's own
    *(sa.Column(name, sa.BigInteger, nullable=False) for name in EVENTS),
    sa.CheckConstraint(
        "failures >= 0 AND failures_allowed >= 0 AND open_holds >= 0 AND late >= 0 AND paused >= 0 AND safety > 0",
        name="events_counted",
    ),
    _integers(EVENTS),
)


def _partial_index(name: str, *columns: str, where: str, unique: bool = False) -> sa.Index:
    rule = sa.text(where)
    return sa.Index(name, *columns, unique=unique, sqlite_where=rule, postgresql_where=rule)


hold = sa.Table(
    "hold",
    metadata,
    sa.Column("query_id", sa.Text, primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("principal", sa.Text, nullable=False),
    sa.Column("key", sa.Text),
    sa.Column("request_hash", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),  # the person whose allowance it counts in
    sa.Column("process", sa.Text, nullable=False),  # the process that runs it (service/store/presence.py)
    sa.Column("late", sa.BigInteger, nullable=False),  # 1: it was not done when it was promised
    sa.Column("state", sa.Text, nullable=False),
    sa.CheckConstraint("state IN ('held', 'answered', 'failed')", name="state_known"),
    _partial_index("hold_attempt_unique", "principal", "key", where="key IS NOT NULL", unique=True),
    sqlite_with_rowid=False,  # one tree instead of two: every charge writes here
)

# On SQLite a column declared INTEGER is the row's own number: no index beside the table.
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

entry = sa.Table(
    "entry",
    metadata,
    sa.Column("number", NUMBER, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("dataset", sa.Text),
    sa.Column("query_id", sa.Text),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.CheckConstraint(f"kind IN {KINDS}", name="kind_known"),
    _partial_index("entry_reserve_index", "who", "number", where="kind = 'reserve'"),
)

head = sa.Table(
    "head",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.CheckConstraint("id = 1", name="only_one"),
)

# What a source was before claims were per file: the hash of a list of paths. Nothing new is written here.
source = sa.Table(
    "source",
    metadata,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False),
)

# A real file whose rows are people, and the budget that it belongs to; `inner_table` is the table of a DuckDB file.
source_file = sa.Table(
    "source_file",
    metadata,
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("inner_table", sa.Text, primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("inode", sa.Text, nullable=False, index=True),  # device:inode when it was claimed; "": it was gone
)

# What files held when they were imported, as a hash: a copy under another path is the same people.
source_content = sa.Table(
    "source_content",
    metadata,
    sa.Column("content", sa.Text, primary_key=True),
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("dataset", sa.Text, primary_key=True),
    sa.Column("private", sa.Integer, primary_key=True, autoincrement=False),
)

FIRST_HASH = "0" * 64

_REFUSALS = (
    ("entry", "UPDATE", "entries are append-only"),
    ("entry", "DELETE", "entries are append-only"),
    ("head", "DELETE", "the chain has a head"),
    ("account", "DELETE", "a budget belongs to the people: accounts stay"),
    ("promise", "DELETE", "a promise stays"),
    ("allowance", "DELETE", "what happened stays counted"),
    ("source", "UPDATE", "a source stays with its budget"),
    ("source", "DELETE", "a source stays with its budget"),
    ("source_file", "UPDATE", "a file stays with its budget"),
    ("source_file", "DELETE", "a file stays with its budget"),
    ("source_content", "UPDATE", "what was imported stays known"),
    ("source_content", "DELETE", "what was imported stays known"),
)

# An entry moves the head with it, or is refused when it does not continue the chain.
_MOVE_HEAD = (
    "UPDATE head SET number = NEW.number, hash = NEW.hash WHERE number = NEW.number - 1 AND hash = NEW.previous"
)

_SPENT_FALLS = (
    "NEW.id <> OLD.id OR ("
    + " OR ".join(f"NEW.{name} < OLD.{name}" for name in [*SPENT, "delta_spent"])
    + ") AND (NEW.window_id IS NULL OR NEW.window_id <= COALESCE(OLD.window_id, ''))"
)

# One more hold only where it may still fail; what happened stays counted.
_EVENTS_FORGOTTEN = (
    "NEW.id <> OLD.id OR NEW.failures < OLD.failures OR NEW.late < OLD.late"
    " OR NEW.open_holds > OLD.open_holds AND NEW.failures + NEW.open_holds > NEW.failures_allowed"
)

_UPDATE_RULES = (
    ("account", _SPENT_FALLS, "what was spent stays spent"),
    ("allowance", _EVENTS_FORGOTTEN, "no more queries at once than may still fail, and what happened stays counted"),
)


def guard_statements(dialect: str) -> list[str]:
    """Triggers that keep L2, and the first row of the head; run once when the tables are made."""
    first = f"INSERT INTO head (id, number, hash) VALUES (1, 0, '{FIRST_HASH}')"
    return [first, *(_sqlite_guards() if dialect == "sqlite" else _postgresql_guards())]


def _sqlite_guards() -> list[str]:
    return [
        f"CREATE TRIGGER entry_chain AFTER INSERT ON entry BEGIN {_MOVE_HEAD};"
        " SELECT RAISE(ABORT, 'an entry continues the chain')"
        " WHERE NOT EXISTS (SELECT 1 FROM head WHERE number = NEW.number AND hash = NEW.hash); END",
        *(
            f"CREATE TRIGGER {table}_update_guard BEFORE UPDATE ON {table} WHEN {rule}"
            f" BEGIN SELECT RAISE(ABORT, '{message}'); END"
            for table, rule, message in _UPDATE_RULES
        ),
        *(
            f"CREATE TRIGGER {table}_{verb.lower()}_guard BEFORE {verb} ON {table}"
            f" BEGIN SELECT RAISE(ABORT, '{message}'); END"
            for table, verb, message in _REFUSALS
        ),
    ]


def _postgresql_guards() -> list[str]:
    """Conditions stand in function bodies, which a session parses once, not in WHEN clauses."""
    trigger = "RETURNS trigger LANGUAGE plpgsql AS"
    made = [
        f"CREATE FUNCTION entry_chain() {trigger} $$ BEGIN {_MOVE_HEAD};"
        " IF NOT FOUND THEN RAISE EXCEPTION 'an entry continues the chain'; END IF; RETURN NULL; END $$",
        "CREATE TRIGGER entry_chain AFTER INSERT ON entry FOR EACH ROW EXECUTE FUNCTION entry_chain()",
    ]
    for table, rule, message in _UPDATE_RULES:
        made.append(
            f"CREATE FUNCTION {table}_update_guard() {trigger} $$ BEGIN IF {rule}"
            f" THEN RAISE EXCEPTION '{message}'; END IF; RETURN NEW; END $$"
        )
        made.append(
            f"CREATE TRIGGER {table}_update_guard BEFORE UPDATE ON {table}"
            f" FOR EACH ROW EXECUTE FUNCTION {table}_update_guard()"
        )
    for table, verb, message in _REFUSALS:
        name = f"{table}_{verb.lower()}_guard"
        made.append(f"CREATE FUNCTION {name}() {trigger} $$ BEGIN RAISE EXCEPTION '{message}'; END $$")
        made.append(f"CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")
        if verb == "DELETE":
            made.append(f"CREATE TRIGGER {table}_truncate_guard BEFORE TRUNCATE ON {table} EXECUTE FUNCTION {name}()")
    return made


@event.listens_for(metadata, "after_create")
def _guard(_target: object, connection: sa.Connection, tables: list[sa.Table], **_: object) -> None:
    if entry in tables:
        for statement in guard_statements(connection.dialect.name):
            connection.exec_driver_sql(statement)
