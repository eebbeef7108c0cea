"""The state that every role uses: database stores, event log, features and artifacts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from services.eventlog.days import SqlEventDays
from services.eventlog.deletion import SqlEventDeletion
from services.eventlog.drift_samples import SqlDriftSamples
from services.eventlog.forgetting import SqlForgottenUsers
from services.eventlog.jetstream import JetStreamEventLog, Joiner
from services.eventlog.kpis import SqlKpis
from services.eventlog.nats import JetStream
from services.eventlog.sql import SqlEventLog
from services.featurestore.history import SqlFeatureHistory
from services.featurestore.redis import RedisFeatureStore
from services.featurestore.sql import SqlFeatureStore
from services.home import Home
from services.settings import Settings
from services.store.audit import SqlAudit
from services.store.catalogue import SqlCatalogue
from services.store.changes import Changes
from services.store.clock import DatabaseClock
from services.store.database_files import AWAY, FULL
from services.store.disk import Disk
from services.store.engine import missing_file, open_engine, sqlite_url
from services.store.expiring_rows import SqlExpiringRows
from services.store.idempotency import SqlIdempotency
from services.store.installation import id_hash, installation_id
from services.store.leases import SqlLeases
from services.store.migrate import renew_readable_by, upgrade
from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.routes import SqlRoutes
from services.store.sessions import SqlSessions
from services.store.shadow_totals import SqlShadowTotals
from services.store.stage_outputs import SqlStageOutputs
from services.store.tokens import SqlTokens
from shared.artifacts import FsspecArtifacts
from shared.contracts.records import RetrainerSpec, RolloutSpec, RunSpec
from shared.domain.errors import EyasError, Invalid
from shared.domain.forgetting import UserDigest
from shared.domain.rollout import RolloutStatus
from shared.domain.run import RunStatus
from shared.domain.triggers import RetrainerStatus
from shared.ports import EventLog, FeatureStore
from shared.telemetry.outages import Outages

log = logging.getLogger(__name__)


def database_url(settings: Settings, home: Home, artifacts: FsspecArtifacts) -> str:
    """Raises Invalid if a SQLite database is missing but artifacts exist: with an empty one the collector would erase them."""
    url = settings.database_url.get_secret_value() if settings.database_url else sqlite_url(home.database)
    lost = missing_file(url)
    if lost is not None and not artifacts.is_empty():
        raise Invalid(
            f"database {lost} is missing or empty, but {artifacts.url} has artifacts of an earlier database: move the database's files back"
            f" or restore a backup; to start empty, move {artifacts.url} away"
        )
    return url


class State:
    """Opens the state and migrates the database; further processes wait for the migration and find nothing to do."""

    def __init__(self, settings: Settings, home: Home, undo: ExitStack) -> None:
        self._outages = Outages(log)
        self.artifacts = FsspecArtifacts(settings.artifacts_url or str(home.artifacts))
        engine = open_engine(database_url(settings, home, self.artifacts), settings.password())
        undo.callback(engine.dispose)
        upgrade(engine)
        alone = settings.role == "all" and engine.dialect.name == "sqlite"
        self.changes = Changes(engine, alone=alone)
        self.clock = DatabaseClock(engine)
        self.ids = id_hash(engine)
        with engine.connect() as connection:
            self.installation = installation_id(connection)
        self.runs = SqlResources(engine, "run", RunStatus, RunSpec, settings.max_pending_runs)
        self.rollouts = SqlResources(engine, "rollout", RolloutStatus, RolloutSpec)
        self.retrainers = SqlResources(engine, "retrainer", RetrainerStatus, RetrainerSpec)
        self.recommenders = SqlRecommenders(engine, settings.max_pending_runs)
        self.registry = SqlRegistry(engine)
        self.routes = SqlRoutes(engine, alone=alone)
        self.outputs = SqlStageOutputs(engine)
        self.leftovers = SqlExpiringRows(engine, keeps_unexported=settings.audit_export is not None)
        self.leases = SqlLeases(engine)
        self.tokens = SqlTokens(engine)
        self.sessions = SqlSessions(engine)
        self.audit = SqlAudit(engine)
        self.answers = SqlIdempotency(engine)
        digest = UserDigest.of_installation(self.ids.secret)
        self.forgotten = SqlForgottenUsers(engine, digest, partial(renew_readable_by, engine))
        joined = SqlEventLog(engine, digest)
        self.events: EventLog = joined
        self.joiner: Joiner | None = None
        place = settings.events.get_secret_value()
        if place != "sql":
            stream = JetStream(place)
            undo.callback(stream.close)
            self.events, self.joiner = JetStreamEventLog(stream, joined), Joiner(stream, joined)
        self.features: FeatureStore = SqlFeatureStore(engine)
        self.feature_history = SqlFeatureHistory(engine)
        place = settings.features.get_secret_value()
        if place != "sql":
            redis = RedisFeatureStore(place)
            undo.callback(redis.close)
            self.features = redis
        self.kpis = SqlKpis(engine)
        self.days = SqlEventDays(engine)
        self.deletion = SqlEventDeletion(engine, partial(renew_readable_by, engine))
        self.sightings = SqlDriftSamples(engine)
        self.mirrors = SqlShadowTotals(engine)
        self.catalogue = SqlCatalogue(engine)
        self._disk = Disk(engine)

    def missing(self) -> Sequence[str]:
        """Returns what does not answer now. Everybody sees the answer, so details go to the log only."""
        try:
            self.routes.all()
            self._disk.check()
        except EyasError as error:
            self._outages.fail("", "readiness: failed error=%s", error, level=logging.WARNING)
            return [FULL if error.answer == FULL else AWAY]
        self._outages.succeed("", "readiness: recovered")
        return []
