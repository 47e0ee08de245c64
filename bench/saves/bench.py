#!/usr/bin/env python3
"""What saves cost a run: bench.py [--turns=N].

Trains a Llama of 4 million parameters with one thread, so that a core is to spare, and compares tokens/s of the
median step with a save every 10 steps and without any; with exports; and on a disk of 20 MB/s (a library for
LD_PRELOAD makes writes wait). Runs with and without take turns, because machines are noisy. Then 500
saves of a tiny model in one run: memory, open files and threads must not grow. The exit code is 1 if a goal is missed.

The goals: the loop waits for the copy of the state and at most 0.05 s; 97% of the tokens/s.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("LMC_BUILD", ROOT / "build"))
STEPS = 60

TOML = """
[model]
architecture = "llama"
vocab_size = 4096
hidden_size = {hidden}
intermediate_size = {intermediate}
num_hidden_layers = {layers}
num_attention_heads = 4
num_key_value_heads = 4
[training]
sequence_length = {length}
batch_size = 4
micro_batch_size = 4
train_iters = {steps}
[optimizer]
type = "adamw"
[lr_schedule]
style = "constant"
lr = 1e-4
[data]
train = ["train.bin"]
"""


def compile_job(folder: Path, **values) -> Path:
    tokens = bytes((i * 7919 >> 3) % 256 if i % 2 == 0 else (i >> 9) % 16 for i in range(2 * 200_001))
    (folder / "train.bin").write_bytes(tokens)
    (folder / "job.toml").write_text(TOML.format(**values))
    plan = folder / "job.plan"
    subprocess.run([BUILD / "bin/lmc", "compile", folder / "job.toml", "-o", plan], check=True, stdout=subprocess.DEVNULL)
    return plan


def train(plan: Path, out: Path, *options: str, rate: int = 0) -> subprocess.Popen:
    environment = dict(os.environ)
    if rate:
        environment |= {"LD_PRELOAD": str(BUILD / "test/libfaulty-disk.so"), "LMC_DISK_RATE": str(rate)}
    command = [BUILD / "bin/lmc-run", plan, f"--out={out}", "--threads=1", *options]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def median_rate(out: Path) -> float:
    """Tokens/s of all steps but the first five: their tokens by their seconds and those that the loop waited for saves."""
    steps = lines(out / "metrics.jsonl")[5:]
    seconds = sum(step["step_seconds"] + step["save_seconds"] for step in steps)
    return (steps[-1]["tokens"] - steps[0]["tokens"]) * len(steps) / (len(steps) - 1) / seconds


def state_of(pid: int) -> tuple[int, int, int]:
    """Resident bytes, open files and threads of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) * 1024, len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3, help="pairs of runs of each kind (default: 3)")
    turns = parser.parse_args().turns
    missed = []

    def figure(name: str, value: float, goal: float, unit: str, most: bool = True) -> None:
        verdict = "" if (value <= goal if most else value >= goal) else "  MISSED"
        print(f"{name:<60}{value:10.4g} {unit:<6} goal {goal:g}{verdict}", flush=True)
        if verdict:
            missed.append(name)

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        plan = compile_job(folder, hidden=256, intermediate=704, layers=4, length=256, steps=STEPS)
        kinds = {
            "a save every 10 steps": (["--set", "checkpoint.interval=10"], 0),
            "a save and an export every 10 steps": (
                ["--set", "checkpoint.interval=10", "--set", "checkpoint.export_interval=10"], 0),
            "a save every 10 steps, disk of 20 MB/s": (["--set", "checkpoint.interval=10"], 20_000_000),
        }
        for kind, (options, rate) in kinds.items():
            ratios, waits, copies, late = [], [], [], 0
            for turn in range(turns):
                rates = {}
                order = [("without", []), ("with", options)]
                for name, extra in order if turn % 2 == 0 else order[::-1]:
                    out = folder / f"{kind}-{turn}-{name}"
                    if train(plan, out, *extra, rate=rate if name == "with" else 0).wait():
                        sys.exit(f"bench: error: a run with {kind} has failed")
                    rates[name] = median_rate(out)
                events = lines(folder / f"{kind}-{turn}-with" / "events.jsonl")
                # The end of a run waits for what is being written; the loop does not.
                end = lines(folder / f"{kind}-{turn}-with" / "metrics.jsonl")[-1]["time"]
                saves = [e for e in events if e["event"] == "checkpoint" and e["time"] < end]
                waits += [e["waited_seconds"] - e["copy_seconds"] for e in saves]
                copies += [e["copy_seconds"] for e in saves]
                late += sum(e["event"] == "late_save" for e in events)
                ratios.append(rates["with"] / rates["without"])
            figure(f"{kind}: tokens/s with / without", statistics.median(ratios), 0.97, "", most=False)
            figure(f"{kind}: longest wait beside the copy", max(waits), 0.05, "s")
            print(f"    {len(waits)} saves, {late} late; the copy took {statistics.median(copies):.4f} s, at most {max(copies):.4f} s")

        plan = compile_job(folder, hidden=64, intermediate=128, layers=1, length=32, steps=1_000_000)
        out = folder / "many"
        run = train(plan, out, "--set", "checkpoint.interval=1", "--set", "checkpoint.keep=2")
        counts = {}
        while len(counts) < 2:
            time.sleep(0.05)
            if run.poll() is not None:
                sys.exit("bench: error: the run with many saves has ended")
            if not (out / "events.jsonl").exists():
                continue
            saves = (out / "events.jsonl").read_text().count('"event":"checkpoint"')
            if saves >= (50 if not counts else 550):
                counts[saves] = state_of(run.pid)
        run.terminate()
        run.wait()
        (few, before), (many, after) = counts.items()
        figure(f"growth of resident memory over {many - few} saves", (after[0] - before[0]) / 2**20, 4, "MiB")
        figure(f"growth of open files over {many - few} saves", after[1] - before[1], 2, "")
        figure(f"growth of threads over {many - few} saves", after[2] - before[2], 1, "")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
