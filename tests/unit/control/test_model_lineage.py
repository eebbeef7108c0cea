"""What is read of the line of versions that serves, for `auto` to choose by."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from services.control.model_lineage import ModelLineages
from shared.contracts.stage import LEFT_OUT
from shared.domain.drift.reading import DriftLook, DriftReading
from shared.domain.errors import NotFound
from shared.domain.warm_or_full import Link, TrainingHistory
from shared.ports import Recommender, Version
from shared.testing.records import LINEAGE, RUN_SPEC
from tests.support.simulated_platform import NAME, NOW, spec

CODES = {"person": 100, "film": 50, "genres": 9}


def version(number: int, mode: str, parent: int | None = None, forgotten: float | None = None) -> Version:
    metrics = {} if forgotten is None else {"candidate.forgotten": forgotten}
    lineage = replace(LINEAGE, mode=mode, stages={"etl": {"cardinalities": CODES | {"person": 100 + number}}})
    return Version(NAME, number, f"r{number}", "", {}, metrics, lineage, parent, NOW)


class Store:
    """Versions, the runs that made them, and what else has run; counts what is read."""

    def __init__(self, *versions: Version) -> None:
        self.versions = {one.number: one for one in versions}
        self.rejected: list[Any] = []
        self.read = 0
        self.forgot_at: datetime | None = None
        self.document = spec().document()

    def lines(self, serving: int | None) -> ModelLineages:
        route = None if serving is None else SimpleNamespace(stable=serving)
        runs = SimpleNamespace(get=self._run, list=self._list)
        registry = SimpleNamespace(get=self._version)
        forgotten = SimpleNamespace(newest=lambda name: self.forgot_at)
        return ModelLineages(registry, runs, SimpleNamespace(get=lambda name: route), forgotten)  # type: ignore[arg-type]

    def _version(self, name: str, number: int) -> Version:
        self.read += 1
        if number not in self.versions:
            raise NotFound(f"version {number}")
        return self.versions[number]

    def _run(self, id: str) -> Any:
        return SimpleNamespace(id=id, spec=replace(RUN_SPEC, document=self.document))

    def _list(self, name: str, *, states: set[str], since: Any, limit: int) -> list[Any]:
        assert states == {"rejected"} and since == NOW
        return self.rejected


def asks(**changes: Any) -> Recommender:
    return Recommender(NAME, 1, spec(**changes), NOW, NOW)


LINE = (version(1, "full"), version(2, "warm", 1, 0.02), version(3, "warm", 2))


@pytest.mark.requirement("G-09")
def test_a_line_goes_from_what_serves_to_its_last_full_version_and_is_read_once() -> None:
    store = Store(*LINE)
    lines = store.lines(3)
    found = lines.past(asks(), None)
    assert found == TrainingHistory(
        (
            Link("warm", {"person": 103, "film": 50}, None),
            Link("warm", {"person": 102, "film": 50}, 0.02),
            Link("full", {"person": 101, "film": 50}, None),
        )
    )
    before = store.read
    assert lines.past(asks(), None) == found and store.read == before + 1, "the version that serves alone"


def test_nothing_serves_or_a_part_of_the_line_is_gone() -> None:
    assert Store().lines(None).past(asks(), None) == TrainingHistory()
    assert Store().lines(3).past(asks(), None) == TrainingHistory()
    assert [one.mode for one in Store(*LINE[1:]).lines(3).past(asks(), None).line] == ["warm", "warm"]


def test_what_a_warm_run_can_not_change_is_named() -> None:
    lines = Store(*LINE).lines(3)
    assert lines.past(asks(model={"params": {"layers": [9]}}), None).changed == "model.params"
    assert lines.past(asks(model={"family": "mf"}), None).changed == "model.family"
    assert lines.past(asks(features=[{"categorify": ["person", "film"]}]), None).changed == "features"
    assert lines.past(asks(model={"train": {"epochs": 2}}), None).changed is None


def test_a_warm_run_from_what_serves_that_was_rejected_is_named() -> None:
    store = Store(*LINE)
    store.rejected = [
        SimpleNamespace(id="other", spec=replace(RUN_SPEC, mode="warm", serving=2)),
        SimpleNamespace(id="full", spec=replace(RUN_SPEC, mode="full", serving=3)),
    ]
    assert store.lines(3).past(asks(), None).refused is None
    store.rejected.append(SimpleNamespace(id="mine", spec=replace(RUN_SPEC, mode="warm", serving=3)))
    assert store.lines(3).past(asks(), None).refused == "mine"


def test_the_farthest_drift_of_a_feature_counts_that_chance_can_not_explain() -> None:
    readings = (
        DriftReading("psi", "genres", 0.4, 1e-9, 1e-6),
        DriftReading("psi", "year", 0.9, 0.2, 1e-6),
        DriftReading("new", "film", 2.0, 1e-9, 1e-6),
    )
    look = DriftLook(3, NOW, readings)
    assert Store(*LINE).lines(3).past(asks(), look).drift == ("genres", 0.4)
    assert Store(*LINE).lines(3).past(asks(), replace(look, readings=readings[1:])).drift is None


@pytest.mark.requirement("U-11")
def test_a_line_knows_the_users_that_were_forgotten_after_its_full_run() -> None:
    store, snapshot = Store(*LINE), LINE[0].lineage.snapshot
    etl = {"etl": LINE[0].lineage.stages["etl"] | {LEFT_OUT: 1}}
    store.versions[1] = replace(LINE[0], lineage=replace(LINE[0].lineage, stages=etl))
    second = timedelta(seconds=1)
    for store.forgot_at, knows in ((None, False), (snapshot - second, False), (snapshot, True), (snapshot + second, True)):
        assert store.lines(3).past(asks(), None).knows_forgotten == knows


@pytest.mark.requirement("U-11")
def test_a_version_whose_etl_had_no_ledger_may_know_everybody() -> None:
    """Older code, beside newer code during a rolling upgrade, reads users who were forgotten before."""
    store = Store(*LINE)
    store.forgot_at = LINE[0].lineage.snapshot - timedelta(days=9)
    assert store.lines(3).past(asks(), None).knows_forgotten
