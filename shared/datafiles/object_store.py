"""Client of object stores: S3 (s3://), Google Cloud Storage (gs://) and Azure Blob Storage (az://), by obstore.

Credentials and endpoints come only from the environment (AWS_..., GOOGLE_..., AZURE_...), never from a URI. The account of az:// is
AZURE_STORAGE_ACCOUNT_NAME. S3 without a key or a role in the environment is read anonymously, for public buckets.
"""

from __future__ import annotations

import os
import re
import ssl
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError, PreconditionError
from obstore.store import AzureStore, GCSStore, S3Store

from shared.domain.errors import BadData, Invalid, Unavailable
from shared.domain.object_uris import split, variable_prefix

if TYPE_CHECKING:
    from obstore import Bytes, ObjectMeta
    from obstore.store import S3Credential

_CHUNK = 4 << 20
_LONG = timedelta(days=1)
"""Of a whole download; a server that sends nothing is given up after `timeout`."""
_LONGEST = 200_000
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_ROLES = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_KEYS = {"s3": "AWS_ACCESS_KEY_ID", "gs": "GOOGLE_APPLICATION_CREDENTIALS", "az": "AZURE_STORAGE_ACCOUNT_KEY"}


@dataclass(frozen=True)
class DataObject:
    bucket: str
    """With its scheme: s3://BUCKET."""
    key: str
    size: int
    written: datetime
    tag: str

    @classmethod
    def of(cls, bucket: str, meta: ObjectMeta) -> DataObject:
        return cls(bucket, meta["path"], meta["size"], meta["last_modified"].astimezone(UTC), (meta["e_tag"] or "").strip('"'))

    @property
    def uri(self) -> str:
        return f"{self.bucket}/{self.key}"


@dataclass
class Client:
    """obstore's client of one bucket, which keeps its connections."""

    store: S3Store | GCSStore | AzureStore
    is_signing: bool = True
    has_parts: bool = True
    """False once the server has answered a ranged request with status 200, as rclone does; obstore rejects such an answer."""


