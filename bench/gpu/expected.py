#!/usr/bin/env python3
"""Writes down what `./dev gpu run` will measure, before it does: bench/gpu/expected.md and expected.json.

Each figure has a prediction, a range, and the rule that the range comes from. The predictions come from the
plans that pack.py compiles, for each built-in device spec of their architecture. bets.py compares them with what
was measured.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import math
import os
import re
import tempfile
import tomllib
from pathlib import Path

from sections import attention, ceilings, conformance, experts, streams, training

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DEVICES = ROOT / "compiler/cost/devices"
MIB, GIB = 2.0**20, 2.0**30

# What nvidia-smi calls the GPUs of the specs. Another name (an H100 with PCIe, say) is another GPU.
GPUS = {"h100-sxm": "NVIDIA H100 80GB HBM3", "h200": "NVIDIA H200", "a100-80gb": "NVIDIA A100-SXM4-80GB",
        "a100-40gb": "NVIDIA A100-SXM4-40GB"}

# Why a range is what it is. Each rule that a bet names is here, with its source; the numbers that it
# speaks of are the constants and tables below it.
RULES = {
    "exact": "lmc and the tests promise it: any other figure is a fault.",
    "tolerance": "From 0 to the difference that the section allows; predicted is the largest one on the stand-in "
                 "for the driver, which computes the same plans on a CPU.",
    "copy": "A kernel reaches 85 to 93% of the data sheet's bandwidth: 3.01 of 3.35 TB/s on an H100 (QuACK, "
            "media/2025-07-10-membound-sol.md), 4.3 of 4.8 on an H200. cudaMemcpy may reach less: 2.57 TB/s on an "
            "H100 (diagonal of p2pBandwidthLatencyTest, nccl issue 1264).",
    "stream": "A kernel that moves each byte once reaches 75 to 100% of the copy speed: QuACK's RMSNorm on an H100 "
              "100%; cuDNN's on an H200 86% (16384 x 4096) and 75% (4096 x 2048) (cudnn-frontend, "
              "benchmark/norms/results/h200).",
    "norm gradient": "60 to 100% of the copy speed: cuDNN's gradient of RMSNorm on an H200 reaches 60 to 88% "
                     "(cudnn-frontend, benchmark/norms/results/h200), and lmc's has 16 warps on an SM.",
    "issue": "The kernel is near the limit of instructions, 128 lanes per clock and SM. Its machine code for sm_90a "
             "has 34 instructions an element (SwiGLU: 1,096 for 32), 46 (its gradient: 736 for 16) and 143 "
             "(adamw8bit: 2,296 for 16), of which some rarely run; cross entropy takes 9 in its first pass and 17 in "
             "its second (288 and 559 for 32), and one block on an SM waits between them for its row. Of "
             "the copy speed of an H100 (an H200): SwiGLU 65 to 85% (60 to 75), its gradient 75 to 88% (68 to 80), "
             "cross entropy 70 to 92% (55 to 80), adamw8bit 50 to 60% (35 to 45). The cost model prices only bytes: "
             "it says about 97% for all.",
    "cache": "As the rule of larger kernels, but the part of the bytes that the L2 cache (50 MB on Hopper) may keep "
             "from one run to the next counts half at the fast end. That L2 is twice as fast as HBM is an "
             "assumption: Chips and Cheese (\"Nvidia's H100: Funny L2, and Tons of Bandwidth\") measured the PCIe "
             "model only.",
    "tiny": "The launch takes longer than the work. Nobody published the time between two events around an empty "
            "kernel on these GPUs, so the range is an assumption: 1.5 to 10 us for each launch. Events count in "
            "steps of 0.5 us (CUDA driver API, cuEventElapsedTime); the spec's time from one node of a graph to "
            "the next is 2 us.",
    "sort": "Four short launches sort the tokens, each waiting for memory several times: 2 to 15 us each, an "
            "assumption; the sums move bytes at 50 to 100% of the copy speed, since ids decide which rows are touched.",
    "mma.sync": "Rates of attention kernels that use mma.sync as lmc's do. Slow end: 0.53 of the tile model, which "
                "is FlashAttention 1 over FlashAttention 2 on an A100 (25 to 40% against 50 to 73% of the peak: the "
                "paper of FlashAttention 2). Fast end: what FlashAttention 2 reaches on an H100 for heads of 64 (of "
                "128), forward / backward: 262 / 222 (298 / 254) TFLOP/s at 2,048 tokens, 295 / 265 (333 / 299) at "
                "8,192 (flash-attention's assets), or the tile model, if that is faster.",
    "wgmma": "Attention by products of warpgroups, of which none has run on a GPU. The fast end is what FlashAttention-3 "
             "reaches on an H100 for heads of 64 (of 128), forward / backward: 371 / 270 (560 / 316) TFLOP/s at 2,048 "
             "tokens, 460 / 422 (685 / 575) at 8,192 (its paper and flash-attention's assets; 270 is an estimate), or "
             "1.15 of the tile model, if that is faster. The slow end, 0.6 of the tile model, is an assumption. Kernels "
             "alone have the spec's clock for these, which is 1.32 times that of a step on an H100 SXM.",
    "plain": "Without tensor cores, at half to twice the spec's rate of generated kernels, which is half of the "
             "multiply-adds that the data sheet names: the fast end is all of them, the slow end a quarter.",
    "product": "The best algorithm: 650 to 795 TFLOP/s for large products, which is 0.87 to 1.06 of the spec's 750. "
               "Random data at the power limit give 650 to 750; the fastest known shape on an H100 reaches 794.5 "
               "(ml-engineering, compute/accelerator/README.md), 8192^3 on an H200 769 to 798.",
    "first": "The heuristic's first algorithm is at least as slow as the best, and at most one wave of tiles "
             "slower, as if it had chosen tiles that need one wave more of 132 SMs.",
    "unaligned": "Rows that are no multiple of 16 bytes: between the rate in f32, as the cost model has it, and "
                 "that of an aligned product: NVIDIA's guide to matrix products says that tensor cores may be used "
                 "whatever the alignment, but less efficiently.",
    "clock": "The clock at which 95% busy tensor cores give 650 TFLOP/s, where 1.83 GHz give 989, to the largest "
             "one, 1.98 GHz. The prediction is the spec's.",
    "step": "The sum of a step's commands by the rules above: products all err together, so does attention, and so "
            "do generated kernels; the three errors add up as the root of the sum of squares.",
    "reserve": "What is planned, and at most what the spec reserves for the driver, libraries and graphs (0.5 GiB "
               "of context is usual).",
    "nodes": "One node for each launch that the plan lists, of all functions, as the stand-in for the driver counts "
             "them; at the upper end two more for each product: cuBLASLt may clear memory before it, and sum parts "
             "after it. At the lower end each product with SwiGLU is one kernel.",
    "log": "What is planned; the log has two decimals of a GiB.",
    "capture": "10 us a node is an assumption (a launch takes a processor 5 to 10 us); at most 100 us, since graphs of "
               "over 10,000 nodes are said to take seconds (docs/gpu.md, doubt 10); printed with two decimals.",
    "eager": "MFU of eager PyTorch on H100s: 0.305 for this very model at MBS 8 (0.427 s for [8, 2048]: Omkaar "
             "Kamath, \"How to Train an LLM: Part 2\"), 0.30 for an 8B model at 8,192 tokens (torchtitan, "
             "llama3_h100_202412: 5,762 tokens/s); down to 0.25 for small batches, up to 0.38, the least of "
             "compiled ones.",
    "compiled": "MFU of torch.compile on H100s: 0.516 for this very model at MBS 16 (0.504 s for [16, 2048]: Omkaar "
                "Kamath, \"How to Train an LLM: Part 1\"), 0.35 to 0.42 for 7B and 8B models on many GPUs "
                "(torchtitan, fms-fsdp; predicted for Mistral's layers: 0.42), 0.57 for the best C++ trainer of "
                "this size (llm.q, Qwen2.5-1.5B), taken as the most.",
    "tuned": "no figure was found, and the ranges are an assumption: those of compiled ones and 8%, which is the part of "
             "llama1b's step that the second product of the head takes.",
    "own product": "the model's rate of cuBLASLt's products, or up to that of the fastest known shape at the clock of a "
                   "kernel alone; as little as 0.6 of the model, as for attention by warpgroups: an assumption, nothing was "
                   "measured.",
    "experts": "0.85 to 1.12 of the plan's rate, an assumption: products alone were within 5% of it on an H100 on 2026-11-26, "
               "combine_rows_grad too, and a whole step with these kernels was not measured.",
}

# Of the copy speed: the least and the most, for a GPU whose memory is as fast as an H100's, and for one
# with that of an H200. See the rules.
SHARES = (
    (r"adamw8bit", "issue", (0.50, 0.60), (0.35, 0.45)),
    (r"swiglu_(linear_)?grad", "issue", (0.75, 0.88), (0.68, 0.80)),
    (r"swiglu", "issue", (0.65, 0.85), (0.60, 0.75)),
    (r"cross_entropy", "issue", (0.70, 0.92), (0.55, 0.80)),
    (r"rms_norm_grad", "norm gradient", (0.60, 1.00), (0.60, 1.00)),
    (r"", "stream", (0.75, 1.00), (0.75, 1.00)),
)
COPY = (0.85, 0.93)  # of the data sheet's bandwidth
MEMCPY = (0.76, 0.93)
L2_BYTES, L2_SPEED = 50e6, 2.0
TINY = (1.5e-6, 10e-6)  # seconds a launch
SORT = (2e-6, 15e-6)
PRODUCT = (650 / 750, 794.5 / 750)  # of the model's rate
ALIGNED = 794.5e12
PLAIN = (0.5, 2.0)
SLOW_ATTENTION = (25 + 40) / (50 + 73)
# TFLOP/s of FlashAttention 2 on an H100: of the forward pass and the gradient, by head size and tokens.
FLASH2 = {(64, 2048): (262, 222), (64, 8192): (295, 265), (128, 2048): (298, 254), (128, 8192): (333, 299)}
# The same of FlashAttention-3.
FLASH3 = {(64, 2048): (371, 270), (64, 8192): (460, 422), (128, 2048): (560, 316), (128, 8192): (685, 575)}
WARPGROUPS = (0.6, 1.15)  # of the tile model
MFU = {("llama1b", "eager"): (0.305, 0.25, 0.38), ("mistral", "eager"): (0.30, 0.25, 0.38),
       ("llama1b", "compile"): (0.516, 0.35, 0.57), ("mistral", "compile"): (0.42, 0.35, 0.57),
       ("llama1b", "tuned"): (0.56, 0.45, 0.62), ("mistral", "tuned"): (0.48, 0.38, 0.60)}
RULE_OF_MODE = {"eager": "eager", "compile": "compiled", "tuned": "tuned"}
# Of a command; scatter_add has several, all others one. A product with SwiGLU is that of cuBLASLt and a kernel, or one
# kernel.
WITH_SWIGLU = ("linear_swiglu", "swiglu_linear_grad")
LAUNCHES = {"attention_grad": 2, **dict.fromkeys(WITH_SWIGLU, 2)}
EXPERTS = (0.85, 1.12)  # of the plan's rate
CAPTURE = (10e-6, 100e-6)  # seconds a node
SUMS_ON_HOST = {"f32": {"loss": 1e-7, "gradients": 2e-6, "weights": 2.4e-5},
                "bf16": {"loss": 2.7e-4, "gradients": 2.1e-2, "weights": 2.4e-2}}

# Figures of rows that nobody bets on; `section` and `item` "*" are all.
NO_BETS = (
    ("*", "watts", "the device specs say nothing of power"),
    ("*", "sm_mhz", "the clock under another load than large products is not predicted"),
    ("*", "heat_watts", "the device specs say nothing of power"),
    ("*", "heat_sm_mhz", "the clock depends on the power of what runs before"),
    ("power", "*", "the device specs say nothing of power, nor of the clock that it leaves"),
    ("*", "used_mib", "outside of `training`, the programs allocate what they like"),
    ("training", "first_step_s", "it has the first use of every library, whose time nobody published"),
    ("training", "start_s", "it has the start of the driver and cuBLASLt, and the timing of products"),
    ("steps", "loss", "random tokens and weights: about ln of the vocabulary, whatever the speed"),
    ("training", "loss", "random tokens and weights: about ln of the vocabulary, whatever the speed"),
    ("experts", "loss", "random tokens and weights: about ln of the vocabulary, whatever the speed"),
    ("smoke", "*", "it says whether anything works, and measures nothing"),
    ("attention", "error", "`right` says whether it is small enough"),
)


class Interval:
    """A prediction, its range, and the cost model's own figure, if that is another."""

    def __init__(self, prediction: float, low: float, high: float, model: float | None = None):
        self.prediction, self.low, self.high = prediction, min(low, high), max(low, high)
        self.model = prediction if model is None else model

    def map(self, function) -> "Interval":
        return Interval(function(self.prediction), function(self.low), function(self.high), function(self.model))

    def json(self) -> dict:
        def digits(x):
            return x if isinstance(x, (bool, int)) or self.low == self.high else float(f"{x:.4g}")
        made = {"prediction": digits(self.prediction), "low": digits(self.low), "high": digits(self.high)}
        return made if digits(self.model) == made["prediction"] else {**made, "model": digits(self.model)}


