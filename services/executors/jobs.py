"""Executor on Kubernetes: each attempt of a stage is a Job.

The cluster holds the state: a Job is created once under its attempt's name, adopted if it is started again, and read again
after a restart of the control plane. The artifact store carries the spec to the pod and keeps the pod's log.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import re
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from services.executors.informer import REMEMBERED, JobInformer, ObservedJob
from services.executors.jobsettings import JobSettings
from services.executors.jobspec import ATTEMPT, INSTANCE, MANAGED, StoredSpec, job_name, manifest, needs
from services.executors.jobstate import STOPPED, explain, gone, rank, state
from services.executors.kubernetes import Cluster, Object
from services.executors.text import whole_characters
from shared.contracts.stage import StageSpec
from shared.domain.errors import Conflict, EyasError, Unavailable
from shared.domain.run import Job
from shared.ports import ArtifactStore
from shared.telemetry.outages import Outages

log = logging.getLogger(__name__)

Voices = Sequence[tuple[int, str]]
"""Ranks, and the names of their pods."""
_LOG_PIECE = 1 << 20
_POSTSCRIPT = re.compile(rb"rpc error: code = NotFound desc = [^\n]*\n?\Z")
MOST_LOG = 256 << 20
"""Maximum size of a kept log."""


class KubernetesExecutor:
    """Implements the Executor port. `modules`: the Python module of each stage."""

    def __init__(
        self, cluster: Cluster, settings: JobSettings, artifacts: ArtifactStore, modules: Mapping[str, str], *, patience: float = 10.0
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._artifacts = artifacts
        self._modules = dict(modules)
        self._patience = patience
        self._stopped: OrderedDict[str, None] = OrderedDict()
        self._stored_logs: OrderedDict[str, None] = OrderedDict()
        self._outages = Outages(log)
        self._warned: OrderedDict[str, tuple[float, list[Object]]] = OrderedDict()
        self._left: OrderedDict[str, None] = OrderedDict()
        self._keeping = threading.Lock()
        self._heard: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._tracker = JobInformer(cluster, self._heard.put)
        self._keeper = threading.Thread(target=self._keep_logs, name="keep-logs", daemon=True)
        self._tracker.start()
        self._keeper.start()

    def start(self, spec: StageSpec) -> None:
        with tempfile.TemporaryDirectory(prefix="eyas-spec-") as folder:
            path = Path(folder) / "spec.json"
            path.write_text(spec.model_dump_json(by_alias=True, indent=1))
            file = self._artifacts.put(path)
        if fault := needs(spec, self._settings).gpu_fault:
            log.info("job: gets no GPU attempt=%s reason=%s", spec.attempt, fault)
        body = manifest(spec, StoredSpec(self._artifacts.url, file), self._settings, self._modules)
        # The pod may wait for days: the pins protect its inputs from garbage collection until the run has ended.
        self._artifacts.pin(spec.attempt, [file, *(input_file for files in spec.inputs.values() for input_file in files.values())])
        try:
            self._tracker.add(self._cluster.create(body))
        except Conflict:
            there = self._cluster.get(job_name(spec.attempt))
            if there is None:
                raise Unavailable(f"the Job of attempt {spec.attempt} was deleted during its adoption") from None
            if not self._ours(there, spec.attempt):
                where = f"{there['metadata']['name']} in the namespace {self._settings.namespace}"
                raise Conflict(f"the Job {where} has the name of attempt {spec.attempt}, but is not of this platform") from None
            self._tracker.add(there)

    def observe(self, attempt: str) -> Job | None:
        name = job_name(attempt)
        self._tracker.check(self._patience)
        if attempt in self._stopped:
            return STOPPED
        observed = self._find(name)
        if observed is None or not self._ours(observed.job, attempt):
            return None
        job = self._state(observed)
        if job.phase == "lost" and observed.present and not observed.pods:  # a Job's events may arrive before its pods' events
            observed = ObservedJob(observed.job, tuple(self._cluster.pods(name)), True)
            job = self._state(observed)
        if job.phase == "waiting":
            return explain(job, self._warnings(observed))
        if job.phase != "running":
            self._keep(attempt, observed)
        if job.phase == "lost" and observed.present:
            self._leave(observed.job)
        return job

    def stop(self, attempt: str) -> None:
        """Deletes the Job; returns when its pods have ended, or after the grace period and 30 s."""
        name = job_name(attempt)
        job = self._cluster.get(name)
        if job is None or not self._ours(job, attempt):
            return
        observed = ObservedJob(job, tuple(self._cluster.pods(name)), True)
        if attempt not in self._stopped and self._state(observed).phase not in ("waiting", "running"):
            return
        bound = self._settings.grace.total_seconds() + 30
        with self._last_words(attempt, observed, bound):
            _remember(self._stopped, attempt, None)
            try:
                self._cluster.delete(name, job["metadata"]["uid"])
            except EyasError:
                del self._stopped[attempt]
                raise
            self._await_end(name, bound)

    def log(self, attempt: str, offset: int = 0) -> tuple[str, int]:
        name, offset = job_name(attempt), max(offset, 0)
        content = self._artifacts.kept_log(attempt, offset, _LOG_PIECE)
        if content is None:
            observed = self._tracker.find(name)
            pods = _voices(observed) if observed is not None and observed.present else []
            content = self._read(pods[0][1], offset) if pods else b""
        content = whole_characters(content)
        return content.decode(errors="replace"), offset + len(content)

    def close(self) -> None:
        """Stops watching. The Jobs continue in the cluster, and the next control plane finds them."""
        self._tracker.stop()
        self._cluster.close()
        self._heard.put(None)
        self._tracker.join(1)  # a watch without any data yet can't be interrupted; it ends with the process
        self._keeper.join(10)

    def _find(self, name: str) -> ObservedJob | None:
        """Looks up a Job; asks the API for an unknown Job, which another control plane may have just created."""
        observed = self._tracker.find(name)
        if observed is not None:
            return observed
        job = self._cluster.get(name)
        return None if job is None else ObservedJob(job, tuple(self._cluster.pods(name)), True)

    def _state(self, observed: ObservedJob) -> Job:
        job = state(observed.job, observed.pods, datetime.now(UTC))
        return job if observed.present else gone(job)

    def _ours(self, job: Object, attempt: str) -> bool:
        labels, annotations = job["metadata"].get("labels") or {}, job["metadata"].get("annotations") or {}
        return (labels.get(MANAGED), labels.get(INSTANCE), annotations.get(ATTEMPT)) == ("eyas", self._settings.instance, attempt)

    def _warnings(self, observed: ObservedJob) -> list[Object]:
        """Reads the warnings at most once in two seconds per attempt."""
        name = observed.job["metadata"]["name"]
        at, warnings = self._warned.get(name, (float("-inf"), []))
        if time.monotonic() - at > 2:
            try:
                warnings = self._cluster.warnings([name, *(pod["metadata"]["name"] for pod in observed.pods)])
                self._outages.succeed("", "pod warnings: recovered")
            except Unavailable as error:
                self._outages.fail("", "pod warnings: reading failed error=%s", error, level=logging.WARNING)
            _remember(self._warned, name, (time.monotonic(), warnings))
        return warnings

    def _leave(self, job: Object) -> None:
        """Deletes the Job of a lost attempt, so that no replacement of its pod works."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        if uid not in self._left and "deletionTimestamp" not in job["metadata"]:
            self._cluster.delete(name, uid)
            _remember(self._left, uid, None)

    def _await_end(self, name: str, bound: float) -> None:
        end, pause = time.monotonic() + bound, 0.05
        while time.monotonic() < end:
            if all(pod["status"].get("phase") in ("Succeeded", "Failed") for pod in self._cluster.pods(name)):
                return
            time.sleep(pause)
            pause = min(pause * 1.5, 0.5)
        log.warning("job: pods still run after the stop, their node may be lost job=%s seconds=%d", name, bound)

    @contextlib.contextmanager
    def _last_words(self, attempt: str, observed: ObservedJob, seconds: float) -> Iterator[None]:
        """Follows the logs of the pods until they have ended, and keeps the logs."""
        pods = _voices(observed)
        if not pods:
            yield
            return
        reader = threading.Thread(target=self._keep_safely, args=(attempt, pods, True, seconds), name=f"log-{attempt}", daemon=True)
        reader.start()
        try:
            yield
        finally:
            reader.join(5)

    def _keep_logs(self) -> None:
        """Keeps the logs of ended attempts that are not observed, because their pods are deleted later."""
        while (name := self._heard.get()) is not None:
            observed = self._tracker.find(name)
            attempt = None if observed is None else (observed.job["metadata"].get("annotations") or {}).get(ATTEMPT)
            if observed is not None and attempt is not None and self._state(observed).phase not in ("waiting", "running"):
                self._keep(attempt, observed)

    def _keep(self, attempt: str, observed: ObservedJob) -> None:
        pods = _voices(observed)
        with self._keeping:
            if attempt not in self._stored_logs and attempt not in self._stopped and pods and observed.present:
                self._keep_safely(attempt, pods, False, 30.0)

    def _keep_safely(self, attempt: str, pods: Voices, follow: bool, seconds: float) -> None:
        """Keeps a log; a failure is only logged, and the next event of the attempt tries again."""
        try:
            if self._artifacts.kept_log(attempt, 0, 1) is None:
                self._copy(attempt, pods, follow, seconds)
            _remember(self._stored_logs, attempt, None)
        except (EyasError, OSError) as error:
            log.warning("attempt log: not copied yet attempt=%s error=%s", attempt, error)

    def _copy(self, attempt: str, pods: Voices, follow: bool, seconds: float) -> None:
        """Keeps the first rank's log, then the logs of the other ranks with the rank's number in each line. Reads all at once: pods that
        end because of another pod are deleted soon."""
        with tempfile.TemporaryDirectory(prefix="eyas-log-") as folder:
            parts = [Path(folder) / f"{at}.txt" for at in range(len(pods))]

            def read(at: int) -> None:
                with parts[at].open("wb") as stream:
                    try:
                        for chunk in self._cluster.log(pods[at][1], follow=follow, seconds=seconds):
                            stream.write(chunk[: MOST_LOG // len(pods) - stream.tell()])
                    except Unavailable:
                        if not follow:
                            raise  # retried later, for the complete log; no retry for a pod that is being deleted
                if follow:
                    _cut_postscript(parts[at])

            with ThreadPoolExecutor(len(pods), thread_name_prefix=f"log-{attempt}") as readers:
                list(readers.map(read, range(len(pods))))
            for (number, _), part in zip(pods[1:], parts[1:], strict=True):
                _append(parts[0], part, f"rank {number}: ".encode())
            if parts[0].stat().st_size:
                self._artifacts.keep_log(attempt, parts[0])

    def _read(self, pod: str, offset: int) -> bytes:
        """Reads from the offset; the API has no byte offsets, so the bytes before it are read and dropped."""
        content, skip = b"", offset
        for chunk in self._cluster.log(pod):
            content += chunk[skip:]
            skip = max(0, skip - len(chunk))
            if len(content) >= _LOG_PIECE:
                break
        return content[:_LOG_PIECE]


def _cut_postscript(path: Path) -> None:
    """Removes the message that a kubelet appends if it loses a container while its log is followed."""
    with path.open("r+b") as stream:
        start = max(0, path.stat().st_size - 1024)
        stream.seek(start)
        match = _POSTSCRIPT.search(stream.read())
        if match:
            stream.truncate(start + match.start())


def _append(to: Path, part: Path, prefix: bytes) -> None:
    with to.open("r+b") as stream, part.open("rb") as lines:
        if stream.seek(0, 2):
            stream.seek(-1, 2)
            stream.write(b"" if stream.read(1) == b"\n" else b"\n")
        for line in lines:
            stream.write(prefix + line)


def _voices(observed: ObservedJob) -> Voices:
    """Returns the pods whose logs are the attempt's log: the first pod of each rank, sorted by rank."""
    names_by_rank: dict[int, str] = {}
    for pod in sorted(observed.pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", ""))):
        names_by_rank.setdefault(rank(pod) or 0, str(pod["metadata"]["name"]))
    return sorted(names_by_rank.items())


def _remember(memory: OrderedDict[str, Any], key: str, value: Any) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)
