"""Schemathesis against a living platform, with every kind of token and without one; on SQLite and PostgreSQL.

    python -m tests.security.fuzzing [--cases 10000] [--seed N] [--databases sqlite postgresql] [--to var/security/schemathesis.json]

The seed is that of EYAS_SEED, or 1; it is printed.
The cases are those that were really sent. What counts as a failure: an answer of 5xx, an answer that the OpenAPI document doesn't
declare (status, content type, headers, body), a verb that isn't there and is not answered with 405 and Allow, and, without a
token, anything but 401.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from services.api.auth import OPEN
from tests.security.platform import TOKEN
from tests.servers.platform_process import until
from tests.servers.postgres_server import postgres_server

TOKENS = ("admin", "viewer", "client", "none")
DATABASES = ("sqlite", "postgresql")
SHARES = {"admin": 0.55, "viewer": 0.2, "client": 0.15, "none": 0.1}
PHASES = {"coverage": 0.3, "fuzzing": 0.4, "stateful": 0.3}
WHOLE = 10_000
"""From so many cases on the coverage phase isn't cut short: it has an end of its own, at some 10,000 cases."""
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
)


@schemathesis.serializer("application/x-ndjson")
def ndjson(_context: Any, value: Any) -> bytes:
    """Any text is a body of lines, if not one of good ones."""
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


@dataclass
class Part:
    """One phase with one token on one database."""

    database: str
    token: str
    phase: str
    cases: int = 0
    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return vars(self) | {"statuses": dict(sorted(self.statuses.items())), "failures": dict(self.failures)}

    def fail(self, what: str, example: str) -> None:
        self.failures[what] += 1
        self.examples.setdefault(what, example[:2000])


@contextmanager
def platform(database: str | None, *options: str) -> Iterator[str]:
    """The URL of one of its own."""
    with tempfile.TemporaryDirectory(prefix="eyas-fuzz-") as folder:
        home = Path(folder) / "platform"
        command = [
            sys.executable,
            "-m",
            "tests.security.platform",
            "--home",
            str(home),
            *(["--database", database] if database else []),
            *options,
        ]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=Path.cwd())

        def ready() -> str | None:
            assert process.poll() is None, f"the platform ended:\n{(Path(folder) / 'log').read_text()}"
            place = home / "url"
            url = place.read_text() if place.exists() else ""
            try:
                headers = {"Authorization": f"Bearer {TOKEN}"}
                return url if url and httpx.get(f"{url}/v1/recommenders/films/versions/1", headers=headers).is_success else None
            except httpx.TransportError:
                return None

        try:
            yield until("the platform has its first version", ready, 240)
            assert process.poll() is None, f"the platform ended:\n{(Path(folder) / 'log').read_text()}"
        finally:
            process.terminate()
            process.wait(30)
            said = (Path(folder) / "log").read_text(errors="replace")
            if "unexpected error" in said:
                print(said[said.index("unexpected error") :][:6000], file=sys.stderr)  # noqa: T201


def _token(url: str, role: str, phase: str) -> str | None:
    if role in ("admin", "none"):
        return TOKEN if role == "admin" else None
    made = httpx.post(f"{url}/v1/tokens", headers={"Authorization": f"Bearer {TOKEN}"}, json={"name": f"{role}-{phase}", "role": role})
    text: str = made.raise_for_status().json()["token"]
    return text


def _config(url: str, token: str | None, phase: str, seed: int, examples: int) -> SchemathesisConfig:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    generation = {"max-examples": examples, "no-shrink": True, "with-security-parameters": False, "database": "none"}
    return SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "base-url": url,
            "headers": headers,
            "workers": 1,
            "continue-on-failure": True,
            "request-timeout": 20,
            "max-stream-events": 1,
            "suppress-health-check": ["all"],
            "output": {"sanitization": {"enabled": True}},
            "generation": generation,
            "checks": {"enabled": False, **{name: {"enabled": True} for name in CHECKS if token or name == "not_a_server_error"}},
            "phases": {name: {"enabled": name == phase} for name in ("examples", "coverage", "fuzzing", "stateful")},
        }
    )


