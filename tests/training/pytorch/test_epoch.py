"""An epoch of a PyTorch model, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from shared.domain.errors import Invalid
from tests.support.torch_available import torch as installed

torch = installed()

from pipelines.training.torch_epoch import TorchEpoch, run_epoch, summary  # noqa: E402


def batches(sizes: list[int]) -> list[tuple[Any, Any]]:
    random = torch.Generator().manual_seed(0)
    return [(torch.randn(size, 3, generator=random), torch.rand(size, generator=random)) for size in sizes]


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))

    def forward(self, columns: Any) -> Any:
        return self.layers(columns).squeeze(1)


@pytest.mark.requirement("P-03")
def test_the_loss_is_the_mean_over_rows_though_the_last_batch_is_small() -> None:
    model, given = Model(), batches([100, 100, 3])
    found = run_epoch(model, given, torch.nn.functional.mse_loss)
    model.eval()
    with torch.no_grad():
        every = torch.cat([(model(columns) - label) ** 2 for columns, label in given])
    assert (found.rows, found.steps) == (203, 3)
    assert found.loss == pytest.approx(float(every.double().mean()), rel=1e-5)
    of_batches = sum(float(torch.nn.functional.mse_loss(model(columns), label).detach()) for columns, label in given) / 3
    assert found.loss != pytest.approx(of_batches, rel=1e-3)


@pytest.mark.requirement("P-03")
def test_with_an_optimizer_it_trains_and_without_one_nothing_changes() -> None:
    model, given = Model(), batches([64, 64, 10])
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    model.train()
    first = run_epoch(model, given, torch.nn.functional.mse_loss)
    assert model.training
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert run_epoch(model, given, torch.nn.functional.mse_loss).loss == first.loss  # no dropout
    for _ in range(10):
        run_epoch(model, given, torch.nn.functional.mse_loss, optimizer)
    assert run_epoch(model, given, torch.nn.functional.mse_loss).loss < first.loss / 2


@pytest.mark.requirement("P-03")
def test_rows_a_second_and_the_share_of_waiting_follow_from_the_clock() -> None:
    now = [0.0]

    def slow() -> Iterator[tuple[Any, Any]]:
        for batch in batches([30, 20]):
            now[0] += 3
            yield batch

    def loss(prediction: Any, label: Any) -> Any:
        now[0] += 2
        return torch.nn.functional.mse_loss(prediction, label)

    found = run_epoch(Model(), slow(), loss, clock=lambda: now[0])
    assert (found.seconds, found.waited) == (10, 6)
    assert (found.rows_per_second, found.share_waited) == (5, 0.6)
    assert str(found).endswith(" 5 rows/s, 60% of the time waiting for batches")
    assert str(found).startswith("50 rows in 2 steps, loss 0.")


@pytest.mark.requirement("P-03")
def test_a_trainings_rate_is_all_rows_over_all_seconds() -> None:
    slow, fast = (
        TorchEpoch(rows=1000, steps=10, seconds=10, waited=5, loss=0.5),
        TorchEpoch(rows=1000, steps=10, seconds=2, waited=1, loss=0.4),
    )
    assert summary([slow, fast]) == "2,000 rows in 2 epochs of 12.0 s, 167 rows/s, 50% of the time waiting for batches"


def test_an_error_leaves_the_model_in_its_mode() -> None:
    model = Model()
    with pytest.raises(RuntimeError):
        run_epoch(model, [(torch.zeros(2, 5), torch.zeros(2))], torch.nn.functional.mse_loss)
    assert model.training
    assert torch.is_grad_enabled()


def test_an_epoch_without_a_batch_is_no_epoch() -> None:
    ticks = count()
    with pytest.raises(Invalid, match="run_epoch: no batch"):
        run_epoch(Model(), [], torch.nn.functional.mse_loss, clock=lambda: float(next(ticks)))
