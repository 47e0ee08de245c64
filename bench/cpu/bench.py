#!/usr/bin/env python3
"""Training speed on the CPU: lmc-run beside PyTorch, eager and compiled.

One model (models/configs/llama-124m.toml), one machine, the same threads. Every repeat runs each
program once, in an order that turns, so that what disturbs the machine disturbs all; ratios are
formed within a repeat and their median is reported. A step is everything: forward, backward,
clipping, AdamW. Memory is the largest resident set of the whole process.

This file needs no PyTorch and imports none: the peers run in processes of their own, and the
resident set that wait4 reports for a child starts from that of its parent.
"""

import argparse
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
PEERS = {"eager": "PyTorch eager", "compile": "torch.compile"}
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
}


class Skipped(Exception):
    """A program gave no figure; says why."""


@dataclass
class Measurement:
    repeat: int
    tokens_per_second: float
    step_seconds: list[float]
    peak_bytes: int


@dataclass
class Contender:
    name: str
    measurements: list[Measurement] = field(default_factory=list)
    spent_seconds: float = 0
    note: str = ""  # why there are fewer figures than asked for


@dataclass
class Child:
    """A process with a deadline, its output in files."""

    code: int | None
    stdout: str
    stderr: str
    peak_bytes: int
    line_times: list[float]


