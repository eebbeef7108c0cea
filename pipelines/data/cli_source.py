"""Opens a data place given on the command line: the person's own file permissions apply, not the operator's roots."""

from __future__ import annotations

from pathlib import Path

from pipelines.data.sources import ReadableRoots, SourceRows, open_source
from shared.contracts.sources import Place, TextFormat
from shared.domain.object_uris import is_object, split


def open_anywhere(uri: str, scratch: Path, csv: TextFormat | None = None) -> SourceRows:
    place, root = (uri, split(uri)[0]) if is_object(uri) else (str(Path(uri).absolute()), "/")
    return open_source(Place(uri=place, csv=csv or TextFormat()), ReadableRoots((root,), scratch), ())