class Spec:
    """The numbers of a device spec that bets are made with."""

    def __init__(self, path: Path):
        text = path.read_bytes()
        keys = tomllib.loads(text.decode())
        self.path, self.name, self.arch = path, keys["name"], keys["arch"]
        self.facts = {"description": keys["description"], "sha256": hashlib.sha256(text).hexdigest()[:16],
                      "gpu": GPUS.get(self.name, keys["description"])}
        self.sheet = keys["memory"]["bandwidth"]
        self.copy = self.sheet * keys["memory"]["reachable"]  # bytes/s
        self.reserve = float(re.match(r"[\d.]+", keys["memory"]["reserve"])[0]) * GIB
        self.launch, self.peak = keys["launch"]["seconds"], keys["peak"]["bf16"]
        self.units, self.clock = keys["gemm"]["bf16"]["units"], keys["clock"]["hertz"]
        self.alone = keys["clock"].get("alone", self.clock)
        self.tile = (keys["gemm"]["bf16"]["tile_rows"], keys["gemm"]["bf16"]["tile_columns"])
        self.fixed_depth = keys["gemm"]["bf16"]["fixed_depth"]
        self.sustained, self.vector = keys["gemm"]["bf16"]["sustained"], keys["vector"]["flops"]
        self.fast_memory = self.sheet > 4e12


