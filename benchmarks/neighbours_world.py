"""Recommenders that share a gateway and a model server, and versions of them that sleep.

The server is a real tritonserver. ONNX has no operator that sleeps, so the backend file that the platform has laid out is extended: a
model whose metadata say `sleep` waits that long in each call. A sleeping version holds its Triton instance and uses no CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx
import onnx
import psutil

from benchmarks.harness import until
from benchmarks.load import Load, Target, bodies_of
from benchmarks.many_world import fill, name_of
from benchmarks.rollout_world import World, recommender_spec
from services.triton.server_processes import EmbeddedTritons
from shared.artifacts import FsspecArtifacts
from shared.domain.route import Route, choose
from shared.ports import ServedUnit
from shared.testing.model_server_suite import tiny_model
from tests.servers.platform_parts import TOKEN, Part
from tests.servers.platform_process import PlatformProcess
from tests.servers.triton_fixture import PatientFleet
from tests.support.secret_files import write_secret

USERS = 5_000
STABLE = Route(1)
ENDED = ("registered", "rejected", "failed", "cancelled")
_PROBE = 2
"""Rows of a probe, which a sleeping version answers at once."""
_UNKNOWN = 10**9
"""A user whom no version knows: the answer needs no model server."""
_DEADLINE = "5s"
"""For scores of recommenders with a slow version: all its calls are waited for, and no circuit breaker takes them away."""
_SLEEP = f"""

_initialize = TritonPythonModel.initialize


def _initialize_with_sleep(self, args):
    _initialize(self, args)
    seconds, answer = float(self._session.get_modelmeta().custom_metadata_map.get("sleep", "0")), self._answer

    def late(request):
        if len(request.inputs()[0].as_numpy()) > {_PROBE}:
            time.sleep(seconds)
        return answer(request)

    if seconds:
        self._answer = late


