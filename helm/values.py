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
Amount = str | int | float
Labels = dict[str, str]


class Values(Strict):
    model_config = ConfigDict(alias_generator=to_camel)


class Images(Values):
    """An image for each role. Build the images with `make image`, and push them to a registry that the nodes can pull from."""

    registry: str = Field(
        "",
        pattern=r"^([a-zA-Z0-9][-a-zA-Z0-9.]*(:[0-9]+)?(/[-a-zA-Z0-9._/]*[a-zA-Z0-9])?)?$",
        description="Before each name, such as registry.example/team.",
    )
    tag: str = Field("", pattern=r"^[\w.-]{0,128}$", description="Of each; the chart's appVersion if empty.")
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field("IfNotPresent", description="When nodes fetch them.")
    pull_secrets: list[Name] = Field([], description="Names of Secrets of the type kubernetes.io/dockerconfigjson.")
    control: Repository = Field("eyas-control", description="Of the control plane and the gateway.")
    pipelines: Repository = Field("eyas-pipelines", description="Of stages.")
    engines: list[Literal["polars", "tensorflow", "torch", "jax"]] = Field(
        ["polars", "tensorflow"],
        description="Engines that the image of stages has. A spec that names another one is refused, unless the image for GPUs has it.",
    )
    pipelines_gpu: Repository | Literal[""] = Field("", description="Of stages on GPUs, by the engines below.")
    gpu_engines: list[Literal["nvtabular", "torch", "tensorflow", "jax"]] = Field(
        ["nvtabular", "torch"],
        description="Engines that run in the image for GPUs. Stages by other engines get no GPU, and a spec that asks for one is refused.",
    )
    triton: Repository = Field("eyas-triton", description="Of Tritons, and of the stage verify.")


class Identity(Values):
    """User and group of every process, including stages, because all share the volume."""

    user: int = Field(65532, ge=1, description="Number of the user.")
    group: int = Field(65532, ge=1, description="Number of the group.")


class Token(Values):
    """The first API token."""

    existing_secret: Name = Field("", description="A Secret with it. If empty, one is made at the first install and kept over upgrades.")
    key: Key = Field("token", description="Its key there.")


class Database(Values):
    """The database of the platform's state."""

    existing_secret: Name = Field(
        "",
        description="A Secret with the key `url` (postgresql://user@host:5432/name) and, if the URL has none, the key `password`. "
        "If empty: SQLite on the volume, for one node and one control plane.",
    )


class Events(Values):
    """Where events are stored before they reach the database."""

    existing_secret: Name = Field("", description="A Secret with the key `url` (nats://user:password@host:4222). If empty: the database.")


class Features(Values):
    """Where gateways read users' feature values."""

    existing_secret: Name = Field("", description="A Secret with the key `url` (redis://:password@host:6379/0). If empty: the database.")


class Data(Values):
    """Where specs may read data from, in addition to the volume."""

    roots: list[Annotated[str, StringConstraints(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^:]*)?$")]] = Field(
        [], description="s3://BUCKET/PREFIX."
    )
    existing_secret: Name = Field(
        "",
        description="A Secret of which every key becomes a variable of the control plane and of the Jobs: AWS_ACCESS_KEY_ID, "
        "AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL.",
    )
    databases: Name = Field(
        "", description="A Secret with the key `databases.yaml`: the databases that specs may query, one `name: URL` a line."
    )


class Artifacts(Values):
    """Where artifacts are stored: on the volume, or in an S3 bucket."""

    url: str = Field(
        "",
        pattern=r"^(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^:?#\s]*)?)?$",
        description="s3://BUCKET/PREFIX where nobody else writes. If empty: a bucket of the chart's own store if `objects.enabled`, "
        "else the volume.",
    )
    endpoint: str = Field(
        "", pattern=r"^(https?://[^\s\"]+)?$", description="Of the store, where its Secret doesn't say it; AWS' if neither does."
    )
    region: str = Field(
        "", pattern=r"^[a-z0-9-]*$", description="Of the bucket, where its Secret doesn't say it; us-east-1 if neither does."
    )
    existing_secret: Name = Field(
        "",
        description="A Secret with the keys AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if you like, AWS_SESSION_TOKEN, AWS_REGION, "
        "AWS_ENDPOINT_URL, for control plane, gateways and stages; `data.existingSecret` if empty.",
    )


