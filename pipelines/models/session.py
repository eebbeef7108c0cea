"""The family `session`: a transformer over the sequence of items that a user liked, which predicts the next item.

The score of an item is the inner product of the transformer's output and the item's vector, plus the item's level. A user's sequence is the
liked items of the training rows, ordered by time and then by row; a warm run's sequence continues the parent's. So each user's output is
known after training, and the served unit looks it up by the user's code. Unknown users and users without likes have the empty sequence,
from which the model learns how a session begins.

If the spec has a `sequence` feature, the model reads that feature row by row and in each request (pipelines.models.sequence_session).
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.arrays import read_arrays, write_arrays
from pipelines.features.columns import FIRST, NULL
from pipelines.features.following import followed, lower_followed, lower_present_first, present_first
from pipelines.features.onnx_builder import OnnxBuilder, tensor_info
from pipelines.features.operators.sequence import Sequence
from pipelines.features.reading import Reads
from pipelines.inputs.batches import Batches
from pipelines.inputs.tables import Codes
from pipelines.models.attention.item_features import (
    FeaturesOfCodes,
    ItemFeatures,
    features_of_codes,
    grown_table,
    item_vectors,
    lower_vectors,
    vectors_of,
)
from pipelines.models.attention.learning import SequenceStep
from pipelines.models.attention.lowered import scores
from pipelines.models.attention.shape import FEATURES, ITEMS, Shape, Weights, begin, grow
from pipelines.models.attention.streams import Streams, read_streams
from pipelines.models.attention.windows import ItemSample, Windows
from pipelines.models.dot_product import inner_products
from pipelines.models.external_weights import ExternalWeights, LowersExternalWeights
from pipelines.models.family import MODEL, Embeddings, Fetch, Fitted, Task
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.frameworks.protocol import ChoosesItems
from pipelines.models.neural.train import how
from pipelines.models.neural.weights import WEIGHTS
from pipelines.models.recent_items import pairs_of, parts_of, with_recent
from pipelines.models.sequence_session import (
    QUERIES,
    SequenceSession,
    document_of,
    load_reader,
    newest_by_code,
    queries_of,
    read_sequence,
    read_transformer,
    scores_of,
    user_vectors,
)
from pipelines.models.tables import PRECISION, Table, check_size
from pipelines.models.user_sequences import as_likes, newest_of, sequences_of
from pipelines.training.batch_size import BatchSize
from pipelines.training.likes import LikesByRow
from pipelines.training.loop import TrainingLoop
from pipelines.training.preflight import check_memory, check_rows
from pipelines.training.ranking import rank_held
from pipelines.training.trainer import LOOKED, Trainer
from pipelines.training.validation import Validation
from shared.contracts.families import SessionParams
from shared.domain.errors import BadData, Invalid

SEQUENCES = "sequences.npz"
CELLS = 1 << 26
"""Largest number of attention logits that one block computes in a step: 256 MiB of float32. A step needs several times this memory."""
MOST_WINDOWS, FEWEST_WINDOWS, STEPS = 128, 64, 64
"""Most and fewest sequences in a step by rule; with few sequences an epoch has at least this many steps."""
TRAINING_STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 2_500, 8, 40
"""Steps of a training whose number of epochs is chosen by rule, and the bounds of that number."""
ALL = 131_072
"""The largest catalogue whose items are all compared; of a larger one, this many items are drawn."""
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class SessionModel(LowersExternalWeights):
    """Implements Trained and ReadsRecentItems; `queries` holds the transformer's output for each user's sequence, by code."""

    user: str
    item: str
    shape: Shape
    weights: Weights
    sequences: LikesByRow
    """The newest items by user code."""
    queries: Floats
    until: float
    """Time of the newest training row."""
    features: ItemFeatures | None = None

    meaning: ClassVar[str] = "rank score of the item among all items as the next item: only for comparison, without a zero point"
    recent_use: ClassVar[str] = "recent likes follow the sequence of the training; the transformer reads it again"

    @cached_property
    def users(self) -> Floats:
        """The vectors of users by code."""
        return user_vectors(self.queries)

    @property
    def tables(self) -> tuple[Table, ...]:
        width = self.shape.width + 1
        return Table(self.user, len(self.queries), width, None), Table(self.item, self.shape.items, width, None)

    def save(self, folder: Path) -> dict[str, Path]:
        paths = {name: folder / name for name in (MODEL, QUERIES, SEQUENCES)}
        document = {"version": 1, "family": Session.name, "user": self.user, "item": self.item, "until": self.until}
        document |= document_of(self.shape, self.features)
        paths[MODEL].write_text(json.dumps(document, indent=1))
        np.save(paths[QUERIES], self.queries, allow_pickle=False)
        write_arrays(paths[SEQUENCES], {"start": self.sequences.start, "items": self.sequences.others})
        return {**paths, WEIGHTS: write_arrays(folder / WEIGHTS, self.weights)}

    def score(self, columns: Codes) -> Floats:
        scores: Floats = np.einsum("nd,nd->n", self.users[columns[self.user]], self._vectors(columns))
        return scores

    def lower_beside(self, beside: ExternalWeights) -> Any:
        build = OnnxBuilder(beside.tensor)
        for column in (self.user, self.item):
            build.input(column, "INT32", "N")
        vectors = lower_vectors(build, self.weights, self.features, self.item)
        build.node("Identity", inner_products(build, self._lower_users(build), vectors), output="score")
        return build.model(Session.name, tensor_info("score", "FLOAT", "N"))

    def score_recent(self, columns: Codes, recent: NDArray[np.int32]) -> Floats:
        new = present_first(recent)
        fresh = new[:, 0] != NULL
        scores = self.score(columns)
        trained = newest_of(self.sequences.rows(columns[self.user][fresh]), self.shape.length)
        scores[fresh] = scores_of(self.shape, self.weights, followed(trained, new[fresh]), self._vectors(columns)[fresh])
        return scores

    def lower_recent(self, beside: ExternalWeights, width: int) -> Any:
        build = OnnxBuilder(beside.tensor)
        for column in (self.user, self.item):
            build.input(column, "INT32", "N")
        rows = pairs_of(build, build.cast(self.user, "INT64"), width)
        fresh = with_recent(build)
        pairs, place = build.distinct(build.node("Compress", rows, fresh), "pairs")
        users, recent = parts_of(build, pairs)
        new = lower_present_first(build, recent, width)
        sequences = build.cast(lower_followed(build, self._lower_sequences(build, users), new, self.shape.length, width), "INT64")
        vectors = lower_vectors(build, self.weights, self.features, self.item)
        read = scores(build, build.node("Compress", vectors, fresh, axis=0), sequences, place, self.shape, self.weights)
        places = build.node("Squeeze", build.node("NonZero", fresh), build.constant([0]))
        trained = inner_products(build, self._lower_users(build), vectors)
        build.node("ScatterElements", trained, places, read, axis=0, output="score")
        return build.model(Session.name, tensor_info("score", "FLOAT", "N"))

    def _lower_sequences(self, build: OnnxBuilder, users: str) -> str:
        """Returns the trained sequences of these user codes, as `newest_of` does."""
        const = build.constant
        sequences = self.sequences.others.astype(np.int32) if len(self.sequences.others) else np.zeros(1, np.int32)
        start = build.initializer("known/start", self.sequences.start)
        end = build.node("Gather", start, build.node("Add", users, const(1)))
        begin = build.node("Max", build.node("Gather", start, users), build.node("Sub", end, const(self.shape.length)))
        places = build.node("Add", build.column(begin), const(np.arange(self.shape.length)[None, :]))
        there = build.node("Less", places, build.column(end))
        codes = build.node("Gather", build.initializer("known/items", sequences), build.node("Where", there, places, const(0)))
        return build.node("Where", there, codes, const(np.int32(NULL)))

    def embeddings(self, codes: Codes) -> Embeddings:
        return Embeddings(self._vectors(codes), self.users)

    def _vectors(self, columns: Codes) -> Floats:
        return vectors_of(self.weights, self.features, self.item, columns)

    def _lower_users(self, build: OnnxBuilder) -> str:
        return build.node("Gather", build.initializer("users/vectors", self.users), self.user)


class SessionOfKeys(SessionModel):
    """A model without features of items; implements ScoresAll."""

    def every(self, users: NDArray[np.int32]) -> Floats:
        scores: Floats = self.users[users] @ self._items.T
        return scores

    @cached_property
    def _items(self) -> Floats:
        """The item vectors by code."""
        return item_vectors(self.weights)


class Session:
    """Implements Family."""

    name = "session"
    reads: Reads = "sequence_and_items"

    def train(self, task: Task) -> Fitted:
        params, graph, training = task.model.params, task.graph, task.model.train
        assert isinstance(params, SessionParams)
        started = time.monotonic()
        sequence = read_sequence(graph, params)
        if sequence is not None:
            params = params.model_copy(update={"length": sequence.length})
        users, items = (graph.key(column).state.cardinality for column in (graph.user, graph.item))
        parent = self.load(task.parent) if task.parent is not None else None
        of_codes = features_of_codes(graph, task.items, parent.features if parent else None, params.unknown_items)
        features = of_codes.features if of_codes else None
        shape = _shape(params, items, features, parent.shape if parent else None)
        check_size(graph, PRECISION * (params.width + 1) * (users + items), memory=task.memory)
        check_rows(graph, task.rows, task.items, task.users, 1, task.parent is not None)
        check_memory(shape.size, training.optimizer, task.memory)
        first = begin(shape, training.seed) if parent is None else _grown(shape, parent, of_codes, task)
        before = (parent.sequences, parent.until) if isinstance(parent, SessionModel) else None
        count = drawn(params, items)
        with _validation_split(task) as (rest, validation):
            training_streams = Streams(sequences_of(task, rest, before)) if sequence is None else streams(task, rest, sequence)
            sample = None if count is None else ItemSample(np.bincount(training_streams.sequences.others, minlength=items), count)
            windows = Windows(
                rest,
                training_streams.sequences,
                shape,
                1,
                training.seed,
                params.reversed,
                params.mask,
                sample,
                training_streams.sought,
            )
            size = sequences_at_once(training.batch_size, params, windows.rows_per_epoch())
            task.log.info("batch size: chosen sequences=%d reason=%s", size.size, size.why)
            windows = replace(windows, batch_size=size.size)
            training = training.model_copy(update={"epochs": training.epochs or epochs_of(-(-windows.rows_per_epoch() // size.size))})
            rows = newest_of(training_streams.sequences, shape.length) if sequence is None else None

            def score(weights: Weights, columns: Codes) -> Floats:
                vectors = vectors_of(weights, features, graph.item, columns)
                if sequence is not None:
                    return scores_of(shape, weights, columns[sequence.name], vectors)
                assert rows is not None
                return _scored(shape, weights, rows, columns[graph.user], vectors)

            framework = load_framework(task.model.framework)
            assert isinstance(framework, ChoosesItems)  # SessionParams.not_on refuses others
            step = SequenceStep(framework, shape, first, how(training), params.dropout, sample is not None, score, of_codes)
            look = None if validation is None else _look(task, rest, validation, step)
            startup = time.monotonic() - started
            report = TrainingLoop(step, windows, training, task.log, look, task.keeping).run()
        newest = newest_by_code(graph, sequence) if sequence else newest_of(sequences_of(task, task.rows, before), shape.length)
        step.compare(newest[:64]).check(step.name, task.log)
        weights = step.weights()
        queries = queries_of(shape, weights, newest)
        model: SessionModel | SequenceSession
        if sequence is None:
            until = _newest_time(task, parent)
            model = _kind(features)(graph.user, graph.item, shape, weights, as_likes(newest), queries, until, features)
        else:
            model = SequenceSession(self.name, graph.user, graph.item, sequence.name, shape, weights, queries, features)
        done = Trainer(step, report, startup, size)
        facts = {"framework": step.name, **done.facts}
        return Fitted(model, done.metrics | {"train.parameters": float(shape.parameters)}, facts, done.document)

    def load(self, fetch: Fetch) -> SessionModel | SequenceSession:
        value = json.loads(fetch(MODEL).read_text())
        if "sequence" in value:
            return load_reader(fetch, value)
        shape, weights, features = read_transformer(fetch, value)
        queries = np.load(fetch(QUERIES), allow_pickle=False)
        likes = read_arrays(fetch(SEQUENCES))
        sequences = LikesByRow(likes["start"], likes["items"])
        if queries.ndim != 2 or queries.shape[1] != shape.width or len(sequences.start) != len(queries) + 1:
            raise BadData(f"{QUERIES}: does not match model.json: the files are of different models: copy or train the model again")
        return _kind(features)(value["user"], value["item"], shape, weights, sequences, queries, float(value["until"]), features)


def _kind(features: ItemFeatures | None) -> type[SessionModel]:
    return SessionOfKeys if features is None else SessionModel


def _newest_time(task: Task, parent: SessionModel | SequenceSession | None) -> float:
    newest = float(pl.scan_parquet(task.rows).select(pl.col("time").max()).collect().item())
    return max(newest, parent.until) if isinstance(parent, SessionModel) else newest


def _grown(shape: Shape, parent: SessionModel | SequenceSession, of_codes: FeaturesOfCodes | None, task: Task) -> Weights:
    """Returns first weights of a warm run: new items begin with the vectors of their features."""
    weights = dict(parent.weights)
    if of_codes is not None and parent.features is not None:
        weights[FEATURES] = grown_table(of_codes.features, parent.features, weights[FEATURES])
        weights[ITEMS] = weights[ITEMS] - of_codes.parts.vectors(weights[FEATURES])[: len(weights[ITEMS])]
    return grow(shape, weights, task.new_rows, task.model.train.seed)


def _shape(params: SessionParams, items: int, features: ItemFeatures | None, parent: Shape | None) -> Shape:
    """Raises Invalid if a warm run would change the parent's shape; `items` counts codes."""
    scale = math.sqrt(params.width) if parent is None else parent.scale
    shape = Shape(
        items,
        params.width,
        params.blocks,
        params.heads,
        params.length,
        params.objective,
        scale,
        features.rows if features is not None else 0,
    )
    if parent is not None and replace(parent, items=items, features=shape.features) != shape:
        raise Invalid("model.params: width, blocks, heads, length and objective must be the parent's in a warm run; or start a full run")
    return shape


