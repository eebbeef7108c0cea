"""The cases of a trial, and what is wrong with the files that say them.

Whom or what the file to train on doesn't know, no model can know: such a case is counted and stands last for every model alike, and such a
negative stands behind every item that is known. A user's own test items are taken out of the user's negatives, and so is what is there
twice: both are counted. Items that the user has in the file to train on stay among supplied negatives, for published figures were made so;
they are counted, too, and drawn negatives never hold any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.evaluation.cases import ABSENT, Cases, Negatives, UserCases, count_short, drawn_negatives
from pipelines.trials.files import NegativesFile
from pipelines.trials.numbering import UNKNOWN, Numbering
from shared.domain.errors import BadData

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Known:
    """What there is to train on, by place: each pair once, sorted by user and item."""

    users: Numbering
    items: Numbering
    of: Ints
    what: Ints

    @classmethod
    def from_pairs(cls, pairs: pl.DataFrame) -> Known:
        users, items = Numbering.of(pairs["user"]), Numbering.of(pairs["item"])
        of, what = users.places(pairs["user"]), items.places(pairs["item"])
        order = np.lexsort((what, of))
        return cls(users, items, of[order], what[order])

    def liked(self, user: int) -> Ints:
        low, high = np.searchsorted(self.of, [user, user + 1])
        return self.what[low:high]

    @property
    def of_users(self) -> Ints:
        return np.bincount(self.of, minlength=len(self.users))

    @property
    def of_items(self) -> Ints:
        return np.bincount(self.what, minlength=len(self.items))

    def holds(self, users: Ints, items: Ints) -> NDArray[np.bool_]:
        """Whether these pairs are there."""
        width = len(self.items)
        there = (users >= 0) & (items >= 0)
        return there & np.isin(users * width + items, self.of * width + self.what)


@dataclass(frozen=True)
class Held:
    """Test pairs, each once, sorted by user and item as they are written: a user's stand together."""

    name: str
    frame: pl.DataFrame
    users: Ints
    """Places, UNKNOWN among them."""
    items: Ints
    cases: Cases
    faults: Mapping[str, int]


def held_pairs(pairs: pl.DataFrame, name: str, known: Known) -> Held:
    frame = pairs.select("user", "item").unique().sort("user", "item")
    if frame.is_empty():
        raise BadData(f"{name}: it has no pair to judge by")
    users, items = known.users.places(frame["user"]), known.items.places(frame["item"])
    if (users == UNKNOWN).all():
        example = frame["user"][0]
        raise BadData(f"{name}: none of its users is in the file to train on, {example!r} for one: are these other ids?")
    if (items == UNKNOWN).all():
        raise BadData(f"{name}: none of its items is in the file to train on, {frame['item'][0]!r} for one: are these other ids?")
    starts = np.flatnonzero((frame["user"] != frame["user"].shift(1)).fill_null(True).to_numpy())
    none = np.empty(0, np.int64)
    cases = []
    for low, high in zip(starts, np.append(starts[1:], len(frame)), strict=True):
        user = int(users[low])
        liked = known.liked(user) if user != UNKNOWN else none
        cases.append(UserCases(user, items[low:high], liked, liked, known=user != UNKNOWN))
    faults = {
        "repeated pairs": len(pairs) - len(frame),
        "pairs that are to be trained on as well": int(known.holds(users, items).sum()),
        "pairs of users that training doesn't know": int((users == UNKNOWN).sum()),
        "pairs of items that training doesn't know": int((items == UNKNOWN).sum()),
    }
    return Held(name, frame, users, items, Cases(tuple(cases), len(frame), len(known.items)), faults)


def drawn(held: Held, count: int, seed: int) -> tuple[Mapping[int, Negatives], Mapping[str, int]]:
    """Verified: none that the user has to train on or to be judged by."""
    short = count_short(held.cases, count)
    return {count: drawn_negatives(held.cases, count, seed)}, {f"pairs with fewer than {count} items left to draw": short}


