"""Events counted apart from amounts, per dataset and per person; keys have owners.

Revision 0005, after 0004. SQLite can not change a constraint, so there tables are made anew, in the same transaction.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

CLOSED = 2**62
SPENT = [f"spent_{i}" for i in range(6)]
LIMIT = [f"limit_{i}" for i in range(6)]
NUMBERS = [*SPENT, *LIMIT, "delta_spent", "delta_limit", "orders"]
EVENTS = ["failures", "failures_allowed", "open_holds", "late", "safety", "paused"]
PROMISES = ["epsilon_granted", "delta_granted", "epsilon_ceiling", "delta_ceiling"]
KINDS = (
    "open", "grant", "ceiling", "quota", "window", "reserve", "late", "settle", "safety", "pause", "resume", "source",
    "note",
)  # fmt: skip


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    _create_allowance(dialect)
    _carry_events_over()
    if dialect == "sqlite":
        _make_anew_on_sqlite()
    else:
        _change_on_postgresql()


def _create_allowance(dialect: str) -> None:
    counted = "failures >= 0 AND failures_allowed >= 0 AND open_holds >= 0 AND late >= 0 AND paused >= 0 AND safety > 0"
    op.create_table(
        "allowance",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in EVENTS),
        sa.PrimaryKeyConstraint("id", name=op.f("allowance_key")),
        sa.CheckConstraint(counted, name=op.f("allowance_events_counted")),
        *_integers("allowance", EVENTS, dialect),
    )
    op.create_index("allowance_dataset_index", "allowance", ["dataset"])
    forgotten = (
        "NEW.id <> OLD.id OR NEW.failures < OLD.failures OR NEW.late < OLD.late"
        " OR NEW.open_holds > OLD.open_holds AND NEW.failures + NEW.open_holds > NEW.failures_allowed"
    )
    message = "no more queries at once than may still fail, and what happened stays counted"
    _guard_updates("allowance", forgotten, message, dialect)
    _guard_deletes("allowance", "what happened stays counted", dialect)


def _carry_events_over() -> None:
    """Until now each key was its own person; what still runs (or died) is open."""
    own = "id = 'dataset:' || dataset"
    prefix = "substr(id, length('quota:' || dataset || ':') + 1)"
    open_holds = "(SELECT count(*) FROM hold WHERE hold.dataset = account.dataset AND hold.state = 'held'"
    _run(
        "INSERT INTO allowance (id, dataset, owner, failures, failures_allowed, open_holds, late, safety, paused)"
        f" SELECT id, dataset, NULL, failures, failures_allowed, {open_holds}), 0, 4, paused FROM account WHERE {own}"
    )
    _run(
        "INSERT INTO allowance (id, dataset, owner, failures, failures_allowed, open_holds, late, safety, paused)"
        f" SELECT 'person:' || dataset || ':' || {prefix}, dataset, {prefix}, failures, failures_allowed,"
        f" {open_holds} AND hold.principal = {prefix}), 0, 4, paused FROM account WHERE NOT {own}"
    )


def _change_on_postgresql() -> None:
    _run("ALTER TABLE account DROP CONSTRAINT account_amounts_in_range")
    for name in ("failures", "failures_allowed", "paused"):
        op.drop_column("account", name)
    _run(f"ALTER TABLE account ADD CONSTRAINT account_amounts_in_range CHECK ({_amounts('LEAST', 'GREATEST')})")
    _run("ALTER TABLE hold ADD COLUMN process text, ADD COLUMN late bigint")
    _run("UPDATE hold SET process = owner, owner = principal, late = 0")
    _run("ALTER TABLE hold ALTER COLUMN process SET NOT NULL, ALTER COLUMN late SET NOT NULL")
    _run("ALTER TABLE entry DROP CONSTRAINT entry_kind_known")
    _run(f"ALTER TABLE entry ADD CONSTRAINT entry_kind_known CHECK (kind IN {KINDS})")
    _run("ALTER TABLE catalog_key ADD COLUMN owner text")
    _run("UPDATE catalog_key SET owner = prefix")
    _run("ALTER TABLE catalog_key ALTER COLUMN owner SET NOT NULL")
    _run("DROP FUNCTION reserve_at_once")
    _run(RESERVE_AT_ONCE)


def _make_anew_on_sqlite() -> None:
    """Rows wait in temporary tables: renaming would rewrite what refers to a table, and quote its name."""
    kept = {
        "account": ", ".join(["id", "dataset", *NUMBERS, "window_kind", "window_id"]),
        "promise": ", ".join(["account_id", "terms", *PROMISES]),
        "hold": "query_id, dataset, principal, key, request_hash, principal AS owner, owner AS process, 0 AS late,"
        " state",
        "entry": "number, at, kind, dataset, query_id, who, body, previous, hash",
        "catalog_key": "prefix, secret_sha256, name, role, datasets, created_ms, expires_ms, revoked_ms, used_ms,"
        " prefix AS owner",
    }
    for table, columns in kept.items():
        _run(f"CREATE TEMPORARY TABLE kept_{table} AS SELECT {columns} FROM {table}")
    for table in reversed(kept):  # a promise refers to its account
        op.drop_table(table)
    _create_account()
    _create_promise()
    _create_hold()
    _create_entry()
    _create_key()
    for table, columns in kept.items():
        names = ", ".join(column.split(" AS ")[-1] for column in columns.split(", "))
        _run(f"INSERT INTO {table} ({names}) SELECT {names} FROM kept_{table}")
        _run(f"DROP TABLE kept_{table}")
    _guard_on_sqlite()


def _create_account() -> None:
    holds = " OR ".join(f"{spent} <= {limit}" for spent, limit in zip(SPENT, LIMIT, strict=True))
    op.create_table(
        "account",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in NUMBERS),
        sa.Column("window_kind", sa.Text(), nullable=True),
        sa.Column("window_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("account_key")),
        sa.CheckConstraint(holds, name=op.f("account_some_order_holds")),
        sa.CheckConstraint(_amounts("min", "max"), name=op.f("account_amounts_in_range")),
        *_integers("account", NUMBERS, "sqlite"),
    )
    op.create_index("account_dataset_index", "account", ["dataset"])


def _create_promise() -> None:
    below = (
        "0 <= epsilon_granted AND epsilon_granted <= epsilon_ceiling"
        " AND 0 <= delta_granted AND delta_granted <= delta_ceiling"
    )
    op.create_table(
        "promise",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in PROMISES),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("promise_account_id_refers")),
        sa.PrimaryKeyConstraint("account_id", name=op.f("promise_key")),
        sa.CheckConstraint(below, name=op.f("promise_grant_below_ceiling")),
        *_integers("promise", PROMISES, "sqlite"),
    )


def _create_hold() -> None:
    op.create_table(
        "hold",
        sa.Column("query_id", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("late", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("query_id", name=op.f("hold_key")),
        sa.CheckConstraint("state IN ('held', 'answered', 'failed')", name=op.f("hold_state_known")),
        sqlite_with_rowid=False,
    )
    named = sa.text("key IS NOT NULL")
    op.create_index("hold_attempt_unique", "hold", ["principal", "key"], unique=True, sqlite_where=named)


def _create_entry() -> None:
    op.create_table(
        "entry",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("at", "kind")),
        *(sa.Column(name, sa.Text(), nullable=True) for name in ("dataset", "query_id")),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("who", "body", "previous", "hash")),
        sa.PrimaryKeyConstraint("number", name=op.f("entry_key")),
        sa.CheckConstraint(f"kind IN {KINDS}", name=op.f("entry_kind_known")),
    )
    op.create_index("entry_reserve_index", "entry", ["who", "number"], sqlite_where=sa.text("kind = 'reserve'"))


def _create_key() -> None:
    op.create_table(
        "catalog_key",
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("secret_sha256", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.String(length=10), nullable=False),
        sa.Column("datasets", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=True),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.Column("used_ms", sa.BigInteger(), nullable=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.CheckConstraint("role IN ('admin', 'analyst', 'viewer')", name=op.f("catalog_key_role")),
        sa.PrimaryKeyConstraint("prefix", name=op.f("catalog_key_key")),
    )


def _guard_on_sqlite() -> None:
    """The triggers that went with their tables: entries continue the chain and stay, spent never falls."""
    move = "UPDATE head SET number = NEW.number, hash = NEW.hash WHERE number = NEW.number - 1 AND hash = NEW.previous"
    _run(
        f"CREATE TRIGGER entry_chain AFTER INSERT ON entry BEGIN {move};"
        " SELECT RAISE(ABORT, 'an entry continues the chain')"
        " WHERE NOT EXISTS (SELECT 1 FROM head WHERE number = NEW.number AND hash = NEW.hash); END"
    )
    falls = " OR ".join(f"NEW.{name} < OLD.{name}" for name in [*SPENT, "delta_spent"])
    falls = f"NEW.id <> OLD.id OR ({falls}) AND (NEW.window_id IS NULL OR NEW.window_id <= COALESCE(OLD.window_id, ''))"
    _guard_updates("account", falls, "what was spent stays spent", "sqlite")
    _guard_deletes("account", "a budget belongs to the people: accounts stay", "sqlite")
    _guard_deletes("promise", "a promise stays", "sqlite")
    _guard_deletes("entry", "entries are append-only", "sqlite")
    _run(
        "CREATE TRIGGER entry_update_guard BEFORE UPDATE ON entry"
        " BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END"
    )


def _guard_updates(table: str, rule: str, message: str, dialect: str) -> None:
    name = f"{table}_update_guard"
    if dialect == "sqlite":
        _run(f"CREATE TRIGGER {name} BEFORE UPDATE ON {table} WHEN {rule} BEGIN SELECT RAISE(ABORT, '{message}'); END")
        return
    _run(
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {rule}"
        f" THEN RAISE EXCEPTION '{message}'; END IF; RETURN NEW; END $$"
    )
    _run(f"CREATE TRIGGER {name} BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")


def _guard_deletes(table: str, message: str, dialect: str) -> None:
    name = f"{table}_delete_guard"
    if dialect == "sqlite":
        _run(f"CREATE TRIGGER {name} BEFORE DELETE ON {table} BEGIN SELECT RAISE(ABORT, '{message}'); END")
        return
    _run(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{message}'; END $$")
    _run(f"CREATE TRIGGER {name} BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")
    _run(f"CREATE TRIGGER {table}_truncate_guard BEFORE TRUNCATE ON {table} EXECUTE FUNCTION {name}()")


def _amounts(least: str, greatest: str) -> str:
    return (
        f"{least}({', '.join(SPENT)}, delta_spent) >= 0 AND delta_spent <= delta_limit"
        f" AND {greatest}({', '.join(SPENT)}) <= {CLOSED} AND {greatest}({', '.join(LIMIT)}) < {CLOSED}"
    )


def _integers(table: str, names: list[str], dialect: str) -> list[sa.CheckConstraint]:
    rule = " AND ".join(f"typeof({name}) = 'integer'" for name in names)
    named = sa.CheckConstraint(rule, name=op.f(f"{table}_integers_stay_integers"))
    return [named] if dialect == "sqlite" else []


def _run(statement: str) -> None:
    op.get_bind().exec_driver_sql(statement)


RESERVE_AT_ONCE = """
CREATE FUNCTION reserve_at_once(
  account_id text, quota_id text, dataset_id text, person_id text, order_count bigint, cost bigint[],
  cost_delta bigint, share bigint, hold_query text, hold_dataset text, hold_principal text, hold_key text,
  hold_hash text, hold_owner text, hold_process text, entry_body text, entry_middle text
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  last_number bigint;
  last_hash text;
  now text;
  moved bigint;
BEGIN
  SELECT number, hash INTO STRICT last_number, last_hash FROM head FOR UPDATE;
  now := to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
  PERFORM 1 FROM account WHERE id = account_id AND window_kind IS NULL AND orders = order_count;
  IF NOT FOUND THEN RETURN 0; END IF;
  PERFORM 1 FROM account WHERE id = quota_id;
  IF NOT FOUND THEN RETURN 0; END IF;
  PERFORM 1 FROM allowance WHERE id = person_id;
  IF NOT FOUND THEN RETURN 0; END IF;
  INSERT INTO hold (query_id, dataset, principal, key, request_hash, owner, process, late, state)
    VALUES (hold_query, hold_dataset, hold_principal, hold_key, hold_hash, hold_owner, hold_process, 0, 'held')
    ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN RETURN -1; END IF;
  UPDATE account SET delta_spent = delta_spent + cost_delta,
      spent_0 = CASE WHEN spent_0 >= 4611686018427387904 - cost[1] THEN 4611686018427387904 ELSE spent_0 + cost[1] END,
      spent_1 = CASE WHEN spent_1 >= 4611686018427387904 - cost[2] THEN 4611686018427387904 ELSE spent_1 + cost[2] END,
      spent_2 = CASE WHEN spent_2 >= 4611686018427387904 - cost[3] THEN 4611686018427387904 ELSE spent_2 + cost[3] END,
      spent_3 = CASE WHEN spent_3 >= 4611686018427387904 - cost[4] THEN 4611686018427387904 ELSE spent_3 + cost[4] END,
      spent_4 = CASE WHEN spent_4 >= 4611686018427387904 - cost[5] THEN 4611686018427387904 ELSE spent_4 + cost[5] END,
      spent_5 = CASE WHEN spent_5 >= 4611686018427387904 - cost[6] THEN 4611686018427387904 ELSE spent_5 + cost[6] END
    WHERE delta_spent <= delta_limit - cost_delta
      AND (spent_0 <= limit_0 - cost[1]
      OR spent_1 <= limit_1 - cost[2]
      OR spent_2 <= limit_2 - cost[3]
      OR spent_3 <= limit_3 - cost[4]
      OR spent_4 <= limit_4 - cost[5]
      OR spent_5 <= limit_5 - cost[6])
      AND id = account_id;
  IF NOT FOUND THEN RETURN -2; END IF;
  UPDATE account SET delta_spent = delta_spent + 0,
      spent_0 = CASE WHEN spent_0 >= 4611686018427387904 - share THEN 4611686018427387904 ELSE spent_0 + share END
    WHERE delta_spent <= delta_limit - 0
      AND (spent_0 <= limit_0 - share)
      AND id = quota_id;
  IF NOT FOUND THEN RETURN -3; END IF;
  UPDATE allowance SET open_holds = open_holds + 1
    WHERE id IN (dataset_id, person_id) AND paused = 0 AND failures + open_holds < failures_allowed;
  GET DIAGNOSTICS moved = ROW_COUNT;
  IF moved <> 2 THEN RETURN -4; END IF;
  INSERT INTO entry (number, at, kind, dataset, query_id, who, body, previous, hash)
    VALUES (last_number + 1, now, 'reserve', hold_dataset, hold_query, hold_principal, entry_body, last_hash,
      encode(sha256(convert_to(
        '[' || last_number + 1 || ',"' || now || '","reserve",' || entry_middle || ',"' || last_hash || '"]', 'UTF8'
      )), 'hex'));
  RETURN last_number + 1;
END $$
"""
