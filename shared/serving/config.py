"""Triton configuration of a model: typed values that are written as config.pbtxt.

The same file works with the native onnxruntime backend and the Python backend of the embedded server. There is no dynamic batching on CPUs,
because the gateway's single call for a catalogue is a batch already; a batching model takes rows as [rows, 1].

On a server with a GPU, a unit in steps is an ensemble of one model for each step. An ensemble names the versions of its steps, and its
configuration is common to all its versions, so each version has an ensemble of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from shared.serving.pbtext import EnumWord, Message, Value, write
from shared.serving.signature import DataType, FeatureType, Signature, Step, Tensor

_TYPES: dict[DataType | FeatureType, EnumWord] = {
    "int64": EnumWord("TYPE_INT64"),
    "int32": EnumWord("TYPE_INT32"),
    "float32": EnumWord("TYPE_FP32"),
    "string": EnumWord("TYPE_STRING"),
}
ROWS = 1 << 22
"""Maximum number of rows that a step computes at once. A single call cannot have more rows."""
ONE_THREAD = {"intra_op_thread_count": "1", "inter_op_thread_count": "1"}
"""Parameters of the native onnxruntime backend, which by default starts a thread for each core; the embedded server's ignores them."""
TREES = {"model_type": "treelite_checkpoint", "is_classifier": "false", "output_class": "false"}
"""Parameters of the FIL backend: the output is the sum of the leaves. `output_class` is the former name of `is_classifier`."""


@dataclass(frozen=True)
class Batching:
    """Calls wait at most `delay_us` for others, with at most `rows` together; larger calls are rejected."""

    rows: int
    preferred: tuple[int, ...] = ()
    delay_us: int = 0

    def __post_init__(self) -> None:
        if self.rows < 1 or self.delay_us < 0 or any(not 0 < size <= self.rows for size in self.preferred):
            raise ValueError(f"batching: expected 1 row or more, a delay of 0 or more, and preferred sizes of 1 to {self.rows} rows")


@dataclass(frozen=True)
class WarmUp:
    """Call with `rows` rows of zeros and empty texts, `count` times, before a version is ready."""

    rows: int
    count: int = 1

    def message(self, inputs: Iterable[Tensor], batched: bool) -> Message:
        values: list[Message] = [
            {"key": tensor.name, "value": {"data_type": _TYPES[tensor.dtype], "dims": self._dims(tensor, batched), "zero_data": True}}
            for tensor in inputs
        ]
        return {"name": "first", "batch_size": self.rows if batched else 0, "inputs": values, "count": self.count}

    def _dims(self, tensor: Tensor, batched: bool) -> list[int]:
        inner = [] if tensor.width is None else [tensor.width]
        return (inner or [1]) if batched else [tensor.count(self.rows), *inner]


@dataclass(frozen=True)
class ModelConfig:
    """`versions` are the served ones: always explicit, never `latest` or `all`."""

    name: str
    backend: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    versions: tuple[int, ...]
    file: str = ""
    """Set if it is not the backend's default, which the embedded server's backend would run as its program."""
    instances: int = 1
    batching: Batching | None = None
    warm_up: WarmUp | None = None
    kind: Literal["KIND_CPU", "KIND_GPU"] = "KIND_CPU"
    parameters: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        batched = self.batching is not None
        if batched and (odd := [tensor.name for tensor in self.inputs if tensor.each != "row"]):
            raise ValueError(f"batching: '{odd[0]}' does not have one value per row; a model that batches needs padded lists")
        message: dict[str, Value] = {
            "name": self.name,
            "backend": self.backend,
            **({"default_model_filename": self.file} if self.file else {}),
            "max_batch_size": self.batching.rows if self.batching else 0,
            "input": [_message(tensor, batched) for tensor in self.inputs],
            "output": [_message(tensor, batched) for tensor in self.outputs],
            "instance_group": {"count": self.instances, "kind": EnumWord(self.kind)},
            "version_policy": {"specific": {"versions": sorted(set(self.versions))}},
        }
        if self.batching:
            dynamic_batching: Message = {
                "preferred_batch_size": self.batching.preferred,
                "max_queue_delay_microseconds": self.batching.delay_us,
            }
            message["dynamic_batching"] = dynamic_batching
        if self.parameters:
            parameters: list[Message] = [{"key": key, "value": {"string_value": value}} for key, value in self.parameters.items()]
            message["parameters"] = parameters
        if self.warm_up:
            message["model_warmup"] = self.warm_up.message(self.inputs, batched)
        return write(message)


