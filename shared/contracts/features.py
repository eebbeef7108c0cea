"""The spec's `features`: one entry for each operator. Each compiles to polars, to NVTabular and to ONNX (pipelines/features).

An operator makes features from columns: of the interactions, of the items table, of the users table, or from earlier features. Names are
those of the data; a feature of one column keeps its name, or adds a suffix (`movieId_count`).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, StrictInt, StrictStr, model_validator

from shared.contracts.columns import Column
from shared.contracts.encoding import Encode
from shared.contracts.entries import entry
from shared.contracts.quantities import Duration
from shared.contracts.strict import Strict

MAX_CODES = 2**31 - 8
"""Codes are int32."""


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Columns = Annotated[tuple[Column, ...], BeforeValidator(_several), Field(min_length=1)]


class _Words(Strict):
    """Common settings of vocabularies."""

    min_count: int = Field(1, ge=1, description="Values seen less often are out of vocabulary.")
    max_size: int | None = Field(
        None, ge=1, le=MAX_CODES, description="Only so many values, the most frequent ones, are in the vocabulary."
    )
    hash_buckets: int | None = Field(
        None, ge=1, le=MAX_CODES, description="Values out of vocabulary share so many codes, by a hash, instead of one. Integers alone."
    )
    vocabulary: Column | None = Field(None, description="Columns that say the same name here share one vocabulary.")
    values: tuple[StrictInt | StrictStr, ...] | None = Field(
        None, max_length=10_000, description="The vocabulary itself, in the order of its codes: it isn't fitted, and never grows."
    )

    @model_validator(mode="after")
    def _listed_once(self) -> Self:
        if self.values is None:
            return self
        if self.min_count > 1 or self.max_size is not None:
            raise ValueError("values: what is listed is the vocabulary: leave min_count and max_size out")
        if not self.values and self.hash_buckets is None:
            raise ValueError("values: it is empty: list some, or say hash_buckets too")
        if len({type(value) for value in self.values}) > 1:
            raise ValueError("values: they must be all integers or all text")
        doubled = next((value for value, count in Counter(self.values).items() if count > 1), None)
        if doubled is not None:
            raise ValueError(f"values: {doubled!r} is there twice")
        for value in self.values:
            if value == "" or (isinstance(value, int) and not -(2**63) < value < 2**63):
                raise ValueError(f"values: {value!r} can't be one: blank text and the smallest integer mean null")
        return self


class Categorify(_Words):
    """Ids and words to codes: 0 is null or padding, 1 is out of vocabulary, 2 and up are known values, the most frequent first."""

    categorify: Columns = Field(
        description="Columns of single values, each with a vocabulary of its own unless `vocabulary` says otherwise."
    )


class MultiHot(_Words):
    """A column with several values a row, as a list or delimited text, to codes, in their order."""

    multi_hot: Column = Field(description="A column of lists, or of text.")
    separator: str | None = Field(None, min_length=1, max_length=1, description="Splits text; absent for a column of lists.")
    max_length: int = Field(16, ge=1, le=256, description="Further values of a row are dropped, in order.")


class Normalise(Strict):
    """Numbers to mean 0 and standard deviation 1 (null stays null), or to 0 to 1."""

    normalise: Columns = Field(description="Columns of numbers.")
    to: Literal["standard", "range"] = Field("standard", description="`standard`: mean 0, deviation 1. `range`: smallest 0, largest 1.")


class Log(Strict):
    """Numbers x to log(1 + x); numbers below zero count as zero."""

    log: Columns = Field(description="Columns of numbers.")


class Clip(Strict):
    """Numbers to within bounds."""

    clip: Columns = Field(description="Columns of numbers.")
    min: float | None = Field(None, description="What is less becomes this.")
    max: float | None = Field(None, description="What is more becomes this.")

    @model_validator(mode="after")
    def _bounded(self) -> Clip:
        if self.min is None and self.max is None:
            raise ValueError("clip: say min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"clip: min {self.min:g} is more than max {self.max:g}")
        return self


class Fill(Strict):
    """A number for null and NaN."""

    fill: Columns = Field(description="Columns of numbers.")
    with_: float | Literal["mean"] = Field("mean", alias="with", description="A number, or the mean of those that are there.")
    flag: bool = Field(False, description="Also makes `COLUMN_missing`: 1 where it was filled, 0 elsewhere.")


class Bucketise(Strict):
    """Numbers to codes by bounds: 0 is null, 1 is below the first bound, and each bound begins the next code. Reads the original column,
    whatever other operators do to it. Makes `COLUMN_bucket`."""

    bucketise: Columns = Field(description="Columns of numbers.")
    at: tuple[float, ...] | None = Field(None, min_length=1, max_length=1000, description="The bounds, rising.")
    quantiles: int | None = Field(None, ge=2, le=1000, description="Instead of bounds: so many buckets of about equally many rows each.")

    @model_validator(mode="after")
    def _one_of_them(self) -> Bucketise:
        if (self.at is None) == (self.quantiles is None):
            raise ValueError("bucketise: say either 'at' with the bounds, or 'quantiles'")
        if self.at is not None and list(self.at) != sorted(set(self.at)):
            raise ValueError("bucketise: the bounds of 'at' must rise")
        return self


class TargetOf(Strict):
    of: Columns = Field(description="The column whose values are encoded; several: their combinations.")
    target: Columns = Field(("label",), description="`label` (1 for liked, 0 for not), or columns of numbers of the interactions.")
    folds: int = Field(5, ge=2, le=100, description="A training row is encoded by the rows of the other folds.")
    smoothing: float = Field(20.0, ge=0, description="So many rows of the overall mean are added to each value's own.")


class TargetEncode(Strict):
    """Mean target of the rows with the same value; in training without the row's own fold. Makes `COLUMN_te`."""

    target_encode: TargetOf = Field(description="What is encoded by which target.")


