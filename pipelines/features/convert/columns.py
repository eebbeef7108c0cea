"""Converters of TensorFlow feature columns by class, as written by `serialize_feature_column`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipelines.features.convert.draft import Cannot, Draft, Entry, Value, listed, numbers, whole_number
from pipelines.features.convert.layers import HASH, coded, identity, increasing, plain

Rule = Callable[[Draft, str, Entry, Path | None], Value]
_FEW = "it is taken as one value a row; several take 'multi_hot' in its place"
_MOST = 16 << 20


def convert_column(draft: Draft, document: Any, folder: Path | None) -> Value:
    """Converts one feature column. `folder`: folder of vocabulary files."""
    kind, config = _read(document)
    where = f"{kind} of '{config['key']}'" if "key" in config else kind
    with draft.trying(where):
        if kind in REFUSED:
            raise Cannot(REFUSED[kind])
        if kind not in COLUMNS:
            raise Cannot("it is no feature column that is known here")
        return COLUMNS[kind](draft, where, config, folder)
    return Value("broken", where)


def is_column(document: Any) -> bool:
    return isinstance(document, Mapping) and document.get("class_name") in {*COLUMNS, *REFUSED}


def _read(document: Any) -> tuple[str, Entry]:
    if not isinstance(document, Mapping) or not isinstance(document.get("config"), Mapping):
        raise Cannot("a feature column has a class_name and a config")
    return str(document.get("class_name")), document["config"]


def _numeric(draft: Draft, where: str, config: Entry, folder: Path | None) -> Value:
    value = _raw_number(config)
    default = config.get("default_value")
    return plain(draft, value, 0.0 if default is None else _first(default))


def _raw_number(config: Entry) -> Value:
    if config.get("normalizer_fn") is not None:
        raise Cannot("its normalizer_fn is code, and no code out of a file is run: say 'normalise', 'log' or 'clip' in the spec")
    if list(config.get("shape") or [1]) not in ([1], []):
        raise Cannot(f"it has {config['shape']} numbers a row: give each a column of its own, or take them by 'vector'")
    return Value("raw", _key(config), str(config.get("dtype", "float32")))


def _bucketized(draft: Draft, where: str, config: Entry, folder: Path | None) -> Value:
    kind, source = _read(config.get("source_column"))
    if kind != "NumericColumn":
        raise Cannot(f"it cuts a {kind}: only a NumericColumn can be")
    default = source.get("default_value")
    if default is not None:
        draft.note(where, f"nulls have a bucket of their own, where the column puts {_first(default):g} for them")
    return draft.bucketised(_raw_number(source), {"at": increasing(numbers(config.get("boundaries"), "boundaries"), "boundaries")})


def _vocabulary_list(draft: Draft, where: str, config: Entry, folder: Path | None) -> Value:
    return _vocabulary(draft, where, config, config.get("vocabulary_list"))


def _vocabulary_file(draft: Draft, where: str, config: Entry, folder: Path | None) -> Value:
    words = _lines(str(config.get("vocabulary_file")), folder)
    if config.get("vocabulary_size") is not None:
        words = words[: whole_number(config, "vocabulary_size")]
    integers = str(config.get("dtype", "string")).startswith(("int", "uint"))
    try:
        return _vocabulary(draft, where, config, [int(word) for word in words] if integers else words)
    except ValueError:
        raise Cannot("its vocabulary file has lines that are no integers") from None


def _lines(name: str, folder: Path | None) -> list[str]:
    """Reads a vocabulary only from the converted file's folder: a path in a document must not open other files."""
    if folder is None:
        raise Cannot(f"its vocabulary is in the file '{name}': say the folder that it is in, or give the list itself")
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise Cannot(f"its vocabulary file '{name}' isn't in or below {folder}: put it there, and its relative name into vocabulary_file")
    if path.stat().st_size > _MOST:
        raise Cannot(f"its vocabulary file '{name}' is larger than 16 MiB: say 'categorify' with max_size")
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise Cannot(f"its vocabulary file '{name}' is not UTF-8 text") from None


def _vocabulary(draft: Draft, where: str, config: Entry, words: Any) -> Value:
    words = list(words) if isinstance(words, list | tuple) else words
    options, unknown = dict(listed(draft, where, words)), whole_number({"n": config.get("num_oov_buckets") or 0}, "n", 0)
    value = Value("raw", _key(config))
    if unknown > 1 and any(isinstance(word, str) for word in words):
        raise Cannot(f"num_oov_buckets is {unknown}: text out of the vocabulary can't be hashed in the served graph: say 1 or none")
    if unknown > 1:
        options["hash_buckets"] = unknown
        draft.note(where, f"values out of the vocabulary share {unknown} codes behind the known ones; {HASH}")
    if unknown == 0:
        default = config.get("default_value", -1)
        theirs = "leaves them out" if default in (-1, None) else f"gives them the id {default}"
        draft.note(where, f"values out of the vocabulary get the code of unknown ones, where the column {theirs}")
    draft.note(where, _FEW)
    return draft.codes(value, options)


def _identity(draft: Draft, where: str, config: Entry, folder: Path | None) -> Value:
    count, default = whole_number(config, "number_buckets"), config.get("default_value")
    if default is not None:
        draft.note(where, f"other numbers get the code of unknown ones, where the column gives them the id {default}")
    draft.note(where, _FEW)
    return draft.codes(Value("raw", _key(config), "int64"), identity(draft, where, count))


def _hashed(draft: Draft, where: str, config: Entry, folder: Path | None) -> Value:
    buckets = whole_number(config, "hash_bucket_size")
    if not str(config.get("dtype", "string")).startswith(("int", "uint")):
        raise Cannot("text can't be hashed in the served graph: say 'categorify' in the spec, with max_size where there are many words")
    draft.note(where, HASH)
    draft.note(where, _FEW)
    return draft.codes(Value("raw", _key(config), "int64"), {"values": [], "hash_buckets": buckets})


def _crossed(draft: Draft, where: str, config: Entry, folder: Path | None) -> Value:
    values = []
    for key in config.get("keys") or ():
        value = Value("raw", key) if isinstance(key, str) else convert_column(draft, key, folder)
        if value.kind == "broken":
            return value
        values.append(coded(draft, where, value))
    draft.note(where, HASH)
    return draft.crossed(values, whole_number(config, "hash_bucket_size", 2))


def _embedding(draft: Draft, where: str, config: Entry, folder: Path | None) -> Value:
    value = convert_column(draft, config.get("categorical_column"), folder)
    if value.kind != "broken":
        quoted = f"'{value.name}'"
        draft.note(
            quoted, f"its embedding's width {config.get('dimension')} isn't a feature's: model.params.width says one for all, or a rule"
        )
        if value.several and config.get("combiner") not in (None, "mean"):
            draft.note(quoted, f"several values are averaged by the family mlp, where the column's combiner is {config['combiner']}")
    return value


def _indicator(draft: Draft, where: str, config: Entry, folder: Path | None) -> Value:
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
    "WeightedCategoricalColumn": "values have no weights: write as many columns, or a vector, into the data",
    "SharedEmbeddingColumn": "convert its columns by themselves and say 'vocabulary' with one name in their entries",
    "SequenceCategoricalColumn": "sequences are made of the interactions themselves: say 'sequence' in the spec",
    "SequenceNumericColumn": "sequences are of items: say 'sequence' in the spec",
}
