"""ETL: turns the user's files and the platform's events into validated, split and encoded Parquet.

Publishes:
- user_ids.parquet, if ids of users are text: key and id of each user
- train.parquet and holdout.parquet: user, item, time, label, weight (if the spec has weights), user_code, item_row and per-row features
  (pipelines.features.prepared)
- firsts.parquet, and history.parquet: each known user-item pair, those of parents included
- items.parquet (raw catalogue, ordered by key) and items.features.parquet (its features, row by row)
- users.parquet and users.features.parquet, if users have more than a key: one row per stretch of time, the newest last
- items_table.json, for the seed of the catalogue (shared.contracts.items_table)
- pages.parquet, if sequences show page views; features.json, the features' fitted state, encoded vectors (pipelines.stages.vectors)

A warm run grows its parent's state and publishes older rows for replay (pipelines.stages.replay). Modes `compact` and `forget` belong to
no run.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.data.catalogue import read_items, read_users
from pipelines.data.dedup import thin
from pipelines.data.forgotten import ForgottenUserFilter
from pipelines.data.ids import USER_IDS, text_of, with_kinds, without_texts, write_user_ids
from pipelines.data.interactions import from_file, latest, open_interactions, read_events, views_from_events
from pipelines.data.lake import TableVersion
from pipelines.data.pages import of_users, views
from pipelines.data.sources import ReadableRoots, SourceRows, readable
from pipelines.data.split import SplitRows, split
from pipelines.data.validate import check_interactions
from pipelines.data.validation.events import EVENTS
from pipelines.data.validation.tables import JudgedTables
from pipelines.features.columns import Table
from pipelines.features.engines.choice import Engine, engine
from pipelines.features.engines.history import RowHistory
from pipelines.features.graph import FEATURES, Graph, check_same, load_graph
from pipelines.features.prepared import EXTRA, PAGES, Prepared, extra_columns, graph_of, prepare
from pipelines.features.reading import Reads
from pipelines.models.families import family_of
from pipelines.models.plugins import check_params
from pipelines.models.runtime import gpu_sizes
from pipelines.stages.attribute_check import recorded, written_record
from pipelines.stages.compact import compact
from pipelines.stages.data_gate import admit, admit_events, judged_tables, remembered
from pipelines.stages.forget import forget
from pipelines.stages.replay import HELD, PAST, held_out, past, past_users
from pipelines.stages.runner import Context, main
from pipelines.stages.user_overrides import with_written
from pipelines.stages.vectors import TableVectors
from shared.contracts.items_table import FACT, ITEMS_TABLE
from shared.contracts.stage import FORGOTTEN_USERS, ID_KEY, LEFT_OUT
from shared.domain.entity_ids import IdHash
from shared.domain.errors import BadData, Invalid
from shared.stage_process import Outcome

FIRSTS = "firsts.parquet"
"""First interaction of each item."""
MIN_EVENTS = 500
_FACTS = {"file": "read", "quarantined": "quarantined", "pages": "pages"}
"""Facts of the file's rows, with validation's names."""
ROW_GROUP = 65_536


@dataclass(frozen=True)
class Interactions:
    frame: pl.LazyFrame
    name: str
    digests: tuple[str, ...]
    facts: dict[str, int]
    extra: dict[str, pl.DataType]
    """Further columns that the spec's features name; evaluate may pass them to the serving version."""
    validation: dict[str, Any]
    pages: pl.LazyFrame | None = None
    """Page views, if the spec names them."""
    table: TableVersion | None = None


def run(context: Context) -> Outcome:
    if context.spec.mode == "compact":
        return compact(context)
    if context.spec.mode == "forget":
        return forget(context)
    resources = context.spec.recommender.resources.etl
    with engine(resources, context.scratch, context.log, bool(resources.gpu and gpu_sizes())) as chosen:
        return _run(context, chosen)


