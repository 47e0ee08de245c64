#!/usr/bin/env bash
# Runs every check of PENDING.md: the scripts bench/gpu/[0-9]*.sh in order.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
shopt -s nullglob
scripts=(bench/gpu/[0-9]*.sh)
if [ ${#scripts[@]} -eq 0 ]; then
  echo "gpu: nothing is pending (bench/gpu/PENDING.md)"
  exit 0
fi
command -v nvidia-smi >/dev/null || { echo "gpu: error: no NVIDIA GPU on this machine" >&2; exit 1; }
failed=()
for script in "${scripts[@]}"; do
  echo "== $script"
  bash "$script" || failed+=("$script")
done
[ ${#failed[@]} -eq 0 ] || { echo "gpu: error: failing: ${failed[*]}" >&2; exit 1; }
