"""A whole reserve as one function inside PostgreSQL.

Step by step a reserve is five statements, and on PostgreSQL each is a trip to the server and back while
the head of the chain is locked. The function takes the same steps in the same order, for the common
case: no window, and a quota and an allowance that exist. For the rest it returns 0 with nothing changed, and the
caller goes step by step. SQLite needs no such thing: its trips are function calls.
"""

import sqlalchemy as sa
from sqlalchemy import event

from service.core.amounts import CLOSED
from service.ledger.tables import ORDERS, entry
from service.store.database import metadata
from service.store.rendered import RenderedStatement

KEY_TAKEN, DATASET_REFUSES, QUOTA_REFUSES, NO_ROOM = -1, -2, -3, -4


def _charge(cost: list[str], delta: str) -> str:
    """The conditional UPDATE of service/ledger/holds.py (CHARGE), in plpgsql."""
    sums = [
        f"spent_{i} = CASE WHEN spent_{i} >= {CLOSED} - {c} THEN {CLOSED} ELSE spent_{i} + {c} END"
        for i, c in enumerate(cost)
    ]
    fits = [f"spent_{i} <= limit_{i} - {c}" for i, c in enumerate(cost)]
    comma, either = ",\n      ", "\n      OR "
    return (
        f"SET delta_spent = delta_spent + {delta},\n      {comma.join(sums)}\n"
        f"    WHERE delta_spent <= delta_limit - {delta}\n"
        f"      AND ({either.join(fits)})\n     "
    )


_COSTS = [f"cost[{i + 1}]" for i in range(ORDERS)]

FUNCTION = f"""
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
  IF NOT FOUND THEN RETURN {KEY_TAKEN}; END IF;
  UPDATE account {_charge(_COSTS, "cost_delta")} AND id = account_id;
  IF NOT FOUND THEN RETURN {DATASET_REFUSES}; END IF;
  UPDATE account {_charge(["share"], "0")} AND id = quota_id;
  IF NOT FOUND THEN RETURN {QUOTA_REFUSES}; END IF;
  UPDATE allowance SET open_holds = open_holds + 1
    WHERE id IN (dataset_id, person_id) AND paused = 0 AND failures + open_holds < failures_allowed;
  GET DIAGNOSTICS moved = ROW_COUNT;
  IF moved <> 2 THEN RETURN {NO_ROOM}; END IF;
  INSERT INTO entry (number, at, kind, dataset, query_id, who, body, previous, hash)
    VALUES (last_number + 1, now, 'reserve', hold_dataset, hold_query, hold_principal, entry_body, last_hash,
      encode(sha256(convert_to(
        '[' || last_number + 1 || ',"' || now || '","reserve",' || entry_middle || ',"' || last_hash || '"]', 'UTF8'
      )), 'hex'));
  RETURN last_number + 1;
END $$
"""


@event.listens_for(metadata, "after_create")
def _create(_target: object, connection: sa.Connection, tables: list[sa.Table], **_: object) -> None:
    if entry in tables and connection.dialect.name == "postgresql":
        connection.exec_driver_sql(FUNCTION)


RESERVE_AT_ONCE = RenderedStatement(
    sa.text(
        "SELECT reserve_at_once(:account_id, :quota_id, :dataset_id, :person_id, :order_count,"
        " CAST(:cost AS bigint[]), :cost_delta, :share, :hold_query, :hold_dataset, :hold_principal, :hold_key,"
        " :hold_hash, :hold_owner, :hold_process, :entry_body, :entry_middle)"
    )
)
