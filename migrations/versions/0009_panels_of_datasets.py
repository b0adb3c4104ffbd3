"""Panels are named within their dataset, and have a table name of their own for BI tools.

Revision 0009, after 0008. Panels that are there keep the table that they are published as. A past refresh is of the
dataset that its answer is of: the name may have shown another one before.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

PAST = """
SELECT r.panel, COALESCE(a.dataset, p.dataset, '') AS dataset, r.query_id, r.refreshed_at, r.share_pico
FROM panel_refresh AS r
LEFT JOIN answer AS a ON a.query_id = r.query_id
LEFT JOIN panel AS p ON p.name = r.panel
ORDER BY r.id
"""


def upgrade() -> None:
    connection = op.get_bind()
    past = [dict(row) for row in connection.execute(sa.text(PAST)).mappings()]
    panels = [
        {**row, "table_name": row["name"]} for row in connection.execute(sa.text("SELECT * FROM panel")).mappings()
    ]
    op.drop_index("panel_refresh_by_panel", "panel_refresh")
    op.drop_table("panel_refresh")
    op.drop_table("panel")
    _fill(_create_panel(), panels)
    _fill(_create_past(), past)
    op.create_index("panel_refresh_by_panel", "panel_refresh", ["panel", "dataset", "id"])


def _fill(table: sa.Table, rows: list[dict[str, object]]) -> None:
    if rows:
        op.bulk_insert(table, rows)


def _create_panel() -> sa.Table:
    """Made anew rather than altered, so that migrated and new stores are the same to the letter."""
    return op.create_table(
        "panel",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("dataset", sa.String(63), nullable=False),
        sa.Column("owner", sa.String(40), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("chart", sa.Text(), nullable=False),
        sa.Column("refresh_seconds", sa.BigInteger(), nullable=True),
        sa.Column("unit", sa.String(10), nullable=False),
        sa.Column("budget_pico", sa.BigInteger(), nullable=False),
        sa.Column("spent_pico", sa.BigInteger(), nullable=False),
        sa.Column("refresh_pico", sa.BigInteger(), nullable=False),
        sa.Column("next_refresh_at", sa.String(32), nullable=True),
        sa.Column("query_id", sa.String(40), nullable=True),
        sa.Column("refreshed_at", sa.String(32), nullable=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("state_code", sa.String(40), nullable=False),
        sa.Column("state_detail", sa.Text(), nullable=False),
        sa.Column("bounds_change", sa.Text(), nullable=True),
        sa.Column("table_name", sa.String(63), nullable=False),
        sa.PrimaryKeyConstraint("name", "dataset", name=op.f("panel_key")),
        sa.UniqueConstraint("table_name", name=op.f("panel_table_name_unique")),
    )


def _create_past() -> sa.Table:
    """Numbers are given anew, in the old order: nothing refers to them."""
    return op.create_table(
        "panel_refresh",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("panel", sa.String(63), nullable=False),
        sa.Column("dataset", sa.String(63), nullable=False),
        sa.Column("query_id", sa.String(40), nullable=False),
        sa.Column("refreshed_at", sa.String(32), nullable=False),
        sa.Column("share_pico", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("panel_refresh_key")),
    )
