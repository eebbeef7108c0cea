"""HTTP client of the demo; each error of the API is a one-line `ApiError`."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

import httpx

Json = dict[str, Any]
RETRIES = 5
"""Retries of a request that is answered with 429."""
LONGEST_WAIT = 10.0
"""Longest wait in seconds before a retry."""


class ApiError(Exception):
    """Error answer or no answer; the message has the request and the reason."""


class Client:
    """API client with one connection pool; thread-safe."""

    def __init__(self, url: str, token: str, timeout: float = 30.0) -> None:
        limits = httpx.Limits(max_connections=32, max_keepalive_connections=32)
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, limits=limits, trust_env=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.close()

    def ready(self) -> bool:
        try:
            return self._http.get("/readyz", timeout=2.0).status_code == 200
        except httpx.HTTPError:
            return False

    def apply(self, text: str, run: bool = True) -> Json:
        """Applies a spec, given as YAML text."""
        params = {"run": "true" if run else "false"}
        return self._call("POST", "/v1/recommenders", content=text, params=params, headers={"Content-Type": "application/yaml"})

    def recommender(self, name: str) -> Json:
        return self._call("GET", f"/v1/recommenders/{name}")

    def run(self, id: str) -> Json:
        return self._call("GET", f"/v1/runs/{id}")

    def rollout(self, id: str) -> Json:
        return self._call("GET", f"/v1/rollouts/{id}")

    def drift(self, name: str) -> Json:
        return self._call("GET", f"/v1/recommenders/{name}/drift")

    def serving(self) -> Json:
        return self._call("GET", "/v1/serving")

    def recommend(self, name: str, user: int, k: int = 10) -> Json:
        return self._call("POST", f"/v1/recommend/{name}", json={"user": user, "k": k})

    def send(self, events: list[Json]) -> Json:
        return self._call("POST", "/v1/events", json={"events": events})

    def _call(self, method: str, path: str, **request: Any) -> Json:
        try:
            response = self._http.request(method, path, **request)
            for _ in range(RETRIES):
                seconds = response.headers.get("retry-after", "")
                if response.status_code != 429 or not seconds.isdecimal():
                    break
                time.sleep(min(float(seconds), LONGEST_WAIT))  # safe: a request with 429 had no effect
                response = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise ApiError(f"{method} {path}: {type(error).__name__}: {error}") from error
        if response.is_error:
            raise ApiError(f"{method} {path}: {response.status_code} {_detail(response)}")
        answer: Json = response.json()
        return answer


def _detail(response: httpx.Response) -> str:
    try:
        problem = response.json()
        return f"{problem.get('title', '')}: {problem.get('detail', '')}"
    except (ValueError, AttributeError):
        return response.text[:200]
