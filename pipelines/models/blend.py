"""The family `blend`: its score is a weighted sum of the scores of two or three other families, all in one served graph.

Each part's scores are divided by their standard deviation over users and items, so that weights are comparable. The weights are fitted on
held-out likes (`pipelines.training.regularisation_search`): the parts learn from the others, and the sum that ranks the held-out likes
best, by ndcg@10, gives the weights; a part alone is among the sums. Then the parts learn from all likes. A warm run keeps its parent's
weights.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.onnx_builder import OnnxBuilder, tensor_info
from pipelines.features.reading import Reads
from pipelines.inputs.tables import Codes
from pipelines.models.beside import fetch_beside, save_beside
from pipelines.models.ease import Ease
from pipelines.models.external_weights import ExternalWeights, LowersExternalWeights
from pipelines.models.family import MODEL, Family, Fetch, Fitted, ScoresAll, Task, Trained
from pipelines.models.itemknn import ItemKnn
from pipelines.models.like_pairs import liked_pairs
from pipelines.models.mf import Mf
from pipelines.models.popularity_baseline import fit_popularity
from pipelines.models.popularity_model import PopularityFamily
from pipelines.models.recent_items import lower_model, reads_recent
from pipelines.models.tables import Table
from pipelines.models.transitions import Transitions
from pipelines.training.likes import LikePairs
from pipelines.training.regularisation_search import HeldOut, hold_out_likes
from shared.contracts.families import BlendParams
from shared.contracts.models import Model, Training
from shared.domain.errors import Invalid

Floats = NDArray[np.float32]
PARTS: Mapping[str, Family] = {family.name: family for family in (Ease(), Mf(), ItemKnn(), Transitions(), PopularityFamily())}
MOST_CASES = 10_000
"""Held-out likes that the weights are fitted on: sums differ less than settings of one family."""
TENTHS = 10
"""Steps of a fitted weight from 0 to 1."""
_SPREAD_USERS = 256
_CELLS = 1 << 22
"""Maximum number of scores at a time."""


@dataclass(frozen=True)
class BlendModel(LowersExternalWeights):
    """Implements Trained, ScoresAll and ReadsRecentItems."""

    families: tuple[str, ...]
    parts: tuple[Trained, ...]
    weights: tuple[float, ...]
    """In units of the standard deviation of the part's scores."""
    spreads: tuple[float, ...]

    @property
    def meaning(self) -> str:
        shares = ", ".join(f"{weight:g} of {family}" for weight, family in zip(self.weights, self.families, strict=True))
        return f"weighted sum of scores, each divided by its standard deviation ({shares}): only for comparison"

    @property
    def recent_use(self) -> str | None:
        uses = [f"{family}: {part.recent_use}" for family, part in zip(self.families, self.parts, strict=True) if reads_recent(part)]
        return "; ".join(uses) or None

    @property
    def tables(self) -> Sequence[Table]:
        return [table for part in self.parts for table in part.tables]

    @property
    def _factors(self) -> list[np.float32]:
        return [np.float32(weight / spread) for weight, spread in zip(self.weights, self.spreads, strict=True)]

    def save(self, folder: Path) -> dict[str, Path]:
        described = folder / MODEL
        facts = {"families": self.families, "weights": self.weights, "spreads": self.spreads}
        described.write_text(json.dumps({"version": 1, "family": Blend.name} | facts, indent=1))
        files = {MODEL: described}
        for number, part in enumerate(self.parts):
            files |= save_beside(part, folder, _prefix(number))
        return files

    def score(self, columns: Codes) -> Floats:
        return self._sum(part.score(columns) for part in self.parts)

    def every(self, users: NDArray[np.int32]) -> Floats:
        return self._sum(every_of(part, users) for part in self.parts)

    def score_recent(self, columns: Codes, recent: NDArray[np.int32]) -> Floats:
        return self._sum(part.score_recent(columns, recent) if reads_recent(part) else part.score(columns) for part in self.parts)

    def _sum(self, scores: Iterator[Floats]) -> Floats:
        total: Floats = sum(factor * of_part for factor, of_part in zip(self._factors, scores, strict=True))  # type: ignore[assignment]
        return total

    def lower_beside(self, beside: ExternalWeights) -> Any:
        return self._lower([lower_model(part, beside) for part in self.parts])

    def lower_recent(self, beside: ExternalWeights, width: int) -> Any:
        return self._lower([lower_model(part, beside, width) for part in self.parts])

    def _lower(self, models: Sequence[Any]) -> Any:
        """Joins the parts' graphs, each under a prefix of its own."""
        import onnx

        build, inputs, scores = OnnxBuilder(), dict[str, Any](), []
        for number, (model, factor) in enumerate(zip(models, self._factors, strict=True)):
            prefix, output = f"part{number}/", f"part{number}/score"
            names = {tensor.name: prefix + tensor.name for tensor in model.graph.initializer} | {model.graph.output[0].name: output}
            onnx.compose.add_prefix_graph(model.graph, prefix, rename_inputs=False, rename_outputs=False, inplace=True, name_map=names)
            inputs |= {tensor.name: tensor for tensor in model.graph.input}
            build.nodes += model.graph.node
            build.weights += model.graph.initializer
            scores.append(build.node("Mul", output, build.constant(factor)))
        build.inputs += inputs.values()
        build.node("Sum", *scores, output="score")
        return build.model(Blend.name, tensor_info("score", "FLOAT", "N"))

    def embeddings(self, codes: Codes) -> None:
        """Returns None for a blend: its score is not one inner product."""


