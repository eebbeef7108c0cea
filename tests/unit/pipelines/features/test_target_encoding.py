"""Target encoding against a computation of its own, and that nothing of a row's own target is in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.evaluation.metrics import auc
from pipelines.features.engines.polars import PreparedTables
from pipelines.features.graph import Graph, Tables, compile_graph
from pipelines.inputs.tables import read_table
from shared.contracts.features import Categorify, TargetEncode
from shared.contracts.spec import RecommenderSpec
from tests.support.feature_graphs import fitted
from tests.unit.pipelines.recommender import films, spec

FOLDS, SMOOTHING = 5, 7.0
PRIME = 2**31 - 1


def _rows(count: int = 3_000, seed: int = 1) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "user": random.integers(0, 200, count),
            "item": np.minimum(random.zipf(1.4, count), 400),
            "time": random.integers(0, 10**9, count),
            "label": random.integers(0, 2, count).astype(np.int8),
            "spent": np.where(random.random(count) < 0.1, None, random.integers(0, 800, count) / 8).tolist(),
        },
        schema_overrides={"spent": pl.Float64},
    )


def _graph(rows: pl.DataFrame, of: tuple[str, ...] = ("item",), targets: tuple[str, ...] = ("label",), **more: float) -> Graph:
    said = {"of": list(of), "target": list(targets), "folds": FOLDS, "smoothing": SMOOTHING} | more
    entries = (Categorify(categorify=("user", "item")), TargetEncode.model_validate({"target_encode": said}))
    schema = pl.Schema({name: dtype for name, dtype in rows.schema.items() if name != "label"})
    graph = compile_graph(entries, Tables("user", "item", "time", schema))
    return graph.fit(PreparedTables(rows.lazy(), None, None, graph.row))


def _fold(user: int, item: int, time: int) -> int:
    """As the explanation of the hash says, by Python's own numbers."""
    found = user % PRIME
    for value in (item, time):
        found = (found * 1_103_515_245 + value % PRIME + 12_345) % PRIME
    return (found * (1_812_433_253 % PRIME) + 12_345) % PRIME % FOLDS


def _by_hand(rows: pl.DataFrame, keys: tuple[str, ...], target: str) -> tuple[list[float], list[float]]:
    """Row by row: out of the row's fold, and of all rows. With nothing but loops."""
    table = rows.rows(named=True)
    folds = [_fold(row["user"], row["item"], row["time"]) for row in table]
    apart, whole = [], []
    for row, fold in zip(table, folds, strict=True):
        for found, others in (
            (apart, [one for one, of in zip(table, folds, strict=True) if of != fold and one[target] is not None]),
            (whole, [one for one in table if one[target] is not None]),
        ):
            mean = sum(one[target] for one in others) / len(others)
            same = [one[target] for one in others if all(one[key] == row[key] for key in keys)]
            found.append((sum(same) + SMOOTHING * mean) / (len(same) + SMOOTHING))
    return apart, whole


@pytest.mark.requirement("G-14")
@pytest.mark.parametrize(("keys", "targets"), [(("item",), ("label",)), (("user", "item"), ("label", "spent"))])
def test_it_is_what_a_computation_of_its_own_finds(keys: tuple[str, ...], targets: tuple[str, ...]) -> None:
    rows = _rows(400)
    graph = _graph(rows, keys, targets)
    stem = "_".join(keys) + "_te"
    made = {mode: graph.transform(rows.lazy(), mode=mode).collect() for mode in ("rows", "serve")}  # type: ignore[arg-type]
    for target in targets:
        name = stem if len(targets) == 1 else f"{stem}_{target}"
        apart, whole = _by_hand(rows, keys, target)
        np.testing.assert_allclose(made["rows"][name].to_numpy(), apart, rtol=1e-6)
        np.testing.assert_allclose(made["serve"][name].to_numpy(), whole, rtol=1e-6)


@pytest.mark.requirement("G-14")
def test_random_labels_can_not_be_told_by_it_out_of_fold() -> None:
    """In the other mode they can: that is what the folds are for."""
    apart, whole = [], []
    for seed in range(20):
        rows = _rows(5_000, seed)
        graph, labels = _graph(rows, smoothing=0.0), rows["label"].to_numpy()
        for mode, found in (("rows", apart), ("serve", whole)):
            area = auc(labels, graph.transform(rows.lazy(), mode=mode).collect()["item_te"].to_numpy())  # type: ignore[arg-type]
            assert area is not None
            found.append(area)
    noise = np.std(apart) / np.sqrt(len(apart))
    assert abs(np.mean(apart) - 0.5) < 4 * noise and noise < 0.005
    assert np.mean(whole) > 0.55


@pytest.mark.requirement("G-14")
def test_in_training_a_negative_has_its_items_value_out_of_its_positives_fold(tmp_path: Path) -> None:
    wanted: RecommenderSpec = spec(
        tmp_path, features=[{"categorify": ["userId", "movieId"]}, {"target_encode": {"of": "movieId", "folds": 3}}]
    )
    rows = pl.LazyFrame({"user": [1, 2, 3, 4] * 5, "item": [1, 2, 3, 3] * 5, "time": np.arange(20) * 1e5, "label": [1, 0, 1, 0] * 5})
    graph = fitted(wanted, rows, films()).graph
    path = tmp_path / "items.features.parquet"
    graph.table(films().lazy(), "item").collect().write_parquet(path)
    table = read_table(path, graph, "item")
    places, folds = np.array([0, 2, 2]), {3: np.array([0, 1, 2], np.int8)}
    seen = table.take(places, folds)["movieId_te"]
    assert seen.tolist() == [table.apart["movieId_te"][row, fold] for row, fold in zip(places, folds[3], strict=True)]
    assert table.take(places)["movieId_te"].tolist() != seen.tolist()


def test_equal_rows_in_any_order_and_number_of_batches_give_equal_files(tmp_path: Path) -> None:
    rows = _rows()
    written = []
    for number, order in enumerate((slice(None), slice(None, None, -1))):
        folder = tmp_path / str(number)
        folder.mkdir()
        written.append({name: path.read_bytes() for name, path in _graph(rows[order], targets=("spent",)).save(folder).items()})
    assert written[0] == written[1]
