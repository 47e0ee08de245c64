#!/usr/bin/env python3
"""Training speed on the CPU: lmc-run beside PyTorch, eager and compiled.

One model (models/configs/llama-124m.toml, or --config: gpt2-124m.toml of the same folder, or
bench/cpu/experts.toml, a mixture of experts), one machine, the same threads. Each program first takes
its best batch: a run at each MBS, of which the fastest is kept. Then every repeat runs each program
once, in an order that turns, so that what disturbs the machine disturbs all; ratios are formed
within a repeat and their median is reported. A step is everything: forward, backward, clipping,
AdamW. Memory is the largest resident set of the whole process. lmc chooses its matrix products by
timing, in its first run; their rates are in a table of their own.

PyTorch runs with the libraries that make it fastest (class Tuning). "As installed" is PyTorch
without them, at the batch that is best with them.

A setting is a compute type and the instructions of the CPU: all that it has, or AVX2, to which every
library of both sides is then limited.

--clock=cpu is for a machine that others use at the same time: it counts the processor time of each
program, which needs --threads=1 (threads that wait for each other count as busy).

This file needs no PyTorch and imports none: the peers run in processes of their own, and the
resident set that wait4 reports for a child starts from that of its parent.
"""

import argparse
import ctypes.util
import datetime
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from array import array
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "models/configs/llama-124m.toml"
# Eager and compiled, PyTorch computes the experts of a layer by torch.nn.functional.grouped_mm.
PEERS = {"eager": "PyTorch eager", "compile": "torch.compile", "loop": "PyTorch eager, a loop over experts"}
OPTIONS = {"eager": [], "compile": ["--compile"], "loop": ["--loop"]}
INSTALLED = {f"{name}-installed": f"{text}, as installed" for name, text in PEERS.items()}
# lmc without some of its fusions: what --disable-fusion leaves out.
KINDS = ["linears", "producer", "siblings", "layers", "state"]
VARIANTS = {
    "lmc": [],
    **{f"no-{kind}": [kind] for kind in KINDS},
    "no-fusion": KINDS,
}
NAMES = {
    **{name: "lmc" + (f" without {', '.join(kinds)}" if kinds else "")
       for name, kinds in VARIANTS.items()},
    **PEERS,
    **INSTALLED,
}


# What limits each library to AVX2: kernels of lmc, oneDNN and MKL (of both sides), PyTorch's own
# kernels and what torch.compile generates.
AVX2 = {
    "LMC_CPU_ISA": "x86-64-v3",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
}


