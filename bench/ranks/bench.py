#!/usr/bin/env python3
"""Training speed of many ranks: lmc-run beside PyTorch's FSDP2, both over Gloo.

Two "nodes" of two ranks are network namespaces of this machine, joined by a link. The link is fast
(as the kernel makes it) or slow (shaped to --mbit). Each program trains the same model from the same
weights on the same batches, with one thread per rank: lmc with ZeRO-3 over all ranks (FULL_SHARD)
and inside nodes (HYBRID_SHARD), each with and without overlap, and FSDP2 on a 1-D and on a 2-D mesh.
Every repeat runs all of them once, in an order that turns; ratios are formed within a repeat, and
their median is reported. Bytes are those that the link's interface counts in timed and other steps,
less 66 for each packet (Ethernet, IP and TCP headers).

The goals stand at the end, each with what was measured; the exit code is 1 if one is missed.

FSDP2 runs with the libraries that make PyTorch fastest (Tuning in bench/cpu/bench.py), eager and
with each layer compiled.

Needs root, for the namespaces.
"""

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "bench/ranks/model.toml"
BUILD = Path(os.environ.get("LMC_BUILD", ROOT / "build"))
NODES, DEVICES, LENGTH = 2, 2, 256
RANKS = NODES * DEVICES
ADDRESSES = ("10.77.0.1", "10.77.0.2")
HEADERS = 66  # bytes of a packet that are no data
WARM_UP = 2  # steps

# The goals.
FASTER = 1.3  # times the tokens/s of the best FSDP2; HYBRID_SHARD on a slow link: at least as many
FLOOR = 1.10  # HYBRID_SHARD on a slow link: times the larger of its computation and of its bytes
PREDICTED = 0.15  # relative error of the predicted ratio of HYBRID_SHARD to FULL_SHARD
BYTES, LOSSES = 0.05, 1e-5  # relative errors

# FSDP2 gathers weights again for the backward pass, and so does what stands beside it here.
RESHARD = {"distributed.reshard_after_forward": "yes"}
PROGRAMS = {
    "lmc FULL_SHARD": ("zero3", "auto"),
    "lmc FULL_SHARD, no overlap": ("zero3", "no"),
    "lmc HYBRID_SHARD": ("hybrid_shard", "auto"),
    "lmc HYBRID_SHARD, no overlap": ("hybrid_shard", "no"),
    "FSDP2 FULL_SHARD": ["full"],
    "FSDP2 FULL_SHARD, compiled": ["full", "--compile"],
    "FSDP2 HSDP": ["hybrid"],
    "FSDP2 HSDP, compiled": ["hybrid", "--compile"],
}


