"""What versions are asked with is in the store before they take traffic, whoever is killed or loses what meanwhile."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine

from services.control.feature_materialiser import FeatureMaterialiser, named
from services.control.forgetting import Forgetting
from services.featurestore.history import SqlFeatureHistory
from services.featurestore.sql import SqlFeatureStore
from shared.contracts.online import ONLINE
from shared.contracts.records import RolloutSpec
from shared.domain.errors import Unavailable
from shared.domain.feature_values import StoredRow
from shared.domain.forgetting import ForgottenUser
from shared.domain.route import Route
from tests.support.forgotten import forgotten_users
from tests.support.gateway_world import NOW, World, spec
from tests.support.sql_rows import empty
from tests.unit.gateway.test_user_features import DAY, row, version

pytestmark = pytest.mark.requirement("G-08")
PUBLISHED = {user: {"age": 10 * user, "mean": user / 2} for user in (1, 2, 3)}


class Killed(BaseException):
    """Nothing of the platform's catches it."""


class Mortal(SqlFeatureStore):
    """Dies at a call, before or after it took effect."""

    def __init__(self, engine: Engine, at: int, before: bool) -> None:
        super().__init__(engine)
        self.left, self.before = at, before

    def write(self, recommender: str, view: str, rows: Sequence[StoredRow]) -> int:
        return int(self._call(lambda: super(Mortal, self).write(recommender, view, rows)))

    def mark(self, recommender: str, view: str, count: int) -> None:
        self._call(lambda: super(Mortal, self).mark(recommender, view, count))

    def _call(self, work: Any) -> Any:
        self.left -= 1
        if self.left == 0 and self.before:
            raise Killed
        found = work()
        if self.left == 0:
            raise Killed
        return found


class Away(SqlFeatureStore):
    away = False

    def marks(self) -> Any:
        if self.away:
            raise Unavailable("Redis doesn't answer")
        return super().marks()


class Case:
    def __init__(self, world: World, store: SqlFeatureStore | None = None) -> None:
        self.world = world
        self.store = store or SqlFeatureStore(world.engine)
        self.history = SqlFeatureHistory(world.engine)
        self.forgotten = forgotten_users(world.engine)
        self.wanted: dict[str, frozenset[int]] = {"m": frozenset({1})}
        self.begin()

    def begin(self) -> None:
        """A control plane that knows nothing yet."""
        world: Any = self.world
        stores = (self.store, self.history)
        self.made = FeatureMaterialiser(lambda: self.wanted, world, world.artifacts, world, stores, world.clock, self.forgotten)

    def settle(self) -> None:
        for _ in range(4):
            self.made.step()

    def held(self, view: str) -> dict[int, dict[str, Any]]:
        found = self.store.read("m", {view: None}, range(10), NOW + 400 * DAY).rows
        return {key: dict(one.values) for (_, key), one in found.items()}


@pytest.fixture
def world() -> World:
    made = World()
    made.add_version(1)
    return made


@pytest.fixture
def case(world: World, tmp_path: Path) -> Case:
    version(world, tmp_path)
    return Case(world)


def test_a_version_is_ready_when_all_of_its_parts_are_in(case: Case) -> None:
    assert not case.made.loaded("m", 1)
    case.made.step()
    assert case.held("user@1") == {user: PUBLISHED[user] for user in (1, 2)}, "a part at a time"
    assert not case.made.loaded("m", 1)
    case.made.step()
    assert case.held("user@1") == PUBLISHED
    assert case.made.loaded("m", 1)
    assert case.held("user") == {}


def test_a_version_without_views_is_ready_at_once(world: World) -> None:
    assert Case(world).made.loaded("m", 1)


def test_what_is_loaded_is_not_loaded_again(case: Case) -> None:
    case.settle()
    reads = case.world.artifacts.reads
    case.settle()
    assert case.world.artifacts.reads == reads


