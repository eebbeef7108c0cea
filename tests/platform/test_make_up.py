"""`make up` starts the platform in the home that HOME_OF names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.requirement("C-09")


@pytest.mark.parametrize("of, command", [("", "eyas up"), ("HOME_OF=var/demo", "eyas up --home var/demo/home --data-root var/demo/data")])
def test_make_up_takes_the_home_that_it_is_told(of, command):
    # Under `make test` a make inside says its folder, and takes the outer one's flags.
    around = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "HOME_OF")}
    asked = ["make", "--no-print-directory", "-n", "up", *([of] if of else [])]
    done = subprocess.run(asked, cwd=ROOT, env=around, capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1].strip() == f".venv/bin/{command}"
