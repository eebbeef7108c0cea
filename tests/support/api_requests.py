"""A good request to each route of the API, for a recommender 'm'."""

from __future__ import annotations

import json

from tests.support.api_world import document

PATH_VALUES = {
    "{name}": "m",
    "{verb}": "pause",
    "{version}": "1",
    "{generation}": "1",
    "{tag}": "champion",
    "{item}": "50",
    "{view}": "user",
    "{key}": "17",
    "/compare": "/compare?with=r1",
}
IDS = {"/v1/runs/": "r1", "/v1/rollouts/": "r1-rollout", "/v1/tokens/": "t0", "/v1/users/": "1", "/v1/sessions/": "t0"}
"""The value of `{id}` under each prefix: a row of recommender 'm'."""
OTHER_IDS = {
    "/v1/runs/{id}/stream": "r0",
    "/v1/runs/{id}/logs/stream": "r0",
    "/v1/runs/{id}/evaluation": "r2",
    "/v1/runs/{id}/training": "r2",
}
"""A stream ends with its run, and a report belongs to an evaluated run."""
BODIES = {
    ("POST", "/v1/events"): {"events": [{"recommender": "m", "user": 1, "item": 2}]},
    ("POST", "/v1/recommend/{name}"): {"user": 1},
    ("POST", "/v1/score/{name}"): {"user": 1, "items": [10]},
    ("POST", "/v1/similar/{name}"): {"item": 10},
    ("PUT", "/v1/items/{name}"): {"items": []},
    ("POST", "/v1/items/{name}"): {"items": []},
    ("POST", "/v1/items/{name}:delete"): {"items": [50]},
    ("PUT", "/v1/features/{name}/{view}"): {"rows": [{"key": 17, "values": {"age": 34}}]},
    ("POST", "/v1/tokens"): {"name": "new", "role": "client", "recommenders": ["m"]},
    ("POST", "/v1/runs/{id}:prioritise"): {"priority": 1},
    ("POST", "/v1/recommenders/{name}/rollouts"): {"version": 1},
    ("POST", "/v1/alerts"): {
        "version": "4",
        "alerts": [
            {
                "status": "firing",
                "labels": {"alertname": "HitRateLow", "recommender": "m"},
                "startsAt": "2026-01-01T00:00:00Z",
                "fingerprint": "f1",
            }
        ],
    },
}
"""Bodies of the routes that read the recommender, or its row, from or after their body."""
SPEC = json.dumps(document())
SPEC_ROUTES = {
    ("POST", "/v1/recommenders"),
    ("PUT", "/v1/recommenders/{name}"),
    ("POST", "/v1/recommenders:validate"),
    ("POST", "/v1/recommenders:plan"),
}


def send(client, row):
    """Sends a good request to the route of a row of the permission table."""
    path = row.path
    for word, value in PATH_VALUES.items():
        path = path.replace(word, value)
    if "{id}" in path:
        ids = [id for prefix, id in IDS.items() if path.startswith(prefix)]
        assert ids, f"add an id for {row.path} to IDS"
        path = path.replace("{id}", OTHER_IDS.get(path, ids[0]))
    assert "{" not in path, f"add the parameters of {row.path} to PATH_VALUES"
    if (row.method, row.path) in SPEC_ROUTES:
        return client.request(row.method, path, content=SPEC)
    body = BODIES.get((row.method, row.path))
    return client.request(row.method, path, **({"json": body} if body is not None else {}))
