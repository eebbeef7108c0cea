"""PyTorch, where it is installed."""

from __future__ import annotations

import importlib
import os
from importlib.util import find_spec
from typing import Any

import pytest

MISSING = "PyTorch is missing: make setup-torch"
SHARDING = "TorchRec is missing: make setup-torch (rm .venv/.torch first, if PyTorch is there)"


def torch() -> Any:
    """Whoever has none is skipped, which CI may not be. For a module's first lines."""
    if find_spec("torch") is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING, allow_module_level=True)
    return importlib.import_module("torch")


def torchrec() -> None:
    """Inside of a test."""
    if find_spec("torchrec") is None:
        if os.environ.get("CI") == "true":
            pytest.fail(SHARDING)
        pytest.skip(SHARDING)
