"""What `eyas features explain` asks for."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pipelines.data.sources import Reach
from pipelines.explain.document import explained
from pipelines.explain.fitting import fit_on_data, fit_on_nothing
from shared.contracts.explanation import ExplainRequest, Explanation
from shared.contracts.strict import read


def explain(told: Any) -> Explanation:
    request = read(ExplainRequest, told, "eyas features explain")
    with tempfile.TemporaryDirectory(prefix="eyas-explain-") as scratch:
        reach = Reach(request.roots, Path(scratch))
        spec = request.spec
        return explained(spec, fit_on_data(spec, reach, request.most) if request.data else fit_on_nothing(spec, reach))
