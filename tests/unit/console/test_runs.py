"""Runs, a run, and two compared: over ports in memory."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from urllib.parse import unquote, urlencode

import pytest

from services.console import Site
from services.console.pages.compare import _merged
from shared.contracts.progress import EpochTold, Progress
from shared.contracts.stage import File
from shared.domain.gate import GateResult, Verdict
from shared.ports import HistoryEntry
from tests.support.api_world import NOW, stored_document
from tests.unit.api.test_reports import GATES, judged
from tests.unit.console.conftest import Visitor

pytestmark = pytest.mark.requirement("C-01")

EVIL = "\"'><script>window.pwned=1</script><img src=x onerror=pwned()>"


def words(answer):
    """As a reader sees them."""
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text).split())


@pytest.fixture
def viewer(world, site):
    return Visitor(site, world.holder("viewer")._headers["Authorization"].removeprefix("Bearer "))


def test_without_runs_it_says_how_one_is_started(world, visitor):
    world.add_recommender()
    assert "eyas run NAME" in visitor.get("/runs").text
    assert "eyas run m" in visitor.get("/recommenders/m/runs").text
    assert "No run matches" in visitor.get("/runs?state=failed").text


def test_the_list_says_of_each_run_what_is_to_know(world, visitor):
    world.add_recommender()
    world.add_run("r1", "failed", reason="train: out of memory", dead_letter=True)
    world.add_run("r2", "registered")
    world.add_version(3, "r2")
    world.add_run("r3", "train", attempt=1)
    world.add_run("r4", "pending")
    shown_words = words(visitor.get("/runs"))
    assert "out of memory" in shown_words and "dead letter" in shown_words
    assert 'href="/recommenders/m/versions/3"' in visitor.get("/runs").text
    assert "waits" in shown_words
    assert 'data-every="3"' in visitor.get("/runs").text


@pytest.mark.parametrize(
    "query, found",
    [
        ("", {"r1", "r2", "r3"}),
        ("?state=failed", {"r1", "r2"}),
        ("?state=active", {"r3"}),
        ("?dead=1", {"r2"}),
        ("?since=2026-01-01", {"r1", "r2", "r3"}),
        ("?since=2026-01-02", set()),
        ("?recommender=m", {"r1", "r2", "r3"}),
        ("?state=failed&dead=1&recommender=m&since=2025-01-01", {"r2"}),
    ],
)
def test_the_list_is_narrowed(world, visitor, query, found):
    world.add_recommender()
    world.add_run("r1", "failed")
    world.add_run("r2", "failed", dead_letter=True)
    world.add_run("r3", "train", attempt=1)
    assert set(re.findall(r'href="/runs/(\w+)"', visitor.get(f"/runs{query}").text)) == found


def test_older_runs_are_pages_away_with_the_filters_kept(world, visitor):
    world.add_recommender()
    for number in range(60):
        world.add_run(f"r{number:02}", "failed")
    seen, path = [], "/runs?state=failed"
    for _ in range(3):
        text = visitor.get(path).text
        seen += re.findall(r'href="/runs/(\w+)"', text)
        older = re.search(r'rel="next" href="([^"]+)"', text)
        path = older.group(1).replace("&amp;", "&") if older else None
    assert seen == [f"r{number:02}" for number in range(59, -1, -1)]
    assert path is None


@pytest.mark.parametrize("day", ["soon", "2026-99-01", EVIL])
def test_what_is_no_day_is_told(visitor, day):
    answer = visitor.get(f"/runs?{urlencode({'since': day})}")
    assert answer.status_code == 422
    assert "is not a date; write it as 2026-01-31" in answer.text
    assert EVIL not in answer.text


def test_what_is_no_filter_is_told(visitor):
    answer = visitor.get("/runs?state=great")
    assert answer.status_code == 422
    assert "state" in answer.text


def test_a_rejected_run_says_so_first_and_each_gate_by_how_much(world, visitor):
    judged(world, "rejected", [GateResult("hr@10 better than popularity by 5.00%", Verdict.FAIL, "hr@10 is 0.2")])
    world.runs.rows["r1"] = replace(world.runs.rows["r1"], status=replace(world.runs.rows["r1"].status, reason="hr@10 is 0.2"))
    world.add_recommender()
    shown_words = words(visitor.get("/runs/r1"))
    assert "Rejected after evaluate: 1 of 1 checked gates failed: hr@10 is 0.2." in shown_words
    assert "missed by 52 %" in shown_words
    assert "latency_p99 at most 50 ms not asked" in shown_words
    assert "hr@10 0.2 0.4" in shown_words, "this run beside popularity"


def test_one_under_way_shows_how_far_it_is(world, visitor):
    world.add_recommender()
    world.add_run("r1", "train", ["etl"], attempt=1, attempt_since=NOW)
    history = tuple(EpochTold(epoch=n, loss=1 / n, seconds=1.0, rows_per_s=900.0) for n in (1, 2))
    world.told["r1-train-1"] = Progress(
        at=NOW, epoch=3, epochs=4, step=5, steps=10, loss=0.25, rows_per_s=1234.0, seconds_left=6.5, history=history
    )
    answer = visitor.get("/runs/r1")
    assert '<progress max="100" value="62.5"' in answer.text
    assert "epoch 3 of 4, step 5 of 10, 1,234 rows/s" in words(answer)
    assert "<svg" in answer.text
    assert 'data-every="2"' in answer.text and 'data-log="/runs/r1/log"' in answer.text


def test_one_that_has_ended_asks_for_nothing_more(world, visitor):
    world.add_recommender()
    world.add_run("r1", "cancelled", reason="asked by owner")
    text = visitor.get("/runs/r1").text
    assert "data-every" not in text and "data-log" not in text


def test_its_log_is_shown_from_its_end_and_older_lines_are_a_link_away(world, visitor):
    world.add_recommender()
    world.add_run("r1", "failed", ["etl"], attempt=1)
    world.executor.text["r1-train-1"] = "".join(f"line {number} {EVIL}\n" for number in range(2000))
    text = visitor.get("/runs/r1?stage=train").text
    assert "line 1999" in text and "line 0 " not in text
    assert "<script>window" not in text and "onerror=pwned()&gt;" in text
    older = re.search(r'href="([^"]*offset=0[^"]*)"', text).group(1).replace("&amp;", "&").partition("#")[0]
    assert "line 0 " in visitor.get(older).text


@pytest.mark.parametrize("query", ["stage=etl/../x", "stage=%00", "offset=-1", "offset=" + "9" * 40, "stage=verify", "offset=x"])
def test_any_place_in_a_log_may_be_asked_for(world, visitor, query):
    world.add_recommender()
    world.add_run("r1", "failed", ["etl"], attempt=1)
    assert visitor.get(f"/runs/r1?{query}").status_code == 200


def test_the_log_is_followed_with_the_visitors_own_token(world, visitor, stranger):
    world.add_recommender()
    world.add_run("r1", "failed", ["etl"], attempt=1)
    world.executor.text["r1-train-1"] = "hello\n"
    answer = visitor.get("/runs/r1/log?stage=train")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "hello" in answer.text and "event: end" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert visitor.get("/runs/nothing/log").status_code == 404
    assert stranger.get("/runs/r1/log").status_code == 303


@pytest.mark.parametrize(
    "path, fields, shown_words",
    [
        ("cancel", {"reason": "wrong data"}, "Cancellation of run r1 is requested."),
        ("prioritise", {"priority": "7", "reason": "soon"}, "The priority is now 7."),
    ],
)
def test_buttons_of_one_that_waits(world, visitor, path, fields, shown_words):
    world.add_recommender()
    world.add_run("r1", "pending")
    answer = visitor.press(f"/runs/r1/{path}", once="x" * 24, **fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs/r1")
    assert shown_words in unquote(answer.headers["set-cookie"])
    row = world.runs.get("r1")
    assert row.priority == 7 if path == "prioritise" else (row.request.verb, row.request.reason) == ("cancel", "wrong data")


def test_a_priority_that_is_none_is_told(world, visitor):
    world.add_recommender()
    world.add_run("r1", "pending")
    for number, wrong in enumerate(("soon", "", "1e9", "\u0661")):
        answer = visitor.press("/runs/r1/prioritise", once=f"{number}" * 24, priority=wrong)
        assert answer.status_code == 422
        assert "priority" in answer.text


def test_a_retry_is_a_new_run_and_leads_to_it(world, visitor):
    world.add_recommender()
    world.add_run("r1", "failed", ["etl"], attempt=3)
    text = visitor.get("/runs/r1").text
    assert re.findall(r"<option( selected)?>(\w+)</option>", text.partition("From stage")[2]) == [("", "etl"), (" selected", "train")]
    where = visitor.press("/runs/r1/retry", once="y" * 24, reason="more memory", **{"from": "train"}).headers["location"]
    made = world.runs.get(where.rsplit("/", 1)[1])
    assert (made.spec.retry_of, made.spec.from_stage, made.spec.cause) == ("r1", "train", "more memory")
    assert visitor.press("/runs/r1/retry", once="y" * 24, reason="more memory", **{"from": "train"}).headers["location"] == where
    assert visitor.press(f"/runs/{made.id}/retry", once="z" * 24).status_code == 409


def test_who_may_only_look_has_no_buttons_and_presses_none(world, viewer):
    world.add_recommender()
    world.add_run("r1", "pending")
    text = viewer.get("/runs/r1").text
    assert "/runs/r1/cancel" not in text and "Compare" in text
    for deed in ("cancel", "prioritise", "retry"):
        assert viewer.press(f"/runs/r1/{deed}", priority="1", once="x" * 24).status_code == 403
    assert world.runs.get("r1").request is None


def test_nothing_that_comes_from_outside_becomes_markup(world, site):
    world.add_recommender()
    gate = GateResult(EVIL, Verdict.FAIL, EVIL)
    record = world.add_run("r1", "failed", ["etl"], attempt=1, reason=EVIL, gates=(gate,))
    world.runs.rows["r1"] = replace(
        record, spec=replace(record.spec, cause=EVIL, by=EVIL, document=stored_document(gates=GATES) | {"about": EVIL})
    )
    world.runs.past = [HistoryEntry(NOW, "", "pending", EVIL, EVIL)]
    world.executor.text["r1-train-1"] = EVIL
    other = world.add_run("r2", "failed", reason=EVIL)
    world.runs.rows["r2"] = replace(other, spec=replace(other.spec, cause="x"))
    visitor = Visitor(site)
    for path in (
        "/runs",
        "/runs/r1",
        "/recommenders/m/runs",
        "/runs/compare?run=r1&run=r2",
        f"/runs/compare?run=r1&run={EVIL}",
        f"/runs?recommender={EVIL}",
    ):
        text = visitor.get(path).text
        assert "<script>window" not in text and "<img" not in text.replace('<img src="/static', ""), path
    assert "&lt;script&gt;" in visitor.get("/runs/r1").text


def test_an_id_of_no_run_is_told(visitor):
    assert visitor.get("/runs/nothing").status_code == 404
    assert visitor.get("/runs/..%2f..").status_code == 404
    assert visitor.get("/runs/compare?run=nothing&run=x").status_code == 404


def with_document(record, **changes):
    return replace(record, spec=replace(record.spec, document=stored_document(**changes)))


def test_two_to_four_runs_are_chosen_in_the_list_and_compared(world, visitor, subtests):
    world.add_recommender()
    first, second, third = (world.add_run(id, "registered" if id == "r1" else "rejected") for id in ("r1", "r2", "r3"))
    comparison = [GATES[1], {"metric": "hr@10", "min": 0.1}]
    world.runs.rows["r1"] = with_document(first, gates=GATES)
    world.runs.rows["r2"] = with_document(second, gates=comparison)
    world.runs.rows["r3"] = with_document(third, gates=comparison, model={"family": "ease"})
    text = visitor.get("/runs?run=r2").text
    assert 'name="run" value="r2" aria-label="compare r2" checked' in text and 'value="r1" aria-label="compare r1">' in text
    shown_words = words(visitor.get("/runs/compare?run=r3&run=r1&run=r2&run=r1"))
    assert "Comparison of 3 runs" in shown_words
    assert "and 1 that all have" in shown_words
    assert shown_words.index("r1") < shown_words.index("r2") < shown_words.index("r3"), "the oldest one first"
    assert "model.family" in shown_words and "ease" in shown_words
    for query in ("", "run=r1", "run=r1&run=r1", "&".join(f"run=r{number}" for number in range(5))):
        with subtests.test(query=query):
            answer = visitor.get(f"/runs/compare?{query}")
            assert answer.status_code == 422 and "Choose two to 4 runs" in answer.text


def test_differences_to_the_first_run_become_a_row_for_each_path():
    differences = [
        [{"path": "model.params", "left": {"width": 8}, "right": None}, {"path": "seed", "left": 1, "right": 2}],
        [{"path": "model.params.width", "left": 8, "right": 16}],
    ]
    rows = {row["path"]: row["values"] for row in _merged(differences)}
    assert rows == {
        "model.params": [{"width": 8}, None, "see model.params.width"],
        "model.params.width": [8, "see model.params", 16],
        "seed": [1, 2, 1],
    }


def epochs(*losses, validation=True):
    validations = [{"loss": loss * 2, "auc": 0.5} if validation else {} for loss in losses]
    return [
        {"epoch": n, "loss": loss, "seconds": 1, "validation": look}
        for n, (loss, look) in enumerate(zip(losses, validations, strict=True), 1)
    ]


def train(world, run, *losses, validation=True):
    digest = run[-1] * 64
    document = {"epochs": epochs(*losses, validation=validation), "published": {"epoch": 2}}
    world.blobs[digest] = json.dumps(document).encode()
    world.add_manifest(f"{run}-train-1", {"training.json": File(sha256=digest, size=9)}, **{"train.loss": losses[-1]})


def test_losses_are_drawn_for_one_run_and_for_several_in_one_chart(world, visitor):
    world.add_recommender()
    for run in ("r1", "r2"):
        world.add_run(run, "rejected", stages=("etl", "train"))
    train(world, "r1", 0.9, 0.5, 0.4)
    train(world, "r2", 0.8, 0.6, validation=False)
    answer = visitor.get("/runs/r1")
    assert "Loss by epoch; at the end: loss: train 0.4, loss: validation 0.8" in answer.text
    assert "Validation: auc" in words(answer) and "P: the published weights" in words(answer)
    comparison = visitor.get("/runs/compare?run=r1&run=r2").text
    assert "at the end: r1: train 0.4, r1: validation 0.8, r2: train 0.6" in comparison
    assert re.findall(r'class="line (hue\d dash\d)"', comparison) == ["hue0 dash0", "hue0 dash1", "hue1 dash0"]
    assert "has no validation rows" in words(visitor.get("/runs/r2"))


def test_metrics_are_drawn_with_their_uncertainty(world, visitor):
    world.add_recommender()
    world.add_run("r1", "rejected", stages=("etl", "train", "evaluate"))
    figures = {
        "candidate.hr@10": 0.2,
        "candidate.hr@10.se": 0.01,
        "popularity.hr@10": 0.1,
        "serving.hr@10": 0.15,
        "candidate.novelty@10": 8.0,
    }
    world.add_manifest("r1-evaluate-1", **figures)
    text = visitor.get("/runs/r1").text
    assert re.findall(r'aria-label="(\S+) with 95 % intervals"', text) == ["hr@10"], "novelty is no metric of gates"
    shown_words = re.findall(r'class="name"[^>]*>([^<]+)<', text)
    assert shown_words == ["this run", "0.2 (0.18 to 0.22)", "serving version", "0.15", "popularity", "0.1"]


def test_a_run_of_a_spec_that_cannot_be_read_is_shown(world, site):
    record = world.add_run("r1", "failed", gates=(GateResult("old gate", Verdict.PASS, "fine"),))
    world.runs.rows["r1"] = replace(
        record, spec=replace(record.spec, document=stored_document() | {"model": {"family": "of another time"}})
    )
    world.add_recommender()
    assert "old gate" in Visitor(Site(world.app)).get("/runs/r1").text