def _run(context: Context, chosen: Engine) -> Outcome:
    spec, log, reach, started = context.spec.recommender, context.log, _reach(context), datetime.now(UTC)
    log.info("ids: kinds read users=%s items=%s", reach.kinds.user, reach.kinds.item)
    tables = judged_tables(context, reach, _item_sources(context, reach))
    table, people = tables.items.source, tables.users.source if tables.users else None
    parent_graph = load_graph(context.fetcher("parent")) if context.spec.mode == "warm" and context.has("parent", FEATURES) else None
    family = family_of(spec.model.family, context.spec.families)
    check_params(family, spec.model)
    reads = parent_graph.reads if parent_graph else family.reads  # training refuses a warm run whose family differs from its parent's
    vectors = TableVectors(context, reach, reads)
    for judged, key in zip(tables, (spec.schema_.item, spec.schema_.user), strict=False):
        vectors.check(judged.source, key)
    interactions = _warm(context, tables, reach) if context.spec.mode == "warm" else _full(context, tables, reach)
    items = read_items(table, spec)
    record = recorded(context, items, min(table.changed_at(), started))
    frame, thinned, user_ids = _normalised(context, interactions.frame, interactions.name)
    parts = split(frame, spec.split, interactions.name)

    items = vectors.join(items, spec.schema_.item)
    users = vectors.join(read_users(people, spec), spec.schema_.user) if people else None
    graph = _build_graph(context, tables, interactions, items.schema, users.schema if users is not None else None, reads)
    if reads not in ("deep", "trees") and not graph.raws("users"):
        users = None
    if parent_graph:
        check_same(graph, parent_graph)
    pages = _seen_by_known(context, interactions.pages, frame) if interactions.pages is not None and graph.paged else None
    people_known = frame if parent_graph is None else pl.concat([frame.select("user"), past_users(context)])
    ready, written = with_written(context, prepare(graph, items, users, people_known, chosen, pages), frame)
    history = ready.history(parts.train, parts.holdout, context.scratch / "history")
    ready = ready.fit(parts.train, parent_graph, history)
    graph = ready.graph
    for column, cardinality in graph.cardinalities().items():
        log.info("feature: fitted feature=%s codes=%d", column, cardinality)

    files, rows = _write(context, ready, parts, history, parent_graph is not None)
    files |= remembered(context, tables) | vectors.files() | {ITEMS_TABLE: written_record(context, record)}
    if user_ids is not None:
        files[USER_IDS] = _user_ids(context, user_ids, people, interactions.name)
    log.info("rows: split train=%d holdout=%d", rows["train"], rows["holdout"])
    digests = (*interactions.digests, *(source.digest() for source in (table, people) if source), *vectors.digests, *written)
    facts: dict[str, Any] = {
        "snapshot": hashlib.sha256("".join(digests).encode()).hexdigest(),
        "rows": interactions.facts | thinned | {"items": len(items)},
        "split": _stretch(parts),
        "cardinalities": graph.cardinalities(),
        "mode": context.spec.mode,
        "ids": {"user": reach.kinds.user, "item": reach.kinds.item},
        "validation": interactions.validation,
        FACT: record.model_dump(mode="json"),
    }
    facts |= _versions(context, interactions, tables) | _left_out(reach)
    if vectors.facts:
        facts["encoded"] = vectors.facts
    shutil.rmtree(reach.scratch, ignore_errors=True)  # holds second copies of fetched files
    return Outcome(files, {f"rows.{side}": float(count) for side, count in rows.items()} | {"rows.items": float(len(items))}, facts)


def _versions(context: Context, interactions: Interactions, tables: JudgedTables) -> dict[str, dict[str, str]]:
    """Returns which versions of Delta and Iceberg tables were read, if any."""
    read = {"interactions": interactions.table} | {judged.name: judged.source.table for judged in tables}
    versions = {name: str(table) for name, table in read.items() if table is not None}
    for name, version in versions.items():
        context.log.info("table: read source=%s version=%r", name, version)
    return {"versions": versions} if versions else {}


