"""False alarms and misses of the guard of spikes on sound runs of the CPU target.

    ~/.cache/lmc/venv/bin/python bench/spikes/run.py FOLDER --data FILE... [--steps=20000] [--tokens=512,2048,...]

Build `lmc-bench-guard` first: ninja -C build lmc-bench-guard.

Trains a small Llama on each token file at several numbers of tokens a step. Then shows the steps to
the guard again (replay.cpp), as they were and with planted spikes.
"""
import argparse
import json
import pathlib
import subprocess

JOB = """[model]
vocab_size = 257
hidden_size = {hidden}
intermediate_size = {mlp}
num_hidden_layers = {layers}
num_attention_heads = 4
[training]
sequence_length = 64
batch_size = {batch}
micro_batch_size = {mbs}
train_iters = {steps}
seed = 1
[lr_schedule]
lr = 3e-3
warmup_iters = 200
[data]
train = "{data}"
[monitoring]
log_interval = 1000
"""
ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--data", nargs="+", required=True, help="token files with ids below 257")
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--tokens", default="512,2048,8192,32768,65536")
    options = parser.parse_args()
    bin_ = ROOT / "build/bin"
    print("| data | tokens a step | steps | false alarms | planted: loss + 2 | norm x 8 | loss + 1, norm x 4.5 |")
    print("|---|---|---|---|---|---|---|")
    for data in options.data:
        for tokens in map(int, options.tokens.split(",")):
            batch = tokens // 64
            large = tokens >= 8192
            steps = options.steps if tokens <= 8192 else options.steps * 8192 // tokens
            folder = options.folder / f"{pathlib.Path(data).stem}-{tokens}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "job.toml").write_text(JOB.format(
                batch=batch, mbs=min(batch, 32), steps=steps, data=pathlib.Path(data).resolve(),
                hidden=32 if large else 64, mlp=96 if large else 176, layers=1 if large else 2))
            subprocess.run([bin_ / "lmc", "compile", folder / "job.toml", "-o", folder / "job.plan"],
                           check=True, capture_output=True)
            if not (folder / "run/metrics.jsonl").exists():
                subprocess.run([bin_ / "lmc-run", folder / "job.plan", f"--out={folder}/run", "--threads=1"],
                               check=True, capture_output=True)
            counts = json.loads(subprocess.run([bin_ / "lmc-bench-guard", folder / "run/metrics.jsonl"],
                                               check=True, capture_output=True, text=True).stdout)
            print(f"| {pathlib.Path(data).stem} | {tokens:,} | {counts['steps']:,} | {counts['false_alarms']} | " + " | ".join(
                      f"{p['found']} of {p['planted']}, {p['false_alarms']} false" for p in counts["planted"]) + " |", flush=True)


if __name__ == "__main__":
    main()