class Volume(Values):
    """The volume: SQLite, artifacts, Triton's model repository, and the data that specs read (its folder data/). With a database
    server and artifacts in a bucket, gateways don't mount it.
    Set at most one of existingClaim and hostPath; with neither, the chart creates a claim."""

    existing_claim: Name = Field("", description="A claim that is there already.")
    host_path: str = Field(
        "", pattern=r"^(/[^:\s]+)?$", description="A folder of the node that the identity's user may write to: for clusters of one node."
    )
    size: Size = Field("20Gi", description="Of the claim that is made.")
    storage_class: Name = Field("", description="The cluster's default class if empty.")
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"] = Field(
        "ReadWriteOnce", description="ReadWriteMany where pods may come to lie on several nodes."
    )
    keep: bool = Field(True, description="Whether the claim that is made outlives the release.")


class Resources(Values):
    requests: dict[str, Amount] = Field({}, description="What a pod is given for sure.")
    limits: dict[str, Amount] = Field({}, description="The most that it gets.")


class Autoscaling(Values):
    """A HorizontalPodAutoscaler (autoscaling/v2: Kubernetes 1.23)."""

    enabled: bool = Field(False, description="Whether there is one; `replicas` is then left to it.")
    min: int = Field(2, ge=1, description="The fewest.")
    max: int = Field(10, ge=1, description="The most.")


class ByCpu(Autoscaling):
    """A HorizontalPodAutoscaler by CPU (autoscaling/v2: Kubernetes 1.23; metrics-server)."""

    cpu: int = Field(70, ge=1, le=1000, description="Percent of what is requested that it aims at.")


class ByQueue(Autoscaling):
    """A HorizontalPodAutoscaler by the wait of requests in Triton's queue, which the Prometheus adapter computes with the rule in
    files/prometheus-adapter.yaml (autoscaling/v2: Kubernetes 1.23)."""

    milliseconds: int = Field(5, ge=1, description="Mean wait of a request that it aims at.")


class Control(Values):
    """The control plane."""

    replicas: int = Field(1, ge=1, description="More than one needs a database of its own.")
    max_runs: int = Field(4, ge=1, le=1000, description="Runs that are active at once.")
    max_pending_runs: int = Field(20, ge=1, le=10_000, description="Runs of one recommender that may wait to begin.")
    resources: Resources = Resources(requests={"cpu": "200m", "memory": "384Mi"}, limits={"memory": "1Gi"})


class Gateway(Values):
    """The gateway, which answers recommend requests and takes events."""

    replicas: int = Field(1, ge=1, description="How many.")
    autoscaling: ByCpu = ByCpu()
    resources: Resources = Resources(requests={"cpu": "200m", "memory": "256Mi"}, limits={"memory": "1Gi"})


class Rates(Values):
    """Rate limits in units per second and pod; 0: no limit. The costs of requests are in docs/api.md, Limits."""

    control: int = Field(30, ge=0, le=1_000_000_000, description="Of each token, for writes of the control plane.")
    online: int = Field(5000, ge=0, le=1_000_000_000, description="Of each token, for recommendations, events, items and features.")
    recommender: int = Field(20_000, ge=0, le=1_000_000_000, description="The same of each recommender, by all tokens together.")
    failure: int = Field(10, ge=0, le=1_000_000_000, description="Of each client address, for tokens that are not known.")


