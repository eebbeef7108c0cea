"""JAX, where it is installed."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

MISSING = "JAX is missing: make setup-jax"


def there() -> None:
    """Whoever has none is skipped, which CI may not be."""
    if find_spec("jax") is None:
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
