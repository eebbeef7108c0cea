"""TF32, simulated on the CPU: no family fails because of it, and none publishes a matrix that is 1 % wrong.

Each framework runs in a process of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.models.neural import frameworks
from tests.support import jax_available, torch_available
from tests.support.framework_process import made_apart
from tests.support.reduced_precision import cases

INSTALLED = {"tensorflow": lambda: None, "torch": torch_available.torch, "jax": jax_available.there}


@pytest.mark.parametrize("framework", frameworks.NAMES)
def test_every_family_publishes_by_tf32_and_does_not_publish_a_matrix_that_is_wrong(
    tmp_path: Path, framework: str, subtests: pytest.Subtests
) -> None:
    INSTALLED[framework]()
    found = made_apart("tests.support.reduced_precision", framework, str(tmp_path / "found.npz"), out=tmp_path / "found.npz")
    assert found["allowed"].tolist() == [True, False, True]
    for case in cases(framework):
        with subtests.test(case=case):
            assert found[f"{case}/refused"], "the train stage publishes a wrong matrix"
            for mode in ("switch", "ignored"):
                largest, tolerance, published = found[f"{case}/{mode}/right"]
                assert published
                assert (largest > 4 * tolerance) == (mode == "ignored"), "only where the switch has no effect outputs are rounded"
                wrong = {name.removeprefix(f"{case}/{mode}/"): one for name, one in found.items() if name.startswith(f"{case}/{mode}/")}
                del wrong["right"]
                assert len(wrong) >= 5
                assert not {path for path, (_, _, published) in wrong.items() if published}, "a wrong matrix would be published"
