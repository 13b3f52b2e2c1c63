"""Every decoder of bytes that somebody else wrote: how it is called, what it may raise, and samples of good input."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from tests.learner.strategies import BOOT, KEYS, PAIR, Engine

from accord.api.audit_engine.address import AuditError
from accord.api.audit_engine.page import parse as parse_page
from accord.api.auth.auth import Auth
from accord.api.auth.roles import Role
from accord.api.auth.tokens import TokenFileError, TokenSet, create
from accord.api.auth.tokens import parse as parse_tokens
from accord.api.engine_costs import reported
from accord.api.metrics.engines import judge_engines
from accord.learner.coefficients import Coefficients, CoefficientTable
from accord.learner.counters import Counters
from accord.learner.errors import InvalidValue, Reason, Refusal
from accord.learner.evaluate.trace import Trace
from accord.learner.overrides import Kind, Override, decode_overrides, encode_overrides
from accord.learner.packing import pack, unpack
from accord.learner.pair import DraftSampling, Method, Pair
from accord.learner.pair_learner import PairLearner
from accord.learner.sequences import Sequences
from accord.learner.state_codec import Learnt, decode_learnt, encode_learnt
from accord.learner.store.records import PairRecord
from accord.learner.summary import RoundSummary
from accord.learner.views import pair_view, workload_view
from accord.learner.wire import Expected, decode, encode
from accord.learner.wire_batch import decode_many

KNOTS = (0.0, 2.0)
EXPECTED = Expected(PAIR, 3, KNOTS)


@dataclass(frozen=True)
class Decoder:
    """One way in.

    Attributes:
        read: takes the bytes; raises: the only exceptions that it may end with.
        samples: makes good input; factor: bytes that reading may allocate for each byte of input, beside a constant.
    """

    read: Callable[[bytes], object]
    raises: tuple[type[Exception], ...]
    samples: Callable[[], list[bytes]]
    factor: float = 64.0


def _summaries() -> list[bytes]:
    engine = Engine(3, keys=KEYS[:2])
    return [encode(engine.round(6, sketch=sketch)) for sketch in (False, True)]


def _plain() -> list[bytes]:
    """Summaries that are not deflated, so that a change of one byte is a change of one field."""
    first, second = _summaries()
    return [first[1:], zlib.decompress(second[1:])]


@cache
def _learnt() -> PairLearner:
    learner = PairLearner(Learnt.new(PAIR, 3, KNOTS))
    engines = [Engine(i, name=f"e/{i}", keys=KEYS[:2], requests=12) for i in range(3)]
    for tick in range(40, 52):
        entries = [(f"{tick * 250}-{i}", encode(engine.round(20))) for i, engine in enumerate(engines)]
        learner.advance(entries, tick + 1)
    learner.learnt.held["code:greedy"] = {"worse_by": 0.1, "noise": 0.01, "labels": 9.0}
    return learner


def _state() -> list[bytes]:
    return [encode_learnt(_learnt().learnt), encode_learnt(Learnt.new(PAIR, 3, KNOTS))]


def _tables() -> list[bytes]:
    return [_learnt().learnt.served.to_json(), CoefficientTable.cold(PAIR, 3, KNOTS).to_json()]


def _overrides() -> list[bytes]:
    row = Coefficients([0.5, 0.0, 0.0], [0.1, 0.2, 0.3], 0.1)
    pin = Override("code:greedy", Kind.PIN, "why", "who", 1, 1, coefficients=row)
    shift = Override(None, Kind.SHIFT, "why", "who", 1, 2, expires_ms=5, shift=0.5)
    return [encode_overrides({item.scope: item for item in (pin, shift)}), b"[]"]


def _records() -> list[bytes]:
    pair = Pair("org/Target", "org/Draft", Method.EAGLE, DraftSampling.GREEDY, 3)
    return [PairRecord(pair, KNOTS, 1_700_000_000_000).to_json()]


@cache
def _token() -> tuple[str, bytes]:
    token, entry = create("ops", Role.OPERATOR, "2030-01-31T00:00:00Z")
    return token, entry.line().encode()


def _costs() -> list[bytes]:
    curves = {"draft_ms_by_requests": [[1, 0.5], [8, 0.75]], "verify_ms_by_tokens": [[1, 5.0], [64, 6.5]]}
    return [json.dumps({"costs": curves, "time_ms": 1_700_000_000_000}).encode()]


def _heartbeats() -> list[bytes]:
    return [json.dumps({"state": "fleet", "version": 3, "time_ms": 5, "stopped": False, "reason": ""}).encode()]


def _pages() -> list[bytes]:
    lines = [
        "# TYPE vllm:spec_decode_num_drafts_total counter",
        'vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 12.0',
        'vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 84.0',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 8.0 1700000000000',
        'ray_vllm_num_requests_running{engine="0"} 3',
    ]
    return ["\n".join(lines).encode()]


def _traces() -> list[bytes]:
    pair = json.dumps(Pair("T", "D", Method.EAGLE, DraftSampling.GREEDY, 2).to_dict())
    whole = {"accepted": [1, 0], "workload": [0, 0], "request": [0, 1], "step": [0, 0]}
    files = []
    for write in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        write(
            file,
            features=np.zeros((2, 2), dtype=np.float32),
            workloads=np.array(["code:greedy"]),
            pair=np.array(pair),
            **{name: np.array(values, dtype=np.int64) for name, values in whole.items()},
        )
        files.append(file.getvalue())
    return files


def _both(data: bytes) -> object:
    """A summary decoded alone and among others: the same outcome."""
    first, *_, last = decode_many([data, *_good(), data], EXPECTED)
    alone: RoundSummary | Refusal
    try:
        alone = decode(data, EXPECTED)
    except Refusal as refusal:
        alone = refusal
    assert _told(first) == _told(last) == _told(alone)
    return alone


def _told(found: RoundSummary | Refusal) -> bytes:
    return found.reason.value.encode() if isinstance(found, Refusal) else encode(found)


@cache
def _good() -> tuple[bytes, ...]:
    return tuple(_summaries())


def _learn(data: bytes) -> object:
    """A summary that is admitted is learnt, and what is learnt can be committed, loaded and shown."""
    learner = PairLearner(Learnt.new(PAIR, 3, KNOTS))
    learner.advance([("10000-0", _good()[1]), ("10000-1", data), ("10000-2", _good()[0])], 41)
    body = encode_learnt(learner.learnt)
    assert encode_learnt(decode_learnt(body)) == body
    return pair_view(body, learner.counters.encode())


def _views(data: bytes) -> object:
    """Everything that the api says of a state."""
    found = pair_view(data, None)
    for item in found["workloads"]:
        workload_view(data, item["workload"])
    return found


def _authorised(data: bytes) -> object:
    auth = Auth(None)
    auth.identify([(b"host", data), (b"origin", data)])
    auth.keyring = _Keys()  # type: ignore[assignment]  # a file is not needed to look a token up
    return auth.identify([(b"authorization", data)])


class _Keys:
    def __init__(self) -> None:
        self.tokens = TokenSet(parse_tokens(_token()[1]))


DECODERS: dict[str, Decoder] = {
    "wire": Decoder(_both, (Refusal,), _summaries, 256.0),
    "wire_plain": Decoder(lambda data: _both(b"\x00" + data), (Refusal,), _plain),
    "wire_learnt": Decoder(lambda data: _learn(b"\x00" + data), (), _plain, 1024.0),
    "packing": Decoder(lambda data: unpack(b"ACR1", data, max_bytes=1 << 20), (Refusal,), _plain),
    "state": Decoder(decode_learnt, (Refusal,), _state),
    "views": Decoder(_views, (Refusal,), _state),
    "sequences": Decoder(Sequences.decode, (Refusal,), lambda: [_learnt().sequences.encode()]),
    "counters": Decoder(Counters.decode, (Refusal,), lambda: [_learnt().counters.encode()]),
    "table": Decoder(CoefficientTable.from_json, (Refusal,), _tables),
    "overrides": Decoder(decode_overrides, (InvalidValue,), _overrides),
    "record": Decoder(PairRecord.from_json, (InvalidValue,), _records),
    "tokens": Decoder(parse_tokens, (TokenFileError,), lambda: [b"# who\n" + _token()[1] + b"\n"]),
    "authorization": Decoder(_authorised, (), lambda: [b"Bearer " + _token()[0].encode(), b"localhost:80"]),
    "costs": Decoder(lambda data: reported({"e/0": json.loads(data)}), (ValueError, AttributeError), _costs),
    "heartbeat": Decoder(lambda data: judge_engines([data], 5, 10_000), (), _heartbeats),
    "page": Decoder(lambda data: parse_page(data.decode("utf-8", "replace")), (AuditError,), _pages),
    "trace": Decoder(lambda data: Trace.read(io.BytesIO(data)), (InvalidValue,), _traces, 512.0),
}

CONSTANT_BYTES = 4 << 20
"""What reading anything may allocate: rings, records and grids of a pair, whatever the input says."""


def dictionary() -> Iterator[bytes]:
    """Words that a fuzzer should know."""
    yield from (
        b"ACR1",
        b"ACS1",
        b"NaN",
        b"Infinity",
        b"-1",
        b"1e400",
        b"9" * 400,
        b"[[[[",
        b'{"meta":',
        b'"f8"',
        b"\x00",
    )
    yield from (KEYS[0].encode(), BOOT.encode(), PAIR.encode(), b"sha256:", b"not_after=", b"Bearer ", b'"arrays":')
    yield from (pack(b"ACR1", {}, {}), Reason.SIZE.value.encode())
