"""The API over SQL stores and ports in memory, and clients with and without a token."""

from __future__ import annotations

import asyncio
import itertools
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from types import SimpleNamespace

import httpx

from services.api.app import create_app
from services.api.credentials import Credentials
from services.api.dependencies import AuthConfig, ControlParts, Features
from services.api.rate_limits import RateLimits
from services.control.forgetting import Forgetting, Forgotten
from services.eventlog.days import SqlEventDays
from services.featurestore.history import SqlFeatureHistory
from services.featurestore.sql import SqlFeatureStore
from services.gateway import Answer, Explained, IntakeResult
from services.gateway.event_intake import RefusedEvent
from services.gateway.score_and_similar import Scores, Similar
from services.gateway.scoring import AnswerExplanation
from services.monitor.earnings import Earning, EarningPoint, ItemSpread, VersionEarning, check_series
from services.monitor.empty_answers import EmptyAnswersLook
from services.monitor.kpi_history import RecentKpis, VersionHistories
from services.store.audit import SqlAudit
from services.store.catalogue import SqlCatalogue
from services.store.idempotency import SqlIdempotency
from services.store.sessions import SqlSessions
from services.store.tokens import SqlTokens
from shared.contracts.online import OnlineColumn, OnlineView
from shared.contracts.records import RetrainerSpec, RolloutSpec
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Manifest
from shared.datafiles import DataFiles
from shared.domain.access import Role, Token, digest, token_text
from shared.domain.earned import AnswerOutcomes
from shared.domain.entity_ids import UNFIXED, IdHash, IdKinds, IdReader
from shared.domain.errors import Changed, Conflict, Invalid, NotFound, Unavailable
from shared.domain.queue import UnfinishedRun, admit
from shared.domain.retention import Sweep
from shared.domain.rollout import RolloutStatus
from shared.domain.route import Route
from shared.domain.run import RunStatus, StageDone
from shared.domain.stage_reuse import RunForecast, StageForecast
from shared.domain.triggers import RetrainerObservation, RetrainerStatus
from shared.domain.warm_or_full import TrainingHistory
from shared.ports import EmptyAnswers, HistoryEntry, PutResult, Recommender, Record, ServerInfo, Version, Writing
from shared.testing.records import LINEAGE, RUN_SPEC
from tests.support.databases import empty_engine
from tests.support.drift_readings import look
from tests.support.forgotten import forgotten_users

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "a-token"
EARNED = AnswerOutcomes(100, 25, 5, 12_500_000, {"click": 40, "purchase": 5}, {2: 50, 1: 50}, {0: 20, 1: 5})


VIEW = OnlineView(
    name="user",
    columns=(
        OnlineColumn(name="age", dtype="int64"),
        OnlineColumn(name="mean", dtype="float32"),
        OnlineColumn(name="tags", dtype="string", width=2),
    ),
    ttl=timedelta(days=30),
    rows=610,
)


def earning():
    whole = Earning(EARNED, 0.5)
    return VersionEarning(EARNED, 0.5, {"stable": whole}, {"germany": whole}, ItemSpread(100, 0.5, 2.5))


def document(**changes):
    base = {
        "name": "m",
        "data": {"interactions": {"uri": "a.csv"}, "items": {"uri": "b.csv", "key": "movieId"}},
        "schema": {"user": "userId", "item": "movieId", "time": "t", "label": {"column": "rating", "positive": ">= 4"}},
    }
    return base | changes


@cache
def default_spec():
    return RecommenderSpec.model_validate(document())


def stored_document(**changes):
    """As rows have it: with all defaults."""
    return RecommenderSpec.model_validate(document(split={"by": "time", "refit": False}) | changes).document()


DEFAULT_DOCUMENT = stored_document()


class Client:
    """Asks the app without a socket. (Starlette's own TestClient wants a library that nothing else here needs.)"""

    def __init__(self, app, headers=None):
        self._app = app
        self._headers = headers

    def request(self, method, path, **rest):
        async def ask():
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=True)
            async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=self._headers) as http:
                return await http.request(method, path, **rest)

        return asyncio.run(ask())

    def get(self, path, **rest):
        return self.request("GET", path, **rest)

    def post(self, path, **rest):
        return self.request("POST", path, **rest)

    def put(self, path, **rest):
        return self.request("PUT", path, **rest)

    def delete(self, path, **rest):
        return self.request("DELETE", path, **rest)


