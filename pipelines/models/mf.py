"""The family `mf`: matrix factorisation of likes; the score is the inner product of a user's vector and an item's vector.

Trained by implicit alternating least squares (`pipelines.training.als`), which needs no sampled negatives: each pair without a like counts
a little against. Or by gradient (`pipelines.models.mf_sgd`), where the last column of an item's vector is the item's level. By least
squares, unknown users and users without likes get the mean vector of the users with likes; unknown items and items without likes get zero.
For a request with recent likes (`pipelines.models.user_solver`), the user's vector is solved again, with the items' vectors fixed. A warm
run continues from the parent's vectors over all likes known so far: the newest likes alone would make it forget the rest.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.arrays import read_arrays, write_arrays
from pipelines.features.columns import UNKNOWN
from pipelines.features.reading import Reads
from pipelines.inputs.tables import Codes
from pipelines.models.dot_product import lower_product
from pipelines.models.external_weights import ExternalWeights, LowersExternalWeights
from pipelines.models.family import MODEL, Embeddings, Fetch, Fitted, Task
from pipelines.models.like_pairs import liked_pairs, metrics_of_likes
from pipelines.models.mf_sgd import USUAL, contrasted
from pipelines.models.new_row_init import grown
from pipelines.models.tables import Table, check_size
from pipelines.models.user_history import load_user_history, save_user_history, user_history_of
from pipelines.models.user_solver import UserSolver
from pipelines.training.als import AlsTerms, Factors, Floats, begin, sweeps
from pipelines.training.als_choice import choose_strength
from pipelines.training.likes import LikePairs
from shared.contracts.families import MfParams
from shared.contracts.retraining import NewRows
from shared.domain.errors import Invalid

VECTORS = "vectors.npz"
MEANINGS = {
    "als": "affinity of the user to the item: about 1 for positives, about 0 for unrelated items",
    "softmax": "rank score of the item among all items for the user: only for comparison, without a zero point",
    "logistic": "log-odds of a positive against sampled negatives: only for comparison",
}


@dataclass(frozen=True)
class MfModel(LowersExternalWeights):
    """Implements Trained."""

    user: str
    item: str
    factors: Factors
    """Vectors by code."""
    regularisation: float
    loss: str = "als"
    solver: UserSolver | None = None
    """Solves a user's vector with recent likes; None for a model that was trained by gradient, or by an older release."""

    @property
    def recent_use(self) -> str | None:
        """Implements ReadsRecentItems."""
        return None if self.solver is None else "the user's vector is solved again from all likes, with recent likes among them"

    @property
    def meaning(self) -> str:
        return MEANINGS[self.loss]

    @property
    def tables(self) -> tuple[Table, ...]:
        sides = ((self.user, self.factors.users), (self.item, self.factors.items))
        return tuple(Table(name, len(vectors), vectors.shape[1], None) for name, vectors in sides)

    def save(self, folder: Path) -> dict[str, Path]:
        described = folder / MODEL
        facts = {"user": self.user, "item": self.item, "regularisation": self.regularisation, "loss": self.loss}
        if self.solver is not None:
            facts |= {"unobserved": self.solver.terms.unobserved}
        described.write_text(json.dumps({"version": 1, "family": Mf.name} | facts, indent=1))
        vectors = write_arrays(folder / VECTORS, {"users": self.factors.users, "items": self.factors.items})
        return {MODEL: described, VECTORS: vectors} | ({} if self.solver is None else save_user_history(self.solver.history, folder))

    def score(self, columns: Codes) -> NDArray[np.float32]:
        return self.factors.scores(columns[self.user].astype(np.int64), columns[self.item].astype(np.int64))

    def every(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        """Implements ScoresAll."""
        scores: NDArray[np.float32] = self.factors.users[users] @ self.factors.items.T
        return scores

    def lower_beside(self, beside: ExternalWeights) -> Any:
        return lower_product(Mf.name, self.user, self.item, self.factors, beside)

    def score_recent(self, columns: Codes, recent: NDArray[np.int32]) -> NDArray[np.float32]:
        assert self.solver is not None
        users = self.solver.vectors(columns[self.user].astype(np.int64), recent)
        scores: NDArray[np.float32] = np.einsum("nd,nd->n", users, self.factors.items[columns[self.item]])
        return scores

    def lower_recent(self, beside: ExternalWeights, width: int) -> Any:
        assert self.solver is not None
        return self.solver.lower(Mf.name, self.user, self.item, beside, width)

    def embeddings(self, codes: Codes) -> Embeddings:
        return Embeddings(self.factors.items[codes[self.item]], self.factors.users)


class Mf:
    """Implements Family."""

    name = "mf"
    reads: Reads = "keys"

    def train(self, task: Task) -> Fitted:
        params = task.model.params
        assert isinstance(params, MfParams)
        started = time.monotonic()
        graph = task.graph
        parent = self.load(task.parent) if task.parent is not None else None
        level = 0 if params.loss == "als" else 1
        if parent is not None and parent.loss != params.loss:
            raise Invalid(
                f"model.params.loss: '{params.loss}' is not the parent's '{parent.loss}': a warm run cannot change it; start a full run"
            )
        width = params.width if parent is None else parent.factors.users.shape[1] - level
        if "width" in params.model_fields_set and width != params.width:
            raise Invalid(f"model.params.width: {params.width} is not the parent's {width}: a warm run cannot change it; start a full run")
        users, items = (graph.key(column).state.cardinality for column in (graph.user, graph.item))
        check_size(graph, 4 * (width + level) * (users + items), memory=task.memory)
        pairs = liked_pairs(task)
        solver = None
        if params.loss == "als":
            factors, losses, strength = _solved(task, params, pairs, width, parent)
            solver = UserSolver(factors, AlsTerms(params.unobserved, strength), user_history_of(pairs, weighted=True))
        else:
            fitted = contrasted(task, params, pairs, width, parent.factors if parent is not None else None)
            factors, losses = fitted.factors, fitted.losses
            strength = params.regularisation or USUAL
        parameters = float((width + level) * (users + items))
        metrics = metrics_of_likes(len(pairs), time.monotonic() - started, parameters, len(losses)) | {"train.loss": losses[-1]}
        facts = {"losses": [round(loss, 6) for loss in losses], "regularisation": strength}
        return Fitted(MfModel(graph.user, graph.item, factors, strength, params.loss, solver), metrics, facts)

    def load(self, fetch: Fetch) -> MfModel:
        value = json.loads(fetch(MODEL).read_text())
        vectors = read_arrays(fetch(VECTORS))
        factors = Factors(vectors["users"], vectors["items"])
        strength, solver = value["regularisation"], None
        if "unobserved" in value:
            solver = UserSolver(factors, AlsTerms(value["unobserved"], strength), load_user_history(fetch, len(factors.items)))
        return MfModel(value["user"], value["item"], factors, strength, value.get("loss", "als"), solver)


def _solved(task: Task, params: MfParams, pairs: LikePairs, width: int, parent: MfModel | None) -> tuple[Factors, list[float], float]:
    """Returns the vectors, the losses and the regularisation."""
    seed = task.model.train.seed
    factors = begin(pairs.user_count, pairs.item_count, width, seed)
    strength = params.regularisation
    if parent is not None:
        factors = _go_on(factors, parent.factors, task.new_rows)
        strength = strength or parent.regularisation
    if strength is None:
        strength = choose_strength(pairs, width, params.unobserved, seed, task.log)
    terms = AlsTerms(params.unobserved, strength)
    losses = _fit(pairs, factors, terms, params.sweeps if parent is None else max(1, params.sweeps // 3), task.log)
    fill(factors, pairs)
    return factors, losses, strength


def _fit(pairs: LikePairs, factors: Factors, terms: AlsTerms, count: int, log: logging.Logger) -> list[float]:
    losses: list[float] = []
    started = time.monotonic()
    for loss in sweeps(pairs, factors, terms, count):
        losses.append(loss)
        left = (time.monotonic() - started) / len(losses) * (count - len(losses))
        log.info("sweep: finished sweep=%d of=%d loss=%.4f seconds_left=%.0f", len(losses), count, loss, left)
    return losses


def _go_on(begun: Factors, parent: Factors, rule: NewRows) -> Factors:
    """Starts from the parent's vectors."""
    return Factors(grown(parent.users, begun.users, rule), grown(parent.items, begun.items, rule))


def fill(factors: Factors, pairs: LikePairs) -> None:
    """Fills the vectors of codes without likes: the mean of the users with likes, zero for unknown items."""
    liking = np.unique(pairs.users)
    without = np.ones(pairs.user_count, dtype=bool)
    without[liking] = False
    mean: Floats = factors.users[liking].mean(axis=0)
    factors.users[without] = mean
    factors.items[: UNKNOWN + 1] = 0
