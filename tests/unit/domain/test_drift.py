"""Detectors on samples whose truth is known, and when a reading counts."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import NormalDist

import pytest

from shared.domain.drift import distributions
from shared.domain.drift.alarm_decision import NOTHING_YET, AlarmMemory, remember
from shared.domain.drift.detectors import ALPHA, DETECTORS, LOOKS, detected, new, nulls, psi, scores
from shared.domain.drift.hit_rate_detector import Block, fall
from shared.domain.drift.reading import DriftColumn, DriftLook, DriftReading, DriftValue, rarely
from shared.domain.drift.shares import FEWEST
from shared.domain.sequential_test import VariantSample
from tests.support.drift_readings import AT, look

GENRES = ("drama", "comedy", "western", "noir", "musical", "war")
EVEN = (1.0,) * 6


def likes(
    rng: random.Random, users: int, each: int, weights: Sequence[float] = EVEN, taste: float = 0.0, first: int = 0
) -> list[DriftValue]:
    """Each user likes `each` films; with a taste, that share of them is of the user's favourite genre."""
    values = []
    for user in range(first, first + users):
        (favourite,) = rng.choices(GENRES, weights)
        others = iter(rng.choices(GENRES, weights, k=each))
        values += [DriftValue(user, (favourite if taste and rng.random() < taste else next(others),)) for _ in range(each)]
    return values


def genres(first: list[DriftValue], now: list[DriftValue]) -> DriftColumn:
    return DriftColumn("feature", "genres", first, now)


def sure(reading: DriftReading | None) -> DriftReading:
    assert reading is not None
    return reading


# Tails


def test_tails_agree_with_tables() -> None:
    assert distributions.f_tail(4.256, 2, 9) == pytest.approx(0.05, abs=1e-4)
    assert distributions.f_tail(2.866, 4, 20) == pytest.approx(0.05, abs=1e-4)
    assert distributions.f_tail(10.04, 1, 10) == pytest.approx(0.01, abs=1e-4)
    assert distributions.f_tail(0, 3, 3) == 1
    assert distributions.f_tail(16.27 / 3, 3, 1e7) == pytest.approx(0.001, rel=1e-2), "the chi-square's"
    assert distributions.f_tail(1e6, 5, 500) < 1e-100
    assert distributions.kolmogorov_tail(1.358 / math.sqrt(5e5), 10**6, 10**6) == pytest.approx(0.05, rel=1e-2)
    assert distributions.kolmogorov_tail(0.01, 50, 50) == 1


# What moves and what doesn't


@pytest.mark.requirement("C-03", "G-05")
def test_small_samples_show_a_large_psi_and_no_drift() -> None:
    """Two samples of 40 likes of the same world: the raw index is beyond the usual 0.2 in a third of them."""
    rng = random.Random(1)
    raw, alarms = 0, 0
    for _ in range(300):
        first, now = likes(rng, 40, 1), likes(rng, 40, 1, first=40)
        found = sure(psi(genres(first, now)))
        counts = [[sum(one.texts == (genre,) for one in side) / 40 for genre in GENRES] for side in (first, now)]
        raw += sum((q - p) * math.log(max(q, 0.0125) / max(p, 0.0125)) for p, q in zip(*counts, strict=True)) > 0.2
        alarms += found.exceeds(0.2)
    assert raw > 75
    assert alarms == 0


@pytest.mark.parametrize("each", [1, 8])
def test_chance_is_what_it_says_whether_users_are_fickle_or_not(each: int) -> None:
    """With eight likes of one's favourite genre each, eight times the likes are no more evidence: a user is one observation."""
    rng = random.Random(2)
    found = [sure(psi(genres(likes(rng, 80, each, taste=0.9), likes(rng, 80, each, taste=0.9, first=80)))).chance for _ in range(400)]
    assert 0.02 < sum(one < 0.05 for one in found) / 400 < 0.08
    assert sum(one < 0.001 for one in found) <= 3


