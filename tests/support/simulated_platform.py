"""A control plane that may die at any point, and the world around it, which goes on: stages, servers, gateways, users, people.

What outlives a death is the World's: the database, the artifacts, the jobs, the model server, the clock. A Plane is one
life of the control plane over it. Nothing runs by itself: a round lets the world do its part, ticks the plane, and moves the clock.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Dialect, Engine, event

from services.control.admission import AdmissionLease, Admissions
from services.control.model_lineage import ModelLineages
from services.control.placement import Placement
from services.control.planning import Planner
from services.control.reconcile import Reconciler
from services.control.replica import Replica
from services.control.retrainers import Retrainers
from services.control.rollouts import Rollouts, Sources
from services.control.runs import AllowLists, Runs
from services.control.snapshots import Snapshots
from services.control.stage_cache import StageCache
from services.eventlog.days import SqlEventDays
from services.eventlog.deletion import SqlEventDeletion
from services.eventlog.kpis import SqlKpis
from services.eventlog.sql import SqlEventLog
from services.featurestore.history import SqlFeatureHistory
from services.store.engine import open_engine
from services.store.lease_time import use_clock
from services.store.leases import SqlLeases
from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.routes import SqlRoutes
from services.store.shadow_totals import SqlShadowTotals
from services.store.stage_outputs import SqlStageOutputs
from shared.artifacts import FsspecArtifacts
from shared.contracts.card import CARD
from shared.contracts.events import Impression, Interaction
from shared.contracts.records import RetrainerSpec, RolloutSpec, RunSpec
from shared.contracts.sources import Contents
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Failure, Files, Manifest, StageName, StageSpec, digest_of
from shared.domain.entity_ids import IdHash
from shared.domain.machine import HasState, Request
from shared.domain.rollout import RolloutStatus
from shared.domain.route import Route
from shared.domain.run import Job, RunStatus
from shared.domain.traffic import ShadowCounts
from shared.domain.triggers import RetrainerStatus
from shared.ports import Activity, HistoryEntry, ModelServer, Record, RolloutRecord, RunRecord, Signals, Version
from shared.run_factory import RunTerms, asked_rollout, new_run, retry_run
from shared.testing.fakes import FakeExecutor, FakeModelServer
from shared.testing.records import LINEAGE
from tests.support.forgotten import forgotten_users

S = TypeVar("S", bound=HasState)
P = TypeVar("P")

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAME = "films"
ROUNDS = 200
WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|TRUNCATE)\b(?! SKIP)")
POINTS = ("before intent", "after intent", "after the effect", "before commit", "after commit")
REFITTED = {"refit.hr@10": 0.3, "refit.candidate.hr@10": 0.25, "refit.hr@10.se_to.candidate": 0.01, "refit.hr@10.users": 900.0}
METRICS: Mapping[str, Mapping[str, float]] = {"evaluate": {"candidate.auc": 0.8}, "refit": REFITTED, "verify": {"parity": 1e-7}}


def spec(**changes: Any) -> RecommenderSpec:
    document = {
        "name": NAME,
        "data": {"interactions": {"uri": "a.csv"}, "items": {"uri": "b.csv", "key": "film"}},
        "schema": {"user": "person", "item": "film", "time": "at", "label": {"column": "stars", "positive": ">= 4"}},
        "gates": [{"metric": "auc", "min": 0.6}, {"parity": 1e-4}],
        "rollout": {
            "steps": ["20%", "50%"],
            "analysis": {
                "attribution": "1s",
                "window": "1s",
                "max_harm": "30%",
                "min_users": 30,
                "min_answers": 30,
                "deadline": "1m",
                "every": "1s",
            },
        },
        "retrain": {"on": [{"drift": {"psi": 0.2, "looks": 1}}], "mode": "warm", "cooldown": "10s"},
        **changes,
    }
    return RecommenderSpec.model_validate(document)


_DIALECTS: list[Dialect] = []
_COMPILED: dict[Any, Any] = {}


def compile_once(engine: Engine) -> None:
    """All SQLite engines of the process share compiled statements: the cache goes by the dialect."""
    if engine.dialect.name != "sqlite":
        return
    if not _DIALECTS:
        engine.connect().close()  # initialises the dialect
        _DIALECTS.append(engine.dialect)
    engine.dialect = _DIALECTS[0]
    engine.update_execution_options(compiled_cache=_COMPILED)


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    def pass_by(self, **span: float) -> None:
        self.time += timedelta(**span)


class Death(BaseException):
    """kill -9: no handler of the control plane's may see it."""


