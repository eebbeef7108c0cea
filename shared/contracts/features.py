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


Columns = Annotated[
    tuple[Column, ...],
    BeforeValidator(_several, json_schema_input_type=Column | Annotated[tuple[Column, ...], Field(min_length=1)]),
    Field(min_length=1),
]


class _Words(Strict):
    """Common settings of vocabularies."""

    min_count: int = Field(1, ge=1, description="Values with a lower count are out of vocabulary.")
    max_size: int | None = Field(
        None, ge=1, le=MAX_CODES, description="Maximum size of the vocabulary: only the most frequent values are in it."
    )
    hash_buckets: int | None = Field(
        None, ge=1, le=MAX_CODES, description="Number of hashed codes for values out of vocabulary, instead of one code. Only for integers."
    )
    vocabulary: Column | None = Field(None, description="Name of a vocabulary; columns with the same name share it.")
    values: tuple[StrictInt | StrictStr, ...] | None = Field(
        None, max_length=10_000, description="The vocabulary itself, in the order of its codes: it is not fitted and never grows."
    )

    @model_validator(mode="after")
    def _check_unique(self) -> Self:
        if self.values is None:
            return self
        if self.min_count > 1 or self.max_size is not None:
            raise ValueError("values: min_count and max_size have no effect on a listed vocabulary; leave them out")
        if not self.values and self.hash_buckets is None:
            raise ValueError("values: the list is empty; list values, or set hash_buckets")
        if len({type(value) for value in self.values}) > 1:
            raise ValueError("values: expected only integers or only text")
        doubled = next((value for value, count in Counter(self.values).items() if count > 1), None)
        if doubled is not None:
            raise ValueError(f"values: {doubled!r} is listed twice")
        for value in self.values:
            if value == "" or (isinstance(value, int) and not -(2**63) < value < 2**63):
                raise ValueError(f"values: {value!r} is not allowed: blank text and -2**63 mean null, and integers have 64 bits")
        return self


class Categorify(_Words):
    """Ids and words to codes: 0 is null or padding, 1 is out of vocabulary, 2 and up are known values, the most frequent first."""

    categorify: Columns = Field(description="Columns of single values, each with its own vocabulary unless `vocabulary` is set.")


