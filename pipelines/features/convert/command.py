"""Implements `eyas features convert`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.features.convert import from_document
from shared.contracts.conversion import Conversion, ConvertRequest
from shared.contracts.strict import read
from shared.domain.errors import Invalid

_MOST = 64 << 20


def convert(arguments: Any) -> Conversion:
    path = Path(read(ConvertRequest, arguments, "eyas features convert").file)
    if path.stat().st_size > _MOST:
        raise Invalid(f"{path}: larger than 64 MiB; expected the configuration of a model")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise Invalid(f"{path}: not UTF-8 text; write JSON with model.to_json(), not with model.save()") from None
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{path}: not JSON: {error}") from None
    converted = from_document(document, path.parent, str(path))
    return Conversion(features=tuple(dict(feature) for feature in converted.features), notes=converted.notes)
