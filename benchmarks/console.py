"""The console's pages with few and with many rows stored: how long each takes, its bytes, and its statements to the database.

    python -m benchmarks.console [--runs 10 1000 100000] [--recommenders 1 10 100 1000] [--databases sqlite postgresql] [--requests 100]

A real platform process over HTTP, asked as browsers ask, one page after the other; a fake model server and stages that end at once stand
behind their ports. Runs: of one recommender, ended, with seven lines of history each. Recommenders: each serves, with a run and a rollout.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx

from benchmarks.harness import Row, benchmark, percentiles, say, scratch, timed, until
from benchmarks.harness import databases as empty_databases
from benchmarks.many_platform import COUNTS
from benchmarks.many_world import fill, fill_runs, name_of
from benchmarks.platforms import FAKE, running
from benchmarks.rollout_world import NAME
from shared.artifacts import FsspecArtifacts

_WARM = 5


@benchmark("console")
def console(
    runs: Sequence[int] = (10, 1_000, 100_000),
    recommenders: Sequence[int] = (1, 10, 100, 1_000),
    databases: Sequence[Literal["sqlite", "postgresql"]] = ("sqlite", "postgresql"),
    requests: int = 100,
) -> Iterator[Row]:
    with empty_databases() as new_database:
        for database, count in itertools.product(databases, runs):
            say(f"{database}: {count:,} runs")
            url = new_database(database)
            with scratch() as folder:
                pages = _of_runs(fill_runs(url, count))
                yield from _measure(f"{count} runs stored", database, url, pages, requests, folder / "home")
        for database, count in itertools.product(databases, recommenders):
            say(f"{database}: {count:,} recommenders")
            url = new_database(database)
            with scratch() as folder:
                fill(url, FsspecArtifacts(str(folder / "home" / "artifacts")), count)
                yield from _measure(f"{count} recommenders", database, url, _of_recommenders(count), requests, folder / "home")


def _of_recommenders(count: int) -> Mapping[str, Sequence[str]]:
    some = [f"/recommenders/{name_of(number)}" for number in range(min(count, 50))]
    return {
        "home": ["/"],
        "recommender": some,
        "runs": ["/runs"],
        "runs of one": [f"{path}/runs" for path in some],
        "drift": [f"{path}/drift" for path in some],
        "serving": ["/serving"],
        "settings": ["/settings"],
    }


def _of_runs(ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
    chance = random.Random(1)  # noqa: S311
    some = [chance.choice(ids) for _ in range(50)]
    return {
        "home": ["/"],
        "recommender": [f"/recommenders/{NAME}"],
        "runs": ["/runs"],
        "runs, second page": ["/runs?cursor="],
        "runs, rejected since a day": ["/runs?state=rejected&since=2026-10-01"],
        "runs, not ended": ["/runs?state=active"],
        "runs, dead letters": ["/runs?dead=1"],
        "runs of one": [f"/recommenders/{NAME}/runs"],
        "run": [f"/runs/{id}" for id in some],
        "compare": [f"/runs/{id}/compare?with={ids[0]}" for id in some],
    }


def _measure(case: str, database: str, url: str, pages: Mapping[str, Sequence[str]], requests: int, home: Path) -> Iterator[Row]:
    with running(home, FAKE, {"EYAS_DATABASE_URL": url}) as platform:
        until("the platform is ready", platform.is_ready, 600, 0.2)
        session = httpx.post(f"{platform.url}/v1/sessions", headers={"Authorization": f"Bearer {platform.token()}"}).json()["session"]
        cookies = {f"eyas-session-{urlsplit(platform.url).port}": session}  # signed in, as a browser is
        with httpx.Client(base_url=platform.url, cookies=cookies, timeout=120) as client:
            for page, paths in pages.items():
                cycle = itertools.cycle([_with_cursor(client, path) for path in paths])
                for path in itertools.islice(cycle, _WARM + 1):
                    client.get(path).raise_for_status()
                before = _statements(home)
                answers = [timed(lambda path=path: client.get(path)) for path in itertools.islice(cycle, requests)]  # type: ignore[misc]
                sent = (_statements(home) - before) / requests
                size = max(len(answer.raise_for_status().content) for _, answer in answers)
                for name, value in percentiles([seconds for seconds, _ in answers], 50, 99, scale=1000).items():
                    yield Row(case, f"eyas on {database}", f"{page}: {name}", "ms", [value])
                yield Row(case, f"eyas on {database}", f"{page}: bytes", "", [size])
                yield Row(case, f"eyas on {database}", f"{page}: statements", "", [sent])


def _with_cursor(client: httpx.Client, path: str) -> str:
    """The next page of the list, by its link."""
    if not path.endswith("cursor="):
        return path
    text = client.get(path.partition("?")[0]).text
    at = text.find("cursor=")
    return path + text[at + 7 : text.index('"', at)] if at > 0 else path.partition("?")[0]


def _statements(home: Path) -> float:
    """Of requests alone. The process writes its counts twice a second: the second file from now on has them all."""

    def counts() -> Any:
        return json.loads((home / COUNTS).read_text()) if (home / COUNTS).exists() else {"at": 0.0}

    for _ in range(2):
        at = counts()["at"]
        until("counts", lambda at=at: counts()["at"] > at, pause=0.1)  # type: ignore[misc]
    return float(counts()["statements"].get("requests", 0))


if __name__ == "__main__":
    console()