@dataclass
class Tuning:
    """The libraries that are loaded before PyTorch.

    PyTorch's own guide for CPUs (docs.pytorch.org, "Performance Tuning Guide") recommends tcmalloc,
    which returns no memory to the system between steps, and Intel's OpenMP. With mkl-vendor.cpp,
    MKL runs its best code on processors of AMD too."""

    libraries: dict[str, Path]  # what it is, and where
    missing: list[str]

    @staticmethod
    def find(build: Path) -> "Tuning":
        tcmalloc = ctypes.util.find_library("tcmalloc_minimal")
        vendor, openmp = build / "lib/libmkl-vendor.so", Path(sys.prefix) / "lib/libiomp5.so"
        libraries = {
            "MKL for every vendor": vendor if vendor.exists() else None,
            "Intel's OpenMP": openmp if openmp.exists() else None,
            "tcmalloc": Path(tcmalloc) if tcmalloc else None,
        }
        found = {what: path for what, path in libraries.items() if path}
        missing = [what for what, path in libraries.items() if not path]
        return Tuning(found, missing)

    @property
    def environment(self) -> dict[str, str]:
        # oneDNN generates code for each shape of a product, and keeps that of the last 1,024 shapes by
        # default. Experts have other counts of rows in each step.
        return {"LD_PRELOAD": ":".join(map(str, self.libraries.values())),
                "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "100000"}

    def __str__(self) -> str:
        parts = [("PyTorch runs with ", list(self.libraries), "."),
                 ("PyTorch runs without ", self.missing, ": not installed.")]
        return " ".join(start + ", ".join(names) + end for start, names, end in parts if names)


@dataclass(frozen=True)
class Setting:
    dtype: str  # f32, bf16
    isa: str  # native, avx2

    def __str__(self) -> str:
        return self.dtype + (", AVX2" if self.isa == "avx2" else "")

    @property
    def environment(self) -> dict[str, str]:
        return AVX2 if self.isa == "avx2" else {}


class Skipped(Exception):
    """A program gave no figure; says why."""


@dataclass
class Measurement:
    repeat: int  # -1: to find the best batch
    mbs: int
    tokens_per_second: float
    step_seconds: list[float]
    peak_bytes: int


@dataclass
class Contender:
    name: str
    mbs: int = 0  # the best
    measurements: list[Measurement] = field(default_factory=list)
    tried: list[Measurement] = field(default_factory=list)  # one for each MBS
    spent_seconds: float = 0  # on the measurements
    note: str = ""  # why there are fewer figures than asked for


@dataclass
class Child:
    """A process with a deadline, its output in files."""

    code: int | None
    stdout: str
    stderr: str
    peak_bytes: int
    line_times: list[float]  # by the clock of the bench


def processor_seconds(pid: int) -> float:
    """What the process has used so far, in all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kill(process: subprocess.Popen) -> None:
    """Kills a process and those that it has started, such as the ranks of `lmc-run --nproc`: a rank
    whose launcher is gone would still save a checkpoint."""
    pids = [process.pid]
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                pids += map(int, task.read_text().split())
            except (FileNotFoundError, ProcessLookupError):
                pass  # the thread has just ended
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def run_child(command: list, limit: float, environment: dict[str, str],
              lines_of: Path | None = None, until_lines: int = 0, clock: str = "wall") -> Child:
    """Runs `command` for at most `limit` seconds. With `lines_of`, notes when each line of that
    file appears, and ends the process at line `until_lines`: what it does later is not timed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            env={**os.environ, **environment},
        )
        deadline = time.monotonic() + limit
        times: list[float] = []
        code = usage = None

        def note_lines() -> None:
            if lines_of and lines_of.exists():
                count = lines_of.read_bytes().count(b"\n")
                if count > len(times):
                    now = (processor_seconds(process.pid) if clock == "cpu" else time.monotonic())
                    times.extend([now] * (count - len(times)))

        while usage is None:
            note_lines()
            timed_out = time.monotonic() > deadline
            enough = lines_of is not None and len(times) >= until_lines
            if timed_out or enough:
                kill(process)
            pid, status, gone = os.wait4(process.pid, 0 if timed_out or enough else os.WNOHANG)
            if pid:
                usage, code = gone, os.waitstatus_to_exitcode(status)
                process.returncode = code
                if timed_out and not enough:
                    raise Skipped(f"not done within {limit:.0f} s")
            else:
                time.sleep(0.002)
        if clock == "wall":
            note_lines()
        out.seek(0)
        err.seek(0)
        return Child(code, out.read(), err.read(), usage.ru_maxrss * 1024, times)


