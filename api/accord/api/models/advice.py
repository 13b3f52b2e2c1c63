"""Answers about what speculation brings, and what it costs."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from .basic import Number


class BatchAdvice(BaseModel):
    """The best K where a step serves so many requests."""

    batch: int
    best_k: int = Field(description="0: no speculation")
    gain: Number = Field(description="Tokens per cost, against no speculation")


class Advice(BaseModel):
    """Whether speculation pays for a workload, and with which K; null wherever that cannot be said."""

    labels: Number = Field(description="Recent labels, faded")
    acceptance: list[Number] = Field(description="K shares of blocks accepted up to and including each position")
    conditional: list[Number] = Field(description="K accepted shares of the drafts whose predecessors were accepted")
    mean_accepted_length: Number = Field(
        description="Accepted drafts per step; the token that always comes not counted"
    )
    tokens_per_step: list[Number] = Field(description="K + 1 values, by drafted tokens 0 to K")
    cost_source: str = Field(description="`engine:<name>`, `ratio` or `none`")
    cost_unit: str | None
    tokens_per_cost: list[Number] | None = Field(description="K + 1 values, per request")
    best_k: int | None = Field(description="The K with the most tokens per cost; 0: no speculation")
    gain: Number = Field(description="Tokens per cost of the pair's K, against no speculation")
    best_gain: Number = Field(description="The same of the best K")
    break_even_ratio: Number = Field(description="Cost of a draft token, in target steps, at which K just pays")
    verdict: Literal["helps", "marginal", "hurts", "unknown"]
    message: str
    notes: list[str]
    by_batch: list[BatchAdvice] = Field([], description="With an engine's own tables: at 1, 2, 4, ... requests")


class DeadSpot(BaseModel):
    """Batch sizes where more work is cheaper than less, or a little more work is dear."""

    table: Literal["draft", "verify"]
    kind: Literal["falls", "jump", "plateau"]
    tokens_from: int = Field(description="First size; requests in the draft table")
    tokens_to: int
    message: str


class EngineCostTables(BaseModel):
    """What an engine measured when it started: the last size of each level, and milliseconds."""

    engine: str
    draft: list[tuple[int, float]] = Field(description="[requests, ms] of a draft pass")
    verify: list[tuple[int, float]] = Field(description="[tokens, ms] of a verifying pass")
    dead_spots: list[DeadSpot]
    seen_ms: int | None


class RefusedCosts(BaseModel):
    """Tables that cannot be used."""

    engine: str
    message: str


class Costs(BaseModel):
    """Cost tables of a pair's engines, in the order of their names."""

    engines: list[EngineCostTables]
    refused: list[RefusedCosts]
    next: str | None = Field(description="What to pass as `after` for the next page; null on the last")
