"""Export: writes the served unit and the files that the gateway needs, as listed by `shared.serving.signature`.

Metric `export.parity`: the largest difference on real rows between ONNX Runtime and the model in its training runtime. The gate judges that
figure; `verify` repeats the comparison on a real Triton.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.arrays import write_arrays
from pipelines.data.ids import USER_IDS, text_of
from pipelines.evaluation.scorers import Scorer, unit_answers, unit_scorer
from pipelines.export import neighbours
from pipelines.export.attributes import attribute_columns, write_seed
from pipelines.export.card import begin_card
from pipelines.export.new_items import new_items
from pipelines.export.online import newest, write_online
from pipelines.export.parity import answers, choose_pairs
from pipelines.export.recommendations import Entities, RankingVectors, write_recommendations
from pipelines.export.unit import named, write_unit, write_unit_in_steps
from pipelines.export.vectors import USERS as USER_VECTORS
from pipelines.export.vectors import vectors_by_key
from pipelines.features.graph import Graph, load_graph
from pipelines.features.raw import item_columns, signature
from pipelines.inputs.eval_pairs import read_meetings, read_raw
from pipelines.inputs.tables import USERS, Codes
from pipelines.models.families import load_model
from pipelines.models.neural.model import NeuralModel
from pipelines.models.popularity_baseline import POPULARITY, load_popularity
from pipelines.models.recent_items import reads_recent
from pipelines.models.retriever import IS_BESIDE, load_retriever
from pipelines.stages.etl import FIRSTS
from pipelines.stages.rival import newest_of_refit
from pipelines.stages.runner import Context, main
from shared.contracts.card import CARD
from shared.contracts.items_table import ITEMS_TABLE, NEW_ITEMS, ItemsTable
from shared.contracts.refit import REFIT
from shared.contracts.strict import read
from shared.domain.attributes import Kind
from shared.serving.signature import FRESH, INDEX, ITEM_IDS, OUTPUT, RECOMMENDATIONS
from shared.serving.text_column import text_arrays
from shared.stage_process import Outcome

_FRESH = 1000
"""Maximum number of new items."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DUMP = timedelta(minutes=10)
"""Time that writing an items table may take: an item that is written to the catalogue meanwhile may be missing in the table."""


def run(context: Context) -> Outcome:
    log, started, spec = context.log, time.monotonic(), context.spec.recommender
    graph = load_graph(context.fetcher("etl"))
    meetings = read_meetings(context.fetcher("etl"), context.has("etl", USERS), graph, now=True)
    raw = read_raw(context.fetcher("etl"), context.has("etl", USERS), meetings).stored(graph, spec.serve.vocabulary_limit)
    items, codes = raw.items, meetings.items.columns
    model = load_model(context.fetcher("train"), context.spec.families)
    limit = spec.serve.vocabulary_limit
    graph = graph.as_served(model.architecture.features if isinstance(model, NeuralModel) else None, limit)
    recent = graph.recent(spec.serve.recent_items, limit) if reads_recent(model) else None
    learned_until = _learned_until(context)
    served = signature(graph, spec.serve, recent, learned_until)

    if spec.serve.device == "gpu":
        files, served = write_unit_in_steps(graph, model, served, context.out(served.file), limit, spec.serve.lists, recent)
    else:
        files = write_unit(graph, model, context.out(served.file), limit, spec.serve.lists, recent=recent)
    served = named(served, files)
    size = sum(files[name].stat().st_size for name in served.files)
    log.info("served unit: written mb=%.1f files=%s", size / 1e6, ", ".join(files))
    columns = item_columns(items, served)
    users, rows = choose_pairs(graph, context.fetcher("etl"), len(items), spec.model.train.seed)
    samples = answers(graph, model, raw, users, rows, served, recent)
    parity = float(np.abs(unit_answers(files[served.file], served, samples) - samples[OUTPUT]).max())
    log.info("parity: measured rows=%d largest_difference=%.2g", len(users), parity)

    files |= {
        "signature.json": _text(context, "signature.json", served.model_dump_json(indent=1)),
        "catalogue.npz": write_arrays(context.out("catalogue.npz"), columns),
        "parity.npz": write_arrays(context.out("parity.npz"), samples, compressed=True),
        "popular.npy": _array(context, "popular.npy", load_popularity(context.fetch("train", POPULARITY)).ordered()),
        FRESH: _array(context, FRESH, _fresh(context, items[graph.item])),
        "users.npy": _array(context, "users.npy", np.sort(graph.key(graph.user).state.values.to_numpy())),
    }
    item_ids = items.get_column(text_of(graph.item), default=None)
    if item_ids is not None:
        files[ITEM_IDS] = write_arrays(context.out(ITEM_IDS), text_arrays(item_ids))
    files |= write_online(served, raw.users, newest(context.fetcher("etl")), spec.serve.store.ttl, context.out)
    seed, kinds, table_at = _seed(context, raw.items, graph.item)
    since = _EPOCH if spec.data.items is None else (table_at or datetime.fromtimestamp(learned_until, UTC)) - _DUMP
    files |= seed
    new = new_items(graph, served, kinds, since)
    files[NEW_ITEMS] = _text(context, NEW_ITEMS, new.model_dump_json(indent=1))
    if new.unknown:
        log.info("new items: some inputs stay unknown inputs=%s", ", ".join(new.unknown))
    vector_files, extra_metrics, vectors = _vectors(context, graph, items[graph.item], codes)
    files |= vector_files
    if spec.serve.batch is not None:
        files[RECOMMENDATIONS] = context.out(RECOMMENDATIONS)
        ranked = Entities(items[graph.item].to_numpy(), items[graph.item] if item_ids is None else item_ids)
        count = _recommendations(context, unit_scorer(files[served.file], served, raw), graph, ranked, vectors)
        extra_metrics["export.recommended_users"] = float(count)
    begun = begin_card(context.spec, graph, model, served, new)
    files[CARD] = _text(context, CARD, begun.model_dump_json(indent=1))
    metrics = {"export.parity": parity, "export.bytes": float(size), "export.seconds": time.monotonic() - started}
    metrics |= extra_metrics
    return Outcome(files, metrics, {"parity_rows": len(users), "inputs": [model_input.name for model_input in served.inputs]})