class Blend:
    """Implements Family."""

    name = "blend"
    reads: Reads = "keys"

    def train(self, task: Task) -> Fitted:
        params = task.model.params
        assert isinstance(params, BlendParams)
        started = time.monotonic()
        families = tuple(part.family for part in params.parts)
        before = json.loads(task.parent(MODEL).read_text()) if task.parent is not None else None
        if before is not None and tuple(before["families"]) != families:
            raise Invalid("model.params.of: the parts are not the parent's: a warm run cannot change them; start a full run")
        facts: dict[str, Any] = {}
        weights = params.weights or (tuple(before["weights"]) if before is not None else None)
        if weights is None:
            weights, facts = _fit_weights(task, params)
        fits = [_train(task, params, number, task.parent) for number in range(len(families))]
        parts = tuple(fit.model for fit in fits)
        spreads = _spreads(parts, liked_pairs(task), task.model.train.seed)
        metrics = {
            "train.seconds": time.monotonic() - started,
            "train.parameters": sum(fit.metrics["train.parameters"] for fit in fits),
        }
        facts |= {"weights": list(weights), "parts": [dict(fit.facts) for fit in fits]}
        return Fitted(BlendModel(families, parts, weights, spreads), metrics, facts)

    def load(self, fetch: Fetch) -> BlendModel:
        value = json.loads(fetch(MODEL).read_text())
        parts = tuple(PARTS[family].load(fetch_beside(fetch, _prefix(number))) for number, family in enumerate(value["families"]))
        return BlendModel(tuple(value["families"]), parts, tuple(value["weights"]), tuple(value["spreads"]))


def every_of(part: Trained, users: NDArray[np.int32]) -> Floats:
    assert isinstance(part, ScoresAll)  # as all of PARTS are
    return part.every(users)


def _prefix(number: int) -> str:
    return f"part{number}."


def _train(task: Task, params: BlendParams, number: int, parent: Fetch | None) -> Fitted:
    part = params.parts[number]
    model = Model(family=part.family, params=part.params, train=Training(seed=task.model.train.seed))
    before = None if parent is None else fetch_beside(parent, _prefix(number))
    return PARTS[part.family].train(replace(task, model=model, parent=before, keeping=None))


