#!/usr/bin/env python3
"""Seconds of compiles, each beside its goal: bench.py [--turns=N].

Processor seconds (user and system) of one program, the least of N runs; wall-clock seconds where a
line says so. The goals are for a core of an EPYC of 2021 (Zen 3, 2.45 GHz); on another processor only
the ratios say something. The exit code is 1 if a goal is missed.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("LMC_BUILD", ROOT / "build"))
CONFIGS = ROOT / "models/configs"

H100 = "--target=cuda:sm_90a"
ONE_DEVICE = ["--nodes=1", "--devices-per-node=1"]
# Code for the CPU, planned as for an H100 so that there is much to choose from.
CHOICES = [*ONE_DEVICE, "--spec=h100-sxm", "--set=target.cpu=x86-64-v3", "--set=memory.recompute=auto"]


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return platform.machine()


def run(*command: str) -> tuple[float, float]:
    """Returns the processor seconds and the wall-clock seconds of `lmc` with this command line."""
    start = time.monotonic()
    child = subprocess.Popen([BUILD / "bin/lmc", *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"bench: error: lmc {' '.join(command)} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3, help="runs of each command (default: 3)")
    turns = parser.parse_args().turns
    if turns < 1:
        parser.error("--turns must be at least 1")
    missed = []

    def figure(name: str, value: float, goal: float, unit: str = "s") -> None:
        verdict = "" if value <= goal else "  MISSED"
        print(f"{name:<66}{value:8.2f} {unit:<4} goal {goal:g}{verdict}", flush=True)
        if verdict:
            missed.append(name)

    def least(*command: str, before=lambda: None) -> tuple[float, float]:
        """The least processor and the least wall-clock seconds of `turns` runs."""
        runs = []
        for _ in range(turns):
            before()
            runs.append(run(*command))
        return min(r[0] for r in runs), min(r[1] for r in runs)

    print(f"{processor()}, {os.cpu_count()} threads, load {os.getloadavg()[0]:.1f}; least of {turns}")
    with tempfile.TemporaryDirectory() as folder:
        plan = ["-o", f"{folder}/job.plan", "--quiet"]
        llama8b = f"{CONFIGS}/llama3-8b.toml"
        figure("explain llama3-8b --scale=1,8,64,512,4096",
               least("explain", llama8b, H100, "--scale=1,8,64,512,4096")[0], 5.1)
        figure("compile llama3-8b for 128 devices, plan only",
               least("compile", llama8b, H100, "--plan-only", *plan)[0], 10)
        figure("compile llama1b for the CPU, wall clock",
               least("compile", f"{CONFIGS}/llama1b.toml", "--set=target.device=cpu", *plan)[1], 20)
        figure("compile llama1b, recompute auto",
               least("compile", f"{CONFIGS}/llama1b.toml", *CHOICES, *plan)[0], 10)
        few = least("compile", llama8b, *CHOICES, "--memory-budget=144GiB", *plan)[0]
        figure("compile llama3-8b, recompute auto, 144 GiB", few, 10)
        many = least("compile", llama8b, *CHOICES, "--memory-budget=360GiB",
                     "--set=model.num_hidden_layers=80", *plan)[0]
        figure("compile llama3-8b of 80 layers, recompute auto, 360 GiB", many, 10)
        # The job of 80 layers plans three candidates in full until one fits its budget, the one of
        # 32 layers two.
        figure("    times the 32 layers' seconds", many / few, 1.75, "x")
        cache = f"{folder}/kernels"
        gpu = ["compile", f"{CONFIGS}/llama1b.toml", H100, *ONE_DEVICE, f"--kernel-cache={cache}", *plan]
        figure("compile llama1b for sm_90a, no kernel known, wall clock",
               least(*gpu, before=lambda: shutil.rmtree(cache, ignore_errors=True))[1], 15)
        figure("compile llama1b for sm_90a, all kernels known, wall clock", least(*gpu)[1], 3)
    print(json.dumps({"missed": missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
