"""Sums of what answers earned, slices, and how far answers reach."""

from __future__ import annotations

import math

import pytest

from shared.domain.coverage_novelty import ItemShowings, coverage, novelty
from shared.domain.earned import AnswerGroup, AnswerOutcomes, gathered, sliding, total
from shared.domain.expression_text import parse_expression
from shared.domain.slices import Slices

ONE = AnswerOutcomes(2, 1, 1, 500, {"click": 2}, {3: 2}, {0: 1})
OTHER = AnswerOutcomes(3, 2, 0, -100, {"click": 1, "view": 4}, {3: 1, 2: 2}, {1: 2})
BOTH = AnswerOutcomes(5, 3, 1, 400, {"click": 3, "view": 4}, {3: 3, 2: 2}, {0: 1, 1: 2})


def test_what_answers_apart_earned_adds_up_in_any_order() -> None:
    assert total([ONE, OTHER]) == total([OTHER, ONE]) == BOTH
    assert total([]) == AnswerOutcomes()


def test_parts_add_up_under_each_of_their_names() -> None:
    parts = {AnswerGroup("stable", None, ("a", "b")): ONE, AnswerGroup("stable", None, ("b",)): OTHER, AnswerGroup("candidate"): ONE}
    assert gathered(parts, lambda part: part.slices) == {"a": ONE, "b": BOTH}
    assert gathered(parts, lambda part: (part.variant,)) == {"stable": BOTH, "candidate": ONE}


def test_windows_slide_over_steps() -> None:
    steps = {0: ONE, 2: OTHER}
    assert sliding(steps, 1, 3) == [ONE, AnswerOutcomes(), OTHER]
    assert sliding(steps, 2, 2) == [ONE, OTHER]
    assert sliding(steps, 3, 2) == [BOTH, OTHER]


CONTEXTS: list[tuple[dict[str, object], tuple[str, ...]]] = [
    ({}, ()),
    ({"country": "de"}, ("germany",)),
    ({"country": "de", "age": 20}, ("germany", "young")),
    ({"country": "fr", "age": "young"}, ()),
    ({"age": 24.5, "plan": "free"}, ("young",)),
]


@pytest.mark.requirement("G-13")
def test_an_answer_is_in_the_slices_whose_condition_is_true_of_its_user(subtests: pytest.Subtests) -> None:
    for context, found in CONTEXTS:
        with subtests.test(context=context, found=found):
            conditions = {
                "young": "user.age < 25",
                "germany": "user.country == 'de'",
                "paying": "not user.plan == 'free' and has(user.plan)",
            }
            slices = Slices({name: parse_expression(text).tree for name, text in conditions.items()})
            assert slices.of(context) == found  # type: ignore[arg-type]


def test_coverage_is_the_share_of_the_catalogue_that_was_shown() -> None:
    showings = ItemShowings(3, {1: 3, 2: 1})
    assert (coverage(showings, 8), coverage(showings, 1), coverage(showings, 0), coverage(ItemShowings(), 8)) == (0.25, 1.0, 0.0, 0.0)


def test_novelty_is_the_surprise_of_a_like_of_what_was_shown() -> None:
    """Of 4 items with 12 likes, 16 with one more each: 8 for the first, 4, 2, 2."""
    likes = {1: 7, 2: 3, 3: 1, 4: 1}
    assert novelty(ItemShowings(1, {1: 1}), likes, 4) == 1
    assert novelty(ItemShowings(4, {1: 4, 2: 2, 3: 2}), likes, 4) == (4 * 1 + 2 * 2 + 2 * 3) / 8
    assert novelty(ItemShowings(1, {9: 1}), {}, 8) == math.log2(8)
    assert novelty(ItemShowings(), likes, 4) is None
