"""A mixture of experts: a step of four layers of OLMoE-1B-7B by lmc-run, each kind of its products per expert from a
trace of one step, and beside them PyTorch's grouped products of the same shapes (`grouped.py`)."""

import json
import statistics
import sys

from sections.training import absent, bench_command, benched, ways
from session import Report, json_lines

STEPS = 10  # of `lmc-run --bench`
CATEGORIES = ("ExpertLinear", "ExpertScaledLinear", "ExpertLinearGrad")  # of a trace's products per expert


def items(jobs: dict) -> tuple[dict, dict]:
    """Returns what the section runs of `jobs` (name -> facts), by the names of the items: lmc's jobs, and the peers of
    their products. Products of 8-bit floats have none."""
    return dict(jobs), {f"{job['model']} PyTorch grouped_mm": job for job in jobs.values() if "fp8" not in job["model"]}


def grouped(report: dict, shape: dict) -> dict:
    """Returns the sizes of the products per expert of a plan that `lmc explain --json` reports on: the rows of all
    experts together, how many experts there are, and the widths of a token and of an expert."""
    batch = report["batch"]
    return {"rows": batch["mbs"] * batch["sequence_length"] * shape["num_experts_per_tok"],
            "experts": shape["num_experts"], "hidden": shape["hidden_size"], "intermediate": shape["intermediate_size"]}


def products(report: dict, sizes: dict) -> dict[str, dict]:
    """Returns each kind of product per expert of such a plan by name: the FLOPs and the predicted seconds of one, and
    which commands of which functions they are, as [function, command]."""
    runs = {function["name"]: function["runs_per_step"] for function in report["cost"]["functions"]}
    widths = {"gate_up": (sizes["hidden"], 2 * sizes["intermediate"]), "down": (sizes["intermediate"], sizes["hidden"])}
    made: dict[str, dict] = {}
    for function in report["functions"]:
        ended = set()  # the sources whose gradient of x is behind us, from the last command to the first
        for at, command in reversed(list(enumerate(function["commands"]))):
            if not runs[function["name"]] or command["kind"] not in (
                    "expert_linear", "expert_scaled_linear", "expert_linear_grad"):
                continue
            source = command["source"].rpartition(".")[2]
            if command["kind"] == "expert_linear_grad":
                what = "gradient of the matrices"
            elif command["backward"] and command["source"] not in ended:
                what = "gradient of x"
                ended.add(command["source"])
            else:
                what = "forward"  # in the backward pass, too, if it is recomputed there
            width, result = widths[source]
            product = made.setdefault(f"{source} {what}", {
                "flops": 2.0 * sizes["rows"] * width * result, "seconds": command["seconds"], "commands": []})
            product["commands"].append([function["name"], at])
    order = [f"{source} {what}" for source in widths for what in (
        "forward", "gradient of x", "gradient of the matrices")]
    return {name: made[name] for name in order}


def measured(trace: dict, job: dict) -> list[dict]:
    """Returns a row for each kind of product, from the trace of `lmc-run --trace`: the median over its commands."""
    events: dict[tuple, list[dict]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["cat"] in CATEGORIES:
            events.setdefault((event["args"]["function"], event["args"]["command"]), []).append(event)
    rows = []
    for name, product in job["products"].items():
        found = [event for command in product["commands"] for event in events.get(tuple(command), ())]
        if not found:
            raise ValueError(f"the trace has no {name}")
        ms = 1e-3 * statistics.median(event["dur"] for event in found)
        predicted = 1e-3 * statistics.median(event["args"]["predicted_us"] for event in found)
        rows.append({"item": f"{job['model']} lmc {name}", "ms": ms, "tflops": product["flops"] / ms * 1e-9,
                     "predicted_ms": predicted, "ratio": predicted / ms})
    return rows


def run(session) -> Report:
    report = Report(session, "experts", {
        "item": "program, product", "tokens_per_second": "tokens/s", "mfu": "MFU", "predicted": "predicted tokens/s",
        "step_ms": "step ms", "ms": "ms", "tflops": "TFLOP/s", "predicted_ms": "predicted ms",
        "ratio": "predicted / measured", "planned_mib": "MiB planned", "allocated_mib": "MiB allocated",
        "largest": "most rows of an expert", "versions": "versions", "sm_mhz": "SM MHz", "watts": "W"})
    jobs = {job["name"]: job for job in json.loads((session.data / "experts/jobs.json").read_text())}
    ours, peers = items(jobs)
    if session.dry:
        print("  DRY RUN: neither lmc-run nor PyTorch multiplies")
    why = session.why_not(everything=True)
    no_peer = None  # why the peer cannot run; asked when it is its turn
    for item in report.items([*ours, *peers], seconds=15):
        if item in peers and no_peer is None:
            no_peer = "" if session.dry or why else absent(session, "grouped.py")
        if why or (item in peers and no_peer):
            report.skip(item, why or no_peer)
            continue
        with report.guard(item):
            if item in peers:
                peer(session, report, item, peers[item])
            else:
                bench(session, report, item, ours[item])
    for job in jobs.values():
        compare(report, job)
    return report


def bench(session, report: Report, item: str, job: dict) -> None:
    trace = session.build / f"experts-{job['model']}.trace.json"
    trace.unlink(missing_ok=True)
    command = bench_command(session, session.data / "experts" / job["plan"], STEPS, f"--trace={trace}")
    def read(text: str) -> list[dict]:
        report.notes.extend(ways(text, item))
        return [benched(text, job)]

    if report.run(item, command, read, limit=45):
        for row in measured(json.loads(trace.read_text()), job):
            report.add(**row)


def peer(session, report: Report, item: str, job: dict) -> None:
    def read(text: str) -> list[dict]:
        return [{"item": f"{job['model']} PyTorch {row['product']}, {row['counts']}", "ms": row["ms"],
                 "tflops": row["tflops"], "largest": row["largest"],
                 "versions": f"torch {row['torch']}, CUDA {row['cuda']}"} for row in json_lines(text)]

    report.run(item, [sys.executable, session.folder / "grouped.py", json.dumps(job["grouped"])], read, limit=45)


def compare(report: Report, job: dict) -> None:
    rates = {row["item"]: row["tflops"] for row in report.rows if "tflops" in row}
    for name in job["products"]:
        our = rates.get(f"{job['model']} lmc {name}")
        their = rates.get(f"{job['model']} PyTorch {name}, balanced")
        if our and their:
            report.notes.append(f"{job['model']} {name}: {our:.0f} TFLOP/s, {our / their:.2f} of PyTorch's grouped_mm "
                                f"with balanced counts ({their:.0f})")
