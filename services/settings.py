"""The operator's settings, from the environment (`EYAS_...`) or the command line; only wiring reads them.

Secrets come from files or the environment, never from the command line; no message repeats a secret.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
import socket
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from shared.contracts.error_text import fault_message
from shared.contracts.keeping import LEAST_KEPT
from shared.contracts.quantities import Duration, write_duration
from shared.domain.access import Role as AccessRole
from shared.domain.errors import Invalid
from shared.domain.naming import NAME
from shared.domain.segments import is_protected
from shared.secret_file import read_secret_file

_PREFIX = "EYAS_"
_HOST_PORT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?:([0-9]{1,5})")
_REPLICA = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_SECRETS = frozenset(
    {"database_url", "database_password", "events", "features", "triton_key", "oidc_issuer", "console_url", "audit_export"}
)
"""Settings whose text no message repeats: secrets, and addresses, which may contain a password by mistake."""
_ORIGIN = re.compile(r"https?://[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?(:[0-9]{1,5})?")
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?")
_COLLECTOR = re.compile(r"https?://[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*(:[0-9]{1,5})?(/[^\s?#@]*)?")
_NATS = re.compile(r"(nats|tls)://[^\s/,]+")
_REDIS = re.compile(r"rediss?://[^\s/,]+(/[0-9]{1,4})?")
_OTHERS = frozenset(
    _PREFIX + name
    for name in (
        *("URL", "TOKEN", "DEBUG", "SCALE", "CASES", "RANK", "WORLD_SIZE", "MASTER", "MASTER_PORT"),
        *("DASK", "DASK_FOLDER", "DASK_TLS", "GPU_MEMORY"),
    )
)
"""Variables of the command line, the benchmarks and the stages."""
_ELSEWHERE = (f"{_PREFIX}TEST_", f"{_PREFIX}CRASH_", f"{_PREFIX}ARTIFACTS_AWS_")

Role = Literal["all", "control", "gateway"]


def _paths(value: Any) -> Any:
    """Splits the environment's text at colons, as in PATH, but not in s3://, gs:// and az://."""
    if not isinstance(value, str):
        return [str(path) for path in value] if isinstance(value, list) else value
    if value.lstrip().startswith("["):
        raise ValueError("expected paths separated by ':', not JSON")
    return [path for path in re.split(r":(?!//)", value) if path]


