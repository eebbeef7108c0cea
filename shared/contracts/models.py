"""The spec's `model`: what is trained, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from shared.contracts.strict import Strict, unknown_name


class MlpParams(Strict):
    """The notebook's model: embeddings, hidden ReLU layers, a sigmoid."""

    layers: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = Field(
        (128, 128, 128), min_length=1, max_length=8, description="Widths of the hidden layers."
    )
    width: int | None = Field(
        None, ge=1, le=1024, description="One embedding width for all columns; by rule of the cardinality when absent."
    )
    negatives: int = Field(4, ge=0, le=100, description="Sampled negatives for each positive, drawn anew each epoch.")
    verified: bool = Field(
        False,
        description="Whether no sampled negative is an item that its user liked in the rows to train on, or, of a warm run, before. It "
        "takes two bytes a like; of what wasn't liked, half a per cent is never drawn either.",
    )

    @model_validator(mode="after")
    def _verifies_something(self) -> MlpParams:
        if self.verified and not self.negatives:
            raise ValueError("params: 'verified' has no effect: no negatives are sampled: leave it out")
        return self

    def wants_both_labels(self, full: bool) -> bool:
        """Feedback is mostly positive by nature: sampled negatives stand against it. A file of one label is a mistake."""
        return full or self.negatives == 0


class PopularityParams(Strict):
    """Nothing can be chosen: a count has no parameters."""

    def wants_both_labels(self, full: bool) -> bool:
        """It counts positives."""
        return False


class MfParams(Strict):
    """Matrix factorisation: an inner product of two vectors, by implicit alternating least squares."""

    width: int = Field(64, ge=1, le=1024, description="Numbers in a vector.")
    unobserved: float = Field(0.4, gt=0, le=10, description="What a pair that wasn't liked weighs against, beside a liked one's 1.")
    regularisation: float | None = Field(
        None, gt=0, le=10, description="How small vectors are kept; when absent, the strength that ranks the newest likes best."
    )
    sweeps: int = Field(10, ge=1, le=200, description="How often both sides are solved; a warm run does a third.")

    def wants_both_labels(self, full: bool) -> bool:
        """It learns from likes; what wasn't liked counts as it is."""
        return False


Params = MlpParams | PopularityParams | MfParams


class Training(Strict):
    planned = frozenset({"mixed_precision", "compile", "early_stop"})

    epochs: int = Field(5, ge=1, le=1000, description="Passes over the training rows.")
    batch_size: int = Field(4096, ge=1, description="Rows of a step, sampled negatives among them.")
    optimizer: Literal["adam", "sgd"] = Field("adam", description="How the weights are updated.")
    learning_rate: float = Field(0.003, gt=0, le=10, description="Of the optimizer.")
    seed: int = Field(1, ge=0, description="Seeds weights, shuffling and negatives.")
    validation: float = Field(
        0,
        ge=0,
        le=0.5,
        description="Share of the training rows, drawn by the seed, that isn't trained on but looked at after each epoch: the loss and the "
        "AUC of these and of negatives sampled for them, in the log and in the stage's metrics. What is held out for the gates is never "
        "among them.",
    )


def _params(value: Any, info: ValidationInfo) -> Any:
    """Read by the family that the spec names."""
    kind = Model.FAMILIES.get(str(info.data.get("family")))
    return value if kind is None or isinstance(value, kind) else kind.model_validate(value)


def _without_default(schema: dict[str, Any]) -> None:
    """Which family's it would be, the schema doesn't say: generators of clients stumble over it."""
    del schema["default"]


class Model(Strict):
    FAMILIES: ClassVar[Mapping[str, type[Params]]] = {"mlp": MlpParams, "popularity": PopularityParams, "mf": MfParams}
    PLANNED: ClassVar[frozenset[str]] = frozenset({"itemknn", "ease", "neumf", "wide_deep", "dlrm", "two_tower", "session", "gbm"})

    family: str = Field(
        "mlp",
        description="`mlp`: embeddings, hidden layers, sigmoid. `popularity`: an item's share of positives, the same for every user: "
        "a safe first version. `mf`: matrix factorisation by alternating least squares; quick, and its vectors retrieve. A popularity "
        "baseline is always trained beside it.",
    )
    framework: Literal["tensorflow"] = Field("tensorflow", description="What trains a family that is trained.")
    params: Annotated[Params, BeforeValidator(_params)] = Field(
        {},
        validate_default=True,
        description="The family's own parameters.",
        json_schema_extra=_without_default,
    )
    train: Training = Field(Training(), description="How it is trained.")

    @model_validator(mode="before")
    @classmethod
    def _known_family(cls, value: Any) -> Any:
        if isinstance(value, dict):
            family = value.get("family", "mlp")
            if isinstance(family, str) and family not in cls.FAMILIES:
                raise unknown_name("model family", family, cls.FAMILIES, cls.PLANNED)
            framework = value.get("framework", "tensorflow")
            if framework in ("torch", "jax"):
                raise unknown_name("framework", framework, ["tensorflow"], {"torch", "jax"})
        return value

    @model_validator(mode="after")
    def _says_nothing_in_vain(self) -> Model:
        why = {"popularity": "popularity counts and isn't trained", "mf": "mf solves for its vectors and takes no steps (params.sweeps)"}
        if self.family in why:
            idle = [name for name, value in Training() if name != "seed" and getattr(self.train, name) != value]
            if idle:
                raise ValueError(f"train: '{idle[0]}' has no effect: {why[self.family]}: leave it out")
        return self
