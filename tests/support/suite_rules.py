"""Rules that every suite keeps, as a pytest plugin.

- Every test connects to this machine only (`tests/cluster` may also use the bridge of its cluster).
- A test in `tests/unit` starts no process and imports no TensorFlow, PyTorch or JAX. `@pytest.mark.tensorflow` permits TensorFlow.
- `--no-skips`: a skipped test fails the run.
- A failed test is followed by the command that runs it alone.
"""

from __future__ import annotations

import importlib.abc
import ipaddress
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

TESTS = Path(__file__).parents[1]
UNIT, CLUSTER = TESTS / "unit", TESTS / "cluster"
FRAMEWORKS = ("tensorflow", "torch", "jax")
PROCESS_EVENTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system")
DATABASES = ("sqlite", "postgresql")

# How long an example takes depends on the machine.
hypothesis.settings.register_profile("fixed", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("drawn", deadline=None, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("eyas")
    group.addoption(
        "--database", choices=(*DATABASES, "both"), default="sqlite", help="where tests of SQL stores run (default: %(default)s)"
    )
    group.addoption("--no-skips", action="store_true", help="a skipped test fails the run")


def pytest_configure(config: pytest.Config) -> None:
    drawn = config.getoption("--hypothesis-seed") is not None
    hypothesis.settings.load_profile("drawn" if drawn else "fixed")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--database")
        metafunc.parametrize("database", DATABASES if chosen == "both" else [chosen], scope="session")


class Guard(importlib.abc.MetaPathFinder):
    """Refuses what the running test may not do. One for the process: an audit hook cannot be removed."""

    def __init__(self) -> None:
        self.item: pytest.Item | None = None
        sys.addaudithook(self._audit)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        """A test that may import TensorFlow sees neither PyTorch nor JAX: Keras imports them where they are installed."""
        if name not in FRAMEWORKS or not self._is_unit():
            return
        if not self._is_marked("tensorflow"):
            raise AssertionError(f"a test in tests/unit imports {name}: move the test to tests/training")
        if name != "tensorflow":
            raise ModuleNotFoundError(f"a test in tests/unit imports no {name}", name=name)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in PROCESS_EVENTS and self._is_unit() and not self._uses_postgres():
            raise AssertionError(f"a test in tests/unit starts a process ({event}): move the test to tests/platform or tests/training")
        if event == "socket.connect" and self.item is not None and CLUSTER not in self.item.path.parents:
            connection, address = arguments
            if connection.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(address[0]):
                raise AssertionError(f"a test connects to {address[0]}: tests use this machine only")

    def _is_unit(self) -> bool:
        return self.item is not None and UNIT in self.item.path.parents

    def _uses_postgres(self) -> bool:
        return self.item is not None and self.item.config.getoption("--database") != "sqlite"

    def _is_marked(self, name: str) -> bool:
        return self.item is not None and self.item.get_closest_marker(name) is not None


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host in ("localhost", "")
    return address.is_loopback or address.is_unspecified


guard = Guard()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    guard.item = item
    try:
        return (yield)
    finally:
        guard.item = None


def pytest_sessionfinish(session: pytest.Session) -> None:
    terminal = session.config.pluginmanager.getplugin("terminalreporter")
    if session.config.getoption("--no-skips") and terminal is not None and terminal.stats.get("skipped") and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    failed = [
        report.nodeid for outcome in ("failed", "error") for report in terminalreporter.stats.get(outcome, []) if hasattr(report, "nodeid")
    ]
    if failed:
        options = "".join(f" {option}" for option in _options(config))
        terminalreporter.section("to run a failed test alone")
        for name in dict.fromkeys(failed):
            terminalreporter.write_line(f".venv/bin/python -m pytest{options} '{name}'")
    if config.getoption("--no-skips") and terminalreporter.stats.get("skipped"):
        terminalreporter.write_line("skipped tests fail this run: install what is named above")


def _options(config: pytest.Config) -> Iterator[str]:
    database, seed = config.getoption("--database"), config.getoption("--hypothesis-seed")
    if database != "sqlite":
        yield f"--database={database}"
    if seed is not None:
        yield f"--hypothesis-seed={seed}"
