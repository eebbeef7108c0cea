"""Dashboard of KPIs by version, slice, place and variant, with changes of the route as annotations."""

from __future__ import annotations

from dashboards.asked import newest, rate
from dashboards.board import ENDS, MOVES, RETRAININGS, Board, Row
from dashboards.form import BITS, COUNT, PER_SECOND, PLAIN, SHARE, Query, lines

BY = ("recommender", "version")
NAMED = "{{recommender}} {{version}}"


def _by_version(metric: str) -> Query:
    return Query(newest(metric, *BY), NAMED)


def _by_slice(metric: str) -> Query:
    return Query(newest(metric, *BY, "slice"), f"{NAMED} {{{{slice}}}}")


EARNED = Row(
    "What answers earn",
    [
        lines(
            "Hit rate by version",
            SHARE,
            "Of the newest answers whose attribution window has closed: the share with a positive. Who answers nobody has no line.",
            "operate.md#eyashitratefell",
            _by_version("eyas_hit_rate"),
            width=16,
        ),
        lines(
            "Answers that it rests on",
            COUNT,
            "Few answers make a restless line: under about a hundred, believe the rollout's bounds rather than this.",
            "kpis.md",
            _by_version("eyas_hit_rate_answers"),
        ),
        lines(
            "Conversion by version",
            SHARE,
            "Share of those answers with an event that the spec calls a conversion.",
            "kpis.md",
            _by_version("eyas_conversion"),
        ),
        lines(
            "Revenue per answer",
            PLAIN,
            "What events said that users paid, per answer, in the currency of the events.",
            "kpis.md",
            _by_version("eyas_revenue_per_answer"),
        ),
        lines(
            "Engagement",
            PLAIN,
            "Weights of the events that react to those answers, per answer.",
            "kpis.md",
            _by_version("eyas_engagement"),
        ),
    ],
)
PARTS = Row(
    "For whom, and where on the page",
    [
        lines(
            "Hit rate by slice",
            SHARE,
            "Of the slices that the spec watches, and of known and unknown users. One that falls alone is hidden in the whole.",
            "kpis.md",
            _by_slice("eyas_slice_hit_rate"),
        ),
        lines(
            "Conversion by slice",
            SHARE,
            "Share with a conversion, by slice.",
            "kpis.md",
            _by_slice("eyas_slice_conversion"),
        ),
        lines(
            "Answers by slice",
            COUNT,
            "How many answers the rates of slices rest on.",
            "kpis.md",
            _by_slice("eyas_slice_answers"),
        ),
        lines(
            "Clicks by place",
            SHARE,
            "Share of answers whose item in this place was clicked. A first place that loses to the second is ordered badly.",
            "order.md",
            Query(newest("eyas_click_rate", *BY, "place"), f"{NAMED} place {{{{place}}}}"),
        ),
        lines(
            "Coverage",
            SHARE,
            "Share of the version's catalogue that its newest answers showed. Near nothing: everybody sees the same few items.",
            "order.md",
            _by_version("eyas_coverage"),
        ),
        lines(
            "Novelty",
            BITS,
            "How surprising the shown items are, on average: an item that every second user likes has one bit, of every 1,024th ten.",
            "order.md",
            _by_version("eyas_novelty"),
        ),
    ],
)
EVENTS = Row(
    "What comes back",
    [
        lines(
            "Interactions",
            PER_SECOND,
            "Events taken in. If all recommenders fall at once, clicks no longer arrive: look here before you blame a model.",
            "operate.md#eyashitratefell",
            Query(rate("eyas_interactions_total", "recommender"), "{{recommender}}"),
            width=12,
        ),
        lines(
            "Hits",
            PER_SECOND,
            "Answers that earned their first positive.",
            "kpis.md",
            Query(rate("eyas_hits_total", "recommender"), "{{recommender}}"),
            width=12,
        ),
    ],
)
BOARD = Board(
    "quality",
    "recommendation quality",
    "What recommendations really earn, by version, and what changed when: is a version better, for whom, and since when?",
    (EARNED, PARTS, EVENTS),
    (MOVES, ENDS, RETRAININGS),
)
