"""The ModelServer port on one Triton; services.triton.fleet combines several.

Placement never disturbs served versions. A new version is first tried under a model name that no request uses: load, one real inference,
unload. A trial runs on its own thread, so a slow or hanging load delays no other recommender. A trial on the same Triton proves exactly
what will serve: server, backend, configuration and inputs. The Python backend gives each version its own process, which ends itself after a
load of four minutes, so a bad file harms no other version. Only versions that pass are listed; measured, no request fails while Triton
loads the new list.

`score` takes no lock: it reads a mapping that is replaced, never changed. All changes to Triton hold the lock, except trials.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from services.triton.client import LOAD_TIMEOUT, Client, ServerLost
from services.triton.counters import ReplicaCounts
from services.triton.probe import Key, ProbeSchedule, probe
from services.triton.repository import ModelRepository, PlacedUnit, recommender_of
from services.triton.server_process import ServerProcess
from services.triton.tensors import Feed, tensors
from shared.domain.errors import EyasError, Pending, Unavailable
from shared.ports import ServedUnit, ServerInfo

log = logging.getLogger(__name__)

TRIALS = 8
"""Maximum parallel trials: fewer hanging loads delay no other version."""


class TritonServer:
    """Implements ModelServer. The owner starts the host, calls `ensure_running` in a loop, and `close` at the end."""

    def __init__(
        self,
        host: ServerProcess,
        repository: ModelRepository,
        *,
        timeout: float = 2.0,
        probe_every: float = 10.0,
        heal_every: float = 15.0,
        tally: ReplicaCounts | None = None,
        trial_wait: float = LOAD_TIMEOUT,
    ) -> None:
        """`trial_wait`: seconds that a call waits for the trials that it started, before it raises Pending."""
        if repository.root != host.repository:
            raise ValueError(f"model repository: Triton reads {host.repository}, but models are written to {repository.root}")
        self._host = host
        self._repository = repository
        self._timeout = timeout
        self._lock = threading.RLock()
        self._wanted: dict[str, tuple[ServedUnit, ...]] = {}
        self._owed: set[str] = set()
        """Recommenders whose versions still have to be placed."""
        self._returning: set[str] = set()
        """Part of `_owed`: lost by a restart, or wanted while the server was away."""
        self._serving: Mapping[Key, PlacedUnit] = {}
        self._proven: set[tuple[str, str]] = set()
        self._trial_wait = trial_wait
        self._pending: set[str] = set()
        """Recommenders whose `place` must be called again."""
        self._trying: set[str] = set()
        """Recommenders whose proven versions are placed, with trials under way."""
        self._trials: dict[tuple[str, str], Future[str | None]] = {}
        self._pool = ThreadPoolExecutor(TRIALS, thread_name_prefix="trial")
        self._suspects = ProbeSchedule(probe_every, heal_every, time.monotonic())
        self._doubts: set[Key] = set()
        self._tidied = False
        self._tally = tally or ReplicaCounts()
        self._generation = host.generation
        self._client = Client(host.address, host.key, host.certificates)

    def place(self, recommender: str, units: Sequence[ServedUnit]) -> Mapping[int, str]:
        with self._lock:
            self._wanted[recommender] = tuple(units)
            self._owed.add(recommender)
            self._pending.discard(recommender)
            self._follow_restart()
            try:
                return self._place(recommender)
            except Pending:
                self._pending.add(recommender)
                raise

    def answering(self, recommender: str) -> frozenset[int]:
        listed = [placed for (name, _), placed in self._serving.items() if name == recommender]
        return frozenset(placed.number for placed in listed if self._answers(placed))

    def score(self, recommender: str, number: int, feed: Feed, patience: float | None = None) -> np.ndarray[Any, Any]:
        return self.ask((recommender, number), feed, self._timeout if patience is None else patience)

    def ask(self, key: Key, feed: Feed, timeout: float) -> np.ndarray[Any, Any]:
        placed = self._serving.get(key)
        if placed is None:
            raise ServerLost(f"{key[0]} version {key[1]} is not on the model server")
        inputs = tensors(placed.signature, feed)
        try:
            return self._client.infer(placed.model, placed.number, inputs, placed.signature.output, timeout)
        except Unavailable as error:
            self._suspects.add(key)
            if isinstance(error, ServerLost):
                self._doubts.add(key)
            raise

    @property
    def placed(self) -> frozenset[Key]:
        """Versions that the server serves, as far as known."""
        return frozenset(self._serving)

    @property
    def owing(self) -> bool:
        """Whether versions still have to be placed, apart from versions in trial."""
        return bool(self._owed - self._trying)

    @property
    def returning(self) -> bool:
        """Whether versions are still being restored after a restart or an absence."""
        return bool(self._returning)

    def lacks(self, recommender: str) -> bool:
        """Whether a restart removed all versions of the recommender, and none is back."""
        return recommender in self._owed and not any(name == recommender for name, _ in self._serving)

    def doubted(self, key: Key) -> bool:
        """Whether a request for the version was lost, and no real inference has succeeded since."""
        return key in self._doubts

    @property
    def settled(self) -> bool:
        """Whether `ensure_running` has nothing to do."""
        same = self._host.alive and self._host.generation == self._generation
        return same and not self._owed - self._pending and not self._suspects.waiting(time.monotonic())

    @property
    def generation(self) -> int:
        """Generation of the server that the client is connected to."""
        return self._generation

    def kill(self, generation: int) -> bool:
        """Kills the server of that generation, if this process owns it; the next `ensure_running` starts it again."""
        return self._generation == self._host.generation == generation and self._host.kill()

    def reachable(self, patience: float | None = None) -> bool:
        return self._host.generation > 0 and self._client.ready(self._timeout if patience is None else patience)

    def want(self, recommender: str, units: Sequence[ServedUnit]) -> None:
        """Leaves the versions to the next `ensure_running`, for a server that is away."""
        with self._lock:
            self._wanted[recommender] = tuple(units)
            self._owed.add(recommender)
            self._returning.add(recommender)
            self._pending.discard(recommender)

    def retry(self, recommenders: Iterable[str]) -> None:
        """Lets the next `ensure_running` place these recommenders again, unless trials are under way."""
        with self._lock:
            self._owed |= self._wanted.keys() & set(recommenders)

    def vouch(self) -> None:
        """Tells the host that the server has all versions: the caller wants no others."""
        with self._lock:
            if not self._owed and self._host.generation == self._generation:
                self._host.vouch()

    def successes(self) -> Mapping[Key, int]:
        self._tally.read(self._client.successes)
        return self._tally.totals(recommender_of)

    def info(self) -> ServerInfo:
        models = [{**model, "recommender": recommender_of(model["name"]) or ""} for model in self._client.index()]
        return ServerInfo(self._client.version(), tuple(models))

    def ensure_running(self) -> bool:
        """Starts a dead server, restores its versions, and reloads versions whose process died. Returns True if it started the server.

        Raises Unavailable if versions cannot be restored now; the next call tries again.
        """
        restarted = self._host.ensure_running()
        with self._lock:
            self._follow_restart()
            self._client.renew()
            trouble: Exception | None = None
            for recommender in sorted(self._owed - self._pending):
                try:
                    for number, why in self._place(recommender).items():
                        log.warning("version: restoring failed recommender=%s version=%d error=%s", recommender, number, why)
                except Pending as error:
                    log.debug("version: still loading reason=%s", error)
                except (Unavailable, OSError) as error:  # the other recommenders are still placed
                    trouble = trouble or error
            self._heal()
            if trouble is not None:
                raise Unavailable(f"Triton runs, but not all versions are restored: {trouble}") from trouble
        return restarted

    def close(self) -> None:
        """Closes the connections and ends calls under way. To be called before the server stops, or the server waits for its clients."""
        self._client.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._serving = {}
            self._client.close()

    def _follow_restart(self) -> None:
        if self._host.generation == self._generation:
            return
        if self._generation:
            log.warning("triton: restarted, its versions are loaded again")
        old, self._serving = self._client, {}
        self._client = Client(self._host.address, self._host.key, self._host.certificates)
        self._tally.restarted()
        self._generation = self._host.generation
        self._owed |= set(self._wanted)
        self._returning |= set(self._wanted)
        self._suspects.clear()
        self._doubts.clear()
        old.close()

    def _place(self, recommender: str) -> dict[int, str]:
        if not self._tidied:
            self._repository.tidy()
            self._tidied = True
        faults: dict[int, str] = {}
        good: dict[int, PlacedUnit] = {}
        for unit in self._wanted[recommender]:
            try:
                good[unit.number] = self._repository.add(unit)
            except EyasError as error:
                if not self._client.ready():
                    raise Unavailable(f"Triton does not answer: {recommender} cannot be placed now") from error
                faults[unit.number] = str(error)
        self._trying.discard(recommender)
        try:
            trial_faults = self._try(recommender, good.values())
        except Pending:
            self._list_proven(recommender, good)
            self._trying.add(recommender)
            self._returning.discard(recommender)
            raise
        faults |= trial_faults
        faults |= self._list(recommender, {number: placed for number, placed in good.items() if number not in trial_faults})
        self._owed.discard(recommender)
        self._returning.discard(recommender)
        return faults

    def _list_proven(self, recommender: str, wanted: Mapping[int, PlacedUnit]) -> None:
        """Serves versions that need no trial, and keeps served ones."""
        serving = {placed.number: placed for placed in self._of(recommender)}
        proven = {number: placed for number, placed in wanted.items() if placed.proof in self._proven}
        if serving != serving | proven:
            self._list(recommender, serving | proven, [placed for placed in wanted.values() if placed.proof not in self._proven])

    def _try(self, recommender: str, units: Iterable[PlacedUnit]) -> dict[int, str]:
        """Returns the faults of versions that fail their trial; raises Pending while trials run. Proven versions are not tried again."""
        new = {placed.number: placed for placed in units if placed.proof not in self._proven}
        begun = {placed.proof: placed for placed in new.values() if placed.proof not in self._trials}
        self._trials |= {proof: self._pool.submit(self._trial, placed, self._client) for proof, placed in begun.items()}
        trials = {number: self._trials[placed.proof] for number, placed in new.items()}
        _, late = wait(trials.values(), self._trial_wait if begun else 0)
        if late:
            numbers = ", ".join(str(number) for number, trial in trials.items() if trial in late)
            raise Pending(f"{recommender}: still loading: version {numbers}")
        faults: dict[int, str] = {}
        away: Exception | None = None
        for number, placed in new.items():
            self._trials.pop(placed.proof, None)
            try:
                fault = trials[number].result()
            except (EyasError, OSError) as error:
                away = error
                continue
            if fault is None:
                self._proven.add(placed.proof)
            else:
                faults[number] = fault
        if away is not None:
            raise away
        return faults

    def _trial(self, placed: PlacedUnit, client: Client) -> str | None:
        """Returns why the version cannot be served, or None. Raises Unavailable if the server went away."""
        self._repository.add_trial(placed)
        try:
            client.load(placed.trial)
            probe(client, placed, placed.trial, self._timeout)
        except EyasError as error:
            if client is not self._client or not client.ready():
                raise Unavailable(f"Triton does not answer: {placed.recommender} cannot be placed now") from error
            return str(error)
        finally:
            self._drop(placed.trial, client)
        return None

    def _list(self, recommender: str, good: Mapping[int, PlacedUnit], trying: Sequence[PlacedUnit] = ()) -> dict[int, str]:
        """Makes Triton serve exactly `good`; returns versions that failed to load. Versions in trial stay on disk."""
        faults: dict[int, str] = {}
        on_disk = self._repository.models(recommender)
        by_model: dict[str, list[PlacedUnit]] = {}
        for placed in good.values():
            by_model.setdefault(placed.model, []).append(placed)
        for model, listed in by_model.items():
            before = [placed for key, placed in self._serving.items() if placed.model == model]
            if set(before) == set(listed):
                continue
            try:
                self._relist(model, listed)
            except Unavailable as error:
                if not self._client.ready():
                    raise
                log.warning("model: loading failed, versions are loaded one by one model=%s error=%s", model, error)
                faults |= self._one_by_one(model, before, listed)
        loaded = {number: placed for number, placed in good.items() if number not in faults}
        self._route(recommender, loaded)
        for model, folders in on_disk.items():
            staying = {placed.number for placed in (*loaded.values(), *trying) if placed.model == model}
            for number in folders - staying:
                self._repository.remove_version(model, number)
            if not staying:
                self._tally.read(self._client.successes)
                self._drop(model, self._client)
                self._tally.read(self._client.successes)
        return faults

    def _one_by_one(self, model: str, before: Sequence[PlacedUnit], wanted: Sequence[PlacedUnit]) -> dict[int, str]:
        """Finds the proven version that failed to load with the list, and leaves it out."""
        faults: dict[int, str] = {}
        standing = [placed for placed in wanted if placed in before]
        for placed in wanted:
            if placed in standing:
                continue
            self._proven.discard(placed.proof)
            try:
                self._relist(model, [*standing, placed])
            except Unavailable as error:
                if not self._client.ready():
                    raise
                faults[placed.number] = str(error)
            else:
                standing.append(placed)
        if faults and standing:
            self._relist(model, standing)
        return faults

    def _relist(self, model: str, listed: Sequence[PlacedUnit]) -> None:
        """Sets the served versions of a model. Counters vanish with their versions, so they are read before and after."""
        leaving = {key: placed for key, placed in self._serving.items() if placed.model == model and placed not in listed}
        if leaving:  # stops new requests for the leaving versions
            self._serving = {key: placed for key, placed in self._serving.items() if key not in leaving}
        self._tally.read(self._client.successes)
        self._repository.configure(model, listed[0].signature, [placed.number for placed in listed])
        self._client.load(model)
        self._tally.read(self._client.successes)

    def _route(self, recommender: str, placed: Mapping[int, PlacedUnit]) -> None:
        others = {key: other for key, other in self._serving.items() if key[0] != recommender}
        self._serving = others | {(recommender, number): unit for number, unit in placed.items()}

    def _heal(self) -> None:
        """Reloads versions whose process died: Triton calls them ready, but they do not answer. Neighbours keep serving."""
        now = time.monotonic()
        due = sorted(self._suspects.due(self._serving, now))
        if due and not self._client.ready(self._timeout):  # the server is at fault, not the versions
            for key in due:
                self._suspects.add(key)
            return
        for key in due:
            placed = self._serving[key]
            if self._answers(placed) or not self._client.ready() or not self._suspects.may_heal(key, now):
                continue
            self._owed.add(placed.recommender)  # until the version is back
            log.warning("version: no answer, it is loaded again recommender=%s version=%d", *key)
            neighbours = [other for other in self._serving.values() if other.model == placed.model and other is not placed]
            if neighbours:
                self._relist(placed.model, neighbours)
            else:
                self._tally.read(self._client.successes)
                self._client.unload(placed.model)
            self._relist(placed.model, [*neighbours, placed])
            self._route(placed.recommender, {unit.number: unit for unit in (*self._of(placed.recommender), placed)})
            self._owed.discard(placed.recommender)

    def _of(self, recommender: str) -> list[PlacedUnit]:
        return [placed for (name, _), placed in self._serving.items() if name == recommender]

    def _answers(self, placed: PlacedUnit) -> bool:
        key = (placed.recommender, placed.number)
        try:
            probe(self._client, placed, placed.model, self._timeout)
        except Unavailable:
            self._suspects.add(key)
            self._doubts.add(key)
            return False
        self._doubts.discard(key)
        return True

    def _drop(self, model: str, client: Client) -> None:
        """Unloads a model that gets no requests, and removes it from disk."""
        try:
            client.unload(model)
        except Unavailable as error:
            log.debug("model: unloading failed model=%s error=%s", model, error)
        self._repository.remove_model(model)
