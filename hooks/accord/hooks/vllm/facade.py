"""What takes the place of vLLM's estimator in a speculator."""

from __future__ import annotations

from typing import Any

import torch

from .notice import complain
from .session import Session


class Facade:
    """vLLM's interface, our estimator behind it, and vLLM's own as the way back.

    Should ours ever raise, vLLM's own takes over for good; steps go on being counted, so that ranks stay together.

    Args:
        session: of this rank.
        stock: the estimator that vLLM built, or None when it built none because it verifies a fixed number of drafts.
        shadow: whether vLLM acts on its own estimator, and ours only measures.
    """

    def __init__(self, session: Session, stock: Any, shadow: bool) -> None:
        self.session, self.stock, self.shadow = session, stock, shadow
        self.broken = False
        estimator = session.estimator
        # Where predictions go that nobody may act on.
        size = (estimator.max_num_reqs, estimator.num_speculative_steps)
        self._unused = torch.empty(size if shadow else 0, dtype=torch.float32, device=estimator.device)

    def predict(
        self,
        logits: torch.Tensor,
        idx_mapping: torch.Tensor,
        draft_step: torch.Tensor,
        confidence_probs: torch.Tensor,
        temperature: torch.Tensor,
    ) -> None:
        """As vLLM's: writes P(accept) of each drafted row. May be captured in a CUDA graph."""
        if not self.broken:
            try:
                target = self._unused if self.shadow else confidence_probs
                self.session.estimator.predict(logits, idx_mapping, draft_step, target, temperature)
            except Exception as error:  # noqa: BLE001  # the engine's thread: nothing of ours may reach it
                self._break("predict", error)
        if (self.broken or self.shadow) and self.stock is not None:
            self.stock.predict(logits, idx_mapping, draft_step, confidence_probs, temperature)

    def step(self, idx_mapping: torch.Tensor, num_sampled: torch.Tensor, num_rejected: torch.Tensor) -> None:
        """As vLLM's: takes the verdicts on the last drafts; and whatever is due between two rounds."""
        if not self.broken:
            try:
                self.session.estimator.step(idx_mapping, num_sampled, num_rejected)
            except Exception as error:  # noqa: BLE001  # as above
                self._break("step", error)
        if (self.broken or self.shadow) and self.stock is not None:
            self.stock.step(idx_mapping, num_sampled, num_rejected)
        self.session.step()

    def _break(self, what: str, error: Exception) -> None:
        self.broken = True
        self.session.errors[f"{what}: {type(error).__name__}"] += 1
        complain(f"the estimator's {what} failed ({type(error).__name__}: {error})"[:500], error)
