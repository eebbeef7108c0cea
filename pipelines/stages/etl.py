"""ETL: from the user's files and the platform's events to checked, split and encoded Parquet.

Publishes: train.parquet and holdout.parquet (user, item, time, label, user_code, item_row), firsts.parquet, history.parquet (every
user-item pair known so far, parents' included), items.parquet (the raw catalogue, ordered by key), items.codes.parquet
(its codes, row by row), a vocabulary for each column, and features.json. A warm run reads the parent's and grows them.
To compact events is etl's work too, and of no run.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipelines.data.catalogue import keep_known, open_items, open_users, read_items
from pipelines.data.interactions import from_events, from_file, latest, open_interactions
from pipelines.data.sources import Reach, readable
from pipelines.data.split import Parts, split
from pipelines.data.thinning import thin
from pipelines.data.validate import check_interactions
from pipelines.features.graph import FEATURES, Graph, check_same, compile_graph, load_graph
from pipelines.stages.compact import compact
from pipelines.stages.runner import Context, Outcome, main
from shared.domain.errors import BadData, Invalid

EVENTS = "events.csv"
FIRSTS = "firsts.parquet"
"""Items by when anybody met them for the first time."""
MIN_EVENTS = 500
ROW_GROUP = 65_536


@dataclass(frozen=True)
class Interactions:
    frame: pl.LazyFrame
    name: str
    digests: tuple[str, ...]
    facts: dict[str, int]


def run(context: Context) -> Outcome:
    if context.spec.mode == "compact":
        return compact(context)
    spec, log = context.spec.recommender, context.log
    table, people = open_items(spec, _reach(context)), open_users(spec, _reach(context))
    items = read_items(table, spec)
    found = _warm(context) if context.spec.mode == "warm" else _full(context)
    frame, dropped = keep_known(found.frame, items, spec.schema_.item, found.name, table.name)
    if dropped:
        log.info("%s interactions dropped: their items are not in %s", f"{dropped:,}", table.name)
    frame, thinned = _normalised(context, frame, found.name)
    parts = split(frame, spec.split, found.name)

    graph = compile_graph(spec, items.schema, table.name)
    known = load_graph(context.fetcher("parent")) if context.spec.mode == "warm" else None
    if known:
        check_same(graph, known)
    items = items.with_columns([one.normalise() for one in graph.side("item")])
    graph = graph.fit(parts.train, items, known)
    for column, cardinality in graph.cardinalities().items():
        log.info("column %s: %s codes", column, f"{cardinality:,}")

    files, rows = _write(context, graph, parts, items, known is not None)
    log.info("%s rows to train on, %s held out", f"{rows['train']:,}", f"{rows['holdout']:,}")
    digests = (*found.digests, *(one.digest() for one in (table, people) if one))
    facts = {
        "snapshot": hashlib.sha256("".join(digests).encode()).hexdigest(),
        "rows": found.facts | {"dropped": dropped} | thinned | {"items": len(items)},
        "split": _stretch(parts),
        "cardinalities": graph.cardinalities(),
        "mode": context.spec.mode,
    }
    return Outcome(files, {f"rows.{side}": float(count) for side, count in rows.items()} | {"rows.items": float(len(items))}, facts)


def _full(context: Context) -> Interactions:
    spec = context.spec.recommender
    source = open_interactions(spec, _reach(context))
    frame, digests = from_file(source, spec), [source.digest()]
    facts = {"file": int(frame.select(pl.len()).collect(engine="streaming").item())}
    context.log.info("%s interactions read from %s", f"{facts['file']:,}", source.name)
    if spec.data.interactions.also == "events" and (stretches := _events(context)):
        events = from_events(stretches, spec)
        facts["events"] = int(events.select(pl.len()).collect().item())
        context.log.info("%s events joined", f"{facts['events']:,}")
        frame = pl.concat([frame, events])
        digests += _digests(context)
    return Interactions(_since(context, frame), source.name, tuple(digests), facts)


def _warm(context: Context) -> Interactions:
    if not context.has("parent", FEATURES):
        raise Invalid("retrain.mode: a warm run needs a parent run to start from: start a full one")
    stretches = _events(context)
    events = from_events(stretches, context.spec.recommender) if stretches else None
    count = int(events.select(pl.len()).collect().item()) if events is not None else 0
    if events is None or count < MIN_EVENTS:
        raise BadData(f"{EVENTS}: {count} events since the parent; a warm run needs {MIN_EVENTS}: wait, or start a full run")
    context.log.info("%s events since the parent read", f"{count:,}")
    return Interactions(_since(context, events), EVENTS, _digests(context), {"events": count})


def _reach(context: Context) -> Reach:
    return Reach(context.spec.data_roots, context.scratch / "sources")


def _events(context: Context) -> list[list[Path]]:
    """The platform's own, stretch by stretch: a CSV each, or the parts of a compacted day."""
    names = sorted(context.spec.inputs.get("events", {}))
    return [[context.fetch("events", name) for name in group] for _, group in itertools.groupby(names, lambda name: name.split("/")[0])]


