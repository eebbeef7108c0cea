"""The served unit: features and model merged into one ONNX graph, from raw columns to `score`.

What the features made of each column is an output too, so that `verify` can hold it against training's: who asks for `score`
alone doesn't pay for it. Weights that would outgrow the graph lie in one file beside it, which a runtime maps and reads the rows of that it
is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from pipelines.features.graph import IR_VERSION, Graph
from pipelines.features.operators.base import output_name
from pipelines.models.external_weights import SMALLEST, ExternalArray, ExternalWeights, LowersExternalWeights
from pipelines.models.family import Trained
from shared.contracts.serving import Lists
from shared.domain.errors import Invalid
from shared.serving.external import refuse_others
from shared.serving.signature import OUTPUT, WEIGHTS, Signature

LARGEST = 2**31 - 1
"""Bytes of a protobuf message."""
INLINE = 1 << 28
"""Bytes of a graph with all its weights; of a larger one, those that are large lie in a file beside it."""
ALIGNED = 4096
"""What a runtime maps into memory begins with a page."""
_LEAST = 64
"""Bytes: shapes and axes stay in the graph, where runtimes look at them before they run it."""
_PREFIX = "model/"


def write_unit(
    graph: Graph, model: Trained, path: Path, limit: int | None = None, lists: Lists = "padded", inline: int = INLINE
) -> dict[str, Path]:
    """The files by name: the graph, and beside it `weights.bin`, where both together take more than `inline` bytes.

    Names stay as they are in the data, `movieId` as `movieId`; the number of rows is free.
    """
    import onnx

    beside = ExternalWeights(min(SMALLEST, max(inline, _LEAST)))
    features, lowered = graph.lower(limit, lists), _lowered(model, beside)
    for part in (features, lowered):
        _refuse_files(part)
        beside.take(part)
    unit = merge(features, lowered)
    del features, lowered
    files = {path.name: path}
    if beside.size + unit.ByteSize() <= inline:
        fill(unit, beside)
    else:
        files[WEIGHTS] = write_beside(unit, beside, path.with_name(WEIGHTS))
    size = unit.ByteSize()
    if size > LARGEST:
        raise Invalid(f"model.onnx would take {size / 1e9:.2f} GB; a graph without its weights holds 2.14 GB: choose a larger min_count")
    path.write_bytes(unit.SerializeToString())
    del unit
    onnx.checker.check_model(str(path), full_check=True)  # by its path: the checker doesn't read what lies beside it
    refuse_others(path, files[WEIGHTS].stat().st_size if WEIGHTS in files else None)
    return files


def named(served: Signature, files: Collection[str]) -> Signature:
    """The signature of a unit that was written so."""
    return served.model_copy(update={"weights": WEIGHTS}) if WEIGHTS in files else served


def fill(unit: Any, beside: ExternalWeights) -> None:
    """Puts what is held into the graph."""
    for tensor, weights in _marks(unit, beside):
        tensor.raw_data = b"".join(chunk.tobytes() for chunk in weights.chunks())


def write_beside(unit: Any, beside: ExternalWeights, path: Path) -> Path:
    """Writes what is held, piece by piece, and says in the graph where each lies."""
    from onnx import TensorProto

    with path.open("wb") as stream:
        for tensor, weights in _marks(unit, beside):
            stream.seek(-(-stream.tell() // ALIGNED) * ALIGNED)
            begin = stream.tell()
            for chunk in weights.chunks():
                chunk.tofile(stream)
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", path.name), ("offset", begin), ("length", stream.tell() - begin)):
                tensor.external_data.add(key=key, value=str(value))
    return path


def _marks(unit: Any, beside: ExternalWeights) -> Iterator[tuple[Any, ExternalArray]]:
    for tensor in unit.graph.initializer:
        weights = beside.of(tensor)
        if weights is not None:
            tensor.ClearField("doc_string")
            tensor.dims[:] = weights.dims
            yield tensor, weights


def _lowered(model: Trained, beside: ExternalWeights) -> Any:
    return model.lower_beside(beside) if isinstance(model, LowersExternalWeights) else model.lower()


def _refuse_files(model: Any) -> None:
    """A family's own: what lies in a file of its own would not be published."""
    from onnx import external_data_helper

    for tensor in model.graph.initializer:
        if external_data_helper.uses_external_data(tensor):
            raise Invalid(
                f"the model's graph takes '{tensor.name}' from a file: give the array itself, and export puts it where it belongs"
            )


def merge(features: Any, model: Any) -> Any:
    """Puts the features in front of a lowered model: its inputs are features, under their names."""
    import onnx

    codes = list(features.graph.output)
    model.ir_version = IR_VERSION
    links = [(output_name(feature.name), _PREFIX + feature.name) for feature in model.graph.input]
    unit = onnx.compose.merge_models(features, _prefixed(model), io_map=links)
    _rename(unit, _PREFIX + model.graph.output[0].name, OUTPUT)
    unit.graph.output.extend(codes)
    del unit.graph.value_info[:]
    return unit


def _prefixed(model: Any) -> Any:
    """In the body of a loop onnx renames what nodes and inputs around it give, and forgets what is an initializer there."""
    import onnx

    prefixed = onnx.compose.add_prefix(model, _PREFIX)
    initializers = {tensor.name for tensor in prefixed.graph.initializer}
    for body in (attribute.g for node in prefixed.graph.node for attribute in node.attribute if attribute.HasField("g")):
        for node in body.node:
            for at, name in enumerate(node.input):
                if _PREFIX + name in initializers:
                    node.input[at] = _PREFIX + name
    return prefixed


def _rename(unit: Any, old: str, new: str) -> None:
    from onnx import TensorProto, helper

    for node in unit.graph.node:
        for names in (node.input, node.output):
            for at, name in enumerate(names):
                if name == old:
                    names[at] = new
    del unit.graph.output[:]
    unit.graph.output.append(helper.make_tensor_value_info(new, TensorProto.FLOAT, ["N"]))
