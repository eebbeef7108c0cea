"""The executor in memory, which other tests use, keeps the promises of the port.

`tests/unit/executors` and `tests/contract` run the same suite on the local executor, `tests/cluster` on Kubernetes.
"""

from __future__ import annotations

import pytest

from shared.domain.run import Job
from shared.testing.executor_suite import Behaviour, ExecutorSuite
from shared.testing.fakes import FakeExecutor


class FakeBench:
    def __init__(self) -> None:
        self.fake = FakeExecutor()
        self.executor = self
        self._behaviour: dict[str, Behaviour] = {}
        self.observe, self.stop, self.log = self.fake.observe, self.fake.stop, self.fake.log

    def start(self, spec: object) -> None:
        attempt = spec.attempt  # type: ignore[attr-defined]
        fresh = self.fake.observe(attempt) is None
        self.fake.start(spec)  # type: ignore[arg-type]
        if fresh and self._behaviour[attempt] == "succeeds":
            self.fake.say(attempt, "hello wörld\n")
            self.fake.end(attempt, Job("succeeded"))
        elif fresh and self._behaviour[attempt] == "fails":
            self.fake.say(attempt, "no such file\n")
            self.fake.end(attempt, Job("failed", "exit code 1: no such file", "crash"))
        elif fresh and self._behaviour[attempt] == "talks":
            self.fake.say(attempt, "at work\n")

    def again(self) -> FakeBench:
        return self

    def behave(self, attempt: str, how: Behaviour) -> None:
        self._behaviour[attempt] = how

    def starts(self, attempt: str) -> int:
        return sum(spec.attempt == attempt for spec in self.fake.started)


class TestFakeExecutor(ExecutorSuite):
    @pytest.fixture
    def bench(self) -> FakeBench:
        return FakeBench()
