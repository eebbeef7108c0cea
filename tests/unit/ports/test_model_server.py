"""The model server in memory, which other tests use, keeps the promises of the port. `tests/contract` runs the suite on Triton."""

from __future__ import annotations

import itertools

import pytest

from shared.ports import ServedUnit
from shared.testing.fakes import FakeModelServer
from shared.testing.model_server_suite import ModelServerSuite

_names = (f"rec-{n}" for n in itertools.count())


class FakeBench:
    def __init__(self) -> None:
        self.server = FakeModelServer()
        self.recommender = next(_names)

    def unit(self, number: int, *, tags: bool = False) -> ServedUnit:
        return ServedUnit(self.recommender, number, {})

    def broken(self, number: int) -> ServedUnit:
        self.server.broken[self.recommender, number] = "not an ONNX file"
        return ServedUnit(self.recommender, number, {})

    def restart(self) -> None:
        self.server.restart()


class TestFakeModelServer(ModelServerSuite):
    @pytest.fixture
    def bench(self) -> FakeBench:
        return FakeBench()
