"""Training whose rows lie on the device: the steps of batches of the host, and epochs as they are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.features.columns import UNKNOWN
from pipelines.inputs.batches import Batches, EpochPosition
from pipelines.inputs.bloom_filter import LikedItems
from pipelines.inputs.tables import FeatureTable
from pipelines.models.neural.network import ColumnSelection, Dense, Join, Network
from pipelines.models.neural.operations import tiles_of
from pipelines.training.on_device import PlacedCases, keep
from shared.domain.errors import Invalid
from tests.support.feature_graphs import of_keys
from tests.support.framework_process import made_apart
from tests.support.torch_available import torch as installed

torch = installed()

import polars as pl  # noqa: E402

from pipelines.inputs import on_device  # noqa: E402
from pipelines.inputs.on_device import OnDevice  # noqa: E402

ROWS, ITEMS = 3_000, 50
VARIANTS = ("adam", "adagrad", "sgd", "everything", "dlrm", "wide_deep", "decay", "half", "float16")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    out = tmp_path_factory.mktemp("resident") / "found.npz"
    return made_apart("tests.support.device_training", str(out), *VARIANTS, out=out)


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    out = tmp_path_factory.mktemp("resident") / "steps.npz"
    return made_apart("tests.support.device_training", str(out), "asked", "resumed", "graphs", "compiled", out=out)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    out = tmp_path_factory.mktemp("resident") / "trained.npz"
    return made_apart("tests.support.device_training", str(out), "trained", out=out)


@pytest.mark.requirement("G-26", "N-06")
@pytest.mark.parametrize("tables", ["whole", "distinct"])
def test_a_step_on_the_device_is_the_step_of_the_host(found: Mapping[str, Any], tables: str, subtests: pytest.Subtests) -> None:
    """Rows that no batch reads stay as they are, too: of every second batch half of the users are missing."""
    for variant in VARIANTS:
        with subtests.test(variant=variant):
            ours, theirs = (f"{variant}/{which}" for which in (tables, "host"))
            tolerance = 3e-3 if variant in ("half", "float16") else 1e-5
            np.testing.assert_allclose(found[f"{ours}/losses"], found[f"{theirs}/losses"], rtol=tolerance)
            if variant not in ("half", "float16"):
                for name in (one for one in found if one.startswith(f"{theirs}/state/")):
                    np.testing.assert_allclose(found[name.replace(theirs, ours)], found[name], atol=2e-5, err_msg=name)
            assert (found[f"{ours}/unread"] == 0).all()
            assert found[f"{ours}/apart"] < 1e-5
            np.testing.assert_allclose(found[f"{ours}/score"], found[f"{ours}/plain"], atol=1e-5)


@pytest.mark.requirement("G-26", "N-06")
def test_a_step_of_whole_tables_asks_the_device_for_no_number_and_gives_it_none(
    steps: Mapping[str, Any], subtests: pytest.Subtests
) -> None:
    """With dropout and scaled losses, too: each item, nonzero and unique waits for a device, and so does each number of Python's that
    becomes a tensor there."""
    for way in ("whole", "adagrad", "sgd", "dynamic", "fixed"):
        with subtests.test(way=way):
            assert steps[f"asked/{way}"].tolist() == [0, 0]
    assert steps["asked/distinct"][0] > 0


@pytest.mark.requirement("G-26")
def test_losses_of_many_steps_are_read_at_once(trained: Mapping[str, Any]) -> None:
    reads = trained["reads"]
    assert reads.sum() > 12 * 4 and len(reads) == 12


@pytest.mark.requirement("N-05")
def test_a_training_with_dropout_goes_on_as_if_nothing_had_been(steps: Mapping[str, Any]) -> None:
    whole, resumed, half = steps["resumed"]
    np.testing.assert_array_equal(whole, resumed)
    assert np.abs(whole - half).max() > 1e-3


@pytest.mark.requirement("G-26")
def test_what_outlives_a_step_is_no_memory_of_a_graph(steps: Mapping[str, Any]) -> None:
    """Each replay overwrites what the last one gave: here with what is no number."""
    eager, played = steps["graphs/losses"]
    np.testing.assert_array_equal(eager, played)
    np.testing.assert_array_equal(steps["graphs/eager"], steps["graphs/played"])
    assert steps["graphs/modes"].tolist() == ["reduce-overhead False", "default False"]


@pytest.mark.requirement("G-26")
def test_a_compiled_step_has_the_same_weights_and_no_dropout_stops_the_compiler(steps: Mapping[str, Any]) -> None:
    np.testing.assert_allclose(steps["compiled/graphs"], steps["compiled/eager"], atol=2e-5)
    with_dropout, without = steps["compiled/breaks"]
    assert with_dropout == without


@pytest.mark.requirement("G-26")
def test_graphs_are_refused_where_there_is_no_cuda(trained: Mapping[str, Any]) -> None:
    if not torch.cuda.is_available():
        assert str(trained["graphs/refused"]).startswith(
            "model.train.compile: 'graphs' needs CUDA, but torch finds no CUDA device: set true, or"
        )


@pytest.mark.requirement("N-03", "N-05")
def test_a_look_on_the_device_says_what_the_host_says(trained: Mapping[str, Any]) -> None:
    """Loss, AUC and ranks of held-out likes among ninety-nine, after every epoch."""
    assert trained["looks/kinds"].tolist() == ["ValidationThere", "RankingThere"]
    assert trained["looks"].shape == (12, 2, 4)
    np.testing.assert_allclose(trained["looks"][:, 1], trained["looks"][:, 0], atol=1e-6)


@pytest.mark.requirement("N-03")
def test_ranks_on_the_device_are_those_of_the_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of cases with more and fewer negatives; scores of few values, so that many are equal."""
    random = np.random.default_rng(3)
    counts = random.integers(2, 40, 200)
    starts, scores = np.cumsum(counts) - counts, random.integers(0, 9, counts.sum()).astype(np.float32)
    ranks = PlacedCases.of(starts, len(scores), "cpu").ranks(torch.from_numpy(scores)).numpy()
    others = [(scores[at], scores[at + 1 : at + count]) for at, count in zip(starts, counts, strict=True)]
    wanted = [1 + (some > own).sum() + (some == own).sum() / 2 for own, some in others]
    np.testing.assert_array_equal(ranks, wanted)
    assert len(set(ranks % 1)) == 2


