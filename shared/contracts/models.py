"""The spec's `model`: the family, its parameters and its training."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from shared.contracts import families
from shared.contracts.families import FamilyParams, Params, params_of
from shared.contracts.presets import with_preset
from shared.contracts.quantities import Fraction
from shared.contracts.ranges import NumberRange
from shared.contracts.strict import Strict, unknown_name, without_default
from shared.contracts.training import FULL, SAMPLED, Checkpoints, EarlyStop, LookMetric, Schedule, Target


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
Epochs = Annotated[
    Annotated[int, Field(ge=1, le=1000)] | None,
    BeforeValidator(lambda value: None if value == "auto" else value),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1, "maximum": 1000}, {"const": "auto"}, {"type": "null"}]}),
]
"""None: chosen by a rule."""
LossScale = Annotated[float, Field(ge=1, le=2**24)]


class Training(Strict):
    epochs: Epochs = Field(
        5,
        description="Number of passes over the training rows. `auto`, for `session`: chosen by a rule when training starts, for about "
        "2,500 steps, from 8 passes to 40.",
    )
    batch_size: BatchSize = Field(
        None,
        description="Rows per step, including sampled negatives. `auto` or absent: chosen by a rule when training starts, from 8,192 for "
        "wide layers to 65,536 for narrow ones, less for long lists; an epoch has at least 256 steps, but a step at least 1,024 rows. "
        "`eyas features explain` and the log show it.",
    )
    optimizer: Literal["adam", "adagrad", "sgd"] = Field(
        "adam",
        description="Optimizer of the weights. In embedding tables it updates only the rows of the batch: `adam` keeps the moments of "
        "other rows, `adagrad` stores one number per row.",
    )
    learning_rate: float = Field(0.003, gt=0, le=10, description="Learning rate of the optimizer.")
    schedule: Schedule = Field(
        "constant",
        description="When the learning rate falls to a tenth: never (`constant`); after two validations without improvement, up to "
        "three times (`plateau`); or after these epochs, such as [4, 6]. A refit lowers it after the same epochs as the training.",
    )
    seed: int = Field(1, ge=0, description="Seed of weights, shuffling and negatives.")
    mixed_precision: bool | Literal["bfloat16", "float16"] = Field(
        False,
        description="Whether layers compute in half precision, for machines with instructions for it: `true` or `bfloat16`, or `float16` "
        "with a scaled loss. Weights stay float32.",
    )
    loss_scale: LossScale | Literal["dynamic"] | None = Field(
        None,
        description="Factor of the loss for float16, so that small gradients do not vanish: a number such as 128, or `dynamic`, which "
        "begins at 32,768, is halved when a gradient overflows and doubled after 2,000 steps without an overflow. Steps with an overflow "
        "are skipped and counted. Absent: `dynamic`.",
    )
    resident: bool = Field(
        False,
        description="Whether all rows are kept on the training device: each epoch's order, negatives and batches are made there. Needs "
        "`framework: torch`, and half of the device's memory for the rows.",
    )
    compile: bool | Literal["graphs"] = Field(
        False,
        description="Whether layers and their gradients are compiled: by XLA on TensorFlow, by torch.compile on torch, which needs a C++ "
        "compiler where the stage runs. JAX always compiles. `graphs`: CUDA graphs of torch.compile start all kernels together; needs "
        "`resident` and a GPU, and is not tested on one.",
    )
    validation: Fraction = Field(
        0,
        ge=0,
        le=0.5,
        description="Share of the training rows, drawn by the seed, that is held out to validate each epoch: the log and the stage's "
        "metrics show their loss and AUC, with sampled negatives. The holdout of the gates is separate. The best epoch by "
        "`early_stop.metric`, or by AUC, is published. Absent: 5% with `early_stop`, `target` or `schedule: plateau`.",
    )
    validate_from: int = Field(1, ge=1, description="First epoch after which the held-out rows are evaluated.")
    early_stop: EarlyStop | None = Field(None, description="Ends training when the held-out rows no longer improve.")
    target: Target | None = Field(None, description="A value whose time to reach is in the training report.")
    processes: int = Field(
        1,
        ge=1,
        le=64,
        description="Number of processes that train one model together, each on its part of every step's rows: on one machine, or as pods "
        "of one Job. Needs `framework: torch`; the steps equal those of one process, up to rounding.",
    )
    shard: Literal["row", "column", "table"] | None = Field(
        None,
        description="Distribution of embedding tables over the processes; if absent, each process holds all of them. `row`: some rows of "
        "every table, `column`: some columns of every table, `table`: whole tables. Needs `optimizer: sgd` or, except for `column`, "
        "`adagrad`; and TorchRec where the stage runs (make setup-torch).",
    )
    cold_rows: Literal["host"] | None = Field(
        None,
        description="With `shard` and a GPU for each process: `host` keeps the tables in host memory, and a cache of a fifth of their rows "
        "in GPU memory. Absent: all rows are in GPU memory.",
    )
    checkpoint: Checkpoints | None = Field(
        Checkpoints(),
        description="Checkpoints from which a killed stage continues; null: it starts again.",
        json_schema_extra=without_default,
    )

    @model_validator(mode="before")
    @classmethod
    def _check_validation(cls, value: Any) -> Any:
        if isinstance(value, dict) and "validation" not in value and _needs_validation(value):
            return {**value, "validation": 0.05}
        return value

    @field_validator("mixed_precision", mode="before")
    @classmethod
    def _check_precision(cls, value: Any) -> Any:
        if not isinstance(value, bool) and value not in ("bfloat16", "float16"):
            raise ValueError(f"expected true, false, 'bfloat16' or 'float16', got {value!r}")
        return value

    @field_validator("compile", mode="before")
    @classmethod
    def _check_compile(cls, value: Any) -> Any:
        if not isinstance(value, bool) and value != "graphs":
            raise ValueError(f"expected true, false or 'graphs', got {value!r}")
        return value

    @field_validator("loss_scale", mode="before")
    @classmethod
    def _check_loss_scale(cls, value: Any) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 2**24
        if value is not None and value != "dynamic" and not number:
            raise ValueError(f"expected 'dynamic' or a number from 1 to 16777216, got {value!r}")
        return value

    @model_validator(mode="after")
    def _check_scaling(self) -> Training:
        if self.loss_scale is not None and self.mixed_precision != "float16":
            raise ValueError("'loss_scale' has no effect without float16; set mixed_precision: float16, or leave it out")
        if self.mixed_precision == "float16" and self.processes > 1:
            raise ValueError("mixed_precision: float16 does not support several processes; set bfloat16, or processes: 1")
        return self

    @model_validator(mode="after")
    def _check_graphs(self) -> Training:
        if self.compile == "graphs" and not self.resident:
            raise ValueError("compile: graphs needs batches on the device; set resident: true, or compile: true")
        return self

    @model_validator(mode="after")
    def _check_early_stop(self) -> Training:
        if not self.validation:
            wanted = {"early_stop": self.early_stop, "target": self.target, "validate_from": self.validate_from > 1}
            wanted |= {"schedule": self.schedule == "plateau"}
            idle = next((name for name, value in wanted.items() if value), None)
            if idle is not None:
                raise ValueError(f"'{idle}' has no effect: no rows are held out; set validation, such as 0.05")
        elif self.epochs is not None and self.validate_from > self.epochs:
            raise ValueError(f"validate_from: {self.validate_from} is greater than epochs, {self.epochs}")
        if self.ranked & FULL and self.ranked & SAMPLED:
            raise ValueError("early_stop.metric and target.metric must rank among the same items; use /99 in both or in neither")
        return self

    @model_validator(mode="after")
    def _check_schedule(self) -> Training:
        fixed = next((name for name in ("resident", "shard") if getattr(self, name)), None)
        if self.schedule != "constant" and fixed is not None:
            raise ValueError(f"schedule: with '{fixed}' the learning rate is constant; leave out schedule or {fixed}")
        return self

    @model_validator(mode="after")
    def _check_sharding(self) -> Training:
        if self.batch_size is not None and self.batch_size < self.processes:
            raise ValueError(
                f"batch_size: {self.batch_size} rows are too few for {self.processes} processes; set one row per process or more"
            )
        if self.shard is None:
            if self.cold_rows is not None:
                raise ValueError("'cold_rows' has no effect without 'shard': leave it out, or set shard")
            return self
        if self.processes == 1:
            raise ValueError("'shard' has no effect in one process; set processes, such as 2")
        able = ("sgd",) if self.shard == "column" else ("sgd", "adagrad")
        if self.optimizer not in able:
            raise ValueError(
                f"shard: {self.shard} does not support optimizer: {self.optimizer}; set {' or '.join(able)}, or leave shard out"
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


def _needs_validation(value: Mapping[str, Any]) -> bool:
    return bool(value.get("early_stop") or value.get("target") or value.get("schedule") == "plateau")


def _params(value: Any, info: ValidationInfo) -> Any:
    """Parsed by the family that the spec names."""
    kind = params_of(str(info.data.get("family")))
    return value if kind is None or isinstance(value, kind) else kind.model_validate(value)


_TUNED = r"^(params|train)\..+$"


class Model(Strict):
    FAMILIES: ClassVar[Mapping[str, type[FamilyParams]]] = families.FAMILIES

    family: str = Field(
        "mlp",
        description="Model family (`eyas models` lists them), or `module:Class`: a custom family from a module that the operator allows. A "
        "popularity baseline is always trained, too.",
    )
    framework: Literal["tensorflow", "torch", "jax"] = Field(
        "tensorflow",
        description="Framework that trains families with steps, by Keras. `torch` and `jax` must be installed where the stage runs (make "
        "setup-torch, make setup-jax); evaluation and serving do not depend on it.",
    )
    params: Annotated[Params, BeforeValidator(_params)] = Field(
        {}, validate_default=True, description="Parameters of the family.", json_schema_extra=without_default
    )
    train: Training = Field(Training(), description="Settings of the training.")
    baseline: Literal["itemknn", "ease", "mf", "transitions"] | None = Field(
        None,
        exclude_if=lambda name: name is None,
        description="Family that is trained and evaluated beside each candidate, with its own defaults; gates name it `baseline`. "
        "Popularity is always evaluated, too.",
    )
    preset: str | None = Field(
        None,
        exclude_if=lambda name: name is None,
        description="Name of tuned settings (see Presets, or `eyas models`); other settings of the spec override them.",
    )
    tune: dict[Annotated[str, Field(pattern=_TUNED)], NumberRange] = Field(
        {},
        exclude_if=lambda ranges: not ranges,
        description="Search ranges of `eyas tune`, by setting: `params.width: {from: 8, to: 64, log: true}`, `train.epochs: {of: [5, 9]}`. "
        "Runs of the platform do not search: they use `params` and `train`.",
    )

    @model_validator(mode="before")
    @classmethod
    def _check_family(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("preset"), str):
            value = with_preset(value)
        if isinstance(value, dict):
            family = value.get("family", "mlp")
            if isinstance(family, str) and params_of(family) is None:
                raise unknown_name("model family", family, cls.FAMILIES)
            value = _with_usual(value, family)
            ranges = value.get("tune")
            if odd := [name for name in ranges if not re.match(_TUNED, str(name))] if isinstance(ranges, dict) else []:
                raise ValueError(f"tune: unknown setting '{odd[0]}'; write params.{odd[0]} or train.{odd[0]}")
        return value

    @model_validator(mode="after")
    def _reject_settings_without_effect(self) -> Model:
        if self.baseline == self.family:
            raise ValueError(f"baseline: '{self.baseline}' is the model's own family; choose another family")
        why = self.params.no_steps
        if why is not None:
            idle = [name for name, value in Training() if name not in self.params.heeds and getattr(self.train, name) != value]
            if idle:
                raise ValueError(f"train: '{idle[0]}' has no effect: {why}; leave it out")
            if self.framework != "tensorflow":
                raise ValueError(f"'framework' has no effect: {why}; leave it out")
        elif self.framework in self.params.not_on:
            raise ValueError(f"framework: {self.framework} cannot train '{self.family}': {self.params.not_on[self.framework]}")
        elif vain := [name for name, value in Training() if name in self.params.cannot and getattr(self.train, name) != value]:
            raise ValueError(f"train: '{self.family}' does not support '{vain[0]}': {self.params.cannot[vain[0]]}; leave it out")
        elif self.train.epochs is None and not self.params.chooses_epochs:
            raise ValueError(f"train: '{self.family}' does not choose 'epochs' by itself; write a number")
        elif self.train.processes > 1 and ":" in self.family:
            raise ValueError("train: 'processes' has no effect: a custom family trains in one process; leave it out")
        elif self.train.processes > 1 and self.framework != "torch":
            raise ValueError(f"train.processes: {self.framework} trains in one process; set framework: torch, or leave it out")
        return self

    @model_validator(mode="after")
    def _reject_what_the_framework_lacks(self) -> Model:
        if self.train.resident and self.framework != "torch":
            raise ValueError(f"train.resident: {self.framework} reads batches from the host; set framework: torch, or leave it out")
        if self.train.resident and self.train.processes > 1:
            raise ValueError("train.resident: several processes read batches from the host; leave out resident or processes")
        if self.framework == "jax" and self.train.compile:
            raise ValueError("train: 'compile' has no effect: jax compiles every step; leave it out")
        return self

    @model_validator(mode="after")
    def _check_tuning(self) -> Model:
        for name in self.tune:
            part, _, key = name.partition(".")
            settings = set(Training.model_fields) if part == "train" else set(type(self.params).model_fields)
            if name == "train.seed":
                raise ValueError("tune: 'train.seed' cannot be tuned: a lucky seed is not a better model")
            if part == "train" and self.params.no_steps is not None and key not in self.params.heeds:
                raise ValueError(f"tune: '{name}' has no effect: {self.params.no_steps}; leave it out")
            if part == "train" and key in self.params.cannot:
                raise ValueError(f"tune: '{self.family}' does not support '{key}': {self.params.cannot[key]}; leave it out")
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
