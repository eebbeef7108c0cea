"""Session of the console in a cookie that scripts cannot read, and the protection of forms against other sites.

A form is accepted only if the browser reports this origin, the cookie is sent (`SameSite=Lax` keeps the cookie from other sites'
forms), and the form has the word derived from the session, which no other site can know."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from shared.domain.sessions import LIFE, session_id, stable_half

_LONGEST = 4096
"""Longest token in characters."""
BODY = 1 << 20
_FIELDS = 200


class RejectedForm(Exception):
    """Form of another site, or one that is too long or invalid."""


@dataclass(frozen=True)
class SubmittedForm:
    values: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "").strip()


def cookie(request: Request) -> str:
    """Name of the cookie; older releases have another. Browsers accept the `__Host-` prefix only over https and from this host."""
    return "__Host-eyas-session" if request.url.scheme == "https" else f"eyas-session-{request.url.port or 80}"


def session_of(request: Request) -> str | None:
    text = request.cookies.get(cookie(request), "")
    return text if session_id(text) is not None else None


def can_be_token(text: str) -> bool:
    return 0 < len(text) <= _LONGEST and text.isascii() and text.isprintable()


def keep(request: Request, response: Response, session: str) -> None:
    """The server ends the session: the cookie may stay longer, and does not depend on the browser's clock."""
    set_cookie(request, response, cookie(request), session, int(LIFE.total_seconds()))


def forget(request: Request, response: Response) -> None:
    delete_cookie(request, response, cookie(request))


def set_cookie(request: Request, response: Response, name: str, text: str, seconds: int) -> None:
    """Sets a cookie that scripts and forms of other sites cannot use."""
    response.set_cookie(name, text, seconds, secure=request.url.scheme == "https", httponly=True, samesite="lax")


def delete_cookie(request: Request, response: Response, name: str) -> None:
    response.delete_cookie(name, secure=request.url.scheme == "https", httponly=True, samesite="lax")


def word(session: str) -> str:
    """CSRF word of the forms: derived from the part of the session's secret that stays, without revealing it."""
    return hmac.new(stable_half(session).encode(), b"a form of the console", hashlib.sha256).hexdigest()


async def form_of(request: Request, session: str | None) -> SubmittedForm:
    """Reads a form and checks its origin and word. `session` is None at sign-in, where no word exists."""
    if not _from_here(request):
        raise RejectedForm("this form was sent from another site: open the page here and send it again")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise RejectedForm("this is not a form of the console")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY:
            raise RejectedForm(f"this form is longer than {BODY >> 20} MiB")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS, errors="strict")
    except ValueError:
        raise RejectedForm("this form cannot be read: too many fields, or not UTF-8") from None
    form = SubmittedForm(dict(fields))
    if session is not None and not hmac.compare_digest(form["word"].encode(), word(session).encode()):
        raise RejectedForm("this form belongs to another sign-in: reload the page and send it again")
    return form


def _from_here(request: Request) -> bool:
    """Checks headers that browsers set and pages cannot forge. Requests without them are rejected."""
    fetched = request.headers.get("sec-fetch-site")
    if fetched is not None:
        return fetched == "same-origin"
    return split(request.headers.get("origin", "")).netloc == request.headers.get("host")


def inside(path: str) -> str:
    """Target after a form: a path of this site, else the home page."""
    parts = split(path)
    fine = not parts.scheme and not parts.netloc and path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if fine else "/"


def split(address: str) -> SplitResult:
    """Splits an untrusted address; invalid addresses have no parts."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def integer(text: str) -> int | None:
    """Number of a form field; None for all else, for example non-ASCII digits or more than 18 digits."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None