class Rows:
    """A ResourceStore."""

    def __init__(self, what):
        self.what = what
        self.rows = {}
        self.past = [HistoryEntry(NOW, "", "pending", "created", "operator")]

    def create(self, record, actor):
        return self.rows.setdefault(record.id, record)

    def get(self, id):
        if id not in self.rows:
            raise NotFound(f"no {self.what} is called '{id}'")
        return self.rows[id]

    def list(
        self, recommender=None, *, active=None, states=None, among=None, dead_letter=None, since=None, until=None, limit=100, before=None
    ):
        found = sorted(self.rows.values(), key=lambda one: (one.created_at, one.id))[::-1]
        found = [one for one in found if recommender in (None, one.recommender) and (among is None or one.recommender in among)]
        found = [one for one in found if states is None or one.status.state in states]
        found = [one for one in found if (since is None or one.created_at >= since) and (until is None or one.created_at < until)]
        if dead_letter is not None:
            found = [one for one in found if one.status.dead_letter == dead_letter]
        if active is not None:
            ended = ("registered", "rejected", "failed", "cancelled", "promoted", "rolled_back", "aborted")
            found = [one for one in found if (one.status.state not in ended) == active]
        if before is not None:
            found = found[[one.id for one in found].index(before) + 1 :]
        return found[:limit]

    def ask(self, id, request, now, expected=None):
        if expected is not None and self.get(id).revision not in expected:
            raise Changed(f"{self.what} '{id}' is at revision {self.get(id).revision}")
        if self.get(id).request is not None:
            raise Conflict(f"{self.what} '{id}' still has a request open")
        self.rows[id] = replace(self.rows[id], request=request)
        return self.rows[id]

    def queued(self):
        return [
            UnfinishedRun(row.id, row.recommender, row.priority, row.created_at, row.status.state != "pending")
            for row in self.rows.values()
        ]

    def prioritise(self, record, priority, entry):
        self.rows[record.id] = replace(record, priority=priority)
        self.said = entry
        return self.rows[record.id]

    def history(self, id, limit=None, after=None):
        return [one for one in self.entries(id) if after is None or one.seq > after][:limit]

    def latest(self, id, limit, before=None):
        return [one for one in self.entries(id)[::-1] if before is None or one.seq < before][:limit]

    def entries(self, id):
        return [replace(one, seq=3 * place) for place, one in enumerate(self.past, 1)]


class Recommenders:
    def __init__(self, runs):
        self.runs = runs
        self.rows = {}
        self.past = set()
        self.busy = set()
        self.written = []

    def put(self, spec, now, actor, expected=None, make_run=None):
        before = self.rows.get(spec.name)
        generation, created_at = (before.generation + 1, before.created_at) if before else (1, now)
        after = Recommender(spec.name, generation, spec, created_at, now, before.ids if before else UNFIXED)
        run = make_run(after) if make_run else None
        if run is not None and run.id in self.runs.rows:
            return PutResult(before, False, self.runs.rows[run.id])
        if expected is not None and (before.generation if before else 0) not in expected:
            raise Changed(f"recommender '{spec.name}' has generation {before.generation if before else 0}")
        if before is not None and before.spec == spec:
            return PutResult(before, False)
        self.rows[spec.name] = after
        self.written.insert(0, (spec.name, Writing(generation, now, actor, spec.document())))
        if run is not None:
            self.runs.create(run, actor)
        return PutResult(after, True, run)

    def get(self, name):
        if name not in self.rows:
            raise NotFound(f"no recommender is called '{name}'")
        return self.rows[name]

    def fix_ids(self, name, kinds):
        before = self.get(name)
        ids = IdKinds(before.ids.user or kinds.user, before.ids.item or kinds.item)
        if any(kinds.of(entity) not in (None, ids.of(entity)) for entity in ("user", "item")):
            raise Conflict(f"recommender '{name}' has other ids")
        self.rows[name] = replace(before, ids=ids)
        return ids

    def list(self):
        return list(self.rows.values())

    def writings(self, name, limit, before=None):
        return [one for of, one in self.written if of == name and (before is None or one.generation < before)][:limit]

    def writing(self, name, generation):
        for one in self.writings(name, 1000):
            if one.generation == generation:
                return one
        raise NotFound(f"recommender '{name}' has no spec of generation {generation}")

    def heads(self):
        return {name: one.generation for name, one in self.rows.items()}

    def delete(self, name, now):
        if name not in self.past:
            self.get(name)
        if name in self.busy:
            raise Conflict(f"recommender '{name}' has work under way: run r1; cancel runs and abort rollouts first")
        self.rows.pop(name, None)
        self.past.add(name)


