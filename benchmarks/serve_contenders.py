"""Contenders of the platform's recommendation, on the same model: Triton's own client, a FastAPI proxy before it, and BentoML.

python -m benchmarks.serve_contenders PORT TRITON RECOMMENDER VERSION FOLDER     the proxy
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput

from benchmarks.harness import environment, family, until
from benchmarks.load import Outcome
from benchmarks.rollout_world import World
from services.listening import bind
from services.triton.repository import model_name
from shared.serving.signature import Signature

CANDIDATES = 500
BENTO = "BentoML"
_PINS = ("bentoml==1.4.*", "onnxruntime==1.20.*", "numpy==1.26.*")


def address_of(triton: psutil.Process) -> str:
    """The gRPC address of an embedded tritonserver, by its command line."""
    options = dict(option.removeprefix("--").partition("=")[::2] for option in triton.cmdline())
    return f"unix:{triton.cwd()}/{options['grpc-address'].removeprefix('unix:')}:{options['grpc-port']}"


@dataclass(frozen=True, eq=False)
class Model:
    """A version's Triton model, and the catalogue of its candidates."""

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
            columns = {name: _bytes(catalogue[name]) for name in catalogue.files}
        return cls(address, model_name(recommender, signature, version), version, signature, columns, folder)

    def score(self, client: InferenceServerClient, user: int, rows: Any) -> Any:
        feed = {self.signature.user: np.full(len(rows), user, np.int64)} | {name: column[rows] for name, column in self.columns.items()}
        inputs = []
        for described in self.signature.inputs:
            tensor = InferInput(described.name, list(feed[described.name].shape), "BYTES" if described.dtype == "string" else "INT64")
            tensor.set_data_from_numpy(feed[described.name])
            inputs.append(tensor)
        wanted = [InferRequestedOutput(self.signature.output)]
        result = client.infer(self.name, inputs, outputs=wanted, model_version=str(self.version))
        return result.as_numpy(self.signature.output)

    def run(self, threads: int, users: Sequence[int], seconds: float) -> Outcome:
        """The bare scoring call from threads that share one client, each with a call under way."""
        client = InferenceServerClient(self.address)
        milliseconds: list[float] = []
        visitors, count, began = itertools.cycle(users), len(self.columns[self.signature.item]), time.perf_counter()

        def work(seed: int) -> None:
            chance = np.random.default_rng(seed)
            while (start := time.perf_counter()) < began + seconds:
                scores = self.score(client, int(next(visitors)), chance.integers(0, count, CANDIDATES))
                np.argpartition(scores, -10)
                milliseconds.append(1000 * (time.perf_counter() - start))

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        client.close()
        return Outcome(sorted(milliseconds), {"200": len(milliseconds)}, time.perf_counter() - began)


def _bytes(column: Any) -> Any:
    """Text as the client wants it: bytes as objects."""
    return np.char.encode(column, "utf-8").astype(np.object_) if column.dtype.kind == "U" else column


class Request(BaseModel):
    user: int
    items: list[int]


class Scored(BaseModel):
    item: int
    score: float


class Answer(BaseModel):
    items: list[Scored]
    fallback: None = None


def app_of(model: Model) -> FastAPI:
    """FastAPI in front of Triton as an afternoon's work: the candidates in the request, the best ten in the answer."""
    app = FastAPI()
    client = InferenceServerClient(model.address)

    @app.post("/score")
    def score(request: Request) -> Answer:
        scores = model.score(client, request.user, np.asarray(request.items) - 1)
        best = np.argsort(-scores)[:10]
        return Answer(items=[Scored(item=request.items[row], score=float(scores[row])) for row in best.tolist()])

    return app


@contextmanager
def proxy(model: Model, recommender: str) -> Iterator[tuple[list[psutil.Process], int]]:
    """Its processes, and the port where it scores."""
    port = _free_port()
    command = [sys.executable, "-m", "benchmarks.serve_contenders", str(port), model.address, recommender, str(model.version)]
    with _server([*command, str(model.folder)], model.folder / "proxy.log", lambda: _listens(port)) as processes:
        yield processes, port


@contextmanager
def bento(folder: Path) -> Iterator[tuple[list[psutil.Process], int]]:
    """The same of BentoML, in an environment of its own."""
    python, port = environment("bentoml", *_PINS), _free_port()
    command = [str(python.parent / "bentoml"), "serve", "bento_score:Ranker", "--host", "127.0.0.1", "--port", str(port)]
    env = {**os.environ, "EYAS_BENCH_MODEL": str(folder), "BENTOML_DO_NOT_TRACK": "true", "BENTOML_HOME": str(folder / "bentoml")}
    env.pop("PYTHONPATH", None)
    peers = Path(__file__).parent / "peers"
    with _server(command, folder / "bentoml.log", lambda: _scores(port), env, peers) as processes:  # by then all of its processes run
        yield processes, port


@contextmanager
def _server(
    command: Sequence[str], log: Path, is_ready: Callable[[], bool], env: Mapping[str, str] | None = None, folder: Path | None = None
) -> Iterator[list[psutil.Process]]:
    with log.open("w") as stream:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=stream, stderr=stream)  # noqa: S603
    try:
        until(f"{command[2]} is ready", is_ready, 120)
        yield family(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def _free_port() -> int:
    with bind("a contender", 0, 0) as probe:
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _scores(port: int) -> bool:
    try:
        return httpx.post(f"http://127.0.0.1:{port}/score", json={"user": 1, "items": [1]}).status_code == 200
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    number, triton, recommender, version, folder = sys.argv[1:]
    app = app_of(Model.read(Path(folder), triton, recommender, int(version)))
    uvicorn.run(app, host="127.0.0.1", port=int(number), log_level="warning")