class Network:
    """Two namespaces and the link between them."""

    def __init__(self) -> None:
        self.names = [f"lmc-bench-{os.getpid()}-{i}" for i in range(NODES)]
        self.devices = [f"lb{os.getpid() % 100000}{x}" for x in "ab"]

    def __enter__(self) -> "Network":
        for name in self.names:
            call("ip", "netns", "add", name)
        call("ip", "link", "add", self.devices[0], "type", "veth", "peer", "name", self.devices[1])
        for name, device, address in zip(self.names, self.devices, ADDRESSES):
            call("ip", "link", "set", device, "netns", name)
            self.inside(name, "ip", "addr", "add", f"{address}/24", "dev", device)
            self.inside(name, "ip", "link", "set", device, "up")
            self.inside(name, "ip", "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def inside(self, name: str, *command: str) -> str:
        return call("ip", "netns", "exec", name, *command)

    def shape(self, mbit: int | None) -> None:
        for name, device in zip(self.names, self.devices):
            subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "del", "dev", device, "root"],
                           stderr=subprocess.DEVNULL, check=False)
            if mbit:
                self.inside(name, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate",
                            f"{mbit}mbit", "burst", "64kbit", "latency", "50ms")

    def bandwidth(self) -> float:
        """Bytes of data a second, each way, while both ways are busy: over one TCP connection."""
        code = ("import socket, sys, threading, time\n"
                "server, address, size = sys.argv[1] == 'server', sys.argv[2], int(sys.argv[3])\n"
                "if server:\n"
                "    listener = socket.create_server((address, 20999)); print('ready', flush=True)\n"
                "    s = listener.accept()[0]\n"
                "else:\n"
                "    s = socket.create_connection((address, 20999))\n"
                "threading.Thread(target=s.sendall, args=(bytes(size),)).start()\n"
                "began = time.monotonic(); left = size\n"
                "while left: left -= len(s.recv(min(left, 1 << 16)))\n"
                "print(size / (time.monotonic() - began))\n")
        def size(n: int) -> float:
            start = [["ip", "netns", "exec", name, sys.executable, "-c", code, role, ADDRESSES[0], str(n)]
                     for name, role in zip(self.names, ("server", "client"))]
            server = subprocess.Popen(start[0], stdout=subprocess.PIPE, text=True)
            server.stdout.readline()
            client = call(*start[1])
            return min(float(client), float(server.communicate()[0]))
        first = size(2_000_000)
        return size(int(first * 3))  # about three seconds

    def sent(self) -> list[int]:
        """Bytes of data that each node has sent so far."""
        counts = []
        for name, device in zip(self.names, self.devices):
            folder = f"/sys/class/net/{device}/statistics"
            text = self.inside(name, "cat", f"{folder}/tx_bytes", f"{folder}/tx_packets").split()
            counts.append(int(text[0]) - HEADERS * int(text[1]))
        return counts


