"""Saved models: folders with a trained model, its feature graph and the ids of its codes, for evaluation on other files.

The files are arrays, Parquet and JSON: those that a run publishes for the model and the graph, and the ids of users and items."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import FIRST
from pipelines.features.graph import FEATURES, Graph, load_graph
from pipelines.models.families import family_in, load_model
from pipelines.models.family import MODEL, Trained
from pipelines.models.plugins import check_allowed
from pipelines.trials.cases import TrainingPairs
from pipelines.trials.id_map import IdMap
from pipelines.trials.task import ITEM, USER
from shared.artifacts.writing import described
from shared.contracts.stage import File
from shared.contracts.trials import EvaluateRequest
from shared.contracts.tuning import TRAINED, TRAINING
from shared.domain.errors import BadData, EyasError, Invalid

Codes = NDArray[np.int32]
_USERS, _ITEMS = "ids.users.parquet", "ids.items.parquet"


@dataclass(frozen=True)
class SavedModel:
    model: Trained
    graph: Graph
    users: IdMap
    items: IdMap

    def codes(self, training_pairs: TrainingPairs) -> tuple[Codes, Codes]:
        """Returns the codes of a file's users and items, in index order; unknown ids get the code for unknown keys."""
        sides = ((USER, self.users, training_pairs.users), (ITEM, self.items, training_pairs.items))
        user_codes, item_codes = (self.graph.key(key).state.coded(pl.Series(own.places(theirs.ids))) for key, own, theirs in sides)
        return user_codes, item_codes


def keep(folder: Path, model: Trained, graph: Graph, training_pairs: TrainingPairs) -> None:
    """Saves a model over an earlier model. `model.json` is moved last: a folder without it is not a saved model."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    model.save(part)
    graph.save(part)
    for name, side in ((_USERS, training_pairs.users), (_ITEMS, training_pairs.items)):
        side.ids.to_frame("id").write_parquet(part / name)
    folder.mkdir(exist_ok=True)
    (folder / MODEL).unlink(missing_ok=True)
    for path in sorted(part.iterdir(), key=lambda file: file.name == MODEL):
        path.replace(folder / path.name)
    part.rmdir()


@contextmanager
def undamaged(folder: Path) -> Iterator[None]:
    """Turns any error of a saved model's files, which are untrusted, into a `BadData` that names the folder."""
    where = f"--saved {folder}: "
    try:
        yield
    except EyasError as error:
        if str(error).startswith(where):
            raise
        raise BadData(f"{where}{error}") from None
    except ModuleNotFoundError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise BadData(f"{where}the files are damaged, or of different models ({why}): copy or train the model again") from error


def saved_model_in(folder: Path) -> Path:
    """Returns the model folder inside a folder of `eyas train`; else the folder itself."""
    return folder / TRAINED if (folder / TRAINING).is_file() else folder


def check_saved_model(folder: Path, allow: Collection[str] = ()) -> None:
    """Checks the files of a saved model. `allow` lists modules for custom families, because a folder's own claim is untrusted."""
    missing = [name for name in (MODEL, FEATURES, _USERS, _ITEMS) if not (folder / name).is_file()]
    if missing:
        raise Invalid(f"--saved {folder}: not a model of 'eyas train' or --keep: {missing[0]} is missing")
    with undamaged(folder):
        check_allowed(family_in(folder / MODEL), allow)


def check_unseen(folder: Path, request: EvaluateRequest) -> None:
    """Raises `Invalid` if the model was trained on the whole file that the holdout comes from."""
    path = folder / TRAINING
    if request.test is not None or not path.is_file():
        return
    with undamaged(folder):
        of = json.loads(path.read_text())["sha256"]
    if of == file_of(request.train).sha256:
        raise Invalid(f"--saved {folder}: the model was trained on all of {request.train}, holdout included: add --test FILE")


def file_of(path: str) -> File:
    try:
        return described(Path(path))
    except FileNotFoundError:
        raise BadData(f"{path}: file not found") from None
    except IsADirectoryError:
        raise BadData(f"{path}: it is a folder: name a file in it") from None


def read_saved_model(folder: Path, allow: Collection[str] = ()) -> SavedModel:
    check_saved_model(folder, allow)
    with undamaged(folder):
        users, items = (IdMap(pl.read_parquet(folder / name)["id"]) for name in (_USERS, _ITEMS))
        saved_model = SavedModel(load_model(lambda name: folder / name, allow), load_graph(lambda name: folder / name), users, items)
        _check_sizes(saved_model)
    return saved_model


def _check_sizes(saved_model: SavedModel) -> None:
    """Raises ValueError if ids, codes and tables do not match."""
    codes = {key: saved_model.graph.key(key).state.cardinality for key in (USER, ITEM)}
    for key, side in ((USER, saved_model.users), (ITEM, saved_model.items)):
        if len(side) + FIRST != codes[key]:
            raise ValueError(f"{len(side):,} ids of {key}s for {codes[key] - FIRST:,} codes")
    for table in saved_model.model.tables:
        if table.column in codes and table.cardinality != codes[table.column]:
            raise ValueError(f"a table of {table.cardinality:,} rows for {codes[table.column]:,} codes of '{table.column}'")
