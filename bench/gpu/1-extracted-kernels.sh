#!/usr/bin/env bash
# Every kernel of llama1b for this machine's GPU as a program of its own: checked and measured.
set -euo pipefail
source bench/gpu/extracted.sh
out=${LMC_BUILD_DIR:-build}/extracted
mkdir -p "$out"
"$lmc" compile models/configs/llama1b.toml "--target=cuda:$arch" --spec=h100-sxm --quiet -o "$out/llama1b.plan"
names=$("$lmc" explain "$out/llama1b.plan" --json --spec=h100-sxm |
  python3 -c 'import json, sys; print(*[k["name"] for k in json.load(sys.stdin)["kernels"]])')
failed=()
for name in $names; do
  echo "-- $name"
  run_extracted "$out/llama1b.plan" "$name" "$out" || failed+=("$name")
done
[ ${#failed[@]} -eq 0 ] || { echo "gpu: error: wrong: ${failed[*]}" >&2; exit 1; }
