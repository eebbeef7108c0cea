"""The registry of model families: the stages find what they train, judge and export here."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from pipelines.features.reading import Reads
from pipelines.models.blend import Blend
from pipelines.models.dcn import Dcn
from pipelines.models.deepfm import DeepFm
from pipelines.models.dlrm import Dlrm
from pipelines.models.ease import Ease
from pipelines.models.family import MODEL, Family, Fetch, Trained
from pipelines.models.gbm import Gbm
from pipelines.models.itemknn import ItemKnn
from pipelines.models.mf import Mf
from pipelines.models.mlp import Mlp
from pipelines.models.neumf import Neumf
from pipelines.models.plugins import is_own, own_family
from pipelines.models.popularity_model import PopularityFamily
from pipelines.models.session import Session
from pipelines.models.transitions import Transitions
from pipelines.models.two_tower import TwoTower
from pipelines.models.wide_deep import WideDeep
from shared.domain.errors import Invalid

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        *(Mlp(), Dlrm(), WideDeep(), DeepFm(), Dcn()),
        *(PopularityFamily(), Mf(), Neumf(), TwoTower(), Session(), Ease(), ItemKnn(), Transitions(), Gbm(), Blend()),
    )
}


def family_of(name: str, allowed: Collection[str] = ()) -> Family:
    """Returns the family; `allowed` names the modules that a `module:Class` may come from."""
    if not is_own(name) and name not in FAMILIES:
        raise Invalid(f"model.family: unknown family '{name}'; available: {', '.join(sorted(FAMILIES))}")
    return own_family(name, allowed) if is_own(name) else FAMILIES[name]


def reads_of(family: str, allowed: Collection[str] = ()) -> Reads:
    """Returns which features a run of the family reads. Baselines and an `mf` retriever read only the keys, which every graph has."""
    return family_of(family, allowed).reads


def load_model(fetch: Fetch, allowed: Collection[str] = ()) -> Trained:
    """Loads a trained model of any family, by the family in its `model.json`."""
    return family_of(family_in(fetch(MODEL)), allowed).load(fetch)


def check_saved(family: str, files: Mapping[str, Path]) -> None:
    """Raises Invalid if the saved files do not name the model's family."""
    saved_family = family_in(files[MODEL]) if MODEL in files else None
    if saved_family != family:
        raise Invalid(f"model.family: '{family}' must save a {MODEL} whose 'family' is '{family}', not {saved_family!r}")


def check_parent(family: str, fetch: Fetch) -> None:
    """Raises Invalid if the parent of a warm run has another family."""
    before = family_in(fetch(MODEL))
    if before != family:
        raise Invalid(
            f"model.family: the parent is of the family '{before}', not '{family}': a warm run cannot change it; start a full run"
        )


def family_in(path: Path) -> str:
    """Returns the family that a saved model names."""
    return str(json.loads(path.read_text()).get("family"))
