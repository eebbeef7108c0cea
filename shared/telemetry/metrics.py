"""All metrics that Eyas exports."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter("eyas_recommend_requests", "Recommend requests, by outcome.", ["recommender", "version", "variant", "outcome"])
REQUEST_SECONDS = Histogram(
    "eyas_recommend_seconds",
    "Seconds to answer a recommend request, from its arrival in the gateway.",
    ["recommender", "variant"],
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
ANSWER_STAGE_SECONDS = Histogram(
    "eyas_recommend_stage_seconds",
    "Seconds of each stage of a batch of requests: seen, retrieve, filter, features, score, order, log.",
    ["recommender", "stage"],
    buckets=(0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2),
)
REFUSED = Counter("eyas_recommend_refused", "Requests refused with 429, because they could not be answered in time.")
SHADOWS = Counter(
    "eyas_shadow_requests", "Requests mirrored to a shadow, by outcome: compared, error, dropped.", ["recommender", "outcome"]
)
WAITING = Gauge("eyas_impressions_waiting", "Impressions of sent answers that are not in the event log yet.")
LOST = Counter(
    "eyas_impressions_lost", "Impressions that were never written, because the event log was unavailable for too long.", ["recommender"]
)
UNASKED = Counter(
    "eyas_unasked_answers",
    "Answers without scores, because the circuit breaker of the version was open.",
    ["recommender", "version"],
)
UNFILTERED = Counter(
    "eyas_unfiltered_answers",
    "Answers that may show items that the user has liked, because the event log was unavailable.",
    ["recommender"],
)
UNUSABLE = Counter(
    "eyas_indexes_unusable", "Loaded versions whose candidate index is damaged or missing: retrieval is exact.", ["recommender"]
)
FEATURE_READS = Counter(
    "eyas_feature_reads",
    "Reads of a user's values from the feature store, by view and outcome: hit, missing, expired, away.",
    ["recommender", "view", "outcome"],
)
FEATURE_AGE = Histogram(
    "eyas_feature_age_seconds",
    "Age in seconds of the values that the feature store returned.",
    ["recommender", "view"],
    buckets=(1, 60, 600, 3600, 21600, 86400, 604800, 2592000, 31536000),
)
FEATURE_SECONDS = Histogram(
    "eyas_feature_read_seconds",
    "Seconds of a read from the feature store, reads past the deadline included.",
    ["recommender"],
    buckets=(0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5),
)
FEATURES_LOADED = Counter("eyas_features_loaded", "Rows published with versions that were written to the feature store.", ["recommender"])
FEATURE_PARTS_WAITING = Gauge("eyas_feature_parts_waiting", "Parts of versions' values that are not in the feature store yet.")
FEATURES_WRITTEN = Counter("eyas_features_written", "Rows that the API wrote to views.", ["recommender", "view"])
CATALOGUE_AGE = Gauge("eyas_catalogue_age_seconds", "Seconds since this gateway's copies of the catalogues were last known to be current.")
CATALOGUE_ITEMS = Gauge("eyas_catalogue_items", "Items in this gateway's copy of the catalogue, deleted ones included.", ["recommender"])
CATALOGUE_BYTES = Gauge("eyas_catalogue_bytes", "Bytes of this gateway's copy of the catalogue.", ["recommender"])
EMPTY_ANSWERS = Gauge("eyas_empty_answer_share", "Share of recent answers without items, because filters left none.", ["recommender"])
EMPTY_ANSWERS_LIMIT = Gauge("eyas_empty_answer_limit", "Largest share of empty answers that the spec allows.", ["recommender"])
INTERACTIONS = Counter("eyas_interactions", "Accepted interactions.", ["recommender"])
DUPLICATES = Counter("eyas_duplicate_events", "Events whose id is already stored: each id counts once.", ["recommender"])
CONFLICTS = Counter(
    "eyas_conflicting_events", "Events that differ from the stored event of the same id: the stored event counts.", ["recommender"]
)
TOO_OLD = Counter(
    "eyas_events_too_old", "Events that are left out, because their day is refused or their user was forgotten.", ["recommender"]
)
DELETED = Counter("eyas_events_deleted", "Events deleted from the database; the daily files have them.", ["recommender", "table"])
FORGOTTEN_OVERDUE = Gauge(
    "eyas_forgotten_versions_overdue",
    "Versions that learned from a forgotten user and are not collected, though EYAS_FORGET_WITHIN is over.",
    ["recommender"],
)
AUDIT_WAITING = Gauge("eyas_audit_waiting", "Entries of the audit log that EYAS_AUDIT_EXPORT lacks, at most 10,000.")
AUDIT_AGE = Gauge("eyas_audit_oldest_seconds", "Age of the oldest entry of the audit log that is not exported yet.")
EVENTS_WAITING = Gauge("eyas_events_waiting", "Messages of the event stream that are not in the database yet.")
JOINED = Counter("eyas_events_joined", "Interactions written from the event stream to the database.")
HITS = Counter("eyas_hits", "Answers with at least one positive.", ["recommender"])
HIT_RATE = Gauge("eyas_hit_rate", "Hit rate of the newest answers whose attribution window has closed.", ["recommender", "version"])
CONVERSION = Gauge("eyas_conversion", "Share of these answers with a conversion.", ["recommender", "version"])
REVENUE = Gauge("eyas_revenue_per_answer", "Revenue of the events attributed to these answers, per answer.", ["recommender", "version"])
ENGAGEMENT = Gauge(
    "eyas_engagement", "Sum of the weights of the events attributed to these answers, per answer.", ["recommender", "version"]
)
CLICKS = Gauge(
    "eyas_click_rate",
    "Share of these answers with a positive of the item in this place, for the first 20 places.",
    ["recommender", "version", "place"],
)
VARIANT_HIT_RATE = Gauge("eyas_variant_hit_rate", "Hit rate of these answers, by variant.", ["recommender", "version", "variant"])
VARIANT_ANSWERS = Gauge("eyas_variant_answers", "Number of answers in eyas_variant_hit_rate.", ["recommender", "version", "variant"])
SLICE_HIT_RATE = Gauge("eyas_slice_hit_rate", "Hit rate of these answers, by slice of the spec.", ["recommender", "version", "slice"])
SLICE_CONVERSION = Gauge(
    "eyas_slice_conversion", "Share of these answers with a conversion, by slice of the spec.", ["recommender", "version", "slice"]
)
SLICE_ANSWERS = Gauge("eyas_slice_answers", "Number of answers in eyas_slice_hit_rate.", ["recommender", "version", "slice"])
COVERAGE = Gauge("eyas_coverage", "Share of the version's catalogue that its newest answers showed.", ["recommender", "version"])
NOVELTY = Gauge(
    "eyas_novelty", "Mean surprise, in bits, of a positive on an item that the newest answers showed.", ["recommender", "version"]
)
ANSWERS = Gauge("eyas_hit_rate_answers", "Number of answers in eyas_hit_rate.", ["recommender", "version"])
DRIFT = Gauge(
    "eyas_drift", "Distance of the newest positives or scores from the version's first ones.", ["recommender", "detector", "feature"]
)
DRIFT_CHANCE = Gauge("eyas_drift_chance", "Probability of such a distance without drift.", ["recommender", "detector", "feature"])
DRIFTING = Gauge("eyas_drifting", "Confirmed drift, or a confirmed fall of the hit rate (kpi).", ["recommender", "trigger"])
RUNS = Counter("eyas_runs", "Ended runs, by state.", ["recommender", "state"])
DEAD_LETTERS = Counter(
    "eyas_dead_letters", "Runs that gave up, because the attempts or the time limit were used up.", ["recommender", "stage"]
)
REUSED = Counter("eyas_stages_reused", "Reused stages.", ["recommender", "stage"])
QUEUE = Gauge("eyas_run_queue", "Unfinished runs: active, or waiting for admission.", ["state"])
STAGE_SECONDS = Histogram(
    "eyas_stage_seconds", "Seconds of published stages.", ["recommender", "stage"], buckets=(1, 5, 15, 60, 300, 1800, 7200, 28800)
)
ROLLOUTS = Counter("eyas_rollouts", "Ended rollouts, by state.", ["recommender", "state"])
WEIGHT = Gauge("eyas_candidate_weight", "Share of users that get the candidate.", ["recommender"])
SERVING = Gauge("eyas_serving_version", "The stable version.", ["recommender"])
ROUTE_SINCE = Gauge(
    "eyas_route_since_seconds",
    "Unix time of the last change of the route, by its versions; candidate is 'none' without a candidate.",
    ["recommender", "stable", "candidate"],
)
ROLLOUT_WAITS = Gauge(
    "eyas_rollout_waits_seconds",
    "Seconds that a running rollout has been in its state; for a shadow, seconds since its planned end.",
    ["recommender", "state"],
)
ROLLOUT_USERS = Gauge("eyas_rollout_users", "Users in the newest look of a running rollout.", ["recommender", "variant"])
ROLLOUT_GOAL = Gauge("eyas_rollout_goal", "Mean of the goal per user in the newest look.", ["recommender", "variant"])
ROLLOUT_LIFT = Gauge(
    "eyas_rollout_lift",
    "Relative lift of the candidate: estimate, confidence bounds lower and upper; promotion needs lower above limit.",
    ["recommender", "bound"],
)
ROLLOUT_CHECK = Gauge(
    "eyas_rollout_check",
    "Verdict of the newest look on the goal, the split and each guardrail: 1 pass, 0 inconclusive, -1 fail, -2 error.",
    ["recommender", "check"],
)
RETRAININGS = Counter("eyas_retrainings", "Retrainings started.", ["recommender", "trigger", "mode"])
RETRAININGS_HELD = Counter(
    "eyas_retrainings_held", "Triggers that fired without a retraining, because of a limit or a backoff.", ["recommender", "trigger"]
)
RETRAINER_ALERTING = Gauge(
    "eyas_retrainer_alerting", "1 if no retraining starts, because too many in a row did not help: a person must decide.", ["recommender"]
)
FRUITLESS = Gauge("eyas_retrainings_fruitless", "Consecutive retrainings that did not help.", ["recommender"])
TRITON_SUCCESSES = Gauge(
    "eyas_triton_successes", "Successful requests of Triton, summed over restarts and reloads of the version.", ["recommender", "version"]
)
DATABASE_SECONDS = Histogram(
    "eyas_database_seconds",
    "Seconds of database statements, waits for locks included, by operation: begin, select, insert, update, delete, other.",
    ["operation"],
    buckets=(0.0001, 0.0005, 0.001, 0.005, 0.02, 0.1, 0.5, 2, 10),
)
DATABASE_FAULTS = Counter("eyas_database_faults", "Failed database statements: the database was unavailable, busy, full or damaged.")
HTTP_CONNECTIONS = Gauge("eyas_http_connections", "Open connections of the API (api) and of /metrics (metrics).", ["port"])
HTTP_CONNECTIONS_LIMIT = Gauge("eyas_http_connections_limit", "Limit of open connections.", ["port"])
HTTP_CLOSED_REASONS = (
    *("malformed", "line", "headers", "slow head", "slow body", "unread body", "unread answer"),
    *("evicted", "full"),
)
HTTP_CLOSED = Counter(
    "eyas_http_connections_closed", "Connections that the server closed before the client did, by reason.", ["port", "reason"]
)
API_REQUESTS = Counter(
    "eyas_api_requests",
    "Requests to the control plane, by kind (read, write; long: streams, exports, specs, bulk data) and outcome: ok, refused (4xx), error "
    "(5xx).",
    ["kind", "outcome"],
)
API_SECONDS = Histogram(
    "eyas_api_seconds",
    "Seconds until the end of a successful answer of the control plane, without kind long.",
    ["kind"],
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)
READY = Gauge("eyas_ready", "1 if the process is ready (/readyz), else 0, by part: control, gateway.", ["part"])
REFUSALS = Counter("eyas_api_refusals", "Requests without a valid token, by reason.", ["reason"])
LIMITED = Counter(
    "eyas_api_limited",
    "Requests refused by a limit: control, online, recommender (rates), failures (unknown tokens of an address), body (too large), runs "
    "(too many pending).",
    ["limit"],
)
RECONCILE_SECONDS = Histogram(
    "eyas_reconcile_seconds", "Seconds of one pass over one row.", ["kind"], buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10)
)
RECONCILE_FAULTS = Counter("eyas_reconcile_faults", "Passes that ended in an error and are repeated.", ["kind"])
