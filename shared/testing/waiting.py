"""Tests wait for conditions, never for time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

PATIENCE = 20.0


def wait_for(condition: Callable[[], Any]) -> Any:
    """What the condition gives once it gives anything; a failed test after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    pause = threading.Event()
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        pause.wait(0.01)
    pytest.fail(f"waited {PATIENCE:g} s in vain")
