"""A framework that is not installed, or that sees no GPU in a Job that was given one."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from pipelines.models.neural import frameworks
from shared.contracts.gpus import GPUS
from shared.domain.errors import Invalid


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_one_that_is_not_there_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, name: frameworks.Name) -> None:
    monkeypatch.setattr(frameworks.importlib.util, "find_spec", lambda asked: None if asked == name else find_spec(asked))
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(Invalid, match=f"{name} is not installed where this stage runs: install eyas\\[{name}\\], or set another"):
        frameworks.load_framework(name)


@pytest.mark.parametrize(("given", "seen", "refused"), [("1", False, True), ("1", True, False), (None, False, False)])
def test_a_job_with_gpus_does_not_train_on_the_cpu(given: str | None, seen: bool, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    framework = SimpleNamespace(gpu=seen)
    monkeypatch.setattr(frameworks, "_load", lambda name: framework)
    monkeypatch.delenv(GPUS, raising=False)
    if given is not None:
        monkeypatch.setenv(GPUS, given)
    if not refused:
        assert frameworks.load_framework("torch") is framework
        return
    with pytest.raises(Invalid, match="this stage requests 1, but PyTorch finds none: use an image with its GPU library"):
        frameworks.load_framework("torch")
