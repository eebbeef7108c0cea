"""A large served version without a training: 60,000 items and 160,000 users in the shape of MovieLens, a real feature graph, the
notebook's model with weights drawn at random, and vectors for retrieval. What a request costs doesn't depend on what was learned."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.rollout_world import World
from pipelines.arrays import write_arrays
from pipelines.data.synthetic import GENRES
from pipelines.export import neighbours
from pipelines.export.unit import write_unit
from pipelines.features.graph import Graph
from pipelines.features.prepared import graph_of as compile_spec
from pipelines.features.prepared import prepare
from pipelines.features.raw import item_columns, signature
from pipelines.models.mlp import plan
from pipelines.models.neural.model import NeuralModel
from pipelines.models.neural.weights import begin
from shared.contracts.families import MlpParams
from shared.contracts.spec import RecommenderSpec
from shared.serving.signature import INDEX

WIDTH = 32


def spec(name: str, **changes: Any) -> RecommenderSpec:
    document = {
        "name": name,
        "data": {"interactions": {"uri": "ratings.csv"}, "items": {"uri": "movies.csv", "key": "movieId"}},
        "schema": {"user": "userId", "item": "movieId", "time": "at", "label": {"column": "rating", "positive": ">= 4"}},
        "features": [{"categorify": ["userId", "movieId", "year"]}, {"multi_hot": "genres", "separator": "|", "max_length": 6}],
        "gates": [],
    }
    return RecommenderSpec.model_validate(document | changes)


def catalogue(items: int, seed: int = 1) -> pl.DataFrame:
    chance = np.random.default_rng(seed)
    counts = chance.integers(1, 5, items)
    some = ["|".join(chance.choice(GENRES, count, replace=False)) for count in counts[:20_000]]
    genres = [some[row % len(some)] for row in range(items)]
    return pl.DataFrame({"movieId": np.arange(1, items + 1), "genres": genres, "year": chance.integers(1930, 2026, items)})


def graph_of(spec: RecommenderSpec, items: pl.DataFrame, users: int) -> Graph:
    rows = max(users, len(items))
    keys = {"user": np.arange(rows) % users + 1, "item": np.arange(rows) % len(items) + 1}
    seen = pl.LazyFrame(keys | {"time": np.zeros(rows), "label": np.ones(rows, np.int8)})
    return prepare(compile_spec(spec, {}, items.schema, None, {}), items, None, seen).fit(seen).graph


def write(folder: Path, spec: RecommenderSpec, items: int, users: int, seed: int = 1) -> dict[str, Path]:
    """The files of a served unit."""
    table = catalogue(items, seed)
    graph = graph_of(spec, table, users)
    architecture = plan(graph, MlpParams(width=WIDTH), None)
    served = signature(graph, spec.serve)
    columns = item_columns(listed(table), served)
    chance = np.random.default_rng(seed)
    vectors = {side: _vectors(chance, count) for side, count in (("item", items), ("user", users))}
    files = write_unit(graph, NeuralModel(architecture, begin(architecture, seed)), folder / "model.onnx")
    (folder / "signature.json").write_text(served.model_dump_json())
    write_arrays(folder / "catalogue.npz", columns)
    np.save(folder / "popular.npy", chance.permutation(np.arange(1, items + 1)), allow_pickle=False)
    np.save(folder / "users.npy", np.arange(1, users + 1), allow_pickle=False)
    np.savez(folder / "embeddings.npz", items=np.arange(1, items + 1), vectors=vectors["item"])
    np.savez(folder / "queries.npz", users=np.arange(1, users + 1), vectors=vectors["user"])
    if spec.serve.retrieve is not None and items >= neighbours.FROM:
        built = neighbours.build_index(vectors["item"], vectors["user"], spec.serve.retrieve.candidates, seed)
        (folder / INDEX).write_bytes(built.content)
    return files | {path.name: path for path in folder.iterdir()}


def listed(table: pl.DataFrame) -> pl.DataFrame:
    """Multi-hot text as lists, as the etl stage leaves it."""
    return table.with_columns(pl.col("genres").str.split("|"))


def _vectors(chance: np.random.Generator, count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Directions that matter less and less, as trained factors have them."""
    scale = 1 / np.sqrt(1 + np.arange(WIDTH))
    vectors: np.ndarray[Any, np.dtype[np.float32]] = (chance.standard_normal((count, WIDTH)) * scale).astype(np.float32)
    return vectors


def register(world: World, spec: RecommenderSpec, items: int, users: int) -> int:
    world.put_spec(spec)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), spec, items, users)
        return world.register(Path(folder), spec.name)
