"""One soak: starts everything, samples, replaces engines, ends it in order, and settles the account of labels."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from tests.chaos.campaign import tracebacks
from tests.chaos.ledger import accounts
from tests.waiting import until

from accord.learner.counters import Counters
from accord.learner.store import Store, connect

from .clients import Clients
from .sampler import Sampler
from .site import Site, Size

SAMPLES = "samples.csv"
ACCOUNT = "account.json"


@dataclass(frozen=True)
class Plan:
    """How long, and how often.

    Args:
        seconds: of the soak itself.
        every_s: between samples.
        pollers, pause_s: of the clients.
    """

    seconds: float
    every_s: float = 10.0
    pollers: int = 10
    pause_s: float = 10.0


def soak(folder: Path, size: Size, plan: Plan, say: Callable[[str], None] = print) -> None:
    """Runs it; leaves samples.csv and account.json in the folder."""
    site = Site(folder, size)
    try:
        site.start()
        pairs = [pair.id for pair in site.pairs]
        clients = Clients(site.api_urls, site.learner_urls, pairs, plan.pollers, plan.pause_s)
        clients.start()
        with redis.Redis(port=site.store.port, protocol=2) as client:
            sampler = Sampler(folder / SAMPLES, client)
            _watch(site, sampler, plan, say)
            clients.stop()
            site.end_engines()
            sampler.close()
        with Store(connect(site.store.url)) as store:
            until(lambda: _caught_up(store, pairs), 60.0, "everything learnt")
            account = _account(store, site)
    finally:
        site.close()
    account["trouble"] = [*site.wrong, *clients.trouble, *_logged(folder)]
    account["answers"] = {f"{who} {status or ''}".strip(): n for (who, status), n in sorted(clients.answers.items())}
    (folder / ACCOUNT).write_text(json.dumps(account, indent=1))


def _watch(site: Site, sampler: Sampler, plan: Plan, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    each_s = site.size.churn_s / max(len(site.passing), 1)
    sample_at, churn_at, number = began, began + each_s, 0
    while time.monotonic() < began + plan.seconds:
        if time.monotonic() >= sample_at:
            sampler.sample(site.processes())
            sample_at += plan.every_s
            number += 1
            if number % 60 == 0:
                say(f"{(time.monotonic() - began) / 60:.0f} min, {site.boots} engines came")
        if site.passing and time.monotonic() >= churn_at:
            site.churn()
            churn_at += each_s
        time.sleep(max(0.0, min(sample_at, churn_at, began + plan.seconds) - time.monotonic()))


def _caught_up(store: Store, pairs: list[str]) -> bool:
    for pair in pairs:
        newest = store.client.xrevrange(f"accord:{{{pair}}}:rounds", count=1)
        stored = store.load(pair)
        if newest and stored.watermark != newest[0][0].decode():
            return False
    return True


def _account(store: Store, site: Site) -> dict[str, Any]:
    """What engines counted, what was learnt, and what was not for a reason that the learner counts."""
    books = accounts(site.ledger)
    sums: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for pair in site.pairs:
        counters = Counters.decode(store.load(pair.id).counters)
        for name in ("labels", "overflowed", "aside", "summaries", "rounds", "rounds_missing", "displaced", "shared"):
            sums[name] += getattr(counters, name)
        refused.update(counters.refused)
    unsent = sum(book.unsent for book in books)
    observed = sum(book.observed for book in books)
    return {
        "boots": len(books),
        "observed": observed,
        "learnt": sums.pop("labels"),
        "lost": {"no room for its workload": sums["overflowed"], "unsent when its engine ended": unsent},
        "refused": dict(refused),
        "not_ended_in_order": [book.engine for book in books if not book.stopped],
        "counters": dict(sums),
    }


def _logged(folder: Path) -> list[str]:
    return [f"{log.name}: {tracebacks(log)[-300:]}" for log in sorted(folder.glob("*.log")) if tracebacks(log)]