def test_killed_at_any_write_the_next_one_finishes_it(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for at, before in itertools.product(range(1, 8), (True, False)):
        with subtests.test(at=at, before=before):
            world = World()
            world.add_version(1)
            version(world, tmp_path)
            case = Case(world, Mortal(world.engine, at, before))
            case.history.append("m", "user", [row(2, age=5), row(9, age=6)])
            try:
                case.settle()
            except Killed:
                assert case.made.loaded("m", 1) == (case.held("user@1") == PUBLISHED and case.store.marks()["m", "user@1"] == 2)
            case.begin()
            case.settle()
            assert case.made.loaded("m", 1)
            assert case.held("user@1") == PUBLISHED
            assert case.held("user") == {2: {"age": 5}, 9: {"age": 6}}
            world.close()


def test_a_store_that_lost_everything_is_filled_anew(case: Case) -> None:
    case.history.append("m", "user", [row(2, NOW - DAY, age=4), row(2, NOW, age=5)])
    case.settle()
    empty(case.world.engine, "feature_values", "feature_views")
    case.settle()
    assert case.held("user@1") == PUBLISHED
    assert case.held("user") == {2: {"age": 5}}


def test_asked_to_it_loads_all_anew_while_the_rows_stand(case: Case) -> None:
    case.settle()
    assert case.made.again("m") == 2
    assert case.held("user@1") == PUBLISHED
    empty(case.world.engine, "feature_values")
    case.settle()
    assert case.held("user@1") == PUBLISHED


def test_codes_of_a_version_are_no_view_that_others_write_to(world: World, tmp_path: Path) -> None:
    version(world, tmp_path, fitted=True)
    case = Case(world)
    case.settle()
    assert list(case.store.marks()) == [("m", "user@1")]


def test_what_no_version_needs_any_more_is_forgotten_and_what_others_wrote_stays(case: Case, tmp_path: Path) -> None:
    version(case.world, tmp_path, 2)
    case.store.write("m", "user", [row(1, age=5)])
    case.wanted = {"m": frozenset({1, 2})}
    case.settle()
    assert sorted(view for _, view in case.store.marks()) == ["user", "user@1", "user@2"]
    case.wanted = {"m": frozenset({2})}
    case.settle()
    assert sorted(view for _, view in case.store.marks()) == ["user", "user@2"]
    assert case.held("user") == {1: {"age": 5}}


def test_a_version_that_is_kept_warm_keeps_its_values_and_only_then_is_that_asked(case: Case, tmp_path: Path) -> None:
    version(case.world, tmp_path, 2)
    asked: list[int] = []
    warm: dict[str, frozenset[int]] = {"m": frozenset({1, 2})}

    def desired() -> dict[str, frozenset[int]]:
        asked.append(1)
        return warm

    world: Any = case.world
    parts = (world, world.artifacts, world, (case.store, case.history), world.clock, case.forgotten)
    case.made = FeatureMaterialiser(desired, *parts, lambda: case.wanted)
    case.settle()
    assert asked == []
    case.wanted = {"m": frozenset({2})}
    case.settle()
    assert sorted(view for _, view in case.store.marks()) == ["user", "user@1", "user@2"]
    assert asked
    warm["m"] = frozenset({2})
    case.settle()
    assert sorted(view for _, view in case.store.marks()) == ["user", "user@2"]


def test_with_the_recommender_all_of_it_goes(case: Case) -> None:
    case.history.append("m", "user", [row(1, age=5)])
    case.settle()
    del case.world.specs["m"]
    case.wanted = {}
    case.settle()
    assert case.store.marks() == {}
    assert list(case.history.views()) == []


def test_a_history_that_outlived_its_recommender_goes_too(case: Case) -> None:
    case.history.append("gone", "user", [row(1, age=5)])
    case.made.step()
    assert list(case.history.views()) == []


def test_a_store_that_is_away_when_a_recommender_is_deleted_is_cleared_later(world: World, tmp_path: Path) -> None:
    version(world, tmp_path)
    store = Away(world.engine)
    case = Case(world, store)
    case.settle()
    store.away = True
    case.made.drop("m")
    store.away = False
    del world.specs["m"]
    case.wanted = {}
    case.settle()
    assert store.marks() == {}


def test_history_is_trimmed_to_what_the_spec_keeps(case: Case) -> None:
    case.world.specs["m"] = spec(serve={"store": {"keep": "7d"}})
    case.history.append("m", "user", [row(1, NOW - n * DAY, age=n) for n in (20, 10, 8, 2)])
    case.made.step()
    asked = [(1, NOW - n * DAY) for n in (15, 9, 7)]
    assert [one and one.values["age"] for one in case.history.as_of("m", "user", asked, None)] == [None, None, 8]
    case.history.append("m", "user", [row(1, NOW - 30 * DAY, age=30)])
    case.made.step()
    assert case.history.as_of("m", "user", [(1, NOW - 29 * DAY)], None) != [None], "not at every step"
    case.world.clock.time += timedelta(hours=1)
    case.made.step()
    assert case.history.as_of("m", "user", [(1, NOW - 29 * DAY)], None) == [None]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("online.user.0001.npz", None, "not among the version's files"),
        ("online.user.0001.npz", b"x", "cannot be read"),
        (ONLINE, b"{}", "views"),
        (ONLINE, b"x", "Expecting value"),
    ],
)
def test_a_version_that_can_never_be_loaded_says_why_and_holds_up_no_other(
    case: Case, tmp_path: Path, name: str, content: bytes | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    version(case.world, tmp_path, 2)
    old = case.world.versions["m", 1]
    files = {other: file for other, file in old.files.items() if other != name}
    if content is not None:
        files[name] = case.world.artifacts.keep(content)
    case.world.versions["m", 1] = dataclasses.replace(old, files=files)
    case.wanted = {"m": frozenset({1, 2})}
    case.settle()
    assert (case.made.loaded("m", 1), case.made.loaded("m", 2)) == (False, True)
    assert said in (case.made.fault("m", 1) or "")
    assert case.made.fault("m", 2) is None
    assert sum("features: loading failed" in record.message for record in caplog.records) == 1


def test_without_the_store_nothing_is_ready_and_it_goes_on_afterwards(world: World, tmp_path: Path) -> None:
    version(world, tmp_path)
    store = Away(world.engine)
    case = Case(world, store)
    case.settle()
    store.away = True
    assert not case.made.loaded("m", 1)
    with pytest.raises(Unavailable):
        case.made.step()
    store.away = False
    case.made.step()
    assert case.made.loaded("m", 1)
    assert json.loads(world.artifacts.read(world.versions["m", 1].files[ONLINE]))["views"][0]["rows"] == 3


def test_a_version_on_its_way_is_loaded_and_so_is_what_serves() -> None:
    rollouts: Any = SimpleNamespace(list=lambda **_: [SimpleNamespace(recommender="m", spec=RolloutSpec(3, {}))])
    routes: Any = SimpleNamespace(all=lambda: {"m": Route(1, 2, 0.1, "r", 0), "n": Route(7)})
    assert named(routes, rollouts) == {"m": frozenset({1, 2, 3}), "n": frozenset({7})}


@pytest.mark.requirement("U-11")
def test_a_forgotten_user_is_in_no_view_and_not_loaded_again(case: Case) -> None:
    case.settle()
    for user in (1, 2):
        case.history.append("m", "user", [row(user, NOW, age=1)])
        case.store.write("m", "user", [row(user, NOW, age=1)])
    stores = (case.store, case.history)
    registry: Any = SimpleNamespace(list=lambda name: [], collected=lambda name: {}, get=None)
    forgotten = Forgetting(case.forgotten, stores, registry, case.world.clock, 30 * DAY).forget("m", 1)
    assert (forgotten.feature_values, forgotten.versions, forgotten.collected_by - forgotten.at) == (3, (), 30 * DAY)
    assert (case.held("user@1").keys(), case.held("user").keys()) == ({2, 3}, {2})
    assert [stored.key for stored in case.history.latest("m", "user", 10)] == [2]
    for view in ("user", "user@1"):
        case.store.forget("m", view)
    case.settle()
    assert (case.held("user@1").keys(), case.held("user").keys()) == ({2, 3}, {2})


@pytest.mark.requirement("U-11")
def test_a_restored_store_forgets_values_that_only_a_version_published(case: Case) -> None:
    case.settle()
    registry: Any = SimpleNamespace(list=lambda name: [], collected=lambda name: {}, get=None)
    forgetting = Forgetting(case.forgotten, (case.store, case.history), registry, case.world.clock, 30 * DAY)
    forgetting.replay("m", [ForgottenUser(case.forgotten.digest.of(1), NOW + DAY)])
    assert case.held("user@1") == {user: PUBLISHED[user] for user in (2, 3)}