class CountEncode(Strict):
    """Number of interactions with the row's value. Makes `COLUMN_count`."""

    count_encode: Columns = Field(description="Columns of ids or words.")
    scale: Literal["none", "log", "share"] = Field("log", description="`log`: of one more than the count. `share`: of all rows.")


class LagOf(Strict):
    of: Column = Field(description="A column of numbers of the interactions, or their time.")
    by: Column = Field(description="Whose last interaction: the user's key, or the item's.")
    steps: int = Field(1, ge=1, le=100, description="How many interactions back.")


class Lag(Strict):
    """Change since the last interaction of the same user or item; null for the first one. Makes `COLUMN_lag`."""

    lag: LagOf = Field(description="Of which column, by whom.")


class CyclicOf(Strict):
    of: Column = Field(description="The column of the time.")
    periods: tuple[Literal["day", "week", "year"], ...] = Field(("day", "week"), min_length=1, description="`year` has 365.2425 days.")


class Cyclic(Strict):
    """Position in a day, a week or a year as sine and cosine, so that midnight is next to midnight. Makes `COLUMN_day_sin` and so on."""

    cyclic: CyclicOf = Field(description="Of which column, by which periods.")


CalendarPart = Literal["hour", "weekday"]


class CalendarOf(Strict):
    of: Column = Field(description="The column of the time.")
    parts: tuple[CalendarPart, ...] = Field(min_length=1, description="UTC; Monday comes first.")


class Calendar(Strict):
    """Parts of a time as codes, named `hour` and `weekday`."""

    calendar: CalendarOf = Field(description="Of which column, which parts.")


class Cross(Strict):
    """Two or more features of codes as one: the hash of their combination. One of them may have several values a row. Makes `A_x_B`."""

    cross: tuple[Column, ...] = Field(
        min_length=2,
        max_length=4,
        description="Features of codes. `hour` and `weekday` that no entry makes are of schema.time, as by `calendar` before it.",
    )
    buckets: int = Field(10_000, ge=2, le=MAX_CODES, description="How many codes there are for the combinations.")


class OneHot(Strict):
    """A feature of codes as a row of zeros and ones, for the wide part of a model. Makes `COLUMN_hot`."""

    one_hot: Columns = Field(description="Features of codes, with one or several values a row.")
    max_width: int = Field(1_000, ge=3, le=100_000, description="Refused where there are more codes than this.")


class ExtractOf(Strict):
    of: Column = Field(description="A column of text.")
    what: Literal["mentions", "hashtags"] | None = Field(None, description="`mentions`: @name. `hashtags`: #tag.")
    pattern: str | None = Field(
        None, max_length=200, description="Or a regular expression (Rust's regex syntax); its first group where it has one."
    )
    name: Column | None = Field(
        None, alias="as", description="What the column of what was found is called; `COLUMN_mentions` and so on if not given."
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> ExtractOf:
        if (self.what is None) == (self.pattern is None):
            raise ValueError("extract: say either 'what' or 'pattern'")
        if self.pattern is not None:
            if self.name is None:
                raise ValueError("extract: a pattern needs 'as', the name of what it finds")
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"extract: the pattern can't be read: {error}") from None
        return self

    @property
    def output(self) -> str:
        return self.name or f"{self.of}_{self.what}"


class Extract(Strict):
    """Matches of a pattern in text, lower-cased, as a column of lists for `multi_hot`; computed when the table is prepared."""

    extract: ExtractOf = Field(description="Of which column, what.")


