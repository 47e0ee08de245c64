"""What searches for a plan promise: check-search.py CHECK CONFIGS, with `lmc` on the PATH."""

import json
import os
import re
import subprocess
import sys
import tempfile

check, configs = sys.argv[1:]
ONE_H100 = ["--nodes=1", "--devices-per-node=1", "--target=cuda:sm_90a"]
PLANNED = ["--plan-only"]  # what is searched for is a plan; its kernels need no code


def explain(config, *options):
    text = subprocess.check_output(["lmc", "explain", f"{configs}/{config}", "--json", *options])
    return json.loads(text)


def compiled(config, *options):
    """lmc compile: exit code, stderr, MiB of memory, the plan's report."""
    with tempfile.TemporaryDirectory() as folder:
        plan = folder + "/job.plan"
        command = ["lmc", "compile", f"{configs}/{config}", "-o", plan, "--quiet", *options]
        with open(folder + "/stderr", "w+") as stderr:
            child = subprocess.Popen(command, stderr=stderr)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            stderr.seek(0)
            said = stderr.read()
        report = None
        if os.path.exists(plan):
            report = json.loads(subprocess.check_output(["lmc", "explain", plan, "--json"]))
        return child.returncode, said, usage.ru_maxrss / 1024, report


def budgets():
    """A budget that is too small names the smallest that works; it does, and a byte less does not."""
    for config in ("llama1b.toml", "mistral-7b.toml"):
        for mode in ("auto", "block"):
            options = [*ONE_H100, f"--set=memory.recompute={mode}"]
            code, said, *_, report = compiled(config, "--memory-budget=20GiB", *options, *PLANNED)
            assert code == 3 and report is None, (code, said)
            smallest = int(re.search(r"the smallest budget that works is (\d+) bytes", said)[1])
            assert re.search(r"what takes the memory:\n( +[\d.]+ \w+  \w+\n)+", said), said
            largest = said.split("the largest buffers at the peak")[1].splitlines()[1:]
            assert len(largest) == 5 and all(len(line.split()) == 4 for line in largest), said
            code, said, *_, report = compiled(config, f"--memory-budget={smallest}", *options, *PLANNED)
            assert code == 0, said
            assert report["memory"]["peak_bytes"] <= smallest
            assert report["memory"]["budget_bytes"] == smallest
            assert report["recompute"]["mode"] == mode
            code, said, *_, report = compiled(config, f"--memory-budget={smallest - 1}", *options,
                                             *PLANNED)
            assert code == 3 and f" {smallest} bytes" in said, said
            print(f"{config} {mode}: {smallest} bytes")


def micro_batch():
    """The MBS that is chosen is the best of all by hand, and the report says what was tried."""
    for mode in ("auto", "block"):
        options = [*ONE_H100, "--set=training.batch_size=128", f"--set=memory.recompute={mode}"]
        rates = {}
        for mbs in (1, 2, 4, 8, 16, 32, 64, 128):
            report = explain("llama1b.toml", *options, f"--set=training.micro_batch_size={mbs}")
            assert report["batch"]["gas"] == 128 // mbs
            if report["memory"]["peak_bytes"] <= report["memory"]["budget_bytes"]:
                rates[mbs] = report["cost"]["tokens_per_second_per_device"]
        report = explain("llama1b.toml", *options, "--set=training.micro_batch_size=auto")
        best = max(rates, key=rates.get)
        assert report["batch"]["mbs"] == best, (report["batch"], rates)
        assert report["batch"]["gas"] == 128 // best
        assert report["cost"]["tokens_per_second_per_device"] == rates[best]
        tried = {a["mbs"]: a["tokens_per_second_per_device"]
                 for a in report["micro_batch"]["attempts"] if a["fits"]}
        assert tried == rates, (tried, rates)
        print(f"{mode}: MBS {best} of {sorted(rates)}, {rates[best]:.0f} tokens/s")


def bounds():
    """At most 2 GiB, and 80 layers ask for one plan more than 32, not for plans in proportion.

    Plans that are made in full are counted, because they take most of a search's time. The seconds
    of these jobs are figures of bench/compile.
    """
    # Code for the CPU, planned as for an H100 so that there is much to choose from.
    cpu = ["--nodes=1", "--devices-per-node=1", "--spec=h100-sxm", "--set=target.cpu=x86-64-v3"]
    planned = []
    for config, *options in (
            ("llama1b.toml", *cpu),
            ("llama3-8b.toml", *cpu, "--memory-budget=144GiB"),
            ("llama3-8b.toml", *cpu, "--memory-budget=360GiB", "--set=model.num_hidden_layers=80")):
        code, errors, memory, report = compiled(config, "--set=memory.recompute=auto", *options)
        assert code == 0, errors
        assert memory < 2048, f"{memory} MiB"
        attempts = report["recompute"]["attempts"]
        candidate = attempts[-1]["options"]
        assert "," in candidate, f"no mix of options: {candidate}"
        planned.append(len(attempts))
        print(f"{config} {options[-1]}: {len(attempts)} plans, {memory:.0f} MiB, {candidate}")
    assert planned[2] <= planned[1] + 1, planned


