#!/usr/bin/env bash
# Every kernel of llama1b for this machine's GPU as a program of its own: checked and measured.
set -euo pipefail
lmc=${LMC_BUILD_DIR:-build}/bin/lmc
out=${LMC_BUILD_DIR:-build}/extracted
mkdir -p "$out"
arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
"$lmc" compile models/configs/llama1b.toml "--target=cuda:$arch" --spec=h100-sxm --quiet -o "$out/llama1b.plan"
# First values have nothing to be compared with here.
names=$("$lmc" explain "$out/llama1b.plan" --json --spec=h100-sxm |
  python3 -c 'import json, sys; print(*[k["name"] for k in json.load(sys.stdin)["kernels"] if k["hero"] != "initializer"])')
failed=()
for name in $names; do
  echo "-- $name"
  "$lmc" explain "$out/llama1b.plan" "--extract-kernel=$name" -o "$out/$name.cu"
  nvcc -std=c++17 -O2 -fmad=false "-arch=$arch" "$out/$name.cu" -o "$out/$name"
  "$out/$name" || failed+=("$name")
done
[ ${#failed[@]} -eq 0 ] || { echo "gpu: error: wrong: ${failed[*]}" >&2; exit 1; }
