"""The registry of commands: examples, help texts and the generated reference."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import typer
from typer.main import get_command

from docs.cli_reference import reference
from services.cli import completing, rollouts, runs
from services.cli.command_registry import ENTRIES, INNER
from services.cli.main import app
from shared.domain import rollout, run
from tests.support.cli_commands import COMMANDS, EXAMPLES

ROOT = Path(__file__).parents[3]


def test_stages_and_ends_that_are_said_without_the_domain_are_those_of_the_domain():
    assert tuple(completing.stages("")) == run.STAGES
    assert run.MACHINE.ends == runs.ENDED
    assert rollouts.ENDS.keys() == rollout.MACHINE.ends


def test_every_command_has_an_example_and_what_its_json_is():
    assert EXAMPLES.keys() == COMMANDS.keys()
    told = {one.name: one.json for one in ENTRIES if one.example} | {name: json for name, (_, json) in INNER.items()}
    for name, command in COMMANDS.items():
        assert bool(told[name]) is any("--json" in one.opts for one in command.params), name


def test_each_example_can_be_typed(subtests):
    for name, example in EXAMPLES.items():
        with subtests.test(name=name):
            words = shlex.split(example)
            assert words[: 1 + len(name.split())] == ["eyas", *name.split()]
            with COMMANDS[name].make_context(name, words[1 + len(name.split()) :]) as ctx:
                assert not ctx.args


def test_the_reference_tells_of_every_command_and_option():
    text = reference()
    assert (ROOT / "docs/cli.md").read_text() == text
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
