#!/usr/bin/env python3
"""Products of experts on the CPU: lmc beside PyTorch.

A layer of a mixture of experts multiplies the rows of each expert by that expert's weights: forward
y_e = x_e w_e^T, and backward dx_e = dy_e w_e and dw_e = dy_e^T x_e. Here are 2,048 tokens, each of
which draws k different experts: of a balanced router all are as likely, of a skewed one each token
has the first expert and the others are as likely, of Zipf's law expert e has a weight of 1/e. They
are drawn anew in each repeat, as no two steps of a training have the same counts.

  lmc       lmc-bench-experts, which computes them as the commands of a plan do. dw is in f32.
  grouped   torch.nn.functional.grouped_mm (torch._grouped_mm in older versions), one call a product.
            dw is in the compute type.
  loop      a loop of torch.mm over the experts, with out=, so that no result is allocated. Experts
            without rows are left out (a zero_() of their dw remains). dw is in the compute type.

All have the same threads and counts. Within a repeat every program runs once, in an order that changes from
repeat to repeat. Before each there is a pause, in which the threads of the one before it go to sleep:
Intel's OpenMP does so after KMP_BLOCKTIME ms, which is 10 here instead of 200, and longer than any gap
between two products. A case's figure is the median, over the repeats, of the seconds of a program's
whole pass (forward + dx + dw). PyTorch runs with the libraries that make it fastest (class Tuning of
bench/cpu/bench.py), or, with --installed, as pip installs it. The first repeats are not counted: in
them oneDNN generates code for counts that it has not seen yet.

--clock=cpu is for a machine that others use at the same time: it counts the processor time of the
one thread that --threads=1 has.
"""

import argparse
import datetime
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 2048
GOAL = 1.2
WARM = 10  # repeats that are not counted
PRODUCTS = ["forward", "dx", "dw"]


def counts_of(router: str, experts: int, chosen: int, chance) -> list[int]:
    """Draws `chosen` different experts for each token. Returns how many tokens each expert has."""
    import numpy
    weights = {"balanced": numpy.ones(experts), "zipf": 1 / numpy.arange(1, experts + 1),
               "skewed": numpy.array([1e30] + [1.0] * (experts - 1))}[router]
    # The largest of logarithms with Gumbel noise are a draw without replacement (Efraimidis and Spirakis, 2006).
    keys = numpy.log(weights) + chance.gumbel(size=(TOKENS, experts))
    experts_of = numpy.argpartition(-keys, chosen - 1, axis=1)[:, :chosen]
    return numpy.bincount(experts_of.ravel(), minlength=experts).tolist()


def cases(args: argparse.Namespace) -> list[dict]:
    found = []
    for dtype in args.dtypes:
        for experts, columns, chosen in [(8, 1024, 2), (16, 1024, 2), (64, 512, 2), (64, 512, 8)]:
            for router in args.routers:
                found.append({"dtype": dtype, "experts": experts, "chosen": chosen, "inner": 1024,
                              "columns": columns, "router": router})
    return found


class Lmc:
    def __init__(self, args: argparse.Namespace):
        # The libraries that are loaded before PyTorch are for PyTorch alone.
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        environment |= {"OMP_NUM_THREADS": str(args.threads), "LMC_VENV": sys.prefix}
        self.process = subprocess.Popen([args.build / "bin/lmc-bench-experts", args.clock], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=environment)

    def ask(self, line: str) -> str:
        print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"lmc-bench-experts ended with code {self.process.wait()}")
        return answer.strip()

    def prepare(self, case: dict) -> None:
        answer = self.ask(f"case {case['dtype']} {case['inner']} {case['columns']} "
                          f"{TOKENS * case['chosen']} {case['experts']}")
        case["libraries"] = dict(item.split("=") for item in answer.rstrip(";").split(";"))

    def run(self, counts: list[int]) -> list[float]:
        return [float(word) for word in self.ask(f"run {' '.join(map(str, counts))}").split()]


