"""HTML page of a search: best settings, history, and each setting against the metric. It loads no other resources."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from pipelines.data.validation.html_document import document
from pipelines.evaluation.page import STYLE, table
from pipelines.evaluation.scatter_plot import PlotPoint, points

Document = Mapping[str, Any]
_SHOWN = 10


def tune_page(search: Document) -> str:
    metric, best = search["metric"], search["best"]
    parts = [
        *(f"<p>{escape(line)}</p>" for line in _summary(search)),
        f"<h2>Best trials by {escape(metric)}</h2>",
        _table(search, _ranked(search)[:_SHOWN]),
        "<h2>History</h2>",
        _history(search, best["number"]),
        "<h2>Settings</h2>",
        *(_setting(search, name, best["number"]) for name in search["ranges"]),
        *_failures(search),
        "<h2>Method</h2>",
        "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in search["how"]) + "</ul>",
        table(
            ("setting", "range"), [f"<td>{escape(name)}</td><td>{escape(range_['said'])}</td>" for name, range_ in search["ranges"].items()]
        ),
    ]
    return document(search["title"], STYLE, parts)


def _summary(search: Document) -> list[str]:
    metric, best, first, gain = search["metric"], search["best"], search["trials"][0], search["gain"]
    count = len(search["trials"])
    before = f"{first['value']:.4f} with the original settings" if first["value"] is not None else "the original settings failed"
    lines = [f"{count} trials. {metric} on the test pairs of the trials: {best['value']:.4f} with the best settings; {before}."]
    if gain is not None:
        lines.append(
            f"On pairs that no trial used: {gain['metric']} {gain['after']:.4f} with the best settings, {gain['before']:.4f} without."
        )
    else:
        lines.append("The best of many trials looks better than it is: evaluate it on pairs that no trial used.")
    return lines


def _ranked(search: Document) -> list[Document]:
    done = [row for row in search["trials"] if row["state"] == "done" and row["same_as"] is None]
    return sorted(done, key=lambda row: (-row["value"], row["number"]))


def _table(search: Document, rows: list[Document]) -> str:
    names = list(search["ranges"])
    cells = []
    for row in rows:
        chosen = row["params"] or search["before"]
        settings = "".join(f'<td class="n">{escape(_value_text(chosen.get(name)))}</td>' for name in names)
        trial = f"{row['number'] + 1}" + ("" if row["params"] else " <small>original</small>")
        cells.append(f'<td>{trial}</td><td class="n">{row["value"]:.4f}</td>{settings}<td class="n">{row["seconds"]:.1f} s</td>')
    return table(("trial", search["metric"], *(name.removeprefix("params.") for name in names), "time"), cells, numbers=len(names) + 2)


def _history(search: Document, best: int) -> str:
    drawn = [
        PlotPoint(row["number"] + 1, row["value"], f"trial {row['number'] + 1}: {row['value']:.4f}", row["number"] == best)
        for row in search["trials"]
        if row["state"] == "done"
    ]
    return points(f"{search['metric']} by trial, and the best so far", drawn, ("trial", search["metric"]), best_so_far=True)


def _setting(search: Document, name: str, best: int) -> str:
    range_ = search["ranges"][name]
    drawn = []
    for row in search["trials"]:
        value = (row["params"] or search["before"]).get(name)
        if row["state"] != "done" or value is None:
            continue
        along = _value_text(value) if range_["of"] or not isinstance(value, int | float) or isinstance(value, bool) else value
        drawn.append(
            PlotPoint(along, row["value"], f"trial {row['number'] + 1}: {_value_text(value)}, {row['value']:.4f}", row["number"] == best)
        )
    if not drawn:
        return f"<p>{escape(name)}: no successful trial used it.</p>"
    return points(f"{search['metric']} by {name}", drawn, (name, search["metric"]), log=range_["log"])


def _failures(search: Document) -> list[str]:
    rows = [
        f"<td>{row['number'] + 1}</td><td>{escape(_chosen(row))}</td><td>{escape(row['reason'] or '')}</td>"
        for row in search["trials"]
        if row["state"] == "failed"
    ]
    return ["<h2>Failed trials</h2>", table(("trial", "settings", "reason"), rows)] if rows else []


def _chosen(row: Document) -> str:
    return ", ".join(f"{name} {_value_text(value)}" for name, value in row["params"].items()) or "original settings"


def _value_text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
