"""The small models of the section `smoke`: compiled for each architecture, with what the SIMT executor computes of the
kernels of each plan, command by command. Used by pack.py."""

import json
import os
import random
import re
import shutil
import subprocess
from array import array

import failures
from session import on_one_gpu

WORDS, TOKENS = 128, 4096
# A step of three micro-batches. With this eps a step of AdamW is nearly proportional to the gradient; without it, one
# that is rounding and little else (that of k's biases) decides the sign of whole steps.
SMALL = {"training.micro_batch_size": 1, "training.batch_size": 3, "optimizer.eps": 0.01}
LLAMA = {**SMALL, "model.intermediate_size": 64}
BF16 = {"training.compute_dtype": "bf16"}
HEADS_OF_64 = {**LLAMA, **BF16, "model.hidden_size": 128, "model.num_attention_heads": 2,
               "model.num_key_value_heads": 1, "model.num_hidden_layers": 1, "training.sequence_length": 128}
# Name, config, settings, and the largest relative difference of a command's results. Together the plans have a kernel
# of each template that the code generators emit: f32 has attention without tensor cores; heads64 has it with tensor
# cores, copies of the weights in bf16, moments in 8 bits, and rows that several blocks add to the embedding's gradient;
# experts has a router and products for each expert, on two ranks that divide the experts and share the GPU, experts16
# these on one rank and on tensor cores, where rounding may give a token another expert; fp8-experts gathers codes twice, and
# transposes them; gpt2 has LayerNorm, GELU and a gradient that is not added; muon has products in batches, and its
# iteration enlarges differences.
SMOKE = (
    ("f32", "test-tiny", LLAMA, 1e-4),
    # Gradients in bf16 differ by 1%, which moves small second moments to the next of 256 codes.
    ("heads64", "test-tiny", {**HEADS_OF_64, "optimizer.type": "adamw8bit"}, 1e-1),
    ("biases", "test-tiny", {**LLAMA, **BF16, "model.attention_bias": "true", "model.mlp_bias": "true"}, 5e-2),
    ("gpt2", "test-gpt2", SMALL, 1e-4),
    ("muon", "test-tiny", {**LLAMA, "model.num_hidden_layers": 1, "optimizer.type": "muon"}, 5e-2),
    ("mistral", "test-mistral", {**LLAMA, "model.num_hidden_layers": 1, "training.document_mask": "true",
                                 "data.end_of_document": 0}, 1e-4),
    ("experts", "test-mixtral", {**SMALL, "model.num_hidden_layers": 1, "training.batch_size": 6,
                                 "distributed.strategy": "zero3", "distributed.expert_parallel": 2,
                                 "distributed.expert_capacity": 1.25}, 1e-4),
    ("experts16", "test-mixtral", {**SMALL, **BF16, "model.num_hidden_layers": 1}, 0.3),
)
# Jobs with products of 8-bit floats. A code that differs by one differs by up to an eighth. Plans keep codes of inputs for
# the backward pass, or make them again.
BLOCKS = {**LLAMA, "model.hidden_size": 128, "model.intermediate_size": 128, "model.num_attention_heads": 2,
          "model.num_key_value_heads": 2, "model.num_hidden_layers": 1, "training.sequence_length": 128}
FP8 = (
    ("fp8-tensor", "test-tiny", {**LLAMA, "training.fp8": "tensor"}, 0.2),
    ("fp8-kept", "test-tiny", {**LLAMA, "training.fp8": "tensor", "memory.store": "fp8"}, 0.2),
    ("fp8-block", "test-tiny", {**BLOCKS, "training.fp8": "block"}, 0.2),
    ("fp8-block-kept", "test-tiny", {**BLOCKS, "training.fp8": "block", "memory.recompute": "auto"}, 0.2),
    ("fp8-experts", "test-mixtral", {**SMALL, **BF16, "training.fp8": "block", "model.hidden_size": 128,
                                     "model.intermediate_size": 128, "model.num_attention_heads": 2,
                                     "model.num_key_value_heads": 2, "model.num_hidden_layers": 1,
                                     "model.max_position_embeddings": 128, "training.sequence_length": 128,
                                     "training.batch_size": 6, "distributed.strategy": "zero3",
                                     "distributed.reshard_after_forward": "yes",
                                     "distributed.expert_parallel": 2, "distributed.expert_capacity": 1.25}, 0.3),
)
TRAINED = ("f32", "heads64")  # whose step is also compared by its loss
NCCL = "nccl"  # the plan of f32, with sums over its one rank


