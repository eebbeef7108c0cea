"""Builds the adapters that settings choose: the executor and the model server."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from services.audit_sinks import AuditCollector, AuditFile
from services.control.audit_export import AuditExporter
from services.control.garbage_collector import GarbageCollector
from services.executors.local import CUDF, LocalExecutor, local_faults
from services.home import Home
from services.settings import Settings, read_secret
from services.triton.addresses import addresses
from services.triton.certificates import Certificates
from services.triton.fleet import TritonFleet
from services.triton.scorer import TritonScorer
from services.triton.server_process import ServerProcesses
from services.triton.server_processes import EmbeddedTritons, RemoteTritons
from services.wiring.state import State
from shared.artifacts import FsspecTrash, variables
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files
from shared.datafiles.databases import VARIABLE as DATABASES
from shared.domain.access import RoleRule
from shared.domain.errors import Invalid
from shared.domain.object_uris import is_object, variable_prefix
from shared.domain.retention import Retention
from shared.ports import Executor

if TYPE_CHECKING:
    from services.oidc import OidcProvider

STAGES = {
    "etl": "pipelines.stages.etl",
    "train": "pipelines.stages.train",
    "evaluate": "pipelines.stages.evaluate",
    "refit": "pipelines.stages.refit",
    "export": "pipelines.stages.export",
    "verify": "services.triton.verify",
}


def executor(settings: Settings, home: Home, state: State, undo: ExitStack) -> Executor:
    if settings.executor == "kubernetes" and settings.jobs_file is not None:
        from services.executors.jobs import KubernetesExecutor
        from services.executors.jobsettings import read_settings
        from services.executors.kubernetes import connect

        jobs = read_settings(settings.jobs_file)
        cluster = connect(jobs)
        jobs_executor = KubernetesExecutor(cluster, cluster.with_owner(jobs), state.artifacts, STAGES)
        undo.callback(jobs_executor.close)
        return jobs_executor
    only = {"etl": _of_sources(settings) | _of_engines()}
    local = LocalExecutor(home.work, STAGES, variables(state.artifacts.url, os.environ), only=only, engines=_engines(settings))
    undo.callback(local.close)
    return local


def _engines(settings: Settings) -> dict[str, Path]:
    usual = Path(".venv-nvtabular/bin/python")
    chosen = {"nvtabular": settings.nvtabular_python or (usual if usual.exists() else None), CUDF: settings.cudf_python}
    return {engine: python.absolute() for engine, python in chosen.items() if python is not None}


def _of_engines() -> dict[str, str]:
    """Returns NVTabular's variables, for the stages that compute features."""
    names = ("EYAS_DASK", "EYAS_DASK_FOLDER", "EYAS_DASK_TLS")
    return {name: os.environ[name] for name in names if name in os.environ}


def _of_sources(settings: Settings) -> dict[str, str]:
    """Returns credentials of the operator's object stores and databases, for the stage that reads them only."""
    names = [DATABASES] if settings.databases else []
    prefixes = tuple(variable_prefix(root) for root in settings.data_roots if is_object(root))
    names += [name for name in os.environ if name.startswith(prefixes)]
    return {name: os.environ[name] for name in names if name in os.environ}


def images(settings: Settings) -> str:
    """Returns the images of stages; empty if stages run on this process's interpreter."""
    if settings.executor != "kubernetes" or settings.jobs_file is None:
        return ""
    from services.executors.jobsettings import read_settings

    jobs = read_settings(settings.jobs_file)
    for_gpus = {f"{engine} with GPUs": image for engine, image in jobs.gpu_images.items()}
    return " ".join(f"{engine}={image}" for engine, image in sorted((jobs.images | for_gpus).items()))


def stage_faults(settings: Settings) -> Callable[[RecommenderSpec], Mapping[str, str]]:
    """Returns a check for fields of a spec that no stage can satisfy in this executor."""
    if settings.executor != "kubernetes" or settings.jobs_file is None:
        return partial(local_faults, _engines(settings))
    from services.executors.jobsettings import read_settings

    return read_settings(settings.jobs_file).faults


def model_server(settings: Settings, home: Home, state: State, undo: ExitStack) -> TritonFleet:
    """Builds the model server of the placing process, which owns the repositories."""
    folder = settings.triton_home or home.triton
    hosts: ServerProcesses
    if settings.triton == "embedded":
        embedded = EmbeddedTritons(folder, settings.triton_replicas)
        undo.callback(embedded.stop)
        embedded.start()
        hosts = embedded
    else:
        key = settings.triton_key.get_secret_value() if settings.triton_key else ""
        certificates = _triton_certificates(settings)
        hosts = RemoteTritons(addresses(settings.triton), folder, alone=settings.triton_alone, key=key, certificates=certificates)
    server = TritonFleet(hosts, state.artifacts)
    undo.callback(server.close)
    return server


def _triton_certificates(settings: Settings) -> Certificates | None:
    if settings.triton_tls is None:
        return None
    certificates = Certificates(settings.triton_tls)
    certificates.check()
    return certificates


def collector(settings: Settings, state: State) -> GarbageCollector:
    retention = Retention(
        settings.keep_versions,
        settings.keep_served,
        settings.keep_runs,
        history=settings.keep_history,
        audit=settings.keep_audit,
        forgotten=settings.forget_within,
    )
    stores = (state.registry, state.routes, state.runs, state.rollouts, (state.leftovers, state.forgotten))
    return GarbageCollector(FsspecTrash(state.artifacts.url), *stores, state.clock, retention)


def scorer(settings: Settings, state: State, undo: ExitStack) -> TritonScorer:
    """Builds the scorer of a process that does not place versions."""

    def files_of(recommender: str, number: int) -> Files:
        return state.registry.get(recommender, number).files

    client = TritonScorer(addresses(settings.triton), files_of, state.artifacts, certificates=_triton_certificates(settings))
    undo.callback(client.close)
    client.refresh()
    return client


def identity_provider(settings: Settings) -> OidcProvider | None:
    if settings.oidc_issuer is None:
        return None
    try:
        from services.oidc import OidcConfig, OidcProvider
    except ModuleNotFoundError:
        raise Invalid("EYAS_OIDC_ISSUER needs the extra 'oidc': pip install 'eyas[oidc]'") from None
    secret_file = settings.oidc_client_secret_file
    config = OidcConfig(
        settings.oidc_issuer,
        settings.oidc_audience,
        settings.oidc_client_id,
        None if secret_file is None else read_secret(secret_file, "oidc_client_secret_file"),
        f"{settings.console_url}/login/callback",
        settings.oidc_scopes,
        settings.oidc_groups_claim,
        settings.oidc_name_claim,
    )
    provider = OidcProvider(config)
    provider.refresh()  # a platform without its provider starts, too: static tokens are valid
    return provider


def audit_exporter(settings: Settings, state: State, undo: ExitStack) -> AuditExporter | None:
    if settings.audit_export is None:
        return None
    if settings.audit_export.startswith("/"):
        return AuditExporter(state.audit, AuditFile(Path(settings.audit_export)), state.clock, state.installation)
    token_file = settings.audit_export_token_file
    token = None if token_file is None else read_secret(token_file, "audit_export_token_file")
    collector = AuditCollector(settings.audit_export, token)
    undo.callback(collector.close)
    return AuditExporter(state.audit, collector, state.clock, state.installation)


def role_rules(settings: Settings) -> tuple[RoleRule, ...]:
    return tuple(
        RoleRule(group, rule.role, None if rule.recommenders is None else frozenset(rule.recommenders))
        for group, rule in settings.oidc_roles.items()
    )
