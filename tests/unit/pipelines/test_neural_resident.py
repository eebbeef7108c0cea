"""Training whose rows lie on the device: the steps of batches of the host, and epochs as they are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.features.columns import UNKNOWN
from pipelines.inputs.batches import Batches, Place
from pipelines.inputs.liked import Liked
from pipelines.inputs.tables import Catalogue
from shared.domain.errors import Invalid
from tests.apart import made_apart
from tests.featured import of_keys
from tests.pytorch import torch as installed

torch = installed()

import polars as pl  # noqa: E402

from pipelines.inputs import on_device  # noqa: E402
from pipelines.inputs.on_device import OnDevice  # noqa: E402

ROWS, ITEMS = 3_000, 50
VARIANTS = ("adam", "adagrad", "sgd", "everything", "dlrm", "wide_deep", "half", "float16")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    out = tmp_path_factory.mktemp("resident") / "found.npz"
    return made_apart("tests.neural_resident", str(out), *VARIANTS, out=out)


@pytest.mark.requirement("G-26", "N-06")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("tables", ["whole", "distinct"])
def test_a_step_on_the_device_is_the_step_of_the_host(found: Mapping[str, Any], variant: str, tables: str) -> None:
    """Rows that no batch reads stay as they are, too: of every second batch half of the users are missing."""
    ours, theirs = (f"{variant}/{which}" for which in (tables, "host"))
    tolerance = 3e-3 if variant in ("half", "float16") else 1e-5
    np.testing.assert_allclose(found[f"{ours}/losses"], found[f"{theirs}/losses"], rtol=tolerance)
    if variant not in ("half", "float16"):
        for name in (one for one in found if one.startswith(f"{theirs}/state/")):
            np.testing.assert_allclose(found[name.replace(theirs, ours)], found[name], atol=2e-5, err_msg=name)
    assert (found[f"{ours}/unread"] == 0).all()
    assert found[f"{ours}/apart"] < 1e-5
    np.testing.assert_allclose(found[f"{ours}/score"], found[f"{ours}/plain"], atol=1e-5)


@pytest.mark.requirement("G-26")
def test_a_step_of_whole_tables_asks_nothing_of_the_host_but_for_the_optimizers_counters(found: Mapping[str, Any]) -> None:
    """Neither how many rows there are nor where: what waits for a device is an item, a nonzero, a unique."""
    assert found["asked/whole"].tolist() == [0, 0, 0]
    assert found["asked/distinct"][2] > 0


@pytest.mark.requirement("T-02", "N-04")
def test_a_spec_says_so_and_what_is_learned_is_as_good(found: Mapping[str, Any]) -> None:
    there, host = found["trained/True"], found["trained/False"]
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
    host = Batches(path, of_keys(2, ITEMS), Catalogue(items, {}), None, 512, negatives, 5, **{"unknown_share": 0.0} | more)
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


@pytest.mark.requirement("T-02", "N-04")
def test_an_epoch_goes_on_at_any_step_with_the_same_batches(path: Path) -> None:
    batches = _batches(path, 2, unknown_share=0.1)
    whole = list(batches.placed(3))
    (_, place) = whole[2]
    assert place == Place(3)
    for (one, _), (other, _) in zip(whole[3:], batches.placed(3, place), strict=True):
        assert torch.equal(one.labels, other.labels)
        assert all(torch.equal(column, other.columns[name]) for name, column in one.columns.items())


@pytest.mark.requirement("N-04")
def test_verified_negatives_are_none_that_the_user_likes(path: Path) -> None:
    liked = {(number % 7, number % ITEMS + 2) for number in range(0, ROWS, 4)}
    sampled = [
        [(user % 7, item) for user, item, _, label in _rows(_batches(path, 4, liked=one)) if not label and not user % 4]
        for one in (None, Liked.empty(1))
    ]
    assert set(sampled[0]) & liked and not set(sampled[1]) & liked
    assert all(len(one) == 4 * (ROWS // 4) for one in sampled[:1])


def test_some_rows_are_shown_as_of_strangers_and_positives_alone_where_asked(path: Path) -> None:
    rows = _rows(_batches(path, unknown_share=0.2))
    unknown = np.mean([item == UNKNOWN for _, item, _, _ in rows])
    assert 0.15 < unknown < 0.25
    alone = _batches(path, positives=True)
    assert [label for *_, label in _rows(alone)] == [1.0] * alone.rows_per_epoch()


def test_what_does_not_fit_is_refused_and_so_is_what_the_host_makes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = _batches(path)
    with pytest.raises(Invalid, match=r"model\.train\.resident: values out of fold"):
        _ = replace(batches, items=replace(batches.items, apart={"item": np.zeros((ITEMS, 5), np.float32)})).rows
    monkeypatch.setattr(on_device, "room", lambda device, share: 1000)
    with pytest.raises(Invalid, match=r"model.train.resident: 3,000 rows and an order of 3,000 take about .* GiB"):
        _ = batches.rows
