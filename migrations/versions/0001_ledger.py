"""The ledger: accounts, holds, the hash-chained journal, sources.

Revision 0001, the first.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

CLOSED = 2**62
SPENT = [f"spent_{i}" for i in range(6)]
LIMIT = [f"limit_{i}" for i in range(6)]
NUMBERS = [
    *SPENT,
    *LIMIT,
    *("delta_spent", "delta_limit", "epsilon_granted", "delta_granted", "epsilon_ceiling", "delta_ceiling"),
    *("orders", "failures", "failures_allowed", "paused"),
]
KINDS = ("open", "grant", "ceiling", "quota", "window", "reserve", "settle", "pause", "resume", "source", "note")


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    _create_account(dialect)
    _create_hold()
    _create_journal()
    op.create_table(
        "source",
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("source_key")),
    )
    op.execute(f"INSERT INTO head (id, number, hash) VALUES (1, 0, '{'0' * 64}')")
    _create_guards(dialect)


def _create_account(dialect: str) -> None:
    checks = {
        "kind_known": "kind IN ('dataset', 'quota')",
        "kind_complete": "(kind = 'dataset') = (terms IS NOT NULL AND prefix IS NULL)",
        "some_order_holds": " OR ".join(f"{s} <= {x}" for s, x in zip(SPENT, LIMIT, strict=True)),
        "delta_holds": "0 <= delta_spent AND delta_spent <= delta_limit",
        "spent_saturates": " AND ".join(f"0 <= {s} AND {s} <= {CLOSED}" for s in SPENT),
        "closed_orders_stay_closed": "kind = 'quota' OR (" + " AND ".join(f"{x} < {CLOSED}" for x in LIMIT) + ")",
        "grant_below_ceiling": "epsilon_granted <= epsilon_ceiling AND delta_granted <= delta_ceiling"
        " AND delta_limit <= delta_granted",
        "orders_fit": "1 <= orders AND orders <= 6",
        "failures_counted": "failures >= 0 AND failures_allowed >= 0 AND paused IN (0, 1)",
        "window_known": "window_kind IN ('day', 'week', 'month')",
    }
    if dialect == "sqlite":
        checks["integers_stay_integers"] = " AND ".join(f"typeof({name}) = 'integer'" for name in NUMBERS)
    op.create_table(
        "account",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=True),
        sa.Column("terms", sa.Text(), nullable=True),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in NUMBERS),
        sa.Column("window_kind", sa.Text(), nullable=True),
        sa.Column("window_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("account_key")),
        *(sa.CheckConstraint(rule, name=op.f(f"account_{name}")) for name, rule in checks.items()),
    )
    op.create_index("account_dataset_index", "account", ["dataset"])


def _create_hold() -> None:
    op.create_table(
        "hold",
        sa.Column("query_id", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("entry", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("query_id", name=op.f("hold_key")),
        sa.UniqueConstraint("principal", "key", name=op.f("hold_principal_key_unique")),
        sa.CheckConstraint("state IN ('held', 'answered', 'failed')", name=op.f("hold_state_known")),
    )
    held = sa.text("state = 'held'")
    op.create_index("hold_unfinished_index", "hold", ["owner"], sqlite_where=held, postgresql_where=held)


def _create_journal() -> None:
    op.create_table(
        "entry",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=True),
        sa.Column("query_id", sa.Text(), nullable=True),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("entry_key")),
        sa.CheckConstraint(f"kind IN {KINDS}", name=op.f("entry_kind_known")),
    )
    op.create_index("entry_dataset_index", "entry", ["dataset", "number"])
    op.create_index("entry_who_index", "entry", ["who", "number"])
    op.create_table(
        "head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("head_key")),
        sa.CheckConstraint("id = 1", name=op.f("head_only_one")),
    )


def _create_guards(dialect: str) -> None:
    """Triggers: entries continue the chain and stay, accounts and sources stay, spent never falls."""
    move = "UPDATE head SET number = NEW.number, hash = NEW.hash WHERE number = NEW.number - 1 AND hash = NEW.previous"
    falls = " OR ".join(f"NEW.{name} < OLD.{name}" for name in [*SPENT, "delta_spent"])
    same_window = "NEW.window_id IS NULL OR NEW.window_id <= COALESCE(OLD.window_id, '')"
    refusals = (
        ("entry", "UPDATE", "", "entries are append-only"),
        ("entry", "DELETE", "", "entries are append-only"),
        ("head", "DELETE", "", "the chain has a head"),
        ("account", "DELETE", "", "a budget belongs to the people: accounts stay"),
        ("source", "UPDATE", "", "a source stays with its budget"),
        ("source", "DELETE", "", "a source stays with its budget"),
        ("account", "UPDATE", f"NEW.id <> OLD.id OR (({same_window}) AND ({falls}))", "what was spent stays spent"),
    )
    if dialect == "sqlite":
        _run(
            f"CREATE TRIGGER entry_chain AFTER INSERT ON entry BEGIN {move};"
            " SELECT RAISE(ABORT, 'an entry continues the chain')"
            " WHERE NOT EXISTS (SELECT 1 FROM head WHERE number = NEW.number AND hash = NEW.hash); END"
        )
    else:
        _run(
            f"CREATE FUNCTION entry_chain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {move};"
            " IF NOT FOUND THEN RAISE EXCEPTION 'an entry continues the chain'; END IF; RETURN NULL; END $$"
        )
        _run("CREATE TRIGGER entry_chain AFTER INSERT ON entry FOR EACH ROW EXECUTE FUNCTION entry_chain()")
    for table, verb, when, message in refusals:
        name, condition = f"{table}_{verb.lower()}_guard", f"WHEN ({when}) " if when else ""
        if dialect == "sqlite":
            _run(
                f"CREATE TRIGGER {name} BEFORE {verb} ON {table} {condition}BEGIN SELECT RAISE(ABORT, '{message}'); END"
            )
            continue
        _run(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{message}'; END $$"
        )
        _run(f"CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH ROW {condition}EXECUTE FUNCTION {name}()")
        if verb == "DELETE":
            _run(f"CREATE TRIGGER {table}_truncate_guard BEFORE TRUNCATE ON {table} EXECUTE FUNCTION {name}()")


def _run(statement: str) -> None:
    op.get_bind().exec_driver_sql(statement)
