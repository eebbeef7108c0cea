"""The items table's attributes are in the catalogue before their version takes traffic, whoever is killed meanwhile; later writes win."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sqlalchemy import Engine

from pipelines.export import attributes
from pipelines.export.attributes import attribute_columns, write_seed
from services.control.catalogue_seeder import CatalogueSeeder
from services.store.catalogue import SqlCatalogue
from shared.domain.errors import Unavailable
from shared.domain.route import Route
from shared.ports import SeedProgress
from shared.testing.catalogue_suite import write
from tests.support.gateway_world import ITEMS, NOW, World, spec

PRICES = {item: 2 * item for item in ITEMS}


class Killed(BaseException):
    """Nothing of the platform's catches it."""


class Mortal(SqlCatalogue):
    """Dies at a write, before or after it took effect."""

    def __init__(self, engine: Engine, at: int, before: bool) -> None:
        super().__init__(engine)
        self.left, self.before = at, before

    def seed(self, recommender: str, rows: Mapping[int, Mapping[str, Any]], at: datetime) -> int:
        return int(self._call(lambda: super(Mortal, self).seed(recommender, rows, at)))

    def mark_seed(self, recommender: str, progress: SeedProgress) -> None:
        self._call(lambda: super(Mortal, self).mark_seed(recommender, progress))

    def _call(self, work: Any) -> Any:
        self.left -= 1
        if self.left == 0 and self.before:
            raise Killed
        result = work()
        if self.left == 0:
            raise Killed
        return result


class Case:
    """Versions whose items tables are published by the code of the export stage, two items per part."""

    def __init__(self, world: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.folder, self.monkeypatch = world, folder, monkeypatch
        self.named: dict[str, frozenset[int]] = {}
        self.catalogue: SqlCatalogue = world.catalogue
        self.begin()

    def begin(self) -> None:
        """A control plane that knows nothing yet."""
        world: Any = self.world
        self.seeder = CatalogueSeeder(lambda: self.named, world, world.artifacts, self.catalogue)

    def publish(self, number: int, at: datetime = NOW, **columns: Any) -> None:
        table = pl.DataFrame({"item": ITEMS, **columns})
        folder = self.folder / str(number)
        folder.mkdir(exist_ok=True)
        self.monkeypatch.setattr(attributes, "PART", 2)
        files = write_seed(table, "item", attribute_columns(table, "item", {}).kinds, at, lambda name: folder / name)
        self.world.add_version(number, **{name: path.read_bytes() for name, path in files.items()})
        self.named = {"m": frozenset({*self.named.get("m", ()), number})}

    def settle(self) -> None:
        for _ in range(10):
            self.seeder.step()

    def prices(self) -> dict[int, Any]:
        return {item.item: item.attributes.get("price") for item in self.catalogue.page("m", 100)}


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    return Case(World(), tmp_path, monkeypatch)


@pytest.mark.requirement("G-02")
def test_a_column_of_the_items_table_works_in_a_filter(case: Case) -> None:
    case.world.routes["m"] = Route(1, generation=1)
    case.world.specs["m"] = spec(serve={"filter": ["price < 60"]})
    case.publish(1, price=list(PRICES.values()))
    gateway = case.world.gateway()
    gateway.refresh()
    assert gateway.recommend("m", 1).items == ()
    case.settle()
    case.world.clock.pass_by(seconds=0.25)
    gateway.refresh()
    assert [item for item, _ in gateway.recommend("m", 1).items] == [10, 20]


def test_a_version_is_loaded_when_all_parts_of_its_seed_are_applied(case: Case) -> None:
    case.publish(1, price=list(PRICES.values()))
    for parts in range(3):
        assert not case.seeder.loaded("m", 1)
        assert len(case.prices()) == 2 * parts
        case.seeder.step()
        assert case.seeder.due() == (None if parts == 2 else 0.0)
    assert case.seeder.loaded("m", 1)
    assert case.prices() == PRICES


def test_a_version_without_a_seed_is_loaded_at_once(case: Case) -> None:
    case.world.add_version(1)
    case.named = {"m": frozenset({1})}
    case.settle()
    assert case.seeder.loaded("m", 1)
    assert not case.catalogue.seeds()


def test_the_newest_version_is_applied_and_no_older_one_after_it(case: Case) -> None:
    case.publish(1, price=[1] * 5)
    case.publish(2, NOW + timedelta(hours=1), price=[2] * 5)
    case.settle()
    assert set(case.prices().values()) == {2}
    assert case.seeder.loaded("m", 1) and case.seeder.loaded("m", 2)
    case.named = {"m": frozenset({1})}
    case.begin()
    case.settle()
    assert set(case.prices().values()) == {2}
    assert case.seeder.loaded("m", 1)


def test_equal_files_are_not_applied_again(case: Case) -> None:
    case.publish(1, price=[1] * 5)
    case.settle()
    case.publish(2, price=[1] * 5)
    assert not case.seeder.loaded("m", 2)
    reads, head = case.world.artifacts.reads, case.catalogue.heads()
    case.settle()
    assert case.world.artifacts.reads == reads and case.seeder.loaded("m", 2)
    assert case.catalogue.heads() == head


def test_killed_at_any_write_the_next_control_plane_finishes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for at, before in itertools.product(range(1, 7), (True, False)):
        with subtests.test(at=at, before=before):
            case = Case(World(), tmp_path, monkeypatch)
            case.publish(1, price=list(PRICES.values()))
            case.catalogue = Mortal(case.world.engine, at, before)
            case.begin()
            with pytest.raises(Killed):
                case.settle()
            case.catalogue.put("m", [write(30, price=7)], NOW + timedelta(minutes=1), True)
            case.catalogue = case.world.catalogue
            case.begin()
            case.settle()
            assert case.prices() == {**PRICES, 30: 7}
            assert case.seeder.loaded("m", 1)


def test_an_unreadable_seed_is_reported_once_and_the_version_before_it_is_applied(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    case.publish(1, price=[1] * 5)
    case.publish(2, price=[2] * 5)
    part = case.world.versions["m", 2].files["attributes-00001.ndjson.gz"]
    case.world.artifacts.blobs[part.sha256] = b"no gzip"
    with caplog.at_level(logging.ERROR):
        case.settle()
    assert caplog.text.count("catalogue seed: reading failed recommender=m version=2") == 1
    assert "not a part of a seed" in str(case.seeder.fault("m", 2))
    assert not case.seeder.loaded("m", 2) and case.seeder.loaded("m", 1)
    case.named = {"m": frozenset({1})}
    case.settle()
    assert case.seeder.fault("m", 2) is None, "another rollout tries again"


def test_while_the_artifacts_are_away_the_other_recommenders_go_on(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.publish(1, price=[1] * 5)
    get = case.world.get

    def registry(recommender: str, number: int | None = None) -> Any:
        if recommender == "away":
            raise Unavailable("the store is away")
        return get(recommender, number)

    case.world.get = registry  # type: ignore[method-assign]
    case.named = {"away": frozenset({1}), **case.named}
    for _ in range(3):
        with pytest.raises(Unavailable):
            case.seeder.step()
    assert case.seeder.loaded("m", 1) and not case.seeder.loaded("away", 1)
    assert case.seeder.due() == 0.0
