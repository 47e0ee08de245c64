"""Predictions beside published runs (docs/devices.md): check-anchors.py CONFIGS, with `lmc` on the PATH."""

import json
import re
import subprocess
import sys
import tempfile

configs, = sys.argv[1:]
# As the published runs of FSDP, which gather weights again for the backward pass.
RESHARD = "--set=distributed.reshard_after_forward=yes"
SPECS = f"{configs}/../../compiler/cost/devices"


def tokens_per_second(config, *options):
    """Of one device, and of all."""
    report = json.loads(subprocess.check_output(["lmc", "explain", f"{configs}/{config}", "--json", *options]))
    assert report["memory"]["peak_bytes"] <= report["memory"]["budget_bytes"], options
    speed = report["cost"]["tokens_per_second_per_device"]
    return speed, speed * report["batch"]["ranks"]


def check(name, predicted, published, bound):
    print(f"{name}: {predicted:,.0f} of {published:,}, {predicted / published - 1:+.0%}")
    assert 1 / (1 + bound) < predicted / published < 1 + bound, name


# vectorlm: Llama 2 7B on 2 nodes of 4 A100, sequences of 1024 tokens. 4 devices share 50 Gbit/s.
with open(f"{SPECS}/a100-80gb.toml") as spec:
    before, after = spec.read().split("[link.node]")
slow = tempfile.NamedTemporaryFile("w", suffix=".toml")
slow.write(before + "[link.node]" + re.sub(r"bandwidth = \S+", "bandwidth = 1.5625e9", after))
slow.flush()


def vectorlm(strategy, nodes, mbs, *options):
    return tokens_per_second(
        "llama2-7b.toml", "--target=cuda:sm_80", f"--spec={slow.name}", f"--nodes={nodes}", "--devices-per-node=4",
        "--set=memory.budget=0", "--set=training.sequence_length=1024", "--set=distributed.reduce_dtype=bf16",
        f"--set=training.micro_batch_size={mbs}", f"--set=training.batch_size={mbs * 4 * nodes}",
        f"--set=distributed.strategy={strategy}", RESHARD, *options)[1]


check("vectorlm, FULL_SHARD on 2 nodes, naive",
      vectorlm("full_shard", 2, 1, "--set=memory.recompute=none", "--set=distributed.overlap=no"), 1500, 0.25)
check("vectorlm, FULL_SHARD on one node", vectorlm("full_shard", 1, 8, "--set=memory.recompute=block"), 16000, 0.25)
speeds = {strategy: vectorlm(strategy, 2, 8, "--set=memory.recompute=block")
          for strategy in ("zero3", "zero2", "zero1", "hybrid_shard_zero2", "hybrid_shard")}
check("vectorlm, HYBRID_SHARD on 2 nodes", speeds["hybrid_shard"], 24000, 0.25)
print("slowest first:", *sorted(speeds, key=lambda strategy: round(speeds[strategy])))

# It had FlashAttention 2, which multiplies by mma.sync, as lmc does on sm_90; on sm_90a lmc has wgmma.
check("Fast-LLM, Mistral 7B on 128 H100, ZeRO-1",
      tokens_per_second("fast-llm-mistral.toml", "--target=cuda:sm_90")[0], 9000, 0.25)
# What is at fault with the last one is in docs/devices.md.
check("fms-fsdp, Llama 2 7B on 128 A100, HSDP, without overlap",
      tokens_per_second("fms-llama2-7b.toml", "--target=cuda:sm_80", RESHARD, "--set=distributed.overlap=no")[0], 3760, 0.25)
check("fms-fsdp, Llama 2 7B on 128 A100, HSDP",
      tokens_per_second("fms-llama2-7b.toml", "--target=cuda:sm_80", RESHARD)[0], 3760, 0.40)