def _digests(context: Context) -> tuple[str, ...]:
    events = context.spec.inputs["events"]
    return tuple(events[name].sha256 for name in sorted(events))


def _since(context: Context, frame: pl.LazyFrame) -> pl.LazyFrame:
    since = context.spec.recommender.data.interactions.since
    return latest(frame, since.total_seconds()) if since else frame


def _normalised(context: Context, frame: pl.LazyFrame, name: str) -> tuple[pl.LazyFrame, dict[str, int]]:
    """One streaming pass to disk; everything after reads that. Returns how many rows each of the spec's rules left out, too."""
    spec = context.spec.recommender
    with readable(name):
        written = _laid_down(frame, context.scratch / "interactions.parquet")
    known = pl.scan_parquet(context.fetch("parent", "history.parquet")) if context.spec.mode == "warm" else None
    thinned = thin(written, spec.data.interactions, known)
    for rule, count in thinned.facts.items():
        context.log.info("%s interactions left out: %s", f"{count:,}", rule.replace("_", " "))
    checked = _laid_down(thinned.frame, context.scratch / "thinned.parquet") if any(thinned.facts) else written
    schema, need_both = spec.schema_, spec.model.params.wants_both_labels(full=context.spec.mode == "full")
    check_interactions(checked, name, schema.user, schema.item, schema.label.column, need_both)
    return checked, thinned.facts


def _laid_down(frame: pl.LazyFrame, path: Path) -> pl.LazyFrame:
    frame.sink_parquet(path, row_group_size=ROW_GROUP)
    return pl.scan_parquet(path)


def _write(context: Context, graph: Graph, parts: Parts, items: pl.DataFrame, warm: bool) -> tuple[dict[str, Path], dict[str, int]]:
    files = graph.save(context.output)
    rows = {}
    keys = items[graph.item]
    encode = [
        graph.feature(graph.user).transform(pl.col("user")).alias("user_code"),
        pl.col("item").replace_strict(keys, pl.int_range(len(keys), dtype=pl.Int32, eager=True)).alias("item_row"),
    ]
    for side, part in (("train", parts.train), ("holdout", parts.holdout)):
        path = files[f"{side}.parquet"] = context.out(f"{side}.parquet")
        part.with_columns(encode).sink_parquet(path, row_group_size=ROW_GROUP)
        rows[side] = int(pl.scan_parquet(path).select(pl.len()).collect().item())
    files["items.parquet"] = context.out("items.parquet")
    items.write_parquet(files["items.parquet"])
    files["items.codes.parquet"] = context.out("items.codes.parquet")
    graph.transform(items.lazy(), "item").collect().write_parquet(files["items.codes.parquet"])
    files["history.parquet"] = _history(context, parts, warm)
    files[FIRSTS] = _firsts(context, parts, warm)
    return files, rows


def _history(context: Context, parts: Parts, warm: bool) -> Path:
    """Each pair once: `label` says whether it was ever liked, `before` whether that was before this run's holdout."""
    never = pl.lit(0, dtype=pl.Int8)
    pairs = [
        parts.train.select("user", "item", "label", before="label"),
        parts.holdout.select("user", "item", "label", before=never),
    ]
    if warm:
        parent = pl.scan_parquet(context.fetch("parent", "history.parquet"))
        pairs.append(parent.select("user", "item", "label", before="label"))
    path = context.out("history.parquet")
    pl.concat(pairs).group_by("user", "item").agg(pl.col("label", "before").max()).sort("user", "item").sink_parquet(path)
    return path


def _firsts(context: Context, parts: Parts, warm: bool) -> Path:
    """When anybody met each item for the first time."""
    found = [part.group_by("item").agg(pl.col("time").min().alias("first")) for part in (parts.train, parts.holdout)]
    if warm and context.has("parent", FIRSTS):  # an older parent has noted none: then its items count as new when they are met again
        found.append(pl.scan_parquet(context.fetch("parent", FIRSTS)))
    path = context.out(FIRSTS)
    pl.concat(found).group_by("item").agg(pl.col("first").min()).sort("item").sink_parquet(path)
    return path


def _stretch(parts: Parts) -> dict[str, float]:
    """When the data begins and ends, and when the holdout begins if that is one moment."""
    times = [part.select(pl.col("time").min().alias("a"), pl.col("time").max().alias("b")) for part in (parts.train, parts.holdout)]
    oldest, newest = pl.concat(times).select(pl.col("a").min(), pl.col("b").max()).collect(engine="streaming").row(0)
    return {"oldest": float(oldest), **({"cut": parts.cut} if parts.cut is not None else {}), "newest": float(newest)}


if __name__ == "__main__":
    main("etl", run)
