"""Tables of feature values. Times are whole microseconds since 1970; a body is JSON; at equal times the row with the higher digest counts.

Migrations in services/store create the tables; a test compares both.
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

# Every view with rows, and its mark: how far its source was loaded.
feature_views = Table(
    "feature_views",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("view", Text, primary_key=True),
    Column("count", BigInteger, nullable=False),
)

# Every written row, within the retention.
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