class Torch:
    def __init__(self, case: dict):
        import torch
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[case["dtype"]]
        torch.manual_seed(1)
        rows, inner, columns = TOKENS * case["chosen"], case["inner"], case["columns"]
        experts = case["experts"]

        def values(*shape):
            return (torch.rand(*shape) * 2 - 1).to(dtype)

        self.x, self.dy = values(rows, inner), values(rows, columns)
        self.weight = values(experts, columns, inner)
        self.y, self.dx = torch.empty(rows, columns, dtype=dtype), torch.empty(rows, inner, dtype=dtype)
        self.dw = torch.empty(experts, columns, inner, dtype=dtype)
        self.mm = torch.mm
        self.grouped_mm = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm

    def divide(self, counts: list[int]) -> None:
        import torch
        self.offsets = torch.tensor(counts).cumsum(0).to(torch.int32)
        self.ends = [0, *self.offsets.tolist()]

    def parts(self):
        return [(e, slice(a, b)) for e, (a, b) in enumerate(zip(self.ends, self.ends[1:])) if b > a]

    def loop(self) -> list:
        def forward():
            for e, at in self.parts():
                self.mm(self.x[at], self.weight[e].t(), out=self.y[at])

        def dx():
            for e, at in self.parts():
                self.mm(self.dy[at], self.weight[e], out=self.dx[at])

        def dw():
            used = self.parts()
            for e, at in used:
                self.mm(self.dy[at].t(), self.x[at], out=self.dw[e])
            for e in set(range(len(self.ends) - 1)) - {e for e, _ in used}:
                self.dw[e].zero_()

        return [forward, dx, dw]

    def grouped(self) -> list:
        transposed = self.weight.transpose(1, 2)
        return [lambda: self.grouped_mm(self.x, transposed, offs=self.offsets),
                lambda: self.grouped_mm(self.dy, self.weight, offs=self.offsets),
                lambda: self.grouped_mm(self.dy.t(), self.x, offs=self.offsets)]


def timed(products: list, clock: str) -> list[float]:
    now, seconds = time.perf_counter if clock == "wall" else time.thread_time, []
    for product in products:
        begin = now()
        result = product()
        seconds.append(now() - begin)
        del result
    return seconds


def check(case: dict, peers: "Torch") -> None:
    """The two ways of PyTorch agree, so that the bench times what it says."""
    import torch
    results = [product() for product in peers.grouped()]
    for product in peers.loop():
        product()
    for grouped, loop in zip(results, [peers.y, peers.dx, peers.dw]):
        torch.testing.assert_close(grouped.float(), loop.float(), rtol=2e-2, atol=2e-1)


def measure(case: dict, lmc: Lmc, repeats: int, clock: str) -> None:
    import numpy
    chance = numpy.random.default_rng(1)
    counts = counts_of(case["router"], case["experts"], case["chosen"], chance)
    lmc.prepare(case)
    peers = Torch(case)
    peers.divide(counts)
    programs = {"lmc": lambda: lmc.run(counts), "loop": lambda: timed(peers.loop(), clock)}
    try:
        check(case, peers)
        programs["grouped"] = lambda: timed(peers.grouped(), clock)
    except (RuntimeError, NotImplementedError) as error:
        case["note"] = f"grouped: {str(error).splitlines()[0]}"
    names = list(programs)
    seconds: dict[str, list] = {name: [] for name in names}
    case["largest"] = 0
    for repeat in range(-WARM, repeats):
        counts = counts_of(case["router"], case["experts"], case["chosen"], chance)
        peers.divide(counts)
        case["largest"] = max(case["largest"], *counts)
        for i in range(len(names)):
            name = names[(repeat + i) % len(names)]
            time.sleep(0.04)
            took = programs[name]()
            if repeat >= 0:
                seconds[name].append(took)
    case["seconds"] = seconds
    case["median"] = {name: statistics.median(map(sum, each)) for name, each in seconds.items()}
    case["products"] = {name: [statistics.median(took[i] for took in each) for i in range(3)]
                        for name, each in seconds.items()}
    add_ratios(case)


def add_ratios(case: dict) -> None:
    """`ratios`: the median over the repeats, for each way of PyTorch, of its seconds to those of lmc, for the whole
    pass and for each product; `ratio` is that of the better way."""
    seconds = case["seconds"]

    def paired(name: str, of) -> float:
        return statistics.median(of(theirs) / of(ours) for theirs, ours in zip(seconds[name], seconds["lmc"]))

    peers = [name for name in seconds if name != "lmc"]
    case["ratios"] = {name: [paired(name, sum), *(paired(name, lambda took: took[i]) for i in range(3))]
                      for name in peers}
    case["ratio"] = min(ratios[0] for ratios in case["ratios"].values())


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ")[1]
    return platform.machine()


