"""Real vLLM engines on tiny models, and looks into their workers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from unittest import mock

import numpy as np
from vllm import LLM, SamplingParams

from accord.hooks.outbox import RoundParts
from accord.hooks.vllm import plugin
from accord.hooks.vllm.session import Session
from accord.hooks.vllm.worker import ATTRIBUTE, Attachment
from accord.learner.moments import Moments

K = 3
MAX_SEQS = 8


@contextmanager
def engine(
    target: Path,
    draft: Path,
    settings: Mapping[str, str],
    *,
    method: str = "draft_model",
    k: int = K,
    tensor_parallel: int = 1,
    separate: bool = False,
    tokenizer: bool = False,
    **options: Any,
) -> Iterator[LLM]:
    """A running vLLM, with accord's settings in its environment.

    Args:
        target, draft: folders of models.
        settings: ACCORD_ variables; every other one is removed.
        method: of drafting.
        k: draft positions.
        tensor_parallel: processes.
        separate: whether the engine runs in a process of its own, as it does when serving.
        tokenizer: whether the target has one.
        options: more of `LLM`.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ACCORD_")}
    clean |= settings
    clean["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1" if separate else "0"
    clean["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    processes = tensor_parallel * options.get("pipeline_parallel_size", 1)
    clean["VLLM_CPU_OMP_THREADS_BIND"] = "|".join("01"[:processes]) if processes > 1 else "0-1"
    with mock.patch.dict(os.environ, clean, clear=True):
        # vLLM calls plugins once in a process, and this one may have had an engine without accord before.
        plugin.register()
        llm = LLM(
            model=str(target),
            dtype="float32",
            enforce_eager=True,
            kv_cache_memory_bytes=16 << 20,
            skip_tokenizer_init=not tokenizer,
            max_model_len=512,
            max_num_seqs=MAX_SEQS,
            max_num_batched_tokens=512,
            tensor_parallel_size=tensor_parallel,
            disable_log_stats=True,
            speculative_config={"model": str(draft), "method": method, "num_speculative_tokens": k},
            **options,
        )
        try:
            yield llm
        finally:
            core = llm.llm_engine.engine_core
            core.shutdown()
            if separate:
                # vLLM leaves it to the garbage collector, which warns.
                core.ctx.destroy(linger=0)


def params(
    workload: object = None, *, tokens: int = 12, temperature: float = 0.0, seed: int | None = None, **more: Any
) -> SamplingParams:
    """What one request asks for."""
    extra = None if workload is None else {"workload": workload}
    return SamplingParams(
        temperature=temperature,
        max_tokens=tokens,
        ignore_eos=True,
        detokenize=False,
        seed=seed,
        extra_args=extra,
        **more,
    )


def prompts(count: int, seed: int = 0, length: int = 4) -> list[dict[str, list[int]]]:
    """Random prompts."""
    tokens = np.random.default_rng(seed).integers(2, 500, (count, length))
    return [{"prompt_token_ids": row} for row in tokens.tolist()]


def generate(llm: LLM, wanted: Sequence[SamplingParams], seed: int = 0) -> list[list[int]]:
    """Answers to random prompts, one for each of `wanted`, as token ids."""
    outputs = llm.generate(prompts(len(wanted), seed), list(wanted), use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def attachment_of(worker: Any) -> Attachment | None:
    """What accord put into a worker, or None."""
    runner = getattr(worker, "model_runner", None) or worker.worker.model_runner
    found: Attachment | None = getattr(runner.speculator, ATTRIBUTE, None)
    return found


def session_of(worker: Any) -> Session:
    """The session of a worker; fails where there is none."""
    attachment = attachment_of(worker)
    assert attachment is not None
    return attachment.session


def local(llm: LLM) -> Session:
    """The session of an engine that runs in this process."""
    found: list[Session] = llm.collective_rpc(session_of)
    return found[0]


def journal_of(worker: Any) -> list[tuple[int, int, str, str]]:
    """(step, version, state, digest) at every boundary of this rank."""
    return [tuple(entry) for entry in session_of(worker).journal]


def status_of(worker: Any) -> dict[str, Any]:
    """The heartbeat of a rank that has an agent, and only the session's values elsewhere."""
    attachment = attachment_of(worker)
    assert attachment is not None
    agent = attachment.session.agent
    return agent.status() if agent is not None else attachment.status()


class Evidence:
    """What a session hands to its agent, added up by workload."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.rounds: list[RoundParts] = []

    def __enter__(self) -> Self:
        assert self.session.agent is not None
        self._settle()
        self.session.agent.put = self._put  # type: ignore[method-assign]
        return self

    def __exit__(self, *exc: object) -> None:
        if self.session.agent is not None:
            del self.session.agent.put

    def _settle(self) -> None:
        while self.session.harvest.pending:
            self.session.harvest.collect(self.session.agent)

    def _put(self, parts: RoundParts) -> bool:
        self.rounds.append(parts)
        return True

    def total(self) -> dict[str, Moments]:
        """The sums of each workload that has any, over all closed rounds."""
        self._settle()
        total: dict[str, Moments] = {}
        for parts in self.rounds:
            for row, name in enumerate(parts.workloads):
                one = parts.moments.take([row])
                # A workload that only has a share in a sketch brings sums that are empty.
                if not one.n.any():
                    continue
                if name in total:
                    total[name].add_at(np.array([0]), one)
                else:
                    total[name] = one
        return total