def test_what_is_looked_at_is_made_anew_where_the_device_has_no_room_for_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = replace(_batches(path, shuffle=False), likes_path=None)
    host = Batches(**{one.name: getattr(batches, one.name) for one in fields(Batches)})
    kept = keep(host, "cpu")
    assert kept is not None and len(kept.labels) == ROWS and kept.columns["user"].tolist() == list(range(ROWS))
    monkeypatch.setattr("pipelines.loaders.adapters.pytorch.resident.room", lambda device, share: 1000)
    assert keep(host, "cpu") is None


def test_vectors_are_cut_at_once_where_they_are_cut_alike_and_wholly() -> None:
    def tiles(*parts: tuple[str, int, int]) -> dict[int, tuple[int, ...]]:
        nodes = [ColumnSelection(f"part_{at}", (name,), start, stop) for at, (name, start, stop) in enumerate(parts)]
        joined = Join("joined", tuple(one.name for one in nodes))
        return tiles_of(Network((*nodes, joined, Dense("score", ("joined",), 1, "linear"))), {"user": 6, "item": 6, "year": 4})

    whole = [(name, start, stop) for name in ("user", "item") for start, stop in ((0, 2), (2, 6))]
    assert tiles(*whole) == {6: (2, 4)}
    assert tiles(*whole, ("year", 1, 4)) == {6: (2, 4)}
    assert tiles(("user", 0, 2), ("user", 2, 6), ("item", 0, 3), ("item", 3, 6)) == {}
    assert tiles(("user", 0, 4), ("user", 2, 6)) == {}


@pytest.mark.requirement("T-02", "N-04")
def test_a_spec_says_so_and_what_is_learned_is_as_good(trained: Mapping[str, Any]) -> None:
    there, host = trained["trained/True"], trained["trained/False"]
    assert there[1] == host[1] == 12
    assert there[0] > host[0] - 0.05 and host[0] > 0.5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    number = pl.int_range(ROWS, dtype=pl.Int32, eager=True)
    frame = pl.DataFrame({"user": number.cast(pl.Int64) % 7, "user_code": number, "item_row": number % ITEMS})
    path = tmp_path / "train.parquet"
    frame.with_columns(label=(number % 4 == 0).cast(pl.Int8)).write_parquet(path, row_group_size=700)
    return path


def _batches(path: Path, negatives: int = 0, **more: Any) -> OnDevice:
    items = {"item": np.arange(ITEMS, dtype=np.int32) + 2, "genres": np.arange(ITEMS * 3, dtype=np.int32).reshape(ITEMS, 3)}
    host = Batches(
        path, of_keys(2, ITEMS), FeatureTable(items, {}), None, 512, negatives, 5, **{"unknown_users": 0.0, "unknown_items": 0.0} | more
    )
    return OnDevice.of(host, "cpu", path)


