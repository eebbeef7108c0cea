"""Converters of TensorFlow feature columns by class, as written by `serialize_feature_column`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipelines.features.convert.draft import Entry, LayerValue, NoCounterpart, SpecDraft, listed, numbers, whole_number
from pipelines.features.convert.layers import HASH, coded, identity, increasing, plain

Rule = Callable[[SpecDraft, str, Entry, Path | None], LayerValue]
_FEW = "it becomes one value per row; use 'multi_hot' for several values"
_MOST = 16 << 20


def convert_column(draft: SpecDraft, document: Any, folder: Path | None) -> LayerValue:
    """Converts one feature column. `folder`: folder of vocabulary files."""
    kind, config = _read(document)
    where = f"{kind} of '{config['key']}'" if "key" in config else kind
    with draft.trying(where):
        if kind in REFUSED:
            raise NoCounterpart(REFUSED[kind])
        if kind not in COLUMNS:
            raise NoCounterpart("unknown class of feature column")
        return COLUMNS[kind](draft, where, config, folder)
    return LayerValue("broken", where)


def is_column(document: Any) -> bool:
    return isinstance(document, Mapping) and document.get("class_name") in {*COLUMNS, *REFUSED}


def _read(document: Any) -> tuple[str, Entry]:
    if not isinstance(document, Mapping) or not isinstance(document.get("config"), Mapping):
        raise NoCounterpart("a feature column needs a class_name and a config")
    return str(document.get("class_name")), document["config"]


def _numeric(draft: SpecDraft, where: str, config: Entry, folder: Path | None) -> LayerValue:
    value = _raw_number(config)
    default = config.get("default_value")
    return plain(draft, value, 0.0 if default is None else _first(default))


def _raw_number(config: Entry) -> LayerValue:
    if config.get("normalizer_fn") is not None:
        raise NoCounterpart("its normalizer_fn is code, and code from a file is never run: use 'normalise', 'log' or 'clip' in the spec")
    if list(config.get("shape") or [1]) not in ([1], []):
        raise NoCounterpart(f"it has {config['shape']} numbers per row: use one column for each number, or 'vector'")
    return LayerValue("raw", _key(config), str(config.get("dtype", "float32")))


def _bucketized(draft: SpecDraft, where: str, config: Entry, folder: Path | None) -> LayerValue:
    kind, source = _read(config.get("source_column"))
    if kind != "NumericColumn":
        raise NoCounterpart(f"its source_column is a {kind}: only a NumericColumn can be bucketised")
    default = source.get("default_value")
    if default is not None:
        draft.note(where, f"nulls get their own bucket; the column replaces them by {_first(default):g}")
    return draft.bucketised(_raw_number(source), {"at": increasing(numbers(config.get("boundaries"), "boundaries"), "boundaries")})


def _vocabulary_list(draft: SpecDraft, where: str, config: Entry, folder: Path | None) -> LayerValue:
    return _vocabulary(draft, where, config, config.get("vocabulary_list"))


def _vocabulary_file(draft: SpecDraft, where: str, config: Entry, folder: Path | None) -> LayerValue:
    words = _lines(str(config.get("vocabulary_file")), folder)
    if config.get("vocabulary_size") is not None:
        words = words[: whole_number(config, "vocabulary_size")]
    integers = str(config.get("dtype", "string")).startswith(("int", "uint"))
    try:
        return _vocabulary(draft, where, config, [int(word) for word in words] if integers else words)
    except ValueError:
        raise NoCounterpart("its vocabulary file has lines that are not integers") from None


def _lines(name: str, folder: Path | None) -> list[str]:
    """Reads a vocabulary only from the converted file's folder: a path in a document must not open other files."""
    if folder is None:
        raise NoCounterpart(f"its vocabulary is in the file '{name}': pass the folder of the file, or use the list itself")
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise NoCounterpart(
            f"its vocabulary file '{name}' is not in or below {folder}: copy it there, and set vocabulary_file to its relative name"
        )
    if path.stat().st_size > _MOST:
        raise NoCounterpart(f"its vocabulary file '{name}' is larger than 16 MiB: use 'categorify' with max_size")
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise NoCounterpart(f"its vocabulary file '{name}' is not UTF-8 text") from None


