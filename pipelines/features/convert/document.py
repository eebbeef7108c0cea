"""Converters by kind of document: mapping of columns to layers, model, FeatureSpace, feature columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipelines.features.convert.columns import convert_column, is_column
from pipelines.features.convert.draft import Converted, Entry, LayerValue, NoCounterpart, SpecDraft
from pipelines.features.convert.layers import LAYERS, REFUSED, convert_layer
from pipelines.features.convert.models import MODELS, convert_model, convert_space
from shared.domain.errors import Invalid

Chains = Iterable[tuple[tuple[str, ...], list[Entry]]]
"""Columns, and the layers applied to them."""


def from_document(document: Any, folder: Path | None = None, source: str = "the document") -> Converted:
    """Converts a document. `folder`: folder of vocabulary files."""
    draft = SpecDraft()
    try:
        with draft.trying("document"):
            _convert(draft, document, folder, source)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise Invalid(f"{source}: not a format of Keras or TensorFlow: {type(error).__name__} {error}") from None
    except RecursionError:
        raise Invalid(f"{source}: nested too deeply") from None
    return draft.converted(source)


def _convert(draft: SpecDraft, document: Any, folder: Path | None, source: str) -> None:
    if is_column(document) or (isinstance(document, list) and document and all(is_column(column) for column in document)):
        for column in document if isinstance(document, list) else [document]:
            convert_column(draft, column, folder)
    elif isinstance(document, Mapping) and document.get("class_name") in MODELS:
        convert_model(draft, document)
    elif isinstance(document, Mapping) and document.get("class_name") == "FeatureSpace":
        convert_space(draft, document["config"])
    elif isinstance(document, Mapping) and isinstance(document.get("features"), Mapping) and "output_mode" in document:
        convert_space(draft, document)
    elif isinstance(document, Mapping) and document and "class_name" not in document:
        convert_chains(draft, [((str(column),), layers if isinstance(layers, list) else [layers]) for column, layers in document.items()])
    else:
        raise Invalid(
            f"{source}: expected a Keras model (model.to_json()), a FeatureSpace (get_config()), feature columns"
            " (serialize_feature_column), or a mapping of columns to layers (keras.saving.serialize_keras_object)"
        )


def convert_chains(draft: SpecDraft, chains: Chains) -> None:
    for columns, layers in chains:
        values = [LayerValue("raw", column) for column in columns]
        for layer in layers:
            kind = str(layer.get("class_name"))
            where = f"{kind} of {' and '.join(map(repr, columns))}"
            with draft.trying(where):
                if kind not in LAYERS and kind not in REFUSED:
                    raise NoCounterpart(f"not a preprocessing layer; expected one of {', '.join(sorted(set(LAYERS) - {'TFDIdentity'}))}")
                config = {**layer["config"], "class_name": kind}
                values = [convert_layer(draft, kind, where, config, values)]
                continue
            break
