"""What a data file is, by how its name ends."""

from __future__ import annotations

from typing import Literal

Kind = Literal["parquet", "csv", "tsv", "typed", "tfrecord"]

_KINDS: dict[str, Kind] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".inter": "typed",
    ".item": "typed",
    ".user": "typed",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".tfrecord.gz": "tfrecord",
}
ENDINGS = ", ".join(_KINDS)
LAYOUT = ".layout.json"
"""What follows the name of a TFRecord file in that of the file which says how its columns lie."""
MAGIC = frozenset("*?[")
"""What makes a pattern of a path."""


def kind_of(name: str) -> Kind | None:
    """None for what is no data file."""
    last = name.rsplit("/", 1)[-1].lower()
    return next((kind for ending, kind in _KINDS.items() if last.endswith(ending) and last != ending), None)


def of_a_folder(name: str) -> bool:
    """Whether what lies in a folder belongs to its data. What begins with '.' or '_', or lies in such a folder, doesn't, as Spark and Hive
    have it; named by itself it would."""
    return kind_of(name) is not None and not any(part.startswith((".", "_")) for part in name.split("/"))
