"""The family of trees: what is served is what the libraries say, rows don't see themselves, runs go on, damage is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from pipelines.models.families import load_model
from pipelines.models.gbm import Gbm
from pipelines.models.trees import rows as rows_module
from pipelines.models.trees.ensemble import Trees
from pipelines.models.trees.growing import Grower, Part, begin
from pipelines.models.trees.knowledge import learn
from pipelines.models.trees.layout import layout_of
from pipelines.models.trees.model import TreeModel
from pipelines.models.trees.rows import Mixed, Popular, Retrieved, deal, factorised, find_out, fold_of
from pipelines.training.keeping import Keeping, rests_on
from shared.artifacts import FsspecLive
from shared.contracts.families import GbmParams
from shared.contracts.models import Model
from shared.domain.errors import BadData, Invalid
from tests.support.exported_units import Small, small
from tests.support.taste_data import ITEMS, LOG, USERS, pairs, recall, task

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


def matrix(missing: bool, seed: int = 3) -> Part:
    """Numbers of few values, so that rows stand at thresholds; the first column says what is liked, a missing number too."""
    random = np.random.default_rng(seed)
    found = np.round(random.normal(size=(800, COLUMNS)), 1).astype(np.float32)
    found[:, 3] = random.normal(size=800).astype(np.float32) * np.float32(1e-3)
    if missing:
        found[random.random(found.shape) < 0.2] = np.nan
    liked = np.where(np.isnan(found[:, 0]), random.random(800) < 0.8, found[:, 0] + found[:, 3] * 500 > 0.3)
    return Part(found, liked.astype(np.float32), np.repeat(np.arange(100), 8))


def grown(library: str, missing: bool, **more: Any) -> Grower:
    part = matrix(missing)
    grower = begin(params(library, **more), 1, lambda: iter([part]), None, 0)
    grower.grow(12)
    grower.finish()
    return grower


def served(trees: Trees, rows: np.ndarray) -> np.ndarray:
    import onnxruntime
    from onnx import TensorProto, helper

    given, out = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", None]) for name in ("given", "out"))
    graph = helper.make_graph([trees.node("given", "out")], "trees", [given], [out])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    session = onnxruntime.InferenceSession(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    return session.run(None, {"given": rows})[0][:, 0]  # type: ignore[no-any-return]


@pytest.mark.requirement("G-18", "T-13")
@pytest.mark.parametrize("missing", [False, True], ids=["whole", "missing"])
@pytest.mark.parametrize(
    "more", [{}, {"leaves": 7}, {"objective": "rank"}, {"splits": "random"}, {"depth": 1}], ids=lambda one: "-".join(one) or "plain"
)
@pytest.mark.parametrize("library", LIBRARIES)
def test_arrays_and_the_served_operator_say_what_the_library_says(library: str, more: dict[str, Any], missing: bool) -> None:
    if (library == "forest") != ("splits" in more) and {"objective", "splits"} & set(more):
        return  # no such trees: refused by the contract
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
@pytest.mark.parametrize(
    "more", [{}, {"library": "lightgbm"}, {"library": "forest"}, {"objective": "rank"}, {"library": "lightgbm", "objective": "rank"}]
)
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
            trained(tmp_path / f"{library}-{at}", library=library, subsample=0.5) if seed == 1
            else fitted(tmp_path / f"{library}-{at}", {"seed": seed}, library=library, subsample=0.5).model
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

    model = world.train("gbm")
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


def test_a_list_of_many_codes_becomes_three_numbers() -> None:
    from pipelines.models.trees.layout import Source, _part

    values = np.array([[5, 90, 0, 0], [0, 0, 0, 0], [7, 7, 7, 80]], np.int32)
    found = _part(Source("tags", 4, 100), values)
    np.testing.assert_array_equal(found, [[2, 5, 90], [0, 100, 0], [4, 7, 80]])
    assert Source("tags", 4, 100).columns == ("count tags", "first tags", "last tags")


def test_a_row_to_grow_on_is_described_without_its_own_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    liked = pairs()
    given = task(tmp_path, liked, "gbm", **SMALL)
    codes = given.items.columns["item"]
    files = deal(given.rows, codes, 3, 1, tmp_path)
    seen: list[set[tuple[int, int]]] = []

    def spied(some: Any, *rest: Any) -> Any:
        seen.append(set(zip(some.users.tolist(), some.items.tolist(), strict=True)))
        return learn(some, *rest)

    monkeypatch.setattr(rows_module, "learn", spied)
    chosen = given.model.params
    assert isinstance(chosen, GbmParams)
    find_out(replace(liked, users=liked.users + 2, items=liked.items + 2, user_count=USERS + 2, item_count=ITEMS + 2), chosen, 1, LOG)
    dealt = 0
    for path, others in zip(files, seen[:3], strict=True):
        assert path is not None
        rows = pl.read_parquet(path)
        assert rows["user_code"].is_sorted()
        mine = set(zip(rows["user_code"].to_list(), codes[rows["item_row"].to_numpy()].tolist(), strict=True))
        assert mine and not mine & others
        dealt += len(mine)
    assert dealt == len(liked) == len(seen[3])


def test_what_is_retrieved_is_what_the_factorisation_finds_without_likes() -> None:
    liked = pairs()
    known = learn(liked, factorised(liked, 8, 0.03, 1), len(liked))
    items = np.arange(ITEMS, dtype=np.int32)
    draw = Retrieved(known, items, liked, 10)
    users = np.repeat(np.arange(USERS), 200)
    found = draw({"user_code": users}, np.random.default_rng(1))
    mine = {user: set(liked.items[liked.users == user].tolist()) for user in range(USERS)}
    fits = known.fits(np.arange(USERS))
    for user in range(USERS):
        free = np.array([item for item in range(ITEMS) if item not in mine[user]])
        best = set(free[np.argsort(-fits[user, free])][:10].tolist())
        assert set(found[users == user].tolist()) == best
    half = Mixed(draw, ITEMS)({"user_code": users}, np.random.default_rng(1))
    assert 0.4 < np.mean(half == found) < 0.75


def test_popular_items_are_drawn_as_often_as_they_are_liked() -> None:
    found = Popular(np.array([0.0, 8.0, 1.0]))({"user_code": np.zeros(12_000)}, np.random.default_rng(1))
    np.testing.assert_allclose(np.bincount(found) / 12_000, [1 / 12, 9 / 12, 2 / 12], atol=0.02)


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
            with pytest.raises(BadData, match=f"{name}: it is not the file that model.json was written with"):
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


@pytest.mark.requirement("G-09", "G-18")
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_warm_run_grows_further_trees_on_its_parent_s(tmp_path: Path, library: str) -> None:
    parent, warm = going_on(tmp_path, library)
    before, after = parent.trees, warm.trees
    assert len(after.roots) == 2 * len(before.roots) == 24
    count = int(after.roots[12])
    np.testing.assert_array_equal(after.feature[:count], before.feature)
    np.testing.assert_array_equal(after.threshold[:count], before.threshold)
    rows = np.random.default_rng(1).normal(size=(200, len(warm.layout.columns))).astype(np.float32)
    np.testing.assert_allclose(after.score(rows), warm.margin(rows), atol=2e-6)


def going_on(folder: Path, library: str, changed: dict[str, Any] | None = None) -> tuple[TreeModel, TreeModel]:
    everything = pairs()
    old, new = everything.take(slice(0, 300)), everything.take(slice(300, None))
    parent = Gbm().train(task(folder / "parent", old, "gbm", library=library, **SMALL)).model
    assert isinstance(parent, TreeModel)
    files = parent.save(folder)
    pl.DataFrame({"user": old.users, "item": old.items, "label": 1, "before": 1}).write_parquet(folder / "history.parquet")
    given = task(folder / "warm", new, "gbm", lambda name: files[name], **{"library": library, **SMALL, **(changed or {})})
    warm = Gbm().train(replace(given, history=folder / "history.parquet")).model
    assert isinstance(warm, TreeModel)
    return parent, warm


@pytest.mark.parametrize(
    ("library", "changed", "said"),
    [
        ("forest", {}, "a forest's trees don't go on from a parent's: a warm run can't, start a full one"),
        ("xgboost", {"library": "lightgbm"}, "'lightgbm' is not the parent's 'xgboost': a warm run can't change it"),
        ("xgboost", {"objective": "rank"}, "'rank' is not the parent's 'logistic'"),
        ("xgboost", {"width": 0}, "features: the columns are not those of the parent's trees"),
    ],
)
def test_what_a_warm_run_can_t_go_on_from_is_refused(tmp_path: Path, library: str, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        going_on(tmp_path, library, changed)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_best_number_of_trees_is_published_and_growing_ends_when_it_no_longer_helps(tmp_path: Path, library: str) -> None:
    train = {"validation": 0.2, "early_stop": {"patience": 2}}
    found = fitted(tmp_path, train, library=library, trees=60)
    rounds, published = found.report["rounds"], found.report["published"]
    best = max(rounds, key=lambda one: one["validation"]["auc"])
    assert published["trees"] == best["trees"] == len(found.model.trees.roots)
    assert published["best_by"] == {"metric": "auc", "value": best["validation"]["auc"]}
    assert found.metrics["train.validation_auc"] > 0.7
    assert (len(rounds) < 20) == (found.report["ended"] == "auc was no better in 2 looks")


def test_trees_are_compared_by_how_held_out_likes_rank(tmp_path: Path) -> None:
    found = fitted(tmp_path, {"validation": 0.2, "early_stop": {"metric": "ndcg@10/99", "patience": 50}}, objective="rank")
    assert found.report["published"]["best_by"]["metric"] == "ndcg@10/99"
    with pytest.raises(Invalid, match=r"no 'loss' of trees that rank: choose auc"):
        fitted(tmp_path / "loss", {"validation": 0.2, "early_stop": {"metric": "loss"}}, objective="rank")


@pytest.mark.requirement("N-05")
def test_a_killed_training_goes_on_and_ends_where_an_undisturbed_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trained(tmp_path / "whole", subsample=0.5, columns=0.6)
    train = {"checkpoint": {"every": "1h", "steps": 3}}
    model = Model.model_validate({"family": "gbm", "params": SMALL | {"subsample": 0.5, "columns": 0.6}, "train": train})
    given = replace(task(tmp_path / "killed", pairs(), "popularity"), model=model)

    def keeping(attempt: str) -> Keeping:
        scratch = tmp_path / attempt
        scratch.mkdir()
        return Keeping(FsspecLive(str(tmp_path / "live"), attempt), rests_on(model, "full", {}), scratch, LOG)

    grow = killed_after(7, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        Gbm().train(replace(given, keeping=keeping("run-train-1")))
    grow()
    found = Gbm().train(replace(given, keeping=keeping("run-train-2")))
    assert found.report is not None and found.report["resumed"] == [{"attempt": "run-train-1"}]
    assert found.report["rounds"][5]["trees"] == 6
    assert isinstance(found.model, TreeModel)
    for name, array in whole.trees.arrays.items():
        np.testing.assert_array_equal(array, found.model.trees.arrays[name])


def killed_after(trees: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    from pipelines.models.trees.by_xgboost import XGBoost

    grow = XGBoost.grow

    def dying(self: XGBoost, more: int) -> None:
        if self.count >= trees:
            raise KeyboardInterrupt
        grow(self, more)

    monkeypatch.setattr(XGBoost, "grow", dying)
    return cache(lambda: monkeypatch.setattr(XGBoost, "grow", grow))


def test_rows_that_don_t_fit_into_memory_are_made_anew_on_each_pass_and_give_the_same_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = trained(tmp_path / "held")
    monkeypatch.setattr(rows_module.Described, "_fits", False)
    monkeypatch.setattr(rows_module, "ROWS", 700)
    for name, array in trained(tmp_path / "streamed").trees.arrays.items():
        np.testing.assert_array_equal(array, held.trees.arrays[name])


def test_what_doesn_t_fit_is_refused_before_anything_is_grown(tmp_path: Path) -> None:
    given = task(tmp_path, pairs(), "gbm", library="lightgbm", **SMALL)
    with pytest.raises(
        Invalid, match=r"rows of 7 columns take .* resources.train.memory gives .*: choose library: xgboost, .*or draw fewer"
    ):
        Gbm().train(replace(given, memory=100_000))
    large = replace(given, model=Model.model_validate({"family": "gbm", "params": {"library": "forest", "trees": 10_000, "depth": 16}}))
    with pytest.raises(Invalid, match=r"one exported graph holds 2\.1 GB: choose fewer, or a smaller depth"):
        Gbm().train(large)


def test_a_gpu_takes_a_build_that_knows_it(tmp_path: Path) -> None:
    import xgboost

    if xgboost.build_info()["USE_CUDA"]:
        pytest.skip("this XGBoost knows GPUs: install xgboost-cpu to see what is said without")
    with pytest.raises(Invalid, match="built without CUDA: leave it out, or give the stage an image with 'xgboost'"):
        trained(tmp_path, device="cuda")


@pytest.mark.requirement("G-18")
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"params": {"library": "forest", "learning_rate": 0.2}}, "'learning_rate' has no effect in a forest"),
        ({"params": {"library": "forest", "objective": "rank"}}, "'objective' has no effect in a forest"),
        ({"params": {"splits": "random"}}, "'splits' has no effect with xgboost"),
        ({"params": {"library": "lightgbm", "device": "cuda"}}, "'device' has no effect with lightgbm"),
        ({"params": {"negatives": 0, "among": "popular"}}, "'among' has no effect where no negatives are drawn"),
        ({"params": {"candidates": 50}}, "'candidates' has no effect where negatives are drawn from all"),
        ({"params": {"among": "retrieved", "verified": False}}, "'verified' has no effect where negatives are retrieved"),
        ({"params": {"among": "mixed", "width": 0}}, "are what a factorisation finds: give it a width"),
        ({"train": {"epochs": 9}}, "'epochs' has no effect: gbm grows trees"),
        ({"train": {"learning_rate": 0.5}}, "'learning_rate' has no effect: gbm grows trees"),
        ({"params": {"library": "lightgbm"}, "train": {"checkpoint": {"every": "1m"}}}, "'checkpoint' has no effect"),
        ({"tune": {"train.epochs": {"from": 1, "to": 5}}}, "'train.epochs' has no effect: gbm grows trees"),
    ],
)
def test_what_has_no_effect_is_refused(said: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Model.model_validate({"family": "gbm", **said})


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
    assert json.loads(model.save(tmp_path)["model.json"].read_text())["columns"] == list(layout_of(given.graph, False).columns)


def test_a_pair_is_in_one_fold_by_its_codes_and_the_seed() -> None:
    frame = pl.DataFrame({"user": np.repeat(np.arange(50), 40), "item": np.tile(np.arange(40), 50)})
    folds = [frame.select(fold_of(pl.col("user"), pl.col("item"), 4, seed)).to_series().to_numpy() for seed in (1, 1, 2)]
    np.testing.assert_array_equal(folds[0], folds[1])
    assert (folds[0] != folds[2]).mean() > 0.5
    np.testing.assert_allclose(np.bincount(folds[0].astype(np.int64)) / 2000, 0.25, atol=0.04)
