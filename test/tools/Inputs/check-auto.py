"""Every "auto" takes the plan that is the fastest by its own prediction among its choices, and of equally fast ones the
smallest: check-auto.py CONFIGS JOBS, with `lmc` on the PATH. Compares drawn jobs with all their choices, one by one: JOBS of them,
or LMC_FUZZ times as many if that environment variable is set, at least 2."""

import concurrent.futures
import itertools
import json
import os
import random
import subprocess
import sys

configs, jobs = sys.argv[1], max(2, int(float(os.environ.get("LMC_FUZZ", "1")) * int(sys.argv[2])))

# The choices of each setting that may be "auto".
REDUCE = ("distributed.reduce_gradients", ("each", "last"))
OVERLAP = ("distributed.overlap", ("yes", "gathers", "no"))
RESHARD = ("distributed.reshard_after_forward", ("yes", "no"))
OWNERS = ("optimizer.muon_owners", ("yes", "no"))
RECOMPUTE = ("memory.recompute", ("keep-all", "none", "activation", "full", "block"))
CHUNK = ("memory.loss_chunk", (1024, 4096, 16384))
MBS = ("training.micro_batch_size", (1, 2, 4))
DOES_NOT_FIT = 3


def explain(settings: dict, config: str = "llama1b"):
    """Returns the predicted tokens/s and the bytes of a job's plan; None if it does not fit the budget."""
    done = subprocess.run(["lmc", "explain", f"{configs}/{config}.toml", "--target=cuda:sm_90a", "--json",
                           *(f"--set={key}={value}" for key, value in settings.items())],
                          capture_output=True, text=True)
    if done.returncode == DOES_NOT_FIT:
        return None
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    rate, peak = report["cost"]["tokens_per_second_per_device"], report["memory"]["peak_bytes"]
    return None if 0 < settings["memory.budget"] < peak else (rate, peak)


def draw(number: int):
    """Returns a job's settings and its choices."""
    at = random.Random(number)
    strategy = at.choice(("zero1", "zero2", "zero2", "zero3"))
    nodes, gas = at.choice((1, 2, 4)), at.choice((1, 2, 4))
    settings = {
        "model.hidden_size": 1024, "model.intermediate_size": 2816, "model.num_hidden_layers": at.choice((4, 6)),
        "model.num_attention_heads": 16, "model.num_key_value_heads": 16, "model.vocab_size": 2048,
        "training.sequence_length": at.choice((2048, 4096)), "training.micro_batch_size": 4,
        "training.batch_size": 4 * gas * 8 * nodes, "distributed.strategy": strategy, "distributed.nodes": nodes,
        "distributed.devices_per_node": 8, "memory.recompute": "auto", "memory.budget": 0,
    }
    choices = [OVERLAP]
    if strategy == "zero2" and gas > 1:
        choices.append(REDUCE)
    if strategy == "zero3":
        choices.append(RESHARD)
    if at.random() < 0.3:
        settings["optimizer.type"] = "muon"
        choices.append(OWNERS)
    return at, settings, choices


def check(number: int) -> str:
    at, settings, choices = draw(number)
    fastest = explain(settings)
    smallest = explain({**settings, "memory.recompute": "block", "distributed.overlap": "no"})
    # A budget between that of the fastest plan and that of a small one, or more than both.
    low, high = sorted((smallest[1], fastest[1]))
    settings["memory.budget"] = int(low + (high - low) * at.choice((0.3, 0.6, 1.2)))
    auto = explain(settings)
    assert auto and auto[1] <= settings["memory.budget"], settings
    others = [dict(zip([key for key, _ in choices], values))
              for values in itertools.product(*(of for _, of in choices))]
    others += [{RECOMPUTE[0]: value} for value in RECOMPUTE[1]]
    others += [{CHUNK[0]: value} for value in CHUNK[1]]
    others += [{MBS[0]: value} for value in MBS[1]]
    found = {json.dumps(other): explain({**settings, **other}) for other in others}
    size = explain({**settings, MBS[0]: '"auto"'})
    for other, plan in found.items():
        if plan is None:
            continue
        chosen = size if MBS[0] in other else auto
        assert chosen[0] > plan[0] or (chosen[0] == plan[0] and chosen[1] <= plan[1]), (
            number, settings, other, plan, chosen)
    fits = sum(plan is not None for plan in found.values())
    return f"job {number}: {len(found)} choices, of which {fits} fit, none better"


def published() -> str:
    """Fast-LLM's recipe on 16 GPUs with ZeRO-2: to sum gradients in each micro-step is faster and smaller."""
    settings = {"distributed.strategy": "zero2", "distributed.nodes": 2, "distributed.devices_per_node": 8,
                "memory.budget": 0}
    auto = explain(settings, "fast-llm-mistral")
    plans = [explain({**settings, OVERLAP[0]: overlap, REDUCE[0]: how}, "fast-llm-mistral")
             for overlap in OVERLAP[1] for how in REDUCE[1]]
    assert auto in plans and all(auto[0] > plan[0] or (auto[0] == plan[0] and auto[1] <= plan[1]) for plan in plans), (
        auto, plans)
    return f"fast-llm-mistral with ZeRO-2 on 16 GPUs: {auto[0]:,.0f} tokens/s, {auto[1] / 2**30:.1f} GiB, none better"


print(published())
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for line in pool.map(check, range(1, jobs + 1)):
        print(line)
print(f"{jobs} jobs")
