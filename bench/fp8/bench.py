#!/usr/bin/env python3
"""Trains a model of 20 million parameters in bf16 and with training.fp8, on the same tokens: validation losses.

    ./dev bench fp8 [--out=DIR] [--modes=none,tensor,block,tensor+store] [--seeds=1,2,3] [--threads=1]

A mode is a value of training.fp8, with "+store" for memory.store = "fp8".

The text and its validation part are those of the demo. Runs go on where an earlier call has stopped, and what is ready is
not repeated: a run takes half an hour of a core, or more. Prints a table, and writes DIR/losses.json.
"""
import argparse
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LMC_BUILD", ROOT / "build")).resolve()
STEPS = 2000
SETTINGS = {
    "model.hidden_size": 512, "model.intermediate_size": 1152, "model.num_hidden_layers": 8,
    "model.num_attention_heads": 8, "model.num_key_value_heads": 4, "training.batch_size": 4,
    "training.micro_batch_size": 4, "training.train_iters": STEPS, "training.compute_dtype": "bf16",
    "lr_schedule.lr": 1e-3, "lr_schedule.min_lr": 1e-4, "lr_schedule.warmup_iters": 100,
    "checkpoint.interval": 250, "monitoring.log_interval": 10, "monitoring.validation_interval": 500,
    "monitoring.validation_iters": 100,
    "data.train": f'"{BUILD}/demo/train.bin"', "data.validation": f'"{BUILD}/demo/validation.bin"',
}


def validation_losses(run):
    file = run / "metrics.jsonl"
    lines = map(json.loads, file.read_text().splitlines() if file.exists() else [])
    return {line["step"]: line["validation_loss"] for line in lines if line.get("validation_loss") is not None}


def train(options, mode, seed):
    """Validation losses by step."""
    plan, run = options.out / f"{mode}-{seed}.plan", options.out / f"run-{mode}-{seed}"
    if STEPS not in validation_losses(run):
        fp8, _, store = mode.partition("+")
        settings = {**SETTINGS, "training.fp8": fp8, "training.seed": seed, "memory.store": "fp8" if store else "compute_dtype"}
        if not plan.exists():
            subprocess.run([BUILD / "bin/lmc", "compile", "--quiet", ROOT / "models/configs/demo.toml", "-o", plan,
                            *(f"--set={key}={value}" for key, value in settings.items())], check=True)
        subprocess.run([BUILD / "bin/lmc-run", plan, f"--out={run}", f"--threads={options.threads}"], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    return validation_losses(run)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=BUILD / "fp8")
    parser.add_argument("--modes", default="none,tensor,block,tensor+store")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    found = []
    for seed in options.seeds.split(","):
        for mode in options.modes.split(","):
            losses = train(options, mode, seed)
            found.append({"fp8": mode, "seed": int(seed), "validation": losses})
            (options.out / "losses.json").write_text(json.dumps(found, indent=1) + "\n")
            print(f"{mode}, seed {seed}: " + ", ".join(f"{step}: {loss:.4f}" for step, loss in losses.items()), flush=True)


if __name__ == "__main__":
    main()
