"""The operator's settings, from the environment (`EYAS_...`) or the command line; only wiring reads them.

Secrets come from files or the environment, never from the command line; no message repeats a secret.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import socket
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from shared.contracts.error_text import fault_message
from shared.contracts.quantities import Duration
from shared.domain.errors import Invalid
from shared.secret_file import read_secret_file

_PREFIX = "EYAS_"
_HOST_PORT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?:([0-9]{1,5})")
_REPLICA = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_SECRETS = frozenset({"database_url", "database_password", "events", "features", "triton_key"})
_ORIGIN = re.compile(r"https?://[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?(:[0-9]{1,5})?")
_NATS = re.compile(r"(nats|tls)://[^\s/,]+")
_REDIS = re.compile(r"rediss?://[^\s/,]+(/[0-9]{1,4})?")
_OTHERS = frozenset(
    _PREFIX + name
    for name in (
        *("URL", "TOKEN", "DEBUG", "SCALE", "CASES", "RANK", "WORLD_SIZE", "MASTER", "MASTER_PORT"),
        *("DASK", "NVTABULAR_DEVICE", "GPU_MEMORY"),
    )
)
"""Variables of the command line, the benchmarks and the stages."""
_ELSEWHERE = (f"{_PREFIX}TEST_", f"{_PREFIX}CRASH_", f"{_PREFIX}ARTIFACTS_AWS_")

Role = Literal["all", "control", "gateway"]


def _paths(value: Any) -> Any:
    """Splits the environment's text at colons, as in PATH, but not in s3://."""
    if not isinstance(value, str):
        return [str(path) for path in value] if isinstance(value, list) else value
    if value.lstrip().startswith("["):
        raise ValueError("write the paths with ':' between them, not as JSON")
    return [path for path in re.split(r":(?!//)", value) if path]


