"""The spec's `model`: the family, its parameters and its training."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from shared.contracts import families
from shared.contracts.families import FamilyParams, Params, params_of
from shared.contracts.presets import PRESETS, with_preset
from shared.contracts.quantities import Fraction
from shared.contracts.ranges import Range
from shared.contracts.strict import Strict, unknown_name
from shared.contracts.training import FULL, SAMPLED, Checkpoints, EarlyStop, LookMetric, Target


def _without_default(schema: dict[str, Any]) -> None:
    """Removes a default that is an object or a union; client generators fail on it."""
    del schema["default"]


def _rows(value: Any) -> Any:
    if isinstance(value, str) and value != "auto":
        raise ValueError(f"expected a number of rows such as 8192, or 'auto', got {value!r}")
    return None if value == "auto" else value


BatchSize = Annotated[
    Annotated[int, Field(ge=1)] | None,
    BeforeValidator(_rows),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}, {"type": "null"}]}),
]
"""None: chosen by a rule."""
LossScale = Annotated[float, Field(ge=1, le=2**24)]


class Training(Strict):
    epochs: int = Field(5, ge=1, le=1000, description="Passes over the training rows.")
    batch_size: BatchSize = Field(
        None,
        description="Rows of a step, sampled negatives among them. `auto`, or absent: by rule when training starts: 8,192 for wide "
        "layers up to 65,536 for narrow ones, less for long lists, and at most what leaves an epoch 256 steps, but 1,024; `eyas features "
        "explain` and the log say it.",
    )
    optimizer: Literal["adam", "adagrad", "sgd"] = Field(
        "adam",
        description="How the weights are updated. Of an embedding table it is those rows that a batch looks up: `adam` lets the moments of "
        "the others stand still, `adagrad` remembers one number a row.",
    )
    learning_rate: float = Field(0.003, gt=0, le=10, description="Of the optimizer.")
    seed: int = Field(1, ge=0, description="Seeds weights, shuffling and negatives.")
    mixed_precision: bool | Literal["bfloat16", "float16"] = Field(
        False,
        description="Whether layers compute in half precision, which pays where the machine has instructions for it: `true` or `bfloat16`, "
        "or `float16`, by a scaled loss. Weights stay float32.",
    )
    loss_scale: LossScale | Literal["dynamic"] | None = Field(
        None,
        description="By float16, what the loss is multiplied by so that small gradients don't vanish: a number, such as 128, or `dynamic`, "
        "which begins at 32,768, is halved when a gradient overflows and doubled after 2,000 steps without. Such a step is skipped and "
        "counted. `dynamic` when absent.",
    )
    resident: bool = Field(
        False,
        description="Whether all rows lie on the device that trains: read once, each epoch's order and its negatives drawn there, and "
        "batches gathered there. Needs `framework: torch`, and half of the device's memory to hold them.",
    )
    compile: bool | Literal["graphs"] = Field(
        False,
        description="Whether layers and their gradients are compiled: by XLA on TensorFlow, by torch.compile on torch, which needs a C++ "
        "compiler where the stage runs. JAX compiles every step anyhow. `graphs`: the compiled network's kernels are started together, by "
        "CUDA graphs of torch.compile; needs `resident` and a GPU, and has not been run on one.",
    )
    validation: Fraction = Field(
        0,
        ge=0,
        le=0.5,
        description="Share of the training rows, drawn by the seed, that isn't trained on but looked at after each epoch: the loss and the "
        "AUC of these and of negatives sampled for them, in the log and in the stage's metrics. What is held out for the gates is never "
        "among them. The best epoch is what is published, by `early_stop.metric`, or by the AUC. When absent beside `early_stop` or "
        "`target`: 5%.",
    )
    validate_from: int = Field(1, ge=1, description="The first epoch after which the held-out rows are looked at.")
    early_stop: EarlyStop | None = Field(None, description="Ends training when the held-out rows say that it no longer helps.")
    target: Target | None = Field(None, description="A value that the report of the training says the way to.")
    processes: int = Field(
        1,
        ge=1,
        le=64,
        description="How many train one model together, each its part of every step's rows: processes of one machine, or pods of one Job. "
        "Needs `framework: torch`; the steps are those of one process, up to rounding.",
    )
    shard: Literal["row", "column", "table"] | None = Field(
        None,
        description="How embedding tables lie over the processes, which otherwise hold all of them each: `row`: some rows of every table, "
        "`column`: some columns of every table, `table`: whole tables. Needs `optimizer: sgd`, or, but by column, `adagrad`; and TorchRec "
        "where the stage runs (make setup-torch).",
    )
    checkpoint: Checkpoints | None = Field(
        Checkpoints(),
        description="What a killed stage goes on from when it is tried again; null: it begins anew.",
        json_schema_extra=_without_default,
    )

    @model_validator(mode="before")
    @classmethod
    def _validation_where_it_is_needed(cls, value: Any) -> Any:
        if isinstance(value, dict) and "validation" not in value and (value.get("early_stop") or value.get("target")):
            return {**value, "validation": 0.05}
        return value

    @field_validator("mixed_precision", mode="before")
    @classmethod
    def _a_precision(cls, value: Any) -> Any:
        if not isinstance(value, bool) and value not in ("bfloat16", "float16"):
            raise ValueError(f"expected true, false, 'bfloat16' or 'float16', got {value!r}")
        return value

    @field_validator("compile", mode="before")
    @classmethod
    def _a_compiler(cls, value: Any) -> Any:
        if not isinstance(value, bool) and value != "graphs":
            raise ValueError(f"expected true, false or 'graphs', got {value!r}")
        return value

    @field_validator("loss_scale", mode="before")
    @classmethod
    def _a_scale(cls, value: Any) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 2**24
        if value is not None and value != "dynamic" and not number:
            raise ValueError(f"expected 'dynamic' or a number from 1 to 16777216, got {value!r}")
        return value

    @model_validator(mode="after")
    def _scales_what_needs_it(self) -> Training:
        if self.loss_scale is not None and self.mixed_precision != "float16":
            raise ValueError("'loss_scale' has no effect: layers don't compute in float16: say mixed_precision: float16, or leave it out")
        if self.mixed_precision == "float16" and self.processes > 1:
            raise ValueError("mixed_precision: float16 has a scale that several processes don't share: say bfloat16, or processes: 1")
        return self

    @model_validator(mode="after")
    def _graphs_what_stays(self) -> Training:
        if self.compile == "graphs" and not self.resident:
            raise ValueError("compile: graphs needs batches that lie on the device: say resident: true, or compile: true")
        return self

    @model_validator(mode="after")
    def _looks_where_it_says(self) -> Training:
        if not self.validation:
            wanted = {"early_stop": self.early_stop, "target": self.target, "validate_from": self.validate_from > 1}
            idle = next((name for name, value in wanted.items() if value), None)
            if idle is not None:
                raise ValueError(f"'{idle}' has no effect: no rows are held out to look at: set validation, such as 0.05")
        elif self.validate_from > self.epochs:
            raise ValueError(f"validate_from: there is no epoch {self.validate_from}: epochs is {self.epochs}")
        if self.ranked & FULL and self.ranked & SAMPLED:
            raise ValueError("early_stop.metric and target.metric rank among different items: say both with /99, or both without")
        return self

    @model_validator(mode="after")
    def _is_shared_out_as_it_can_be(self) -> Training:
        if self.batch_size is not None and self.batch_size < self.processes:
            raise ValueError(
                f"batch_size: {self.batch_size} rows a step leave some of {self.processes} processes without any: say more rows"
            )
        if self.shard is None:
            return self
        if self.processes == 1:
            raise ValueError("'shard' has no effect: one process holds all tables: say how many in processes, such as 2")
        able = ("sgd",) if self.shard == "column" else ("sgd", "adagrad")
        if self.optimizer not in able:
            raise ValueError(
                f"shard: {self.shard} isn't trained with optimizer: {self.optimizer}: say {' or '.join(able)}, or leave shard out"
            )
        return self

    @property
    def compared_by(self) -> LookMetric:
        """Metric that selects the best epoch."""
        return self.early_stop.metric if self.early_stop is not None else "auc"

    @property
    def ranked(self) -> frozenset[LookMetric]:
        """Metrics for which a look ranks held-out likes."""
        wanted = {self.compared_by, self.compared_by if self.target is None else self.target.metric}
        return (FULL | SAMPLED) & wanted


def _params(value: Any, info: ValidationInfo) -> Any:
    """Parsed by the family that the spec names."""
    kind = params_of(str(info.data.get("family")))
    return value if kind is None or isinstance(value, kind) else kind.model_validate(value)


_TUNED = r"^(params|train)\..+$"


class Model(Strict):
    FAMILIES: ClassVar[Mapping[str, type[FamilyParams]]] = families.FAMILIES

    family: str = Field(
        "mlp",
        description=" ".join(f"`{name}`: {kind.meaning}" for name, kind in families.FAMILIES.items())
        + " `module:Class`: one's own, out of a module that the operator allows. A popularity baseline is always trained beside it.",
    )
    framework: Literal["tensorflow", "torch", "jax"] = Field(
        "tensorflow",
        description="What trains a family that is trained in steps: Keras on it. `torch` and `jax` have to be installed where the stage "
        "runs (make setup-torch, make setup-jax); what is judged and served is the same.",
    )
    params: Annotated[Params, BeforeValidator(_params)] = Field(
        {},
        validate_default=True,
        description="The family's own parameters.",
        json_schema_extra=_without_default,
    )
    train: Training = Field(Training(), description="How it is trained.")
    baseline: Literal["itemknn", "ease", "mf"] | None = Field(
        None,
        exclude_if=lambda name: name is None,
        description="A family that is trained beside each candidate, with its own defaults, and judged beside it: gates compare with it as "
        "`baseline`. Popularity is always there as well.",
    )
    preset: str | None = Field(
        None,
        exclude_if=lambda name: name is None,
        description="Settings that were tuned, by name (see Presets, or `eyas models`); what is said beside it has the last word.",
    )
    tune: dict[Annotated[str, Field(pattern=_TUNED)], Range] = Field(
        {},
        exclude_if=lambda ranges: not ranges,
        description="What `eyas tune` chooses among, by name: `params.width: {from: 8, to: 64, log: true}`, `train.epochs: {of: [5, 9]}`. "
        "A run of the platform searches nothing: it takes `params` and `train` as they stand.",
    )

    @model_validator(mode="before")
    @classmethod
    def _known_family(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("preset"), str):
            value = with_preset(value)
        if isinstance(value, dict):
            family = value.get("family", "mlp")
            if isinstance(family, str) and params_of(family) is None:
                raise unknown_name("model family", family, cls.FAMILIES)
            value = _with_usual(value, family)
            ranges = value.get("tune")
            if odd := [name for name in ranges if not re.match(_TUNED, str(name))] if isinstance(ranges, dict) else []:
                raise ValueError(f"tune: '{odd[0]}' is no setting's name: write params.{odd[0]} or train.{odd[0]}")
        return value

    @model_validator(mode="after")
    def _reject_settings_without_effect(self) -> Model:
        if self.baseline == self.family:
            raise ValueError(f"baseline: '{self.baseline}' is what is trained: a baseline is of another family")
        why = self.params.no_steps
        if why is not None:
            idle = [name for name, value in Training() if name not in self.params.heeds and getattr(self.train, name) != value]
            if idle:
                raise ValueError(f"train: '{idle[0]}' has no effect: {why}: leave it out")
            if self.framework != "tensorflow":
                raise ValueError(f"'framework' has no effect: {why}: leave it out")
        elif self.framework in self.params.not_on:
            raise ValueError(f"framework: '{self.family}' isn't trained by {self.framework}: {self.params.not_on[self.framework]}")
        elif vain := [name for name, value in Training() if name in self.params.cannot and getattr(self.train, name) != value]:
            raise ValueError(f"train: '{self.family}' has no '{vain[0]}': {self.params.cannot[vain[0]]}: leave it out")
        elif self.train.processes > 1 and ":" in self.family:
            raise ValueError("train: 'processes' has no effect: a family of one's own trains in one process: leave it out")
        elif self.train.processes > 1 and self.framework != "torch":
            raise ValueError(f"train.processes: {self.framework} trains in one process here: say framework: torch, or leave it out")
        return self

    @model_validator(mode="after")
    def _reject_what_the_framework_lacks(self) -> Model:
        if self.train.resident and self.framework != "torch":
            raise ValueError(f"train.resident: {self.framework} takes batches of the host here: say framework: torch, or leave it out")
        if self.train.resident and self.train.processes > 1:
            raise ValueError("train.resident: several processes take batches of the host: leave it out, or processes")
        if self.framework == "jax" and self.train.compile:
            raise ValueError("train: 'compile' has no effect: jax compiles every step: leave it out")
        return self

    @model_validator(mode="after")
    def _tunes_what_there_is(self) -> Model:
        for name in self.tune:
            part, _, key = name.partition(".")
            settings = set(Training.model_fields) if part == "train" else set(type(self.params).model_fields)
            if name == "train.seed":
                raise ValueError("tune: 'train.seed' isn't searched: the luckiest seed is no better a model")
            if part == "train" and self.params.no_steps is not None and key not in self.params.heeds:
                raise ValueError(f"tune: '{name}' has no effect: {self.params.no_steps}: leave it out")
            if part == "train" and key in self.params.cannot:
                raise ValueError(f"tune: '{self.family}' has no '{key}': {self.params.cannot[key]}: leave it out")
            if key not in settings and (part == "train" or isinstance(self.params, FamilyParams)):
                raise unknown_name(f"setting of {self.family}", name, [f"{part}.{setting}" for setting in settings])
        return self


def _with_usual(value: dict[str, Any], family: Any) -> dict[str, Any]:
    """Adds the family's own defaults of `train`; settings of the spec override them."""
    kind, params, train = Model.FAMILIES.get(str(family)), value.get("params", {}), value.get("train", {})
    if kind is None or not isinstance(params, Mapping) or not isinstance(train, Mapping):
        return value
    usual = kind.usual(params)
    return {**value, "train": {**usual, **train}} if usual else value


def model_named(name: str, params: Mapping[str, Any] | None = None, train: Mapping[str, Any] | None = None) -> Model:
    """Returns the model of a family or preset, with custom settings."""
    return Model.model_validate({"preset" if name in PRESETS else "family": name, "params": dict(params or {}), "train": dict(train or {})})
