"""The columns of the items table become attributes of the catalogue: which ones, in which form, as of which time."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.export import attributes
from pipelines.export.attributes import attribute_columns, write_seed
from shared.contracts.items_table import ITEMS_TABLE, SEED, Seed, read_part
from shared.contracts.spec import RecommenderSpec
from shared.domain.attributes import LARGEST, MOST_CHARACTERS, MOST_NAMES, MOST_TEXT, MOST_VALUES
from shared.domain.errors import Invalid
from tests.support.etl_stage import Etl
from tests.unit.pipelines import recommender

AT = datetime(2026, 1, 1, tzinfo=UTC)
TABLE = pl.DataFrame(
    {
        "item": [1, 2],
        "whole": [3, None],
        "price": pl.Series([0.1, None], dtype=pl.Float32),
        "title": ['é "', None],
        "kind": pl.Series(["a", None], dtype=pl.Categorical),
        "adult": [True, None],
        "genres": [["x", None, "y"], None],
        "sizes": [[1, 2], None],
        "released": [date(1970, 1, 2), None],
        "at": [datetime(1970, 1, 1, 0, 0, 1, 500_000), None],
        "cost": pl.Series(["1.50", None]).str.to_decimal(scale=2),
    }
)
KNOWN = {
    "whole": 3,
    "price": 0.1,
    "title": 'é "',
    "kind": "a",
    "adult": True,
    "genres": ("x", "y"),
    "sizes": (1, 2),
    "released": 86_400,
    "at": 1.5,
    "cost": 1.5,
}


def published(items: pl.DataFrame, folder: Path, declared: Mapping[str, Any] | None = None) -> dict[int, dict[str, Any]]:
    files = write_seed(items, "item", attribute_columns(items, "item", declared or {}).kinds, AT, lambda name: folder / name)
    if not files:
        return {}
    seed = Seed.model_validate_json(files[SEED].read_text())
    assert (seed.at, seed.items, {*seed.parts, SEED}) == (AT, len(items), set(files))
    rows = [row for name in seed.parts for row in read_part(files[name].read_bytes())]
    assert [item for item, *_ in rows] == items["item"].to_list()
    return {item: dict(values) for item, _, values in rows}


def test_every_kind_of_column_is_published_and_null_is_unknown(tmp_path: Path) -> None:
    assert published(TABLE, tmp_path) == {1: KNOWN, 2: {}}


def test_large_tables_have_several_parts_in_the_order_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributes, "PART", 4)
    table = pl.DataFrame({"item": [-(2**63), *range(8), 2**63 - 1], "age": range(10)})
    assert [values["age"] for values in published(table, tmp_path).values()] == list(range(10))
    assert len(list(tmp_path.glob("attributes-*"))) == 3


def test_equal_tables_have_equal_files(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        published(TABLE, tmp_path / name)
        contents.append([path.read_bytes() for path in sorted((tmp_path / name).iterdir())])
    assert contents[0] == contents[1]


@pytest.mark.parametrize(
    ("values", "left"),
    [
        ([float("nan"), float("inf"), 1.5], [None, None, 1.5]),
        ([LARGEST + 1, -LARGEST - 1, LARGEST], [None, None, LARGEST]),
        (["x" * (MOST_TEXT + 1), "a\0b", "x" * MOST_TEXT], [None, None, "x" * MOST_TEXT]),
        ([[1.0] * (MOST_VALUES + 1), [float("nan")], [1.0] * MOST_VALUES], [None, None, (1.0,) * MOST_VALUES]),
        ([["x" * (MOST_TEXT + 1)], [], ["a"]], [None, (), ("a",)]),
    ],
)
def test_values_beyond_a_limit_are_left_out(values: list[Any], left: list[Any], tmp_path: Path) -> None:
    rows = published(pl.DataFrame({"item": [1, 2, 3], "of": values}), tmp_path)
    assert [row.get("of") for row in rows.values()] == left


def test_the_last_texts_of_a_long_item_are_left_out(tmp_path: Path) -> None:
    table = pl.DataFrame({"item": [1, 2], **{f"text{n}": ["x" * 500, "y"] for n in range(40)}, "age": [1, 2]})
    rows = published(table, tmp_path)
    assert len(rows[2]) == 41
    names = sum(map(len, table.columns[1:]))
    assert list(rows[1]) == [*(f"text{n}" for n in range((MOST_CHARACTERS - names) // 500)), "age"]


def test_columns_that_are_no_attributes_are_left_out_with_the_reason() -> None:
    table = TABLE.select("item", "price").with_columns(
        pl.lit(True).alias("available"),
        pl.lit(1).alias("no name"),
        pl.lit(1).alias("in"),
        pl.Series("vector", [[1.0] * 200] * 2),
        pl.Series("array", [[1.0, 2.0]] * 2, dtype=pl.Array(pl.Float32, 2)),
        pl.lit(None).alias("empty"),
    )
    columns = attribute_columns(table, "item", {})
    assert columns.kinds == {"price": "number"}
    assert {name: reason[:25] for name, reason in columns.left_out.items()} == {
        "available": "availability is written b",
        "no name": "'no name' is not an attri",
        "in": "'in' is a word of the fil",
        "vector": "each list has more than 1",
        "array": "no attribute can have the",
        "empty": "no attribute can have the",
    }
    wide = pl.DataFrame({"item": [1], **{f"c{n}": [n] for n in range(MOST_NAMES + 2)}})
    assert list(attribute_columns(wide, "item", {}).left_out) == [f"c{MOST_NAMES}", f"c{MOST_NAMES + 1}"]


def test_declared_attributes_are_published_alone_and_only_in_their_kind(tmp_path: Path) -> None:
    assert published(TABLE, tmp_path, {"title": "text", "whole": "text", "region": "text"}) == {1: {"title": 'é "'}, 2: {}}
    assert published(TABLE, tmp_path, {"region": "text"}) == {}


def etl_spec(folder: Path) -> RecommenderSpec:
    recommender.write(folder, items=recommender.films().with_columns(price=pl.lit(3)))
    return recommender.spec(folder)


def test_etl_records_the_time_of_the_table_and_its_columns(etl: Etl, tmp_path: Path) -> None:
    spec = etl_spec(tmp_path)
    os.utime(str(spec.data.items.uri), (1_700_000_000, 1_700_000_000))
    outcome = etl(spec)
    record = json.loads(outcome.files[ITEMS_TABLE].read_text())
    assert outcome.facts["items_table"] == record
    assert record["at"] == "2023-11-14T22:13:20Z"
    assert "price" in record["columns"] and "price" in record["attributes"]
    os.utime(str(spec.data.items.uri), (4e9, 4e9))
    late = json.loads(etl(spec).files[ITEMS_TABLE].read_text())
    assert datetime.fromisoformat(late["at"]) <= datetime.now(UTC), "a file of the future is as old as the run"


def test_etl_refuses_a_filter_on_an_attribute_that_nobody_knows(etl: Etl, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec = etl_spec(tmp_path)
    filters = spec.serve.model_copy(update={"filter": ("prise < 10", "region == 'de'")})
    wrong = spec.model_copy(update={"serve": filters})
    with pytest.raises(Invalid, match=r"serve.filter: unknown attribute 'prise': did you mean 'price'\?"):
        etl(wrong, attributes=("region",))
    mistyped = spec.model_copy(update={"serve": spec.serve.model_copy(update={"filter": ("price > 'cheap'",)})})
    with pytest.raises(Invalid, match=r"serve.filter: .*'>' compares 'price' \(a number\) with 'cheap' \(a text\): different types"):
        etl(mistyped)
    with caplog.at_level(logging.WARNING):
        etl(wrong)
    assert "attributes: unknown to the items table field=serve.filter error=unknown attribute 'prise'" in caplog.text
    etl(
        spec.model_copy(update={"serve": spec.serve.model_copy(update={"filter": ("price < 10", "region == 'de'")})}),
        attributes=("region",),
    )
