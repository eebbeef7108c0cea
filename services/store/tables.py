"""The tables of the control plane's state. Migrations make them; a test compares the two."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, Index, Integer, MetaData, Table, Text

from services.store.columns import SEQUENCE, Instant, Json

metadata = MetaData()

recommenders = Table(
    "recommenders",
    metadata,
    Column("name", Text, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("spec", Json, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
)

recommender_history = Table(
    "recommender_history",
    metadata,
    Column("name", Text, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("spec", Json, nullable=False),
    Column("at", Instant, nullable=False),
    Column("actor", Text, nullable=False),
)

# One table for every kind of row that is reconciled: the loop treats them alike.
resources = Table(
    "resources",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("recommender", Text, nullable=False),
    Column("spec", Json, nullable=False),
    Column("status", Json, nullable=False),
    Column("state", Text, nullable=False),  # of the status, for people who read the table
    Column("intent", Json),
    Column("asked", Json),
    Column("revision", Integer, nullable=False),
    Column("finished", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("due_at", Instant, nullable=False),
    Index("resources_due", "kind", "finished", "due_at", "id"),
    Index("resources_newest", "kind", "created_at", "id"),
    Index("resources_newest_of", "kind", "recommender", "created_at", "id"),
)

history = Table(
    "history",
    metadata,
    Column("seq", SEQUENCE, primary_key=True, autoincrement=True),
    Column("kind", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("at", Instant, nullable=False),
    Column("source", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Index("history_of", "kind", "id", "seq"),
    sqlite_autoincrement=True,
)

versions = Table(
    "versions",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("run", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("files", Json, nullable=False),
    Column("metrics", Json, nullable=False),
    Column("lineage", Json, nullable=False),
    Column("parent", Integer),
    Column("created_at", Instant, nullable=False),
    Index("versions_run", "run", unique=True),
)

routes = Table(
    "routes",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("stable", Integer, nullable=False),
    Column("candidate", Integer),
    Column("weight", Float, nullable=False),
    Column("salt", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("since", Instant, nullable=False),
)

# Each generation of each route, the present one too: who answered when, and who decided it.
route_history = Table(
    "route_history",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("stable", Integer, nullable=False),
    Column("candidate", Integer),
    Column("weight", Float, nullable=False),
    Column("salt", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("since", Instant, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
)

gateways = Table(
    "gateways",
    metadata,
    Column("gateway", Text, primary_key=True),
    Column("served", Json, nullable=False),
    Column("heard_at", Instant, nullable=False),
)
