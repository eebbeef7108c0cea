"""Validation from the command line: the checks of a run, on a spec's data or any file."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from pipelines.data.column_guess import COLUMN_NAMES, Role, column_called
from pipelines.data.ids import with_kinds
from pipelines.data.interactions import open_interactions
from pipelines.data.sources import ReadableRoots, open_source
from pipelines.data.validation.judging import Judged, judge, refusal
from pipelines.data.validation.page import page
from pipelines.data.validation.profile import Profile
from pipelines.data.validation.tables import JudgedTables, judge_tables
from shared.contracts.datatools import Validated, ValidateRequest
from shared.contracts.sources import Place
from shared.contracts.spec import RecommenderSpec, parse_spec
from shared.contracts.strict import read
from shared.contracts.validation_report import PAGE, PROFILE, QUARANTINE, REPORT
from shared.domain.errors import Invalid

_SPECS = (".yaml", ".yml", ".json")


def validate(arguments: Any) -> Validated:
    request = read(ValidateRequest, arguments, "the request")
    with tempfile.TemporaryDirectory(prefix="eyas-validate-") as folder:
        scratch = Path(folder)
        reach = ReadableRoots(request.roots, scratch / "sources")
        spec = spec_of(request, reach)
        reach = with_kinds(spec, reach)
        _, judged = judge_rows(spec, reach, profile_of(request), Path(request.folder) if request.folder else scratch)
        refused = refusal(judged.report)
    return Validated(report=judged.report, refusal=str(refused) if refused else None)


def judge_rows(spec: RecommenderSpec, reach: ReadableRoots, accepted: Profile | None, to: Path) -> tuple[JudgedTables, Judged]:
    """Validates tables and interactions as a run does, and writes the report and the bad rows to the folder `to`."""
    scratch = reach.scratch / "validation"
    tables = judge_tables(spec, reach, accepted.tables if accepted else {}, to, scratch)
    judged = judge(open_interactions(spec, reach), spec, accepted, time.time(), to / QUARANTINE, scratch, tables)
    _write(to, judged)
    return tables, judged


def spec_of(request: ValidateRequest, reach: ReadableRoots) -> RecommenderSpec:
    if is_spec(request.source):
        path = Path(request.source)
        try:
            return parse_spec(path.read_text(encoding="utf-8"), path.name)
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    names = open_source(Place(uri=request.source), reach, ()).frame.collect_schema().names()
    columns = {role: request.columns.get(role) or _guess_column(role, names, request.source) for role in COLUMN_NAMES}
    schema = {**columns, "label": {"column": columns["label"], "positive": request.positive}}
    document = {"name": "file", "data": {"interactions": {"uri": request.source}}, "schema": schema}
    return read(RecommenderSpec, document, request.source)


def is_spec(source: str) -> bool:
    return Path(source).suffix.lower() in _SPECS


def _guess_column(role: Role, names: list[str], source: str) -> str:
    """Returns the column with the role's usual name."""
    column = column_called(role, names)
    if column is None:
        raise Invalid(f"{source}: {role} column not recognised; set --column {role}=NAME; columns: {', '.join(names[:20])}")
    return column


def profile_of(request: ValidateRequest) -> Profile | None:
    """Reads the profile to compare with, if the request names one."""
    path = request.against
    if path is None:
        return None
    try:
        return read(Profile, json.loads(Path(path).read_text()), path)
    except (OSError, ValueError) as error:
        raise Invalid(f"{path}: not a profile of an accepted batch: {error}") from None


def _write(folder: Path, judged: Judged) -> None:
    texts = {REPORT: judged.report.model_dump_json(indent=1), PAGE: page(judged.report)}
    if judged.profile is not None:
        texts[PROFILE] = judged.profile.model_dump_json(indent=1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise Invalid(f"{folder}: cannot be written: {error.strerror}") from None
