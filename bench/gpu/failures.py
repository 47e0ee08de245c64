"""What a failure leaves behind: a JSON file with all that is needed to mend it on another machine.

The file has the command, its output, the variables that programs on a GPU heed, SHA-256 and size of each file that
the command reads, the source of the kernel, and the facts of the device, the driver and the kernel log. It has at
most LIMIT bytes: the longest texts are shortened first, and say by how much.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import signal
import time
from pathlib import Path

LIMIT = 1_000_000  # bytes of a file
VARIABLES = re.compile(r"(LMC|CUDA|NCCL|OMP|CUBLAS|NVIDIA)_|(LD_LIBRARY_PATH|LD_PRELOAD|PATH|OUT)$")
HASHED = 4 << 30  # bytes; of a larger file only the size is kept

AGAIN = 20  # seconds

hashes: dict[tuple, str] = {}  # of (path, time of the last change, size)
asked: dict[str, tuple] = {}  # when nvidia-smi and the kernel log were read, and what they said


def fingerprint(path: Path) -> dict:
    """Returns the name, size in bytes and SHA-256 of a file."""
    status = path.stat()
    key = (str(path), status.st_mtime_ns, status.st_size)
    if key not in hashes and status.st_size <= HASHED:
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
        hashes[key] = digest.hexdigest()
    return {"file": str(path), "bytes": status.st_size, "sha256": hashes.get(key)}


def inputs_of(command: list[str]) -> list[dict]:
    """Returns the fingerprint of each file that an argument names, alone or in NAME=["FILE"]."""
    found = {}
    for argument in command:
        for part in (argument, *re.findall(r'[^=\[\]",]+', argument)):
            try:
                if part not in found and Path(part).is_file():
                    found[part] = fingerprint(Path(part))
            except (OSError, ValueError):
                pass  # it is no name of a file, or cannot be read
    return list(found.values())


def ending(code: int) -> str:
    """Returns "exit code 2" or "signal SIGSEGV"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def facts_of(done) -> dict:
    """Returns what is known of a command that has ended, a session.Finished."""
    return {"command": done.command, "working_directory": os.getcwd(), "variables": done.variables,
            "stdin": done.stdin, "ended": ending(done.code), "timed_out": done.timed_out,
            "seconds": round(done.seconds, 3), "limit_seconds": done.limit, "stdout": done.out, "stderr": done.err,
            "inputs": inputs_of(done.command)}


def variables(env: dict) -> dict:
    return {name: value for name, value in sorted(env.items()) if VARIABLES.match(name)}


def source_of(plan: Path, kernel: str) -> str | None:
    """Returns the text that a plan holds of a kernel: the string between two zeros that defines it."""
    data = plan.read_bytes()
    defined = re.search(rb'extern "C" __global__[^\0]{0,200}?\b(lmc_)?' + re.escape(kernel.encode()) + rb"\(", data)
    if not defined:
        return None
    begin, end = data.rfind(b"\0", 0, defined.start()) + 1, data.find(b"\0", defined.end())
    return data[begin:end].decode(errors="replace")


def shorten(text: str, most: int) -> str:
    """Returns the first and the last part of a text, `most` characters together, and says what is left out."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters are left out ...\n{text[-half:]}"


def fit(facts: dict, limit: int = LIMIT) -> str:
    """Returns `facts` as JSON of at most `limit` bytes. The longest text is cut to half until that is so; long
    lists are texts, too."""
    def texts(of, path=()):
        pairs = of.items() if isinstance(of, dict) else enumerate(of) if isinstance(of, list) else ()
        for key, value in pairs:
            if isinstance(value, str):
                yield len(value), (*path, key)
            yield from texts(value, (*path, key))

    facts = json.loads(json.dumps(facts, default=str))
    while len(made := json.dumps(facts, indent=1) + "\n") > limit:  # ASCII: a character is a byte
        length, path = max(texts(facts), key=lambda each: each[0], default=(0, ()))
        if length < 1000:  # many small texts
            return json.dumps({"shortened": made[:limit // 3]}) + "\n"
        at = facts
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = shorten(at[path[-1]], length // 2)
    return made


def device(call, index: str) -> dict:
    """Returns what nvidia-smi and the kernel log say. call(command, limit) runs a command. A program that does not end
    is not asked again, and none more often than each AGAIN seconds."""
    for name, command in (("nvidia_smi", ["nvidia-smi", "-q", f"--id={index}"]), ("kernel_log", ["dmesg"])):
        if name in asked and time.monotonic() - asked[name][0] < AGAIN:
            continue
        done = call(command, 10)
        text = done.out if done.code == 0 else f"not read: {done.complaint()}"
        if name == "kernel_log" and done.code == 0:
            text = "\n".join([line for line in text.splitlines() if re.search("Xid|NVRM", line)][-50:])
        asked[name] = (time.monotonic() if not done.timed_out else math.inf, shorten(text, 20_000))
    return {name: text for name, (_, text) in asked.items()}
