"""Conformance suites of Registry and StageOutputs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from shared.contracts.stage import File, digest_of
from shared.domain.errors import Conflict, Invalid, NotFound
from shared.domain.stage_reuse import StageOutput
from shared.ports import (
    Registry,
    StageOutputs,
    Version,
)
from shared.testing.records import LINEAGE
from shared.testing.threads import THREADS, at_once
from tests.support.resource_suite import NOW, ROUNDS, SECOND


def version(run: str = "run-1", recommender: str = "films") -> Version:
    files = {"model.onnx": File(sha256="ab" * 32, size=7), "items.parquet": File(sha256="cd" * 32, size=0)}
    lineage = replace(LINEAGE, stages={"etl": {"rows": 3, "digests": ["a"]}})
    return Version(recommender, 0, run, digest_of(files), files, {"candidate.hr@10": 0.1 + 0.2}, lineage, None, NOW)


class RegistrySuite:
    def test_a_version_is_read_back_as_it_was_with_its_number(self, registry: Registry) -> None:
        made = registry.register(version())
        assert made == replace(version(), number=1)
        assert registry.get("films", 1) == registry.of_run("run-1") == made

    def test_numbers_are_consecutive_within_a_recommender(self, registry: Registry) -> None:
        for n in range(3):
            registry.register(replace(version(f"run-{n}"), parent=n or None))
        assert registry.register(version("run-x", "books")).number == 1
        assert [(registered.number, registered.run, registered.parent) for registered in registry.list("films")] == [
            (1, "run-0", None),
            (2, "run-1", 1),
            (3, "run-2", 2),
        ]

    def test_a_run_that_has_registered_is_adopted(self, registry: Registry) -> None:
        made = registry.register(version())
        assert registry.register(replace(version(), metrics={})) == made
        assert registry.list("films") == [made]

    def test_many_who_register_one_run_get_one_version(self, registry: Registry) -> None:
        made = at_once(THREADS, lambda _: registry.register(version()))
        assert made == [replace(version(), number=1)] * THREADS
        assert len(registry.list("films")) == 1

    def test_racing_runs_get_consecutive_numbers(self, registry: Registry) -> None:
        made = at_once(THREADS, lambda n: registry.register(version(f"run-{n}")))
        assert sorted(registered.number for registered in made) == list(range(1, THREADS + 1))

    def test_what_is_not_there_is_said(self, registry: Registry) -> None:
        assert registry.of_run("run-1") is None
        assert registry.list("films") == []
        with pytest.raises(NotFound, match=r"films.* 4"):
            registry.get("films", 4)

    @pytest.mark.requirement("G-11")
    def test_files_that_do_not_match_their_digest_are_not_registered(self, registry: Registry) -> None:
        with pytest.raises(Invalid, match=r"run-1.*digest"):
            registry.register(replace(version(), digest="00" * 32))
        assert registry.list("films") == []

    @pytest.mark.requirement("G-11")
    def test_a_tag_names_one_version_and_moves(self, registry: Registry) -> None:
        for run in ("run-1", "run-2"):
            registry.register(version(run))
        registry.register(version("run-3", "books"))
        assert registry.tag("films", 1, "champion", NOW, "ada") is None
        assert registry.tag("films", 1, "small", NOW, "ada") is None
        assert registry.tag("books", 1, "champion", NOW, "ada") is None
        assert registry.tag("films", 1, "champion", NOW, "ada") == 1
        assert registry.tag("films", 2, "champion", NOW, "bob") == 1
        assert registry.tags("films") == {"champion": 2, "small": 1}
        assert registry.tags("books") == {"champion": 1}
        with pytest.raises(NotFound, match="champion"):
            registry.untag("films", 1, "champion")
        registry.untag("films", 2, "champion")
        assert registry.tags("films") == {"small": 1}
        with pytest.raises(NotFound, match="9"):
            registry.tag("films", 9, "champion", NOW, "ada")

    def test_of_many_who_put_one_tag_one_has_it(self, registry: Registry) -> None:
        for n in range(THREADS):
            registry.register(version(f"run-{n}"))

        def put(n: int) -> None:
            with suppress(Conflict):
                registry.tag("films", n + 1, "champion", NOW, "ada")

        at_once(THREADS, put)
        assert list(registry.tags("films")) == ["champion"]

    @pytest.mark.requirement("G-11")
    def test_a_version_whose_files_were_given_up_stays_and_takes_no_tag(self, registry: Registry) -> None:
        made = registry.register(version())
        assert registry.collected("films") == {}
        assert registry.all_collected() == {}
        assert registry.collect("films", 1, NOW)
        assert registry.collect("films", 1, NOW + SECOND)
        assert registry.collected("films") == {1: NOW}
        assert registry.all_collected() == {"films": {1: NOW}}
        assert registry.get("films", 1) == made
        with pytest.raises(Conflict, match="collected"):
            registry.tag("films", 1, "champion", NOW, "ada")
        with pytest.raises(NotFound, match="9"):
            registry.collect("films", 9, NOW)

    @pytest.mark.requirement("G-11")
    def test_what_is_tagged_is_not_given_up(self, registry: Registry) -> None:
        registry.register(version())
        registry.tag("films", 1, "champion", NOW, "ada")
        assert not registry.collect("films", 1, NOW)
        assert registry.collected("films") == {}
        registry.untag("films", 1, "champion")
        assert registry.collect("films", 1, NOW)

    @pytest.mark.requirement("G-11")
    def test_of_a_tag_and_a_collection_at_once_one_wins(self, registry: Registry) -> None:
        for n in range(ROUNDS):
            number = registry.register(version(f"run-{n}")).number

            def either(which: int, number: int = number) -> bool:
                if which:
                    return registry.collect("films", number, NOW)
                try:
                    registry.tag("films", number, f"tag-{number}", NOW, "ada")
                except Conflict:
                    return False
                return True

            assert sorted(at_once(2, either)) == [False, True]
            assert (number in registry.collected("films")) != (f"tag-{number}" in registry.tags("films"))


class StageOutputsSuite:
    def output(self, **changes: Any) -> StageOutput:
        return replace(StageOutput("films", "etl", "d1", {"code": "1.0", "data: a.csv": "1 byte"}, "r1-etl-1", NOW), **changes)

    def test_what_was_put_is_found_by_its_digest_and_nowhere_else(self, outputs: StageOutputs) -> None:
        assert outputs.find("films", "etl", "d1") is None
        outputs.put(self.output())
        assert outputs.find("films", "etl", "d1") == self.output()
        for other in (("books", "etl", "d1"), ("films", "train", "d1"), ("films", "etl", "d2")):
            assert outputs.find(*other) is None

    def test_the_newest_attempt_stands_for_its_digest(self, outputs: StageOutputs) -> None:
        outputs.put(self.output())
        outputs.put(self.output(attempt="r2-etl-1", at=NOW + SECOND))
        output = outputs.find("films", "etl", "d1")
        assert output is not None
        assert output.attempt == "r2-etl-1"

    def test_the_newest_output_is_that_of_the_last_attempt_of_the_stage(self, outputs: StageOutputs) -> None:
        assert outputs.newest("films", "etl") is None
        outputs.put(self.output(at=NOW + SECOND))
        outputs.put(self.output(digest="d2", attempt="r0-etl-1"))
        outputs.put(self.output(stage="train", digest="d3", at=NOW + 2 * SECOND))
        assert outputs.newest("films", "etl") == self.output(at=NOW + SECOND)
