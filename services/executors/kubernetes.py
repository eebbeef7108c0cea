"""Calls of the official Kubernetes client for the executor of Jobs; API errors become the platform's errors.

Needed rights in the namespace: jobs create, get, list, watch, delete; pods list, watch; pods/log get; events list; and
deployments get, if the owner's uid isn't given.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from services.executors.informer import Expired, Kind
from services.executors.jobsettings import JobSettings
from services.executors.jobspec import selector
from shared.domain.errors import Conflict, EyasError, Invalid, NotFound, Unavailable

log = logging.getLogger(__name__)

Object = dict[str, Any]
_PAGE = 500
_QUICK = (3.0, 10.0)
_NO_LOG = b"unable to retrieve container logs for "
"""Start of the text that the kubelet returns as the log of a removed container."""
_WATCH_SECONDS = 55


class Cluster:
    """Kubernetes API with the platform's errors. Objects are the API's JSON, so that no field of a newer API is lost."""

    def __init__(self, api: client.ApiClient, settings: JobSettings) -> None:
        self._jobs, self._core, self._apps = client.BatchV1Api(api), client.CoreV1Api(api), client.AppsV1Api(api)
        self._namespace, self._selector = settings.namespace, selector(settings)
        self._open: set[urllib3.HTTPResponse] = set()
        self._lock = threading.Lock()

    def with_owner(self, settings: JobSettings) -> JobSettings:
        """Returns the settings with the uid of their owner, which owner references need."""
        owner = settings.owner
        if owner is None or owner.uid is not None:
            return settings
        deployment = self._json(self._apps.read_namespaced_deployment, owner.name, self._namespace)
        return settings.model_copy(update={"owner": owner.model_copy(update={"uid": deployment["metadata"]["uid"]})})

    def create(self, body: Object) -> Object:
        """Creates a Job; raises Conflict if the name is taken."""
        return self._json(self._jobs.create_namespaced_job, self._namespace, body)

    def get(self, name: str) -> Object | None:
        try:
            return self._json(self._jobs.read_namespaced_job, name, self._namespace)
        except NotFound:
            return None

    def delete(self, name: str, uid: str) -> None:
        """Deletes exactly this Job, and then its pods; ignores a Job that is gone or was replaced."""
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        with contextlib.suppress(NotFound, Conflict):
            self._json(self._jobs.delete_namespaced_job, name, self._namespace, body=options)

    def pods(self, job: str) -> list[Object]:
        return self._all(self._core.list_namespaced_pod, label_selector=f"job-name={job}")[0]

    def warnings(self, names: Sequence[str]) -> list[Object]:
        """Returns the warnings about these objects, newest first."""
        events: list[Object] = []
        for name in names:
            events += self._all(self._core.list_namespaced_event, field_selector=f"type=Warning,involvedObject.name={name}")[0]
        return sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""), reverse=True)

    def log(self, pod: str, *, follow: bool = False, seconds: float = 30.0) -> Iterator[bytes]:
        """Yields the pod's log; nothing if its container has not started or the pod is gone."""
        try:
            response = self._call(
                self._core.read_namespaced_pod_log, pod, self._namespace, follow=follow, _request_timeout=(3.0, max(seconds, 1.0))
            )
        except (NotFound, Invalid):  # 400: the container has not started
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
        """Closes the open connections, so that their readers get an error at once."""
        with self._lock:
            for response in self._open:
                sock = getattr(response.connection, "sock", None)
                if sock is not None:
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_RDWR)

    def _listing(self, kind: Kind) -> Callable[..., Any]:
        listing: Callable[..., Any] = self._jobs.list_namespaced_job if kind == "jobs" else self._core.list_namespaced_pod
        return listing

    def _all(self, call: Callable[..., Any], **chosen: Any) -> tuple[list[Object], str]:
        items: list[Object] = []
        more: dict[str, Any] = {}
        while True:
            page = self._json(call, self._namespace, limit=_PAGE, **chosen, **more)
            items += page.get("items") or []
            if not page["metadata"].get("continue"):
                return items, str(page["metadata"]["resourceVersion"])
            more = {"_continue": page["metadata"]["continue"]}

    def _json(self, call: Callable[..., Any], *args: Any, **named: Any) -> Object:
        response = self._call(call, *args, **({"_request_timeout": _QUICK} | named))
        document: Object = json.loads(b"".join(self._stream(response)))
        return document

    def _call(self, call: Callable[..., Any], *args: Any, **named: Any) -> urllib3.HTTPResponse:
        try:
            response: urllib3.HTTPResponse = call(*args, **named, _preload_content=False)
        except ApiException as error:
            raise _ours(error) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unavailable(f"the Kubernetes API does not answer: {_short(error)}") from None
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
    """Connects from within the cluster, or with a kubeconfig file."""
    configuration = client.Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=configuration)
        else:
            config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
    except (config.ConfigException, OSError) as error:
        where = "the pod's service account" if kubeconfig is None else kubeconfig
        raise Invalid(f"cannot reach the Kubernetes API through {where}: {_short(error)}") from None
    configuration.retries = False  # the caller decides about retries
    return Cluster(client.ApiClient(configuration), settings)


def _ours(error: ApiException) -> EyasError | Expired:
    """Turns an API error into the platform's error."""
    message = _message(error)
    if error.status == 404:
        return NotFound(message)
    if error.status == 409:
        return Conflict(message)
    if error.status == 410:
        return Expired()
    if error.status in (400, 413, 422):
        return Invalid(f"the Kubernetes API rejects the request: {message}")
    if error.status == 403 and "exceeded quota" in message:
        return Unavailable(f"a quota of the namespace is exceeded: {message}")
    if error.status in (401, 403):
        return Unavailable(f"the control plane has no permission on the Kubernetes API: {message}")
    return Unavailable(f"the Kubernetes API failed with status {error.status}: {message}")


def _message(error: ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return _short(error.reason or error.body or "no reason")


def _short(error: object) -> str:
    text = " ".join(str(error).split())
    return text[:300] or type(error).__name__
