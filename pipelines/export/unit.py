"""Served unit: features and model merged into one ONNX graph, from raw columns to `score`.

Features are outputs too, so that `verify` can compare them with training's; requests for `score` alone pay nothing for these outputs.
Weights too large for the graph are in one file next to it, which runtimes map into memory and read by row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from pipelines.features.columns import Raw
from pipelines.features.graph import IR_VERSION, Graph
from pipelines.features.onnx_builder import tensor_info
from pipelines.features.operators.base import RECENT, RECENT_LIST, output_name
from pipelines.models.external_weights import SMALLEST, ExternalArray, ExternalWeights
from pipelines.models.family import Trained
from pipelines.models.recent_items import lower_model
from shared.contracts.serving import Lists
from shared.domain.errors import Invalid
from shared.serving.external import refuse_others
from shared.serving.signature import OUTPUT, WEIGHTS, Signature

LARGEST = 2**31 - 1
"""Maximum bytes of a protobuf message."""
INLINE = 1 << 28
"""Maximum bytes of a graph with all its weights; otherwise large weights go to a separate file."""
ALIGNED = 4096
"""Page size; memory-mapped weights begin at a page."""
_LEAST = 64
"""Minimum bytes of an external tensor: runtimes read shapes and axes from the graph before they run it."""
_PREFIX = "model/"


def write_unit(
    graph: Graph,
    model: Trained,
    path: Path,
    limit: int | None = None,
    lists: Lists = "padded",
    inline: int = INLINE,
    recent: Raw | None = None,
) -> dict[str, Path]:
    """Writes the graph, and `weights.bin` if both together exceed `inline` bytes; returns the files by name.

    `recent`: the input of the user's recent items, for a model that reads them. Inputs keep the data's names (`movieId` stays `movieId`);
    the number of rows is free.
    """
    import onnx

    beside = ExternalWeights(min(SMALLEST, max(inline, _LEAST)))
    features, lowered = graph.lower(limit, lists, recent), lower_model(model, beside, None if recent is None else recent.width)
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
        raise Invalid(
            f"model.onnx would take {size / 1e9:.2f} GB; the limit of a graph without its weights is 2.14 GB: choose a larger min_count"
        )
    path.write_bytes(unit.SerializeToString())
    del unit
    onnx.checker.check_model(str(path), full_check=True)  # by path: the checker ignores external data
    refuse_others(path, files[WEIGHTS].stat().st_size if WEIGHTS in files else None)
    return files


def named(served: Signature, files: Collection[str]) -> Signature:
    """Adds the weights file to the signature, if there is one."""
    return served.model_copy(update={"weights": WEIGHTS}) if WEIGHTS in files else served


def fill(unit: Any, beside: ExternalWeights) -> None:
    """Puts external weights into the graph."""
    for tensor, weights in _marks(unit, beside):
        tensor.raw_data = b"".join(chunk.tobytes() for chunk in weights.chunks())


def write_beside(unit: Any, beside: ExternalWeights, path: Path) -> Path:
    """Writes external weights chunk by chunk, and their locations into the graph."""
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


def _refuse_files(model: Any) -> None:
    """Rejects a family's own external files: they would not be published."""
    from onnx import external_data_helper

    for tensor in model.graph.initializer:
        if external_data_helper.uses_external_data(tensor):
            raise Invalid(
                f"the model's graph reads '{tensor.name}' from a file: use the array itself; the export writes large arrays to a file"
            )


def merge(features: Any, model: Any) -> Any:
    """Joins features and a lowered model, whose inputs have the features' names."""
    import onnx

    codes = [output for output in features.graph.output if output.name not in (output_name(RECENT), output_name(RECENT_LIST))]
    model.ir_version = IR_VERSION
    links = [(output_name(feature.name), _PREFIX + feature.name) for feature in model.graph.input]
    # onnx prefixes initializers only after the bodies of loops, which read them
    names = {tensor.name: _PREFIX + tensor.name for tensor in model.graph.initializer} | {model.graph.output[0].name: OUTPUT}
    onnx.compose.add_prefix_graph(model.graph, _PREFIX, rename_outputs=False, inplace=True, name_map=names)
    unit = onnx.compose.merge_models(features, model, io_map=links)
    del unit.graph.output[:], unit.graph.value_info[:]
    unit.graph.output.extend([tensor_info(OUTPUT, "FLOAT", "N"), *codes])
    return unit