def _left_out(reach: ReadableRoots) -> dict[str, int]:
    return {LEFT_OUT: len(reach.forgotten.users)} if reach.forgotten.users else {}


def _build_graph(
    context: Context, tables: JudgedTables, interactions: Interactions, items: pl.Schema, users: pl.Schema | None, reads: Reads
) -> Graph:
    spec = context.spec.recommender
    names: dict[Table, str] = {"interactions": interactions.name, "items": f"the items table {tables.items.source.name}"}
    if tables.users is not None:
        names["users"] = f"the users table {tables.users.source.name}"
    graph = graph_of(spec, interactions.extra, items, users, names, reads)
    if graph.left:
        left = ", ".join(dict.fromkeys(dropped.feature for dropped in graph.left))
        context.log.info("features: left out, the family does not need them family=%s features=%s", spec.model.family, left)
    return graph


def _full(context: Context, tables: JudgedTables, reach: ReadableRoots) -> Interactions:
    spec = context.spec.recommender
    source = open_interactions(spec, reach)
    extra = extra_columns(spec, source.frame.collect_schema())
    stretches = _events(context) if spec.data.interactions.also == "events" else []
    admitted = admit(context, source, tables, _read_events(context, stretches, reach) if stretches else None)
    source = admitted.source
    frame, digests = from_file(source, spec, {f"{EXTRA}{name}": name for name in extra}), [source.digest()]
    pages = views(source, spec)
    facts = {name: admitted.facts[key] for name, key in _FACTS.items() if key in admitted.facts}
    if admitted.events is not None:
        facts["events"] = admitted.facts["events"]["read"]
        context.log.info("events: joined events=%d", facts["events"])
        frame = pl.concat([frame, admitted.events], how="diagonal")
        digests += _digests(context)
        pages = pl.concat([pages, _event_views(context, stretches, reach)]) if pages is not None else None
    facts["dropped"] = admitted.dropped
    pages = _since(context, pages, frame) if pages is not None else None
    return Interactions(_since(context, frame, frame), source.name, tuple(digests), facts, extra, admitted.facts, pages, source.table)


def _warm(context: Context, tables: JudgedTables, reach: ReadableRoots) -> Interactions:
    if not context.has("parent", FEATURES):
        raise Invalid("retrain.mode: a warm run needs a parent run; start a full run")
    spec, stretches = context.spec.recommender, _events(context)
    events = _read_events(context, stretches, reach) if stretches else None
    count = int(events.select(pl.len()).collect().item()) if events is not None else 0
    if events is None or count < MIN_EVENTS:
        raise BadData(f"{EVENTS}: {count} events since the parent; a warm run needs {MIN_EVENTS}; wait, or start a full run")
    context.log.info("events: read since the parent events=%d", count)
    admitted = admit_events(context, events, tables)
    extra = load_graph(context.fetcher("parent")).extra
    blank = [pl.lit(None, dtype).alias(f"{EXTRA}{name}") for name, dtype in extra.items()]
    facts = {"events": count, "dropped": admitted.dropped}
    pages = _since(context, _event_views(context, stretches, reach), admitted.events) if spec.schema_.page else None
    frame = _since(context, admitted.events.with_columns(blank), admitted.events)
    return Interactions(frame, EVENTS, _digests(context), facts, extra, admitted.facts, pages)


def _reach(context: Context) -> ReadableRoots:
    """Returns what etl may read, with the kinds of ids: those that are fixed, else those of the data."""
    roots = ReadableRoots(context.spec.data_roots, context.scratch / "sources", context.spec.ids)
    if context.has("forgotten", FORGOTTEN_USERS):
        roots = replace(roots, forgotten=ForgottenUserFilter.read(context.fetch("forgotten", FORGOTTEN_USERS)))
    reach = with_kinds(context.spec.recommender, roots)
    if "text" not in (reach.kinds.user, reach.kinds.item):
        return reach
    return replace(reach, ids=IdHash(bytes.fromhex(context.fetch("ids", ID_KEY).read_text())))


