"""Recognises the form of delimited text from its start: separator, encoding and decimal sign. `csv` of the spec overrides each."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shared.contracts.sources import TextFormat
from shared.domain.errors import BadData

SAMPLE = 1 << 20
"""Bytes of a file that are looked at."""
_LINES, _FEW = 200, 10
_SEPARATORS = (",", ";", "\t", "|", "::")
_COMMA = re.compile(r"[-+]?\d+,\d+")
_POINT = re.compile(r"[-+]?\d+\.\d+")
_MOST_ACCENTED = 0.2
"""Share of bytes above ASCII, up to which text that is not UTF-8 is taken as Western European."""
_BOMS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


@dataclass(frozen=True)
class RecognisedText:
    """How files are read. `columns`: names of the columns, from the first line or from the spec."""

    separator: str
    encoding: str
    decimal_comma: bool
    columns: tuple[str, ...]
    has_header: bool

    @property
    def is_plain(self) -> bool:
        return self.encoding == "utf-8" and len(self.separator) == 1


def recognise(start: bytes, name: str, settings: TextFormat) -> RecognisedText:
    """Recognises text by the first bytes of a file. The separator of the file's ending is taken if it fits."""
    encoding = settings.encoding or _encoding(start, name)
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(start)
    except UnicodeDecodeError:
        raise BadData(f"{name}: not {encoding} text; set csv: {{encoding: ...}} to the encoding of the file") from None
    lines = text.removeprefix("\ufeff").splitlines()
    lines = lines[: -1 if len(lines) > _FEW and not text.endswith("\n") else None][:_LINES]
    separator = settings.separator or _separator(lines, "\t" if name.lower().endswith(".tsv") else ",")
    rows = list(_rows(lines, separator))
    values = rows if settings.header else rows[1:]
    decimal_comma = settings.decimal == "," if settings.decimal else separator != "," and _has_decimal_commas(values)
    columns = settings.header or (tuple(rows[0]) if rows else ())
    return RecognisedText(separator, encoding, decimal_comma, columns, settings.header is None)


def looks_like_data(names: Sequence[str]) -> bool:
    """Tests whether a first line is a row of data: all fields are numbers, or one has a fraction or as many digits as a time."""
    fields = [re.sub(r"_duplicated_\d+$", "", name) for name in names]
    numbers = [field for field in fields if re.fullmatch(r"[-+]?\d+(\.\d+)?", field)]
    return bool(fields) and (len(numbers) == len(fields) or any(_POINT.fullmatch(field) or len(field) > 8 for field in numbers))


def _encoding(start: bytes, name: str) -> str:
    for mark, encoding in _BOMS.items():
        if start.startswith(mark):
            return encoding
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
        return "utf-8"
    except UnicodeDecodeError:
        accented = sum(byte >= 0x80 for byte in start) / len(start)
    try:
        start.decode("cp1252")
    except UnicodeDecodeError:
        accented = 1.0
    if accented > _MOST_ACCENTED:
        raise BadData(f"{name}: the text is not UTF-8; set csv: {{encoding: ...}}, such as cp1251, shift_jis or gb18030")
    return "cp1252"


def _separator(lines: Sequence[str], default: str) -> str:
    """Returns the separator that splits all lines into equally many fields: `default` if it does, else the one with the most fields."""
    widths = {separator: {len(row) for row in _rows(lines, separator)} for separator in dict.fromkeys((default, *_SEPARATORS))}
    fitting = {separator: max(counts) for separator, counts in widths.items() if len(counts) == 1 and max(counts) > 1}
    return default if default in fitting or not fitting else max(fitting, key=lambda separator: fitting[separator])


def _rows(lines: Sequence[str], separator: str) -> Iterator[list[str]]:
    if len(separator) > 1:
        yield from (line.split(separator) for line in lines if line)
        return
    try:
        yield from (row for row in csv.reader(io.StringIO("\n".join(lines)), delimiter=separator) if row)
    except csv.Error:  # a field of more than 128 KiB
        return


def _has_decimal_commas(rows: Sequence[Sequence[str]]) -> bool:
    """Tests for a column of numbers with commas; a column of numbers with points speaks against it."""
    columns = [[value.strip() for value in column if value.strip()] for column in zip(*rows, strict=False)]
    if any(all(_POINT.fullmatch(value) for value in column) for column in columns if column):
        return False
    return any(
        any(map(_COMMA.fullmatch, column)) and all(_COMMA.fullmatch(value) or value.lstrip("+-").isdigit() for value in column)
        for column in columns
    )
