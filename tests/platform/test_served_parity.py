"""Parity on the real server: every family answers as in training; a skewed feature is caught and named, of every operator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

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
from shared.domain.errors import BadData
from shared.ports import ServedUnit
from tests.support import exported_units
from tests.support.exported_units import OPERATORS, Skew, Small, small

COLUMNS = ["userId", "movieId", "year", "genres"]
FEATURES = [
    *COLUMNS, "price", "price_missing", "age_bucket", "movieId_te", "userId_count", "at_lag",
    "at_week_sin", "at_week_cos", "hour", "year_x_hour",
    "age_bucket_hot", "movieId_vector", "movieId_sequence", "title_hashtags",
]  # fmt: skip
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
        name = model_name("films", signature)
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
