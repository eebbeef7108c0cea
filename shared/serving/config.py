"""Triton configuration of a model: typed values that are written as config.pbtxt.

The same file works with the native onnxruntime backend (cluster) and the Python backend of the embedded server. By default there is no
dynamic batching, because the gateway's single call for a catalogue is a batch already; a batching model takes rows as [rows, 1].
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shared.serving.pbtext import EnumWord, Message, Value, write
from shared.serving.signature import DataType, FeatureType, Signature, Tensor

_TYPES: dict[DataType | FeatureType, EnumWord] = {
    "int64": EnumWord("TYPE_INT64"),
    "int32": EnumWord("TYPE_INT32"),
    "float32": EnumWord("TYPE_FP32"),
    "string": EnumWord("TYPE_STRING"),
}


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
            "instance_group": {"count": self.instances, "kind": EnumWord("KIND_CPU")},
            "version_policy": {"specific": {"versions": sorted(set(self.versions))}},
        }
        if self.batching:
            dynamic_batching: Message = {
                "preferred_batch_size": self.batching.preferred,
                "max_queue_delay_microseconds": self.batching.delay_us,
            }
            message["dynamic_batching"] = dynamic_batching
        if self.warm_up:
            message["model_warmup"] = self.warm_up.message(self.inputs, batched)
        return write(message)


def model_config(name: str, signature: Signature, versions: Iterable[int]) -> ModelConfig:
    """Returns the platform's configuration of a unit."""
    return ModelConfig(
        name=name,
        backend=signature.backend,
        inputs=signature.tensors,
        outputs=(
            Tensor(signature.output, "float32"),
            *(Tensor(feature.output, feature.dtype, feature.width) for feature in signature.features),
        ),
        versions=tuple(versions),
        instances=signature.instances,
        warm_up=WarmUp(signature.warm_up) if signature.warm_up else None,
    )


def _message(tensor: Tensor, batched: bool) -> Message:
    base: Message = {"name": tensor.name, "data_type": _TYPES[tensor.dtype]}
    if not batched:
        return {**base, "dims": [-1] if tensor.width is None else [-1, tensor.width]}
    if tensor.width is None:  # Triton has no tensors without dimensions, so [rows, 1] outside and [rows] inside
        return {**base, "dims": [1], "reshape": {"shape": []}}
    return {**base, "dims": [tensor.width]}
