"""Which column is the user, the item, the time or the label, where nobody has said so: by what such columns are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

Role = Literal["user", "item", "time", "label"]
COLUMN_NAMES: Mapping[Role, tuple[str, ...]] = {
    "user": ("user", "userid", "uid", "customer", "customerid", "visitor", "visitorid"),
    "item": ("item", "itemid", "movieid", "productid", "articleid", "bookid", "iid"),
    "time": ("timestamp", "time", "at", "datetime", "date", "ts"),
    "label": ("rating", "label", "value", "score", "stars"),
}
"""In small letters and without underscores, the likeliest first."""


def column_called(role: Role, names: Sequence[str]) -> str | None:
    """The first of the likeliest name; a type behind a colon doesn't count."""
    plain = {name.split(":")[0].replace("_", "").lower(): name for name in reversed(names)}
    return next((plain[alias] for alias in COLUMN_NAMES[role] if alias in plain), None)
