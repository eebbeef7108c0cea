"""Pictures of every page of the console in both themes, wide and narrow, from what a demo left: for eyes to look at.

    python -m tests.tools.screenshots [--of var/demo] [--to var/screens] [--only PART]

The home is copied first: nothing that is done to look at it is done to it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

from tests.servers.browser import Watched, browser
from tests.servers.platform_process import PlatformProcess, until

THEMES = ("light", "dark")
WIDTHS = (1280, 800, 400)
NAME = "movies"


def paths(platform: PlatformProcess) -> list[str]:
    """Each page, with the runs, rollouts and versions of the story in the places of ids."""
    runs = [one["id"] for one in platform.get(f"/v1/recommenders/{NAME}/runs")["items"]]
    rollouts = [one["id"] for one in platform.get(f"/v1/recommenders/{NAME}/rollouts")["items"]]
    versions = [one["version"] for one in platform.get(f"/v1/recommenders/{NAME}/versions")["items"]]
    of = f"/recommenders/{NAME}"
    found = ["/", of, *(f"{of}/{tab}" for tab in ("runs", "rollouts", "drift", "try", "spec"))]
    found += [f"{of}/try?user=3&k=5", f"{of}/versions/{max(versions)}", "/runs", *(f"/runs/{id}" for id in runs)]
    found += [f"/runs/compare?{urlencode([('run', id) for id in runs[:4]])}"] if len(runs) > 1 else []
    return [
        *found,
        *(f"/rollouts/{id}" for id in rollouts),
        "/serving",
        "/settings",
        "/settings/audit",
        "/settings/storage",
        "/docs",
        "/nowhere",
    ]


def take(platform: PlatformProcess, to: Path, only: str) -> int:
    """How many pages went wrong; each is told."""
    token, url, wrong = (platform.home / "token").read_text().strip(), str(platform.client.base_url).rstrip("/"), 0
    to.mkdir(parents=True, exist_ok=True)
    found = [path for path in paths(platform) if only in path]
    with browser() as chrome:
        for theme in THEMES:
            for width in WIDTHS:
                context = chrome.new_context(color_scheme=theme, viewport={"width": width, "height": 800})
                someone = Watched(context, url)
                someone.sign_in(token)
                for path in found:
                    answer = someone.go(path)
                    if answer.status == 200:
                        someone.page.screenshot(path=to / f"{_file(path)}.{theme}.{width}.png", full_page=True)
                    problems = [*someone.wrong, *someone.misfits(), *(someone.hurdles() if width == WIDTHS[0] else [])]
                    problems += [f"answered {answer.status}"] if answer.status != (404 if path == "/nowhere" else 200) else []
                    someone.wrong.clear()
                    faults = [problem for problem in problems if path != "/nowhere" or "404" not in problem]
                    wrong += bool(faults)
                    sys.stdout.write(f"{theme} {width} {path}{''.join(f'{chr(10)}    {one}' for one in faults)}\n")
                context.close()
    sys.stdout.write(f"{len(found)} pages in {to}, {wrong} looks with something wrong\n")
    return wrong


def _file(path: str) -> str:
    return re.sub(r"\W+", "-", path).strip("-") or "home"


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.screenshots", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--of", type=Path, default=Path("var/demo"), help="what a demo left: a folder with home and data")
    parser.add_argument("--to", type=Path, default=Path("var/screens"))
    parser.add_argument("--only", default="", help="pages whose address holds this")
    arguments = parser.parse_args(given)
    if not (arguments.of / "home" / "token").is_file():
        parser.error(f"{arguments.of} is none that a demo left: run make demo first")
    with tempfile.TemporaryDirectory() as folder:
        home, data = Path(folder) / "home", Path(folder) / "data"
        shutil.copytree(arguments.of / "home", home, symlinks=True)
        shutil.copytree(arguments.of / "data", data)
        with PlatformProcess(home, data) as platform:
            until("a gateway serves it", lambda: all(not one["behind"] for one in platform.get("/v1/serving")["gateways"]))
            wrong = take(platform, arguments.to, arguments.only)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
