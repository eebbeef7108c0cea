"""Paging of lists: `limit`, and an opaque `cursor` that names the last row of a page.

A cursor is a place in one list with one set of filters. Rows that are added later move no place: no row is repeated or left out.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Query, Request
from pydantic import BaseModel, Field

from shared.domain.errors import Malformed

T = TypeVar("T")
V = TypeVar("V")
P = TypeVar("P", str, int)

_OWN = frozenset({"limit", "cursor"})
_LARGEST = 2**63 - 1
_WRONG = "cursor: not a cursor of this list with these filters; start again without it, and keep the filters"


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: str | None = Field(None, description="Cursor of the next page: send it as `cursor` with the same filters; null on the last page.")


@dataclass(frozen=True)
class Paging:
    limit: int
    digest: str
    place: str | int | None

    @property
    def text(self) -> str | None:
        """Returns the place in a list that is ordered by text."""
        if isinstance(self.place, int):
            raise Malformed(_WRONG)
        return self.place

    @property
    def number(self) -> int | None:
        if isinstance(self.place, str):
            raise Malformed(_WRONG)
        return self.place

    @property
    def more(self) -> int:
        """Returns how many rows to ask for: a surplus row shows that others follow."""
        return self.limit + 1

    def page(self, rows: Sequence[T], place: Callable[[T], str | int], view: Callable[[T], V]) -> Page[V]:
        """Returns the page of rows after the cursor's place; a surplus row means that others follow."""
        page_rows = rows[: self.limit]
        following = _encode(place(page_rows[-1]), self.digest) if len(rows) > self.limit else None
        return Page(items=[view(row) for row in page_rows], next=following)

    def filtered(
        self, ask: Callable[[P | None], Sequence[T]], place: Callable[[T], P], after: P | None, keep: Callable[[T], bool]
    ) -> list[T]:
        """Returns as many rows as a page needs, for filters that the store doesn't have."""
        matching: list[T] = []
        while len(matching) < self.more:
            rows = ask(after)
            matching += [row for row in rows if keep(row)]
            if len(rows) < self.more:
                break
            after = place(rows[-1])
        return matching


def _paging(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=200, description="Largest number of rows of a page.")] = 50,
    cursor: Annotated[str | None, Query(max_length=1000, description="`next` of the page before; when absent, the first page.")] = None,
) -> Paging:
    filters = sorted((name, value) for name, value in request.query_params.multi_items() if name not in _OWN)
    canonical = json.dumps([request.url.path, filters]).encode()
    digest = hashlib.sha256(canonical).hexdigest()[:16]
    return Paging(limit, digest, None if cursor is None else _decode(cursor, digest))


Pages = Annotated[Paging, Depends(_paging)]


def _encode(place: str | int, digest: str) -> str:
    text = json.dumps({"after": place, "of": digest}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(cursor: str, digest: str) -> str | int:
    try:
        decoded = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        place, of = decoded["after"], decoded["of"]
    except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
        raise Malformed(_WRONG) from None
    good = (isinstance(place, str) and _writable(place)) or (type(place) is int and 0 <= place <= _LARGEST)
    if of != digest or not good:
        raise Malformed(_WRONG)
    return str(place) if isinstance(place, str) else int(place)


def _writable(text: str) -> bool:
    """Returns whether every database takes the text: no NUL, no half of a surrogate pair."""
    return "\0" not in text and text.isprintable() and len(text) <= 200
