"""The family `gbm`: boosted trees or a forest that order the items that retrieval has found.

The trees read the spec's features, and knowledge of the user and the item by key (`pipelines.models.trees.knowledge`), so that keys alone
make a useful model. The served graph holds all of it, trees included.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from pipelines.features.reading import Reads
from pipelines.inputs.batches import Batches
from pipelines.inputs.bloom_filter import read_liked
from pipelines.inputs.tables import Codes
from pipelines.models.family import Fetch, Fitted, Task
from pipelines.models.like_pairs import liked_pairs
from pipelines.models.tables import EXPORT_LIMIT, check_size
from pipelines.models.trees.by_lightgbm import LightGBM
from pipelines.models.trees.by_sklearn import Forest
from pipelines.models.trees.by_xgboost import XGBoost
from pipelines.models.trees.ensemble import NODE_BYTES
from pipelines.models.trees.growing import Floats, Grower, Parts, TreeRows, leaves_of, library
from pipelines.models.trees.knowledge import ITEM, USER
from pipelines.models.trees.layout import TreeLayout, layout_of
from pipelines.models.trees.model import FAMILY, TreeModel, load, shown
from pipelines.models.trees.rows import ROWS, FoldRows, NegativeSampling, deal, described, find_out
from pipelines.models.trees.tree_growth import SAMPLE, Round, TreeGrowth
from pipelines.training.calibration import Logits, calibrate
from pipelines.training.negatives import sampled_negatives
from pipelines.training.preflight import check_rows, free_memory
from pipelines.training.ranking import rank_held
from pipelines.training.trainer import LOADER, batches_of
from pipelines.training.validation import Validation, hold_out
from shared.contracts.families import GbmParams
from shared.domain.errors import Invalid

NEGATIVES = 8
"""Negatives for each positive where users gave none."""


class Gbm:
    """Implements Family."""

    name = FAMILY
    reads: Reads = "trees"

    def train(self, task: Task) -> Fitted:
        params, graph, training = task.model.params, task.graph, task.model.train
        assert isinstance(params, GbmParams)
        started = time.monotonic()
        negatives = sampled_negatives(task, params.negatives, NEGATIVES)
        params = params.model_copy(update={"negatives": negatives})
        parent = load(task.parent) if task.parent is not None else None
        keys = splits_keys(params, parent)
        layout = layout_of(graph, params.width > 0, keys)
        check(task, params, layout, parent)
        library(params.library)
        check_rows(graph, task.rows, task.items, task.users, negatives, task.parent is not None, missing=True)
        with tempfile.TemporaryDirectory(prefix="trees-", dir=task.rows.parent) as scratch:
            folder = Path(scratch)
            rest, holdout = hold_out(task.rows, training.validation, training.seed, folder) if training.validation else (task.rows, None)
            pairs = liked_pairs(replace(task, rows=rest))
            fold_knowledge = find_out(pairs, params, training.seed, task.log)
            liked = read_liked(task.rows, task.history, task.popularity.items) if params.verified and negatives else None
            memory = LOADER if task.memory is None else min(LOADER, task.memory // 4)
            batches = batches_of(task, ROWS, negatives, liked, memory)
            codes = task.items.columns[graph.item]
            drawing = NegativeSampling(params, task.popularity.scores, codes, pairs, batches.drawable_rows)
            rows = described(batches, deal(rest, codes, params.folds, training.seed, folder), fold_knowledge, layout, drawing, memory)
            check_memory(params, rows, task.memory)
            task.log.info("trees: training started rows=%d columns=%d trees=%d", rows.rows, len(layout.columns), params.trees)
            course = begun(task, params, rows, parent)

            def margin(columns: Codes) -> Floats:
                return course.grower.margin(layout.matrix(columns, fold_knowledge.complete))

            validation = None if holdout is None else looked_at(task, params, batches, holdout, rest, margin, course.probability)
            course.look = validation
            startup = time.monotonic() - started
            course.run()
            calibration = task.calibration
            # Codes of keys are in order of a frequency that counts the held-out rows too: with `keys` the line would not suit new rows.
            if validation is not None and course.probability and not negatives and not keys:
                calibration = calibrate(validation.batches, margin, task.log)
        model = TreeModel(
            params.library,
            params.objective,
            layout,
            fold_knowledge.complete,
            course.grower.model(),
            course.grower.trees() if params.library == "forest" else None,
            calibration,
        )
        sizes = {"train.startup_seconds": startup, "train.parameters": float(len(model.trees.feature))}
        facts = {"library": params.library, "columns": list(layout.columns), **course.document["published"], "ended": course.ended}
        return Fitted(model, course.metrics | sizes, facts | calibration.document, course.document | {"negatives": negatives})

    def load(self, fetch: Fetch) -> TreeModel:
        return load(fetch)


def splits_keys(params: GbmParams, parent: TreeModel | None) -> bool:
    """Returns whether the trees also get the codes of users and items as numbers to split.

    If the spec does not set it, a warm run does as its parent did, and another run splits them if it samples no negatives.
    """
    if params.keys is not None:
        return params.keys
    if parent is not None:
        return any(source.name == parent.layout.user for source in parent.layout.sources)
    return params.negatives == 0


def check(task: Task, params: GbmParams, layout: TreeLayout, parent: TreeModel | None) -> None:
    """Raises Invalid, before training, for a model that cannot be served or cannot continue from the parent."""
    graph = task.graph
    users, items = (graph.key(column).state.cardinality for column in (graph.user, graph.item))
    tables = users * (4 * len(USER) + 2 * params.width) + items * (4 * len(ITEM) + 2 * params.width)
    before = 0 if parent is None else len(parent.trees.feature)
    smallest = min(2 * leaves_of(params), 2 * max(2, _count(task, params)))
    nodes = NODE_BYTES * (before + params.trees * smallest)
    if nodes > EXPORT_LIMIT:
        raise Invalid(
            f"model.params.trees: the trees take up to {nodes / 1e9:.1f} GB; an exported graph holds {EXPORT_LIMIT / 1e9:.1f} GB: choose "
            "fewer trees, or a smaller depth"
        )
    check_size(graph, tables, memory=task.memory)
    if parent is None:
        return
    if params.library == "forest":
        raise Invalid("model.params.library: a forest cannot continue from a parent's trees in a warm run; start a full run")
    for name, own, theirs in (("library", params.library, parent.library), ("objective", params.objective, parent.objective)):
        if own != theirs:
            raise Invalid(f"model.params.{name}: '{own}' is not the parent's '{theirs}': a warm run cannot change it; start a full run")
    if layout.columns != parent.layout.columns:
        raise Invalid("features: the columns differ from those of the parent's trees: a warm run cannot change them; start a full run")


def _count(task: Task, params: GbmParams) -> int:
    """Returns the approximate number of rows to grow trees on."""
    import polars as pl

    return int(pl.scan_parquet(task.rows).select(pl.len()).collect().item()) * (1 + (params.negatives or 0))


def check_memory(params: GbmParams, rows: FoldRows, memory: int | None) -> None:
    """Raises Invalid if the rows do not fit: XGBoost keeps a byte per number, other libraries hold all rows twice."""
    wanted = rows.rows * len(rows.layout.columns) if params.library == "xgboost" else 2 * rows.size
    there = memory if memory is not None else free_memory()
    if there is not None and wanted > there:
        where = "resources.train.memory gives" if memory is not None else "this machine has free"
        other = "" if params.library == "xgboost" else "choose library: xgboost, which needs less memory, or "
        raise Invalid(
            f"model.params: {rows.rows:,} rows of {len(rows.layout.columns)} columns take {wanted / 1e9:.1f} GB, but {where} "
            f"{there / 1e9:.1f} GB: {other}draw fewer negatives, or raise resources.train.memory"
        )


def begin(params: GbmParams, seed: int, parts: Parts, before: bytes | None, finished: int) -> Grower:
    """Makes the library's grower; `before` is a file with the trees so far, of which the first `finished` are complete."""
    if params.library == "xgboost":
        return XGBoost(params, seed, parts, before, finished)
    if params.library == "lightgbm":
        return LightGBM(params, seed, parts, before)
    return Forest(params, seed, parts)


