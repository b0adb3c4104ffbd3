"""Tables of released answers. Everything here is released already: post-processing, free to read."""

import sqlalchemy as sa

from service.store.database import metadata

answer = sa.Table(
    "answer",
    metadata,
    sa.Column("query_id", sa.String(40), primary_key=True),
    sa.Column("principal", sa.String(40), nullable=False),
    sa.Column("dataset", sa.String(63), nullable=False),
    sa.Column("data_version", sa.BigInteger, nullable=False),
    sa.Column("sql_text", sa.Text, nullable=False),
    sa.Column("asked_at", sa.String(32), nullable=False),
    sa.Column("status", sa.String(10), nullable=False),  # answered or failed
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("etag", sa.String(64), nullable=False),
    sa.Column("replay_of", sa.String(40), nullable=True),
    sa.Column("versions", sa.Text, nullable=True),  # of the tables that it reads; NULL: stored before tables had any
    sa.Index("answer_by_principal", "principal", "asked_at"),
)

# Free answers that were asked for under an Idempotency-Key; paid ones have theirs in the ledger's hold.
attempt = sa.Table(
    "attempt",
    metadata,
    sa.Column("principal", sa.String(40), primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("request_hash", sa.Text, nullable=False),
    sa.Column("query_id", sa.String(40), nullable=False),
)

release = sa.Table(
    "release",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("query_id", sa.String(40), nullable=False),
    sa.Column("core", sa.Integer, nullable=False),
    sa.Column("dataset", sa.String(63), nullable=False),
    sa.Column("data_version", sa.BigInteger, nullable=False),
    sa.Column("frame", sa.String(64), nullable=False),  # digest of rows and keys, without measures
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("versions", sa.Text, nullable=True),  # as above, of the core alone
    sa.Index("release_by_rows", "dataset", "frame"),
)

panel = sa.Table(
    "panel",
    metadata,
    sa.Column("name", sa.String(63), primary_key=True),
    sa.Column("dataset", sa.String(63), primary_key=True),
    sa.Column("owner", sa.String(40), nullable=False),
    sa.Column("request", sa.Text, nullable=False),  # the question, as core/ask_codec.py writes it
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("chart", sa.Text, nullable=False),
    sa.Column("refresh_seconds", sa.BigInteger, nullable=True),
    sa.Column("unit", sa.String(10), nullable=False),  # what the line is counted in: epsilon, rho or share
    sa.Column("budget_pico", sa.BigInteger, nullable=False),
    sa.Column("spent_pico", sa.BigInteger, nullable=False),
    sa.Column("refresh_pico", sa.BigInteger, nullable=False),  # what one refresh costs
    sa.Column("next_refresh_at", sa.String(32), nullable=True),
    sa.Column("query_id", sa.String(40), nullable=True),  # the last good answer
    sa.Column("refreshed_at", sa.String(32), nullable=True),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("state_code", sa.String(40), nullable=False),
    sa.Column("state_detail", sa.Text, nullable=False),
    sa.Column("bounds_change", sa.Text, nullable=True),  # how its bounds differ from those of the answer before
    sa.Column("table_name", sa.String(63), nullable=False, unique=True),  # what it is published as
)

panel_refresh = sa.Table(
    "panel_refresh",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("panel", sa.String(63), nullable=False),
    sa.Column("dataset", sa.String(63), nullable=False),
    sa.Column("query_id", sa.String(40), nullable=False),
    sa.Column("refreshed_at", sa.String(32), nullable=False),
    sa.Column("share_pico", sa.BigInteger, nullable=False),
    sa.Index("panel_refresh_by_panel", "panel", "dataset", "id"),
)
