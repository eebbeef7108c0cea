"""The tables of values by key. Times are whole microseconds since 1970; a body is JSON, and its digest says which of two rows counts.

Migrations make the tables, in services/store; a test compares the two.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, MetaData, Table, Text

metadata = MetaData()

# The newest row of each key.
feature_values = Table(
    "feature_values",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("view", Text, primary_key=True),
    Column("entity", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    Column("body", Text, nullable=False),
)

# Every view that holds anything, and how far something was loaded into it.
feature_views = Table(
    "feature_views",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("view", Text, primary_key=True),
    Column("count", BigInteger, nullable=False),
)

# Every row that was ever written, as far back as it is kept.
feature_history = Table(
    "feature_history",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("view", Text, primary_key=True),
    Column("entity", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", Text, nullable=False),
    Column("body", Text, nullable=False),
    Index("feature_history_by_time", "recommender", "at"),
)
