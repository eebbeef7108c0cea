"""Delimited text of any separator, encoding and decimal sign is recognised, or refused with the setting that reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.data.sources import ReadableRoots, SourceRows, open_source, readable
from shared.contracts.sources import Place
from shared.domain.errors import BadData

pytestmark = pytest.mark.requirement("U-04")

ROWS = [("1", "größer", 3.5, 12), ("2", "klein, rot", 10.0, 7), ("3", "übergroß", -0.25, 0)]
HEADER = ("user", "size", "price", "count")


def opened(path: Path, **settings: Any) -> SourceRows:
    return open_source(Place(uri=str(path), **settings), ReadableRoots((str(path.parent),), path.parent / "scratch"), ())


def text(separator: str, decimal: str = ".", header: bool = True, quote: bool = True) -> str:
    def cell(value: object) -> str:
        written = str(value).replace(".", decimal) if isinstance(value, float) else str(value)
        return f'"{written}"' if quote and separator in written else written

    rows = [*([HEADER] if header else []), *ROWS]
    return "".join(separator.join(map(cell, row)) + "\r\n" for row in rows)


WANTED = pl.DataFrame(
    {"user": [1, 2, 3], "size": ["größer", "klein, rot", "übergroß"], "price": [3.5, 10.0, -0.25], "count": [12, 7, 0]},
    schema={"user": pl.Int64, "size": pl.String, "price": pl.Float64, "count": pl.Int64},
)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "::"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
@pytest.mark.parametrize("decimal", [".", ","])
def test_every_form_gives_the_same_rows(tmp_path: Path, separator: str, encoding: str, decimal: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(text(separator, decimal, quote=separator != "::").encode(encoding))
    if separator == "," == decimal:
        assert opened(path).frame.collect()["price"].dtype == pl.String, "a quoted decimal comma is text"
        return
    assert opened(path).frame.collect().equals(WANTED)


def test_a_file_without_a_header_is_read_by_the_names_of_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "rows.dat"
    path.write_text(text("::", header=False, quote=False))
    assert opened(path, csv={"header": list(HEADER)}).frame.collect().equals(WANTED)
    numbers = tmp_path / "numbers.dat"
    numbers.write_text("1::1193::5\n1::661::3\n")
    with pytest.raises(BadData, match=r"column 'user' is missing; the first line is 1, 1193, 5: .* set csv: \{header: \[...\]\}"):
        open_source(Place(uri=str(numbers)), ReadableRoots((str(tmp_path),), tmp_path / "scratch"), ("user",))


def test_json_lines_keep_their_lists(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"user": user, "tags": ["a", "b"][:user]}) + "\n" for user in range(3)))
    assert opened(path).frame.collect().rows() == [(0, []), (1, ["a"]), (2, ["a", "b"])]


def test_what_is_not_recognised_is_named_with_its_setting(tmp_path: Path, subtests: pytest.Subtests) -> None:
    cyrillic = "user;title\n" + "".join(f"{number};Название фильма\n" for number in range(20))
    faults: dict[str, tuple[bytes, dict[str, Any], str]] = {
        "another alphabet": (cyrillic.encode("cp1251"), {}, r"not UTF-8; set csv: \{encoding: \.\.\.\}"),
        "late byte": (("user,name\n" + "1,plain\n" * 200_000).encode() + b"2,\xfc\n", {}, r"not UTF-8; set csv: \{encoding: \.\.\.\}"),
        "wrong encoding": ("user,name\n1,größer\n".encode("latin-1"), {"encoding": "utf-8"}, "not utf-8 text; set csv"),
        "ragged": (b"user,name\n1,a\n2,b,c\n", {}, "rows have different lengths.*set csv: {separator: ...}"),
    }
    for name, (content, settings, message) in faults.items():
        with subtests.test(msg=name):
            path = tmp_path / f"{name}.csv"
            path.write_bytes(content)
            with pytest.raises(BadData, match=message), readable(path.name):
                opened(path, csv=settings).frame.collect()
    path = tmp_path / "another alphabet.csv"
    assert opened(path, csv={"encoding": "cp1251"}).frame.collect()["title"][0] == "Название фильма"


def test_settings_that_contradict_are_refused() -> None:
    for settings, message in (
        ({"separator": ",", "decimal": ","}, "',' also separates the fields"),
        ({"separator": "\0"}, "expected printable characters"),
        ({"header": ["a", "a"]}, "a name is listed twice"),
        ({"encoding": "zlib"}, "encoding"),
    ):
        with pytest.raises(ValueError, match=message):
            Place.model_validate({"uri": "a.csv", "csv": settings})
    with pytest.raises(ValueError, match="a query has no text"):
        Place.model_validate({"query": "SELECT 1", "from": "shop", "csv": {"separator": ";"}})
