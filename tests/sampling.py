"""Matrices too large for every run: a share of their cases, drawn by a seed that is told at the end, or all of them by `--whole`.

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
ALL = "make matrices"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("matrices")
    group.addoption("--whole", action="store_true", help=f"every case of every matrix ({ALL}), not a sample")
    group.addoption("--sample-seed", type=int, metavar="N", help="which cases of the matrices; drawn anew if not said")


def pytest_configure(config: pytest.Config) -> None:
    handed = getattr(config, "workerinput", {})  # all workers draw the same
    if config.option.sample_seed is None:
        config.option.sample_seed = handed.get("sample_seed", secrets.randbelow(1_000_000))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["sample_seed"] = node.config.option.sample_seed


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    matrices: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("matrix") is not None:
            matrices[item.nodeid.partition("[")[0]].append(item)
    left = set()
    for name, cases in matrices.items():
        mark = cases[0].get_closest_marker("matrix")
        assert mark is not None
        left |= set(cases) - set(drawn(config, name, cases, *mark.args))
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.option.whole:
        terminalreporter.write_line(f"of matrices a sample; the same again: --sample-seed={config.option.sample_seed}; all of them: {ALL}")


def drawn(config: pytest.Config, name: str, cases: Iterable[T], share: float) -> list[T]:
    """In their order; never none."""
    known = list(cases)
    if config.option.whole or not known:
        return known
    chosen = Random(f"{config.option.sample_seed} {name}").sample(range(len(known)), math.ceil(share * len(known)))
    return [known[place] for place in sorted(chosen)]


@pytest.fixture
def seldom(request: pytest.FixtureRequest) -> Seldom:
    return lambda cases, share: drawn(request.config, request.node.nodeid, cases, share)
