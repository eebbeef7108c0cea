"""GPU requests: the table of the documents, row by row, against `apply`."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from docs.gpu_requests import PLATFORMS, Case, cases, stage_faults
from services.executors.jobsettings import StageDefaults
from services.executors.jobspec import StoredSpec, manifest
from services.executors.local import local_faults
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import File
from shared.testing.executor_suite import stage_spec
from tests.support.api_world import World

STORED = StoredSpec("s3://eyas", File(sha256="ab" * 32, size=321))
MODULES = {stage: f"stages.{stage}" for stage in ("etl", "train", "refit", "evaluate", "export", "verify")}


def applied(world: World, document: dict[str, Any]) -> Any:
    return world.client.post("/v1/recommenders?run=false", json=document)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_apply_does_what_the_table_of_gpu_requests_says(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is accepted is what its Job asks for; what is refused names the field."""
    monkeypatch.setattr("services.executors.local.find_spec", lambda name: name)
    settings = PLATFORMS[platform]
    for case in cases():
        for gpu in (0, 1):
            document, outcome = case.document(gpu), case.outcome(settings, gpu)
            world = World(stage_faults=partial(stage_faults, settings))
            answer = applied(world, document)
            if outcome.startswith("rejected: "):
                assert answer.status_code == 422, (case, gpu)
                assert outcome.removeprefix("rejected: ").replace("`", "") in answer.json()["detail"]
                assert list(world.recommenders.heads()) == [], "nothing is stored"
                continue
            assert answer.status_code == 201, (case, gpu, answer.text)
            if settings is not None:
                container = job_of(case, document, settings)
                gpus = container["resources"]["limits"].get("nvidia.com/gpu")
                assert container["image"] + (f", {gpus} GPU" if gpus else "") == outcome


def job_of(case: Case, document: dict[str, Any], settings: Any) -> dict[str, Any]:
    spec = stage_spec(f"r1-{case.stage}-1", stage=case.stage).model_copy(update={"recommender": RecommenderSpec.model_validate(document)})
    (container,) = manifest(spec, STORED, settings, MODULES)["spec"]["template"]["spec"]["containers"]
    result: dict[str, Any] = container
    return result


def test_a_gpu_for_ease_is_refused_in_one_line_that_says_what_could_use_it() -> None:
    world = World(stage_faults=partial(local_faults, {}))
    answer = applied(world, Case("train", "ease").document(gpu=8))
    assert answer.status_code == 422
    detail = "resources.train.gpu: 'ease' is computed on the CPU; leave it out, or choose a neural family such as neumf"
    assert answer.json()["detail"] == detail
    assert [error["field"] for error in answer.json()["errors"]] == ["resources.train.gpu"]


@pytest.mark.requirement("T-12", "T-13")
def test_a_version_is_served_on_gpus_where_the_tritons_have_some_and_the_family_has_a_network_or_trees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.executors.local.find_spec", lambda name: name)
    cpus, gpus = PLATFORMS["chart, CPUs"], PLATFORMS["chart, `images.gpu`, `triton.gpu`"]
    no_gpu = "the Tritons have no GPU; leave it out, or ask the operator for one (triton.gpu of the chart)"
    no_network = "scores of 'ease' are computed on the CPU; leave it out, or choose gbm or a neural family such as neumf"
    for family, settings, fault in (("mlp", None, ""), ("gbm", gpus, ""), ("mlp", cpus, no_gpu), ("ease", gpus, no_network)):
        document = Case("verify", family).document(1)
        answer = applied(World(stage_faults=partial(stage_faults, settings)), document)
        assert answer.status_code == (422 if fault else 201), answer.text
        if fault:
            assert answer.json()["detail"] == f"serve.device: {fault}"
        elif settings is not None:
            container = job_of(Case("verify", family), document, settings)
            assert container["resources"]["limits"]["nvidia.com/gpu"] == "1", "it is verified as it will be served"
            assert {"name": "EYAS_GPUS", "value": "1"} in container["env"]
    asked = Case("verify").document(0) | {"resources": {"verify": {"gpu": 1}}}
    answer = applied(World(stage_faults=partial(stage_faults, gpus)), asked)
    assert answer.json()["detail"] == "resources.verify.gpu: Triton runs on the CPU; leave it out, or set serve.device: gpu"


def test_trees_on_cuda_need_one_gpu_in_a_job() -> None:
    chart = PLATFORMS["chart, `images.gpu`, `triton.gpu`"]
    assert chart is not None
    with_default = chart.model_copy(update={"stages": {"train": StageDefaults(gpu=1)}})
    cuda = Case("train", "gbm", cuda=True)
    assert cuda.outcome(with_default, 0) == "eyas-torch-gpu", "the operator's default is a GPU"
    assert job_of(cuda, cuda.document(0), with_default)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "resources.train.gpu`: xgboost computes on one GPU; set gpu: 1" in cuda.outcome(chart, 2)
    document = cuda.document(1)
    document["resources"]["train"]["gpu"] = 0
    answer = applied(World(stage_faults=partial(stage_faults, with_default)), document)
    assert answer.json()["detail"] == "model.params.device: cuda needs a GPU; set resources.train.gpu: 1, or leave it out"


def test_what_is_not_installed_is_refused_before_a_run_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.executors.local.find_spec", lambda name: None)
    world = World(stage_faults=partial(local_faults, {}))
    assert (
        "model.framework: torch is not installed here: run pip install 'eyas[torch]' (in a clone: make setup-torch), or use family: mf"
        in applied(world, Case("train", framework="torch").document(0)).text
    )
    assert (
        "nvtabular's environment is missing: run make setup-nvtabular" in applied(world, Case("etl", engine="nvtabular").document(0)).text
    )
