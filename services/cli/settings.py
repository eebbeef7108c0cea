"""Options of `train`, `tune` and `evaluate` for a model: NAME=VALUE settings and allowed modules."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from shared.domain.errors import Invalid

Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Parameter of the model, or train.NAME of its training. Repeatable.")
]
Fewest = Annotated[int, typer.Option(min=1, help="Minimum number of items of a user; other users are left out.")]

Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE",
        help="Module of custom families that a spec or a saved model may name. Its code runs: allow only trusted modules. Repeatable; a "
        "module that --model names is allowed.",
    ),
]


def allowed(modules: list[str] | None, *named: str | None) -> tuple[str, ...]:
    """Returns the allowed modules, with those of custom families that the command line names."""
    from shared.contracts.families import OWN

    return (*(modules or ()), *(name.partition(":")[0] for name in named if name is not None and OWN.fullmatch(name)))


def settings(assignments: list[str] | None) -> dict[str, Any]:
    return dict(map(_setting, assignments or ()))


def value(text: str) -> Any:
    """Parses JSON, else returns the text. NaN and infinities are not JSON."""
    try:
        return json.loads(text, parse_constant=_none_of_json)
    except (ValueError, RecursionError):
        return text


def _none_of_json(text: str) -> None:
    raise ValueError(text)


def _setting(text: str) -> tuple[str, Any]:
    name, between, value_text = text.partition("=")
    if not between or not name:
        raise Invalid(f"--set {text}: expected NAME=VALUE, such as width=64 or train.epochs=10")
    return name, value(value_text)
