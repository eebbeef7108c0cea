"""Windows of sequences, and the steps that learn from them: the same on TensorFlow and on torch, as plain arrays have it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.features.columns import FIRST, NULL, UNKNOWN
from pipelines.inputs.batches import EpochPosition, TrainingBatch
from pipelines.models.attention import plain, windows
from pipelines.models.attention.shape import BACKWARDS, BEGIN, HIDDEN, Shape, begin
from pipelines.models.attention.windows import ItemSample, Windows, packed
from pipelines.training.likes import LikesByRow

ITEMS = 30
SHAPE = Shape(ITEMS, 8, 1, 2, 4, "next")
MASKED = Shape(ITEMS, 8, 1, 2, 4, "masked")


def some(*lengths: int) -> LikesByRow:
    """Each item is another one, so that a place is known by what stands there."""
    return LikesByRow(np.concatenate([[0], np.cumsum(lengths)]), np.arange(2, 2 + sum(lengths), dtype=np.int32))


def feed(sequences: LikesByRow, shape: Shape = SHAPE, size: int = 3, **more: Any) -> Windows:
    return Windows(Path("none"), sequences, shape, size, 5, **more)


def wanted(batch: TrainingBatch) -> list[list[int]]:
    """The targets of each window, in order."""
    windows = batch.columns["windows"].reshape(-1)[batch.columns["at"]]
    return [batch.columns["targets"][windows == number].tolist() for number in range(len(batch))]


def codes_of(batch: TrainingBatch) -> list[list[int]]:
    """The codes of each window, in the order of their steps."""
    codes, steps, windows = (batch.columns[name] for name in ("codes", "steps", "windows"))
    return [codes[windows == number][np.argsort(steps[windows == number])].tolist() for number in range(len(batch))]


@pytest.fixture(autouse=True)
def _all_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "UNKNOWN_SHARE", 0.0)


@pytest.mark.requirement("G-20")
@pytest.mark.parametrize("lengths", [(1, 2, 0, 5), (6, 12, 4), (5, 10)])
def test_each_item_is_to_be_found_once_an_epoch_in_windows_that_are_never_too_long(lengths: tuple[int, ...]) -> None:
    sequences = some(*lengths)
    given = feed(sequences)
    cuts = set()
    for epoch in range(20):
        batches = [batch for batch, _ in given.placed(epoch)]
        found = [window for batch in batches for window in wanted(batch)]
        assert sum(map(len, batches)) == given.rows_per_epoch() == len(found)
        assert Counter(item for window in found for item in window) == Counter(sequences.others.tolist())
        assert all(0 < len(window) <= SHAPE.window and window == list(range(window[0], window[0] + len(window))) for window in found)
        cuts.add(tuple(sorted(window[0] for window in found)))
    assert len(cuts) > 1 or all(one <= SHAPE.window or one == 10 for one in lengths), "where windows end is drawn anew"


@pytest.mark.requirement("G-20")
def test_at_each_place_stands_what_came_before() -> None:
    (batch, _), *_ = feed(some(4), size=1).placed(0)
    assert codes_of(batch) == [[ITEMS + BEGIN, 2, 3, 4]], "the last item is only a target"
    assert batch.columns["at"].tolist() == [0, 1, 2, 3]
    assert batch.columns["targets"].tolist() == [2, 3, 4, 5]


@pytest.mark.requirement("G-16", "G-20")
def test_reversed_windows_are_read_from_their_end_behind_a_mark_of_their_own() -> None:
    given = feed(some(4), size=2, reverse=True)
    (batch, _), *_ = given.placed(0)
    windows_by_mark = {codes[0]: (codes, items) for codes, items in zip(codes_of(batch), wanted(batch), strict=True)}
    assert windows_by_mark[ITEMS + BEGIN] == ([ITEMS + BEGIN, 2, 3, 4], [2, 3, 4, 5])
    assert windows_by_mark[ITEMS + BACKWARDS] == ([ITEMS + BACKWARDS, 5, 4, 3], [5, 4, 3, 2])
    assert given.rows_per_epoch() == 2


@pytest.mark.requirement("G-20")
def test_masked_items_are_hidden_where_they_stand_and_every_window_hides_one() -> None:
    given = feed(some(*[5] * 400), Shape(3_000, 8, 1, 2, 4, "masked"), size=400, mask=0.3)
    (batch, _), *_ = given.placed(0)
    codes, at, items = (batch.columns[name] for name in ("codes", "at", "targets"))
    hidden = codes == given.shape.items + HIDDEN
    np.testing.assert_array_equal(np.flatnonzero(hidden), np.sort(at))
    assert len(np.unique(batch.columns["windows"][hidden])) == len(batch)
    whole = codes.copy()
    whole.reshape(-1)[at] = items
    np.testing.assert_array_equal(np.sort(whole[(whole != given.shape.items + BEGIN) & (whole != NULL)]), given.sequences.others)
    assert 0.2 < hidden.sum() / len(given.sequences.others) < 0.3, "the share, and the last one alone in some"


def test_a_share_of_what_is_read_is_shown_as_unknown_and_is_still_to_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "UNKNOWN_SHARE", 0.5)
    given = feed(some(*[5] * 40), Shape(300, 8, 1, 2, 4, "next"), size=40)
    (batch, _), *_ = given.placed(0)
    assert 0.3 < (batch.columns["codes"] == UNKNOWN).sum() / (4 * len(batch)) < 0.7
    assert UNKNOWN not in batch.columns["targets"]


@pytest.mark.requirement("N-05")
@pytest.mark.parametrize("more", [{}, {"reverse": True, "sample": ItemSample(np.ones(ITEMS, np.int64), 7)}, {"shape": MASKED, "mask": 0.5}])
def test_from_any_place_on_an_epoch_is_what_it_would_have_been(more: dict[str, Any]) -> None:
    given = feed(some(6, 12, 4, 9, 3), **more)
    whole = list(given.placed(3))
    assert len(whole) > 2
    for number in range(len(whole)):
        rest = list(feed(some(6, 12, 4, 9, 3), **more).placed(3, EpochPosition(number)))
        for (ours, place), (theirs, other) in zip(rest, whole[number:], strict=True):
            assert place == other
            for name, column in ours.columns.items():
                np.testing.assert_array_equal(column, theirs.columns[name])
    assert any(
        not np.array_equal(one.columns["targets"], other.columns["targets"])
        for (one, _), (other, _) in zip(whole, given.placed(4), strict=True)
    )


@pytest.mark.requirement("G-20")
def test_short_windows_share_rows_and_never_overlap() -> None:
    lengths = np.random.default_rng(2).integers(1, 12, 300)
    rows, offsets = packed(lengths, 12)
    windows_at = np.zeros((rows.max() + 1, 12), np.int64)
    for row, offset, length in zip(rows, offsets, lengths, strict=True):
        windows_at[row, offset : offset + length] += 1
    assert windows_at.max() == 1 and windows_at.sum() == lengths.sum()
    assert len(windows_at) <= 1.05 * lengths.sum() / 12 + 1, "rows are nearly full"


@pytest.mark.requirement("G-20")
def test_an_item_that_is_drawn_stands_for_the_items_that_are_not() -> None:
    """Over many draws, the corrected sum over the drawn items equals the sum over the catalogue."""
    random = np.random.default_rng(4)
    values = np.exp(random.normal(0, 1, 40))
    sample = ItemSample(np.arange(40 + FIRST) ** 2, 10)
    sums = []
    for _ in range(4_000):
        items, shifts = sample(random)
        assert len(np.unique(items)) == len(items) and items.min() >= FIRST
        sums.append((values[items - FIRST] * np.exp(shifts)).sum())
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - values.sum()) < 4 * error


@pytest.mark.parametrize("shape", [SHAPE, MASKED])
def test_padding_says_nothing_and_each_sequence_is_for_itself(shape: Shape) -> None:
    weights = {path: np.random.default_rng(3).standard_normal(one.shape).astype(np.float32) for path, one in begin(shape, 1).items()}
    rows = np.array([[5, 6, 0, 0], [0, 0, 0, 0], [9, 8, 7, 6]], np.int32)
    together = plain.states(shape, weights, rows)
    for row, state in zip(rows, together, strict=True):
        np.testing.assert_allclose(plain.states(shape, weights, row[None, : max(1, (row > 0).sum())])[0], state, atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 0.1
    turned = plain.states(shape, weights, np.array([[6, 5, 0, 0]], np.int32))
    assert np.abs(turned[0] - together[0]).max() > 1e-3, "the order counts"
