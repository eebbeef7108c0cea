"""Formats of numbers, times and states on all pages. None is a dash."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, overload
from urllib.parse import urlencode

from markupsafe import Markup

DASH = "\u2013"

_TONES = {
    "good": ("no drift", "registered", "promoted", "ready", "up to date", "passed", "pass", "ok", "serving", "done"),
    "bad": ("drift", "failed", "rejected", "rolled_back", "fail", "error", "refused", "dead", "down", "silent", "stop", "dead letter"),
    "busy": ("firing", "etl", "train", "evaluate", "refit", "export", "verify", "loading", "shadow", "canary", "running", "rolling_back"),
    "wait": ("pending", "paused", "inconclusive", "queued", "waiting", "unconfirmed", "behind", "warn", "open"),
}
TONES = {state: tone for tone, states in _TONES.items() for state in states}


@overload
def moment(timestamp: str | datetime) -> datetime: ...
@overload
def moment(timestamp: None) -> None: ...
def moment(timestamp: str | datetime | None) -> datetime | None:
    if timestamp is None:
        return None
    at = timestamp if isinstance(timestamp, datetime) else datetime.fromisoformat(timestamp)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def now() -> datetime:
    return datetime.now(UTC)


def ago(timestamp: str | datetime | None) -> Markup | str:
    """Time since or until a moment; the element's title has the moment."""
    at = moment(timestamp)
    if at is None:
        return DASH
    apart = now() - at
    text = f"{span(apart)} ago" if apart >= timedelta(0) else f"in {span(-apart)}"
    if abs(apart) < timedelta(seconds=1):
        text = "just now"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.isoformat(), clock(at), text)


def clock(timestamp: str | datetime | None) -> str:
    at = moment(timestamp)
    return DASH if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(duration: float | timedelta | None) -> str:
    """At most two units: 3 d 4 h, 2 min 5 s, 0.25 s."""
    if duration is None:
        return DASH
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds < 0.995 else "1 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    total = round(seconds)
    for unit, size, small, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if total >= size:
            rest = total % size // part
            return f"{total // size} {unit} {rest} {small}" if rest and total < 20 * size else f"{total // size} {unit}"
    return f"{total} s"


def span_small(seconds: float | None) -> str:
    """For durations of milliseconds: 0.42 ms, 12 ms, 1.2 s."""
    if seconds is None:
        return DASH
    return f"{seconds * 1000:.2g} ms" if seconds < 0.0995 else f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.2g} s"


def past(timestamp: str | datetime | None) -> bool:
    at = moment(timestamp)
    return at is not None and at <= now()


def query(parameters: Mapping[str, str]) -> str:
    """Query of an address, without empty values."""
    return urlencode({name: value for name, value in parameters.items() if value})


def percent(fraction: float | None, digits: int = 1) -> str:
    return DASH if fraction is None else f"{fraction * 100:.{digits}f} %"


def share(fraction: float | None) -> str:
    """For shares of a spec: keeps all digits, for example 0.5 %."""
    return DASH if fraction is None else f"{fraction * 100:g} %"


def roughly(fraction: float) -> str:
    """Two significant digits, so that a small share is not shown as zero."""
    return f"{fraction * 100:.0f} %" if fraction == 0 or abs(fraction) >= 0.095 else f"{fraction * 100:.2g} %"


def number(value: float | None, digits: int = 4) -> str:
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.{digits}g}" if abs(value) < 1000 else f"{value:,.0f}"


def size(byte_count: float | None) -> str:
    if byte_count is None:
        return DASH
    value = float(byte_count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def tone(state: str | None) -> str:
    return TONES.get(state or "", "plain")


def plain(state: str | None) -> str:
    return DASH if state is None else state.replace("_", " ")


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False)


def users(count: int) -> str:
    return f"{count:,} user" if count == 1 else f"{count:,} users"


_FILTERS = (ago, clock, moment, span, span_small, past, query, percent, share, roughly, number, size, tone, plain, users, pretty)
FILTERS: dict[str, Callable[..., Any]] = {function.__name__: function for function in _FILTERS}
