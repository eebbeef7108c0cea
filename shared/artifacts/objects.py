"""Storage of an artifact store: a folder, an S3 bucket, or another file system of fsspec.

S3 uses the client that also reads specs' data: s3fs, fsspec's choice, cannot be installed together with the Kubernetes client
(docs/adr/0040-artifacts-in-s3.md). Credentials and endpoint come from the environment (AWS_...); if variables named EYAS_ARTIFACTS_AWS_...
exist, only those are used.
"""

from __future__ import annotations

import http.client
import io
import os
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import quote

import fsspec

from shared.datafiles.s3 import S3
from shared.domain.errors import Invalid, Unavailable

SCHEME = "s3://"
OWN = "EYAS_ARTIFACTS_"
"""Prefix of AWS variables for the artifact store only."""
PART = 64 << 20
"""Larger files are uploaded in parts; a store accepts ten thousand parts."""
MOST_PARTS = 9_000
COPIED = 4 << 30
"""Larger objects cannot be copied in one request."""
_GOOD = frozenset({200, 204, 206})
_READ_AHEAD = 4 << 20
Part = tuple[Mapping[str, str], Callable[[], bytes]]


def opened(url: str) -> tuple[Any, str]:
    """Returns a file system, and the root in it."""
    if url.startswith(SCHEME):
        root = url.removeprefix(SCHEME).strip("/")
        if not root:
            raise Invalid(f"{url}: expected s3://BUCKET or s3://BUCKET/PREFIX")
        own = {name.removeprefix(OWN): value for name, value in variables(url, os.environ).items()}
        return S3Files(S3.from_environment(own)), root
    fs, root = fsspec.core.url_to_fs(url)
    return fs, str(root).rstrip("/")


