#!/usr/bin/env bash
# Every variant of the flash attention kernels on the shapes of llama1b, Mistral-7B and others:
# checked against the plain kernels and measured. The cost model of
# compiler/targets/cuda/AttentionTiles.cpp is right where the fastest variant of each kernel is the one
# that `lmc compile` chooses.
set -euo pipefail
out=${LMC_BUILD_DIR:-build}/attention
mkdir -p "$out/include"
ln -sfn "$PWD/compiler/targets/cuda/device" "$out/include/lmc"
nvcc -O2 -std=c++17 -arch=native -I . -I "$out/include" bench/gpu/attention.cu -o "$out/attention"
"$out/attention"
