"""Tab-separated text with types in the header (`user_id:token`, `rating:float`), as in RecBole's atomic files.

A `token` is a key or a word: a column of canonical whole numbers is read as integers, any other as text. A `..._seq` has several values
separated by spaces and stays text; multi_hot splits the text by ' '.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from shared.domain.errors import BadData

_TYPES = {"token": pl.String(), "token_seq": pl.String(), "float": pl.Float64(), "float_seq": pl.String()}


def scan_typed(files: Sequence[Path]) -> pl.LazyFrame:
    header = _header(files[0])
    for path in files[1:]:
        if _header(path) != header:
            raise BadData(f"{path}: header differs from that of {files[0].name}")
    scan = pl.scan_csv(
        list(files),
        separator="\t",
        quote_char=None,
        has_header=False,
        skip_rows=1,
        schema={name: _TYPES[kind] for name, kind in header.items()},
        glob=False,
    )
    tokens = [name for name, kind in header.items() if kind == "token"]
    if not tokens:
        return scan
    are_integers = [
        (pl.col(name).cast(pl.Int64, strict=False).cast(pl.String) == pl.col(name)).fill_null(False).or_(pl.col(name).is_null()).all()
        for name in tokens
    ]
    some = [pl.col(name).is_not_null().any().alias(f"{name} ") for name in tokens]
    try:
        facts = scan.select(*are_integers, *some).collect(engine="streaming").row(0, named=True)
    except PolarsError:  # a later read reports the error
        return scan
    return scan.with_columns(pl.col(name).cast(pl.Int64) for name in tokens if facts[name] and facts[f"{name} "])


def _header(path: Path) -> dict[str, str]:
    try:
        with path.open(encoding="utf-8") as lines:
            fields = lines.readline().rstrip("\r\n").split("\t")
    except UnicodeDecodeError:
        raise BadData(f"{path}: not UTF-8 text") from None
    kinds = {}
    for field in fields:
        name, _, kind = field.rpartition(":")
        if not name or kind not in _TYPES:
            raise BadData(f"{path}: header has '{field[:40]}'; expected names with a type, such as user_id:token ({', '.join(_TYPES)})")
        if name in kinds:
            raise BadData(f"{path}: header has '{name}' twice")
        kinds[name] = kind
    return kinds
