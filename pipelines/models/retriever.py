"""The retriever of a run: the model itself if it has embeddings, else an `mf` trained beside the model."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pipelines.models.beside import BESIDE, fetch_beside
from pipelines.models.families import load_model
from pipelines.models.family import MODEL, Fetch, Fitted, Task, Trained
from pipelines.models.mf import Mf
from shared.contracts.models import Model, Training


def train_beside(task: Task, parent: Fetch | None) -> Fitted:
    """Trains an `mf` with its default parameters; `parent` fetches the files of the parent's retriever."""
    model = Model(family=Mf.name, train=Training(seed=task.model.train.seed))
    return Mf().train(replace(task, model=model, parent=parent, keeping=None))


def load_retriever(fetch: Fetch, beside: bool, allowed: Collection[str] = ()) -> Trained:
    return Mf().load(fetch_beside(fetch)) if beside else load_model(fetch, allowed)


IS_BESIDE = BESIDE + MODEL
"""The file that exists if there is a retriever beside the model."""