class Registry:
    def __init__(self):
        self.rows = []
        self.given = {}
        self.gone = {}

    def get(self, recommender, number):
        found = next((one for one in self.list(recommender) if one.number == number), None)
        if found is None:
            raise NotFound(f"recommender '{recommender}' has no version {number}")
        return found

    def tag(self, recommender, number, tag, now, actor):
        self.get(recommender, number)
        before, self.given[tag] = self.given.get(tag), number
        return before

    def untag(self, recommender, number, tag):
        if self.given.get(tag) != number:
            raise NotFound(f"version {number} of '{recommender}' has no tag '{tag}'")
        del self.given[tag]

    def tags(self, recommender):
        return dict(self.given)

    def collected(self, recommender):
        return dict(self.gone)

    def list(self, recommender):
        return [one for one in self.rows if one.recommender == recommender]

    def of_run(self, run):
        return next((one for one in self.rows if one.run == run), None)


class Routes:
    def __init__(self):
        self.rows = {}
        self.before = {}
        self.said = []
        self.past = []
        self.heard = []

    def get(self, name):
        return self.rows.get(name)

    def gateways(self, since):
        return [one for one in self.heard if one.heard_at >= since]

    def history(self, name, limit=100, before=None):
        found = [one for one in self.past if before is None or one.route.generation < before]
        return found[::-1][:limit]

    def at(self, name, at):
        return next((one for one in self.past[::-1] if one.route.since <= at), None)

    def all(self):
        return dict(self.rows)

    def previous(self, name):
        return self.before.get(name)

    def put(self, name, route, now, actor, reason):
        self.said.append((actor, reason))
        self.rows[name] = replace(route, generation=self.rows[name].generation + 1, since=now)
        return self.rows[name]


class Server:
    def __init__(self):
        self.versions = frozenset()
        self.replicas = ()
        self.away = False

    def answering(self, recommender):
        return self.versions

    def info(self):
        if self.away:
            raise Unavailable("Triton doesn't answer")
        model = {"name": "eyas-m_1", "version": "1", "state": "READY", "recommender": "m"}
        return ServerInfo("2.51.0", (model,), self.replicas)

    def successes(self):
        return {("m", 1): 7}


class Gateway:
    def __init__(self):
        self.asked = []
        self.recorded, self.trials = [], []
        self.fails = None
        self.kinds = IdKinds("integer", "integer")

    def ids(self, name):
        return IdReader(self.kinds, IdHash(b"test"))

    def submit(self, question):
        if self.fails:
            raise self.fails
        self.asked.append((question.recommender, question.user, question.k, sorted(question.exclude), question.context))
        found = Future()
        self.trials.append(question.trial)
        dropped = {"seen before, or excluded": 20}
        explained = (
            Explained(AnswerExplanation(500, 480, True, 1, ((), ("boosted",)), dropped), 3, {"score": 0.0125}) if question.explain else None
        )
        found.set_result(Answer("q1", question.recommender, 1, "stable", ((10, 0.5), (20, None)), None, explained))
        return found

    def submit_scores(self, name, user, items):
        if self.fails:
            raise self.fails
        found = Future()
        found.set_result(Scores(1, "stable", [(item, 0.5 if item == 10 else None) for item in items]))
        return found

    def similar(self, name, item, k, exclude, context):
        if self.fails:
            raise self.fails
        self.asked.append((name, item, k, sorted(exclude), context))
        return Similar(1, [(20, 0.5)])

    def record(self, events, sees, partial=False):
        unseen = [index for index, one in enumerate(events) if not sees(one.recommender)]
        for index in unseen:
            message = f"recommender: unknown recommender '{events[index].recommender}'"
            if not partial:
                raise Invalid(f"events.{index}.{message}")
        self.recorded += [one for index, one in enumerate(events) if index not in unseen]
        return IntakeResult(len(events) - len(unseen), 1, refused=[RefusedEvent(index, message) for index in unseen])


