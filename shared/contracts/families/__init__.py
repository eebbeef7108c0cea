"""The families of models: a class of parameters each, which says in words what the family is.

A new family is one more class in a module here, among `Params` and in `FAMILIES`. A family of somebody's own has none: its parameters are a
mapping.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shared.contracts.families.base import FamilyParams, OwnParams
from shared.contracts.families.deep import DeepParams, DlrmParams, MlpParams, TwoTowerParams, WideDeepParams
from shared.contracts.families.keys import EaseParams, ItemKnnParams, MfParams, NeumfParams, PopularityParams, SessionParams
from shared.contracts.families.trees import GbmParams

__all__ = [
    "FAMILIES",
    "OWN",
    "DeepParams",
    "DlrmParams",
    "EaseParams",
    "FamilyParams",
    "GbmParams",
    "ItemKnnParams",
    "MfParams",
    "MlpParams",
    "NeumfParams",
    "OwnParams",
    "Params",
    "PopularityParams",
    "SessionParams",
    "TwoTowerParams",
    "WideDeepParams",
    "params_of",
]

Params = (
    MlpParams
    | DlrmParams
    | WideDeepParams
    | PopularityParams
    | MfParams
    | NeumfParams
    | TwoTowerParams
    | SessionParams
    | EaseParams
    | ItemKnnParams
    | GbmParams
    | OwnParams
)

FAMILIES: Mapping[str, type[FamilyParams]] = {
    "mlp": MlpParams,
    "dlrm": DlrmParams,
    "wide_deep": WideDeepParams,
    "popularity": PopularityParams,
    "mf": MfParams,
    "neumf": NeumfParams,
    "two_tower": TwoTowerParams,
    "session": SessionParams,
    "ease": EaseParams,
    "itemknn": ItemKnnParams,
    "gbm": GbmParams,
}
OWN = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
"""A family of one's own: `module:Class`."""


def params_of(family: str) -> type[FamilyParams] | type[OwnParams] | None:
    """None where nobody knows it."""
    return FAMILIES.get(family) or (OwnParams if OWN.fullmatch(family) else None)
