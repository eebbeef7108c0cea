"""The table of contents: what is imported for what, and that the reference tells of every command what can be typed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from services.cli import completing, rollouts, runs
from services.cli.contents import ENTRIES, INNER
from services.cli.main import app
from services.cli.reference import reference
from shared.domain import rollout, run
from tests.unit.cli.live import ROOT, environment

HEAVY = (
    "pydantic",
    "httpx",
    "rich",
    "yaml",
    "uvicorn",
    "fastapi",
    "sqlalchemy",
    "psutil",
    "shared.contracts.spec",
    "services.wiring.process",
)


def imported(*words):
    """Which of the heavy ones a command brings in, by the interpreter's own count."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "services.cli.main", *words],
        env=environment("http://127.0.0.1:1"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "services.cli.contents" in modules
    return {one for one in HEAVY if one in modules}


@pytest.mark.parametrize("words", [("--help",), ("runs", "--help"), ("rollout", "--help"), ("completion", "bash"), ("rns",)], ids=" ".join)
def test_help_imports_no_client_no_contract_and_no_part_of_the_platform(words):
    assert imported(*words) == set()


def test_a_question_imports_a_client_and_no_contract():
    assert imported("runs", "m") & {"pydantic", "yaml", "shared.contracts.spec", "psutil", "uvicorn"} == set()


def test_stages_and_ends_that_are_said_without_the_domain_are_those_of_the_domain():
    assert tuple(completing.stages("")) == run.STAGES
    assert run.MACHINE.ends == runs.ENDED
    assert rollouts.ENDS.keys() == rollout.MACHINE.ends


def every_command():
    for entry in ENTRIES:
        made = entry.command()
        inner = getattr(made, "commands", None)
        yield from ((f"{entry.name} {name}", one) for name, one in inner.items()) if inner else [(entry.name, made)]


COMMANDS = dict(every_command())
EXAMPLES = {one.name: one.example for one in ENTRIES if one.example} | {name: example for name, (example, _) in INNER.items()}


def test_every_command_has_an_example_and_what_its_json_is():
    assert EXAMPLES.keys() == COMMANDS.keys()
    told = {one.name: one.json for one in ENTRIES if one.example} | {name: json for name, (_, json) in INNER.items()}
    for name, command in COMMANDS.items():
        assert bool(told[name]) is any("--json" in one.opts for one in command.params), name


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_can_be_typed(name):
    words = shlex.split(EXAMPLES[name])
    assert words[: 1 + len(name.split())] == ["eyas", *name.split()]
    command = COMMANDS[name]
    with command.make_context(name, words[1 + len(name.split()) :]) as ctx:
        assert not ctx.args


def test_the_reference_tells_of_every_command_and_option():
    text = reference()
    assert Path(ROOT / "docs/cli.md").read_text() == text
    for name, command in COMMANDS.items():
        part = re.split(r"\n#{3,4} ", text.partition(f"# eyas {name}\n")[2])[0]
        for one in command.params:
            if one.name != "help":
                assert f"`{one.opts[0]}`" in part or one.make_metavar(typer.Context(command)).strip("{}[].") in part, (name, one.name)


def test_every_option_and_argument_says_what_it_is():
    silent = [(name, one.name) for name, command in COMMANDS.items() for one in command.params if not one.help]
    assert silent == []


def test_the_list_of_commands_is_in_words_that_are_whole():
    shown = get_command(app).get_help(typer.Context(get_command(app), info_name="eyas", terminal_width=60))
    for entry in ENTRIES:
        line = next(one for one in shown.splitlines() if one.strip().startswith(f"{entry.name} "))
        last = line.split()[-1].removesuffix("...")
        assert last in re.split(r"[ ,.:;]+", entry.about), line
