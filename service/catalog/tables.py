"""What admins declared, as rows: datasets, tables, imports and keys. What admins did is in the ledger's journal."""

import sqlalchemy as sa

from service.store.database import metadata

dataset = sa.Table(
    "catalog_dataset",
    metadata,
    sa.Column("name", sa.String(63), primary_key=True),
    sa.Column("declaration", sa.Text, nullable=False),  # JSON of declare.DatasetDeclaration
    sa.Column("data_version", sa.BigInteger, nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("deleted_ms", sa.BigInteger, nullable=True),  # soft: the budget belongs to the people
)

table = sa.Table(
    "catalog_table",
    metadata,
    sa.Column("dataset", sa.String(63), sa.ForeignKey("catalog_dataset.name"), primary_key=True),
    sa.Column("name", sa.String(63), primary_key=True),
    sa.Column("declaration", sa.Text, nullable=False),  # JSON of declare.TableDeclaration, as last asked for
    sa.Column("serving", sa.Text, nullable=True),  # the same, of the version that answers queries now
    sa.Column("deleted_ms", sa.BigInteger, nullable=True),
)

imports = sa.Table(
    "catalog_import",
    metadata,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("dataset", sa.String(63), nullable=False),
    sa.Column("table", sa.String(63), nullable=False),
    sa.Column("state", sa.String(10), nullable=False),
    sa.Column("percent", sa.Integer, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),  # admins only: may speak of the data
    sa.Column("started_ms", sa.BigInteger, nullable=False),
    sa.Column("finished_ms", sa.BigInteger, nullable=True),
    sa.CheckConstraint("state IN ('running', 'done', 'failed')", name="state"),
)

key = sa.Table(
    "catalog_key",
    metadata,
    sa.Column("prefix", sa.String(16), primary_key=True),
    sa.Column("secret_sha256", sa.String(64), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.String(10), nullable=False),
    sa.Column("datasets", sa.Text, nullable=False),  # JSON list; admins read all
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=True),
    sa.Column("revoked_ms", sa.BigInteger, nullable=True),
    sa.Column("used_ms", sa.BigInteger, nullable=True),
    sa.CheckConstraint("role IN ('admin', 'analyst', 'viewer')", name="role"),
)
