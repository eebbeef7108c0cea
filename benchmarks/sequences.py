"""Measures how well models predict each user's next item on Amazon Beauty: our families, a plain SASRec in torch, a plain session-kNN.

    python -m benchmarks.sequences --data FOLDER [--seeds 3] [--contenders "eyas: session" ...]

FOLDER holds train.parquet (user, item, position). The newest item of each user is held out, and ranked among all items that the user does
not have; equal scores share the middle rank. Families run as the platform runs them: etl and train, each a process. The peers get the same
sequences. Compared pairs run one after the other. Results are stored by contender and seed in `--store`; an interrupted run continues.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.harness import FOLDER, Outcome, benchmark, say, scratch, watched
from benchmarks.in_process_stages import run_as_process
from benchmarks.tables import rows_of_runs
from pipelines.features.graph import load_graph
from pipelines.models.families import load_model
from pipelines.models.family import ScoresAll
from shared.contracts.spec import RecommenderSpec

PEERS = Path(__file__).parent / "peers"
EPOCHS = 8
"""Of the contenders whose number of epochs is set."""
ALL_ITEMS = 1_000_000
SET: dict[str, Any] = {"epochs": EPOCHS, "early_stop": None, "validation": 0}
FAMILIES: dict[str, dict[str, Any]] = {
    "eyas: session": {"family": "session"},
    "eyas: session on torch": {"family": "session", "framework": "torch"},
    "eyas: session, full softmax": {"family": "session", "params": {"against": ALL_ITEMS}, "train": SET},
    "eyas: session, 3,000 negatives": {"family": "session", "params": {"against": 3_000}, "train": SET},
    "eyas: transitions": {"family": "transitions"},
    "eyas: itemknn": {"family": "itemknn"},
    "eyas: popularity": {"family": "popularity"},
}
SASREC, KNN = "torch: plain SASRec", "session-kNN, plain"
CONTENDERS = (*FAMILIES, SASREC, KNN)
UNITS = {"hr@10": "", "ndcg@10": "", "throughput": "sequences/s", "training": "s", "peak memory": "MiB"}
Floats = NDArray[np.float64]


def cut(data: Path, folder: Path) -> Path:
    """Writes all rows for the platform, which holds the newest items out, and the sequences without them; returns the sequences' file."""
    frame = pl.read_parquet(data / "train.parquet").sort("user", "position")
    newest = pl.int_range(pl.len()).reverse().over("user") == 0
    frame.rename({"position": "at"}).write_parquet(folder / "rows.parquet")
    lengths = frame.group_by("user", maintain_order=True).len()["len"].to_numpy().astype(np.int64) - 1
    path = folder / "sequences.npz"
    np.savez(
        path,
        items=frame.filter(~newest)["item"].to_numpy(),
        start=np.concatenate([[0], np.cumsum(lengths)]),
        held_out=frame.filter(newest)["item"].to_numpy(),
        users=frame.filter(newest)["user"].to_numpy(),
        count=int(frame["item"].to_numpy().max()),
    )
    return path


def ranks(scores: Callable[[slice], NDArray[Any]], sequences: Path, step: int = 256) -> Floats:
    """Returns the rank of each held-out item; `scores` gives [users, items] for some users, by item number."""
    data = np.load(sequences, allow_pickle=False)
    start, held_out = data["start"], data["held_out"]
    ranks = np.empty(len(held_out))
    for at in range(0, len(ranks), step):
        rows = slice(at, min(at + step, len(ranks)))
        part = np.array(scores(rows))
        targets = part[np.arange(len(part)), held_out[rows]][:, None]
        for number, own in enumerate(part, at):
            own[data["items"][start[number] : start[number + 1]]] = -np.inf
        part[:, 0] = -np.inf
        ranks[rows] = 1 + (part > targets).sum(axis=1) + ((part == targets).sum(axis=1) - 1) / 2
    return ranks


