"""`eyas features explain`: explains the features of a request's spec."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pipelines.data.sources import ReadableRoots
from pipelines.explain.document import explained
from pipelines.explain.fitting import fit_on_data, fit_on_nothing
from pipelines.features.reading import READS, Reads
from pipelines.models.families import FAMILIES, reads_of
from pipelines.models.plugins import is_own
from shared.contracts.explanation import ExplainRequest, Explanation
from shared.contracts.strict import read, unknown_name
from shared.domain.errors import Invalid


def explain(arguments: Any) -> Explanation:
    request = read(ExplainRequest, arguments, "eyas features explain")
    with tempfile.TemporaryDirectory(prefix="eyas-explain-") as scratch:
        reach = ReadableRoots(request.roots, Path(scratch))
        spec, reads = request.spec, _reads(request.family or request.spec.model.family, request.allow)
        fitted = fit_on_data(spec, reach, request.most, reads) if request.data else fit_on_nothing(spec, reach, reads)
        return explained(spec, fitted, request.family)


def _reads(family: str, allow: Collection[str]) -> Reads:
    """Returns the reading mode of a family; a reading mode is accepted too, for future families."""
    if is_own(family):
        return reads_of(family, allow)
    if family not in FAMILIES and family not in READS:
        raise Invalid(str(unknown_name("family", family, [*FAMILIES, *READS])))
    return reads_of(family) if family in FAMILIES else next(way for way in READS if way == family)
