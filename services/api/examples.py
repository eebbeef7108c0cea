"""Examples of bodies and answers in the OpenAPI document, by operation; a test checks them against the schemas.

`answers.json` has real answers about a small recommender, from its spec to the version that serves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_SPEC = {
    "apiVersion": "eyas/v1",
    "name": "movies",
    "data": {"interactions": {"uri": "ratings.parquet"}, "items": {"uri": "movies.parquet", "key": "movieId"}},
    "schema": {"user": "userId", "item": "movieId", "time": "timestamp", "label": {"column": "rating", "positive": ">= 4"}},
    "gates": [{"metric": "auc", "min": 0.6}],
}
_WHY = {"reason": "the labels were inverted"}
_AT = "2026-01-01T12:00:00Z"
_TOKEN = {
    "id": "t01kdwpg6a0x5m2qf",
    "name": "shop",
    "role": "client",
    "recommenders": ["movies"],
    "created_at": _AT,
    "created_by": "owner",
    "expires_at": "2026-04-01T12:00:00Z",
    "revoked_at": None,
    "revoked_by": None,
}

_RATES = {
    "answers": 1000,
    "hits": 210,
    "hit_rate": 0.21,
    "conversions": 12,
    "conversion": 0.012,
    "revenue": 419.88,
    "revenue_per_answer": 0.41988,
    "engagement": 0.254,
}
_EARNED = {
    **_RATES,
    "version": 3,
    "kinds": {"click": 242, "purchase": 12},
    "click_rate": [0.11, 0.08, 0.03],
    "variants": {"stable": _RATES},
    "slices": {"germany": {**_RATES, "answers": 100, "hits": 25, "hit_rate": 0.25}, "known_users": _RATES},
    "looked": 1000,
    "coverage": 0.31,
    "novelty": 9.4,
}

EXAMPLES: dict[str, dict[str, Any]] = {
    "healthz": {"answer": {"status": "ok"}},
    "readyz": {"answer": {"ready": True}},
    "apply_recommender": {"body": _SPEC},
    "put_recommender": {"body": _SPEC},
    "validate_spec": {"body": _SPEC},
    "plan_spec": {"body": _SPEC},
    "plan_run": {"body": {"mode": "full", "priority": 0, "fresh": False}},
    "get_empty_answers": {
        "answer": {"window": "15m", "answers": 812, "empty": 406, "share": 0.5, "limit": 0.2, "exceeds": True},
    },
    "roll_back": {"body": {**_WHY, "to": 3}, "answer": {"stable": 3, "aborted": [], "rollout": None}},
    "create_run": {"body": {"mode": "full", "reason": "a new catalogue", "priority": 0, "fresh": False}},
    "cancel_run": {"body": _WHY},
    "prioritise_run": {"body": {"priority": 10, "reason": "it cannot wait"}},
    "retry_run": {"body": {"from": "train", "reason": "more memory"}},
    "list_run_events": {
        "answer": {
            "items": [{"at": _AT, "source": "", "target": "pending", "reason": "created", "actor": "owner"}],
            "next": None,
        }
    },
    "get_run_log": {"answer": {"text": "read 12000 rows\n", "start": 0, "next": 16, "stage": "etl", "attempt": "r01kdwpg6a0x5m2qf-etl-1"}},
    "get_run_evaluation": {
        "answer": {
            "attempt": "r01kdwpg6a0x5m2qf-evaluate-1",
            "report": {
                "version": 1,
                "model": "candidate",
                "baseline": "popularity",
                "hr@10": {"mean": 0.1342, "std": 0.0, "seeds": 1, "values": [0.1342], "interval": [0.1251, 0.1437]},
            },
            "page": "<!doctype html>...",
        }
    },
    "get_run_validation": {
        "answer": {
            "version": 1,
            "recommender": "movies",
            "source": "ratings/*.parquet",
            "verdict": "warn",
            "rows": {"read": 12000, "kept": 11970, "quarantined": 30},
            "reasons": {"userId: missing": 30},
            "files": ["part-0.parquet"],
            "faulty": [],
            "checks": [
                {
                    "name": "bad rows",
                    "column": None,
                    "verdict": "warn",
                    "figure": 0.0025,
                    "unit": "share",
                    "warn": 0.001,
                    "stop": 0.05,
                    "says": "30 of 12,000 rows are quarantined",
                }
            ],
            "compared": True,
            "distributions": [{"column": "rating", "bars": [{"name": "up to 4", "now": 7000, "before": 6900}]}],
            "sections": [
                {
                    "name": "items",
                    "source": "items.parquet",
                    "verdict": "warn",
                    "rows": {"read": 9725, "kept": 9724, "quarantined": 1},
                    "reasons": {"repeats an earlier row": 1},
                    "checks": [
                        {
                            "name": "gone",
                            "column": "movieId",
                            "verdict": "warn",
                            "figure": 0.25,
                            "unit": "share",
                            "warn": 0.2,
                            "stop": None,
                            "says": "25.0% of the last accepted table's 12,900 keys are missing",
                        }
                    ],
                    "compared": True,
                    "distributions": [],
                }
            ],
        }
    },
    "start_rollout": {"body": {"version": 2, "reason": "it was the network"}},
    "steer_rollout": {"body": _WHY},
    "retrain": {"body": {"reason": "a new catalogue"}},
    "get_kpis": {"answer": {"window": "1h", "versions": [_EARNED]}},
    "get_kpi_series": {"answer": {"window": "1h", "step": "5m", "versions": [{"version": 3, "points": [{"ends": _AT, **_RATES}]}]}},
    "get_card": {
        "answer": {
            "version": 1,
            "recommender": "movies",
            "run": "r01kdwpg6a0x5m2qf",
            "about": None,
            "data": {
                "snapshot": _AT,
                "digest": None,
                "fingerprint": "sha256:5f1c",
                "rows": {"train": 80000, "holdout": 20000, "items": 9724},
                "oldest": _AT,
                "cut": _AT,
                "newest": _AT,
            },
            "fits": [
                {"stage": "train", "rows": 80000, "newest": _AT, "epochs": 5},
                {"stage": "refit", "rows": 99000, "newest": _AT, "epochs": 5},
            ],
            "metrics": {"hr@10": {"candidate": 0.14, "popularity": 0.09}},
            "serving": {"parity": 1e-7, "latency_p50": 6.1, "latency_p99": 9.8, "throughput": 1500000, "memory": 84},
            "gates": [{"gate": "parity at most 0.0001", "verdict": "pass", "reason": "parity is 1e-07 <= 0.0001"}],
            "lineage": {
                "parent": None,
                "serving": 2,
                "cause": "drift",
                "asked_by": "eyas",
                "code": "5f1c0a",
                "spec_generation": 1,
                "spec_digest": "sha256:77aa",
                "seeds": {"train": 1},
                "attempts": {"etl": "r01kdwpg6a0x5m2qf-etl-1"},
            },
            "files": {"model.onnx": 4194304},
        }
    },
    "take_alerts": {
        "body": {
            "version": "4",
            "alerts": [
                {
                    "status": "firing",
                    "labels": {"alertname": "HitRateLow", "recommender": "movies"},
                    "annotations": {"summary": "the hit rate fell below 10%"},
                    "startsAt": _AT,
                    "fingerprint": "c2f1b7a0d94e3586",
                }
            ],
        },
        "answer": {
            "alerts": [{"fingerprint": "c2f1b7a0d94e3586", "alertname": "HitRateLow", "outcome": "asked", "detail": "a retraining starts"}]
        },
    },
    "create_token": {
        "body": {"name": "shop", "role": "client", "recommenders": ["movies"], "expires_in": "90d"},
        "answer": {"about": _TOKEN, "token": "eyas_ID_SECRET"},
    },
    "get_token": {"answer": _TOKEN},
    "start_session": {"body": {"nonce": None}, "answer": {"session": "eyas_ID_SECRET", "expires_at": _AT}},
    "end_sessions": {"answer": {"ended": 1}},
    "renew_session": {"answer": {"session": "eyas_ID_SECRET", "expires_at": _AT}},
    "list_tokens": {"answer": {"items": [_TOKEN], "next": None}},
    "recommend": {
        "body": {"user": 17, "slots": {"hero": 1, "more": 1}, "exclude": [318], "context": {"age": 34, "region": "de"}},
        "answer": {
            "request_id": "q01kdwpg6a0x5m2qf",
            "recommender": "movies",
            "version": 3,
            "variant": "stable",
            "items": [{"item": 50, "score": 0.93}, {"item": 527, "score": 0.88}],
            "fallback": None,
            "slots": {"hero": [{"item": 50, "score": 0.93}], "more": [{"item": 527, "score": 0.88}]},
            "explain": {
                "milliseconds": {"seen": 0.6, "retrieve": 1.1, "filter": 0.2, "score": 3.4, "order": 0.1, "log": 0.9},
                "together": 1,
                "retrieved": 500,
                "filtered": 23,
                "dropped": {"seen before, or excluded": 20, "item.age_limit <= user.age": 3},
                "scored": True,
                "explored": None,
                "rules": [["boosted by 0.5: 'Drama' in genres"], []],
            },
        },
    },
    "score": {
        "body": {"user": 17, "items": [50, 527]},
        "answer": {
            "version": 3,
            "variant": "stable",
            "items": [{"item": 50, "score": 0.93}, {"item": 527, "score": 0.88}],
            "fallback": None,
        },
    },
    "similar": {"body": {"item": 50, "k": 1}, "answer": {"version": 3, "items": [{"item": 527, "score": 0.71}]}},
    "take_events": {
        "body": {
            "events": [{"id": "e1", "recommender": "movies", "user": 17, "item": 50, "kind": "click", "request_id": "q01kdwpg6a0x5m2qf"}]
        },
        "answer": {"accepted": 1, "duplicates": 0, "conflicts": 0, "hits": 1, "refused": 0, "lines": []},
    },
}

_ITEMS: list[dict[str, Any]] = [
    {"item": 50, "attributes": {"age_rating": 12, "genres": ["Crime", "Drama"], "regions": ["de", "at"]}, "available": True},
    {"item": 527, "available": False},
]
for _name in ("put_items", "change_items"):
    EXAMPLES[_name] = {
        "body": {"items": _ITEMS},
        "answer": {"accepted": 2, "changed": 2},
    }
_ITEM = {**_ITEMS[0], "revision": 1, "updated_at": _AT}
EXAMPLES["get_item"] = {"answer": _ITEM}
EXAMPLES["export_events"] = {
    "answer": {
        "items": [{"id": "e1", "recommender": "movies", "user": 17, "item": 318, "kind": "rating", "value": 4.5, "at": _AT}],
        "next": None,
    }
}
EXAMPLES["list_items"] = {"answer": {"items": [_ITEM], "next": None}}
EXAMPLES["delete_items"] = {"body": {"items": [50, 527]}, "answer": {"deleted": 2}}

EXAMPLES["forget_user"] = {
    "answer": {
        "recommenders": [
            {
                "recommender": "movies",
                "forgotten_at": _AT,
                "interactions": 214,
                "impressions": 96,
                "feature_values": 2,
                "versions": [6, 7],
                "collected_by": "2025-12-30T12:00:00Z",
            }
        ]
    }
}
_VALUES = {"age": 34, "mean_rating": 3.75, "last_genres": ["Drama", "Crime"]}
EXAMPLES["put_features"] = {
    "body": {"rows": [{"key": 17, "at": _AT, "values": _VALUES}, {"key": 18, "values": {"age": 51}}]},
    "answer": {"accepted": 2, "standing": 2},
}
EXAMPLES["get_features"] = {
    "answer": {
        "key": 17,
        "rows": [
            {"version": None, "at": _AT, "expired": False, "values": _VALUES},
            {"version": 3, "at": "2025-11-20T12:00:00Z", "expired": True, "values": {}},
        ],
    }
}
EXAMPLES["materialise_features"] = {"answer": {"views": 2}}

_ANSWERS: dict[str, Any] = json.loads((Path(__file__).parent / "answers.json").read_text(encoding="utf-8"))
_STARTED = {
    "id": "o01m7z9x3k0qd5rwen",
    "version": 2,
    "state": "pending",
    "reason": "start by owner: it was the network",
    "since": None,
    "created_at": "2026-11-21T15:02:11.730415Z",
    "asked_by": "owner",
    "cause": "it was the network",
    "answers_to": ["abort"],
}
_ANSWERS["start_rollout"] = _ANSWERS["get_rollout"] | _STARTED
_LISTS = {
    "list_recommenders": "get_recommender",
    "list_versions": "get_version",
    "list_runs": "get_run",
    "list_runs_of_recommender": "get_run",
    "list_rollouts": "get_rollout",
}
for _many, _single in _LISTS.items():
    _ANSWERS[_many] = {"items": [_ANSWERS[_single]], "next": None}
for _name, _answer in _ANSWERS.items():
    EXAMPLES.setdefault(_name, {}).setdefault("answer", _answer)