def _events(context: Context) -> list[list[Path]]:
    """Returns the platform's events as groups of files: one CSV, or the parts of a compacted day."""
    names = sorted(context.spec.inputs.get("events", {}))
    return [[context.fetch("events", name) for name in group] for _, group in itertools.groupby(names, lambda name: name.split("/")[0])]


def _item_sources(context: Context, reach: ReadableRoots) -> list[pl.LazyFrame]:
    """Returns the items of the platform's events and of the parent run; none if there is an items table."""
    spec = context.spec.recommender
    if spec.data.items is not None:
        return []
    key, text = spec.schema_.item, text_of(spec.schema_.item)
    stretches = _events(context) if spec.data.interactions.also == "events" or context.spec.mode == "warm" else []
    columns = {"item": key, text_of("item"): text}
    frames = [_read_events(context, stretches, reach).rename(columns, strict=False)] if stretches else []
    if context.has("parent", "items.parquet"):
        frames.append(pl.scan_parquet(context.fetch("parent", "items.parquet")))
    return [frame.select(pl.selectors.by_name(key, text, require_all=False)) for frame in frames]


def _read_events(context: Context, stretches: Sequence[Sequence[Path]], reach: ReadableRoots) -> pl.LazyFrame:
    events = read_events(stretches, context.spec.recommender, reach.kinds, context.spec.events_since)
    return reach.forgotten.without(events, "user", pl.col("time"))


def _event_views(context: Context, stretches: Sequence[Sequence[Path]], reach: ReadableRoots) -> pl.LazyFrame:
    return reach.forgotten.without(views_from_events(stretches, context.spec.events_since), "user", pl.col("time"))


def _digests(context: Context) -> tuple[str, ...]:
    events = context.spec.inputs["events"]
    return tuple(events[name].sha256 for name in sorted(events))


def _since(context: Context, frame: pl.LazyFrame, data: pl.LazyFrame) -> pl.LazyFrame:
    """Drops rows older than the spec's `since`, counted back from the data's newest row."""
    since = context.spec.recommender.data.interactions.since
    return latest(frame, since.total_seconds(), data) if since else frame


def _normalised(context: Context, frame: pl.LazyFrame, name: str) -> tuple[pl.LazyFrame, dict[str, int], pl.LazyFrame | None]:
    """Writes the interactions to disk in one streaming pass, for all later reads; also returns the number of rows each rule left out, and
    the key and id of users with text ids."""
    spec = context.spec.recommender
    with readable(name):
        written = _laid_down(frame, context.scratch / "interactions.parquet")
    text = text_of("user")
    has_text = text in written.collect_schema().names()
    user_ids = written.select(key="user", id=text) if has_text else None
    written = without_texts(written)
    parent_history = pl.scan_parquet(context.fetch("parent", "history.parquet")) if context.spec.mode == "warm" else None
    thinned = thin(written, spec.data.interactions, parent_history)
    for rule, count in thinned.facts.items():
        context.log.info("interactions: left out rows=%d reason=%s", count, rule)
    checked = _laid_down(thinned.frame, context.scratch / "thinned.parquet") if any(thinned.facts) else written
    schema, need_both = spec.schema_, spec.model.params.wants_both_labels(full=context.spec.mode == "full")
    check_interactions(checked, name, schema.user, schema.item, schema.label_column, need_both)
    return checked, thinned.facts, user_ids


def _user_ids(context: Context, pairs: pl.LazyFrame, people: SourceRows | None, name: str) -> Path:
    """Writes the ids of the users of the interactions, of the users table and of the parent run."""
    table, users = context.spec.recommender.data.users, [pairs]
    if people is not None and table is not None:
        users.append(people.frame.select(key=table.key, id=text_of(table.key)))
    earlier = [context.fetch("parent", USER_IDS)] if context.has("parent", USER_IDS) else []
    return write_user_ids(users, earlier, context.out(USER_IDS), name)


