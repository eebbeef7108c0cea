"""A trained model of trees: the library's own file (arrays if that would be a pickle), and the knowledge of keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.arrays import read_arrays, write_arrays
from pipelines.inputs.tables import Codes
from pipelines.models.family import MODEL, Fetch
from pipelines.models.neural.plain import sigmoid
from pipelines.models.tables import Table
from pipelines.models.trees import by_lightgbm, by_xgboost
from pipelines.models.trees.ensemble import Trees, trees_of
from pipelines.models.trees.knowledge import ITEM, USER, Knowledge, knowledge_of
from pipelines.models.trees.layout import FeatureSource, TreeLayout
from pipelines.training.calibration import UNCALIBRATED, LogitLine, read_line
from shared.domain.errors import BadData

FAMILY = "gbm"
KNOWLEDGE = "knowledge.npz"
BOOSTERS: Mapping[str, Any] = {"xgboost": by_xgboost, "lightgbm": by_lightgbm}
FILES = {"xgboost": "model.ubj", "lightgbm": "model.txt", "forest": "trees.npz"}
MEANINGS = {
    "logistic": "probability of a positive, between 0 and 1; drawn negatives shift it, so it is only for comparison",
    "rank": "rank score of the item among the items shown to the same user: only for comparison, without a zero point",
    "forest": "share of positives among similar rows, between 0 and 1; drawn negatives shift it, so it is only for comparison",
}
_AT_ONCE = 65_536
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class TreeModel:
    """Implements Trained."""

    library: str
    objective: str
    layout: TreeLayout
    knowledge: Knowledge
    stored: bytes
    """The library's file; empty for a forest."""
    arrays: Trees | None = None
    """The trees of a forest."""
    calibration: LogitLine = UNCALIBRATED
    """From the sum of the trees to the served logit. A warm run grows more trees without it."""

    @property
    def meaning(self) -> str:
        return MEANINGS["forest" if self.library == "forest" else self.objective]

    @property
    def tables(self) -> tuple[Table, ...]:
        knowledge, layout = self.knowledge, self.layout
        sides = ((layout.user, knowledge.users), (layout.item, knowledge.items))
        return tuple(Table(name, len(values), values.shape[1] + knowledge.width, None) for name, values in sides)

    @cached_property
    def _booster(self) -> Any:
        return BOOSTERS[self.library].load(self.stored)

    @cached_property
    def trees(self) -> Trees:
        """The trees as arrays, for any library."""
        if self.arrays is not None:
            return self.arrays
        grown: Trees = BOOSTERS[self.library].trees(self._booster)
        return grown.moved(self.calibration.slope, self.calibration.shift)

    def save(self, folder: Path) -> dict[str, Path]:
        described, knowledge_path, trees = folder / MODEL, folder / KNOWLEDGE, folder / FILES[self.library]
        if self.arrays is None:
            trees.write_bytes(self.stored)
        else:
            write_arrays(trees, self.arrays.arrays)
        write_arrays(knowledge_path, self.knowledge.arrays)
        facts = {"library": self.library, "objective": self.objective, **asdict(self.layout), "columns": self.layout.columns}
        facts |= self.calibration.document
        digests = {path.name: _digest(path) for path in (knowledge_path, trees)}
        described.write_text(json.dumps({"version": 1, "family": FAMILY} | facts | {"sha256": digests}, indent=1))
        return {MODEL: described, KNOWLEDGE: knowledge_path, trees.name: trees}

    def score(self, columns: Codes) -> Floats:
        count = len(columns[self.layout.user])
        parts = [self._scored({name: column[at : at + _AT_ONCE] for name, column in columns.items()}) for at in range(0, count, _AT_ONCE)]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def _scored(self, columns: Codes) -> Floats:
        margin = self.margin(self.layout.matrix(columns, self.knowledge))
        return shown(margin, self.probability)

    def margin(self, matrix: Floats) -> Floats:
        """Returns the margins from the library that grew the trees."""
        if self.arrays is not None:
            return self.trees.score(matrix)
        margin: Floats = BOOSTERS[self.library].margin(self._booster, matrix)
        return self.calibration.apply(margin)

    @property
    def probability(self) -> bool:
        """Whether margins must be turned into probabilities."""
        return self.library != "forest" and self.objective == "logistic"

    def lower(self) -> Any:
        return self.layout.lower(self.knowledge, self.trees, self.probability)

    def embeddings(self, codes: Codes) -> None:
        """Returns None for trees: they have no embeddings to search."""


def shown(margin: Floats, probability: bool) -> Floats:
    """Returns the score."""
    return sigmoid(margin) if probability else margin


def load(fetch: Fetch) -> TreeModel:
    """Loads a model; checks digests first, so that no library parses a damaged file."""
    document = json.loads(fetch(MODEL).read_text())
    library = str(document["library"])
    if library not in FILES:
        raise BadData(f"{MODEL}: unknown tree library '{library}'")
    paths = {name: fetch(name) for name in (KNOWLEDGE, FILES[library])}
    for name, path in paths.items():
        if _digest(path) != document["sha256"].get(name):
            raise BadData(f"{name}: does not match {MODEL}: the file is damaged, or of another model")
    layout = TreeLayout(
        document["user"], document["item"], tuple(FeatureSource(**fields) for fields in document["sources"]), document["fits"]
    )
    knowledge = knowledge_of(read_arrays(paths[KNOWLEDGE]))
    if (
        knowledge.users.shape[1:] != (len(USER),)
        or knowledge.items.shape[1:] != (len(ITEM),)
        or knowledge.item_vectors.shape[1] != knowledge.width
    ):
        raise BadData(f"{KNOWLEDGE}: the tables are not those of this release")
    if library in BOOSTERS:
        stored = paths[FILES[library]].read_bytes()
        model = TreeModel(library, document["objective"], layout, knowledge, stored, calibration=read_line(document))
    else:
        model = TreeModel(library, document["objective"], layout, knowledge, b"", trees_of(read_arrays(paths[FILES[library]])))
    model.trees.check(len(layout.columns))
    return model


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
