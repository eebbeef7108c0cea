"""Opens a data place given on the command line: the person's own file permissions apply, not the operator's roots."""

from __future__ import annotations

from pathlib import Path

from pipelines.data.sources import ReadableRoots, SourceRows, open_source
from shared.contracts.sources import Place
from shared.domain.object_uris import is_object, split


def open_anywhere(uri: str, scratch: Path) -> SourceRows:
    if is_object(uri):
        return open_source(Place(uri=uri), ReadableRoots((split(uri)[0],), scratch), ())
    return open_source(Place(uri=str(Path(uri).absolute())), ReadableRoots(("/",), scratch), ())
