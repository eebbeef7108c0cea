"""Families that use all features: embeddings, numbers and hidden layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from shared.contracts.families.base import FamilyParams
from shared.contracts.ranges import Range, between, one_of


class DeepParams(FamilyParams):
    """Common parameters of families that use all features: embeddings and hidden ReLU layers."""

    ranges: ClassVar[Mapping[str, Range]] = {
        "params.width": between(8, 128, log=True),
        "params.layers": one_of([64], [128, 64], [128, 128, 128], [256, 128, 64]),
        "params.negatives": between(1, 10),
        "train.epochs": between(2, 15),
        "train.learning_rate": between(3e-4, 1e-2, log=True),
    }

    layers: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = Field(
        (128, 128, 128), min_length=1, max_length=8, description="Widths of the hidden layers."
    )
    width: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="One embedding width for all columns; when absent by rule of the cardinality, padded to a multiple of 16 (64 bytes).",
    )
    pooling: Literal["mean", "sum"] = Field("mean", description="What becomes of the vectors of a column of several codes a row.")
    dropout: float = Field(0, ge=0, lt=1, description="After each hidden layer: the share of its numbers left out, in training alone.")
    batch_norm: bool = Field(False, description="Whether each hidden layer's output is normalised over the batch.")
    layer_norm: bool = Field(
        True,
        description="Whether each vector of `vector` (of a picture, a text) is brought to mean 0 and variance 1 row by row, and scaled by "
        "weights of its own, before it stands beside the rest.",
    )
    negatives: int = Field(4, ge=0, le=100, description="Sampled negatives for each positive, drawn anew each epoch.")
    verified: bool = Field(
        False,
        description="Whether no sampled negative is an item that its user liked in the rows to train on, or, of a warm run, before. It "
        "takes two bytes a like; of what wasn't liked, half a per cent is never drawn either.",
    )

    @model_validator(mode="after")
    def _verifies_something(self) -> DeepParams:
        if self.verified and not self.negatives:
            raise ValueError("params: 'verified' has no effect: no negatives are sampled: leave it out")
        return self

    def wants_both_labels(self, full: bool) -> bool:
        """Sampled negatives complement positives; without them, rows with only one label are an error."""
        return full or self.negatives == 0


class MlpParams(DeepParams):
    """The model of the original notebook: embeddings, hidden ReLU layers, a sigmoid."""

    meaning = "embeddings, hidden layers, sigmoid."


class DlrmParams(DeepParams):
    """Inner products of all embeddings and of the transformed numbers, then hidden layers."""

    meaning = (
        "inner products of every two embeddings, and of each with what layers make of the numbers, before the hidden layers (DLRM): for "
        "many columns of codes that say something together."
    )
    ranges: ClassVar[Mapping[str, Range]] = {**DeepParams.ranges, "params.width": between(8, 64, log=True)}

    layers: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = Field(
        (128, 64), min_length=1, max_length=8, description="Widths of the hidden layers behind the inner products."
    )
    width: int = Field(16, ge=1, le=1024, description="Of every embedding, and of what becomes of the numbers.")
    bottom: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = Field(
        (64, 32),
        max_length=8,
        description="Widths of the hidden layers of the numbers alone, before one that is as wide as the embeddings.",
    )
    itself: bool = Field(False, description="Whether each vector is multiplied with itself too.")


class WideDeepParams(DeepParams):
    """A weight for each value and number, added to an mlp."""

    meaning = (
        "a weight for each value, each bucket of a cross and each number, added up, beside embeddings and hidden layers (Wide & Deep): "
        "what is frequent is remembered as it is."
    )

    width: int | None = Field(
        None,
        ge=1,
        le=1023,
        description="Numbers of an embedding that go into the hidden layers, of all columns; a table has one more, its values' weights. "
        "When absent by rule of the cardinality: one less than a multiple of 16 (64 bytes with the weight). Crosses have weights alone.",
    )
    pooling: Literal["mean", "sum"] = Field(
        "sum", description="What becomes of the weights, and of the vectors, of a column of several codes a row."
    )


class TwoTowerParams(FamilyParams):
    """A tower of layers for the user and one for the item, combined by an inner product."""

    meaning = (
        "retrieval by two towers: layers over the user's features and over the item's give a vector each, whose inner product is the "
        "score; each like is chosen among a batch's items, by their popularity corrected."
    )
    cannot: ClassVar[Mapping[str, str]] = {"resident": "its batches are made on the host"}
    ranges: ClassVar[Mapping[str, Range]] = {
        "params.width": between(16, 128, log=True),
        "params.layers": one_of([64], [128], [128, 64], [256, 128]),
        "params.temperature": between(0.03, 0.5, log=True),
        "params.dropout": between(0.0, 0.5),
        "train.epochs": between(5, 60),
        "train.learning_rate": between(3e-4, 1e-2, log=True),
    }

    width: int = Field(64, ge=1, le=1024, description="Numbers in a vector that a tower gives.")
    layers: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = Field(
        (128,), max_length=8, description="Widths of the hidden layers of each tower; none: a tower is one linear layer."
    )
    embedding: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="One embedding width for all columns; when absent by rule of the cardinality, padded to a multiple of 16 (64 bytes).",
    )
    pooling: Literal["mean", "sum"] = Field("mean", description="What becomes of the vectors of a column of several codes a row.")
    dropout: float = Field(0, ge=0, lt=1, description="After each hidden layer: the share of its numbers left out, in training alone.")
    layer_norm: bool = Field(
        True,
        description="Whether each vector of `vector` (of a picture, a text) is brought to mean 0 and variance 1 row by row, and scaled by "
        "weights of its own, before it stands beside the rest.",
    )
    normalise: bool = Field(
        True, description="Whether vectors are of one length: then the score is their cosine, divided by the temperature."
    )
    temperature: float = Field(
        0.1, gt=0, le=10, description="Of normalised vectors: the smaller, the more the nearest items of a batch count."
    )
    regularisation: float = Field(
        0, ge=0, le=10, description="How small embeddings are kept: their squares count so much in each row's loss."
    )

    @classmethod
    def usual(cls, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """A step has only positives and few rows, so more epochs are needed."""
        return {"epochs": 20, "learning_rate": 0.002}

    @model_validator(mode="after")
    def _divides_something(self) -> TwoTowerParams:
        if not self.normalise and self.temperature != 0.1:
            raise ValueError("params: 'temperature' has no effect without normalise: leave it out")
        return self
