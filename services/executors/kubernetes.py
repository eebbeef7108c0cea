"""Stages as Kubernetes Jobs: the executor, and the few calls of the official client that it needs.

The cluster is the memory: a Job is created once under its attempt's name, adopted by whoever starts it again, and read back
after any restart of the control plane. The spec reaches the pod, and its log outlives it, through the artifact store.

Rights that it needs in its namespace: jobs create, get, list, watch, delete; pods list, watch; pods/log get; events list; and
deployments get of the owner whose uid isn't given.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import re
import socket
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from services.executors.jobsettings import JobSettings
from services.executors.jobspec import ATTEMPT, INSTANCE, MANAGED, Stored, job_name, manifest, selector
from services.executors.jobstate import STOPPED, explain, gone, state
from services.executors.text import whole_characters
from services.executors.tracker import REMEMBERED, Expired, Kind, Seen, Tracker
from shared.contracts.stage import StageSpec
from shared.domain.errors import Conflict, EyasError, Invalid, NotFound, Unavailable
from shared.domain.run import Job
from shared.ports import ArtifactStore

log = logging.getLogger(__name__)

Object = dict[str, Any]
_PAGE = 500
_QUICK = (3.0, 10.0)
_LOG_PIECE = 1 << 20
_NO_LOG = b"unable to retrieve container logs for "
"""What the kubelet gives for the log of a container that it has removed already."""
_POSTSCRIPT = re.compile(rb"rpc error: code = NotFound desc = [^\n]*\n?\Z")
MOST_LOG = 256 << 20
"""The most of a log that is kept."""
_WATCH_SECONDS = 55


class Cluster:
    """The calls of the API, in our errors. Objects are the API's own JSON: newer fields are neither lost nor invented."""

    def __init__(self, api: client.ApiClient, settings: JobSettings) -> None:
        self._jobs, self._core, self._apps = client.BatchV1Api(api), client.CoreV1Api(api), client.AppsV1Api(api)
        self._namespace, self._selector = settings.namespace, selector(settings)
        self._open: set[urllib3.HTTPResponse] = set()
        self._lock = threading.Lock()

    def with_owner(self, settings: JobSettings) -> JobSettings:
        """The settings with the uid of their owner, without which nothing can be its dependent."""
        owner = settings.owner
        if owner is None or owner.uid is not None:
            return settings
        found = self._json(self._apps.read_namespaced_deployment, owner.name, self._namespace)
        return settings.model_copy(update={"owner": owner.model_copy(update={"uid": found["metadata"]["uid"]})})

    def create(self, body: Object) -> Object:
        """Conflict if the name is taken."""
        return self._json(self._jobs.create_namespaced_job, self._namespace, body)

    def get(self, name: str) -> Object | None:
        try:
            return self._json(self._jobs.read_namespaced_job, name, self._namespace)
        except NotFound:
            return None

    def delete(self, name: str, uid: str) -> None:
        """Exactly that Job, and its pods after it; one that is gone or was replaced is left alone."""
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        with contextlib.suppress(NotFound, Conflict):
            self._json(self._jobs.delete_namespaced_job, name, self._namespace, body=options)

    def pods(self, job: str) -> list[Object]:
        return self._all(self._core.list_namespaced_pod, label_selector=f"job-name={job}")[0]

    def warnings(self, names: Sequence[str]) -> list[Object]:
        """Of these objects, the newest first."""
        found: list[Object] = []
        for name in names:
            found += self._all(self._core.list_namespaced_event, field_selector=f"type=Warning,involvedObject.name={name}")[0]
        return sorted(found, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""), reverse=True)

    def log(self, pod: str, *, follow: bool = False, seconds: float = 30.0) -> Iterator[bytes]:
        """What the pod has printed; nothing if it has not begun, or is gone."""
        try:
            response = self._call(
                self._core.read_namespaced_pod_log, pod, self._namespace, follow=follow, _request_timeout=(3.0, max(seconds, 1.0))
            )
        except (NotFound, Invalid):  # 400: its container has not begun
            return
        for number, chunk in enumerate(self._stream(response)):
            if number == 0 and chunk.startswith(_NO_LOG):
                return
            yield chunk

    def all_of(self, kind: Kind) -> tuple[Sequence[Object], str]:
        return self._all(self._listing(kind), label_selector=self._selector)

    def watch(self, kind: Kind, version: str) -> Iterator[Object]:
        response = self._call(
            self._listing(kind),
            self._namespace,
            label_selector=self._selector,
            resource_version=version,
            watch=True,
            allow_watch_bookmarks=True,
            timeout_seconds=_WATCH_SECONDS,
            _request_timeout=(3.0, _WATCH_SECONDS + 10.0),
        )
        rest = b""
        for chunk in self._stream(response):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield json.loads(line)

    def close(self) -> None:
        """Ends what is being read: whoever reads meets an error at once."""
        with self._lock:
            for response in self._open:
                sock = getattr(response.connection, "sock", None)
                if sock is not None:
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_RDWR)

    def _listing(self, kind: Kind) -> Callable[..., Any]:
        found: Callable[..., Any] = self._jobs.list_namespaced_job if kind == "jobs" else self._core.list_namespaced_pod
        return found

    def _all(self, call: Callable[..., Any], **chosen: Any) -> tuple[list[Object], str]:
        items: list[Object] = []
        more: dict[str, Any] = {}
        while True:
            page = self._json(call, self._namespace, limit=_PAGE, **chosen, **more)
            items += page.get("items") or []
            if not page["metadata"].get("continue"):
                return items, str(page["metadata"]["resourceVersion"])
            more = {"_continue": page["metadata"]["continue"]}

    def _json(self, call: Callable[..., Any], *given: Any, **named: Any) -> Object:
        response = self._call(call, *given, **({"_request_timeout": _QUICK} | named))
        found: Object = json.loads(b"".join(self._stream(response)))
        return found

    def _call(self, call: Callable[..., Any], *given: Any, **named: Any) -> urllib3.HTTPResponse:
        try:
            response: urllib3.HTTPResponse = call(*given, **named, _preload_content=False)
        except ApiException as error:
            raise _ours(error) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unavailable(f"the Kubernetes API doesn't answer: {_short(error)}") from None
        return response

    def _stream(self, response: urllib3.HTTPResponse) -> Iterator[bytes]:
        with self._lock:
            self._open.add(response)
        try:
            yield from response.stream(amt=None, decode_content=True)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise Unavailable(f"the connection to the Kubernetes API was lost: {_short(error)}") from None
        finally:
            with self._lock:
                self._open.discard(response)
            response.close()
            response.release_conn()


