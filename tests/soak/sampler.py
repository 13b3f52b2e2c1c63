"""What is measured: a row for each figure, `seconds,subject,measure,value`."""

from __future__ import annotations

import csv
import re
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import redis

from accord.learner.store import permanent_reason

FIELDS = ("seconds", "subject", "measure", "value")
_OF_A_PAIR = re.compile(r"\{[^{}]*\}")
_INFO = {
    "memory": ("used_memory", "used_memory_dataset", "used_memory_rss", "used_memory_lua", "mem_clients_normal"),
    "clients": ("connected_clients", "blocked_clients", "pubsub_clients"),
    "persistence": ("aof_current_size", "aof_rewrites"),
}
_LENGTHS = {b"stream": "XLEN", b"hash": "HLEN", b"zset": "ZCARD", b"list": "LLEN", b"set": "SCARD", b"string": "STRLEN"}
_STATE = ("body", "sequences", "counters")


class Sampler:
    """Appends a sample at a time to a file.

    Args:
        path: of the file, made anew.
        client: of the store, with raw answers.
    """

    def __init__(self, path: Path, client: redis.Redis) -> None:
        self._file = path.open("w", newline="")
        self._rows = csv.writer(self._file)
        self._rows.writerow(FIELDS)
        self._client = client
        self._began = time.monotonic()
        self._known: dict[int, psutil.Process] = {}

    def close(self) -> None:
        """Ends the file."""
        self._file.close()

    def sample(self, processes: Mapping[str, int]) -> None:
        """Measures everything once.

        Args:
            processes: name -> process id.
        """
        now = time.monotonic() - self._began
        self._known = {pid: self._known.get(pid) or psutil.Process(pid) for pid in processes.values()}
        for name, pid in processes.items():
            self._put(now, f"process {name}", _process(self._known[pid]))
        info = self._client.info()
        self._put(now, "store", {name: info[name] for names in _INFO.values() for name in names if name in info})
        for subject, values in self._keys().items():
            self._put(now, subject, values)
        self._file.flush()

    def _put(self, now: float, subject: str, values: Mapping[str, float]) -> None:
        self._rows.writerows((f"{now:.1f}", subject, measure, f"{value:g}" if isinstance(value, float) else value)
                             for measure, value in values.items())  # fmt: skip

    def _keys(self) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(int))
        total = 0
        for key in self._client.scan_iter(count=1000):
            total += 1
            text = key.decode(errors="replace")
            kind = bytes(self._client.type(key))
            name = f"keys {_OF_A_PAIR.sub('{pair}', text)}"
            length: Any = self._client.execute_command(_LENGTHS[kind], key) if kind in _LENGTHS else 0
            of_kind = found[name]
            of_kind["count"] += 1
            of_kind["bytes"] += self._client.memory_usage(key, samples=0) or 0
            of_kind["longest"] = max(of_kind["longest"], length)
            if self._client.ttl(key) == -1:
                of_kind["without_ttl"] += 1
                if permanent_reason(text) is None:
                    found["undeclared"][text] = 1
            if name.endswith(":state"):
                for part in _STATE:
                    of_kind[part] = max(of_kind[part], int(self._client.hstrlen(key, part)))
        found["store"]["dbsize"] = total
        return found


def _process(process: psutil.Process) -> dict[str, float]:
    try:
        memory = process.memory_full_info()
        cpu = process.cpu_times()
        return {
            "rss": memory.rss,
            "uss": memory.uss,
            "pss": memory.pss,
            "fds": process.num_fds(),
            "threads": process.num_threads(),
            "cpu_s": round(cpu.user + cpu.system, 2),
            "pid": process.pid,
        }
    except psutil.Error:
        # It was replaced meanwhile.
        return {}