class Bench:
    def __init__(self, args: argparse.Namespace, folder: Path):
        self.args = args
        self.folder = folder
        self.config = tomllib.loads(args.config.read_text())
        self.seq = self.config["training"]["sequence_length"]
        self.parameters: dict[str, int] = {}
        self.tuning = Tuning.find(args.build)
        self.tokens = folder / "tokens.bin"
        vocabulary = self.config["model"]["vocab_size"]
        chance = random.Random(1)
        samples = 64 * max(args.mbs)
        ids = array("H", (chance.randrange(vocabulary) for _ in range(samples * self.seq + 1)))
        if sys.byteorder == "big":
            ids.byteswap()
        self.tokens.write_bytes(ids.tobytes())

    def program(self, name: str) -> Path:
        path = self.args.build / "bin" / name
        if not path.exists():
            raise SystemExit(f"{path} is not built: run ./dev build, or give --build")
        return path

    def environment(self, setting: Setting) -> dict[str, str]:
        # lmc keeps the choices of matrix products of this bench, not those of the user.
        return {**setting.environment, "OMP_NUM_THREADS": str(self.args.threads),
                "XDG_CACHE_HOME": str(self.folder / "cache"), "LMC_VENV": sys.prefix}

    def plan(self, name: str, setting: Setting, mbs: int) -> Path:
        """The plan of this model, with the parameters counted."""
        plan = self.folder / f"{name}.{setting.dtype}.{setting.isa}.{mbs}.plan"
        if plan.exists():
            return plan
        settings = {
            "training.compute_dtype": setting.dtype,
            "training.batch_size": mbs,
            "training.micro_batch_size": mbs,
            "data.train": json.dumps([str(self.tokens)]),
            "distributed.nodes": 1,
            "distributed.devices_per_node": 1,
        }
        if "validation" in self.config.get("data", {}):
            settings |= {"data.validation": "[]", "monitoring.validation_interval": 0}
        if setting.isa == "avx2":
            settings["target.cpu"] = "x86-64-v3"
        command = [self.program("lmc"), "compile", self.args.config, "--target=cpu", "-o", plan]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        if VARIANTS[name]:
            command.append("--disable-fusion=" + ",".join(VARIANTS[name]))
        subprocess.run(command, check=True)
        explained = json.loads(
            subprocess.run(
                [self.program("lmc"), "explain", plan, "--json"],
                check=True, capture_output=True, text=True,
            ).stdout
        )
        self.parameters[name] = find_integer(explained, "parameters")
        return plan

    def lmc(self, name: str, setting: Setting, mbs: int, warmup: int, steps: int,
            limit: float) -> tuple[list[float], int]:
        plan = self.plan(name, setting, mbs)
        with tempfile.TemporaryDirectory(dir=self.folder) as out:
            child = run_child(
                [self.program("lmc-run"), plan, f"--out={out}/run", f"--steps={warmup + steps}",
                 f"--threads={self.args.threads}", "--resume=none", "--gemm=measure"],
                limit, self.environment(setting), Path(out) / "run/metrics.jsonl", warmup + steps,
                self.args.clock,
            )
            times = child.line_times
            if len(times) < warmup + steps:
                raise SystemExit(f"lmc-run ended with code {child.code}:\n{child.stderr}")
            seconds = [b - a for a, b in zip(times[warmup - 1 :], times[warmup:])]
            if min(seconds) <= 0:
                raise SystemExit("steps are too short to be timed from outside: raise --mbs")
            return seconds, child.peak_bytes

    def peer(self, name: str, setting: Setting, mbs: int, warmup: int, steps: int, limit: float):
        mode = name.removesuffix("-installed")
        tuned = self.tuning.environment if name == mode else {}
        command = [
            self.args.python, ROOT / "bench/cpu/peer.py", self.args.config, f"--tokens={self.tokens}",
            f"--mbs={mbs}", f"--dtype={setting.dtype}", f"--threads={self.args.threads}",
            f"--warmup={warmup}", f"--steps={steps}",
        ]
        child = run_child(command + OPTIONS[mode], limit,
                          {**self.environment(setting), **tuned})
        if child.code != 0:
            raise Skipped(f"ended with code {child.code}: {last_line(child.stderr)}")
        result = json.loads(child.stdout.splitlines()[-1])
        self.parameters[name] = result["parameters"]
        seconds = result["cpu_seconds" if self.args.clock == "cpu" else "seconds"]
        return seconds, child.peak_bytes

    def once(self, name: str, setting: Setting, mbs: int, repeat: int, steps: int,
             limit: float) -> Measurement:
        run = self.lmc if name in VARIANTS else self.peer
        seconds, peak = run(name, setting, mbs, self.args.warmup, steps, limit)
        speed = len(seconds) * mbs * self.seq / sum(seconds)
        what = f"repeat {repeat + 1}/{self.args.repeats}" if repeat >= 0 else "best batch"
        print(f"{setting} {what} {NAMES[name]:14} MBS {mbs} {speed:9.1f} tokens/s, "
              f"{sum(seconds) / len(seconds):7.3f} s a step over {len(seconds)}, "
              f"{peak / 2**30:.2f} GiB", flush=True)
        return Measurement(repeat, mbs, speed, seconds, peak)

    def find_batch(self, contender: Contender, setting: Setting, before: list[Contender]) -> None:
        """Runs each MBS once. A batch that is not done in the time limit ends the search: larger
        ones take longer."""
        sizes = self.args.mbs
        if contender.name in INSTALLED:
            tuned = contender.name.removesuffix("-installed")
            sizes = [c.mbs for c in before if c.name == tuned and c.mbs] or sizes
        for mbs in sizes:
            try:
                contender.tried.append(
                    self.once(contender.name, setting, mbs, -1, 1, self.args.limit))
            except Skipped as reason:
                contender.note = f"MBS {mbs}: {reason}"
                break
        if contender.tried:
            contender.mbs = max(contender.tried, key=lambda m: m.tokens_per_second).mbs

    def measure(self, contender: Contender, setting: Setting, repeat: int) -> None:
        """One run, with as many steps as the time limit leaves."""
        args = self.args
        step = statistics.median(
            s for m in contender.measurements or contender.tried if m.mbs == contender.mbs
            for s in m.step_seconds)
        left = args.limit - contender.spent_seconds
        steps = min(args.steps, int(left / step) - args.warmup)
        if steps < 1:
            if not contender.note:
                contender.note = f"{repeat} of {args.repeats} repeats in {args.limit:.0f} s"
            return
        began = time.monotonic()
        try:
            contender.measurements.append(
                self.once(contender.name, setting, contender.mbs, repeat, steps, left + 60))
        except Skipped as reason:
            contender.note = str(reason)
        contender.spent_seconds += time.monotonic() - began

    def run(self, setting: Setting) -> list[Contender]:
        contenders = [Contender(name) for name in self.args.only]
        for contender in contenders:
            self.find_batch(contender, setting, contenders)
            if not contender.tried:
                print(f"{setting} skip {NAMES[contender.name]}: {contender.note}", flush=True)
        able = [c for c in contenders if c.tried]
        for repeat in range(self.args.repeats):
            turn = repeat % len(able) if able else 0
            for contender in able[turn:] + able[:turn]:
                self.measure(contender, setting, repeat)
        counts = {self.parameters[c.name] for c in able}
        if len(counts) > 1:
            raise SystemExit(f"these are not the same model: parameters {self.parameters}")
        return contenders

    def gemm_rates(self, setting: Setting) -> list[dict]:
        """GFLOP/s of each library on each product of the model, all in one run."""
        program = self.args.build / "bin/lmc-bench-kernels"
        if not program.exists():
            return []
        child = run_child([program, self.args.threads, f"--json={setting.dtype}"], self.args.limit,
                          self.environment(setting))
        if child.code != 0:
            raise SystemExit(f"lmc-bench-kernels ended with code {child.code}:\n{child.stderr}")
        return [json.loads(line) for line in child.stdout.splitlines()]

    def chosen_libraries(self) -> list[dict]:
        """What lmc has chosen in this bench, for every product."""
        cache = self.folder / "cache/lmc/gemm.json"
        return json.loads(cache.read_text())["choices"] if cache.exists() else []


