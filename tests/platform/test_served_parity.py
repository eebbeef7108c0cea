"""Parity on the real server: every family answers as in training; a skewed feature is caught and named, of every operator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from benchmarks.gpu_serving import configs_on_cpus
from pipelines.models.families import FAMILIES
from pipelines.models.family import Trained
from services.triton.client import Client
from services.triton.embedded import EmbeddedTriton
from services.triton.model_server import TritonServer
from services.triton.parity import Parity, compare, refuse_skewed
from services.triton.repository import ModelRepository, model_name
from services.triton.tensors import tensors
from shared.artifacts import FsspecArtifacts
from shared.contracts import features as features_module
from shared.contracts.families import FAMILIES as PARAMS
from shared.domain.errors import BadData
from shared.ports import ServedUnit
from shared.serving.config import server_configs
from shared.serving.signature import Signature
from tests.support import exported_units
from tests.support.exported_units import OPERATORS, Skew, Small, small

COLUMNS = ["userId", "movieId", "year", "genres"]
FEATURES = [
    *COLUMNS, "price", "price_missing", "age_bucket", "movieId_te", "userId_count", "at_lag",
    "at_week_sin", "at_week_cos", "hour", "year_x_hour",
    "age_bucket_hot", "movieId_vector", "movieId_sequence", "title_hashtags",
]  # fmt: skip
NEURAL = [name for name, params in PARAMS.items() if params().no_steps is None]
Verify = Callable[[bytes | dict[str, Path], Trained], Parity]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def trained(world: Small) -> Callable[[str], Trained]:
    return cache(world.train)


@pytest.fixture(scope="module")
def verify(world: Small, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verify]:
    """Places a unit on a real server and holds its answers against training's."""
    folder = tmp_path_factory.mktemp("server")
    store = FsspecArtifacts(str(folder / "artifacts"))
    triton = EmbeddedTriton(folder / "triton")
    triton.start()
    server = TritonServer(triton, ModelRepository(triton.home, store), timeout=60)
    client = Client(triton.address)

    def ask(unit: bytes | dict[str, Path], model: Trained) -> Parity:
        files = world.export(store, model, unit)
        assert server.place("films", [ServedUnit("films", 1, files)]) == {}
        signature = world.signature
        outputs = [signature.output, *(one.output for one in signature.features)]
        name = model_name("films", signature, 1)
        try:
            return compare(lambda feed: client.outputs(name, 1, tensors(signature, feed), outputs, 60), signature, world.rows(model))
        finally:
            server.place("films", [])

    yield ask
    client.close()
    server.close()
    triton.stop()


def test_every_operator_has_an_example(world: Small) -> None:
    assert set(OPERATORS) == set(features_module._KINDS)
    assert [one.name for one in world.graph.features] == FEATURES


def ask_server(client: Client, model: str, number: int, signature: Signature, outputs: list[str], feed: Any) -> Any:
    return client.outputs(model, number, tensors(signature, feed), outputs, 60)


def checked_configs(name: str, signature: Signature, versions: Iterable[int], gpu: bool) -> dict[str, str]:
    """Returns the configurations for the CPU, after Triton's own description has read those for a GPU."""
    texts = server_configs(name, signature, versions, gpu)
    configs = [text_format.Parse(text, model_config_pb2.ModelConfig()) for text in texts.values()]
    assert sum(group.kind == model_config_pb2.ModelInstanceGroup.KIND_GPU for config in configs for group in config.instance_group) == 1
    return configs_on_cpus(name, signature, versions, gpu)


