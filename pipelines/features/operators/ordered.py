"""What a user did before: the difference to the last interaction, and the sequence of items. In training a row sees what came before it;
as it is served, all that was known when it was fitted.

In training a row's own value comes from `before`, which is given all rows of some users at a time; `pipelines.features.engines.history`
does that and keeps the results by row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeGuard

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import BLANK, NULL, Column, Raw
from pipelines.features.lowering import Lowering
from pipelines.features.operators.base import Feature, Made, Mode, Saved, made, plain
from pipelines.features.operators.categorify import Words, restored_words, saved_words
from pipelines.features.operators.keyed import gather, located, place
from pipelines.features.statistics import Found, Newest, Statistic
from pipelines.features.vocabulary import Vocabulary

VALUES = "values"


def is_ordered(operator: object) -> TypeGuard[Lag | Sequence]:
    """Whether training needs a user's rows together and in order."""
    return isinstance(operator, Lag | Sequence)


def in_order(rows: pl.Series, row: tuple[str, str, str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows' places by user, then time, then item; and the users in that order. Rows that lie in the order of time need little."""
    user, item, time = (rows.struct.field(name).fill_null(-(2**63)).to_numpy() for name in row)
    order = _by_user(user)
    users, times, items = user[order], time[order], item[order]
    same = users[1:] == users[:-1]
    later = (times[1:] > times[:-1]) | ((times[1:] == times[:-1]) & (items[1:] >= items[:-1]))
    if (same & ~later).any():
        order = np.lexsort((item, time, user))
    return order, user[order]


def _by_user(user: NDArray[np.int64]) -> NDArray[np.int64]:
    """Stable; by 16 bits at a time, where that is quicker."""
    if not len(user) or int(user.max()) - int(user.min()) >= 2**32:
        return np.argsort(user, kind="stable")
    apart = (user - user.min()).astype(np.uint32)
    order = np.argsort(apart.astype(np.uint16), kind="stable")
    high = (apart >> 16).astype(np.uint16)
    return order[np.argsort(high[order], kind="stable")] if high.any() else order


def before_name(name: str) -> str:
    """The column of what came before each row."""
    return f"~before.{name}"


def grown(known: pl.DataFrame | None, found: pl.DataFrame, count: int) -> pl.DataFrame:
    """The newest of both; `found` came later."""
    key = found.columns[0]
    both = [found] if known is None else [known, found]
    whole = pl.concat([one.explode(VALUES) for one in both])
    return whole.group_by(key, maintain_order=True).agg(pl.col(VALUES).tail(count)).sort(key)


@dataclass(frozen=True)
class Lag:
    of: Column
    by: Raw
    steps: int
    row: tuple[str, str, str]
    newest: pl.DataFrame | None = None

    kind: ClassVar[str] = "lag"

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.of, self.by)

    @property
    def name(self) -> str:
        return f"{plain(self.of)}_lag" + (f"_{self.steps}" if self.steps > 1 else "")

    @property
    def outputs(self) -> tuple[Column, ...]:
        return (made(self.name, "float32", "context"),)

    @property
    def features(self) -> tuple[Feature, ...]:
        return (Feature(self.name, "float32", "context", None),)

    def _ask(self) -> Newest:
        return Newest(self.of.name, self.by.name, self.steps)

    def asks(self) -> tuple[Statistic, ...]:
        return (self._ask(),)

    def fitted(self, found: Found, known: Self | None, made: Made) -> Self:
        return replace(self, newest=grown(known.newest if known else None, found[self._ask()], self.steps))

    @cached_property
    def last(self) -> tuple[pl.DataFrame, pl.Series]:
        """The keys that have as many interactions, and the value so many interactions back."""
        assert self.newest is not None
        enough = self.newest.filter(pl.col(VALUES).list.len() >= self.steps)
        values = enough[VALUES].list.get(-self.steps)
        there = values.is_not_null()
        return enough.filter(there).select(self.by.name), values.filter(there)

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        output, value = self.outputs[0].name, pl.col(self.of.name)
        if mode == "rows":
            return frame.with_columns(pl.col(before_name(self.name)).fill_nan(None).alias(output))
        keys, values = self.last
        found = located(frame, (self.by,), keys, _PLACE)
        last = pl.concat([values, values.clear(1)])
        dtype = last.dtype
        back = pl.col(_PLACE).map_batches(last.gather, dtype, is_elementwise=True)
        return found.with_columns((value - back).cast(pl.Float32).alias(output)).drop(_PLACE)

    def before(self, rows: pl.Series) -> NDArray[np.float32]:
        """Of all rows of some users, as a struct: for each row; NaN where there is nothing."""
        order, users = in_order(rows, self.row)
        values = rows.struct.field(self.of.name).gather(order)
        same = np.zeros(len(rows), bool)
        same[self.steps :] = users[self.steps :] == users[: max(0, len(users) - self.steps)]
        apart = (values - values.shift(self.steps)).cast(pl.Float32)
        found = np.full(len(rows), np.nan, np.float32)
        found[order] = np.where(same, apart.fill_null(float("nan")).to_numpy(), np.nan)
        return found

    def lower(self, build: Lowering) -> None:
        keys, values = self.last
        rows = place(build, (self.by,), keys)
        table = np.append(values.to_numpy(), 0).astype(np.int64 if self.of.kind == "int64" else np.float32)
        self.lower_last(build, gather(build, rows, table), build.node("Equal", rows, build.constant(np.array(len(keys), np.int64))))

    def lower_last(self, build: Lowering, last: str, missing: str) -> None:
        """From the value so many interactions back."""
        value = build.value(self.of)
        difference = build.node("Sub", value, last)
        if self.of.kind == "int64":
            missing = build.node("Or", missing, build.node("Equal", value, build.constant(np.array(BLANK["int64"], np.int64))))
            difference = build.cast(difference, "FLOAT")
        build.gives(self.outputs[0].name, build.node("Where", missing, build.constant(np.array(np.nan, np.float32)), difference))

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns that `before` takes."""
        return tuple(dict.fromkeys((*self.row, self.of.name)))

    @property
    def shape(self) -> tuple[type[np.float32], tuple[int, ...]]:
        return np.float32, ()

    def saved(self) -> Saved:
        assert self.newest is not None
        return Saved({}, {f"newest.{self.name}": self.newest})

    def restored(self, saved: Saved, made: Made) -> Self:
        return replace(self, newest=saved.frames[f"newest.{self.name}"])


@dataclass(frozen=True)
class Sequence:
    of: Raw
    by: Raw
    words: Words
    length: int
    liked: bool
    reverse: bool
    row: tuple[str, str, str]
    time: Raw
    window: int | None = None
    gap: int | None = None
    """Seconds."""
    newest: pl.DataFrame | None = None
    vocabulary: Vocabulary | None = None
    times: pl.DataFrame | None = None
    """Of those newest, where they matter."""

    kind: ClassVar[str] = "sequence"

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.by, self.time) if self.bounded else (self.by,)

    @property
    def bounded(self) -> bool:
        """Whether the moment of the request says what belongs to it."""
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

    def _ask(self, of: str) -> Newest:
        return Newest(of, self.by.name, self.length, self.liked)

    def asks(self) -> tuple[Statistic, ...]:
        return (*self.words.asks(), self._ask(self.of.name), *([self._ask(self.time.name)] if self.bounded else []))

    def fitted(self, found: Found, known: Self | None, made: Made) -> Self:
        vocabulary = self.words.fitted(found, known.vocabulary if known else None)
        newest = grown(known.newest if known else None, found[self._ask(self.of.name)], self.length)
        if not self.bounded:
            return replace(self, newest=newest, vocabulary=vocabulary)
        times = grown(known.times if known else None, found[self._ask(self.time.name)], self.length)
        return replace(self, newest=newest, vocabulary=vocabulary, times=times)

    @cached_property
    def table(self) -> tuple[pl.DataFrame, NDArray[np.int32]]:
        """The keys, and a row of codes for each, one more for what isn't there."""
        assert self.newest is not None and self.vocabulary is not None
        lists = self.newest[VALUES]
        codes = self._coded(lists.explode(empty_as_null=False)) if len(lists) else np.empty(0, np.int32)
        ends = np.append(0, np.cumsum(lists.list.len().to_numpy())).astype(np.int64)
        rows = np.zeros((len(lists) + 1, self.length), np.int32)
        rows[:-1] = _behind(codes, ends[:-1], ends[1:], self.length, self.reverse or self.bounded)
        return self.newest.select(self.by.name), rows

    @cached_property
    def moments(self) -> NDArray[np.int64]:
        """When each of the table's codes happened: where that matters, the newest come first."""
        assert self.times is not None
        lists = self.times[VALUES]
        seconds = lists.explode(empty_as_null=False).fill_null(_NEVER).to_numpy() if len(lists) else np.empty(0, np.int64)
        ends = np.append(0, np.cumsum(lists.list.len().to_numpy())).astype(np.int64)
        rows = np.full((len(lists) + 1, self.length), _NEVER, np.int64)
        rows[:-1] = _behind(seconds, ends[:-1], ends[1:], self.length, True, _NEVER)
        return rows

    def within(self, codes: Any, times: Any, now: Any, xp: Any = np) -> Any:
        """Of codes and their times, the newest first, those that belong to the moment; in the spec's order."""
        kept = (times != _NEVER) & (now != _NEVER)[:, None]
        if self.window is not None:
            kept = kept & (now[:, None] - times <= self.window)
        if self.gap is not None:
            later = xp.concatenate([now[:, None], times[:, :-1]], axis=1)
            kept = kept & (xp.cumsum((later - times > self.gap).astype("int64"), axis=1) == 0)
        if self.reverse:
            return xp.where(kept, codes, NULL)
        count = kept.sum(axis=1)[:, None]
        steps = xp.arange(self.length)[None, :]
        return xp.where(steps < count, xp.take_along_axis(codes, xp.maximum(count - 1 - steps, 0), axis=1), NULL)

    def _coded(self, items: pl.Series) -> NDArray[np.int32]:
        assert self.vocabulary is not None
        return pl.DataFrame({"item": items}).select(self.vocabulary.encode(pl.col("item"))).to_series().to_numpy().astype(np.int32)

    def apply(self, frame: pl.LazyFrame, mode: Mode) -> pl.LazyFrame:
        output, dtype = self.outputs[0].name, pl.Array(pl.Int32, self.length)
        if mode == "rows":
            return frame.with_columns(pl.col(before_name(self.name)).alias(output))
        keys, rows = self.table
        found = located(frame, (self.by,), keys, _PLACE)

        def taken(some: pl.Series) -> pl.Series:
            at, now = some.struct.field(_PLACE).to_numpy(), some.struct.field(self.time.name).fill_null(_NEVER).to_numpy()
            return pl.Series(self.within(rows[at], self.moments[at], now).astype(np.int32), dtype=dtype)

        if self.bounded:
            made = pl.struct(_PLACE, self.time.name).map_batches(taken, dtype, is_elementwise=True)
        else:
            made = pl.col(_PLACE).map_batches(lambda at: pl.Series(rows[at.to_numpy()], dtype=dtype), dtype, is_elementwise=True)
        return found.with_columns(made.alias(output)).drop(_PLACE)

    def before(self, rows: pl.Series) -> NDArray[np.int32]:
        """Of all rows of some users, as a struct: for each row its codes."""
        order, users = in_order(rows, self.row)
        counts = rows.struct.field("label").gather(order).to_numpy() == 1 if self.liked else np.ones(len(rows), bool)
        before = np.append(0, np.cumsum(counts))
        begins = np.append(0, np.flatnonzero(users[1:] != users[:-1]) + 1)
        starts = np.zeros(len(rows), np.int64)
        starts[begins] = begins
        first = before[np.maximum.accumulate(starts)]
        codes = self._coded(rows.struct.field(self.of.name).gather(order))[counts]
        found = np.empty((len(rows), self.length), np.int32)
        if not self.bounded:
            found[order] = _behind(codes, first, before[:-1], self.length, self.reverse)
            return found
        now = rows.struct.field(self.time.name).gather(order).fill_null(_NEVER).to_numpy()
        some = max(1, _CELLS // self.length)
        for at in range(0, len(rows), some):
            part = slice(at, at + some)
            bounds = first[part], before[:-1][part], self.length, True
            kept = self.within(_behind(codes, *bounds), _behind(now[counts], *bounds, _NEVER), now[part])
            found[order[part]] = kept
        return found

    def lower(self, build: Lowering) -> None:
        keys, rows = self.table
        at = place(build, (self.by,), keys)
        codes = gather(build, at, rows)
        build.gives(self.outputs[0].name, self._lower_within(build, codes, gather(build, at, self.moments)) if self.bounded else codes)

    def _lower_within(self, build: Lowering, codes: str, times: str) -> str:
        """As `within`."""

        def const(value: object) -> str:
            return build.constant(np.array(value, np.int64))

        now = build.node("Unsqueeze", build.value(self.time), const([1]))
        gone = build.node("Or", build.node("Equal", times, const(_NEVER)), build.node("Equal", now, const(_NEVER)))
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
        """The columns that `before` takes."""
        return tuple(dict.fromkeys((*self.row, self.time.name, *(["label"] if self.liked else []))))

    @property
    def shape(self) -> tuple[type[np.int32], tuple[int, ...]]:
        return np.int32, (self.length,)

    def saved(self) -> Saved:
        assert self.newest is not None and self.vocabulary is not None
        frames = {**saved_words(self.words, self.vocabulary).frames, f"newest.{self.name}": self.newest}
        return Saved({}, frames if self.times is None else {**frames, f"times.{self.name}": self.times})

    def restored(self, saved: Saved, made: Made) -> Self:
        times = saved.frames[f"times.{self.name}"] if self.bounded else None
        return replace(self, newest=saved.frames[f"newest.{self.name}"], vocabulary=restored_words(self.words, saved), times=times)


_PLACE = "~place"
_NEVER = -(2**63)
_CELLS = 1 << 22


def _behind(codes: NDArray[Any], first: NDArray[Any], end: NDArray[Any], length: int, reverse: bool, nothing: int = NULL) -> NDArray[Any]:
    """For each [first, end) its last `length` codes, padded behind."""
    count = np.minimum(end - first, length)[:, None]
    steps = np.arange(length)[None, :]
    at = end[:, None] - 1 - steps if reverse else end[:, None] - count + steps
    padded = np.append(codes, nothing).astype(codes.dtype)
    found: NDArray[Any] = np.where(steps < count, padded[np.clip(at, 0, len(padded) - 1)], nothing).astype(codes.dtype)
    return found
