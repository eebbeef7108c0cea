"""Report as an HTML page: no scripts, links or external content; values from the data are escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from pipelines.data.validation.figures import percent
from pipelines.data.validation.html_document import document
from shared.contracts.validation_report import QUARANTINE, Check, Distribution, Report, Section

_SAYS = {
    "pass": "Passed: the run uses this batch.",
    "warn": "Passed with warnings: the run uses this batch.",
    "stop": "Refused: the run does not use this batch.",
}
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --dim: #667; --paper: #fff; --line: #ddd; --bar: #4a7dbd; --old: #b9c3cf;
  --pass: #2e7d4f; --warn: #a86a00; --stop: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6ea; --dim: #99a; --paper: #16181c; --line: #333; --bar: #6ea3e6; --old: #4a525e;
  --pass: #6cc493; --warn: #e0a94a; --stop: #f2857c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } h3 { font-size: 1rem; margin-top: 1.5rem; }
h4 { font-size: .95rem; margin: 1rem 0 .3rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; color: var(--dim); font-weight: normal; }
td, th { border-bottom: 1px solid var(--line); padding: .25rem .6rem .25rem 0; vertical-align: top; overflow-wrap: anywhere; }
td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.pass { color: var(--pass); } .warn { color: var(--warn); font-weight: 600; } .stop { color: var(--stop); font-weight: 600; }
.bars td { border: 0; padding: .05rem .6rem .05rem 0; } .bars td:first-child { width: 12rem; }
.bar { height: .55rem; background: var(--bar); min-width: 1px; } .old { background: var(--old); }
.key span { display: inline-block; width: .8rem; height: .55rem; margin: 0 .3rem 0 .8rem; }
"""


def page(report: Report, quarantine: str = QUARANTINE) -> str:
    """Renders the page. `quarantine`: published file of the report's bad rows."""
    title = f"Validation of {report.source} for {report.recommender}"
    parts = [f'<p class="{report.verdict}">{_SAYS[report.verdict]}</p>', _rows(report), *_checks(report, quarantine)]
    if report.faulty:
        files = (
            f'<td>{escape(file.name)}</td><td class="n">{file.size:,}</td>'
            f"<td><code>{file.sha256[:16]}</code></td><td>{escape(file.fault)}</td>"
            for file in report.faulty
        )
        parts += ["<h3>Unreadable files</h3>", _table(("file", "bytes", "sha256", "fault"), files)]
    parts += _distributions(report)
    for section in report.sections:
        heading = "Events of the platform" if section.name == "events" else f"Table of {section.name}"
        parts += [f"<h2>{escape(f'{heading}: {section.source}')}</h2>", _counts(section), *_checks(section, section.quarantine)]
        parts += _distributions(section)
    return document(title, _STYLE, parts)


def _rows(report: Report) -> str:
    before = "nothing: no earlier accepted batch" if report.files else "nothing"
    beside = "the last accepted batch" if report.compared else before
    files = f"; {len(report.files):,} files used, {len(report.faulty):,} unreadable" if report.files or report.faulty else ""
    rows = report.rows
    views = "" if rows.pages is None else f" ({rows.pages:,} page views)"
    return f"<p>{rows.read:,} rows read, {rows.kept:,} kept{views}, {rows.quarantined:,} quarantined{files}. Compared with {beside}.</p>"


def _counts(section: Section) -> str:
    rows, beside = section.rows, "the last accepted batch" if section.compared else "nothing"
    return f"<p>{rows.read:,} rows read, {rows.kept:,} kept, {rows.quarantined:,} quarantined. Compared with {beside}.</p>"


def _checks(part: Report | Section, quarantine: str) -> list[str]:
    heads = ("", "check", "column", "figure", "warn above", "stop above", "result")
    blocks = ["<h3>Checks</h3>", _table(heads, map(_check, _by_weight(part.checks)))]
    if part.reasons:
        rows = (f'<td>{escape(reason)}</td><td class="n">{count:,}</td>' for reason, count in part.reasons.items())
        about = f"<p><code>{quarantine}</code> has these rows with their reasons; a row may have several reasons.</p>"
        blocks += ["<h3>Quarantined rows</h3>", about, _table(("reason", "rows"), rows)]
    return blocks


def _distributions(part: Report | Section) -> list[str]:
    if not part.distributions:
        return []
    key = '<p class="key"><span class="bar"></span>now<span class="bar old"></span>last accepted</p>' if part.compared else ""
    return ["<h3>Distributions</h3>", key, *map(_distribution, part.distributions)]


def _by_weight(checks: Iterable[Check]) -> list[Check]:
    return sorted(checks, key=lambda check: ("stop", "warn", "pass").index(check.verdict))


def _table(heads: Iterable[str], rows: Iterable[str]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    return f"<table><tr>{head}</tr>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def _check(check: Check) -> str:
    figures = "".join(f'<td class="n">{_figure(check, value)}</td>' for value in (check.figure, check.warn, check.stop))
    named = f"<td>{escape(check.name)}</td><td>{escape(check.column or '')}</td>"
    return f'<td class="{check.verdict}">{check.verdict}</td>{named}{figures}<td>{escape(check.says)}</td>'


def _figure(check: Check, value: float | None) -> str:
    if value is None:
        return "never"
    return f"{value:.3f}" if check.unit == "index" else percent(value)


def _distribution(distribution: Distribution) -> str:
    now, before = sum(bar.now for bar in distribution.bars) or 1, sum(bar.before or 0 for bar in distribution.bars) or 1
    most = max((max(bar.now / now, (bar.before or 0) / before) for bar in distribution.bars), default=1) or 1
    rows = []
    for bar in distribution.bars:
        drawn = f'<div class="bar" style="width:{bar.now / now / most:.1%}"></div>'
        if bar.before is not None:
            drawn += f'<div class="bar old" style="width:{bar.before / before / most:.1%}"></div>'
        rows.append(f'<tr><td>{escape(bar.name)}</td><td>{drawn}</td><td class="n">{bar.now:,}</td></tr>')
    return f'<h4>{escape(distribution.column)}</h4><table class="bars">{"".join(rows)}</table>'
