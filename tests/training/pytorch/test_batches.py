"""A loader behind PyTorch's interfaces, on the CPU."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.loaders.loader import Loader, open_loader
from pipelines.loaders.plan import Shard
from shared.domain.errors import BadData, Invalid
from tests.support.tensor_rows import LONGEST, epoch, write
from tests.support.torch_available import torch as installed

torch = installed()

from pipelines.loaders.adapters.layout import Dense, PaddedLayout  # noqa: E402
from pipelines.loaders.adapters.torch import as_torch  # noqa: E402

ROWS, BATCH = 430, 64


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("rows"), ROWS)


@pytest.fixture
def loader(path: Path) -> Loader:
    return open_loader(path, batch_size=BATCH, seed=3, threads=2)


def flat(batches: list[list[int]]) -> list[int]:
    return [row for batch in batches for row in batch]


@pytest.mark.requirement("P-01")
@pytest.mark.parametrize("way", ["alone", "DataLoader"])
def test_every_row_comes_once_an_epoch_with_its_lists(loader: Loader, way: str) -> None:
    batches = as_torch(loader)
    given = batches if way == "alone" else torch.utils.data.DataLoader(batches, batch_size=None)
    assert isinstance(batches, torch.utils.data.IterableDataset)
    assert len(given) == len(loader) == 7
    first, second = epoch(given), epoch(given)
    assert [len(one) for one in first] == [BATCH] * 6 + [ROWS - 6 * BATCH]
    assert sorted(flat(first)) == sorted(flat(second)) == list(range(ROWS))
    assert flat(first) != flat(second)


@pytest.mark.requirement("P-01")
def test_offsets_are_what_embedding_bag_takes(loader: Loader) -> None:
    bag = torch.nn.EmbeddingBag(ROWS * 10 + LONGEST, 3, mode="sum")
    for last in (False, True):
        bag.include_last_offset = last
        columns, label = next(iter(as_torch(loader, include_last_offset=last)))
        assert columns["some__offsets"].dtype == torch.int64
        assert len(columns["some__offsets"]) == len(label) + last
        pooled = bag(columns["some__values"], columns["some__offsets"])
        one = int((columns["id"] % 5 == 4).nonzero()[0])
        first = int(columns["id"][one]) * 10
        torch.testing.assert_close(pooled[one], bag.weight[first : first + 4].sum(0))


def test_lists_come_as_lengths_as_padded_rows_or_dense_by_column(loader: Loader, tmp_path: Path) -> None:
    columns, _ = next(iter(as_torch(loader, lists="lengths")))
    assert columns["some__lengths"].tolist() == (columns["id"] % 5).tolist()
    assert columns["some__lengths"].sum() == len(columns["some__values"])
    assert "some__offsets" not in columns
    columns, _ = next(iter(as_torch(loader, lists={"some": PaddedLayout(6, value=-1)})))
    places = torch.arange(6)
    wanted = torch.where(places < columns["id"][:, None] % 5, columns["id"][:, None] * 10 + places, -1)
    assert torch.equal(columns["some"].long(), wanted)
    columns, _ = next(iter(as_torch(loader, lists=Dense(ROWS * 10 + LONGEST))))
    assert torch.equal(columns["some"].sum(1).long(), columns["id"] % 5)
    with pytest.raises(Invalid, match="'some': PyTorch takes no ragged lists; set 'offsets'"):
        as_torch(loader, lists="ragged")


def test_a_batch_of_the_cpu_is_the_batchs_own_memory(loader: Loader) -> None:
    batches = [columns for columns, _ in as_torch(loader)]
    for one in batches:
        one["weight"].zero_()
        one["some__values"].zero_()
    assert epoch(as_torch(loader)) == epoch(as_torch(loader))


def test_a_data_set_without_a_label_comes_without_one(path: Path, loader: Loader) -> None:
    columns = next(iter(as_torch(open_loader(path, ["id", "code"], batch_size=8))))
    assert set(columns) == {"id", "code"}
    columns, label = next(iter(as_torch(loader, label="code")))
    assert "label" in columns
    assert torch.equal(label, columns["id"] % 7)
    with pytest.raises(Invalid, match="'stars'"):
        as_torch(loader, label="stars")


def test_a_worker_of_dataloader_is_refused_in_one_line(loader: Loader) -> None:
    with pytest.raises(Invalid) as caught:
        list(torch.utils.data.DataLoader(as_torch(loader), batch_size=None, num_workers=2))
    assert str(caught.value).rstrip().splitlines()[-1].endswith("set DataLoader's num_workers to 0")
    with pytest.raises(Invalid, match=r"^as_torch: .*set DataLoader's num_workers to 0$"):
        copy.copy(as_torch(loader))  # as a worker that isn't forked would do it


@pytest.mark.parametrize("taken", [0, 1, 6, 7, 9])
def test_a_state_goes_on_where_it_was_saved(loader: Loader, taken: int) -> None:
    """In the middle of an epoch, at its end and at a later one."""
    whole = epoch(as_torch(loader, epochs=3))
    other = as_torch(loader, epochs=3)
    running = iter(other)
    for _ in range(taken):
        next(running)
    state = other.state_dict()
    third = as_torch(loader)
    third.load_state_dict(state)
    end = (taken // 7 + 1) * 7
    assert epoch(third) == whole[taken:end]
    assert epoch(third) == whole[end : end + 7]


def test_a_loop_over_epochs_that_sets_each_goes_on_in_the_middle_of_the_first(loader: Loader) -> None:
    one = as_torch(loader)
    running = iter(one)
    first = [next(running) for _ in range(3)]
    assert len(first) == 3
    two = as_torch(loader)
    two.load_state_dict(one.state_dict())
    two.set_epoch(0)
    assert len(epoch(two)) == 4
    two.set_epoch(0)
    assert len(epoch(two)) == 7


def test_an_iteration_that_is_broken_off_is_followed_by_a_whole_epoch(loader: Loader) -> None:
    batches = as_torch(loader)
    next(iter(batches))
    assert sorted(flat(epoch(batches))) == list(range(ROWS))
    assert batches.state_dict()["epoch"] == 2


def test_an_iterator_that_nothing_was_taken_of_has_begun_no_epoch(loader: Loader) -> None:
    """As torchdata's StatefulDataLoader makes them."""
    whole = epoch(as_torch(loader, epochs=2))
    batches = as_torch(loader)
    batches.load_state_dict({**batches.state_dict(), "step": 2})
    iter(batches), iter(batches)
    assert epoch(batches) == whole[2:7]
    iter(batches)
    assert epoch(batches) == whole[7:]


