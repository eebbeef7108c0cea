"""The tutorial's steps by command line, curl and Python, as docs/how-to/client.md has them: each form follows all steps on a platform of
its own, and what they return is compared step by step."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tests.servers.platform_process import PlatformProcess, until
from tests.support.document_runner import ROOT, blocks

DOCUMENT = ROOT / "docs/how-to/client.md"
TUTORIAL = ROOT / "docs/tutorial.md"
FORMS = ("eyas", "curl", "python")
BIN = Path(sys.executable).parent
Row = tuple[str, str, str]


def rows(text: str) -> list[Row]:
    """The cells of the table, without its head."""
    tokens = MarkdownIt().enable("table").parse(text)
    cells = [
        token.children[0].content.replace("\\|", "|")
        for token in tokens
        if token.type == "inline" and token.children and token.children[0].type == "code_inline" and len(token.children) == 1
    ]
    assert len(cells) % 3 == 0
    return [(cells[place], cells[place + 1], cells[place + 2]) for place in range(0, len(cells), 3)]


def fences(language: str) -> str:
    return "".join(token.content for token in MarkdownIt().parse(DOCUMENT.read_text()) if token.type == "fence" and token.info == language)


def rows_of(answer: Any) -> list[dict[str, Any]]:
    """A list, as a page of the API or as the client's list."""
    return list(answer["items"] if isinstance(answer, dict) and "items" in answer else answer)


def newest(answer: Any) -> dict[str, Any]:
    return dict(answer if "id" in answer else rows_of(answer)[0])


FACTS: dict[str, Callable[[Any], Any]] = {
    "apply": lambda answer: (answer["name"], answer["generation"], answer["run"] is None, answer["spec"], answer["warnings"]),
    "run": lambda answer: (
        answer["state"], answer["version"], answer["mode"],
        [stage["stage"] for stage in answer["stages"]], [(gate["gate"], gate["verdict"]) for gate in answer["gates"]],
    ),
    "versions": lambda answer: [(row["version"], row["aliases"], row["metrics"].get("candidate.auc")) for row in rows_of(answer)],
    "recommend": lambda answer: (answer["version"], answer["variant"], answer["fallback"], answer["items"]),
    "events": lambda answer: (answer["accepted"], answer["duplicates"], answer["hits"]),
    "kpis": lambda answer: [(row["version"], row["answers"], row["hits"]) for row in answer["versions"]],
    "rollout": lambda answer: (newest(answer)["version"], newest(answer)["state"], newest(answer)["step"], newest(answer)["steps"]),
    "rollback": lambda answer: (answer["stable"], answer["aborted"], answer["rollout"]),
    "history": lambda answer: [[row[name] for name in ("generation", "stable", "candidate", "weight", "actor")] for row in rows_of(answer)],
    "runs": lambda answer: [(row["version"], row["state"], row["mode"]) for row in rows_of(answer)],
    "card": lambda answer: (answer["recommender"], [(gate["gate"], gate["verdict"]) for gate in answer["gates"]], sorted(answer["files"])),
    "drift": lambda answer: (answer["state"], answer["version"], answer["psi"]),
}  # fmt: skip
"""What must be equal, by the command of the step: neither ids nor times."""