class Executor:
    def __init__(self):
        self.text = {}

    def log(self, attempt, offset=0):
        text = self.text.get(attempt, "")
        return text[offset:], len(text)


class World:
    """Of several worlds, the newest has the database."""

    def __init__(self, stage_faults=lambda spec: {}, limits=None, engine=None, provider=None, role_rules=(), token=TOKEN):
        self.engine = engine = engine or empty_engine()
        self.limits = limits or RateLimits()
        self.stage_faults = stage_faults
        self.runs, self.rollouts, self.retrainers = Rows("run"), Rows("rollout"), Rows("retrainer")
        self.recommenders = Recommenders(self.runs)
        self.registry, self.routes, self.server, self.gateway, self.executor = Registry(), Routes(), Server(), Gateway(), Executor()
        self.manifests, self.blobs = {}, {}
        self.catalogue = SqlCatalogue(engine)
        self.views, self.unloaded, self.asked_again, self.dropped = {}, set(), [], []
        self.stored, self.history = stores = (SqlFeatureStore(engine), SqlFeatureHistory(engine))
        self.tokens, self.audit, self.answers = SqlTokens(engine), SqlAudit(engine), SqlIdempotency(engine)
        self.sessions, self.provider, self.role_rules, self.first_token = SqlSessions(engine), provider, role_rules, token
        self.numbers = itertools.count(1)
        self.waiting, self.told = [], {}
        self.swept = []
        self.woken = 0
        self.forgotten = []
        self.forgetting_fault = None
        self.seen = RetrainerObservation(serving=True)
        self.past = TrainingHistory()
        self.more_roots: tuple[str, ...] = ()
        self.empty = EmptyAnswersLook(EmptyAnswers(40, 2), 0.2)
        self.look = look(genres=0.31)
        self.life = VersionHistories(NOW, NOW + timedelta(minutes=2), timedelta(minutes=1), None, {}, 0)
        ticks = itertools.count()
        self.clock = SimpleNamespace(now=lambda: NOW + timedelta(microseconds=next(ticks)))
        self.ledger = forgotten_users(engine)
        write = Forgetting(self.ledger, stores, self.registry, self.clock, timedelta(days=30)).write_values
        self.features = Features(self.stored, write, self.views_of, self.is_loaded, self.load_again, self.dropped.append)
        self.app = create_app(self.door(), self.parts(), self.gateway)
        self.stranger = Client(self.app)
        self.client = Client(self.app, headers={"Authorization": f"Bearer {TOKEN}"})

    def progress(self, attempt):
        return self.told.get(attempt)

    def door(self):
        self.credentials = Credentials(self.first_token, self.tokens, self.sessions, self.clock, self.provider, self.role_rules)
        return AuthConfig(self.clock, self.credentials, self.sessions, self.answers, lambda: self.waiting, self.limits)

    def data(self):
        return DataFiles(("/nowhere/data", *self.more_roots))

    def parts(self):
        def wake():
            self.woken += 1

        return ControlParts(
            recommenders=self.recommenders,
            runs=self.runs,
            rollouts=self.rollouts,
            retrainers=self.retrainers,
            registry=self.registry,
            routes=self.routes,
            catalogue=self.catalogue,
            features=self.features,
            executor=self.executor,
            artifacts=SimpleNamespace(manifest=self.manifests.get, read=lambda file: self.blobs[file.sha256], progress=self.progress),
            server=self.server,
            clock=self.clock,
            ids=IdHash(b"test"),
            days=SqlEventDays(self.engine),
            tokens=self.tokens,
            audit=self.audit,
            kpis=lambda name, window: {2: earning()},
            series=lambda name, window, step, points: {
                2: [EarningPoint(NOW, Earning(EARNED, 0.5))] * (points - check_series(window, step, points))
            },
            empty=lambda name: self.empty,
            life=lambda name, asked: self.life,
            lately=self.lately,
            drift=self.drift,
            liked=lambda name: (312, 2000),
            collect=self.collect,
            turns=lambda: admit(self.runs.queued(), 1),
            plan=self.plan,
            watch=lambda name: self.seen,
            past=lambda recommender: self.past,
            forget=self.forget,
            keyed_hash=lambda text: f"hash-of-{len(text)}",
            stage_faults=self.stage_faults,
            check_place=lambda place: self.data().check(place),
            read_file=lambda uri, most: self.data().read(uri, most),
            place_fault=lambda place: self.data().fault(place),
            table_header=lambda place: self.data().header(place),
            table_changed_at=lambda place: self.data().changed_at(place),
            wake=wake,
        )

    def forget(self, name, key):
        if self.forgetting_fault is not None:
            raise self.forgetting_fault
        self.forgotten.append((name, key))
        return Forgotten(NOW, 3, 2, 1, (1, 2), NOW + timedelta(days=30))

    def drift(self, name):
        if isinstance(self.look, Exception):
            raise self.look
        return self.look

    def lately(self, known, points, window):
        serving = {name: route.stable for name, route in self.routes.all().items()}
        return {
            recommender.name: RecentKpis(self.life.newest, self.life.versions.get(serving[recommender.name], ()))
            for recommender in known
            if recommender.name in serving
        }

    def holder(self, role, recommenders=None, **changes):
        """A client with a token of its own."""
        number = next(self.numbers)
        text = token_text(f"t{number:016d}", bytes([number] * 32))
        scope = None if recommenders is None else frozenset(recommenders)
        fields = {"created_at": NOW, "created_by": "owner"} | changes
        self.tokens.add(Token(f"t{number:016d}", f"holder-{number}", digest(text), Role(role), scope, **fields))
        return Client(self.app, headers={"Authorization": f"Bearer {text}"})

    def read(self, version, *views):
        """These are what the version reads."""
        self.views["m", version] = views

    def views_of(self, name, version):
        return self.views.get((name, version), ())

    def is_loaded(self, name, version):
        return version not in self.unloaded

    def load_again(self, name):
        self.asked_again.append(name)
        return 2

    def collect(self, dry):
        self.swept.append(dry)
        return Sweep(versions=[("m", 1)], attempts=["r1-etl-1"], blobs=3, bytes=7)

    def plan(self, record):
        self.planned = record
        foreseen = (
            StageForecast("etl", "reuse", "r1-etl-1", "nothing has changed since r1-etl-1"),
            StageForecast("train", "open", None, "it depends", 12.5, "8Gi"),
        )
        return RunForecast("waits for run r1", foreseen, ("auc at least 0.6",), {"a.csv": "1 byte"})

    def add_recommender(self, **changes):
        spec = RecommenderSpec.model_validate(document(**changes)) if changes else default_spec()
        return self.recommenders.put(spec, NOW, "operator").recommender

    def add_run(self, id="r1", state="pending", stages=(), **status):
        done = tuple(StageDone(stage, f"{id}-{stage}-1", NOW, NOW) for stage in stages)
        spec = replace(RUN_SPEC, document=deepcopy(DEFAULT_DOCUMENT))
        record = Record(id, "m", spec, RunStatus(state=state, stages=done, **status), NOW, NOW)
        return self.runs.create(record, "operator")

    def add_rollout(self, id="r1-rollout", state="canary", version=2, created_at=NOW, **status):
        record = Record(id, "m", RolloutSpec(version, deepcopy(DEFAULT_DOCUMENT)), RolloutStatus(state=state, **status), created_at, NOW)
        return self.rollouts.create(record, "eyas")

    def add_version(self, number=1, run="r1", files=None):
        self.registry.rows.append(Version("m", number, run, "d", files or {}, {"candidate.hr@10": 0.4}, LINEAGE, None, NOW))

    def add_retrainer(self, state="watching", **status):
        return self.retrainers.create(Record("m", "m", RetrainerSpec(), RetrainerStatus(state=state, **status), NOW, NOW), "eyas")

    def add_manifest(self, attempt, files=None, **metrics):
        run, stage, _ = attempt.split("-")
        made = {"stage": stage, "run": run, "attempt": attempt, "started": NOW, "ended": NOW}
        self.manifests[attempt] = Manifest(**made, files=files or {}, metrics=metrics)

    def route(self, stable=1, **fields):
        self.routes.rows["m"] = Route(stable, **{"generation": 3, "since": NOW, **fields})
