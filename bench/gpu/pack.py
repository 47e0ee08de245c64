#!/usr/bin/env python3
"""Fills a folder with all that a machine with a GPU needs to check and measure lmc there.

The machine needs the NVIDIA driver, Python 3.9 (with lzma) and glibc 2.36, and nothing of this repository; nvcc only
if the programs are not compiled here. The folder's own `run` says what it does there; bench/gpu/PENDING.md lists what
has run.
"""

import argparse
import concurrent.futures
import json
import lzma
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import tomllib
from array import array
from pathlib import Path

sys.dont_write_bytecode = True

import expected  # noqa: E402
import precompile  # noqa: E402
import smoke_jobs  # noqa: E402
from sections import experts, streams  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT_MB = 60
# glibc's own libraries, which only fit the machine that they were made for.
GLIBC = re.compile(r"lib(c|m|dl|rt|pthread|resolv|util)\.so|ld-linux|linux-vdso")
PRICED = (48, 64, 72, 80, 96, 112, 128, 60, 256)  # head sizes: in a tile, in a larger one, in none
# A llama1b that compute-sanitizer, which slows a kernel down a thousand times, is done with soon. Its
# heads are llama1b's, so that its attention runs on the tensor cores.
SMALL = {"model.hidden_size": 256, "model.intermediate_size": 512, "model.num_attention_heads": 4,
         "model.num_key_value_heads": 2, "model.vocab_size": 512, "training.sequence_length": 256}

LONG_ROWS = {"model.vocab_size": 90112, "memory.loss_chunk": 64}


