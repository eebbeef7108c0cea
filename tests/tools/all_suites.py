"""Runs every suite that this machine can run, with drawn inputs, and says what it could not run and how to get it.

python -m tests.tools.all_suites [SEED]    # make test-all SEED=...
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUITES = ("test", "test-contract", "test-platform", "test-training", "crash", "security", "chart", "test-console", "test-cluster")
NO_CLUSTER = "KUBECONFIG is not set: set it to that of a cluster whose node is this machine"
_SKIPPED = re.compile(r"^SKIPPED \[\d+\] \S+?:(?:\d+:)? (.*)$")


def run(suite: str, environment: dict[str, str]) -> tuple[int, list[str]]:
    """The exit code of `make SUITE`, whose output is shown as it comes, and the reasons of skipped tests."""
    reasons = []
    with subprocess.Popen(
        ["make", suite], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            reasons += _SKIPPED.findall(line.rstrip())
    return process.returncode, list(dict.fromkeys(reasons))


def main() -> int:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1] else secrets.randbelow(2**31)
    environment = os.environ | {"EYAS_SEED": str(seed), "EYAS_CRASH_SEED": str(seed), "PYTEST_ADDOPTS": f"--hypothesis-seed={seed}"}
    again = f"the same inputs again: make test-all SEED={seed}"
    say(again)
    table = list(rows(environment))
    say("\n".join(["", f"{'suite':14} {'result':>8} {'minutes':>8}", *table, again]))
    return int(any(" failed" in row for row in table))


def rows(environment: dict[str, str]) -> Iterator[str]:
    for suite in SUITES:
        if suite == "test-cluster" and not os.environ.get("KUBECONFIG"):
            yield f"{suite:14}  not run {'':8} {NO_CLUSTER}"
            continue
        say(f"\nmake {suite}")
        began = time.monotonic()
        code, reasons = run(suite, environment)
        yield f"{suite:14} {'failed' if code else 'passed':>8} {(time.monotonic() - began) / 60:8.1f}"
        yield from (f"{'':14}  not run {'':8} {reason}" for reason in reasons)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
