"""Test cases of an evaluation, and counts of the faults in its files.

Users and items without training pairs rank last for every model and are counted; a negative without training pairs ranks behind all
known items. A user's own test items and repeated items are removed from supplied negatives, and counted. Supplied negatives may hold
items of the user's training pairs, as in published figures; these are counted. Drawn negatives never hold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.evaluation.cases import ABSENT, Cases, Negatives, UserCases, count_short, drawn_negatives
from pipelines.trials.files import NegativesFile
from pipelines.trials.id_map import UNKNOWN, IdMap
from shared.domain.errors import BadData

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingPairs:
    """Training pairs as index arrays: each pair once, sorted by user and item."""

    users: IdMap
    items: IdMap
    pair_users: Ints
    pair_items: Ints

    @classmethod
    def from_pairs(cls, pairs: pl.DataFrame) -> TrainingPairs:
        users, items = IdMap.of(pairs["user"]), IdMap.of(pairs["item"])
        pair_users, pair_items = users.places(pairs["user"]), items.places(pairs["item"])
        order = np.lexsort((pair_items, pair_users))
        return cls(users, items, pair_users[order], pair_items[order])

    def liked(self, user: int) -> Ints:
        low, high = np.searchsorted(self.pair_users, [user, user + 1])
        return self.pair_items[low:high]

    @property
    def of_users(self) -> Ints:
        return np.bincount(self.pair_users, minlength=len(self.users))

    @property
    def of_items(self) -> Ints:
        return np.bincount(self.pair_items, minlength=len(self.items))

    def holds(self, users: Ints, items: Ints) -> NDArray[np.bool_]:
        """Returns whether each pair is a training pair."""
        width = len(self.items)
        there = (users >= 0) & (items >= 0)
        return there & np.isin(users * width + items, self.pair_users * width + self.pair_items)


@dataclass(frozen=True)
class HeldOutPairs:
    """Test pairs, each once, sorted by user and item id, so that a user's pairs are adjacent."""

    name: str
    frame: pl.DataFrame
    users: Ints
    """Indexes of users; UNKNOWN without training pairs."""
    items: Ints
    cases: Cases
    faults: Mapping[str, int]


def held_out_pairs(pairs: pl.DataFrame, name: str, training_pairs: TrainingPairs) -> HeldOutPairs:
    frame = pairs.select("user", "item").unique().sort("user", "item")
    if frame.is_empty():
        raise BadData(f"{name}: no test pairs")
    users, items = training_pairs.users.places(frame["user"]), training_pairs.items.places(frame["item"])
    if (users == UNKNOWN).all():
        example = frame["user"][0]
        raise BadData(f"{name}: none of its users is in the training file, for example {example!r}: check the ids")
    if (items == UNKNOWN).all():
        raise BadData(f"{name}: none of its items is in the training file, for example {frame['item'][0]!r}: check the ids")
    starts = np.flatnonzero((frame["user"] != frame["user"].shift(1)).fill_null(True).to_numpy())
    none = np.empty(0, np.int64)
    cases = []
    for low, high in zip(starts, np.append(starts[1:], len(frame)), strict=True):
        user = int(users[low])
        liked = training_pairs.liked(user) if user != UNKNOWN else none
        cases.append(UserCases(user, items[low:high], liked, liked, scorable=user != UNKNOWN))
    faults = {
        "repeated pairs": len(pairs) - len(frame),
        "pairs that are to be trained on as well": int(training_pairs.holds(users, items).sum()),
        "pairs of users that training doesn't know": int((users == UNKNOWN).sum()),
        "pairs of items that training doesn't know": int((items == UNKNOWN).sum()),
    }
    return HeldOutPairs(name, frame, users, items, Cases(tuple(cases), len(frame), len(training_pairs.items)), faults)


def drawn(held_out: HeldOutPairs, count: int, seed: int) -> tuple[Mapping[int, Negatives], Mapping[str, int]]:
    """Draws negatives that the user has neither in training nor in the test."""
    short = count_short(held_out.cases, count)
    return {count: drawn_negatives(held_out.cases, count, seed)}, {f"pairs with fewer than {count} items left to draw": short}