def test_set_epoch_chooses_the_order(loader: Loader) -> None:
    batches = as_torch(loader)
    orders = []
    for number in (5, 6, 5):
        batches.set_epoch(number)
        orders.append(flat(epoch(batches)))
    assert orders[0] == orders[2] != orders[1]
    assert orders[0] == [one for batch in loader.epoch(5) for one in batch["id"].tolist()]


def test_several_epochs_are_one_run_or_one_without_an_end(loader: Loader) -> None:
    assert len(as_torch(loader, epochs=2)) == 14
    assert [len(one) for one in epoch(as_torch(loader, epochs=2))] == ([BATCH] * 6 + [46]) * 2
    endless = as_torch(loader, epochs=None)
    running = iter(endless)
    assert len([next(running) for _ in range(20)]) == 20
    assert endless.state_dict()["epoch"] == 2
    with pytest.raises(TypeError, match="no length"):
        len(endless)


def test_the_state_of_other_batches_is_refused(path: Path, loader: Loader) -> None:
    state = as_torch(loader).state_dict()
    with pytest.raises(Invalid, match="load_state_dict: the state belongs to other rows or settings"):
        as_torch(open_loader(path, batch_size=BATCH, seed=4)).load_state_dict(state)


def test_all_ranks_go_on_from_the_state_of_one(path: Path) -> None:
    ranks = [as_torch(open_loader(path, batch_size=BATCH, shard=Shard(rank, 2))) for rank in (0, 1)]
    running = iter(ranks[0])
    next(running)
    ranks[1].load_state_dict(ranks[0].state_dict())
    assert len(epoch(ranks[1])) == len(ranks[1]) - 1