def run_child(command: list, limit: float, threads: int, lines_of: Path | None = None,
              until_lines: int = 0) -> Child:
    """Runs `command` for at most `limit` seconds. With `lines_of`, notes when each line of that
    file appears, and ends the process at line `until_lines`: what it does later is not timed."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            env=environment,
        )
        deadline = time.monotonic() + limit
        times: list[float] = []
        code = usage = None

        def note_lines() -> None:
            if lines_of and lines_of.exists():
                count = lines_of.read_bytes().count(b"\n")
                times.extend([time.monotonic()] * (count - len(times)))

        while usage is None:
            note_lines()
            timed_out = time.monotonic() > deadline
            enough = lines_of is not None and len(times) >= until_lines
            if timed_out or enough:
                process.send_signal(signal.SIGKILL)
            pid, status, gone = os.wait4(process.pid, 0 if timed_out or enough else os.WNOHANG)
            if pid:
                usage, code = gone, os.waitstatus_to_exitcode(status)
                process.returncode = code
                if timed_out and not enough:
                    raise Skipped(f"not done within {limit:.0f} s")
            else:
                time.sleep(0.002)
        note_lines()
        out.seek(0)
        err.seek(0)
        return Child(code, out.read(), err.read(), usage.ru_maxrss * 1024, times)


class Bench:
    def __init__(self, args: argparse.Namespace, folder: Path):
        self.args = args
        self.folder = folder
        self.seq = tomllib.loads(CONFIG.read_text())["training"]["sequence_length"]
        self.parameters: dict[str, int] = {}
        self.tokens = folder / "tokens.bin"
        vocabulary = tomllib.loads(CONFIG.read_text())["model"]["vocab_size"]
        chance = random.Random(1)
        samples = 64 * args.mbs
        ids = array("H", (chance.randrange(vocabulary) for _ in range(samples * self.seq + 1)))
        if sys.byteorder == "big":
            ids.byteswap()
        self.tokens.write_bytes(ids.tobytes())

    def program(self, name: str) -> Path:
        path = self.args.build / "bin" / name
        if not path.exists():
            raise SystemExit(f"{path} is not built: run ./dev build, or give --build")
        return path

    def compile(self, name: str, dtype: str) -> None:
        """The plan of this model in `dtype`, with the parameters counted."""
        plan = self.folder / f"{name}.{dtype}.plan"
        settings = {
            "training.compute_dtype": dtype,
            "training.batch_size": self.args.mbs,
            "training.micro_batch_size": self.args.mbs,
            "data.train": json.dumps([str(self.tokens)]),
        }
        command = [self.program("lmc"), "compile", CONFIG, "-o", plan]
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

    def lmc(self, name: str, dtype: str, warmup: int, steps: int, limit: float) -> tuple[list[float], int]:
        with tempfile.TemporaryDirectory(dir=self.folder) as out:
            child = run_child(
                [self.program("lmc-run"), self.folder / f"{name}.{dtype}.plan", f"--out={out}/run",
                 f"--steps={warmup + steps}", f"--threads={self.args.threads}", "--resume=none"],
                limit, self.args.threads, Path(out) / "run/metrics.jsonl", warmup + steps,
            )
            times = child.line_times
            if len(times) < warmup + steps:
                raise SystemExit(f"lmc-run ended with code {child.code}:\n{child.stderr}")
            seconds = [b - a for a, b in zip(times[warmup - 1 :], times[warmup:])]
            if min(seconds) <= 0:
                raise SystemExit("steps are too short to be timed from outside: raise --mbs")
            return seconds, child.peak_bytes

    def peer(self, mode: str, dtype: str, warmup: int, steps: int, limit: float):
        command = [
            self.args.python, ROOT / "bench/cpu/peer.py", CONFIG, f"--tokens={self.tokens}",
            f"--mbs={self.args.mbs}", f"--dtype={dtype}", f"--threads={self.args.threads}",
            f"--warmup={warmup}", f"--steps={steps}",
        ]
        child = run_child(command + ["--compile"] * (mode == "compile"), limit, self.args.threads)
        if child.code != 0:
            raise Skipped(f"ended with code {child.code}: {last_line(child.stderr)}")
        result = json.loads(child.stdout.splitlines()[-1])
        self.parameters[mode] = result["parameters"]
        return result["seconds"], child.peak_bytes

    def measure(self, contender: Contender, dtype: str, repeat: int) -> None:
        """One run. The first has a single timed step, which says how many the later ones can
        have within the time limit."""
        args, done = self.args, contender.measurements
        left = args.limit - contender.spent_seconds
        steps = 1
        if done:
            step = statistics.median(done[0].step_seconds)
            apart_from_steps = max(contender.spent_seconds / len(done) - step, 0)
            steps = min(args.steps, int((left - apart_from_steps) / step))
            if steps < 1:
                contender.note = f"{len(done)} of {args.repeats} repeats in {args.limit:.0f} s"
                return
        began = time.monotonic()
        try:
            if contender.name in VARIANTS:
                seconds, peak = self.lmc(contender.name, dtype, args.warmup, steps, left)
            else:
                seconds, peak = self.peer(contender.name, dtype, args.warmup, steps, left)
        except Skipped as reason:
            contender.note = str(reason)
            return
        contender.spent_seconds += time.monotonic() - began
        speed = len(seconds) * args.mbs * self.seq / sum(seconds)
        done.append(Measurement(repeat, speed, seconds, peak))
        print(f"{dtype} repeat {repeat + 1}/{args.repeats} {NAMES[contender.name]:14} "
              f"{speed:9.1f} tokens/s, {sum(seconds) / len(seconds):7.3f} s a step over "
              f"{len(seconds)}, {peak / 2**30:.2f} GiB", flush=True)

    def run(self, dtype: str) -> list[Contender]:
        contenders = [Contender(name) for name in self.args.only]
        for name in self.args.only:
            if name in VARIANTS:
                self.compile(name, dtype)
        for repeat in range(self.args.repeats):
            turn = repeat % len(contenders)
            for contender in contenders[turn:] + contenders[:turn]:
                if contender.note:
                    continue
                self.measure(contender, dtype, repeat)
                if contender.note and not contender.measurements:
                    print(f"{dtype} skip {NAMES[contender.name]}: {contender.note}", flush=True)
        counts = {self.parameters[c.name] for c in contenders if c.measurements}
        if len(counts) > 1:
            raise SystemExit(f"these are not the same model: parameters {self.parameters}")
        return contenders


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


def table(results: dict[str, list[Contender]], report: dict) -> str:
    host, args = report["machine"], report["arguments"]
    text = [
        f"# Training a 124M Llama on the CPU, {report['date']}",
        "",
        f"{host['cpu']} ({', '.join(host['features']) or 'baseline'}), {host['threads']} threads, "
        f"{host['memory_gib']} GiB, {host['system']}; load before the start "
        f"{host['load_before']:.2f}.",
        "Versions: " + ", ".join(f"{k} {v}" for k, v in report["versions"].items()) + ".",
        "",
        f"models/configs/llama-124m.toml, {report['parameters']:,} parameters, sequence "
        f"{report['sequence_length']}, MBS {args['mbs']}; {args['warmup']} warm-up and up to "
        f"{args['steps']} timed steps a run, up to {args['repeats']} interleaved repeats. "
        "tokens/s and memory are medians over repeats; the ratio is the median of those formed "
        "within a repeat, with its range.",
        "",
        "| compute | program | tokens/s | s/step | peak memory | lmc is faster by | repeats |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for dtype, contenders in results.items():
        ours = next((c for c in contenders if c.name == "lmc"), None)
        for contender in contenders:
            done = contender.measurements
            if not done:
                text.append(f"| {dtype} | {NAMES[contender.name]} | skipped: {contender.note} "
                            "| | | | 0 |")
                continue
            ratios = paired_ratios(ours, contender) if ours and contender is not ours else []
            ratio = (f"{statistics.median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f})"
                     if ratios else "")
            step = statistics.median(s for m in done for s in m.step_seconds)
            speed = statistics.median(m.tokens_per_second for m in done)
            peak = statistics.median(m.peak_bytes for m in done) / 2**30
            text.append(f"| {dtype} | {NAMES[contender.name]} | {speed:.1f} | {step:.3f} "
                        f"| {peak:.2f} GiB | {ratio} | {len(done)} |")
    text.append("")
    for dtype, contenders in results.items():
        text += [f"{dtype}, {NAMES[c.name]}: {c.note}." for c in contenders
                 if c.note and c.measurements]
        for line in verdict(dtype, contenders):
            text.append(line)
    return "\n".join(text).rstrip() + "\n"


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


def parse() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true",
                        help="MBS 1, two repeats of one step: shows that it works")
    parser.add_argument("--dtype", choices=["f32", "bf16", "both"], default="both")
    parser.add_argument("--mbs", type=int, help="sequences per step (8)")
    parser.add_argument("--repeats", type=int, help="interleaved repeats (5)")
    parser.add_argument("--steps", type=int, help="timed steps per run (2)")
    parser.add_argument("--warmup", type=int, default=1, help="untimed steps per run")
    parser.add_argument("--threads", type=int, default=cores)
    parser.add_argument("--limit", type=float, default=1500,
                        help="seconds for one program in one compute type, all repeats")
    parser.add_argument("--only", default="lmc,eager,compile",
                        help="which of lmc, eager, compile to run, and of lmc without a kind of "
                        f"fusion: {', '.join(name for name in VARIANTS if name != 'lmc')}")
    parser.add_argument("--build", type=Path,
                        default=Path(os.environ.get("LMC_BUILD", ROOT / "build")))
    parser.add_argument("--python", default=sys.executable, help="the Python that has torch")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    args = parser.parse_args()
    args.mbs = args.mbs or (1 if args.quick else 8)
    args.repeats = args.repeats or (2 if args.quick else 5)
    args.steps = args.steps or (1 if args.quick else 2)
    args.only = args.only.split(",")
    unknown = set(args.only) - set(NAMES)
    if unknown:
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}")
    if args.warmup < 1:
        parser.error("--warmup: the first step compiles and touches memory, so at least 1")
    return args


def main() -> None:
    args = parse()
    host, found = machine(args.threads), versions(args)
    if set(args.only) & set(PEERS) and "torch" not in found:
        raise SystemExit(f"{args.python} has no torch: pip install -r test/parity/requirements.txt")
    dtypes = ["f32", "bf16"] if args.dtype == "both" else [args.dtype]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, Path(folder))
        results = {dtype: bench.run(dtype) for dtype in dtypes}
    report = {
        "date": datetime.date.today().isoformat(),
        "machine": host,
        "versions": found,
        "arguments": {k: v for k, v in vars(args).items() if k not in ("build", "python", "out")},
        "sequence_length": bench.seq,
        "parameters": next(iter(bench.parameters.values()), 0),
    }
    text = table(results, report)
    report["results"] = {d: [asdict(c) for c in contenders] for d, contenders in results.items()}
    args.out.mkdir(parents=True, exist_ok=True)
    name = f"cpu-{report['date']}" + ("-quick" if args.quick else "")
    (args.out / f"{name}.md").write_text(text)
    (args.out / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")
    print(f"\n{text}\nWritten to {args.out / name}.md and .json")


if __name__ == "__main__":
    main()
