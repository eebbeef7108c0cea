"""Spec of a run and lineage of a version, which tests change with `replace`."""

from __future__ import annotations

from datetime import UTC, datetime

from shared.contracts.records import AttemptLineage, DataLineage, Lineage, RunSpec

RUN_SPEC = RunSpec({}, 1, "full", "because", None, "", False, "")
_ATTEMPTS = {"etl": AttemptLineage("by-hand-etl-1", False, "")}
_DATA = DataLineage(None, "", {})
LINEAGE = Lineage(datetime(2026, 1, 1, tzinfo=UTC), _DATA, 1, "", "", "full", "", "", "", None, {}, None, _ATTEMPTS, {"etl": {}})
