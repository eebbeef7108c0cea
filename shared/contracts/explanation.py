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
    roots: tuple[str, ...] = Field(description="Data roots: relative paths are resolved below them, and files outside them are not read.")
    data: bool = Field(True, description="Whether to fit the features on the data; else only its schemas are read.")
    family: str | None = Field(None, description="Family to explain instead of the spec's; or `keys`, `sequence`, `deep` or `trees`.")
    allow: tuple[str, ...] = Field((), description="Python modules that custom families may come from.")
    most: int = Field(2_000_000, ge=1, description="Number of interactions above which only a sample of users is read.")


class DataCounts(Strict):
    rows: int = Field(description="Number of training rows.")
    items: int = Field(description="Number of rows of the items table.")
    users: int = Field(description="Number of users in the data, or in the users table if there is one.")
    one_user_in: int = Field(description="Sampling rate of users: one in this number; 1 means all.")


class Node(Strict):
    """Source column, or result of an operator."""

    id: str
    name: str
    side: Side
    table: Table | None = Field(None, description="Table of a source column.")
    by: str | None = Field(None, description="Operator that makes the node.")
    of: tuple[str, ...] = Field((), description="Ids of the nodes that it is made from; they come before it.")
    feature: bool = Field(False, description="Whether models read it.")


class OperatorExplained(Strict):
    operator: str
    of: tuple[str, ...]
    makes: tuple[str, ...]
    side: Side
    fitted: bool = Field(description="Whether it must be fitted on data.")
    files: tuple[str, ...] = Field(description="Files of its fitted state, in addition to features.json.")
    runtimes: tuple[Runtime, ...] = Field(description="Runtimes that can compute it.")


class FeatureExplained(Strict):
    """A value of None is known only after fitting."""

    name: str
    side: Side
    kind: Literal["code", "float32"]
    several: bool = Field(description="Whether a row has a list or a vector of values.")
    width: int | None = Field(description="Length of the list or vector.")
    width_at_most: int | None = Field(description="Maximum length by the spec.")
    cardinality: int | None = Field(description="Number of codes, including the codes of null and unknown.")
    embedding: int | None = Field(description="Width of the embedding.")
    operator: str
    made: str = Field(description="Formula over the data's columns.")
    columns: tuple[str, ...]
    runtimes: tuple[Runtime, ...]


class TableExplained(Strict):
    """Embedding table. A value of None is known only after fitting."""

    feature: str
    codes: int | None
    width: int | None
    bytes: int | None = Field(description="Bytes of the table: codes x width x 4.")
    values_per_row: float | None = Field(description="Mean number of values per row in the data; else the maximum.")
    bytes_per_row: float | None = Field(description="Bytes that a row reads: values x (width x 4 + 8).")
    padded_width: int | None = Field(description="Width if padded to a multiple of 16 bytes, as widths by rule are.")


class Totals(Strict):
    """A value is None if a part is unknown."""

    bytes: int | None
    bytes_per_row: float | None
    batch_size: int
    batch_size_why: str = Field(description="Origin of the batch size: the spec, or the rule.")
    bytes_per_batch: float | None
    padded_bytes: int | None = Field(description="Bytes of all tables with widths padded to a multiple of 16 bytes.")


class InputExplained(Strict):
    """Input of a served version."""

    name: str
    dtype: Literal["int64", "float32", "string"]
    several: bool
    width: int | None
    width_at_most: int | None
    side: Side
    origin: Literal["request", "catalogue", "store"] = Field(alias="from", description="Source of the value.")
    view: str | None = Field(description="View of the feature store.")
    features: tuple[str, ...] = Field(description="Features that are made from it.")


class LeftOut(Strict):
    """Feature of the spec that the family does not read."""

    operator: str
    feature: str = Field(description="Feature that it would make or change.")
    why: str


class Explanation(Strict):
    recommender: str
    family: str
    reads: Literal["keys", "sequence", "sequence_and_items", "deep", "trees"] = Field(
        description="Features that such a family reads: codes of the keys; these and sequences; these, sequences and features of items; "
        "all; or what a tree can split by."
    )
    data: DataCounts | None = Field(description="Counts of the data; null if only the schemas were read.")
    nodes: tuple[Node, ...]
    operators: tuple[OperatorExplained, ...]
    features: tuple[FeatureExplained, ...]
    tables: tuple[TableExplained, ...] = Field(description="Embedding tables of the family.")
    totals: Totals
    inputs: tuple[InputExplained, ...]
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = Field((), description="Attributes that filters or rules name and the items table lacks.")