class MultiHot(_Words):
    """A column with several values a row, as a list or delimited text, to codes, in their order."""

    multi_hot: Column = Field(description="A column of lists or of text.")
    separator: str | None = Field(None, min_length=1, max_length=1, description="Character that splits text; absent for a column of lists.")
    max_length: int = Field(16, ge=1, le=256, description="Maximum number of values per row; further values are dropped.")


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
    min: float | None = Field(None, description="Lower bound; smaller values become it.")
    max: float | None = Field(None, description="Upper bound; larger values become it.")

    @model_validator(mode="after")
    def _bounded(self) -> Clip:
        if self.min is None and self.max is None:
            raise ValueError("clip: set min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"clip: min {self.min:g} is greater than max {self.max:g}")
        return self


class Fill(Strict):
    """A number for null and NaN."""

    fill: Columns = Field(description="Columns of numbers.")
    with_: float | Literal["mean"] = Field("mean", alias="with", description="A number, or the mean of the values that are not null.")
    flag: bool = Field(False, description="Also makes `COLUMN_missing`: 1 for filled rows, else 0.")


class Bucketise(Strict):
    """Numbers to codes by bounds: 0 is null, 1 is below the first bound, and each bound begins the next code. Reads the original column,
    whatever other operators do to it. Makes `COLUMN_bucket`."""

    bucketise: Columns = Field(description="Columns of numbers.")
    at: tuple[float, ...] | None = Field(None, min_length=1, max_length=1000, description="Bounds, increasing.")
    quantiles: int | None = Field(None, ge=2, le=1000, description="Number of buckets with about equally many rows, instead of bounds.")

    @model_validator(mode="after")
    def _check_one_given(self) -> Bucketise:
        if (self.at is None) == (self.quantiles is None):
            raise ValueError("bucketise: set either 'at' (the bounds) or 'quantiles'")
        if self.at is not None and list(self.at) != sorted(set(self.at)):
            raise ValueError("bucketise: the bounds of 'at' must increase")
        return self


class TargetOf(Strict):
    of: Columns = Field(description="Column whose values are encoded; several columns: their combinations.")
    target: Columns = Field(("label",), description="`label` (1 for positives, else 0), or columns of numbers of the interactions.")
    folds: int = Field(5, ge=2, le=100, description="Number of folds: a training row is encoded by the rows of the other folds.")
    smoothing: float = Field(20.0, ge=0, description="Weight of the overall mean in each value's mean, in rows.")


class TargetEncode(Strict):
    """Mean target of the rows with the same value; in training without the row's own fold. Makes `COLUMN_te`."""

    target_encode: TargetOf = Field(description="Columns and targets of the encoding.")


class CountEncode(Strict):
    """Number of interactions with the row's value. Makes `COLUMN_count`."""

    count_encode: Columns = Field(description="Columns of ids or words.")
    scale: Literal["none", "log", "share"] = Field("log", description="`log`: logarithm of 1 + count. `share`: share of all rows.")


class LagOf(Strict):
    of: Column = Field(description="A column of numbers of the interactions, or their time.")
    by: Column = Field(description="Key whose last interaction is used: the user's or the item's.")
    steps: int = Field(1, ge=1, le=100, description="Number of interactions to go back.")


class Lag(Strict):
    """Change since the last interaction of the same user or item; null for the first one. Makes `COLUMN_lag`."""

    lag: LagOf = Field(description="Column and key of the lag.")


class CyclicOf(Strict):
    of: Column = Field(description="Column of the time.")
    periods: tuple[Literal["day", "week", "year"], ...] = Field(("day", "week"), min_length=1, description="A `year` has 365.2425 days.")


class Cyclic(Strict):
    """Position in a day, a week or a year as sine and cosine, so that midnight is next to midnight. Makes `COLUMN_day_sin` and so on."""

    cyclic: CyclicOf = Field(description="Column and periods.")


CalendarPart = Literal["hour", "weekday"]


class CalendarOf(Strict):
    of: Column = Field(description="Column of the time.")
    parts: tuple[CalendarPart, ...] = Field(min_length=1, description="Parts of the time, in UTC; the week begins on Monday.")


class Calendar(Strict):
    """Parts of a time as codes, named `hour` and `weekday`."""

    calendar: CalendarOf = Field(description="Column and parts.")


class Cross(Strict):
    """Two or more features of codes as one: the hash of their combination. One of them may have several values a row. Makes `A_x_B`."""

    cross: tuple[Column, ...] = Field(
        min_length=2,
        max_length=4,
        description="Features of codes. `hour` and `weekday` that no entry makes come from schema.time, as by a `calendar` before it.",
    )
    buckets: int = Field(10_000, ge=2, le=MAX_CODES, description="Number of codes for the combinations.")


class OneHot(Strict):
    """A feature of codes as a row of zeros and ones, for the wide part of a model. Makes `COLUMN_hot`."""

    one_hot: Columns = Field(description="Features of codes, with one or several values per row.")
    max_width: int = Field(1_000, ge=3, le=100_000, description="Maximum number of codes; features with more are rejected.")


class ExtractOf(Strict):
    of: Column = Field(description="A column of text.")
    what: Literal["mentions", "hashtags"] | None = Field(None, description="`mentions`: @name. `hashtags`: #tag.")
    pattern: str | None = Field(
        None, max_length=200, description="A regular expression (Rust's regex syntax) instead; its first group if it has one."
    )
    name: Column | None = Field(None, alias="as", description="Name of the new column; `COLUMN_mentions` and so on if absent.")

    @model_validator(mode="after")
    def _check_one_given(self) -> ExtractOf:
        if (self.what is None) == (self.pattern is None):
            raise ValueError("extract: set either 'what' or 'pattern'")
        if self.pattern is not None:
            if self.name is None:
                raise ValueError("extract: a pattern needs 'as', the name of the new column")
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"extract: invalid pattern: {error}") from None
        return self

    @property
    def output(self) -> str:
        return self.name or f"{self.of}_{self.what}"