def find_integer(tree: object, key: str) -> int:
    """The first integer called `key` in a tree of JSON."""
    queue = [tree]
    while queue:
        node = queue.pop(0)
        if isinstance(node, dict):
            if isinstance(node.get(key), int):
                return node[key]
            queue += node.values()
        elif isinstance(node, list):
            queue += node
    raise SystemExit(f"lmc explain --json has no integer '{key}'")


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def paired_ratios(ours: Contender, other: Contender) -> list[float]:
    theirs = {m.repeat: m.tokens_per_second for m in other.measurements}
    return [
        m.tokens_per_second / theirs[m.repeat] for m in ours.measurements if m.repeat in theirs
    ]


def machine(threads: int) -> dict:
    cpu, flags = platform.machine(), []
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
        if line.startswith("flags"):
            flags = line.split(":", 1)[1].split()
    wanted = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_tile")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu,
        "features": [f for f in wanted if f in flags],
        "threads": threads,
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_before": os.getloadavg()[0],
    }


def versions(args: argparse.Namespace) -> dict:
    found = {"python": platform.python_version()}
    torch = subprocess.run(
        [args.python, "-c", "from importlib.metadata import version; print(version('torch'))"],
        capture_output=True, text=True,
    )
    if torch.returncode == 0:
        found["torch"] = torch.stdout.strip()
    revision = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True
    )
    if revision.returncode == 0:
        found["lmc"] = revision.stdout.strip()
    return found