@pytest.mark.requirement("C-03")
def test_a_shift_is_found_with_the_values_that_moved_most() -> None:
    rng = random.Random(3)
    column = genres(likes(rng, 300, 3), likes(rng, 300, 3, (3, 1, 1, 1, 1, 0.2), first=300))
    found = sure(psi(column))
    assert found.chance < 1e-9
    assert 0.2 < found.size < 1
    assert found.users == (300, 300)
    assert {one.value for one in found.moved[:2]} == {"drama", "war"}
    drama = next(one for one in found.moved if one.value == "drama")
    assert drama.after > 2 * drama.before
    assert "drift of genres: psi 0." in found.sentence()
    assert "drama from " in found.sentence()


def test_the_size_of_a_shift_does_not_depend_on_the_size_of_the_sample() -> None:
    rng = random.Random(4)
    found = [
        sum(sure(psi(genres(likes(rng, users, 1), likes(rng, users, 1, (3, 1, 1, 1, 1, 1), first=users)))).size for _ in range(runs)) / runs
        for users, runs in ((60, 100), (2000, 5))
    ]
    assert found[0] == pytest.approx(found[1], rel=0.35)


def test_too_few_users_say_nothing_however_many_likes() -> None:
    rng = random.Random(5)
    assert psi(genres(likes(rng, FEWEST - 1, 500), likes(rng, 500, 1, first=500))) is None
    assert psi(genres(likes(rng, FEWEST, 5), likes(rng, FEWEST, 5, first=500))) is not None


def test_rare_values_share_a_bin_and_all_alike_has_not_moved() -> None:
    first = [DriftValue(user, (f"title {user}",)) for user in range(200)]
    reading = sure(psi(genres(first, [DriftValue(value.user + 200, (f"title {value.user + 200}",)) for value in first])))
    assert (reading.size, reading.chance) == (0, 1)
    same = [DriftValue(user, ("drama",)) for user in range(200)]
    assert sure(psi(genres(same, same))).chance == 1
    other = [DriftValue(user, ("comedy",)) for user in range(200)]
    assert sure(psi(genres(same, other))).chance == 0, "nobody ever did that"


def test_numbers_are_binned_by_tenths_of_both_sides() -> None:
    rng = random.Random(6)
    first = [DriftValue(user, (), rng.gauss(10, 2)) for user in range(400)]
    same = [DriftValue(user, (), rng.gauss(10, 2)) for user in range(400)]
    dearer = [DriftValue(user, (), rng.gauss(12, 2)) for user in range(400)]
    column = DriftColumn("feature", "price", first, same)
    assert sure(psi(column)).chance > 0.001
    found = sure(psi(replace(column, now=dearer)))
    assert found.chance < 1e-9
    assert any(one.value.endswith("and more") and one.after > one.before for one in found.moved)


@pytest.mark.requirement("G-05")
def test_new_items_and_missing_values_are_a_rise_of_their_share() -> None:
    def items(unknown: int) -> list[DriftValue]:
        return [DriftValue(user, None if user % 100 < unknown else ("known",)) for user in range(300)]

    assert sure(new(DriftColumn("key", "film", items(2), items(2)))).chance > 0.4
    reading = sure(new(DriftColumn("key", "film", items(2), items(20))))
    assert reading.size == pytest.approx(0.18)
    assert reading.chance < 1e-6
    assert sure(new(DriftColumn("key", "film", items(20), items(2)))).size == 0, "fewer is no alarm"
    empty = [DriftValue(value.user, () if value.texts is None else value.texts) for value in items(20)]
    full = [DriftValue(value.user, ("drama",)) for value in items(0)]
    lost = sure(nulls(genres(full, empty)))
    assert lost.size == pytest.approx(0.2)
    assert "missing values of genres: 20.0% more" in lost.sentence()