def _spreads(parts: Sequence[Trained], pairs: LikePairs, seed: int) -> tuple[float, ...]:
    """Returns the standard deviation of each part's scores, over some users and all items."""
    some = np.random.default_rng((seed, 59)).permutation(np.unique(pairs.users))[:_SPREAD_USERS].astype(np.int32)
    step = max(1, _CELLS // pairs.item_count)
    spreads = []
    for part in parts:
        scores = [every_of(part, some[at : at + step]).astype(np.float64) for at in range(0, len(some), step)]
        means = [(of_users.mean(), (of_users**2).mean(), of_users.size) for of_users in scores]
        mean, square = (np.average([row[place] for row in means], weights=[row[2] for row in means]) for place in range(2))
        spreads.append(float(np.sqrt(max(square - mean**2, 0.0))) or 1.0)
    return tuple(spreads)


def _fit_weights(task: Task, params: BlendParams) -> tuple[tuple[float, ...], dict[str, Any]]:
    """Returns the weights, and the ndcg@10 of each part alone and of the sum."""
    count = len(params.of)
    pairs = liked_pairs(task)
    held_out = hold_out_likes(pairs, task.model.train.seed, MOST_CASES)
    if held_out is None:
        task.log.info("blend: equal weights, too few positives to fit them")
        return tuple(1 / count for _ in range(count)), {}
    with tempfile.TemporaryDirectory(prefix="blend-", dir=task.rows.parent) as folder:
        rows = _without_held_out(task, pairs, held_out, Path(folder) / "rows.parquet")
        popularity = fit_popularity(pl.scan_parquet(rows), pl.Series(task.popularity.items), timed=pairs.in_order)
        inner = replace(task, rows=rows, popularity=popularity, parent=None, history=None)
        parts = [_train(inner, params, number, None).model for number in range(count)]
    choices = [tuple(tenths) for tenths in itertools.product(range(TENTHS + 1), repeat=count) if sum(tenths) == TENTHS]
    spreads = _spreads(parts, held_out.before, task.model.train.seed)
    gains = dict(zip(choices, _gains(held_out, parts, spreads, choices), strict=True))
    best = max(choices, key=lambda tenths: (gains[tenths], -max(tenths)))
    alone = [(part.family, gains[tuple(TENTHS * (place == number) for place in range(count))]) for number, part in enumerate(params.parts)]
    trials = ",".join(f"{family}:{gain:.4f}" for family, gain in alone)
    weights = tuple(tenths / TENTHS for tenths in best)
    task.log.info("blend: weights chosen by ndcg@10 of held-out positives weights=%s ndcg=%.4f alone=%s", weights, gains[best], trials)
    return weights, {"ndcg@10": round(gains[best], 6), "alone": [(family, round(gain, 6)) for family, gain in alone]}


def _without_held_out(task: Task, pairs: LikePairs, held_out: HeldOut, path: Path) -> Path:
    """Writes the rows without the held-out likes; returns the path."""
    frame, count = pl.read_parquet(task.rows), pairs.item_count
    left_out = np.setdiff1d(pairs.users * count + pairs.items, held_out.before.users * count + held_out.before.items)
    codes = frame["user_code"].to_numpy().astype(np.int64) * count
    codes += task.items.columns[task.graph.item][frame["item_row"].to_numpy()]
    frame.filter(~pl.Series(np.isin(codes, left_out))).write_parquet(path, compression="lz4", statistics=False)
    return path


def _gains(held_out: HeldOut, parts: Sequence[Trained], spreads: Sequence[float], choices: Sequence[tuple[int, ...]]) -> list[float]:
    """Returns ndcg@10 of each choice of weights; the parts' scores are computed once."""
    gains = np.zeros(len(choices))
    for users, items in held_out.chunks():
        of_parts = (every_of(part, users.astype(np.int32)) for part in parts)
        scores = [of_part / np.float32(spread) for of_part, spread in zip(of_parts, spreads, strict=True)]
        for place, tenths in enumerate(choices):
            total = sum(np.float32(weight) * of_part for weight, of_part in zip(tenths, scores, strict=True) if weight)
            gains[place] += held_out.gain(np.asarray(total), users, items)
    return [float(gain) / len(held_out.users) for gain in gains]
