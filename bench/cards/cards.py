#!/usr/bin/env python3
"""Writes docs/cards: for each config of models/configs what is planned and what was measured, side by side.

    ./dev cards [NAME...]             the planned figures of these configs, or of all
    ./dev cards --measure NAME...     measures first, on this machine, into bench/results/cards/NAME.json

The planned figures are those of `lmc explain CONFIG --json`. The measured ones are those that
bench/results/cards has: of a CPU's config on any machine, of a GPU's on a machine that has the GPU.
A config of the name test-* is for tests, and gets no card.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path

from configs import ROOT, Config, Fault, Programs, digest
from measure import machine_for, measure

NOT_MEASURED = "not measured"
NO_PREDICTION = "no prediction"
INDEX = """# Cards

A card says what lmc plans for a config of `models/configs` and what was measured: memory, tokens/s, MFU, traffic, and the seconds
of a compile and of a start. `./dev cards [NAME...]` writes the planned figures, which are those of `lmc explain`, on any machine,
and `./dev cards --measure NAME...` also measures on this machine and keeps the figures in `bench/results/cards`. A new config gets
its card by the same command.

A config that names no `target.device` is planned for the CPU if it computes in f32, and else for an H100 (`cuda:sm_90a`);
fms-llama2-7b is planned for an A100, on which it was published. All figures are those of one device; MFU is the causal one.

| config | parameters | devices | planned for | memory | tokens/s | MFU | measured tokens/s | measured MFU | measured on |
|---|---:|---:|---|---:|---:|---:|---:|---:|---|
"""


def size(count: float) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= factor:
            return f"{count / factor:,.2f} {unit}"
    return f"{count:.0f} bytes"


def seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"


def rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def percent(value: float | None) -> str:
    return "peak unknown" if value is None else f"{100 * value:.1f}%"


def tokens(count: float) -> str:
    unit, name = (1e9, "billion") if count >= 1e9 else (1e6, "million")
    return f"{rate(count / unit)} {name}"


def figures(report: dict, measured: dict | None) -> list[tuple[str, str, str]]:
    """Rows of a figure's name, what is planned and what was measured."""
    cost, fusion, comm = report["cost"], report["fusion"], report["comm"]
    traffic = size(fusion["bytes_per_token"])
    if fusion["floor_bytes_per_token"]:
        traffic += f", {fusion['bytes_per_token'] / fusion['floor_bytes_per_token']:.2f} of the floor"
    rows = [
        ("memory", size(report["memory"]["peak_bytes"]), "peak_bytes", size),
        ("an optimizer step", seconds(cost["step_seconds"]), "step_seconds", seconds),
        ("tokens/s", rate(cost["tokens_per_second_per_device"]), "tokens_per_second_per_device", rate),
        ("MFU, causal", percent(cost["mfu_causal"]), "mfu_causal", percent),
        ("MFU, all attention scores", percent(cost["mfu_full"]), "mfu_full", percent),
        ("traffic of a token", traffic, "traffic_bytes_per_token", size),
    ]
    if report["batch"]["ranks"] > 1:
        rows += [
            ("sent in a step", size(comm["sent_bytes_per_step"]), "sent_bytes_per_step", size),
            ("waits for other devices in a step", seconds(comm["exposed_seconds_per_step"]),
             "exposed_seconds_per_step", seconds),
        ]
    rows += [
        ("a compile", NO_PREDICTION, "compile_seconds", seconds),
        ("the first start on a machine", NO_PREDICTION, "first_start_seconds", seconds),
        ("a later start", NO_PREDICTION, "start_seconds", seconds),
    ]
    known = measured["figures"] if measured else {}
    return [(name, planned, show(known[key]) if known.get(key) is not None else NOT_MEASURED)
            for name, planned, key, show in rows]


def machine_line(machine: dict) -> str:
    if "gpus" in machine:
        return (f"{machine['gpus']} x {machine['name']} ({machine['memory.total']}), power cap {machine['power.limit']}, "
                f"SM clock at most {machine['clocks.max.sm']}, {machine['sm_mhz']} under load, memory clock at most "
                f"{machine['clocks.max.memory']}, driver {machine['driver_version']}")
    return (f"{machine['cpu']} ({', '.join(machine['features']) or 'baseline'}), {machine['threads']} threads, "
            f"{machine['memory_gib']} GiB; clock {machine['clock']}, maximum clock {machine['max_clock']}, governor "
            f"{machine['governor']}, power cap {machine['power_cap']}")


