"""PyTorch's share of a GPU's memory; GPUs are played here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from shared.domain.errors import Conflict, Invalid
from tests.support.torch_available import torch as installed

torch = installed()

from pipelines.loaders.adapters.pytorch.memory import cap_gpu_memory  # noqa: E402


@pytest.fixture
def capped(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """Two GPUs of 1,000 bytes, the second with 600 taken."""
    found: dict[int, float] = {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda one: 600 * one)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda one: SimpleNamespace(total_memory=1000))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, one: found.update({one: share}))
    return found


@pytest.mark.requirement("T-11")
def test_every_gpu_is_capped_or_the_one_that_is_named(capped: dict[int, float]) -> None:
    cap_gpu_memory(0.25, 0)
    assert capped == {0: 0.25}
    cap_gpu_memory(0.7)
    assert capped == {0: 0.7, 1: 0.7}


@pytest.mark.requirement("T-11")
def test_a_cap_that_comes_too_late_is_said(capped: dict[int, float]) -> None:
    with pytest.raises(Conflict, match=r"of GPU 1, more than a share of 0\.5; set the cap before"):
        cap_gpu_memory(0.5, 1)
    assert capped == {}


@pytest.mark.parametrize("share", [0.0, -1.0, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(capped: dict[int, float], share: float) -> None:
    with pytest.raises(Invalid, match="must be more than 0 and at most 1"):
        cap_gpu_memory(share)


def test_without_a_gpu_there_is_nothing_to_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(Invalid, match="PyTorch sees no GPU; remove the cap"):
        cap_gpu_memory(0.5)
