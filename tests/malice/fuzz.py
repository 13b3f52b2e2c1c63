"""Coverage-guided fuzzing with atheris: `python -m tests.malice.fuzz [--seconds 300] [--only wire,state]`."""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

HEAP_BYTES = 3 << 30


def main() -> int:
    """Fuzzes every decoder in a process of its own; 1 when one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=300, help="for each decoder")
    parser.add_argument("--only", default="", help="names, by comma")
    parser.add_argument("--corpus", type=Path, default=Path(".fuzz"), help="where found inputs are kept")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        _fuzz(args.one, args.seconds, args.corpus / args.one)
    from tests.malice.decoders import DECODERS

    failed = []
    for name in args.only.split(",") if args.only else DECODERS:
        folder = args.corpus / name
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.malice.fuzz", "--one", name]
        command += ["--seconds", str(args.seconds), "--corpus", str(args.corpus)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = (done.stdout + done.stderr).splitlines()
        ended = "ok" if done.returncode == 0 else f"FAILED ({done.returncode})"
        print(f"{name}: {ended}, {_figures(lines)}", flush=True)
        if done.returncode:
            print("\n".join(lines[-60:]), flush=True)
            failed.append(name)
    return 1 if failed else 0


def _figures(lines: list[str]) -> str:
    """How many inputs were tried in which time, and how many branches and features of the code they reached."""
    runs = next((line.strip() for line in reversed(lines) if line.startswith("Done ")), "not done")
    covered = [found for line in lines if (found := re.search(r"cov: \d+ ft: \d+ corp: \d+", line))]
    return f"{runs}, {covered[-1].group()}" if covered else runs


def _fuzz(name: str, seconds: int, folder: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=["accord", "json", "prometheus_client", "zipfile"]):
        from tests.malice.decoders import DECODERS, dictionary
    decoder = DECODERS[name]
    for number, sample in enumerate(decoder.samples()):
        (folder / f"sample-{number}").write_bytes(sample)
    words = Path(tempfile.mkdtemp()) / "words"
    lines = ['"' + "".join(f"\\x{byte:02x}" for byte in word) + '"' for word in dictionary()]
    words.write_text("\n".join(lines) + "\n")

    def one(data: bytes) -> None:
        try:
            decoder.read(data)
        except decoder.raises:
            return

    # A single allocation of gigabytes ends as MemoryError, which no decoder may raise.
    resource.setrlimit(resource.RLIMIT_AS, (HEAP_BYTES, HEAP_BYTES))
    options = [f"-max_total_time={seconds}", f"-dict={words}", "-timeout=20", "-rss_limit_mb=0", "-max_len=65536"]
    options += ["-print_final_stats=0", f"-artifact_prefix={folder.parent}/{name}-"]
    atheris.Setup([sys.argv[0], *options, str(folder)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    raise SystemExit(main())
