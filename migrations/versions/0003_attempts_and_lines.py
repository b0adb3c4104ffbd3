"""Free answers under an Idempotency-Key; what a panel's line is counted in.

Revision 0003, after 0002.
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

KEPT = (
    "name", "dataset", "owner", "request", "title", "chart", "refresh_seconds", "budget_pico", "spent_pico",
    "next_refresh_at", "query_id", "refreshed_at", "state", "state_detail",
)  # fmt: skip


def upgrade() -> None:
    op.create_table(
        "attempt",
        sa.Column("principal", sa.String(length=40), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("query_id", sa.String(length=40), nullable=False),
        sa.PrimaryKeyConstraint("principal", "key", name=op.f("attempt_key")),
    )
    connection = op.get_bind()
    old = connection.execute(sa.text(f"SELECT {', '.join(KEPT)} FROM panel")).mappings().all()
    op.drop_table("panel")
    panel = _create_panel()
    if old:
        op.bulk_insert(panel, [_with_line(dict(row)) for row in old])


def _create_panel() -> sa.Table:
    """Made anew rather than altered, so that migrated and new stores are the same to the letter."""
    return op.create_table(
        "panel",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("dataset", sa.String(length=63), nullable=False),
        sa.Column("owner", sa.String(length=40), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("chart", sa.Text(), nullable=False),
        sa.Column("refresh_seconds", sa.BigInteger(), nullable=True),
        sa.Column("unit", sa.String(length=10), nullable=False),
        sa.Column("budget_pico", sa.BigInteger(), nullable=False),
        sa.Column("spent_pico", sa.BigInteger(), nullable=False),
        sa.Column("refresh_pico", sa.BigInteger(), nullable=False),
        sa.Column("next_refresh_at", sa.String(length=32), nullable=True),
        sa.Column("query_id", sa.String(length=40), nullable=True),
        sa.Column("refreshed_at", sa.String(length=32), nullable=True),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("state_code", sa.String(length=40), nullable=False),
        sa.Column("state_detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("panel_key")),
    )


def _with_line(row: dict[str, object]) -> dict[str, object]:
    """The unit that the stored question pays in; what a refresh costs is known after the next one."""
    request = json.loads(str(row["request"]))
    unit = next((name for name in ("rho", "share") if request.get(name) is not None), "epsilon")
    if request.get("accuracy") is not None:
        unit = "share"
    return {**row, "unit": unit, "refresh_pico": 0, "state_code": ""}
