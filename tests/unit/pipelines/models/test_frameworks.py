"""A framework that isn't installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from pipelines.models.neural import frameworks
from shared.domain.errors import Invalid


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_one_that_is_not_there_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, name: frameworks.Name) -> None:
    monkeypatch.setattr(frameworks.importlib.util, "find_spec", lambda asked: None if asked == name else find_spec(asked))
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(Invalid, match=f"{name} isn't installed where this stage runs: make setup-{name}, or say tensorflow"):
        frameworks.load_framework(name)
