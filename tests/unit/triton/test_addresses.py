"""Where Tritons are: told, or by a name that stands for those that are there now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from services.triton import server_processes
from services.triton.addresses import FixedAddresses, ServiceAddresses, addresses, folder_of, resolved
from services.triton.server_processes import RemoteTritons
from shared.domain.errors import Invalid
from shared.testing.waiting import wait_for


def named(resolve: Callable[[str], Sequence[str]]) -> ServiceAddresses:
    return ServiceAddresses("tritons", 8001, every=0, resolve=resolve)


def test_addresses_are_told_with_commas_between_them() -> None:
    assert addresses("triton:8001").current() == ("triton:8001",)
    assert addresses("10.0.0.7:8001, 10.0.0.8:8001").current() == ("10.0.0.7:8001", "10.0.0.8:8001")


def test_what_is_no_address_is_refused(subtests: pytest.Subtests) -> None:
    for said in ("triton", "triton:0", "triton:70000", "a:1,", "dns:name", "a:1,a:1", "http://a:1"):
        with subtests.test(said=said), pytest.raises(Invalid):
            addresses(said)


def test_a_name_stands_for_whoever_is_there_now() -> None:
    there = ["10.0.0.8", "10.0.0.7"]
    found = named(lambda name: there if name == "tritons" else [])
    wait_for(lambda: found.current() == ("10.0.0.7:8001", "10.0.0.8:8001"))
    there.remove("10.0.0.7")
    wait_for(lambda: found.current() == ("10.0.0.8:8001",))


def test_what_a_name_stood_for_last_holds_while_nobody_can_say() -> None:
    silent = False

    def resolve(name: str) -> Sequence[str]:
        if silent:
            raise OSError("no name server answers")
        return ["10.0.0.7"]

    found = named(resolve)
    wait_for(lambda: found.current() == ("10.0.0.7:8001",))
    silent = True
    for _ in range(10):
        assert found.current() == ("10.0.0.7:8001",)


def test_a_real_name_is_resolved() -> None:
    assert resolved("localhost") == ["127.0.0.1"]


def test_one_address_reads_the_home_itself_and_several_a_folder_each(tmp_path: Path) -> None:
    (alone,) = RemoteTritons(FixedAddresses(["a:8001"]), tmp_path, alone=True, key="sesame").current().values()
    assert alone.key == "sesame"
    assert alone.repository == tmp_path / "models"
    first, second = RemoteTritons(FixedAddresses(["a:8001", "b:9001"]), tmp_path).current().values()
    assert (first.repository, second.repository) == (tmp_path / "a_8001/models", tmp_path / "b_9001/models")


class Moving:
    def __init__(self, *there: str) -> None:
        self.there = there

    def current(self) -> Sequence[str]:
        return self.there


def test_a_replica_that_stays_is_the_same_one(tmp_path: Path) -> None:
    moving = Moving("a:1", "b:1")
    found = RemoteTritons(moving, tmp_path)
    before = found.current()
    moving.there = ("b:1", "c:1")
    after = found.current()
    assert list(after) == ["b:1", "c:1"]
    assert after["b:1"] is before["b:1"]


def test_what_a_replica_that_is_gone_left_is_removed_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(server_processes.time, "monotonic", lambda: now[0])
    for name in (folder_of("10.0.0.7:8001"), folder_of("10.0.0.8:8001"), "models", "notes"):
        (tmp_path / name).mkdir()
    tritons = RemoteTritons(FixedAddresses(["10.0.0.8:8001"]), tmp_path)

    def after(seconds: float) -> set[str]:
        now[0] += seconds
        tritons.current()
        return {one.name for one in tmp_path.iterdir()}

    assert "10.0.0.7_8001" in after(61)
    assert "10.0.0.7_8001" in after(server_processes.ABANDONED - 1)
    assert after(61) == {"10.0.0.8_8001", "models", "notes"}
