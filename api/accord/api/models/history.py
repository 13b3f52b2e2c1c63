"""What happened to a pair: past versions, and who changed what."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from accord.learner.causes import CAUSES

from .basic import Number
from .overrides import OverrideView


class HistoryItem(BaseModel):
    """One published version, without its table."""

    id: str = Field(description="Place in the history; what `before` takes")
    version: int
    published_ms: int
    cause: str = Field(description=f"{', '.join(CAUSES[:-1])} or {CAUSES[-1]}")
    scope: str | None = Field(None, description="Of an operator's change: the workload, null for the whole pair")
    moved: dict[str, Number] = Field({}, description="Workload to the largest change of a predicted probability")
    held: dict[str, Any] = Field({}, description="Workload to why the guard kept its older row")
    returned: dict[str, Any] = Field({}, description="Workload to why an older row came back")
    drift: list[dict[str, Any]] = Field([], description="Alarms since the version before")
    aside: dict[str, Any] = Field({}, description="Engine to the labels that were set aside")
    labels: dict[str, Number] = Field({}, description="Workload to every label ever learnt")
    metrics: dict[str, dict[str, Any]] = Field({}, description="Workload to how well its row predicts recent labels")
    lineage: dict[str, Any] = Field(
        {}, description="Engine to half its boot, first and last round since the one before"
    )
    unlisted: int = Field(0, description="Summaries of engines for which the lineage had no room")
    overridden: list[str] = Field([], description="Scopes of the overrides in force; empty text for the whole pair")
    override: OverrideView | None = Field(None, description="The override that came, or went")
    of_version: int | None = Field(None, description="The version that a rollback brought back")
    actor: str | None = None
    reason: str | None = None


class HistoryPage(BaseModel):
    """Past versions, newest first."""

    entries: list[HistoryItem]
    next: str | None = Field(description="What to pass as `before` for older ones; null at the end")


class AuditItem(BaseModel):
    """One change of an operator, or an override that ended by itself."""

    id: str
    at_ms: int = Field(description="Unix milliseconds by the store's clock")
    action: str = Field(description="put, delete, expire or rollback")
    scope: str | None
    actor: str
    token: str | None
    role: str | None
    reason: str
    before: OverrideView | None
    after: OverrideView | None
    of_version: int | None = None
    version_before: int
    version_after: int
    revision: int


class AuditPage(BaseModel):
    """Changes, newest first; nothing in the api alters them."""

    entries: list[AuditItem]
    next: str | None = Field(description="What to pass as `before` for older ones; null at the end")
