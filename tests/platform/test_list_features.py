"""Lists as values and offsets, on the real server: a unit that takes them so answers as one that takes them padded, and as training did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from services.triton.client import Client
from services.triton.embedded import EmbeddedTriton
from services.triton.model_server import TritonServer
from services.triton.parity import Parity, compare
from services.triton.repository import ModelRepository, model_name
from services.triton.tensors import dummy, tensors
from shared.artifacts import FsspecArtifacts
from shared.contracts.serving import Serve
from shared.ports import ServedUnit
from tests.support import exported_units
from tests.support.exported_units import Small, small

LISTS = ["genres", "title_hashtags", "movieId_vector"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    found = small(tmp_path_factory.mktemp("small"))
    return replace(found, serve=Serve(lists="offsets", warm_up=8))


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedTriton]:
    triton = EmbeddedTriton(tmp_path_factory.mktemp("server") / "triton")
    triton.start()
    yield triton
    triton.stop()


@pytest.fixture
def server(triton: EmbeddedTriton) -> Iterator[TritonServer]:
    found = TritonServer(triton, ModelRepository(triton.home, FsspecArtifacts(str(triton.home / "artifacts"))), timeout=60)
    yield found
    found.place("films", [])
    found.close()


def parity(world: Small, triton: EmbeddedTriton, family: str) -> Parity:
    client, signature = Client(triton.address), world.signature
    outputs = [signature.output, *(one.output for one in signature.features)]
    name = model_name("films", signature, 1)
    try:
        return compare(
            lambda feed: client.outputs(name, 1, tensors(signature, feed), outputs, 60), signature, world.rows(world.train(family))
        )
    finally:
        client.close()


def files(world: Small, triton: EmbeddedTriton, family: str, skew: exported_units.Skew | None = None) -> ServedUnit:
    model = world.train(family)
    store = FsspecArtifacts(str(triton.home / "artifacts"))
    return ServedUnit("films", 1, world.export(store, model, world.unit(model, skew, "genres" if skew else "")))


def test_lists_of_every_kind_are_taken_as_offsets(world: Small) -> None:
    types = {model_input.name: model_input.dtype for model_input in world.signature.inputs if model_input.lists == "offsets"}
    assert sorted(types) == sorted([*LISTS, "movieId_session"]), "the items of a request follow the user's sequence"
    assert set(types.values()) == {"string", "float32", "int64"}


@pytest.mark.requirement("T-05", "T-12", "T-13", "C-04")
@pytest.mark.parametrize("family", ["mlp", "dlrm", "wide_deep", "two_tower", "mf", "neumf"])
def test_a_unit_that_takes_offsets_answers_as_in_training(world: Small, triton: EmbeddedTriton, server: TritonServer, family: str) -> None:
    assert server.place("films", [files(world, triton, family)]) == {}
    found = parity(world, triton, family)
    assert found.skewed == ()
    assert found.difference < 1e-5
    assert found.rows > 400


@pytest.mark.requirement("T-05")
def test_rows_without_one_value_are_answered_beside_padded_ones(world: Small, triton: EmbeddedTriton, server: TritonServer) -> None:
    padded = replace(world, serve=Serve())
    other = files(padded, triton, "mlp")
    assert server.place("films", [files(world, triton, "mlp"), replace(other, number=2)]) == {}
    for rows in (1, 7):
        feed = dummy(world.signature, rows)
        first, second = (server.score("films", number, feed) for number in (1, 2))
        assert first.shape == (rows,)
        np.testing.assert_array_equal(first, second)


@pytest.mark.requirement("C-04")
def test_a_skewed_list_is_caught_and_named(world: Small, triton: EmbeddedTriton, server: TritonServer) -> None:
    assert server.place("films", [files(world, triton, "popularity", exported_units.reversed_order)]) == {}
    found = parity(world, triton, "popularity")
    assert [one.column for one in found.skewed] == ["genres"]