def specs_of(pack) -> list[Spec]:
    """Returns the spec of the pack, and the other built-in ones of its architecture."""
    own = Path(pack.spec) if "/" in pack.spec or pack.spec.endswith(".toml") else DEVICES / f"{pack.spec}.toml"
    paths = (own, *sorted(DEVICES.glob("*.toml")))
    every = [Spec(path) for path in paths if "clock" in tomllib.loads(path.read_text())]
    return [spec for i, spec in enumerate(every) if spec.arch == pack.arch and spec.name not in
            [other.name for other in every[:i]]]


def memory_bound(name: str, size: float, spec: Spec, model: float) -> tuple[str, Interval]:
    """Returns the rule and the seconds of a launch that moves `size` bytes."""
    rule, *shares = next(entry[1:] for entry in SHARES if re.search(entry[0], name))
    low, high = shares[spec.fast_memory]
    middle = (low + high) / 2 if rule == "issue" else None  # else the cost model's own

    def seconds(share: float) -> float:
        return spec.launch + size / (share * spec.copy)

    kept = min(1.0, L2_BYTES / size) if size < 4 * L2_BYTES else 0.0
    fastest = spec.launch / 2 + size * (1 - kept + kept / L2_SPEED) / (high * spec.sheet * COPY[1])
    slowest = 2 * spec.launch + size / (low * spec.sheet * COPY[0])
    return ("cache" if kept and rule != "issue" else rule,
            Interval(seconds(middle) if middle else model, fastest, slowest, model))


def attention_time(columns: int, tokens: int, part: str, model: float, rate: float,
                   warpgroups: bool) -> tuple[str, Interval]:
    """Returns the rule and the seconds of an attention kernel. `rate` is that of its pass, in FLOP/s; part is forward
    or backward."""
    if columns % (8 if columns <= 128 else 16) or columns > 256:
        return "plain", Interval(model, model / PLAIN[0], model / PLAIN[1])
    key = (64 if columns <= 64 else 128, 2048 if tokens < 4096 else 8192)
    if warpgroups:
        theirs = FLASH3[key][part != "forward"] * 1e12 * min(1, columns / key[0])
        return "wgmma", Interval(model, model / WARPGROUPS[0], model / max(WARPGROUPS[1], theirs / rate))
    theirs = FLASH2[key][part != "forward"] * 1e12 * columns / key[0]  # other columns of a tile are zeros
    return "mma.sync", Interval(model, model / SLOW_ATTENTION, model / max(1.0, theirs / rate))


def is_aligned(command: dict) -> bool:
    return all(command[size] % 8 == 0 for size in "mnk")


def product_time(command: dict, spec: Spec) -> tuple[str, Interval, Interval]:
    """Returns the rule, and the seconds of a product by its best and by the first algorithm."""
    m, n, k, model = (command[key] for key in ("m", "n", "k", "seconds"))
    waves = math.ceil(math.ceil(m / spec.tile[0]) * math.ceil(n / spec.tile[1]) / spec.units)
    late = (waves + 1) / waves
    if is_aligned(command):
        best = Interval(model, model / PRODUCT[0], model / PRODUCT[1])
        return "product", best, Interval(model, best.low, best.high * late)
    best = Interval(model, 2.0 * m * n * k / ALIGNED, model / PRODUCT[0])
    return "unaligned", best, Interval(model, best.low, best.high * late)


