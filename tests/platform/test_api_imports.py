"""The API's process imports no training framework and no data frame library."""

from __future__ import annotations

import subprocess
import sys

_CODE = "import sys, services.api.app; sys.exit(any(m in sys.modules for m in ('tensorflow', 'polars', 'pandas', 'torch', 'keras')))"


def test_the_api_needs_no_training_framework() -> None:
    assert subprocess.run([sys.executable, "-c", _CODE], check=False).returncode == 0
