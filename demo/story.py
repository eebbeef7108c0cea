"""Acts of the demo: actions on the platform, expected outcomes, and results for the summary.

An act with another outcome raises UnexpectedOutcome, which ends the demo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from demo import specs
from demo.client import Client, Json
from demo.datasets import Files
from demo.plot import Moment
from demo.simulator import Simulator
from demo.summary import Act, HitRates
from demo.view import View
from demo.watching import UnexpectedOutcome, Watcher
from pipelines.data.synthetic import World

MEASURED = 12.0
TRIGGER_SECONDS = 180.0
ARMED_SECONDS = 180.0
RECOVERED_SHARE = 0.5  # of the lost hit rate


@dataclass
class StoryResults:
    """Results so far; the summary uses them after a failure too."""

    acts: list[Act] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    rates: HitRates = field(default_factory=HitRates)
    act: str = ""
    planned: int = 0
    """Number of acts."""


class Story:
    def __init__(self, client: Client, simulator: Simulator, view: View, files: Files, world: World, folder: Path) -> None:
        self.results = StoryResults()
        self._client = client
        self._simulator = simulator
        self._tally = simulator.tally
        self._view = view
        self._watch = Watcher(client, view)
        self._files = files
        self._world = world
        self._folder = folder

    def tell(self) -> None:
        acts: tuple[tuple[str, Callable[[], Act]], ...] = (
            ("first version", self._first),
            ("second version", self._second),
            ("sabotaged version", self._sabotaged),
            ("mislabelled model", self._mislabelled),
            ("drift", self._drift),
        )
        self.results.planned = len(acts)
        for name, act in acts:
            self.results.act = name
            result = act()
            self.results.acts.append(result)
            self._view.say(f"as expected: {name} {result.outcome.replace('_', ' ')}", style="bold green")

    def _first(self) -> Act:
        self._view.act("First version", "It trains on a part of the older data, and must beat popularity.")
        run = self._learn("spec-1-first.yaml", "Act 1: part of the data.", self._files.part, "registered")
        rollout = self._watch.rollout(run["rollout"], "promoted")
        self._mark(f"version {run['version']} serves")
        self._simulator.start()
        self._view.say("simulated users start their visits")
        return Act.of("first version", "promoted", run, rollout)

    def _second(self) -> Act:
        self._view.act("Second version", "It trains on all data. A canary must show that it earns at least as many hits.")
        run = self._learn("spec-2-second.yaml", "Act 2: all of the data.", self._files.full, "registered")
        self._mark(f"canary of version {run['version']}")
        began = self._tally.now()
        rollout = self._watch.rollout(run["rollout"], "promoted")
        self._mark(f"version {run['version']} promoted")
        candidate, stable = self._earned(began, run["version"], rollout)
        if candidate <= stable:
            raise UnexpectedOutcome(f"version {run['version']} was promoted with hit rate {candidate:.1%}, stable {stable:.1%}")
        return Act.of("second version", "promoted", run, rollout)

    def _sabotaged(self) -> Act:
        intro = "Bots flood the data and the holdout: offline this model looks better than the serving version. The canary must detect it."
        self._view.act("Sabotaged version", intro)
        run = self._learn("spec-3-sabotaged.yaml", "Act 3: data with many bot ratings.", self._files.contaminated, "registered")
        offline = {name: run["metrics"].get(f"{name}.hr@10", 0.0) for name in ("candidate", "serving")}
        if offline["candidate"] <= offline["serving"]:
            raise UnexpectedOutcome(
                f"the sabotaged version is not better offline: hr@10 {offline['candidate']:.3f}, serving {offline['serving']:.3f}"
            )
        self._mark(f"canary of version {run['version']} (sabotaged)")
        began = self._tally.now()
        rollout = self._watch.rollout(run["rollout"], "rolled_back")
        self._mark(f"version {run['version']} rolled back")
        self._view.say(f"  {rollout['reason']}")
        candidate, stable = self._earned(began, run["version"], rollout)
        if candidate > stable / 2:
            raise UnexpectedOutcome(f"the sabotaged version lost less than half of the hit rate: {candidate:.1%}, stable {stable:.1%}")
        return Act.of("sabotaged version", "rolled_back", run, rollout)

    def _mislabelled(self) -> Act:
        self._view.act("Mislabelled model", "The training labels are inverted, the holdout is correct: the gates must reject the model.")
        run = self._learn("spec-4-mislabelled.yaml", "Act 4: inverted labels before the holdout.", self._files.mislabelled, "rejected")
        failed = [gate for gate in run["gates"] if gate["verdict"] != "pass"]
        if not failed:
            raise UnexpectedOutcome(f"run {run['id']} was rejected, but no gate failed")
        for gate in failed:
            self._view.say(f"  rejected by gate '{gate['gate']}': {gate['reason']}")
        self._mark("mislabelled model rejected")
        return Act.of("mislabelled model", "rejected", run, None)

    def _drift(self) -> Act:
        self._view.act("Drift", "The users' preferences change. The platform must detect it, retrain, and recover the hit rate.")
        text = specs.write(
            self._folder / "spec-5-watching.yaml",
            "Act 5: the correct data again. A retraining uses only the newest feedback (`since`), because positives from before the drift\n"
            "outweigh the few seconds after it. Outside a demo, leave `since` out. No gate compares with the serving version: its\n"
            "feedback has clicks on items that this version showed. The canary compares the two.",
            specs.watching(self._files.full, self._files.items),
        )
        self._client.apply(text, run=False)
        serving = self._client.recommender(specs.NAME)["serving"]["stable"]
        self._watch.until("collecting feedback for drift", ARMED_SECONDS, lambda: bool(self._client.drift(specs.NAME)["readings"]))
        self._watch.settle("measuring the hit rate before the drift", MEASURED)
        before = self._rate(self._tally.now() - MEASURED, serving)
        if (retrainer := self._client.drift(specs.NAME)["retrainer"])["state"] != "watching":
            raise UnexpectedOutcome(f"a retraining started before the drift: {retrainer['reason']}")

        self._simulator.world = self._world.shifted(1)
        self._mark("preferences change")
        moved = self._tally.now()
        self._view.say(f"the preferences have changed; the hit rate was {before:.0%}")
        self._watch.until("waiting for a trigger", TRIGGER_SECONDS, self._retraining)
        noticed = self._client.drift(specs.NAME)
        trigger, run_id = noticed["retrainer"]["reason"], noticed["retrainer"]["run"]
        self._view.say(f"the platform starts a retraining: {trigger}")
        self._mark("retraining starts")
        run = self._watch.run(run_id, "registered")
        after = self._rate(moved + 2, serving)
        self._mark(f"canary of version {run['version']}")
        rollout = self._watch.rollout(run["rollout"], "promoted")
        self._mark(f"version {run['version']} promoted")
        promoted = self._tally.now() + 1
        self._watch.settle("measuring the hit rate of the retrained version", MEASURED + 2)
        recovered = self._rate(promoted, run["version"])
        self.results.rates = HitRates(before, after, recovered)
        if recovered < after + RECOVERED_SHARE * (before - after):
            raise UnexpectedOutcome(f"the hit rate fell from {before:.1%} to {after:.1%} and recovered only to {recovered:.1%}")
        act = Act.of("drift", "retrained", run, rollout)
        act.trigger = trigger
        act.metrics |= {f"drift.{reading['detector']}.{reading['feature']}": reading["size"] for reading in noticed["readings"]}
        return act

    def _learn(self, file: str, intro: str, interactions: Path, wanted: str) -> Json:
        path = self._folder / file
        text = specs.write(path, intro, specs.learning_from(interactions, self._files.items))
        started = self._client.apply(text)["run"]
        if started is None:
            raise UnexpectedOutcome(f"applying {path} started no run")
        self._view.say(f"applied {path}")
        return self._watch.run(started, wanted)

    def _earned(self, began: float, version: int, rollout: Json) -> tuple[float, float]:
        """Returns the simulator's hit rates of the candidate and of the compared version during the rollout."""
        until = self._tally.now()
        others = {counts.version for counts in self._tally.bins() if counts.second >= began} - {version}
        answers, candidate = self._tally.rate(began, until, version)
        _, stable = self._tally.rate(began, until, min(others, default=0))
        if candidate is None or stable is None:
            raise UnexpectedOutcome(f"rollout {rollout['id']} ended, but users saw {answers} answers of version {version}")
        rates = f"version {version} {candidate:.1%}, version {min(others)} {stable:.1%}"
        self._view.say(f"  hit rates counted by the simulator: {rates}")
        return candidate, stable

    def _rate(self, since: float, version: int) -> float:
        answers, rate = self._tally.rate(since, self._tally.now(), version)
        if rate is None:
            raise UnexpectedOutcome(f"no answers of version {version} were counted ({answers})")
        return rate

    def _retraining(self) -> bool:
        return bool(self._client.drift(specs.NAME)["retrainer"]["state"] == "retraining")

    def _mark(self, title: str) -> None:
        self.results.moments.append(Moment(self._tally.now(), title))
