"""`python -m demo`: shows the life of a model on this machine. Exit code 0 if every act has the expected outcome, else 1."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.text import Text

from demo import datasets, summary
from demo.client import ApiError, Client, Json
from demo.counting import Tally
from demo.platform import Platform, PlatformError
from demo.plot import plot
from demo.simulator import Simulator, Traffic
from demo.specs import NAME
from demo.story import Story, StoryResults
from demo.view import View
from demo.watching import UnexpectedOutcome

FOLDER = Path("var/demo")
CONSOLE = "http://127.0.0.1:8080"
PLAIN_WIDTH = 140
SEED = 7


def main() -> int:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()
    tally, results = Tally(), StoryResults()
    view = View(console, lambda: _traffic(tally))
    serving: Json | None = None
    failure = ""
    platform = Platform(FOLDER)
    try:
        platform.refuse_if_running()
    except PlatformError as error:
        console.print(Text(f"demo failed: {error}", style="bold red"))
        return 1
    _clear(FOLDER)
    try:
        view.say(f"creating data: {datasets.KNOWN_USERS:,} users, {datasets.ITEMS} items, {datasets.RATINGS:,} ratings")
        world = datasets.world_of(SEED)
        files = datasets.make(world, platform.data, time.time(), SEED)
        view.say("starting the platform: eyas up")
        with platform, platform.client() as client:
            view.say(f"the platform answers at {platform.url}")
            view.say(f"console: {platform.url}/recommenders/{NAME} (token in {platform.home / 'token'})")
            simulator = Simulator(client, NAME, world, Traffic(seed=SEED), tally)
            story = Story(client, simulator, view, files, world, FOLDER)
            results = story.results
            try:
                with view:
                    story.tell()
            except UnexpectedOutcome as error:
                failure = f"act '{results.act}' had another outcome: {error}"
            finally:
                simulator.stop()
            serving = _serving(client)
            view.say("stopping the platform")
    except (PlatformError, ApiError) as error:
        failure = failure or (f"act '{results.act}': {error}" if results.act else str(error))
    except KeyboardInterrupt:
        failure = f"interrupted{f' in act {results.act!r}' if results.act else ''}"
    if not failure and tally.failed:
        failure = f"{tally.failed} requests failed: {next(iter(tally.failures()))}"
    document = summary.document(results.acts, not failure, time.monotonic() - began, tally.failed, results.rates, serving)
    summary.write(FOLDER / "summary.json", document)
    _close(console, results, tally, platform, failure)
    return 1 if failure else 0


def _close(console: Console, results: StoryResults, tally: Tally, platform: Platform, failure: str) -> None:
    if results.acts:
        console.print()
        summary.show(console, results.acts, results.rates, tally.failed)
        console.print()
        console.print(Text(plot(tally.bins(), results.moments)))
    console.print()
    logs = platform.home / "work"
    console.print(
        f"summary {FOLDER / 'summary.json'}   specs {FOLDER}/spec-*.yaml   platform log {platform.log}   stage logs {logs}/*/log.txt"
    )
    if results.acts:
        console.print(
            f"browse the results: make up HOME_OF={FOLDER}   then {CONSOLE}/recommenders/{NAME}   token {platform.home / 'token'}"
        )
    if failure:
        console.print(Text(f"demo failed: {failure} (platform log {platform.log}, stage logs {logs}/*/log.txt)", style="bold red"))
    else:
        console.print(Text(f"demo passed: {len(results.acts)} of {results.planned} acts", style="bold green"))


def _serving(client: Client) -> Json | None:
    try:
        return client.serving()
    except ApiError:
        return None


def _clear(folder: Path) -> None:
    """Removes results of an earlier demo; `Platform` clears the home."""
    old: Sequence[Path] = [*folder.glob("spec-*.yaml"), folder / "summary.json"]
    for path in old:
        path.unlink(missing_ok=True)


def _traffic(tally: Tally) -> str:
    now = tally.now()
    answers, rate = tally.rate(now - 6, now)
    if rate is None:
        return "no users yet" if not tally.answers else "no answers in the last seconds"
    return f"{tally.answers:,} answers ({answers / 5:.0f}/s), {rate:.0%} recent hit rate, {tally.failed} failed requests"


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
