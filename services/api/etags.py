"""ETags: a client neither fetches unchanged content again nor overwrites changes that it hasn't seen.

A tag is `"REVISION.DIGEST"`: the stored revision, and a digest of the answer, which may change without the revision (for example a run's
place in the queue). `If-None-Match` compares the whole tag, `If-Match` the revision alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request, Response
from pydantic import BaseModel

from shared.domain.errors import Malformed

V = TypeVar("V", bound=BaseModel)

NOT_MODIFIED: dict[int | str, dict[str, Any]] = {304: {"description": "Not modified: If-None-Match names the current ETag"}}

_TAG = re.compile(r'(?P<weak>W/)?"(?P<revision>[0-9]{1,18})?[^"\x00-\x20]*"')
_ANY = range(1, 2**63)
_NONE = range(0, 1)

IfMatch = Annotated[
    str | None, Header(max_length=1000, description="ETag from an earlier read, or `*`: writes only if the revision is still the same.")
]


def tagged(request: Request, response: Response, revision: int, view: V) -> V | Response:
    """Returns the view with its tag, or 304 for a client that has it."""
    tag = etag(revision, view)
    header = request.headers.get("if-none-match", "")
    if header.strip() == "*" or tag in (candidate.strip().removeprefix("W/") for candidate in header.split(",")):
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return view


def etag(revision: int, view: BaseModel) -> str:
    return f'"{revision}.{hashlib.sha256(view.model_dump_json().encode()).hexdigest()[:16]}"'


def _expected(if_match: IfMatch = None) -> Container[int] | None:
    return None if if_match is None else _revisions(if_match)


def _expected_or_new(
    if_match: IfMatch = None,
    if_none_match: Annotated[str | None, Header(max_length=1000, description="`*`: creates only; fails if the name exists.")] = None,
) -> Container[int] | None:
    if if_none_match is None:
        return _expected(if_match)
    if if_none_match.strip() != "*" or if_match is not None:
        raise Malformed("If-None-Match: a write allows only `*`, which creates and never changes; remove If-Match")
    return _NONE


def _revisions(header: str) -> Container[int]:
    if header.strip() == "*":
        return _ANY
    revisions: set[int] = set()
    for text in header.split(","):
        tag = _TAG.fullmatch(text.strip())
        if tag is None:
            raise Malformed('If-Match: expected ETags from earlier answers, such as "3.0a1b2c", or `*`')
        if tag["revision"] and not tag["weak"]:
            revisions.add(int(tag["revision"]))
    return revisions


Expected = Annotated[Container[int] | None, Depends(_expected)]
ExpectedOrNew = Annotated[Container[int] | None, Depends(_expected_or_new)]
