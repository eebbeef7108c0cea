"""Completion in real shells: bash, zsh and fish, with an API, without one, and with one that doesn't answer."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys

import pytest

from services.cli.exit_codes import Exit
from tests.servers.cli_process import MOST, ROOT, environment, loopback, piped, terminal

pytestmark = pytest.mark.requirement("C-09")

RECOMMENDERS = {
    "items": [{"name": "movies", "serving": {"stable": 3}}, {"name": "music", "serving": None}, {"name": "books", "serving": None}],
    "next": None,
}
RUNS = {"items": [{"id": "r01a", "recommender": "movies", "state": "train"}, {"id": "r01b", "recommender": "music", "state": "failed"}]}
VERSIONS = {"items": [{"version": 12, "aliases": ["serving"], "tags": ["champion"], "run": "r01a"}], "next": None}
VERSIONS["items"].append({"version": 11, "aliases": [], "tags": [], "run": "r01b"})


@pytest.fixture
def command(tmp_path):
    """`eyas` on the PATH, as an installation has it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    file = folder / "eyas"
    file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m services.cli.main "$@"\n')
    file.chmod(0o755)
    return folder


@pytest.fixture
def served():
    with loopback() as told:
        told.says("GET /v1/recommenders", RECOMMENDERS)
        told.says("GET /v1/runs", RUNS)
        told.says("GET /v1/recommenders/movies/versions", VERSIONS)
        yield told


def offered(command, url, line, **more):
    """What bash has in COMPREPLY when Tab is pressed at the line's end, and all that was written beside it."""
    words = line.split(" ")
    script = "\n".join(
        (
            'eval "$(eyas completion bash)"',
            f"COMP_WORDS=({' '.join(shlex.quote(one) for one in words)})",
            f"COMP_CWORD={len(words) - 1}",
            'found=$(complete -p eyas); found=${found##*-F }; "${found%% *}" eyas',
            'printf "%s\\n" "${COMPREPLY[@]}"',
        )
    )
    env = environment(url, PATH=f"{command}:{os.environ['PATH']}", **more)
    done = subprocess.run(["bash", "--norc", "-c", script], env=env, capture_output=True, text=True, timeout=MOST, check=False, cwd=ROOT)
    return done.stdout.split(), done.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("eyas ro", ["rollout", "rollback"]),
        ("eyas rollout pa", ["pause"]),
        ("eyas runs --li", ["--limit"]),
        ("eyas runs ", ["movies", "music", "books"]),
        ("eyas rollout status mo", ["movies"]),
        ("eyas logs r01", ["r01a", "r01b"]),
        ("eyas card movies ", ["12", "serving", "champion", "11"]),
        ("eyas rollback movies --to ", ["12", "11"]),
        ("eyas rollout st", ["start", "status"]),
        ("eyas rollout start mo", ["movies"]),
        ("eyas rollout start movies ", ["12", "11"]),
        ("eyas retry r01a --from e", ["etl", "evaluate", "export"]),
        ("eyas run movies --mode w", ["warm"]),
    ],
)
def test_a_real_bash_offers_commands_options_and_what_the_platform_knows(command, served, line, words):
    found, said = offered(command, served.url, line)
    assert (sorted(found), said) == (sorted(words), "")


@pytest.mark.parametrize("line", ["eyas runs ", "eyas runs ../x ", "eyas card BAD! ", "eyas nonsense x ", "eyas runs --limit x --nope "])
def test_where_nothing_can_be_offered_nothing_is_said(command, line):
    found, said = offered(command, "http://127.0.0.1:1", line, EYAS_HOME="/nowhere")
    assert said == ""
    assert not [one for one in found if "Traceback" in one or "eyas:" in one]


def test_without_a_token_nothing_is_offered_and_nothing_said(command, served):
    assert offered(command, served.url, "eyas runs ", EYAS_TOKEN="", EYAS_HOME="/nowhere") == ([], "")


def test_a_platform_that_does_not_answer_is_not_waited_for(command):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = offered(command, f"http://127.0.0.1:{silent.getsockname()[1]}", "eyas runs ")
    assert found == ([], "")


@pytest.mark.parametrize(
    ("shell", "first"),
    [(("bash", "--norc", "--noprofile", "-i"), ""), (("zsh", "-f", "-i"), "autoload -Uz compinit; compinit -u -D; ")],
    ids=["bash", "zsh"],
)
def test_tab_in_a_real_interactive_shell_completes_the_line(command, served, shell, first):
    kept = {name: os.environ[name] for name in ("FPATH",) if name in os.environ}
    env = kept | {"PATH": f"{command}:{os.environ['PATH']}", "PS1": "ready> ", "INPUTRC": "/dev/null"}
    with terminal(served.url, command=(there(shell[0]), *shell[1:]), columns=200, **env) as seen:
        seen.until("ready> ")
        seen.types(f'{first}eval "$(eyas completion {shell[0]})"; echo sour""ced\n')
        seen.until("sourced")
        seen.types("eyas rollout stat\t")
        seen.until("rollout status ")
        seen.types("mov\t")
        seen.until("movies ")
        seen.types("\x15exit\n")
        seen.ends()
    assert "Traceback" not in seen.text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell_is_one_that_it_can_read(shell):
    found = piped("http://127.0.0.1:1", "completion", shell)
    assert found.returncode == Exit.DONE
    assert "_EYAS_COMPLETE=complete_" + shell in found.stdout
    read = subprocess.run([there(shell), "-n"], input=found.stdout, capture_output=True, text=True, timeout=MOST, check=False)
    assert (read.returncode, read.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("eyas ro", ["rollback", "rollout"]),
        ("eyas runs m", ["movies", "music"]),
        ("eyas card movies ", ["11", "12", "champion", "serving"]),
        ("eyas runs --li", ["--limit"]),
    ],
)
def test_a_real_fish_offers_the_same(command, served, line, words):
    env = environment(served.url, PATH=f"{command}:{os.environ['PATH']}")
    script = f'eyas completion fish | source; complete -C "{line}"'
    done = subprocess.run([there("fish"), "--no-config", "-c", script], env=env, capture_output=True, text=True, timeout=MOST, check=False)
    assert ([one.split("\t")[0] for one in done.stdout.splitlines()], done.stderr) == (words, "")


def there(shell):
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here, so its script is made and not tried: install the package {shell}")
    return found