def model_config(name: str, signature: Signature, versions: Iterable[int]) -> ModelConfig:
    """Returns the configuration of a unit as one model."""
    return ModelConfig(
        name=name,
        backend=signature.backend,
        inputs=signature.tensors,
        outputs=_outputs(signature),
        versions=tuple(versions),
        instances=signature.instances,
        warm_up=WarmUp(signature.warm_up) if signature.warm_up else None,
        parameters=ONE_THREAD,
    )


def server_configs(name: str, signature: Signature, versions: Iterable[int], gpu: bool) -> dict[str, str]:
    """Returns the text of each model's config.pbtxt on a server with or without a GPU; the unit's own comes last."""
    unit = model_config(name, signature, versions)
    if not gpu or not signature.steps:
        return {name: unit.text()}
    steps = [_step_config(name, step, signature, unit.versions) for step in signature.steps]
    return {config.name: config.text() for config in steps} | {name: _ensemble(unit, signature)}


def step_model(name: str, step: Step) -> str:
    return f"{name}.{step.name}"


def _step_config(name: str, step: Step, signature: Signature, versions: tuple[int, ...]) -> ModelConfig:
    gpu = step.device == "gpu"
    warm_up = max(signature.warm_up, 1 if gpu else 0)  # the first call on a GPU takes seconds
    return ModelConfig(
        step_model(name, step),
        step.backend,
        tuple(tensor.own for tensor in step.inputs),
        tuple(tensor.own for tensor in step.outputs),
        versions,
        instances=signature.instances,
        batching=Batching(ROWS) if step.batches else None,
        warm_up=WarmUp(warm_up) if warm_up else None,
        kind="KIND_GPU" if gpu else "KIND_CPU",
        parameters=TREES if step.backend == "fil" else {} if gpu else ONE_THREAD,
    )


def _ensemble(unit: ModelConfig, signature: Signature) -> str:
    (version,) = unit.versions
    score, *features = [_message(tensor, False) for tensor in unit.outputs]
    inside: Message = {"reshape": {"shape": [-1, 1]}} if signature.steps[-1].batches else {}
    steps: list[Message] = [
        {
            "model_name": step_model(unit.name, step),
            "model_version": version,
            "input_map": [{"key": tensor.name, "value": tensor.tensor} for tensor in step.inputs],
            "output_map": [{"key": tensor.name, "value": tensor.tensor} for tensor in step.outputs],
        }
        for step in signature.steps
    ]
    message: dict[str, Value] = {
        "name": unit.name,
        "platform": "ensemble",
        "max_batch_size": 0,
        "input": [_message(tensor, False) for tensor in unit.inputs],
        "output": [{**score, **inside}, *features],
        "version_policy": {"specific": {"versions": [version]}},
        "ensemble_scheduling": {"step": steps},
    }
    return write(message)


def _outputs(signature: Signature) -> tuple[Tensor, ...]:
    features = (Tensor(feature.output, feature.dtype, feature.width) for feature in signature.features)
    return Tensor(signature.output, "float32"), *features


def _message(tensor: Tensor, batched: bool) -> Message:
    base: Message = {"name": tensor.name, "data_type": _TYPES[tensor.dtype]}
    if not batched:
        return {**base, "dims": [-1] if tensor.width is None else [-1, tensor.width]}
    if tensor.width is None:  # Triton has no tensors without dimensions, so [rows, 1] outside and [rows] inside
        return {**base, "dims": [1], "reshape": {"shape": []}}
    return {**base, "dims": [tensor.width]}
