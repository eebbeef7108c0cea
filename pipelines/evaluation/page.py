"""The evaluation report as an HTML page: without scripts, links or external content. Text from the data is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from pipelines.data.validation.html_document import document
from pipelines.evaluation.plots import Dot, dots, legend, lines

STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --dim: #667; --paper: #fff; --line: #ddd; --warn: #a86a00;
  --c0: #2f6db5; --c1: #c4561a; --c2: #2e7d4f; --c3: #8d4bab; --c4: #a83250; --c5: #5b7f00; --c6: #00788a; --c7: #7a6a58; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6ea; --dim: #99a; --paper: #16181c; --line: #333; --warn: #e0a94a;
  --c0: #6ea3e6; --c1: #ef9a63; --c2: #6cc493; --c3: #c79be0; --c4: #f08ba4; --c5: #b0cf5a; --c6: #5cc7d6; --c7: #c3b39f; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th { text-align: left; color: var(--dim); font-weight: normal; } th.n { text-align: right; }
td, th { border-bottom: 1px solid var(--line); padding: .25rem .8rem .25rem 0; vertical-align: top; }
td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; } td small, .dim { color: var(--dim); }
.best { font-weight: 600; } .warn { color: var(--warn); font-weight: 600; }
figure { margin: 1.2rem 0; } figcaption { color: var(--dim); margin-bottom: .2rem; } svg { width: 100%; height: auto; max-width: 46rem; }
svg text { fill: var(--ink); } svg text.dim { fill: var(--dim); } svg .grid { stroke: var(--line); stroke-width: 1; }
svg g line { stroke: currentColor; stroke-width: 2; } svg g line.seed { stroke-width: 1; opacity: .55; }
svg g circle { fill: currentColor; } svg g polyline { fill: none; stroke: currentColor; stroke-width: 2; }
.legend .key { margin-right: 1.2rem; } .legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .35rem;
  background: currentColor; border-radius: 50%; vertical-align: -.08rem; }
""" + "".join(f".c{number} {{ color: var(--c{number}); }} " for number in range(8))
_LOW_IS_GOOD = frozenset(("log_loss", "calibration_error"))
_NO_BEST = ("coverage@", "novelty@", "calibration.se")
Document = Mapping[str, Any]


def page(report: Document) -> str:
    models: Document = report["models"]
    names = list(models)
    title = f"{report.get('title') or 'Evaluation'}: {', '.join(name for name in names if name != report['baseline']) or names[0]}"
    parts = [
        *(f"<p>{escape(line)}</p>" for line in report.get("summary", ())),
        "<h2>Figures</h2>",
        _figures(models),
        f'<p class="dim">{escape(_about_figures(models, report["level"]))}</p>',
        *_pictures(models, names, report["baseline"]),
        *_slices(models, names),
        *_calibrations(models),
        *_trainings(models),
        *_faults(report.get("faults", {})),
        *_how(report),
    ]
    return document(title, STYLE, parts)


def _figures(models: Document) -> str:
    """Returns a table with a row per metric and a column per model; the best value of a row is bold."""
    metrics = list(dict.fromkeys(name for model in models.values() for name in model["metrics"]))
    rows = []
    for metric in metrics:
        figures = [model["metrics"].get(metric) for model in models.values()]
        best = (
            None
            if metric.startswith(_NO_BEST) or metric == "calibration"
            else (min if metric in _LOW_IS_GOOD else max)(figure["mean"] for figure in figures if figure)
        )
        rows.append(f"<td>{escape(metric)}</td>" + "".join(_figure(figure, best, len(models) > 1) for figure in figures))
    return table(("metric", *models), rows, numbers=len(models))


def _figure(figure: Document | None, best: float | None, several: bool) -> str:
    if figure is None:
        return '<td class="n">-</td>'
    spread = f" ± {figure['std']:.4f}" if figure["seeds"] > 1 else ""
    interval = figure.get("interval")
    under = f"<br><small>{interval[0]:.4f} to {interval[1]:.4f}</small>" if interval else ""
    marked = " best" if several and figure["mean"] == best else ""
    return f'<td class="n{marked}">{figure["mean"]:.4f}{spread}{under}</td>'


def _about_figures(models: Document, level: float) -> str:
    seeds = max((model["metrics"][name]["seeds"] for model in models.values() for name in model["metrics"]), default=1)
    note = f"Below a figure: its {level:.0%} bootstrap interval over users."
    spread = f" ± is the standard deviation over {seeds} seeds." if seeds > 1 else ""
    return note + spread + " Metrics without '/' rank the full catalogue; hr@10/99 ranks among 99 negatives and does not replace hr@10."


