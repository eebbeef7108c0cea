"""Families that use all features: embeddings, numbers and hidden layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from shared.contracts.families.base import ABSENT_NEGATIVES, FamilyParams, UnknownItems
from shared.contracts.ranges import NumberRange, between, one_of


class DeepParams(FamilyParams):
    """Common parameters of families that use all features: embeddings and hidden ReLU layers."""

    ranges: ClassVar[Mapping[str, NumberRange]] = {
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
        description="One embedding width for all columns; if absent, chosen by the cardinality and padded to a multiple of 16 (64 bytes).",
    )
    pooling: Literal["mean", "sum"] = Field("mean", description="Combination of the vectors of a column with several codes per row.")
    dropout: float = Field(0, ge=0, lt=1, description="Share of the outputs of each hidden layer that is dropped in training.")
    batch_norm: bool = Field(False, description="Whether each hidden layer's output is normalised over the batch.")
    layer_norm: bool = Field(
        True,
        description="Whether each vector of `vector` (of an image or a text) is normalised to mean 0 and variance 1 per row, with learned "
        "scales, before it is joined with the other inputs.",
    )
    regularisation: float = Field(
        0,
        ge=0,
        le=10,
        description="L2 of the embeddings: half of it is the weight, in each step's loss, of the squares of all vectors. A vector gets it "
        "when a step reads it, for all steps since it was last read; so values with few rows stay near zero. Not for sharded tables.",
    )
    negatives: int | None = Field(
        None,
        ge=0,
        le=100,
        description=f"Sampled negatives for each positive, drawn again in each epoch. {ABSENT_NEGATIVES.format(usual=4)}",
    )
    verified: bool = Field(
        False,
        description="Whether sampled negatives exclude the user's positives in the training rows and, in a warm run, earlier ones. Needs "
        "two bytes per positive; half a percent of the other items is also never drawn.",
    )
    unknown_items: UnknownItems = None

    @model_validator(mode="after")
    def _check_verify(self) -> DeepParams:
        if self.verified and self.negatives == 0:
            raise ValueError("params: 'verified' has no effect: no negatives are sampled; leave it out")
        return self

    @property
    def takes_weights(self) -> bool:
        return True

    def wants_both_labels(self, full: bool) -> bool:
        """Sampled negatives complement positives; without them, rows with only one label are an error."""
        return full or self.negatives == 0


class MlpParams(DeepParams):
    """The model of the original notebook: embeddings, hidden ReLU layers, a sigmoid."""

    meaning = "embeddings, hidden layers, sigmoid."


class DlrmParams(DeepParams):
    """Inner products of all embeddings and of the transformed numbers, then hidden layers."""

    meaning = (
        "inner products of all pairs of embeddings, and of each with a layer over the numbers, before the hidden layers (DLRM): for many "
        "columns of codes that interact."
    )
    ranges: ClassVar[Mapping[str, NumberRange]] = {**DeepParams.ranges, "params.width": between(8, 64, log=True)}

    layers: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = Field(
        (128, 64), min_length=1, max_length=8, description="Widths of the hidden layers behind the inner products."
    )
    width: int = Field(16, ge=1, le=1024, description="Width of every embedding, and of the vector of the numbers.")
    bottom: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = Field(
        (64, 32), max_length=8, description="Widths of the hidden layers for the numbers, before a layer with the width of the embeddings."
    )
    itself: bool = Field(False, description="Whether each vector is also multiplied with itself.")
    joined: bool = Field(False, description="Whether the hidden layers also take the embeddings, beside their inner products.")


class WideDeepParams(DeepParams):
    """A weight for each value and number, added to an mlp."""

    meaning = (
        "a linear model over values, buckets of crosses and numbers, added to embeddings and hidden layers (Wide & Deep): memorises "
        "frequent combinations."
    )

    width: int | None = Field(
        None,
        ge=1,
        le=1023,
        description="Width of the embeddings for the hidden layers; a table has one more column, the weights of its values. If absent, "
        "chosen by the cardinality: one less than a multiple of 16 (64 bytes with the weight). Crosses have only weights.",
    )
    pooling: Literal["mean", "sum"] = Field(
        "sum", description="Combination of the weights and of the vectors of a column with several codes per row."
    )


class DeepFmParams(WideDeepParams):
    """A factorisation machine beside hidden layers, over the same embeddings."""

    meaning = (
        "a weight for each value and number, inner products of all pairs of embeddings, and hidden layers, added (DeepFM): a strong "
        "default for clicks."
    )
    ranges: ClassVar[Mapping[str, NumberRange]] = {**DeepParams.ranges, "params.width": between(8, 64, log=True)}

    width: int = Field(
        15,
        ge=1,
        le=1023,
        description="Width of every embedding; a table has one more column, the weights of its values. Crosses have only weights.",
    )


class DcnParams(DeepParams):
    """Cross layers beside hidden layers."""

    meaning = (
        "cross layers with full matrices, which multiply the inputs with each other, beside hidden layers (DCN-v2): for clicks, when "
        "interactions of several columns count."
    )
    ranges: ClassVar[Mapping[str, NumberRange]] = {
        **DeepParams.ranges,
        "params.width": between(8, 64, log=True),
        "params.crosses": between(1, 4),
    }

    width: int = Field(16, ge=1, le=1024, description="Width of every embedding.")
    crosses: int = Field(3, ge=1, le=8, description="Number of cross layers; each adds products of one more input.")


class TwoTowerParams(FamilyParams):
    """A tower of layers for the user and one for the item, combined by an inner product."""

    meaning = (
        "retrieval by two towers: hidden layers give a vector of the user and one of the item, whose inner product is the score; trained "
        "with the batch's items as negatives, corrected by popularity."
    )
    cannot: ClassVar[Mapping[str, str]] = {"resident": "its batches are made on the host"}
    ranges: ClassVar[Mapping[str, NumberRange]] = {
        "params.width": between(16, 128, log=True),
        "params.layers": one_of([64], [128], [128, 64], [256, 128]),
        "params.temperature": between(0.03, 0.5, log=True),
        "params.dropout": between(0.0, 0.5),
        "train.epochs": between(5, 60),
        "train.learning_rate": between(3e-4, 1e-2, log=True),
    }

    width: int = Field(64, ge=1, le=1024, description="Width of the output vector of a tower.")
    layers: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = Field(
        (128,), max_length=8, description="Widths of the hidden layers of each tower; empty: a tower is one linear layer."
    )
    embedding: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="One embedding width for all columns; if absent, chosen by the cardinality and padded to a multiple of 16 (64 bytes).",
    )
    pooling: Literal["mean", "sum"] = Field("mean", description="Combination of the vectors of a column with several codes per row.")
    dropout: float = Field(0, ge=0, lt=1, description="Share of the outputs of each hidden layer that is dropped in training.")
    layer_norm: bool = Field(
        True,
        description="Whether each vector of `vector` (of an image or a text) is normalised to mean 0 and variance 1 per row, with learned "
        "scales, before it is joined with the other inputs.",
    )
    normalise: bool = Field(
        True, description="Whether vectors are scaled to length 1: then the score is their cosine, divided by the temperature."
    )
    temperature: float = Field(
        0.1, gt=0, le=10, description="Temperature for normalised vectors: a smaller one gives more weight to the nearest items of a batch."
    )
    regularisation: float = Field(0, ge=0, le=10, description="Weight of the squares of embeddings in each row's loss.")
    unknown_items: UnknownItems = None

    @property
    def takes_weights(self) -> bool:
        return True

    @classmethod
    def usual(cls, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """A step has only positives and few rows, so more epochs are needed."""
        return {"epochs": 20, "learning_rate": 0.002}

    @model_validator(mode="after")
    def _check_divide(self) -> TwoTowerParams:
        if not self.normalise and self.temperature != 0.1:
            raise ValueError("params: 'temperature' has no effect without normalise; leave it out")
        return self
