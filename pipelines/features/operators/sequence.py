"""Sequence: a user's items before a row, within a time window or session; in serving, the items known at the fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import NULL, Column, Raw
from pipelines.features.following import followed, lower_followed
from pipelines.features.lowering import Lowering
from pipelines.features.operators.base import Feature, Made, Mode, SavedState, made
from pipelines.features.operators.categorify import CountedVocabulary, padded, restored_words, saved_words
from pipelines.features.operators.keyed import gather, located, place
from pipelines.features.operators.ordered import NEVER, VALUES, before_name, behind, grown, in_order
from pipelines.features.statistics import NewestValues, Results, Statistic
from pipelines.features.vocabulary import Vocabulary

_PLACE = "~place"
_CELLS = 1 << 22
"""Maximum cells computed at a time."""


@dataclass(frozen=True)
class Sequence:
    of: Raw
    by: Raw
    words: CountedVocabulary
    length: int
    liked: bool
    reverse: bool
    row: tuple[str, str, str]
    time: Raw
    window: int | None = None
    gap: int | None = None
    """Seconds."""
    pages: bool = False
    """Includes page views."""
    newest: pl.DataFrame | None = None
    vocabulary: Vocabulary | None = None
    times: pl.DataFrame | None = None
    """Times of `newest`, if bounded by time."""
    session: Raw | None = None
    """Items that a request may bring, the newest last; they follow the user's known items."""

    kind: ClassVar[str] = "sequence"

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.by, *([self.time] if self.bounded else []), *([self.session] if self.session is not None else []))

    @property
    def bounded(self) -> bool:
        """True if the request's time limits the sequence."""
        return self.window is not None or self.gap is not None

    @property
    def name(self) -> str:
        return f"{self.of.name}_sequence"

    @property
    def outputs(self) -> tuple[Column, ...]:
        return (made(self.name, "code", "context", many=True),)

    @property
    def features(self) -> tuple[Feature, ...]:
        assert self.vocabulary is not None
        return (Feature(self.name, "code", "context", self.length, self.vocabulary.cardinality),)

    def _ask(self, of: str) -> NewestValues:
        return NewestValues(of, self.by.name, self.length, self.liked, self.pages)

    def asks(self) -> tuple[Statistic, ...]:
        return (*self.words.asks(), self._ask(self.of.name), *([self._ask(self.time.name)] if self.bounded else []))

    def fitted(self, results: Results, previous: Self | None, made: Made) -> Self:
        vocabulary = self.words.fitted(results, previous.vocabulary if previous else None)
        newest = grown(previous.newest if previous else None, results[self._ask(self.of.name)], self.length)
        if not self.bounded:
            return replace(self, newest=newest, vocabulary=vocabulary)
        times = grown(previous.times if previous else None, results[self._ask(self.time.name)], self.length)
        return replace(self, newest=newest, vocabulary=vocabulary, times=times)

    @cached_property
    def table(self) -> tuple[pl.DataFrame, NDArray[np.int32]]:
        """Keys, and a row of codes for each; the last row is for unknown keys."""
        assert self.newest is not None and self.vocabulary is not None
        lists = self.newest[VALUES]
        codes = self.vocabulary.coded(lists.explode(empty_as_null=False)) if len(lists) else np.empty(0, np.int32)
        ends = np.append(0, np.cumsum(lists.list.len().to_numpy())).astype(np.int64)
        rows = np.zeros((len(lists) + 1, self.length), np.int32)
        rows[:-1] = behind(codes, ends[:-1], ends[1:], self.length, self.reverse or self.bounded)
        return self.newest.select(self.by.name), rows

    @cached_property
    def moments(self) -> NDArray[np.int64]:
        """Times of the table's codes; bounded sequences have the newest first."""
        assert self.times is not None
        lists = self.times[VALUES]
        seconds = lists.explode(empty_as_null=False).fill_null(NEVER).to_numpy() if len(lists) else np.empty(0, np.int64)
        ends = np.append(0, np.cumsum(lists.list.len().to_numpy())).astype(np.int64)
        rows = np.full((len(lists) + 1, self.length), NEVER, np.int64)
        rows[:-1] = behind(seconds, ends[:-1], ends[1:], self.length, True, NEVER)
        return rows

    def within(self, codes: Any, times: Any, now: Any, xp: Any = np) -> Any:
        """Keeps the codes within window and session at `now`, in the spec's order. Inputs have the newest first."""
        inside = (times != NEVER) & (now != NEVER)[:, None]
        if self.window is not None:
            inside = inside & (now[:, None] - times <= self.window)
        if self.gap is not None:
            later = xp.concatenate([now[:, None], times[:, :-1]], axis=1)
            inside = inside & (xp.cumsum((later - times > self.gap).astype("int64"), axis=1) == 0)
        if self.reverse:
            return xp.where(inside, codes, NULL)
        count = inside.sum(axis=1)[:, None]
        steps = xp.arange(self.length)[None, :]
        return xp.where(steps < count, xp.take_along_axis(codes, xp.maximum(count - 1 - steps, 0), axis=1), NULL)

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        output, dtype = self.outputs[0].name, pl.Array(pl.Int32, self.length)
        if mode == "rows":
            return frame.with_columns(pl.col(before_name(self.name)).alias(output))
        keys, rows = self.table
        brings = self.session is not None and self.session.name in frame.collect_schema().names()
        joined = located(frame, (self.by,), keys, _PLACE)

        def row_codes(some: pl.Series) -> pl.Series:
            at, now = some.struct.field(_PLACE).to_numpy(), some.struct.field(self.time.name).fill_null(NEVER).to_numpy()
            return pl.Series(self.within(rows[at], self.moments[at], now).astype(np.int32), dtype=dtype)

        if self.bounded:
            made = pl.struct(_PLACE, self.time.name).map_batches(row_codes, dtype, is_elementwise=True)
        else:
            made = pl.col(_PLACE).map_batches(lambda at: pl.Series(rows[at.to_numpy()], dtype=dtype), dtype, is_elementwise=True)
        joined = joined.with_columns(made.alias(output)).drop(_PLACE)
        return self._with_session(joined, output) if brings else joined

    def asking(self) -> Self:
        """Returns the operator with an input for a request's items."""
        name = f"{self.of.name}_session"
        return replace(self, session=Raw(name, self.of.kind, "context", many=True, max_length=self.length, width=self.length))

    def _with_session(self, frame: pl.LazyFrame, output: str) -> pl.LazyFrame:
        assert self.session is not None and self.vocabulary is not None
        session_codes, dtype = f"{self.session.name}~codes", pl.Array(pl.Int32, self.length)
        codes = padded(pl.col(self.session.name).list.tail(self.length), self.vocabulary, self.length).alias(session_codes)

        def both(some: pl.Series) -> pl.Series:
            return pl.Series(followed(some.struct.field(output).to_numpy(), some.struct.field(session_codes).to_numpy()), dtype=dtype)

        joined = pl.struct(output, session_codes).map_batches(both, dtype, is_elementwise=True)
        return frame.with_columns(codes).with_columns(joined.alias(output)).drop(session_codes)

    def before(self, rows: pl.Series) -> NDArray[np.int32]:
        """Returns the codes of each row. `rows`: all rows of some users, as a struct."""
        assert self.vocabulary is not None
        order, users = in_order(rows, self.row)
        counts = rows.struct.field("label").gather(order).to_numpy() == 1 if self.liked else np.ones(len(rows), bool)
        before = np.append(0, np.cumsum(counts))
        begins = np.append(0, np.flatnonzero(users[1:] != users[:-1]) + 1)
        starts = np.zeros(len(rows), np.int64)
        starts[begins] = begins
        first = before[np.maximum.accumulate(starts)]
        codes = self.vocabulary.coded(rows.struct.field(self.of.name).gather(order))[counts]
        sequences = np.empty((len(rows), self.length), np.int32)
        if not self.bounded:
            sequences[order] = behind(codes, first, before[:-1], self.length, self.reverse)
            return sequences
        now = rows.struct.field(self.time.name).gather(order).fill_null(NEVER).to_numpy()
        some = max(1, _CELLS // self.length)
        for at in range(0, len(rows), some):
            part = slice(at, at + some)
            bounds = first[part], before[:-1][part], self.length, True
            part_codes = self.within(behind(codes, *bounds), behind(now[counts], *bounds, NEVER), now[part])
            sequences[order[part]] = part_codes
        return sequences

    def lower(self, build: Lowering) -> None:
        keys, rows = self.table
        at = place(build, (self.by,), keys)
        codes = gather(build, at, rows)
        self.give(build, self._lower_within(build, codes, gather(build, at, self.moments)) if self.bounded else codes)

    def give(self, build: Lowering, codes: str) -> None:
        """Sets the ONNX output from the user's known codes and the request's items."""
        build.gives(self.outputs[0].name, codes if self.session is None else self._lower_session(build, self.session, codes))

    def _lower_session(self, build: Lowering, session: Raw, codes: str) -> str:
        """Same as `followed`. Rows of one request bring equal items: each distinct list is looked up once."""
        assert self.vocabulary is not None
        name, place = f"{session.name}~distinct", f"{session.name}~place"
        build.gives(name, build.node("Unique", build.value(session), output=(name, "", place), axis=0))
        session_codes = build.node("Gather", self.vocabulary.lower(build, replace(session, name=name)), place, axis=0)
        return lower_followed(build, codes, session_codes, self.length, self.length)

    def _lower_within(self, build: Lowering, codes: str, times: str) -> str:
        """Same as `within`."""

        const = build.constant
        now = build.node("Unsqueeze", build.value(self.time), const([1]))
        gone = build.node("Or", build.node("Equal", times, const(NEVER)), build.node("Equal", now, const(NEVER)))
        if self.window is not None:
            gone = build.node("Or", gone, build.node("Greater", build.node("Sub", now, times), const(self.window)))
        if self.gap is not None:
            before = build.node("Slice", times, const([0]), const([self.length - 1]), const([1]))
            pauses = build.node("Sub", build.node("Concat", now, before, axis=1), times)
            long = build.cast(build.node("Greater", pauses, const(self.gap)), "INT64")
            gone = build.node("Or", gone, build.node("Greater", build.node("CumSum", long, const(1)), const(0)))
        null = build.constant(np.array(NULL, np.int32))
        if self.reverse:
            return build.node("Where", gone, null, codes)
        count = build.node("ReduceSum", build.cast(build.node("Not", gone), "INT64"), const([1]), keepdims=1)
        steps = const(np.arange(self.length)[None, :])
        places = build.node("Max", build.node("Sub", build.node("Sub", count, const(1)), steps), const(0))
        return build.node("Where", build.node("Less", steps, count), build.node("GatherElements", codes, places, axis=1), null)

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns that `before` takes."""
        return tuple(dict.fromkeys((*self.row, self.time.name, *(["label"] if self.liked else []))))

    @property
    def shape(self) -> tuple[type[np.int32], tuple[int, ...]]:
        return np.int32, (self.length,)

    def saved(self) -> SavedState:
        assert self.newest is not None and self.vocabulary is not None
        frames = {**saved_words(self.words, self.vocabulary).frames, f"newest.{self.name}": self.newest}
        return SavedState({}, frames if self.times is None else {**frames, f"times.{self.name}": self.times})

    def restored(self, saved: SavedState, made: Made) -> Self:
        times = saved.frames[f"times.{self.name}"] if self.bounded else None
        return replace(self, newest=saved.frames[f"newest.{self.name}"], vocabulary=restored_words(self.words, saved), times=times)