def table(results: dict[Setting, list[Contender]], rates: dict[Setting, list[dict]],
          report: dict) -> str:
    host, args = report["machine"], report["arguments"]
    text = [
        f"# Training {report['config']} on the CPU, {report['date']}",
        "",
        f"{host['cpu']} ({', '.join(host['features']) or 'baseline'}), {host['threads']} "
        f"thread{'s' if host['threads'] > 1 else ''}, {host['memory_gib']} GiB, {host['system']}; load before the start "
        f"{host['load_before']:.2f}.",
        "Versions: " + ", ".join(f"{k} {v}" for k, v in report["versions"].items()) + ".",
        report["peer_tuning"],
        "",
        f"{report['config_file']}, {report['parameters']:,} parameters, sequence "
        f"{report['sequence_length']}. Each program at its best of MBS "
        f"{', '.join(map(str, args['mbs']))}; {args['warmup']} warm-up and up to {args['steps']} "
        f"timed steps a run, up to {args['repeats']} interleaved repeats. "
        + ("Seconds are those of processor time, because others used the machine too. "
           if args["clock"] == "cpu" else "") +
        "tokens/s and memory are medians over repeats; the ratio is the median of those formed "
        "within a repeat, with its range.",
        "",
        "| compute | program | MBS | tokens/s | s/step | peak memory | lmc is faster by | repeats "
        "| tokens/s at each MBS |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for setting, contenders in results.items():
        ours = next((c for c in contenders if c.name == "lmc"), None)
        for contender in contenders:
            done = contender.measurements
            if not done:
                text.append(f"| {setting} | {NAMES[contender.name]} | | not run: {contender.note} "
                            "| | | | 0 | |")
                continue
            ratios = paired_ratios(ours, contender) if ours and contender is not ours else []
            ratio = (f"{statistics.median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f})"
                     if ratios else "")
            step = statistics.median(s for m in done for s in m.step_seconds)
            speed = statistics.median(m.tokens_per_second for m in done)
            peak = statistics.median(m.peak_bytes for m in done) / 2**30
            tried = ", ".join(f"{m.mbs}: {m.tokens_per_second:.0f}" for m in contender.tried)
            text.append(f"| {setting} | {NAMES[contender.name]} | {contender.mbs} | {speed:.1f} "
                        f"| {step:.3f} | {peak:.2f} GiB | {ratio} | {len(done)} | {tried} |")
    text.append("")
    for setting, contenders in results.items():
        text += [f"{setting}, {NAMES[c.name]}: {c.note}." for c in contenders
                 if c.note and c.measurements]
        text += verdict(str(setting), contenders)
    text += report["not_run"]
    for setting, measured in rates.items():
        if measured:
            text += ["", *rate_table(setting, measured)]
    return "\n".join(text).rstrip() + "\n"


def rate_table(setting: Setting, measured: list[dict]) -> list[str]:
    libraries = list(dict.fromkeys(rate["library"] for rate in measured))
    peak = statistics.median(rate["peak_gflops"] for rate in measured)
    text = [
        f"## Matrix products, {setting}",
        "",
        f"GFLOP/s of each library on {measured[0]['m']} tokens, best of several runs, and its share "
        f"of the peak of {peak:.0f} GFLOP/s (instructions x measured clock x threads).",
        "",
        "| product | m x n x k | " + " | ".join(libraries) + " |",
        "|---|---|" + "---:|" * len(libraries),
    ]
    for case in dict.fromkeys(rate["case"] for rate in measured):
        row = {rate["library"]: rate for rate in measured if rate["case"] == case}
        first = next(iter(row.values()))
        best = max(rate["gflops"] for rate in row.values())
        cells = []
        for library in libraries:
            if library not in row:
                cells.append("-")
                continue
            speed = row[library]["gflops"]
            cell = f"{speed:.0f} ({100 * speed / row[library]['peak_gflops']:.0f}%)"
            cells.append(f"**{cell}**" if speed == best else cell)
        text.append(f"| {case} | {first['m']} x {first['n']} x {first['k']} | "
                    + " | ".join(cells) + " |")
    return text


def verdict(dtype: str, contenders: list[Contender]) -> list[str]:
    """Against the better of the peers, by the paired medians."""
    ours = next((c for c in contenders if c.name == "lmc"), None)
    if ours is None:
        return []
    medians = {
        c.name: statistics.median(paired_ratios(ours, c))
        for c in contenders
        if c.name in PEERS and paired_ratios(ours, c)
    }
    if not medians:
        return [f"{dtype}: no peer to compare with."]
    best = min(medians, key=medians.get)
    return [f"{dtype}: {medians[best]:.2f}x {NAMES[best]}, the better of the peers measured."]


def sizes(text: str) -> list[int]:
    values = [int(part) for part in text.split(",")]
    if not values or min(values) < 1:
        raise ValueError(text)
    return values


def parse() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true",
                        help="MBS 1, two repeats of one step: shows that it works")
    parser.add_argument("--config", type=Path, default=CONFIG,
                        help="a Llama, a GPT-2 (models/configs/gpt2-124m.toml) or an OLMoE (bench/cpu/experts.toml)")
    parser.add_argument("--dtype", choices=["f32", "bf16", "both"], default="both")
    parser.add_argument("--isa", choices=["native", "avx2", "both"], default="both",
                        help="instructions: all of the CPU, or AVX2 on both sides (f32 only)")
    parser.add_argument("--mbs", type=sizes,
                        help="sequences per step, of which each program takes the best (1,2,4,8)")
    parser.add_argument("--repeats", type=int, help="interleaved repeats (5)")
    parser.add_argument("--steps", type=int, help="timed steps per run (2)")
    parser.add_argument("--warmup", type=int, default=2,
                        help="untimed steps per run: in the second, memory may still grow")
    parser.add_argument("--threads", type=int, default=cores)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall",
                        help="cpu: count processor time, for a busy machine; needs --threads=1")
    parser.add_argument("--limit", type=float, default=900,
                        help="seconds for one program in one setting: for each MBS tried, and for "
                        "all repeats")
    parser.add_argument("--only",
                        help="which programs to run, of lmc,eager,compile,eager-installed,compile-installed (these by "
                        "default), loop (of a mixture of experts), loop-installed, and of lmc without a kind of "
                        f"fusion: {', '.join(name for name in VARIANTS if name != 'lmc')}")
    parser.add_argument("--build", type=Path,
                        default=Path(os.environ.get("LMC_BUILD", ROOT / "build")))
    parser.add_argument("--python", default=sys.executable, help="the Python that has torch")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    args = parser.parse_args()
    args.mbs = args.mbs or ([1] if args.quick else [1, 2, 4, 8])
    args.repeats = args.repeats or (2 if args.quick else 5)
    args.steps = args.steps or (1 if args.quick else 2)
    if not args.only:
        sparse = tomllib.loads(args.config.read_text())["model"]["architecture"] == "olmoe"
        args.only = "lmc,eager,compile," + ("loop," if sparse else "") + "eager-installed,compile-installed"
    args.only = args.only.split(",")
    unknown = set(args.only) - set(NAMES)
    if unknown:
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}")
    if args.clock == "cpu" and args.threads != 1:
        parser.error("--clock=cpu: threads that wait count as busy, so it needs --threads=1")
    if args.warmup < 1:
        parser.error("--warmup: the first step compiles and touches memory, so at least 1")
    return args