@pytest.mark.requirement("T-12", "T-13")
@pytest.mark.timeout(600)
def test_an_ensemble_for_gpus_answers_on_a_cpu_as_in_training_and_takes_its_steps_along(
    world: Small, trained: Callable[[str], Trained], tmp_path: Path, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.triton.repository.server_configs", checked_configs)
    store, triton = FsspecArtifacts(str(tmp_path / "artifacts")), EmbeddedTriton(tmp_path / "triton")
    triton.start()
    server, client = TritonServer(triton, ModelRepository(triton.home, store, lambda: True), timeout=60), Client(triton.address)
    units: list[ServedUnit] = []
    try:
        for number, family in enumerate(NEURAL, 1):
            with subtests.test(msg=family):
                files, signature = world.in_steps(trained(family))
                units.append(ServedUnit("films", number, world.export(store, trained(family), files, signature)))
                assert server.place("films", units[-2:]) == {}
                model, outputs = (
                    model_name("films", signature, number),
                    [signature.output, *(feature.output for feature in signature.features)],
                )
                rows = world.rows(trained(family))
                parity = compare(partial(ask_server, client, model, number, signature, outputs), signature, rows)
                assert (parity.skewed, parity.rows > 400) == ((), True)
                assert parity.difference < 1e-5
                assert server.answering("films") == {unit.number for unit in units[-2:]}
                ready = {listed["name"] for listed in client.index() if listed["state"] == "READY"}
                assert {f"{model}.features", f"{model}.network"} < ready
                assert server.successes()["films", number] > 0
        server.place("films", [])
        assert {listed["state"] for listed in client.index()} <= {"UNAVAILABLE", "UNLOADING"}
        assert not [*(triton.home / "models").iterdir()]
    finally:
        client.close()
        server.close()
        triton.stop()


@pytest.mark.requirement("T-12", "T-13", "C-04")
@pytest.mark.timeout(1200)
def test_every_family_answers_on_the_real_server_as_in_training(
    world: Small, trained: Callable[[str], Trained], verify: Verify, subtests: pytest.Subtests
) -> None:
    for family in FAMILIES:
        with subtests.test(msg=family):
            found = verify(world.unit(trained(family)), trained(family))
            assert found.skewed == ()
            assert found.difference < 1e-5
            assert found.rows > 400


@pytest.mark.requirement("G-24")
@pytest.mark.timeout(1200)
def test_a_unit_with_its_weights_beside_it_answers_on_the_real_server_as_in_training(
    world: Small, trained: Callable[[str], Trained], verify: Verify, subtests: pytest.Subtests
) -> None:
    for family in ("mf", "ease", "mlp"):
        with subtests.test(msg=family):
            found = verify(world.beside(trained(family)), trained(family))
            assert found.skewed == ()
            assert found.difference < 1e-5


@pytest.mark.requirement("C-04")
@pytest.mark.timeout(1200)
def test_a_skewed_feature_is_caught_and_named(
    world: Small, trained: Callable[[str], Trained], verify: Verify, subtests: pytest.Subtests
) -> None:
    """Every column of one family, and some columns of all the others."""
    others = itertools.product(sorted({*FAMILIES} - {"popularity"}), COLUMNS)
    for family, column in (*(("popularity", one) for one in FEATURES), *others):
        with subtests.test(msg=f"{family}-{column}"):
            found = verify(world.unit(trained(family), exported_units.shifted, column), trained(family))
            assert [one.column for one in found.skewed] == [column]
            assert found.skewed[0].rows == found.rows
            with pytest.raises(
                BadData, match=f"feature '{column}' differs in {found.rows:,} rows, first in row 0: .* in training, .* in serving"
            ):
                refuse_skewed(found)


SKEWS: tuple[tuple[Skew, str], ...] = (
    (exported_units.swapped, "userId"),
    (exported_units.swapped, "movieId"),
    (exported_units.swapped, "genres"),
    (exported_units.one_too_few, "userId"),
    (exported_units.one_too_few, "year"),
    (exported_units.one_too_few, "genres"),
    (exported_units.reversed_order, "genres"),
)


@pytest.mark.requirement("C-04")
@pytest.mark.timeout(1200)
def test_one_moved_entry_one_word_too_few_or_another_order_is_caught_and_named(
    world: Small, trained: Callable[[str], Trained], verify: Verify, subtests: pytest.Subtests
) -> None:
    model = trained("popularity")
    for skew, column in SKEWS:
        with subtests.test(msg=f"{skew.__name__}-{column}"):
            found = verify(world.unit(model, skew, column), model)
            assert {one.column for one in found.skewed} == {column} | {one for one in FEATURES if one.startswith(f"{column}_x_")}
            assert 0 < found.skewed[0].rows < found.rows
