"""Model families: one class of parameters for each family, with a description.

A new family needs a class in a module here, an entry in `Params` and one in `FAMILIES`. A custom family has no class: its parameters are a
mapping.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shared.contracts.families.base import FamilyParams, OwnParams
from shared.contracts.families.blend import BlendParams
from shared.contracts.families.deep import DcnParams, DeepFmParams, DeepParams, DlrmParams, MlpParams, TwoTowerParams, WideDeepParams
from shared.contracts.families.keys import (
    EaseParams,
    ItemKnnParams,
    MfParams,
    NeumfParams,
    PopularityParams,
    SessionParams,
    TransitionsParams,
)
from shared.contracts.families.trees import GbmParams

__all__ = [
    "FAMILIES",
    "OWN",
    "BlendParams",
    "DcnParams",
    "DeepFmParams",
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
    "TransitionsParams",
    "TwoTowerParams",
    "WideDeepParams",
    "params_of",
]

Params = (
    MlpParams
    | DlrmParams
    | WideDeepParams
    | DeepFmParams
    | DcnParams
    | PopularityParams
    | MfParams
    | NeumfParams
    | TwoTowerParams
    | SessionParams
    | EaseParams
    | ItemKnnParams
    | TransitionsParams
    | GbmParams
    | BlendParams
    | OwnParams
)

FAMILIES: Mapping[str, type[FamilyParams]] = {
    "mlp": MlpParams,
    "dlrm": DlrmParams,
    "wide_deep": WideDeepParams,
    "deepfm": DeepFmParams,
    "dcn": DcnParams,
    "popularity": PopularityParams,
    "mf": MfParams,
    "neumf": NeumfParams,
    "two_tower": TwoTowerParams,
    "session": SessionParams,
    "ease": EaseParams,
    "itemknn": ItemKnnParams,
    "transitions": TransitionsParams,
    "gbm": GbmParams,
    "blend": BlendParams,
}
OWN = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
"""Pattern of a custom family: `module:Class`."""


def params_of(family: str) -> type[FamilyParams] | type[OwnParams] | None:
    """Returns the parameter class of a family; None if the name is unknown."""
    return FAMILIES.get(family) or (OwnParams if OWN.fullmatch(family) else None)
