"""Dashboard of a rollout: stable version and candidate, and the evidence with its bounds."""

from __future__ import annotations

from dashboards.asked import mean, newest, quantile, rate, share
from dashboards.board import ENDS, MOVES, OF, Board, Row
from dashboards.form import COUNT, PLAIN, REQUESTS, SECONDS, SHARE, Query, lines, number, states

VARIANT = "{{variant}}"
CHECKS = {1: ("pass", "green"), 0: ("inconclusive", "yellow"), -1: ("fail", "red"), -2: ("error", "purple")}

NOW = Row(
    "Where it stands",
    [
        number(
            "Stable version",
            PLAIN,
            "The version that answers everybody whom the candidate doesn't.",
            "rollouts.md#read-a-rollout",
            Query(newest("eyas_serving_version")),
        ),
        number(
            "Candidate's share",
            SHARE,
            "Of the users. Nothing while no rollout is under way, and in a shadow.",
            "operate.md#eyasrolloutstuck",
            Query(newest("eyas_candidate_weight")),
        ),
        lines(
            "Candidate's share over time",
            SHARE,
            "Each step up is a look that passed; back to nothing is an end: the marks say which.",
            "operate.md#eyasrolloutstuck",
            Query(newest("eyas_candidate_weight"), "candidate"),
        ),
        lines(
            "Where it waits",
            SECONDS,
            "For how long the rollout has been in its state; of a shadow, for how long its time has been over.",
            "operate.md#eyasrolloutwaits",
            Query(newest("eyas_rollout_waits_seconds", "state"), "{{state}}"),
        ),
        lines(
            "Rollouts that ended",
            COUNT,
            "Since the control plane began: promoted, rolled back, aborted.",
            "operate.md#eyasrolloutrolledback",
            Query(newest("eyas_rollouts_total", "state"), "{{state}}"),
        ),
    ],
)
EVIDENCE = Row(
    "The evidence",
    [
        lines(
            "Lift with its bounds",
            SHARE,
            "How much more the candidate earns, relative. The truth is between lower and upper, however often one looks. Upper below zero:"
            " it is rolled back. Lower above limit at the last step: it is promoted.",
            "rollouts.md#read-a-rollout",
            Query(newest("eyas_rollout_lift", "bound"), "{{bound}}"),
            width=16,
        ),
        lines(
            "Users observed",
            COUNT,
            "Whose window has closed: what the evidence rests on.",
            "rollouts.md#read-a-rollout",
            Query(newest("eyas_rollout_users", "variant"), VARIANT),
        ),
        lines(
            "Goal by variant",
            SHARE,
            "What users of each variant earned, by the goal of the spec: mean hit rate, or share who converted.",
            "rollouts.md#read-a-rollout",
            Query(newest("eyas_rollout_goal", "variant"), VARIANT),
        ),
        states(
            "Goal, split and guardrails",
            "What each comparison said at the newest look. An error in the split means that the comparison can't be trusted.",
            "rollouts.md#when-it-pauses",
            Query(newest("eyas_rollout_check", "check"), "{{check}}"),
            CHECKS,
            width=16,
        ),
    ],
)
BESIDE = Row(
    "Side by side",
    [
        lines(
            "Hit rate by variant",
            SHARE,
            "Per answer, of the newest ones, for the eye: the evidence above is per user, and counts.",
            "kpis.md",
            Query(newest("eyas_variant_hit_rate", "variant"), VARIANT),
        ),
        lines(
            "Answers by variant",
            COUNT,
            "That these rates rest on.",
            "kpis.md",
            Query(newest("eyas_variant_answers", "variant"), VARIANT),
        ),
        lines(
            "Requests by variant",
            REQUESTS,
            "Their proportion is the candidate's share, but for users who ask more often.",
            "rollouts.md#read-a-rollout",
            Query(rate("eyas_recommend_requests_total", "variant"), VARIANT),
        ),
        lines(
            "Answers not by the version itself",
            SHARE,
            "Errors and fallbacks, by variant. More of the candidate's than of the stable version's: the candidate is sick.",
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
            "Time by variant, 99 of 100",
            SECONDS,
            "Requests that come together are answered together, so one slow variant slows the other as well.",
            "operate.md#eyasanswersslow",
            Query(quantile(0.99, "eyas_recommend_seconds", "variant"), VARIANT),
        ),
        lines(
            "Time by variant, mean",
            SECONDS,
            "Of answered requests.",
            "operate.md#eyasanswersslow",
            Query(mean("eyas_recommend_seconds", "variant"), VARIANT),
        ),
        lines(
            "Shadow",
            REQUESTS,
            "Requests mirrored to a candidate in the shadow: compared, error, dropped (more than it could take).",
            "rollouts.md#read-a-rollout",
            Query(rate("eyas_shadow_requests_total", "outcome"), "{{outcome}}"),
        ),
    ],
)
BOARD = Board(
    "rollout",
    "rollout",
    "One recommender's rollout: stable version and candidate side by side, and how sure the difference is.",
    (NOW, EVIDENCE, BESIDE),
    (MOVES, ENDS),
    one=True,
)
