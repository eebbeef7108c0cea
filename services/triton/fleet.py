"""The ModelServer port on several Tritons: each replica gets all wanted versions, in its own repository.

A replica is *ready* while it answers and has all wanted versions. A replica that is not ready gets no request that a ready one can answer.
A version answers when every replica that counts has answered a real inference of it. A replica that is no longer ready counts for
`patience` seconds (a restart takes seconds, and weights do not move meanwhile), then no more until it is ready again.

`score` takes no lock. Each replica changes on its own thread; `place` and `ensure_running` wait briefly, and unfinished work goes on: the
next call returns its outcome.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any

import numpy as np

from services.triton.counters import ReplicaCounts
from services.triton.model_server import TritonServer
from services.triton.probe import Key
from services.triton.replica import FleetReplica
from services.triton.replica_selection import ReplicaSelector
from services.triton.repository import recommender_of, repository_of
from services.triton.server_process import ServerProcesses
from services.triton.tensors import Feed
from services.triton.watchdog import HANGS
from shared.domain.errors import EyasError, Pending, Unavailable
from shared.ports import ArtifactStore, ServedUnit, ServerInfo

log = logging.getLogger(__name__)

PATIENCE = 15.0
"""Seconds. Shorter than a rollout's patience with a silent version: the loss of one replica must not end a rollout."""
PLACING = 120.0
"""Seconds after the start of a placement during which a slow replica keeps it pending, although another one has finished."""
_TRIAL_WAIT = 1.0
"""Seconds that placing waits for trials; most end within them."""
_WAIT = 1.5


