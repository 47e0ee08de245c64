#!/usr/bin/env bash
# Every kernel of llama1b for this machine's GPU as a program of its own: checked and measured.
set -euo pipefail
lmc=${LMC_BUILD_DIR:-build}/bin/lmc
out=${LMC_BUILD_DIR:-build}/extracted
mkdir -p "$out"
arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
"$lmc" compile models/configs/llama1b.toml "--target=cuda:$arch" --spec=h100-sxm --quiet -o "$out/llama1b.plan"
names=$("$lmc" explain "$out/llama1b.plan" --json --spec=h100-sxm |
  python3 -c 'import json, sys; print(*[k["name"] for k in json.load(sys.stdin)["kernels"]])')
failed=()
for name in $names; do
  echo "-- $name"
  "$lmc" explain "$out/llama1b.plan" "--extract-kernel=$name" -o "$out/$name.cu"
  # The second line of the file says how to compile it.
  read -r -a flags < <(sed -n '2s|^// *nvcc \(.*\) -arch=.*|\1|p' "$out/$name.cu")
  nvcc "${flags[@]}" "-arch=$arch" "$out/$name.cu" -o "$out/$name"
  "$out/$name" || failed+=("$name")
done
[ ${#failed[@]} -eq 0 ] || { echo "gpu: error: wrong: ${failed[*]}" >&2; exit 1; }
