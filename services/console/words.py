"""How numbers, times and states are said on every page. None, and what isn't known, is a dash."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, overload
from urllib.parse import urlencode

from markupsafe import Markup

DASH = "\u2013"

_TONES = {
    "good": ("steady", "registered", "promoted", "ready", "in step", "passed", "pass", "ok", "serving", "done"),
    "bad": ("drifted", "failed", "rejected", "rolled_back", "fail", "error", "refused", "dead", "down", "silent", "stop", "gave up"),
    "busy": ("fires", "etl", "train", "evaluate", "refit", "export", "verify", "loading", "shadow", "canary", "running", "rolling_back"),
    "wait": ("pending", "paused", "inconclusive", "queued", "waiting", "behind", "warn", "open"),
}
TONES = {state: tone for tone, states in _TONES.items() for state in states}


@overload
def moment(given: str | datetime) -> datetime: ...
@overload
def moment(given: None) -> None: ...
def moment(given: str | datetime | None) -> datetime | None:
    if given is None:
        return None
    at = given if isinstance(given, datetime) else datetime.fromisoformat(given)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def now() -> datetime:
    return datetime.now(UTC)


def ago(given: str | datetime | None) -> Markup | str:
    """How long since, or until; the moment itself stands in the element."""
    at = moment(given)
    if at is None:
        return DASH
    apart = now() - at
    text = f"{span(apart)} ago" if apart >= timedelta(0) else f"in {span(-apart)}"
    if abs(apart) < timedelta(seconds=1):
        text = "just now"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.isoformat(), clock(at), text)


def clock(given: str | datetime | None) -> str:
    at = moment(given)
    return DASH if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(given: float | timedelta | None) -> str:
    """Two units at most: 3 d 4 h, 2 min 5 s, 0.25 s."""
    if given is None:
        return DASH
    seconds = given.total_seconds() if isinstance(given, timedelta) else float(given)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds < 0.995 else "1 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, small, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit} {rest} {small}" if rest and whole < 20 * size else f"{whole // size} {unit}"
    return f"{whole} s"


def span_small(given: float | None) -> str:
    """Of what takes milliseconds: 0.42 ms, 12 ms, 1.2 s."""
    if given is None:
        return DASH
    return f"{given * 1000:.2g} ms" if given < 0.0995 else f"{given * 1000:.0f} ms" if given < 0.9995 else f"{given:.2g} s"


def past(given: str | datetime | None) -> bool:
    at = moment(given)
    return at is not None and at <= now()


def query(given: Mapping[str, str]) -> str:
    """Of an address: what is empty is left out."""
    return urlencode({name: value for name, value in given.items() if value})


def percent(given: float | None, digits: int = 1) -> str:
    return DASH if given is None else f"{given * 100:.{digits}f} %"


def share(given: float | None) -> str:
    """Of what a spec says: no digit of it is lost, half a percent stays half a percent."""
    return DASH if given is None else f"{given * 100:g} %"


def roughly(given: float) -> str:
    """Two digits that count: what is little isn't nothing."""
    return f"{given * 100:.0f} %" if given == 0 or abs(given) >= 0.095 else f"{given * 100:.2g} %"


def number(given: float | None, digits: int = 4) -> str:
    if given is None:
        return DASH
    if isinstance(given, bool):
        return "yes" if given else "no"
    if isinstance(given, int) or (float(given).is_integer() and abs(given) < 1e15):
        return f"{int(given):,}"
    return f"{given:,.{digits}g}" if abs(given) < 1000 else f"{given:,.0f}"


def size(given: float | None) -> str:
    if given is None:
        return DASH
    value = float(given)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def tone(state: str | None) -> str:
    return TONES.get(state or "", "plain")


def plain(state: str | None) -> str:
    return DASH if state is None else state.replace("_", " ")


def pretty(given: Any) -> str:
    return json.dumps(given, indent=2, ensure_ascii=False, sort_keys=False)


def users(count: int) -> str:
    return f"{count:,} user" if count == 1 else f"{count:,} users"


_FILTERS = (ago, clock, moment, span, span_small, past, query, percent, share, roughly, number, size, tone, plain, users, pretty)
FILTERS: dict[str, Callable[..., Any]] = {one.__name__: one for one in _FILTERS}