class Bets:
    """The list of bets. `values` of a bet are by spec, or "any" for a figure that all GPUs share."""

    def __init__(self, specs: list[Spec]):
        self.specs, self.bets = specs, []

    def add(self, section: str, run: str, item: str, figure: str, rule: str, values: dict[str, Interval],
            where: dict | None = None, of_roof: dict | None = None, shown: bool = True) -> None:
        """Adds a bet on the key `figure` of the rows named `item` that have the keys `where`. `run` is the name that
        a dry run has for it; of_roof is the share of the kernel's roof by spec, with the roof's name."""
        self.bets.append({"section": section, "run": run, "item": item, **({"where": where} if where else {}),
                          "figure": figure, "rule": rule, "by": {spec: each.json() for spec, each in values.items()},
                          **({"roof": of_roof} if of_roof else {}), **({} if shown else {"follows": True})})

    def none(self, section: str, run: str, item: str, figure: str, why: str) -> None:
        self.bets.append({"section": section, "run": run, "item": item, "figure": figure, "no_bet": why})

    def exact(self, section: str, run: str, item: str, figure: str, value, shown: bool = True) -> None:
        self.add(section, run, item, figure, "exact", {"any": Interval(value, value, value)}, shown=shown)

    def time(self, section: str, item: str, rule: str, seconds: dict[str, Interval], size: float = 0, flops: float = 0,
             where: dict | None = None, roof: str = "copy", of_roof: float = 0, run: str = "") -> None:
        """Adds the bets on a kernel's `ms`, and on the rates that follow from it and that its row has: `size` bytes,
        `flops` FLOPs. of_roof are the bytes or FLOPs of its share of its roof, if these are others; `run` is the name
        that a dry run has for it, if that is not `item`."""
        share, amount = {}, of_roof or (size if roof == "copy" else flops)
        for spec in self.specs if amount else ():
            top = {"copy": spec.copy, "tensor cores": spec.peak}.get(roof, 2 * spec.vector)
            share[spec.name] = seconds[spec.name].map(lambda s, top=top: amount / s / top).json()
        self.add(section, run or item, item, "ms", rule,
                 {spec: each.map(lambda s: 1e3 * s) for spec, each in seconds.items()}, where,
                 {"of": roof, "by": share} if share else None)
        for figure, amount in (("gbps", size * 1e-9), ("tflops", flops * 1e-12)):
            if amount:
                self.add(section, run or item, item, figure, rule,
                         {spec: each.map(lambda s, a=amount: a / s) for spec, each in seconds.items()}, where,
                         shown=False)
        if size and section == "kernels":
            self.add(section, item, item, "of_copy", rule, {
                spec.name: seconds[spec.name].map(lambda s, spec=spec: size / s / spec.copy) for spec in self.specs},
                where, shown=False)


def of_ceilings(bets: Bets, pack) -> None:
    for name in re.findall(r'run\("([^"]+)"', (pack.data / "src/instructions.cu").read_text()):
        bets.exact("ceilings", "instructions", f"instruction {name}", "wrong", 0)
    for how, (low, high) in (("kernel", COPY), ("cudaMemcpy", MEMCPY)):
        speed = {spec.name: Interval(spec.copy, low * spec.sheet, high * spec.sheet) for spec in bets.specs}
        bets.add("ceilings", "copy", f"copy by {how}", "gbps", "copy",
                 {spec: each.map(lambda s: s * 1e-9) for spec, each in speed.items()},
                 of_roof={"of": "data sheet", "by": {spec.name: speed[spec.name].map(
                     lambda s, spec=spec: s / spec.sheet).json() for spec in bets.specs}})
        bets.add("ceilings", "copy", f"copy by {how}", "ms", "copy",
                 {spec: each.map(lambda s: 4 * GIB / s * 1e3) for spec, each in speed.items()}, shown=False)
    for name, (m, n, k) in ceilings.LARGE.items():
        item = f"bf16 product {name}"
        seconds = {}
        for spec in bets.specs:
            tiles = math.ceil(m / spec.tile[0]) * math.ceil(n / spec.tile[1])
            waves = math.ceil(tiles / spec.units)  # as Roofline.cpp has it, where k needs no parts
            model = waves * spec.units * 2 * spec.tile[0] * spec.tile[1] * (k + spec.fixed_depth) / spec.sustained
            seconds[spec.name] = Interval(model, model / PRODUCT[0], model / PRODUCT[1])
        bets.time("ceilings", item, "product", seconds, flops=2.0 * m * n * k, roof="tensor cores")
        bets.add("ceilings", item, item, "sm_mhz", "clock", {
            spec.name: Interval(spec.clock * 1e-6, 1.83e3 * 650 / 989 / 0.95, 1980) for spec in bets.specs})


def source_facts(path: Path) -> tuple[float, float, list[str]]:
    """Returns the bytes and FLOPs of an extracted program, and the names of its launches."""
    text = path.read_text()
    size, flops = map(float, re.search(r"kBytes = ([\d.e+]+), kFlops = ([\d.e+]+);", text).groups())
    return size, flops, re.findall(r'"([^"]+)"', re.search(r"launchNames\[\] = \{(.*)\};", text)[1])


def explained(pack, pool, specs: list[Spec], names: list[str]) -> dict:
    """Returns the reports of plans by spec and name."""
    work = {(spec.name, name): pool.submit(pack.explain, pack.plans[name], str(spec.path) if spec.name == pack.spec and
                                           spec.path.parent != DEVICES else spec.name)
            for spec in specs for name in names}
    return {key: future.result() for key, future in work.items()}


def kernel_time(name: str, kernel: dict, spec: Spec, columns: int, tokens: int, rates: dict,
                in_step: bool = False, warpgroups: bool = True) -> tuple[str, Interval]:
    """Returns the rule and the seconds of one launch of a plan's kernel, which runs alone or in a step. The plan's
    figures are those of a step. Attention is by products of warpgroups in a plan for sm_90a."""
    size, model = kernel["read_bytes"] + kernel["written_bytes"], kernel["seconds"]
    if kernel["hero"].startswith("attention"):
        part = "forward" if kernel["hero"] in ("attention_forward", "attention") else "backward"
        faster = 1 if in_step else spec.alone / spec.clock
        return attention_time(columns, tokens, part, model / faster, rates[part] * faster, warpgroups)
    if kernel["hero"] in ("swiglu_gemm", "swiglu_gemm_grad"):
        faster = 1 if in_step else spec.alone / spec.clock
        return "own product", Interval(model, model / PRODUCT[1] / faster, model / WARPGROUPS[0], model)
    if name.startswith("token_sort") or name.endswith("_partials"):
        return "sort", Interval(max(model, 5e-6), *SORT, model)
    if kernel["hero"] == "scatter_add":
        return "sort", Interval(model, size / (spec.sheet * COPY[1]), spec.launch + size / (0.5 * spec.sheet * COPY[0]))
    if kernel["bound"] == "launch latency" or size < 1e7:
        return "tiny", Interval(max(model, spec.launch), *TINY, model)
    return memory_bound(name, size, spec, model)


def attention_rates(report: dict) -> dict:
    """Returns the FLOP/s of attention and its gradient, as the cost model has them."""
    kinds = {kind["kind"]: kind["flops_per_second"] for kind in report["cost"]["kinds"]}
    return {"forward": kinds.get("attention", 1), "backward": kinds.get("attention_grad", 1)}


def sum_of(parts: list[Interval]) -> Interval:
    return Interval(*(math.fsum(getattr(part, key) for part in parts)
                      for key in ("prediction", "low", "high", "model")))


