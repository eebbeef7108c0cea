"""The registry of model families: a line each. What the stages train, judge and export is found here."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from pipelines.features.reading import Reads
from pipelines.models.dlrm import Dlrm
from pipelines.models.ease import Ease
from pipelines.models.family import MODEL, Family, Fetch, Trained
from pipelines.models.gbm import Gbm
from pipelines.models.itemknn import ItemKnn
from pipelines.models.mf import Mf
from pipelines.models.mlp import Mlp
from pipelines.models.neumf import Neumf
from pipelines.models.plugins import is_own, own_family
from pipelines.models.popularity_model import Counts
from pipelines.models.session import Session
from pipelines.models.two_tower import TwoTower
from pipelines.models.wide_deep import WideDeep
from shared.domain.errors import Invalid

FAMILIES: Mapping[str, Family] = {
    family.name: family for family in (Mlp(), Dlrm(), WideDeep(), Counts(), Mf(), Neumf(), TwoTower(), Session(), Ease(), ItemKnn(), Gbm())
}


def family_of(name: str, allowed: Collection[str] = ()) -> Family:
    """`allowed`: the modules that a `module:Class` may be of."""
    if not is_own(name) and name not in FAMILIES:
        raise Invalid(f"model.family: '{name}' is none of this release: known: {', '.join(sorted(FAMILIES))}")
    return own_family(name, allowed) if is_own(name) else FAMILIES[name]


def reads_of(family: str, allowed: Collection[str] = ()) -> Reads:
    """What a run of it needs of the features. What is trained beside it, baselines and an `mf` that retrieves, takes no more than the
    keys, which every family's graph has."""
    return family_of(family, allowed).reads


def load_model(fetch: Fetch, allowed: Collection[str] = ()) -> Trained:
    """A trained model of whatever family, by what its `model.json` says."""
    return family_of(family_in(fetch(MODEL)), allowed).load(fetch)


def check_saved(family: str, files: Mapping[str, Path]) -> None:
    """What a model has saved must lead back to its family."""
    saved_family = family_in(files[MODEL]) if MODEL in files else None
    if saved_family != family:
        raise Invalid(f"model.family: what '{family}' saves must have a {MODEL} with its 'family' in it, which is " + repr(saved_family))


def check_parent(family: str, fetch: Fetch) -> None:
    """A warm run starts from a model of its own family."""
    before = family_in(fetch(MODEL))
    if before != family:
        raise Invalid(f"model.family: the parent is of the family '{before}', this is '{family}': a warm run can't, start a full one")


def family_in(path: Path) -> str:
    """What a saved model says that it is of."""
    return str(json.loads(path.read_text()).get("family"))
