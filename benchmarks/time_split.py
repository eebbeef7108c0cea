"""ml-100k by time: every family beside popularity by faded counts and by equal counts.

    python -m benchmarks.time_split --data FOLDER [--seeds 5] [--tests 0.1 0.2]

FOLDER holds ml-100k.inter (typed header). The newest tenth, or fifth, of the ratings is held out; a like is a rating from 4 on. The stages
run in this process, as in a run, and evaluate judges as a gate would: one case for each user of the holdout, new users among them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

from benchmarks.genres import KEYS, read_typed
from benchmarks.harness import Outcome, benchmark, say, scratch
from benchmarks.in_process_stages import InProcessStages, films
from benchmarks.tables import rows_of_runs
from pipelines.models.popularity_baseline import fit_popularity
from pipelines.stages import fitting
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, StageName

METRICS = ("hr@10", "ndcg@10", "hr@10/99")
STAGES: tuple[StageName, ...] = ("etl", "train", "evaluate")
EQUAL = "popularity, equal counts"
MODELS: dict[str, dict[str, Any]] = {
    EQUAL: {"family": "popularity"},
    "popularity": {"family": "popularity"},
    "blend: ease, mf": {"family": "blend"},
    "blend: mf, popularity": {"family": "blend", "params": {"of": ["mf", "popularity"]}},
    "blend: ease, mf, popularity": {"family": "blend", "params": {"of": ["ease", "mf", "popularity"]}},
    **{family: {"family": family} for family in ("ease", "mf", "itemknn", "gbm", "mlp", "neumf", "two_tower", "session")},
}
"""By contender; mlp is the default of a spec."""


def evaluate(folder: Path, contender: str, seed: int, after: float) -> dict[str, float]:
    """Returns the metrics of the candidate."""
    model = MODELS[contender]
    training = {"train": {"seed": seed}}
    tables = (folder / "ratings.parquet", folder / "items.parquet")
    split = {"by": "time", "test": f"{int(after)}s"}
    document = films(*tables, user="user_id", item="item_id", features=KEYS, split=split, model=model | training)
    spec = RecommenderSpec.model_validate(document)
    stages, files = InProcessStages(folder), dict[str, Files]()
    counting = partial(fit_popularity, timed=False) if contender == EQUAL else fit_popularity
    metrics: dict[str, float] = {}
    with patch.object(fitting, "fit_popularity", counting):
        for stage in STAGES:
            files[stage], outcome = stages.run(stage, spec, "full", files)
            metrics |= outcome.metrics
    return {metric: metrics[f"candidate.{metric}"] for metric in METRICS}


@benchmark("time-split")
def time_split(
    data: Annotated[Path, "folder with ml-100k.inter"],
    seeds: Annotated[int, "trainings of each family"] = 5,
    tests: Annotated[Sequence[float], "shares of the ratings that are held out, the newest ones"] = (0.1, 0.2),
    contenders: Annotated[Sequence[str], "families and blends"] = tuple(MODELS),
) -> Iterator[Outcome]:
    logging.getLogger("stage").setLevel(logging.ERROR)
    ratings = read_typed(data / "ml-100k.inter").sort("timestamp", "user_id", "item_id")
    for test in tests:
        for contender in contenders:
            runs = []
            for seed in range(1, seeds + 1):
                with scratch() as root:
                    ratings.write_parquet(root / "ratings.parquet")
                    ratings.select("item_id").unique().sort("item_id").write_parquet(root / "items.parquet")
                    after = float(ratings["timestamp"][-1] - ratings["timestamp"][round((1 - test) * len(ratings))])
                    runs.append(evaluate(root, contender, seed, after))
                say(f"{contender}, seed {seed}: {runs[-1]}")
            yield from rows_of_runs(f"newest {test:.0%}", contender, runs, dict.fromkeys(METRICS, ""))


if __name__ == "__main__":
    time_split()
