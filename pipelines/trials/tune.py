"""`eyas tune`: searches a model's settings on the holdout of a file of pairs.

Each trial chooses settings, trains without the holdout and is evaluated on it. The first trial uses the given settings. Trials are stored
one by one and depend on the earlier trials only, so a killed search continues with the same choices."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipelines.evaluation.metrics import is_rank_metric
from pipelines.trials import ledger, sampler
from pipelines.trials.files import read_pairs
from pipelines.trials.ledger import TrialLedger
from pipelines.trials.progress_log import teller
from pipelines.trials.saved_model import file_of
from pipelines.trials.space import Chosen, Space, space_of
from pipelines.trials.tune_page import tune_page
from pipelines.trials.worker_pool import Worker
from shared.artifacts.writing import write_here
from shared.contracts.models import Model
from shared.contracts.strict import read
from shared.contracts.trials import EvaluateRequest
from shared.contracts.tuning import BEST, TUNE, TUNE_PAGE, Gain, TriedRow, TunedAnswer, TuneRequest
from shared.domain.errors import BadData, Invalid

HOPELESS = 5
"""Failed trials without a success that end a search."""
SHOWN = 10
_BESIDE = ("ndcg@10", "hr@10")


def tune(arguments: Any) -> TunedAnswer:
    request = read(TuneRequest, arguments, "eyas tune")
    with redirect_stdout(sys.stderr):  # stdout is reserved for the answer
        return _tune(request, teller("tune"))


def _tune(request: TuneRequest, log: logging.Logger) -> TunedAnswer:
    started = time.monotonic()
    _check(request)
    sampler.load_optuna()
    space = space_of(request.model, request.ranges)
    out = Path(request.out)
    search_on, last = _data(request)
    with ledger.opened(out, _fence(request, space)) as trial_ledger, Worker({"data": search_on, "model": dict(space.base)}) as worker:
        worker.start()
        if trial_ledger.rows:
            log.info("search: continued trials=%d", len(trial_ledger.rows))
        stopped = _search(_Search(request, space, trial_ledger, worker, log), started)
        default, best = trial_ledger.rows[0], _ranked(trial_ledger.rows)
        if not best:
            raise BadData(f"all {len(trial_ledger.rows)} trials failed; the last reason: {trial_ledger.rows[-1].reason}")
        worker.close()
        write_here(out / BEST, _pasted(_settled(space, request, best[0].params), best[0], request))
        gain = _gain(request, space, best[0], last, log) if last is not None else None
        document = _document(request, space, trial_ledger.rows, gain, worker.about)
        write_here(out / TUNE, json.dumps(document, indent=1) + "\n")
        write_here(out / TUNE_PAGE, tune_page(document))
    return TunedAnswer(
        metric=request.metric,
        best=tuple(best[:SHOWN]),
        default=default,
        done=sum(row.state == "done" for row in trial_ledger.rows),
        failed=sum(row.state == "failed" for row in trial_ledger.rows),
        gain=gain,
        stopped=stopped,
        files=tuple(str(out / name) for name in (BEST, TUNE, TUNE_PAGE)),
    )


@dataclass(frozen=True)
class _Search:
    request: TuneRequest
    space: Space
    trial_ledger: TrialLedger
    worker: Worker
    log: logging.Logger


def _search(search: _Search, started: float) -> bool:
    """Runs trials; returns whether the time ended before the last trial."""
    request, trial_ledger, log = search.request, search.trial_ledger, search.log
    until = None if request.minutes is None else started + 60 * request.minutes
    durations: list[float] = []
    while len(trial_ledger.rows) < request.trials:
        if until is not None and time.monotonic() > until and trial_ledger.rows:
            log.info("search: time is over trials=%d of=%d", len(trial_ledger.rows), request.trials)
            return True
        row = _trial(search, len(trial_ledger.rows))
        trial_ledger.append(row)
        durations.append(row.seconds)
        _tell(search, row, sum(durations) / len(durations), until)
        if len(trial_ledger.rows) >= HOPELESS and not _ranked(trial_ledger.rows):
            break
    return False


def _trial(search: _Search, number: int) -> TriedRow:
    chosen = sampler.choose(search.space, search.request.seed, number, search.trial_ledger.rows)
    before = search.space.before
    same = next((row for row in search.trial_ledger.rows if chosen and (row.params or before) == chosen and row.same_as is None), None)
    if same is not None:
        return same.model_copy(update={"number": number, "params": chosen, "same_as": same.number, "seconds": 0.0})
    try:
        model = _settled(search.space, search.request, chosen)
    except Invalid as error:
        return TriedRow(number=number, params=chosen, state="failed", reason=str(error))
    metrics = list(dict.fromkeys((search.request.metric, *_BESIDE)))
    answer = search.worker.tried({"model": model, "metrics": metrics})
    if "failed" in answer:
        return TriedRow(number=number, params=chosen, state="failed", reason=answer["failed"], seconds=answer["seconds"])
    values = answer["metrics"]
    row = {"number": number, "params": chosen, "state": "done", "value": values[search.request.metric]}
    return TriedRow(**row, metrics=values, seconds=answer["seconds"])


def _settled(space: Space, request: TuneRequest, chosen: Chosen) -> dict[str, Any]:
    model = space.model(chosen) if chosen else read(Model, _plain(request.model), "model")
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _tell(search: _Search, row: TriedRow, seconds: float, until: float | None) -> None:
    rows, request = search.trial_ledger.rows, search.request
    best = _ranked(rows)
    left = seconds * (request.trials - len(rows))
    if until is not None:
        left = min(left, max(0.0, until - time.monotonic()))
    values = len(rows), request.trials, left, words(row.params)
    if row.value is None:
        search.log.info("trial: failed trial=%d of=%d seconds_left=%.0f settings=%r error=%s", *values, row.reason)
    else:
        outcome = request.metric, row.value, best[0].value, best[0].number + 1
        search.log.info(
            "trial: done trial=%d of=%d seconds_left=%.0f settings=%r metric=%s value=%.4f best=%.4f best_trial=%d", *values, *outcome
        )


def words(params: Mapping[str, Any]) -> str:
    if not params:
        return "original settings"
    return ", ".join(f"{name.removeprefix('params.')} {value}" for name, value in params.items())


def _ranked(rows: list[TriedRow]) -> list[TriedRow]:
    """Returns distinct successful trials, the best first; equal values in order of their numbers."""
    done = [row for row in rows if row.state == "done" and row.same_as is None]
    return sorted(done, key=lambda row: (-(row.value or 0.0), row.number))


def _gain(request: TuneRequest, space: Space, best: TriedRow, last: dict[str, Any], log: logging.Logger) -> Gain:
    """Trains the given and the best settings on the whole file, and evaluates them on pairs that no trial saw."""
    values: list[float] = []
    with Worker({"data": last, "model": dict(space.base)}) as worker:
        for params in ({}, best.params):
            if params or not values:
                answer = worker.tried({"model": _settled(space, request, params), "metrics": [request.metric]})
            if "failed" in answer:
                raise BadData(f"{request.test}: evaluation of {words(params)} failed: {answer['failed']}")
            values.append(answer["metrics"][request.metric])
    log.info("search: tested metric=%s original=%.4f best=%.4f test=%s", request.metric, *values, request.test)
    return Gain(metric=request.metric, before=values[0], after=values[1])


def _check(request: TuneRequest) -> None:
    cut, _, count = request.metric.partition("/")
    if not is_rank_metric(request.metric) or cut.endswith("@0") or (count and not 1 <= int(count) <= 9999):
        raise Invalid(f"--metric {request.metric}: expected a ranking metric, such as ndcg@10 (full catalogue) or hr@10/99 (99 negatives)")
    if request.on_test and request.test is None:
        raise Invalid("--on-test: no --test to search on: add --test FILE, or leave --on-test out")
    if request.on_test and request.holdout is not None:
        raise Invalid("--holdout: not possible with --on-test, which holds nothing out: leave out --holdout or --on-test")
    if request.test is not None:
        read_pairs(Path(request.test))  # reports a wrong file hours before its use


def _data(request: TuneRequest) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Returns the data for trials, and the data for the last evaluation."""
    count = request.metric.partition("/")[2]
    common: dict[str, Any] = {"train": request.train, "models": (request.name,), "out": request.out, "seed": request.seed}
    common |= {"min_interactions": request.min_interactions, "allow": request.allow} | ({"sampled": int(count)} if count else {})
    held_out, tested = common | {"holdout": request.holdout}, common | {"test": request.test}
    dumped = [read(EvaluateRequest, options, "eyas tune").model_dump(mode="json") for options in (held_out, tested)]
    if request.on_test:
        return dumped[1], None
    return dumped[0], dumped[1] if request.test is not None else None


