"""What a start of `eyas` imports: nothing that its command doesn't need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.servers.cli_process import environment

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
    """Which heavy modules a command imports, by `-X importtime`."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "services.cli.main", *words],
        env=environment("http://127.0.0.1:1"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "services.cli.command_registry" in modules
    return {one for one in HEAVY if one in modules}


@pytest.mark.parametrize("words", [("--help",), ("runs", "--help"), ("rollout", "--help"), ("completion", "bash"), ("rns",)], ids=" ".join)
def test_help_imports_no_client_and_no_platform(words):
    assert imported(*words) == set()


def test_a_request_imports_a_client_and_no_contract():
    assert imported("runs", "m") & {"pydantic", "yaml", "shared.contracts.spec", "psutil", "uvicorn"} == set()
