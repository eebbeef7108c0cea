"""The operator's settings: from the environment (`EYAS_...`) or the command line, read by wiring alone."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="EYAS_", extra="ignore")

    home: Path = Field(Path("var/eyas"), description="The one folder that holds all state.")
    port: int | None = Field(None, ge=0, le=65535, description="Of the API; 8080, or a free one where that is taken.")
    metrics_port: int | None = Field(None, ge=0, le=65535, description="Of /metrics; 9090, or a free one where that is taken.")
    data_roots: list[Path] = Field(
        default_factory=list, description="Folders that specs may read data from; the working folder's `data` if none."
    )
