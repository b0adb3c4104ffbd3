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
NUMBERS = [*SPENT, *LIMIT, "delta_spent", "delta_limit", "orders", "failures", "failures_allowed", "paused"]
PROMISES = ["epsilon_granted", "delta_granted", "epsilon_ceiling", "delta_ceiling"]
KINDS = ("open", "grant", "ceiling", "quota", "window", "reserve", "settle", "pause", "resume", "source", "note")


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    _create_account(dialect)
    _create_promise(dialect)
    _create_hold()
    _create_journal(dialect)
    op.create_table(
        "source",
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("source_key")),
    )
    op.execute(f"INSERT INTO head (id, number, hash) VALUES (1, 0, '{'0' * 64}')")
    _create_guards(dialect)
    if dialect == "postgresql":
        _run(RESERVE_AT_ONCE)


def _create_account(dialect: str) -> None:
    least, greatest = ("min", "max") if dialect == "sqlite" else ("LEAST", "GREATEST")
    checks = {
        "some_order_holds": " OR ".join(f"{s} <= {x}" for s, x in zip(SPENT, LIMIT, strict=True)),
        "amounts_in_range": f"{least}({', '.join(SPENT)}, delta_spent, failures, paused) >= 0"
        f" AND delta_spent <= delta_limit AND {greatest}({', '.join(SPENT)}) <= {CLOSED}"
        f" AND {greatest}({', '.join(LIMIT)}) < {CLOSED}",
    }
    if dialect == "sqlite":
        checks["integers_stay_integers"] = " AND ".join(f"typeof({name}) = 'integer'" for name in NUMBERS)
    op.create_table(
        "account",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in NUMBERS),
        sa.Column("window_kind", sa.Text(), nullable=True),
        sa.Column("window_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("account_key")),
        *(sa.CheckConstraint(rule, name=op.f(f"account_{name}")) for name, rule in checks.items()),
    )
    op.create_index("account_dataset_index", "account", ["dataset"])


def _create_promise(dialect: str) -> None:
    checks = {
        "grant_below_ceiling": "0 <= epsilon_granted AND epsilon_granted <= epsilon_ceiling"
        " AND 0 <= delta_granted AND delta_granted <= delta_ceiling",
    }
    if dialect == "sqlite":
        checks["integers_stay_integers"] = " AND ".join(f"typeof({name}) = 'integer'" for name in PROMISES)
    op.create_table(
        "promise",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in PROMISES),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("promise_account_id_refers")),
        sa.PrimaryKeyConstraint("account_id", name=op.f("promise_key")),
        *(sa.CheckConstraint(rule, name=op.f(f"promise_{name}")) for name, rule in checks.items()),
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
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("query_id", name=op.f("hold_key")),
        sa.CheckConstraint("state IN ('held', 'answered', 'failed')", name=op.f("hold_state_known")),
        sqlite_with_rowid=False,
    )
    named = sa.text("key IS NOT NULL")
    op.create_index(
        "hold_attempt_unique", "hold", ["principal", "key"], unique=True, sqlite_where=named, postgresql_where=named
    )