def call(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def tuning() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("cpu_bench", ROOT / "bench/cpu/bench.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found = module.Tuning.find(BUILD)
    print(found, file=sys.stderr)
    return found.environment


def start_ranks(network: Network, command: list[str], port: int, folder: Path,
                more: dict[str, str]) -> list[subprocess.Popen]:
    """Starts the command once for each rank, with torchrun's environment."""
    processes = []
    for rank in range(RANKS):
        node = rank // DEVICES
        variables = {"RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_RANK": rank % DEVICES,
                     "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": port, "LMC_PORT": port + 1,
                     "GLOO_SOCKET_IFNAME": network.devices[node], "OMP_NUM_THREADS": 1, **more}
        environment = {**os.environ, **{key: str(value) for key, value in variables.items()}}
        with open(folder / f"rank{rank}.out", "w") as out, open(folder / f"rank{rank}.err", "w") as err:
            processes.append(subprocess.Popen(
                ["ip", "netns", "exec", network.names[node], *command], env=environment, stdout=out,
                stderr=err, start_new_session=True))
    return processes


def run_ranks(network: Network, command: list[str], port: int, folder: Path, limit: float,
              more: dict[str, str]) -> None:
    processes = start_ranks(network, command, port, folder, more)
    until = time.monotonic() + limit
    try:
        for rank, process in enumerate(processes):
            code = process.wait(timeout=max(1, until - time.monotonic()))
            if code != 0:
                error = (folder / f"rank{rank}.err").read_text()[-2000:]
                raise SystemExit(f"{' '.join(command)}\nrank {rank} ended with {code}\n{error}")
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@dataclass
class Run:
    seconds: list[float]  # of the timed steps
    losses: list[float]
    sent: float  # bytes of the busier direction per step, the start included


@dataclass
class Job:
    folder: Path
    steps: int
    batch: int  # GBS; each rank takes its part in one micro-batch
    tuned: dict[str, str]  # the peer's environment
    plans: dict[tuple[str, str], dict] = field(default_factory=dict)

    def prepare(self) -> None:
        # Tokens in which something can be learnt: each is near the one before.
        random.seed(1)
        tokens, at = bytearray(), 0
        for _ in range(self.steps * self.batch * LENGTH + 1):
            at = (at + random.randrange(64)) % 2048
            tokens += at.to_bytes(2, "little")
        (self.folder / "train.bin").write_bytes(tokens)
        python("import sys, numpy, torch\n"
               "t = torch.from_numpy(numpy.fromfile(sys.argv[1], '<u2').astype(numpy.int64))\n"
               f"torch.save(t.unfold(0, {LENGTH + 1}, {LENGTH}).reshape(-1, {self.batch}, "
               f"{LENGTH + 1}).clone(), sys.argv[2])",
               self.folder / "train.bin", self.folder / "batches.pt")
        subprocess.run([sys.executable, ROOT / "bench/ranks/peer.py", CONFIG, "--make-weights",
                        "--weights", self.folder / "weights.safetensors"], check=True)
        for program in PROGRAMS.values():
            if isinstance(program, tuple):
                self.compile(*program)

    def settings(self) -> dict[str, object]:
        return {"training.batch_size": self.batch, "training.micro_batch_size": self.batch // RANKS,
                **RESHARD}

    def compile(self, strategy: str, overlap: str) -> None:
        plan = self.folder / f"{strategy}-{overlap}.plan"
        settings = {"distributed.strategy": strategy, "distributed.overlap": overlap, **self.settings(),
                    "data.train": json.dumps([str(self.folder / "train.bin")]),
                    "data.shuffle_block": self.steps * self.batch * LENGTH}
        subprocess.run([BUILD / "bin/lmc", "compile", CONFIG, f"--nodes={NODES}", "--quiet",
                        f"--devices-per-node={DEVICES}", "-o", plan,
                        *[f"--set={key}={value}" for key, value in settings.items()]], check=True)
        report = call(str(BUILD / "bin/lmc"), "explain", str(plan), "--json")
        self.plans[strategy, overlap] = json.loads(report)

    def predicted(self, strategy: str, bandwidth: float) -> float:
        """Seconds of a step on a link of so many bytes a second, which the ranks of a node share."""
        spec = (ROOT / "compiler/cost/devices/cpu.toml").read_text()
        spec = re.sub(r"^(name|default_of) = .*\n", "", spec, flags=re.M)
        before, node = spec.split("[link.node]")
        node = re.sub(r"^bandwidth = .*$", f"bandwidth = {bandwidth / DEVICES}", node, count=1, flags=re.M)
        path = self.folder / "link.toml"
        path.write_text(f'name = "link"\n{before}[link.node]{node}')
        report = call(str(BUILD / "bin/lmc"), "explain", str(CONFIG), f"--nodes={NODES}", "--json",
                      f"--devices-per-node={DEVICES}", f"--spec={path}",
                      f"--set=distributed.strategy={strategy}",
                      *[f"--set={key}={value}" for key, value in self.settings().items()])
        return json.loads(report)["cost"]["step_seconds"]

    def run(self, name: str, network: Network, port: int, limit: float) -> Run:
        program = PROGRAMS[name]
        out = self.folder / "run"
        shutil.rmtree(out, ignore_errors=True)
        before = network.sent()
        if isinstance(program, tuple):
            plan = self.folder / f"{program[0]}-{program[1]}.plan"
            run_ranks(network, [str(BUILD / "bin/lmc-run"), str(plan), f"--out={out}",
                                f"--steps={self.steps}", "--set=checkpoint.interval=0",
                                f"--init={self.folder / 'weights.safetensors'}"],
                      port, self.folder, limit, {})
            rows = [json.loads(line) for line in open(out / "metrics.jsonl")]
            seconds, losses = [row["step_seconds"] for row in rows], [row["loss"] for row in rows]
        else:
            run_ranks(network, [sys.executable, str(ROOT / "bench/ranks/peer.py"), str(CONFIG),
                                "--weights", str(self.folder / "weights.safetensors"), "--batches",
                                str(self.folder / "batches.pt"), "--mesh", *program, "--nodes",
                                str(NODES), "--steps", str(self.steps)], port, self.folder, limit,
                      self.tuned)
            result = json.loads((self.folder / "rank0.out").read_text().splitlines()[-1])
            seconds, losses = result["seconds"], result["losses"]
        sent = max(b - a for a, b in zip(before, network.sent()))
        return Run(seconds[WARM_UP:], losses, sent / self.steps)


def python(code: str, *args: object) -> None:
    subprocess.run([sys.executable, "-c", code, *map(str, args)], check=True)


def planned_bytes(report: dict) -> float:
    """Bytes that a node sends in a step: of each tensor, what the other nodes need, once."""
    total = 0.0
    for each in report["comm"]["collectives"]:
        ranks = report["comm"][f"{each['axis']}_ranks"]
        sent = each["sent_bytes_per_step"]  # of a rank, on a ring
        if ranks == RANKS or each["axis"] == "replicate":
            whole = sent * ranks / (ranks - 1)  # the tensor's bytes, or twice these for an all-reduce
            groups = RANKS // ranks
            total += whole * (NODES - 1) / NODES * groups
    return total


@dataclass
class Goals:
    rows: list[list[str]] = field(default_factory=lambda: [["", "measured", "goal", "met"]])
    missed: bool = False

    def add(self, what: str, value: str, goal: str, met: bool) -> None:
        self.rows.append([what, value, goal, "yes" if met else "NO"])
        self.missed |= not met


def table(rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |"
             for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mbit", type=int, default=100, help="of the slow link")
    parser.add_argument("--batch", type=int, default=16, help="GBS, a multiple of the ranks")
    parser.add_argument("--steps", type=int, default=6, help="of each run, warm-up included")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--links", nargs="+", choices=["fast", "slow"], default=["fast", "slow"])
    parser.add_argument("--only", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--json", type=Path, help="also write all figures here")
    args = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("bench ranks: needs root, for network namespaces")
    if args.batch < RANKS or args.batch % RANKS != 0:
        raise SystemExit(f"bench ranks: --batch={args.batch} is no multiple of {RANKS} ranks")

    figures: dict[str, dict] = {}
    bandwidth: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, Network() as network:
        job = Job(Path(folder), args.steps, args.batch, tuning())
        job.prepare()
        port = 21000
        for link in args.links:
            network.shape(args.mbit if link == "slow" else None)
            bandwidth[link] = network.bandwidth()
            runs: dict[str, list[Run]] = {name: [] for name in args.only}
            for repeat in range(args.repeats):
                order = args.only[repeat % len(args.only):] + args.only[:repeat % len(args.only)]
                for name in order:
                    port += 4
                    run = job.run(name, network, port, limit=600)
                    runs[name].append(run)
                    print(f"{link} {repeat + 1}: {name}: {statistics.median(run.seconds):.3f} s, "
                          f"{run.sent / 1e6:.1f} MB a step", file=sys.stderr)
            if link == "slow":
                predictions = {strategy: job.predicted(strategy, bandwidth[link])
                               for strategy in ("zero3", "hybrid_shard")}
            figures[link] = {name: [vars(run) for run in found] for name, found in runs.items()}

    print(f"# Ranks: {NODES} nodes of {DEVICES}, {datetime.date.today()}\n")
    version = importlib.metadata.version("torch")
    print(f"lmc beside PyTorch {version} FSDP2, both over Gloo. {platform.processor() or platform.machine()}, "
          f"{os.cpu_count()} CPUs for {RANKS} ranks of one thread. Model: bench/ranks/model.toml, f32, "
          f"GBS {args.batch}, sequences of {LENGTH} tokens. Medians of {args.repeats} repeats of "
          f"{args.steps - WARM_UP} timed steps.\n")
    goals = Goals()
    for link, programs in figures.items():
        rows = [["", "tokens/s", "s a step", "of the best FSDP2", "MB a step", "planned MB", "last loss"]]
        medians = {name: [statistics.median(run["seconds"]) for run in runs]
                   for name, runs in programs.items()}
        for name, runs in programs.items():
            kind = "FSDP2 FULL_SHARD" if "FULL" in name else "FSDP2 HSDP"
            peers = [medians[peer] for peer in programs if peer.startswith(kind)]
            # Beside the peer that is faster in the same repeat.
            ratios = [min(b) / a for a, *b in zip(medians[name], *peers)]
            ratio = f"{statistics.median(ratios):.2f}x" if peers else ""
            sent = statistics.median(run["sent"] for run in runs)
            seconds = statistics.median(medians[name])
            program = PROGRAMS[name]
            planned = ""
            if isinstance(program, tuple):
                expected = planned_bytes(job.plans[program])
                planned = f"{expected / 1e6:.1f}"
                error = abs(sent / expected - 1)
                goals.add(f"{name}, {link} link: bytes beside the plan", f"{error:.1%}",
                          f"<= {BYTES:.0%}", error <= BYTES)
            if name in ("lmc FULL_SHARD", "lmc HYBRID_SHARD") and peers:
                least = 1.0 if (name, link) == ("lmc HYBRID_SHARD", "slow") else FASTER
                goals.add(f"{name}, {link} link: tokens/s beside the best FSDP2", ratio,
                          f">= {least:.1f}x", statistics.median(ratios) >= least)
            rows.append([name, f"{args.batch * LENGTH / seconds:.0f}", f"{seconds:.3f}", ratio,
                         f"{sent / 1e6:.1f}", planned,
                         f"{runs[-1]['losses'][-1]:.6f}"])
        what = f"shaped to {args.mbit} Mbit/s" if link == "slow" else "as fast as the kernel"
        print(f"## The link between the nodes: {what}\n\n{bandwidth[link] / 1e6:.2f} MB of data a second "
              f"each way, measured with one TCP connection.\n\n{table(rows)}\n")
        if link == "slow" and "fast" in figures:
            for name in sorted(programs.keys() & {"lmc FULL_SHARD", "lmc HYBRID_SHARD"}):
                sent = statistics.median(run["sent"] for run in programs[name])
                compute = statistics.median(statistics.median(run["seconds"])
                                            for run in figures["fast"][name])
                floor = max(compute, sent / bandwidth[link])
                times = statistics.median(medians[name]) / floor
                if "HYBRID" in name:
                    goals.add(f"{name}, slow link: time beside computation and bytes", f"{times:.2f}x",
                              f"<= {FLOOR:.2f}x", times <= FLOOR)
                print(f"{name}: {times:.2f} times the larger of "
                      f"its time on the fast link ({compute:.3f} s) and of its bytes on this one "
                      f"({sent / bandwidth[link]:.3f} s).\n")
        losses = [run["losses"] for runs in programs.values() for run in runs]
        spread = max(abs(a - b) / abs(b) for each in losses for a, b in zip(each, losses[0]))
        goals.add(f"{link} link: losses beside {next(iter(programs))}", f"{spread:.1e}",
                  f"<= {LOSSES:.0e}", spread <= LOSSES)
        print(f"Largest relative difference of a loss from that of {next(iter(programs))}: "
              f"{spread:.1e}.\n")
        if link == "slow" and {"lmc FULL_SHARD", "lmc HYBRID_SHARD"} <= programs.keys():
            ratio = statistics.median(a / b for a, b in zip(medians["lmc FULL_SHARD"],
                                                            medians["lmc HYBRID_SHARD"]))
            expected = predictions["zero3"] / predictions["hybrid_shard"]
            print(f"HYBRID_SHARD is {ratio:.2f} times as fast as FULL_SHARD; predicted from the link's "
                  f"bandwidth: {expected:.2f} times.\n")
            error = abs(ratio / expected - 1)
            goals.add("HYBRID_SHARD to FULL_SHARD, slow link: beside the prediction", f"{error:.0%}",
                      f"<= {PREDICTED:.0%}", error <= PREDICTED)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))
    print(f"## Goals\n\n{table(goals.rows)}")
    if goals.missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