class Extract(Strict):
    """Matches of a pattern in text, lower-cased, as a column of lists for `multi_hot`; computed when the table is prepared."""

    extract: ExtractOf = Field(description="Column and pattern.")


class VectorOf(Strict):
    of: Column = Field(description="Key of the vectors: the item's or the user's.")
    source: str | None = Field(
        None,
        alias="from",
        exclude_if=lambda source: source is None,
        description="Parquet file with the key's column and a column of lists of numbers.",
    )
    encode: Encode | None = Field(
        None,
        exclude_if=lambda encode: encode is None,
        description="Instead of `from`: images or texts of the items or users table, encoded by your own encoder.",
    )
    column: Column = Field("vector", description="Column of the vectors in the file.")
    width: int = Field(ge=1, le=8192, description="Length of each vector.")
    name: Column | None = Field(None, alias="as", description="Name of the feature; `KEY_vector` if absent.")

    @model_validator(mode="after")
    def _check_origin(self) -> VectorOf:
        if (self.source is None) == (self.encode is None):
            raise ValueError("vector: set either 'from' (a file of vectors) or 'encode' (images or texts to encode)")
        return self

    @property
    def output(self) -> str:
        return self.name or f"{self.of}_vector"


class Vector(Strict):
    """Vector of an image or of a text, from a file or computed in the run, scaled to length 1; zeros for keys without a vector."""

    vector: VectorOf = Field(description="Key and source of the vectors.")


class SequenceOf(Strict):
    of: Column = Field(description="The item's key: the values of the sequence.")
    by: Column = Field(description="The user's key: the owner of the sequence.")
    length: int = Field(20, ge=1, le=500, description="Maximum length: the newest items are used.")
    liked: bool = Field(False, description="Whether only positives are used.")
    reverse: bool = Field(False, description="Whether the newest item comes first.")
    window: Duration | None = Field(None, description="Maximum age of an interaction, such as `30d`.")
    gap: Duration | None = Field(None, description="Longest pause within a session, such as `30m`: only the last session is used.")
    pages: bool = Field(
        False,
        exclude_if=lambda pages: not pages,
        description="Whether page views (`schema.page`) stand among the items, ordered by time. Their codes follow the items' codes in one "
        "vocabulary; `min_count` and `max_size` of the item's `categorify` apply to items and to pages separately.",
    )

    @model_validator(mode="after")
    def _check_pages(self) -> SequenceOf:
        if self.liked and self.pages:
            raise ValueError("sequence: set liked or pages, not both; page views are never positives")
        return self


class Sequence(Strict):
    """The items of a user before this row, as codes of the item's vocabulary. Makes `ITEM_sequence`."""

    sequence: SequenceOf = Field(description="Item key, user key and limits of the sequence.")


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
TIME_OPERATORS = ("lag", "cyclic", "calendar", "sequence")
"""Operators that need the time of the interactions."""
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


def operator_kind(entry: Any_) -> str:
    return next(kind for kind, model in _KINDS.items() if type(entry) is model)


def mentioned(entry: Any_) -> tuple[str, ...]:
    """The columns and features that an operator names."""
    operand = getattr(entry, operator_kind(entry))
    if isinstance(operand, Strict):
        fields = [getattr(operand, name) for name in ("of", "by", "target") if hasattr(operand, name)]
        return tuple(name for field in fields for name in ((field,) if isinstance(field, str) else field))
    return (operand,) if isinstance(operand, str) else tuple(operand)
