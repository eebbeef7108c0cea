"""The Executor suite on a real cluster."""

from __future__ import annotations

import pytest

from shared.testing.executor_suite import ExecutorSuite
from tests.cluster.conftest import Place, need_a_cluster

need_a_cluster()


@pytest.mark.requirement("C-02")
class TestKubernetesExecutor(ExecutorSuite):
    @pytest.fixture
    def bench(self, place: Place) -> Place:
        return place
