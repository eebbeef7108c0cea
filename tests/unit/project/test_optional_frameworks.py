"""Tests of a framework that is not installed: skipped with a hint, and failed in CI."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType

import pytest

from tests.support import jax_available, torch_available


@pytest.mark.parametrize(
    ("module", "asked", "missing"),
    [(jax_available, jax_available.there, jax_available.MISSING), (torch_available, torch_available.torch, torch_available.MISSING)],
)
def test_a_missing_framework_skips_a_test_and_fails_it_in_ci(
    module: ModuleType, asked: Callable[[], object], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert re.fullmatch(r"(JAX|PyTorch) is missing: make setup-(jax|torch)", missing)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=f"^{missing}$"):
        asked()
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match=f"^{missing}$"):
        asked()