class TritonFleet:
    """Implements ModelServer. The owner starts the hosts, calls `ensure_running` in a loop, and `close` at the end."""

    def __init__(
        self,
        hosts: ServerProcesses,
        store: ArtifactStore,
        *,
        timeout: float = 2.0,
        probe_every: float = 10.0,
        heal_every: float = 15.0,
        patience: float = PATIENCE,
        hangs: float = HANGS,
    ) -> None:
        """`hangs`: seconds of silence until a server is killed and restarted, if this process owns it."""
        self._hosts = hosts
        self._store = store
        self._times = {"timeout": timeout, "probe_every": probe_every, "heal_every": heal_every, "trial_wait": _TRIAL_WAIT}
        self._hangs = hangs
        self._heal_every = heal_every
        self._patience = patience
        self._choice = ReplicaSelector(timeout)
        self._lock = threading.Lock()
        self._wanted: dict[str, tuple[ServedUnit, ...]] = {}
        self._since: dict[str, float] = {}
        """Since when the wanted versions of a recommender are being placed."""
        self._tallies: dict[str, ReplicaCounts] = {}
        self._members: Mapping[str, FleetReplica] = {}
        self._closed = False

    def place(self, recommender: str, units: Sequence[ServedUnit]) -> Mapping[int, str]:
        wanted = tuple(units)
        if self._wanted.get(recommender) != wanted or recommender not in self._since:
            self._since[recommender] = time.monotonic()
        self._wanted[recommender] = wanted
        members = self._follow()
        # Replicas without a check yet are asked too. A replica that is away or restoring its versions gets these later, with the others.
        targets = [member for member in members if member.at_hand] or [member for member in members if member.up is not False]
        for member in members:
            if member not in targets:
                member.want(recommender, units)
        placing = {member: member.place(recommender, units) for member in targets}
        wait([future for future, begun in placing.values() if begun], _WAIT)
        outcomes = {member: _outcome(future) for member, (future, _) in placing.items() if member.up is not False or future.done()}
        placed = {member: outcome for member, outcome in outcomes.items() if not isinstance(outcome, Exception)}
        for member in placed:
            member.up = True
        self._judge(members)
        pending = next((outcome for outcome in outcomes.values() if isinstance(outcome, Pending)), None)
        if pending is not None and (not placed or time.monotonic() - self._since[recommender] < PLACING):
            raise pending
        del self._since[recommender]
        if not placed:
            raise _trouble(outcomes, members)
        return _merged({member.name: outcome for member, outcome in placed.items()})

    def answering(self, recommender: str) -> frozenset[int]:
        numbers: frozenset[int] | None = None
        for member in self._members.values():
            if member.counts(self._patience):
                answers = frozenset[int]() if member.up is False else member.server.answering(recommender)
                numbers = answers if numbers is None else numbers & answers
        return numbers or frozenset()

    def score(self, recommender: str, number: int, feed: Feed, patience: float | None = None) -> np.ndarray[Any, Any]:
        return self._choice.score(tuple(self._members.values()), (recommender, number), feed, patience)

    def successes(self) -> Mapping[Key, int]:
        for member in self._members.values():
            if member.up is not False:
                member.server.successes()
        totals: Counter[Key] = Counter()
        for tally in tuple(self._tallies.values()):  # including removed replicas
            totals.update(tally.totals(recommender_of))
        return dict(totals)

    def info(self) -> ServerInfo:
        members = self._follow()
        models, version, trouble = dict[tuple[str, str], Mapping[str, str]](), "", "no Triton is known"
        for member in members:
            if member.up is False:
                trouble = member.fault() or trouble
                continue
            try:
                info = member.server.info()
            except Unavailable as error:
                trouble = str(error)
                continue
            version = version or info.version
            for model in info.models:  # ready only if ready on every replica
                key = model["name"], model["version"]
                if key not in models or model["state"] != "READY":
                    models[key] = model
        if not version:
            raise Unavailable(trouble)
        # A control plane that does not place versions does not know the replicas' states.
        return ServerInfo(version, tuple(models.values()), tuple(member.status() for member in members if member.up is not None))

    def ensure_running(self) -> bool:
        """Maintains every replica: restarts dead servers, restores and reloads versions, adds new replicas.

        Returns True if a replica was restarted since the last call; raises Unavailable if none answers. A long look goes on, and a later
        call returns its outcome.
        """
        members = self._follow()
        restarts = [member.began_anew() for member in members]
        wait([look for member in members if (look := member.look()) is not None], _WAIT)
        restarts += [member.began_anew() for member in members]
        self._judge(members)
        if all(member.up is False for member in members):
            raise Unavailable(f"no Triton serves: {members[0].fault()}" if members else "no Triton is known yet")
        return any(restarts)

    def vouch(self) -> None:
        """Tells each ready replica that it has all wanted versions; only the placing control plane calls this."""
        for member in self._members.values():
            if member.ready:
                member.submit(member.server.vouch)

    def close(self) -> None:
        """Closes the connections. To be called before the servers stop, or they wait for their clients."""
        with self._lock:
            self._closed = True
            members, self._members = self._members, {}
        for member in members.values():
            member.close()

    def _follow(self) -> list[FleetReplica]:
        """Adds and removes replicas; a new replica gets all wanted versions, like a restarted one."""
        with self._lock:
            hosts = self._hosts.current()
            if self._closed or hosts.keys() == self._members.keys():
                return list(self._members.values())
            updated = {name: member for name, member in self._members.items() if name in hosts}
            for name, host in hosts.items():
                if name not in updated:
                    log.info("replica: added replica=%s", name)
                    tally = self._tallies.setdefault(name, ReplicaCounts())  # perhaps the same server as before
                    server = TritonServer(host, repository_of(host, self._store), tally=tally, **self._times)
                    for recommender, units in self._wanted.items():
                        server.want(recommender, units)
                    updated[name] = FleetReplica(name, server, self._hangs)
            gone = [member for name, member in self._members.items() if name not in updated]
            self._members = updated
        for member in gone:
            log.info("replica: removed replica=%s", member.name)
            threading.Thread(target=member.close, name="close", daemon=True).start()
        return list(updated.values())

    def _judge(self, members: Sequence[FleetReplica]) -> None:
        wanted = {(name, unit.number) for name, units in self._wanted.items() for unit in units}
        available = frozenset(key for member in members if member.up for key in member.server.placed) & wanted
        for member in members:
            member.judge(available, self._heal_every)


def _outcome(placing: Future[dict[int, str]]) -> dict[int, str] | Exception:
    if not placing.done():
        return Pending("the model server has not answered yet")
    try:
        return placing.result()
    except (EyasError, OSError) as error:
        return error


def _trouble(outcomes: Mapping[FleetReplica, dict[int, str] | Exception], members: Sequence[FleetReplica]) -> Exception:
    faults = [outcome for outcome in outcomes.values() if isinstance(outcome, Exception)]
    faults += [Unavailable(f"Triton {member.name}: {member.fault()}") for member in members]
    return faults[0] if faults else Unavailable("no Triton is known yet")


def _merged(faults: Mapping[str, Mapping[int, str]]) -> dict[int, str]:
    """Merges the faults per version; names the replicas if only some report a fault."""
    merged: dict[int, str] = {}
    for number in sorted({number for member_faults in faults.values() for number in member_faults}):
        reported = {name: member_faults[number] for name, member_faults in faults.items() if number in member_faults}
        first = next(iter(reported))
        merged[number] = (
            reported[first] if len(reported) == len(faults) else f"{reported[first]} (on {', '.join(reported)}, not on the others)"
        )
    return merged