TritonPythonModel.initialize = _initialize_with_sleep
"""


def sleeping(seconds: float) -> bytes:
    """A model that is as cheap as the fast one and sleeps in each call."""
    model = onnx.load_model_from_string(tiny_model(1))
    onnx.helper.set_model_props(model, {"sleep": f"{seconds:g}"})
    return bytes(model.SerializeToString())


def split_users(route: Route, users: int) -> tuple[list[int], list[int]]:
    """Users of the stable version, and of the candidate."""
    variants = {user: choose(route, user)[1] for user in range(users)}
    stable, candidate = ([user for user, own in variants.items() if own == variant] for variant in ("stable", "candidate"))
    return stable, candidate


class Neighbourhood:
    """A platform process with a real Triton; recommenders are added while it runs."""

    def __init__(self, folder: Path) -> None:
        self._home = folder / "home"

    def __enter__(self) -> Neighbourhood:
        self._undo = ExitStack()
        self._world = World(self._home, USERS, {})
        self._undo.callback(self._world.close)
        self._platform = self._undo.enter_context(PlatformProcess(self._home, self._home))
        (backend,) = self._home.glob("triton/backends/onnxruntime/model.py")
        backend.write_text(backend.read_text() + _SLEEP)
        self._token = (self._home / "token").read_text()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def load(self, name: str, users: Sequence[int], connections: int, rate: float = 0.0) -> Load:
        return Load(Target.of(str(self._platform.client.base_url), name, self._token), bodies_of(users), connections, rate)

    def add(self, name: str, *models: bytes, route: Route = STABLE, patient: bool = False) -> None:
        """A recommender with a version for each model; returns when all that its route names answer."""
        add(self._world, name, models, route, patient)
        for number in route.named():
            stable, candidate = split_users(route, USERS)
            answers = partial(self._platform.model_answer, name, number, (stable if number == route.stable else candidate)[0])
            until(f"{name} version {number} answers", answers)

    @property
    def process(self) -> psutil.Process:
        assert self._platform.process is not None
        return psutil.Process(self._platform.process.pid)

    @property
    def address(self) -> tuple[str, int]:
        url = self._platform.client.base_url
        return url.host, url.port or 80

    @property
    def metrics_port(self) -> int:
        return httpx.URL(self._platform.metrics_url).port or 80

    def token(self, role: str) -> str:
        return str(self._platform.post("/v1/tokens", {"name": f"{role}-of-the-benchmark", "role": role})["token"])

    def cancel_runs(self, name: str) -> None:
        """All runs that have not ended, or the next measurement is beside them."""
        unfinished, cursor = list[str](), dict[str, str]()
        while True:
            page = self._platform.get(f"/v1/recommenders/{name}/runs", limit=100, **cursor)
            unfinished += [run["id"] for run in page["items"] if run["state"] not in ENDED]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
        for run in unfinished:
            self._platform.client.post(f"/v1/runs/{run}:cancel")
        for run in unfinished:
            self._platform.wait_for_run(run, *ENDED)

    def answers(self, name: str) -> bool:
        try:
            return self._platform.model_answer(name) is not None
        except httpx.TransportError:
            return False


def add(world: World, name: str, models: Sequence[bytes], route: Route, patient: bool = False) -> Sequence[ServedUnit]:
    """Registers a recommender with a version for each model, and its route."""
    serve = {"filter": [{"available": True}]} | ({"deadlines": {"score": _DEADLINE}} if patient else {})
    world.put_spec(recommender_spec(name, serve=serve))
    for model in models:
        world.version(model, name)
    world.serve(route, name)
    return [ServedUnit(name, version.number, version.files) for version in world.registry.list(name)]


class Gateways:
    """Gateway processes, one at a time: each loads many recommenders, of which a real Triton has a few, the busy ones."""

    def __init__(self, folder: Path, busy: int) -> None:
        self._folder = folder
        self.busy = [f"busy-{number}" for number in range(busy)]

    def __enter__(self) -> Gateways:
        self._undo = ExitStack()
        tritons = EmbeddedTritons(self._folder / "triton")
        self._undo.callback(tritons.stop)
        tritons.start()
        self._artifacts = FsspecArtifacts(str(self._folder / "artifacts"))
        self._fleet = PatientFleet(tritons, self._artifacts)
        self._undo.callback(self._fleet.close)
        self._address = next(iter(tritons.servers.values())).address
        write_secret(self._folder / "token", f"{TOKEN}\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def prepare(self, count: int) -> None:
        """Makes a database with so many recommenders that serve."""
        fill(self._url(count), self._artifacts, count - len(self.busy))
        world = World(self._folder, USERS, {}, self._url(count))
        for name in self.busy:
            if faults := self._fleet.place(name, add(world, name, [tiny_model(1)], STABLE)):
                raise SystemExit(f"Triton can't load {name}: {faults}")
        world.close()

    @contextmanager
    def running(self, count: int) -> Iterator[tuple[list[Load], psutil.Process]]:
        variables = {
            "EYAS_HOME": str(self._folder),
            "EYAS_DATABASE_URL": self._url(count),
            "EYAS_ARTIFACTS_URL": str(self._folder / "artifacts"),
            "EYAS_TRITON": self._address,
            "EYAS_TOKEN_FILE": str(self._folder / "token"),
            "EYAS_REPLICA": "gateway-1",
        }
        command = ["services.cli.main", "serve", "--port", "0", "--metrics-port", "0", "--role", "gateway"]
        part = Part("gateway", command, self._folder, **variables)
        try:
            url, idle = part.url(), count - len(self.busy)
            for name, user in [*((name, 1) for name in self.busy), *([(name_of(idle - 1), _UNKNOWN)] if idle else [])]:
                until(f"{name} answers", partial(_answers, url, name, user), 300)
            loads = [Load(Target.of(url, name, TOKEN), bodies_of(range(USERS)), 1) for name in self.busy]
            yield loads, psutil.Process(part.process.pid)
        finally:
            part.stop()

    def _url(self, count: int) -> str:
        return f"sqlite:///{self._folder}/of-{count}.db"


def _answers(url: str, name: str, user: int) -> bool:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = httpx.post(f"{url}/v1/recommend/{name}", json={"user": user}, headers=headers, timeout=20)
    return answer.is_success and (user == _UNKNOWN or answer.json()["fallback"] is None)
