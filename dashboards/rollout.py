"""Dashboard of a rollout: stable version and candidate, and the evidence with its bounds."""

from __future__ import annotations

from dashboards.asked import mean, newest, quantile, rate, share
from dashboards.board import ENDS, MOVES, OF, Board, Row
from dashboards.form import COUNT, PLAIN, REQUESTS, SECONDS, SHARE, Query, lines, number, states

VARIANT = "{{variant}}"
CHECKS = {1: ("pass", "green"), 0: ("inconclusive", "yellow"), -1: ("fail", "red"), -2: ("error", "purple")}

NOW = Row(
    "State",
    [
        number(
            "Stable version",
            PLAIN,
            "Version for all users outside the candidate's share.",
            "rollouts.md#read-a-rollout",
            Query(newest("eyas_serving_version")),
        ),
        number(
            "Candidate's share",
            SHARE,
            "Share of the users. Zero without an active rollout, and during a shadow.",
            "operate.md#eyasrolloutstuck",
            Query(newest("eyas_candidate_weight")),
        ),
        lines(
            "Candidate's share over time",
            SHARE,
            "Each step up is a passed step; a fall to zero is the end, which the annotations show.",
            "operate.md#eyasrolloutstuck",
            Query(newest("eyas_candidate_weight"), "candidate"),
        ),
        lines(
            "Time in state",
            SECONDS,
            "Time of the rollout in its state; for a shadow, time since its planned end.",
            "operate.md#eyasrolloutwaits",
            Query(newest("eyas_rollout_waits_seconds", "state"), "{{state}}"),
        ),
        lines(
            "Ended rollouts",
            COUNT,
            "Ended rollouts since the start of the control plane: promoted, rolled back, aborted.",
            "operate.md#eyasrolloutrolledback",
            Query(newest("eyas_rollouts_total", "state"), "{{state}}"),
        ),
    ],
)
EVIDENCE = Row(
    "Evidence",
    [
        lines(
            "Lift with its bounds",
            SHARE,
            "Relative lift of the candidate, with bounds that hold at every look. Upper bound below zero: rollback. Lower bound above the"
            " limit at the last step: promotion.",
            "rollouts.md#read-a-rollout",
            Query(newest("eyas_rollout_lift", "bound"), "{{bound}}"),
            width=16,
        ),
        lines(
            "Observed users",
            COUNT,
            "Users whose window has closed: the basis of the evidence.",
            "rollouts.md#read-a-rollout",
            Query(newest("eyas_rollout_users", "variant"), VARIANT),
        ),
        lines(
            "Goal by variant",
            SHARE,
            "Result of each variant by the goal of the spec: mean hit rate, or share of users with a conversion.",
            "rollouts.md#read-a-rollout",
            Query(newest("eyas_rollout_goal", "variant"), VARIANT),
        ),
        states(
            "Goal, split and guardrails",
            "Verdict of each comparison at the newest look. With an error in the split, do not trust the comparison.",
            "rollouts.md#when-it-pauses",
            Query(newest("eyas_rollout_check", "check"), "{{check}}"),
            CHECKS,
            width=16,
        ),
    ],
)
BESIDE = Row(
    "Comparison",
    [
        lines(
            "Hit rate by variant",
            SHARE,
            "Hit rate per answer, of the newest answers, for orientation. The evidence above is per user, and decides.",
            "kpis.md",
            Query(newest("eyas_variant_hit_rate", "variant"), VARIANT),
        ),
        lines(
            "Answers by variant",
            COUNT,
            "Number of answers behind these rates.",
            "kpis.md",
            Query(newest("eyas_variant_answers", "variant"), VARIANT),
        ),
        lines(
            "Requests by variant",
            REQUESTS,
            "Requests by variant. Their ratio differs from the candidate's share if some users send more requests.",
            "rollouts.md#read-a-rollout",
            Query(rate("eyas_recommend_requests_total", "variant"), VARIANT),
        ),
        lines(
            "Errors and fallbacks",
            SHARE,
            "Share of errors and fallbacks, by variant. A higher share of the candidate means a faulty candidate.",
            "operate.md#eyastritonunhealthy",
            Query(
                share(
                    rate("eyas_recommend_requests_total", "variant", where=f'{OF}, outcome!="ok"'),
                    rate("eyas_recommend_requests_total", "variant"),
                ),
                VARIANT,
            ),
        ),
        lines(
            "Time by variant, 99th percentile",
            SECONDS,
            "Answer time. Requests of both variants share batches, so a slow variant also slows the other one.",
            "operate.md#eyasanswersslow",
            Query(quantile(0.99, "eyas_recommend_seconds", "variant"), VARIANT),
        ),
        lines(
            "Time by variant, mean",
            SECONDS,
            "Mean time of answered requests.",
            "operate.md#eyasanswersslow",
            Query(mean("eyas_recommend_seconds", "variant"), VARIANT),
        ),
        lines(
            "Shadow",
            REQUESTS,
            "Requests mirrored to a shadow candidate: compared, error, dropped (candidate overloaded).",
            "rollouts.md#read-a-rollout",
            Query(rate("eyas_shadow_requests_total", "outcome"), "{{outcome}}"),
        ),
    ],
)
BOARD = Board(
    "rollout",
    "rollout",
    "Rollout of one recommender: stable version, candidate, and the evidence of their difference.",
    (NOW, EVIDENCE, BESIDE),
    (MOVES, ENDS),
    one=True,
)
