"""Converters of Keras preprocessing layers by class: counterpart, notes on differences, rejections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipelines.features.convert.draft import Entry, LayerValue, NoCounterpart, SpecDraft, listed, numbers, whole_number

Rule = Callable[[SpecDraft, str, Entry, list[LayerValue]], LayerValue]
_FITTED = "the file has no vocabulary: it is counted in the data"
HASH = "the hash function differs: the number of buckets is equal, but other values share them"


def convert_layer(draft: SpecDraft, name: str, where: str, config: Entry, inputs: list[LayerValue]) -> LayerValue:
    """Converts one layer of class `name`."""
    if any(value.kind == "broken" for value in inputs):
        return LayerValue("broken", where)
    if name in REFUSED:
        raise NoCounterpart(REFUSED[name])
    made_of = next((value for value in inputs if value.kind == "left"), None)
    if made_of is not None:
        raise NoCounterpart(f"its input '{made_of.name}' is not a feature of codes or numbers")
    return LAYERS[name](draft, where, config, inputs)


def _lookup(draft: SpecDraft, where: str, config: Entry, inputs: list[LayerValue]) -> LayerValue:
    value, mode = _single(inputs), _mode(config)
    if value.kind != "raw":
        raise NoCounterpart(f"its input is derived from '{value.name}': only a raw column can have categories")
    if config.get("invert"):
        raise NoCounterpart("invert turns codes back into words, which features take directly: leave the layer out")
    strings = config.get("class_name") == "StringLookup"
    unknown, mask = whole_number(config, "num_oov_indices", 0), config.get("mask_token")
    words = _words(config, mask)
    options = dict(listed(draft, where, words)) if words is not None else _counted(draft, where, config, unknown, mask)
    if unknown > 1 and strings:
        raise NoCounterpart(f"num_oov_indices is {unknown}: the served graph cannot hash text outside the vocabulary: set 1")
    if unknown > 1:
        options["hash_buckets"] = unknown
        draft.note(where, f"values outside the vocabulary share {unknown} codes after the vocabulary's codes; {HASH}")
    if unknown == 0:
        draft.note(where, "values outside the vocabulary get the code of unknown values; the layer has no code for them")
    if mask not in (None, ""):
        draft.note(where, f"the mask {mask!r} has no effect: only nulls are masked, so write null instead")
    codes = draft.codes(_listed_value(value, mode), options)
    size = None if words is None else len(words) + 2 + (unknown if unknown > 1 else 0)
    return draft.hot(codes, size) if mode != "int" else codes


def _words(config: Entry, mask: Any) -> list[Any] | None:
    """Returns the file's vocabulary without leading special tokens."""
    words = config.get("vocabulary")
    if isinstance(words, str):
        raise NoCounterpart(f"its vocabulary is in the file '{words}': use the list itself")
    if words is None:
        return None
    special = [token for token in (mask, config.get("oov_token")) if token is not None]
    while words and words[0] in special:
        words = words[1:]
    return list(words)


def _counted(draft: SpecDraft, where: str, config: Entry, unknown: int, mask: Any) -> dict[str, Any]:
    draft.note(where, _FITTED)
    if config.get("max_tokens") is None:
        return {}
    room = whole_number(config, "max_tokens") - unknown - (mask is not None)
    if room < 1:
        raise NoCounterpart("max_tokens leaves no room for a value")
    return {"max_size": room}


def _hashing(draft: SpecDraft, where: str, config: Entry, inputs: list[LayerValue]) -> LayerValue:
    value, mode, bins = _single(inputs), _mode(config), whole_number(config, "num_bins")
    mask = config.get("mask_value")
    if value.kind != "raw":
        raise NoCounterpart(f"its input is derived from '{value.name}': only a raw column can be hashed")
    if value.dtype == "string" or isinstance(mask, str):
        raise NoCounterpart("the served graph cannot hash text: use a vocabulary (StringLookup), with max_tokens if it is large")
    buckets = bins - (mask is not None)
    if buckets < 1:
        raise NoCounterpart("its mask leaves no bin for a value")
    if value.dtype is None:
        draft.note(where, "only integers are hashed; a text column needs a vocabulary (StringLookup)")
    if mask is not None:
        draft.note(where, f"the mask {mask!r} has no effect: only nulls are masked, so write null instead")
    draft.note(where, HASH)
    codes = draft.codes(_listed_value(value, mode), {"values": [], "hash_buckets": buckets})
    return draft.hot(codes, buckets + 2) if mode != "int" else codes


def _encoding(draft: SpecDraft, where: str, config: Entry, inputs: list[LayerValue]) -> LayerValue:
    value, mode, tokens = _single(inputs), _mode(config), whole_number(config, "num_tokens")
    if mode == "int":
        raise NoCounterpart("output_mode 'int' is not possible: set one_hot or multi_hot")
    if value.kind == "codes":
        return draft.hot(value, tokens + 2)
    if value.kind != "raw":
        raise NoCounterpart(f"its input is a number derived from '{value.name}', which has no codes")
    return draft.hot(draft.codes(_listed_value(value, mode), identity(draft, where, tokens)), tokens + 2)


