"""What evaluate foretells of a candidate from a snapshot of the log: from answers and likes to numbers, or to a sentence why not."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from benchmarks.populations import Order, Shop, users_of
from pipelines.stages.off_policy_eval import Every, Finder, OffPolicyEstimator, foresee
from pipelines.stages.runner import Context
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.evaluation import Evaluate
from shared.contracts.plans import run_plan
from shared.contracts.refit import REFIT, Refit
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, LoggedAnswers, StageSpec
from shared.domain.gate import Silence, Verdict, judge
from tests.support.compaction import NOW

SHOP = Shop.planted(200, 80, k=5, rate=0.2, among=20, seed=3)
SERVING, CANDIDATES = SHOP.orders(0)
BY_NAME = {one.name: one for one in CANDIDATES}
BETTER, WORSE = BY_NAME["better"], BY_NAME["worse"]
KEYS = np.arange(80) * 3 + 1
LEARNED = NOW - timedelta(hours=6)
ANSWERS = 4_000


def spec(**serve: Any) -> RecommenderSpec:
    return RecommenderSpec.model_validate(
        {
            "name": "films",
            "data": {"interactions": {"uri": "a.csv"}, "items": {"uri": "b.csv", "key": "film"}},
            "schema": {"user": "person", "item": "film", "time": "at", "label": {"column": "stars", "positive": ">= 4"}},
            "gates": [{"off_policy": one, "not_worse_than": "serving", "by": "5%"} for one in ("ips", "snips", "dr")],
            "serve": {"order": {"explore": {"rate": SHOP.rate, "among": SHOP.among}}, "filter": [{"available": True}], **serve},
            "rollout": {"analysis": {"attribution": "10m"}},
        }
    )


def log_files(folder: Path, store: FsspecArtifacts, seed: int = 0, **changes: Any) -> Files:
    """A day as the control plane dumps it."""
    (logged, items), users = SHOP.log(SERVING, ANSWERS, seed), users_of(SHOP, ANSWERS, seed)
    start = int(LEARNED.timestamp() * 1e6)
    shown, done = [], []
    for n in range(ANSWERS):
        at = start + (n + 1) * 1_000_000
        shown.append(
            {
                "request_id": f"q{n}",
                "user": int(users[n]) + 1000,
                "version": 7,
                "variant": "stable",
                "generation": 1,
                "step": -1,
                "items": KEYS[items[n]].tolist(),
                "propensities": logged.propensities[n].tolist(),
                "fallback": None,
                "slices": [],
                "bucket": None,
                "score": None,
                "at": at,
                **changes,
            }
        )
        for place in np.flatnonzero(logged.liked[n]).tolist():
            like = {"seq": len(done), "id": None, "user": int(users[n]) + 1000, "item": int(KEYS[items[n, place]]), "kind": "click"}
            done.append(like | {"value": None, "revenue": None, "positive": True, "request_id": f"q{n}", "at": at + 1})
    files: Files = {}
    for name, rows in (("impressions", shown), ("interactions", done)):
        path = folder / f"{name}.ndjson"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        files[f"{name}/{NOW.date()}.ndjson"] = store.put(path)
    return files


def scorer_of(order: Order) -> Every:
    return lambda users: order.scores[users - 1000]


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, FsspecArtifacts(str(folder / "artifacts"))
        train = folder / "train.parquet"
        pl.DataFrame({"time": [1.0, LEARNED.timestamp()]}).write_parquet(train)
        self.train = self.store.put(train)
        self.files = log_files(folder, self.store)
        self._runs = 0

    def foresee(
        self,
        scorer: Every,
        recommender: RecommenderSpec | None = None,
        files: Files | None = None,
        finder: Finder | None = None,
        more: dict[str, Files] | None = None,
        **asked: Any,
    ) -> OffPolicyEstimator:
        self._runs += 1
        scratch = self.folder / f"scratch-{self._runs}"
        scratch.mkdir()
        answers = LoggedAnswers(**({"version": 7, "since": LEARNED - timedelta(days=1), "until": NOW} | asked))
        stage = StageSpec(
            stage="evaluate",
            run="r",
            attempt="r-evaluate-1",
            recommender=recommender or spec(),
            inputs={"etl": {"train.parquet": self.train}, "answers": self.files if files is None else files, **(more or {})},
            answers=answers,
            artifacts=self.store.url,
        )
        return foresee(Context(stage, scratch, self.store, logging.getLogger("test")), scorer, finder, pl.Series(KEYS))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


def verdicts(estimator: OffPolicyEstimator) -> dict[str, Verdict]:
    silence = Silence(estimator.missing, estimator.broken)
    return {
        gate.metric: judge(gate, estimator.metrics, serving=True, silence=silence).verdict
        for gate in run_plan(spec()).gates
        if gate.stage == "evaluate"
    }


def test_answers_from_before_the_newest_row_of_the_parents_refit_do_not_count(here: Place) -> None:
    """A warm candidate goes on from its parent, which has learned the likes of these answers."""
    path = here.folder / "refit.json"
    path.write_text(Refit(rows=9, newest=(LEARNED + timedelta(seconds=1_000)).timestamp(), held=0).model_dump_json())
    found = here.foresee(scorer_of(BETTER), more={"parent": {REFIT: here.store.put(path)}})
    everything = here.foresee(scorer_of(BETTER))
    assert (found.facts["online"]["answers"], everything.facts["online"]["answers"]) == (ANSWERS - 1_000, ANSWERS)
    assert found.facts["online"]["left_out"] == {"older than the candidate's newest training row": 1_000}


@pytest.mark.requirement("G-10")
def test_what_candidates_would_earn_is_told_before_anybody_sees_them(here: Place) -> None:
    logged = SHOP.earns(SERVING)[1]
    for order in (BY_NAME["a little other"], BY_NAME["a little better"], BETTER, WORSE):
        found = here.foresee(scorer_of(order))
        assert found.missing == found.broken == {}
        truth = SHOP.earns(order)[1]
        for name in ("snips", "dr"):
            value, error = found.metrics[f"candidate.hit_rate.{name}"], found.metrics[f"candidate.hit_rate.{name}.se"]
            assert abs(value - truth) < 3.5 * error, (order.name, name)
            assert found.metrics[f"serving.hit_rate.{name}"] == pytest.approx(logged, rel=0.1)
        assert found.facts["online"]["answers"] == ANSWERS
        assert found.facts["online"]["support"] == pytest.approx(1, abs=0.25)
    assert set(verdicts(here.foresee(scorer_of(BETTER))).values()) == {Verdict.PASS}
    assert set(verdicts(here.foresee(scorer_of(WORSE))).values()) <= {Verdict.FAIL, Verdict.INCONCLUSIVE}


def test_the_serving_version_itself_earns_what_it_earned(here: Place) -> None:
    found = here.foresee(scorer_of(SERVING))
    assert found.metrics["candidate.hit_rate.snips"] == pytest.approx(found.metrics["serving.hit_rate.snips"], rel=1e-6)
    assert set(verdicts(found).values()) == {Verdict.PASS}


def test_the_same_log_tells_the_same(here: Place) -> None:
    one, other = (here.foresee(scorer_of(BETTER)) for _ in range(2))
    assert one == other


def test_users_are_as_many_as_the_spec_lets_pairs_be_scored(here: Place) -> None:
    bounded = spec().model_copy(update={"evaluate": Evaluate(pairs=60 * len(KEYS) + 1)})
    assert here.foresee(scorer_of(BETTER), bounded).facts["online"]["users"] == 60
    assert here.foresee(scorer_of(BETTER)).facts["online"]["users"] > 60


def test_candidates_are_what_is_retrieved_for_each_user(here: Place) -> None:
    """All items for everybody change nothing; each user's ten best leave little to explore."""
    retrieving = spec(retrieve={"candidates": 80})
    whole = here.foresee(scorer_of(BETTER), retrieving, finder=lambda _: lambda users, count: [np.arange(count)] * len(users))
    assert whole == here.foresee(scorer_of(BETTER))
    few = here.foresee(
        scorer_of(BETTER), retrieving, finder=lambda _: lambda users, _: [np.argsort(-BETTER.scores[user - 1000])[:10] for user in users]
    )
    assert few.facts["online"]["answers"] == ANSWERS and few.facts != whole.facts


