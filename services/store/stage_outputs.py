"""StageOutputs in SQL: the inputs of published stages, for stage reuse."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Engine, Row, delete, insert, select

from services.store.tables import stage_outputs
from shared.domain.stage_reuse import StageOutput


class SqlStageOutputs:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)

    def find(self, recommender: str, stage: str, digest: str) -> StageOutput | None:
        query = select(stage_outputs).where(*_of(recommender, stage), stage_outputs.c.digest == digest)
        with self._reads.connect() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _output(row)

    def newest(self, recommender: str, stage: str) -> StageOutput | None:
        query = select(stage_outputs).where(*_of(recommender, stage)).order_by(stage_outputs.c.at.desc(), stage_outputs.c.digest).limit(1)
        with self._reads.connect() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _output(row)

    def put(self, output: StageOutput) -> None:
        values = {"digest": output.digest, "parts": dict(output.parts), "attempt": output.attempt, "at": output.at}
        conditions = _of(output.recommender, output.stage)
        with self._engine.begin() as connection:
            connection.execute(delete(stage_outputs).where(*conditions, stage_outputs.c.digest == output.digest))
            connection.execute(insert(stage_outputs).values(recommender=output.recommender, stage=output.stage, **values))


def _of(recommender: str, stage: str) -> tuple[ColumnElement[bool], ...]:
    return stage_outputs.c.recommender == recommender, stage_outputs.c.stage == stage


def _output(row: Row[Any]) -> StageOutput | None:
    """Returns None for a damaged row: the stage runs again."""
    if not isinstance(row.parts, dict):
        return None
    return StageOutput(row.recommender, row.stage, row.digest, row.parts, row.attempt, row.at)