def supplied(
    file: NegativesFile, held_out: HeldOutPairs, training_pairs: TrainingPairs, seed: int
) -> tuple[Mapping[int, Negatives], Mapping[str, int]]:
    """Reads negatives; their number is the most frequent number per line. Pairs without a line get drawn negatives."""
    lines = _Lines.of(file, held_out, training_pairs)
    ours = lines.case >= 0
    if not ours.any():
        raise BadData(f"{file.name}: none of its {len(ours):,} lines matches a pair of {held_out.name}: check the ids")
    count = Counter(lines.lengths.tolist()).most_common(1)[0][0]
    keep, faults = lines.judged(held_out, training_pairs)
    of_case = np.full(held_out.cases.count, -1)
    of_case[lines.case[ours]] = np.flatnonzero(ours)
    missing = int((of_case < 0).sum())
    more, ends = drawn_negatives(held_out.cases, count, seed), np.cumsum(lines.lengths)

    def draw(first: int, end: int) -> NDArray[np.int32]:
        chosen = of_case[held_out.cases.offsets[first] : held_out.cases.offsets[end]]
        spare = more(first, end) if (chosen < 0).any() else np.empty((len(chosen), 0), np.int32)
        parts = [np.arange(ends[line] - lines.lengths[line], ends[line]) if line >= 0 else None for line in chosen]
        rows = [spare[at] if part is None else lines.places[part[keep[part]]] for at, part in enumerate(parts)]
        matrix = np.full((len(rows), max(map(len, rows))), ABSENT, np.int32)
        for at, row in enumerate(rows):
            matrix[at, : len(row)] = row
        return matrix

    more_faults = {
        "test pairs without a line, for which verified ones were drawn": missing,
        "lines of other pairs, which aren't used": int((~ours).sum()),
        "lines for a pair that has one": int(ours.sum()) - int((of_case >= 0).sum()),
        f"lines with more or fewer than {count} negatives": int((lines.lengths[ours] != count).sum()),
    }
    return {count: draw}, dict(faults) | more_faults


@dataclass(frozen=True)
class _Lines:
    """Lines of a file of negatives, with all negatives in one flat array."""

    case: Ints
    """Index of the test case of each line; -1 without a case."""
    lengths: Ints
    line: Ints
    """Line of each negative."""
    places: Ints
    """Catalogue index of each negative; UNKNOWN without training pairs."""
    world: Ints
    """Index of each negative among all ids of the files."""
    own: Ints
    """Index of each line's own item among all ids of the files."""

    @classmethod
    def of(cls, file: NegativesFile, held_out: HeldOutPairs, training_pairs: TrainingPairs) -> _Lines:
        frame = file.frame
        flat = frame["negatives"].explode(empty_as_null=False, keep_nulls=False)
        users, items = IdMap.of(held_out.frame["user"]), IdMap.of(held_out.frame["item"])
        pairs = users.places(held_out.frame["user"]) * len(items) + items.places(held_out.frame["item"])
        user_places, item_places = users.places(frame["user"]), items.places(frame["item"])
        wanted = np.where((user_places < 0) | (item_places < 0), -1, user_places * len(items) + item_places)
        order = np.argsort(pairs)
        at = np.minimum(np.searchsorted(pairs[order], wanted), len(pairs) - 1)
        case = np.where(pairs[order][at] == wanted, order[at], -1)
        text = [series.cast(pl.String) for series in (flat, frame["item"], held_out.frame["item"])]
        world = IdMap.of(pl.concat([series.rename("id") for series in text]))
        lengths = frame["negatives"].list.len().cast(pl.Int64).to_numpy()
        line = np.repeat(np.arange(len(frame)), lengths)
        return cls(case, lengths, line, training_pairs.items.places(flat), world.places(text[0]), world.places(text[1]))

    def judged(self, held_out: HeldOutPairs, training_pairs: TrainingPairs) -> tuple[NDArray[np.bool_], dict[str, int]]:
        """Returns which negatives remain, and counts of faults in the used lines."""
        used = self.case[self.line] >= 0
        users = np.where(used, held_out.users[self.case[self.line]], UNKNOWN)
        of_cases = held_out.cases.owners
        owner = of_cases[self.case[self.line]]
        size = int(max(self.world.max(initial=0), held_out.cases.catalogue)) + 1
        tested = np.isin(owner * size + self.places, of_cases * size + held_out.items) & (self.places >= 0)
        own = used & (tested | (self.world == self.own[self.line]))
        _, first = np.unique(self.line * size + self.world, return_index=True)
        again = np.ones(len(self.line), bool)
        again[first] = False
        trained = training_pairs.holds(users, self.places)
        faults = {
            "negatives that are the user's own test items, taken out": int(own.sum()),
            "negatives that are there twice, taken out": int((used & again & ~own).sum()),
            "negatives that the user has in the file to train on": int((used & trained).sum()),
            "negatives that training doesn't know": int((used & (self.places < 0)).sum()),
        }
        return ~own & ~again, faults
