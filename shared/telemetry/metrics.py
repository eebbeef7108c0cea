"""All metrics that Eyas exports."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter(
    "eyas_recommend_requests", "Recommendations asked for, by how they ended.", ["recommender", "version", "variant", "outcome"]
)
REQUEST_SECONDS = Histogram(
    "eyas_recommend_seconds",
    "Time to answer a recommendation.",
    ["recommender", "variant"],
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
ANSWER_STAGE_SECONDS = Histogram(
    "eyas_recommend_stage_seconds",
    "Time of each stage of the requests that are answered together: seen, retrieve, filter, features, score, order, log.",
    ["recommender", "stage"],
    buckets=(0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2),
)
REFUSED = Counter("eyas_recommend_refused", "Requests refused with 429: more than can be answered in time.")
SHADOWS = Counter(
    "eyas_shadow_requests", "Requests mirrored to a shadow, by how that ended: compared, error, dropped.", ["recommender", "outcome"]
)
WAITING = Gauge("eyas_impressions_waiting", "Answers that went out and aren't in the event log yet.")
LOST = Counter("eyas_impressions_lost", "Answers that never came into the event log: it was away for too long.", ["recommender"])
UNASKED = Counter(
    "eyas_unasked_answers",
    "Answers without scores, the model server not asked: it had failed in a row.",
    ["recommender", "version"],
)
UNFILTERED = Counter("eyas_unfiltered_answers", "Answers that may show what the user has liked: the event log was away.", ["recommender"])
UNUSABLE = Counter(
    "eyas_indexes_unusable", "Versions loaded whose index of candidates is damaged or gone: they are found exactly.", ["recommender"]
)
FEATURE_READS = Counter(
    "eyas_feature_reads",
    "Users whose values an answer asked for, by view and what the feature store said: hit, missing, expired, away.",
    ["recommender", "view", "outcome"],
)
FEATURE_AGE = Histogram(
    "eyas_feature_age_seconds",
    "How old the values were that it gave.",
    ["recommender", "view"],
    buckets=(1, 60, 600, 3600, 21600, 86400, 604800, 2592000, 31536000),
)
FEATURE_SECONDS = Histogram(
    "eyas_feature_read_seconds",
    "Time of its answers, those that came too late included.",
    ["recommender"],
    buckets=(0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5),
)
FEATURES_LOADED = Counter("eyas_features_loaded", "Rows that versions were published with, put into the feature store.", ["recommender"])
FEATURE_PARTS_WAITING = Gauge("eyas_feature_parts_waiting", "Parts of versions' values that aren't in the feature store yet.")
FEATURES_WRITTEN = Counter("eyas_features_written", "Rows that were written to views by the API.", ["recommender", "view"])
CATALOGUE_AGE = Gauge("eyas_catalogue_age_seconds", "Since this gateway's copies of the catalogues were last known to be the newest.")
CATALOGUE_ITEMS = Gauge("eyas_catalogue_items", "Items in this gateway's copy of the catalogue, deleted ones included.", ["recommender"])
CATALOGUE_BYTES = Gauge("eyas_catalogue_bytes", "Of that copy's columns.", ["recommender"])
INTERACTIONS = Counter("eyas_interactions", "Interactions taken in.", ["recommender"])
DUPLICATES = Counter("eyas_duplicate_events", "Events of an id that was there already: they count once.", ["recommender"])
CONFLICTS = Counter(
    "eyas_conflicting_events", "Events that say something else than the first one of their id: that one stands.", ["recommender"]
)
EVENTS_WAITING = Gauge("eyas_events_waiting", "Messages of the event stream that aren't in the database yet.")
JOINED = Counter("eyas_events_joined", "Interactions that came from the event stream into the database.")
HITS = Counter("eyas_hits", "Answers that earned at least one positive.", ["recommender"])
HIT_RATE = Gauge("eyas_hit_rate", "Hit rate of the newest answers whose attribution window has closed.", ["recommender", "version"])
CONVERSION = Gauge("eyas_conversion", "Share of those answers with an event that is a conversion.", ["recommender", "version"])
REVENUE = Gauge("eyas_revenue_per_answer", "Revenue of the events that react to those answers, per answer.", ["recommender", "version"])
ENGAGEMENT = Gauge("eyas_engagement", "Weights of the events that react to those answers, per answer.", ["recommender", "version"])
CLICKS = Gauge(
    "eyas_click_rate", "Share of those answers whose item in this place was clicked; the first 20.", ["recommender", "version", "place"]
)
VARIANT_HIT_RATE = Gauge("eyas_variant_hit_rate", "Of those answers, by variant.", ["recommender", "version", "variant"])
VARIANT_ANSWERS = Gauge("eyas_variant_answers", "Answers that this rests on.", ["recommender", "version", "variant"])
SLICE_HIT_RATE = Gauge("eyas_slice_hit_rate", "Of those answers, by slice of the spec.", ["recommender", "version", "slice"])
SLICE_CONVERSION = Gauge("eyas_slice_conversion", "Share with a conversion, by slice of the spec.", ["recommender", "version", "slice"])
SLICE_ANSWERS = Gauge("eyas_slice_answers", "Answers that these rest on.", ["recommender", "version", "slice"])
COVERAGE = Gauge("eyas_coverage", "Share of the version's catalogue that its newest answers showed.", ["recommender", "version"])
NOVELTY = Gauge("eyas_novelty", "Bits of surprise in a like of what they showed, on average.", ["recommender", "version"])
ANSWERS = Gauge("eyas_hit_rate_answers", "Answers that the hit rate rests on.", ["recommender", "version"])
DRIFT = Gauge(
    "eyas_drift", "How far the newest likes, or scores, have moved from the version's first ones.", ["recommender", "detector", "feature"]
)
DRIFT_CHANCE = Gauge("eyas_drift_chance", "How often chance alone moves them so far.", ["recommender", "detector", "feature"])
DRIFTING = Gauge("eyas_drifting", "Readings that stand: drift, or a fallen hit rate (kpi).", ["recommender", "trigger"])
RUNS = Counter("eyas_runs", "Runs that ended, by how.", ["recommender", "state"])
DEAD_LETTERS = Counter("eyas_dead_letters", "Runs that gave up: out of attempts, or of patience.", ["recommender", "stage"])
REUSED = Counter("eyas_stages_reused", "Stages that an earlier attempt stood for.", ["recommender", "stage"])
QUEUE = Gauge("eyas_run_queue", "Unfinished runs: active, or waiting for their turn.", ["state"])
STAGE_SECONDS = Histogram(
    "eyas_stage_seconds", "Time of published stages.", ["recommender", "stage"], buckets=(1, 5, 15, 60, 300, 1800, 7200, 28800)
)
ROLLOUTS = Counter("eyas_rollouts", "Rollouts that ended, by how.", ["recommender", "state"])
WEIGHT = Gauge("eyas_candidate_weight", "Share of the users that the candidate answers.", ["recommender"])
SERVING = Gauge("eyas_serving_version", "The stable version.", ["recommender"])
ROUTE_SINCE = Gauge(
    "eyas_route_since_seconds",
    "When users were last sent another way, as unix time, by the versions that have answered since; candidate: none without one.",
    ["recommender", "stable", "candidate"],
)
ROLLOUT_WAITS = Gauge(
    "eyas_rollout_waits_seconds",
    "For how long a rollout under way has been in its state; of a shadow, for how long its time has been over.",
    ["recommender", "state"],
)
ROLLOUT_USERS = Gauge("eyas_rollout_users", "Users whom the newest look at a rollout under way rests on.", ["recommender", "variant"])
ROLLOUT_GOAL = Gauge("eyas_rollout_goal", "Mean of what they earned, by the goal of the spec.", ["recommender", "variant"])
ROLLOUT_LIFT = Gauge(
    "eyas_rollout_lift",
    "How much more the candidate earns, relative: estimate, surely not below lower and above upper; the end needs lower above limit.",
    ["recommender", "bound"],
)
ROLLOUT_CHECK = Gauge(
    "eyas_rollout_check",
    "What the newest look said of the goal, the split and each guardrail: 1 pass, 0 inconclusive, -1 fail, -2 error.",
    ["recommender", "check"],
)
RETRAININGS = Counter("eyas_retrainings", "Retrainings started.", ["recommender", "trigger", "mode"])
RETRAININGS_HELD = Counter("eyas_retrainings_held", "Triggers that would have fired and were held back.", ["recommender", "trigger"])
RETRAINER_ALERTING = Gauge(
    "eyas_retrainer_alerting", "1 where so many retrainings in a row did not help that none is started: look at it.", ["recommender"]
)
FRUITLESS = Gauge("eyas_retrainings_fruitless", "Retrainings in a row that have not helped, as far as is known.", ["recommender"])
TRITON_SUCCESSES = Gauge(
    "eyas_triton_successes", "Triton's successful requests, summed over removals of versions and restarts.", ["recommender", "version"]
)
DATABASE_SECONDS = Histogram(
    "eyas_database_seconds",
    "Time of the database's statements, waits for its locks included, by what they do: begin, select, insert, update, delete, other.",
    ["operation"],
    buckets=(0.0001, 0.0005, 0.001, 0.005, 0.02, 0.1, 0.5, 2, 10),
)
DATABASE_FAULTS = Counter("eyas_database_faults", "Statements that the database couldn't do: it was away, busy, full or damaged.")
HTTP_CONNECTIONS = Gauge("eyas_http_connections", "Open connections of the API (api) and of /metrics (metrics).", ["port"])
HTTP_CONNECTIONS_LIMIT = Gauge("eyas_http_connections_limit", "How many may be open at once.", ["port"])
HTTP_CLOSED_REASONS = (
    *("malformed", "line", "headers", "slow head", "slow body", "unread body", "unread answer"),
    *("evicted", "full"),
)
HTTP_CLOSED = Counter(
    "eyas_http_connections_closed",
    "Connections that the server closed before their client did, by the limit that was passed.",
    ["port", "reason"],
)
REFUSALS = Counter("eyas_api_refusals", "Requests without a good token, by what was wrong with it.", ["reason"])
LIMITED = Counter(
    "eyas_api_limited",
    "Requests refused by a limit: control, online, recommender (rates), failures (unknown tokens of an address), body (too large), runs "
    "(too many pending).",
    ["limit"],
)
RECONCILE_SECONDS = Histogram("eyas_reconcile_seconds", "One pass over one row.", ["kind"], buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10))
RECONCILE_FAULTS = Counter("eyas_reconcile_faults", "Passes that ended in an error and are tried again.", ["kind"])
