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
    "KPIs by version",
    [
        lines(
            "Hit rate by version",
            SHARE,
            "Share of answers with a positive, for the newest answers past their window. Versions without answers have no line.",
            "operate.md#eyashitratefell",
            _by_version("eyas_hit_rate"),
            width=16,
        ),
        lines(
            "Counted answers",
            COUNT,
            "Number of answers behind the hit rate. Below about 100, the rate is noisy: use the rollout's bounds.",
            "kpis.md",
            _by_version("eyas_hit_rate_answers"),
        ),
        lines(
            "Conversion by version",
            SHARE,
            "Share of these answers with a conversion, as the spec defines it.",
            "kpis.md",
            _by_version("eyas_conversion"),
        ),
        lines(
            "Revenue per answer",
            PLAIN,
            "Revenue of the events per answer, in the currency of the events.",
            "kpis.md",
            _by_version("eyas_revenue_per_answer"),
        ),
        lines(
            "Engagement",
            PLAIN,
            "Sum of the weights of attributed events, per answer.",
            "kpis.md",
            _by_version("eyas_engagement"),
        ),
    ],
)
PARTS = Row(
    "Slices and places",
    [
        lines(
            "Hit rate by slice",
            SHARE,
            "Hit rate of the slices of the spec, and of known and unknown users. The total can hide a fall of one slice.",
            "kpis.md",
            _by_slice("eyas_slice_hit_rate"),
        ),
        lines(
            "Conversion by slice",
            SHARE,
            "Share of answers with a conversion, by slice.",
            "kpis.md",
            _by_slice("eyas_slice_conversion"),
        ),
        lines(
            "Answers by slice",
            COUNT,
            "Number of answers behind the rates of slices.",
            "kpis.md",
            _by_slice("eyas_slice_answers"),
        ),
        lines(
            "Clicks by place",
            SHARE,
            "Share of answers whose item in this place was clicked. If the second place beats the first, the order is poor.",
            "order.md",
            Query(newest("eyas_click_rate", *BY, "place"), f"{NAMED} place {{{{place}}}}"),
        ),
        lines(
            "Coverage",
            SHARE,
            "Share of the version's catalogue that its newest answers showed. Near zero: all users see the same few items.",
            "order.md",
            _by_version("eyas_coverage"),
        ),
        lines(
            "Empty answers",
            SHARE,
            "Share of recent answers without items, because filters left none, and the largest share that the spec allows.",
            "operate.md#eyasemptyanswers",
            Query(newest("eyas_empty_answer_share", "recommender"), "{{recommender}}"),
            Query(newest("eyas_empty_answer_limit", "recommender"), "{{recommender}} limit"),
        ),
        lines(
            "Novelty",
            BITS,
            "Mean surprise of the shown items: an item that every second user likes has one bit, every 1,024th ten bits.",
            "order.md",
            _by_version("eyas_novelty"),
        ),
    ],
)
EVENTS = Row(
    "Feedback",
    [
        lines(
            "Interactions",
            PER_SECOND,
            "Accepted events. If all recommenders fall at once, events no longer arrive: check this before the models.",
            "operate.md#eyashitratefell",
            Query(rate("eyas_interactions_total", "recommender"), "{{recommender}}"),
            width=12,
        ),
        lines(
            "Hits",
            PER_SECOND,
            "Answers with their first positive.",
            "kpis.md",
            Query(rate("eyas_hits_total", "recommender"), "{{recommender}}"),
            width=12,
        ),
    ],
)
BOARD = Board(
    "quality",
    "recommendation quality",
    "KPIs of the recommendations by version, slice and place over time, with changes of the route.",
    (EARNED, PARTS, EVENTS),
    (MOVES, ENDS, RETRAININGS),
)
