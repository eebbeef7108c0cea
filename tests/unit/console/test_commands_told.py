"""Commands of `eyas` that pages of the console show can be typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import services.console
from tests.support.cli_commands import COMMANDS

pytestmark = pytest.mark.requirement("C-09")

TEMPLATES = Path(services.console.__file__).parent / "templates"
TOLD = sorted(
    {
        re.sub(r"\{\{.*?\}\}", "movies", line)
        for path in TEMPLATES.glob("*.html")
        for whole in re.findall(r"<pre>(eyas .*?)</pre>", path.read_text(), re.DOTALL)
        for line in whole.splitlines()
    }
)


def test_pages_tell_of_commands():
    assert len(TOLD) > 5


def test_each_command_on_a_page_can_be_typed(subtests):
    for line in TOLD:
        with subtests.test(line=line):
            words = shlex.split(line.replace("--url http://GATEWAY:8080 ", ""))[1:]
            name = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
            with COMMANDS[name].make_context(name, words[len(name.split()) :]) as ctx:
                assert ctx.args == []
