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
    sa.Column("size", sa.Text, nullable=True),  # JSON of core.sizes, as far as it is public; NULL: not known
    sa.Column("data_version", sa.BigInteger, nullable=True),  # of the dataset, when this table was last built
)

# Files behind public tables that serve or are being imported; what is private is claimed in the ledger.
public_file = sa.Table(
    "catalog_public_file",
    metadata,
    sa.Column("import_id", sa.String(40), primary_key=True),
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("inner_table", sa.Text, nullable=False),  # the table of a DuckDB file, else empty
    sa.Column("dataset", sa.String(63), nullable=False),
    sa.Column("table", sa.String(63), nullable=False),
    sa.Index("catalog_public_file_by_path", "path"),
)

fitted_bounds = sa.Table(
    "catalog_fitted_bounds",
    metadata,
    sa.Column("dataset", sa.String(63), sa.ForeignKey("catalog_dataset.name"), primary_key=True),
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("basis", sa.Text, nullable=False),  # JSON of core.fitted.Basis: what the bounds were chosen for
    sa.Column("rows_per_unit", sa.BigInteger, nullable=False),
    sa.Column("groups_per_unit", sa.BigInteger, nullable=False),
    sa.Column("profiles", sa.Text, nullable=False),  # JSON list of the charges of the profiles they come from
    sa.Column("kept_ms", sa.BigInteger, nullable=False),
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
    sa.Column("owner", sa.Text, nullable=True),  # the process that runs it (service/store/presence.py)
    sa.CheckConstraint("state IN ('running', 'done', 'failed')", name="state"),
)

# What was released of a private table's size. It stays when the table goes: a new draw is a new charge.
profile = sa.Table(
    "catalog_profile",
    metadata,
    sa.Column("dataset", sa.String(63), primary_key=True),
    sa.Column("table", sa.String(63), primary_key=True),
    sa.Column("query_id", sa.String(40), nullable=False),  # of its charge
    sa.Column("released", sa.Text, nullable=False),  # JSON of core.sizes.ReleasedProfile
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
    sa.Column("owner", sa.Text, nullable=False),  # the person: keys of one owner share an allowance of failures
    sa.CheckConstraint("role IN ('admin', 'analyst', 'viewer')", name="role"),
)
