"""Values of the chart: names, defaults, meanings.

`helm.writing` generates values.yaml, values.schema.json and docs/helm.md from this module. Unknown keys are rejected at every depth."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from shared.contracts.strict import Strict

Name = Annotated[str, StringConstraints(pattern=r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$")]
"""Name of a Kubernetes object, or empty."""
Key = Annotated[str, StringConstraints(pattern=r"^[-._a-zA-Z0-9]+$")]
Size = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?([KMGTP]i?|m)?$")]
Repository = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([._/:-]+[a-z0-9]+)*$")]
Host = Annotated[str, StringConstraints(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$", max_length=253)]
"""DNS name, or empty."""
Amount = str | int | float
Labels = dict[str, str]


class Values(Strict):
    model_config = ConfigDict(alias_generator=to_camel)


class Images(Values):
    """An image for each role. Build the images with `make image`, and push them to a registry that the nodes can pull from."""

    registry: str = Field(
        "",
        pattern=r"^([a-zA-Z0-9][-a-zA-Z0-9.]*(:[0-9]+)?(/[-a-zA-Z0-9._/]*[a-zA-Z0-9])?)?$",
        description="Registry and path before each image name, such as registry.example/team.",
    )
    tag: str = Field("", pattern=r"^[\w.-]{0,128}$", description="Tag of all images; the chart's appVersion if empty.")
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field("IfNotPresent", description="Pull policy of the images.")
    pull_secrets: list[Name] = Field([], description="Secrets to pull the images with (type kubernetes.io/dockerconfigjson).")
    control: Repository = Field("eyas-control", description="Image of the control plane and the gateway.")
    pipelines: Repository = Field("eyas-pipelines", description="Image of the stages.")
    engines: list[Literal["polars", "tensorflow", "torch", "jax"]] = Field(
        ["polars", "tensorflow"],
        description="Engines in the image of the stages. A spec with another engine is rejected, unless `gpu` has it.",
    )
    gpu: dict[Literal["torch", "tensorflow", "jax", "xgboost", "polars", "triton"], Repository] = Field(
        {},
        description="Image by engine for stages with GPUs, such as { torch: eyas-torch-gpu }, and for all stages of an engine that "
        "`engines` lacks. Other stages get no GPU; a spec that requests one is rejected. `triton`: for `triton.gpu`.",
    )
    triton: Repository = Field("eyas-triton", description="Image of the Tritons and of the stage verify.")


class Identity(Values):
    """User and group of every process, including stages, because all share the volume."""

    user: int = Field(65532, ge=1, description="User id of the processes.")
    group: int = Field(65532, ge=1, description="Group id of the processes, and of the volumes that support an owner.")


class Token(Values):
    """The first API token."""

    existing_secret: Name = Field("", description="Secret with the token. If empty, installation creates one, and upgrades keep it.")
    key: Key = Field("token", description="Key of the token in the Secret.")


class Database(Values):
    """The database of the platform's state."""

    existing_secret: Name = Field(
        "",
        description="Secret with the key `url` (postgresql://user@host:5432/name) and, if the URL has no password, the key `password`. "
        "If empty: SQLite on the volume, for one node and one control plane.",
    )


class Events(Values):
    """Store of incoming events: the database, or a NATS server with JetStream, from which the control plane moves them to the database."""

    existing_secret: Name = Field("", description="Secret with the key `url` (nats://user:password@host:4222). If empty: the database.")


class Features(Values):
    """Store of user values for gateways: the database, or a Redis server, which is filled again if it loses them."""

    existing_secret: Name = Field("", description="Secret with the key `url` (redis://:password@host:6379/0). If empty: the database.")


class GroupRole(Values):
    role: Literal["client", "viewer", "operator", "admin"] = Field(description="Role of the group.")
    recommenders: list[Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]] | None = Field(
        None, min_length=1, description="Scope; null for all recommenders."
    )


