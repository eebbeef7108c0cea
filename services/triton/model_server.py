"""The ModelServer port on one Triton. Several are a fleet of these (services.triton.fleet).

Placing never disturbs what serves. A new version is first tried alone, under a model name that no request ever uses: loaded, asked
for a real inference, unloaded. This is done on another thread, so a load that takes long, or hangs, delays no other recommender. Trying
it in the same Triton (and not, say, in a process that opens the ONNX file) means that exactly what will serve was proven: this server,
this backend, this configuration, these inputs; and the Python backend gives each version a process of its own, which ends itself when a
load takes more than four minutes, so the worst file takes down nobody else. Only what passed is listed. Then the list changes and Triton
loads: measured, no request fails during that.

`score` takes no lock: it reads one mapping that is replaced, never changed. Everything but trials that changes Triton holds the lock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from services.triton.client import LOAD_TIMEOUT, Client, Lost
from services.triton.counters import Tally
from services.triton.probe import Key, Suspects, probe
from services.triton.repository import ModelRepository, Placed, recommender_of
from services.triton.server_process import Host
from services.triton.tensors import Feed, tensors
from shared.domain.errors import EyasError, Pending, Unavailable
from shared.ports import ServedUnit, ServerInfo

log = logging.getLogger(__name__)

TRIALS = 8
"""At once: fewer loads that hang than this delay no other."""


class TritonServer:
    """Implements the ModelServer port. Its owner starts the host, calls `ensure_running` in a loop, and `close` at the end."""

    def __init__(
        self,
        host: Host,
        repository: ModelRepository,
        *,
        timeout: float = 2.0,
        probe_every: float = 10.0,
        heal_every: float = 15.0,
        tally: Tally | None = None,
        trial_wait: float = LOAD_TIMEOUT,
    ) -> None:
        """`trial_wait`: seconds that a call waits for the trials that it has begun, before it is Pending."""
        if repository.root != host.repository:
            raise ValueError(f"Triton reads {host.repository}, and models would be written to {repository.root}")
        self._host = host
        self._repository = repository
        self._timeout = timeout
        self._lock = threading.RLock()
        self._wanted: dict[str, tuple[ServedUnit, ...]] = {}
        self._owed: set[str] = set()
        """Recommenders whose versions are to be placed, or are being placed."""
        self._returning: set[str] = set()
        """Those of `_owed` that a restart took from the server, or that were wanted while it was away."""
        self._serving: Mapping[Key, Placed] = {}
        self._proven: set[tuple[str, str]] = set()
        self._trial_wait = trial_wait
        self._pending: set[str] = set()
        """Recommenders whose `place` is to be called again."""
        self._trying: set[str] = set()
        """Recommenders that have what was proven, and lack what is being tried."""
        self._trials: dict[tuple[str, str], Future[str | None]] = {}
        self._pool = ThreadPoolExecutor(TRIALS, thread_name_prefix="trial")
        self._suspects = Suspects(probe_every, heal_every, time.monotonic())
        self._doubts: set[Key] = set()
        self._tidied = False
        self._tally = tally or Tally()
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
            raise Lost(f"{key[0]} version {key[1]} is not on the model server")
        inputs = tensors(placed.signature, feed)
        try:
            return self._client.infer(placed.model, placed.number, inputs, placed.signature.output, timeout)
        except Unavailable as error:
            self._suspects.add(key)
            if isinstance(error, Lost):
                self._doubts.add(key)
            raise

    @property
    def placed(self) -> frozenset[Key]:
        """What it serves, as far as is known."""
        return frozenset(self._serving)

    @property
    def owing(self) -> bool:
        """Whether something that it should have wasn't given to it yet; new versions that are being tried don't count."""
        return bool(self._owed - self._trying)

    @property
    def returning(self) -> bool:
        """Whether the server is still given back what it should have since it was started, or since it was away."""
        return bool(self._returning)

    def lacks(self, recommender: str) -> bool:
        """Whether a restart took all versions of a recommender, and none is back yet."""
        return recommender in self._owed and not any(name == recommender for name, _ in self._serving)

    def doubted(self, key: Key) -> bool:
        """A request was lost there, and no real inference has answered since."""
        return key in self._doubts

    @property
    def settled(self) -> bool:
        """Whether `ensure_running` would find nothing to do."""
        same = self._host.alive and self._host.generation == self._generation
        return same and not self._owed - self._pending and not self._suspects.waiting(time.monotonic())

    @property
    def generation(self) -> int:
        """Of the server that is asked."""
        return self._generation

    def kill(self, generation: int) -> bool:
        """Ends a server of that generation, where that can be done here: the next `ensure_running` starts it again."""
        return self._generation == self._host.generation == generation and self._host.kill()

    def reachable(self, patience: float | None = None) -> bool:
        return self._host.generation > 0 and self._client.ready(self._timeout if patience is None else patience)

    def want(self, recommender: str, units: Sequence[ServedUnit]) -> None:
        """To be placed by the next `ensure_running`: for a server that can't be asked now."""
        with self._lock:
            self._wanted[recommender] = tuple(units)
            self._owed.add(recommender)
            self._returning.add(recommender)
            self._pending.discard(recommender)

    def retry(self, recommenders: Iterable[str]) -> None:
        """The next `ensure_running` places these once more, unless their versions are being tried."""
        with self._lock:
            self._owed |= self._wanted.keys() & set(recommenders)

    def vouch(self) -> None:
        """Tells the host that its server has all that it should: the caller knows that nothing else is wanted."""
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
        """Starts a server that died and gives it back its versions; heals versions whose process died. True: it was started.

        Unavailable when that can't be done now: what is owed stays owed until the next call.
        """
        restarted = self._host.ensure_running()
        with self._lock:
            self._follow_restart()
            self._client.renew()
            trouble: Exception | None = None
            for recommender in sorted(self._owed - self._pending):
                try:
                    for number, why in self._place(recommender).items():
                        log.warning("%s version %d didn't come back: %s", recommender, number, why)
                except Pending as error:
                    log.debug("%s", error)
                except (Unavailable, OSError) as error:  # one that can't be helped now doesn't keep the others down
                    trouble = trouble or error
            self._heal()
            if trouble is not None:
                raise Unavailable(f"Triton runs, but not all versions are back: {trouble}") from trouble
        return restarted

    def close(self) -> None:
        """Closes the connections: before the server is stopped, or it waits for them. What is under way on them ends at once."""
        self._client.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._serving = {}
            self._client.close()

    def _follow_restart(self) -> None:
        if self._host.generation == self._generation:
            return
        if self._generation:
            log.warning("Triton was started again: its versions are loaded again")
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
        good: dict[int, Placed] = {}
        for unit in self._wanted[recommender]:
            try:
                good[unit.number] = self._repository.add(unit)
            except EyasError as error:
                if not self._client.ready():
                    raise Unavailable(f"Triton doesn't answer: {recommender} can't be placed now") from error
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

    def _list_proven(self, recommender: str, wanted: Mapping[int, Placed]) -> None:
        """What waits for no trial serves meanwhile, and what serves goes on."""
        serving = {placed.number: placed for placed in self._of(recommender)}
        proven = {number: placed for number, placed in wanted.items() if placed.proof in self._proven}
        if serving != serving | proven:
            self._list(recommender, serving | proven, [placed for placed in wanted.values() if placed.proof not in self._proven])

    def _try(self, recommender: str, units: Iterable[Placed]) -> dict[int, str]:
        """The versions that can't be served, and why; Pending while some are being tried. What has been proven is not tried again."""
        new = {placed.number: placed for placed in units if placed.proof not in self._proven}
        begun = {placed.proof: placed for placed in new.values() if placed.proof not in self._trials}
        self._trials |= {proof: self._pool.submit(self._trial, placed, self._client) for proof, placed in begun.items()}
        trials = {number: self._trials[placed.proof] for number, placed in new.items()}
        _, late = wait(trials.values(), self._trial_wait if begun else 0)
        if late:
            numbers = ", ".join(str(number) for number, trial in trials.items() if trial in late)
            raise Pending(f"{recommender}: version {numbers} is still being loaded")
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

    def _trial(self, placed: Placed, client: Client) -> str | None:
        """Why the version can't be loaded or doesn't answer. Unavailable when the server went away meanwhile."""
        self._repository.add_trial(placed)
        try:
            client.load(placed.trial)
            probe(client, placed, placed.trial, self._timeout)
        except EyasError as error:
            if client is not self._client or not client.ready():
                raise Unavailable(f"Triton doesn't answer: {placed.recommender} can't be placed now") from error
            return str(error)
        finally:
            self._drop(placed.trial, client)
        return None

    def _list(self, recommender: str, good: Mapping[int, Placed], trying: Sequence[Placed] = ()) -> dict[int, str]:
        """Makes `good` what Triton serves of a recommender; returns what wouldn't load after all. What is being tried stays on disk."""
        faults: dict[int, str] = {}
        on_disk = self._repository.models(recommender)
        by_model: dict[str, list[Placed]] = {}
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
                log.warning("%s: versions are loaded one by one: %s", model, error)
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

    def _one_by_one(self, model: str, before: Sequence[Placed], wanted: Sequence[Placed]) -> dict[int, str]:
        """A proven version didn't load and took the list with it: finds out which one, and leaves it out."""
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

    def _relist(self, model: str, listed: Sequence[Placed]) -> None:
        """Tells Triton which versions of a model serve. Counters vanish with their versions: they are read around the change."""
        leaving = {key: placed for key, placed in self._serving.items() if placed.model == model and placed not in listed}
        if leaving:  # no new request for them from here on
            self._serving = {key: placed for key, placed in self._serving.items() if key not in leaving}
        self._tally.read(self._client.successes)
        self._repository.configure(model, listed[0].signature, [placed.number for placed in listed])
        self._client.load(model)
        self._tally.read(self._client.successes)

    def _route(self, recommender: str, placed: Mapping[int, Placed]) -> None:
        others = {key: other for key, other in self._serving.items() if key[0] != recommender}
        self._serving = others | {(recommender, number): unit for number, unit in placed.items()}

    def _heal(self) -> None:
        """A version whose process died says ready and answers nothing. It leaves the list and comes back; its neighbours stay."""
        now = time.monotonic()
        due = sorted(self._suspects.due(self._serving, now))
        if due and not self._client.ready(self._timeout):  # it isn't its versions that are to be blamed
            for key in due:
                self._suspects.add(key)
            return
        for key in due:
            placed = self._serving[key]
            if self._answers(placed) or not self._client.ready() or not self._suspects.may_heal(key, now):
                continue
            self._owed.add(placed.recommender)  # until it is back
            log.warning("%s version %d doesn't answer: it is loaded again", *key)
            neighbours = [other for other in self._serving.values() if other.model == placed.model and other is not placed]
            if neighbours:
                self._relist(placed.model, neighbours)
            else:
                self._tally.read(self._client.successes)
                self._client.unload(placed.model)
            self._relist(placed.model, [*neighbours, placed])
            self._route(placed.recommender, {unit.number: unit for unit in (*self._of(placed.recommender), placed)})
            self._owed.discard(placed.recommender)

    def _of(self, recommender: str) -> list[Placed]:
        return [placed for (name, _), placed in self._serving.items() if name == recommender]

    def _answers(self, placed: Placed) -> bool:
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
        """Unloads a model that nobody may ask any more, and removes it from disk."""
        try:
            client.unload(model)
        except Unavailable as error:
            log.debug("unloading %s: %s", model, error)
        self._repository.remove_model(model)
