"""What a plan for a CUDA device promises: check-cuda.py CHECK CONFIGS FOLDER, with `lmc` on the PATH.

FOLDER keeps what is made on the way. Kernels that were compiled are kept in the user's cache, where other
tests and later runs find them; so are programs that nvcc compiled (test/data/nvcc).
"""

import json
import os
import shutil
import subprocess
import sys

check, configs, folder = sys.argv[1:]
NVCC = os.path.join(os.path.dirname(__file__), "../../data/nvcc/nvcc")
ONE_GPU = ["--nodes=1", "--devices-per-node=1"]
os.makedirs(folder, exist_ok=True)


def compile(config, arch, *options):
    """The plan's path."""
    plan = f"{folder}/{config}.{arch}.plan"
    command = ["lmc", "compile", f"{configs}/{config}.toml", f"--target=cuda:{arch}", "-o", plan,
               "--quiet", *ONE_GPU, *options]
    subprocess.run(command, check=True)
    return plan


def kernels():
    """Every kernel of every model compiles for every architecture, and spills nothing."""
    bf16 = "--set=training.compute_dtype=bf16"
    mask = "--set=training.document_mask=true"
    jobs = [("demo",), ("llama1b",), ("mistral-7b",), ("llama3-8b",), ("test-tiny",), ("test-tiny", bf16),
            ("test-tiny", "--set=memory.recompute=block"), ("test-mistral",), ("test-mistral", bf16, mask),
            ("llama1b", mask), ("mistral-7b", mask), ("demo", "--set=optimizer.type=adamw8bit"),
            ("demo", "--set=optimizer.type=muon")]
    faults = []
    for config, *options in jobs:
        for arch in ("sm_80", "sm_90a", "sm_100"):
            # One description of a GPU, so that all architectures get the same plan.
            plan = compile(config, arch, "--spec=h100-sxm", "--memory-budget=150GiB", *options)
            report = json.loads(subprocess.check_output(["lmc", "explain", plan, "--json", "--spec=h100-sxm"]))
            spilled = {k["name"]: k["spill_bytes"] for k in report["kernels"] if k["spill_bytes"]}
            if spilled:
                faults.append((config, arch, spilled))
            for kernel in report["kernels"]:
                assert kernel["arch"] == arch and kernel["registers"] > 0 and kernel["code_bytes"] > 0
                assert kernel["blocks_per_sm"] > 0, kernel
            launched = {k["hero"] for k in report["kernels"] if k["launches"]}
            assert {"attention_forward", "attention_grad_queries", "attention_grad_keys", "row_reduction",
                    "elementwise", "gather"} <= launched, launched
            registers = max(k["registers"] for k in report["kernels"])
            print(f"{config} {arch}: {len(report['kernels'])} kernels, at most {registers} registers, "
                  f"{sum(k['spill_bytes'] for k in report['kernels'])} bytes spilled", flush=True)
    assert not faults, faults


def cache():
    """A second compile finds all kernels in the cache: it adds none, uses all, and makes the same plan."""
    known = lambda: {f: os.stat(f"{folder}/twice/{f}").st_mtime_ns for f in os.listdir(f"{folder}/twice")}
    shutil.rmtree(f"{folder}/twice", ignore_errors=True)
    first = open(compile("llama1b", "sm_90a", f"--kernel-cache={folder}/twice"), "rb").read()
    kernels = known()
    second = open(compile("llama1b", "sm_90a", f"--kernel-cache={folder}/twice"), "rb").read()
    assert known() == kernels  # a kernel that was not found would have been written again
    assert first == second
    print(f"llama1b: {len(kernels)} kernels known")


def extracted():
    """A kernel of each hero and template, as a program of its own, is what nvcc accepts."""
    bf16, heroes = "--set=training.compute_dtype=bf16", set()
    for config, *options in (("test-mistral", bf16, "--set=training.document_mask=true"),
                             ("test-mixtral", bf16), ("demo", "--set=optimizer.type=adamw8bit")):
        plan = compile(config, "sm_90a", "--spec=h100-sxm", *options)
        report = json.loads(subprocess.check_output(["lmc", "explain", plan, "--json"]))
        chosen = {}
        for kernel in report["kernels"]:
            hero, name = kernel["hero"], kernel["name"]
            if (hero == "initializer" and config != "test-mixtral") or "lm.adamw8bit" in kernel["source_ops"]:
                chosen[name] = hero
            elif config != "demo" and kernel["launches"] and hero not in heroes:
                chosen[name] = hero
                heroes.add(hero)
        for name, hero in sorted(chosen.items()):
            source = f"{folder}/{config}.{name}.cu"
            subprocess.run(["lmc", "explain", plan, f"--extract-kernel={name}", "-o", source], check=True)
            # As its second line says: "//   nvcc OPTIONS FILE -o ...".
            flags = open(source).read().split("\n")[1].split()[2:-5]
            subprocess.run([NVCC, *flags, source, "-o", source.removesuffix(".cu")], check=True)
            print(f"{config} {hero}: {name}", flush=True)


{"kernels": kernels, "cache": cache, "extracted": extracted}[check]()
