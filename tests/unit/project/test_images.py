"""The images' recipes: what they share, what they pin, and whom they run as. `make image` builds them, where there is a builder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.tools.locks import locks

ROOT = Path(__file__).parents[3]
ROLES = ("control", "triton", "triton-gpu", "pipelines")
TRAINING = ("pipelines", "torch-gpu", "tensorflow-gpu")
SHARED = "COPY images/control.lock /tmp/images/\n"
LAST = "# The project itself comes last"


def recipe(role: str) -> str:
    return (ROOT / f"images/{role}.Containerfile").read_text()


def pins(lock: str) -> set[str]:
    return set((ROOT / f"images/{lock}.lock").read_text().split())


def instructions(role: str) -> list[str]:
    said = "\n".join(line for line in recipe(role).splitlines() if line and not line.startswith("#"))
    return re.sub(r"\\\n\s*", "", said).splitlines()


def test_there_is_a_recipe_for_each_role_and_no_other() -> None:
    assert {one.name for one in (ROOT / "images").glob("*.Containerfile")} == {f"{role}.Containerfile" for role in ROLES}


def test_all_roles_share_their_first_layers() -> None:
    """From the same base the same instructions are the same layers: they are built, pushed and fetched once."""
    first = {recipe(role)[recipe(role).index(SHARED) :].split("\n\n")[0] for role in ROLES}
    assert len(first) == 1
    assert "control.lock" in first.pop()


def test_the_project_is_what_comes_last() -> None:
    """A change of the project builds two small layers anew, not the gigabytes below them."""
    for role in ROLES:
        before, _, after = recipe(role).partition(LAST)
        assert "COPY . " not in before
        assert ".lock" not in after


@pytest.mark.parametrize("role", ROLES)
def test_bases_are_arguments_and_pinned(role: str) -> None:
    said = dict(re.findall(r"^ARG (\w+)=(\S+)$", recipe(role), re.M))
    assert re.findall(r"^FROM (\S+)", recipe(role), re.M) == ["${PYTHON}", "${BASE}"]
    for base in (said["BASE"], said["PYTHON"]):
        exact = r":\d+\.\d+\.\d+-[\w.-]+$|/tritonserver:\d+\.\d+-py3$"  # NVIDIA's Triton has a year and a month
        assert base == "${BASE}" or re.search(exact, base), f"{role}: {base} names no exact version"


@pytest.mark.parametrize("role", ROLES)
def test_nobody_runs_as_root(role: str) -> None:
    found = instructions(role)
    (user,) = [one.split()[1] for one in found if one.startswith("USER ")]
    chart = yaml.safe_load((ROOT / "helm/eyas/values.yaml").read_text())["identity"]
    assert user == f"{chart['user']}:{chart['group']}"
    assert not [one for one in found[found.index(f"USER {user}") :] if one.startswith(("RUN ", "COPY "))]


def test_what_a_lower_layer_installs_is_not_installed_again_in_another_version() -> None:
    for lock in TRAINING:
        assert pins("control") < pins(lock)


def test_the_control_side_has_none_of_what_stages_need() -> None:
    names = {one.split("==")[0] for one in pins("control")}
    assert not names & {
        "tensorflow-cpu",
        "torch",
        "keras",
        "polars",
        "pandas",
        "pyarrow",
        "onnx",
        "onnxruntime",
        "nvidia-pytriton",
        "scipy",
    }
    assert names >= {"kubernetes", "psycopg-binary", "nats-py", "redis", "faiss-cpu", "uvicorn"}


def test_cuda_comes_with_the_locks_for_gpus_in_the_versions_of_the_cpus() -> None:
    versions = {lock: dict(pin.split("==") for pin in pins(lock)) for lock in TRAINING}
    cpu, torch, tensorflow = (versions[lock] for lock in TRAINING)
    assert tensorflow["tensorflow"] == cpu["tensorflow-cpu"]
    assert torch["xgboost"] == tensorflow["xgboost"] == cpu["xgboost-cpu"]
    assert {"nvidia-cudnn-cu13", "fbgemm-gpu", "torchrec", "triton"} < set(torch)
    assert "nvidia-nccl-cu12" not in torch, "its file is that of nvidia-nccl-cu13"
    assert {"nvidia-cudnn-cu12", "nvidia-nccl-cu12"} < set(tensorflow)


def pins_of_the_tests() -> set[str]:
    """Pins of the lock that the tests run on, for any Python."""
    return {line.split(" ;")[0] for line in (ROOT / "requirements-dev.lock").read_text().splitlines()}


@pytest.mark.parametrize("lock", ["control", *TRAINING])
def test_images_run_what_the_tests_ran(lock: str) -> None:
    names = {pin.split("==")[0] for pin in pins_of_the_tests()}
    assert {pin for pin in pins(lock) if pin.split("==")[0] in names} <= pins_of_the_tests()


def test_every_lock_is_checked_against_the_package_index() -> None:
    files = [path for pattern in ("*.lock", "images/*.lock", "services/**/*.lock") for path in ROOT.glob(pattern)]
    assert {lock for lock, _ in locks()} == {str(path.relative_to(ROOT)) for path in files} - {"uv.lock"}


def test_the_demos_lock_is_a_part_of_the_tests_lock() -> None:
    assert set((ROOT / "requirements.lock").read_text().splitlines()) < set((ROOT / "requirements-dev.lock").read_text().splitlines())


def test_the_embedded_triton_runs_the_onnx_runtime_of_the_tests() -> None:
    lock = (ROOT / "services/triton/environment.lock").read_text().split()
    assert {pin for pin in lock if pin.startswith("onnxruntime==")} < pins_of_the_tests()


def test_the_demo_installs_neither_tensorflow_nor_tools_of_tests() -> None:
    names = {line.split("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines()}
    assert not names & {"tensorflow-cpu", "keras", "torch", "mypy", "pytest", "ruff", "schemathesis", "kubernetes", "xgboost-cpu"}
    assert names >= {"polars", "onnxruntime", "pyarrow", "scipy"}


def test_builders_see_every_lock_and_the_project_alone() -> None:
    packages = ["!eyas", "!hatch_build.py", "!images/*.lock", "!pipelines", "!pyproject.toml", "!services", "!shared"]
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert (ignored[0], ignored[-1]) == ("*", "**/__pycache__")
    assert sorted(ignored[1:-1]) == sorted([*packages, "!LICENSE", "!README.md"])
