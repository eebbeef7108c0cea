"""The suites of shared.testing assert like tests: their failures show values."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("shared.testing")
