"""The registry of model families: a line each. What the stages train, judge and export is found here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pipelines.features.reading import Reads
from pipelines.models.counts import Counts
from pipelines.models.family import MODEL, Family, Fetch, Trained
from pipelines.models.mf import Mf
from pipelines.models.mlp import Mlp
from shared.domain.errors import Invalid

FAMILIES: Mapping[str, Family] = {one.name: one for one in (Mlp(), Counts(), Mf())}


def reads_of(family: str) -> Reads:
    """What a run of it needs of the features. What is trained beside it, the baseline and an `mf` that retrieves, takes no more than the
    keys, which every family's graph has."""
    return FAMILIES[family].reads


def load_model(fetch: Fetch) -> Trained:
    """A trained model of whatever family, by what its `model.json` says."""
    return FAMILIES[_family(fetch(MODEL))].load(fetch)


def check_parent(family: str, fetch: Fetch) -> None:
    """A warm run starts from a model of its own family."""
    before = _family(fetch(MODEL))
    if before != family:
        raise Invalid(f"model.family: the parent is of the family '{before}', this is '{family}': a warm run can't, start a full one")


def _family(path: Path) -> str:
    return str(json.loads(path.read_text())["family"])