def settings_of(args: argparse.Namespace, features: list[str]) -> tuple[list[Setting], list[str]]:
    """The settings to run, and what is not run and why."""
    dtypes = ["f32", "bf16"] if args.dtype == "both" else [args.dtype]
    isas = ["native", "avx2"] if args.isa == "both" else [args.isa]
    settings, missing = [], []
    for dtype in dtypes:
        for isa in isas:
            if isa == "avx2" and "avx2" not in features:
                missing.append(f"{dtype}, AVX2: not run, this CPU has none.")
            elif isa == "avx2" and "avx512f" not in features and "native" in isas:
                missing.append(f"{dtype}, AVX2: it is all that this CPU has, see {dtype}.")
            elif isa == "avx2" and dtype == "bf16":
                missing.append("bf16, AVX2: not run, PyTorch emulates it hundreds of times slower.")
            else:
                settings.append(Setting(dtype, isa))
    if "avx512f" not in features:
        missing.append("AVX-512: not run, this CPU has none.")
    if "amx_bf16" not in features:
        missing.append("AMX: not run, this CPU has none.")
    return settings, missing


def main() -> None:
    args = parse()
    host, found = machine(args.threads), versions(args)
    if set(args.only) & {*PEERS, *INSTALLED} and "torch" not in found:
        raise SystemExit(f"{args.python} has no torch: pip install -r test/parity/requirements.txt")
    settings, missing = settings_of(args, host["features"])
    results: dict[Setting, list[Contender]] = {}
    rates: dict[Setting, list[dict]] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, Path(folder))
        for setting in settings:
            # The program knows the products of one model.
            rates[setting] = bench.gemm_rates(setting) if args.config == CONFIG else []
            results[setting] = bench.run(setting)
            # After each setting, so that a bench that is ended early leaves what it has.
            write(args, bench, host, found, missing, results, rates)