def _pictures(models: Document, names: Sequence[str], baseline: str) -> list[str]:
    main = list(dict.fromkeys(metric for model in models.values() for part in model["slices"].values() for metric in part["metrics"]))
    main = main or [name for name in ("hr@10", "ndcg@10") if all(name in model["metrics"] for model in models.values())]
    parts = ["<h2>Plots</h2>"]
    for metric in main:
        rows = [_dot(name, model["metrics"][metric], number) for number, (name, model) in enumerate(models.items())]
        parts.append(dots(f"{metric}: mean, interval over users, seeds", rows))
    for name, model in models.items():
        if model["against_baseline"]:
            rows = [Dot(metric, of["difference"], of["interval"]) for metric, of in model["against_baseline"].items()]
            parts.append(dots(f"{name} minus {baseline}, paired by user", rows))
    first: Document = next(iter(models.values()))["curves"]
    for kind in (kind for kind in first if kind != "at"):
        among = "in the full catalogue" if kind == "full" else f"among {kind.split('/')[1]} negatives"
        curves = {name: model["curves"][kind] for name, model in models.items()}
        parts += [lines(f"Hit rate by list length, {among}", first["at"], curves, ("list length", "hit rate"))]
    return [*parts, legend(names)]


def _dot(label: str, figure: Document, colour: int) -> Dot:
    interval = figure.get("interval")
    return Dot(label, figure["mean"], tuple(interval) if interval else None, tuple(figure["values"]), colour)


def _slices(models: Document, names: Sequence[str]) -> list[str]:
    first: Document = next(iter(models.values()))["slices"]
    if not first:
        return []
    parts = ["<h2>Slices</h2>"]
    rows = [
        f"<td>{escape(name)}<br><small>{escape(part['rule'])}</small></td>"
        f'<td class="n">{part["cases"]:,}</td><td class="n">{part["users"]:,}</td>'
        for name, part in first.items()
    ]
    parts.append(table(("slice", "cases", "users"), rows, numbers=2))
    for metric in (name for name in next(iter(first.values()))["metrics"] if name.startswith("hr@")):
        drawn = [
            _dot(f"{part} {name}" if len(models) > 1 else part, model["slices"][part]["metrics"][metric], number)
            for part in first
            for number, (name, model) in enumerate(models.items())
        ]
        parts.append(dots(f"{metric} by slice", drawn))
    return [*parts, legend(names)]


def _calibrations(models: Document) -> list[str]:
    there = {name: model["calibration"] for name, model in models.items() if model["calibration"]}
    parts = ["<h2>Calibration</h2>"] if there else []
    for name, calibration in there.items():
        bins = calibration["bins"]
        title = f"{name}: share of positives by score; log-loss {calibration['log_loss']:.4f}, calibration error {calibration['error']:.4f}"
        if "ratio" in calibration:  # absent from reports of earlier releases
            title += f", mean score {calibration['ratio']:.3f} ± {calibration['ratio_error']:.3f} of the share of positives"
        along = [each["score"] for each in bins]
        parts.append(lines(title, along, {name: [each["liked"] for each in bins]}, ("mean score", "share of positives"), diagonal=True))
    return parts


def _trainings(models: Document) -> list[str]:
    rows = []
    for name, model in models.items():
        for run in model["runs"]:
            figures = [f"{key.removeprefix('train.')} {value:.4g}" for key, value in run.get("training", {}).items() if _is_number(value)]
            times = "".join(f'<td class="n">{_time(run.get(key))}</td>' for key in ("train_seconds", "judge_seconds"))
            rows.append(f'<td>{escape(name)}</td><td class="n">{run.get("seed", "-")}</td>{times}<td>{escape(", ".join(figures))}</td>')
    if not any("train_seconds" in run for model in models.values() for run in model["runs"]):
        return []
    return ["<h2>Training</h2>", table(("model", "seed", "training", "evaluation", "figures of the family"), rows)]


def _faults(faults: Mapping[str, Mapping[str, int]]) -> list[str]:
    rows = [
        f'<td>{escape(file)}</td><td>{escape(fault)}</td><td class="n warn">{count:,}</td>'
        for file, counts in faults.items()
        for fault, count in counts.items()
        if count
    ]
    return ["<h2>Faults in the files</h2>", table(("file", "fault", "count"), rows, numbers=1)] if rows else []


def _how(report: Document) -> list[str]:
    how = "".join(f"<li>{escape(line)}</li>" for line in report.get("how", ()))
    rows = [f"<td>{escape(name)}</td><td>{escape(str(value))}</td>" for name, value in _flat(report.get("settings", {}))]
    rows += [f"<td>{escape(name)}</td><td>{escape(str(value))}</td>" for name, value in _flat(report.get("data", {}))]
    return ["<h2>Method</h2>", f"<ul>{how}</ul>", table(("setting", "value"), rows)]


def _flat(values: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", f"{value:,}" if _is_number(value) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def table(heads: Sequence[str], rows: Iterable[str], numbers: int = 0) -> str:
    """Returns a table; the last `numbers` columns are right-aligned, except text columns after them."""
    text = len(heads) - numbers
    head = "".join(f'<th class="n">{escape(name)}</th>' if at >= text else f"<th>{escape(name)}</th>" for at, name in enumerate(heads))
    return f'<div class="wide"><table><tr>{head}</tr>' + "".join(f"<tr>{row}</tr>" for row in rows) + "</table></div>"
