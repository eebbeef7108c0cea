"""What rules make of scores, and what chance makes of both: each rule is kept, and every logged chance is the true one."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.attributes import AttributeBuilder
from services.gateway.candidates import Candidates, RankingRequest
from services.gateway.filtering import Filter, FilterInput
from services.gateway.loaded_version import LoadedVersion
from services.gateway.ordering import EXPLORED, Arranged, arrange
from services.gateway.rules import Ordering, Rules
from services.gateway.vectors import build_vectors
from services.index.exact import ExactIndex
from shared.contracts.ordering import Order
from shared.contracts.serving import Serve
from shared.domain.entity_ids import IdHash
from shared.ports import CatalogueItem

NOW = datetime(2026, 12, 1, tzinfo=UTC)
GENRES = ["drama", "crime", "drama", "war", "crime", "drama", "war", "drama", "crime", "war", "drama", "crime"]
ARTISTS = ["a", "a", "a", "b", "b", "c", None, None, "c", "b", "a", "c"]
KEYS = np.arange(10, 10 * len(GENRES) + 1, 10)
SCORES = np.linspace(1.2, 0.1, len(GENRES)).astype(np.float32)
"""The first item is the best one."""
NEVER: dict[str, Any] = {"explore": {"rate": 0}}


def unit(vectors: np.ndarray | None = None) -> LoadedVersion:
    found = None
    if vectors is not None:
        found = build_vectors(KEYS, vectors, np.array([1]), vectors[:1], ExactIndex(KEYS, vectors))
    return LoadedVersion(1, "user", "item", {"item": KEYS}, KEYS, KEYS, KEYS[:0], np.array([1]), found, np.arange(len(KEYS)), KEYS)


def state() -> Any:
    items = []
    for key, genre, artist in zip(KEYS.tolist(), GENRES, ARTISTS, strict=True):
        known = {"genre": genre, "price": float(key)} | ({} if artist is None else {"artist": artist})
        items.append(CatalogueItem(key, known, True, False))
    return AttributeBuilder().take(items)


STATE = state()


def rules(*said: Any, now: datetime = NOW, **order: Any) -> Rules:
    return Ordering(Order.model_validate({"rules": list(said), **order}), IdHash(b"test")).at(now)


def answer(
    given: Rules,
    k: int = 5,
    luck: float = 1.0,
    scores: np.ndarray | None = SCORES,
    rows: np.ndarray | None = None,
    dropped: frozenset[int] = frozenset(),
    of: LoadedVersion | None = None,
) -> Arranged:
    ranking_request = RankingRequest("m", 1, k, Filter(Serve()), FilterInput(STATE, {"age": 30}, dropped), given, luck, explain=True)
    chosen = np.arange(len(KEYS)) if rows is None else rows
    return arrange(Candidates(ranking_request, chosen, True, len(chosen)), None if scores is None else scores[chosen], of or unit())


def keys(found: Arranged) -> list[int]:
    return KEYS[found.rows].tolist()


@pytest.mark.requirement("G-04")
def test_without_rules_the_scores_decide() -> None:
    found = answer(rules(**NEVER))
    assert keys(found) == [10, 20, 30, 40, 50]
    assert found.scores == pytest.approx(SCORES[:5].tolist())
    assert (found.propensities, found.explored) == (None, None)


@pytest.mark.requirement("G-04")
def test_a_boost_is_worth_so_many_standard_deviations_and_leaves_the_scores_as_they_are() -> None:
    step = (SCORES[0] - SCORES[1]) / SCORES.std()
    one = answer(rules({"boost": "genre == 'war'", "by": 3.5 * step}, **NEVER))
    assert keys(one) == [40, 10, 20, 30, 70]
    assert one.scores[0] == pytest.approx(SCORES[3])
    assert one.why[0] == [f"boosted by {3.5 * step:g}: genre == 'war'"]
    assert one.why[1] == []
    assert keys(answer(rules({"boost": "genre == 'war'", "by": 2.5 * step}, **NEVER))) == [10, 40, 20, 30, 70]


def test_what_is_buried_comes_behind_all_others_or_as_far_behind_as_it_says() -> None:
    assert keys(answer(rules({"bury": "genre == 'drama'"}, **NEVER), k=9)) == [20, 40, 50, 70, 90, 100, 120, 10, 30]
    step = (SCORES[0] - SCORES[1]) / SCORES.std()
    assert keys(answer(rules({"bury": "genre == 'drama'", "by": 1.5 * step}, **NEVER), k=4)) == [20, 10, 40, 30]


def test_an_expression_may_ask_the_context() -> None:
    assert keys(answer(rules({"boost": "price > 100 and user.age > 20", "by": 10}, **NEVER), k=3)) == [110, 120, 10]
    assert keys(answer(rules({"boost": "price > 100 and user.age > 40", "by": 10}, **NEVER), k=3)) == [10, 20, 30]


@pytest.mark.requirement("G-04")
def test_pins_have_their_places_by_key_or_by_what_is_best() -> None:
    found = answer(rules({"pin": 120, "at": 2}, {"pin": "genre == 'war'", "at": 4}, **NEVER))
    assert keys(found) == [10, 120, 20, 40, 30]
    assert found.why[1] == ["pinned at 2: 120"]
    assert keys(answer(rules({"pin": 120, "at": 6}, **NEVER))) == [10, 20, 30, 40, 50]


def test_a_pinned_item_that_no_candidate_is_is_shown_without_a_score_unless_it_may_not_be_shown() -> None:
    rows = np.arange(5)
    found = answer(rules({"pin": 120}, {"pin": 4711, "at": 2}, **NEVER), k=3, rows=rows)
    assert keys(found) == [120, 10, 20]
    assert found.scores[0] is None
    assert keys(answer(rules({"pin": 120}, **NEVER), k=3, rows=rows, dropped=frozenset({120}))) == [10, 20, 30]


def test_of_two_pins_of_one_place_the_first_counts_and_an_item_is_shown_once() -> None:
    assert keys(answer(rules({"pin": 30}, {"pin": 40}, {"pin": "genre == 'drama'", "at": 2}, **NEVER), k=3)) == [30, 10, 20]
    assert keys(answer(rules({"pin": 30}, {"pin": 30, "at": 2}, **NEVER), k=3)) == [30, 10, 20]


@pytest.mark.requirement("G-04")
def test_quotas_bound_a_kind_from_both_sides() -> None:
    assert keys(answer(rules({"quota": "genre == 'drama'", "at_most": 1}, **NEVER))) == [10, 20, 40, 50, 70]
    assert keys(answer(rules({"quota": "genre == 'drama'", "at_most": 0}, **NEVER), k=12)) == [20, 40, 50, 70, 90, 100, 120]
    assert keys(answer(rules({"quota": "genre == 'war'", "at_least": 2}, **NEVER), k=4)) == [10, 20, 40, 70]
    assert keys(answer(rules({"quota": "genre == 'opera'", "at_least": 2}, **NEVER), k=4)) == [10, 20, 30, 40]
    both = rules({"quota": "genre == 'war'", "at_least": 1}, {"quota": "genre == 'crime'", "at_least": 2}, **NEVER)
    assert keys(answer(both, k=3)) == [20, 40, 50]


def test_of_each_value_so_many_and_of_unknown_ones_as_many_as_come() -> None:
    assert keys(answer(rules({"each": "artist", "at_most": 1}, **NEVER), k=6)) == [10, 40, 60, 70, 80]
    assert keys(answer(rules({"each": "artist", "at_most": 1}, {"pin": 30, "at": 6}, **NEVER), k=6)) == [40, 60, 70, 80, 30]
    assert keys(answer(rules({"each": "nothing", "at_most": 1}, **NEVER), k=3)) == [10, 20, 30]


def test_pins_count_in_quotas() -> None:
    given = rules({"pin": 110, "at": 3}, {"quota": "genre == 'drama'", "at_most": 1}, **NEVER)
    assert keys(answer(given, k=4)) == [20, 40, 110, 50]


@pytest.mark.requirement("G-04")
def test_diversity_takes_what_is_unlike_what_stands_above() -> None:
    vectors = np.zeros((len(KEYS), 2), np.float32)
    vectors[:, 0] = 1.0
    vectors[5:] = (0.0, 1.0)
    vectors[11] = (0.0, 0.0)
    alike = unit(vectors)
    assert keys(answer(rules(diversity=0.0, **NEVER), k=3, of=alike)) == [10, 20, 30]
    assert keys(answer(rules(diversity=0.5, **NEVER), k=4, of=alike)) == [10, 60, 120, 20]
    assert keys(answer(rules(diversity=1.0, **NEVER), k=3, of=alike)) == [10, 60, 120]
    assert keys(answer(rules(diversity=0.5, **NEVER), k=3)) == [10, 20, 30]  # without vectors


def test_rules_hold_without_scores_too_and_the_order_stands_for_them() -> None:
    found = answer(rules({"bury": "genre == 'drama'"}, {"pin": 120}), k=4, scores=None, luck=0.0)
    assert keys(found) == [120, 20, 40, 50]
    assert found.scores == [None] * 4
    assert found.propensities is None


@pytest.mark.requirement("G-04")
def test_a_campaign_holds_from_its_start_until_its_end_and_before_other_rules() -> None:
    campaign = {"name": "advent", "from": NOW, "until": NOW + timedelta(days=1), "rules": [{"pin": 120}]}
    ordering = Ordering(Order.model_validate({"rules": [{"pin": 110}], "campaigns": [campaign], **NEVER}), IdHash(b"test"))
    for now, first in ((-1, 110), (0, 120), (86_399, 120), (86_400, 110)):
        assert keys(answer(ordering.at(NOW + timedelta(seconds=now))))[0] == first
    assert "campaign 'advent'" in answer(ordering.at(NOW)).why[0][0]
    assert ordering.at(NOW) is ordering.at(NOW + timedelta(hours=1))


GRID, STRIDE = 4_000, 8


def over_luck(given: Rules, k: int, rows: np.ndarray | None = None) -> list[Arranged]:
    """The answers on a grid over all luck. An answer is constant between bounds: what lies between two equal answers is not computed."""
    made: dict[int, Arranged] = {}

    def at(step: int) -> Arranged:
        if step not in made:
            made[step] = answer(given, k, (step + 0.5) / GRID, rows=rows)
        return made[step]

    found = []
    for step in range(GRID):
        low = step - step % STRIDE
        first, last = at(low), at(min(low + STRIDE, GRID - 1))
        found.append(first if (keys(first), first.propensities) == (keys(last), last.propensities) else at(step))
    return found


def frequencies(
    given: Rules, k: int, rows: np.ndarray | None = None
) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int], set[float]]]:
    """Over all luck: how often each item stands in each place, and the chances that were said of it."""
    seen: Counter[tuple[int, int]] = Counter()
    said: dict[tuple[int, int], set[float]] = {}
    for found in over_luck(given, k, rows):
        assert found.propensities is not None
        for place, (key, chance) in enumerate(zip(keys(found), found.propensities, strict=True)):
            seen[place, key] += 1
            said.setdefault((place, key), set()).add(round(chance, 12))
    return {one: count / GRID for one, count in seen.items()}, said


@pytest.mark.requirement("G-04")
@pytest.mark.parametrize(
    ("said", "k"),
    [
        ((), 4),
        (({"pin": 120, "at": 2},), 4),
        (({"each": "artist", "at_most": 1},), 4),
        (({"quota": "genre == 'drama'", "at_most": 2}, {"quota": "genre == 'war'", "at_least": 1}), 4),
        (({"bury": "genre == 'crime'"}, {"boost": "genre == 'war'"}), 3),
        ((), 12),
    ],
)
def test_every_chance_that_is_said_is_the_true_one(said: Any, k: int) -> None:
    shares, propensities = frequencies(rules(*said, explore={"rate": 0.5, "among": 4}), k)
    for item, frequency in shares.items():
        (chance,) = propensities[item]
        assert frequency == pytest.approx(chance, abs=3 / GRID), item


def test_what_is_explored_is_good_and_one_place_at_most() -> None:
    given = rules({"bury": "genre == 'crime'"}, explore={"rate": 1.0, "among": 3})
    usual = keys(answer(given, 3, luck=1.0))
    for step in range(300):
        found = answer(given, 3, step / 300)
        others = [key for key, was in zip(keys(found), usual, strict=True) if key != was]
        assert len(others) == 1
        assert others[0] in (60, 70, 80)
        assert found.why[found.explored] == [EXPLORED]


order_rules = st.lists(
    st.one_of(
        st.builds(lambda genre, by: {"boost": f"genre == '{genre}'", "by": by}, st.sampled_from(GENRES), st.floats(0.1, 5)),
        st.builds(lambda genre: {"bury": f"genre == '{genre}'"}, st.sampled_from(GENRES)),
        st.builds(lambda key, at: {"pin": key, "at": at}, st.sampled_from([*KEYS.tolist(), 7]), st.integers(1, 8)),
        st.builds(lambda genre, most: {"quota": f"genre == '{genre}'", "at_most": most}, st.sampled_from(GENRES), st.integers(0, 4)),
        st.builds(lambda genre, least: {"quota": f"genre == '{genre}'", "at_least": least}, st.sampled_from(GENRES), st.integers(1, 3)),
        st.builds(lambda most: {"each": "artist", "at_most": most}, st.integers(1, 3)),
    ),
    max_size=6,
)


@settings(max_examples=200)
@given(order_rules, st.integers(1, 14), st.floats(0, 0.999), st.sets(st.sampled_from(range(len(KEYS)))), st.booleans())
def test_whatever_the_rules_no_item_comes_twice_and_no_cap_is_broken(
    said: list[dict[str, Any]], k: int, luck: float, rows: set[int], is_scored: bool
) -> None:
    given = rules(*said, explore={"rate": 0.5, "among": 5})
    found = answer(given, k, luck, rows=np.array(sorted(rows), np.intp), scores=SCORES if is_scored else None)
    shown = keys(found)
    assert len(set(shown)) == len(shown) <= k
    assert len(found.scores) == len(shown)
    pinned = {one["pin"] for one in said if "pin" in one}
    assert set(shown) <= set(KEYS[sorted(rows)].tolist()) | pinned
    by_key = dict(zip(KEYS.tolist(), zip(GENRES, ARTISTS, strict=True), strict=True))
    for one in said:
        if "at_most" in one and "quota" in one:
            kind = one["quota"].split("'")[1]
            assert sum(by_key[key][0] == kind for key in shown if key not in pinned) <= one["at_most"]
        if "each" in one:
            artists = Counter(by_key[key][1] for key in shown if key not in pinned)
            assert all(count <= one["at_most"] for artist, count in artists.items() if artist)
    if is_scored:
        assert found.propensities is not None
        assert len(found.propensities) == len(shown)
        assert all(0 < propensity <= 1 for propensity in found.propensities)


@pytest.mark.requirement("G-04")
@pytest.mark.parametrize("said", [(), ({"each": "artist", "at_most": 2}, {"pin": 120, "at": 3})])
def test_what_another_order_would_have_earned_can_be_told_from_the_log(said: Any) -> None:
    """Weighed by their chances, the logged places of one order estimate any order near it without bias."""
    given = rules(*said, explore={"rate": 0.3, "among": 4})
    usual = keys(answer(given, 4))
    earns = {key: 1 / (7 + key) for key in KEYS.tolist()}
    logged = over_luck(given, 4)
    seen = {(place, key) for one in logged for place, key in enumerate(keys(one))}
    others = [key for place, key in sorted(seen) if place == 1 and key != usual[1]]
    assert others
    for other in (usual[1], *others):
        wanted = [usual[0], other, *usual[2:]]
        estimate = 0.0
        for one in logged:
            assert one.propensities is not None
            for key, chance, would in zip(keys(one), one.propensities, wanted, strict=True):
                estimate += earns[key] / chance * (key == would) / GRID
        assert estimate == pytest.approx(sum(earns[key] for key in wanted), rel=0.02)
