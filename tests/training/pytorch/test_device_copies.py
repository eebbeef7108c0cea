"""Batches on their way to a device, by a device whose copies are made as late as a GPU may make them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipelines.loaders.loader import open_loader
from tests.support.tensor_rows import epoch, write
from tests.support.torch_available import torch as installed

torch = installed()

from pipelines.loaders.adapters import torch as door  # noqa: E402
from pipelines.loaders.adapters.pytorch.copies import CudaChannel, copied  # noqa: E402


class Late:
    """Copies nothing before it has to: when somebody waits for a copy, or in the end."""

    def __init__(self) -> None:
        self.queue: list[Callable[[], Any]] = []
        self.taken: list[Any] = []
        self.sizes: list[int] = []

    def staging(self, size: int) -> Any:
        self.sizes.append(size)
        return torch.empty(size, dtype=torch.uint8)

    def send(self, staged: Any) -> tuple[Any, Any]:
        there = torch.zeros_like(staged)
        self.queue.append(lambda: there.copy_(staged))
        return there, len(self.queue)

    def over(self, copy: int) -> None:
        for at in range(copy):
            self.queue[at]()
            self.queue[at] = lambda: None

    def take(self, there: Any, copy: int) -> None:
        self.taken.append(copy)


def batch(number: int, rows: int) -> dict[str, Any]:
    return {
        "flag": torch.full((rows,), number % 2 == 0),
        "byte": torch.full((rows,), number, dtype=torch.uint8),
        "id": torch.arange(rows) + 1000 * number,
        "pair": torch.full((rows, 2), float(number)),
        "none": torch.empty(0, dtype=torch.int64),
    }


@pytest.mark.requirement("T-02")
@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_no_batch_is_overwritten_before_its_copy_is_over(ahead: int) -> None:
    sent = [batch(number, 3 + 5 * (number % 3)) for number in range(12)]
    device = Late()
    given = list(copied(sent, device, ahead))
    device.over(len(device.queue))
    assert device.taken == list(range(1, 13))
    for one, other in zip(sent, given, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].dtype == other[name].dtype
            assert torch.equal(one[name], other[name])


@pytest.mark.requirement("T-02")
def test_a_bounded_number_is_on_its_way_and_staging_is_used_again() -> None:
    device, asked = Late(), []

    def source() -> Any:
        for number in range(20):
            asked.append(number)
            yield batch(number, 8)

    running = copied(source(), device, 2)
    assert asked == []
    next(running)
    assert asked == [0, 1, 2]
    next(running)
    assert asked == [0, 1, 2, 3]
    for _ in running:
        pass
    assert len(device.sizes) == 3


@pytest.mark.requirement("P-01", "T-02")
def test_batches_for_a_gpu_are_those_of_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader, device = open_loader(write(tmp_path, 430), batch_size=64), Late()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(door, "CudaChannel", lambda there: device)
    batches = loader.as_torch(device="cuda")
    given, states = [], []
    for one in batches:
        given.append(one)
        states.append(batches.state_dict()["step"])
    device.over(len(device.queue))
    assert epoch(given) == epoch(loader.as_torch())
    assert states == [1, 2, 3, 4, 5, 6, 0]  # those that were taken, not those on their way


def test_a_stream_of_its_own_copies_and_the_models_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of CUDA, in which order; what a GPU makes of it is seen on one alone."""
    asked: list[str] = []
    on: list[str] = ["model"]

    class Stream:
        def __init__(self, name: str = "copies") -> None:
            self.name = name

        def wait_event(self, event: Any) -> None:
            asked.append(f"{self.name} waits for {event}")

    class Event:
        def record(self, stream: Stream) -> None:
            asked.append(f"event on {stream.name}")

        def synchronize(self) -> None:
            asked.append("host waits")

        def __str__(self) -> str:
            return "event"

    class Bytes:
        def to(self, device: str, non_blocking: bool) -> Bytes:
            asked.append(f"copy to {device} on {on[-1]}, {'at once' if not non_blocking else 'later'}")
            return self

        def record_stream(self, stream: Stream) -> None:
            asked.append(f"memory is of {stream.name}")

    @contextmanager
    def stream(one: Stream) -> Any:
        on.append(one.name)
        yield
        on.pop()

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream())
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("model"))
    lane = CudaChannel("cuda:0")
    there, copy = lane.send(Bytes())
    lane.take(there, copy)
    lane.over(copy)
    assert asked == ["copy to cuda:0 on copies, later", "event on copies", "model waits for event", "memory is of model", "host waits"]
