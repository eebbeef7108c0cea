"""Converters of Keras preprocessing layers by class: counterpart, notes on differences, rejections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipelines.features.convert.draft import Cannot, Draft, Entry, Value, listed, numbers, whole_number

Rule = Callable[[Draft, str, Entry, list[Value]], Value]
_FITTED = "its vocabulary isn't in the file: it is counted in the data"
HASH = "the hash is another one: as many buckets, but other values share them"


def convert_layer(draft: Draft, name: str, where: str, config: Entry, inputs: list[Value]) -> Value:
    """Converts one layer of class `name`."""
    if any(value.kind == "broken" for value in inputs):
        return Value("broken", where)
    if name in REFUSED:
        raise Cannot(REFUSED[name])
    made_of = next((value for value in inputs if value.kind == "left"), None)
    if made_of is not None:
        raise Cannot(f"it takes what '{made_of.name}' gives, which isn't a feature of codes or a number here")
    return LAYERS[name](draft, where, config, inputs)


def _lookup(draft: Draft, where: str, config: Entry, inputs: list[Value]) -> Value:
    value, mode = _single(inputs), _mode(config)
    if value.kind != "raw":
        raise Cannot(f"it looks up what was made of '{value.name}': categories are made of columns of the data alone")
    if config.get("invert"):
        raise Cannot("invert turns codes back into words: features take words, so leave it out")
    strings = config.get("class_name") == "StringLookup"
    unknown, mask = whole_number(config, "num_oov_indices", 0), config.get("mask_token")
    words = _words(config, mask)
    options = dict(listed(draft, where, words)) if words is not None else _counted(draft, where, config, unknown, mask)
    if unknown > 1 and strings:
        raise Cannot(f"num_oov_indices is {unknown}: text out of the vocabulary can't be hashed in the served graph: say 1")
    if unknown > 1:
        options["hash_buckets"] = unknown
        draft.note(where, f"values out of the vocabulary share {unknown} codes behind the known ones; {HASH}")
    if unknown == 0:
        draft.note(where, "values out of its vocabulary get the code of unknown ones, where the layer has none for them")
    if mask not in (None, ""):
        draft.note(where, f"{mask!r} means nothing here: nulls are masked, so write null in its place")
    codes = draft.codes(_listed_value(value, mode), options)
    size = None if words is None else len(words) + 2 + (unknown if unknown > 1 else 0)
    return draft.hot(codes, size) if mode != "int" else codes


def _words(config: Entry, mask: Any) -> list[Any] | None:
    """Returns the file's vocabulary without leading special tokens."""
    words = config.get("vocabulary")
    if isinstance(words, str):
        raise Cannot(f"its vocabulary is in the file '{words}': give the layer the list itself")
    if words is None:
        return None
    special = [token for token in (mask, config.get("oov_token")) if token is not None]
    while words and words[0] in special:
        words = words[1:]
    return list(words)


def _counted(draft: Draft, where: str, config: Entry, unknown: int, mask: Any) -> dict[str, Any]:
    draft.note(where, _FITTED)
    if config.get("max_tokens") is None:
        return {}
    room = whole_number(config, "max_tokens") - unknown - (mask is not None)
    if room < 1:
        raise Cannot("max_tokens leaves no room for a value")
    return {"max_size": room}


def _hashing(draft: Draft, where: str, config: Entry, inputs: list[Value]) -> Value:
    value, mode, bins = _single(inputs), _mode(config), whole_number(config, "num_bins")
    mask = config.get("mask_value")
    if value.kind != "raw":
        raise Cannot(f"it hashes what was made of '{value.name}': only a column of the data can be hashed")
    if value.dtype == "string" or isinstance(mask, str):
        raise Cannot(
            "text can't be hashed in the served graph: encode it by a vocabulary (StringLookup), with max_tokens where it is large"
        )
    buckets = bins - (mask is not None)
    if buckets < 1:
        raise Cannot("its mask leaves no bin for a value")
    if value.dtype is None:
        draft.note(where, "integers alone are hashed; a column of text takes a vocabulary (StringLookup)")
    if mask is not None:
        draft.note(where, f"{mask!r} means nothing here: nulls are masked, so write null in its place")
    draft.note(where, HASH)
    codes = draft.codes(_listed_value(value, mode), {"values": [], "hash_buckets": buckets})
    return draft.hot(codes, buckets + 2) if mode != "int" else codes


def _encoding(draft: Draft, where: str, config: Entry, inputs: list[Value]) -> Value:
    value, mode, tokens = _single(inputs), _mode(config), whole_number(config, "num_tokens")
    if mode == "int":
        raise Cannot("'output_mode' is int, which it can't be")
    if value.kind == "codes":
        return draft.hot(value, tokens + 2)
    if value.kind != "raw":
        raise Cannot(f"it takes a number made of '{value.name}', which has no codes")
    return draft.hot(draft.codes(_listed_value(value, mode), identity(draft, where, tokens)), tokens + 2)


