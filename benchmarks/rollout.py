"""A rollout in front of users: who is sent where, and what users notice of it; then what the analysis decides.

    python -m benchmarks.rollout [--requests 100000] [--rate 200] [--times 50] [--parts split story faults evidence]

Each part has its promises, and the command ends with 1 where one is missed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from benchmarks import rollout_faults, rollout_split, rollout_story
from benchmarks.harness import Missed, Outcome, benchmark, say, scratch


@benchmark("rollout")
def rollout(
    requests: int = 100_000,
    rate: float = 200,
    times: Annotated[int, "rollouts of each faulty candidate"] = 50,
    parts: Sequence[Literal["split", "story", "faults", "evidence"]] = ("split", "story", "faults", "evidence"),
) -> Iterator[Outcome]:
    for part in parts:
        say(part)
        with scratch() as folder:
            if part == "split":
                yield from rollout_split.split(folder / "home", requests)
            elif part == "story":
                yield from rollout_story.story(folder / "home", rate)
            elif part == "faults":
                yield from rollout_faults.faults(folder / "home", times)
            # It simulates for minutes on all cores, and publishes its own figures: a process of its own.
            elif subprocess.run([sys.executable, "-m", "benchmarks.rollout_evidence"], check=False).returncode:
                yield Missed("the analysis, by simulation")


if __name__ == "__main__":
    rollout()
