"""Dashboard of the platform: processes, control plane, events and database."""

from __future__ import annotations

from dashboards.asked import newest, quantile, rate, total
from dashboards.board import Board, Row
from dashboards.form import BYTES, COUNT, PER_SECOND, PLAIN, SECONDS, Query, lines, number

OURS = " and on (job, instance) eyas_impressions_waiting"
"""Selects Eyas processes: each exports this gauge."""
PLACE = "{{job}} {{instance}}"


def _process(metric: str) -> Query:
    return Query(f"{metric}{OURS}", PLACE)


def _everywhere(metric: str, *by: str) -> Query:
    return Query(rate(metric, *by, where=""), " ".join(f"{{{{{one}}}}}" for one in by) or "all")


PROCESSES = Row(
    "Processes",
    [
        number(
            "Processes",
            COUNT,
            "Control planes and gateways that Prometheus reaches.",
            "install-on-kubernetes.md",
            Query("count(eyas_impressions_waiting)"),
        ),
        number(
            "Recommenders that serve",
            COUNT,
            "With a stable version.",
            "install-on-kubernetes.md",
            Query("count(max by (recommender) (eyas_serving_version))"),
        ),
        lines("Memory", BYTES, "Resident, by process.", "install-on-kubernetes.md", _process("process_resident_memory_bytes")),
        lines(
            "CPU",
            PLAIN,
            "Cores in use, by process. A gateway near one core wants another gateway.",
            "operate.md#eyasrequestsrefused",
            Query(f"rate(process_cpu_seconds_total[$__rate_interval]){OURS}", PLACE),
        ),
        lines("Open files", COUNT, "A line that only rises is a leak.", "install-on-kubernetes.md", _process("process_open_fds")),
    ],
)
CONTROL = Row(
    "Control plane",
    [
        lines(
            "Passes",
            PER_SECOND,
            "Of the loop over rows, by kind: run, rollout, retrainer.",
            "operate.md#eyascontrolfaults",
            _everywhere("eyas_reconcile_seconds_count", "kind"),
        ),
        lines(
            "Time of a pass, 99 of 100",
            SECONDS,
            "Slow passes make everything late: the database, the cluster's API or the artifact store is slow.",
            "operate.md#eyascontrolfaults",
            Query(quantile(0.99, "eyas_reconcile_seconds", "kind", where=""), "{{kind}}"),
        ),
        lines(
            "Passes that failed",
            PER_SECOND,
            "And are tried again. Now and then one is no harm.",
            "operate.md#eyascontrolfaults",
            _everywhere("eyas_reconcile_faults_total", "kind"),
        ),
        lines(
            "Refused without a good token",
            PER_SECOND,
            "By what was wrong with it.",
            "install-on-kubernetes.md",
            _everywhere("eyas_api_refusals_total", "reason"),
        ),
        lines(
            "Refused by a limit",
            PER_SECOND,
            "Rates of tokens and recommenders, sizes of bodies, pending runs.",
            "operate.md#limits-of-clients",
            _everywhere("eyas_api_limited_total", "limit"),
        ),
        lines(
            "Connections",
            COUNT,
            "Open ones of the API and of /metrics, and the most that may be open.",
            "operate.md#limits-of-the-http-server",
            Query(newest("eyas_http_connections", "port", where=""), "{{port}}"),
            Query(newest("eyas_http_connections_limit", "port", where=""), "{{port}}, limit"),
        ),
        lines(
            "Connections closed by a limit",
            PER_SECOND,
            "By the limit that was passed.",
            "operate.md#limits-of-the-http-server",
            _everywhere("eyas_http_connections_closed_total", "port", "reason"),
        ),
        lines(
            "Rows of users' values loaded",
            PER_SECOND,
            "Put into the feature store for versions that are to take traffic.",
            "features.md",
            _everywhere("eyas_features_loaded_total", "recommender"),
        ),
        lines(
            "Rows of users' values written",
            PER_SECOND,
            "By the API, by view.",
            "features.md",
            _everywhere("eyas_features_written_total", "recommender", "view"),
        ),
        lines(
            "Parts of values that wait",
            COUNT,
            "A version takes no traffic while any of its own waits.",
            "features.md",
            Query(newest("eyas_feature_parts_waiting", where=""), "waiting"),
        ),
    ],
)
EVENTS = Row(
    "Events",
    [
        lines(
            "Interactions",
            PER_SECOND,
            "Taken in by all gateways.",
            "operate.md#eyaseventslag",
            _everywhere("eyas_interactions_total", "recommender"),
        ),
        lines(
            "Messages that wait for the database",
            COUNT,
            "Of NATS. Hit rates, triggers and rollouts lag behind by as much. Nothing with events in SQL alone.",
            "operate.md#eyaseventslag",
            Query(newest("eyas_events_waiting", where=""), "waiting"),
        ),
        lines(
            "Carried from NATS",
            PER_SECOND,
            "Interactions that came from the stream into the database.",
            "operate.md#eyaseventslag",
            _everywhere("eyas_events_joined_total"),
        ),
        lines(
            "Impressions that wait",
            COUNT,
            "Answers that went out and aren't in the event log yet: the database is away.",
            "operate.md#eyasimpressionswait",
            Query(total("eyas_impressions_waiting", where=""), "waiting"),
        ),
        lines(
            "Impressions lost",
            COUNT,
            "Since the gateways began. Clicks on them count for no answer.",
            "operate.md#eyasimpressionslost",
            Query(total("eyas_impressions_lost_total", "recommender", where=""), "{{recommender}}"),
        ),
        lines(
            "Duplicates and conflicts",
            PER_SECOND,
            "Events of an id that was there already, and those among them that say something else.",
            "kpis.md",
            Query(rate("eyas_duplicate_events_total", where=""), "duplicates"),
            Query(rate("eyas_conflicting_events_total", where=""), "conflicts"),
        ),
    ],
)
DATABASE = Row(
    "Database",
    [
        lines(
            "Statements",
            PER_SECOND,
            "By what they do, of all processes.",
            "operate.md#eyascontrolfaults",
            _everywhere("eyas_database_seconds_count", "operation"),
        ),
        lines(
            "Time of a statement, 99 of 100",
            SECONDS,
            "Commits are not in it. `begin` waits for other processes that write (SQLite).",
            "operate.md#eyasimpressionswait",
            Query(quantile(0.99, "eyas_database_seconds", "operation", where=""), "{{operation}}"),
        ),
        lines(
            "Statements that failed",
            PER_SECOND,
            "The database was away, busy, full or damaged.",
            "operate.md#eyasimpressionswait",
            _everywhere("eyas_database_faults_total"),
        ),
    ],
)
BOARD = Board(
    "platform",
    "platform",
    "Processes, control plane, events and database: is the platform itself well?",
    (PROCESSES, CONTROL, EVENTS, DATABASE),
    recommenders=False,
)
