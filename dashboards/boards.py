"""All dashboards by file name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from dashboards import drift, pipelines, platform, quality, rollout, serving
from dashboards.board import written

BOARDS = (quality.BOARD, rollout.BOARD, pipelines.BOARD, drift.BOARD, serving.BOARD, platform.BOARD)
FILES: Mapping[str, Callable[[], str]] = {f"{one.name}.json": partial(written, one) for one in BOARDS}