def table(found: list[dict], about: dict) -> str:
    lines = [f"# Products of experts on the CPU, {about['date']}", "",
             f"{about['processor']}, {about['threads']} threads; PyTorch {about['torch']}; "
             f"`bench/experts/bench.py` says what is measured. {about['tuning']}", "",
             "ms of forward + dx + dw, the median of "
             f"{about['repeats']} repeats; the ratio of the better one of PyTorch's to lmc's is the median of those "
             "within a repeat, as is that of each product in the columns behind it. The goal is "
             f"{GOAL}: {sum(case['ratio'] >= GOAL for case in found)} of {len(found)} cases reach it.", "",
             "| type | experts | k | expert width | router | largest expert | lmc | grouped | loop | ratio "
             "| forward | dx | dw | GFLOP/s |",
             "|---|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for case in found:
        median = case["median"]
        parts = " | ".join(f"{min(each):.2f}" for each in list(zip(*case["ratios"].values()))[1:])
        flops = 6 * TOKENS * case["chosen"] * case["inner"] * case["columns"]
        grouped = f"{median['grouped'] * 1e3:.1f}" if "grouped" in median else "none"
        lines.append(
            f"| {case['dtype']} | {case['experts']} | {case['chosen']} | {case['columns']} | "
            f"{case['router']} | {case['largest']} | {median['lmc'] * 1e3:.1f} | {grouped} | "
            f"{median['loop'] * 1e3:.1f} | {case['ratio']:.2f} | {parts} | {flops / median['lmc'] * 1e-9:.0f} |")
    lines += ["", "Largest expert: the most rows that an expert had in a repeat. GFLOP/s: what lmc reaches over all "
              "three products.", ""]
    lines += [f"* {note}" for note in sorted({case["note"] for case in found if "note" in case})]
    return "\n".join(lines) + "\n"


def tuning_of(build: Path):
    spec = importlib.util.spec_from_file_location("cpu_bench", ROOT / "bench/cpu/bench.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["cpu_bench"] = module
    spec.loader.exec_module(module)
    return module.Tuning.find(build)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=os.environ.get("LMC_BUILD", ROOT / "build"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--clock", default="wall", choices=["wall", "cpu"])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--dtypes", nargs="+", default=["f32", "bf16"], choices=["f32", "bf16"])
    parser.add_argument("--routers", nargs="+", default=["balanced", "skewed", "zipf"],
                        choices=["balanced", "skewed", "zipf"])
    parser.add_argument("--installed", action="store_true", help="PyTorch without libraries that make it faster")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results",
                        help="the folder for the tables (%(default)s)")
    args = parser.parse_args()
    if args.clock == "cpu" and args.threads != 1:
        parser.error("--clock=cpu needs --threads=1: threads that wait for each other count as busy")
    tuning = "PyTorch runs as pip installs it." if args.installed else tuning_of(args.build)
    if not args.installed and "LMC_BENCH_TUNED" not in os.environ:  # once more, with the libraries
        environment = {**os.environ, **tuning.environment, "LMC_BENCH_TUNED": "1",
                       "KMP_BLOCKTIME": "10", "OMP_NUM_THREADS": str(args.threads)}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    import torch
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    about = {"date": datetime.date.today().isoformat(), "processor": processor(),
             "threads": args.threads, "torch": torch.__version__, "repeats": args.repeats,
             "tuning": str(tuning)}
    lmc, found = Lmc(args), cases(args)
    for case in found:
        measure(case, lmc, args.repeats, args.clock)
        print(f"{case['dtype']:4} {case['experts']:3} experts, k {case['chosen']}, {case['router']:8} "
              + ", ".join(f"{name} {s * 1e3:6.1f} ms" for name, s in case["median"].items())
              + f": {case['ratio']:.2f}x  {case['libraries']}", flush=True)
    text = table(found, about)
    args.out.mkdir(parents=True, exist_ok=True)
    name = f"experts-{about['date']}" + ("-installed" if args.installed else "")
    (args.out / f"{name}.md").write_text(text)
    (args.out / f"{name}.json").write_text(json.dumps({"about": about, "cases": found}, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