def tables():
    """Memory beside what others published.

    Fast-LLM's Mistral-7B recipe, 8192 tokens: 36,515 / 29,346 / 15,010 MiB are held for the
    backward pass. A Llama of 1B under FSDP on 80 GB: 16 x 2048 took 73.6 GB, and 64 x 2048
    recomputed every layer, a fifth of the step and more.
    """
    def job(config, mode, mbs, budget, *options):
        report = explain(config, *ONE_H100, f"--set=memory.recompute={mode}",
                         f"--set=training.micro_batch_size={mbs}",
                         f"--set=training.batch_size={mbs}", f"--memory-budget={budget}", *options)
        assert report["memory"]["peak_bytes"] <= report["memory"]["budget_bytes"]
        return report

    held = lambda report: report["memory"]["activation_bytes"] / 2**20
    seconds = lambda report: report["cost"]["step_seconds"]
    named = {}
    # 8192 tokens x 32 layers x (residual, qkv, attention's output, residual, gate and up) in
    # bf16, softmax statistics, and the last layer's output and norm: exact.
    for mode, limit, exact in (("none", 28000, 23712), ("activation", 24500, 23712),
                               ("full", 10500, 9376)):
        named[mode] = job("mistral-7b.toml", mode, 1, "200GiB")
        assert held(named[mode]) == exact <= limit, (mode, held(named[mode]))
        print(f"mistral-7b {mode}: {held(named[mode]):.0f} of {limit} MiB")
    for mode, report in named.items():
        budget = report["memory"]["peak_bytes"]
        auto = job("mistral-7b.toml", "auto", 1, budget)
        fits = [seconds(r) for r in named.values() if r["memory"]["peak_bytes"] <= budget]
        assert seconds(auto) <= min(fits), (mode, seconds(auto), fits)
        print(f"auto in the memory of {mode}: {seconds(auto) / min(fits):.4f} of its time")

    # All but the residual stream in 8 bits: 8192 + 43008 bytes a token and layer, and the scales of rows. With one micro-step
    # the codes of weights would count too.
    codes = job("mistral-7b.toml", "none", 1, "200GiB", "--set=training.fp8=tensor", "--set=memory.store=fp8",
                "--set=training.batch_size=2")
    assert held(codes) <= 13000, held(codes)
    print(f"mistral-7b in 8 bits: {held(codes):.0f} of 13000 MiB")

    small = job("llama1b.toml", "none", 16, "200GiB")
    assert small["memory"]["peak_bytes"] <= 54e9
    print(f"llama1b 16 x 2048: {small['memory']['peak_bytes'] / 1e9:.1f} GB")
    large, free = job("llama1b.toml", "auto", 64, "80GB"), job("llama1b.toml", "none", 64, "400GiB")
    overhead = 1 - seconds(free) / seconds(large)
    assert large["memory"]["peak_bytes"] <= 80e9 and 0 < overhead < 0.15, overhead
    print(f"llama1b 64 x 2048: {large['memory']['peak_bytes'] / 1e9:.1f} GB, "
          f"{100 * overhead:.1f}% of the step recomputes")
    eight = ["--set=training.fp8=tensor", "--set=memory.store=fp8"]
    codes, kept = job("llama1b.toml", "auto", 64, "80GB", *eight), job("llama1b.toml", "none", 64, "400GiB", *eight)
    less = 1 - seconds(kept) / seconds(codes)
    plain = job("llama1b.toml", "auto", 64, "80GB", eight[0])
    assert 0 <= less < overhead / 2 and seconds(codes) < seconds(plain), (less, overhead, seconds(codes), seconds(plain))
    print(f"llama1b 64 x 2048 in 8 bits: {codes['memory']['peak_bytes'] / 1e9:.1f} GB, {100 * less:.1f}% of the step recomputes")


def monotone(fp8):
    """40 budgets, or LMC_FUZZ times as many, from that of whole layers that are recomputed to that of values that are kept
    though they are free to compute again: each plan is within its budget, and none with more memory is slower."""
    count = max(2, int(float(os.environ.get("LMC_FUZZ", "1")) * 40))

    def job(budget):
        return explain("llama1b.toml", *ONE_H100, "--set=training.micro_batch_size=16", "--set=training.batch_size=16",
                       "--set=model.num_hidden_layers=4", "--set=memory.recompute=auto", f"--set=training.fp8={fp8}",
                       f"--memory-budget={budget}")

    tight, free = job(1), job("200GiB")
    least, most = (report["memory"]["peak_bytes"] for report in (tight, free))
    reports = [job(int(least + (most - least) * i / (count - 1))) for i in range(count)]
    seconds = [report["cost"]["step_seconds"] for report in reports]
    for report in reports:
        assert report["memory"]["peak_bytes"] <= report["memory"]["budget_bytes"]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in zip(seconds, seconds[1:])), seconds
    options = {each["name"] for each in free["recompute"]["options"]}
    taken = [free["recompute"]["options"][index]["name"] for index in free["recompute"]["layers"]]
    assert "keep1" in options and taken == ["keep1"] * 4, (options, taken)
    chunks = sorted({report["loss_chunk"]["tokens"] for report in reports})
    print(f"fp8 {fp8}: {count} budgets: {seconds[0] / seconds[-1]:.3f} times as fast with {most / least:.2f} times the memory, "
          f"chunks of {chunks[0]} to {chunks[-1]} tokens")


def all_monotone():
    for fp8 in ("none", "tensor", "block"):
        monotone(fp8)


{"budgets": budgets, "tables": tables, "micro-batch": micro_batch, "bounds": bounds, "monotone": all_monotone}[check]()
