"""Tools behind `eyas data` other than validation: each takes JSON arguments and returns its answer."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pipelines.data.conversion import convert_files
from pipelines.data.description import described
from pipelines.data.sets.archives import fetch_archive
from pipelines.data.sets.written import write_twin
from shared.contracts.datatools import Convert, Describe, DescribedData, Download, Downloaded, Synth, WrittenFiles
from shared.contracts.strict import read


def synth(arguments: Any) -> WrittenFiles:
    request = read(Synth, arguments, "the request")
    return WrittenFiles(rows=write_twin(request.name, Path(request.to), request.seed, request.rows, parquet=request.parquet, say=_say))


def download(arguments: Any) -> Downloaded:
    request = read(Download, arguments, "the request")
    return fetch_archive(request.name, Path(request.to), _say)


def describe(arguments: Any) -> DescribedData:
    request = read(Describe, arguments, "the request")
    with tempfile.TemporaryDirectory(prefix="eyas-data-") as scratch:
        return described(request.uri, request.top, Path(scratch))


def convert(arguments: Any) -> WrittenFiles:
    request = read(Convert, arguments, "the request")
    with tempfile.TemporaryDirectory(prefix=".eyas-data-", dir=_roomy(request.to)) as scratch:
        return WrittenFiles(rows=convert_files(request, Path(scratch)))


def _roomy(to: str) -> Path | None:
    """Returns the target's folder, which has room for the data; /tmp may be in memory."""
    folder = Path(to).absolute().parent
    return folder if folder.is_dir() and os.access(folder, os.W_OK) else None


def _say(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
