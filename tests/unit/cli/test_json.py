"""`--json` of every command prints the API's own response; the table of the same response fits terminals of any width."""

from __future__ import annotations

import json
import re
import shlex
from functools import partial
from pathlib import Path

import httpx
import pytest

from services.cli import terminal
from services.cli.client import Client
from services.cli.command_registry import ENTRIES, INNER

pytestmark = pytest.mark.requirement("C-01")

DOCUMENT = json.loads(Path(__file__).parents[3].joinpath("docs/openapi.json").read_text())
EXAMPLES = {one.name: (one.example, one.json) for one in ENTRIES if one.example} | INNER
"""By command: what is typed, and what its JSON is."""
QUESTIONS = {
    name: (example, found[1], found[2])
    for name, (example, told) in EXAMPLES.items()
    if (found := re.fullmatch(r"(GET|PUT|POST|DELETE) (/v1/[^ ,]*)", told))
}


COMPARED = {
    "left": {"id": "r1", "state": "registered"},
    "right": {"id": "r2", "state": "registered"},
    "spec": [{"path": "model.params.factors", "left": 32, "right": None}],
    "lineage": [
        {"path": "data", "left": "58935 bytes of 2026-11-21T13:31:02Z, changed since", "right": "the same, and more of it than before"}
    ],
    "metrics": [{"metric": "ndcg@10", "left": 0.1, "right": 0.25, "change": 0.15}],
    "gates": [{"gate": "parity", "left": {"verdict": "pass"}, "right": None}],
    "stages": [{"stage": "etl", "left": {"reused": True}, "right": None, "left_seconds": 1.0, "right_seconds": None}],
}


def documents():
    """The examples of the API's document, by what they are of."""
    for methods in DOCUMENT["paths"].values():
        for route in methods.values():
            for response in route["responses"].values():
                found = response.get("content", {}).get("application/json", {})
                if "example" in found and "$ref" in found["schema"]:
                    yield found["schema"]["$ref"].rsplit("/", 1)[1], found["example"]


BY_SCHEMA = dict(documents())
BY_SCHEMA |= {"Comparison": COMPARED, "RetrainerView": BY_SCHEMA["Triggers"]["retrainer"]}


def answers():
    for path, methods in DOCUMENT["paths"].items():
        for method, route in methods.items():
            for status, response in route["responses"].items():
                if status.startswith("2"):
                    told = response.get("content", {}).get("application/json", {})
                    schema = told.get("schema", {}).get("$ref", "").rsplit("/", 1)[-1]
                    found = told.get("example", BY_SCHEMA.get(schema))
                    yield method.upper(), re.sub(r"\{\w+\}", "[^/:]+", path), int(status), found


ANSWERS = list(answers())


def answered(request):
    """As the documented example says."""
    for method, pattern, status, found in ANSWERS:
        if request.method == method and re.fullmatch(pattern, request.url.path):
            assert found is not None or status == 204, request.url.path
            return httpx.Response(status, content=b"" if found is None else json.dumps(found).encode())
    raise AssertionError(f"no such route: {request.method} {request.url.path}")


@pytest.fixture
def documented(monkeypatch, tmp_path, spec_file):
    monkeypatch.setattr("services.cli.client.Client", partial(Client, transport=httpx.MockTransport(answered)))
    monkeypatch.chdir(tmp_path)
    spec_file.rename(tmp_path / "movies.yaml")


def typed(example, *more):
    words = [one for one in shlex.split(example)[1:] if one != "--watch"]
    return [*words, *more]


def expected(method, path):
    return next(found for asked, pattern, _, found in ANSWERS if asked == method and re.fullmatch(pattern, re.sub(r"\{\w+\}", "x", path)))


def owner_of(example):
    """A rollout is refused to be another recommender's: the documented one's name is used."""
    return example.replace(
        "movies", DOCUMENT["paths"]["/v1/rollouts/{id}"]["get"]["responses"]["200"]["content"]["application/json"]["example"]["recommender"]
    )


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_json_of_a_command_is_the_platforms_own_answer(documented, eyas, name):
    example, method, path = QUESTIONS[name]
    found = eyas(*typed(owner_of(example) if name.startswith("rollout") else example, "--json"))
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    if name == "triggers":  # its example asks for the history
        path += "/history"
    if name == "rollout status":  # without --id it is the newest of the list
        assert told == expected("GET", "/v1/recommenders/{name}/rollouts")["items"][0]
    else:
        assert told == expected(method, path)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_narrow_terminal_breaks_no_word(documented, eyas, monkeypatch, name, subtests):
    example = QUESTIONS[name][0]
    example = owner_of(example) if name.startswith("rollout") else example
    whole = eyas(*typed(example)).stdout
    for columns in (40, 80, 200):
        with subtests.test(columns=columns), monkeypatch.context() as patched:
            patched.setattr(terminal, "width", lambda columns=columns: columns)
            found = eyas(*typed(example))
            assert found.exit_code == 0, found.output
            table, *notes = re.split(r"\nwithout (?=[A-Z])", found.stdout)
            note = " ".join(notes)
            assert not set(table.split()) - set(whole.split())
            assert "a wider terminal" in " ".join(note.split()) or not note
            lines = found.stdout.splitlines()
            assert len(lines) >= len(whole.splitlines()) or note


def test_every_command_that_prints_an_answer_has_json():
    def of(command, name):
        if hasattr(command, "commands"):
            return [found for inner, one in command.commands.items() for found in of(one, f"{name} {inner}")]
        return [(name, any("--json" in one.opts for one in command.params))]

    without = [name for entry in ENTRIES for name, has in of(entry.command(), entry.name) if not has]
    assert without == ["up", "serve", "migrate", "install-triton", "completion"]


def test_what_several_requests_did_is_one_document(platform, eyas, tmp_path, monkeypatch):
    monkeypatch.setattr("services.cli.online._BATCH", 1)
    (tmp_path / "e.jsonl").write_text('{"user": 1, "item": 2}\n{"user": 1, "item": 3}\n')
    platform.says("POST /v1/events", {"accepted": 1, "hits": 1, "duplicates": 0}, {"accepted": 1, "hits": 0, "duplicates": 1})
    assert json.loads(eyas("events", "m", tmp_path / "e.jsonl", "--json").stdout) == {"accepted": 2, "duplicates": 1, "hits": 1}


def test_what_the_platform_answers_with_nothing_is_said(platform, eyas):
    platform.says("DELETE /v1/recommenders/m", None, status=204)
    assert json.loads(eyas("delete", "m", "--yes", "--json").stdout) == {"recommender": "m", "deleted": True}
    platform.says("DELETE /v1/recommenders/m/versions/3/tags/best", None, status=204)
    assert json.loads(eyas("untag", "m", 3, "best", "--json").stdout) == {"recommender": "m", "version": 3, "untagged": "best"}


def test_logs_are_json_lines(platform, eyas):
    def log(request):
        offset = int(request.url.params["offset"])
        return {"text": "one\ntwo\n"[offset:], "next": 8, "stage": "etl", "attempt": "r1-etl-1"}

    platform.says("GET /v1/runs/r1", {"state": "registered"})
    platform.says("GET /v1/runs/r1/logs", log)
    lines = eyas("logs", "r1", "--json").stdout.splitlines()
    assert [json.loads(one) for one in lines] == [{"stage": "etl", "attempt": "r1-etl-1", "text": "one\ntwo\n"}]