# The models that the GPU trains as the CPU does, with the settings of both and the reference that each
# is compared with: GAS changes nothing but the order of sums. The two ranks of one share the GPU; one
# has sums over its one rank, which NCCL computes. All are of 128 words and at most 1e5 parameters.
CONFORMANCE_STEPS = 4
TINY = {"model.intermediate_size": 64, "checkpoint.interval": CONFORMANCE_STEPS // 2}
HEADS_OF_64 = {**TINY, "model.hidden_size": 128, "model.num_attention_heads": 2, "model.num_key_value_heads": 1,
               "model.num_hidden_layers": 1, "training.sequence_length": 128, "training.compute_dtype": "bf16"}
# Biases start from 0, and this learning rate makes them large soon. This eps makes a step of AdamW nearly
# proportional to the gradient: without it, a gradient that is rounding and little else (that of k's biases)
# decides the sign of whole steps.
BIASES = {"model.attention_bias": "true", "model.mlp_bias": "true", "lr_schedule.lr": 0.02,
          "lr_schedule.warmup_iters": 0, "optimizer.eps": 0.01}
CONFORMANCE = (
    ("tiny-f32-gas2", "test-tiny", {**TINY, "training.micro_batch_size": 4}, "tiny-f32-gas2"),
    ("tiny-f32-gas1", "test-tiny", {**TINY, "training.micro_batch_size": 8}, "tiny-f32-gas2"),
    ("tiny-f32-gas8", "test-tiny", {**TINY, "training.micro_batch_size": 1}, "tiny-f32-gas2"),
    ("tiny-bf16-gas4", "test-tiny", {**TINY, "training.compute_dtype": "bf16"}, "tiny-bf16-gas4"),
    ("mistral-bf16-gas4", "test-mistral", {**TINY, "training.compute_dtype": "bf16"}, "mistral-bf16-gas4"),
    ("heads64-bf16-gas4", "test-tiny", HEADS_OF_64, "heads64-bf16-gas4"),
    ("nccl-f32-gas2", "test-tiny", {**TINY, "training.micro_batch_size": 4}, "tiny-f32-gas2"),
    ("two-ranks-f32", "test-tiny", {**TINY, "training.micro_batch_size": 4, "distributed.strategy": "zero3"},
     "tiny-f32-gas2"),
    ("biases-f32-gas4", "test-tiny", {**TINY, **BIASES}, "biases-f32-gas4"),
    ("biases-bf16-gas4", "test-tiny", {**TINY, **BIASES, "training.compute_dtype": "bf16"}, "biases-bf16-gas4"),
    ("adamw8bit-f32-gas4", "test-tiny", {**TINY, "optimizer.type": "adamw8bit"}, "adamw8bit-f32-gas4"),
)


# One layer of llama1b at MBS 16, with four chunks of the loss.
STREAMS = {"model.num_hidden_layers": 1, "training.batch_size": 16, "training.micro_batch_size": 16,
           "memory.recompute": "none", "memory.loss_chunk": 8192}
# A step of one micro-batch of 16,384 tokens, each of which has 8 of 64 experts.
OLMOE4 = {"model.num_hidden_layers": 4, "distributed.strategy": "no_shard", "training.batch_size": 4,
          "training.micro_batch_size": 4}


# What is packed of `conformance` for the architectures that are not --arch.
SMALL_CONFORMANCE = ("tiny-f32-gas2", "tiny-bf16-gas4", "heads64-bf16-gas4")
OTHERS = ("sm_80", "sm_89", "sm_100", "sm_120")
SQUEEZED = 1 << 20  # bytes from which a library is packed by xz


class Pack:
    def __init__(self, folder: Path, build: Path, arch: str, others: list, spec: str, scratch: Path):
        self.folder, self.bin, self.arch, self.spec = folder, build / "bin", arch, spec
        self.archs = [arch, *others]
        self.scratch, self.data = scratch, scratch / "data"  # the latter becomes data.tar.xz
        self.data.mkdir()
        self.plans: dict[str, Path] = {}  # all that were compiled, by name
        self.layers, self.layers_lock = None, threading.Lock()  # what layers_that_fit() has found

    def call(self, program: str, *args: object) -> str:
        path = self.bin / program
        if not path.exists():
            raise SystemExit(f"pack: error: {path} is not built: run ./dev build")
        command = [str(path), *map(str, args)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"pack: error: {' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    @staticmethod
    def ranks_of(settings: dict) -> int:
        return 2 if settings.get("distributed.strategy", "no_shard") != "no_shard" else 1

    def command(self, config: str, plan: Path, settings: dict, *options: str, arch: str | None = None) -> list:
        """Returns the arguments of lmc that write the plan of a job for the GPU."""
        return ["compile", ROOT / f"models/configs/{config}.toml", "--quiet", "-o", plan, "--nodes=1",
                f"--devices-per-node={self.ranks_of(settings)}",
                f"--target=cuda:{arch or self.arch}", f"--spec={self.spec}", *options,
                *(f"--set={key}={value}" for key, value in settings.items())]

    def compile(self, config: str, name: str, settings: dict, *options: str, arch: str | None = None) -> Path:
        plan = self.scratch / f"{name}.plan"
        self.call("lmc", *self.command(config, plan, settings, *options, arch=arch))
        self.plans[name] = plan
        return plan

    def explain(self, plan: Path, spec: str = "") -> dict:
        return json.loads(self.call("lmc", "explain", plan, "--json", f"--spec={spec or self.spec}"))

    def extract(self, plan: Path, kernel: str, to: Path) -> None:
        to.parent.mkdir(exist_ok=True)
        self.call("lmc", "explain", plan, f"--spec={self.spec}", f"--extract-kernel={kernel}", "-o", to)

    def kernels(self, folder: str, settings: dict) -> None:
        """Extracts the kernels of llama1b with each optimizer, each kernel once."""
        for optimizer in ("adamw", "adamw8bit"):
            plan = self.compile("llama1b", f"{folder}-{optimizer}", {
                "optimizer.type": optimizer, "memory.recompute": "none", **settings})
            for kernel in self.explain(plan)["kernels"]:
                to = self.data / folder / f"{kernel['name']}.cu"
                if not to.exists():
                    self.extract(plan, kernel["name"], to)

    def small(self, settings: dict) -> None:
        """The same of a small model, and cross entropy over rows that a block keeps in shared memory."""
        self.kernels("small", {**settings, **SMALL})
        plan = self.compile("llama1b", "small-long", {**settings, **SMALL, **LONG_ROWS})
        self.extract(plan, "linear_cross_entropy_grad", self.data / "small/long_rows.cu")

    def prices(self, columns: int) -> None:
        """Extracts attention and its gradient (both kernels are in one program) for one head size."""
        plan = self.compile("llama1b", f"price-{columns}", {
            "model.head_dim": columns, "model.num_hidden_layers": 1, "training.micro_batch_size": 8,
            "memory.recompute": "none"})
        for kernel in ("attention", "attention_grad_keys"):
            self.extract(plan, kernel, self.data / "price" / f"{columns:03}-{kernel}.cu")

    def streams(self) -> None:
        """Extracts cross entropy with each way to read long rows again, and the norm with and without the residual."""
        for how in streams.LONG_ROWS:
            plan = self.compile("llama1b", f"streams-{how}", STREAMS, f"--long-rows={how}")
            self.extract(plan, "linear_cross_entropy_grad", self.data / f"streams/cross_entropy-{how}.cu")
        self.extract(plan, "rms_norm", self.data / "streams/norm.cu")
        plan = self.compile("llama1b", "streams-sums", STREAMS, "--disable-fusion=residual")
        self.extract(plan, "add_rms_norm", self.data / "streams/norm_of_a_sum.cu")

    def gemms(self) -> None:
        """Writes each product of llama1b at MBS 16 once, the head's for two chunks of the loss and for GPT-2's
        vocabulary, as it is and padded, and those of an MLP of odd width, as it is and padded."""
        for head, settings in self.heads().items():
            self.compile("llama1b", "gemms-" + re.sub(r"\W+", "-", head), {
                "training.micro_batch_size": 16, "training.batch_size": 32, "memory.recompute": "none",
                **settings}, "--plan-only")
        (self.data / "gemms.json").write_text(json.dumps(
            [{"name": name, **shape} for name, shape in self.products().items()], indent=1))

    @staticmethod
    def heads() -> dict[str, dict]:
        """Returns the settings of the jobs whose products are timed."""
        heads = {f"head, chunk {chunk}": {"memory.loss_chunk": chunk} for chunk in (1024, 4096)}
        for multiple, rows in ((1, 50257), (64, 50304)):
            heads[f"head of {rows} rows"] = {"memory.loss_chunk": 4096, "model.vocab_size": 50257,
                                             "target.make_vocab_size_divisible_by": multiple}
        for multiple, width in ((1, 5461), (8, 5464), (64, 5504)):
            heads[f"MLP of {width} columns"] = {"memory.loss_chunk": 4096, "model.intermediate_size": 5461,
                                                "target.make_intermediate_size_divisible_by": multiple}
        return heads

    def products(self, spec: str = "") -> dict[str, dict]:
        """Returns the products of these jobs, by name, with their predicted seconds."""
        shapes: dict[str, dict] = {}
        for head, settings in self.heads().items():
            plan = self.plans["gemms-" + re.sub(r"\W+", "-", head)]
            functions = [each for each in self.explain(plan, spec)["functions"] if each["name"] != "eval"]
            for command in (command for function in functions for command in function["commands"]):
                if command["kind"] not in ("gemm", "linear_swiglu", "swiglu_linear_grad"):
                    continue
                shape = {key: command[key] for key in (
                    "m", "n", "k", "transpose_a", "transpose_b", "result_dtype", "accumulate")}
                shape["seconds"] = command["product_seconds"]
                kind = "wgrad" if shape["transpose_a"] else "forward" if shape["transpose_b"] else "dgrad"
                source = re.sub(r"^layers\.\d+/", "", command["source"])
                if "model.intermediate_size" in settings:
                    if "mlp" not in source:
                        continue
                    source = f"{head}: {source}"
                if source == "loss":
                    source = f"{head}:"
                    if kind == "wgrad" and not shape["accumulate"]:
                        continue  # only the first chunk's
                shapes.setdefault(f"{source} {kind}" + (", adds" if shape["accumulate"] else ""), shape)
        return shapes

    def runner(self) -> None:
        """Copies lmc-run, with the libraries that it links: its RPATH is $ORIGIN/../lib. Large ones are packed by
        xz, and `run` unpacks them."""
        for name in ("bin", "lib"):
            (self.folder / name).mkdir()
        program = self.folder / "bin/lmc-run"
        subprocess.run(["strip", "-o", program, self.bin / "lmc-run"], check=True)
        listed = subprocess.run(["ldd", self.bin / "lmc-run"], check=True, capture_output=True, text=True).stdout
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", listed, re.M):
            if GLIBC.match(name):
                continue
            if os.path.getsize(path) < SQUEEZED:
                shutil.copy(path, self.folder / "lib" / name)
            else:
                with open(path, "rb") as library, lzma.open(self.folder / "lib" / f"{name}.xz", "wb",
                                                            preset=0) as packed:
                    shutil.copyfileobj(library, packed, 1 << 20)

    def check_runner(self, plan: Path) -> None:
        """Stops if lmc-run was built without CUDA: the folder would show it too late."""
        command = [self.bin / "lmc-run", plan, f"--out={self.scratch / 'refused'}",
                   f'--set=data.train=["{plan.parent / "train.bin"}"]']
        refused = subprocess.run(command, capture_output=True, text=True,
                                 env={**os.environ, "LMC_CUDA_DRIVER": "no driver is wanted"}).stderr
        if "built without CUDA" in refused:
            raise SystemExit(f"pack: error: {self.bin / 'lmc-run'} cannot run plans for a GPU: {refused.strip()}")

    def sources(self) -> None:
        for name in ("run", "next.py", "session.py", "power.py", "failures.py", "bets.py", "peer.py", "grouped.py"):
            shutil.copy(HERE / name, self.folder)
        shutil.copy(ROOT / "docs/gpu.md", self.folder / "README.md")
        shutil.copytree(HERE / "sections", self.folder / "sections", ignore=shutil.ignore_patterns("__pycache__"))
        self.sources_of_benches()

    def sources_of_benches(self) -> None:
        shutil.copytree(ROOT / "compiler/targets/cuda/device", self.data / "include/lmc")
        tiles = self.data / "src/compiler/targets/cuda/templates"
        tiles.mkdir(parents=True)
        shutil.copy(ROOT / "compiler/targets/cuda/templates/AttentionTiles.def", tiles)
        for source in (*HERE.glob("*.cu"), *HERE.glob("*.cuh")):
            shutil.copy(source, self.data / "src")
        shutil.copy(ROOT / "compiler/extract/text/heat.cu", self.data / "src")
        (self.data / "src/instructions.cu").write_text(self.call("instruction-cases"))

    def conformance(self, name: str, config: str, settings: dict, reference: str, trains: bool = True) -> dict:
        """Compiles a job for the GPU; if it is a reference, and `trains`, trains it on the CPU too. Returns
        its facts."""
        folder = self.data / "conformance"
        plan = self.compile(config, name, settings)
        if name.startswith("nccl"):
            self.call("lone-collectives", plan, folder / f"{name}.plan")
        else:
            shutil.copy(plan, folder / f"{name}.plan")
        facts = {"name": name, "reference": reference, "steps": CONFORMANCE_STEPS, "ranks": self.ranks_of(settings),
                 "dtype": settings.get("training.compute_dtype", "f32"),
                 "planned_bytes": planned_bytes(self.explain(plan))}
        for arch in self.archs[1:] if name in SMALL_CONFORMANCE else ():
            built = self.compile(config, f"{arch}-{name}", settings, arch=arch)
            (folder / arch).mkdir(exist_ok=True)
            shutil.copy(built, folder / arch / f"{name}.plan")
            facts.setdefault("others", {})[arch] = planned_bytes(self.explain(built))
        if reference == name and trains:
            cpu, run = self.scratch / f"{name}.cpu.plan", self.scratch / f"{name}.run"
            self.call("lmc", *self.command(config, cpu, settings), "--target=cpu", "--spec=cpu")
            self.call("lmc-run", cpu, f"--out={run}", f"--steps={CONFORMANCE_STEPS}", "--gemm=default",
                      f"--dump-gradients={folder / name}.gradients.safetensors",
                      f'--set=data.train=["{folder / "train.bin"}"]')
            shutil.copy(run / f"checkpoints/{CONFORMANCE_STEPS}/model.safetensors",
                        folder / f"{name}.model.safetensors")
            lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
            facts["losses"] = [line["loss"] for line in lines if "loss" in line]
        return facts

    def begin(self, pool) -> list:
        """Starts what compiles plans for the GPU, all but those of `conformance`. Returns the futures."""
        batch = {"model.num_hidden_layers": 2, "training.batch_size": 8, "training.micro_batch_size": 4}
        return [pool.submit(self.kernels, "kernels", batch),
                pool.submit(self.small, batch), pool.submit(self.gemms),
                pool.submit(self.streams),
                pool.submit(self.trainings), pool.submit(self.experts), pool.submit(self.steps),
                *(pool.submit(self.prices, columns) for columns in PRICED)]

    def conformances(self, pool) -> None:
        folder = self.data / "conformance"
        folder.mkdir()
        longest = 128 * 8  # tokens of the longest step
        chance = random.Random(1)
        array("H", (chance.randrange(128) for _ in range(CONFORMANCE_STEPS * longest + 1))).tofile(
            (folder / "train.bin").open("wb"))
        jobs = list(pool.map(lambda job: self.conformance(*job), CONFORMANCE))
        self.check_runner(folder / f"{CONFORMANCE[0][0]}.plan")
        self.trained(folder / "heads64-bf16-gas4.model.safetensors")
        losses = {job["name"]: job["losses"] for job in jobs if "losses" in job}
        (folder / "jobs.json").write_text(json.dumps(
            [{**job, "losses": losses[job["reference"]]} for job in jobs], indent=1))

    def trained(self, model: Path) -> None:
        """Writes the matrices of a trained model as bf16, for products on values that are not drawn."""
        content = model.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header, values = json.loads(content[8:8 + length]), bytearray()
        for name, tensor in header.items():
            if name != "__metadata__" and len(tensor["shape"]) == 2:
                first, last = (8 + length + at for at in tensor["data_offsets"])
                step = 2 if tensor["dtype"] == "BF16" else 4
                for at in range(first + step - 2, last, step):  # the upper half of an f32
                    values += content[at:at + 2]
        (self.data / "trained.bf16").write_bytes(values)

    def trains(self, name: str, model: str, config: str, settings: dict, peer_batches: list,
               section: str = "training", arch: str | None = None) -> dict:
        """Compiles a job of the section `training`, or of another one that times steps, and returns its facts."""
        settings = {"checkpoint.interval": 0, "checkpoint.export_interval": 0,
                    "monitoring.validation_interval": 0, **settings}
        mbs, gbs = settings["training.micro_batch_size"], settings["training.batch_size"]
        kind = (f"-gas{gbs // mbs}" if section in ("training", "steps") and gbs > mbs else "") + (
            f"-{arch}" if arch else "")
        plan = self.compile(config, f"{section}-{model}-{mbs}{kind}", settings, arch=arch)
        shutil.copy(plan, self.data / section)
        report = self.explain(plan)
        keys = tomllib.loads((ROOT / f"models/configs/{config}.toml").read_text())
        shape = {**keys["model"], "sequence_length": keys["training"]["sequence_length"],
                 **{key.removeprefix("model."): value for key, value in settings.items() if key.startswith("model.")}}
        return {"name": name, "model": model, "plan": plan.name, "shape": shape, "peer_batches": peer_batches,
                "arch": arch, "vocabulary": shape["vocab_size"], "gas": report["batch"]["gas"],
                "tokens_per_step": report["batch"]["tokens_per_step"],
                "planned_bytes": planned_bytes(report),
                "predicted": report["cost"]["tokens_per_second_per_device"],
                "flops_per_token": report["model"]["flops_per_token_causal"],
                "peak_flops": report["cost"]["peak_flops"]}

    def predicted(self, mbs: int) -> float:
        """Returns the predicted tokens per second of llama1b at an MBS, 0 if it does not fit."""
        plan = self.scratch / f"best-{mbs}.plan"
        command = self.command("llama1b", plan, llama1b(mbs), "--plan-only")
        if subprocess.run([self.bin / "lmc", *map(str, command)], capture_output=True).returncode != 0:
            return 0
        return self.explain(plan)["cost"]["tokens_per_second_per_device"]

    def trainings(self) -> None:
        folder = self.data / "training"
        folder.mkdir()
        best = max((8, 16, 32, 64), key=self.predicted)
        jobs = [self.trains(f"llama1b lmc MBS {mbs}" + (" (predicted best)" if mbs == best else ""), "llama1b",
                            "llama1b", llama1b(mbs), [8, 16, 32]) for mbs in sorted({best, 16, 64})]
        # As real runs: the optimizer's step is behind eight micro-steps.
        jobs.append({**self.trains("llama1b lmc MBS 16 GAS 8", "llama1b", "llama1b",
                                   {**llama1b(16), "training.batch_size": 128}, []), "tuned_batches": [16]})
        jobs.append(self.trains("mistral lmc MBS 1", "mistral", "mistral-7b", mistral(self.layers_that_fit()), [1, 2]))
        (folder / "jobs.json").write_text(json.dumps(jobs, indent=1))

    def steps(self) -> None:
        """Compiles the jobs of the section `steps`. A plan for sm_90 has no products of warpgroups."""
        (self.data / "steps").mkdir()
        gas8 = {**llama1b(16), "training.batch_size": 128}
        wanted = [("llama1b MBS 16 GAS 1", "llama1b", "llama1b", llama1b(16), None),
                  ("llama1b MBS 16 GAS 8", "llama1b", "llama1b", gas8, None),
                  ("llama1b MBS 32 GAS 1", "llama1b", "llama1b", llama1b(32), None),
                  ("llama1b MBS 64 GAS 1, twice", "llama1b", "llama1b", llama1b(64), None),
                  ("mistral MBS 1 GAS 4", "mistral", "mistral-7b", mistral(self.layers_that_fit()), None)]
        for mode in smoke_jobs.eight_bits(self.arch):
            wanted.append((f"fp8 {mode}, llama1b MBS 16 GAS 1", f"llama1b-fp8-{mode}", "llama1b",
                           {**llama1b(16), "training.fp8": mode}, None))
        if smoke_jobs.eight_bits(self.arch):
            fp8 = {"training.fp8": "tensor"}
            wanted.append(("fp8 kept, llama1b MBS 64 GAS 1", "llama1b-fp8-kept", "llama1b",
                           {**llama1b(64), **fp8, "memory.store": "fp8"}, None))
            wanted.append(("fp8 tensor, mistral MBS 1 GAS 4", "mistral-fp8", "mistral-7b",
                           {**mistral(self.layers_that_fit()), **fp8}, None))
        if self.arch == "sm_90a":
            wanted.insert(1, ("llama1b MBS 16 GAS 1, attention by mma.sync", "llama1b", "llama1b", llama1b(16), "sm_90"))
        jobs = [self.trains(*job[:4], [], "steps", job[4]) for job in wanted]
        (self.data / "steps/jobs.json").write_text(json.dumps(jobs, indent=1))

    def experts(self) -> None:
        """Compiles the jobs of the section `experts`, in bf16 and in 8 bits, and adds their products per expert to their
        facts."""
        folder = self.data / "experts"
        folder.mkdir()
        wanted = [("olmoe4", OLMOE4)]
        if "block" in smoke_jobs.eight_bits(self.arch):
            wanted.append(("olmoe4-fp8", {**OLMOE4, "training.fp8": "block"}))
        jobs = []
        for model, settings in wanted:
            job = self.trains(f"{model} lmc bench", model, "olmoe-1b-7b", settings, [], "experts")
            report = self.explain(folder / job["plan"])
            job["grouped"] = experts.grouped(report, job["shape"])
            job["products"] = experts.products(report, job["grouped"])
            jobs.append(job)
        (folder / "jobs.json").write_text(json.dumps(jobs, indent=1))

    def archive(self) -> None:
        """Writes data.tar.xz. What is alike lies side by side: the plans of one job for each architecture."""
        files = sorted((path for path in self.data.rglob("*") if path.is_file()),
                       key=lambda path: (path.suffix, path.name, path))
        with tarfile.open(self.folder / "data.tar.xz", "w:xz", preset=1) as archive:
            for path in files:
                archive.add(path, path.relative_to(self.data))

    def layers_that_fit(self) -> int:
        """Returns the largest number of Mistral-7B's layers that the GPU can train."""
        with self.layers_lock:  # the second section that asks waits for the first one's answer
            if self.layers is None:
                self.layers = self.search_layers()
            return self.layers

    def search_layers(self) -> int:
        """More layers need more memory, so this halves the range of numbers."""
        fits, too_many = 0, 33
        while too_many - fits > 1:
            layers = (fits + too_many) // 2
            command = self.command("mistral-7b", self.scratch / "layers.plan", mistral(layers), "--plan-only")
            code = subprocess.run([self.bin / "lmc", *map(str, command)], capture_output=True).returncode
            if code == 3:  # lmc's exit code for a job that does not fit
                too_many = layers
            else:
                fits = layers
        if fits == 0:
            raise SystemExit("pack: error: no layer of Mistral-7B fits")
        return fits


def planned_bytes(report: dict) -> int:
    return sum(arena["bytes"] for arena in report["memory"]["arenas"])


def llama1b(mbs: int) -> dict:
    """Returns the settings of a step of one micro-batch."""
    return {"training.micro_batch_size": mbs, "training.batch_size": mbs, "memory.recompute": "auto"}


def mistral(layers: int) -> dict:
    """Returns the settings of Mistral-7B's layers. The window is as long as the sequence, because PyTorch's
    fast attention has none."""
    return {"model.num_hidden_layers": layers, "model.sliding_window": 8192, "training.micro_batch_size": 1,
            "training.batch_size": 4}


def commit() -> str:
    """Returns the commit that is packed, with a + if files differ from it."""
    def git(*args: str) -> str:
        return subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True).stdout.strip()
    return (git("rev-parse", "HEAD") or "unknown") + ("+" if git("status", "--porcelain", "-uno") else "")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev gpu pack", description=__doc__.split("\n")[0])
    build = Path(os.environ.get("LMC_BUILD_DIR") or ROOT / "build").resolve()
    parser.add_argument("folder", nargs="?", type=Path, default=build / "gpu",
                        help="folder to fill; what it holds is replaced (default: build/gpu)")
    parser.add_argument("--arch", default="sm_90a", help="the GPU's architecture (default: sm_90a: H100, H200)")
    parser.add_argument("--spec", default="h100-sxm", help="device spec of the predictions (default: h100-sxm)")
    parser.add_argument("--also", default=",".join(OTHERS), metavar="ARCH,...", help="architectures that smoke and a "
                        f"small conformance can run on, too (default: {','.join(OTHERS)})")
    parser.add_argument("--no-programs", action="store_true", help="do not compile programs with nvcc: the GPU's "
                        "machine does it, if it has nvcc")
    args = parser.parse_args()
    others = [arch for arch in args.also.split(",") if arch and arch != args.arch]
    folder = args.folder.resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / "manifest.json").exists():
        raise SystemExit(f"pack: error: {folder} is not empty and was not packed by this program; "
                         "remove it or name another folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # First, so that a pack that is interrupted can be repeated.
    (folder / "manifest.json").write_text(json.dumps(
        {"commit": commit(), "arch": args.arch, "others": others, "spec": args.spec}))
    with tempfile.TemporaryDirectory(prefix="lmc-gpu-pack") as scratch:
        pack = Pack(folder, build, args.arch, others, args.spec, Path(scratch))
        pack.sources()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            smoke = smoke_jobs.smoke(pack, pool)
            work = [pool.submit(pack.runner), *pack.begin(pool)]
            pack.conformances(pool)
            for each in work:
                each.result()
            smoke_jobs.finish(pack, smoke)
            bets = expected.of_pack(pack, pool)
        (folder / "expected.json").write_text(expected.text_of(bets))
        if not args.no_programs:
            print(precompile.precompile(pack.data, args.arch))
        pack.archive()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    if size > LIMIT_MB:
        raise SystemExit(f"pack: error: {folder} has {size:.1f} MB, and {LIMIT_MB} may be brought along")
    print(f"packed {size:.1f} of at most {LIMIT_MB} MB into {folder}; there: {folder.name}/run [SECTION...]")


if __name__ == "__main__":
    main()
