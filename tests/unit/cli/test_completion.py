"""Words that a shell offers after Tab. What shells make of them: tests/platform/cli/test_completion.py."""

from __future__ import annotations

import httpx
import pytest
from typer._completion_classes import completion_init
from typer.testing import CliRunner

from services.cli.completing import VARIABLE
from services.cli.exit_codes import Exit
from services.cli.main import app

pytestmark = pytest.mark.requirement("C-09")

RECOMMENDERS = {"items": [{"name": "movies", "serving": {"stable": 3}}, {"name": "music", "serving": None}], "next": None}
RUNS = {"items": [{"id": "r01a", "recommender": "movies", "state": "train"}, {"id": "r01b", "recommender": "music", "state": "failed"}]}
VERSIONS = {
    "items": [
        {"version": 12, "aliases": ["serving"], "tags": ["champion"], "run": "r01a"},
        {"version": 11, "aliases": [], "tags": [], "run": "r01b"},
    ],
    "next": None,
}
ROLLOUTS = {"items": [{"id": "r01a-rollout", "version": 12, "state": "canary"}], "next": None}

OFFERED = {
    "eyas ro": ["rollout", "rollback"],
    "eyas rollout pa": ["pause"],
    "eyas runs --li": ["--limit"],
    "eyas runs ": ["movies", "music"],
    "eyas rollout status mo": ["movies"],
    "eyas rollout status movies --id ": ["r01a-rollout"],
    "eyas logs r01": ["r01a", "r01b"],
    "eyas card movies ": ["12", "serving", "champion", "11"],
    "eyas rollback movies --to ": ["12", "11"],
    "eyas rollout start movies ": ["12", "11"],
    "eyas retry r01a --from e": ["etl", "evaluate", "export"],
    "eyas run movies --mode w": ["warm"],
}
NOTHING = ("eyas runs ", "eyas runs ../x ", "eyas card BAD! ", "eyas runs --limit x --nope ")


@pytest.fixture
def complete(home, monkeypatch):
    completion_init()

    def words(line, shell="bash"):
        split = line.split(" ")
        asked = {VARIABLE: f"complete_{shell}", "COMP_WORDS": line, "COMP_CWORD": str(len(split) - 1)}
        found = CliRunner().invoke(app, [], env=asked, prog_name="eyas", complete_var=VARIABLE)
        assert found.stderr == ""
        return [one.partition("\t")[0] for one in found.stdout.split("\n") if one]

    return words


@pytest.fixture
def known(platform):
    platform.says("GET /v1/recommenders", RECOMMENDERS)
    platform.says("GET /v1/runs", RUNS)
    platform.says("GET /v1/recommenders/movies/versions", VERSIONS)
    platform.says("GET /v1/recommenders/movies/rollouts", ROLLOUTS)
    return platform


def test_commands_options_and_names_are_offered(known, complete, subtests):
    for line, words in OFFERED.items():
        with subtests.test(line=line):
            assert sorted(complete(line)) == sorted(words)


def test_without_an_answer_nothing_is_offered(platform, complete, subtests):
    for place in ("recommenders", "runs"):
        platform.says(f"GET /v1/{place}", httpx.ConnectError("refused"))
    for line in NOTHING:
        with subtests.test(line=line):
            assert complete(line) == []
    assert "rns" not in complete("eyas rns x ")


def test_without_a_token_nothing_is_offered(known, complete, home):
    (home / "token").unlink()
    assert complete("eyas runs ") == []
    assert known.asked == []


def test_each_shell_has_a_script(eyas):
    for shell in ("bash", "zsh", "fish"):
        found = eyas("completion", shell)
        assert found.exit_code == Exit.DONE
        assert f"_EYAS_COMPLETE=complete_{shell}" in found.stdout


def test_an_unknown_shell_is_refused_with_those_that_exist(eyas):
    found = eyas("completion", "tcsh")
    assert found.exit_code == Exit.WRONG
    assert "'bash', 'zsh', 'fish'" in found.stderr
