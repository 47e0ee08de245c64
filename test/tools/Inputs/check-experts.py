"""What plans of models with experts promise: check-experts.py CHECK CONFIGS, with `lmc` on the PATH."""

import json
import subprocess
import sys

check, configs = sys.argv[1:]

GIB = 2**30
# Bytes of state per parameter that ranks share: f32 weights and gradients, bf16 copies of the weights, both moments in f32 or
# in 8 bits with an f32 scale for each 256.
STATE = {"olmoe-1b-7b": 18, "qwen3-30b-a3b": 18, "mixtral-8x7b": 10 + 2 * (1 + 4 / 256)}


def devices():
    """The state of plans for 8, 64 and 128 GPUs, and whether they fit."""
    for name, per_parameter in STATE.items():
        for count in (8, 64, 128):
            # Without a search of what is recomputed, which takes most of the time of a compile.
            done = subprocess.run(
                ["lmc", "explain", f"{configs}/{name}.toml", "--json", "--target=cuda:sm_90a", f"--nodes={count // 8}",
                 "--devices-per-node=8", "--set=memory.recompute=block", "--set=distributed.strategy=zero3",
                 "--set=distributed.reduce_gradients=each"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert done.stdout.startswith("{"), done.stderr
            report = json.loads(done.stdout)
            memory = report["memory"]
            parameters = report["model"]["parameters"]
            state = per_parameter * parameters / count
            assert state <= memory["state_bytes"] <= 1.01 * state, (name, count, memory["state_bytes"], state)
            assert memory["state_bytes"] < memory["lower_bound_bytes"] <= memory["peak_bytes"], memory
            assert report["comm"]["ranks"] == count
            assert report["cost"]["tokens_per_second_per_device"] > 0
            assert memory["budget_bytes"] == 76 * GIB
            fits = memory["peak_bytes"] <= memory["budget_bytes"]
            print(f"{name}: {count} devices, {memory['state_bytes'] / GIB:.1f} GiB of state, fits: {'yes' if fits else 'no'}")


{"devices": devices}[check]()
