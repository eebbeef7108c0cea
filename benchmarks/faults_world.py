"""Versions of one recommender that retrieves before it scores: a good one, and one for each thing that can be wrong with a version.

Each is registered by hand, so none of a run's gates has kept it out: what is measured is what the online path makes of it.
"""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from benchmarks.rollout_world import NAME, World, specified
from shared.contracts.stage import digest_of
from shared.ports import Version
from shared.serving.signature import INDEX
from shared.testing.model_server_suite import tiny_model
from shared.testing.records import LINEAGE
from tests.support.broken_models import content, node, to_float

USERS = 5_000
ITEMS = 5_000
CANDIDATES = 200
WIDTH = 32
VECTORS = ("embeddings.npz", "queries.npz")


def put_spec(world: World, **serve: Any) -> None:
    spec = specified({}).document()
    spec["serve"] = {"retrieve": {"candidates": CANDIDATES}, **serve}
    world.recommenders.put(type(world.spec).model_validate(spec), datetime.now(UTC), "bench")


def register(world: World, model: bytes | None = None, without: tuple[str, ...] = (), index: bytes | None = None) -> int:
    """The next version. `index`: the content of its index of candidates; without one they are found exactly."""
    number = len(world.registry.list(NAME)) + 1
    inputs = [{"name": "user", "dtype": "int64", "side": "user"}, {"name": "item", "dtype": "int64", "side": "item"}]
    items, users = np.arange(1, ITEMS + 1), np.arange(USERS)
    chance = np.random.default_rng(number)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "model.onnx").write_bytes(model or tiny_model(number))
        (place / "signature.json").write_text(json.dumps({"user": "user", "item": "item", "inputs": inputs}))
        np.savez(place / "catalogue.npz", item=items)
        np.save(place / "popular.npy", items, allow_pickle=False)
        np.save(place / "users.npy", users, allow_pickle=False)
        np.savez(place / "embeddings.npz", items=items, vectors=chance.standard_normal((ITEMS, WIDTH)).astype(np.float32))
        np.savez(place / "queries.npz", users=users, vectors=chance.standard_normal((USERS, WIDTH)).astype(np.float32))
        if index is not None:
            (place / INDEX).write_bytes(index)
        files = {path.name: world.artifacts.put(path) for path in sorted(place.iterdir()) if path.name not in without}
    now = datetime.now(UTC)
    return world.registry.register(Version(NAME, 0, f"by-hand-{number}", digest_of(files), files, {}, LINEAGE, None, now)).number


def slow(rounds: int) -> bytes:
    """A loop of so many rounds for each row: it answers a trial of two rows, and takes its time over candidates."""
    outside = [("i", TensorProto.INT64, []), ("going", TensorProto.BOOL, []), ("x", TensorProto.FLOAT, ["rows"])]
    inside = [helper.make_tensor_value_info(*one) for one in (("go_on", TensorProto.BOOL, []), ("y", TensorProto.FLOAT, ["rows"]))]
    steps = [node("Identity", ["going"], "go_on"), node("Sin", ["x"], "y")]
    body = helper.make_graph(steps, "body", [helper.make_tensor_value_info(*one) for one in outside], inside)
    nodes = [
        to_float("user", "float"),
        node("Size", ["user"], "count"),
        node("Mul", ["count", "each"], "rounds"),
        node("Loop", ["rounds", "true", "float"], "score", body=body),
    ]
    return content(nodes, each=rounds, true=True)
