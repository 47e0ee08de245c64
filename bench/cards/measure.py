"""Measures a config on this machine: memory, speed, and the seconds of a compile and of a start."""

import csv
import datetime
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

from configs import ROOT, Config, Fault, Programs, digest, last_line

sys.path += [str(ROOT / "bench/cpu"), str(ROOT / "bench/gpu")]
from bench import Child, Skipped, machine, run_child  # noqa: E402
from power import clocks_of  # noqa: E402
from session import FACTS, call  # noqa: E402

WARM_UP, WINDOWS, MOST_STEPS = 2, 3, 50
COMPILE_SECONDS = 30  # compiles are repeated, and the fastest counts, until they have taken so long together
LIMIT = 1800  # seconds of one run
CANNOT = "cannot be read"


def machine_for(config: Config) -> dict:
    """Returns the facts of this machine, or raises Fault if the config cannot be measured on it."""
    if config.nodes > 1:
        raise Fault(f"{config.name} is a job of {config.nodes} nodes, and --measure uses one machine: the card has the "
                    "command for a cluster")
    if config.device == "cpu":
        return cpu()
    count = f"{config.devices_per_node} GPUs" if config.devices_per_node > 1 else "a GPU"
    wanted = f"{config.name} needs {count} of {config.device}"
    if not shutil.which("nvidia-smi"):
        raise Fault(f"{wanted}, and nvidia-smi is not on this machine")
    asked = call(["nvidia-smi", f"--query-gpu={','.join(FACTS)}", "--format=csv,noheader"])
    if asked.code != 0:
        raise Fault(f"{wanted}, and nvidia-smi fails: {asked.complaint()}")
    gpus = [dict(zip(FACTS, row)) for row in csv.reader(asked.out.splitlines(), skipinitialspace=True) if row]
    arch = config.device.removeprefix("cuda:sm_").rstrip("af")
    fitting = [each for each in gpus if each["compute_cap"].replace(".", "") == arch]
    if len(fitting) < config.devices_per_node:
        raise Fault(f"{wanted}, and this machine has "
                    + (", ".join(f"{each['name']} (sm_{each['compute_cap'].replace('.', '')})" for each in gpus) or "none"))
    return {"gpus": config.devices_per_node, **fitting[0]}


def cpu() -> dict:
    facts = machine(len(os.sched_getaffinity(0)))
    return {
        "cpu": facts["cpu"], "features": facts["features"], "threads": facts["threads"], "memory_gib": facts["memory_gib"],
        "clock": next((f"{float(line.split(':')[1]):.0f} MHz" for line in Path("/proc/cpuinfo").read_text().splitlines()
                       if line.startswith("cpu MHz")), CANNOT),
        "max_clock": of_system("devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", 1e3, "MHz"),
        "governor": of_system("devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "power_cap": of_system("class/powercap/intel-rapl:0/constraint_0_power_limit_uw", 1e6, "W"),
    }


def of_system(file: str, divisor: float = 0, unit: str = "") -> str:
    """Returns what a file of /sys says, as a number of `unit` if there is a divisor."""
    try:
        text = Path("/sys", file).read_text().strip()
        return f"{float(text) / divisor:.0f} {unit}" if divisor else text
    except (OSError, ValueError):
        return CANNOT


def compile_seconds(config: Config, programs: Programs, plan: Path, folder: Path) -> float:
    """Compiles the plan, without any kernel that is known, and returns the seconds of the fastest compile."""
    taken: list[float] = []
    while not taken or (len(taken) < 3 and sum(taken) + min(taken) < COMPILE_SECONDS):
        command = [programs.path("lmc"), "compile", config.path, *config.options, "--quiet", "-o", plan,
                   f"--kernel-cache={folder / f'kernels{len(taken)}'}"]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True)
        taken.append(time.monotonic() - began)
        if done.returncode:
            raise Fault(f"{config.name}: {last_line(done.stderr)}")
    return min(taken)


def random_tokens(config: Config, folder: Path) -> Path:
    """Returns a file of random ids of the config's vocabulary: two steps' tokens, or 2^22 if these are more."""
    training, vocabulary = config.keys["training"], config.keys["model"]["vocab_size"]
    count = min(2 * training["batch_size"] * training["sequence_length"], 2**22) + 1
    path = folder / "tokens.bin"
    with path.open("wb") as file:
        array("I", random.Random(1).choices(range(vocabulary), k=count)).tofile(file)
    return path


