"""Off-policy evaluation: estimates the candidate's online hit rate from the serving version's logged answers.

Uses only answers later than the candidate's newest training row: trained likes would bias the estimate. The candidate's answers are built
as served: retrieved, scored, without the user's earlier likes, under the spec's exploration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.data.answers import AnswerLog, read_log, usable
from pipelines.evaluation.candidate_ranking import line_of, ranks_of
from pipelines.evaluation.off_policy import CLIP, Candidate, LoggedRows, OffPolicyForecast, attention_of, foretell
from pipelines.evaluation.recall import Retrieve
from pipelines.evaluation.reward_model import ShownAnswers, expected_likes
from pipelines.stages.rival import newest_of_refit
from pipelines.stages.runner import Context
from shared.contracts.gates import foretold
from shared.contracts.plans import estimators
from shared.contracts.refit import REFIT
from shared.contracts.serving import Serve, window
from shared.contracts.stage import digest_of
from shared.domain.metric import certainty, count_of

Ints = NDArray[np.int64]
CHUNK = 131_072
MAX_PLACES = 10_000_000
"""Limit of answers times the width of the longest answer: its places plus the candidates for exploration."""


@dataclass(frozen=True)
class OffPolicyEstimator:
    """Metrics and facts that evaluate publishes."""

    metrics: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)


Every = Callable[[Ints], NDArray[Any]]
"""Scores the whole catalogue for users' keys."""
Finder = Callable[[Ints], Retrieve]
"""Returns the retrieval for the given users."""


def foresee(context: Context, every: Every, finder: Finder | None, items: pl.Series) -> OffPolicyEstimator:
    """Estimates the online hit rate if a gate asks for it. `finder`: None if the whole catalogue is scored. An error doesn't end the run:
    the gate reports it."""
    names = estimators(context.spec.recommender)
    if not names or context.spec.answers is None:
        return OffPolicyEstimator()
    keys = [f"candidate.{foretold(name)}" for name in names]
    try:
        forecast, facts = _foretold(context, every, finder, items.to_numpy(), "dr" in names)
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
        context.log.exception("off-policy evaluation: failed error=%s", why)
        return OffPolicyEstimator(broken=dict.fromkeys(keys, why))
    why_not = forecast if isinstance(forecast, str) else forecast.too_little
    if why_not is not None:
        context.log.info("off-policy evaluation: skipped reason=%s", why_not)
        return OffPolicyEstimator(facts=facts, missing=dict.fromkeys(keys, why_not))
    assert not isinstance(forecast, str)
    metrics: dict[str, float] = {}
    for name in names:
        own, key = forecast.by[name], foretold(name)
        metrics |= {f"candidate.{key}": own.hit_rate, certainty(f"candidate.{key}"): own.se}
        metrics |= {certainty(f"candidate.{key}", "serving"): own.se_to_logged}
        metrics |= {f"serving.{key}": forecast.logged.hit_rate, certainty(f"serving.{key}"): forecast.logged.se}
        metrics |= {count_of(f"{who}.{key}"): float(forecast.users) for who in ("candidate", "serving")}
        figures = own.hit_rate, own.se, forecast.logged.hit_rate
        context.log.info("off-policy evaluation: done estimator=%s hit_rate=%.4f standard_error=%.4f logged_hit_rate=%.4f", name, *figures)
    return OffPolicyEstimator(metrics, facts)


def _foretold(
    context: Context, every: Every, finder: Finder | None, keys: Ints, modelled: bool
) -> tuple[OffPolicyForecast | str, dict[str, Any]]:
    spec, answer_range = context.spec.recommender, context.spec.answers
    assert answer_range is not None
    attribution = spec.rollout.analysis.attribution
    files = context.spec.inputs.get("answers", {})
    log = read_log({name: context.fetch("answers", name) for name in files}, attribution)
    since = max(answer_range.since, datetime.fromtimestamp(_newest_learned(context), UTC) + timedelta(microseconds=1))
    answers, left = usable(log, answer_range.version, since, answer_range.until - attribution)
    sample = _sample(answers, spec.evaluate.pairwise_users(len(keys)), spec.serve.order.explore.among, spec.model.train.seed)
    facts: dict[str, Any] = {
        "version": answer_range.version,
        "since": since.isoformat(),
        "until": (answer_range.until - attribution).isoformat(),
        "log": f"sha256:{digest_of(files)}",
        "answers": len(sample),
        "sampled_from": len(answers),
        "left_out": dict(left),
    }
    context.log.info("off-policy evaluation: answers sampled version=%d answers=%d", answer_range.version, len(sample))
    if sample.is_empty():
        reasons = "; ".join(f"{count:,} are {why}" for why, count in left.items()) or "no answer is past its attribution window"
        return f"version {answer_range.version} has no usable answers: {reasons}", {"online": facts}
    logged, candidate, was, would = _compared(sample, log, keys, every, finder, spec.serve)
    likes = expected_likes(logged, candidate, was, would, attention_of(logged), len(keys)) if modelled else None
    forecast = foretell(logged, candidate, likes)
    facts |= {
        "users": forecast.users,
        "effective_answers": round(forecast.effective, 1),
        "support": round(forecast.support, 4),
        "clip": CLIP,
        "cut": round(forecast.cut, 6),
        "attention": [round(weight, 3) for weight in forecast.attention],
        "logged": vars(forecast.logged),
        "estimates": {name: vars(estimate) for name, estimate in forecast.by.items()},
    }
    return forecast, {"online": facts}