def of_kernels(bets: Bets, pack, reports: dict) -> None:
    initial = {"initialize_rope_cos_f32", "initialize_rope_sin_f32", "initialize_normal_f32"}
    copy = {spec.name: Interval(spec.copy * 1e-9, COPY[0] * spec.sheet * 1e-9, COPY[1] * spec.sheet * 1e-9)
            for spec in bets.specs}
    bets.add("kernels", "copy", "copy", "gbps", "copy", copy)
    for path in sorted((pack.data / "kernels").glob("*.cu")):
        item, (size, flops, launches) = f"kernels-{path.stem}", source_facts(path)
        bets.exact("kernels", item, item, "wrong", 0, shown=False)
        if path.stem in initial:
            bets.none("kernels", item, item, "ms",
                      "it computes initial values in f64, once in a run, and has no price")
            continue
        seconds: dict[str, Interval] = {}
        for spec in bets.specs:
            owner = next(report for (name, _), report in reports.items() if name == spec.name and path.stem in
                         {kernel["name"] for kernel in report["kernels"]})
            kernels = {kernel["name"]: kernel for kernel in owner["kernels"]}
            parts = []
            for launch in launches:
                kernel = kernels[launch]
                if path.stem.startswith("initialize"):
                    # The report counts all launches of such a kernel; the program has one. It has no price.
                    if size < 2e6:
                        rule, part = "tiny", Interval(spec.launch, *TINY)
                    else:
                        rule, part = memory_bound(launch, size, spec, spec.launch + size / spec.copy)
                else:
                    rule, part = kernel_time(launch, kernel, spec, 64, 2048, attention_rates(owner))
                parts.append(part)
            seconds[spec.name] = sum_of(parts)
            moved = sum(kernels[launch]["read_bytes"] + kernels[launch]["written_bytes"] for launch in launches)
        if "scatter_add" in "".join(launches):
            # The program counts the whole table, of which the launches touch the rows that ids name.
            bets.time("kernels", item, "sort", seconds, of_roof=moved)
        elif rule == "mma.sync":
            bets.time("kernels", item, rule, seconds, flops=flops, roof="tensor cores")
        else:
            bets.time("kernels", item, rule, seconds, size)
    for path in sorted((pack.data / "small").glob("*.cu")):
        for tool in ("memcheck", "racecheck"):
            bets.exact("kernels", f"{tool} small-{path.stem}", f"{tool} small-{path.stem}", "wrong", 0, shown=False)


def shapes(pack) -> list[tuple[int, int, int, int]]:
    """Returns batch, tokens, head size and window of the shapes that attention.cu times, in their order."""
    text = (pack.data / "src/attention.cu").read_text()
    made = [tuple(map(int, each)) for each in re.findall(r"BenchShape = ShapeOf<(\d+), (\d+), (\d+), (\d+)>", text)]
    assert len(made) == len(attention.SHAPES), "attention.cu has other shapes than sections/attention.py"
    return made


def attention_plan(pack, number: int, batch: int, tokens: int, columns: int, window: int) -> None:
    pack.compile("mistral-7b" if window else "llama1b", f"attention-{number}", {
        "model.num_attention_heads": 32, "model.num_key_value_heads": 8, "model.head_dim": columns,
        **({"model.sliding_window": window} if window else {}), "model.num_hidden_layers": 1,
        "training.sequence_length": tokens, "training.micro_batch_size": batch, "training.batch_size": batch,
        "memory.recompute": "none"})


def of_attention(bets: Bets, pack, reports: dict) -> None:
    # FLOPs for each visible score and column: 2 for each product; the forward pass has two products, the gradient
    # of queries three, that of keys four.
    names = {"forward": ("attention", 4), "dq": ("attention_grad_queries", 6), "dk, dv": ("attention_grad_keys", 8)}
    for number, (item, shape) in enumerate(zip(attention.SHAPES, shapes(pack))):
        batch, tokens, columns, window = shape
        visible = tokens * (tokens + 1) / 2 if not window else window * (window + 1) / 2 + (tokens - window) * window
        for kernel, (name, per_score) in names.items():
            seconds, hot = {}, {}
            for spec in bets.specs:
                report = reports[spec.name, f"attention-{number}"]
                found = next(each for each in report["kernels"] if each["name"] == name)
                facts = (name, found, spec, columns, tokens, attention_rates(report))
                rule, seconds[spec.name] = kernel_time(*facts)
                hot[spec.name] = kernel_time(*facts, in_step=True)[1].map(lambda s: 1e3 * s)
            flops = per_score * batch * 32 * columns * visible
            bets.time("attention", item, rule, seconds, flops=flops if kernel == "forward" else 0,
                      where={"kernel": kernel}, roof="tensor cores", of_roof=flops)
            bets.add("attention", item, item, "heat_ms", rule, hot, {"kernel": kernel}, shown=False)
    for path in sorted((pack.data / "price").glob("*.cu")):
        columns, (_, flops, launches) = int(path.stem[:3]), source_facts(path)
        item, seconds = f"price-{path.stem}", {}
        for spec in bets.specs:
            report = reports[spec.name, f"price-{columns}"]
            kernels = {kernel["name"]: kernel for kernel in report["kernels"]}
            pairs = [kernel_time(launch, kernels[launch], spec, columns, 2048, attention_rates(report))
                     for launch in launches]
            rule, seconds[spec.name] = pairs[0][0], sum_of([part for _, part in pairs])
        bets.time("attention", item, rule, seconds, flops=flops,
                  roof="FMA units" if rule == "plain" else "tensor cores")
        bets.exact("attention", item, item, "wrong", 0, shown=False)


def of_streams(bets: Bets, pack) -> None:
    for path in sorted((pack.data / "streams").glob("*.cu")):
        item, (size, _, (launch,)) = path.stem, source_facts(path)
        seconds = {}
        for spec in bets.specs:
            rule, seconds[spec.name] = memory_bound(launch, size, spec, spec.launch + size / spec.copy)
        if item == "cross_entropy-again":  # the range is that of a kernel that reads its rows twice
            seconds = {spec: Interval(1.5 * each.prediction, 1.3 * each.low, 1.7 * each.high)
                       for spec, each in seconds.items()}
        bets.time("streams", item, rule, seconds, size=size)
        bets.exact("streams", item, item, "wrong", 0, shown=False)
    bets.none("products", "gated MLP", "gated MLP", "*", "what is measured is whether own products reach cuBLASLt's")
    for item in streams.PRODUCTS:
        for name in (item, f"{item} with residual"):
            bets.none("streams", name, name, "*", "it stands beside the same product with or without the residual")


