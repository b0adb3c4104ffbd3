"""The ledger's tables, with its invariants as constraints: the one place no Python can bypass.

Invariant L1: on every account, at every commit, some order has spent <= limit, and delta_spent <=
delta_limit. Invariant L2: entries are never changed or removed, accounts never removed, and what was
spent only falls when a later window opens.
"""

import sqlalchemy as sa
from sqlalchemy import event

from service.core.amounts import CLOSED
from service.store.database import metadata

# Vectors have up to this many orders, infinity included; DESIGN section 11 uses six.
ORDERS = 6

# The limit of an order that the account does not have: nothing spent fits below it.
NO_ORDER = -1

# The limit of a quota that an admin has not set. Quotas have no closed orders, so it always holds.
UNLIMITED = CLOSED

KINDS = ("open", "grant", "ceiling", "quota", "window", "reserve", "settle", "pause", "resume", "source", "note")

_SPENT = [f"spent_{i}" for i in range(ORDERS)]
_LIMIT = [f"limit_{i}" for i in range(ORDERS)]
_NUMBERS = [
    *_SPENT,
    *_LIMIT,
    *("delta_spent", "delta_limit", "epsilon_granted", "delta_granted", "epsilon_ceiling", "delta_ceiling"),
    *("orders", "failures", "failures_allowed", "paused"),
]


def _number(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=False)


account = sa.Table(
    "account",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("dataset", sa.Text, nullable=False, index=True),
    sa.Column("prefix", sa.Text),  # of the analyst's key; NULL for a dataset
    sa.Column("terms", sa.Text),  # NULL for a quota
    *(_number(name) for name in _NUMBERS),
    sa.Column("window_kind", sa.Text),  # day, week, month, or NULL: one budget for all time
    sa.Column("window_id", sa.Text),
    sa.CheckConstraint("kind IN ('dataset', 'quota')", name="kind_known"),
    sa.CheckConstraint("(kind = 'dataset') = (terms IS NOT NULL AND prefix IS NULL)", name="kind_complete"),
    sa.CheckConstraint(
        " OR ".join(f"{s} <= {x}" for s, x in zip(_SPENT, _LIMIT, strict=True)), name="some_order_holds"
    ),
    sa.CheckConstraint("0 <= delta_spent AND delta_spent <= delta_limit", name="delta_holds"),
    sa.CheckConstraint(" AND ".join(f"0 <= {s} AND {s} <= {CLOSED}" for s in _SPENT), name="spent_saturates"),
    sa.CheckConstraint(
        "kind = 'quota' OR (" + " AND ".join(f"{x} < {CLOSED}" for x in _LIMIT) + ")", name="closed_orders_stay_closed"
    ),
    sa.CheckConstraint(
        "epsilon_granted <= epsilon_ceiling AND delta_granted <= delta_ceiling AND delta_limit <= delta_granted",
        name="grant_below_ceiling",
    ),
    sa.CheckConstraint(f"1 <= orders AND orders <= {ORDERS}", name="orders_fit"),
    sa.CheckConstraint("failures >= 0 AND failures_allowed >= 0 AND paused IN (0, 1)", name="failures_counted"),
    sa.CheckConstraint("window_kind IN ('day', 'week', 'month')", name="window_known"),
    # SQLite turns an integer that overflows into a float without a word.
    sa.CheckConstraint(
        " AND ".join(f"typeof({name}) = 'integer'" for name in _NUMBERS), name="integers_stay_integers"
    ).ddl_if(dialect="sqlite"),
)

hold = sa.Table(
    "hold",
    metadata,
    sa.Column("query_id", sa.Text, primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("principal", sa.Text, nullable=False),
    sa.Column("key", sa.Text),
    sa.Column("request_hash", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("entry", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("principal", "key"),
    sa.CheckConstraint("state IN ('held', 'answered', 'failed')", name="state_known"),
    sa.Index(
        "hold_unfinished_index",
        "owner",
        sqlite_where=sa.text("state = 'held'"),
        postgresql_where=sa.text("state = 'held'"),
    ),
)

entry = sa.Table(
    "entry",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("dataset", sa.Text),
    sa.Column("query_id", sa.Text),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.CheckConstraint(f"kind IN {KINDS}", name="kind_known"),
    sa.Index("entry_dataset_index", "dataset", "number"),
    sa.Index("entry_who_index", "who", "number"),
)

head = sa.Table(
    "head",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.CheckConstraint("id = 1", name="only_one"),
)

source = sa.Table(
    "source",
    metadata,
    sa.Column("fingerprint", sa.Text, primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False),
)

FIRST_HASH = "0" * 64

_REFUSALS = (
    ("entry", "UPDATE", "", "entries are append-only"),
    ("entry", "DELETE", "", "entries are append-only"),
    ("head", "DELETE", "", "the chain has a head"),
    ("account", "DELETE", "", "a budget belongs to the people: accounts stay"),
    ("source", "UPDATE", "", "a source stays with its budget"),
    ("source", "DELETE", "", "a source stays with its budget"),
    (
        "account",
        "UPDATE",
        "NEW.id <> OLD.id OR ((NEW.window_id IS NULL OR NEW.window_id <= COALESCE(OLD.window_id, '')) AND ("
        + " OR ".join(f"NEW.{s} < OLD.{s}" for s in [*_SPENT, "delta_spent"])
        + "))",
        "what was spent stays spent",
    ),
)

# An entry moves the head with it, or is refused when it does not continue the chain.
_MOVE_HEAD = (
    "UPDATE head SET number = NEW.number, hash = NEW.hash WHERE number = NEW.number - 1 AND hash = NEW.previous"
)


def guard_statements(dialect: str) -> list[str]:
    """Triggers that keep L2, and the first row of the head; run once when the tables are made."""
    made = [f"INSERT INTO head (id, number, hash) VALUES (1, 0, '{FIRST_HASH}')"]
    if dialect == "sqlite":
        made.append(
            f"CREATE TRIGGER entry_chain AFTER INSERT ON entry BEGIN {_MOVE_HEAD};"
            " SELECT RAISE(ABORT, 'an entry continues the chain')"
            " WHERE NOT EXISTS (SELECT 1 FROM head WHERE number = NEW.number AND hash = NEW.hash); END"
        )
    else:
        made.append(
            f"CREATE FUNCTION entry_chain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {_MOVE_HEAD};"
            " IF NOT FOUND THEN RAISE EXCEPTION 'an entry continues the chain'; END IF; RETURN NULL; END $$"
        )
        made.append("CREATE TRIGGER entry_chain AFTER INSERT ON entry FOR EACH ROW EXECUTE FUNCTION entry_chain()")
    for table, verb, when, message in _REFUSALS:
        name, condition = f"{table}_{verb.lower()}_guard", f"WHEN ({when}) " if when else ""
        if dialect == "sqlite":
            made.append(
                f"CREATE TRIGGER {name} BEFORE {verb} ON {table} {condition}BEGIN SELECT RAISE(ABORT, '{message}'); END"
            )
            continue
        made.append(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{message}'; END $$"
        )
        made.append(f"CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH ROW {condition}EXECUTE FUNCTION {name}()")
        if verb == "DELETE":
            made.append(f"CREATE TRIGGER {table}_truncate_guard BEFORE TRUNCATE ON {table} EXECUTE FUNCTION {name}()")
    return made


@event.listens_for(metadata, "after_create")
def _guard(_target: object, connection: sa.Connection, tables: list[sa.Table], **_: object) -> None:
    if entry in tables:
        for statement in guard_statements(connection.dialect.name):
            connection.exec_driver_sql(statement)
