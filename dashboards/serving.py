"""Dashboard of the online path: requests, latency of each stage, errors and fallbacks."""

from __future__ import annotations

from dashboards.asked import mean, newest, quantile, rate, share, total
from dashboards.board import MOVES, OF, Board, Row
from dashboards.form import BYTES, COUNT, PER_SECOND, REQUESTS, SECONDS, SHARE, Query, lines

REQUESTS_OF = "eyas_recommend_requests_total"
NAMED = "{{recommender}}"
MODEL = 'model=~"$recommender"'
VERSION = "{{model}} {{version}}"


def _of_requests(outcome: str) -> str:
    return share(rate(REQUESTS_OF, "recommender", where=f"{OF}, {outcome}"), rate(REQUESTS_OF, "recommender"))


def _of_triton(part: str) -> Query:
    """Mean seconds of a part of a call."""
    spent, calls = (rate(f"nv_inference_{one}", "model", "version", where=MODEL) for one in (f"{part}_duration_us", "request_success"))
    return Query(f"{share(spent, calls)} / 1000000", VERSION)


WHOLE = Row(
    "Answers",
    [
        lines(
            "Requests",
            REQUESTS,
            "By how they ended: ok, or why an answer isn't the version's own, or error.",
            "operate.md#eyasanswersfail",
            Query(rate(REQUESTS_OF, "recommender", "outcome"), "{{recommender}} {{outcome}}"),
        ),
        lines(
            "Time of an answer",
            SECONDS,
            "Half, and 99 of 100, are answered within it, the way over the network not counted.",
            "operate.md#eyasanswersslow",
            Query(quantile(0.5, "eyas_recommend_seconds", "recommender"), "{{recommender}} half"),
            Query(quantile(0.99, "eyas_recommend_seconds", "recommender"), "{{recommender}} 99 of 100"),
        ),
        lines(
            "Errors",
            SHARE,
            "Requests that were not answered at all.",
            "operate.md#eyasanswersfail",
            Query(_of_requests('outcome="error"'), NAMED),
        ),
        lines(
            "Fallbacks",
            SHARE,
            "Answers without the version's scores, or of popular items: Triton is away or slow, or nothing was left after the filters.",
            "operate.md#eyastritonunhealthy",
            Query(_of_requests('outcome!~"ok|error"'), NAMED),
        ),
        lines(
            "Refused",
            REQUESTS,
            "With 429: more than can be answered in time.",
            "operate.md#eyasrequestsrefused",
            Query(rate("eyas_recommend_refused_total", where=""), "refused"),
        ),
        lines(
            "Versions that answer",
            REQUESTS,
            "Who answers how much: during a rollout two.",
            "rollouts.md",
            Query(rate(REQUESTS_OF, "recommender", "version"), "{{recommender}} {{version}}"),
        ),
    ],
)
STAGES = Row(
    "Stages of an answer",
    [
        lines(
            "Time of a stage, 99 of 100",
            SECONDS,
            "Of requests that are answered together: seen, retrieve, filter, features, score, order, log. The tallest says where to look.",
            "operate.md#eyasanswersslow",
            Query(quantile(0.99, "eyas_recommend_stage_seconds", "stage"), "{{stage}}"),
        ),
        lines(
            "Time of a stage, mean",
            SECONDS,
            "The stages' sum is what an answer takes.",
            "operate.md#eyasanswersslow",
            Query(mean("eyas_recommend_stage_seconds", "stage"), "{{stage}}"),
        ),
        lines(
            "Rounds",
            PER_SECOND,
            "Requests that come together go through the stages together: fewer rounds than requests means that they wait for each other.",
            "operate.md#eyasrequestsrefused",
            Query(rate("eyas_recommend_stage_seconds_count", "recommender", where=f'{OF}, stage="score"'), NAMED),
        ),
    ],
)
TRITON = Row(
    "Triton",
    [
        lines(
            "Inferences",
            REQUESTS,
            "Answered by Triton, by version; those that prove that a version answers among them.",
            "operate.md#eyastritonunhealthy",
            Query(rate("nv_inference_request_success", "model", "version", where=MODEL), VERSION),
        ),
        lines(
            "Inferences that failed",
            REQUESTS,
            "The version itself fails: go back. Triton being away isn't in here.",
            "operate.md#eyastritonunhealthy",
            Query(rate("nv_inference_request_failure", "model", "version", where=MODEL), VERSION),
        ),
        lines(
            "Time in Triton",
            SECONDS,
            "Of one call, on average.",
            "operate.md#eyasanswersslow",
            _of_triton("request"),
        ),
        lines(
            "Time in its queue",
            SECONDS,
            "Of one call, on average. If it grows while the calculation doesn't, Triton needs more replicas or CPU.",
            "operate.md#eyasanswersslow",
            _of_triton("queue"),
        ),
        lines(
            "Time of the calculation",
            SECONDS,
            "Of one call, on average.",
            "operate.md#eyasanswersslow",
            _of_triton("compute_infer"),
        ),
        lines(
            "Not asked",
            PER_SECOND,
            "Answers for which Triton wasn't asked, for the version had failed in a row.",
            "operate.md#eyastritonunhealthy",
            Query(rate("eyas_unasked_answers_total", "recommender", "version"), "{{recommender}} {{version}}"),
        ),
    ],
)
KNOWN = Row(
    "What answers rest on",
    [
        lines(
            "Unfiltered",
            PER_SECOND,
            "Answers that may show what the user has liked: the event log was away.",
            "operate.md#eyasimpressionswait",
            Query(rate("eyas_unfiltered_answers_total", "recommender"), NAMED),
        ),
        lines(
            "Indexes that can't be used",
            COUNT,
            "Versions whose candidates are found exactly, for their index is damaged or gone.",
            "operate.md#eyasindexunusable",
            Query(total("eyas_indexes_unusable_total", "recommender"), NAMED),
        ),
        lines(
            "Age of the catalogues",
            SECONDS,
            "Of the gateway that is furthest behind. It asks five times a second.",
            "operate.md#eyascataloguestale",
            Query(newest("eyas_catalogue_age_seconds", where=""), "oldest"),
        ),
        lines(
            "Items of the catalogue",
            COUNT,
            "In a gateway's copy, deleted ones included.",
            "filters.md",
            Query(newest("eyas_catalogue_items", "recommender"), NAMED),
        ),
        lines(
            "Memory of the catalogue",
            BYTES,
            "Of a gateway's copy of its columns.",
            "filters.md",
            Query(newest("eyas_catalogue_bytes", "recommender"), NAMED),
        ),
        lines(
            "Users' values",
            PER_SECOND,
            "Users whose values an answer asked for: hit, missing, expired, away.",
            "operate.md#eyasfeaturesaway",
            Query(rate("eyas_feature_reads_total", "recommender", "view", "outcome"), "{{recommender}} {{view}} {{outcome}}"),
        ),
        lines(
            "Time to read them, 99 of 100",
            SECONDS,
            "Those that came too late included.",
            "operate.md#eyasfeaturesaway",
            Query(quantile(0.99, "eyas_feature_read_seconds", "recommender"), NAMED),
        ),
        lines(
            "Age of the values",
            SECONDS,
            "Half of the values that were given were younger.",
            "features.md",
            Query(quantile(0.5, "eyas_feature_age_seconds", "recommender", "view"), "{{recommender}} {{view}}"),
        ),
    ],
)
BOARD = Board(
    "serving",
    "serving",
    "How many are answered, how fast in each stage, and how many without what an answer should have.",
    (WHOLE, STAGES, TRITON, KNOWN),
    (MOVES,),
)
