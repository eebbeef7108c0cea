"""The shared watch: what it knows after expiry, loss and silence of its source."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from services.executors.informer import Expired, JobInformer, Kind
from shared.domain.errors import Unavailable
from shared.testing.waiting import wait_for

Object = dict[str, Any]


class Script:
    """A source that says what a test puts in: events, errors, or the polite end of a watch."""

    def __init__(self) -> None:
        self.there: dict[Kind, list[Object]] = {"jobs": [], "pods": []}
        self.news: dict[Kind, queue.Queue[Object | Exception | None]] = {"jobs": queue.Queue(), "pods": queue.Queue()}
        self.lists: dict[Kind, int] = {"jobs": 0, "pods": 0}
        self.from_versions: list[tuple[Kind, str]] = []
        self.down = False
        self.hold: threading.Event | None = None

    def all_of(self, kind: Kind) -> tuple[Sequence[Object], str]:
        if self.down:
            raise Unavailable("nobody there")
        found = list(self.there[kind])
        self.lists[kind] += 1
        if self.hold is not None and kind == "jobs":
            self.hold.wait(10)
        return found, f"{100 * self.lists[kind]}"

    def watch(self, kind: Kind, version: str) -> Iterator[Object]:
        self.from_versions.append((kind, version))
        while True:
            said = self.news[kind].get()
            if said is None:
                return
            if isinstance(said, Exception):
                raise said
            yield said

    def say(self, kind: Kind, what: str, thing: Object) -> None:
        self.news[kind].put({"type": what, "object": thing})


def job(name: str, uid: str = "", version: str = "1", **more: Any) -> Object:
    return {
        "metadata": {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": version, "managedFields": ["long"]},
        "spec": {},
        **more,
    }


def pod(name: str, of: str, phase: str = "Running", uid: str = "") -> Object:
    owner = {"kind": "Job", "name": of, "uid": f"uid-{of}"}
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": "2", "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase}}


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def tracker(script: Script, heard: list[str]) -> Iterator[JobInformer]:
    script.there = {"jobs": [job("a")], "pods": [pod("a-1", "a")]}
    tracker = JobInformer(script, heard.append, backoff=(0.01, 0.02))
    tracker.start()
    tracker.check(10)
    yield tracker
    tracker.stop()
    for kind in script.news:
        script.news[kind].put(None)
    tracker.join(10)


def phase(tracker: JobInformer, name: str) -> str | None:
    seen = tracker.find(name)
    return seen.pods[0]["status"]["phase"] if seen is not None and seen.pods else None


def test_it_lists_then_watches_from_there(tracker: JobInformer, script: Script, heard: list[str]) -> None:
    seen = tracker.find("a")
    assert seen is not None
    assert seen.present
    assert "managedFields" not in seen.job["metadata"]
    assert phase(tracker, "a") == "Running"
    assert tracker.find("b") is None
    script.say("jobs", "ADDED", job("b"))
    wait_for(lambda: tracker.find("b"))
    script.say("pods", "MODIFIED", pod("a-1", "a", "Failed"))
    wait_for(lambda: phase(tracker, "a") == "Failed")
    assert ("jobs", "100") in script.from_versions
    assert {"a", "b"} <= set(heard)


def test_a_watch_that_ends_politely_goes_on_from_its_last_version(tracker: JobInformer, script: Script) -> None:
    script.say("jobs", "MODIFIED", job("a", version="107"))
    script.say("jobs", "BOOKMARK", {"metadata": {"resourceVersion": "119"}})
    script.news["jobs"].put(None)
    wait_for(lambda: ("jobs", "119") in script.from_versions)
    assert script.lists["jobs"] == 1


@pytest.mark.parametrize("how", ["event", "answer"])
def test_an_expired_version_lists_again_and_misses_nothing(tracker: JobInformer, script: Script, how: str) -> None:
    script.there = {"jobs": [job("b")], "pods": [pod("b-1", "b", "Succeeded")]}
    for kind in ("pods", "jobs"):
        if how == "event":
            script.say(kind, "ERROR", {"code": 410, "message": "too old resource version"})
        else:
            script.news[kind].put(Expired())
    wait_for(lambda: tracker.find("b") and phase(tracker, "b") == "Succeeded")
    tracker.check()
    wait_for(lambda: (seen := tracker.find("a")) is not None and not seen.present)


def test_while_the_source_is_silent_nothing_is_claimed(tracker: JobInformer, script: Script) -> None:
    script.down = True
    script.news["pods"].put(Unavailable("the connection was lost"))
    with pytest.raises(Unavailable, match=r"the connection was lost|nobody there"):
        wait_for(tracker.check)
    with pytest.raises(Unavailable, match=r"the connection was lost|nobody there"):
        tracker.check(10)  # its patience is for the beginning alone
    script.there["pods"] = [pod("a-1", "a", "Succeeded")]
    script.down = False
    wait_for(lambda: heard_again(tracker))
    assert phase(tracker, "a") == "Succeeded"


def heard_again(tracker: JobInformer) -> bool:
    try:
        tracker.check()
    except Unavailable:
        return False
    return True


def test_a_fault_of_ours_is_no_end_of_the_watch(tracker: JobInformer, script: Script, caplog: pytest.LogCaptureFixture) -> None:
    script.news["jobs"].put(ValueError("not JSON"))
    wait_for(lambda: script.lists["jobs"] == 2 and heard_again(tracker))
    assert "kubernetes watch: failed kind=jobs" in caplog.text


def test_a_pod_that_is_gone_stays_as_it_was_last_seen(tracker: JobInformer, script: Script) -> None:
    script.say("pods", "DELETED", pod("a-1", "a"))
    script.say("pods", "ADDED", pod("a-2", "a"))
    seen = wait_for(lambda: (found := tracker.find("a")) and len(found.pods) == 2 and found)
    assert {one["metadata"]["name"]: "deletionTimestamp" in one["metadata"] for one in seen.pods} == {"a-1": True, "a-2": False}


def test_a_job_that_is_gone_is_remembered_with_its_pods(tracker: JobInformer, script: Script) -> None:
    script.say("pods", "MODIFIED", pod("a-1", "a", "Failed"))
    wait_for(lambda: phase(tracker, "a") == "Failed")
    script.say("jobs", "DELETED", job("a"))
    seen = wait_for(lambda: (found := tracker.find("a")) and not found.present and found)
    assert phase(tracker, "a") == "Failed"
    assert seen.job["metadata"]["uid"] == "uid-a"


def test_what_was_made_while_a_list_was_under_way_is_not_forgotten(script: Script) -> None:
    script.hold = threading.Event()
    tracker = JobInformer(script, backoff=(0.01, 0.02))
    tracker.start()
    wait_for(lambda: script.lists["jobs"] == 1)
    tracker.add(job("new"))
    script.hold.set()
    tracker.check(10)
    assert tracker.find("new") is not None
    script.news["jobs"].put(Expired())  # by now the cluster has it, or it is gone
    wait_for(lambda: (seen := tracker.find("new")) is not None and not seen.present)
    tracker.stop()
    for kind in script.news:
        script.news[kind].put(None)
    tracker.join(10)


def test_nobody_is_told_anything_before_the_first_list_or_after_the_end(script: Script) -> None:
    script.down = True
    tracker = JobInformer(script, backoff=(0.01, 0.02))
    with pytest.raises(Unavailable, match="not listed yet"):
        tracker.check()
    tracker.start()
    tracker.stop()
    with pytest.raises(Unavailable, match="closed"):
        tracker.check()
    tracker.join(10)