def _vectors(
    context: Context, graph: Graph, items: pl.Series, codes: Codes
) -> tuple[dict[str, Path], dict[str, float], RankingVectors | None]:
    """Writes the vectors and their index; returns the files, metrics of the index, and the vectors if the spec retrieves by them."""
    retrieve = context.spec.recommender.serve.retrieve
    embeddings = load_retriever(context.fetcher("train"), context.has("train", IS_BESIDE), context.spec.families).embeddings(codes)
    if embeddings is None:
        return {}, {}, None
    sides = vectors_by_key(graph, items, embeddings)
    files = {name: write_arrays(context.out(name), arrays) for name, arrays in sides.items()}
    if retrieve is None:
        return files, {}, None
    users = sides[USER_VECTORS]
    vectors = RankingVectors(users["users"], users["vectors"], embeddings.vectors, retrieve.candidates)
    if len(items) < neighbours.FROM:
        return files, {}, vectors
    context.log.info("index: building vectors=%d", len(items))
    seed = context.spec.recommender.model.train.seed
    index = neighbours.build_index(embeddings.vectors, users["vectors"], retrieve.candidates, seed)
    context.log.info("index: built recall=%.3f weighed_rows=%d", index.recall, index.weighed)
    files[INDEX] = context.out(INDEX)
    files[INDEX].write_bytes(index.content)
    return files, {"export.index_recall": index.recall, "export.index_bytes": float(len(index.content))}, vectors


def _learned_until(context: Context) -> float:
    """Returns the time of the newest row that the model has learned, but no future time."""
    origin = next((name for name in context.spec.inputs if context.has(name, REFIT)), None)
    if origin is not None:
        learned = newest_of_refit(context, origin)
    else:
        learned = float(pl.scan_parquet(context.fetch("etl", "train.parquet")).select(pl.col("time").max()).collect().item() or 0.0)
    now = time.time()
    if learned > now:
        context.log.warning("training data: rows have future times, later likes count from now on seconds=%.0f", learned - now)
    return min(learned, now)


def _recommendations(context: Context, score: Scorer, graph: Graph, items: Entities, vectors: RankingVectors | None) -> int:
    """Writes the table of recommendations; returns the number of users with items."""
    batch = context.spec.recommender.serve.batch
    assert batch is not None
    liked = pl.scan_parquet(context.fetch("etl", "history.parquet")).filter(pl.col("label") == 1).select("user", "item").collect()
    users = _known_users(context, graph)
    count = write_recommendations(context.out(RECOMMENDATIONS), score, users, items, liked, batch.k, vectors, context.log)
    context.log.info("recommendations: written users=%d", count)
    return count


def _known_users(context: Context, graph: Graph) -> Entities:
    keys = graph.key(graph.user).state.values.sort()
    if not context.has("etl", USER_IDS):
        return Entities(keys.to_numpy(), keys)
    ids = pl.DataFrame({"key": keys}).join(pl.read_parquet(context.fetch("etl", USER_IDS)), on="key", how="left", maintain_order="left")
    return Entities(keys.to_numpy(), ids["id"])


def _fresh(context: Context, items: pl.Series) -> NDArray[np.int64]:
    """Returns the newest items of the catalogue by first interaction."""
    firsts = pl.read_parquet(context.fetch("etl", FIRSTS)).filter(pl.col("item").is_in(items.implode()))
    return firsts.sort("first", "item", descending=[True, False])["item"].head(_FRESH).to_numpy().astype(np.int64)


def _seed(context: Context, items: pl.DataFrame, key: str) -> tuple[dict[str, Path], Mapping[str, Kind], datetime | None]:
    """Writes the attributes of the items table for the catalogue; nothing for rows of an older etl. Returns the files, the
    attributes, and the time of the table."""
    if not context.has("etl", ITEMS_TABLE):
        return {}, {}, None
    record = read(ItemsTable, json.loads(context.fetch("etl", ITEMS_TABLE).read_text()), ITEMS_TABLE)
    columns = attribute_columns(items.select(key, *record.columns), key, context.spec.recommender.serve.attributes)
    for name, reason in columns.left_out.items():
        context.log.info("attributes: column left out column=%s reason=%s", name, reason)
    files = write_seed(items, key, columns.kinds, record.at, context.out)
    context.log.info("attributes: written items=%d at=%s names=%s", len(items), record.at.isoformat(), ", ".join(columns.kinds) or "none")
    return files, columns.kinds, record.at


def _text(context: Context, name: str, text: str) -> Path:
    path = context.out(name)
    path.write_text(text)
    return path


def _array(context: Context, name: str, array: NDArray[Any]) -> Path:
    path = context.out(name)
    np.save(path, array, allow_pickle=False)
    return path


if __name__ == "__main__":
    main("export", run)