def plan_lines(config: Config, report: dict, release: str) -> list[str]:
    memory, cost = report["memory"], report["cost"]
    lines = [f"**Planned** by lmc {release} for {cost['description']} (device spec `{cost['device']}`, target "
             f"`{config.device}`); MFU is of its peak of {cost['peak_flops'] / 1e12:,.3g} TFLOP/s."]
    if memory["peak_bytes"] > memory["budget_bytes"]:
        lines += [f"The plan does not fit its budget of {size(memory['budget_bytes'])}: the figures are those of the "
                  "smallest plan."]
    return lines


def measured_lines(config: Config, measured: dict | None) -> list[str]:
    if not measured:
        return ["**Measured:** nothing yet."]
    windows = ", ".join(rate(value) for value in measured["windows"])
    peak = f"{measured['peak_flops'] / 1e12:,.3g} TFLOP/s" if measured["peak_flops"] else "an unknown number of FLOP/s"
    lines = [
        f"**Measured** with lmc {measured['release']} on {measured['date']}, on {machine_line(measured['machine'])}.",
        f"The speed is that of the best of {len(measured['windows'])} windows of {measured['steps_per_window']} steps after "
        f"{measured['warm_up_steps']} of warm-up ({windows} tokens/s), on {measured['tokens']}. Memory is "
        f"{measured['memory_is']}; MFU is of the peak that `lmc-run` counts from, {peak}.",
    ]
    if measured["load_before"] > 0.5:
        lines += [f"Other work shared the machine: the load average was {measured['load_before']:.2f} before the start."]
    if measured["config_sha256"] != digest(config.text):
        lines += ["", "**The measured figures are of an older config:** its text has changed since."]
    return lines


def job_lines(config: Config, report: dict) -> list[str]:
    batch, memory, cost, model = report["batch"], report["memory"], report["cost"], report["model"]
    ranks = batch["ranks"]
    categories = sorted(memory["by_category"].items(), key=lambda each: -each[1])
    rows = [
        ("model", f"{model['architecture']}, {model['parameters']:,} parameters"),
        ("devices", f"{ranks} ({config.nodes} x {config.devices_per_node}), `{config.strategy}`" if ranks > 1 else "1"),
        ("batch", f"{batch['gbs']} sequences of {batch['sequence_length']} tokens: MBS {batch['mbs']} x GAS {batch['gas']} x "
                  f"{ranks} rank" + ("s" if ranks > 1 else "")),
        ("computes in", f"{cost['peak_dtype']}, recompute `{report['recompute']['mode']}`"),
        ("memory holds", ", ".join(f"{name.replace('_', ' ')} {size(count)}" for name, count in categories
                                   if count >= 0.01 * memory["peak_bytes"])),
    ]
    if job := report["job"]:
        hours = job["hours"]
        time = f"{hours / 24:,.3g} days" if hours >= 24 else f"{hours:.3g} hours" if hours >= 1 else f"{60 * hours:.3g} minutes"
        rows.append(("whole job", f"{job['steps']:,} steps, {tokens(job['tokens'])} tokens, {time} as predicted"))
    return ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)]


def repeat_lines(config: Config) -> list[str]:
    name, each = config.name, config.devices_per_node
    options = "".join(f" {option}" for option in config.options)
    compile_line = f"build/bin/lmc compile models/configs/{name}.toml{options} -o {name}.plan"
    if config.nodes > 1:
        return [
            f"`./dev cards {name}` repeats the planned figures on any machine. The measured ones need {config.nodes} nodes of "
            f"{each} GPUs (`{config.device}`). There, `--bench` prints memory, tokens/s and MFU as JSON, in a script of Slurm "
            "([several nodes](../guides/several-nodes.md)):",
            "", "```sh", compile_line,
            f"srun --nodes={config.nodes} --ntasks-per-node={each} --gpus-per-node={each} --distribution=block "
            "--kill-on-bad-exit=1 \\",
            f"    build/bin/lmc-run {name}.plan --set 'data.train=[]' --set 'data.validation=[]' --bench=20 --json", "```"]
    where = ("the CPU of this machine" if config.device == "cpu" else
             f"a machine with {each} GPU{'s' if each > 1 else ''} of `{config.device}`")
    lines = ["```sh", f"./dev cards --measure {name}", "```", "",
             f"measures on {where}, keeps the figures in `bench/results/cards` and writes this page anew; `./dev cards {name}` "
             "repeats the planned figures on any machine."]
    if each > 1:
        lines += ["The job itself, once its token files are where `[data]` names them, is launched on one machine by", "", "```sh", compile_line,
                  f"build/bin/lmc-run {name}.plan --out=runs/{name} --nproc={each}", "```", "",
                  "and on several nodes as [several nodes](../guides/several-nodes.md) says."]
    return lines