def _fence(request: TuneRequest, space: Space) -> dict[str, Any]:
    return {
        "format": 1,
        "data": file_of(request.train).sha256,
        "test": file_of(request.test).sha256 if request.on_test and request.test else None,
        "model": _plain(request.model),
        "ranges": {
            name: range_.model_dump(mode="json", by_alias=True, exclude_unset=True) for name, range_ in sorted(space.ranges.items())
        },
        "metric": request.metric,
        "holdout": request.holdout,
        "min_interactions": request.min_interactions,
        "seed": request.seed,
    }


def _plain(model: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in model.items() if key != "tune"}


def _pasted(model: dict[str, Any], best: TriedRow, request: TuneRequest) -> str:
    """Formats the `model:` part of a spec."""
    where = Path(request.train).name
    about = f"# {request.metric} {best.value:.4f} on the holdout of {where}, trial {best.number + 1} of {request.trials}\n"
    return about + yaml.safe_dump({"model": model}, sort_keys=False, allow_unicode=True)


def _document(request: TuneRequest, space: Space, rows: list[TriedRow], gain: Gain | None, about: Mapping[str, Any]) -> dict[str, Any]:
    best = _ranked(rows)
    return {
        "version": 1,
        "title": f"Search: {request.name} on {Path(request.train).name}",
        "metric": request.metric,
        "model": _plain(request.model),
        "ranges": {
            name: {"said": str(range_), "log": range_.log, "of": list(map(str, range_.of)) if range_.of else None}
            for name, range_ in space.ranges.items()
        },
        "before": space.before,
        "best": best[0].model_dump(mode="json"),
        "trials": [row.model_dump(mode="json") for row in rows],
        "gain": gain.model_dump(mode="json") if gain else None,
        "data": about.get("data", {}),
        "how": [*about.get("how", ()), *about.get("faults", ())],
        "request": request.model_dump(mode="json", by_alias=True),
    }