def _modules(value: Any) -> Any:
    modules = [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value
    for name in modules if isinstance(modules, list) else ():
        if not _MODULE.fullmatch(str(name)):
            raise ValueError(f"names of modules such as acme.recommenders are expected, ',' between them: '{name}' is none")
    return modules


def _host(value: str) -> str:
    try:
        return str(ipaddress.IPv4Address(value))
    except ValueError:
        raise ValueError("an IPv4 address is expected, such as 127.0.0.1, or 0.0.0.0 for all of this machine's") from None


def _triton(value: str) -> str:
    """Checks the addresses; services.triton.addresses parses them, which settings may not import."""
    addresses = [value.removeprefix("dns:")] if value.startswith("dns:") else value.split(",")
    matches = [_HOST_PORT.fullmatch(address.strip()) for address in addresses]
    if value != "embedded" and not (
        all(match and 0 < int(match[2]) < 65536 for match in matches) and len(set(addresses)) == len(addresses)
    ):
        raise ValueError(
            "'embedded', the address of a Triton's gRPC is expected (eyas-triton:8001), several with ',' between them, or dns:NAME:PORT"
        )
    return value


def _gateway(value: str) -> str:
    if not _ORIGIN.fullmatch(value):
        raise ValueError("http://HOST:PORT or https://HOST:PORT is expected, with nothing behind it")
    return value


def _events(value: Any) -> Any:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if not isinstance(text, str) or (text != "sql" and not all(_NATS.fullmatch(server.strip()) for server in text.split(","))):
        raise ValueError("'sql' or nats://user:password@host:4222 is expected (tls://... with TLS), several with ',' between them")
    return value


def _features(value: Any) -> Any:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if not isinstance(text, str) or (text != "sql" and not _REDIS.fullmatch(text)):
        raise ValueError("'sql' or redis://:password@host:6379/0 is expected (rediss://... with TLS)")
    return value


def _replica(value: str) -> str:
    if not _REPLICA.fullmatch(value):
        raise ValueError("lower-case letters, digits, dots and dashes are expected, at most 63, as in a pod's name")
    return value


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="ignore", hide_input_in_errors=True)

    role: Role = Field("all", description="What this process is: all of the platform, its control plane, or one of its gateways.")
    home: Path = Field(Path("var/eyas"), description="The folder that holds all state that isn't put elsewhere.")
    host: Annotated[str, AfterValidator(_host)] = Field("127.0.0.1", description="The address to listen at.")
    port: int | None = Field(None, ge=0, le=65535, description="Of the API; 8080, or a free one where that is taken.")
    metrics_port: int | None = Field(None, ge=0, le=65535, description="Of /metrics; 9090, or a free one where that is taken.")
    data_roots: Annotated[list[str], NoDecode, BeforeValidator(_paths)] = Field(
        default_factory=list,
        description="Folders, and s3://BUCKET/PREFIX, specs may read from, ':' between them; the working folder's `data` if none.",
    )
    families: Annotated[list[str], NoDecode, BeforeValidator(_modules)] = Field(
        default_factory=list,
        description="Python modules of which specs may name a model family (`module:Class`), ',' between them; they are installed where "
        "stages run. None if absent.",
    )
    databases: Path | None = Field(
        None, description="A file with the databases that specs may query: one `name: URL` a line (postgresql:// or sqlite:///FILE)."
    )
    database_url: SecretStr | None = Field(None, description="sqlite:///FILE or postgresql://...; eyas.db in the home if absent.")
    database_password: SecretStr | None = Field(None, description="Of the database URL, where that has none.")
    database_password_file: Path | None = Field(None, description="A file that holds it, instead.")
    events: Annotated[SecretStr, BeforeValidator(_events)] = Field(
        SecretStr("sql"),
        description="Where events are taken in: 'sql' is the database itself; nats://HOST:4222 a NATS server with JetStream, out of which "
        "the control plane carries them into the database.",
    )
    features: Annotated[SecretStr, BeforeValidator(_features)] = Field(
        SecretStr("sql"),
        description="Where gateways read users' values: 'sql' is the database itself; redis://HOST:6379/0 a Redis server, which is filled "
        "anew where it loses them.",
    )
    artifacts_url: str | None = Field(
        None, description="A folder, s3://BUCKET/PREFIX, or any URL that fsspec knows; artifacts/ in the home if absent."
    )
    executor: Literal["local", "kubernetes"] = Field("local", description="Where stages run.")
    jobs_file: Path | None = Field(None, description="What the Jobs of executor=kubernetes look like.")
    triton: Annotated[str, AfterValidator(_triton)] = Field(
        "embedded",
        description="'embedded', or HOST:PORT of a Triton that reads the same model repository; several with ',' between them, or "
        "dns:NAME:PORT for every address of a name.",
    )
    triton_replicas: int = Field(1, ge=1, le=16, description="How many embedded Tritons serve.")
    gateway_url: Annotated[str, AfterValidator(_gateway)] | None = Field(
        None, description="Of a control plane: where its console asks the gateways for recommendations, such as http://eyas-gateway:8080."
    )
    triton_key: SecretStr | None = Field(
        None, description="What those Tritons want to hear from whoever loads and unloads models: their own EYAS_TRITON_KEY."
    )
    triton_tls: Path | None = Field(
        None,
        description="The folder with ca.crt, tls.crt and tls.key for mutual TLS with those Tritons; plain text if absent.",
    )
    triton_home: Path | None = Field(
        None,
        description="The folder with the model repository (with several Tritons: a folder for each in it); triton/ in the home if absent.",
    )
    nvtabular_python: Path | None = Field(
        None,
        description="NVTabular's interpreter, for specs that choose that engine; that of .venv-nvtabular if there is one.",
    )
    token_file: Path | None = Field(None, description="A file with the API's first token; made in the home if absent.")
    drain: Duration | None = Field(
        None,
        description="How long a process that SIGTERM asked to end still answers, as not ready, such as 5s; it ends at once if absent.",
    )
    replica: Annotated[str, AfterValidator(_replica)] | None = Field(
        None, description="This process's name among its like, such as its pod's; the machine's if absent."
    )

    @model_validator(mode="after")
    def _fits(self) -> Settings:
        if self.role != "all" and self.triton == "embedded":
            raise ValueError(f"a platform in parts shares its Tritons: the role '{self.role}' needs EYAS_TRITON, their HOST:PORT")
        if self.triton_replicas > 1 and self.triton != "embedded":
            raise ValueError("the number of embedded Tritons is EYAS_TRITON_REPLICAS; of others, EYAS_TRITON names each")
        if self.role == "gateway" and self.token_file is None:
            raise ValueError("a gateway needs the token of its control plane: set EYAS_TOKEN_FILE")
        if self.executor == "kubernetes" and self.jobs_file is None:
            raise ValueError("executor=kubernetes needs to know what its Jobs look like: set EYAS_JOBS_FILE")
        if self.database_password is not None and self.database_password_file is not None:
            raise ValueError("set EYAS_DATABASE_PASSWORD or EYAS_DATABASE_PASSWORD_FILE, not both")
        return self

    @property
    def owns_home(self) -> bool:
        """Whether no other process may use the home. With a database server several control planes use it; gateways only read it."""
        url = self.database_url.get_secret_value() if self.database_url else "sqlite:"
        return self.role == "all" or (self.role == "control" and url.startswith("sqlite"))

    @property
    def name(self) -> str:
        return self.replica or socket.gethostname().lower()

    @property
    def triton_alone(self) -> bool:
        """Whether one fixed address is set: then its folder is the home itself."""
        return not self.triton.startswith("dns:") and "," not in self.triton

    def password(self) -> str | None:
        if self.database_password_file is None:
            return self.database_password.get_secret_value() if self.database_password else None
        return read_secret(self.database_password_file, "database_password_file")

    keep_versions: int = Field(10, ge=1, le=10_000, description="The newest versions of each recommender that are kept in any case.")
    keep_served: Duration = Field(timedelta(days=30), description="How long a version is kept after it left the route, such as 30d.")
    keep_runs: Duration = Field(timedelta(days=30), description="How long what an ended run published is kept, such as 30d.")
    collect_every: int = Field(60, ge=0, le=10_000, description="Minutes between collections of garbage; 0: never by itself.")
    compact_every: int = Field(60, ge=0, le=10_000, description="Minutes between looks for days of events to write as Parquet; 0: never.")
    connections: int = Field(
        4096, ge=16, le=60_000, description="Connections to the API that are open at once; fewer where fewer files may be open."
    )
    max_runs: int = Field(4, ge=1, le=1000, description="Runs that are active at once, of all recommenders.")
    max_pending_runs: int = Field(
        20, ge=1, le=10_000, description="Runs of one recommender that may wait to begin; one more is refused with 409."
    )
    control_rate: float = Field(
        30,
        ge=0,
        le=1e9,
        description="Units a second that one token may spend on writes of the control plane in this process, 20 seconds' worth at once: "
        "an apply or a validation costs 5, a run 2, any other write 1, and each 4 KiB of a body 1. Above it requests are refused with 429; "
        "0: no limit.",
    )
    online_rate: float = Field(
        5000,
        ge=0,
        le=1e9,
        description="Units a second that one token may spend on recommendations, events, items and features in this process, 5 seconds' "
        "worth at once: a request costs 1, and each KiB of its body 1. 0: no limit.",
    )
    recommender_rate: float = Field(20_000, ge=0, le=1e9, description="The same of one recommender, by all tokens together. 0: no limit.")
    failure_rate: float = Field(
        10,
        ge=0,
        le=1e9,
        description="Unknown tokens a second that one client address may send to this process, 10 seconds' worth at once. Above it a token "
        "is looked up only if it was good before. 0: no limit.",
    )

    @classmethod
    def read(cls, overrides: Mapping[str, Any]) -> Settings:
        """Reads the settings; `overrides` win over the environment. Raises Invalid with one line that names the variable."""
        try:
            return cls(**overrides)
        except ValidationError as error:
            raise Invalid(_message(error, overrides)) from None
        except SettingsError as error:
            raise Invalid(f"the environment's {_PREFIX} variables: {error}") from None


