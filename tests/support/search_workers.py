"""Workers of a search in this process, in place of `pipelines.trials.worker_pool.Worker`, which starts one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pipelines.trials.worker import TrialData

Document = dict[str, Any]


class BenchWorker:
    """Trains and judges each trial as the worker process does."""

    def __init__(self, first: Document) -> None:
        self._first, self.about = first, Document()
        self._bench: TrialData | None = None
        self._scratch = tempfile.TemporaryDirectory()

    def start(self) -> None:
        self._bench = TrialData.made(self._first, Path(self._scratch.name))
        trial = self._bench.trial
        self.about = {"data": dict(trial.data), "how": list(trial.how), "faults": list(trial.wrong)}

    def tried(self, request: Document) -> Document:
        if self._bench is None:
            self.start()
        assert self._bench is not None
        return self._bench.tried(request)

    def close(self) -> None:
        self._scratch.cleanup()

    def __enter__(self) -> BenchWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WidthWorker(BenchWorker):
    """Trains nothing: the wider, the better. A model wider than 4, or of 13 sweeps, fails; one wider than 8 kills its process."""

    def start(self) -> None:
        self.about = {"data": {}, "how": ["by hand"], "faults": []}

    def tried(self, request: Document) -> Document:
        params = request["model"].get("params", {})
        width = params.get("width", 1)
        if width > 8:
            return {"failed": "the process was killed, probably because memory ran out", "seconds": 0.0}
        if width > 4 or params.get("sweeps") == 13:
            return {"failed": "too wide", "seconds": 1}
        return {"metrics": dict.fromkeys(request["metrics"], width / 10), "seconds": 1}
