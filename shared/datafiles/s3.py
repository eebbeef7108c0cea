"""Minimal S3 client: lists keys and reads objects in their listed state. Clients that write use `ask`.

It signs requests itself, so the control plane needs no SDK. Configuration is in the usual environment variables: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION (or AWS_DEFAULT_REGION), AWS_ENDPOINT_URL_S3 (or AWS_ENDPOINT_URL), AWS_CA_BUNDLE.
Without a key, requests are anonymous, for public buckets.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import ssl
import time
import xml.etree.ElementTree as xml
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

from shared.domain.errors import BadData, Invalid, Unavailable

_PIECE = 1 << 20
_MESSAGE = 64 << 10
_LONGEST = 200_000
_Connection = http.client.HTTPConnection
_AGAIN = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True)
class ListedObject:
    key: str
    size: int
    written: str
    tag: str


@dataclass(frozen=True)
class S3Keys:
    id: str
    secret: str = field(repr=False)
    session: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class S3:
    region: str
    endpoint: str | None = None
    keys: S3Keys | None = None
    ca: str | None = None
    timeout: float = 60.0
    tries: int = 4

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, *, timeout: float = 60.0, tries: int = 4) -> S3:
        variables = os.environ if environment is None else environment
        id, secret = variables.get("AWS_ACCESS_KEY_ID"), variables.get("AWS_SECRET_ACCESS_KEY")
        return cls(
            region=variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION") or "us-east-1",
            endpoint=variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL"),
            keys=S3Keys(id, secret, variables.get("AWS_SESSION_TOKEN")) if id and secret else None,
            ca=variables.get("AWS_CA_BUNDLE"),
            timeout=timeout,
            tries=tries,
        )

    def list(self, bucket: str, prefix: str, most: int | None = _LONGEST) -> Iterator[ListedObject]:
        """Yields objects sorted by key."""
        token, count = "", 0
        while True:
            page = self._page(bucket, {"list-type": "2", "prefix": prefix} | ({"continuation-token": token} if token else {}))
            for element in page.iterfind("{*}Contents"):
                count += 1
                yield ListedObject(
                    _text(element, "Key"), int(_text(element, "Size")), _text(element, "LastModified"), _text(element, "ETag").strip('"')
                )
            if most is not None and count > most:
                raise Invalid(f"s3://{bucket}/{prefix}: more than {most:,} objects: use a narrower pattern")
            token = _text(page, "NextContinuationToken")
            if _text(page, "IsTruncated") != "true" or not token:
                return

    def fetch(self, bucket: str, key: str, tag: str, size: int, path: Path) -> None:
        """Downloads an object in its listed state; rejects a changed object. Resumes after a broken connection."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        for _ in range(self.tries):
            have = path.stat().st_size
            if have == size:
                return
            more = {"Range": f"bytes={have}-"} if have else {}
            connection, answer = self._ask(bucket, key, {}, {"If-Match": f'"{tag}"'} | more)
            with closing(connection), path.open("ab" if _is_part(answer, have) else "wb") as stream:
                if (answer.getheader("ETag") or tag).strip('"') != tag:
                    raise _refusal(f"s3://{bucket}/{key}", 412, b"")
                with suppress(OSError, http.client.HTTPException):
                    while piece := answer.read(_PIECE):
                        stream.write(piece)
        if path.stat().st_size != size:
            raise Unavailable(f"s3://{bucket}/{key}: the object store closed the connection {self.tries} times")

    def read(self, bucket: str, key: str, tag: str, first: int, into: memoryview) -> None:
        """Fills `into` from byte `first` on, from the object in its listed state."""
        have = 0
        for _ in range(self.tries):
            wanted = f"bytes={first + have}-{first + len(into) - 1}"
            connection, answer = self._ask(bucket, key, {}, {"If-Match": f'"{tag}"', "Range": wanted})
            with closing(connection):
                if not _is_part(answer, first + have):
                    raise Unavailable(f"s3://{bucket}/{key}: the object store does not support range requests")
                if (answer.getheader("ETag") or tag).strip('"') != tag:
                    raise _refusal(f"s3://{bucket}/{key}", 412, b"")
                with suppress(OSError, http.client.HTTPException):
                    while have < len(into) and (more := answer.readinto(into[have:])):
                        have += more
            if have == len(into):
                return
        raise Unavailable(f"s3://{bucket}/{key}: the object store closed the connection {self.tries} times")

    def _page(self, bucket: str, query: Mapping[str, str]) -> xml.Element:
        named = f"s3://{bucket}/{query['prefix']}"
        connection, answer = self._ask(bucket, "", query, {})
        with closing(connection):
            try:
                return xml.fromstring(answer.read())  # noqa: S314
            except (OSError, http.client.HTTPException, xml.ParseError) as error:
                raise Unavailable(f"{named}: the object store's list cannot be read: {type(error).__name__}") from error

    def _ask(
        self, bucket: str, key: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[_Connection, http.client.HTTPResponse]:
        """Returns a successful response with an unread body; raises a one-line error otherwise."""
        connection, answer, _ = self.ask("GET", bucket, key, query, headers)
        if answer.status in (200, 206):
            return connection, answer
        with closing(connection):
            raise _refusal(f"s3://{bucket}/{key or query.get('prefix', '')}", answer.status, answer.read(_MESSAGE))

    def ask(
        self,
        method: str,
        bucket: str,
        key: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> tuple[_Connection, http.client.HTTPResponse, bool]:
        """Returns the response with an unread body, and whether the request was retried; retries after server and connection faults."""
        query, headers = query or {}, headers or {}
        named, failed = f"s3://{bucket}/{key or query.get('prefix', '')}", ""
        digest = hashlib.sha256(body).hexdigest()
        for attempt in range(self.tries):
            if attempt:
                time.sleep(min(0.2 * 4**attempt, 10.0))
            connection, host, path = self._connect(bucket, key)
            try:
                target = f"{path}?{_query(query)}" if query else path
                signed = self._signed(method, host, path, query, digest, headers)
                connection.request(method, target, body=body or None, headers=signed | dict(headers))
                answer = connection.getresponse()
                if answer.status not in _AGAIN:
                    return connection, answer, attempt > 0
                answer.read(_MESSAGE)
                failed = f"status {answer.status}"
            except (OSError, http.client.HTTPException) as error:
                failed = f"{type(error).__name__}: {error}"
            connection.close()
        raise Unavailable(f"{named}: the object store {self.endpoint or 'of AWS'} does not answer: {' '.join(failed.split())[:200]}")

    def _connect(self, bucket: str, key: str) -> tuple[_Connection, str, str]:
        """Returns the connection, the host and the path."""
        path = "/" + quote(key, safe="/-_.~")
        if self.endpoint:
            parts = urlsplit(self.endpoint)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise Invalid("AWS_ENDPOINT_URL: expected http://HOST:PORT or https://HOST")
            return self._connection(parts.netloc, parts.scheme == "https"), parts.netloc, f"{parts.path.rstrip('/')}/{bucket}{path}"
        host = f"s3.{self.region}.amazonaws.com"
        if "." in bucket:  # no certificate covers such a host
            return self._connection(host, True), host, f"/{bucket}{path}"
        return self._connection(f"{bucket}.{host}", True), f"{bucket}.{host}", path

    def _connection(self, netloc: str, secure: bool) -> _Connection:
        if not secure:
            return http.client.HTTPConnection(netloc, timeout=self.timeout)
        return http.client.HTTPSConnection(netloc, timeout=self.timeout, context=ssl.create_default_context(cafile=self.ca))

    def _signed(self, method: str, host: str, path: str, query: Mapping[str, str], digest: str, more: Mapping[str, str]) -> dict[str, str]:
        """AWS Signature Version 4, with the body's digest and the x-amz- headers."""
        if self.keys is None:
            return {"Host": host}
        now = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
        headers |= {name: value for name, value in more.items() if name.startswith("x-amz-")}
        if self.keys.session:
            headers["x-amz-security-token"] = self.keys.session
        names = ";".join(sorted(headers))
        canonical = "\n".join(
            (method, path, _query(query), *(f"{name}:{headers[name]}" for name in sorted(headers)), "", names, digest),
        )
        scope = f"{now[:8]}/{self.region}/s3/aws4_request"
        text = "\n".join(("AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()))
        key = f"AWS4{self.keys.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        credential = f"Credential={self.keys.id}/{scope}, SignedHeaders={names}, Signature={signature}"
        return headers | {"Authorization": f"AWS4-HMAC-SHA256 {credential}"}


def _is_part(answer: http.client.HTTPResponse, first: int) -> bool:
    """Returns whether the response is partial; some servers show this only in the header."""
    return answer.status == 206 or (answer.getheader("Content-Range") or "").startswith(f"bytes {first}-")


def _query(query: Mapping[str, str]) -> str:
    return "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query.items()))


def _text(node: xml.Element, name: str) -> str:
    return node.findtext(f"{{*}}{name}") or ""


def _refusal(named: str, status: int, body: bytes) -> Exception:
    try:
        code = _text(xml.fromstring(body), "Code")  # noqa: S314
    except xml.ParseError:
        code = ""
    if status == 412:
        return BadData(f"{named}: changed while it was read: retry when the upload is complete")
    if status == 404:
        return BadData(f"{named}: {'bucket' if code == 'NoSuchBucket' else 'object'} not found")
    if status in (400, 401, 403):
        return Invalid(f"{named}: access denied ({code or status}): set AWS_ACCESS_KEY_ID to a key that may read it")
    if status in (301, 307, 308):
        return Invalid(f"{named}: the bucket is in another region ({code or status}): set AWS_REGION to its region")
    return Unavailable(f"{named}: the object store answers {status} {code}".rstrip())