SILENT: list[tuple[dict[str, Any], str]] = [
    ({"version": 8}, "version 8 has no usable answers: no answer is past its attribution window"),
    ({"until": LEARNED + timedelta(minutes=5)}, "version 7 has no usable answers: no answer is past its attribution window"),
    ({"since": NOW, "until": NOW}, f"{ANSWERS:,} are older than the candidate's newest training row"),
    ({"until": LEARNED + timedelta(minutes=11)}, " needed"),
]


def test_why_nothing_can_be_told_is_said_in_a_sentence_and_is_no_pass(subtests: pytest.Subtests, here: Place) -> None:
    for asked, said in SILENT:
        with subtests.test(said=said):
            found = here.foresee(scorer_of(BETTER), **asked)
            assert found.metrics == {}
            assert said in found.missing["candidate.hit_rate.snips"]
            assert set(verdicts(found).values()) == {Verdict.INCONCLUSIVE}


def test_answers_without_chances_tell_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path)
    files = log_files(tmp_path, place.store, propensities=None)
    found = place.foresee(scorer_of(BETTER), files=files)
    assert f"{ANSWERS:,} are without propensities" in found.missing["candidate.hit_rate.dr"]


def test_likes_that_the_candidate_has_learned_from_do_not_count(tmp_path: Path) -> None:
    """Half of the log is older than the newest row that was trained on."""
    place = Place(tmp_path)
    pl.DataFrame({"time": [LEARNED.timestamp() + ANSWERS / 2]}).write_parquet(tmp_path / "later.parquet")
    place.train = place.store.put(tmp_path / "later.parquet")
    found = place.foresee(scorer_of(BETTER))
    assert found.facts["online"]["answers"] == ANSWERS // 2
    assert found.facts["online"]["left_out"] == {"older than the candidate's newest training row": ANSWERS // 2}


def test_what_a_user_liked_before_would_not_be_shown_again(here: Place) -> None:
    """Every like so far hides an item, so the candidate's own lists are others, and shorter of what was liked."""
    plain = here.foresee(scorer_of(SERVING))
    hiding = here.foresee(scorer_of(SERVING), spec(filter=[{"not_seen": "ever"}]))
    brief = here.foresee(scorer_of(SERVING), spec(filter=[{"not_seen": "1s"}]))
    assert hiding.metrics["candidate.hit_rate.snips"] < 0.95 * plain.metrics["candidate.hit_rate.snips"]
    assert brief.metrics["candidate.hit_rate.snips"] > hiding.metrics["candidate.hit_rate.snips"]


@pytest.mark.parametrize("fault", ["a damaged day", "scores that are no numbers"])
def test_what_goes_wrong_is_an_error_of_the_gate_and_ends_no_run(here: Place, fault: str, tmp_path: Path) -> None:
    files, scorer = here.files, scorer_of(SERVING)
    if fault == "a damaged day":
        (tmp_path / "bad").write_bytes(b"PAR1 and then nothing")
        files = {"impressions/date=2026-03-20/part-00000.parquet": here.store.put(tmp_path / "bad")}
    else:
        scorer = lambda users: np.full((len(users), len(KEYS)), np.nan)  # noqa: E731
    found = here.foresee(scorer, files=files)
    assert found.metrics == {}
    assert set(verdicts(found).values()) == {Verdict.ERROR}
    (why,) = set(found.broken.values())
    assert "\n" not in why and ("model scores are not finite: " in why or "cannot be read" in why)


def test_nothing_is_done_where_no_gate_asks(here: Place) -> None:
    plain = spec().model_copy(update={"gates": ()})
    assert here.foresee(scorer_of(SERVING), plain) == OffPolicyEstimator()
