"""Converts live Python layers and columns. An adapted layer includes its vocabulary, which its file lacks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.features.convert.document import Chains, convert_chains, from_document
from pipelines.features.convert.draft import Converted, Entry, SpecDraft
from shared.domain.errors import Invalid

Columns = str | tuple[str, ...]


def from_keras(layers: Any) -> Converted:
    """Converts a model, a keras.utils.FeatureSpace, or a mapping of a column (a tuple for several) to a layer or list of layers."""
    if not isinstance(layers, Mapping):
        return from_document(_model(layers), source=type(layers).__name__)
    draft = SpecDraft()
    chains: Chains = [(_names(columns), [_written(layer) for layer in _several(chain)]) for columns, chain in layers.items()]
    convert_chains(draft, chains)
    return draft.converted("the layers")


def from_feature_columns(columns: Sequence[Any], folder: Path | None = None) -> Converted:
    """Converts feature columns. `folder`: folder of vocabulary files."""
    from tensorflow.python.feature_column.serialization import serialize_feature_column

    return from_document([serialize_feature_column(column) for column in columns], folder, "the feature columns")


def _model(model: Any) -> Any:
    import keras

    if isinstance(model, keras.utils.FeatureSpace):
        written = json.loads(json.dumps(model.get_config()))
        for name, feature in written["features"].items():
            feature["config"]["preprocessor"]["config"] |= _learned(model.preprocessors[name])
        return written
    if not isinstance(model, keras.Model):
        raise Invalid("from_keras takes a mapping of columns to layers, a Keras model or a keras.utils.FeatureSpace")
    written = json.loads(model.to_json())
    layers = {layer.name: layer for layer in model.layers}
    for layer in written["config"]["layers"]:
        if layer["config"].get("name") in layers:
            layer["config"] |= _learned(layers[layer["config"]["name"]])
    return written


def _written(layer: Any) -> Entry:
    import keras

    if isinstance(layer, Mapping):
        return dict(layer)
    written: dict[str, Any] = keras.saving.serialize_keras_object(layer)
    return {**written, "config": {**written.get("config", {}), **_learned(layer)}}


def _learned(layer: Any) -> dict[str, Any]:
    """Returns the vocabulary that adapting has learned."""
    if type(layer).__name__ not in ("StringLookup", "IntegerLookup") or layer.get_config()["vocabulary"] is not None:
        return {}
    words = layer.get_vocabulary(include_special_tokens=False)
    return {"vocabulary": [word if isinstance(word, str) else int(word) for word in words]} if words else {}


def _names(columns: Columns) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _several(chain: Any) -> list[Any]:
    return list(chain) if isinstance(chain, list | tuple) else [chain]
