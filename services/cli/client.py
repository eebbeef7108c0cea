"""HTTP client of the API: sends and receives JSON, and turns each error of the platform into a one-line `ReportedError`."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from services.cli import hints
from services.cli.exit_codes import Exit
from services.cli.faults import ReportedError

TIMEOUT = httpx.Timeout(30, connect=5)
_HINT = httpx.Timeout(2, connect=1)
_PAGE = 200
"""Largest page of a list."""
RETRIES = 5
"""Retries of a request that is answered with 429."""
LONGEST_WAIT = 10.0
"""Longest wait in seconds before a retry."""


class Client:
    """Client for one platform address; each client has its own connections. `transport` is for tests."""

    def __init__(self, url: str, token: str, transport: httpx.BaseTransport | None = None, seconds: float | None = None) -> None:
        self.url = _address(url).rstrip("/")
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers={"Authorization": f"Bearer {token}"},
                timeout=TIMEOUT if seconds is None else httpx.Timeout(seconds),
                transport=transport,
                trust_env=False,
            )
        except httpx.InvalidURL as error:
            raise ReportedError(f"'{url}' is not an address: {error}", Exit.WRONG) from None

    def get(self, path: str, **query: Any) -> Any:
        return self._ask("GET", path, params={name: value for name, value in query.items() if value is not None})

    def knows(self, path: str) -> bool:
        try:
            self._ask("GET", path)
        except ReportedError as error:
            if error.status == 404:
                return False
            raise
        return True

    def pages(self, path: str, most: int | None = None) -> Iterator[Any]:
        """Yields the pages of a list, with at most `most` rows together."""
        cursor, left = None, math.inf if most is None else most
        while left > 0:
            page = self.get(path, limit=int(min(_PAGE, left)), cursor=cursor)
            yield page
            cursor, left = page.get("next"), left - len(page["items"])
            if cursor is None:
                return

    def post(self, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        return self._ask("POST", path, json=body or {}, params=query or None)

    def put(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._ask("PUT", path) if body is None else self._ask("PUT", path, json=body)

    def delete(self, path: str, **query: Any) -> Any:
        return self._ask("DELETE", path, params={name: value for name, value in query.items() if value is not None})

    def lines(self, method: str, path: str, lines: Sequence[str]) -> Any:
        """Sends JSON Lines."""
        return self._ask(method, path, content="\n".join(lines).encode(), headers={"Content-Type": "application/x-ndjson"})

    def post_text(self, path: str, text: str, media: str, **query: Any) -> Any:
        return self._ask("POST", path, content=text.encode(), headers={"Content-Type": media}, params=query)

    def events(self, path: str, last: str | None) -> Iterator[tuple[str, str | None, Any]]:
        """Yields server-sent events after the id `last`, as (name, id, data).

        Ends when the stream ends or when an open connection breaks; raises only if the stream does not start."""
        headers = {"Last-Event-ID": last} if last else {}
        begun = False
        try:
            with self._http.stream("GET", path, headers=headers) as answer:
                if not answer.is_success:
                    answer.read()
                    raise self._refused(answer, path)
                begun = True
                yield from _events(answer.iter_lines())
        except httpx.HTTPError as error:
            if not begun:
                raise self._unanswered("GET", path, error) from None

    def close(self) -> None:
        self._http.close()

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        try:
            answer = self._http.request(method, path, **request)
            for _ in range(RETRIES):
                wait = _wait(answer)
                if wait is None:
                    break
                time.sleep(wait)
                answer = self._http.request(method, path, **request)
        except UnicodeEncodeError:  # an argument in an encoding other than the machine's
            raise ReportedError("an argument is not UTF-8 text, so nothing was sent", Exit.WRONG) from None
        except httpx.HTTPError as error:
            raise self._unanswered(method, path, error) from None
        if answer.status_code == 204:
            return None
        if answer.is_success:
            return _json(answer, self.url)
        raise self._refused(answer, path)

    def _unanswered(self, method: str, path: str, error: httpx.HTTPError) -> ReportedError:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return ReportedError(f"nothing answers at {self.url}: start the platform with `eyas up`, or set its address with --url")
        if isinstance(error, httpx.TimeoutException):
            return ReportedError(f"{self.url} did not answer {method} {path} in time; the request may still take effect")
        return ReportedError(f"{method} {self.url}{path}: {str(error) or type(error).__name__}")

    def _refused(self, answer: httpx.Response, path: str) -> ReportedError:
        line = _line(answer, self.url)
        if answer.status_code == 404 and line.startswith("not-found"):
            line = hints.added(line, path, self._peek)
        code = Exit.WRONG if 400 <= answer.status_code < 500 else Exit.AWAY
        return ReportedError(line, code, answer.status_code, _faults(answer))

    def _peek(self, path: str, **query: Any) -> Any:
        """Fetches data for a hint; returns None after any error or a short timeout."""
        try:
            answer = self._http.get(path, params=query, timeout=_HINT)
            return answer.json() if answer.is_success else None
        except (httpx.HTTPError, ValueError):
            return None


def _wait(answer: httpx.Response) -> float | None:
    """Returns the seconds to wait before a retry after status 429, else None."""
    seconds = answer.headers.get("retry-after", "")
    return min(float(seconds), LONGEST_WAIT) if answer.status_code == 429 and seconds.isdecimal() else None


def _events(lines: Iterator[str]) -> Iterator[tuple[str, str | None, Any]]:
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            if "event" in fields:
                yield fields["event"], fields.get("id"), json.loads(fields.get("data", "null"))
            fields = {}


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and not any(map(str.isspace, url))
    except ValueError:  # unclosed brackets or an invalid port
        good = False
    if not good:
        raise ReportedError(f"'{url}' is not an address: expected for example http://127.0.0.1:8080", Exit.WRONG)
    return url


def _json(answer: httpx.Response, url: str) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise ReportedError(f"{url} did not answer with JSON: is it an Eyas platform?") from None


def _faults(answer: httpx.Response) -> list[tuple[str, str]]:
    try:
        return [(str(error["field"]), str(error["message"])) for error in answer.json().get("errors", [])]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _line(answer: httpx.Response, url: str) -> str:
    try:
        problem = answer.json()
        kind, detail = str(problem["type"]).rsplit("/", 1)[-1], str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{url} answered {answer.status_code} without a problem document: is it an Eyas platform?"
    if answer.status_code == 401:
        return f"{url} rejects the token: set the file of a valid token with --token-file ({detail})"
    return f"{kind}: {detail}"
