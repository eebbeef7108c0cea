"""Waiting for conditions in tests, instead of sleeping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

PATIENCE = 20.0


def wait_for(condition: Callable[[], Any]) -> Any:
    """Returns the condition's first true value; fails the test after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    pause = threading.Event()
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        pause.wait(0.01)
    pytest.fail(f"waited {PATIENCE:g} s in vain")