def strange(environment: Mapping[str, str]) -> list[str]:
    """Returns a line per variable that looks like a setting but is none: a typo would silently leave the default in force."""
    known_names = {_PREFIX + name.upper() for name in Settings.model_fields} | _OTHERS
    lines = []
    for name, value in sorted(environment.items()):
        if not name.upper().startswith(_PREFIX) or name.upper() in known_names or name.startswith(_ELSEWHERE) or _of_a_service(name, value):
            continue
        near = difflib.get_close_matches(name.upper(), known_names, 1)
        lines.append(f"{name}: there is no such setting, so it changes nothing" + (f"; is {near[0]} meant?" if near else ""))
    return lines


def _of_a_service(name: str, value: str) -> bool:
    """Whether Kubernetes set the variable, as it does in every pod for the namespace's Services."""
    return "_SERVICE_" in name or re.search("_PORT_[0-9]+_", name) is not None or (name.endswith("_PORT") and "://" in value)


def read_secret(path: Path, setting: str) -> str:
    """Returns a file's only line, stripped."""
    try:
        secret = read_secret_file(path).strip()
    except Invalid as error:
        raise Invalid(f"{_PREFIX}{setting.upper()}: {error}") from None
    if not secret or len(secret.splitlines()) > 1:
        raise Invalid(f"{_PREFIX}{setting.upper()}: {path} must hold one line, found {'none' if not secret else 'more'}")
    return secret


def _message(error: ValidationError, overrides: Mapping[str, Any]) -> str:
    first = error.errors(include_url=False)[0]
    if not first["loc"]:
        return fault_message(first)
    field = str(first["loc"][0])
    named = field if field in overrides else _PREFIX + field.upper()
    message = fault_message(first, secret=field in _SECRETS)
    got = "" if field in _SECRETS or ", got " in message else f", got {str(first['input'])[:80]!r}"
    return f"{named}: {message}{got}"
