"""What was released of the sizes of private tables.

Revision 0007, after 0006.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "catalog_profile",
        sa.Column("dataset", sa.String(63), nullable=False),
        sa.Column("table", sa.String(63), nullable=False),
        sa.Column("query_id", sa.String(40), nullable=False),
        sa.Column("released", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("dataset", "table"),
    )
