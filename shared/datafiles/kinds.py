"""Kinds of data files, by file extension."""

from __future__ import annotations

from typing import Literal

Kind = Literal["parquet", "csv", "tsv", "jsonl", "typed", "tfrecord"]

_KINDS: dict[str, Kind] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "csv",
    ".dat": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".inter": "typed",
    ".item": "typed",
    ".user": "typed",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".tfrecord.gz": "tfrecord",
}
ENDINGS = ", ".join(_KINDS)
LAYOUT = ".layout.json"
"""Suffix of the file that describes the columns of a TFRecord file."""
MAGIC = frozenset("*?[")
"""Characters that make a path a pattern."""


def kind_of(name: str) -> Kind | None:
    """Returns None for other files."""
    last = name.rsplit("/", 1)[-1].lower()
    return next((kind for ending, kind in _KINDS.items() if last.endswith(ending) and last != ending), None)


def of_a_folder(name: str) -> bool:
    """Returns whether a file in a folder is part of its data. As in Spark and Hive, names and folders that begin with '.' or '_' are
    skipped, and so are .txt and .dat, unless the spec names the file itself; `_key=value` is a partition."""
    if name.lower().endswith((".txt", ".dat")):
        return False
    return kind_of(name) is not None and not any(part[:1] == "." or (part[:1] == "_" and "=" not in part) for part in name.split("/"))
