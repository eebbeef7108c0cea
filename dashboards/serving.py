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
            "Requests by outcome: ok, the reason of a fallback, or error.",
            "operate.md#eyasanswersfail",
            Query(rate(REQUESTS_OF, "recommender", "outcome"), "{{recommender}} {{outcome}}"),
        ),
        lines(
            "Time of an answer",
            SECONDS,
            "Median and 99th percentile, without the network.",
            "operate.md#eyasanswersslow",
            Query(quantile(0.5, "eyas_recommend_seconds", "recommender"), "{{recommender}} median"),
            Query(quantile(0.99, "eyas_recommend_seconds", "recommender"), "{{recommender}} 99th percentile"),
        ),
        lines(
            "Errors",
            SHARE,
            "Share of requests without an answer.",
            "operate.md#eyasanswersfail",
            Query(_of_requests('outcome="error"'), NAMED),
        ),
        lines(
            "Fallbacks",
            SHARE,
            "Share of answers without the version's scores or with popular items: Triton is slow or down, or filters left no item.",
            "operate.md#eyastritonunhealthy",
            Query(_of_requests('outcome!~"ok|error"'), NAMED),
        ),
        lines(
            "Rejected",
            REQUESTS,
            "Requests with 429: more than the gateway can answer in time.",
            "operate.md#eyasrequestsrefused",
            Query(rate("eyas_recommend_refused_total", where=""), "refused"),
        ),
        lines(
            "Requests by version",
            REQUESTS,
            "Requests by version: two versions during a rollout.",
            "rollouts.md",
            Query(rate(REQUESTS_OF, "recommender", "version"), "{{recommender}} {{version}}"),
        ),
    ],
)
STAGES = Row(
    "Stages of an answer",
    [
        lines(
            "Stage time, 99th percentile",
            SECONDS,
            "Time of each stage of a batch: seen, retrieve, filter, features, score, order, log. Check the slowest stage first.",
            "operate.md#eyasanswersslow",
            Query(quantile(0.99, "eyas_recommend_stage_seconds", "stage"), "{{stage}}"),
        ),
        lines(
            "Stage time, mean",
            SECONDS,
            "Mean time of each stage. Their sum is the time of an answer, without its wait for a batch.",
            "operate.md#eyasanswersslow",
            Query(mean("eyas_recommend_stage_seconds", "stage"), "{{stage}}"),
        ),
        lines(
            "Batches",
            PER_SECOND,
            "Batches of requests. Fewer batches than requests means that requests wait for each other.",
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
            "Inferences of Triton, by version, including health checks of versions.",
            "operate.md#eyastritonunhealthy",
            Query(rate("nv_inference_request_success", "model", "version", where=MODEL), VERSION),
        ),
        lines(
            "Failed inferences",
            REQUESTS,
            "Failures of the version itself: roll back. Outages of Triton are not counted.",
            "operate.md#eyastritonunhealthy",
            Query(rate("nv_inference_request_failure", "model", "version", where=MODEL), VERSION),
        ),
        lines(
            "Time in Triton",
            SECONDS,
            "Mean time of a call.",
            "operate.md#eyasanswersslow",
            _of_triton("request"),
        ),
        lines(
            "Time in Triton's queue",
            SECONDS,
            "Mean time of a call in the queue. If it grows but the computation does not, add replicas or CPU.",
            "operate.md#eyasanswersslow",
            _of_triton("queue"),
        ),
        lines(
            "Computation time",
            SECONDS,
            "Mean time of a call.",
            "operate.md#eyasanswersslow",
            _of_triton("compute_infer"),
        ),
        lines(
            "GPU use",
            SHARE,
            "Share of time in which the GPU computed, and share of its memory in use; empty for Tritons without a GPU.",
            "operate.md#eyasanswersslow",
            Query("max by (gpu_uuid) (nv_gpu_utilization)", "{{gpu_uuid}}"),
            Query("max by (gpu_uuid) (nv_gpu_memory_used_bytes / nv_gpu_memory_total_bytes)", "{{gpu_uuid}} memory"),
        ),
        lines(
            "Open circuit breaker",
            PER_SECOND,
            "Answers without a call to Triton, after repeated failures of the version.",
            "operate.md#eyastritonunhealthy",
            Query(rate("eyas_unasked_answers_total", "recommender", "version"), "{{recommender}} {{version}}"),
        ),
    ],
)
KNOWN = Row(
    "Inputs of answers",
    [
        lines(
            "Unfiltered",
            PER_SECOND,
            "Answers that may contain items the user knows, because the event log did not answer.",
            "operate.md#eyasimpressionswait",
            Query(rate("eyas_unfiltered_answers_total", "recommender"), NAMED),
        ),
        lines(
            "Unusable indexes",
            COUNT,
            "Versions with exact retrieval, because their index is damaged or missing.",
            "operate.md#eyasindexunusable",
            Query(total("eyas_indexes_unusable_total", "recommender"), NAMED),
        ),
        lines(
            "Age of the catalogues",
            SECONDS,
            "Age of the catalogue in the gateway with the oldest copy. Gateways refresh five times per second.",
            "operate.md#eyascataloguestale",
            Query(newest("eyas_catalogue_age_seconds", where=""), "oldest"),
        ),
        lines(
            "Items of the catalogue",
            COUNT,
            "Items in a gateway's copy, including deleted items.",
            "filters.md",
            Query(newest("eyas_catalogue_items", "recommender"), NAMED),
        ),
        lines(
            "Memory of the catalogue",
            BYTES,
            "Memory of a gateway's copy of the columns.",
            "filters.md",
            Query(newest("eyas_catalogue_bytes", "recommender"), NAMED),
        ),
        lines(
            "Users' values",
            PER_SECOND,
            "Reads of users' values for answers: hit, missing, expired, away.",
            "operate.md#eyasfeaturesaway",
            Query(rate("eyas_feature_reads_total", "recommender", "view", "outcome"), "{{recommender}} {{view}} {{outcome}}"),
        ),
        lines(
            "Read time of values, 99th percentile",
            SECONDS,
            "Time of reads, including late ones.",
            "operate.md#eyasfeaturesaway",
            Query(quantile(0.99, "eyas_feature_read_seconds", "recommender"), NAMED),
        ),
        lines(
            "Age of the values",
            SECONDS,
            "Median age of the read values.",
            "features.md",
            Query(quantile(0.5, "eyas_feature_age_seconds", "recommender", "view"), "{{recommender}} {{view}}"),
        ),
    ],
)
BOARD = Board(
    "serving", "serving", "Answers, time of each stage, and answers with errors or fallbacks.", (WHOLE, STAGES, TRITON, KNOWN), (MOVES,)
)
