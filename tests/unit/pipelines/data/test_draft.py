"""`eyas init`: roles, forms of times, tables and features that are recognised in files, and the spec that is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.data.draft.draft import draft
from shared.contracts.spec import RecommenderSpec, parse_spec
from shared.domain.errors import BadData, Invalid
from tests.support.first_data import write_listening, write_orders, write_shop

pytestmark = pytest.mark.requirement("U-03")


def drafted(files: list[Path], **settings: Any) -> RecommenderSpec:
    request = {"files": [str(file) for file in files], "uris": [file.name for file in files], "name": "drafted", **settings}
    return parse_spec(draft(request).text)


def test_events_with_a_table_of_products(tmp_path: Path) -> None:
    spec = drafted(list(reversed(write_shop(tmp_path))))
    schema = spec.schema_
    assert (schema.user, schema.item, schema.time_column) == ("customer_email", "sku", "occurred_at")
    assert schema.label.model_dump() == {"column": "event_type", "positive": ["purchase"]}
    assert spec.data.interactions.uri == "shop_events.csv"
    assert spec.data.items is not None and (spec.data.items.uri, spec.data.items.key) == ("products.csv", "sku")
    operators = [json.loads(operator.model_dump_json(by_alias=True, exclude_defaults=True)) for operator in spec.features]
    assert operators == [
        {"categorify": ["customer_email", "sku"]},
        {"categorify": ["category"]},
        {"fill": ["price"]},
        {"normalise": ["price"]},
        {"multi_hot": "colours", "separator": "|"},
    ]
    assert spec.model.family == "ease" and spec.split.by == "time"


def test_a_log_without_times_and_labels(tmp_path: Path) -> None:
    spec = drafted(write_listening(tmp_path))
    assert (spec.schema_.user, spec.schema_.item, spec.schema_.time) == ("listener_id", "artist", None)
    assert str(spec.schema_.label.positive) == "any" and spec.split.by == "pairs" and spec.data.items is None


def test_german_orders(tmp_path: Path) -> None:
    spec = drafted(write_orders(tmp_path))
    assert (spec.schema_.user, spec.schema_.item) == ("Kundennummer", "Artikelnummer")
    assert spec.schema_.times.model_dump() == {"column": "Datum", "format": "%d.%m.%Y"}
    assert str(spec.schema_.label.positive) == ">= 4"


def rows(path: Path, header: str, row: Callable[[int], str], count: int = 40) -> Path:
    path.write_text("\n".join([header, *map(row, range(count))]) + "\n")
    return path


def dated(path: Path, date: Callable[[int], str]) -> Path:
    return rows(path, "user,item,date", lambda number: f"{number % 7},{number % 5},{date(number)}")


def test_a_day_that_can_be_a_month_is_never_guessed(tmp_path: Path) -> None:
    ambiguous = rows(
        tmp_path / "a.csv", "user,item,date", lambda number: f"{number % 7},{number % 5},0{1 + number % 9}/0{1 + number % 8}/2026"
    )
    with pytest.raises(BadData, match=r"can be read in several ways: set --time-format '%d/%m/%Y' or '%m/%d/%Y'"):
        drafted([ambiguous])
    assert drafted([ambiguous], time_format="%m/%d/%Y").schema_.times.format == "%m/%d/%Y"
    for first, form in (("%d/%m/%Y", "13/02/2026"), ("%m/%d/%Y", "02/13/2026")):
        late = dated(tmp_path / "b.csv", lambda number, form=form: "01/02/2026" if number < 39 else form)
        assert drafted([late]).schema_.times.format == first


@pytest.mark.parametrize(
    ("form", "written"),
    [
        (None, lambda number: str(1_700_000_000 + number)),
        ("ms", lambda number: str(1_700_000_000_000 + number)),
        ("us", lambda number: str(1_700_000_000_000_000 + number)),
        (None, lambda number: f"2026-01-{1 + number % 28:02}T10:00:00Z"),
        ("%Y%m%d", lambda number: f"202601{1 + number % 28:02}"),
        ("%d.%m.%Y %H:%M", lambda number: f"{1 + number % 28}.1.2026 10:{number % 60:02}"),
        ("%d.%m.%y", lambda number: f"{1 + number % 28:02}.01.26"),
    ],
)
def test_forms_of_times(tmp_path: Path, form: str | None, written: Callable[[int], str]) -> None:
    file = rows(tmp_path / "a.csv", "user,item,at", lambda number: f"{number % 7},{number % 5},{written(number)}")
    assert drafted([file]).schema_.times.model_dump() == {"column": "at", "format": form}


def test_names_with_accents_and_blanks_are_renamed(tmp_path: Path) -> None:
    file = rows(
        tmp_path / "a.csv", "Kunden-Nr.,Größe Artikel,5 Sterne Bewertung", lambda number: f"{number % 7},{number % 5},{1 + number % 5}"
    )
    spec = drafted([file])
    assert dict(spec.data.interactions.names) == {
        "Kunden_Nr": "Kunden-Nr.",
        "Grosse_Artikel": "Größe Artikel",
        "_5_Sterne_Bewertung": "5 Sterne Bewertung",
    }


def test_what_is_not_recognised_is_asked_for(tmp_path: Path) -> None:
    file = rows(tmp_path / "a.csv", "left,right,n", lambda number: f"{number % 7},{number % 5},{number}")
    with pytest.raises(Invalid, match=r"a\.csv: user column not recognised; set --column user=NAME; columns: left, right, n"):
        drafted([file])
    spec = drafted([file], columns={"user": "left"})
    assert (spec.schema_.user, spec.schema_.item) == ("left", "right")
    with pytest.raises(Invalid, match=r"column 'middle' \(user\) is missing"):
        drafted([file], columns={"user": "middle"})
    table = rows(tmp_path / "b.csv", "code,name", lambda number: f"x{number},y")
    with pytest.raises(BadData, match=r"b\.csv: no column has one row per item or per user"):
        drafted([file, table], columns={"user": "left"})


def test_a_file_without_a_header_line(tmp_path: Path) -> None:
    file = tmp_path / "ratings.dat"
    file.write_text("".join(f"{1 + number % 7}::{1 + number % 5}::{1 + number % 5}::{978_300_760 + number}\n" for number in range(40)))
    spec = drafted([file])
    assert spec.data.interactions.csv.header == ("column_1", "column_2", "column_3", "column_4")
    assert (spec.schema_.user, spec.schema_.item, spec.schema_.time_column) == ("column_1", "column_2", "column_4")
    assert spec.schema_.label.column == "column_3"
    texts = tmp_path / "reviews.csv"
    texts.write_text("".join(f"A{number % 7}X,B{number % 5},{1 + number % 5}.0,{1_341_100_800 + number}\n" for number in range(40)))
    assert drafted([texts]).data.interactions.csv.header is not None
    years = rows(tmp_path / "years.csv", "user,item,2019,2020", lambda number: f"{number % 7},{number % 5},1,2")
    assert drafted([years]).data.interactions.csv.header is None


def test_a_time_that_is_not_recognised_is_named(tmp_path: Path) -> None:
    file = dated(tmp_path / "a.csv", lambda number: f"week {number}")
    request = {"files": [str(file)], "uris": ["a.csv"], "name": "drafted"}
    answer = draft(request)
    assert any("time: none ('date' has no times that are recognised, such as week 0: set --time-format" in line for line in answer.guesses)
    assert dated(tmp_path / "b.csv", lambda number: f"2026-01-{1 + number % 28:02} 10:00:00 UTC")
    assert drafted([tmp_path / "b.csv"]).schema_.times.model_dump() == {"column": "date", "format": None}