def identity(draft: SpecDraft, where: str, count: int) -> Entry:
    """Encodes the numbers from 0 on as themselves."""
    if count > 2_000:
        draft.note(where, f"of its {count:,} numbers, only those in the data get codes")
        return {"max_size": count}
    return {"values": list(range(count))}


def _normalization(draft: SpecDraft, where: str, config: Entry, inputs: list[LayerValue]) -> LayerValue:
    value = _number(inputs)
    if config.get("invert"):
        raise NoCounterpart("invert undoes a normalisation, but features are normalised: leave the layer out")
    for term in ("mean", "variance"):
        setting = config.get(term)
        if setting is not None and len(numbers(_flat(setting), term)) > 1:
            raise NoCounterpart("it normalises a vector: use one column for each number")
    draft.note(where, "mean and deviation come from the training data")
    return draft.number(value, {"normalise": value.name})


def _discretization(draft: SpecDraft, where: str, config: Entry, inputs: list[LayerValue]) -> LayerValue:
    value, mode = _number(inputs), _mode(config)
    bounds = config.get("bin_boundaries")
    if bounds is not None:
        at = numbers(bounds, "bin_boundaries")
        how: Entry = {"at": increasing(at, "bin_boundaries")}
    else:
        how = {"quantiles": whole_number(config, "num_bins", 2)}
        draft.note(where, "the file has no bounds: they are quantiles of the training data")
    codes = draft.bucketised(value, how)
    return draft.hot(codes) if mode != "int" else codes


def increasing(at: list[float], name: str) -> list[float]:
    if at != sorted(set(at)) or len(at) > 1_000:
        raise NoCounterpart(f"'{name}' must rise and have at most 1,000 values")
    return at


def _crossing(draft: SpecDraft, where: str, config: Entry, inputs: list[LayerValue]) -> LayerValue:
    mode, bins = _mode(config), whole_number(config, "num_bins", 2)
    values = [coded(draft, where, value) for value in inputs]
    draft.note(where, HASH)
    codes = draft.crossed(values, bins)
    return draft.hot(codes, bins + 2) if mode != "int" else codes


def coded(draft: SpecDraft, where: str, value: LayerValue) -> LayerValue:
    """Returns codes for a cross; a column without codes gets some."""
    if value.kind == "codes":
        return value
    if value.kind != "raw" or value.dtype in ("float16", "float32", "float64"):
        raise NoCounterpart(f"'{value.name}' is a number: bucketise it first (Discretization)")
    return draft.wanted(value, where)


def _as_it_is(draft: SpecDraft, where: str, config: Entry, inputs: list[LayerValue]) -> LayerValue:
    return plain(draft, _number(inputs))


def plain(draft: SpecDraft, value: LayerValue, default: float = 0.0) -> LayerValue:
    """Keeps a number unchanged; nulls become the default."""
    return draft.number(value, {"fill": value.name, "with": default})


def _single(inputs: list[LayerValue]) -> LayerValue:
    if len(inputs) != 1:
        raise NoCounterpart(f"the layer takes one column, not {len(inputs)}")
    return inputs[0]


def _number(inputs: list[LayerValue]) -> LayerValue:
    value = _single(inputs)
    if value.kind == "codes":
        raise NoCounterpart(f"'{value.name}' has codes, but the layer takes a number")
    if value.dtype == "string":
        raise NoCounterpart(f"'{value.name}' is text, but the layer takes a number")
    if value.several:
        raise NoCounterpart(f"'{value.name}' has {value.length or 'several'} numbers per row: use one column for each number")
    return value


def _listed_value(value: LayerValue, mode: str) -> LayerValue:
    """Marks the value as several per row if the mode is multi_hot."""
    several = value.several or mode == "multi_hot"
    return LayerValue(value.kind, value.name, value.dtype, several, value.length)


def _mode(config: Entry) -> str:
    mode = str(config.get("output_mode", "int"))
    if mode not in ("int", "one_hot", "multi_hot"):
        raise NoCounterpart(f"output_mode '{mode}' counts the values of a row, which is not supported: set one_hot or multi_hot")
    return mode


def _flat(value: Any) -> list[Any]:
    return [part for element in value for part in _flat(element)] if isinstance(value, list | tuple) else [value]


LAYERS: Mapping[str, Rule] = {
    "StringLookup": _lookup,
    "IntegerLookup": _lookup,
    "Hashing": _hashing,
    "CategoryEncoding": _encoding,
    "Normalization": _normalization,
    "Discretization": _discretization,
    "HashedCrossing": _crossing,
    "TFDIdentity": _as_it_is,
}
REFUSED: Mapping[str, str] = {
    "TextVectorization": "text is not split into words: use 'extract' with a pattern, or encode the text elsewhere and use 'vector'",
    "Lambda": "it is code, and code from a file is never run: use the spec's operators, or write its result into the data",
    "Rescaling": "numbers are not multiplied by constants: use 'normalise' with to: range for values between 0 and 1",
    "Resizing": "it changes images: encode them elsewhere and use 'vector'",
    "MelSpectrogram": "it takes sound: encode it elsewhere and use 'vector'",
}
