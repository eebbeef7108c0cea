"""Served unit: features and model merged into one ONNX graph, from raw columns to `score`.

Features are outputs too, so that `verify` can compare them with training's; requests for `score` alone pay nothing for these outputs.
Weights too large for the graph are in one file next to it, which runtimes map into memory and read by row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.export.merging import merge
from pipelines.export.steps import FEATURES, TREES, steps_of
from pipelines.features.columns import Raw
from pipelines.features.graph import Graph
from pipelines.models.external_weights import SMALLEST, ExternalArray, ExternalWeights
from pipelines.models.family import Trained
from pipelines.models.recent_items import lower_model
from shared.contracts.serving import Lists
from shared.domain.errors import Invalid
from shared.serving.external import refuse_others
from shared.serving.signature import WEIGHTS, Signature

LARGEST = 2**31 - 1
"""Maximum bytes of a protobuf message."""
INLINE = 1 << 28
"""Maximum bytes of a graph with all its weights; otherwise large weights go to a separate file."""
ALIGNED = 4096
"""Page size; memory-mapped weights begin at a page."""
_LEAST = 64
"""Minimum bytes of an external tensor: runtimes read shapes and axes from the graph before they run it."""


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
    beside = ExternalWeights(min(SMALLEST, max(inline, _LEAST)))
    features, lowered = _lowered(graph, model, beside, limit, lists, recent)
    unit = merge(features, lowered)
    del features, lowered
    if beside.size + unit.ByteSize() > inline:
        return _written({path.name: unit}, path.parent, beside)
    fill(unit, beside)
    return _written({path.name: unit}, path.parent, None)


def write_unit_in_steps(
    graph: Graph,
    model: Trained,
    served: Signature,
    path: Path,
    limit: int | None = None,
    lists: Lists = "padded",
    recent: Raw | None = None,
    smallest: int = SMALLEST,
) -> tuple[dict[str, Path], Signature]:
    """Writes the graph, the files of its steps, and `weights.bin` for all of them; returns the files, and the signature with the steps."""
    beside = ExternalWeights(smallest)
    features, lowered = _lowered(graph, model, beside, limit, lists, recent)
    steps = steps_of(features, lowered, model)
    unit = merge(features, lowered)
    del features, lowered
    names = [step.file for step in steps.following() if step.file.endswith(".onnx")]
    graphs = {path.name: unit, FEATURES: steps.features} | dict.fromkeys(names, steps.last)
    files = _written(graphs, path.parent, beside if beside.size else None)
    if steps.trees is not None:
        files[TREES] = path.with_name(TREES)
        steps.trees.trees.treelite(len(steps.trees.layout.columns)).serialize(files[TREES])
    return files, steps.of(served)


def named(served: Signature, files: Collection[str]) -> Signature:
    """Adds the weights file to the signature, if there is one."""
    return served.model_copy(update={"weights": WEIGHTS}) if WEIGHTS in files else served


def _lowered(graph: Graph, model: Trained, beside: ExternalWeights, limit: int | None, lists: Lists, recent: Raw | None) -> tuple[Any, Any]:
    """Returns the graphs of features and model, whose large weights `beside` has."""
    features, lowered = graph.lower(limit, lists, recent), lower_model(model, beside, None if recent is None else recent.width)
    for part in (features, lowered):
        _refuse_files(part)
        beside.take(part)
    return features, lowered


def _written(graphs: Mapping[str, Any], folder: Path, beside: ExternalWeights | None) -> dict[str, Path]:
    """Writes and checks the graphs, with the weights that they have outside, if any."""
    import onnx

    files = {name: folder / name for name in graphs}
    if beside is not None:
        files[WEIGHTS] = write_beside(graphs.values(), beside, folder / WEIGHTS)
    for name, graph in graphs.items():
        size = graph.ByteSize()
        if size > LARGEST:
            raise Invalid(
                f"{name} would take {size / 1e9:.2f} GB; the limit of a graph without its weights is 2.14 GB: choose a larger min_count"
            )
        files[name].write_bytes(graph.SerializeToString())
        graph.Clear()
        onnx.checker.check_model(str(files[name]), full_check=True)  # by path: the checker ignores external data
        refuse_others(files[name], files[WEIGHTS].stat().st_size if WEIGHTS in files else None)
    return files


def fill(unit: Any, beside: ExternalWeights) -> None:
    """Puts external weights into the graph."""
    for tensor, weights in _marks(unit, beside):
        tensor.raw_data = b"".join(chunk.tobytes() for chunk in weights.chunks())


def write_beside(graphs: Iterable[Any], beside: ExternalWeights, path: Path) -> Path:
    """Writes external weights chunk by chunk, each once, and their locations into the graphs."""
    from onnx import TensorProto

    ranges: dict[ExternalArray, tuple[int, int]] = {}
    with path.open("wb") as stream:
        for tensor, weights in (mark for graph in graphs for mark in _marks(graph, beside)):
            if weights not in ranges:
                stream.seek(-(-stream.tell() // ALIGNED) * ALIGNED)
                begin = stream.tell()
                for chunk in weights.chunks():
                    chunk.tofile(stream)
                ranges[weights] = begin, stream.tell() - begin
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in zip(("location", "offset", "length"), (path.name, *ranges[weights]), strict=True):
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