@dataclass(frozen=True)
class ObjectStore:
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    timeout: float = 60.0
    tries: int = 4
    for_artifacts: bool = False
    """Raise FileNotFoundError for a missing object, and advise on access to write."""

    def client(self, uri: str) -> tuple[Client, str]:
        """Returns the client of the bucket, and the key."""
        bucket, key = split(uri)
        variables = {name: value for name, value in self.environment.items() if name.startswith(variable_prefix(uri))}
        return _connect(bucket, tuple(sorted(variables.items())), self.timeout, self.tries), key

    def list(self, uri: str, most: int | None = _LONGEST) -> list[DataObject]:
        """Returns the objects whose URI begins with `uri`, sorted by key. Stores list whole folders; other objects are dropped here."""
        objects: list[DataObject] = []
        for page in self.pages(uri):
            objects += page
            if most is not None and len(objects) > most:
                raise Invalid(f"{uri}: more than {most:,} objects: use a narrower pattern")
        return sorted(objects, key=lambda entry: entry.key)

    def pages(self, uri: str) -> Iterator[Sequence[DataObject]]:
        """Yields the same objects page by page, unordered."""
        bucket, prefix = split(uri)
        with self.errors(uri.rstrip("/")):
            for page in obstore.list(self.client(uri)[0].store, prefix.rpartition("/")[0] or None, chunk_size=1_000):
                yield [DataObject.of(bucket, meta) for meta in page if meta["path"].startswith(prefix)]

    def find(self, uri: str) -> DataObject | None:
        """Returns None if the object or the bucket is missing."""
        client, key = self.client(uri)
        try:
            with self.errors(uri):
                try:
                    return DataObject.of(split(uri)[0], obstore.head(client.store, key))
                except FileNotFoundError:
                    return None
        except Invalid:
            self.list(f"{uri}/", most=None)  # a refused HEAD has no body, so it gives no reason; a list does
            raise

    def fetch(self, uri: str, path: Path, tag: str = "") -> None:
        """Downloads an object, in its listed state if `tag` is set; rejects a changed object. Resumes after a broken connection."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            for piece in self.pieces(uri, tag):
                stream.write(piece)

    def pieces(self, uri: str, tag: str = "") -> Iterator[bytes]:
        """Yields the content of an object by one request: rclone needs as long for a late part as for all before it."""
        client, key = self.client(uri)
        with self.errors(uri):
            answer = obstore.get(client.store, key, options={"if_match": f'"{tag}"'} if tag else None)
            item = DataObject.of(split(uri)[0], answer.meta)
            _check_tag(uri, tag or item.tag, item.tag)
            yield from answer.stream(min_chunk_size=_CHUNK)

    def read(self, uri: str, tag: str, first: int, into: memoryview) -> None:
        """Fills `into` from byte `first` on, from the object in its listed state."""
        content = memoryview(self.part(uri, tag, first, first + len(into)))
        if len(content) != len(into):
            raise BadData(f"{uri}: changed while it was read: retry when the upload is complete")
        into[:] = content

    def part(self, uri: str, tag: str, first: int, last: int) -> Bytes | bytes:
        """Returns the bytes from `first` to before `last`, from the object in its listed state."""
        client, key = self.client(uri)
        with self.errors(uri):
            if client.has_parts:
                try:
                    answer = obstore.get(client.store, key, options={"range": (first, last), "if_match": f'"{tag}"'})
                    _check_tag(uri, tag, (answer.meta["e_tag"] or "").strip('"'))
                    return answer.bytes()
                except BaseError as error:
                    if "non-partial response" not in str(error):
                        raise
                client.has_parts = False
            return self._presigned_part(client, uri, tag, first, last)

    def _presigned_part(self, client: Client, uri: str, tag: str, first: int, last: int) -> bytes:
        """Reads a part from a server whose status is 200. The URL is a credential, so it may not be logged."""
        url = obstore.sign(client.store, "GET", split(uri)[1], timedelta(minutes=5))
        url = url if client.is_signing else url.partition("?")[0]
        context = ssl.create_default_context(cafile=self.environment.get("AWS_CA_BUNDLE")) if url.startswith("https") else None
        content = b""
        for attempt in range(self.tries):
            pause(attempt)
            at = first + len(content)
            request = urllib.request.Request(url, headers={"Range": f"bytes={at}-{last - 1}", "If-Match": f'"{tag}"'})  # noqa: S310
            try:
                with urllib.request.urlopen(request, timeout=self.timeout, context=context) as answer:  # noqa: S310
                    if not (answer.headers["Content-Range"] or "").startswith(f"bytes {at}-"):
                        raise Unavailable(f"{uri}: the object store does not support range requests")
                    _check_tag(uri, tag, (answer.headers["ETag"] or tag).strip('"'))
                    content += answer.read()
            except IncompleteRead as error:
                content += error.partial
            except HTTPError as error:
                if error.code < 500:
                    raise
            except (OSError, HTTPException):
                continue
            if len(content) == last - first:
                return content
        raise Unavailable(f"{uri}: the object store closed the connection {self.tries} times")

    @contextmanager
    def errors(self, uri: str) -> Iterator[None]:
        """Converts obstore's errors of many lines to one line, without credentials."""
        try:
            yield
        except (BaseError, FileNotFoundError, HTTPError, ValueError) as error:
            raise self._error(uri, error) from None

    def _error(self, uri: str, error: Exception) -> Exception:
        text, scheme = str(error), uri.partition("://")[0]
        status = int(_first(r"(?:status code|HTTP Error):? (\d{3})", text) or 0)
        code = _first(r"<Code>(\w+)</Code>", text)
        if isinstance(error, AlreadyExistsError):
            return FileExistsError(uri)
        if isinstance(error, PreconditionError) or status == 412:
            return BadData(f"{uri}: changed while it was read: retry when the upload is complete")
        if isinstance(error, FileNotFoundError) or status == 404 or code in _NO_BUCKET:
            return self._missing(uri, code)
        if status in (400, 401, 403):
            may = "read, write and list" if self.for_artifacts else "read it"
            return Invalid(f"{uri}: access denied ({code or status}): set {_KEYS[scheme]} to a key that may {may}")
        if status in (301, 307, 308) or "redirect" in text:
            return Invalid(f"{uri}: the bucket is in another region ({code or status or 'redirect'}): set AWS_REGION to its region")
        if isinstance(error, InvalidPathError | ValueError) or "path segment" in text:
            return Invalid(f"{uri}: a key with an empty part, '.' or '..' cannot be read")
        if status:
            return Unavailable(f"{uri}: the object store answers {status} {code}".rstrip())
        reasons = re.findall(r"(?:kind|source|error): (\w+)[,)]", text)
        named = next((self.environment[name] for name in _ENDPOINTS[scheme] if name in self.environment), "of the cloud")
        return Unavailable(f"{uri}: the object store {named} does not answer: {reasons[-1] if reasons else type(error).__name__}")

    def _missing(self, uri: str, code: str) -> Exception:
        if code not in _NO_BUCKET:
            return FileNotFoundError(uri) if self.for_artifacts else BadData(f"{uri}: object not found")
        if self.for_artifacts:
            return Invalid(f"{uri}: bucket not found: create it, or set another one in EYAS_ARTIFACTS_URL")
        return BadData(f"{uri}: bucket not found")


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""


