"""By `--sample`: of matrices too large for every run a share of the cases, of the slowest suites a share of the files.

Both are drawn by a seed that is told at the end. Without it everything is run.

    @pytest.mark.matrix(0.25)            # of the cases that a test is parametrised into
    def test_it(seldom: Seldom): seldom(orders, 0.25)   # of what a test goes through itself
"""

from __future__ import annotations

import math
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
Seldom = Callable[[Iterable[Any], float], list[Any]]
ALL = "make test"
SUITES = {
    "tests/console/": 0.34,
    "tests/crash/": 0.34,
    "tests/integration/": 0.6,
    "tests/security/": 0.6,
    "tests/unit/pipelines/": 0.5,
}
"""What the names of a suite's files begin with, and the share of them that a sample has."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("samples")
    group.addoption("--sample", action="store_true", help=f"of matrices and slow suites a sample (all of them: {ALL})")
    group.addoption("--sample-seed", type=int, metavar="N", help="the sample of this seed")


def pytest_configure(config: pytest.Config) -> None:
    config.option.sample |= config.option.sample_seed is not None
    if config.option.sample_seed is None:
        config.option.sample_seed = secrets.randbelow(1_000_000)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left = _cases_left(config, items) | _files_left(config, items)
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


def _cases_left(config: pytest.Config, items: list[pytest.Item]) -> set[pytest.Item]:
    matrices: dict[str, list[pytest.Item]] = defaultdict(list)
    shares = {}
    for item in items:
        mark = item.get_closest_marker("matrix")
        if mark is not None:
            name = item.nodeid.partition("[")[0]
            matrices[name].append(item)
            (shares[name],) = mark.args
    return {case for name, cases in matrices.items() for case in set(cases) - set(drawn(config, name, cases, shares[name]))}


def _files_left(config: pytest.Config, items: list[pytest.Item]) -> set[pytest.Item]:
    left = set()
    for suite, share in SUITES.items():
        its = [item for item in items if item.nodeid.startswith(suite)]
        chosen = drawn(config, suite, sorted({item.nodeid.partition("::")[0] for item in its}), share)
        left |= {item for item in its if item.nodeid.partition("::")[0] not in chosen}
    return left


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.sample:
        terminalreporter.write_line(f"a sample; the same again: --sample-seed={config.option.sample_seed}; all of it: {ALL}")


def drawn(config: pytest.Config, name: str, cases: Iterable[T], share: float) -> list[T]:
    """In their order; never none."""
    known = list(cases)
    if not config.option.sample or not known:
        return known
    chosen = Random(f"{config.option.sample_seed} {name}").sample(range(len(known)), math.ceil(share * len(known)))
    return [known[place] for place in sorted(chosen)]


@pytest.fixture
def seldom(request: pytest.FixtureRequest) -> Seldom:
    return lambda cases, share: drawn(request.config, request.node.nodeid, cases, share)