def supplied(file: NegativesFile, held: Held, known: Known, seed: int) -> tuple[Mapping[int, Negatives], Mapping[str, int]]:
    """By the most frequent number of negatives in a line. Pairs without a line get drawn ones."""
    lines = _Lines.of(file, held, known)
    ours = lines.case >= 0
    if not ours.any():
        raise BadData(f"{file.name}: none of its {len(ours):,} lines is of a pair of {held.name}: is it for other users?")
    count = Counter(lines.lengths.tolist()).most_common(1)[0][0]
    keep, faults = lines.judged(held, known)
    of_case = np.full(held.cases.count, -1)
    of_case[lines.case[ours]] = np.flatnonzero(ours)
    missing = int((of_case < 0).sum())
    more, ends = drawn_negatives(held.cases, count, seed), np.cumsum(lines.lengths)

    def draw(first: int, end: int) -> NDArray[np.int32]:
        chosen = of_case[held.cases.offsets[first] : held.cases.offsets[end]]
        spare = more(first, end) if (chosen < 0).any() else np.empty((len(chosen), 0), np.int32)
        parts = [np.arange(ends[line] - lines.lengths[line], ends[line]) if line >= 0 else None for line in chosen]
        rows = [spare[at] if part is None else lines.places[part[keep[part]]] for at, part in enumerate(parts)]
        found = np.full((len(rows), max(map(len, rows))), ABSENT, np.int32)
        for at, one in enumerate(rows):
            found[at, : len(one)] = one
        return found

    more_faults = {
        "test pairs without a line, for which verified ones were drawn": missing,
        "lines of other pairs, which aren't used": int((~ours).sum()),
        "lines for a pair that has one": int(ours.sum()) - int((of_case >= 0).sum()),
        f"lines with more or fewer than {count} negatives": int((lines.lengths[ours] != count).sum()),
    }
    return {count: draw}, dict(faults) | more_faults


@dataclass(frozen=True)
class _Lines:
    """The lines of a file of negatives, and all of their negatives in one row."""

    case: Ints
    """Of the tests; -1 where it is none."""
    lengths: Ints
    line: Ints
    """Of each negative."""
    places: Ints
    """In the catalogue, UNKNOWN among them."""
    world: Ints
    """By whatever id there is, known or not."""
    own: Ints
    """The same of each line's own item."""

    @classmethod
    def of(cls, file: NegativesFile, held: Held, known: Known) -> _Lines:
        frame = file.frame
        flat = frame["negatives"].explode(empty_as_null=False, keep_nulls=False)
        users, items = Numbering.of(held.frame["user"]), Numbering.of(held.frame["item"])
        pairs = users.places(held.frame["user"]) * len(items) + items.places(held.frame["item"])
        of, what = users.places(frame["user"]), items.places(frame["item"])
        wanted = np.where((of < 0) | (what < 0), -1, of * len(items) + what)
        order = np.argsort(pairs)
        at = np.minimum(np.searchsorted(pairs[order], wanted), len(pairs) - 1)
        case = np.where(pairs[order][at] == wanted, order[at], -1)
        text = [one.cast(pl.String) for one in (flat, frame["item"], held.frame["item"])]
        world = Numbering.of(pl.concat([one.rename("id") for one in text]))
        lengths = frame["negatives"].list.len().cast(pl.Int64).to_numpy()
        line = np.repeat(np.arange(len(frame)), lengths)
        return cls(case, lengths, line, known.items.places(flat), world.places(text[0]), world.places(text[1]))

    def judged(self, held: Held, known: Known) -> tuple[NDArray[np.bool_], dict[str, int]]:
        """What is left of the negatives, and why others aren't; of lines that are used."""
        used = self.case[self.line] >= 0
        users = np.where(used, held.users[self.case[self.line]], UNKNOWN)
        of_cases = held.cases.owners
        owner = of_cases[self.case[self.line]]
        size = int(max(self.world.max(initial=0), held.cases.catalogue)) + 1
        tested = np.isin(owner * size + self.places, of_cases * size + held.items) & (self.places >= 0)
        own = used & (tested | (self.world == self.own[self.line]))
        _, first = np.unique(self.line * size + self.world, return_index=True)
        again = np.ones(len(self.line), bool)
        again[first] = False
        trained = known.holds(users, self.places)
        faults = {
            "negatives that are the user's own test items, taken out": int(own.sum()),
            "negatives that are there twice, taken out": int((used & again & ~own).sum()),
            "negatives that the user has in the file to train on": int((used & trained).sum()),
            "negatives that training doesn't know": int((used & (self.places < 0)).sum()),
        }
        return ~own & ~again, faults
