"""Export: the served unit and everything that the gateway needs beside it, as `shared.serving.signature` lists them.

The unit is checked on real rows at once, by ONNX Runtime against the model in training's own runtime: `export.parity` is
the largest difference. Judging it is the gate's business.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.evaluation.scorers import Ints, model_scorer, unit_scorer
from pipelines.export.unit import write_unit
from pipelines.features.graph import Graph, load_graph
from pipelines.features.raw import item_columns, signature
from pipelines.loaders.batches import read_codes
from pipelines.models.mlp import MODEL, WEIGHTS, build, load_architecture, load_weights, scorer, set_weights
from pipelines.models.popularity import POPULARITY, load_popularity
from pipelines.models.tables import report
from pipelines.stages.runner import Context, Outcome, main
from shared.serving.signature import OUTPUT

PARITY_ROWS = 2_000


def run(context: Context) -> Outcome:
    log, started = context.log, time.monotonic()
    graph = load_graph(context.fetcher("etl"))
    items = pl.read_parquet(context.fetch("etl", "items.parquet"))
    architecture = load_architecture(context.fetch("train", MODEL))
    model = build(architecture)
    set_weights(model, load_weights(context.fetch("train", WEIGHTS)))

    files = {"model.onnx": write_unit(graph, architecture, model, context.out("model.onnx"))}
    size = files["model.onnx"].stat().st_size
    log.info("model.onnx written, %.1f MB", size / 1e6)
    served = signature(graph)
    columns = item_columns(items, served)
    users, rows = _real_rows(context)
    expected = model_scorer(graph, read_codes(context.fetch("etl", "items.codes.parquet"), graph), scorer(model))(users, rows)
    parity = float(np.abs(unit_scorer(files["model.onnx"], served, items)(users, rows) - expected).max())
    log.info("parity on %s real rows: largest difference %.2g", f"{len(users):,}", parity)

    samples = {served.user: users} | {name: column[rows] for name, column in columns.items()} | {OUTPUT: expected}
    files |= {
        "signature.json": _text(context, "signature.json", served.model_dump_json(indent=1)),
        "catalogue.npz": _arrays(context, "catalogue.npz", columns),
        "parity.npz": _arrays(context, "parity.npz", samples),
        "popular.npy": _array(context, "popular.npy", load_popularity(context.fetch("train", POPULARITY)).ordered()),
        "users.npy": _array(context, "users.npy", np.sort(graph.feature(graph.user).state.values.to_numpy())),
    }
    card = _card(context, graph, report(architecture.tables))
    files["model_card.json"] = _text(context, "model_card.json", json.dumps(card, indent=1))
    metrics = {"export.parity": parity, "export.bytes": float(size), "export.seconds": time.monotonic() - started}
    return Outcome(files, metrics, {"parity_rows": len(users), "inputs": [one.name for one in served.inputs]})


def _real_rows(context: Context) -> tuple[Ints, Ints]:
    """A seeded sample of real user-item pairs: the holdout's, topped up with training's."""
    random = np.random.default_rng((context.spec.recommender.model.train.seed, 31))
    chosen: list[pl.DataFrame] = []
    for name in ("holdout.parquet", "train.parquet"):
        missing = PARITY_ROWS - sum(len(part) for part in chosen)
        pairs = pl.read_parquet(context.fetch("etl", name), columns=["user", "item_row"])
        chosen.append(pairs[np.sort(random.permutation(len(pairs))[:missing])])
    pairs = pl.concat(chosen)
    return pairs["user"].to_numpy(), pairs["item_row"].cast(pl.Int64).to_numpy()


def _card(context: Context, graph: Graph, tables: list[dict[str, Any]]) -> dict[str, Any]:
    spec = context.spec.recommender
    return {
        "version": 1,
        "recommender": spec.name,
        "run": context.spec.run,
        "mode": context.spec.mode,
        "model": spec.model.model_dump(mode="json"),
        "features": graph.describe(),
        "tables": tables,
        "label": f"{spec.schema_.label.column} {spec.schema_.label.positive}",
        "score": "how likely the user likes the item, between 0 and 1; sampled negatives shift it, so compare it, don't read it",
    }


def _text(context: Context, name: str, text: str) -> Path:
    path = context.out(name)
    path.write_text(text)
    return path


def _arrays(context: Context, name: str, arrays: dict[str, NDArray[Any]]) -> Path:
    path = context.out(name)
    with path.open("wb") as stream:
        np.savez(stream, **arrays)
    return path


def _array(context: Context, name: str, array: NDArray[Any]) -> Path:
    path = context.out(name)
    np.save(path, array, allow_pickle=False)
    return path


if __name__ == "__main__":
    main("export", run)