@dataclass(frozen=True)
class Move:
    """A transition, or a pass with effects that stays in its state; `acts`: it has effects, and so an intent."""

    source: str
    target: str
    acts: bool

    @property
    def points(self) -> Sequence[str]:
        return POINTS if self.acts else ("before commit", "after commit")


@dataclass
class Fate:
    """Watches the rows of one kind move, and strikes once, at a point of one move."""

    kind: str
    move: int = -1
    point: str = ""
    strike: Callable[[], None] = lambda: None
    struck: bool = False
    moves: list[Move] = field(default_factory=list)

    def reach(self, kind: str, point: str) -> None:
        if not self.struck and (kind, len(self.moves), point) == (self.kind, self.move, self.point):
            self.struck = True
            self.strike()

    def moved(self, kind: str, move: Move) -> None:
        if kind == self.kind:
            self.moves.append(move)


@dataclass
class FateOfEachMove(Fate):
    """Strikes at a point of every move, once: `position` counts the moves that are committed."""

    position: Callable[[], int] = lambda: 0
    positions: set[int] = field(default_factory=set)
    """Where it has struck."""

    def reach(self, kind: str, point: str) -> None:
        if (kind, point) == (self.kind, self.point) and (position := self.position()) not in self.positions:
            self.positions.add(position)
            self.struck = True
            self.strike()


class Rows(SqlResources[S, P]):
    """The real store, with the points at which its caller may die."""

    def __init__(self, engine: Engine, kind: str, status_type: type[S], spec_type: type[P], fate: Fate) -> None:
        super().__init__(engine, kind, status_type, spec_type)
        self.kind = kind
        self._fate = fate

    def create(self, record: Record[S, P], actor: str) -> Record[S, P]:
        made = super().create(record, actor)
        if self.kind == "run":
            self._fate.reach("retrainer", "after the effect")
        return made

    def write_intent(self, record: Record[S, P], intent: Mapping[str, Any]) -> Record[S, P]:
        self._fate.reach(self.kind, "before intent")
        written = super().write_intent(record, intent)
        self._fate.reach(self.kind, "after intent")
        return written

    def commit(
        self, record: Record[S, P], status: S, *, due_at: datetime, entry: HistoryEntry | None, finished: bool, clear_request: bool
    ) -> Record[S, P]:
        values: dict[str, Any] = {"due_at": due_at, "entry": entry, "finished": finished, "clear_request": clear_request}
        if entry is None:
            return super().commit(record, status, **values)
        self._fate.reach(self.kind, "before commit")
        written = super().commit(record, status, **values)
        self._fate.reach(self.kind, "after commit")
        self._fate.moved(self.kind, Move(entry.source, entry.target, acts=record.intent is not None))
        return written


class Registry(SqlRegistry):
    def __init__(self, engine: Engine, fate: Fate) -> None:
        super().__init__(engine)
        self._fate = fate

    def register(self, version: Version) -> Version:
        made = super().register(version)
        self._fate.reach("run", "after the effect")
        return made


class Routes(SqlRoutes):
    def __init__(self, engine: Engine, fate: Fate) -> None:
        super().__init__(engine)
        self._fate = fate

    def put(self, recommender: str, route: Route, now: datetime, actor: str, reason: str, during: RolloutRecord | None = None) -> Route:
        made = super().put(recommender, route, now, actor, reason, during)
        self._fate.reach("rollout", "after the effect")
        return made


