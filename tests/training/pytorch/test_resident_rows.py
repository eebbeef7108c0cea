"""All rows kept on a device, here the CPU: true epochs of them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.loaders.loader import Loader, open_loader
from pipelines.loaders.plan import Shard
from shared.domain.errors import BadData, Invalid
from tests.support.tensor_rows import LONGEST, epoch, write
from tests.support.torch_available import torch as installed

torch = installed()

from pipelines.loaders.adapters.layout import Dense, Lengths, Offsets, PaddedLayout  # noqa: E402
from pipelines.loaders.adapters.pytorch import resident  # noqa: E402
from pipelines.loaders.adapters.torch import as_torch  # noqa: E402

ROWS = 430


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("rows"), ROWS)


@pytest.fixture
def loader(path: Path) -> Loader:
    return open_loader(path, batch_size=64, seed=3, threads=2)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.integers(1, ROWS // 4), st.integers(1, 4), st.booleans(), st.booleans(), st.integers(0, 5))
def test_all_ranks_together_see_every_row_once_in_equal_steps(
    path: Path, batch: int, world: int, shuffle: bool, drop_last: bool, seed: int
) -> None:
    known, steps = [], set()
    for rank in range(world):
        settings = {"batch_size": batch, "seed": seed, "shuffle": shuffle, "drop_last": drop_last, "shard": Shard(rank, world)}
        streamed, kept = (as_torch(open_loader(path, **settings), resident=share) for share in (None, 0.9))
        batches = epoch(kept)
        assert [len(one) for one in batches] == [len(one) for one in epoch(streamed)]
        assert sum(map(len, batches)) == kept.loader.rows
        steps.add(len(batches))
        known += [row for one in batches for row in one]
    assert len(steps) == 1
    assert len(set(known)) == len(known)
    assert sorted(known) == list(range(ROWS)) or (drop_last and len(known) == steps.pop() * batch * world)


@pytest.mark.requirement("T-02")
def test_each_epoch_is_a_permutation_of_all_rows_that_follows_from_the_seed(path: Path, loader: Loader) -> None:
    batches = as_torch(loader, resident=0.9)
    first, second = epoch(batches), epoch(batches)
    assert first != second
    assert [one for one in first if max(one) - min(one) < ROWS // 2] == []  # of the whole file, not of a chunk
    assert epoch(as_torch(loader, resident=0.9)) == first
    assert epoch(as_torch(open_loader(path, batch_size=64, seed=4), resident=0.9)) != first
    batches.set_epoch(1)
    assert epoch(batches) == second


def test_a_row_is_as_likely_in_any_place(loader: Loader) -> None:
    batches = as_torch(loader, resident=0.9, epochs=300)
    places = np.zeros(ROWS)
    for number, rows in enumerate(epoch(batches)):
        places[rows] += number % 7
    expected = (6 * 64 * 2.5 + 46 * 6) / ROWS
    assert abs(places.mean() / 300 - expected) < 1e-9
    assert abs(places / 300 - expected).max() < 0.6  # five times what a fair permutation's mean strays


def test_a_state_goes_on_in_the_middle(loader: Loader) -> None:
    whole = epoch(as_torch(loader, resident=0.9))
    one, other = as_torch(loader, resident=0.9), as_torch(loader, resident=0.9)
    running = iter(one)
    for _ in range(3):
        next(running)
    other.load_state_dict(one.state_dict())
    assert epoch(other) == whole[3:]
    with pytest.raises(Invalid, match="number of ranks and resident"):
        as_torch(loader).load_state_dict(one.state_dict())


def test_more_than_its_share_is_refused_with_both_figures(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        Invalid, match=r"resident: 430 rows take about .* GiB, but a share of 1e-09 of the memory of 'cpu'.* raise the share"
    ):
        as_torch(loader, resident=1e-9)
    whole = 430 * (8 + 4 + 4 + 4 + 8) + (ROWS // 5 * 10) * 4 * 2 + ROWS * 32  # columns, offsets, values twice, an order
    monkeypatch.setattr(resident, "room", lambda device, share: whole + 1000)
    as_torch(loader, resident=1.0)
    monkeypatch.setattr(resident, "room", lambda device, share: whole - 1000)
    with pytest.raises(Invalid, match="raise the share"):
        as_torch(loader, resident=1.0)


@pytest.mark.requirement("T-02")
def test_a_gpus_room_is_a_share_of_it_and_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (600, 1000))
    assert [resident.room(torch.device("cuda", 0), share) for share in (0.5, 0.9)] == [500, 600]


@pytest.mark.parametrize("drop_last", [False, True])
def test_rows_that_cannot_be_read_are_no_rows(path: Path, monkeypatch: pytest.MonkeyPatch, drop_last: bool) -> None:
    """A loader that leaves damaged row groups out gives fewer than it has counted."""
    whole = Loader.epoch
    monkeypatch.setattr(Loader, "epoch", lambda loader, number, start=0: itertools.islice(whole(loader, number, start), 4))
    loader = open_loader(path, batch_size=50, drop_last=drop_last)
    batches = as_torch(open_loader(path, batch_size=64, drop_last=drop_last), resident=0.9)
    assert sorted(row for one in epoch(batches) for row in one) == list(range(256))
    assert len(epoch(batches)) == 4
    assert batches.state_dict()["epoch"] == 2
    with pytest.raises(Invalid, match="15 of 215 rows cannot be read, but ranks need equal numbers of rows"):
        as_torch(replace(loader, shard=Shard(0, 2)), resident=0.9)


def test_a_loader_with_stages_is_refused(path: Path) -> None:
    loader = open_loader(path, stages=(lambda columns, random: columns,))
    with pytest.raises(Invalid, match=r"as_torch: resident: .* give the stages to as_torch instead"):
        as_torch(loader, resident=0.5)


@pytest.mark.parametrize(
    "layout",
    [
        Offsets(),
        Lengths(),
        PaddedLayout(),
        PaddedLayout(LONGEST),
        PaddedLayout(9, value=-3),
        PaddedLayout(2, longer="cut"),
        Dense(ROWS * 10 + LONGEST),
    ],
)
def test_lists_come_in_the_layout_that_a_streamed_batch_has(path: Path, layout: Any) -> None:
    loader = open_loader(path, batch_size=100, shuffle=False)
    for (one, _), (other, _) in zip(as_torch(loader, lists=layout), as_torch(loader, lists=layout, resident=0.9), strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].dtype == other[name].dtype
            assert torch.equal(one[name], other[name]), name


@pytest.mark.parametrize("layout", [PaddedLayout(3), Dense(7)])
def test_what_does_not_fit_its_layout_is_told_as_of_a_streamed_batch(path: Path, layout: Any) -> None:
    loader, told = open_loader(path, batch_size=100, shuffle=False), []
    for share in (None, 0.9):
        with pytest.raises(BadData) as caught:
            list(as_torch(loader, lists=layout, resident=share))
        told.append(str(caught.value))
    assert told[0] == told[1]