@pytest.mark.parametrize("name", ["new", "nulls"])
def test_the_chance_of_a_rise_is_one_sided(name: str) -> None:
    """A fall is no alarm, so half of the two-sided chance is left: that of the one-sided test of two shares."""
    missing = {"new": None, "nulls": ()}[name]

    def likes_of(such: int) -> list[DriftValue]:
        return [DriftValue(user, missing if user < such else ("drama",)) for user in range(1000)]

    for before, after in ((100, 120), (100, 130), (200, 250)):
        share = (before + after) / 2000
        deviations = (after - before) / 1000 / math.sqrt(share * (1 - share) * 2 / 1000)
        reading = sure(DETECTORS[name].detect(DriftColumn(DETECTORS[name].reads, "film", likes_of(before), likes_of(after))))
        assert reading.chance == pytest.approx(1 - NormalDist().cdf(deviations), rel=0.05)


def test_scores_are_compared_by_each_users_first_answer() -> None:
    rng = random.Random(7)

    def answers(users: int, mean: float, each: int = 1) -> list[DriftValue]:
        return [DriftValue(user, (), own) for user in range(users) for own in [rng.gauss(mean, 1)] for _ in range(each)]

    probabilities = [sure(scores(DriftColumn("scores", "scores", answers(100, 0, 8), answers(100, 0, 8)))).chance for _ in range(300)]
    assert sum(probability < 0.05 for probability in probabilities) / 300 < 0.08
    moved = sure(scores(DriftColumn("scores", "scores", answers(200, 0), answers(200, 1))))
    assert moved.size > 0.25
    assert moved.chance < 1e-6
    assert moved.moved[0].after > moved.moved[0].before
    assert scores(DriftColumn("scores", "scores", answers(FEWEST - 1, 0), answers(200, 1))) is None


@pytest.mark.requirement("C-03")
def test_all_readings_of_a_window_share_one_chance_of_a_false_alarm() -> None:
    rng = random.Random(8)
    columns = [genres(likes(rng, 50, 1), likes(rng, 50, 1)), replace(genres(likes(rng, 50, 1), likes(rng, 50, 1)), name="mood")]
    found = detected(columns)
    assert [one.key for one in found] == ["psi/genres", "nulls/genres", "psi/mood", "nulls/mood"]
    assert sum(one.limit for one in found) * LOOKS == pytest.approx(ALPHA)


def test_every_detector_has_a_sentence_and_a_threshold_in_the_spec() -> None:
    from shared.contracts.retraining import DriftTrigger

    for name, one in DETECTORS.items():
        assert one.name == name
        assert DriftReading(name, "genres", 0.3, 0.001, 0.001).sentence()
        assert DriftTrigger.model_fields[name].default == one.threshold


def test_how_sure_is_said_in_words() -> None:
    assert rarely(0.3) == "by chance alone in 30% of all looks"
    assert rarely(1.3e-4) == "by chance alone once in 8,000 looks"
    assert rarely(0) == "by chance alone less than once in 1,000,000,000 looks"


# Falls


START = datetime(2026, 1, 1, tzinfo=UTC)


def blocks(rng: random.Random, rates: Sequence[float], users: int = 100) -> list[Block]:
    found = []
    for number, rate in enumerate(rates):
        values = [sum(rng.random() < rate for _ in range(2)) / 2 for _ in range(users)]
        hits = int(sum(values) * 2)
        sample = VariantSample(
            users, sum(values), sum(value * value for value in values), users * 2, hits, sum(value > 0 for value in values)
        )
        found.append(Block(START + timedelta(hours=number + 1), sample))
    return found


@pytest.mark.requirement("G-13")
def test_a_fall_of_the_hit_rate_is_found_with_what_it_was_and_is() -> None:
    rng = random.Random(9)
    samples = blocks(rng, [0.3] * 20 + [0.2] * 10)
    drift_look = fall(3, VariantSample(), samples, 200)
    assert drift_look is not None
    (reading,) = drift_look.readings
    assert (drift_look.version, drift_look.at) == (3, samples[-1].until)
    assert reading.chance <= reading.limit
    assert reading.size == pytest.approx(1 / 3, abs=0.1)
    (rates,) = reading.moved
    assert rates.before == pytest.approx(0.3, abs=0.03)
    assert rates.after == pytest.approx(0.2, abs=0.03)


