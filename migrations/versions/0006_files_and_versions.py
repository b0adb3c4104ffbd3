"""Claims per file, data versions per table, and who runs an import.

Revision 0006, after 0005. A table that serves takes the version that its dataset has: none of its stored releases is
of another one. Claims of lists of paths stay where they are; a start derives claims per file from them
(service/upkeep/carrying.py), because only the service knows where the files lie.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

GUARDS = (
    ("source_file", "UPDATE", "a file stays with its budget"),
    ("source_file", "DELETE", "a file stays with its budget"),
    ("source_content", "UPDATE", "what was imported stays known"),
    ("source_content", "DELETE", "what was imported stays known"),
)


def upgrade() -> None:
    _create_claims()
    _add_versions()
    op.add_column("catalog_import", sa.Column("owner", sa.Text(), nullable=True))
    op.create_table(
        "catalog_public_file",
        sa.Column("import_id", sa.String(40), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("inner_table", sa.Text(), nullable=False),
        sa.Column("dataset", sa.String(63), nullable=False),
        sa.Column("table", sa.String(63), nullable=False),
        sa.PrimaryKeyConstraint("import_id", "path", name=op.f("catalog_public_file_key")),
    )
    op.create_index("catalog_public_file_by_path", "catalog_public_file", ["path"])


def _create_claims() -> None:
    op.create_table(
        "source_file",
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("inner_table", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("inode", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("path", "inner_table", name=op.f("source_file_key")),
    )
    op.create_index("source_file_inode_index", "source_file", ["inode"])
    op.create_table(
        "source_content",
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("private", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("content", "path", "dataset", "private", name=op.f("source_content_key")),
    )
    for table, verb, message in GUARDS:
        _guard(table, verb, message)


def _guard(table: str, verb: str, message: str) -> None:
    name = f"{table}_{verb.lower()}_guard"
    if op.get_bind().dialect.name == "sqlite":
        _run(f"CREATE TRIGGER {name} BEFORE {verb} ON {table} BEGIN SELECT RAISE(ABORT, '{message}'); END")
        return
    function = "RETURNS trigger LANGUAGE plpgsql AS"
    _run(f"CREATE FUNCTION {name}() {function} $$ BEGIN RAISE EXCEPTION '{message}'; END $$")
    _run(f"CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")
    if verb == "DELETE":
        _run(f"CREATE TRIGGER {table}_truncate_guard BEFORE TRUNCATE ON {table} EXECUTE FUNCTION {name}()")


def _add_versions() -> None:
    op.add_column("catalog_table", sa.Column("data_version", sa.BigInteger(), nullable=True))
    op.execute(
        "UPDATE catalog_table SET data_version = (SELECT d.data_version FROM catalog_dataset AS d"
        " WHERE d.name = catalog_table.dataset) WHERE serving IS NOT NULL"
    )
    op.add_column("answer", sa.Column("versions", sa.Text(), nullable=True))
    op.add_column("release", sa.Column("versions", sa.Text(), nullable=True))
    op.drop_index("release_by_frame", "release")
    op.create_index("release_by_rows", "release", ["dataset", "frame"])


def _run(statement: str) -> None:
    op.get_bind().exec_driver_sql(statement)
