"""A rollout in front of users: who is sent where, and what users notice of it; then what the analysis decides.

    python -m benchmarks.rollout [--requests 100000] [--rate 200] [--times 50] [--parts split story faults evidence]

Each part says what it promises, and the command ends with 1 where a promise isn't kept.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console

from benchmarks.report import Row, publish
from benchmarks.rollout_faults import faults
from benchmarks.rollout_split import split
from benchmarks.rollout_story import story

_EVIDENCE = "benchmarks.rollout_evidence"
_ALL = ["split", "story", "faults", "evidence"]
Part = Callable[[Path], tuple[list[Row], bool]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--times", type=int, default=50, help="rollouts of each faulty candidate")
    parser.add_argument("--parts", nargs="+", choices=_ALL, default=_ALL)
    given = parser.parse_args()
    say = Console(highlight=False, soft_wrap=True).print
    parts: Mapping[str, tuple[str, Part]] = {
        "split": (f"the split of {given.requests:,} requests", lambda home: split(home, given.requests, say)),
        "story": (f"a rollout's life at {given.rate:g} requests/s over HTTP", lambda home: story(home, given.rate, say)),
        "faults": (f"faulty candidates, {given.times} rollouts of each kind", lambda home: faults(home, given.times, say)),
    }
    rows: list[Row] = []
    broken = []
    for name in [one for one in given.parts if one in parts]:
        what, part = parts[name]
        say(what)
        with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
            found, good = part(Path(folder) / "home")
        rows += found
        broken += [] if good else [what]
    if rows:
        publish("rollout", rows)
    if "evidence" in given.parts and not _evidence():
        broken.append("the analysis, by simulation")
    for what in broken:
        say(f"not as promised: {what}")
    return 1 if broken else 0


def _evidence() -> bool:
    """It simulates for minutes on all cores, and publishes its own figures: a process of its own."""
    if importlib.util.find_spec(_EVIDENCE) is None:
        raise SystemExit(f"{_EVIDENCE} is not there: name the other parts by --parts")
    return subprocess.run([sys.executable, "-m", _EVIDENCE], check=False).returncode == 0  # noqa: S603  our own


if __name__ == "__main__":
    raise SystemExit(main())
