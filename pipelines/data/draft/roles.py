"""Guesses the roles of columns by their names, in several languages, and by their values."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import polars as pl

from pipelines.data.column_guess import COLUMN_NAMES, Role
from pipelines.data.draft.facts import ColumnFacts, FileFacts, time_form
from pipelines.data.times import is_text
from shared.contracts.schema import TimeColumn
from shared.domain.errors import Invalid

_STEMS: Mapping[Role, str] = {
    "user": "user customer client member visitor account person profile subscriber listener reader viewer player buyer kunde nutzer "
    "besucher hörer leser usuario cliente utilisateur email mail",
    "item": "item product article sku movie film book track song artist album video game isbn asin recipe listing offer course content "
    "artikel produkt buch titel lied articulo producto produit",
    "time": "timestamp datetime time date datum zeit fecha occurred created when day ts at",
    "label": "rating overall stars score label bewertung sterne punkte note liked like event action ereignis aktion interaction feedback "
    "type kind value",
}
"""Beginnings of the words of a column's name, most likely first."""
_POSITIVE = "purchase buy bought order transaction kauf bestellung like favorite favourite subscribe save"
_WEAKER = "cart basket add wishlist warenkorb share play complete click klick"
"""Parts of events' names that show a positive; the second only if an event has none of the first."""
_MOST_STEPS = 25
"""Most distinct values of a rating."""


@dataclass(frozen=True)
class LabelGuess:
    """`positive`: a rule as in a spec; None: every row is a positive."""

    column: str | None
    positive: str | list[str] | None
    reason: str


@dataclass(frozen=True)
class Roles:
    user: str
    item: str
    time: TimeColumn | None
    no_time: str
    """Why there is no time; empty if there is one."""
    label: LabelGuess


def guess_roles(file: FileFacts, chosen: Mapping[Role, str], time_format: str | None, positive: str | None) -> Roles:
    """Guesses the roles; `chosen` ones are used. Raises Invalid for a user or an item that cannot be recognised."""
    for role, column in chosen.items():
        if column not in file.columns:
            raise Invalid(f"{file.name}: column '{column}' ({role}) is missing; columns: {', '.join(file.columns)}")
    assigned = set(chosen.values())
    user = chosen.get("user") or _key(file, "user", assigned)
    item = chosen.get("item") or _key(file, "item", assigned | {user})
    assigned |= {user, item}
    time = chosen.get("time") or _time(file, assigned)
    assigned |= {time} if time else set()
    label = _label(file, chosen.get("label") or _named(file, "label", assigned) or _steps(file, assigned), positive)
    if time is None:
        return Roles(user, item, None, _no_time(file, assigned), label)
    return Roles(user, item, time_form(file, time, time_format), "", label)


def finds_keys(file: FileFacts) -> bool:
    """Tests for columns of users and of items."""
    return _named(file, "user", ()) is not None and _named(file, "item", ()) is not None


def _key(file: FileFacts, role: Role, assigned: Collection[str]) -> str:
    column = _named(file, role, assigned)
    if column is not None:
        return column
    roles: set[Role] = {"user", "item", "time", "label"}
    reserved = {*assigned, *file.times, *(_named(file, other, assigned) for other in roles - {role})}
    candidates = [name for name, facts in file.columns.items() if name not in reserved and facts.is_id and not facts.is_unique]
    if len(candidates) == 1 or (file.header and candidates):  # without names, the first column is the user and the next one the item
        return candidates[0]
    raise Invalid(f"{file.name}: {role} column not recognised; set --column {role}=NAME; columns: {', '.join(file.columns)}")


def _time(file: FileFacts, assigned: Collection[str]) -> str | None:
    named = _named(file, "time", assigned)
    if named is not None and named in file.times:
        return named
    is_sure = file.header is not None
    times = [name for name in file.times if name not in assigned and (is_sure or not file.schema[name].is_numeric())]
    return times[0] if len(times) == 1 else None


def _no_time(file: FileFacts, assigned: Collection[str]) -> str:
    column = _named(file, "time", assigned)
    if column is None:
        return "no column of times: the holdout is chosen at random"
    example = next(iter(file.frame.select(column).head(1).collect().to_series()))
    return f"'{column}' has no times that are recognised, such as {example}: set --time-format, else the holdout is chosen at random"


def _named(file: FileFacts, role: Role, assigned: Collection[str]) -> str | None:
    """Returns the column whose name is the most likely for the role, and whose values are possible."""
    ranked = [(_rank(role, name), name) for name, facts in file.columns.items() if name not in assigned and _can_be(role, facts)]
    best = min((entry for entry in ranked if entry[0] is not None), default=None, key=lambda entry: entry[0] or 0)
    return best[1] if best else None


def _rank(role: Role, name: str) -> int | None:
    """Returns the place of a name among the names of a role, the most likely is 0."""
    plain = unicodedata.normalize("NFKC", name)
    words = [word.lower() for word in re.findall(r"[^\W\d_]+?(?=[A-ZÄÖÜ][a-zäöü]|[\W\d_]|$)", plain)]
    joined = "".join(words)
    if joined in COLUMN_NAMES[role]:
        return COLUMN_NAMES[role].index(joined)
    places = [place for place, stem in enumerate(_STEMS[role].split()) if any(_begins(word, stem) for word in words)]
    return 100 + places[0] if places else None


def _begins(word: str, stem: str) -> bool:
    return word == stem if len(stem) < 4 else word.startswith(stem)


def _can_be(role: Role, facts: ColumnFacts) -> bool:
    if role in ("user", "item"):
        return facts.is_id
    if role == "label":
        return facts.dtype.is_numeric() or facts.dtype == pl.Boolean or (is_text(facts.dtype) and bool(facts.values))
    return facts.nulls == 0


def _steps(file: FileFacts, assigned: Collection[str]) -> str | None:
    """Returns the column of a file without names that can be a rating."""
    columns = [name for name, facts in file.columns.items() if name not in assigned and facts.dtype.is_numeric() and facts.values]
    return columns[0] if file.header and len(columns) == 1 else None


def _label(file: FileFacts, column: str | None, positive: str | None) -> LabelGuess:
    if column is None:
        return LabelGuess(None, None, "no column of ratings or events: every row is a positive")
    facts = file.columns[column]
    if positive is not None:
        return LabelGuess(column, positive, "as given")
    if is_text(facts.dtype):
        return _event_label(facts)
    if facts.dtype == pl.Boolean:
        return LabelGuess(column, ">= 1", "true or false")
    steps = sorted(value for value in facts.values if isinstance(value, int | float))
    if len(steps) < 2 or len(steps) > _MOST_STEPS or facts.nulls:
        return LabelGuess(None, None, f"'{column}' does not look like a rating: every row is a positive")
    threshold = next(step for step in steps if step >= steps[0] + 0.7 * (steps[-1] - steps[0]))
    return LabelGuess(column, f">= {threshold:g}", f"values from {steps[0]:g} to {steps[-1]:g}; the upper 30% of the range")


def _event_label(facts: ColumnFacts) -> LabelGuess:
    counts = {str(value): rows for value, rows in facts.values.items()}
    listed = ", ".join(f"{value} {rows:,}" for value, rows in counts.items())
    for words in (_POSITIVE, _WEAKER):
        positive = [value for value in counts if any(word in value.lower() for word in words.split())]
        if positive and sum(counts[value] for value in positive) < facts.rows:
            return LabelGuess(facts.name, positive, f"values: {listed}")
    return LabelGuess(None, None, f"'{facts.name}' has no value that is known to be better: every row is a positive; values: {listed}")
