"""The demo's last words: where its story can be read."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from demo.__main__ import FOLDER, _close
from demo.counting import Tally
from demo.platform import Platform
from demo.story import Told
from demo.summary import Act

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.requirement("C-09")


def said(told):
    out = io.StringIO()
    _close(Console(file=out, width=140), told, Tally(), Platform(FOLDER), "")
    return out.getvalue()


def test_it_says_how_its_story_can_be_read_in_a_browser():
    text = said(Told(acts=[Act("first version", "promoted", 1, "r1")]))
    assert "make up HOME_OF=var/demo " in text
    assert "http://127.0.0.1:8080/recommenders/movies" in text
    assert "var/demo/home/token" in text


def test_without_a_story_there_is_none_to_read():
    assert "make up" not in said(Told())


@pytest.mark.parametrize("of, command", [("", "eyas up"), ("HOME_OF=var/demo", "eyas up --home var/demo/home --data-root var/demo/data")])
def test_make_up_takes_the_home_that_it_is_told(of, command):
    # Under `make test` a make inside says its folder, and takes the outer one's flags.
    around = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "HOME_OF")}
    asked = ["make", "--no-print-directory", "-n", "up", *([of] if of else [])]
    done = subprocess.run(asked, cwd=ROOT, env=around, capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1].strip() == f".venv/bin/{command}"
