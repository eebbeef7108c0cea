"""What can't be trained on is refused before anything is built: one line that says what and where."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.features.prepared import FEATURE
from pipelines.inputs.tables import FeatureTable
from pipelines.models.families import FAMILIES
from pipelines.models.family import Task
from pipelines.training.preflight import check_memory, check_rows
from shared.domain.errors import BadData, Invalid
from tests.support.feature_graphs import fitted
from tests.support.training_tasks import ITEMS, ROWS, task, write_rows
from tests.unit.pipelines.recommender import spec


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "train.parquet")


def _said(given: Task) -> str:
    with pytest.raises(Invalid) as refused:
        FAMILIES["mlp"].train(given)
    said = str(refused.value)
    assert "\n" not in said
    return said


def _with(rows: Path, **columns: Any) -> Path:
    pl.read_parquet(rows).with_columns(**columns).write_parquet(rows)
    return rows


def test_rows_of_one_label_are_refused(rows: Path) -> None:
    assert _said(task(_with(rows, label=pl.lit(0, pl.Int8)))) == (
        f"train.parquet: none of its {ROWS:,} rows is a positive: check schema.label.positive"
    )
    alike = _with(rows, label=pl.lit(1, pl.Int8))
    assert _said(task(alike, {"negatives": 0})) == (
        f"train.parquet: all of its {ROWS:,} rows are positives: check schema.label.positive, or sample negatives (model.params.negatives)"
    )
    check_rows(task(alike).graph, alike, task(alike).items, None, negatives=1, warm=False)


def test_one_user_is_refused_but_where_a_warm_run_adds_to_what_is_known(rows: Path) -> None:
    alone = _with(rows, user=pl.lit(7), user_code=pl.lit(9, pl.Int32))
    assert _said(task(alone)) == (f"train.parquet: all of its {ROWS:,} rows are of one user: training needs several users")
    given = task(alone)
    check_rows(given.graph, alone, given.items, None, negatives=1, warm=True)


def test_no_rows_are_refused(rows: Path) -> None:
    pl.read_parquet(rows).head(0).write_parquet(rows)
    assert _said(task(rows)) == "train.parquet: no rows to train on"


@pytest.mark.parametrize(("code", "said"), [(52, "52"), (-1, "-1")])
def test_a_users_code_beyond_the_vocabulary_is_refused(rows: Path, code: int, said: str) -> None:
    broken = _with(rows, user_code=pl.when(pl.col("time") == 17).then(code).otherwise("user_code").cast(pl.Int32))
    assert _said(task(broken)) == (
        f"train.parquet: feature 'user' has the code {said}, but its vocabulary ends at 51: the rows and the features are of different runs"
    )


def test_an_items_code_or_row_beyond_what_there_is_is_refused(rows: Path) -> None:
    given = task(rows)
    codes = np.arange(ITEMS, dtype=np.int32) + 2
    codes[3] = ITEMS + 2
    assert _said(replace(given, items=FeatureTable({"item": codes}, {}))) == (
        f"the items table: feature 'item' has the code {ITEMS + 2}, but its vocabulary ends at {ITEMS + 1}: the rows and the features are "
        "of different runs"
    )
    few = FeatureTable({"item": codes[:1]}, {})
    assert _said(replace(given, items=few)) == (
        f"train.parquet: 'item_row' goes up to {ITEMS - 1}, but the items table has 1 rows: they are of different runs"
    )


def test_numbers_that_are_none_are_refused_wherever_they_are(rows: Path) -> None:
    features = [{"categorify": ["userId", "movieId"]}, {"fill": "price", "with": 0.0}, {"cyclic": {"of": "at", "periods": ["day"]}}]
    items = pl.DataFrame({"movieId": range(ITEMS), "price": np.linspace(0, 9, ITEMS)})
    frame = pl.read_parquet(rows)
    ready = fitted(spec(rows.parent, features=features), frame.select("user", "item", "time", "label").lazy(), items)
    graph = ready.graph
    moments = [one.name for one in graph.side("context")]
    assert moments, "there is a feature of the moment"
    columns = {one.name: np.zeros(ITEMS, np.int32 if one.kind == "code" else np.float32) for one in graph.side("item")}
    broken = frame.with_columns(**{f"{FEATURE}{name}": pl.lit(0.5, pl.Float32) for name in moments})
    broken.write_parquet(rows)
    check_rows(graph, rows, FeatureTable(columns, {}), None, negatives=1, warm=False)
    (number,) = (one.name for one in graph.side("item") if one.kind != "code")
    for value in (np.nan, np.inf):
        wrong = {**columns, number: np.where(np.arange(ITEMS) < 3, value, 1.0).astype(np.float32)}
        with pytest.raises(BadData) as refused:
            check_rows(graph, rows, FeatureTable(wrong, {}), None, negatives=1, warm=False)
        assert str(refused.value) == f"the items table: feature '{number}' is not finite in 3 of {ITEMS} rows"
    name = moments[0]
    broken.with_columns(
        pl.when(pl.col("time") < 5).then(float("nan")).otherwise(f"{FEATURE}{name}").alias(f"{FEATURE}{name}")
    ).write_parquet(rows)
    with pytest.raises(BadData, match=rf"train\.parquet: feature '{name}' is not finite in 5 rows"):
        check_rows(graph, rows, FeatureTable(columns, {}), None, negatives=1, warm=False)


@pytest.mark.requirement("G-21")
def test_tables_that_memory_can_not_hold_are_refused_before_anything_is_built(rows: Path) -> None:
    assert _said(replace(task(rows, {"width": 1024, "layers": [8]}), memory=2**20)) == (
        "model.params.width: the weights take 0.9 MB, 3 times that with adam's moments, but resources.train.memory gives 1.0 MB: choose a "
        "smaller width or a larger min_count, or raise resources.train.memory"
    )
    check_memory(2**20, "sgd", 2**20)
    with pytest.raises(Invalid, match=r"3 times that with adam's moments, but this machine has free"):
        check_memory(2**50, "adam", None)
