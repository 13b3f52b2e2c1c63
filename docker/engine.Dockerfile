# vLLM with accord's plugin, on top of vLLM's own image. Build it from the root of the checkout:
#   docker build -f docker/engine.Dockerfile --build-arg VLLM_TAG=v0.32.0 -t accord-engine .
# Supported: vLLM 0.30 to 0.33. For a registry of your own, or a ROCm or CPU image, set VLLM_IMAGE too.
ARG PYTHON_IMAGE=docker.io/library/python:3.11-slim
ARG VLLM_IMAGE=docker.io/vllm/vllm-openai
ARG VLLM_TAG=v0.32.0

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY learner learner
COPY hooks hooks
COPY api api
RUN python -m pip wheel --quiet --no-deps --no-cache-dir --wheel-dir /wheels .

FROM ${VLLM_IMAGE}:${VLLM_TAG}
COPY --from=wheel /wheels /tmp/wheels
# Everything that vLLM brought is a constraint: what does not fit to it fails the build, instead of replacing vLLM's torch.
RUN set -eu; \
    listed() { if command -v uv >/dev/null; then uv pip list --system --format=freeze; else python3 -m pip list --format=freeze; fi; }; \
    listed | grep -E '^[A-Za-z0-9._-]+==' | sort >/tmp/before; \
    if command -v uv >/dev/null; \
    then uv pip install --system --no-cache --constraint /tmp/before /tmp/wheels/*.whl; \
    else python3 -m pip install --quiet --no-cache-dir --constraint /tmp/before /tmp/wheels/*.whl; fi; \
    listed | grep -E '^[A-Za-z0-9._-]+==' | sort >/tmp/after; \
    comm -23 /tmp/before /tmp/after >/tmp/changed; \
    if [ -s /tmp/changed ]; then echo 'vLLM packages were changed:' >&2; cat /tmp/changed >&2; exit 1; fi; \
    python3 -c 'from importlib.metadata import entry_points as e; e(group="vllm.general_plugins", name="accord")["accord"].load()'; \
    rm -rf /tmp/wheels /tmp/before /tmp/after /tmp/changed
# The entry point stays vLLM's. ACCORD_REDIS_URL and ACCORD_API_URL connect the engine; `accord doctor` tells whether they do.
