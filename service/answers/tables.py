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
    sa.Index("answer_by_principal", "principal", "asked_at"),
)

re
