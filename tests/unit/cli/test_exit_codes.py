"""Exit codes: each one that docs/cli.md names occurs. Interrupts and closed pipes: tests/platform/cli/test_exits.py."""

from __future__ import annotations

from pathlib import Path

import httpx

from services.cli import doctor
from services.cli.doctor_checks import CheckFinding
from services.cli.exit_codes import Exit
from shared.contracts.datatools import ToolAnswer

RUN = {"id": "r1", "recommender": "m", "state": "train", "reason": ""}
NONE = {"items": [], "next": None}


def told(platform, status, kind="x", **more):
    platform.refuses("GET /v1/recommenders/m/runs", status, kind, "so it is")
    return ("runs", "m")


def waited(platform, state):
    platform.says("POST /v1/recommenders/m/runs", RUN, status=202)
    platform.says("GET /v1/runs/r1", RUN | {"state": state})
    return ("run", "m", "--wait")


def away(platform):
    platform.says("GET /v1/recommenders/m/runs", httpx.ConnectError("refused"))
    return ("runs", "m")


def strange(platform):
    platform.says("GET /v1/recommenders/m/runs", {"items": 1})
    return ("runs", "m")


def fine(platform):
    platform.says("GET /v1/recommenders/m/runs", NONE)
    return ("runs", "m")


CASES = {
    "a list that could be shown": (Exit.DONE, fine),
    "help": (Exit.DONE, lambda _: ("runs", "--help")),
    "a run that registered a version": (Exit.DONE, lambda platform: waited(platform, "registered")),
    "a run that was rejected": (Exit.NO, lambda platform: waited(platform, "rejected")),
    "no command at all": (Exit.WRONG, lambda _: ()),
    "a command that isn't there": (Exit.WRONG, lambda _: ("rns",)),
    "a command of a group that isn't there": (Exit.WRONG, lambda _: ("rollout", "stat")),
    "an option that isn't there": (Exit.WRONG, lambda _: ("runs", "m", "--limt", "3")),
    "an argument that is missing": (Exit.WRONG, lambda _: ("runs",)),
    "a number out of its bounds": (Exit.WRONG, lambda _: ("runs", "m", "--limit", "0")),
    "a name that can be none": (Exit.WRONG, lambda _: ("runs", "M")),
    "a file that isn't there": (Exit.WRONG, lambda _: ("apply", "no-such-file.yaml")),
    "a name that isn't there": (Exit.WRONG, lambda platform: told(platform, 404, "not-found")),
    "a token that isn't good": (Exit.WRONG, lambda platform: told(platform, 401)),
    "a role that isn't enough": (Exit.WRONG, lambda platform: told(platform, 403)),
    "what its state doesn't allow": (Exit.WRONG, lambda platform: told(platform, 409)),
    "a platform with a fault": (Exit.AWAY, lambda platform: told(platform, 503)),
    "no platform": (Exit.AWAY, away),
    "an answer that can't be read": (Exit.AWAY, strange),
}


def test_each_case_has_its_code(platform, eyas, subtests):
    for case, (code, words) in CASES.items():
        with subtests.test(case=case):
            platform.answers.clear()
            found = eyas(*words(platform))
            assert found.exit_code == code, found.output
            if code not in {Exit.DONE, Exit.NO} and case != "no command at all":
                assert (found.stdout, found.stderr.count("\n"), found.stderr[:6]) == ("", 1, "eyas: ")


def test_data_that_would_stop_a_run_and_a_machine_that_lacks_something_are_a_no(tool, eyas, monkeypatch):
    _, answers = tool
    report = {"recommender": "", "source": "a", "verdict": "stop", "rows": {"read": 1, "kept": 0, "quarantined": 1}, "reasons": {}}
    report |= {"files": [], "faulty": [], "checks": [], "compared": False, "sections": []}
    answers += [ToolAnswer(found={"report": report, "refusal": "too few"})]
    assert eyas("data", "validate", "a.csv").exit_code == Exit.NO
    monkeypatch.setattr(doctor, "examine", lambda home: [CheckFinding("cores", False, "0", "more")])
    assert eyas("doctor").exit_code == Exit.NO


def test_a_declined_question_is_a_no(platform, eyas):
    found = eyas("delete", "m", typed="n\n")
    assert (found.exit_code, found.stderr.endswith("eyas: nothing was done\n")) == (Exit.NO, True)
    assert platform.asked == []


def test_every_code_is_in_the_reference_and_none_is_unmet():
    text = Path(__file__).parents[3].joinpath("docs/cli.md").read_text()
    for one in Exit:
        assert f"| {one.value} | {one.meaning} |" in text
    met = {code for code, _ in CASES.values()}
    assert met | {Exit.INTERRUPTED, Exit.UNREAD} == set(Exit)
