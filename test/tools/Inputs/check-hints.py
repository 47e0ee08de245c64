"""What the hints of a job that does not fit promise: check-hints.py CONFIGS, with `lmc` on the PATH."""

import json
import re
import subprocess
import sys

configs, = sys.argv[1:]
SHORT = ["--set=model.num_hidden_layers=12"]  # quick to compile, and long enough to be extrapolated

CASES = (
    ("mistral-7b.toml", ["--set=distributed.strategy=zero1", "--memory-budget=30GiB"]),
    ("llama1b.toml", ["--memory-budget=26GiB"]),
    ("fast-llm-mistral.toml", ["--set=distributed.nodes=1", "--set=distributed.devices_per_node=4",
                               "--set=training.micro_batch_size=4", "--memory-budget=14GiB"]),
)


def smallest(config, options):
    """The bytes of the job's smallest plan."""
    done = subprocess.run(["lmc", "compile", f"{configs}/{config}", "--target=cuda:sm_90a", "--plan-only",
                           "--quiet", "-o", "/dev/null", *SHORT, *options, "--memory-budget=1GiB"],
                          stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3, done.stderr
    return int(re.search(r"the smallest budget that works is (\d+) bytes", done.stderr)[1])


for config, options in CASES:
    report = json.loads(subprocess.check_output(
        ["lmc", "explain", f"{configs}/{config}", "--target=cuda:sm_90a", "--json", *SHORT, *options]))
    memory, hints = report["memory"], report["hints"]
    assert hints and memory["peak_bytes"] > memory["budget_bytes"]
    for hint in hints:
        changed = options + [f"--set={each.replace(' ', '')}" for each in hint["change"].split(" and ")]
        needed = smallest(config, changed)
        assert -0.01 < hint["peak_bytes"] / needed - 1 < 0.02, (config, hint, needed)
        assert hint["suffices"] == (needed <= memory["budget_bytes"]), (config, hint, needed)
        assert hint["saved_bytes"] == memory["peak_bytes"] - hint["peak_bytes"] > 0, hint
        print(f"{config}: {hint['change']}{': suffices' if hint['suffices'] else ''}")
