"""Request and response of `eyas features explain`: the features of a spec before any training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import Strict

Side = Literal["user", "item", "context", "pair"]
Table = Literal["interactions", "items", "users"]
Runtime = Literal["polars", "nvtabular", "onnx"]


class ExplainRequest(Strict):
    spec: RecommenderSpec
    roots: tuple[str, ...] = Field(description="Below these relative paths are looked for, and what lies elsewhere isn't read.")
    data: bool = Field(True, description="Whether the features are fitted on the data; else its schemas alone are read.")
    family: str | None = Field(None, description="As another family than the spec's reads them; or `keys`, `sequence`, `deep` or `trees`.")
    allow: tuple[str, ...] = Field((), description="Modules that families of somebody's own may be of.")
    most: int = Field(2_000_000, ge=1, description="Of more interactions than this a sample of users is looked at.")


class DataCounts(Strict):
    rows: int = Field(description="Of the part that is trained on.")
    items: int = Field(description="Of the items table.")
    users: int = Field(description="In the data, or in the users table where there is one.")
    one_user_in: int = Field(description="1: all were looked at.")


class Node(Strict):
    """Source column, or result of an operator."""

    id: str
    name: str
    side: Side
    table: Table | None = Field(None, description="Of a column of the data.")
    by: str | None = Field(None, description="The operator that makes it.")
    of: tuple[str, ...] = Field((), description="The ids of what it is made of; they come before it.")
    feature: bool = Field(False, description="Whether models get it.")


class OperatorExplained(Strict):
    operator: str
    of: tuple[str, ...]
    makes: tuple[str, ...]
    side: Side
    fitted: bool = Field(description="Whether it has to see data.")
    files: tuple[str, ...] = Field(description="Of its fitted state, beside features.json.")
    runtimes: tuple[Runtime, ...] = Field(description="What can compute it.")


class FeatureExplained(Strict):
    """A value of None is known only after fitting."""

    name: str
    side: Side
    kind: Literal["code", "float32"]
    several: bool = Field(description="Whether a row has a list or a vector of them.")
    width: int | None = Field(description="How long that is.")
    width_at_most: int | None = Field(description="How long it gets at most, by the spec.")
    cardinality: int | None = Field(description="How many codes there are; null and unknown are two of them.")
    embedding: int | None = Field(description="The width of its embedding.")
    operator: str
    made: str = Field(description="As a formula of the data's columns.")
    columns: tuple[str, ...]
    runtimes: tuple[Runtime, ...]


class TableExplained(Strict):
    """Embedding table. A value of None is known only after fitting."""

    feature: str
    codes: int | None
    width: int | None
    bytes: int | None = Field(description="codes x width x 4.")
    values_per_row: float | None = Field(description="Counted in the data; else the most that there may be.")
    bytes_per_row: float | None = Field(description="values x (width x 4 + 8).")
    padded_width: int | None = Field(description="The width, were it padded to whole 16 bytes. Widths by rule are.")


class Totals(Strict):
    """A value is None if a part is unknown."""

    bytes: int | None
    bytes_per_row: float | None
    batch_size: int
    batch_size_why: str = Field(description="The spec's word, or the rule that gives it.")
    bytes_per_batch: float | None
    padded_bytes: int | None = Field(description="Of all tables, were widths padded to whole 16 bytes.")


class InputExplained(Strict):
    """Input of a served version."""

    name: str
    dtype: Literal["int64", "float32", "string"]
    several: bool
    width: int | None
    width_at_most: int | None
    side: Side
    origin: Literal["request", "catalogue", "store"] = Field(alias="from", description="Who knows it.")
    view: str | None = Field(description="Of the feature store.")
    features: tuple[str, ...] = Field(description="What is made of it.")


class LeftOut(Strict):
    """Feature of the spec that the family does not read."""

    operator: str
    feature: str = Field(description="What it would have made, or changed.")
    why: str


class Explanation(Strict):
    recommender: str
    family: str
    reads: Literal["keys", "sequence", "deep", "trees"] = Field(
        description="What such a family reads: the keys' codes, these and sequences, everything, or what a tree splits by."
    )
    data: DataCounts | None = Field(description="None: the schemas alone were read.")
    nodes: tuple[Node, ...]
    operators: tuple[OperatorExplained, ...]
    features: tuple[FeatureExplained, ...]
    tables: tuple[TableExplained, ...] = Field(description="What the family looks up.")
    totals: Totals
    inputs: tuple[InputExplained, ...]
    left_out: tuple[LeftOut, ...] = ()