class Oidc(Values):
    """OpenID Connect provider: sign-in to the console, and its JWTs for the API (EYAS_OIDC_...)."""

    issuer: str = Field("", pattern=r"^(https://[^\s/@?#]+(/\S*)?)?$", description="The provider, as its JWTs write it; none if empty.")
    audience: str = Field("", description="Audience of JWTs for the API.")
    client_id: str = Field("", description="Client for the sign-in to the console; no such sign-in if empty.")
    client_secret: Name = Field("", description="Secret with the key `client-secret`; a public client if empty.")
    scopes: str = Field("openid email profile", description="Scopes of the sign-in.")
    groups_claim: str = Field("groups", description="Claim with the groups of a user.")
    name_claim: str = Field("email", description="Claim with the name for histories and the audit log.")
    roles: dict[str, GroupRole] = Field({}, description="Roles of groups: { ml-admins: { role: admin } }.")
    console_url: str = Field(
        "", pattern=r"^(https://[^\s/@?#]+)?$", description="Address of the console; the provider redirects to ADDRESS/login/callback."
    )


class AuditExport(Values):
    """Export of the audit log as JSON lines to an HTTP collector."""

    url: str = Field("", pattern=r"^(https?://[^\s/@?#]+(/[^\s@?#]*)?)?$", description="Address of the collector; no export if empty.")
    token_secret: Name = Field("", description="Secret with the key `token`, the collector's bearer token; none if empty. Needs https.")


class Data(Values):
    """Data roots of specs, in addition to the volume."""

    roots: list[Annotated[str, StringConstraints(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^:]*)?$")]] = Field(
        [], description="Buckets that specs may read: s3://BUCKET/PREFIX."
    )
    existing_secret: Name = Field(
        "",
        description="Secret whose keys all become environment variables of the control plane and the stages: AWS_ACCESS_KEY_ID, "
        "AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL.",
    )
    databases: Name = Field(
        "", description="Secret with the key `databases.yaml`: the databases that specs may query, one `name: URL` per line."
    )


class Artifacts(Values):
    """Artifact store: the volume, or an S3 bucket."""

    url: str = Field(
        "",
        pattern=r"^(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^:?#\s]*)?)?$",
        description="s3://BUCKET/PREFIX that nothing else writes to. If empty: a bucket of the chart's own store if `objects.enabled`, "
        "else the volume.",
    )
    endpoint: str = Field(
        "", pattern=r"^(https?://[^\s\"]+)?$", description="Endpoint of the store, if its Secret does not set it; AWS if neither does."
    )
    region: str = Field(
        "", pattern=r"^[a-z0-9-]*$", description="Region of the bucket, if the Secret does not set it; us-east-1 if neither does."
    )
    existing_secret: Name = Field(
        "",
        description="Secret with the keys AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and optionally AWS_SESSION_TOKEN, AWS_REGION, "
        "AWS_ENDPOINT_URL, for control plane, gateways and stages; `data.existingSecret` if empty.",
    )


class Volume(Values):
    """The volume for SQLite, artifacts, Triton's model repository, and the data that specs read (its folder data/). With a database server
    and artifacts in a bucket, gateways do not mount it. Set at most one of existingClaim and hostPath; with neither, the chart creates a
    claim."""

    existing_claim: Name = Field("", description="Existing PersistentVolumeClaim.")
    host_path: str = Field(
        "", pattern=r"^(/[^:\s]+)?$", description="Folder of the node that the identity's user can write to, for clusters of one node."
    )
    size: Size = Field("20Gi", description="Size of the created claim.")
    storage_class: Name = Field("", description="Storage class of all created claims; the cluster's default class if empty.")
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"] = Field(
        "ReadWriteOnce", description="Access mode of the created claim. Use ReadWriteMany if pods can run on several nodes."
    )
    keep: bool = Field(True, description="Whether the created claim remains when the release is uninstalled.")


class Resources(Values):
    requests: dict[str, Amount] = Field({}, description="Resources that are reserved for a pod.")
    limits: dict[str, Amount] = Field({}, description="Resource limits of a pod.")


class Autoscaling(Values):
    """A HorizontalPodAutoscaler (autoscaling/v2: Kubernetes 1.23)."""

    enabled: bool = Field(False, description="Whether an autoscaler sets the number of replicas, instead of `replicas`.")
    min: int = Field(2, ge=1, description="Minimum number of replicas.")
    max: int = Field(10, ge=1, description="Maximum number of replicas.")


