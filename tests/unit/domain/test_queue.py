"""Who may start: never too many, never two of one recommender, nobody forgotten."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.queue import UnfinishedRun, admit, ordinal

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def queued(number: int, recommender: str = "", priority: int = 0, active: bool = False) -> UnfinishedRun:
    return UnfinishedRun(f"r{number:03}", recommender or f"rec{number}", priority, NOW + timedelta(seconds=number), active)


def said(rows: list[UnfinishedRun], limit: int) -> dict[str, str | None]:
    return {id: turn.summary for id, turn in admit(rows, limit).items()}


@pytest.mark.requirement("C-03")
def test_whoever_must_wait_is_told_for_what_and_at_which_place() -> None:
    rows = [queued(1, active=True), queued(2, "a", active=True), queued(3), queued(4), queued(5, "a")]
    assert said(rows, 2) == {
        "r001": None,
        "r002": None,
        "r003": "first in the queue: 2 of 2 runs are active",
        "r004": "second in the queue: 2 of 2 runs are active",
        "r005": "waits for run r002 of this recommender",
    }


def test_the_higher_priority_goes_first_and_then_the_older_one() -> None:
    rows = [queued(1), queued(2, priority=5), queued(3, priority=5), queued(4, priority=-1)]
    assert [id for id, waits in said(rows, 2).items() if waits is None] == ["r002", "r003"]
    assert said(rows, 2)["r004"] == "second in the queue: 2 of 2 runs are active"


def test_within_a_recommender_each_waits_for_the_one_ahead_so_that_little_is_rewritten() -> None:
    rows = [queued(1, "a", active=True), queued(2, "a"), queued(3, "a", priority=9)]
    assert said(rows, 9)["r003"] == "waits for run r001 of this recommender"
    assert said(rows, 9)["r002"] == "waits for run r003 of this recommender"


def test_a_limit_that_was_lowered_stops_nobody_and_lets_nobody_in() -> None:
    rows = [queued(1, active=True), queued(2, active=True), queued(3)]
    assert said(rows, 1) == {"r001": None, "r002": None, "r003": "first in the queue: 2 of 1 runs are active"}


def test_places_in_words(subtests: pytest.Subtests) -> None:
    for number, word in [(1, "first"), (10, "tenth"), (11, "11th"), (21, "21st"), (112, "112th"), (1003, "1003rd")]:
        with subtests.test(number=number, word=word):
            assert ordinal(number) == word


def legal(rows: list[UnfinishedRun], limit: int) -> list[UnfinishedRun]:
    """Rows as a store that was always ruled by `admit` has them: one active of a recommender, and not too many."""
    runs: dict[str, UnfinishedRun] = {}
    for row in rows:
        if row.active and row.recommender not in runs and len(runs) < limit:
            runs[row.recommender] = row
    return [row if runs.get(row.recommender) is row else replace(row, active=False) for row in rows]


ROWS = st.lists(
    st.builds(
        UnfinishedRun,
        st.integers(0, 999).map(lambda number: f"r{number:03}"),
        st.sampled_from("abcdefgh"),
        st.integers(-2, 2),
        st.integers(0, 20).map(lambda seconds: NOW + timedelta(seconds=seconds)),
        st.booleans(),
    ),
    unique_by=lambda row: row.id,
    max_size=40,
)


@pytest.mark.requirement("C-03")
@given(ROWS, st.integers(1, 6), st.randoms())
def test_never_too_many_never_two_of_one_and_never_a_matter_of_chance(rows: list[UnfinishedRun], limit: int, random: object) -> None:
    rows = legal(rows, limit)
    turns = admit(rows, limit)
    assert set(turns) == {row.id for row in rows}
    working = [row for row in rows if turns[row.id].waits is None]
    assert len(working) <= limit
    assert len({row.recommender for row in working}) == len(working)
    assert {row.id for row in rows if row.active} <= {row.id for row in working}
    assert sorted(turn.position for turn in turns.values() if turn.position) == list(
        range(1, sum(turn.position is not None for turn in turns.values()) + 1)
    )
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert admit(shuffled, limit) == turns
    if len(working) < limit:  # a free place is never left empty: whoever still waits, waits for its own recommender
        assert {row.recommender for row in rows} == {row.recommender for row in working}


@given(ROWS, st.integers(1, 6))
def test_of_equal_priority_nobody_is_overtaken_by_a_younger_one_of_any_free_recommender(rows: list[UnfinishedRun], limit: int) -> None:
    """Rows end one by one, the newest admission last; everybody gets in, in order of age but for what the own recommender holds back."""
    rows = [replace(row, priority=0) for row in legal(rows, limit)]
    entered: list[str] = []
    while rows:
        turns = admit(rows, limit)
        new = [row for row in rows if not row.active and turns[row.id].waits is None]
        free = {row.recommender for row in rows} - {row.recommender for row in rows if row.active}
        heads = {name: min((row for row in rows if row.recommender == name), key=lambda row: (row.created_at, row.id)) for name in free}
        waiting = [head for head in heads.values() if head not in new]
        assert all((a.created_at, a.id) < (b.created_at, b.id) for a in new for b in waiting)
        entered += [row.id for row in new]
        rows = [replace(row, active=True) if row in new else row for row in rows]
        ending = min((row for row in rows if row.active), key=lambda row: (row.created_at, row.id))
        rows.remove(ending)
    assert len(set(entered)) == len(entered)
