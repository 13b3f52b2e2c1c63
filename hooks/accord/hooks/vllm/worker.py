"""What the plugin does in a worker that owns a draft-model speculator."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from multiprocessing.util import Finalize
from typing import Any

import torch

from accord.learner.basis import SplineBasis
from accord.learner.coefficients import CoefficientTable

from ..agent import Agent
from ..settings import Mode
from .estimator import AcceptanceEstimator
from .facade import Facade
from .identity import adaptive, cost_tables, identity_of, pair_of, settings_of, was_asked_for
from .notice import IncompatibleError, complain, disabled, log
from .ranks import KeyStore, Ranks, agree
from .session import Session
from .workloads import LabelRules, workload_key, workload_slots

ATTRIBUTE = "_accord"
"""Of a speculator: its `Attachment`."""

_attempts = itertools.count()


class EngineAgent(Agent):
    """An agent whose heartbeat tells of the engine too."""

    extras: Callable[[], dict[str, Any]] | None = None

    def status(self) -> dict[str, Any]:
        """The agent's own status, the engine's identity and counters, and its cost tables when it has them."""
        return {**super().status(), **(self.extras() if self.extras is not None else {})}


class Attachment:
    """A speculator's session, and what the other patches need to know.

    Args:
        facade: in the estimator's place.
        rules: of labels.
        identity: plain values for the heartbeat.
    """

    def __init__(self, facade: Facade, rules: LabelRules, identity: dict[str, Any]) -> None:
        self.facade, self.session, self.rules = facade, facade.session, rules
        self._identity = identity
        self._custom: bool | None = None
        self.costs: dict[str, Any] | None = None

    def add(self, runner: Any, scheduler_output: Any) -> None:
        """New requests that vLLM has given slots to."""
        new = scheduler_output.scheduled_new_reqs
        if not new:
            return
        if self._custom is None:
            self._custom = has_custom_processors(runner)
        if self.costs is None:
            self.costs = cost_tables(getattr(runner, "adaptive_verification", None))
        custom, rules = self._custom, self.rules
        keys = {
            request.req_id: workload_key(
                request.sampling_params, getattr(request, "lora_request", None), rules, custom_processors=custom
            )
            for request in new
        }
        self.session.add(keys, runner.req_states.req_id_to_index)

    def status(self) -> dict[str, Any]:
        """For the heartbeat."""
        return {**self._identity, **self.session.status(), "costs": self.costs, "broken": self.facade.broken}


def load_model(original: Callable[..., Any], speculator: Any, *args: Any, **kwargs: Any) -> Any:
    """Wraps `DraftModelSpeculator.load_model`: the estimator is there then, and no graph is captured yet."""
    result = original(speculator, *args, **kwargs)
    close(speculator)
    if disabled():
        return result
    try:
        attachment = attach(speculator)
    except IncompatibleError as error:
        complain(str(error), error)
    except Exception as error:  # noqa: BLE001  # an engine must start with a plugin that cannot
        complain(f"{type(error).__name__}: {error}"[:500], error)
    else:
        if attachment is not None:
            setattr(speculator, ATTRIBUTE, attachment)
    return result


def add_requests(original: Callable[..., Any], runner: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
    """Wraps `GPUModelRunner.add_requests`: new requests have their slots then, and nothing is drafted yet."""
    result = original(runner, scheduler_output, *args, **kwargs)
    attachment: Attachment | None = getattr(getattr(runner, "speculator", None), ATTRIBUTE, None)
    if attachment is not None:
        try:
            attachment.add(runner, scheduler_output)
        except Exception as error:  # noqa: BLE001  # no request may fail because of us
            attachment.session.errors[f"add: {type(error).__name__}"] += 1
    return result


def shutdown(original: Callable[..., Any], runner: Any, *args: Any, **kwargs: Any) -> Any:
    """Wraps `GPUModelRunner.shutdown`, where there is one: the last round is sent."""
    close(getattr(runner, "speculator", None))
    return original(runner, *args, **kwargs)


def close(speculator: Any) -> None:
    """Ends a speculator's session, if it has one; never raises."""
    attachment: Attachment | None = getattr(speculator, ATTRIBUTE, None)
    if attachment is not None:
        try:
            attachment.session.close()
        except Exception as error:  # noqa: BLE001  # a shutdown goes on
            log.debug("accord: closing: %s", error)


