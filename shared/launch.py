"""How a run begins: the row that the API and the retrainer both make."""

from __future__ import annotations

from datetime import datetime

from shared.domain.retrainer import Mode
from shared.domain.run import RunStatus
from shared.ports import Recommender, Record


def new_run(recommender: Recommender, id: str, mode: Mode, cause: str, serving: int | None, now: datetime) -> Record[RunStatus]:
    """A run of the spec as it stands. `serving` is the version that serves: a warm run starts from it, gates compare with it."""
    spec = {
        "document": recommender.spec.document(),
        "generation": recommender.generation,
        "mode": mode,
        "cause": cause,
        "serving": serving,
    }
    return Record(id=id, recommender=recommender.name, spec=spec, status=RunStatus(), created_at=now, due_at=now)


def rollout_id(run: str) -> str:
    """The rollout that follows a registered run: deterministic, so that it is started once."""
    return f"{run}-rollout"
