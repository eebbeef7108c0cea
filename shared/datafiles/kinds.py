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
    """None for what is no data file; hidden ones and those that begin with an underscore are none, as Spark and Hive have it."""
    last = name.rsplit("/", 1)[-1].lower()
    if last.startswith((".", "_")):
        return None
    return next((kind for ending, kind in _KINDS.items() if last.endswith(ending) and last != ending), None)
