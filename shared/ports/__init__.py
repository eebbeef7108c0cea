"""The ports: what the decisions need of the world, each as small as its callers allow.

Adapters implement them (services/store, executors, triton, eventlog; shared/artifacts); shared/testing holds one conformance
suite a port and a fake that passes it. A port is here when something calls it.
"""

from shared.ports.access import Answer, Answers, Audited, AuditLog, TokenStore
from shared.ports.clock import Clock
from shared.ports.events import EventDays, EventLog, HitRate, KpiSource, Like, Newest, Scored, Sightings
from shared.ports.features import Catalogue, CatalogueHead, CatalogueItem, FeatureHistory, FeatureRows, FeatureStore
from shared.ports.registry import (
    DataSource,
    GatewayReport,
    MakeRun,
    PutResult,
    Recommender,
    RecommenderStore,
    Registry,
    RouteEntry,
    RouteStore,
    StageOutputs,
    Version,
    Writing,
)
from shared.ports.retention import Attic, Discarded, Leftovers, Pin, Shelf, Stored
from shared.ports.serving import CandidateIndex, Indexes, IngestResult, Mirrors, ModelServer, Scorer, ServedUnit, ServerInfo, ServerReplica
from shared.ports.signals import Activity, Signals, SignalSource
from shared.ports.stages import ArtifactStore, Executor
from shared.ports.state import (
    LONGEST_TERM,
    REPLICAS,
    Due,
    HistoryEntry,
    Leases,
    Record,
    ResourceStore,
    RetrainerStore,
    RolloutStore,
    RunStore,
    replica_lease,
)

__all__ = [
    "LONGEST_TERM",
    "REPLICAS",
    "Activity",
    "Answer",
    "Answers",
    "ArtifactStore",
    "Attic",
    "AuditLog",
    "Audited",
    "CandidateIndex",
    "Catalogue",
    "CatalogueHead",
    "CatalogueItem",
    "Clock",
    "DataSource",
    "Discarded",
    "Due",
    "EventDays",
    "EventLog",
    "Executor",
    "FeatureHistory",
    "FeatureRows",
    "FeatureStore",
    "GatewayReport",
    "HistoryEntry",
    "HitRate",
    "Indexes",
    "IngestResult",
    "KpiSource",
    "Leases",
    "Leftovers",
    "Like",
    "MakeRun",
    "Mirrors",
    "ModelServer",
    "Newest",
    "Pin",
    "PutResult",
    "Recommender",
    "RecommenderStore",
    "Record",
    "Registry",
    "ResourceStore",
    "RetrainerStore",
    "RolloutStore",
    "RouteEntry",
    "RouteStore",
    "RunStore",
    "Scored",
    "Scorer",
    "ServedUnit",
    "ServerInfo",
    "ServerReplica",
    "Shelf",
    "Sightings",
    "SignalSource",
    "Signals",
    "StageOutputs",
    "Stored",
    "TokenStore",
    "Version",
    "Writing",
    "replica_lease",
]
