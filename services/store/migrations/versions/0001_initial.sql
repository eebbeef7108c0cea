-- Tables of the first release. Frozen: a later change is a migration of its own. Differences between SQLite and PostgreSQL: 0001_initial.py.

CREATE TABLE recommenders (
    name TEXT NOT NULL,
    generation INTEGER NOT NULL,
    spec TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT,
    PRIMARY KEY (name)
);

CREATE TABLE recommender_history (
    name TEXT NOT NULL,
    generation INTEGER NOT NULL,
    spec TEXT NOT NULL,
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    PRIMARY KEY (name, generation)
);

CREATE TABLE resources (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    recommender TEXT NOT NULL,
    spec TEXT NOT NULL,
    status TEXT NOT NULL,
    state TEXT NOT NULL,
    intent TEXT,
    request TEXT,
    revision INTEGER NOT NULL,
    finished BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    priority INTEGER DEFAULT '0' NOT NULL,
    holder TEXT,
    dead_letter BOOLEAN DEFAULT {false} NOT NULL,
    PRIMARY KEY (kind, id)
);
CREATE INDEX resources_active ON resources (kind, finished, created_at, id);
CREATE INDEX resources_active_of ON resources (kind, recommender, finished, created_at, id);
CREATE INDEX resources_dead ON resources (kind, created_at, id) WHERE {dead_letter};
CREATE INDEX resources_dead_of ON resources (kind, recommender, created_at, id) WHERE {dead_letter};
CREATE INDEX resources_due ON resources (kind, finished, due_at, id);
CREATE INDEX resources_newest ON resources (kind, created_at, id);
CREATE INDEX resources_newest_of ON resources (kind, recommender, created_at, id);
CREATE INDEX resources_state ON resources (kind, state, created_at, id);
CREATE INDEX resources_state_of ON resources (kind, recommender, state, created_at, id);

CREATE TABLE history (
    seq {sequence},
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    at BIGINT NOT NULL,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    reason TEXT NOT NULL,
    actor TEXT NOT NULL
);
CREATE INDEX history_of ON history (kind, id, seq);