def connect(settings: JobSettings, kubeconfig: str | None = None) -> Cluster:
    """From within the cluster, or by a kubeconfig file."""
    found = client.Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=found)
        else:
            config.load_kube_config(config_file=kubeconfig, client_configuration=found)
    except (config.ConfigException, OSError) as error:
        where = "the pod's service account" if kubeconfig is None else kubeconfig
        raise Invalid(f"the Kubernetes API can't be reached through {where}: {_short(error)}") from None
    found.retries = False  # whoever calls decides about trying again
    return Cluster(client.ApiClient(found), settings)


class KubernetesExecutor:
    """Implements the Executor port. `modules` says which module runs a stage."""

    def __init__(
        self, cluster: Cluster, settings: JobSettings, artifacts: ArtifactStore, modules: Mapping[str, str], *, patience: float = 10.0
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._artifacts = artifacts
        self._modules = dict(modules)
        self._patience = patience
        self._stopped: OrderedDict[str, None] = OrderedDict()
        self._kept: OrderedDict[str, None] = OrderedDict()
        self._warned: OrderedDict[str, tuple[float, list[Object]]] = OrderedDict()
        self._left: OrderedDict[str, None] = OrderedDict()
        self._keeping = threading.Lock()
        self._heard: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._tracker = Tracker(cluster, self._heard.put)
        self._keeper = threading.Thread(target=self._keep_logs, name="keep-logs", daemon=True)
        self._tracker.start()
        self._keeper.start()

    def start(self, spec: StageSpec) -> None:
        with tempfile.TemporaryDirectory(prefix="eyas-spec-") as folder:
            path = Path(folder) / "spec.json"
            path.write_text(spec.model_dump_json(by_alias=True, indent=1))
            file = self._artifacts.put(path)
        body = manifest(spec, Stored(self._artifacts.url, file), self._settings, self._modules)
        # Its pod may wait for days; until its run has ended nothing that it will read is collected.
        self._artifacts.pin(spec.attempt, [file, *(one for files in spec.inputs.values() for one in files.values())])
        try:
            self._tracker.add(self._cluster.create(body))
        except Conflict:
            there = self._cluster.get(job_name(spec.attempt))
            if there is None:
                raise Unavailable(f"the Job of {spec.attempt} went away while it was adopted") from None
            if not self._ours(there, spec.attempt):
                where = f"{there['metadata']['name']} in the namespace {self._settings.namespace}"
                raise Conflict(f"the Job {where} is not this platform's attempt {spec.attempt}; it is in the way") from None
            self._tracker.add(there)

    def observe(self, attempt: str) -> Job | None:
        name = job_name(attempt)
        self._tracker.check(self._patience)
        if attempt in self._stopped:
            return STOPPED
        seen = self._find(name)
        if seen is None or not self._ours(seen.job, attempt):
            return None
        found = self._state(seen)
        if found.phase == "lost" and seen.present and not seen.pods:  # a Job's news may run before its pods'
            seen = Seen(seen.job, tuple(self._cluster.pods(name)), True)
            found = self._state(seen)
        if found.phase == "waiting":
            return explain(found, self._warnings(seen))
        if found.phase != "running":
            self._keep(attempt, seen)
        if found.phase == "lost" and seen.present:
            self._leave(seen.job)
        return found

    def stop(self, attempt: str) -> None:
        """Returns when its pods have ended, or can't be heard of any more."""
        name = job_name(attempt)
        job = self._cluster.get(name)
        if job is None or not self._ours(job, attempt):
            return
        seen = Seen(job, tuple(self._cluster.pods(name)), True)
        if attempt not in self._stopped and self._state(seen).phase not in ("waiting", "running"):
            return
        bound = self._settings.grace.total_seconds() + 30
        with self._last_words(attempt, seen, bound):
            _remember(self._stopped, attempt, None)
            try:
                self._cluster.delete(name, job["metadata"]["uid"])
            except EyasError:
                del self._stopped[attempt]
                raise
            self._await_end(name, bound)

    def log(self, attempt: str, offset: int = 0) -> tuple[str, int]:
        name, offset = job_name(attempt), max(offset, 0)
        kept = self._artifacts.kept_log(attempt, offset, _LOG_PIECE)
        if kept is None:
            seen = self._tracker.find(name)
            pod = _first(seen) if seen is not None and seen.present else None
            kept = b"" if pod is None else self._read(pod, offset)
        kept = whole_characters(kept)
        return kept.decode(errors="replace"), offset + len(kept)

    def close(self) -> None:
        """Stops watching. Jobs work on: they are the cluster's, and the next control plane finds them."""
        self._tracker.stop()
        self._cluster.close()
        self._heard.put(None)
        self._tracker.join(1)  # a watch of which nothing was heard yet can't be woken; it ends with the process
        self._keeper.join(10)

    def _find(self, name: str) -> Seen | None:
        """What nobody has heard of may have been made by another control plane just now."""
        seen = self._tracker.find(name)
        if seen is not None:
            return seen
        job = self._cluster.get(name)
        return None if job is None else Seen(job, tuple(self._cluster.pods(name)), True)

    def _state(self, seen: Seen) -> Job:
        found = state(seen.job, seen.pods, datetime.now(UTC))
        return found if seen.present else gone(found)

    def _ours(self, job: Object, attempt: str) -> bool:
        labels, annotations = job["metadata"].get("labels") or {}, job["metadata"].get("annotations") or {}
        return (labels.get(MANAGED), labels.get(INSTANCE), annotations.get(ATTEMPT)) == ("eyas", self._settings.instance, attempt)

    def _warnings(self, seen: Seen) -> list[Object]:
        """Asked for at most once in two seconds an attempt."""
        name = seen.job["metadata"]["name"]
        at, found = self._warned.get(name, (float("-inf"), []))
        if time.monotonic() - at > 2:
            try:
                found = self._cluster.warnings([name, *(pod["metadata"]["name"] for pod in seen.pods)])
            except Unavailable as error:
                log.warning("why %s waits can't be told: %s", name, error)
            _remember(self._warned, name, (time.monotonic(), found))
        return found

    def _leave(self, job: Object) -> None:
        """An attempt that is lost works no more, whatever its cluster puts in the place of its pod."""
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
        log.warning("the pods of %s had not ended %d s after they were told to; their node may be gone", name, bound)

    @contextlib.contextmanager
    def _last_words(self, attempt: str, seen: Seen, seconds: float) -> Iterator[None]:
        """Reads on until the pod has ended, and keeps what it printed."""
        pod = _first(seen)
        if pod is None:
            yield
            return
        reader = threading.Thread(target=self._keep_safely, args=(attempt, pod, True, seconds), name=f"log-{attempt}", daemon=True)
        reader.start()
        try:
            yield
        finally:
            reader.join(5)

    def _keep_logs(self) -> None:
        """Keeps logs of attempts that nobody asked about: their pods don't stay for ever."""
        while (name := self._heard.get()) is not None:
            seen = self._tracker.find(name)
            attempt = None if seen is None else (seen.job["metadata"].get("annotations") or {}).get(ATTEMPT)
            if seen is not None and attempt is not None and self._state(seen).phase not in ("waiting", "running"):
                self._keep(attempt, seen)

    def _keep(self, attempt: str, seen: Seen) -> None:
        pod = _first(seen)
        with self._keeping:
            if attempt not in self._kept and attempt not in self._stopped and pod is not None and seen.present:
                self._keep_safely(attempt, pod, False, 30.0)

    def _keep_safely(self, attempt: str, pod: str, follow: bool, seconds: float) -> None:
        """A log that can't be had now is no reason to say nothing of its attempt; the next news of it are the next chance."""
        try:
            if self._artifacts.kept_log(attempt, 0, 1) is None:
                self._copy(attempt, pod, follow, seconds)
            _remember(self._kept, attempt, None)
        except (EyasError, OSError) as error:
            log.warning("the log of %s is not kept yet: %s", attempt, error)

    def _copy(self, attempt: str, pod: str, follow: bool, seconds: float) -> None:
        with tempfile.TemporaryDirectory(prefix="eyas-log-") as folder:
            path = Path(folder) / "log.txt"
            with path.open("wb") as stream:
                try:
                    for chunk in self._cluster.log(pod, follow=follow, seconds=seconds):
                        stream.write(chunk[: MOST_LOG - stream.tell()])
                except Unavailable:
                    if not follow:
                        raise  # all of it, or another try; of a pod that is going away there is no other
            if follow:
                _cut_postscript(path)
            if path.stat().st_size:
                self._artifacts.keep_log(attempt, path)

    def _read(self, pod: str, offset: int) -> bytes:
        """The API has no byte offsets: what was read before is read again and dropped."""
        found, skip = b"", offset
        for chunk in self._cluster.log(pod):
            found += chunk[skip:]
            skip = max(0, skip - len(chunk))
            if len(found) >= _LOG_PIECE:
                break
        return found[:_LOG_PIECE]


def _cut_postscript(path: Path) -> None:
    """A kubelet that loses a container while its log is followed writes so into the log."""
    with path.open("r+b") as stream:
        start = max(0, path.stat().st_size - 1024)
        stream.seek(start)
        said = _POSTSCRIPT.search(stream.read())
        if said:
            stream.truncate(start + said.start())


def _first(seen: Seen) -> str | None:
    """The pod whose words are the attempt's: the first; of several processes the one of rank 0."""
    index = "batch.kubernetes.io/job-completion-index"
    ranked = sorted(
        seen.pods,
        key=lambda pod: ((pod["metadata"].get("annotations") or {}).get(index, "0"), str(pod["metadata"].get("creationTimestamp", ""))),
    )
    return str(ranked[0]["metadata"]["name"]) if ranked else None


def _remember(memory: OrderedDict[str, Any], key: str, value: Any) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > REMEMBERED:
        memory.popitem(last=False)


def _ours(error: ApiException) -> EyasError | Expired:
    """The API's refusals in our words."""
    said = _said(error)
    if error.status == 404:
        return NotFound(said)
    if error.status == 409:
        return Conflict(said)
    if error.status == 410:
        return Expired()
    if error.status in (400, 413, 422):
        return Invalid(f"the Kubernetes API refuses it: {said}")
    if error.status == 403 and "exceeded quota" in said:
        return Unavailable(f"a quota of the namespace is exceeded: {said}")
    if error.status in (401, 403):
        return Unavailable(f"the control plane lacks a right on the Kubernetes API: {said}")
    return Unavailable(f"the Kubernetes API has a fault (status {error.status}): {said}")


def _said(error: ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return _short(error.reason or error.body or "no reason")


def _short(error: object) -> str:
    said = " ".join(str(error).split())
    return said[:300] or type(error).__name__