def eight_bits(arch: str) -> tuple:
    """Returns the values of training.fp8 that an architecture computes."""
    return () if arch == "sm_80" else ("tensor", "block") if arch.startswith("sm_90") else ("tensor",)


def jobs_of(arch: str) -> tuple:
    return SMOKE + tuple(job for job in FP8 if job[2]["training.fp8"] in eight_bits(arch))


def stand_in(build, arch: str) -> dict:
    """Returns the variables with which lmc-run runs on the stand-in for the driver of a GPU of `arch`."""
    names = {"LMC_CUDA_DRIVER": "cuda", "LMC_CUBLASLT": "cublaslt", "LMC_NCCL": "nccl"}
    return {**os.environ, **{variable: str(build / f"lib/lib{name}-host.so") for variable, name in names.items()},
            "LMC_HOST_ARCH": re.match(r"sm_(\d+)", arch)[1], "LMC_GEMM": "default"}


def compile_and_record(pack, arch: str, name: str, config: str, settings: dict, tolerance: float) -> dict:
    """Writes ARCH/NAME.plan and ARCH/NAME.commands (of rank 1: ARCH/NAME.commands.rank1), and returns the facts of the
    job."""
    folder = pack.data / "smoke" / arch
    plan = folder / f"{name}.plan"
    built = pack.compile(config, f"smoke-{arch}-{name}", {
        "checkpoint.interval": 0, "checkpoint.export_interval": 0, "monitoring.validation_interval": 0, **settings},
        arch=arch)
    shutil.copy(built, plan)
    if name == "f32":
        pack.call("lone-collectives", built, folder / f"{NCCL}.plan")
    data = f'--set=data.train=["{pack.data / "smoke/train.bin"}"]'
    ranks = pack.ranks_of(settings)

    def run(*options: str) -> None:
        command = [pack.bin / "lmc-run", plan, "--gemm=default", data, *on_one_gpu(ranks), *options]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                              env=stand_in(pack.bin.parent, arch))
        if done.returncode != 0:
            raise SystemExit(f"pack: error: {' '.join(map(str, command))}: {done.stderr.strip()}")

    run(f"--record-commands={folder / f'{name}.commands'}")
    kernels = pack.explain(plan)["kernels"]
    facts = {"name": name, "dtype": settings.get("training.compute_dtype", "f32"), "loss": None, "ranks": ranks,
             "tolerance": tolerance, "heroes": sorted({kernel["hero"] for kernel in kernels}),
             "kernels": [kernel["name"] for kernel in kernels],
             "plain": [kernel["name"] for kernel in kernels if kernel["hero"].startswith("attention") and
                       "attention_plain.cuh" in failures.source_of(plan, kernel["name"])]}
    if name in TRAINED and arch == pack.arch:
        out = pack.scratch / f"smoke-{name}.run"
        run(f"--out={out}", "--steps=1", "--no-cuda-graphs")
        lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        facts["loss"] = next(line["loss"] for line in lines if "loss" in line)
    return facts


def smoke(pack, pool) -> list:
    """Starts the work, and returns a future for each architecture and job; finish() ends it."""
    if not (pack.bin.parent / "lib/libcuda-host.so").exists():
        raise SystemExit(f"pack: error: {pack.bin.parent / 'lib/libcuda-host.so'}, which computes what the GPU is "
                         "compared with, is not built: it needs the headers of a CUDA toolkit")
    chance = random.Random(1)
    for arch in pack.archs:
        (pack.data / "smoke" / arch).mkdir(parents=True)
    with open(pack.data / "smoke/train.bin", "wb") as file:
        array("H", (chance.randrange(WORDS) for _ in range(TOKENS))).tofile(file)
    # A plan that takes long comes first.
    return [pool.submit(compile_and_record, pack, arch, *job) for arch in pack.archs
            for job in sorted(jobs_of(arch), key=lambda job: job[0] not in ("heads64", "muon"))]


def finish(pack, futures: list) -> None:
    """Writes smoke/jobs.json: the facts of the jobs for the architecture of --arch."""
    facts = {}
    for future in futures:
        made = future.result()
        facts.setdefault(made["name"], made)
        facts[made["name"]]["loss"] = facts[made["name"]]["loss"] or made["loss"]
    facts[NCCL] = {**facts["f32"], "name": NCCL}
    (pack.data / "smoke/jobs.json").write_text(json.dumps(list(facts.values()), indent=1))