class TritonTls(Values):
    """Mutual TLS between control plane, gateways and Tritons, because a client of a Triton can run code in its pod."""

    enabled: bool = Field(True, description="False only where something else closes its port, such as a service mesh.")
    cert_manager: bool = Field(
        False, description="Whether cert-manager issues and renews the certificates; else the chart issues them, for ten years."
    )
    issue: str = Field(
        "1",
        min_length=1,
        description="Any text. If it differs from the last upgrade's, the chart issues new certificates, of the same CA.",
    )
    rotate_after: int = Field(
        120,
        ge=0,
        description="Seconds from new certificates to the restart of the Tritons that use them, one at a time. A kubelet takes up to two "
        "minutes until a pod sees them.",
    )


class Triton(Values):
    """The model servers."""

    replicas: int = Field(1, ge=1, description="Each has every version, a folder of its own on the volume, and its share of the requests.")
    autoscaling: ByQueue = ByQueue(max=4)
    tls: TritonTls = TritonTls()
    shared_memory: Size = Field("512Mi", description="Of /dev/shm, through which Triton and its models talk; it counts as memory.")
    resources: Resources = Resources(requests={"cpu": "500m", "memory": "1Gi"}, limits={"memory": "4Gi"})


class Toleration(Values):
    key: str = Field("", description="The taint's key; every key if empty.")
    operator: Literal["Exists", "Equal"] = Field("Equal", description="How it is compared.")
    value: str = Field("", description="The taint's value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(None, description="Every effect if not given.")


class Share(Strict):
    """Default resources of a stage; the keys are those of the Jobs' settings."""

    cpu: Amount | None = Field(None, description="Cores.")
    memory: str | None = Field(None, description="Memory.")
    gpu: int | None = Field(None, ge=0, description="Whole GPUs.")
    node_selector: Labels | None = Field(None, description="Labels that its node must have.")
    tolerations: list[Toleration] | None = Field(None, description="Taints of nodes that are no hindrance.")


class Stages(Values):
    """Default cpu, memory, gpu, node_selector, tolerations of each stage, if the spec does not set them."""

    etl: Share = Field(Share(cpu="1", memory="4Gi"), description="Data to features.")
    train: Share = Field(Share(cpu="1", memory="4Gi"), description="Features to a model, and its refit; of each process.")
    evaluate: Share = Field(Share(cpu="1", memory="4Gi"), description="The model's metrics.")
    export: Share = Field(Share(cpu="1", memory="4Gi"), description="What will be served.")
    verify: Share = Field(Share(cpu="1", memory="4Gi"), description="That, on a Triton of its own.")


class Jobs(Values):
    """How stages run as Jobs."""

    stages: Stages = Stages()
    quota: dict[str, Amount] = Field(
        {},
        description="The most of all stages together, such as { requests.cpu: 64, requests.nvidia.com/gpu: 4 }: a ResourceQuota for pods "
        "of the stages' priority class, which it needs.",
    )
    settings: dict[str, Any] = Field(
        {},
        description="Anything else of the Jobs' settings (docs/kubernetes.md), in their own words: it has the last one.",
    )


class Objectives(Values):
    """Objectives of the alerts on error budgets, for each recommender over 30 days."""

    errors: float = Field(0.001, gt=0, le=0.05, description="Share of the requests that may go without an answer.")
    slow: float = Field(0.01, gt=0, le=0.05, description="Share of the answers that may be slow.")
    slower_than: Literal["0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5"] = Field(
        "0.25", description="From so many seconds on an answer is slow; bounds of the histogram, as texts."
    )


class Priorities(Values):
    """Pod priorities for a full cluster. PriorityClasses belong to the whole cluster: name existing ones, or let the chart create
    its own."""

    create: bool = Field(False, description="Whether two are made, called after namespace and release.")
    serving_value: int = Field(1000, le=1_000_000_000, description="Of control plane, gateways, Tritons.")
    stages_value: int = Field(-1000, le=1_000_000_000, description="Of stages, which never drive others out.")
    serving: Name = Field("", description="One that is there, for control plane, gateways, Tritons.")
    stages: Name = Field("", description="One that is there, for stages.")


class Budgets(Values):
    """PodDisruptionBudgets for parts with several replicas: at most one replica is evicted at a time (policy/v1: Kubernetes 1.21)."""

    enabled: bool = Field(True, description="Whether there are any.")


class Spread(Values):
    """How the replicas of a part are spread over the cluster."""

    over: list[str] = Field(["kubernetes.io/hostname"], description="Labels of nodes over whose values they are spread.")
    strict: bool = Field(False, description="Whether one that would make it uneven waits; it goes anywhere otherwise.")


class Selector(Values):
    match_labels: Labels = Field({}, description="Labels that must be there.")


class Block(Values):
    cidr: str = Field(description="Addresses.")
    but: list[str] = Field([], alias="except", description="Those of them that aren't meant.")


class Peer(Values):
    """Peer of a NetworkPolicy."""

    pod_selector: Selector | None = None
    namespace_selector: Selector | None = None
    ip_block: Block | None = None


class Edge(Values):
    to: list[Peer] = Field([], description="Where it is; anywhere if empty.")
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field([], min_length=1, description="Its ports.")


class Policies(Values):
    """NetworkPolicies: only declared traffic and traffic between the parts is allowed. They take effect if the cluster's network enforces
    them."""

    enabled: bool = Field(True, description="Whether there are any.")
    clients: list[Peer] = Field(
        [],
        description="Who may ask control plane and gateways: nobody until you say who. Pods of one namespace: "
        "[{ namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: shop } } }]; every pod: [{ namespaceSelector: {} }]. They "
        "also want a token.",
    )
    prometheus: list[Peer] = Field(
        [Peer(namespaceSelector=Selector(), podSelector=Selector(matchLabels={"app.kubernetes.io/name": "prometheus"}))],
        description="Who may read metrics.",
    )
    dns: list[Peer] = Field(
        [Peer(namespaceSelector=Selector(), podSelector=Selector(matchLabels={"k8s-app": "kube-dns"}))],
        description="Who resolves names.",
    )
    kubernetes: Edge = Field(Edge(ports=[443, 6443]), description="The Kubernetes API, for the control plane.")
    database: Edge = Field(Edge(ports=[5432]), description="Of database.existingSecret.")
    events: Edge = Field(Edge(ports=[4222]), description="Of events.existingSecret.")
    features: Edge = Field(Edge(ports=[6379]), description="Of features.existingSecret.")
    objects: Edge = Field(Edge(ports=[443]), description="Of data.existingSecret, for control plane and stages.")
    artifacts: Edge = Field(Edge(ports=[443]), description="Of artifacts.url, for control plane, gateways and stages.")
    sources: Edge = Field(Edge(ports=[5432]), description="Of data.databases, for control plane and stages.")


class PostgreSQL(Values):
    """For evaluation: PostgreSQL with one volume, no replica, no backup. In production, use your own with database.existingSecret."""

    enabled: bool = Field(False, description="Whether there is one.")
    image: str = Field("docker.io/library/postgres:16.4-bookworm", min_length=1, description="With its tag.")
    size: Size = Field("5Gi", description="Of its volume.")
    resources: Resources = Resources(requests={"cpu": "100m", "memory": "256Mi"}, limits={"memory": "1Gi"})


class Nats(Values):
    """For evaluation: one NATS server with JetStream. In production, use your own with events.existingSecret."""

    enabled: bool = Field(False, description="Whether there is one.")
    image: str = Field("docker.io/library/nats:2.10.22-alpine", min_length=1, description="With its tag.")
    size: Size = Field("5Gi", description="Of its volume.")
    resources: Resources = Resources(requests={"cpu": "50m", "memory": "64Mi"}, limits={"memory": "512Mi"})


class Objects(Values):
    """For evaluation: an S3 server (rclone) with a bucket for artifacts and a bucket for data that specs read. In production, use your own
    with artifacts, data.roots and data.existingSecret."""

    enabled: bool = Field(False, description="Whether there is one.")
    image: str = Field("docker.io/rclone/rclone:1.68.2", min_length=1, description="With its tag.")
    bucket: str = Field("eyas", pattern=r"^[a-z0-9][a-z0-9.-]{1,51}[a-z0-9]$", description="Its bucket with data.")
    artifacts: bool = Field(
        True,
        description="Whether artifacts are there, in a second bucket called `BUCKET-artifacts`. Say false where a release has them on its "
        "volume already.",
    )
    size: Size = Field("5Gi", description="Of its volume.")
    resources: Resources = Resources(requests={"cpu": "50m", "memory": "64Mi"}, limits={"memory": "512Mi"})


class Monitors(Values):
    """A PodMonitor of every pod's port `metrics`, or a ServiceMonitor of the Services' port. Both need the resource types of the
    Prometheus operator."""

    enabled: bool = Field(False, description="Whether there is one.")
    kind: Literal["PodMonitor", "ServiceMonitor"] = Field(
        "PodMonitor", description="ServiceMonitor for a Prometheus that looks for no others; both find the same pods."
    )
    labels: Labels = Field({}, description="What the operator chooses it by, such as { release: prometheus }.")
    interval: str = Field("15s", pattern=r"^[0-9]+(ms|s|m)$", description="Between two looks.")


class Rules(Values):
    """A PrometheusRule of files/prometheus-rules.yaml. It needs the resource types of the Prometheus operator; without that operator, load
    the file with `rule_files` of your Prometheus."""

    enabled: bool = Field(False, description="Whether there is one.")
    labels: Labels = Field({}, description="What the operator chooses rules by, such as { release: prometheus }.")
    objectives: Objectives = Objectives()
    slow_interval: Literal["15s", "30s", "1m", "2m", "3m", "4m"] = Field(
        "2m", description="Between two evaluations of the groups eyas-budgets and eyas-objectives, whose windows are long."
    )


class Dashboards(Values):
    """A ConfigMap for each dashboard of files/dashboards, loaded by Grafana's sidecar."""

    enabled: bool = Field(False, description="Whether there are any.")
    labels: Labels = Field({"grafana_dashboard": "1"}, description="What the sidecar chooses them by.")
    annotations: Labels = Field({}, description="Such as { grafana_folder: Eyas }.")
    docs: str = Field(
        "https://docs.invalid/eyas",
        pattern=r"^https?://[^\s\"\\]+$",
        description="Where these documents can be read: what the links of panels begin with.",
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
    data: Data = Data()
    families: list[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$")]] = Field(
        [],
        description="Python modules of which specs may name a model family of their own (`module:Class`); the image of the stages has them "
        "installed.",
    )
    artifacts: Artifacts = Artifacts()
    volume: Volume = Volume()
    control: Control = Control()
    gateway: Gateway = Gateway()
    rates: Rates = Rates()
    triton: Triton = Triton()
    jobs: Jobs = Jobs()
    priorities: Priorities = Priorities()
    disruption_budgets: Budgets = Budgets()
    spread: Spread = Spread()
    node_selector: Labels = Field({}, description="Labels that the node of every pod must have.")
    tolerations: list[Toleration] = Field([], description="Taints of nodes that are no hindrance.")
    network_policies: Policies = Policies()
    monitoring: Monitoring = Monitoring()
    postgresql: PostgreSQL = PostgreSQL()
    nats: Nats = Nats()
    objects: Objects = Objects()


LEFT = {"image": "images", "networkPolicy": "networkPolicies"}
"""Former keys and their replacements. The schema accepts the former keys, so that the templates can name the new ones."""
