"""The family of trees: what is served is what the libraries say, rows don't see themselves, runs go on, damage is told."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.features.onnx_builder import OnnxBuilder, tensor_info
from pipelines.models.families import load_model
from pipelines.models.gbm import Gbm, begin
from pipelines.models.trees.ensemble import Trees
from pipelines.models.trees.growing import Grower, TreeRows
from pipelines.models.trees.layout import layout_of
from pipelines.models.trees.model import TreeModel
from shared.contracts.families import GbmParams
from shared.contracts.models import Model
from shared.domain.errors import BadData
from tests.support.exported_units import Small, small
from tests.support.taste_data import ITEMS, USERS, pairs, recall, task

LIBRARIES = ("xgboost", "lightgbm", "forest")
SMALL: dict[str, Any] = {"trees": 12, "depth": 4, "width": 8, "folds": 3}
COLUMNS = 5


def params(library: str, **more: Any) -> GbmParams:
    return GbmParams.model_validate({"library": library, **SMALL, **more})


def trained(folder: Path, **more: Any) -> TreeModel:
    return fitted(folder, **more).model  # type: ignore[no-any-return]


def fitted(folder: Path, train: dict[str, Any] | None = None, **more: Any) -> Any:
    given = task(folder, pairs(), "popularity")
    model = Model.model_validate({"family": "gbm", "params": SMALL | more, "train": train or {}})
    return Gbm().train(replace(given, model=model))


def matrix(missing: bool, seed: int = 3) -> TreeRows:
    """Numbers of few values, so that rows stand at thresholds; the first column says what is liked, a missing number too."""
    random = np.random.default_rng(seed)
    found = np.round(random.normal(size=(800, COLUMNS)), 1).astype(np.float32)
    found[:, 3] = random.normal(size=800).astype(np.float32) * np.float32(1e-3)
    if missing:
        found[random.random(found.shape) < 0.2] = np.nan
    liked = np.where(np.isnan(found[:, 0]), random.random(800) < 0.8, found[:, 0] + found[:, 3] * 500 > 0.3)
    return TreeRows(found, liked.astype(np.float32), np.repeat(np.arange(100), 8))


def grown(library: str, missing: bool, **more: Any) -> Grower:
    part = matrix(missing)
    grower = begin(params(library, **more), 1, lambda: iter([part]), None, 0)
    grower.grow(12)
    grower.finish()
    return grower


def served(trees: Trees, rows: np.ndarray) -> np.ndarray:
    import onnxruntime

    build = OnnxBuilder()
    sums = trees.lower(build, build.input("rows", "FLOAT", "N", None))
    session = onnxruntime.InferenceSession(build.model("trees", tensor_info(sums, "FLOAT", "N", 1)).SerializeToString())
    return session.run(None, {"rows": rows})[0][:, 0]  # type: ignore[no-any-return]


SETTINGS: tuple[dict[str, Any], ...] = ({}, {"leaves": 7}, {"objective": "rank"}, {"splits": "random"}, {"depth": 1})


@pytest.mark.requirement("G-18", "T-13")
@pytest.mark.parametrize("library", LIBRARIES)
def test_arrays_and_the_served_operator_say_what_the_library_says(library: str, subtests: pytest.Subtests) -> None:
    for more, missing in product(SETTINGS, (False, True)):
        if (library == "forest") != ("splits" in more) and {"objective", "splits"} & set(more):
            continue  # no such trees: refused by the contract
        with subtests.test(more=more, missing=missing):
            grower = grown(library, missing, **more)
            trees = grower.trees()
            trees.check(COLUMNS)
            inner = trees.feature >= 0
            rows = np.concatenate([matrix(True).matrix, matrix(False, 4).matrix])
            for at, feature in zip(trees.threshold[inner][:300], trees.feature[inner][:300], strict=True):
                rows[(at.view(np.int32) % len(rows)), feature] = at  # stands at the threshold
            expected = grower.margin(rows)
            assert len(np.unique(expected)) > 2
            np.testing.assert_allclose(trees.score(rows), expected, atol=2e-6)
            np.testing.assert_allclose(served(trees, rows), expected, atol=2e-6)


def test_the_forest_s_arrays_say_what_scikit_learn_says() -> None:
    part = matrix(True)
    grower: Any = begin(params("forest"), 1, lambda: iter([part]), None, 0)
    grower.grow(5)
    grower.grow(4)
    np.testing.assert_allclose(grower.margin(part.matrix), grower._forest.predict(part.matrix), atol=1e-6)


def test_no_row_stands_where_xgboost_splits() -> None:
    """Not even by a last bit: the served graph's features may differ by one."""
    part, trees = matrix(False), grown("xgboost", False).trees()
    for feature in range(COLUMNS):
        at, values = trees.threshold[trees.feature == feature], part.matrix[:, feature]
        for moved in (values, np.nextafter(values, np.float32(-9)), np.nextafter(values, np.float32(9))):
            np.testing.assert_array_equal(moved[:, None] < at, values[:, None] < at)


