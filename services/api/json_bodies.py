"""JSON bodies within bounds: no body holds up the event loop.

A body's cost is in its values, not in its bytes: `[],[],[]` has a value in every three bytes. So values are counted before parsing, by the
characters before them. A body that is not short is parsed in a thread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool

from shared.contracts.text import unkeepable
from shared.domain.errors import Invalid

SHORT = 4096
"""Bytes that the event loop parses itself."""
MAX_NAMES = 500
"""Most names of an object."""
SHOWN = 100
"""Faults that an answer lists."""
_DOUBTFUL = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])|\xed[\xa0-\xbf]|\0")
"""Without a match, no string of the body holds a NUL or half of a surrogate pair. Bodies in UTF-16 and UTF-32 have NULs."""


class JsonRequest(Request):
    """A request that parses its JSON once, checks its size, and refuses strings that a database cannot store."""

    max_values: int
    _value: Any
    _is_read = False

    async def json(self) -> Any:
        if not self._is_read:
            body = await self.body()
            self._value = parse(body, self.max_values) if is_light(body) else await run_in_threadpool(parse, body, self.max_values)
            self._is_read = True
        return self._value


def is_light(body: bytes) -> bool:
    """Returns whether parsing is faster than a call of a thread."""
    return len(body) <= SHORT and not is_doubtful(body)


def is_doubtful(body: bytes) -> bool:
    """Returns whether a string of the body may hold what can't be stored."""
    return _DOUBTFUL.search(body) is not None


def check_values(body: bytes, most: int) -> None:
    """Counts separators: each value but the first follows one. Those within texts count too."""
    if len(body) > most and body.count(b",") + body.count(b"[") + body.count(b"{") > most:
        raise HTTPException(413, f"the body has more than {most} values: send it in parts")


def parse(body: bytes, most: int) -> Any:
    """Parses a body; faults are the client's."""
    check_values(body, most)
    try:
        value = json.loads(body) if len(body) <= SHORT else json.loads(body, object_pairs_hook=bounded_object)
    except RecursionError:
        raise HTTPException(400) from None
    except ValueError:
        raise RequestValidationError([{"type": "json_invalid", "loc": ("body",), "msg": "not JSON"}]) from None
    if is_doubtful(body):
        refuse_unkeepable(value)
    return value


def refuse_unkeepable(value: Any) -> None:
    """Rejects strings that a database can't store, and names each."""
    faults = unkeepable(value)[:SHOWN]
    if faults:
        raise RequestValidationError([{"type": "text", "loc": ("body", *place), "msg": message} for place, message in faults])


def bounded_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object; limits its names, because each unknown name may become a fault."""
    if len(pairs) > MAX_NAMES:
        raise Invalid(f"an object of the body has {len(pairs)} names; the limit is {MAX_NAMES}")
    return dict(pairs)