def of_gemm(bets: Bets, pack) -> None:
    by = {spec.name: pack.products(spec.name if spec.path.parent == DEVICES else str(spec.path)) for spec in bets.specs}
    for name in by[bets.specs[0].name]:
        times = {spec.name: product_time(by[spec.name][name], spec) for spec in bets.specs}
        rule = next(iter(times.values()))[0]
        shape = by[bets.specs[0].name][name]
        flops = 2.0 * shape["m"] * shape["n"] * shape["k"]
        share = {spec.name: times[spec.name][1].map(lambda s, spec=spec: flops / s / spec.peak).json()
                 for spec in bets.specs}
        bets.add("gemm", name, name, "best_ms", rule,
                 {spec: each[1].map(lambda s: 1e3 * s) for spec, each in times.items()},
                 of_roof={"of": "tensor cores", "by": share})
        bets.add("gemm", name, name, "best_tflops", rule,
                 {spec: each[1].map(lambda s: flops / s * 1e-12) for spec, each in times.items()}, shown=False)
        bets.add("gemm", name, name, "first_ms", "first",
                 {spec: each[2].map(lambda s: 1e3 * s) for spec, each in times.items()}, shown=False)
        bets.add("gemm", name, name, "gain", "first", {
            spec: Interval(1.0, 1.0, each[2].high / each[1].high) for spec, each in times.items()})


def of_conformance(bets: Bets, pack, jobs: list[dict]) -> None:
    for job in jobs:
        for name in conformance.RUNS:
            item = f"{job['name']} {name}"
            if name != "graphs":
                bets.exact("conformance", item, item, "bits", True)
                continue
            for figure, most in conformance.TOLERANCES[job["dtype"]].items():
                bets.add("conformance", item, item, figure, "tolerance", {
                    "any": Interval(SUMS_ON_HOST[job["dtype"]][figure], 0.0, most)})
            bets.exact("conformance", item, item, "memory", job["planned_bytes"])
    for tool in conformance.SANITIZED:
        item = f"{tool} {jobs[0]['name']}"
        bets.none("conformance", item, item, "*", "it has no figure: the item fails if the tool finds an error")


def nodes_of(report: dict) -> tuple[int, int, int]:
    """Returns how many launches and products all functions of a plan have together, those of `eval` too: all are
    captured; and how many of the products may be one kernel with SwiGLU. The launches include one for each product."""
    runs = {function["name"]: function["runs_per_step"] for function in report["cost"]["functions"]}
    scatters = [kernel for kernel in report["kernels"] if kernel["hero"] == "scatter_add"]
    # The first micro-step's scatter sets to zero what it does not add to, in a launch of its own.
    launches = per_step = sum(kernel["launches_per_step"] for kernel in scatters if kernel["name"].endswith("_zeros"))
    several = sum(kernel["launches_per_step"] for kernel in scatters) - launches
    several //= max(1, sum(runs[function["name"]] for function in report["functions"]
                           for command in function["commands"] if command["kind"] == "scatter_add"))
    products = swiglus = 0
    for function in report["functions"]:
        for command in function["commands"]:
            number = {**LAUNCHES, "scatter_add": several}.get(command["kind"], 1)
            launches += number
            swiglus += command["kind"] in WITH_SWIGLU
            if command["kind"] in ("gemm", *WITH_SWIGLU):
                products += 1
                number -= 1
            per_step += runs[function["name"]] * number
    kernels = sum(kernel["launches_per_step"] for kernel in report["kernels"])
    assert per_step == kernels, f"commands have {per_step} launches in a step, and kernels {kernels}"
    return launches, products, swiglus


def step_time(report: dict, job: dict, spec: Spec) -> tuple[Interval, Interval]:
    """Returns the seconds of a step with the best products and with those of the first algorithms."""
    parts: dict[str, list[Interval]] = {"products": [], "first": [], "attention": [], "kernels": []}
    tokens, columns = job["shape"]["sequence_length"], job["head_dim"]
    runs = {function["name"]: function["runs_per_step"] for function in report["cost"]["functions"]}
    for function in report["functions"]:
        count = runs[function["name"]]
        for command in function["commands"] if count else ():
            if command["kind"] in ("gemm", *WITH_SWIGLU):
                _, best, first = product_time({**command, "seconds": command["product_seconds"]}, spec)
                for kind, each in (("products", best), ("first", first)):
                    parts[kind].append(each.map(lambda s, count=count: count * s))
    rates = attention_rates(report)
    for kernel in report["kernels"]:
        if count := kernel["launches_per_step"]:
            _, each = kernel_time(kernel["name"], kernel, spec, columns, tokens, rates, in_step=True,
                                  warpgroups=not job.get("arch"))
            kind = "attention" if kernel["hero"].startswith("attention") else "kernels"
            parts[kind].append(each.map(lambda s, count=count: count * s))

    def whole(products: str) -> Interval:
        groups = [sum_of(parts[kind]) for kind in (products, "attention", "kernels")]
        middle = math.fsum(group.prediction for group in groups)
        faster = math.hypot(*(group.prediction - group.low for group in groups))
        slower = math.hypot(*(group.high - group.prediction for group in groups))
        return Interval(middle, middle - faster, middle + slower, report["cost"]["step_seconds"])

    return whole("products"), whole("first")


