"""Informer: one shared watch of Jobs and pods, with the last known state of each.

Lists, then watches from the list's version. Lists again when the version has expired, when the connection was lost, and
periodically. While the watch is lost, `check` raises Unavailable.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from shared.domain.errors import Unavailable

log = logging.getLogger(__name__)

Kind = Literal["jobs", "pods"]
KINDS: tuple[Kind, ...] = ("jobs", "pods")
REMEMBERED = 2000
"""Maximum number of past Jobs whose last state is remembered."""


class Expired(Exception):
    """The watch's version is too old: list again."""


class WatchSource(Protocol):
    """Lists and watches Jobs and pods."""

    def all_of(self, kind: Kind) -> tuple[Sequence[dict[str, Any]], str]:
        """Returns all objects of a kind, and the version to watch from."""

    def watch(self, kind: Kind, version: str) -> Iterator[dict[str, Any]]:
        """Yields events ({"type", "object"}) until the server ends the watch; raises Expired or Unavailable."""


@dataclass(frozen=True)
class ObservedJob:
    """A Job and every observed pod of the Job. `present`: whether the Job still exists."""

    job: dict[str, Any]
    pods: tuple[dict[str, Any], ...]
    present: bool


class JobInformer:
    """Watches Jobs and pods. `changed` gets the name of each Job with an event, and must return quickly."""

    def __init__(
        self,
        source: WatchSource,
        changed: Callable[[str], None] = lambda name: None,
        *,
        resync: float = 600.0,
        backoff: tuple[float, float] = (0.2, 10.0),
    ) -> None:
        self._source = source
        self._changed = changed
        self._resync = resync
        self._backoff = backoff
        self._lock = threading.Condition()
        self._jobs: dict[str, dict[str, Any]] = {}
        self._pods: dict[str, dict[str, dict[str, Any]]] = {}
        self._past: OrderedDict[str, ObservedJob] = OrderedDict()
        self._fresh: dict[str, int] = {}
        self._lists = 0
        self._begun = False
        self._trouble: dict[Kind, str] = dict.fromkeys(KINDS, "not listed yet")
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(kind,), name=f"watch-{kind}", daemon=True) for kind in KINDS]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        with self._lock:
            self._lock.notify_all()

    def join(self, seconds: float) -> None:
        for thread in self._threads:
            if thread.is_alive():
                thread.join(seconds)

    def check(self, patience: float = 0.0) -> None:
        """Raises Unavailable while the watch is lost; waits up to `patience` seconds for the first lists."""
        with self._lock:
            if not self._begun:
                self._begun = bool(self._lock.wait_for(lambda: not self._trouble or self._stopped.is_set(), patience))
            if self._stopped.is_set():
                raise Unavailable("the watch of the Kubernetes API has ended: the executor is closed")
            if self._trouble:
                raise Unavailable(f"the Kubernetes API cannot be watched: {'; '.join(dict.fromkeys(self._trouble.values()))}")

    def find(self, name: str) -> ObservedJob | None:
        with self._lock:
            job = self._jobs.get(name)
            if job is None:
                return self._past.get(name)
            return ObservedJob(job, tuple(self._pods.get(job["metadata"]["uid"], {}).values()), True)

    def names(self) -> list[str]:
        with self._lock:
            return list(self._jobs)

    def add(self, job: dict[str, Any], pods: Sequence[dict[str, Any]] = ()) -> None:
        """Adds a Job that was just created, or just read from the API."""
        with self._lock:
            name = job["metadata"]["name"]
            if name not in self._jobs:
                self._jobs[name] = _lean(job)
                self._fresh[name] = self._lists
            for pod in pods:
                self._keep_pod(pod)

    def _run(self, kind: Kind) -> None:
        least, most = self._backoff
        pause, version, listed = least, "", 0.0
        while not self._stopped.is_set():
            try:
                if not version or time.monotonic() - listed > self._resync:
                    version, listed = self._list(kind), time.monotonic()
                    pause = least
                for event in self._source.watch(kind, version):
                    version = self._apply(kind, event, version)
                    if self._stopped.is_set():
                        return
            except Expired:
                log.info("kubernetes watch: expired, listing again kind=%s", kind)
                version = ""
            except Exception as error:
                version = ""
                self._lost(kind, error)
                self._stopped.wait(pause * random.uniform(0.8, 1.2))  # noqa: S311  spreads the retries of many clients
                pause = min(pause * 2, most)

    def _lost(self, kind: Kind, error: Exception) -> None:
        if self._stopped.is_set():
            return
        with self._lock:
            already_lost = kind in self._trouble
            self._trouble[kind] = str(error)
        if not isinstance(error, Unavailable):
            log.exception("kubernetes watch: failed kind=%s", kind)
        elif not already_lost:
            log.warning("kubernetes watch: lost kind=%s error=%s", kind, error)

    def _list(self, kind: Kind) -> str:
        with self._lock:
            self._lists += 1
            began = self._lists
        items, version = self._source.all_of(kind)
        with self._lock:
            names = self._replace_jobs(items, began) if kind == "jobs" else self._replace_pods(items)
            if self._trouble.pop(kind, None) is not None and not self._trouble:
                log.info("kubernetes watch: re-established")
            self._lock.notify_all()
        self._tell(names)
        return version

    def _replace_jobs(self, items: Sequence[dict[str, Any]], began: int) -> set[str]:
        """Replaces the Jobs by those of a list; keeps Jobs that were added since the list began, which may be missing in it."""
        there = {job["metadata"]["name"]: _lean(job) for job in items}
        for name in [name for name in self._jobs if name not in there and self._fresh.get(name, -1) < began]:
            self._forget(name)
        for name, job in there.items():
            self._put_job(name, job)
        return set(there)

    def _replace_pods(self, items: Sequence[dict[str, Any]]) -> set[str]:
        there = {pod["metadata"]["uid"] for pod in items}
        for pods in self._pods.values():
            for pod in list(pods.values()):
                if pod["metadata"]["uid"] not in there:
                    self._bury(pod)
        return {name for pod in items if (name := self._keep_pod(pod)) is not None}

    def _apply(self, kind: Kind, event: dict[str, Any], version: str) -> str:
        thing, event_type = event["object"], event["type"]
        if event_type == "ERROR":
            if thing.get("code") == 410:
                raise Expired
            raise Unavailable(f"the watch of {kind} ended: {thing.get('message', thing.get('reason', 'no reason'))}")
        if event_type != "BOOKMARK":
            with self._lock:
                name = self._job_event(event_type, thing) if kind == "jobs" else self._pod_event(event_type, thing)
            self._tell({name} if name else set())
        return str(thing["metadata"].get("resourceVersion", version))

    def _job_event(self, event_type: str, job: dict[str, Any]) -> str:
        name: str = job["metadata"]["name"]
        self._put_job(name, _lean(job))
        if event_type == "DELETED":
            self._forget(name)
        return name

    def _pod_event(self, event_type: str, pod: dict[str, Any]) -> str | None:
        name = self._keep_pod(pod)
        if event_type == "DELETED":
            self._bury(pod)
        return name

    def _put_job(self, name: str, job: dict[str, Any]) -> None:
        before = self._jobs.get(name)
        if before is not None and before["metadata"]["uid"] != job["metadata"]["uid"]:
            self._forget(name)
        self._jobs[name] = job
        self._fresh.pop(name, None)
        self._past.pop(name, None)

    def _forget(self, name: str) -> None:
        job = self._jobs.pop(name)
        self._fresh.pop(name, None)
        pods = self._pods.pop(job["metadata"]["uid"], {})
        self._past[name] = ObservedJob(job, tuple(pods.values()), False)
        while len(self._past) > REMEMBERED:
            self._past.popitem(last=False)

    def _keep_pod(self, pod: dict[str, Any]) -> str | None:
        """Stores the pod and returns its Job's name; ignores pods without a Job, and pods of a past Job."""
        owner = next((reference for reference in pod["metadata"].get("ownerReferences", ()) if reference["kind"] == "Job"), None)
        if owner is None:
            return None
        past = self._past.get(owner["name"])
        if past is not None and past.job["metadata"]["uid"] == owner["uid"]:
            return None
        self._pods.setdefault(owner["uid"], {})[pod["metadata"]["uid"]] = _lean(pod)
        return str(owner["name"])

    def _bury(self, pod: dict[str, Any]) -> None:
        """Marks a pod as deleted; its last state is kept as long as its Job is known."""
        for pods in self._pods.values():
            tracked = pods.get(pod["metadata"]["uid"])
            if tracked is not None:
                tracked["metadata"].setdefault("deletionTimestamp", datetime.now(UTC).isoformat())

    def _tell(self, names: set[str]) -> None:
        for name in names:
            self._changed(name)


def _lean(thing: dict[str, Any]) -> dict[str, Any]:
    """Removes the fields that only the API server reads."""
    metadata = {key: value for key, value in thing["metadata"].items() if key != "managedFields"}
    return {**thing, "metadata": metadata}
