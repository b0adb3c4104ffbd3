"""What admins declared, released answers, panels.

Revision 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_catalog()
    _create_keys_and_imports()
    _create_answers()
    _create_panels()


def _create_catalog() -> None:
    op.create_table(
        "catalog_dataset",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("declaration", sa.Text(), nullable=False),
        sa.Column("data_version", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("deleted_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("catalog_dataset_key")),
    )
    op.create_table(
        "catalog_table",
        sa.Column("dataset", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("declaration", sa.Text(), nullable=False),
        sa.Column("serving", sa.Text(), nullable=True),
        sa.Column("deleted_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["dataset"], ["catalog_dataset.name"], name=op.f("catalog_table_dataset_refers")),
        sa.PrimaryKeyConstraint("dataset", "name", name=op.f("catalog_table_key")),
    )


def _create_keys_and_imports() -> None:
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
        sa.CheckConstraint("role IN ('admin', 'analyst', 'viewer')", name=op.f("catalog_key_role")),
        sa.PrimaryKeyConstraint("prefix", name=op.f("catalog_key_key")),
    )
    op.create_table(
        "catalog_import",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("dataset", sa.String(length=63), nullable=False),
        sa.Column("table", sa.String(length=63), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("percent", sa.Integer(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("finished_ms", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("state IN ('running', 'done', 'failed')", name=op.f("catalog_import_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("catalog_import_key")),
    )


def _create_answers() -> None:
    op.create_table(
        "answer",
        sa.Column("query_id", sa.String(length=40), nullable=False),
        sa.Column("principal", sa.String(length=40), nullable=False),
        sa.Column("dataset", sa.String(length=63), nullable=False),
        sa.Column("data_version", sa.BigInteger(), nullable=False),
        sa.Column("sql_text", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.String(length=32), nullable=False),
        sa.Column("status", sa.String(length=10), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("etag", sa.String(length=64), nullable=False),
        sa.Column("replay_of", sa.String(length=40), nullable=True),
        sa.PrimaryKeyConstraint("query_id", name=op.f("answer_key")),
    )
    op.create_index("answer_by_principal", "answer", ["principal", "asked_at"], unique=False)
    op.create_table(
        "release",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("query_id", sa.String(length=40), nullable=False),
        sa.Column("core", sa.Integer(), nullable=False),
        sa.Column("dataset", sa.String(length=63), nullable=False),
        sa.Column("data_version", sa.BigInteger(), nullable=False),
        sa.Column("frame", sa.String(length=64), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("release_key")),
    )
    op.create_index("release_by_frame", "release", ["dataset", "data_version", "frame"], unique=False)


def _create_panels() -> None:
    op.create_table(
        "panel",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("dataset", sa.String(length=63), nullable=False),
        sa.Column("owner", sa.String(length=40), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("chart", sa.Text(), nullable=False),
        sa.Column("refresh_seconds", sa.BigInteger(), nullable=True),
        sa.Column("budget_pico", sa.BigInteger(), nullable=False),
        sa.Column("spent_pico", sa.BigInteger(), nullable=False),
        sa.Column("next_refresh_at", sa.String(length=32), nullable=True),
        sa.Column("query_id", sa.String(length=40), nullable=True),
        sa.Column("refreshed_at", sa.String(length=32), nullable=True),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("state_detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("panel_key")),
    )
    op.create_table(
        "panel_refresh",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("panel", sa.String(length=63), nullable=False),
        sa.Column("query_id", sa.String(length=40), nullable=False),
        sa.Column("refreshed_at", sa.String(length=32), nullable=False),
        sa.Column("share_pico", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("panel_refresh_key")),
    )
    op.create_index("panel_refresh_by_panel", "panel_refresh", ["panel", "id"], unique=False)
