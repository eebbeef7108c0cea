"""The operator's settings: from the environment (`EYAS_...`) or the command line, read by wiring alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from shared.domain.errors import Invalid

_PREFIX = "EYAS_"


def _paths(value: Any) -> Any:
    """The environment has one text: paths between colons, as in PATH."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        raise ValueError("write the paths with ':' between them, not as JSON")
    return [one for one in value.split(":") if one]


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="ignore")

    home: Path = Field(Path("var/eyas"), description="The one folder that holds all state.")
    port: int | None = Field(None, ge=0, le=65535, description="Of the API; 8080, or a free one where that is taken.")
    metrics_port: int | None = Field(None, ge=0, le=65535, description="Of /metrics; 9090, or a free one where that is taken.")
    data_roots: Annotated[list[Path], NoDecode, BeforeValidator(_paths)] = Field(
        default_factory=list, description="Folders that specs may read data from, ':' between them; the working folder's `data` if none."
    )

    max_runs: int = Field(4, ge=1, le=1000, description="Runs that are active at once, of all recommenders.")

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Settings:
        """`given` has the last word over the environment; a fault is one line that names the variable."""
        try:
            return cls(**given)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = str(first["loc"][0])
            named = field if field in given else _PREFIX + field.upper()
            said = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
            raise Invalid(f"{named}: {said}, got {str(first['input'])[:80]!r}") from None
        except SettingsError as error:
            raise Invalid(f"the environment's {_PREFIX} variables: {error}") from None
