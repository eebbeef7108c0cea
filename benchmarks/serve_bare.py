"""The bare scoring call: one user, 500 candidates, Triton's own client, and nothing around it."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput

from benchmarks.rollout_world import World
from services.triton.repository import model_name
from shared.serving.signature import Signature

CANDIDATES = 500


def address_of(triton: psutil.Process) -> str:
    """Where an embedded tritonserver listens for gRPC, by its command line."""
    options = dict(option.removeprefix("--").partition("=")[::2] for option in triton.cmdline())
    return f"unix:{triton.cwd()}/{options['grpc-address'].removeprefix('unix:')}:{options['grpc-port']}"


@dataclass(frozen=True, eq=False)
class Model:
    """A version's Triton model, and the catalogue that its candidates are taken from."""

    address: str
    name: str
    version: int
    signature: Signature
    columns: dict[str, Any]
    folder: Path

    @classmethod
    def of(cls, world: World, recommender: str, address: str, folder: Path) -> Model:
        version = world.registry.list(recommender)[-1]
        for name in ("signature.json", "catalogue.npz", "model.onnx"):
            (folder / name).write_bytes(world.artifacts.read(version.files[name]))
        return cls.read(folder, address, recommender, version.number)

    @classmethod
    def read(cls, folder: Path, address: str, recommender: str, version: int) -> Model:
        signature = Signature.model_validate(json.loads((folder / "signature.json").read_text()))
        with np.load(folder / "catalogue.npz", allow_pickle=False) as catalogue:
            columns = {name: _plain(catalogue[name]) for name in catalogue.files}
        return cls(address, model_name(recommender, signature), version, signature, columns, folder)

    def inputs(self, user: int, rows: Any) -> list[InferInput]:
        """As Triton's client makes them."""
        feed = {self.signature.user: np.full(len(rows), user, np.int64)} | {name: column[rows] for name, column in self.columns.items()}
        made = []
        for one in self.signature.inputs:
            tensor = InferInput(one.name, list(feed[one.name].shape), "BYTES" if one.dtype == "string" else "INT64")
            tensor.set_data_from_numpy(feed[one.name])
            made.append(tensor)
        return made

    def score(self, client: InferenceServerClient, user: int, rows: Any) -> Any:
        wanted = [InferRequestedOutput(self.signature.output)]
        found = client.infer(self.name, self.inputs(user, rows), outputs=wanted, model_version=str(self.version))
        return found.as_numpy(self.signature.output)

    def ask(self, threads: int, seconds: float, users: Sequence[int]) -> tuple[list[float], float]:
        """Threads that share one client, each with a call under way; the latencies, sorted, and how long it took."""
        client = InferenceServerClient(self.address)
        latencies: list[float] = []
        turns = itertools.cycle(users)
        until = time.perf_counter() + seconds

        def work(seed: int) -> None:
            chance = np.random.default_rng(seed)
            count = len(self.columns[self.signature.item])
            while (began := time.perf_counter()) < until:
                rows = chance.integers(0, count, CANDIDATES)
                scores = self.score(client, int(next(turns)), rows)
                np.argpartition(scores, -10)
                latencies.append(time.perf_counter() - began)

        began = time.perf_counter()
        those = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
        for one in those:
            one.start()
        for one in those:
            one.join()
        client.close()
        return sorted(latencies), time.perf_counter() - began


def _plain(column: Any) -> Any:
    """Text as the client wants it: bytes as objects."""
    return np.char.encode(column, "utf-8").astype(np.object_) if column.dtype.kind == "U" else column
