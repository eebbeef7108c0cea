"""Converts Keras models and FeatureSpaces: finds the column of each preprocessing layer; ignores the layers behind preprocessing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.features.convert.draft import Entry, LayerValue, NoCounterpart, SpecDraft
from pipelines.features.convert.layers import LAYERS, REFUSED, convert_layer, plain

MODELS = frozenset({"Functional", "Model", "Sequential"})
_PASSING = frozenset({"Reshape", "Flatten", "Identity", "Squeeze", "ExpandDims", "Dropout"})
"""Layers that keep values unchanged."""


def convert_model(draft: SpecDraft, document: Entry) -> None:
    config = document["config"]
    layers = [layer for layer in config.get("layers", ()) if isinstance(layer, Mapping)]
    if document.get("class_name") == "Sequential":
        layers = list(_chained(layers))
    values: dict[tuple[str, int], LayerValue] = {}
    for layer in layers:
        _convert(draft, layer, values)


def _chained(layers: list[Any]) -> Iterator[Entry]:
    """Yields a Sequential's layers with their inputs, in the form of a functional model."""
    if not layers or layers[0].get("class_name") != "InputLayer":
        raise NoCounterpart("a Sequential model does not name its column: begin it with keras.Input(shape, name=COLUMN)")
    before = None
    for layer in layers:
        name = layer.get("config", {}).get("name", "")
        history: list[Any] = [{"args": [{"config": {"keras_history": [before, 0, 0]}}]}] if before else []
        yield {**layer, "name": name, "inbound_nodes": history}
        before = name


def _convert(draft: SpecDraft, layer: Entry, values: dict[tuple[str, int], LayerValue]) -> None:
    kind, config = str(layer.get("class_name")), layer.get("config") or {}
    name = str(layer.get("name") or config.get("name"))
    if kind == "InputLayer":
        values[name, 0] = _input(name, config)
        return
    where = f"{kind} '{name}'"
    calls = [[values[tensor] for tensor in _input_tensors(node) if tensor in values] for node in layer.get("inbound_nodes", ())]
    shared = len(calls) > 1 and kind in ("StringLookup", "IntegerLookup") and config.get("vocabulary") is None
    for number, inputs in enumerate(calls):
        values[name, number] = LayerValue("broken", name)
        with draft.trying(where):
            values[name, number] = _result(draft, kind, name, where, config, inputs)
    if shared:
        draft.faults.append(f"{where}: it is called on {len(calls)} columns: set the same 'vocabulary' in their entries by hand")


def _result(draft: SpecDraft, kind: str, name: str, where: str, config: Entry, inputs: list[LayerValue]) -> LayerValue:
    if kind in MODELS:
        raise NoCounterpart("it is a model inside the model: convert it separately")
    if kind in LAYERS or kind in REFUSED:
        return convert_layer(draft, kind, where, {**config, "class_name": kind}, inputs)
    if kind in _PASSING and len(inputs) == 1:
        return inputs[0]
    for value in inputs:
        if value.kind == "raw":
            _used(draft, kind, where, config, value)
    if kind == "Embedding" and config.get("output_dim"):
        draft.note(where, f"its width {config['output_dim']} is not converted: model.params.width sets one width for all, or a rule does")
    return LayerValue("left", name)


def _used(draft: SpecDraft, kind: str, where: str, config: Entry, value: LayerValue) -> None:
    """Converts a column that enters the model without preprocessing."""
    if kind == "Embedding":
        draft.note(where, f"the numbers of '{value.name}' in the data get codes")
        draft.codes(value, {"max_size": config["input_dim"]} if config.get("input_dim") else {})
    elif value.dtype == "string":
        raise NoCounterpart(f"it takes the text of '{value.name}' without preprocessing")
    elif value.several:
        raise NoCounterpart(f"it takes {value.length or 'several'} numbers per row of '{value.name}': use one column for each, or 'vector'")
    else:
        plain(draft, value)


def _input(name: str, config: Entry) -> LayerValue:
    shape = list(config.get("batch_shape") or config.get("batch_input_shape") or [None, 1])[1:]
    several = bool(shape) and shape != [1]
    dtype = config.get("dtype")
    length = shape[-1] if several and isinstance(shape[-1], int) else None
    return LayerValue("raw", name, dtype if isinstance(dtype, str) else None, several, length)


def _input_tensors(node: Any) -> Iterator[tuple[str, int]]:
    """Yields the layers whose tensors a call takes."""
    if isinstance(node, Mapping):
        history = node.get("keras_history")
        if isinstance(history, list) and len(history) == 3:
            yield str(history[0]), int(history[1])
        for part in node.values():
            yield from _input_tensors(part)
    elif isinstance(node, list):
        for part in node:
            yield from _input_tensors(part)


def convert_space(draft: SpecDraft, document: Entry) -> None:
    """Converts a keras.utils.FeatureSpace."""
    codes: dict[str, LayerValue] = {}
    for column, feature in document["features"].items():
        config = feature.get("config", feature)
        preprocessor = config.get("preprocessor") or {}
        kind, layer = str(preprocessor.get("class_name")), preprocessor.get("config") or {}
        where = f"{kind} of '{column}'"
        codes[column] = LayerValue("broken", column)
        with draft.trying(where):
            if kind not in LAYERS and kind not in REFUSED:
                raise NoCounterpart("it has no counterpart: write the preprocessed column into the data")
            value = LayerValue("raw", column, config.get("dtype"))
            made = convert_layer(draft, kind, where, {**layer, "class_name": kind, "output_mode": "int"}, [value])
            codes[column] = made
            if made.kind == "codes" and config.get("output_mode") == "one_hot":
                draft.hot(made)
    for cross in document.get("crosses") or ():
        config = cross.get("config", cross)
        names = list(config["feature_names"])
        where = f"the cross of {' and '.join(map(repr, names))}"
        with draft.trying(where):
            if missing := [name for name in names if name not in codes]:
                raise NoCounterpart(f"unknown feature '{missing[0]}'")
            layer = {"num_bins": config.get("crossing_dim"), "output_mode": config.get("output_mode", "int")}
            convert_layer(draft, "HashedCrossing", where, layer, [codes[name] for name in names])