def _newest_learned(context: Context) -> float:
    """Returns the time of the newest row that the candidate, or its parent's refit, has learned."""
    train = pl.scan_parquet(context.fetch("etl", "train.parquet"))
    newest = float(train.select(pl.col("time").max()).collect(engine="streaming").item())
    return max(newest, newest_of_refit(context, "parent")) if context.has("parent", REFIT) else newest


def _sample(answers: pl.DataFrame, most: int, among: int, seed: int) -> pl.DataFrame:
    """Draws at most `most` users by the seed, within MAX_PLACES, and returns all their answers."""
    if answers.is_empty():
        return answers
    width = int(answers["items"].list.len().max()) + among  # type: ignore[arg-type]
    users = answers.group_by("user").len().sort("user")
    drawn = users[np.random.default_rng((seed, 29)).permutation(len(users))].head(most)
    room = pl.col("len").cum_sum() <= max(1, MAX_PLACES // width)
    chosen = drawn.filter(room | (pl.int_range(pl.len()) == 0))
    return answers.join(chosen.select("user"), on="user", how="semi").sort("user", "at", "request_id")


def _compared(
    answers: pl.DataFrame, log: AnswerLog, keys: Ints, every: Every, finder: Finder | None, serve: Serve
) -> tuple[LoggedRows, Candidate, ShownAnswers, ShownAnswers]:
    """Compares logged answers with the candidate's. `answers` are ordered by user."""
    explore, count = serve.order.explore, len(answers)
    lengths = answers["items"].list.len().to_numpy().astype(np.int64)
    longest = int(lengths.max())
    there = np.arange(longest)[None, :] < lengths[:, None]
    rows = np.full(there.shape, -1, np.int64)
    propensities, liked = np.ones(there.shape), np.zeros(there.shape, bool)
    rows[there] = _rows(keys, answers["items"].explode(empty_as_null=False).to_numpy())
    propensities[there] = answers["propensities"].explode(empty_as_null=False).to_numpy()
    answer_of_like = np.repeat(np.arange(count), answers["liked"].list.len().to_numpy())
    liked[answer_of_like, answers["liked"].explode(empty_as_null=False).drop_nulls().to_numpy().astype(np.int64)] = True

    users, owners = np.unique(answers["user"].to_numpy(), return_inverse=True)
    past_likes = _PastLikes(log.likes, keys, serve)
    times = answers["at"].dt.epoch("us").to_numpy()
    ranks, others = np.full(there.shape, -1, np.int64), np.zeros(count, np.int64)
    scores = np.zeros(there.shape)
    width = longest + explore.among
    would = ShownAnswers(np.full((count, width), -1, np.int64), np.zeros((count, width)))
    retrieved = finder(users)(users, _candidates(serve)) if finder is not None else [None] * len(users)
    bounds = np.searchsorted(owners, np.arange(len(users) + 1))
    scored = zip(users.tolist(), _scored(every, users, len(keys)), retrieved, strict=True)
    for number, (user, user_scores, candidates) in enumerate(scored):
        line = line_of(user_scores, keys, candidates, width + past_likes.most(user))
        for at in range(bounds[number], bounds[number + 1]):
            shown = line.without(past_likes.by(user, int(times[at])), int(lengths[at]) + explore.among)
            ranks[at] = ranks_of(shown, rows[at])
            others[at] = max(len(shown) - int(lengths[at]), 0)
            would.items[at, : len(shown)] = shown
            would.scores[at, : len(shown)] = line.scores[shown]
            scores[at] = np.where(rows[at] >= 0, line.scores[rows[at]], 0.0)
    ranks[~there] = -1
    logged = LoggedRows(owners.astype(np.int64), propensities, there, liked)
    return logged, Candidate(ranks, others, explore.rate), ShownAnswers(rows, scores), would


def _scored(every: Every, users: Ints, size: int) -> Iterator[NDArray[np.float64]]:
    """Yields all scores of each user, computed in chunks of users."""
    step = max(1, CHUNK // size)
    for start in range(0, len(users), step):
        scores = np.asarray(every(users[start : start + step]), np.float64)
        if not np.isfinite(scores).all():
            raise FloatingPointError("model scores are not finite: some are NaN or infinite")
        yield from scores


def _candidates(serve: Serve) -> int:
    assert serve.retrieve is not None
    return serve.retrieve.candidates


def _rows(keys: Ints, items: Ints) -> Ints:
    """Returns rows of the catalogue, which is ordered by key; -1 for items outside the catalogue."""
    places = np.minimum(np.searchsorted(keys, items), len(keys) - 1)
    return np.where(keys[places] == items, places, -1)


class _PastLikes:
    """Earlier likes of users, which the spec's `not_seen` hides."""

    def __init__(self, likes: pl.DataFrame, keys: Ints, serve: Serve) -> None:
        self._cache: dict[int, tuple[Ints, Ints]] = {}
        not_seen = serve.not_seen
        if not_seen is None:
            return
        span = window(not_seen)
        self._span = None if span is None else span // timedelta(microseconds=1)
        grouped: Sequence[tuple[int, list[int], list[int]]] = (
            likes.select("user", "item", pl.col("at").dt.epoch("us")).sort("at").group_by("user").agg("item", "at").rows()
        )
        for user, items, times in grouped:
            rows = _rows(keys, np.array(items, np.int64))
            self._cache[user] = rows[rows >= 0], np.array(times, np.int64)[rows >= 0]

    def most(self, user: int) -> int:
        return len(self._cache[user][0]) if user in self._cache else 0

    def by(self, user: int, at: int) -> Ints:
        if user not in self._cache:
            return np.empty(0, np.int64)
        rows, times = self._cache[user]
        start = 0 if self._span is None else int(np.searchsorted(times, at - self._span, "left"))
        return rows[start : int(np.searchsorted(times, at, "left"))]