def write(args: argparse.Namespace, bench: Bench, host: dict, found: dict, missing: list[str],
          results: dict[Setting, list[Contender]], rates: dict[Setting, list[dict]]) -> None:
    report = {
        "date": datetime.date.today().isoformat(),
        "machine": host,
        "versions": found,
        "config": args.config.stem,
        "config_file": os.path.relpath(args.config.resolve(), ROOT),
        "arguments": {k: v for k, v in vars(args).items()
                      if k not in ("build", "python", "out", "config")},
        "sequence_length": bench.seq,
        "parameters": next(iter(bench.parameters.values()), 0),
        "not_run": missing,
        "peer_tuning": str(bench.tuning),
    }
    text = table(results, rates, report)
    report["results"] = {str(s): [asdict(c) for c in contenders]
                         for s, contenders in results.items()}
    report["gemm_rates"] = {str(s): measured for s, measured in rates.items()}
    report["gemm_choices"] = bench.chosen_libraries()
    args.out.mkdir(parents=True, exist_ok=True)
    model = "" if args.config == CONFIG else f"-{report['config']}"
    name = f"cpu-{report['date']}{model}" + ("-quick" if args.quick else "")
    (args.out / f"{name}.md").write_text(text)
    (args.out / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")
    print(f"\n{text}\nWritten to {args.out / name}.md and .json")


if __name__ == "__main__":
    main()
