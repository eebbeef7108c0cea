"""What export publishes of users is what the gateway asks with, value by value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.export.online import newest, write_online
from pipelines.features.raw import raw_column
from services.gateway.model_inputs import column
from shared.contracts.online import ONLINE, Online
from shared.serving.signature import Signature
from shared.serving.values_file import join_values, read_values

AT = datetime(2026, 1, 1, tzinfo=UTC)
STORED = {"side": "user", "source": "store", "view": "users"}
SERVED = Signature.model_validate(
    {
        "user": "userId",
        "item": "movieId",
        "inputs": [
            {"name": "userId", "dtype": "int64", "side": "user"},
            {"name": "movieId", "dtype": "int64", "side": "item"},
            {"name": "age", "dtype": "int64", **STORED},
            {"name": "city", "dtype": "string", **STORED},
            {"name": "mean", "dtype": "float32", **STORED},
            {"name": "last", "dtype": "int64", "width": 3, **STORED},
            {"name": "tags", "dtype": "string", "width": 2, **STORED},
            {"name": "weights", "dtype": "float32", "width": 2, **STORED},
        ],
    }
)
USERS = pl.DataFrame(
    {
        "userId": [-5, 2, 3, 2**62],
        "age": [None, 30, -(2**63) + 1, 2**63 - 1],
        "city": ["Zürich", None, "", "日本"],
        "mean": [0.1, None, float("nan"), -1e-30],
        "last": [[1, 2, 3, 4], [], None, [7]],
        "tags": [["a"], ["a", "b", "c"], [], None],
        "weights": [[0.1, 0.2], [1.0], None, [None, 2.0]],
    },
    schema_overrides={"mean": pl.Float32, "weights": pl.List(pl.Float32)},
)


def published(folder: Path, users: pl.DataFrame | None = USERS, part: int = 3) -> tuple[Online, dict[str, Path]]:
    files = write_online(SERVED, users, AT, timedelta(days=3), lambda name: folder / name, part)
    return Online.model_validate_json(files[ONLINE].read_text()), files


@pytest.mark.requirement("G-08")
def test_the_gateway_asks_with_what_the_users_table_says(tmp_path: Path) -> None:
    online, files = published(tmp_path)
    (view,) = online.views
    assert (view.name, view.entity, view.rows, view.ttl, len(view.parts)) == ("users", "user", 4, timedelta(days=3), 2)
    values = join_values([read_values(files[name].read_bytes(), view, name) for name in view.parts])
    rows = [values.row(place, view.columns) for place in range(len(values))]
    assert [(row.key, row.at) for row in rows] == [(key, AT) for key in USERS["userId"]]
    for one in SERVED.inputs[2:]:
        asked: Any = column(one, [row.values.get(one.name) for row in rows])
        np.testing.assert_array_equal(asked, raw_column(USERS, one, "the users table"))


def test_a_unit_that_takes_nothing_of_users_publishes_nothing(tmp_path: Path) -> None:
    served = SERVED.model_copy(update={"inputs": SERVED.inputs[:2]})
    assert write_online(served, USERS, AT, None, lambda name: tmp_path / name) == {}


def test_without_any_user_there_is_a_view_without_rows(tmp_path: Path) -> None:
    online, files = published(tmp_path, None)
    assert (online.views[0].rows, online.views[0].parts, list(files)) == (0, (), [ONLINE])


def test_equal_data_is_published_as_equal_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = published(tmp_path / "a")[1], published(tmp_path / "b")[1]
    assert {name: path.read_bytes() for name, path in first.items()} == {name: path.read_bytes() for name, path in second.items()}


def test_values_are_as_old_as_the_newest_of_the_data(tmp_path: Path) -> None:
    pl.DataFrame({"time": [1.0, 5.5]}).write_parquet(tmp_path / "train.parquet")
    pl.DataFrame({"time": [9.25]}).write_parquet(tmp_path / "holdout.parquet")
    assert newest(lambda name: tmp_path / name) == datetime(1970, 1, 1, 0, 0, 9, 250_000, tzinfo=UTC)
