"""Which tests reach a mutant's line, measured once by coverage with a context per test."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from coverage import CoverageData

from tests.mutants.sites import Mutant

UNIT, STORY = "tests/unit", "tests/e2e"
_STORY_CONTEXT = "story"


@dataclass(frozen=True)
class Reach:
    """The tests of `make test` that reach each line of the mutated files, quickest first."""

    tests: Mapping[str, Mapping[int, Sequence[str]]]
    seconds: Mapping[str, float]
    story: Mapping[str, frozenset[int]]

    def unit_tests(self, root: Path, mutant: Mutant) -> list[str]:
        """Python traces no thread that a library starts, such as those of polars: a line that no test seems to reach may run there.
        Then the tests that reach any function of its file are taken."""
        by_line = self.tests.get(mutant.path, {})
        lines = statement_lines((root / mutant.path).read_text(), mutant)
        names = {name for line in lines for name in by_line.get(line, ())} or {name for some in by_line.values() for name in some}
        return sorted(names, key=lambda name: (self.seconds.get(name, 0.0), name))

    def is_in_story(self, root: Path, mutant: Mutant) -> bool:
        lines = statement_lines((root / mutant.path).read_text(), mutant)
        return not lines.isdisjoint(self.story.get(mutant.path, frozenset()))


def measure(root: Path, folder: Path, mutants: Sequence[Mutant], workers: int) -> Reach:
    """Runs `make test`'s tests once under coverage of the mutated files alone. They must pass: a failing test would find every mutant."""
    folder.mkdir(parents=True, exist_ok=True)
    files = sorted({mutant.path for mutant in mutants})
    _run_unit_tests(root, folder, files, workers)
    _run_story(root, folder, files)
    seconds = _seconds_by_test(folder / "unit.xml")
    by_file: dict[str, set[str]] = {}
    for name in seconds:
        by_file.setdefault(name.partition("::")[0], set()).add(name)
    return Reach(_tests_by_line(root, folder / "unit.coverage", files, by_file), seconds, _lines(root, folder / "story.coverage", files))


def statement_lines(source: str, mutant: Mutant) -> set[int]:
    """The lines from the start of the innermost statement around the mutant to the mutant itself."""
    first = mutant.line
    innermost = -1
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= mutant.line <= (node.end_lineno or node.lineno) and node.lineno > innermost:
            innermost = first = node.lineno
    return set(range(first, mutant.line + 1))


def _run_unit_tests(root: Path, folder: Path, files: Iterable[str], workers: int) -> None:
    settings = folder / "unit.ini"
    settings.write_text(_settings(folder / "unit.coverage", files, "core = ctrace\nparallel = true\n"))
    options = ["--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report=", f"--junitxml={folder}/unit.xml", f"-n{workers}"]
    _run(root, [UNIT, *options, "-o", "junit_family=xunit1"])


def _run_story(root: Path, folder: Path, files: Iterable[str]) -> None:
    """The story's platform runs in processes of its own: coverage follows them, without a context for each test."""
    settings = folder / "story.ini"
    settings.write_text(
        _settings(folder / "story.coverage", files, f"core = ctrace\nparallel = true\npatch = subprocess\ncontext = {_STORY_CONTEXT}\n")
    )
    _run(root, [STORY], ["-m", "coverage", "run", f"--rcfile={settings}"], {"COVERAGE_PROCESS_START": str(settings)})
    subprocess.run([sys.executable, "-m", "coverage", "combine", "-q", f"--rcfile={settings}"], cwd=root, check=True)


def _settings(data: Path, files: Iterable[str], more: str) -> str:
    included = "".join(f"\n    {name}" for name in files)
    return f"[run]\ndata_file = {data}\nrelative_files = true\ninclude ={included}\n{more}"


def _run(root: Path, arguments: Sequence[str], before: Sequence[str] = (), environment: Mapping[str, str] = {}) -> None:
    command = [sys.executable, *before, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    status = subprocess.run(command, cwd=root, env={**os.environ, **environment}, check=False).returncode
    if status:
        raise SystemExit(f"{' '.join(arguments[:1])}: tests fail without any mutant (exit code {status}); mend them first")


def _seconds_by_test(report: Path) -> dict[str, float]:
    seconds = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file, classes, name = case.get("file", ""), case.get("classname", ""), case.get("name", "")
        inner = classes.removeprefix(file.removesuffix(".py").replace("/", ".")).strip(".")
        seconds["::".join(part for part in (file, *inner.split("."), name) if part)] = float(case.get("time", 0))
    return seconds


def _tests_by_line(root: Path, file: Path, files: Iterable[str], by_file: Mapping[str, set[str]]) -> dict[str, dict[int, list[str]]]:
    """A line reached by the set-up of one test belongs to every test of its file: they may share what was set up."""
    data = CoverageData(basename=str(file))
    data.read()
    measured = {str(Path(name).relative_to(root) if Path(name).is_absolute() else name): name for name in data.measured_files()}
    tests: dict[str, dict[int, list[str]]] = {}
    for path in files:
        lines = data.contexts_by_lineno(measured[path]) if path in measured else {}
        tests[path] = {line: sorted(_tests_of(contexts, by_file)) for line, contexts in lines.items()}
    return tests


def _tests_of(contexts: Iterable[str], by_file: Mapping[str, set[str]]) -> set[str]:
    names: set[str] = set()
    for context in contexts:
        name, _, phase = context.rpartition("|")
        if phase == "run":
            names.add(name)
        elif name:
            names |= by_file.get(name.partition("::")[0], set())
    return names


def _lines(root: Path, file: Path, files: Iterable[str]) -> dict[str, frozenset[int]]:
    data = CoverageData(basename=str(file))
    data.read()
    measured = {str(Path(name).relative_to(root) if Path(name).is_absolute() else name): name for name in data.measured_files()}
    return {path: frozenset(data.lines(measured[path]) or ()) if path in measured else frozenset() for path in files}