CREATE TABLE leases (
    name TEXT NOT NULL,
    holder TEXT NOT NULL,
    until BIGINT NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE stage_outputs (
    recommender TEXT NOT NULL,
    stage TEXT NOT NULL,
    digest TEXT NOT NULL,
    parts TEXT NOT NULL,
    attempt TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (recommender, stage, digest)
);
CREATE INDEX stage_outputs_newest ON stage_outputs (recommender, stage, at);

CREATE TABLE versions (
    recommender TEXT NOT NULL,
    number INTEGER NOT NULL,
    run TEXT NOT NULL,
    digest TEXT NOT NULL,
    files TEXT NOT NULL,
    metrics TEXT NOT NULL,
    lineage TEXT NOT NULL,
    parent INTEGER,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (recommender, number)
);
CREATE UNIQUE INDEX versions_run ON versions (run);

CREATE TABLE version_tags (
    recommender TEXT NOT NULL,
    tag TEXT NOT NULL,
    number INTEGER NOT NULL,
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    PRIMARY KEY (recommender, tag)
);

CREATE TABLE collected_versions (
    recommender TEXT NOT NULL,
    number INTEGER NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (recommender, number)
);

CREATE TABLE routes (
    recommender TEXT NOT NULL,
    generation INTEGER NOT NULL,
    stable INTEGER NOT NULL,
    candidate INTEGER,
    weight FLOAT NOT NULL,
    salt TEXT NOT NULL,
    step INTEGER NOT NULL,
    shadow BOOLEAN DEFAULT {false} NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (recommender)
);

CREATE TABLE route_history (
    recommender TEXT NOT NULL,
    generation INTEGER NOT NULL,
    stable INTEGER NOT NULL,
    candidate INTEGER,
    weight FLOAT NOT NULL,
    salt TEXT NOT NULL,
    step INTEGER NOT NULL,
    shadow BOOLEAN DEFAULT {false} NOT NULL,
    since BIGINT NOT NULL,
    ended BIGINT,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (recommender, generation)
);

CREATE TABLE gateways (
    gateway TEXT NOT NULL,
    served TEXT NOT NULL,
    heard_at BIGINT NOT NULL,
    PRIMARY KEY (gateway)
);

CREATE TABLE shadow_totals (
    recommender TEXT NOT NULL,
    generation INTEGER NOT NULL,
    gateway TEXT NOT NULL,
    compared INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    stable TEXT NOT NULL,
    candidate TEXT NOT NULL,
    overlap FLOAT NOT NULL,
    dropped INTEGER NOT NULL,
    PRIMARY KEY (recommender, generation, gateway)
);

CREATE TABLE catalogue_items (
    recommender TEXT NOT NULL,
    item BIGINT NOT NULL,
    attributes TEXT NOT NULL,
    available BOOLEAN NOT NULL,
    deleted BOOLEAN NOT NULL,
    revision BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (recommender, item)
);
CREATE INDEX catalogue_items_changed ON catalogue_items (recommender, revision);

CREATE TABLE catalogues (
    recommender TEXT NOT NULL,
    revision BIGINT NOT NULL,
    cleared BIGINT NOT NULL,
    PRIMARY KEY (recommender)
);

CREATE TABLE change_counters (
    name TEXT NOT NULL,
    value BIGINT NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE tokens (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    role TEXT NOT NULL,
    recommenders TEXT,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    revoked_by TEXT,
    PRIMARY KEY (id)
);
CREATE UNIQUE INDEX tokens_living_name ON tokens (name) WHERE revoked_at IS NULL;

CREATE TABLE audit (
    seq {sequence},
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    token TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    recommender TEXT,
    status INTEGER,
    detail TEXT NOT NULL
);
CREATE INDEX audit_of ON audit (recommender, seq);

CREATE TABLE stored_responses (
    token TEXT NOT NULL,
    "key" TEXT NOT NULL,
    digest TEXT NOT NULL,
    status INTEGER,
    headers TEXT,
    body TEXT,
    at BIGINT NOT NULL,
    taken_at BIGINT NOT NULL,
    PRIMARY KEY (token, "key")
);
CREATE INDEX stored_responses_age ON stored_responses (at);

CREATE TABLE impressions (
    request_id TEXT NOT NULL,
    recommender TEXT NOT NULL,
    "user" BIGINT NOT NULL,
    version INTEGER NOT NULL,
    variant TEXT NOT NULL,
    generation INTEGER NOT NULL,
    step INTEGER NOT NULL,
    items TEXT NOT NULL,
    fallback TEXT,
    at BIGINT NOT NULL,
    hit_at BIGINT,
    bucket INTEGER,
    score FLOAT,
    size INTEGER NOT NULL,
    propensities TEXT,
    slices TEXT,
    PRIMARY KEY (request_id)
);
CREATE INDEX impressions_by_latency ON impressions (recommender, generation, variant, fallback, bucket, score, at);
CREATE INDEX impressions_by_route ON impressions (recommender, generation, variant, "user", fallback, at, hit_at);
CREATE INDEX impressions_by_user ON impressions (recommender, "user", at);
CREATE INDEX impressions_by_version ON impressions (recommender, version, at, hit_at, size, request_id, variant, fallback, slices);

CREATE TABLE interactions (
    seq {sequence},
    recommender TEXT NOT NULL,
    "user" BIGINT NOT NULL,
    item BIGINT NOT NULL,
    value FLOAT,
    positive BOOLEAN NOT NULL,
    request_id TEXT,
    at BIGINT NOT NULL,
    event TEXT,
    kind TEXT,
    revenue BIGINT,
    within BIGINT,
    answer TEXT,
    position INTEGER
);
CREATE INDEX interactions_by_answer ON interactions (answer, kind, position, at, revenue) WHERE answer IS NOT NULL;
CREATE UNIQUE INDEX interactions_by_event ON interactions (recommender, event) WHERE event IS NOT NULL;
CREATE INDEX interactions_by_name ON interactions (request_id) WHERE request_id IS NOT NULL;
CREATE INDEX interactions_by_time ON interactions (recommender, at, seq, positive, item);
CREATE INDEX interactions_by_user ON interactions (recommender, "user", positive, at, item);

CREATE TABLE feature_values (
    recommender TEXT NOT NULL,
    "view" TEXT NOT NULL,
    entity BIGINT NOT NULL,
    at BIGINT NOT NULL,
    digest TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (recommender, "view", entity)
);

CREATE TABLE feature_views (
    recommender TEXT NOT NULL,
    "view" TEXT NOT NULL,
    count BIGINT NOT NULL,
    PRIMARY KEY (recommender, "view")
);

CREATE TABLE feature_history (
    recommender TEXT NOT NULL,
    "view" TEXT NOT NULL,
    entity BIGINT NOT NULL,
    at BIGINT NOT NULL,
    digest TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (recommender, "view", entity, at)
);
CREATE INDEX feature_history_by_time ON feature_history (recommender, at);

INSERT INTO change_counters (name, value) VALUES ('state', 0);