def drawn(params: SessionParams, items: int) -> int | None:
    """Returns how many items each step draws to compare, or None for all of them; `items` counts codes."""
    there = items - FIRST
    if params.against is None:
        return None if there <= ALL else ALL
    return params.against if params.against < there else None


def sequences_at_once(chosen: int | None, params: SessionParams, windows: int | None = None) -> BatchSize:
    """Returns the sequences per step; raises Invalid if a step cannot hold them: attention compares each place of a sequence with each
    other place. `windows` counts those of an epoch, or is None before they are known."""
    places = params.length + 1
    cells = params.heads * places**2
    most = max(1, CELLS // cells)
    if chosen is not None and chosen > 16 * most:
        raise Invalid(
            f"model.train.batch_size: the attention of {chosen:,} sequences of {places:,} places takes {4 * chosen * cells / 1e9:.1f} GB"
            " several times over: choose a smaller batch_size or length, or fewer heads"
        )
    if chosen is not None:
        return BatchSize(chosen, "set in the spec, in sequences")
    if windows is None:
        return BatchSize(min(MOST_WINDOWS, most), f"by rule, in sequences of up to {places} places; fewer for few sequences")
    size = min(MOST_WINDOWS, most, max(FEWEST_WINDOWS, windows // STEPS))
    return BatchSize(size, f"by rule: {windows:,} sequences in an epoch, each of up to {places} places")


def streams(task: Task, rows: Path, sequence: Sequence) -> Streams:
    return read_streams(rows, sequence.name, task.items.columns[task.graph.item], sequence.liked)


def _scored(shape: Shape, weights: Weights, sequences: NDArray[np.int32], users: NDArray[Any], vectors: Floats) -> Floats:
    distinct, inverse = np.unique(users, return_inverse=True)
    queries = queries_of(shape, weights, sequences[distinct])
    scores: Floats = np.einsum("nd,nd->n", queries[inverse], vectors[:, :-1]) + vectors[:, -1]
    return scores


@contextmanager
def _validation_split(task: Task) -> Iterator[tuple[Path, Batches | None]]:
    """Yields the rows to train on and the validation rows: the newest like of a share of the users."""
    share, seed = task.model.train.validation, task.model.train.seed
    if not share:
        yield task.rows, None
        return
    with tempfile.TemporaryDirectory(prefix="validation-", dir=task.rows.parent) as folder:
        rest, holdout = hold_out_newest(task.rows, share, seed, Path(folder))
        looked = Batches(holdout, task.graph, task.items, task.users, 1024, LOOKED, seed, shuffle=False, unknown_users=0, unknown_items=0)
        yield rest, looked


def epochs_of(steps: int) -> int:
    """Returns the number of epochs by rule, from the steps of an epoch."""
    return min(MOST_EPOCHS, max(FEWEST_EPOCHS, -(-TRAINING_STEPS // steps)))


def _look(task: Task, rest: Path, validation: Batches, step: SequenceStep) -> Validation:
    """Returns the validation after each epoch; `rest` are the training rows."""
    ranked, ranking = task.model.train.ranked, None
    if ranked:
        ranking = rank_held(validation, rest, task.history, task.popularity.items, rest.parent, step.score, ranked)
    return Validation(validation, step.score, ranking)


def hold_out_newest(rows: Path, share: float, seed: int, folder: Path) -> tuple[Path, Path]:
    frame = pl.scan_parquet(rows).with_row_index("~row")
    likes = frame.filter(pl.col("label") > 0).sort("time", maintain_order=True).group_by("user").agg(pl.col("~row").last(), pl.len())
    some = likes.filter(pl.col("len") > 1).sort("user").select("~row").collect()["~row"].to_numpy()
    chosen = np.random.default_rng((seed, 67)).random(len(some)) < share
    if not chosen.any():
        raise Invalid(
            f"model.train.validation: {share:g} of the users leaves no newest positive to validate on: choose a larger share, or 0"
        )
    is_held_out = pl.col("~row").is_in(pl.Series(some[chosen]).implode())
    paths = folder / "rest.parquet", folder / "held.parquet"
    for path, condition in zip(paths, (~is_held_out, is_held_out), strict=True):
        frame.filter(condition).drop("~row").sink_parquet(path, row_group_size=65_536, compression="lz4", statistics=False)
    return paths