def pause(attempt: int) -> None:
    if attempt:
        time.sleep(min(0.2 * 4**attempt, 10.0))


def _check_tag(uri: str, tag: str, actual: str) -> None:
    """Some servers ignore If-Match."""
    if actual != tag:
        raise BadData(f"{uri}: changed while it was read: retry when the upload is complete")


@lru_cache(maxsize=32)
def _connect(bucket: str, variables: tuple[tuple[str, str], ...], timeout: float, tries: int) -> Client:
    environment = dict(variables)
    scheme, _, name = bucket.partition("://")
    endpoint = next((environment[name] for name in _ENDPOINTS[scheme] if name in environment), "")
    if endpoint and (urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).hostname):
        raise Invalid(f"{_ENDPOINTS[scheme][-1]}: expected http://HOST:PORT or https://HOST")
    bundle = environment.get("AWS_CA_BUNDLE")
    options: dict[str, Any] = {
        "client_options": {
            "allow_http": endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=min(timeout, 10)),
            "read_timeout": timedelta(seconds=timeout),
            "timeout": _LONG,
        }
        | ({"root_certificate": Path(bundle).read_text("utf-8")} if bundle else {}),
        "retry_config": {
            "max_retries": tries - 1,
            "retry_timeout": _LONG,  # `max_retries` is the bound; a long download may be resumed late
            "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=10)},
        },
    }
    if scheme == "gs":
        return Client(GCSStore(name, **options))
    if scheme == "az":
        return Client(AzureStore(name, **options))
    id, secret = environment.get("AWS_ACCESS_KEY_ID", ""), environment.get("AWS_SECRET_ACCESS_KEY", "")
    has_role, is_signing = any(name in environment for name in _ROLES), bool(id and secret)
    # A provider, because obstore would complete the keys from the process's own environment.
    credential: S3Credential = {
        "access_key_id": id,
        "secret_access_key": secret,
        "token": environment.get("AWS_SESSION_TOKEN"),
        "expires_at": None,
    }
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    store = S3Store(
        name,
        config={
            "aws_endpoint_url_s3": endpoint or f"https://s3.{region}.amazonaws.com",
            "region": region,
            "skip_signature": not is_signing and not has_role,
            "disable_bulk_delete": True,  # not all servers have it
        },
        credential_provider=(lambda: credential) if is_signing or not has_role else None,
        **options,
    )
    return Client(store, is_signing or has_role)
