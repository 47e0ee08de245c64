#!/usr/bin/env bash
# The predicted time of attention's kernels beside the measured one, in milliseconds: for heads that
# fill a tile (64, 96, 128 columns), that are in a larger tile (48, 72, 80, 112) and that have none
# (60, 256). SPEC names the device spec of this machine's GPU. The cost models of
# compiler/targets/cuda/AttentionTiles.cpp are right where predicted / measured is within 15% of 1;
# if it differs from 1 by one factor for all, the spec's clock is wrong.
set -euo pipefail
source bench/gpu/extracted.sh
spec=${SPEC:-h100-sxm}
out=${LMC_BUILD_DIR:-build}/attention-price
printf '%5s  %-24s %10s %10s %7s\n' heads kernel predicted measured ratio
for columns in 48 64 72 80 96 112 128 60 256; do
  folder=$out/$columns
  mkdir -p "$folder"
  "$lmc" compile models/configs/llama1b.toml "--target=cuda:$arch" "--spec=$spec" --quiet \
    "--set=model.head_dim=$columns" --set=model.num_hidden_layers=1 \
    --set=training.micro_batch_size=8 --set=memory.recompute=none -o "$folder/job.plan"
  "$lmc" explain "$folder/job.plan" "--spec=$spec" --json > "$folder/job.json"
  for name in attention attention_grad_keys; do # the second runs both kernels of the gradient
    run_extracted "$folder/job.plan" "$name" "$folder" > "$folder/$name.txt"
  done
  python3 - "$columns" "$folder" <<'PY'
import json, re, sys

columns, folder = sys.argv[1:]
with open(f"{folder}/job.json", encoding="utf-8") as file:
    predicted = {kernel["name"]: kernel["seconds"] * 1e3 for kernel in json.load(file)["kernels"]}
measured = {}
with open(f"{folder}/attention.txt", encoding="utf-8") as file:
    measured["attention"] = float(re.search(r"^bench: ([0-9.]+) ms", file.read(), re.M)[1])
with open(f"{folder}/attention_grad_keys.txt", encoding="utf-8") as file:
    for name, ms in re.findall(r"^  (attention_grad_\w+) +([0-9.]+) ms", file.read(), re.M):
        measured[name] = float(ms)
for name, ms in measured.items():
    print(f"{columns:>5}  {name:<24} {predicted[name]:10.4f} {ms:10.4f} {predicted[name] / ms:7.2f}")
PY
done
