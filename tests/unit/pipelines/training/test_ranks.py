"""What a rank reads from its environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.training.ranks import Rank, rank_of
from shared.contracts.stage import StageSpec
from shared.domain.errors import Invalid
from tests.unit.pipelines.recommender import spec


def stage(folder: Path, processes: int = 3) -> StageSpec:
    model = {"framework": "torch", "train": {"processes": processes}}
    return StageSpec(
        stage="train", run="run", attempt="run-train-1", recommender=spec(folder, model=model), artifacts=str(folder / "artifacts")
    )


def test_what_a_rank_is_told(tmp_path: Path) -> None:
    told = {"EYAS_RANK": "1", "EYAS_RANKS": "3", "EYAS_MEET": "train-0.ranks:29500", "EYAS_PATIENCE": "30"}
    assert rank_of(stage(tmp_path), told) == Rank(1, 3, "train-0.ranks", 29500, 30.0)
    assert rank_of(stage(tmp_path), {}) is None
    assert rank_of(stage(tmp_path, 1), told) is None


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"EYAS_RANK": "1"}, "EYAS_RANK is set, so EYAS_RANKS"),
        ({"EYAS_RANK": "1", "EYAS_RANKS": "3", "EYAS_MEET": "here"}, "host:port"),
        ({"EYAS_RANK": "1", "EYAS_RANKS": "2", "EYAS_MEET": "a:1"}, "does not match model.train.processes: 3"),
        ({"EYAS_RANK": "3", "EYAS_RANKS": "3", "EYAS_MEET": "a:1"}, "does not match model.train.processes: 3"),
    ],
)
def test_a_rank_that_is_told_nonsense_says_so(tmp_path: Path, told: dict[str, str], reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        rank_of(stage(tmp_path), told)