def identity(draft: Draft, where: str, count: int) -> Entry:
    """Encodes the numbers from 0 on as themselves."""
    if count > 2_000:
        draft.note(where, f"of its {count:,} numbers those that the data has get codes")
        return {"max_size": count}
    return {"values": list(range(count))}


def _normalization(draft: Draft, where: str, config: Entry, inputs: list[Value]) -> Value:
    value = _number(inputs)
    if config.get("invert"):
        raise Cannot("invert undoes a normalisation: features are normalised, so leave it out")
    for term in ("mean", "variance"):
        setting = config.get(term)
        if setting is not None and len(numbers(_flat(setting), term)) > 1:
            raise Cannot("it normalises a vector: give each of its numbers a column of its own")
    draft.note(where, "mean and deviation are those of the data that is trained on")
    return draft.number(value, {"normalise": value.name})


def _discretization(draft: Draft, where: str, config: Entry, inputs: list[Value]) -> Value:
    value, mode = _number(inputs), _mode(config)
    bounds = config.get("bin_boundaries")
    if bounds is not None:
        at = numbers(bounds, "bin_boundaries")
        how: Entry = {"at": increasing(at, "bin_boundaries")}
    else:
        how = {"quantiles": whole_number(config, "num_bins", 2)}
        draft.note(where, "its bounds aren't in the file: they are quantiles of the data that is trained on")
    codes = draft.bucketised(value, how)
    return draft.hot(codes) if mode != "int" else codes


def increasing(at: list[float], name: str) -> list[float]:
    if at != sorted(set(at)) or len(at) > 1_000:
        raise Cannot(f"'{name}' must rise and be at most 1,000")
    return at


def _crossing(draft: Draft, where: str, config: Entry, inputs: list[Value]) -> Value:
    mode, bins = _mode(config), whole_number(config, "num_bins", 2)
    values = [coded(draft, where, value) for value in inputs]
    draft.note(where, HASH)
    codes = draft.crossed(values, bins)
    return draft.hot(codes, bins + 2) if mode != "int" else codes


def coded(draft: Draft, where: str, value: Value) -> Value:
    """Returns codes for a cross; a column without codes gets some."""
    if value.kind == "codes":
        return value
    if value.kind != "raw" or value.dtype in ("float16", "float32", "float64"):
        raise Cannot(f"'{value.name}' is a number: cut it into buckets first (Discretization)")
    return draft.wanted(value, where)


def _as_it_is(draft: Draft, where: str, config: Entry, inputs: list[Value]) -> Value:
    return plain(draft, _number(inputs))


def plain(draft: Draft, value: Value, default: float = 0.0) -> Value:
    """Keeps a number unchanged; nulls become the default."""
    return draft.number(value, {"fill": value.name, "with": default})


def _single(inputs: list[Value]) -> Value:
    if len(inputs) != 1:
        raise Cannot(f"it takes one column, not {len(inputs)}")
    return inputs[0]


def _number(inputs: list[Value]) -> Value:
    value = _single(inputs)
    if value.kind == "codes":
        raise Cannot(f"'{value.name}' is of codes: it takes a number")
    if value.dtype == "string":
        raise Cannot(f"'{value.name}' is text: it takes a number")
    if value.several:
        raise Cannot(f"'{value.name}' has {value.length or 'several'} numbers a row: give each a column of its own")
    return value


def _listed_value(value: Value, mode: str) -> Value:
    """Marks the value as several per row if the mode is multi_hot."""
    several = value.several or mode == "multi_hot"
    return Value(value.kind, value.name, value.dtype, several, value.length)


def _mode(config: Entry) -> str:
    mode = str(config.get("output_mode", "int"))
    if mode not in ("int", "one_hot", "multi_hot"):
        raise Cannot(f"output_mode '{mode}' counts the values of a row, which nothing here does: say one_hot or multi_hot")
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
    "TextVectorization": "text isn't cut into words: find some by 'extract' and a pattern, or encode the text elsewhere and take its"
    " vectors by 'vector'",
    "Lambda": "it is code, and no code out of a file is run: write what it does with the spec's operators, or into the data",
    "Rescaling": "numbers aren't multiplied by constants: 'normalise' with to: range brings them between 0 and 1",
    "Resizing": "it changes images: encode them elsewhere and take their vectors by 'vector'",
    "MelSpectrogram": "it takes sound: encode it elsewhere and take its vectors by 'vector'",
}