@pytest.mark.requirement("G-18")
@pytest.mark.parametrize("more", [{}, {"library": "lightgbm"}, {"library": "forest"}])
def test_it_finds_the_tastes_of_users_in_likes_that_it_never_saw(tmp_path: Path, more: dict[str, Any]) -> None:
    liked = pairs()
    cut = len(liked) * 4 // 5
    shown, held = liked.take(slice(0, cut)), liked.take(slice(cut, None))
    given = task(tmp_path, shown, "gbm", **SMALL | {"trees": 40, "folds": 4} | more)
    model = Gbm().train(given).model
    users, items = (side.ravel().astype(np.int32) + 2 for side in np.meshgrid(np.arange(USERS), np.arange(ITEMS), indexing="ij"))
    scores = model.score({"user": users, "item": items}).reshape(USERS, ITEMS)
    assert recall(scores, held, hidden=shown) > 0.6  # ten of thirty-two at random would be a third


def test_equal_seeds_give_equal_trees_and_others_others(tmp_path: Path) -> None:
    for library in LIBRARIES:
        one, same, other = (
            trained(tmp_path / f"{library}-{at}", library=library, subsample=0.5, trees=6) if seed == 1
            else fitted(tmp_path / f"{library}-{at}", {"seed": seed}, library=library, subsample=0.5, trees=6).model
            for at, seed in enumerate((1, 1, 2))
        )  # fmt: skip
        for name, array in one.trees.arrays.items():
            np.testing.assert_array_equal(array, same.trees.arrays[name])
        assert not np.array_equal(one.trees.value, other.trees.value)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return small(tmp_path_factory.mktemp("small"))


@pytest.mark.requirement("G-18", "T-13")
def test_the_whole_graph_scores_as_training_does_to_the_last_bit_of_its_columns(world: Small) -> None:
    """Codes, lists, vectors, numbers that are missing, and the fit of user and item."""
    import onnxruntime

    model = world.train("gbm", params=SMALL | {"trees": 30})
    assert isinstance(model, TreeModel)
    random = np.random.default_rng(2)
    rows = random.integers(0, len(world.catalogue), 3000)
    columns = {name: one[rows] for name, one in world.codes.items()}
    columns["userId"] = random.integers(0, world.graph.key("userId").state.cardinality, 3000).astype(np.int32)
    columns["movieId"] = columns["movieId"].copy()
    columns["price"] = np.where(random.random(3000) < 0.3, np.nan, columns["price"]).astype(np.float32)
    lowered = model.lower()
    lowered.graph.output.append(next(one for one in lowered.graph.output).__class__(name="matrix"))
    session = onnxruntime.InferenceSession(lowered.SerializeToString())
    scores, seen = session.run(["score", "matrix"], {one.name: columns[one.name] for one in session.get_inputs()})
    np.testing.assert_array_equal(seen, model.layout.matrix(columns, model.knowledge))
    np.testing.assert_allclose(scores, model.score(columns), atol=1e-6)
    assert len(np.unique(scores)) > 100
    assert len(model.layout.columns) == seen.shape[1]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_saved_model_is_read_back_the_same_and_without_pickles(tmp_path: Path, library: str) -> None:
    model = trained(tmp_path, library=library)
    files = model.save(tmp_path)
    again = load_model(lambda name: files[name])
    users, items = np.arange(USERS, dtype=np.int32) + 2, (np.arange(USERS) % ITEMS).astype(np.int32) + 2
    np.testing.assert_array_equal(again.score({"user": users, "item": items}), model.score({"user": users, "item": items}))
    assert [(one.column, one.cardinality, one.width) for one in again.tables] == [("user", USERS + 2, 12), ("item", ITEMS + 2, 11)]
    assert set(files) == {"model.json", "knowledge.npz", {"xgboost": "model.ubj", "lightgbm": "model.txt", "forest": "trees.npz"}[library]}


@pytest.mark.parametrize("library", LIBRARIES)
def test_damaged_files_are_told_before_a_library_reads_them(tmp_path: Path, library: str) -> None:
    files = trained(tmp_path, library=library).save(tmp_path)
    for name in set(files) - {"model.json"}:
        whole = files[name].read_bytes()
        for damaged in (whole[: len(whole) // 2], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], b""):
            files[name].write_bytes(damaged)
            with pytest.raises(BadData, match=f"{name}: does not match model.json"):
                load_model(lambda name: files[name])
        files[name].write_bytes(whole)
    load_model(lambda name: files[name])


def test_arrays_that_lead_in_circles_or_out_of_bounds_are_no_trees() -> None:
    trees = grown("forest", True).trees()
    inner = int(np.flatnonzero(trees.feature >= 0)[1])
    for name, value in (("yes", inner), ("no", 10**6), ("yes", -1), ("feature", COLUMNS), ("threshold", np.nan)):
        array = getattr(trees, name).copy()
        array[inner] = value
        with pytest.raises(BadData, match="the trees are damaged"):
            replace(trees, **{name: array}).check(COLUMNS)


def test_labels_take_the_place_of_negatives_and_keys_need_no_factorisation(tmp_path: Path) -> None:
    given = task(tmp_path, pairs(), "gbm", **SMALL | {"negatives": 0, "width": 0})
    rows = pl.read_parquet(given.rows)
    rows = rows.with_columns(label=(pl.col("item_row") % 2).cast(pl.Int8))
    rows.write_parquet(given.rows)
    model = Gbm().train(given).model
    assert isinstance(model, TreeModel)
    assert not model.layout.fits and model.knowledge.width == 0
    items = np.arange(ITEMS, dtype=np.int32) + 2
    scores = model.score({"user": np.full(ITEMS, 5, np.int32), "item": items})
    assert scores[1::2].mean() > scores[::2].mean()
    assert json.loads(model.save(tmp_path)["model.json"].read_text())["columns"] == list(layout_of(given.graph, False, keys=True).columns)
