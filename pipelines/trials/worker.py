"""Worker process that trains and evaluates the trials of a search, so that running out of memory does not end the search.

Each line of stdin is a JSON request, each line of stdout its JSON answer: first the data and the scratch folder,
then one trial per line. The worker ends when stdin closes, and removes the scratch folder."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

import numpy as np

from pipelines.models.families import family_of
from pipelines.models.family import Family, Task
from pipelines.trials.contenders import seeded
from pipelines.trials.judging import codes_of, forget, judged
from pipelines.trials.task import prepare
from pipelines.trials.trial import Trial, read_trial
from shared.contracts.models import Model
from shared.contracts.strict import read
from shared.contracts.trials import EvaluateRequest
from shared.domain.errors import EyasError

Answer = dict[str, Any]


def main() -> int:
    answers = _own_stdout()
    requests = _requests()
    bench: TrialData | None = None
    for request in requests:
        try:
            if bench is None:
                bench = TrialData.made(request, Path(request["scratch"]))
                answer: Answer = {"data": dict(bench.trial.data), "how": list(bench.trial.how), "faults": list(bench.trial.wrong)}
            else:
                answer = bench.tried(request)
        except EyasError as error:
            answer = {"fault": " ".join(str(error).split()), "mendable": error.status < 500}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if "fault" in answer:
            return 1
    return 0


class TrialData:
    """Data of all trials, read and coded once."""

    def __init__(self, trial: Trial, task: Task, family: Family, seed: int) -> None:
        self.trial, self._task, self._family, self._seed = trial, task, family, seed
        self._codes = codes_of(task, trial)

    @classmethod
    def made(cls, request: Answer, scratch: Path) -> TrialData:
        evaluate_request = read(EvaluateRequest, request["data"], "eyas tune")
        model = read(Model, request["model"], "model")
        trial = read_trial(evaluate_request, _quiet())
        family = family_of(model.family, evaluate_request.allow)
        return cls(trial, prepare(trial.train, model, family.reads, scratch, _quiet()), family, evaluate_request.seed)

    def tried(self, request: Answer) -> Answer:
        """Trains and evaluates; an error of the model fails only this trial."""
        started = time.monotonic()
        try:
            model = seeded(read(Model, request["model"], "model"), self._seed)
            forget()
            with np.errstate(all="ignore"):
                fitted = self._family.train(replace(self._task, model=model))
                judgement = judged(fitted.model, self._codes, self.trial, "the model", _quiet())
            values = {name: judgement.values([name])[name] for name in request["metrics"]}
        except MemoryError:
            return {"failed": "not enough memory", "seconds": time.monotonic() - started}
        except EyasError as error:
            return {"failed": " ".join(str(error).split()), "seconds": time.monotonic() - started}
        except Exception as error:
            message = " ".join(str(error).split())[:300] or "no message"
            return {"failed": f"{type(error).__name__}: {message}", "seconds": time.monotonic() - started}
        return {"metrics": {name: float(value) for name, value in values.items()}, "seconds": time.monotonic() - started}


def _own_stdout() -> TextIO:
    """Reserves stdout for answers; prints of libraries go to stderr."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own


def _requests() -> Iterator[Answer]:
    """Yields requests. A thread reads stdin, so that its end also ends a training."""
    lines: SimpleQueue[str] = SimpleQueue()

    def listen() -> None:
        scratch: str | None = None
        for line in sys.stdin:
            scratch = scratch or json.loads(line).get("scratch")
            lines.put(line)
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield json.loads(lines.get())


def _quiet() -> logging.Logger:
    log = logging.getLogger("eyas.tune.worker")
    log.handlers, log.propagate = [logging.NullHandler()], False
    return log


if __name__ == "__main__":
    sys.exit(main())
