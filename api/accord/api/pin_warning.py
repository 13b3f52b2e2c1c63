"""What there is to say about a pin before it does harm: the one place where a what-if is asked for it."""

from __future__ import annotations

from accord.learner.coefficients import Coefficients
from accord.learner.overrides import Scope

from .models import PinWarning
from .services import Services


async def pin_warning(services: Services, pair_id: str, scope: Scope, row: Coefficients) -> PinWarning | None:
    """How much worse the row would predict recent traffic, None when it is not worse by more than its noise."""
    return None
