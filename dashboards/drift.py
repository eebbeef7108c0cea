"""Dashboard of drift by feature, and of the retrainings that follow."""

from __future__ import annotations

from dashboards.asked import newest, rate, total
from dashboards.board import MOVES, RETRAININGS, Board, Row
from dashboards.form import COUNT, PER_SECOND, PLAIN, SHARE, Query, bars, lines

BY = ("recommender", "detector", "feature")
NAMED = "{{recommender}} {{feature}} ({{detector}})"

FEATURES = Row(
    "By feature",
    [
        bars(
            "Largest drift",
            PLAIN,
            "The ten features with the largest drift, by the measure of their detector. Check the chance as well.",
            "operate.md#eyasdrift",
            Query(f"topk(10, {newest('eyas_drift', *BY)})", NAMED),
            width=12,
        ),
        bars(
            "Lowest chance",
            SHARE,
            "Probability of so much drift by chance alone: the ten lowest. A reading counts below the bound of the spec.",
            "operate.md#eyasdrift",
            Query(f"bottomk(10, {newest('eyas_drift_chance', *BY)})", NAMED),
            width=12,
        ),
        lines(
            "Drift by feature",
            PLAIN,
            "Distance of the newest positives, or scores, from the first ones of the version. A new version starts again.",
            "operate.md#eyasdrift",
            Query(newest("eyas_drift", *BY), NAMED),
            width=12,
        ),
        lines(
            "Chance by feature",
            SHARE,
            "Probability of so much drift by chance alone.",
            "operate.md#eyasdrift",
            Query(newest("eyas_drift_chance", *BY), NAMED),
            width=12,
        ),
    ],
)
FOLLOWS = Row(
    "Retraining",
    [
        lines(
            "Standing readings",
            COUNT,
            "Readings of drift and of a fallen hit rate (kpi). `eyas triggers NAME` shows what fires and what is held back.",
            "operate.md#eyasdrift",
            Query(newest("eyas_drifting", "recommender", "trigger"), "{{recommender}} {{trigger}}"),
        ),
        lines(
            "Given up",
            COUNT,
            "1: too many retrainings in a row did not help, and no new one starts.",
            "operate.md#eyasretraineralerting",
            Query(newest("eyas_retrainer_alerting", "recommender"), "{{recommender}}"),
        ),
        lines(
            "Retrainings by trigger",
            COUNT,
            "Retrainings since the start of the control planes.",
            "retraining.md",
            Query(total("eyas_retrainings_total", "recommender", "trigger"), "{{recommender}} {{trigger}}"),
        ),
        lines(
            "Hit rate",
            SHARE,
            "Hit rate during the drift: drift without a fall of the hit rate is not urgent.",
            "operate.md#eyashitratefell",
            Query(newest("eyas_hit_rate", "recommender", "version"), "{{recommender}} {{version}}"),
            width=12,
        ),
        lines(
            "Interactions",
            PER_SECOND,
            "Events that drift is measured on: too few events give no reading.",
            "retraining.md",
            Query(rate("eyas_interactions_total", "recommender"), "{{recommender}}"),
            width=12,
        ),
    ],
)
BOARD = Board(
    "drift",
    "drift",
    "Drift of positives, features and scores since the start of a version, by feature, and the retrainings that follow.",
    (FEATURES, FOLLOWS),
    (MOVES, RETRAININGS),
)
