"""Dashboard of the platform: service levels, processes, control plane, events and database."""

from __future__ import annotations

from dashboards.asked import newest, quantile, rate, total
from dashboards.board import Board, Row
from dashboards.form import BYTES, COUNT, PER_SECOND, PLAIN, REQUESTS, SECONDS, SHARE, Query, bars, lines, number

OURS = " and on (job, instance) eyas_impressions_waiting"
"""Selects Eyas processes: each exports this gauge."""
PLACE = "{{job}} {{instance}}"
OBJECTIVE = "{{slo}} {{recommender}}"


def _process(metric: str) -> Query:
    return Query(f"{metric}{OURS}", PLACE)


def _everywhere(metric: str, *by: str) -> Query:
    return Query(rate(metric, *by, where=""), " ".join(f"{{{{{one}}}}}" for one in by) or "all")


def _burning(window: str) -> Query:
    """The highest burn rates: a platform may have a thousand recommenders."""
    return Query(f"topk(5, eyas:slo_burn:rate{window})", f"{OBJECTIVE}, {window}")


LEVELS = Row(
    "Service levels",
    [
        bars(
            "Objectives",
            SHARE,
            "Share of requests that may fail or be slow in 30 days. The panels of this row need the rules of Prometheus.",
            "operate.md#objectives-and-their-budgets",
            Query("eyas:slo_budget:ratio", "{{slo}}"),
        ),
        bars(
            "Budget spent in 30 days",
            SHARE,
            "Above 100 % the objective is missed. Shows the ten highest.",
            "operate.md#objectives-and-their-budgets",
            Query("topk(10, eyas:slo_budget_spent:ratio30d)", OBJECTIVE),
        ),
        lines(
            "Burn rates",
            PLAIN,
            "Failures in units of the budget: at 1 the budget lasts 30 days, at 14.4 two days. Shows the five highest for each window.",
            "operate.md#objectives-and-their-budgets",
            _burning("1h"),
            _burning("6h"),
            _burning("3d"),
        ),
        lines(
            "Requests to the control plane",
            REQUESTS,
            "Requests by kind and outcome: ok, refused (4xx), error (5xx).",
            "operate.md#eyascontrolerrorbudgetburnsfast",
            _everywhere("eyas_api_requests_total", "kind", "outcome"),
        ),
        lines(
            "Answer time of the control plane",
            SECONDS,
            "Median and 99th percentile of successful answers, without streams, exports, specs and bulk data.",
            "operate.md#eyascontrollatencybudgetburnsfast",
            Query(quantile(0.5, "eyas_api_seconds", "kind", where=""), "{{kind}} median"),
            Query(quantile(0.99, "eyas_api_seconds", "kind", where=""), "{{kind}} 99th percentile"),
        ),
        lines(
            "Ready processes",
            COUNT,
            "Number of control planes and gateways that are ready.",
            "operate.md#eyascontrolunavailable",
            Query(total("eyas_ready", "part", where=""), "{{part}}"),
        ),
    ],
)
PROCESSES = Row(
    "Processes",
    [
        number(
            "Processes",
            COUNT,
            "Number of control planes and gateways that Prometheus reaches.",
            "install-on-kubernetes.md",
            Query("count(eyas_impressions_waiting)"),
        ),
        number(
            "Serving recommenders",
            COUNT,
            "Number of recommenders with a stable version.",
            "install-on-kubernetes.md",
            Query("count(max by (recommender) (eyas_serving_version))"),
        ),
        lines("Memory", BYTES, "Resident memory, by process.", "install-on-kubernetes.md", _process("process_resident_memory_bytes")),
        lines(
            "CPU",
            PLAIN,
            "Used cores, by process. If a gateway is near one core, add another gateway.",
            "operate.md#eyasrequestsrefused",
            Query(f"rate(process_cpu_seconds_total[$__rate_interval]){OURS}", PLACE),
        ),
        lines("Open files", COUNT, "By process; a steady rise is a leak.", "install-on-kubernetes.md", _process("process_open_fds")),
    ],
)
CONTROL = Row(
    "Control plane",
    [
        lines(
            "Passes",
            PER_SECOND,
            "Passes of the control loops, by kind: run, rollout, retrainer.",
            "operate.md#eyascontrolfaults",
            _everywhere("eyas_reconcile_seconds_count", "kind"),
        ),
        lines(
            "Pass time, 99th percentile",
            SECONDS,
            "Slow passes delay all work: check the database, the cluster's API and the artifact store.",
            "operate.md#eyascontrolfaults",
            Query(quantile(0.99, "eyas_reconcile_seconds", "kind", where=""), "{{kind}}"),
        ),
        lines(
            "Failed passes",
            PER_SECOND,
            "Failed passes are retried. Single failures are harmless.",
            "operate.md#eyascontrolfaults",
            _everywhere("eyas_reconcile_faults_total", "kind"),
        ),
        lines(
            "Rejected tokens",
            PER_SECOND,
            "Requests without a valid token, by reason.",
            "install-on-kubernetes.md",
            _everywhere("eyas_api_refusals_total", "reason"),
        ),
        lines(
            "Rejected by a limit",
            PER_SECOND,
            "Requests above a limit: rates of tokens and recommenders, body sizes, pending runs.",
            "operate.md#limits-of-clients",
            _everywhere("eyas_api_limited_total", "limit"),
        ),
        lines(
            "Connections",
            COUNT,
            "Open connections of the API and of /metrics, and their limits.",
            "operate.md#limits-of-the-http-server",
            Query(newest("eyas_http_connections", "port", where=""), "{{port}}"),
            Query(newest("eyas_http_connections_limit", "port", where=""), "{{port}}, limit"),
        ),
        lines(
            "Connections closed by a limit",
            PER_SECOND,
            "Closed connections, by limit.",
            "operate.md#limits-of-the-http-server",
            _everywhere("eyas_http_connections_closed_total", "port", "reason"),
        ),
        lines(
            "Loaded rows of users' values",
            PER_SECOND,
            "Rows loaded into the feature store for new versions.",
            "features.md",
            _everywhere("eyas_features_loaded_total", "recommender"),
        ),
        lines(
            "Written rows of users' values",
            PER_SECOND,
            "Rows that clients wrote through the API, by view.",
            "features.md",
            _everywhere("eyas_features_written_total", "recommender", "view"),
        ),
        lines(
            "Waiting parts of users' values",
            COUNT,
            "Parts that are not loaded yet. A version takes no traffic until all its parts are loaded.",
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
            "Events accepted by all gateways.",
            "operate.md#eyaseventslag",
            _everywhere("eyas_interactions_total", "recommender"),
        ),
        lines(
            "Messages waiting for the database",
            COUNT,
            "Messages in NATS. Hit rates, triggers and rollouts lag behind by them. Empty without NATS.",
            "operate.md#eyaseventslag",
            Query(newest("eyas_events_waiting", where=""), "waiting"),
        ),
        lines(
            "Copied from NATS",
            PER_SECOND,
            "Events copied from the stream into the database.",
            "operate.md#eyaseventslag",
            _everywhere("eyas_events_joined_total"),
        ),
        lines(
            "Waiting impressions",
            COUNT,
            "Impressions that are not in the event log yet, because the database does not answer.",
            "operate.md#eyasimpressionswait",
            Query(total("eyas_impressions_waiting", where=""), "waiting"),
        ),
        lines(
            "Lost impressions",
            COUNT,
            "Lost impressions since the start of the gateways. Clicks on them are not attributed.",
            "operate.md#eyasimpressionslost",
            Query(total("eyas_impressions_lost_total", "recommender", where=""), "{{recommender}}"),
        ),
        lines(
            "Duplicates and conflicts",
            PER_SECOND,
            "Events with a known id; conflicts have different content.",
            "kpis.md",
            Query(rate("eyas_duplicate_events_total", where=""), "duplicates"),
            Query(rate("eyas_conflicting_events_total", where=""), "conflicts"),
        ),
        lines(
            "Old events",
            PER_SECOND,
            "Events deleted from the database, which daily files have; and events left out because their day is refused.",
            "operate.md#what-is-kept-and-for-how-long",
            Query(rate("eyas_events_deleted_total", where=""), "deleted"),
            Query(rate("eyas_events_too_old_total", where=""), "left out"),
        ),
        lines(
            "Overdue versions",
            COUNT,
            "Versions that learned from a forgotten user and still serve or are still named after EYAS_FORGET_WITHIN.",
            "operate.md#eyasforgottenversionsoverdue",
            Query(newest("eyas_forgotten_versions_overdue", "recommender", where=""), "{{recommender}}"),
        ),
        lines(
            "Audit export",
            SECONDS,
            "Age of the oldest entry of the audit log that is not exported.",
            "operate.md#eyasauditexportlags",
            Query(newest("eyas_audit_oldest_seconds", where=""), "oldest"),
        ),
        lines(
            "Audit entries to export",
            COUNT,
            "Entries of the audit log that are not exported, at most 10,000.",
            "operate.md#eyasauditexportlags",
            Query(newest("eyas_audit_waiting", where=""), "entries"),
        ),
    ],
)
DATABASE = Row(
    "Database",
    [
        lines(
            "Statements",
            PER_SECOND,
            "Statements of all processes, by operation.",
            "operate.md#eyascontrolfaults",
            _everywhere("eyas_database_seconds_count", "operation"),
        ),
        lines(
            "Statement time, 99th percentile",
            SECONDS,
            "Time without commits. `begin` includes the wait for other writers (SQLite).",
            "operate.md#eyasimpressionswait",
            Query(quantile(0.99, "eyas_database_seconds", "operation", where=""), "{{operation}}"),
        ),
        lines(
            "Failed statements",
            PER_SECOND,
            "Statements that failed: the database did not answer, or was busy, full or damaged.",
            "operate.md#eyasimpressionswait",
            _everywhere("eyas_database_faults_total"),
        ),
    ],
)
BOARD = Board(
    "platform",
    "platform",
    "Health of the platform: service levels, processes, control plane, events and database.",
    (LEVELS, PROCESSES, CONTROL, EVENTS, DATABASE),
    recommenders=False,
)
