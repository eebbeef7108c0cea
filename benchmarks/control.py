"""The control plane under load: transitions a second, the delay with a thousand active runs, the API's answers with many runs stored,
memory; on SQLite and on a real PostgreSQL. Beside it trivial runs of two steps, ours and Prefect's.

    python -m benchmarks.control [--runs 1000] [--stored 10 1000 100000] [--databases sqlite postgresql] [--rounds 1] [--no-peer]
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from benchmarks import control_loop, control_peer
from benchmarks.harness import Row, benchmark, latencies, say, scratch, timed
from benchmarks.harness import databases as empty_databases
from benchmarks.many_world import fill_runs
from benchmarks.platforms import running
from benchmarks.rollout_world import NAME

_REQUESTS, _WARM = 400, 20


@benchmark("control")
def control(
    runs: int = 1000,
    stored: Sequence[int] = (10, 1_000, 100_000),
    databases: Sequence[Literal["sqlite", "postgresql"]] = ("sqlite", "postgresql"),
    rounds: int = 1,
    no_peer: Annotated[bool, "without Prefect, which is installed on first use"] = False,
) -> Iterator[Row]:
    with empty_databases() as new_database:
        for database in databases:
            say(f"{database}: transitions and delay of {runs} runs")
            yield from control_loop.transitions(database, new_database(database), runs)
            yield from control_loop.delay(database, new_database(database), runs)
            for count in stored:
                say(f"{database}: the API's answers with {count:,} runs stored")
                yield from answers(database, new_database(database), count)
        yield from control_peer.trivial_runs(new_database, databases, runs, rounds, not no_peer)


def answers(database: str, url: str, stored: int) -> Iterator[Row]:
    """The API of a real platform process over HTTP: list and get, and resident memory."""
    ids, chance = fill_runs(url, stored), random.Random(1)  # noqa: S311
    case, contender = f"{stored} runs stored", f"eyas on {database}"
    with scratch() as folder, running(folder / "home", settings={"EYAS_DATABASE_URL": url}) as platform:
        requests = {
            "list, newest 10": [f"/v1/recommenders/{NAME}/runs?limit=10"] * _REQUESTS,
            "get": [f"/v1/runs/{chance.choice(ids)}" for _ in range(_REQUESTS)],
        }
        for kind, paths in requests.items():
            seconds = [timed(lambda path=path: platform.client.get(path).raise_for_status())[0] for path in [*paths[:_WARM], *paths]]  # type: ignore[misc]
            yield from latencies(case, contender, seconds[_WARM:], 50, 99, metric=f"{kind}, {{}}")
        yield Row(case, contender, "resident memory", "MiB", [platform.resident_memory()])


if __name__ == "__main__":
    control()
