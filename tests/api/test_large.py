"""Answers that can be megabytes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.api.harness import PAIR, Publisher, RunningApi

from accord.api.large import CONCURRENT
from accord.learner.store import Store


def test_a_burst_of_readers_leaves_few_connections_that_read_much(
    api: RunningApi, known: Publisher, store: Store
) -> None:
    """However many ask at once, states, histories and heartbeats come over two connections of their own."""
    base = f"/v1/pairs/{PAIR.id}"
    paths = [base, f"{base}/history", f"{base}/workloads/code:greedy", f"{base}/workloads/code:greedy/advice"]
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda number: api.get(paths[number % len(paths)]), range(96)))
    assert {answer.status_code for answer in answers} == {200}
    names = [client["name"] for client in store.client.client_list()]
    assert 1 <= names.count("accord-api-large") <= CONCURRENT
