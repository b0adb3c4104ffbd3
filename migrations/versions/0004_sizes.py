"""How large tables are, as far as that is public.

Revision 0004, after 0003.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("catalog_table", sa.Column("size", sa.Text(), nullable=True))