class Follower:
    """Follows one form of the steps in the folder of a platform."""

    def __init__(self, form: str, folder: Path) -> None:
        self.form = form
        self.folder = folder
        self.ids: dict[str, str] = {}

    def answer(self, row: Row) -> Any:
        cell = row[FORMS.index(self.form)]
        if self.form == "eyas":
            return self.parsed(self.run([str(BIN / "eyas"), *cell.split()[1:], "--json"]))
        if self.form == "curl":
            answer = None
            for command in cell.split("; "):
                answer = self.parsed(self.run(["bash", "-euc", fences("bash") + self.with_ids(command)]), "/stream" not in command)
            return answer
        code = f"{fences('python')}\nfrom pydantic_core import to_json\nprint(to_json({self.with_ids(cell)}).decode())"
        return self.parsed(self.run([sys.executable, "-c", code]))

    def with_ids(self, text: str) -> str:
        return re.sub(r"\b(RUN|ROLLOUT)\b", lambda match: self.ids[match[1]], text)

    def parsed(self, output: str, is_json: bool = True) -> Any:
        if not is_json:
            assert "event: end" in output, output
            return None
        answer = json.loads(output)
        rows = answer.get("items", []) if isinstance(answer, dict) else answer
        for row in [answer, *rows]:
            if isinstance(row, dict) and "id" in row:
                self.ids.setdefault("ROLLOUT" if "steps" in row else "RUN", row["id"])
        return answer

    def run(self, command: list[str]) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EYAS_")}
        done = subprocess.run(
            command, cwd=self.folder, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"
        return done.stdout


def step(platform: PlatformProcess, follower: Follower, row: Row) -> Any:
    """Returns the facts of a step, after the platform has done what the step needs."""
    command = row[0].split()
    wait_for: Callable[[Any], Any] = {
        "kpis": lambda facts: facts and facts[0][1] == 1,
        "versions": lambda facts: facts[0][1],
        "recommend": lambda facts: facts[2] is None,
        "rollout": lambda facts: facts[1] == "canary" or command[2] == "promote",
    }.get(command[1], lambda facts: True)

    def probe() -> Any:
        facts = FACTS[command[1]](follower.answer(row))
        return (facts,) if wait_for(facts) else None

    (facts,) = until(f"{follower.form}: {row[0]}", probe, 180)
    if command[1:3] == ["rollout", "promote"]:
        platform.wait_for_rollout(follower.ids["ROLLOUT"], "promoted")
    if row[0] == "eyas apply data/movies.yaml":
        run = platform.get("/v1/recommenders/movies/runs", limit=1)["items"][0]["id"]
        platform.wait_for_run(run, "registered")
        follower.ids.pop("ROLLOUT", None)
    return facts


def write_tutorial_files(folder: Path) -> None:
    """The tutorial's data and files; no item is explored, since answers are compared."""
    for block in blocks(TUTORIAL.read_text(), "docs/tutorial.md"):
        if block.kind == "file":
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            content = block.content
            if block.file.endswith("movies.yaml"):
                assert content.count("serve: {") == 1
                content = content.replace("serve: {", "serve: {order: {explore: {rate: 0}}, ")
            (folder / block.file).write_text(content)
    command = next(line[2:] for line in TUTORIAL.read_text().splitlines() if line.startswith("$ eyas data synth"))
    subprocess.run([BIN / "eyas", *command.split()[1:]], cwd=folder, check=True, capture_output=True, timeout=240)


@pytest.mark.timeout(1500)
def test_each_step_returns_the_same_in_all_three_forms(tmp_path: Path) -> None:
    write_tutorial_files(tmp_path / "tutorial")
    change = next(line[2:] for line in TUTORIAL.read_text().splitlines() if line.startswith("$ sed -i"))
    steps = rows(DOCUMENT.read_text())
    answers: dict[str, list[Any]] = {}
    for form in FORMS:
        folder = tmp_path / form
        shutil.copytree(tmp_path / "tutorial", folder)
        follower = Follower(form, folder)
        with PlatformProcess(folder / "var/eyas", folder / "data") as platform:
            answers[form] = []
            for row in steps:
                if row[0] == "eyas apply data/movies.yaml":
                    subprocess.run(["bash", "-c", change], cwd=folder, check=True, timeout=60)
                answers[form].append(step(platform, follower, row))
            assert (platform.home / "token").read_text().strip() not in platform.log
    for number, row in enumerate(steps):
        expected = answers["eyas"][number]
        assert {form: answers[form][number] for form in FORMS} == dict.fromkeys(FORMS, expected), row[0]


def test_the_table_has_each_command_of_the_tutorial_that_talks_to_the_platform() -> None:
    commands = {command.text for block in blocks(TUTORIAL.read_text(), "docs/tutorial.md") for command in block.commands}
    inline = set(re.findall(r"`(eyas (?:runs|card|drift) [^`]+)`", TUTORIAL.read_text()))
    asks = {command for command in commands if command.startswith("eyas ") and not command.startswith("eyas data ")} | inline
    elsewhere = {"eyas apply data/wrong.yaml", "eyas open movies", "eyas rollout status movies --watch"}
    shown = {row[0] for row in rows(DOCUMENT.read_text())}
    assert {command.split(" --reason")[0] for command in asks - elsewhere} <= shown
    assert shown - asks <= {"eyas rollout promote movies", "eyas rollback movies"}
