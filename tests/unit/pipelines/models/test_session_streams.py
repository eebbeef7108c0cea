"""Streams of a session: rows that share a window, and what each window asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.features.columns import FIRST, NULL
from pipelines.models.attention.shape import Shape
from pipelines.models.attention.streams import Streams, streams_of
from pipelines.models.attention.windows import Windows
from shared.domain.errors import Invalid

LENGTH, ITEMS = 5, 40


def rows(lists: list[list[int]], length: int = LENGTH) -> Any:
    return np.array([[*one, *[NULL] * (length - len(one))] for one in lists], np.int32)


def streamed(
    own: list[int], before: list[list[int]], users: list[int] | None = None, label: list[int] | None = None, liked: bool = False
) -> Streams:
    labels = np.array(label or [1] * len(own)) > 0
    counts = labels if liked else np.ones(len(own), bool)
    return streams_of(np.array(users or [1] * len(own)), rows(before), np.array(own, np.int32), labels, counts)


def parts(found: Streams) -> list[list[int]]:
    """What is to be found is negative."""
    signed = np.where(found.sought, -found.sequences.others, found.sequences.others)
    return [signed[a:b].tolist() for a, b in zip(found.sequences.start[:-1], found.sequences.start[1:], strict=True)]


@pytest.mark.requirement("G-20")
def test_rows_whose_sequences_go_on_from_one_another_are_one_stream() -> None:
    assert parts(streamed([4, 5, 6], [[], [4], [4, 5]])) == [[-4, -5, -6]]
    assert parts(streamed([4, 5, 6], [[9, 8], [9, 8, 4], [9, 8, 4, 5]])) == [[9, 8, -4, -5, -6]], "what was known before is read alone"
    full = [[2, 3, 4, 5, 6], [3, 4, 5, 6, 7], [4, 5, 6, 7, 8]]
    assert parts(streamed([7, 8, 9], full)) == [[2, 3, 4, 5, 6, -7, -8, -9]]
    assert parts(streamed([4, 5], [[], [4, 20, 21]])) == [[-4, 20, 21, -5]], "pages between, and rows that aren't trained on"
    assert parts(streamed([4, 5], [[], [4]], users=[1, 2])) == [[-4], [4, -5]]


@pytest.mark.requirement("G-20")
def test_of_likes_alone_the_streams_are_the_users_likes_as_without_a_feature() -> None:
    """So what is learned from, and its quality, are the same."""
    random = np.random.default_rng(9)
    users, own, before, whole = [], [], [], []
    for user in range(30):
        liked = random.integers(FIRST, ITEMS, random.integers(1, 4 * LENGTH)).tolist()
        whole.append(liked)
        users += [user] * len(liked)
        own += liked
        before += [liked[max(0, at - LENGTH) : at] for at in range(len(liked))]
    found = streamed(own, before, users, liked=True)
    assert parts(found) == [[-item for item in liked] for liked in whole]


@pytest.mark.requirement("G-20")
def test_where_a_session_begins_anew_or_something_falls_out_another_stream_begins() -> None:
    assert parts(streamed([4, 5, 6], [[], [4], []])) == [[-4, -5], [-6]]
    assert parts(streamed([4, 5, 6], [[], [4], [5]])) == [[-4, -5], [5, -6]], "a window of time: that row didn't know of 4"


@pytest.mark.requirement("G-20")
def test_what_was_not_liked_is_never_to_be_found() -> None:
    assert parts(streamed([4, 5, 6, 7], [[], [4], [4, 5], [4, 5, 6]], label=[1, 0, 1, 0])) == [[-4, 5, -6]]
    assert parts(streamed([4, 5, 6], [[], [4], [4]], label=[1, 0, 1], liked=True)) == [[-4, -6]]
    assert parts(streamed([4, 1, 6], [[], [4], [4, 1]])) == [[-4, 1, -6]], "nor what isn't known"
    with pytest.raises(Invalid, match="'session' learns from positives of known items, but none exist"):
        streamed([4], [[]], label=[0])


@pytest.mark.requirement("G-20", "G-16")
@pytest.mark.parametrize("objective", ["next", "masked"])
@pytest.mark.parametrize("reverse", [False, True])
def test_windows_show_each_what_came_before_it_and_ask_for_likes_alone(objective: Any, reverse: bool) -> None:
    own = list(range(10, 24))
    before = [own[max(0, at - LENGTH) : at] for at in range(len(own))]
    label = [at % 3 != 1 for at in range(len(own))]
    given = streamed(own, before, label=[int(one) for one in label])
    shape = Shape(ITEMS + FIRST, 8, 1, 2, LENGTH, objective)
    windows = Windows(Path("none"), given.sequences, shape, 2, 3, reverse, 0.5, sought=given.sought)
    liked = {item for item, one in zip(own, label, strict=True) if one}
    asked: list[int] = []
    for epoch in range(16):
        for batch, _ in windows.placed(epoch):
            assert len(batch.columns["targets"]), "each step has a target"
            asked += batch.columns["targets"].tolist()
            if objective == "next" and not reverse:
                codes, steps = batch.columns["codes"].reshape(-1), batch.columns["steps"].reshape(-1)
                for at, wanted in zip(batch.columns["at"].tolist(), batch.columns["targets"].tolist(), strict=True):
                    known = codes[at - steps[at] + 1 : at + 1]
                    before_it = own[: own.index(wanted)]
                    assert all(one in (1, there) for one, there in zip(known, before_it[len(before_it) - len(known) :], strict=True))
    assert set(asked) == liked