def variables(url: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with the credentials and endpoint of this URL, to pass on to other processes."""
    if not url.startswith(SCHEME):
        return {}
    for prefix in (f"{OWN}AWS_", "AWS_"):
        if matching := {name: value for name, value in environment.items() if name.startswith(prefix)}:
            return matching
    return {}


class S3Files:
    """The subset of fsspec's file system interface that artifacts need, for S3; paths are BUCKET/KEY. Writes are atomic."""

    def __init__(self, client: S3, part: int = PART, copied: int = COPIED) -> None:
        self._client = client
        self._part = part
        self._copied = copied

    def info(self, path: str) -> dict[str, Any]:
        with self._answer("HEAD", path) as answer:
            written = parsedate_to_datetime(answer.getheader("Last-Modified") or "")
            tag = (answer.getheader("ETag") or "").strip('"')
            return {"type": "file", "size": int(answer.getheader("Content-Length") or 0), "LastModified": written, "tag": tag}

    def exists(self, path: str) -> bool:
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        return int(self.info(path)["size"])

    def find(self, path: str, detail: bool = False) -> dict[str, dict[str, Any]] | list[str]:
        """Returns everything below a path. Times are whole seconds, as in `info`."""
        bucket, key = _parts(path)
        entries = {}
        for listed in self._client.list(bucket, f"{key.rstrip('/')}/", most=None):
            at = listed.written[:19] + "+00:00"
            entries[f"{bucket}/{listed.key}"] = {"type": "file", "size": listed.size, "LastModified": at, "tag": listed.tag}
        return entries if detail else list(entries)

    def cat_file(self, path: str) -> bytes:
        about = self.info(path)
        content = bytearray(about["size"])
        if content:
            self._client.read(*_parts(path), about["tag"], 0, memoryview(content))
        return bytes(content)

    def open(self, path: str, mode: Literal["rb"] = "rb") -> IO[bytes]:
        return io.BufferedReader(_Reading(self._client, path, self.info(path)), _READ_AHEAD)

    def pipe_file(self, path: str, content: bytes, mode: Literal["overwrite", "create"] = "overwrite") -> None:
        """With `create`, raises FileExistsError if the object exists, on stores that support `If-None-Match`."""
        if mode == "overwrite":
            self._done("PUT", path, body=content)
            return
        bucket, key = _parts(path)
        connection, answer, again = self._client.ask("PUT", bucket, key, {}, {"If-None-Match": "*"}, content)
        with closing(connection):
            if answer.status in (409, 412):
                answer.read()
                if again and self.cat_file(path) == content:  # our own write, whose response was lost
                    return
                raise FileExistsError(path)
            _checked(answer, path)
            answer.read()

    def put_file(self, local_path: str, path: str) -> None:
        size = Path(local_path).stat().st_size
        if size <= self._part:
            self.pipe_file(path, Path(local_path).read_bytes())
            return
        each = max(self._part, -(-size // MOST_PARTS))
        with Path(local_path).open("rb") as stream:
            self._in_parts(path, (({}, lambda: stream.read(each)) for _ in range(0, size, each)))

    def copy(self, source: str, path: str) -> None:
        size, named = self.size(source), {"x-amz-copy-source": quote(f"/{source}", safe="/-_.~")}
        if size <= self._copied:
            self._xml("PUT", path, headers=named)
            return
        each = max(self._part, -(-size // MOST_PARTS))
        ranges = (f"bytes={first}-{min(first + each, size) - 1}" for first in range(0, size, each))
        self._in_parts(path, ((named | {"x-amz-copy-source-range": byte_range}, bytes) for byte_range in ranges))
        if self.size(path) != size:
            self.rm_file(path)
            raise Unavailable(f"{SCHEME}{source}: the object store cannot copy an object of {size:,} bytes in parts")

    def mv(self, source: str, path: str) -> None:
        self.copy(source, path)
        self.rm_file(source)

    def rm_file(self, path: str) -> None:
        self._done("DELETE", path)

    def rm(self, path: str, recursive: bool = False) -> None:
        for object_path in self.find(path) if recursive else [path]:
            self.rm_file(object_path)

    def invalidate_cache(self) -> None:
        """There is no cache."""

    def _in_parts(self, path: str, parts: Iterator[Part]) -> None:
        """Uploads all parts or nothing: an incomplete upload is not an object."""
        upload = self._xml("POST", path, {"uploads": ""}).findtext("{*}UploadId") or ""
        try:
            tags = []
            for number, (headers, content) in enumerate(parts, 1):
                query = {"partNumber": str(number), "uploadId": upload}
                with self._answer("PUT", path, query, headers, content()) as answer:
                    tag, reply = answer.getheader("ETag"), answer.read()
                tags.append(tag or xml.fromstring(reply).findtext("{*}ETag") or "")  # noqa: S314
            listed = "".join(f"<Part><PartNumber>{at}</PartNumber><ETag>{tag}</ETag></Part>" for at, tag in enumerate(tags, 1))
            completion = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
            self._xml("POST", path, {"uploadId": upload}, body=completion)
        except BaseException:
            with suppress(Exception):  # report the failure, not a failed abort
                self._done("DELETE", path, {"uploadId": upload})
            raise

    def _xml(
        self, method: str, path: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> xml.Element:
        """Checks for an error in the body, which a store sends if it fails after the status line."""
        with self._answer(method, path, query, headers, body) as answer:
            try:
                root = xml.fromstring(answer.read())  # noqa: S314
            except (OSError, http.client.HTTPException, xml.ParseError) as error:
                raise Unavailable(f"{SCHEME}{path}: the object store's answer cannot be read: {type(error).__name__}") from error
        if root.tag.rpartition("}")[2] == "Error":
            raise Unavailable(f"{SCHEME}{path}: the object store failed: {root.findtext('{*}Code')}")
        return root

    def _done(self, method: str, path: str, query: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        with self._answer(method, path, query, body=body) as answer:
            answer.read()

    @contextmanager
    def _answer(
        self, method: str, path: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Iterator[http.client.HTTPResponse]:
        """Yields a successful response."""
        bucket, key = _parts(path)
        connection, answer, _ = self._client.ask(method, bucket, key, query, headers, body)
        with closing(connection):
            _checked(answer, path)
            yield answer


class _Reading(io.RawIOBase):
    """Seekable reader of one object; fails if the object changed since it was opened."""

    def __init__(self, client: S3, path: str, about: Mapping[str, Any]) -> None:
        self._client, self._path, self._tag, self._size, self._at = client, path, about["tag"], int(about["size"]), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = memoryview(buffer)[: max(0, self._size - self._at)]
        if wanted:
            self._client.read(*_parts(self._path), self._tag, self._at, wanted)
        self._at += len(wanted)
        return len(wanted)


def _parts(path: str) -> tuple[str, str]:
    bucket, _, key = path.partition("/")
    return bucket, key


def _checked(answer: http.client.HTTPResponse, path: str) -> None:
    if answer.status in _GOOD:
        return
    try:
        code = xml.fromstring(answer.read()).findtext("{*}Code") or ""  # noqa: S314
    except (OSError, http.client.HTTPException, xml.ParseError):
        code = ""
    if answer.status == 404 and code != "NoSuchBucket":
        raise FileNotFoundError(path)
    if answer.status == 404:
        raise Invalid(f"{SCHEME}{path}: bucket not found: create it, or set another one in EYAS_ARTIFACTS_URL")
    if answer.status in (400, 401, 403):
        reason = code or answer.status
        raise Invalid(f"{SCHEME}{path}: access denied ({reason}): set AWS_ACCESS_KEY_ID to a key that may read, write and list")
    if answer.status in (301, 307, 308):
        raise Invalid(f"{SCHEME}{path}: the bucket is in another region ({code or answer.status}): set AWS_REGION to its region")
    raise Unavailable(f"{SCHEME}{path}: the object store answers {answer.status} {code}".rstrip())
