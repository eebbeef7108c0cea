"""Plants each mutant of mutants.json in a copy of the project, and runs the tests of `make test` that reach its line.

python -m tests.mutants                   # every mutant; exit code 1 if fewer than 95 % of those that are not equivalent are found
python -m tests.mutants --only gate.py    # those whose name contains the text
python -m tests.mutants --draw            # draws the list again, after the product's code has changed
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.population import ELSEWHERE, LIST, ROOT, SEED, draw, read
from tests.mutants.reach import STORY, Reach, measure
from tests.mutants.sites import Mutant, mutate

EQUIVALENT = Path(__file__).with_name("equivalent.json")
ENOUGH = 0.95
_TREES = ("shared", "services", "pipelines", "demo", "benchmarks", "dashboards", "helm", "images", "docs", "tests")
_FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "LICENSE", "SECURITY.md")


@dataclass(frozen=True)
class Result:
    mutant: Mutant
    outcome: str
    """`found`, `survived`, or `equivalent`."""
    tests: int
    seconds: float
    reason: str
    """The test that failed first, or why the mutant is equivalent."""


class Copies:
    """Copies of the project, each used by one mutant at a time."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        for number in range(count):
            copy = folder / f"copy-{number}"
            for name in _TREES:
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            for name in _FILES:
                shutil.copyfile(ROOT / name, copy / name)
            (copy / ".venv").symlink_to(ROOT / ".venv")
            self._free.put(copy)

    def judge(self, mutant: Mutant, reach: Reach) -> Result:
        copy = self._free.get()
        path = copy / mutant.path
        source = path.read_text()
        began = time.monotonic()
        names = reach.unit_tests(ROOT, mutant)
        try:
            _write(path, mutate(source, mutant))
            failed = _first_failure(copy, names, 60 + 10 * sum(reach.seconds.get(name, 0.0) for name in names)) if names else None
            if failed is None and reach.is_in_story(ROOT, mutant):
                names = [*names, STORY]
                failed = _first_failure(copy, [STORY], 900)
        finally:
            _write(path, source)
            self._free.put(copy)
        outcome = "survived" if failed is None else "found"
        return Result(mutant, outcome, len(names), time.monotonic() - began, failed or "")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draw", action="store_true", help="draw the list again and write it")
    parser.add_argument("--only", default="", metavar="TEXT", help="mutants whose name contains the text")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--reach", type=Path, metavar="FOLDER", help="keep the measured coverage here")
    parser.add_argument("--to", type=Path, default=ROOT / "var/mutants.json", help="the report (default: %(default)s)")
    options = parser.parse_args()
    if options.draw:
        LIST.write_text(
            json.dumps({"seed": SEED, "elsewhere": ELSEWHERE, "mutants": [asdict(mutant) for mutant in draw()]}, indent=1) + "\n"
        )
        return 0
    mutants = [mutant for mutant in read() if options.only in mutant.name]
    results = judge_all(mutants, options.workers, options.reach)
    options.to.parent.mkdir(parents=True, exist_ok=True)
    options.to.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    return report(results)


def judge_all(mutants: Sequence[Mutant], workers: int, kept: Path | None) -> list[Result]:
    equivalent: dict[str, str] = json.loads(EQUIVALENT.read_text())
    with tempfile.TemporaryDirectory(prefix="eyas-mutants-") as name:
        folder = kept or Path(name) / "reach"
        reach = measure(ROOT, folder, mutants, workers)
        copies = Copies(Path(name), workers)
        with ThreadPoolExecutor(workers) as pool:
            results = []
            tasks = [pool.submit(copies.judge, mutant, reach) for mutant in mutants if mutant.name not in equivalent]
            for number, task in enumerate(tasks, 1):
                result = task.result()
                results.append(result)
                line = f"{result.outcome} {result.mutant.name}: {result.tests} tests, {result.seconds:.0f} s {result.reason}"
                say(f"{number}/{len(tasks)} {line}")
    return results + [Result(mutant, "equivalent", 0, 0.0, equivalent[mutant.name]) for mutant in mutants if mutant.name in equivalent]


def report(results: Sequence[Result]) -> int:
    counted = [result for result in results if result.outcome != "equivalent"]
    found = sum(result.outcome == "found" for result in counted)
    for result in results:
        if result.outcome != "found":
            mutant = result.mutant
            say(f"{result.outcome}: {mutant.name} in {mutant.function}: `{mutant.before}` -> `{mutant.after}` {result.reason}")
    say(f"{found} of {len(counted)} mutants found, {len(results) - len(counted)} equivalent")
    return 0 if found >= ENOUGH * len(counted) else 1


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _first_failure(copy: Path, names: Sequence[str], seconds: float) -> str | None:
    """The first test that fails there, or `None` if all pass. A run that takes too long has found the mutant: it hangs."""
    (copy / "names.txt").write_text("\n".join(names) + "\n")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=no", "@names.txt"]
    try:
        ran = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"not done after {seconds:.0f} s"
    if ran.returncode == 0:
        return None
    failures = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "SUBFAILED"))]
    return failures[0][:200] if failures else f"pytest ended with exit code {ran.returncode}"


def _write(path: Path, text: str) -> None:
    """A source file, without the byte code of its earlier text."""
    path.write_text(text)
    for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        stale.unlink()


if __name__ == "__main__":
    sys.exit(main())
