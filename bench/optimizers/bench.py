#!/usr/bin/env python3
"""Trains the demo with several optimizers, each at several rates, on the same tokens: validation losses.

    ./dev bench optimizers [--out=DIR] [--steps=500] [--rates=2e-3,4e-3,1e-3,8e-3]
                           [--optimizers=adamw,muon] [--threads=1]

The model, the data, their order, the schedule's shape and the batch are those of
models/configs/demo.toml. A rate is the peak, and the last rate is a tenth
of it. Muon takes it for its matrices (scaled by match_rms_adamw) and for AdamW's parameters. Runs that
DIR has already are not repeated. Prints a table, and writes DIR/losses.json.
"""
import argparse
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LMC_BUILD", ROOT / "build")).resolve()


def validation_losses(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line["validation_loss"] for line in lines if line.get("validation_loss") is not None}


def train(options, optimizer, rate):
    """Validation losses by step."""
    name = f"{optimizer}-{rate}"
    plan, run = options.out / f"{name}.plan", options.out / name
    if not (run / "metrics.jsonl").exists() or options.steps not in validation_losses(run):
        settings = {"optimizer.type": optimizer, "lr_schedule.lr": rate, "lr_schedule.min_lr": float(rate) / 10,
                    "training.train_iters": options.steps, "monitoring.validation_interval": 100,
                    "monitoring.validation_iters": 8, "checkpoint.interval": 0,
                    "data.train": f'"{BUILD}/demo/train.bin"',
                    "data.validation": f'"{BUILD}/demo/validation.bin"'}
        subprocess.run([BUILD / "bin/lmc", "compile", "--quiet", ROOT / "models/configs/demo.toml", "-o", plan,
                        *(f"--set={key}={value}" for key, value in settings.items())], check=True)
        subprocess.run([BUILD / "bin/lmc-run", plan, f"--out={run}", f"--threads={options.threads}"],
                       check=True, stdout=subprocess.DEVNULL)
    return validation_losses(run)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=BUILD / "optimizers")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rates", default="2e-3,4e-3,1e-3,8e-3")
    parser.add_argument("--optimizers", default="adamw,muon")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    found = []
    for rate in options.rates.split(","):
        for optimizer in options.optimizers.split(","):
            losses = train(options, optimizer, rate)
            found.append({"optimizer": optimizer, "rate": float(rate), "validation": losses})
            (options.out / "losses.json").write_text(json.dumps(found, indent=1) + "\n")
            print(f"{optimizer} {rate}: " + ", ".join(f"{step}: {loss:.4f}" for step, loss in losses.items()), flush=True)
    steps = sorted(found[0]["validation"])
    print("\n| optimizer | peak rate | " + " | ".join(map(str, steps)) + " |\n|" + "---|" * (len(steps) + 2))
    for each in sorted(found, key=lambda each: (each["optimizer"], each["rate"])):
        print(f"| {each['optimizer']} | {each['rate']:g} | "
              + " | ".join(f"{each['validation'][step]:.4f}" for step in steps) + " |")


if __name__ == "__main__":
    main()