def card(config: Config, report: dict, measured: dict | None, release: str) -> str:
    return "\n".join([
        f"# {config.name}", "",
        f"`./dev cards {config.name}` writes this page from `models/configs/{config.name}.toml` ([what a card is](README.md)).",
        "",
        "| of one device | planned | measured |", "|---|---:|---:|",
        *(f"| {name} | {planned} | {seen} |" for name, planned, seen in figures(report, measured)), "",
        *plan_lines(config, report, release), "",
        *measured_lines(config, measured), "",
        "Traffic is that of all commands but matrix products and attention, and `lmc-run` counts none. A compile is one of",
        "`lmc compile` that knows no kernel yet. A start lasts from the launch of `lmc-run` to its first step; the first start on",
        "a machine also chooses matrix products.", "",
        "## The job", "", *job_lines(config, report), "",
        "## Repeat it", "", *repeat_lines(config), "",
        "## The config", "", "```toml", config.text.rstrip("\n"), "```",
    ]) + "\n"


def index_row(config: Config, report: dict, measured: dict | None) -> str:
    cost, memory = report["cost"], report["memory"]
    seen = [NOT_MEASURED] * 3
    if measured:
        machine = measured["machine"]
        seen = [rate(measured["figures"]["tokens_per_second_per_device"]), percent(measured["figures"]["mfu_causal"]),
                f"{machine.get('name') or machine['cpu']}, {measured['date']}"
                + (", an older config" if measured["config_sha256"] != digest(config.text) else "")]
    return "| " + " | ".join([
        f"[{config.name}]({config.name}.md)", f"{report['model']['parameters']:,}", str(report["batch"]["ranks"]),
        f"`{cost['device']}`", size(memory["peak_bytes"]), rate(cost["tokens_per_second_per_device"]),
        percent(cost["mfu_causal"]), *seen]) + " |"


def write(configs: dict[str, Config], names: list[str], programs: Programs, out: Path,
          results: Path) -> list[str]:
    """Writes the cards of `names` and the index, in which other cards keep their rows. Returns what failed."""
    index = out / "README.md"
    known = index.read_text() if index.exists() else ""
    rows = {found[1]: found[0] for found in re.finditer(r"^\| \[(.+?)\]\(.*$", known, re.M)}
    out.mkdir(parents=True, exist_ok=True)
    faults, release = [], programs.release()
    for name in names:
        config, kept = configs[name], results / f"{name}.json"
        try:
            report = programs.explain(config)
        except Fault as fault:
            faults.append(str(fault))
            continue
        measured = json.loads(kept.read_text()) if kept.exists() else None
        (out / f"{name}.md").write_text(card(config, report, measured, release))
        rows[name] = index_row(config, report, measured)
        print(f"{name}: {rows[name].split(' | ', 1)[1].removesuffix(' |')}", flush=True)
    index.write_text(INDEX + "".join(rows[name] + "\n" for name in sorted(configs) if name in rows))
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev cards", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="configs, without .toml; default: all")
    parser.add_argument("--measure", action="store_true", help="measure on this machine, too")
    parser.add_argument("--window", type=float, default=10, metavar="SECONDS",
                        help="about the time of each of the three windows that are measured (default: 10)")
    parser.add_argument("--configs", type=Path, default=ROOT / "models/configs", metavar="DIR",
                        help="where the configs are")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/cards", metavar="DIR", help="where the cards go")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results/cards", metavar="DIR",
                        help="where measured figures are kept")
    args = parser.parse_args()
    try:
        files = sorted(path for path in args.configs.glob("*.toml") if not path.name.startswith("test-"))
        configs = {path.stem: Config(path) for path in files}
        for name in args.names:
            if name not in configs:
                raise Fault(f"there is no config '{name}'; there are {', '.join(configs)}")
        if args.measure and not args.names:
            raise Fault("--measure needs the names of the configs to measure")
        programs = Programs(Path(os.environ.get("LMC_BUILD", ROOT / "build")).resolve())
        programs.path("lmc")
        if args.measure:
            # First of all, so that nothing changes where a machine is missing.
            machines = {name: machine_for(configs[name]) for name in args.names}
            for name in args.names:
                measured = measure(configs[name], machines[name], programs, args.window)
                args.results.mkdir(parents=True, exist_ok=True)
                (args.results / f"{name}.json").write_text(json.dumps(measured, indent=1) + "\n")
        faults = write(configs, args.names or list(configs), programs, args.out, args.results)
    except Fault as fault:
        faults = [str(fault)]
    for fault in faults:
        print(f"cards: error: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
