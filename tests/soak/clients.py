"""Who asks the service during a soak: long-polls, event streams, scrapers, readers of the page, and an operator."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

CALM = (200, 304)


@dataclass
class Clients:
    """Threads that ask until they are told to stop.

    Args:
        apis, learners: base URLs; pairs: ids.
        pollers: held long-polls; pause_s: between two questions of a reader, and two changes of the operator.

    Attributes:
        answers: (who, status) -> how often; trouble: what should not have been answered, at most 50.
    """

    apis: list[str]
    learners: list[str]
    pairs: list[str]
    pollers: int = 10
    pause_s: float = 10.0
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    trouble: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Starts them all."""
        jobs: list[tuple[str, Callable[..., None], tuple[Any, ...]]] = []
        for number in range(self.pollers):
            where = self.apis[number % len(self.apis)], self.pairs[number % len(self.pairs)]
            jobs.append(("poller", self._poll, where))
        jobs += [("events", self._listen, (url,)) for url in self.apis]
        jobs += [("scraper", self._again, (self._scrape,)), ("reader", self._again, (self._read,))]
        jobs += [("operator", self._again, (Operator(self).change,))]
        for name, work, arguments in jobs:
            thread = threading.Thread(target=work, args=arguments, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Ends them; held answers and streams are left behind with the process."""
        self._over.set()
        for thread in self._threads:
            if thread.name not in ("poller", "events"):
                thread.join(30.0)

    def count(self, who: str, answer: httpx.Response, wanted: tuple[int, ...] = CALM) -> httpx.Response:
        """Writes an answer down."""
        with self._lock:
            self.answers[who, answer.status_code] += 1
        if answer.status_code not in wanted:
            self.complain(f"{who}: {answer.request.method} {answer.request.url.path}: {answer.status_code}")
        return answer

    def complain(self, text: str) -> None:
        """Writes down what should not be."""
        if len(self.trouble) < 50 and not self._over.is_set():
            self.trouble.append(text)

    def _again(self, work: Callable[[httpx.Client], None]) -> None:
        with httpx.Client(trust_env=False, timeout=20.0) as http:
            while not self._over.wait(self.pause_s):
                try:
                    work(http)
                except (httpx.HTTPError, LookupError, ValueError) as error:
                    self.complain(f"{threading.current_thread().name}: {error!r:.200}")

    def _poll(self, api: str, pair: str) -> None:
        etag = ""
        with httpx.Client(trust_env=False, timeout=60.0) as http:
            while not self._over.is_set():
                try:
                    headers = {"If-None-Match": etag} if etag else {}
                    url = f"{api}/v1/pairs/{pair}/coefficients"
                    answer = http.get(url, params={"wait": 25}, headers=headers)
                except httpx.HTTPError as error:
                    self.complain(f"poller: {error!r:.200}")
                    self._over.wait(1.0)
                    continue
                self.count("poller", answer, (*CALM, 404))
                etag = answer.headers.get("etag", etag)
                self._over.wait(0.5 if answer.status_code in CALM else 2.0)

    def _listen(self, api: str) -> None:
        timeout = httpx.Timeout(20.0, read=30.0)
        with httpx.Client(trust_env=False, timeout=timeout) as http:
            while not self._over.is_set():
                try:
                    with http.stream("GET", f"{api}/v1/events") as answer:
                        self.count("events", answer)
                        for line in answer.iter_lines():
                            if line.startswith("event: "):
                                self.answers[line, 0] += 1
                            if self._over.is_set():
                                return
                except httpx.HTTPError as error:
                    self.complain(f"events: {error!r:.200}")
                self._over.wait(0.5)

    def _scrape(self, http: httpx.Client) -> None:
        for url in [*self.apis, *self.learners]:
            self.count("scraper", http.get(f"{url}/metrics"))

    def _read(self, http: httpx.Client) -> None:
        """What the page asks, and what a person would look up."""
        api, pair = random.choice(self.apis), random.choice(self.pairs)
        base = f"{api}/v1/pairs/{pair}"
        self.count("reader", http.get(f"{api}/v1/pairs"))
        detail = self.count("reader", http.get(base), (200, 404))
        if detail.status_code != 200:
            return
        for path in ("history", "audit", "costs", "overrides"):
            self.count("reader", http.get(f"{base}/{path}"))
        for view in detail.json()["workloads"][:3]:
            self.count("reader", http.get(f"{base}/workloads/{view['workload']}"), (200, 404))
            self.count("reader", http.get(f"{base}/workloads/{view['workload']}/advice"), (200, 404))


class Operator:
    """Sets, lifts and rolls back, one thing at a time."""

    def __init__(self, clients: Clients) -> None:
        self._clients, self._turn = clients, 0

    def change(self, http: httpx.Client) -> None:
        """The next thing to do, on the pair whose turn it is."""
        self._turn += 1
        pairs, apis = self._clients.pairs, self._clients.apis
        base = f"{apis[self._turn % len(apis)]}/v1/pairs/{pairs[self._turn // 6 % len(pairs)]}"
        known = http.get(f"{base}/overrides")
        if known.status_code != 200:
            return
        match = {"If-Match": known.headers["etag"]}
        by = {"reason": "a soak", "actor": "nobody"}
        detail = http.get(base).json()
        views = detail["workloads"]
        if not views:
            return
        one = f"{base}/workloads/{random.choice(views)['workload']}"
        what = self._turn % 6
        if what == 0:
            # Refused while anything is overridden; the last turn lifted it all.
            versions = [entry["version"] for entry in http.get(f"{base}/history").json()["entries"]]
            body = {"version": random.choice(versions), "hold": False, **by}
            answer = http.post(f"{base}/rollback", json=body, headers=match)
        elif what == 1:
            answer = http.put(f"{one}/override", json={"kind": "shift", "shift": 0.1, **by}, headers=match)
        elif what == 2:
            body = {"kind": "shift", "shift": -0.1, **by, "expires_in_s": 5}
            answer = http.put(f"{base}/override", json=body, headers=match)
        elif what == 3:
            answer = http.put(f"{one}/override", json={"kind": "freeze", **by, "expires_in_s": 20}, headers=match)
        elif what == 4:
            versions = [entry["version"] for entry in http.get(f"{base}/history").json()["entries"]]
            body = {"version": random.choice(versions), **by, "expires_in_s": 10}
            answer = http.post(f"{one}/rollback", json=body, headers=match)
        else:
            for override in known.json()["overrides"]:
                scope = override["scope"]
                where = base if scope is None else f"{base}/workloads/{scope}"
                match = {"If-Match": http.get(f"{base}/overrides").headers["etag"]}
                answer = http.request("DELETE", f"{where}/override", json=by, headers=match)
                # It may have lapsed since it was listed.
                self._clients.count("operator", answer, (200, 404, 412))
            return
        # Something may have lapsed, or been displaced or trimmed, since it was read; and a full pair has no row for a
        # workload that was displaced.
        self._clients.count("operator", answer, (200, 404, 409, 412))
