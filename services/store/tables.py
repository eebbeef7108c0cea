"""Tables of the control plane's state. Migrations create the tables; a test compares both."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, MetaData, Table, Text, false, text

from services.store.columns import SEQUENCE, Instant, Json

metadata = MetaData()

installation = Table(
    "installation",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

recommenders = Table(
    "recommenders",
    metadata,
    Column("name", Text, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("spec", Json, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("deleted_at", Instant),  # the row stays: a new recommender of this name continues the generations
    Column("user_ids", Text),  # kind of the ids: integer or text; null until the first run or the first write fixes it
    Column("item_ids", Text),
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

# One table for all kinds of reconciled rows: the control loop handles all kinds alike.
resources = Table(
    "resources",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("recommender", Text, nullable=False),
    Column("spec", Json, nullable=False),
    Column("status", Json, nullable=False),
    Column("state", Text, nullable=False),  # copied from the status, so that lists can filter by state
    Column("intent", Json),
    Column("request", Json),
    Column("revision", Integer, nullable=False),
    Column("finished", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("due_at", Instant, nullable=False),
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("holder", Text),  # the control plane that reconciles the row, while its lease is live
    Column("dead_letter", Boolean, nullable=False, server_default=false()),  # copied from the status of a run
    Index("resources_due", "kind", "finished", "due_at", "id"),
    Index("resources_newest", "kind", "created_at", "id"),
    Index("resources_newest_of", "kind", "recommender", "created_at", "id"),
    Index("resources_active", "kind", "finished", "created_at", "id"),
    Index("resources_active_of", "kind", "recommender", "finished", "created_at", "id"),
    Index("resources_state", "kind", "state", "created_at", "id"),
    Index("resources_state_of", "kind", "recommender", "state", "created_at", "id"),
    Index("resources_dead", "kind", "created_at", "id", sqlite_where=text("dead_letter = 1"), postgresql_where=text("dead_letter")),
    Index(
        "resources_dead_of",
        "kind",
        "recommender",
        "created_at",
        "id",
        sqlite_where=text("dead_letter = 1"),
        postgresql_where=text("dead_letter"),
    ),
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

# Holder and expiry of each lease; a lease `replica/...` is the heartbeat of a control plane.
leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("until", Instant, nullable=False),
)

# For stage reuse: the newest published attempt of each input digest.
stage_outputs = Table(
    "stage_outputs",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("stage", Text, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("parts", Json, nullable=False),  # name -> digest of each input
    Column("attempt", Text, nullable=False),
    Column("at", Instant, nullable=False),
    Index("stage_outputs_newest", "recommender", "stage", "at"),
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

# A tag names one version of a recommender at a time; aliases (serving, previous, candidate) follow from the routes.
version_tags = Table(
    "version_tags",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("tag", Text, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("at", Instant, nullable=False),
    Column("actor", Text, nullable=False),
)

# Versions whose files were collected; a separate table, because rows of `versions` never change.
collected_versions = Table(
    "collected_versions",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", Instant, nullable=False),
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
    Column("shadow", Boolean, nullable=False, server_default=false()),
    Column("since", Instant, nullable=False),
)

# Every generation of every route, including the current generation.
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
    Column("shadow", Boolean, nullable=False, server_default=false()),
    Column("since", Instant, nullable=False),
    Column("ended", Instant),  # set when the recommender was deleted: no generation follows
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

# Totals of each shadow so far: one row per gateway process.
shadow_totals = Table(
    "shadow_totals",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("gateway", Text, primary_key=True),
    Column("compared", Integer, nullable=False),
    Column("errors", Integer, nullable=False),
    Column("stable", Json, nullable=False),  # latencies: bucket -> count
    Column("candidate", Json, nullable=False),
    Column("overlap", Float, nullable=False),
    Column("dropped", Integer, nullable=False),
)

# Catalogue items. A deleted item keeps its row, so that readers by revision see the deletion.
catalogue_items = Table(
    "catalogue_items",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("item", BigInteger, primary_key=True, autoincrement=False),
    Column("attributes", Json, nullable=False),
    Column("available", Boolean, nullable=False),
    Column("deleted", Boolean, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("id", Text),  # the item's id if it is text; `item` is its key
    Column("times", Json),  # newest write of a client by attribute; null: all at updated_at
    Column("created_at", Instant),  # null: at updated_at
    Index("catalogue_items_changed", "recommender", "revision"),
)

# Newest revision of each catalogue, and the revision at which the whole catalogue was last deleted.
catalogues = Table(
    "catalogues",
    metadata,
    Column("recommender", Text, primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("cleared", BigInteger, nullable=False),
    Column("names", Json),  # names of all attributes that any item has or had
    Column("seed_version", Integer),  # version whose seed was applied last; null: none
    Column("seed_digest", Text),
    Column("seed_left", Integer),  # parts of that seed that are not applied yet
)

# Change counters of rows that are read as a whole, many times a second.
change_counters = Table(
    "change_counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# API tokens: only the digests are stored.
tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("recommenders", Json),  # null: all recommenders
    Column("created_at", Instant, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("expires_at", Instant),
    Column("revoked_at", Instant),
    Column("revoked_by", Text),
    Index("tokens_living_name", "name", unique=True, sqlite_where=text("revoked_at IS NULL"), postgresql_where=text("revoked_at IS NULL")),
)

# Sessions of the console: of a token, or of an identity that a provider has authenticated.
sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("renewed_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("token_id", Text),
    Column("token_digest", Text),
    Column("identity", Json),
    Column("previous_digest", Text),
    Column("previous_until", Instant),
    Index("sessions_by_expiry", "expires_at"),
)

audit = Table(
    "audit",
    metadata,
    Column("seq", SEQUENCE, primary_key=True, autoincrement=True),
    Column("at", Instant, nullable=False),
    Column("actor", Text, nullable=False),
    Column("token", Text, nullable=False),
    Column("action", Text, nullable=False),  # method and route, such as 'POST /v1/runs/{id}:cancel'
    Column("target", Text, nullable=False),  # path of the request
    Column("recommender", Text),
    Column("status", Integer),  # null until the response
    Column("detail", Text, nullable=False),
    Column("exported", Integer, nullable=False, server_default="0"),  # 1: without its outcome; 2: with it
    Index("audit_of", "recommender", "seq"),
    Index("audit_to_export", "seq", sqlite_where=text("exported < 2"), postgresql_where=text("exported < 2")),
    sqlite_autoincrement=True,
)

# Responses to requests with an Idempotency-Key: a repeated request gets the stored response and is not executed again.
stored_responses = Table(
    "stored_responses",
    metadata,
    Column("token", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("digest", Text, nullable=False),  # of method, path and body
    Column("status", Integer),  # null while the first request is running
    Column("headers", Json),
    Column("body", Text),
    Column("at", Instant, nullable=False),  # when the first request arrived
    Column("taken_at", Instant, nullable=False),  # when a process last began to execute the request
    Index("stored_responses_age", "at"),
)