def test_unsigned_numbers_come_as_what_pytorch_computes_with(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = {"a": np.array([1, 65_535], np.uint16), "b": np.array([1, 2**32 - 1], np.uint32), "c": np.array([1, 2**63 - 1], np.uint64)}
    pq.write_table(pa.table(table), path)
    columns = next(iter(as_torch(open_loader(path, shuffle=False))))
    assert [columns[name].dtype for name in "abc"] == [torch.int32, torch.int64, torch.int64]
    assert [columns[name][1].item() for name in "abc"] == [65_535, 2**32 - 1, 2**63 - 1]
    pq.write_table(pa.table({"c": np.array([2**63], np.uint64)}), path)
    with pytest.raises(BadData, match="column 'c' has 9223372036854775808, which does not fit int64"):
        next(iter(as_torch(open_loader(path))))


def test_stages_on_the_device_are_drawn_by_seed_epoch_and_step(loader: Loader) -> None:
    def noisy(columns: dict[str, Any], random: Any) -> dict[str, Any]:
        return columns | {"noise": torch.rand(len(columns["id"]), generator=random)}

    batches = as_torch(loader, stages=[noisy])
    first, second = ([columns["noise"].tolist() for columns, _ in batches] for _ in range(2))
    assert first != second
    assert len({tuple(one[:40]) for one in first}) == 7
    again = as_torch(loader, stages=[noisy])
    again.load_state_dict({**again.state_dict(), "epoch": 1, "step": 3})
    assert [columns["noise"].tolist() for columns, _ in again] == second[3:]


def test_a_stage_may_make_the_label(loader: Loader) -> None:
    def labelled(columns: dict[str, Any], random: Any) -> dict[str, Any]:
        return columns | {"even": columns["id"] % 2 == 0}

    columns, label = next(iter(as_torch(loader, label="even", stages=[labelled])))
    assert torch.equal(label, columns["id"] % 2 == 0)
    with pytest.raises(Invalid, match="label='odd' is not a column of the batch after the stages; columns: id, code"):
        next(iter(as_torch(loader, label="odd", stages=[labelled])))


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ({"device": "gpu"}, "device='gpu' is unknown to PyTorch; set 'cpu' or 'cuda'"),
        ({"device": "meta"}, "device='meta' is not supported; set 'cpu' or 'cuda'"),
        ({"epochs": 0}, "epochs=0 must be at least 1"),
        ({"ahead": 0}, "ahead=0 must be at least 1"),
        ({"resident": 0.0}, r"resident=0.0 must be a share of the device's memory"),
    ],
)
def test_what_cannot_be_is_one_line(loader: Loader, said: dict[str, Any], answer: str) -> None:
    with pytest.raises(Invalid, match=f"^as_torch: {answer}"):
        as_torch(loader, **said)


@pytest.mark.requirement("P-01")
def test_ranks_of_a_group_that_would_have_nothing_are_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 500)
    with pytest.raises(BadData, match="430 rows are too few: one of the 500 ranks has no batch"):
        as_torch(open_loader(path))
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    with pytest.raises(BadData, match="are too few: one of the 4 ranks has no full batch"):
        as_torch(open_loader(path, batch_size=110, drop_last=True))
    assert as_torch(open_loader(path)).loader.shard == Shard(1, 4)
    assert as_torch(open_loader(path, shard=Shard(0, 2))).loader.shard == Shard(0, 2)


def test_a_gpu_that_is_not_there_is_said_at_once(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(Invalid, match="device='cuda', but PyTorch sees no GPU; set device='cpu'"):
        as_torch(loader, device="cuda")
