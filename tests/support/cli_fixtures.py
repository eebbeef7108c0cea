"""Fixtures of tests of the command line; a `conftest.py` imports them. The API is a table of answers."""

from __future__ import annotations

import json
from functools import cache, partial

import httpx
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pipelines.data.__main__ import _answered as answer_request
from services.cli import runs
from services.cli.client import Client
from services.cli.main import app
from tests.support.secret_files import write_secret


class Platform:
    """Answers by method and path; several answers to one question come one after the other, the last one again and again."""

    def __init__(self):
        self.answers = {"GET /v1/recommenders/m": [(200, {"ids": {"user": "integer", "item": "integer"}})]}
        self.asked = []

    def says(self, question, *answers, status=200):
        self.answers[question] = [(status, answer) for answer in answers]

    def refuses(self, question, status, kind, detail):
        self.says(question, {"type": f"https://eyas.dev/problems/{kind}", "title": kind, "status": status, "detail": detail}, status=status)

    def __call__(self, request):
        question = f"{request.method} {request.url.path}"
        if question in {"GET /v1/recommenders", "GET /v1/runs"} and question not in self.answers:  # asked for a hint alone
            return httpx.Response(503)
        self.asked.append(request)
        answers = self.answers[question]
        status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer = answer(request)
        return httpx.Response(status, content=answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    @property
    def body(self):
        return json.loads(self.asked[-1].content)


@pytest.fixture
def platform(monkeypatch):
    made = Platform()
    monkeypatch.setattr("services.cli.client.Client", partial(Client, transport=httpx.MockTransport(made)))
    monkeypatch.setattr(runs, "_POLL", 0)
    return made


@pytest.fixture
def tool_in_process(monkeypatch):
    """Runs the tools of `python -m pipelines.data` in the test's own process."""

    def run_tool(module, request):
        assert module == "pipelines.data"
        answer = answer_request(request)
        return answer.code, answer.model_dump_json(by_alias=True)

    monkeypatch.setattr("services.wiring.tools.run_tool", run_tool)


@pytest.fixture
def tool(monkeypatch):
    """Answers in place of `python -m pipelines.data`."""
    asked, answers = [], []

    def work_on_data(name, request):
        asked.append((name, request))
        return answers.pop(0)

    monkeypatch.setattr("services.wiring.tools.work_on_data", work_on_data)
    return asked, answers


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir()
    write_secret(folder / "token", "a-token\n")
    monkeypatch.setenv("EYAS_HOME", str(folder))
    for name in ("EYAS_URL", "EYAS_TOKEN", "EYAS_TOKEN_FILE", "EYAS_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return folder


command_of = cache(get_command)
"""The parsers, built once: to build them takes longer than most commands."""


@pytest.fixture
def eyas(home, monkeypatch):
    monkeypatch.setattr("typer.testing._get_command", command_of)

    def run(*arguments, typed=None):
        return CliRunner().invoke(app, [str(one) for one in arguments], input=typed)

    return run


@pytest.fixture
def spec_file(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(
        "name: m\n"
        "data: {interactions: {uri: a.csv}, items: {uri: b.csv, key: movieId}}\n"
        "schema: {user: userId, item: movieId, time: t, label: {column: rating, positive: '>= 4'}}\n"
    )
    return path
