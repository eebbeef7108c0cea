"""Validates every YAML block of the documents: `python -m docs.yaml_blocks` prints each fault and fails if there is one.

The word after ```yaml is the label of a block, in the form of a file name:

- `part-of-a-spec.yaml`: part of a recommender spec, merged into the smallest complete one.
- `wrong.yaml`: a complete spec that must be rejected.
- any other name, where the block says `apiVersion: eyas/v1`: a complete spec.
- `values*.yaml`: values of the chart, by helm/eyas/values.schema.json.
- `jobs.yaml`: the settings of stages as Kubernetes Jobs.
- `databases.yaml`: names and URLs of databases.
- `grafana.yaml`, `kubernetes.yaml`, `prometheus.yaml`: for these programs; only its syntax is checked.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import jsonschema
from markdown_it import MarkdownIt

from services.executors.jobsettings import JobSettings
from shared.contracts.spec import API_VERSION, RecommenderSpec
from shared.contracts.strict import read
from shared.contracts.yaml12 import load
from shared.datafiles.databases import VARIABLE, databases
from shared.domain.errors import EyasError, Invalid

ROOT = Path(__file__).parents[1]
SMALLEST: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "name": "movies",
    "data": {"interactions": {"uri": "ratings.parquet"}, "items": {"uri": "movies.parquet", "key": "movieId"}},
    "schema": {"user": "userId", "item": "movieId", "time": "timestamp", "label": {"column": "rating", "positive": ">= 4"}},
}
SYNTAX_ONLY = ("grafana.yaml", "kubernetes.yaml", "prometheus.yaml")
LABELS = ("part-of-a-spec.yaml", "wrong.yaml", "values*.yaml", "jobs.yaml", "databases.yaml", *SYNTAX_ONLY)


def faults(text: str, document: str) -> Iterator[str]:
    """Yields a line for each block that does not match its label."""
    for line, label, content in blocks(text):
        place = f"{document}:{line}"
        try:
            _validate(label, load(content, place), place)
        except (EyasError, jsonschema.ValidationError) as error:
            message = error.message if isinstance(error, jsonschema.ValidationError) else str(error)
            yield message if message.startswith(place) else f"{place}: {message}"


def blocks(text: str) -> Iterator[tuple[int, str, str]]:
    """Yields line, label and content of each YAML block."""
    for token in MarkdownIt().parse(text):
        language, _, label = token.info.strip().partition(" ")
        if token.type == "fence" and language in ("yaml", "yml") and token.map:
            yield token.map[0] + 1, label.strip(), token.content


def spec_of(label: str, value: Any) -> Any:
    """Returns the complete spec of a block; None if the block is not an accepted spec."""
    if label.rpartition("/")[2] == "part-of-a-spec.yaml":
        return _merged(SMALLEST, value)
    is_spec = isinstance(value, Mapping) and value.get("apiVersion") == API_VERSION
    return value if is_spec and not any(fnmatch(label.rpartition("/")[2], pattern) for pattern in LABELS) else None


def _validate(label: str, value: Any, place: str) -> None:
    name = label.rpartition("/")[2]
    kind = next((pattern for pattern in LABELS if fnmatch(name, pattern)), None)
    if (spec := spec_of(label, value)) is not None:
        read(RecommenderSpec, spec, place)
    elif kind == "wrong.yaml":
        try:
            read(RecommenderSpec, value, place)
        except EyasError:
            return
        raise Invalid("the spec is accepted: a block labelled wrong.yaml must be rejected; use another label")
    elif kind == "values*.yaml":
        jsonschema.validate(value, json.loads((ROOT / "helm/eyas/values.schema.json").read_text()))
    elif kind == "jobs.yaml":
        read(JobSettings, value, place)
    elif kind == "databases.yaml":
        with tempfile.NamedTemporaryFile("w", suffix=name) as file:
            json.dump(value, file)
            file.flush()
            databases({VARIABLE: file.name})
    elif kind is None:
        raise Invalid(f"unknown kind of YAML block: begin it with ```yaml NAME, where NAME is one of {', '.join(LABELS)}")


def _merged(base: Any, part: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(part, Mapping):
        return {**base, **{key: _merged(base.get(key), value) for key, value in part.items()}}
    return part


def main() -> int:
    paths = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    messages = [message for path in paths for message in faults(path.read_text(), str(path.relative_to(ROOT)))]
    sys.stderr.write("".join(f"{message}\n" for message in messages))
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