def _modules(value: Any) -> Any:
    modules = [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value
    for name in modules if isinstance(modules, list) else ():
        if not _MODULE.fullmatch(str(name)):
            raise ValueError(f"expected module names such as acme.recommenders, separated by ',', got '{name}'")
    return modules


def _hosts(value: Any) -> Any:
    hosts = [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value
    for name in hosts if isinstance(hosts, list) else ():
        if not _HOST_NAME.fullmatch(str(name)):
            raise ValueError(f"expected names of hosts such as images.example.com, without a port, separated by ',', got '{name}'")
    return hosts


def _proxies(value: Any) -> Any:
    proxies = [text.strip() for text in value.split(",") if text.strip()] if isinstance(value, str) else value
    for text in proxies if isinstance(proxies, list) else ():
        try:
            everyone = text == "*" or ipaddress.ip_network(text).prefixlen == 0
        except ValueError:
            example = "addresses, or networks without host bits, such as 10.0.7.4 or 10.244.0.0/16"
            raise ValueError(f"expected {example}, separated by ',', got '{text}'") from None
        if everyone:
            raise ValueError(f"expected only your proxies, because everyone else could forge an address, got '{text}'")
    return proxies


def _host(value: str) -> str:
    try:
        return str(ipaddress.IPv4Address(value))
    except ValueError:
        raise ValueError("expected an IPv4 address such as 127.0.0.1, or 0.0.0.0 for all addresses of this machine") from None


def _triton(value: str) -> str:
    """Checks the addresses; services.triton.addresses parses them, which settings may not import."""
    addresses = [value.removeprefix("dns:")] if value.startswith("dns:") else value.split(",")
    matches = [_HOST_PORT.fullmatch(address.strip()) for address in addresses]
    if value != "embedded" and not (
        all(match and 0 < int(match[2]) < 65536 for match in matches) and len(set(addresses)) == len(addresses)
    ):
        raise ValueError("expected 'embedded', HOST:PORT of Triton's gRPC (several separated by ','), or dns:NAME:PORT")
    return value


def _gateway(value: str) -> str:
    if not _ORIGIN.fullmatch(value):
        raise ValueError("expected http://HOST:PORT or https://HOST:PORT, without a path")
    return value


def _events(value: Any) -> Any:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if not isinstance(text, str) or (text != "sql" and not all(_NATS.fullmatch(server.strip()) for server in text.split(","))):
        raise ValueError("expected 'sql' or nats://user:password@host:4222 (tls://... with TLS), several separated by ','")
    return value


def _features(value: Any) -> Any:
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if not isinstance(text, str) or (text != "sql" and not _REDIS.fullmatch(text)):
        raise ValueError("expected 'sql' or redis://:password@host:6379/0 (rediss://... with TLS)")
    return value


def _issuer(value: str) -> str:
    if not is_protected(value) or set(value) & set("?#"):
        raise ValueError("expected https://HOST[/PATH], exactly as the provider writes it (http only for 127.0.0.1 and localhost)")
    return value


def _origin(value: str) -> str:
    if not is_protected(value) or not _ORIGIN.fullmatch(value):
        raise ValueError("expected https://HOST[:PORT] without a path (http only for 127.0.0.1 and localhost)")
    return value


def _audit_export(value: str) -> str:
    is_path = value.startswith("/") and not value.endswith("/")
    if not is_path and not _COLLECTOR.fullmatch(value):
        raise ValueError("expected an absolute path of a file, or http(s)://HOST[:PORT][/PATH] without a user or a query")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name is there twice")
    return values


def _json_object(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, object_pairs_hook=_without_duplicates)
    except ValueError:
        raise ValueError('expected JSON such as {"GROUP": {"role": "viewer"}}, each group once') from None


def _replica(value: str) -> str:
    if not _REPLICA.fullmatch(value):
        raise ValueError("expected lower-case letters, digits, dots and dashes, at most 63, as in a pod's name")
    return value


def _at_least(least: timedelta) -> AfterValidator:
    def check(value: timedelta) -> timedelta:
        if value < least:
            raise ValueError(f"expected at least {write_duration(least)}, got {write_duration(value)}")
        return value

    return AfterValidator(check)


class GroupRole(BaseModel):
    """Role of a group of the identity provider."""

    model_config = ConfigDict(extra="forbid")

    role: AccessRole
    recommenders: Annotated[list[Annotated[str, Field(pattern=NAME.pattern)]], Field(min_length=1)] | None = None


KeptTime = Annotated[Duration, _at_least(LEAST_KEPT)]


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="ignore", hide_input_in_errors=True)

    role: Role = Field("all", description="Role of this process: the whole platform, its control plane, or one of its gateways.")
    log: Literal["text", "json"] = Field("text", description="Format of log lines, of stages too: `text`, or one JSON object per line.")
    home: Path = Field(Path("var/eyas"), description="Folder of all state that is not stored elsewhere.")
    host: Annotated[str, AfterValidator(_host)] = Field("127.0.0.1", description="Address to listen on.")
    trusted_proxies: Annotated[list[str], NoDecode, BeforeValidator(_proxies)] = Field(
        default_factory=list,
        description="Addresses and networks (CIDR) of proxies whose X-Forwarded-Proto and X-Forwarded-For are believed, separated by ','; "
        "none if absent.",
    )
    port: int | None = Field(None, ge=0, le=65535, description="Port of the API: 8080, or a free port if 8080 is taken.")
    metrics_port: int | None = Field(None, ge=0, le=65535, description="Port of /metrics: 9090, or a free port if 9090 is taken.")
    data_roots: Annotated[list[str], NoDecode, BeforeValidator(_paths)] = Field(
        default_factory=list,
        description="Data roots of specs: folders and s3://BUCKET/PREFIX (or gs://, az://), separated by ':'; `data` in the working folder "
        "if absent.",
    )
    families: Annotated[list[str], NoDecode, BeforeValidator(_modules)] = Field(
        default_factory=list,
        description="Python modules of custom model families (`module:Class`), separated by ','; they must be installed where stages run. "
        "None if absent.",
    )
    databases: Path | None = Field(
        None, description="File with the databases that specs may query: one `name: URL` per line (postgresql:// or sqlite:///FILE)."
    )
    database_url: SecretStr | None = Field(None, description="Database: sqlite:///FILE or postgresql://...; eyas.db in the home if absent.")
    database_password: SecretStr | None = Field(None, description="Password of the database, if the URL has none.")
    database_password_file: Path | None = Field(None, description="File with the password of the database, instead.")
    events: Annotated[SecretStr, BeforeValidator(_events)] = Field(
        SecretStr("sql"),
        description="Store of incoming events: 'sql', the database; or nats://HOST:4222, a NATS server with JetStream, from which the "
        "control plane moves them to the database.",
    )
    features: Annotated[SecretStr, BeforeValidator(_features)] = Field(
        SecretStr("sql"),
        description="Store of user values for gateways: 'sql', the database; or redis://HOST:6379/0, a Redis server, which is filled "
        "again if it loses them.",
    )
    artifacts_url: str | None = Field(
        None,
        description="Artifact store: a folder, s3://BUCKET/PREFIX (or gs://, az://), or any URL that fsspec supports; artifacts/ in the "
        "home if absent.",
    )
    executor: Literal["local", "kubernetes"] = Field("local", description="Executor of stages.")
    jobs_file: Path | None = Field(None, description="File with the configuration of Jobs, for executor=kubernetes.")
    triton: Annotated[str, AfterValidator(_triton)] = Field(
        "embedded",
        description="'embedded', or HOST:PORT of a Triton that reads the same model repository; several separated by ',', or "
        "dns:NAME:PORT for all addresses of a name.",
    )
    triton_replicas: int = Field(1, ge=1, le=16, description="Number of embedded Tritons.")
    gateway_url: Annotated[str, AfterValidator(_gateway)] | None = Field(
        None, description="URL of the gateways for the console of a control plane, such as http://eyas-gateway:8080."
    )
    image_hosts: Annotated[list[str], NoDecode, BeforeValidator(_hosts)] = Field(
        default_factory=list,
        description="Hosts from which the console shows pictures of items over https, separated by ','; none if absent.",
    )
    triton_key: SecretStr | None = Field(
        None, description="Key of the Tritons for loading and unloading models: their own EYAS_TRITON_KEY."
    )
    triton_tls: Path | None = Field(
        None, description="Folder with ca.crt, tls.crt and tls.key for mutual TLS with the Tritons; no TLS if absent."
    )
    triton_home: Path | None = Field(
        None, description="Folder with the model repository (for several Tritons: with one folder for each); triton/ in the home if absent."
    )
    nvtabular_python: Path | None = Field(
        None, description="Python interpreter with NVTabular, for specs with that engine; the one of .venv-nvtabular if absent."
    )
    cudf_python: Path | None = Field(
        None,
        description="Python interpreter with cudf-polars (images/etl-gpu.lock), for etl with `gpu` on this machine; without it such stages "
        "run on the CPU.",
    )
    token_file: Path | None = Field(None, description="File with the API's first token; created in the home if absent.")
    oidc_issuer: Annotated[str, AfterValidator(_issuer)] | None = Field(
        None, description="OpenID Connect provider whose JWTs are accepted, such as https://sso.example.com/realms/ml; none if absent."
    )
    oidc_audience: str | None = Field(None, min_length=1, description="Audience of the provider's JWTs that the API accepts.")
    oidc_client_id: str | None = Field(
        None, min_length=1, description="Client of the provider for the sign-in to the console; no such sign-in if absent."
    )
    oidc_client_secret_file: Path | None = Field(None, description="File with the client's secret; none for a public client.")
    oidc_scopes: str = Field("openid email profile", description="Scopes of the sign-in, such as `openid email groups`.")
    oidc_groups_claim: str = Field("groups", description="Claim with the groups of a user.")
    oidc_name_claim: str = Field("email", description="Claim with the name for histories and the audit log; the subject if it is missing.")
    oidc_roles: Annotated[dict[str, GroupRole], NoDecode, BeforeValidator(_json_object)] = Field(
        default_factory=dict,
        description='Roles of groups as JSON: `{"ml-admins": {"role": "admin"}, "shop": {"role": "operator", "recommenders": ["films"]}}`. '
        "Of several groups the highest role counts, with the recommenders of all groups that have it.",
    )
    console_url: Annotated[str, AfterValidator(_origin)] | None = Field(
        None, description="Address of the console in browsers, for the provider's redirect to ADDRESS/login/callback."
    )
    audit_export: Annotated[str, AfterValidator(_audit_export)] | None = Field(
        None, description="Export of the audit log as JSON lines: an absolute path of a file, or the http(s) address of a collector."
    )
    audit_export_token_file: Path | None = Field(None, description="File with the collector's bearer token.")
    drain: Duration | None = Field(
        None, description="Time for which a process still answers after SIGTERM, as not ready, such as 5s; none if absent."
    )
    replica: Annotated[str, AfterValidator(_replica)] | None = Field(
        None, description="Name of this process among its replicas, such as its pod's name; the machine's name if absent."
    )

    @model_validator(mode="after")
    def _fits(self) -> Settings:
        if self.role != "all" and self.triton == "embedded":
            raise ValueError(f"role '{self.role}' needs EYAS_TRITON, the HOST:PORT of the Tritons that all parts share")
        if self.triton_replicas > 1 and self.triton != "embedded":
            raise ValueError("embedded Tritons alone use EYAS_TRITON_REPLICAS; list other Tritons in EYAS_TRITON")
        if self.role == "gateway" and self.token_file is None:
            raise ValueError("a gateway needs the token of its control plane; set EYAS_TOKEN_FILE")
        if self.executor == "kubernetes" and self.jobs_file is None:
            raise ValueError("executor=kubernetes needs a configuration of its Jobs; set EYAS_JOBS_FILE")
        if self.database_password is not None and self.database_password_file is not None:
            raise ValueError("set EYAS_DATABASE_PASSWORD or EYAS_DATABASE_PASSWORD_FILE, not both")
        if self.audit_export_token_file is not None and not is_protected(self.audit_export or ""):
            raise ValueError("EYAS_AUDIT_EXPORT_TOKEN_FILE needs EYAS_AUDIT_EXPORT with an https address: others could read the token")
        self._check_oidc()
        return self

    def _check_oidc(self) -> None:
        if self.oidc_issuer is None:
            used = [
                name
                for name in ("oidc_audience", "oidc_client_id", "oidc_client_secret_file", "oidc_roles", "console_url")
                if getattr(self, name)
            ]
            if used:
                raise ValueError(f"{_PREFIX}{used[0].upper()} needs the provider: set EYAS_OIDC_ISSUER")
            return
        if self.oidc_audience is None and self.oidc_client_id is None:
            raise ValueError("EYAS_OIDC_ISSUER needs EYAS_OIDC_AUDIENCE, for JWTs to the API, or EYAS_OIDC_CLIENT_ID, for the console")
        if not self.oidc_roles:
            raise ValueError("EYAS_OIDC_ISSUER needs EYAS_OIDC_ROLES: without roles of groups nobody can sign in")
        if self.oidc_client_id is not None and self.console_url is None:
            raise ValueError("EYAS_OIDC_CLIENT_ID needs EYAS_CONSOLE_URL, the address to which the provider sends users back")
        if self.oidc_client_id is not None and "openid" not in self.oidc_scopes.split():
            raise ValueError("EYAS_OIDC_SCOPES needs the scope openid")

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

    keep_versions: int = Field(10, ge=1, le=10_000, description="Number of the newest versions of each recommender that are always kept.")
    keep_served: Duration = Field(timedelta(days=30), description="Time for which a version is kept after it left the route, such as 30d.")
    keep_runs: Duration = Field(timedelta(days=30), description="Time for which the files of a finished run are kept, such as 30d.")
    keep_history: KeptTime | None = Field(
        None, description="Time for which transitions of runs, rollouts and retrainers are kept, such as 400d; absent: no limit."
    )
    keep_audit: KeptTime | None = Field(None, description="Time for which entries of the audit log are kept; absent: no limit.")
    forget_within: Annotated[Duration, _at_least(timedelta(days=7))] = Field(
        timedelta(days=30), description="Time within which the versions that learned from a forgotten user are collected, such as 30d."
    )
    collect_every: int = Field(60, ge=0, le=10_000, description="Minutes between garbage collections; 0: none by itself.")
    compact_every: int = Field(60, ge=0, le=10_000, description="Minutes between compactions of days of events to Parquet; 0: none.")
    connections: int = Field(
        4096, ge=16, le=60_000, description="Maximum number of open connections to the API; fewer if the limit of open files is lower."
    )
    max_runs: int = Field(4, ge=1, le=1000, description="Maximum number of active runs, of all recommenders.")
    max_pending_runs: int = Field(
        20, ge=1, le=10_000, description="Maximum number of pending runs of a recommender; further runs are rejected with 409."
    )
    control_rate: float = Field(
        30,
        ge=0,
        le=1e9,
        description="Units per second that one token may spend on writes of the control plane in this process, with a burst of 20 "
        "seconds: an apply or a validation costs 5, a run 2, any other write 1, and each 4 KiB of a body 1. Requests above it are "
        "rejected with 429; 0: no limit.",
    )
    online_rate: float = Field(
        5000,
        ge=0,
        le=1e9,
        description="Units per second that one token may spend on recommendations, events, items and features in this process, with a "
        "burst of 5 seconds: a request costs 1, and each KiB of its body 1. 0: no limit.",
    )
    recommender_rate: float = Field(20_000, ge=0, le=1e9, description="The same limit for one recommender, over all tokens. 0: no limit.")
    failure_rate: float = Field(
        10,
        ge=0,
        le=1e9,
        description="Unknown tokens per second that one client address may send to this process, with a burst of 10 seconds. Above it a "
        "token is checked only if it was valid before. 0: no limit.",
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
        lines.append(f"{name}: unknown setting without effect" + (f"; did you mean {near[0]}?" if near else ""))
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
        raise Invalid(f"{_PREFIX}{setting.upper()}: {path}: expected one line, found {'none' if not secret else 'more'}")
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
