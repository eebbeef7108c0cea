"""A trained model in a folder of its own, with all that it takes to judge it again on other files: the ids that its codes stand for.

Arrays, Parquet and JSON alone: the model's own files and those of its graph, as a run publishes them, and the ids of users and items.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.graph import FEATURES, Graph, load_graph
from pipelines.models.families import family_in, load_model
from pipelines.models.family import MODEL, Trained
from pipelines.models.own import check_allowed
from pipelines.trials.cases import Known
from pipelines.trials.numbering import Numbering
from pipelines.trials.task import ITEM, USER
from shared.artifacts.writing import described
from shared.contracts.stage import File
from shared.contracts.trials import EvaluateRequest
from shared.contracts.tuning import TRAINED, TRAINING
from shared.domain.errors import BadData, Invalid

Codes = NDArray[np.int32]
_USERS, _ITEMS = "ids.users.parquet", "ids.items.parquet"


@dataclass(frozen=True)
class Kept:
    model: Trained
    graph: Graph
    users: Numbering
    items: Numbering

    def codes(self, known: Known) -> tuple[Codes, Codes]:
        """Of a file's users and items, in their order; of those whom the model doesn't know, what it has for such."""
        sides = ((USER, self.users, known.users), (ITEM, self.items, known.items))
        of, what = (self.graph.key(key).state.coded(pl.Series(mine.places(theirs.ids))) for key, mine, theirs in sides)
        return of, what


def keep(folder: Path, model: Trained, graph: Graph, known: Known) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder)
    graph.save(folder)
    for name, side in ((_USERS, known.users), (_ITEMS, known.items)):
        side.ids.to_frame("id").write_parquet(folder / name)


def kept_in(folder: Path) -> Path:
    """Of a folder that `eyas train` has written, the part that is a kept model; else the folder itself."""
    return folder / TRAINED if (folder / TRAINING).is_file() else folder


def check_kept(folder: Path, allow: Collection[str] = ()) -> None:
    """`allow`: modules that a family of somebody's own may be of; a folder says what it is of, and that is nobody's word."""
    missing = [name for name in (MODEL, FEATURES, _USERS, _ITEMS) if not (folder / name).is_file()]
    if missing:
        raise Invalid(f"--saved {folder}: it is no model that 'eyas train' or --keep has written: it has no {missing[0]}")
    try:
        check_allowed(family_in(folder / MODEL), allow)
    except Invalid as error:
        raise Invalid(f"--saved {folder}: {error}") from None


def check_unseen(folder: Path, request: EvaluateRequest) -> None:
    """What was trained on the whole of a file can't be judged by a part of it."""
    path = folder / TRAINING
    if request.test is not None or not path.is_file():
        return
    if json.loads(path.read_text()).get("sha256") == file_of(request.train).sha256:
        raise Invalid(f"--saved {folder}: it was trained on all of {request.train}: nothing held out of it is new to it: say --test FILE")


def file_of(path: str) -> File:
    try:
        return described(Path(path))
    except FileNotFoundError:
        raise BadData(f"{path}: there is no such file") from None


def read_kept(folder: Path, allow: Collection[str] = ()) -> Kept:
    check_kept(folder, allow)
    users, items = (Numbering(pl.read_parquet(folder / name)["id"]) for name in (_USERS, _ITEMS))
    return Kept(load_model(lambda name: folder / name, allow), load_graph(lambda name: folder / name), users, items)
