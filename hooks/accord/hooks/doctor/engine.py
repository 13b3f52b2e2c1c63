"""vLLM and the plugin in it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ..vllm.identity import vllm_version
from ..vllm.notice import DISABLE_VARIABLE, STRICT_VARIABLE
from .facts import Facts
from .report import Check, fail, ok, skip, warn

GROUP, NAME = "vllm.general_plugins", "accord"
_OFF = ("", "0", "false", "no", "off")
_HERE = "run the doctor with the Python of the engine: python -m pip install accord, then accord doctor"


def check_engine(facts: Facts, seconds: float) -> Iterator[Check]:
    """Is the plugin found and allowed, which vLLM is this, and do the targets match."""
    yield from _plugin(facts)
    if importlib.util.find_spec("vllm") is None:
        facts.stock = facts.stock or "vLLM is not installed here"
        yield fail("vllm", "vLLM is not installed in this environment", _HERE)
        return
    yield _runner(facts)
    yield from _targets(facts, seconds)


def _plugin(facts: Facts) -> Iterator[Check]:
    env = facts.environ
    entries = [entry for entry in importlib.metadata.entry_points(group=GROUP) if entry.name == NAME]
    if not entries:
        facts.stock = f"no entry point {NAME} in {GROUP}"
        yield fail("plugin", facts.stock, "install accord again: python -m pip install --force-reinstall accord")
        return
    allowed = env.get("VLLM_PLUGINS")
    if allowed is not None and NAME not in allowed.split(","):
        facts.stock = f"VLLM_PLUGINS = {allowed[:80]!r} leaves it out"
        yield fail("plugin", facts.stock, f"add {NAME} to VLLM_PLUGINS, or unset it")
    elif env.get(DISABLE_VARIABLE, "").strip().lower() not in _OFF:
        facts.stock = f"{DISABLE_VARIABLE} switches it off"
        yield warn("plugin", facts.stock, f"unset {DISABLE_VARIABLE} to use accord")
    else:
        strict = env.get(STRICT_VARIABLE, "").strip().lower() not in _OFF
        version = importlib.metadata.version("accord")
        yield ok("plugin", f"accord {version}, {entries[0].value}{', strict' if strict else ''}")


def _runner(facts: Facts) -> Check:
    version = vllm_version()
    wanted = facts.environ.get("VLLM_USE_V2_MODEL_RUNNER", "").strip().lower()
    if wanted in ("0", "false"):
        facts.stock = facts.stock or "the V1 model runner has no estimator"
        advice = "unset VLLM_USE_V2_MODEL_RUNNER, or set it to 1"
        return fail("vllm", f"vLLM {version} with the V1 model runner, which has no estimator", advice)
    how = "the V2 model runner" if wanted else "the V2 model runner unless vLLM says otherwise when it starts"
    return ok("vllm", f"vLLM {version}, {how}")


def _targets(facts: Facts, seconds: float) -> Iterator[Check]:
    found = inspected(seconds, facts.environ)
    if "error" in found:
        facts.stock = facts.stock or "vLLM's worker cannot be imported"
        advice = "does vLLM start with ACCORD_DISABLE=1? is this the engine's machine?"
        yield fail("targets", f"vLLM's worker cannot be imported: {found['error']}", advice)
        return
    total, gone = found["targets"], found["missing"]
    if gone:
        facts.stock = facts.stock or "this vLLM lacks what the plugin needs"
        advice = "use vLLM 0.30 to 0.33, or an accord for this version; vLLM works as without accord until then"
        yield fail("targets", f"{len(gone)} of {total} do not match: {'; '.join(gone)}", advice)
    elif not found["patched"]:
        facts.stock = facts.stock or "the patches do not hold"
        said = "; ".join(found.get("said", [])) or "no reason was given"
        yield fail("targets", f"{total} match, but vLLM cannot be patched: {said}", "report this with the line above")
    else:
        yield ok("targets", f"{total} of {total} match, and the patches hold")


def inspected(seconds: float, environ: Mapping[str, str]) -> dict[str, Any]:
    """What `inspect_engine` tells, or {"error": why it told nothing}."""
    command = [sys.executable, "-m", "accord.hooks.doctor.inspect_engine"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, env=dict(environ), check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {seconds:g} s (see --engine-timeout)"}
    except OSError as error:
        return {"error": str(error)}
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        found = None
    if not isinstance(found, dict) or done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        return {"error": f"exit status {done.returncode}: {last[0][:300]}"}
    return found


def skipped() -> Iterator[Check]:
    """For --service-only."""
    yield skip("vllm", "not looked at: --service-only")