def of_training(bets: Bets, pack, reports: dict) -> None:
    jobs = {job["name"]: job for job in json.loads((pack.data / "training/jobs.json").read_text())}
    names = {name: next(plan for plan, path in pack.plans.items() if path.name == job["plan"])
             for name, job in jobs.items()}
    ours, peers = training.items(jobs)
    for item, (name, products) in ours.items():
        job = {**jobs[name], "head_dim": jobs[name]["shape"].get("head_dim") or
               jobs[name]["shape"]["hidden_size"] // jobs[name]["shape"]["num_attention_heads"]}
        report = {spec.name: reports[spec.name, names[name]] for spec in bets.specs}
        times = {spec.name: step_time(report[spec.name], job, spec) for spec in bets.specs}
        seconds = {spec: each[1 if products == "default" else 0] for spec, each in times.items()}
        rates = {spec: each.map(lambda s: job["tokens_per_step"] / s) for spec, each in seconds.items()}
        bets.add("training", item, item, "tokens_per_second", "step", rates)
        bets.add("training", item, item, "mfu", "step", {
            spec: each.map(lambda rate: rate * job["flops_per_token"] / job["peak_flops"])
            for spec, each in rates.items()})
        bets.add("training", item, item, "step_ms", "step",
                 {spec: each.map(lambda s: 1e3 * s) for spec, each in seconds.items()}, shown=False)
        planned = job["planned_bytes"] / MIB
        bets.exact("training", item, item, "planned_mib", planned)
        bets.add("training", item, item, "used_mib", "reserve", {
            spec.name: Interval(planned + 512, planned, planned + spec.reserve / MIB) for spec in bets.specs})
        if products:  # a bench, whose log has no lines about graphs
            bets.exact("training", item, item, "allocated_mib", planned)
            continue
        bets.add("training", item, item, "allocated_mib", "log", {
            "any": Interval(planned, planned - 16, planned + 16)}, shown=False)
        launches, count, swiglus = nodes_of(report[bets.specs[0].name])
        bets.add("training", item, item, "graph_nodes", "nodes", {
            "any": Interval(launches, launches - swiglus, launches + 2 * count)})
        bets.add("training", item, item, "graph_s", "capture", {
            "any": Interval(launches * CAPTURE[0], 0.0, (launches + 2 * count) * CAPTURE[1])})
    for item, (model, mode, mbs, gas) in peers.items():
        job = next(job for job in jobs.values() if job["model"] == model)
        mfu = Interval(*MFU[model, mode])
        for figure, value in (("mfu", mfu), ("tokens_per_second",
                                             mfu.map(lambda x: x * job["peak_flops"] / job["flops_per_token"]))):
            bets.add("training", item, item, figure, RULE_OF_MODE[mode], {spec.name: value for spec in bets.specs})
        step = mbs * gas * job["shape"]["sequence_length"]
        bets.add("training", item, item, "step_ms", RULE_OF_MODE[mode], {
            spec.name: mfu.map(lambda x: 1e3 * step * job["flops_per_token"] / job["peak_flops"] / x)
            for spec in bets.specs}, shown=False)
        bets.none("training", item, item, "used_mib", "PyTorch's allocator keeps what it has had")


def of_steps(bets: Bets, pack, reports: dict) -> None:
    jobs = json.loads((pack.data / "steps/jobs.json").read_text())
    for job in jobs:
        item, name = job["name"], next(plan for plan, path in pack.plans.items() if path.name == job["plan"])
        facts = {**job, "head_dim": job["shape"].get("head_dim") or
                 job["shape"]["hidden_size"] // job["shape"]["num_attention_heads"]}
        seconds = {spec.name: step_time(reports[spec.name, name], facts, spec)[0] for spec in bets.specs}
        rates = {spec: each.map(lambda s: job["tokens_per_step"] / s) for spec, each in seconds.items()}
        bets.add("steps", item, item, "tokens_per_second", "step", rates)
        bets.add("steps", item, item, "mfu", "step", {
            spec: each.map(lambda rate: rate * job["flops_per_token"] / job["peak_flops"])
            for spec, each in rates.items()})
        bets.add("steps", item, item, "step_ms", "step",
                 {spec: each.map(lambda s: 1e3 * s) for spec, each in seconds.items()}, shown=False)
        for figure in ("planned_mib", "allocated_mib"):
            bets.exact("steps", item, item, figure, job["planned_bytes"] / MIB)


def of_experts(bets: Bets, pack, reports: dict) -> None:
    jobs = {job["name"]: job for job in json.loads((pack.data / "experts/jobs.json").read_text())}
    ours, peers = experts.items(jobs)
    for item, job in ours.items():
        report = {spec.name: reports[spec.name, Path(job["plan"]).stem] for spec in bets.specs}
        rates = {}
        for spec, each in report.items():
            rate = each["cost"]["tokens_per_second_per_device"]
            rates[spec] = Interval(rate, EXPERTS[0] * rate, EXPERTS[1] * rate)
        bets.add("experts", item, item, "tokens_per_second", "experts", rates)
        bets.add("experts", item, item, "mfu", "experts", {
            spec: each.map(lambda rate: rate * job["flops_per_token"] / job["peak_flops"])
            for spec, each in rates.items()})
        bets.add("experts", item, item, "step_ms", "experts", {
            spec: each.map(lambda rate: 1e3 * job["tokens_per_step"] / rate) for spec, each in rates.items()},
            shown=False)
        for figure in ("planned_mib", "allocated_mib"):
            bets.exact("experts", item, item, figure, job["planned_bytes"] / MIB)
        made = {spec: experts.products(each, job["grouped"]) for spec, each in report.items()}
        for name, product in job["products"].items():
            seconds = {}
            for spec, each in made.items():
                model = each[name]["seconds"]
                seconds[spec] = Interval(model, model / EXPERTS[1], model / EXPERTS[0])
            bets.time("experts", f"{job['model']} lmc {name}", "experts", seconds, flops=product["flops"],
                      roof="tensor cores", run=item)
    for item in peers:
        bets.none("experts", item, item, "*", "lmc does not predict PyTorch's products, which stand beside its own")


def of(pack, pool) -> dict:
    """Returns the bets on what `run` measures with the plans that `pack` has compiled."""
    specs = specs_of(pack)
    attentions = [pool.submit(attention_plan, pack, number, *shape) for number, shape in enumerate(shapes(pack))]
    for each in attentions:
        each.result()
    wanted = [name for name in pack.plans if re.match("kernels-|price-|attention-|training-|steps-|experts-", name)]
    reports = explained(pack, pool, specs, wanted)
    bets = Bets(specs)
    of_ceilings(bets, pack)
    of_kernels(bets, pack, {key: report for key, report in reports.items() if key[1].startswith("kernels-")})
    of_attention(bets, pack, reports)
    of_gemm(bets, pack)
    of_streams(bets, pack)
    of_conformance(bets, pack, json.loads((pack.data / "conformance/jobs.json").read_text()))
    of_training(bets, pack, reports)
    of_steps(bets, pack, reports)
    of_experts(bets, pack, reports)
    used = {bet.get("rule") for bet in bets.bets}
    return {"arch": pack.arch, "specs": {spec.name: spec.facts for spec in specs},
            "rules": {name: text for name, text in RULES.items() if name in used},
            "no_bets": [dict(zip(("section", "figure", "no_bet"), each)) for each in NO_BETS], "bets": bets.bets}


def text_of(made: dict) -> str:
    """Returns the bets as JSON with a line for each."""
    head = json.dumps({key: value for key, value in made.items() if key != "bets"}, indent=1)
    lines = ",\n".join("  " + json.dumps(bet) for bet in made["bets"])
    return head[:-2] + ',\n "bets": [\n' + lines + "\n ]\n}\n"


def of_pack(pack, pool) -> dict:
    """Returns the bets that go into a pack: those on record, in bench/gpu/expected.json, if they have the pack's
    spec; else new ones. Says so if the plans of the pack are others than those on record."""
    path = HERE / "expected.json"
    made = json.loads(path.read_text()) if path.exists() else {"arch": "", "specs": {}}
    if made["arch"] != pack.arch or pack.spec not in made["specs"]:
        return of(pack, pool)
    jobs = [(job["name"] + " graphs", "memory", job["planned_bytes"])
            for job in json.loads((pack.data / "conformance/jobs.json").read_text())]
    jobs += [(job["name"], "planned_mib", job["planned_bytes"] / MIB) for section in ("training", "steps", "experts")
             for job in json.loads((pack.data / section / "jobs.json").read_text())]
    known = {(bet["item"], bet["figure"]): bet["by"]["any"]["prediction"]
             for bet in made["bets"] if "any" in bet.get("by", {})}
    others = [item for item, figure, planned in jobs if known.get((item, figure)) != planned]
    others += [spec.name for spec in specs_of(pack) if made["specs"].get(spec.name) != spec.facts]
    if others:
        print(f"pack: note: bench/gpu/expected.json was written for other plans or specs ({', '.join(others)}); "
              "./dev gpu expected writes it anew")
    return made


def cell(value: dict | None) -> str:
    if value is None:
        return ""
    def show(x) -> str:
        if isinstance(x, bool):
            return "yes" if x else "no"
        return f"{x:,.0f}" if abs(x) >= 1e4 else f"{x:.4g}" if isinstance(x, float) else str(x)
    own = f"; model {show(value['model'])}" if "model" in value else ""
    if value["low"] == value["high"]:
        return show(value["prediction"]) + own
    return f"{show(value['prediction'])} ({show(value['low'])} to {show(value['high'])}){own}"


UNITS = {"ms": "ms", "best_ms": "ms of the best", "gain": "first / best", "gbps": "GB/s",
         "tokens_per_second": "tokens/s", "allocated_mib": "MiB allocated", "mfu": "MFU", "sm_mhz": "SM MHz",
         "planned_mib": "MiB planned", "used_mib": "MiB in use",
         "graph_nodes": "nodes of graphs", "graph_s": "s to capture", "wrong": "wrong", "bits": "same bits",
         "memory": "bytes"}


HEAD = """Written before anything was measured, by `./dev gpu expected`, from the plans that `./dev gpu pack` packs: a
prediction, its range in brackets, and the rule that the range comes from. `model` is the cost model's own figure, where
a known weakness of a kernel makes the prediction another one. `of` is the kernel's share of its roof on each GPU: for
kernels that move bytes the copy speed of the spec, for products the dense peak of the tensor cores (of attention's
gradient each kernel with what it computes: 3 and 4 products). Figures that follow from those shown (GB/s, TFLOP/s, ms of
a step) are in `expected.json`, and so is that no element may be wrong. `./dev gpu run` compares, and names the five bets
that were lost by the most (`docs/gpu.md`)."""


def markdown(made: dict) -> str:
    specs = list(made["specs"])
    lines = ["# What the first hour on a GPU will measure", "", HEAD, "",
             "| device spec | GPU, as nvidia-smi names it | SHA-256 of the spec |", "|---|---|---|"]
    lines += [f"| {name} | {facts['gpu']} | `{facts['sha256']}` |" for name, facts in made["specs"].items()]
    order = {"training": 0}
    sections = sorted(dict.fromkeys(bet["section"] for bet in made["bets"]), key=lambda name: order.get(name, 1))
    for section in sections:
        bets = [bet for bet in made["bets"] if bet["section"] == section and not bet.get("follows")]
        has_roof = any("roof" in bet for bet in bets)
        lines += ["", f"## {section}", "", "| item | figure | " + " | ".join(specs) + " | " +
                  ("of | " if has_roof else "") + "rule |", "|---" * (len(specs) + 3 + has_roof) + "|"]
        for bet in bets:
            item = bet["item"] + (f", {bet['where']['kernel']}" if "where" in bet else "")
            if "no_bet" in bet:
                row = [item, UNITS.get(bet["figure"], "all" if bet["figure"] == "*" else bet["figure"]),
                       *["no bet"] * len(specs), *[""] * has_roof, bet["no_bet"]]
            else:
                values = [cell(bet["by"].get(spec, bet["by"].get("any"))) for spec in specs]
                roof = bet.get("roof")
                share = f"{roof['of']}: " + ", ".join(
                    f"{100 * each['prediction']:.0f}%" for each in roof["by"].values()) if roof else ""
                row = [item, UNITS.get(bet["figure"], bet["figure"]), *values, *[share] * has_roof, bet["rule"]]
            lines.append("| " + " | ".join(row) + " |")
    lines += ["", "## Rules", "", "| rule | where the range comes from |", "|---|---|"]
    lines += [f"| {name} | {text} |" for name, text in made["rules"].items()]
    lines += ["", "Nobody bets on:", ""]
    lines += [f"* {each['figure']}{'' if each['section'] == '*' else ' of ' + each['section']}: {each['no_bet']}"
              for each in made["no_bets"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    from pack import CONFORMANCE, Pack

    parser = argparse.ArgumentParser(prog="./dev gpu expected", description=__doc__.split("\n")[0])
    build = Path(os.environ.get("LMC_BUILD_DIR") or ROOT / "build").resolve()
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to (default: bench/gpu)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lmc-gpu-expected") as scratch:
        pack = Pack(Path(scratch) / "folder", build, "sm_90a", [], "h100-sxm", Path(scratch))
        pack.sources_of_benches()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            work = pack.begin(pool)
            (pack.data / "conformance").mkdir()
            jobs = list(pool.map(lambda job: pack.conformance(*job, trains=False), CONFORMANCE))
            (pack.data / "conformance/jobs.json").write_text(json.dumps(jobs))
            for each in work:
                each.result()
            made = of(pack, pool)
    (args.out / "expected.json").write_text(text_of(made))
    (args.out / "expected.md").write_text(markdown(made))
    print(f"wrote {len(made['bets'])} bets to {args.out}/expected.md and expected.json")


if __name__ == "__main__":
    main()
