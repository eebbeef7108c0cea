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
            "Furthest now",
            PLAIN,
            "The ten features that have moved most, by their detector's own measure; a measure says little where chance explains it.",
            "operate.md#eyasdrift",
            Query(f"topk(10, {newest('eyas_drift', *BY)})", NAMED),
            width=12,
        ),
        bars(
            "Least explained by chance",
            SHARE,
            "How often chance alone moves a feature so far: the ten least likely. A reading counts below the spec's bound.",
            "operate.md#eyasdrift",
            Query(f"bottomk(10, {newest('eyas_drift_chance', *BY)})", NAMED),
            width=12,
        ),
        lines(
            "Drift by feature",
            PLAIN,
            "How far the newest likes, or scores, have moved from the version's first ones. A new version begins anew.",
            "operate.md#eyasdrift",
            Query(newest("eyas_drift", *BY), NAMED),
            width=12,
        ),
        lines(
            "Chance by feature",
            SHARE,
            "How often chance alone moves it so far.",
            "operate.md#eyasdrift",
            Query(newest("eyas_drift_chance", *BY), NAMED),
            width=12,
        ),
    ],
)
FOLLOWS = Row(
    "What follows",
    [
        lines(
            "Readings that stand",
            COUNT,
            "Of drift, and of a hit rate that fell (kpi). `eyas triggers NAME` says whether a retraining follows, and what holds it back.",
            "operate.md#eyasdrift",
            Query(newest("eyas_drifting", "recommender", "trigger"), "{{recommender}} {{trigger}}"),
        ),
        lines(
            "Given up",
            COUNT,
            "1 where so many retrainings in a row didn't help that none is started any more.",
            "operate.md#eyasretraineralerting",
            Query(newest("eyas_retrainer_alerting", "recommender"), "{{recommender}}"),
        ),
        lines(
            "Retrainings by trigger",
            COUNT,
            "Since the control planes began.",
            "retraining.md",
            Query(total("eyas_retrainings_total", "recommender", "trigger"), "{{recommender}} {{trigger}}"),
        ),
        lines(
            "Hit rate",
            SHARE,
            "Does what moved cost anything? Drift without a fall of the hit rate may wait.",
            "operate.md#eyashitratefell",
            Query(newest("eyas_hit_rate", "recommender", "version"), "{{recommender}} {{version}}"),
            width=12,
        ),
        lines(
            "Interactions",
            PER_SECOND,
            "Drift is measured on them: too few in a while and nothing is said.",
            "retraining.md",
            Query(rate("eyas_interactions_total", "recommender"), "{{recommender}}"),
            width=12,
        ),
    ],
)
BOARD = Board(
    "drift",
    "drift",
    "How far tastes, features and scores have moved since a version began, feature by feature, and what follows from it.",
    (FEATURES, FOLLOWS),
    (MOVES, RETRAININGS),
)
