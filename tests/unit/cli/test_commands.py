"""`eyas up` and `serve`, and the list of commands."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest


@pytest.mark.requirement("C-09")
def test_up_hands_its_options_to_the_platform_and_ends_with_its_code(eyas, home, monkeypatch):
    called = []
    fake = SimpleNamespace(serve=lambda *given: called.append(given) or 7)
    monkeypatch.setitem(sys.modules, "services.wiring", fake)
    monkeypatch.setattr("services.wiring", fake, raising=False)
    assert eyas("up", "--port", "0", "--data-root", "a", "--data-root", "b", "--tritons", "2").exit_code == 7
    roots = ["a", "b"]
    assert called == [({"role": "all", "home": home, "port": 0, "metrics_port": None, "data_roots": roots, "triton_replicas": 2},)]


def test_serve_starts_one_part_and_knows_no_other_words(eyas, monkeypatch):
    called = []
    fake = SimpleNamespace(serve=lambda given: called.append(given) or 0)
    monkeypatch.setitem(sys.modules, "services.wiring", fake)
    monkeypatch.setattr("services.wiring", fake, raising=False)
    assert eyas("serve", "--role", "gateway", "--host", "0.0.0.0", "--port", "8080").exit_code == 0
    assert called == [{"role": "gateway", "host": "0.0.0.0", "port": 8080, "metrics_port": None}]
    assert eyas("serve", "--role", "all").exit_code == 2
    assert eyas("serve").exit_code == 2


def test_the_commands_need_no_platform_code_to_be_listed(eyas):
    result = eyas("--help")
    assert result.exit_code == 0
    for name in ["up", "apply", "run", "runs", "logs", "versions", "rollout", "rollback", "recommend", "events", "drift", "doctor"]:
        assert f"  {name} " in result.stdout