def begun(task: Task, params: GbmParams, rows: FoldRows, parent: TreeModel | None) -> TreeGrowth:
    """Starts the course from a checkpoint, from the parent's trees, or from nothing."""
    stored, before = (None, 0) if parent is None else (parent.stored, len(parent.trees.roots))
    keeping = None if task.keeping is None else task.keeping.resting_on(rows=[rows.rows, list(rows.layout.columns)])
    checkpoint = keeping.newest_checkpoint() if keeping is not None and task.model.train.checkpoint is not None else None
    rounds: list[Round] = []
    if checkpoint is not None:
        stored, rounds = checkpoint.state["trees"].tobytes(), [Round(**fields) for fields in checkpoint.about["rounds"]]
        task.log.info("trees: continued from a checkpoint from_attempt=%s trees=%d", checkpoint.attempt, rounds[-1].trees - before)
    first = next(rows())
    sample = TreeRows(first.matrix[:SAMPLE], first.labels[:SAMPLE], first.groups[:SAMPLE])
    grower = begin(params, task.model.train.seed, rows, stored, before)
    probability = params.library != "forest" and params.objective == "logistic"
    return TreeGrowth(
        grower, params.trees, before, rows.rows, task.model.train, sample, probability, params.objective == "rank", task.log, None, keeping,
        rounds, checkpoint.attempt if checkpoint is not None else None,
    )  # fmt: skip


def looked_at(
    task: Task,
    params: GbmParams,
    batches: Batches,
    holdout: Path,
    rest: Path,
    margin: Logits,
    probability: bool,
) -> Validation:
    """Returns the validation: held-out rows with evenly drawn negatives, described by the knowledge from the other rows."""

    def score(columns: Codes) -> Floats:
        return shown(margin(columns), probability)

    validation_batches = replace(batches, path=holdout, shuffle=False, unknown_users=0, unknown_items=0, negatives=params.negatives or 0)
    ranking = None
    if ranked := task.model.train.ranked:
        ranking = rank_held(validation_batches, rest, task.history, task.popularity.items, holdout.parent, score, ranked)
    return Validation(validation_batches, score, ranking)