def fuzz(url: str, part: Part, cases: int, seed: int) -> None:
    """So many cases of one phase, or all of those that there are: the coverage phase has an end."""
    began, token = time.monotonic(), _token(url, part.token, part.phase)
    operations = 60
    while part.cases < cases:
        before = part.cases
        examples = max(2, (cases - part.cases) // operations if part.phase == "fuzzing" else (cases - part.cases) // 4)
        schema = schemathesis.openapi.from_url(
            f"{url}/openapi.json",
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=60,
            config=_config(url, token, part.phase, seed, examples),
        )
        if token:  # the stream of a run that goes on never ends: tests/unit/api/test_streams.py has its own tests of those
            schema = schema.exclude(path_regex="/stream$")
        stream = from_schema(schema).execute()
        for event in stream:
            if isinstance(event, events.ScenarioFinished):
                _count(part, event)
                if part.cases >= cases:
                    stream.stop()
            elif isinstance(event, events.NonFatalError):
                part.fail(f"error of the tool: {event.label}", str(event.value))
            elif isinstance(event, events.FatalError):
                raise event.exception
        seed += 1
        if part.phase == "coverage" or part.cases == before:
            break
    part.seconds = round(time.monotonic() - began, 1)


def _count(part: Part, event: events.ScenarioFinished) -> None:
    recorder = event.recorder
    for interaction in recorder.interactions.values():
        part.cases += 1
        request, response = interaction.request, interaction.response
        asked = f"{request.method} {request.uri} {(request.body or b'')[:400]!r}"
        path = urlsplit(request.uri).path
        if response is None:
            part.fail("no answer", asked)
            continue
        part.statuses[response.status_code] += 1
        if response.status_code >= 500:
            part.fail(f"{response.status_code} at {event.label}", f"{asked}: {response.text[:500]}")
        if part.token == "none" and path not in OPEN and response.status_code not in (401,):
            part.fail(f"{response.status_code} without a token", f"{asked}: {response.text[:300]}")
    for case, checks in recorder.checks.items():
        for check in checks:
            if check.failure_info is not None and check.name != "not_a_server_error":
                place = recorder.cases[case].value.operation.label if case in recorder.cases else event.label
                failure = check.failure_info.failure
                part.fail(f"{check.name} at {place}: {failure.title}", f"{check.failure_info.code_sample}\n{failure.message}")


def run(cases: int, seed: int, databases: Sequence[str], tokens: Sequence[str] = TOKENS) -> list[Part]:
    """Says what it does while it does it."""
    found = []
    for database in databases:
        share = cases / len(databases)
        for token in tokens:
            with _database(database) as url, platform(url) as at:
                for phase, part in PHASES.items():
                    done = Part(database, token, phase)
                    wanted = max(10, round(share * SHARES[token] / sum(SHARES[one] for one in tokens) * part))
                    if phase == "coverage" and token == "admin" and cases >= WHOLE:  # others are refused by most routes
                        wanted = sys.maxsize
                    fuzz(at, done, wanted, seed)
                    found.append(done)
                    said = f"{done.cases} cases in {done.seconds} s, {sum(done.failures.values())} failures"
                    print(f"{database}, {token}, {phase}: {said}; answers {dict(sorted(done.statuses.items()))}", flush=True)  # noqa: T201
                    print("".join(f"    {one}\n" for one in faults([done])), end="", flush=True)  # noqa: T201
    return found


@contextmanager
def _database(kind: str) -> Iterator[str | None]:
    if kind == "sqlite":
        yield None
    else:
        with postgres_server() as server:
            yield server.new_database()


def faults(parts: Sequence[Part]) -> list[str]:
    told = {what: (part, part.examples[what]) for part in parts for what in part.failures}
    totals: Counter[str] = sum((part.failures for part in parts), Counter())
    return [f"{count}x {what} ({told[what][0].token}, {told[what][0].database})\n{told[what][1]}" for what, count in totals.most_common()]


def main() -> int:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--cases", type=int, default=int(os.environ.get("EYAS_CASES", "12000")))
    asked.add_argument("--seed", type=int, default=int(os.environ.get("EYAS_SEED", "1")))
    asked.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES)
    asked.add_argument("--tokens", nargs="+", choices=TOKENS, default=TOKENS)
    asked.add_argument("--to", type=Path, default=Path("var/security/schemathesis.json"))
    given = asked.parse_args()
    print(f"seed {given.seed}; left out where a token is sent: the routes that end in /stream", flush=True)  # noqa: T201
    began = time.monotonic()
    parts = run(given.cases, given.seed, given.databases, given.tokens)
    said = faults(parts)
    total = sum(part.cases for part in parts)
    seconds = round(time.monotonic() - began, 1)
    given.to.parent.mkdir(parents=True, exist_ok=True)
    document = {"seed": given.seed, "cases": total, "seconds": seconds, "failures": len(said), "parts": [one.document() for one in parts]}
    given.to.write_text(json.dumps(document, indent=1) + "\n")
    print("\n\n".join(["", *said, f"{total} cases in {seconds} s: {len(said)} kinds of failure"]))  # noqa: T201
    return 1 if said else 0


if __name__ == "__main__":
    raise SystemExit(main())