def attach(speculator: Any) -> Attachment | None:
    """Puts our estimator in a speculator's place, on all ranks of its group or on none; None where nobody asked.

    Raises:
        IncompatibleError: saying what stands in the way. The speculator is as vLLM made it.
    """
    from vllm.distributed.parallel_state import get_tp_group

    group = get_tp_group()
    stage = f"accord/{group.unique_name}/{group.ranks[0]}/{next(_attempts)}"
    store = _store(group.world_size)

    def together(step: str, plan: dict[str, Any] | None) -> dict[str, Any] | None:
        return agree(store, f"{stage}/{step}", group.rank_in_group, group.world_size, plan)

    leader = group.rank_in_group == 0
    agent, plan, fault = None, None, None
    try:
        _check(speculator)
        if leader:
            agent, plan = _plan(speculator)
        else:
            plan = {}
    except Exception as error:  # noqa: BLE001  # the other ranks must hear of it before anything else happens
        fault = error
    agreed = together("plan", plan)
    attachment = None
    if agreed is not None and fault is None:
        try:
            attachment = _build(speculator, group, agent, agreed)
        except Exception as error:  # noqa: BLE001  # as above
            fault = error
    # Once more, because whoever failed to build would be missing at the first broadcast.
    if together("built", None if attachment is None else {}) is None:
        attachment = None
    if fault is not None:
        raise fault if isinstance(fault, IncompatibleError) else IncompatibleError(f"{type(fault).__name__}: {fault}")
    if attachment is None:
        if agreed is not None or (leader and plan is not None):
            raise IncompatibleError("another rank of the tensor-parallel group cannot take part")
        return None
    _install(speculator, attachment, agent)
    return attachment


def has_custom_processors(runner: Any) -> bool:
    """Whether logits processors run that are not vLLM's own."""
    processors = getattr(getattr(runner, "sampler", None), "logits_processors", None) or ()
    return any(not type(processor).__module__.startswith("vllm.") for processor in processors)


def _check(speculator: Any) -> None:
    pair_of(speculator.vllm_config)
    if getattr(speculator, "use_local_argmax_reduction", False):
        raise IncompatibleError("use_local_argmax_reduction never computes the draft logits that an estimator needs")
    if adaptive(speculator.vllm_config) and speculator.acceptance_estimator is None:
        raise IncompatibleError(
            "the draft model has a trained confidence head, which vLLM uses instead of an estimator"
        )


def _plan(speculator: Any) -> tuple[EngineAgent | None, dict[str, Any] | None]:
    config = speculator.vllm_config
    if not adaptive(config) and not was_asked_for():
        log.info("accord: no adaptive verification, no service and no ACCORD_MODE: nothing to do")
        return None, None
    settings = settings_of(config)
    agent = EngineAgent(pair_of(config), settings)
    return agent, {
        "table": agent.applied.table.to_json().decode(),
        "round_steps": list(settings.round_steps),
        "sketch_every": settings.sketch_every,
        "workloads": workload_slots(),
        "labels": LabelRules.from_env().to_dict(),
        "shadow": settings.mode is Mode.OBSERVE and adaptive(config),
    }


def _build(speculator: Any, group: Any, agent: EngineAgent | None, plan: dict[str, Any]) -> Attachment:
    table = CoefficientTable.from_json(plan["table"].encode())
    if agent is not None:
        table = agent.applied.table
    estimator = AcceptanceEstimator(
        speculator.max_num_reqs,
        speculator.num_speculative_steps,
        speculator.device,
        basis=SplineBasis(table.knots),
        workloads=plan["workloads"],
    )
    # Drafts whose logits a speculator never shows us teach nothing, instead of teaching with f = 0.
    estimator.features.fill_(float("nan"))
    session = Session(estimator, Ranks(group), agent, table, tuple(plan["round_steps"]), plan["sketch_every"])
    facade = Facade(session, speculator.acceptance_estimator, plan["shadow"])
    return Attachment(facade, LabelRules.from_dict(plan["labels"]), identity_of(speculator.vllm_config))


def _install(speculator: Any, attachment: Attachment, agent: EngineAgent | None) -> None:
    speculator.use_acceptance_estimator = True
    speculator.acceptance_estimator = attachment.facade
    if agent is None:
        return
    agent.extras = attachment.status
    agent.start()
    # Runs at the end of a worker process, whether or not vLLM shuts its runner down in order.
    Finalize(None, attachment.session.close, exitpriority=100)
    log.info("accord: estimating %s as %s, mode %s", agent.pair.id, agent.settings.engine, agent.settings.mode.value)


def _store(world_size: int) -> KeyStore:
    if world_size == 1:
        return _Nothing()
    try:
        store: KeyStore = torch.distributed.distributed_c10d._get_default_store()
    except (AttributeError, ValueError, RuntimeError) as error:
        raise IncompatibleError(f"ranks share no store to agree through ({error})") from None
    return store


class _Nothing:
    """The store of a group of one, which has nobody to agree with."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes:
        return b""

    def check(self, keys: list[str]) -> bool:
        return False

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return b""
