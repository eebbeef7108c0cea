"""The control plane under load: transitions a second, how late a thousand active runs are looked at, the API's answers with many
runs stored, memory; on SQLite and on a real PostgreSQL. Beside it trivial runs of two steps, ours and Prefect's.

    python -m benchmarks.control [--runs 1000] [--stored 10 1000 100000] [--databases sqlite postgresql] [--rounds 1] [--no-peer]
"""

from __future__ import annotations

import argparse

from rich.console import Console

from benchmarks import control_api, control_loop, control_peer
from benchmarks.databases import databases
from benchmarks.report import Row, publish


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--stored", type=int, nargs="+", default=[10, 1_000, 100_000])
    parser.add_argument("--databases", nargs="+", choices=["sqlite", "postgresql"], default=["sqlite", "postgresql"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-peer", action="store_true")
    given = parser.parse_args()
    rows: list[Row] = []
    say = Console().print
    with databases() as fresh:
        for database in given.databases:
            say(f"{database}: transitions of {given.runs} runs")
            rows += control_loop.transitions(database, fresh(database), given.runs)
            say(f"{database}: how late {given.runs} active runs are looked at")
            rows += control_loop.delay(database, fresh(database), given.runs)
            for stored in given.stored:
                say(f"{database}: the API's answers with {stored:,} runs stored")
                rows += control_api.answers(database, fresh(database), stored)
        publish("control", rows)  # what a peer that fails doesn't take along
        rows += control_peer.trivial_runs(fresh, given.databases, given.runs, given.rounds, not given.no_peer)
    publish("control", rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