def _create_journal(dialect: str) -> None:
    number = sa.Integer() if dialect == "sqlite" else sa.BigInteger()
    op.create_table(
        "entry",
        sa.Column("number", number, autoincrement=False, nullable=False),
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
    reserve = sa.text("kind = 'reserve'")
    op.create_index("entry_reserve_index", "entry", ["who", "number"], sqlite_where=reserve, postgresql_where=reserve)
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
    falls = f"NEW.id <> OLD.id OR ({falls}) AND (NEW.window_id IS NULL OR NEW.window_id <= COALESCE(OLD.window_id, ''))"
    function = "RETURNS trigger LANGUAGE plpgsql AS"
    if dialect == "sqlite":
        _run(
            f"CREATE TRIGGER entry_chain AFTER INSERT ON entry BEGIN {move};"
            " SELECT RAISE(ABORT, 'an entry continues the chain')"
            " WHERE NOT EXISTS (SELECT 1 FROM head WHERE number = NEW.number AND hash = NEW.hash); END"
        )
        _run(
            f"CREATE TRIGGER account_update_guard BEFORE UPDATE ON account WHEN {falls}"
            " BEGIN SELECT RAISE(ABORT, 'what was spent stays spent'); END"
        )
    else:
        _run(
            f"CREATE FUNCTION entry_chain() {function} $$ BEGIN {move};"
            " IF NOT FOUND THEN RAISE EXCEPTION 'an entry continues the chain'; END IF; RETURN NULL; END $$"
        )
        _run("CREATE TRIGGER entry_chain AFTER INSERT ON entry FOR EACH ROW EXECUTE FUNCTION entry_chain()")
        _run(
            f"CREATE FUNCTION account_update_guard() {function} $$ BEGIN IF {falls}"
            " THEN RAISE EXCEPTION 'what was spent stays spent'; END IF; RETURN NEW; END $$"
        )
        _run(
            "CREATE TRIGGER account_update_guard BEFORE UPDATE ON account"
            " FOR EACH ROW EXECUTE FUNCTION account_update_guard()"
        )
    _create_refusals(dialect)


def _create_refusals(dialect: str) -> None:
    refusals = (
        ("entry", "UPDATE", "entries are append-only"),
        ("entry", "DELETE", "entries are append-only"),
        ("head", "DELETE", "the chain has a head"),
        ("account", "DELETE", "a budget belongs to the people: accounts stay"),
        ("promise", "DELETE", "a promise stays"),
        ("source", "UPDATE", "a source stays with its budget"),
        ("source", "DELETE", "a source stays with its budget"),
    )
    for table, verb, message in refusals:
        name = f"{table}_{verb.lower()}_guard"
        if dialect == "sqlite":
            _run(f"CREATE TRIGGER {name} BEFORE {verb} ON {table} BEGIN SELECT RAISE(ABORT, '{message}'); END")
            continue
        _run(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{message}'; END $$"
        )
        _run(f"CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")
        if verb == "DELETE":
            _run(f"CREATE TRIGGER {table}_truncate_guard BEFORE TRUNCATE ON {table} EXECUTE FUNCTION {name}()")


def _run(statement: str) -> None:
    op.get_bind().exec_driver_sql(statement)


RESERVE_AT_ONCE = """
CREATE FUNCTION reserve_at_once(
  account_id text, quota_id text, order_count bigint, cost bigint[], cost_delta bigint, share bigint,
  hold_query text, hold_dataset text, hold_principal text, hold_key text, hold_hash text, hold_owner text,
  entry_body text, entry_middle text
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  last_number bigint;
  last_hash text;
  now text;
BEGIN
  SELECT number, hash INTO STRICT last_number, last_hash FROM head FOR UPDATE;
  now := to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
  PERFORM 1 FROM account WHERE id = account_id AND window_kind IS NULL AND orders = order_count;
  IF NOT FOUND THEN RETURN 0; END IF;
  PERFORM 1 FROM account WHERE id = quota_id;
  IF NOT FOUND THEN RETURN 0; END IF;
  INSERT INTO hold (query_id, dataset, principal, key, request_hash, owner, state)
    VALUES (hold_query, hold_dataset, hold_principal, hold_key, hold_hash, hold_owner, 'held')
    ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN RETURN -1; END IF;
  UPDATE account SET delta_spent = delta_spent + cost_delta,
      spent_0 = CASE WHEN spent_0 >= 4611686018427387904 - cost[1] THEN 4611686018427387904 ELSE spent_0 + cost[1] END,
      spent_1 = CASE WHEN spent_1 >= 4611686018427387904 - cost[2] THEN 4611686018427387904 ELSE spent_1 + cost[2] END,
      spent_2 = CASE WHEN spent_2 >= 4611686018427387904 - cost[3] THEN 4611686018427387904 ELSE spent_2 + cost[3] END,
      spent_3 = CASE WHEN spent_3 >= 4611686018427387904 - cost[4] THEN 4611686018427387904 ELSE spent_3 + cost[4] END,
      spent_4 = CASE WHEN spent_4 >= 4611686018427387904 - cost[5] THEN 4611686018427387904 ELSE spent_4 + cost[5] END,
      spent_5 = CASE WHEN spent_5 >= 4611686018427387904 - cost[6] THEN 4611686018427387904 ELSE spent_5 + cost[6] END
    WHERE paused = 0 AND failures < failures_allowed AND delta_spent <= delta_limit - cost_delta
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
    WHERE paused = 0 AND failures < failures_allowed AND delta_spent <= delta_limit - 0
      AND (spent_0 <= limit_0 - share)
      AND id = quota_id;
  IF NOT FOUND THEN RETURN -3; END IF;
  INSERT INTO entry (number, at, kind, dataset, query_id, who, body, previous, hash)
    VALUES (last_number + 1, now, 'reserve', hold_dataset, hold_query, hold_principal, entry_body, last_hash,
      encode(sha256(convert_to(
        '[' || last_number + 1 || ',"' || now || '","reserve",' || entry_middle || ',"' || last_hash || '"]', 'UTF8'
      )), 'hex'));
  RETURN last_number + 1;
END $$
"""
