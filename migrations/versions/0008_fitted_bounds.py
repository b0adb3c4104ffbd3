"""Default bounds that were chosen from a profile, as they were first used; and panels that mark their change.

Revision 0008, after 0007.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "catalog_fitted_bounds",
        sa.Column("dataset", sa.String(63), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("basis", sa.Text(), nullable=False),
        sa.Column("rows_per_unit", sa.BigInteger(), nullable=False),
        sa.Column("groups_per_unit", sa.BigInteger(), nullable=False),
        sa.Column("profiles", sa.Text(), nullable=False),
        sa.Column("kept_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["dataset"], ["catalog_dataset.name"], name="catalog_fitted_bounds_dataset_refers"),
        sa.PrimaryKeyConstraint("dataset", "digest", name="catalog_fitted_bounds_key"),
    )
    op.add_column("panel", sa.Column("bounds_change", sa.Text(), nullable=True))