def _seen_by_known(context: Context, pages: pl.LazyFrame, frame: pl.LazyFrame) -> pl.LazyFrame:
    """Writes to disk the page views of users in the data."""
    page_views = _laid_down(of_users(pages, frame), context.scratch / "pages.parquet")
    context.log.info("page views: added to sequences views=%d", page_views.select(pl.len()).collect().item())
    return page_views


def _laid_down(frame: pl.LazyFrame, path: Path) -> pl.LazyFrame:
    frame.sink_parquet(path, row_group_size=ROW_GROUP, compression="lz4", statistics=False)
    return pl.scan_parquet(path)


def _write(
    context: Context, ready: Prepared, parts: SplitRows, history: RowHistory | None, warm: bool
) -> tuple[dict[str, Path], dict[str, int]]:
    graph = ready.graph
    files = graph.save(context.output)
    for side in ("train", "holdout"):
        files[f"{side}.parquet"] = context.out(f"{side}.parquet")
    train, holdout = ready.write_rows(parts.train, parts.holdout, history, (files["train.parquet"], files["holdout.parquet"]))
    for name, table in ready.tables.values():
        files[f"{name}.parquet"] = context.out(f"{name}.parquet")
        table.write_parquet(files[f"{name}.parquet"])
    files |= ready.write_tables(context.out)
    if ready.pages is not None:
        files[PAGES] = context.out(PAGES)
        ready.pages.sink_parquet(files[PAGES])
    files["history.parquet"] = _history(context, parts, warm)
    files[FIRSTS] = _firsts(context, parts, warm)
    if warm:
        files[HELD] = held_out(context, parts.train)
        files[PAST] = past(context, ready, files[HELD])
    return files, {"train": train, "holdout": holdout}


def _history(context: Context, parts: SplitRows, warm: bool) -> Path:
    """Writes each pair once, with its largest weight if the spec has weights: `label` is 1 if the pair was ever liked, `before` if that was
    before this run's holdout."""
    weight = ["weight"] if context.spec.recommender.weighted else []
    never, columns = pl.lit(0, dtype=pl.Int8), pl.selectors.by_name("user", "item", "label", *weight, require_all=False)
    pairs = [parts.train.select(columns, before="label"), parts.holdout.select(columns, before=never)]
    if warm:
        parent = pl.scan_parquet(context.fetch("parent", "history.parquet"))
        pairs.append(parent.select(columns, before="label"))
    path = context.out("history.parquet")
    every_pair = pl.concat(pairs, how="diagonal").with_columns(pl.selectors.by_name("weight", require_all=False).fill_null(1))
    every_pair.group_by("user", "item").agg(pl.exclude("user", "item").max()).sort("user", "item").sink_parquet(path)
    return path


def _firsts(context: Context, parts: SplitRows, warm: bool) -> Path:
    """Writes the time of each item's first interaction."""
    firsts = [part.group_by("item").agg(pl.col("time").min().alias("first")) for part in (parts.train, parts.holdout)]
    if warm and context.has("parent", FIRSTS):  # absent from older parents: their items count as new at the next interaction
        firsts.append(pl.scan_parquet(context.fetch("parent", FIRSTS)))
    path = context.out(FIRSTS)
    pl.concat(firsts).group_by("item").agg(pl.col("first").min()).sort("item").sink_parquet(path)
    return path


def _stretch(parts: SplitRows) -> dict[str, float]:
    """Returns when the data and the training rows begin and end, and when the holdout begins if all users share that moment."""
    times = [part.select(pl.col("time").min().alias("a"), pl.col("time").max().alias("b")) for part in (parts.train, parts.holdout)]
    bounds = pl.concat(times).collect(engine="streaming")
    cut = {"cut": parts.cut} if parts.cut is not None else {}
    return {"oldest": float(bounds["a"].min()), **cut, "newest": float(bounds["b"].max()), "newest_trained": float(bounds["b"][0])}  # type: ignore[arg-type]


if __name__ == "__main__":
    main("etl", run)