class ByCpu(Autoscaling):
    """A HorizontalPodAutoscaler by CPU (autoscaling/v2: Kubernetes 1.23; metrics-server)."""

    cpu: int = Field(70, ge=1, le=1000, description="Target of the CPU use, in percent of the request.")


class ByQueue(Autoscaling):
    """A HorizontalPodAutoscaler by the time that requests wait in Triton's queue. The Prometheus adapter computes it with the rule in
    files/prometheus-adapter.yaml (autoscaling/v2: Kubernetes 1.23)."""

    milliseconds: int = Field(5, ge=1, description="Target of the mean wait of a request, in milliseconds.")


class Ingress(Values):
    """An Ingress with TLS. It needs `trustedProxies` and `networkPolicies.proxies`."""

    enabled: bool = Field(False, description="Whether the chart creates the Ingress.")
    host: Host = Field("", description="Name that clients use, such as eyas.example.com; each part needs its own.")
    class_name: Name = Field("", description="IngressClass; the cluster's default class if empty.")
    tls_secret: Name = Field("", description="Secret with the certificate of the host (type kubernetes.io/tls).")
    annotations: Labels = Field({}, description="Annotations, such as those of cert-manager or of the controller.")


class Listener(Values):
    name: Name = Field("", description="Name of the Gateway.")
    namespace: Name = Field("", description="Namespace of the Gateway; the namespace of the release if empty.")
    section_name: Name = Field("", description="Name of its HTTPS listener, which has the certificate of the host.")


class HttpRoute(Values):
    """An HTTPRoute (Gateway API v1, whose CRDs must be installed) to a Gateway that terminates TLS. It needs `trustedProxies` and
    `networkPolicies.proxies`."""

    enabled: bool = Field(False, description="Whether the chart creates the HTTPRoute.")
    host: Host = Field("", description="Name that clients use, such as eyas.example.com; each part needs its own.")
    parent_refs: list[Listener] = Field(
        [], description="HTTPS listeners of Gateways: [{ name: public, namespace: edge, sectionName: https }]."
    )
    timeout: str = Field(
        "",
        pattern=r"^([0-9]{1,5}(h|m|s|ms)){0,4}$",
        description="Maximum time of a request, with its stream; no limit if 0s. If empty, the Gateway decides.",
    )
    annotations: Labels = Field({}, description="Annotations of the HTTPRoute.")


class Control(Values):
    """The control plane."""

    replicas: int = Field(1, ge=1, description="Number of control planes; more than one needs a database server.")
    max_runs: int = Field(4, ge=1, le=1000, description="Maximum number of active runs, of all recommenders.")
    max_pending_runs: int = Field(20, ge=1, le=10_000, description="Maximum number of pending runs of a recommender.")
    image_hosts: list[Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?$")]] = Field(
        [], description="Hosts from which the console shows pictures of items over https."
    )
    ingress: Ingress = Ingress()
    http_route: HttpRoute = HttpRoute(timeout="0s")
    resources: Resources = Resources(requests={"cpu": "200m", "memory": "384Mi"}, limits={"memory": "1Gi"})


class Gateway(Values):
    """The gateway, which answers recommend requests and takes events."""

    replicas: int = Field(1, ge=1, description="Number of gateways.")
    autoscaling: ByCpu = ByCpu()
    ingress: Ingress = Ingress()
    http_route: HttpRoute = HttpRoute()
    resources: Resources = Resources(requests={"cpu": "200m", "memory": "256Mi"}, limits={"memory": "1Gi"})


class Rates(Values):
    """Rate limits in units per second and pod; 0: no limit. The costs of requests are in docs/api.md, Limits."""

    control: int = Field(30, ge=0, le=1_000_000_000, description="Limit of one token, for writes of the control plane.")
    online: int = Field(5000, ge=0, le=1_000_000_000, description="Limit of one token, for recommendations, events, items and features.")
    recommender: int = Field(20_000, ge=0, le=1_000_000_000, description="The same limit for one recommender, over all tokens.")
    failure: int = Field(10, ge=0, le=1_000_000_000, description="Limit of one client address, for unknown tokens.")