def _vocabulary(draft: SpecDraft, where: str, config: Entry, words: Any) -> LayerValue:
    words = list(words) if isinstance(words, list | tuple) else words
    options, unknown = dict(listed(draft, where, words)), whole_number({"n": config.get("num_oov_buckets") or 0}, "n", 0)
    value = LayerValue("raw", _key(config))
    if unknown > 1 and any(isinstance(word, str) for word in words):
        raise NoCounterpart(f"num_oov_buckets is {unknown}: the served graph cannot hash text outside the vocabulary: set 1 or none")
    if unknown > 1:
        options["hash_buckets"] = unknown
        draft.note(where, f"values outside the vocabulary share {unknown} codes after the vocabulary's codes; {HASH}")
    if unknown == 0:
        default = config.get("default_value", -1)
        theirs = "ignores them" if default in (-1, None) else f"gives them the id {default}"
        draft.note(where, f"values outside the vocabulary get the code of unknown values; the column {theirs}")
    draft.note(where, _FEW)
    return draft.codes(value, options)


def _identity(draft: SpecDraft, where: str, config: Entry, folder: Path | None) -> LayerValue:
    count, default = whole_number(config, "number_buckets"), config.get("default_value")
    if default is not None:
        draft.note(where, f"other numbers get the code of unknown values; the column gives them the id {default}")
    draft.note(where, _FEW)
    return draft.codes(LayerValue("raw", _key(config), "int64"), identity(draft, where, count))


def _hashed(draft: SpecDraft, where: str, config: Entry, folder: Path | None) -> LayerValue:
    buckets = whole_number(config, "hash_bucket_size")
    if not str(config.get("dtype", "string")).startswith(("int", "uint")):
        raise NoCounterpart("the served graph cannot hash text: use 'categorify' in the spec, with max_size if there are many words")
    draft.note(where, HASH)
    draft.note(where, _FEW)
    return draft.codes(LayerValue("raw", _key(config), "int64"), {"values": [], "hash_buckets": buckets})


def _crossed(draft: SpecDraft, where: str, config: Entry, folder: Path | None) -> LayerValue:
    values = []
    for key in config.get("keys") or ():
        value = LayerValue("raw", key) if isinstance(key, str) else convert_column(draft, key, folder)
        if value.kind == "broken":
            return value
        values.append(coded(draft, where, value))
    draft.note(where, HASH)
    return draft.crossed(values, whole_number(config, "hash_bucket_size", 2))


def _embedding(draft: SpecDraft, where: str, config: Entry, folder: Path | None) -> LayerValue:
    value = convert_column(draft, config.get("categorical_column"), folder)
    if value.kind != "broken":
        quoted = f"'{value.name}'"
        draft.note(
            quoted,
            f"its embedding width {config.get('dimension')} is not converted: model.params.width sets one width for all, or a rule does",
        )
        if value.several and config.get("combiner") not in (None, "mean"):
            draft.note(quoted, f"the family mlp averages several values; the column's combiner is {config['combiner']}")
    return value


def _indicator(draft: SpecDraft, where: str, config: Entry, folder: Path | None) -> LayerValue:
    value = convert_column(draft, config.get("categorical_column"), folder)
    if value.kind == "broken":
        return value
    kind, inner = _read(config["categorical_column"])
    sizes = {
        "IdentityCategoricalColumn": "number_buckets",
        "HashedCategoricalColumn": "hash_bucket_size",
        "CrossedColumn": "hash_bucket_size",
    }
    return draft.hot(value, whole_number(inner, sizes[kind]) + 2 if kind in sizes else len(inner.get("vocabulary_list") or ()) + 2)


def _key(config: Entry) -> str:
    return str(config.get("key"))


def _first(value: Any) -> float:
    return numbers(value if isinstance(value, list | tuple) else [value], "default_value")[0]


COLUMNS: Mapping[str, Rule] = {
    "NumericColumn": _numeric,
    "BucketizedColumn": _bucketized,
    "VocabularyListCategoricalColumn": _vocabulary_list,
    "VocabularyFileCategoricalColumn": _vocabulary_file,
    "IdentityCategoricalColumn": _identity,
    "HashedCategoricalColumn": _hashed,
    "CrossedColumn": _crossed,
    "EmbeddingColumn": _embedding,
    "IndicatorColumn": _indicator,
}
REFUSED: Mapping[str, str] = {
    "WeightedCategoricalColumn": "values cannot have weights: write several columns, or a vector, into the data",
    "SharedEmbeddingColumn": "convert its columns one by one, and set the same 'vocabulary' in their entries",
    "SequenceCategoricalColumn": "sequences are built from the interactions: use 'sequence' in the spec",
    "SequenceNumericColumn": "sequences have only items: use 'sequence' in the spec",
}