def test_a_rate_that_stays_or_rises_is_no_fall() -> None:
    rng = random.Random(10)
    for rates in ([0.3] * 60, [0.3] * 30 + [0.4] * 30):
        samples = blocks(rng, rates)
        for end in range(10, 60, 5):
            reading = fall(1, VariantSample(), samples[:end], 200)
            assert reading is not None
            assert reading.readings[0].chance > reading.readings[0].limit
    assert reading.readings[0].size == 0


def test_what_is_older_than_the_blocks_counts_as_before() -> None:
    rng = random.Random(11)
    old = blocks(rng, [0.5] * 20)
    before = VariantSample()
    for one in old:
        before = before.plus(one.sample)
    found = fall(1, before, blocks(rng, [0.2] * 3), 200)
    assert found is not None
    assert found.readings[0].chance <= found.readings[0].limit
    assert found.readings[0].moved[0].before == pytest.approx(0.5, abs=0.03)


def test_too_few_answers_on_either_side_are_no_reading() -> None:
    rng = random.Random(12)
    assert fall(1, VariantSample(), [], 200) is None
    assert fall(1, VariantSample(), blocks(rng, [0.3]), 200) is None
    assert fall(1, VariantSample(), blocks(rng, [0.3, 0.3]), 201) is None
    assert fall(1, VariantSample(), blocks(rng, [0.3, 0.3]), 200) is not None


# When a reading counts


def after(*looks: DriftLook, needed: int = 3) -> AlarmMemory:
    memory = NOTHING_YET
    for one in looks:
        memory = remember(memory, one, {"psi": 0.2}, needed)
        assert remember(memory, one, {"psi": 0.2}, needed) == memory, "one look counts once"
    return memory


@pytest.mark.requirement("C-03")
def test_a_reading_counts_when_it_has_stood_for_several_looks() -> None:
    moved = [look(at, genres=0.3) for at in range(3)]
    assert after(*moved[:2]).moved == ()
    (found,) = after(*moved).moved
    assert (found.reading.column, found.since, found.looks) == ("genres", AT, 3)


def test_looks_that_are_not_in_a_row_do_not_add_up() -> None:
    assert after(look(0, genres=0.3), look(1, genres=0.3), look(2, genres=0.15), look(3, genres=0.3)).moved == ()
    assert after(*(look(at, genres=0.3, chance=0.001) for at in range(9))).moved == (), "chance explains it"


def test_what_stands_is_clear_only_after_several_clear_looks() -> None:
    moved, clear = [look(at, genres=0.3) for at in range(3)], [look(at, genres=0.01) for at in range(3, 6)]
    assert after(*moved, *clear[:2]).moved
    assert after(*moved, *clear).standing == ()
    assert after(*moved, *(look(at, genres=0.15) for at in range(3, 9))).moved, "below the threshold is not yet clear"
    assert after(*moved, *clear[:2], look(5, genres=0.15), look(6, genres=0.01)).moved, "clear looks in a row"
    again = [look(at, genres=0.3) for at in range(6, 8)]
    assert after(*moved, *clear, *again).moved == (), "it must stand anew"


def test_what_stands_and_does_not_change_changes_nothing_in_memory() -> None:
    before = after(*(look(at, genres=0.3) for at in range(3)))
    assert remember(before, look(3, genres=0.4), {"psi": 0.2}, 3) is before
    assert remember(NOTHING_YET, look(3, version=0, genres=0.1), {"psi": 0.2}, 3) is NOTHING_YET


def test_another_version_begins_anew_and_a_detector_that_is_turned_off_is_forgotten() -> None:
    before = after(*(look(at, genres=0.3) for at in range(3)))
    assert remember(before, look(3, version=2, genres=0.3), {"psi": 0.2}, 3).moved == ()
    assert remember(before, look(3, genres=0.3), {"new": 0.1}, 3).standing == ()


def test_the_surest_comes_first() -> None:
    memory = after(*(look(at, genres=0.3, year=0.5) for at in range(3)))
    assert [one.reading.column for one in memory.moved] == ["year", "genres"]