class TritonTls(Values):
    """Mutual TLS between control plane, gateways and Tritons, because a client of a Triton can run code in its pod."""

    enabled: bool = Field(True, description="Whether TLS is used. Set false only if a service mesh, for example, protects Triton's port.")
    cert_manager: bool = Field(
        False,
        description="Whether cert-manager issues and renews the certificates, Dask's too; if not, the chart issues them for ten years.",
    )
    issue: str = Field(
        "1",
        min_length=1,
        description="Any text. An upgrade that changes it issues new certificates of the same CA.",
    )
    rotate_after: int = Field(
        120,
        ge=0,
        description="Seconds from new certificates to the restart of the Tritons, one at a time. The kubelet takes up to two minutes to "
        "update them in a pod.",
    )


class Triton(Values):
    """The model servers."""

    replicas: int = Field(1, ge=1, description="Number of Tritons; they share requests, and each has all versions in its own folder.")
    gpu: int = Field(
        0,
        ge=0,
        description="Number of whole GPUs of each Triton; specs may then have `serve.device: gpu`. Tritons and the stage verify run in "
        "`images.gpu.triton`. An upgrade needs the GPUs of one Triton more.",
    )
    autoscaling: ByQueue = ByQueue(max=4)
    tls: TritonTls = TritonTls()
    shared_memory: Size = Field("512Mi", description="Size limit of /dev/shm between Triton and its models; its use counts as memory.")
    resources: Resources = Resources(requests={"cpu": "500m", "memory": "1Gi"}, limits={"memory": "4Gi"})


