"""Success counters: what Triton forgets stays counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.triton.counters import Counters, ReplicaCounts
from services.triton.repository import recommender_of
from shared.domain.errors import Unavailable

KEY = ("m", "1")
READING = {("eyas-movies_0a1b2c3d", "2"): 4, ("eyas_trial-movies-2", "2"): 1, ("eyas-movies_99999999", "3"): 1500}


def test_a_version_that_vanished_stays_counted_and_goes_on_when_it_is_back() -> None:
    counters = Counters()
    counters.saw({KEY: 10})
    counters.saw({})
    counters.saw({KEY: 12})
    assert counters.totals() == {KEY: 22}


def test_a_restart_adds_up() -> None:
    counters = Counters()
    counters.saw({KEY: 10})
    counters.restarted()
    counters.saw({KEY: 12})
    assert counters.totals() == {KEY: 22}


def test_a_counter_that_fell_has_started_anew() -> None:
    counters = Counters()
    counters.saw({KEY: 10})
    counters.saw({KEY: 3})
    assert counters.totals() == {KEY: 13}


@given(st.lists(st.one_of(st.none(), st.integers(1, 50)), max_size=30))
def test_the_sum_is_what_was_counted_in_all_lives(steps: list[int | None]) -> None:
    """None: the version leaves, after a reading as the model server takes it."""
    counters, life, everything = Counters(), 0, 0
    for step in steps:
        if step is None:
            counters.saw({})
            life = 0
        else:
            life, everything = life + step, everything + step
            counters.saw({KEY: life})
    assert counters.totals().get(KEY, 0) == everything


def test_a_tally_sums_the_models_of_a_recommender_and_leaves_trials_out() -> None:
    tally = ReplicaCounts()
    tally.read(lambda: READING)
    assert tally.totals(recommender_of) == {("movies", 2): 4, ("movies", 3): 1500}


def test_a_server_that_does_not_answer_changes_no_count() -> None:
    def down() -> dict[tuple[str, str], int]:
        raise Unavailable("down")

    tally = ReplicaCounts()
    tally.read(lambda: READING)
    tally.read(down)
    assert tally.totals(recommender_of)["movies", 2] == 4