class VectorOf(Strict):
    of: Column = Field(description="The key that the vectors belong to: the item's or the user's.")
    source: str | None = Field(
        None,
        alias="from",
        exclude_if=lambda source: source is None,
        description="Parquet with the key's column and one of lists of numbers.",
    )
    encode: Encode | None = Field(
        None,
        exclude_if=lambda encode: encode is None,
        description="Instead of `from`: images or texts of the items or users table, by an encoder of your own.",
    )
    column: Column = Field("vector", description="The column of the vectors that are read.")
    width: int = Field(ge=1, le=8192, description="How long each vector is.")
    name: Column | None = Field(None, alias="as", description="What the feature is called; `KEY_vector` if not given.")

    @model_validator(mode="after")
    def _one_origin(self) -> VectorOf:
        if (self.source is None) == (self.encode is None):
            raise ValueError("vector: say either 'from' with the vectors, or 'encode' with what they are made of")
        return self

    @property
    def output(self) -> str:
        return self.name or f"{self.of}_vector"


class Vector(Strict):
    """Vector of an image or of a text, from a file or computed in the run, scaled to length 1; zeros for keys without a vector."""

    vector: VectorOf = Field(description="Whose vectors, and where they are.")


class SequenceOf(Strict):
    of: Column = Field(description="The item's key: what is in the sequence.")
    by: Column = Field(description="Whose sequence: the user's key.")
    length: int = Field(20, ge=1, le=500, description="The newest so many.")
    liked: bool = Field(False, description="Only what was liked.")
    reverse: bool = Field(False, description="The newest first, instead of the oldest.")
    window: Duration | None = Field(None, description="Only what happened so long before, such as `30d`.")
    gap: Duration | None = Field(None, description="Only the session: a longer pause than this, such as `30m`, begins another one.")
    pages: bool = Field(
        False,
        exclude_if=lambda pages: not pages,
        description="Views of pages (`schema.page`) stand among the items, in the order of time, with codes behind the items' in one "
        "vocabulary; `min_count` and `max_size` of the item's `categorify` hold for items and for pages, each by themselves.",
    )

    @model_validator(mode="after")
    def _no_page_is_liked(self) -> SequenceOf:
        if self.liked and self.pages:
            raise ValueError("sequence: say liked or pages, not both: nobody likes a page")
        return self


class Sequence(Strict):
    """The items of a user before this row, as codes of the item's vocabulary. Makes `ITEM_sequence`."""

    sequence: SequenceOf = Field(description="Of what, by whom.")


Any_ = (
    Categorify
    | MultiHot
    | Normalise
    | Log
    | Clip
    | Fill
    | Bucketise
    | TargetEncode
    | CountEncode
    | Lag
    | Cyclic
    | Calendar
    | Cross
    | OneHot
    | Extract
    | Vector
    | Sequence
)
_KINDS: dict[str, type[Strict]] = {
    "categorify": Categorify,
    "multi_hot": MultiHot,
    "normalise": Normalise,
    "log": Log,
    "clip": Clip,
    "fill": Fill,
    "bucketise": Bucketise,
    "target_encode": TargetEncode,
    "count_encode": CountEncode,
    "lag": Lag,
    "cyclic": Cyclic,
    "calendar": Calendar,
    "cross": Cross,
    "one_hot": OneHot,
    "extract": Extract,
    "vector": Vector,
    "sequence": Sequence,
}
OPERATORS = tuple(_KINDS)
Operator = Annotated[Any_, BeforeValidator(entry("operator", _KINDS, frozenset(), "{categorify: [userId]}"))]


def with_calendar(operators: tuple[Any_, ...], time: str) -> tuple[Any_, ...]:
    """Adds, before each cross, a `calendar` of `time` for the hour or the weekday that the cross names and no operator makes."""
    columns = {name for operator in operators if isinstance(operator, Categorify | MultiHot) for name in mentioned(operator)}
    features = columns.union(*(operator.calendar.parts for operator in operators if isinstance(operator, Calendar)))
    completed: list[Any_] = []
    for operator in operators:
        names = operator.cross if isinstance(operator, Cross) else ()
        missing = tuple(part for part in get_args(CalendarPart) if part in names and part not in features)
        if missing:
            completed.append(Calendar(calendar=CalendarOf(of=time, parts=missing)))
            features |= set(missing)
        completed.append(operator)
    return tuple(completed)


def mentioned(entry: Any_) -> tuple[str, ...]:
    """The columns and features that an operator names."""
    operand = next(getattr(entry, kind) for kind, model in _KINDS.items() if type(entry) is model)
    if isinstance(operand, Strict):
        fields = [getattr(operand, name) for name in ("of", "by", "target") if hasattr(operand, name)]
        return tuple(name for field in fields for name in ((field,) if isinstance(field, str) else field))
    return (operand,) if isinstance(operand, str) else tuple(operand)
