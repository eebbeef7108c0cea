"""A stub of an S3 server, in threads of the test's own process: it checks signatures, and its buckets are folders."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import shutil
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

ID, SECRET = "reader", "hush-hush-hush"


class S3Stub:
    """The interface of `tests.servers.s3_server.S3Server`."""

    def __init__(self, folder: Path, part_status: int = 206, page: int = 1_000) -> None:
        """`part_status`: of a part of an object; some servers say 200, and name the part in a header alone. `page`: keys of a list."""
        self.buckets = folder / "buckets"
        self.buckets.mkdir(parents=True)
        self.part_status, self.page = part_status, page
        self.lost = 0
        """Writes whose response the client does not get."""
        self.uploads: dict[str, dict[int, bytes]] = {}
        handler = type("Handler", (_Handler,), {"stub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.port = self._server.server_port
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu-central-1"}

    def put(self, path: Path, bucket: str, key: str) -> str:
        place = self.buckets / bucket / key
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
        return f"s3://{bucket}/{key}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    stub: S3Stub

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        bucket, _, key = unquote(parts.path).removeprefix("/").partition("/")
        if fault := _refusal(self.command, parts.path, query, self.headers, body):
            return self._error(403, fault)
        if not (self.stub.buckets / bucket).is_dir():
            return self._error(404, "NoSuchBucket")
        if not key:
            return self._list(bucket, query)
        place = self.stub.buckets / bucket / key
        if self.command in ("PUT", "POST"):
            return self._write(place, query, body)
        if self.command == "DELETE":
            self.stub.uploads.pop(query.get("uploadId", ""), None)
            if "uploadId" not in query:
                place.unlink(missing_ok=True)
            return self._send(204)
        return self._read(place)

    def _list(self, bucket: str, query: Mapping[str, str]) -> None:
        root, page = self.stub.buckets / bucket, self.stub.page
        keys = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
        keys = [key for key in keys if key.startswith(query.get("prefix", "")) and key > query.get("continuation-token", "")]
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{(root / key).stat().st_size}</Size><ETag>&quot;{_tag((root / key).read_bytes())}"
            f"&quot;</ETag><LastModified>{_iso((root / key).stat().st_mtime)}</LastModified></Contents>"
            for key in keys[:page]
        )
        more = len(keys) > page
        token = f"<NextContinuationToken>{escape(keys[page - 1])}</NextContinuationToken>" if more else ""
        space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
        self._xml(f"<ListBucketResult {space}>{found}<IsTruncated>{str(more).lower()}</IsTruncated>{token}</ListBucketResult>")

    def _write(self, place: Path, query: Mapping[str, str], body: bytes) -> None:
        if "uploads" in query:
            upload = secrets.token_hex(4)
            self.stub.uploads[upload] = {}
            return self._xml(f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>")
        if source := self.headers.get("x-amz-copy-source"):
            body = (self.stub.buckets / unquote(source).removeprefix("/")).read_bytes()
            if wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("x-amz-copy-source-range") or ""):
                body = body[int(wanted[1]) : int(wanted[2]) + 1]
        if "partNumber" in query:
            self.stub.uploads[query["uploadId"]][int(query["partNumber"])] = body
        elif "uploadId" in query:
            pieces = self.stub.uploads.pop(query["uploadId"])
            body = b"".join(pieces[number] for number in sorted(pieces))
            self._store(place, body)
        elif self.headers.get("If-None-Match") == "*" and place.exists():
            return self._error(412, "PreconditionFailed")
        else:
            self._store(place, body)
        if source or ("uploadId" in query and "partNumber" not in query):
            return self._xml(f"<Result><ETag>&quot;{_tag(body)}&quot;</ETag></Result>")
        return self._send(200, b"", {"ETag": f'"{_tag(body)}"'})

    def _store(self, place: Path, body: bytes) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_name(f".{place.name}.{threading.get_ident()}")
        beside.write_bytes(body)
        beside.replace(place)

    def _read(self, place: Path) -> None:
        if not place.is_file():
            return self._error(404, "NoSuchKey")
        content, at = place.read_bytes(), place.stat().st_mtime
        tag = f'"{_tag(content)}"'
        if self.headers.get("If-Match") not in (None, tag):
            return self._error(412, "PreconditionFailed")
        headers = {"ETag": tag, "Last-Modified": formatdate(int(at), usegmt=True), "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if wanted is None:
            return self._send(200, content, headers)
        first, last = int(wanted[1]), int(wanted[2] or len(content) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        return self._send(self.stub.part_status, content[first : last + 1], headers)

    def _error(self, status: int, code: str) -> None:
        self._send(status, f"<Error><Code>{code}</Code></Error>".encode())

    def _xml(self, text: str) -> None:
        self._send(200, text.encode())

    def _send(self, status: int, content: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        if self.stub.lost and self.command == "PUT":
            self.stub.lost -= 1
            return
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _refusal(method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes) -> str:
    """Why AWS Signature Version 4 of a request isn't good; empty where it is."""
    presigned = {name.removeprefix("X-Amz-"): value for name, value in query.items() if name.startswith("X-Amz-")}
    text = headers.get("Authorization") or "AWS4-HMAC-SHA256 Credential={Credential}, SignedHeaders={SignedHeaders}, Signature={Signature}"
    fields = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=([^/]*)/(.*), SignedHeaders=(.*), Signature=([0-9a-f]{64})",
        text.format_map(presigned) if "Signature" in presigned else text,
    )
    if fields is None:
        return "AccessDenied"
    id, scope, names, signature = fields.groups()
    if id != ID:
        return "InvalidAccessKeyId"
    digest = "UNSIGNED-PAYLOAD" if presigned else hashlib.sha256(body).hexdigest()
    query = {name: value for name, value in query.items() if name != "X-Amz-Signature"}
    date = presigned.get("Date") or headers["x-amz-date"]
    named = "".join(f"{name}:{headers[name]}\n" for name in names.split(";"))
    asked = "&".join(f"{quote(name, safe='-_.~')}={quote(query[name], safe='-_.~')}" for name in sorted(query))
    canonical = f"{method}\n{path}\n{asked}\n{named}\n{names}\n{digest}"
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    good = hmac.digest(key, text.encode(), "sha256").hex() == signature and headers.get("x-amz-content-sha256", digest) == digest
    return "" if good else "SignatureDoesNotMatch"


def _tag(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _iso(seconds: float) -> str:
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%S}.000Z"
