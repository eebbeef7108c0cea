"""Scans delimited text. Polars reads UTF-8 with a separator of one byte; other text is rewritten to the stage's scratch first."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from shared.contracts.sources import TextFormat
from shared.datafiles.delimited import SAMPLE, RecognisedText, recognise
from shared.domain.errors import BadData

_INFERRED = 10_000
_CHUNK = 1 << 22
_UNIT = "\x1f"
"""Separator of rewritten files whose own separator is longer than one character."""


def recognised(path: Path, settings: TextFormat) -> RecognisedText:
    with path.open("rb") as stream:
        return recognise(stream.read(SAMPLE), str(path), settings)


def scan_text(files: Sequence[Path], form: RecognisedText, scratch: Path, as_text: Collection[str], file: str | None) -> list[pl.LazyFrame]:
    """Scans each file. `as_text`: columns to read as text. `file`: name of a further column with the path of each row's file."""
    scan = partial(
        pl.scan_csv,
        infer_schema_length=_INFERRED,
        schema_overrides=dict.fromkeys(as_text, pl.String),
        glob=False,
        decimal_comma=form.decimal_comma,
        has_header=form.has_header,
        new_columns=None if form.has_header else list(form.columns),
    )
    if form.is_plain:
        return [scan(path, separator=form.separator, include_file_paths=file) for path in files]
    separator, quote = (form.separator, '"') if len(form.separator) == 1 else (_UNIT, None)
    scans = [scan(_rewritten(path, form, scratch), separator=separator, quote_char=quote) for path in files]
    return scans if file is None else [rows.with_columns(pl.lit(str(path)).alias(file)) for path, rows in zip(files, scans, strict=True)]


def _rewritten(path: Path, form: RecognisedText, scratch: Path) -> Path:
    """Writes the file as UTF-8 with a separator of one byte, once per stage."""
    copy = scratch / "text" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:16]}.csv"
    if copy.exists():
        return copy
    copy.parent.mkdir(parents=True, exist_ok=True)
    partial_copy = copy.with_suffix(".partial")
    try:
        with path.open(encoding=form.encoding, newline="") as source, partial_copy.open("w", encoding="utf-8", newline="") as target:
            while lines := source.readlines(_CHUNK):
                text = "".join(lines)
                target.write(text if len(form.separator) == 1 else text.replace(form.separator, _UNIT))
    except UnicodeDecodeError as error:
        raise BadData(f"{path}: not {form.encoding} text at byte {error.start:,}; set csv: {{encoding: ...}}") from None
    partial_copy.replace(copy)
    return copy
