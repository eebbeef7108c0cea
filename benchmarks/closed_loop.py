"""The closed loop: 30 simulated days with two shifts of tastes, retrained by the platform's triggers, by a daily schedule, or never.

    python -m benchmarks.closed_loop [--seeds 1,2] [--resume]

Users ask, click and rate; what they do is what a retraining learns from, and what it learned is what they are shown. On day 10 the
fashion changes (genres that everybody liked a little more are liked a little less, and others instead); on day 20 seven tenths of the
users take each other's tastes, so that all of them together like what they liked. What is real in it and what is simulated, says
`benchmarks/loop_platform.py`; who the users are, `benchmarks/loop_users.py`. An arm is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks.loop_month import ARMS, NEVER, Day, Retraining, Told, live
from benchmarks.loop_plot import Line, draw
from benchmarks.loop_users import Scene
from benchmarks.report import Row, publish

LEVELS = (0.8, 0.95)
"""Shares of the former level; the days until they are reached again."""


def phases(told: Told, scene: Scene) -> list[tuple[float, float]]:
    """Mean hit rate, and that of its last three days, of each phase."""
    found = []
    for number in range(3):
        days = [one for one in told.days if scene.phase(one.day) == number]
        found.append((_mean(days), _mean(days[-3:])))
    return found


def recovery(told: Told, scene: Scene, shift: int, level: float) -> int | None:
    """Whole days from a shift until the first day whose hit rate is `level` or more; None: none before the next shift, or the end."""
    those = [one for one in told.days if one.day >= shift and scene.phase(one.day) == scene.phase(shift)]
    return next((one.day - shift for one in those if one.rate >= level), None)


def _mean(days: Sequence[Day]) -> float:
    return sum(one.hits for one in days) / max(1, sum(one.answers for one in days))


def rows_of(told: Sequence[Told], scene: Scene) -> list[Row]:
    rows = []
    for arm in ARMS:
        those = [one for one in told if one.arm == arm]
        if not those:
            continue
        for number, phase in enumerate(("before", *scene.shifts.values())):
            means = [phases(one, scene)[number] for one in those]
            rows.append(Row(phase, arm, "hit rate", "", [mean for mean, _ in means]))
            rows.append(Row(phase, arm, "hit rate, last three days", "", [last for _, last in means]))
        for shift, what in scene.shifts.items():
            for share in LEVELS:
                took = [recovery(one, scene, shift, share * former(told, scene, one)) for one in those]
                known, name = [one for one in took if one is not None], f"{share:.0%} of the former level"
                rows.append(Row(what, arm, f"{name}: never reached", f"of {len(took)}", [len(took) - len(known)]))
                rows += [Row(what, arm, f"{name}: reached after", "days", known)] if known else []
        rows.append(Row("all days", arm, "retrainings", "", [len(one.retrainings) for one in those]))
        rows.append(Row("all days", arm, "of them promoted", "", [sum(r.serves is not None for r in one.retrainings) for one in those]))
        rows.append(
            Row("all days", arm, "processor time of retrainings", "min", [sum(r.cpu for r in one.retrainings) / 60 for one in those])
        )
        rows.append(Row("all days", arm, "processor time of it all", "min", [one.cpu / 60 for one in those]))
    oracle = [sum(day.oracle for day in one.days) / len(one.days) for one in told if one.arm == told[0].arm]
    return [*rows, Row("all days", "who knows the tastes", "hit rate", "", oracle)]


def former(told: Sequence[Told], scene: Scene, arm: Told) -> float:
    """What the first version earned before any shift; where no arm kept it, what this arm earned then."""
    kept = [one for one in told if one.seed == arm.seed and one.arm == NEVER]
    return phases((kept or [arm])[0], scene)[0][0]


def picture(told: Sequence[Told], scene: Scene) -> str:
    """Of one seed."""
    lines = []
    for one in sorted(told, key=lambda one: ARMS.index(one.arm)):
        promoted = [r.serves for r in one.retrainings if r.serves is not None]
        said = f"{len(one.retrainings)} retrainings" if one.retrainings else "no retraining"
        days = one.days
        lines.append(Line(one.arm, [d.rate for d in days], [d.low for d in days], [d.high for d in days], promoted, said))
    title = f"Hit rate by day: {scene.users:,} users, {scene.visits:,} answers a day of {scene.shown} films each"
    return draw(title, [day.oracle for day in told[0].days], lines, scene.shifts)


def apart(scene: Scene, arm: str, home: Path) -> Told:
    """One arm, in a process of its own; what it told stands beside its home, and is read where it is there already."""
    path = home.with_suffix(".json")
    if not path.is_file():
        child = multiprocessing.get_context("spawn").Process(target=_child, args=(scene, arm, home, path))
        child.start()
        child.join()
        if child.exitcode != 0:
            raise RuntimeError(f"the arm '{arm}' of seed {scene.seed} ended with exit code {child.exitcode}; its state is in {home}")
        shutil.rmtree(home)
    return _read(path)


def _child(scene: Scene, arm: str, folder: Path, to: Path) -> None:
    logging.basicConfig(level=logging.ERROR)
    threadpool_limits(1, "blas")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    say = Console(highlight=False, soft_wrap=True).print
    to.write_text(json.dumps(asdict(live(scene, arm, folder, say)), indent=1))


def _read(path: Path) -> Told:
    found = json.loads(path.read_text())
    days, retrainings = tuple(Day(**one) for one in found["days"]), tuple(Retraining(**one) for one in found["retrainings"])
    return Told(**found | {"days": days, "retrainings": retrainings, "alerting": tuple(found["alerting"])})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2", help="of the world, its users and their luck")
    parser.add_argument("--arms", default=";".join(ARMS), help="with ';' between them")
    parser.add_argument("--folder", type=Path, default=Path("var/bench/closed-loop"), help="for what each arm told")
    parser.add_argument(
        "--resume", action="store_true", help="go on where it was broken off: an arm that has told its month isn't lived again"
    )
    parser.add_argument("--plot", type=Path, default=Path("var/bench/closed-loop.svg"))
    given = parser.parse_args()
    folder: Path = given.folder
    if not given.resume:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    lives = [(seed, arm) for seed in map(int, given.seeds.split(",")) for arm in given.arms.split(";")]
    told = [apart(Scene(seed=seed), arm, folder / f"{seed}-{ARMS.index(arm)}") for seed, arm in lives]
    scene = Scene(seed=told[0].seed)
    publish("closed-loop", rows_of(told, scene), scene=asdict(scene), runs=[asdict(one) for one in told])
    given.plot.write_text(picture([one for one in told if one.seed == scene.seed], scene))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
