"""Base of all contracts: frozen, and unknown fields are rejected with the closest known name.

A model may list `planned` names: fields that no code uses yet. They are rejected as not yet supported, so that no user relies on a setting
without effect.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from shared.contracts.error_text import fault_message
from shared.domain.errors import Invalid, Unsupported

M = TypeVar("M", bound=BaseModel)
SHOWN_FAULTS, LISTED_FAULTS = 10, 100


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    planned: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            fields = _fields(cls)
            for key in value:
                if key not in fields:
                    raise unknown_name("field", str(key), fields, cls.planned)
        return value


@functools.cache
def _fields(model: type[Strict]) -> frozenset[str]:
    """Returns the field names as written; cached, because every event needs them."""
    return frozenset(field.alias or name for name, field in model.model_fields.items())


def unknown_name(noun: str, name: str, known_names: Iterable[str], planned: Iterable[str] = ()) -> PydanticCustomError:
    """Returns the error of an unknown name, with the closest known name."""
    if name in planned:
        return PydanticCustomError("planned", "{what} '{name}' is not yet supported", {"what": noun, "name": name})
    names = sorted(known_names)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(names) or 'none'}"
    return PydanticCustomError("unknown", "unknown {what} '{name}': {hint}", {"what": noun, "name": name, "hint": hint})


def read(model: type[M], value: Any, source: str) -> M:
    """Validates an external value; the error lists the first faults in one line, each with its location."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = [(".".join(str(part) for part in fault["loc"]), fault) for fault in error.errors()]
        lines = [f"{place}: {fault_message(fault)}" if place else fault_message(fault) for place, fault in faults]
        kind = Unsupported if any(fault["type"] == "planned" for _, fault in faults) else Invalid
        more = [f"and {len(lines) - SHOWN_FAULTS} more"] if len(lines) > SHOWN_FAULTS else []
        refused = kind(one_line(f"{source}: " + "; ".join(lines[:SHOWN_FAULTS] + more)))
        refused.faults = tuple((one_line(place), one_line(fault_message(fault))) for place, fault in faults[:LISTED_FAULTS])
        raise refused from None


def without_default(schema: dict[str, Any]) -> None:
    """Removes a default that is an object or a union from a JSON schema; client generators fail on it."""
    del schema["default"]


def one_line(message: str) -> str:
    """Removes line breaks, which client input may contain."""
    return " ".join(message.splitlines())
