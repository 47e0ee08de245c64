"""What lmc explain --scale promises: check-scale.py CHECK CONFIGS, with `lmc` on the PATH."""

import json
import subprocess
import sys

check, configs = sys.argv[1:]
H100 = "--target=cuda:sm_90a"


def explain(config, *options):
    text = subprocess.check_output(["lmc", "explain", f"{configs}/{config}", "--json", H100, *options])
    return json.loads(text)


def within():
    """Rows of other strategies than the job's differ by less than 1% from the compiled plan."""
    for config, counts in (("llama3-8b.toml", "64,512"), ("fast-llm-mistral.toml", "16"), ("llama1b.toml", "8")):
        rows = [row for row in explain(config, f"--scale={counts}")["scale"] if not row["exact"]]
        worst = 0
        for row in rows:
            report = explain(config, f"--nodes={row['nodes']}",
                             f"--devices-per-node={row['devices'] // row['nodes']}",
                             f"--set=distributed.strategy={row['strategy']}",
                             f"--set=training.batch_size={row['batch_size']}")
            memory, cost = report["memory"], report["cost"]
            assert row["fits"] == (memory["peak_bytes"] <= memory["budget_bytes"]), row
            pairs = [(row["peak_bytes"], memory["peak_bytes"])]
            if row["fits"]:
                pairs += [(row[key], cost[key]) for key in
                          ("tokens_per_second_per_device", "mfu_causal", "step_seconds")]
            else:
                assert row["missing_bytes"] == row["peak_bytes"] - memory["budget_bytes"], row
            for mine, compiled in pairs:
                worst = max(worst, abs(mine / compiled - 1))
                assert abs(mine / compiled - 1) < 0.01, (config, row, mine, compiled)
        print(f"{config}: {len(rows)} rows, at most {worst:.2%} off")


def own():
    """Rows of the job's own strategy are its plans; the fastest row has the totals of the job."""
    report = explain("llama3-8b.toml", "--scale=128")
    row, = (row for row in report["scale"] if row["exact"])
    cost, job = report["cost"], report["job"]
    assert row["strategy"] == "hybrid_shard" and row["peak_bytes"] == report["memory"]["peak_bytes"]
    for key in ("tokens_per_second_per_device", "mfu_causal", "step_seconds"):
        assert row[key] == cost[key], key
    best, = (row for row in report["scale"] if row["best"])
    fitting = [row for row in report["scale"] if row["fits"]]
    assert best["tokens_per_second_per_device"] == max(row["tokens_per_second_per_device"] for row in fitting)
    assert best["job"]["tokens"] == job["tokens"] and best["job"]["steps"] == job["steps"]
    hours = job["steps"] * best["step_seconds"] / 3600
    assert abs(best["job"]["device_hours"] / (128 * hours) - 1) < 1e-9
    assert abs(best["job"]["days"] / (hours / 24) - 1) < 1e-9
    print("128 devices:", len(report["scale"]), "rows")


{"within": within, "own": own}[check]()
