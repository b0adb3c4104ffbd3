"""A write transaction of the store, as a type that every package can name without the database's library.

`Store.write` is the only one that makes it: what takes a Transaction writes, and becomes durable with whatever else is
written in the same one; what takes a plain connection reads.
"""

from typing import NewType

import sqlalchemy as sa

Transaction = NewType("Transaction", sa.Connection)