def by_family(model: dict[str, Any], folder: Path, sequences: Path, seed: int) -> dict[str, float]:
    seeded = {**model, "train": {**model.get("train", {}), "seed": seed}}
    spec = RecommenderSpec.model_validate(
        {
            "name": "next-item",
            "data": {"interactions": {"uri": str(folder / "rows.parquet")}},
            "schema": {"user": "user", "item": "item", "time": "at"},
            "features": [{"categorify": ["user", "item"], "min_count": 1}],
            "split": {"by": "leave_last_out"},
            "model": seeded,
            "gates": [{"parity": 1e-4}],
        }
    )
    store, etl, _ = run_as_process(folder, "etl", spec)
    store, manifest, used = run_as_process(folder, "train", spec, {"etl": etl.files})
    files = {**etl.files, **manifest.files}

    def fetch(name: str) -> Path:
        return store.fetch(files[name], folder / f"{seed}-{name.replace('/', '-')}")

    trained, graph = load_model(fetch), load_graph(fetch)
    assert isinstance(trained, ScoresAll)
    data = np.load(sequences, allow_pickle=False)
    users = graph.key("user").state.coded(pl.Series(data["users"])).astype(np.int32)
    codes = graph.key("item").state.coded(pl.Series(np.arange(int(data["count"]) + 1)))
    result = metrics(ranks(lambda rows: trained.every(users[rows])[:, codes], sequences))
    seconds = manifest.metrics["train.seconds"]
    if "train.rows_per_s" in manifest.metrics and model["family"] == "session":
        result["throughput"] = manifest.metrics["train.rows_per_s"]
    return result | {"training": seconds, "peak memory": used.peak}


def by_peer(script: str, arguments: Sequence[str], folder: Path, sequences: Path) -> dict[str, float]:
    output = folder / "peer.npz"
    used = watched([sys.executable, str(PEERS / script), *arguments])
    data, document = np.load(output, allow_pickle=False), used.document
    if "ranks" in data:
        return metrics(data["ranks"]) | {"training": document["seconds"], "peak memory": used.peak}
    result = metrics(ranks(lambda rows: data["users"][rows] @ data["items"].T, sequences))
    rate = document["sequences"] * document["epoch"] / document["seconds"]
    return result | {"throughput": rate, "training": document["seconds"], "peak memory": used.peak}


def metrics(ranks: Floats) -> dict[str, float]:
    hits = ranks <= 10
    return {"hr@10": float(hits.mean()), "ndcg@10": float(np.where(hits, 1 / np.log2(ranks + 1), 0).mean())}


@benchmark("sequences")
def sequences(
    data: Annotated[Path, "folder with train.parquet"],
    seeds: Annotated[int, "trainings of each contender"] = 3,
    contenders: Annotated[Sequence[str], "families and peers"] = CONTENDERS,
    store: Annotated[Path, "file of finished trainings"] = FOLDER / "sequences.jsonl",
    users: Annotated[int, "of the data, drawn; 0: all"] = 0,
) -> Iterator[Outcome]:
    runs: dict[str, dict[int, dict[str, float]]] = {name: {} for name in contenders}
    for line in store.read_text().splitlines() if store.exists() else ():
        result = json.loads(line)
        if result["users"] == users and result["contender"] in runs:
            runs[result["contender"]][result["seed"]] = result["metrics"]
    store.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(1, seeds + 1):
        for name in contenders:
            if seed in runs[name]:
                continue
            with scratch(on_disk=True) as folder:
                file = cut(sample(data, users, folder), folder)
                peer = [str(file), str(folder / "peer.npz")]
                run = {
                    SASREC: partial(by_peer, "sasrec_torch.py", [*peer, str(EPOCHS), str(seed)], folder, file),
                    KNN: partial(by_peer, "session_knn.py", peer, folder, file),
                }.get(name) or partial(by_family, FAMILIES[name], folder, file, seed)
                runs[name][seed] = run()
            say(f"{name}, seed {seed}: {runs[name][seed]}")
            with store.open("a") as stream:
                stream.write(json.dumps({"contender": name, "seed": seed, "users": users, "metrics": runs[name][seed]}) + "\n")
    for name, of_seeds in runs.items():
        metrics_of_seeds = list(of_seeds.values())
        units = {metric: UNITS[metric] for metric in metrics_of_seeds[0]}
        yield from rows_of_runs("Beauty" if not users else f"Beauty, {users:,} users", name, metrics_of_seeds, units)


def sample(data: Path, users: int, folder: Path) -> Path:
    """Returns a folder with the rows of so many users, drawn by a fixed seed."""
    if not users:
        return data
    frame = pl.read_parquet(data / "train.parquet")
    chosen = frame["user"].unique().sort().sample(users, seed=1)
    rows = frame.filter(pl.col("user").is_in(chosen.implode()))
    (folder / "some").mkdir()
    rows.with_columns(item=pl.col("item").rank("dense").cast(pl.Int64)).write_parquet(folder / "some" / "train.parquet")
    return folder / "some"


if __name__ == "__main__":
    sequences()