def measure(config: Config, facts: dict, programs: Programs, window: float) -> dict:
    """Returns what bench/results/cards/NAME.json keeps.

    A first run, which also chooses matrix products, ends after its first step. A second one gives the speed: the
    best of WINDOWS windows, each of as many steps as `window` seconds hold, at least 1. Both are killed, because a run
    that ends saves a checkpoint."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        plan = folder / f"{config.name}.plan"
        compiled = compile_seconds(config, programs, plan, folder)
        explained = json.loads(subprocess.run([programs.path("lmc"), "explain", plan, "--json"],
                                              check=True, capture_output=True, text=True).stdout)
        settings = {
            "data.train": json.dumps([str(random_tokens(config, folder))]), "data.format": "uint32", "data.validation": "[]",
            "data.allow_repeats": "true", "checkpoint.interval": 0, "checkpoint.export_interval": 0,
            "monitoring.validation_interval": 0, "monitoring.log_interval": 1,
        }
        if "train_iters" in config.keys["training"]:
            settings["training.train_iters"] = 1_000_000  # more than are waited for
        ranks = explained["batch"]["ranks"]
        command = [programs.path("lmc-run"), plan, *([f"--nproc={ranks}"] if ranks > 1 else []),
                   *(f"--set={key}={value}" for key, value in settings.items())]

        def run(out: Path, steps: int) -> tuple[list[dict], float, Child]:
            """Returns the lines of the first steps, the seconds from the launch to the first step, and the process."""
            began = time.monotonic()
            try:
                child = run_child([*command, f"--out={out}"], LIMIT, {"XDG_CACHE_HOME": str(folder / "cache")},
                                  out / "metrics.jsonl", steps)
            except Skipped as reason:
                raise Fault(f"{config.name}: {reason}")
            if len(child.line_times) < steps:
                raise Fault(f"{config.name}: lmc-run ended with code {child.code}: {last_line(child.stderr)}")
            lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()[:steps]]
            return lines, child.line_times[0] - began - lines[0]["step_seconds"], child

        print(f"{config.name}: compiled in {compiled:.1f} s", flush=True)
        lines, first_start, _ = run(folder / "first", 1)
        steps = max(1, min(MOST_STEPS, int(window / max(lines[0]["step_seconds"], 1e-6))))
        with clocks_of("gpus" in facts, print) as clocks:
            lines, start, child = run(folder / "run", WARM_UP + WINDOWS * steps)
    tokens = explained["batch"]["tokens_per_step"]
    rates = [steps * tokens / ranks / sum(line["step_seconds"] for line in lines[at : at + steps])
             for at in range(WARM_UP, len(lines), steps)]
    best = max(rates)
    # lmc-run's MFU of a step divided by its tokens/s is the same in each step. Its peak is that of this machine.
    mfu, last = {"mfu_causal": None, "mfu_full": None}, lines[-1]
    peak_flops = None
    if last["mfu_causal"] is not None:
        mfu = {key: best * ranks * last[key] / last["tokens_per_second"] for key in mfu}
        peak_flops = best * explained["model"]["flops_per_token_causal"] / mfu["mfu_causal"]
    if "gpus" in facts:
        seen = clocks.figures()
        facts = {**facts, "sm_mhz": f"{seen['sm_mhz']:.0f} MHz" if seen else CANNOT}
        peak, memory_is = int(seen["used_mib"] * 2**20) if seen else None, "what the first GPU has in use at most"
    else:
        # The ranks of a job are not among the processes that are waited for.
        peak, memory_is = child.peak_bytes if ranks == 1 else None, "the largest resident set of the process"
    return {
        "config": config.name, "config_sha256": digest(config.text), "target": config.device,
        "date": datetime.date.today().isoformat(), "release": programs.release(), "machine": facts,
        "load_before": round(load, 2), "tokens": "random token ids",
        "warm_up_steps": WARM_UP, "steps_per_window": steps, "windows": rates, "memory_is": memory_is,
        "allocated_bytes": lines[0]["memory_bytes"], "peak_flops": peak_flops,
        "figures": {
            "peak_bytes": peak, "step_seconds": tokens / ranks / best, "tokens_per_second_per_device": best, **mfu,
            "compile_seconds": compiled, "first_start_seconds": first_start, "start_seconds": start,
            "traffic_bytes_per_token": None,
        },
    }
