"""Custom families (`module:Class`), from modules that the operator allows and that are installed where stages run.

A spec can import nothing else, and the control plane imports none of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any

from pipelines.features.reading import READS
from pipelines.models.family import Family, Trained
from shared.contracts.families import OWN, OwnParams
from shared.contracts.models import Model
from shared.domain.errors import Invalid

_FAMILY = ("reads", "train", "load")
_TRAINED = ("meaning", "tables", "save", "score", "lower", "embeddings")


def is_own(name: str) -> bool:
    return OWN.fullmatch(name) is not None


def module_of(name: str) -> str:
    return name.partition(":")[0]


def own_family(name: str, allowed: Collection[str]) -> Family:
    module, _, wanted = name.partition(":")
    check_allowed(name, allowed)
    try:
        candidate = getattr(importlib.import_module(module), wanted, None)
    except Exception as error:  # custom code can raise anything
        why = " ".join(str(error).split())
        raise Invalid(f"model.family: '{module}' cannot be imported where stages run: {type(error).__name__}: {why}") from error
    if not isinstance(candidate, type):
        raise Invalid(f"model.family: the module '{module}' has no class '{wanted}'")
    _complete(candidate, _FAMILY, f"the class '{name}'")
    if candidate.reads not in READS:  # type: ignore[attr-defined]
        raise Invalid(f"model.family: '{name}': reads is {candidate.reads!r}: expected one of {', '.join(READS)}")  # type: ignore[attr-defined]
    family: Family = candidate()
    return family


def check_allowed(name: str, allowed: Collection[str]) -> None:
    """Raises Invalid if the module is not allowed; call before the import."""
    module = module_of(name)
    if is_own(name) and module not in allowed:
        allowed_names = ", ".join(sorted(allowed)) or "none"
        raise Invalid(
            f"model.family: the module '{module}' is not allowed; allowed: {allowed_names}; add it to EYAS_FAMILIES of the platform, or to"
            " --allow of the command"
        )


def check_params(family: Family, model: Model) -> None:
    """Runs the family's `check` of the spec's parameters, if it has one, before any data is read."""
    check = getattr(family, "check", None)
    if not isinstance(model.params, OwnParams) or check is None:
        return
    try:
        check(dict(model.params.root))
    except (TypeError, ValueError) as error:
        raise Invalid(f"model.params: {' '.join(str(error).split())}") from None


def check_trained(model: Trained, name: str) -> None:
    _complete(model, _TRAINED, f"the trained model of '{name}'")


def _complete(candidate: Any, needed: tuple[str, ...], description: str) -> None:
    lacking = [part for part in needed if not hasattr(candidate, part)]
    if lacking:
        raise Invalid(f"model.family: {description} lacks {', '.join(lacking)}: see docs/how-to/own-family.md")