class Executor(FakeExecutor):
    """Jobs outlive the control plane, as they do on Kubernetes. Counts the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.given: dict[str, StageSpec] = {}
        self.fate = Fate("none")

    def start(self, spec: StageSpec) -> None:
        self.calls[spec.attempt] += 1
        self.given[spec.attempt] = spec
        super().start(spec)
        self.fate.reach("run", "after the effect")

    def stop(self, attempt: str) -> None:
        super().stop(attempt)
        self.fate.reach("run", "after the effect")


class Data:
    """Data files by uri: what tells whether they have changed."""

    def __init__(self) -> None:
        self.marks = {"a.csv": "1 byte", "b.csv": "1 byte"}

    def fingerprint(self, uri: str, contents: Contents = "rows", version: int | None = None) -> Mapping[str, str]:
        return {uri: self.marks[uri]} if uri in self.marks else {}


class Says:
    """A source of signals that says what it is told to."""

    activity: Activity | None = None

    def __init__(self) -> None:
        self.now = Signals()
        self.asked = 0

    def signals(self, recommender: str) -> Signals:
        self.asked += 1
        return self.now


@dataclass
class Parts:
    """Of which stores a plane is made: tests put broken ones in their place."""

    rows: type[Rows[Any, Any]] = Rows
    registry: type[Registry] = Registry
    routes: type[Routes] = Routes


class Plane:
    """One life of the control plane."""

    def __init__(self, world: World, fate: Fate, holder: str | None = None) -> None:
        engine = world.open()
        parts, clock = world.parts, world.clock
        registry, routes = parts.registry(engine, fate), parts.routes(engine, fate)
        recommenders, kpis = SqlRecommenders(engine), SqlKpis(engine)
        forgotten = self.forgotten = forgotten_users(engine)
        snapshots = Snapshots(
            SqlEventLog(engine),
            SqlEventDays(engine),
            SqlEventDeletion(engine),
            world.artifacts,
            IdHash(b"test"),
            forgotten,
            SqlFeatureHistory(engine),
        )
        self.runs: Rows[RunStatus, RunSpec] = parts.rows(engine, "run", RunStatus, RunSpec, fate)
        self.rollouts: Rows[RolloutStatus, RolloutSpec] = parts.rows(engine, "rollout", RolloutStatus, RolloutSpec, fate)
        self.retrainers: Rows[RetrainerStatus, RetrainerSpec] = parts.rows(engine, "retrainer", RetrainerStatus, RetrainerSpec, fate)
        self.placement = Placement(routes, self.rollouts, registry, world.server, clock, world.keep_warm)
        outputs = SqlStageOutputs(engine)
        bases = self.bases = StageCache(
            self.runs, registry, world.artifacts, outputs, world.data, "1.0 test", snapshots.has_values, forgotten.newest
        )
        self.turnstile = AdmissionLease(SqlLeases(engine), f"plane-{world.lives}", clock)
        world.lives += 1
        turns = self.turns = Admissions(self.runs, clock, world.max_runs, self.turnstile if world.several else None)
        self.planner = Planner(self.runs, bases, clock, world.max_runs)
        runs = Runs(self.rollouts, world.executor, snapshots, clock, AllowLists(("/data",), ("acme.fading",)), bases, turns, recommenders)
        sources = Sources(kpis, SqlShadowTotals(engine))
        rollouts = Rollouts(self.rollouts, routes, registry, world.server, sources, self.placement, clock, world.loads)
        lines = ModelLineages(registry, self.runs, routes, forgotten)
        retrainers = Retrainers(self.retrainers, self.runs, self.rollouts, recommenders, routes, world.signals, lines, clock)
        self.ensure = retrainers.ensure
        self.replica = None if holder is None else Replica(holder, SqlLeases(engine), clock)
        if self.replica is not None:
            self.replica.beat()
        self._ticks: dict[str, Callable[[], object]] = {
            "run": Reconciler(runs, clock, self.replica).tick,
            "rollout": Reconciler(rollouts, clock, self.replica).tick,
            "placement": self.placement.tick,
            "retrainer": Reconciler(retrainers, clock, self.replica).tick,
        }

    def tick(self, *kinds: str) -> None:
        """In the order of the platform; all of it when no kind is named."""
        for kind, tick in self._ticks.items():
            if not kinds or kind in kinds:
                tick()


def but_the_card(files: Files) -> dict[str, str]:
    """What was published, without the card: that names its run, and the time of its snapshot."""
    return {name: file.sha256 for name, file in files.items() if name != CARD}


class World:
    """Everything that outlives the control plane; its own stores are those of the API and of the gateways."""

    def __init__(self, folder: Path, url: str, parts: Parts | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.url = url
        self.writes: list[str] = []
        """Every statement that wrote, or tried to."""
        self.parts = parts or Parts()
        self.loads: tuple[Any, ...] = ()
        """Who materialises; nobody."""
        self.clock = Clock()
        self.artifacts = FsspecArtifacts(str(folder / "artifacts"))
        self.more: dict[str, tuple[str, ...]] = {}
        """Further files that a stage publishes."""
        self.executor = Executor()
        self.fake_server = FakeModelServer()
        self.server: ModelServer = self.fake_server
        self.signals = Says()
        self.data = Data()
        self.max_runs = 4
        self.several = False
        """Control planes at a time, each of which must know what the others let in."""
        self.lives = 0
        self._engines: list[Engine] = []
        self.engine = engine = self.open()
        self.runs = SqlResources(engine, "run", RunStatus, RunSpec)
        self.rollouts = SqlResources(engine, "rollout", RolloutStatus, RolloutSpec)
        self.retrainers = SqlResources(engine, "retrainer", RetrainerStatus, RetrainerSpec)
        self.recommenders, self.registry, self.routes = SqlRecommenders(engine), SqlRegistry(engine), SqlRoutes(engine)
        self.events, self.mirrors, self.history = SqlEventLog(engine), SqlShadowTotals(engine), SqlFeatureHistory(engine)
        self.spec = spec()
        self.hero: tuple[str, str] = ("", "")
        """The row whose life is watched: its kind and id."""
        self.script: list[tuple[str, Callable[[], object]]] = []
        """What happens, in this order, each when the hero has reached the state."""
        self.plays: dict[str, list[str]] = {}
        """By stage, what becomes of its attempts: publish (also when nothing is said), crash, refuse, hang, starve, outgrow, evict."""
        self.metrics: dict[str, Mapping[str, float]] = dict(METRICS)
        self.facts: dict[str, Mapping[str, Any]] = {}
        self.gateways: tuple[str, ...] = ("gate-1",)
        self.users = 40
        """How many of the candidate come under each generation of the route, and of the stable version by the weight."""
        self.mirrored = ShadowCounts(200, 0, {60: 200}, {60: 200}, 150.0)
        """What gateways see of a shadow."""
        self.disliked: set[int] = set()
        self._came: set[int] = set()
        self._starved: set[str] = set()

    def open(self) -> Engine:
        engine = open_engine(self.url)
        use_clock(engine, self.clock)
        compile_once(engine)
        event.listen(engine, "before_cursor_execute", self._note)
        self._engines.append(engine)
        return engine

    def _note(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if WRITES.search(statement):
            self.writes.append(statement)

    def close(self) -> None:
        for engine in self._engines:
            engine.dispose()

    def plane(self, fate: Fate | None = None, holder: str | None = None) -> Plane:
        fate = fate or Fate("none")
        self.executor.fate = fate
        return Plane(self, fate, holder)

    # People

    def apply(self, **changes: Any) -> None:
        self.spec = spec(**changes)
        self.recommenders.put(self.spec, self.clock.now(), "ada")

    def another(self, name: str) -> str:
        """Applies the spec under another name; returns the name."""
        self.recommenders.put(self.spec.model_copy(update={"name": name}), self.clock.now(), "ada")
        return name

    def start_run(self, id: str = "r1", mode: Any = "full", serving: int | None = None, **terms: Any) -> RunRecord:
        self.recommenders.put(self.spec, self.clock.now(), "ada")
        run = new_run(self.recommenders.get(NAME), id, mode, "a test", serving, self.clock.now(), RunTerms("ada", **terms))
        self.hero = self.hero if self.hero[1] else ("run", id)
        return self.runs.create(run, "ada")

    def retry(self, old: str, id: str, stage: str | None = None) -> RunRecord:
        self.hero = ("run", id)
        return self.runs.create(retry_run(self.runs.get(old), stage, id, "again", self.clock.now(), by="ada"), "ada")

    def keep_warm(self, recommender: str) -> timedelta:
        return self.spec.rollout.keep_warm

    def start_rollout(self, version: int, id: str = "") -> RolloutRecord:
        id = id or f"o{version}"
        spec = RolloutSpec(version, self.spec.document())
        self.hero = self.hero if self.hero[1] else ("rollout", id)
        return self.rollouts.create(Record(id, NAME, spec, RolloutStatus(), self.clock.now(), self.clock.now()), "ada")

    def start_again(self, version: int, id: str = "again", reason: str = "it was the network") -> RolloutRecord:
        """By hand, as the API does it."""
        self.recommenders.put(self.spec, self.clock.now(), "ada")
        self.hero = ("rollout", id)
        asked = Request("start", "ada", reason)
        return self.rollouts.create(asked_rollout(self.recommenders.get(NAME), version, id, asked, self.clock.now()), "ada")

    def version(self, run: str = "", **changes: Any) -> int:
        """Registers a version without a run."""
        run = run or f"by-hand-{len(self.registry.list(NAME)) + 1}"
        values: dict[str, Any] = {"files": {}, "metrics": {"parity": 1e-7}, "lineage": LINEAGE, "parent": None, **changes}
        made = Version(NAME, 0, run, digest_of(values["files"]), **values, created_at=NOW)
        return self.registry.register(made).number

    def serve(self, version: int) -> None:
        self.routes.put(NAME, Route(version), self.clock.now(), "ada", "a test")

    def ask(self, verb: str, actor: str = "ada") -> None:
        kind, id = self.hero
        self.store(kind).ask(id, Request(verb, actor), self.clock.now())

    def store(self, kind: str) -> SqlResources[Any, Any]:
        stores: dict[str, SqlResources[Any, Any]] = {"run": self.runs, "rollout": self.rollouts, "retrainer": self.retrainers}
        return stores[kind]

    def row(self) -> Record[Any, Any]:
        kind, id = self.hero
        return self.store(kind).get(id)

    def path(self) -> list[str]:
        """The states that the hero has been in; twice in a row: a pass with effects that stayed."""
        kind, id = self.hero
        return [entry.target for entry in self.store(kind).history(id)]

    # Time

    def play(self) -> None:
        """The world's part of a round."""
        if self.script and self.row().status.state == self.script[0][0]:
            self.script.pop(0)[1]()
        self.work()
        self.report()

    def round(self, plane: Plane, *kinds: str) -> None:
        self.play()
        plane.tick(*kinds)
        self.clock.pass_by(seconds=1)

    def until(self, plane: Plane, state: str, *kinds: str) -> None:
        """Rounds until the hero is in the state."""
        for _ in range(ROUNDS):
            if self.row().status.state == state:
                return
            self.round(plane, *kinds)
        raise AssertionError(f"{self.hero} is {self.row().status} and not {state}")

    # Stages

    def work(self) -> None:
        """Every attempt that runs ends as it is to end."""
        for one in self.executor.started:
            job = self.executor.observe(one.attempt)
            if job is not None and job.phase == "waiting":
                self.executor.end(one.attempt, Job("running", since=self.clock.now()))
            elif job is not None and job.phase == "running":
                self._end(one, self._part(one))

    def _part(self, one: StageSpec) -> str:
        parts = self.plays.get(one.stage, [])
        earlier = [other for other in self.executor.started if (other.run, other.stage) == (one.run, one.stage)].index(one)
        return parts[earlier] if earlier < len(parts) else "publish"

    def _end(self, one: StageSpec, how: str) -> None:
        if how == "hang":
            return
        if how == "starve" and one.attempt not in self._starved:
            self._starved.add(one.attempt)
            self.executor.end(one.attempt, Job("waiting", "no node has a GPU free", "unschedulable"))
            return
        if how == "outgrow":
            self.executor.end(one.attempt, Job("failed", "out of memory", "memory"))
            return
        if how == "evict":
            self.executor.end(one.attempt, Job("failed", "its node was drained", "evicted"))
            return
        if how == "crash":
            self.executor.end(one.attempt, Job("failed", "killed by signal 9"))
            return
        self.publish(one.stage, one.attempt, one.run, Failure(kind="data", message="no column 'at'") if how == "refuse" else None)
        self.executor.end(one.attempt, Job("succeeded"))

    def publish(self, stage: StageName, attempt: str, run: str = "r1", failure: Failure | None = None) -> None:
        now = self.clock.now()
        path = self.folder / "output"
        path.write_text(f"{stage} of {run}")
        files = {f"{stage}.bin": self.artifacts.put(path)} | {name: self.artifacts.put(path) for name in self.more.get(stage, ())}
        metrics = dict(self.metrics.get(stage, {}))
        said: dict[str, Any] = {"files": files, "metrics": metrics, "facts": dict(self.facts.get(stage, {})), "failure": failure}
        self.artifacts.publish(Manifest(stage=stage, run=run, attempt=attempt, started=now, ended=now, **said))

    # Gateways and users

    def report(self) -> None:
        """Every gateway says what it serves; under each new generation the same users come, to both versions."""
        route = self.routes.get(NAME)
        if route is None:
            return
        for gateway in self.gateways:
            self.routes.report(gateway, {NAME: route.generation}, self.clock.now())
        if route.candidate is not None and route.generation not in self._came:
            self._came.add(route.generation)
            self.visit(route, "stable", route.stable)
            if not route.shadow:
                self.visit(route, "candidate", route.candidate)
        if route.shadow:
            self.mirrors.add(NAME, route.generation, "gate-1", self.mirrored)

    def visit(self, route: Route, variant: str, version: int) -> None:
        now = self.clock.now()
        share = route.weight if variant == "candidate" else 1 - route.weight
        users = range(round(self.users * share / (route.weight or 1)))
        asked = {f"{route.generation}-{variant}-{user}": user for user in users}
        common: dict[str, Any] = {"recommender": NAME, "version": version, "variant": variant, "generation": route.generation}
        self.events.impressions(
            [
                Impression(request_id=id, user=user, step=route.step, items=(user,), bucket=60, score=0.5, at=now, **common)
                for id, user in asked.items()
            ]
        )
        if version not in self.disliked:
            likes = [Interaction(recommender=NAME, user=user, item=user, request_id=id, at=now) for id, user in asked.items()]
            self.events.interactions(likes, [True] * len(likes), timedelta(seconds=1))
