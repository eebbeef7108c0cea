"""Scores of given items, and similar items, by one version. Nothing is logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from services.gateway.candidates import Candidates, RankingRequest
from services.gateway.loaded_version import LoadedVersion
from services.gateway.model_inputs import ModelInputs
from services.gateway.scoring import scored
from shared.contracts.events import UNKNOWN_USER
from shared.domain.entity_ids import Id
from shared.domain.errors import Invalid, NotFound
from shared.domain.route import Variant
from shared.ports import Scorer
from shared.serving.nearest import Rows


@dataclass(frozen=True)
class Scores:
    version: int
    variant: Variant
    items: Sequence[tuple[int, float | None]]
    """In the order of the request; None for an item that the version does not have."""
    fallback: str | None = None


@dataclass(frozen=True)
class Similar:
    version: int
    items: Sequence[tuple[Id, float]]
    """Ids and cosines, most similar first."""


def scores_of(
    server: Scorer, feeding: ModelInputs, request: RankingRequest, unit: LoadedVersion, variant: Variant, items: Sequence[int]
) -> Scores:
    """Returns the scores; raises Unavailable if the version gives none."""
    if not unit.scores(request.user, request.newest_items(unit)):
        return Scores(unit.version, variant, [(item, None) for item in items], UNKNOWN_USER)
    rows = unit.rows(dict.fromkeys(items))
    scores_by_item: Mapping[int, float] = {}
    if len(rows):
        (result,) = scored(server, feeding, [Candidates(request, rows, True, len(rows))], unit)
        if isinstance(result.scores, Exception):
            raise result.scores
        scores_by_item = dict(zip(unit.items[rows].tolist(), result.scores.tolist(), strict=True))
    return Scores(unit.version, variant, [(item, scores_by_item.get(item)) for item in items])


def similar_to(request: RankingRequest, unit: LoadedVersion, item: Id, key: int) -> Similar:
    """Returns similar items that may be shown."""
    rows = unit.rows([key])
    if not len(rows):
        raise NotFound(f"version {unit.version} of '{request.recommender}' has no item {item}")
    if unit.vectors is None:
        raise Invalid(f"version {unit.version} of '{request.recommender}' has no vectors: add 'serve.retrieve' to the spec and start a run")
    similar_rows: Rows = np.empty(0, np.intp)
    for count in (10 * request.k, len(unit.items)):
        near = unit.vectors.similar(int(rows[0]), min(count, len(unit.items)))
        similar_rows = request.allowed_rows(unit, near)[: request.k]
        if len(similar_rows) == request.k or count >= len(unit.items):
            break
    likeness = unit.vectors.directions(similar_rows) @ unit.vectors.directions(rows)[0]
    return Similar(unit.version, list(zip(unit.ids(unit.items[similar_rows].tolist()), likeness.tolist(), strict=True)))