def _rows(batches: OnDevice, epoch: int = 0) -> list[tuple[int, int, int, float]]:
    found = []
    for batch in batches.epoch(epoch):
        columns = batch.columns
        assert len(batch) == len(columns["user"]) <= 512
        found += list(
            zip(*(one.tolist() for one in (columns["user"], columns["item"], columns["genres"][:, 0], batch.labels)), strict=True)
        )
    return found


@pytest.mark.requirement("T-02", "N-04")
def test_an_epoch_is_every_row_once_and_of_each_positive_its_negatives_drawn_anew(path: Path) -> None:
    batches = _batches(path, 3)
    first, second = _rows(batches), _rows(batches, 1)
    assert len(first) == batches.rows_per_epoch() == ROWS + 3 * (ROWS // 4)
    assert first == _rows(batches) and first != second
    for rows in (first, second):
        assert all(genres == (item - 2) * 3 for _, item, genres, _ in rows)
        assert sorted(user for user, _, _, label in rows if label) == list(range(0, ROWS, 4))
        assert all(item == user % ITEMS + 2 for user, item, _, label in rows if label)
        times = np.bincount([user for user, *_ in rows], minlength=ROWS)
        assert (times == 1 + 3 * (np.arange(ROWS) % 4 == 0)).all()
    drawn = [{(user, item) for user, item, _, label in rows if not label and not user % 4} for rows in (first, second)]
    assert len(drawn[0] & drawn[1]) < len(drawn[0]) / 5
    assert len({item for _, item in drawn[0]}) == ITEMS


@pytest.mark.requirement("U-04")
def test_labels_are_the_weights_of_positives(path: Path) -> None:
    pl.read_parquet(path).with_columns(weight=pl.lit(5.0, pl.Float32)).write_parquet(path, row_group_size=700)
    labels = [label for *_, label in _rows(_batches(path, 2))]
    assert (labels.count(5.0), labels.count(0.0)) == (ROWS // 4, len(labels) - ROWS // 4)


@pytest.mark.requirement("T-02", "N-04")
def test_an_epoch_goes_on_at_any_step_with_the_same_batches(path: Path) -> None:
    batches = _batches(path, 2, unknown_users=0.1, unknown_items=0.1)
    whole = list(batches.placed(3))
    (_, place) = whole[2]
    assert place == EpochPosition(3)
    for (one, _), (other, _) in zip(whole[3:], batches.placed(3, place), strict=True):
        assert torch.equal(one.labels, other.labels)
        assert all(torch.equal(column, other.columns[name]) for name, column in one.columns.items())


@pytest.mark.requirement("N-04")
def test_verified_negatives_are_none_that_the_user_likes(path: Path) -> None:
    liked = {(number % 7, number % ITEMS + 2) for number in range(0, ROWS, 4)}
    sampled = [
        [(user % 7, item) for user, item, _, label in _rows(_batches(path, 4, liked=liked)) if not label and not user % 4]
        for liked in (None, LikedItems.empty(1))
    ]
    assert set(sampled[0]) & liked and not set(sampled[1]) & liked
    assert all(len(one) == 4 * (ROWS // 4) for one in sampled[:1])


@pytest.mark.requirement("N-04")
@pytest.mark.parametrize("liked", [None, LikedItems.empty(1)])
def test_negatives_come_from_the_items_that_can_be_drawn_alone(path: Path, liked: LikedItems | None) -> None:
    even, odd = set(range(0, ITEMS, 2)), set(range(1, ITEMS // 2, 2))
    drawable = np.array(sorted(even | odd))  # each user likes all even items
    rows = _rows(_batches(path, 4, liked=liked, drawable=drawable))
    drawn = {item - 2 for user, item, _, label in rows if not label and not user % 4}
    assert drawn == (even | odd if liked is None else odd)


def test_some_rows_are_shown_as_of_strangers_and_positives_alone_where_asked(path: Path) -> None:
    rows = _rows(_batches(path, unknown_items=0.2))
    unknown = np.mean([item == UNKNOWN for _, item, _, _ in rows])
    assert 0.15 < unknown < 0.25
    alone = _batches(path, positives=True)
    assert [label for *_, label in _rows(alone)] == [1.0] * alone.rows_per_epoch()


def test_what_does_not_fit_is_refused_and_so_is_what_the_host_makes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = _batches(path)
    with pytest.raises(Invalid, match=r"model\.train\.resident: target encoding is made on the host"):
        _ = replace(batches, items=replace(batches.items, apart={"item": np.zeros((ITEMS, 5), np.float32)})).rows
    monkeypatch.setattr(on_device, "room", lambda device, share: 1000)
    with pytest.raises(Invalid, match=r"model.train.resident: 3,000 rows and an order of 3,000 take about .* GiB"):
        _ = batches.rows
