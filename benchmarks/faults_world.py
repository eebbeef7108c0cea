"""Versions of one recommender that retrieves before it scores: a good one, and one for each fault that a version can have.

Each is registered by hand, so none of a run's gates has kept it out: measured is how the online path treats it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from benchmarks.rollout_world import World, recommender_spec, write_unit
from shared.serving.signature import INDEX
from shared.testing.model_server_suite import tiny_model
from tests.support.broken_models import content, node, to_float

USERS = ITEMS = 5_000
CANDIDATES = 200
WIDTH = 32
VECTORS = ("embeddings.npz", "queries.npz")


def put_spec(world: World, **serve: Any) -> None:
    world.put_spec(recommender_spec(serve={"retrieve": {"candidates": CANDIDATES}, **serve}))


def register(world: World, model: bytes | None = None, without: tuple[str, ...] = (), index: bytes | None = None) -> int:
    """The next version. `index`: the content of its index of candidates; without one the search is exact."""
    number = world.next_number()
    items, users, chance = np.arange(1, ITEMS + 1), np.arange(USERS), np.random.default_rng(number)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_unit(folder, USERS, ITEMS, model or tiny_model(number))
        np.savez(folder / "embeddings.npz", items=items, vectors=chance.standard_normal((ITEMS, WIDTH)).astype(np.float32))
        np.savez(folder / "queries.npz", users=users, vectors=chance.standard_normal((USERS, WIDTH)).astype(np.float32))
        if index is not None:
            (folder / INDEX).write_bytes(index)
        for name in without:
            (folder / name).unlink()
        return world.register(folder)


def slow(rounds: int) -> bytes:
    """A loop of so many rounds for each row: it answers a trial of two rows, and takes its time over candidates."""
    outside = [("i", TensorProto.INT64, []), ("going", TensorProto.BOOL, []), ("x", TensorProto.FLOAT, ["rows"])]
    inside = [("go_on", TensorProto.BOOL, []), ("y", TensorProto.FLOAT, ["rows"])]
    before, after = ([helper.make_tensor_value_info(*value) for value in values] for values in (outside, inside))
    body = helper.make_graph([node("Identity", ["going"], "go_on"), node("Sin", ["x"], "y")], "body", before, after)
    nodes = [
        to_float("user", "float"),
        node("Size", ["user"], "count"),
        node("Mul", ["count", "each"], "rounds"),
        node("Loop", ["rounds", "true", "float"], "score", body=body),
    ]
    return content(nodes, each=rounds, true=True)