class Toleration(Values):
    key: str = Field("", description="Key of the taint; all keys if empty.")
    operator: Literal["Exists", "Equal"] = Field("Equal", description="Operator that compares the value.")
    value: str = Field("", description="Value of the taint.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(None, description="Effect of the taint; all if not set.")


class Share(Strict):
    """Default resources of a stage; the keys are those of the Jobs' settings."""

    cpu: Amount | None = Field(None, description="CPU cores.")
    memory: str | None = Field(None, description="Memory.")
    gpu: int | None = Field(None, ge=0, description="Number of whole GPUs.")
    node_selector: Labels | None = Field(None, description="Node labels, added to those of all stages.")
    tolerations: list[Toleration] | None = Field(None, description="Tolerations, added to those of all stages.")


class Stages(Values):
    """Default cpu, memory, gpu, node_selector, tolerations of each stage, if the spec does not set them."""

    etl: Share = Field(Share(cpu="1", memory="4Gi"), description="Resources of the stage etl.")
    train: Share = Field(Share(cpu="1", memory="4Gi"), description="Resources of the stages train and refit, for each process.")
    evaluate: Share = Field(Share(cpu="1", memory="4Gi"), description="Resources of the stage evaluate.")
    export: Share = Field(Share(cpu="1", memory="4Gi"), description="Resources of the stage export.")
    verify: Share = Field(Share(cpu="1", memory="4Gi"), description="Resources of the stage verify, which starts its own Triton.")


class Jobs(Values):
    """Stages as Kubernetes Jobs."""

    stages: Stages = Stages()
    quota: dict[str, Amount] = Field(
        {},
        description="ResourceQuota of all stages together, such as { requests.cpu: 64, requests.nvidia.com/gpu: 4 }. It needs the "
        "PriorityClass of the stages.",
    )
    settings: dict[str, Any] = Field(
        {},
        description="Other settings of the Jobs (docs/kubernetes.md), with their keys; they override the chart's settings.",
    )


class Dask(Values):
    """Dask cluster for etl by NVTabular (docs/how-to/nvtabular.md): a scheduler and workers with mutual TLS. They mount the volume."""

    workers: int = Field(0, ge=0, description="Number of worker pods, with one thread each. If 0: no cluster.")
    image: Repository = Field("eyas-nvtabular", description="Image of scheduler, workers and, if there are workers, of etl by NVTabular.")
    scheduler: Resources = Field(
        Resources(requests={"cpu": "100m", "memory": "256Mi"}, limits={"memory": "1Gi"}), description="Resources of the scheduler."
    )
    worker: Resources = Field(
        Resources(requests={"cpu": "1", "memory": "2Gi"}, limits={"memory": "4Gi"}), description="Resources of each worker."
    )


class ControlObjectives(Values):
    """Objectives for the API of the control plane, without answers of any length (streams, exports, specs, bulk data) for `slow`."""

    errors: float = Field(0.001, gt=0, le=0.05, description="Maximum share of requests that fail (5xx).")
    slow: float = Field(0.01, gt=0, le=0.05, description="Maximum share of slow answers.")
    slower_than: Literal["0.01", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "10.0"] = Field(
        "1.0", description="Seconds from which an answer is slow, as text: a bound of the histogram."
    )


class Objectives(Values):
    """Objectives of the alerts on error budgets, over 30 days: for each recommender, and for the control plane."""

    errors: float = Field(0.001, gt=0, le=0.05, description="Maximum share of requests without an answer.")
    slow: float = Field(0.01, gt=0, le=0.05, description="Maximum share of slow answers.")
    slower_than: Literal["0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5"] = Field(
        "0.25", description="Seconds from which an answer is slow, as text: a bound of the histogram."
    )
    control: ControlObjectives = ControlObjectives()


class Priorities(Values):
    """Pod priorities for a full cluster. PriorityClasses belong to the whole cluster: name existing ones, or let the chart create
    its own."""

    create: bool = Field(False, description="Whether the chart creates two, named after namespace and release.")
    serving_value: int = Field(1000, le=1_000_000_000, description="Priority of control plane, gateways and Tritons.")
    stages_value: int = Field(-1000, le=1_000_000_000, description="Priority of the stages, which never preempt other pods.")
    serving: Name = Field("", description="Existing PriorityClass for control plane, gateways and Tritons.")
    stages: Name = Field("", description="Existing PriorityClass for stages.")


class Budgets(Values):
    """PodDisruptionBudgets for parts with several replicas: at most one replica is evicted at a time (policy/v1: Kubernetes 1.21)."""

    enabled: bool = Field(True, description="Whether the chart creates PodDisruptionBudgets.")


class Spread(Values):
    """Spread of the replicas of a part over the cluster."""

    over: list[str] = Field(["kubernetes.io/hostname"], description="Node labels whose values the replicas are spread over.")
    strict: bool = Field(False, description="Whether a pod that would make the spread uneven waits; if not, it runs on any node.")


class Selector(Values):
    match_labels: Labels = Field({}, description="Labels that are required.")


class Block(Values):
    cidr: str = Field(description="Range of addresses.")
    but: list[str] = Field([], alias="except", description="Ranges inside it that are excluded.")


class Peer(Values):
    """Peer of a NetworkPolicy."""

    pod_selector: Selector | None = None
    namespace_selector: Selector | None = None
    ip_block: Block | None = None


class Edge(Values):
    to: list[Peer] = Field([], description="Peers of the connection; all if empty.")
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field([], min_length=1, description="Ports of the connection.")


class Policies(Values):
    """NetworkPolicies: only declared traffic and traffic between the parts is allowed. They take effect if the cluster's network enforces
    them."""

    enabled: bool = Field(True, description="Whether the chart creates NetworkPolicies.")
    clients: list[Peer] = Field(
        [],
        description="Peers that may connect to control plane and gateways; none if empty. Pods of one namespace: "
        "[{ namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: shop } } }]; all pods: [{ namespaceSelector: {} }]. "
        "Clients also need a token.",
    )
    proxies: list[Peer] = Field(
        [],
        description="Peers that are ingress controllers or Gateways: they may connect to the parts that have an Ingress or an HTTPRoute.",
    )
    prometheus: list[Peer] = Field(
        [Peer(namespaceSelector=Selector(), podSelector=Selector(matchLabels={"app.kubernetes.io/name": "prometheus"}))],
        description="Peers that may read metrics.",
    )
    dns: list[Peer] = Field(
        [Peer(namespaceSelector=Selector(), podSelector=Selector(matchLabels={"k8s-app": "kube-dns"}))],
        description="DNS servers.",
    )
    kubernetes: Edge = Field(Edge(ports=[443, 6443]), description="Kubernetes API, for the control plane.")
    database: Edge = Field(Edge(ports=[5432]), description="Database server of database.existingSecret.")
    events: Edge = Field(Edge(ports=[4222]), description="NATS server of events.existingSecret.")
    features: Edge = Field(Edge(ports=[6379]), description="Redis server of features.existingSecret.")
    objects: Edge = Field(Edge(ports=[443]), description="Object store of data.existingSecret, for control plane and stages.")
    artifacts: Edge = Field(Edge(ports=[443]), description="Object store of artifacts.url, for control plane, gateways and stages.")
    oidc: Edge = Field(Edge(ports=[443]), description="Identity provider of oidc.issuer; name its port if it is another.")
    audit_export: Edge = Field(Edge(ports=[443]), description="Collector of auditExport.url; name its port if it is another.")
    sources: Edge = Field(Edge(ports=[5432]), description="Databases of data.databases, for control plane and stages.")
    backups: Edge = Field(Edge(ports=[443]), description="Object store of backup.bucket.")


class Backup(Values):
    """A CronJob that backs up the database and the artifacts (docs/how-to/backup.md)."""

    schedule: str = Field(
        "",
        pattern=r"^(\S+ \S+ \S+ \S+ \S+|@(hourly|daily|weekly))?$",
        description="Cron schedule, such as `0 3 * * *`; no backups if empty.",
    )
    bucket: str = Field(
        "",
        pattern=r"^(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^:?#\s]*)?)?$",
        description="s3://BUCKET/PREFIX of the backups, with the credentials of the artifact store, or else those of data.existingSecret.",
    )
    existing_claim: Name = Field("", description="Claim of the volume of the backups, instead of a bucket.")
    keep: int = Field(7, ge=1, le=10_000, description="Number of backups that are kept.")
    resources: Resources = Resources(requests={"cpu": "100m", "memory": "256Mi"}, limits={"memory": "1Gi"})


class PostgreSQL(Values):
    """PostgreSQL for evaluation: one volume, no replica. In production, use your own server with database.existingSecret."""

    enabled: bool = Field(False, description="Whether the chart installs the server.")
    image: str = Field(
        "docker.io/library/postgres:15.8-bookworm",
        min_length=1,
        description="Image with its tag; backups need a version that the pg_dump of the control image supports, at most 15.",
    )
    size: Size = Field("5Gi", description="Size of the volume.")
    resources: Resources = Resources(requests={"cpu": "100m", "memory": "256Mi"}, limits={"memory": "1Gi"})


class Nats(Values):
    """NATS with JetStream for evaluation: one server. In production, use your own servers with events.existingSecret."""

    enabled: bool = Field(False, description="Whether the chart installs the server.")
    image: str = Field("docker.io/library/nats:2.10.22-alpine", min_length=1, description="Image with its tag.")
    size: Size = Field("5Gi", description="Size of the volume.")
    resources: Resources = Resources(requests={"cpu": "50m", "memory": "64Mi"}, limits={"memory": "512Mi"})


class Objects(Values):
    """S3 server (rclone) for evaluation: one bucket for artifacts, one bucket for data of specs. In production, use a server of your own:
    set artifacts, data.roots and data.existingSecret."""

    enabled: bool = Field(False, description="Whether the chart installs the server.")
    image: str = Field("docker.io/rclone/rclone:1.68.2", min_length=1, description="Image with its tag.")
    bucket: str = Field("eyas", pattern=r"^[a-z0-9][a-z0-9.-]{1,51}[a-z0-9]$", description="Bucket with the data that specs read.")
    artifacts: bool = Field(
        True,
        description="Whether artifacts are stored there, in a second bucket `BUCKET-artifacts`. Set false if the release already has them "
        "on its volume.",
    )
    size: Size = Field("5Gi", description="Size of the volume.")
    resources: Resources = Resources(requests={"cpu": "50m", "memory": "64Mi"}, limits={"memory": "512Mi"})


class Monitors(Values):
    """A PodMonitor of every pod's port `metrics`, or a ServiceMonitor of the Services' port. Both need the CRDs of the Prometheus
    operator."""

    enabled: bool = Field(False, description="Whether the chart creates the monitor.")
    kind: Literal["PodMonitor", "ServiceMonitor"] = Field(
        "PodMonitor",
        description="Kind of monitor: ServiceMonitor if your Prometheus selects no PodMonitors; both select the same pods.",
    )
    labels: Labels = Field({}, description="Labels by which the operator selects the monitor, such as { release: prometheus }.")
    interval: str = Field("15s", pattern=r"^[0-9]+(ms|s|m)$", description="Time between scrapes.")


class Rules(Values):
    """A PrometheusRule with files/prometheus-rules.yaml. It needs the CRDs of the Prometheus operator; without that operator, load the file
    with `rule_files` of your Prometheus."""

    enabled: bool = Field(False, description="Whether the chart creates the PrometheusRule.")
    labels: Labels = Field({}, description="Labels by which the operator selects rules, such as { release: prometheus }.")
    objectives: Objectives = Objectives()
    slow_interval: Literal["15s", "30s", "1m", "2m", "3m", "4m"] = Field(
        "2m", description="Time between evaluations of the groups eyas-budgets and eyas-objectives, whose windows are long."
    )


class Dashboards(Values):
    """A ConfigMap for each dashboard of files/dashboards, loaded by Grafana's sidecar."""

    enabled: bool = Field(False, description="Whether the chart creates the ConfigMaps.")
    labels: Labels = Field({"grafana_dashboard": "1"}, description="Labels by which the sidecar selects the ConfigMaps.")
    annotations: Labels = Field({}, description="Annotations of the ConfigMaps, such as { grafana_folder: Eyas }.")
    docs: str = Field(
        "https://docs.invalid/eyas",
        pattern=r"^https?://[^\s\"\\]+$",
        description="URL of these documents, for the links of panels.",
    )


class Monitoring(Values):
    """Monitoring with Prometheus and Grafana."""

    monitors: Monitors = Monitors()
    rules: Rules = Rules()
    dashboards: Dashboards = Dashboards()


class Chart(Values):
    """Values of an installation. Unknown keys are rejected (values.schema.json)."""

    images: Images = Images()
    identity: Identity = Identity()
    token: Token = Token()
    database: Database = Database()
    events: Events = Events()
    features: Features = Features()
    oidc: Oidc = Oidc()
    audit_export: AuditExport = AuditExport()
    data: Data = Data()
    families: list[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$")]] = Field(
        [],
        description="Python modules of custom model families (`module:Class`); they must be installed in the image of the stages.",
    )
    artifacts: Artifacts = Artifacts()
    volume: Volume = Volume()
    control: Control = Control()
    gateway: Gateway = Gateway()
    rates: Rates = Rates()
    trusted_proxies: list[Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F.:]+(/[1-9][0-9]{0,2})?$")]] = Field(
        [],
        description="Addresses and networks (CIDR) of the TLS proxies in front of control plane and gateways: only their X-Forwarded-Proto "
        "and X-Forwarded-For are believed.",
    )
    log: Literal["text", "json"] = Field("text", description="Format of log lines, of stages too: `text`, or one JSON object per line.")
    triton: Triton = Triton()
    jobs: Jobs = Jobs()
    dask: Dask = Dask()
    priorities: Priorities = Priorities()
    disruption_budgets: Budgets = Budgets()
    spread: Spread = Spread()
    node_selector: Labels = Field({}, description="Node labels that the pods require.")
    tolerations: list[Toleration] = Field([], description="Taints that the pods tolerate.")
    network_policies: Policies = Policies()
    monitoring: Monitoring = Monitoring()
    backup: Backup = Backup()
    postgresql: PostgreSQL = PostgreSQL()
    nats: Nats = Nats()
    objects: Objects = Objects()


LEFT = {"image": "images", "networkPolicy": "networkPolicies"}
"""Former keys and their replacements. The schema accepts the former keys, so that the templates can name the new ones."""
