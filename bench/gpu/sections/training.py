"""Training speed: lmc-run beside PyTorch on this machine in one run. llama1b at the batch that lmc predicts
to be best, at MBS 16 and at MBS 64, and at MBS 16 with eight micro-steps, as real runs have; and layers in the shape
of Mistral-7B at 8192 tokens, as many as fit. llama1b at MBS 16 runs with cuBLASLt's default products, too: those that are the fastest alone need not be the
fastest in a step, where the clock is lower."""

import datetime
import json
import random
import re
import statistics
import sys
from array import array
from pathlib import Path

from sections.conformance import losses
from session import MARGIN_S, Report, call, json_lines

STEPS, WARM_UP = 14, 4  # the steps that are timed, and how many of the first do not count
STEPS_OF_GAS_8 = 4  # that count, where a step takes eight times as long
BENCH_STEPS = 20  # of `lmc-run --bench`
GRAPH = re.compile(r"graph: (\S+) has (\d+) nodes, captured in ([\d.]+) s")
MEMORY = re.compile(r"memory: ([\d.]+) (\w+) allocated in \d+ arena")
UNITS = {"B": 2.0**-20, "KiB": 2.0**-10, "MiB": 1.0, "GiB": 2.0**10, "TiB": 2.0**20}


def tokens(session, vocabulary: int, count: int):
    """Returns a file of random token ids, 32 bits each."""
    path = session.build / f"tokens-{vocabulary}-{count}.bin"
    if not path.exists():
        session.build.mkdir(exist_ok=True)
        chance = random.Random(1)
        array("I", (chance.randrange(vocabulary) for _ in range(count))).tofile(path.open("wb"))
    return path


def items(jobs: dict) -> tuple[dict, dict]:
    """Returns what the section runs of `jobs` (name -> facts), by the names of the items: for lmc the name of the job
    and, in a bench, how products are chosen (default, measure; else None); for the peer model, mode, MBS and GAS."""
    first = next(iter(jobs))
    # The first start may time matrix products; the second finds the choices in the user's cache.
    ours = {first: (first, None), f"{first}, again with warm caches": (first, None),
            **{name: (name, None) for name in jobs}}
    compared = next((name for name in jobs if name.startswith("llama1b lmc MBS 16")), first)
    for choice in ("default", "measure"):
        ours[f"llama1b lmc bench, products by {choice}"] = (compared, choice)
    peers = {}
    for model in dict.fromkeys(job["model"] for job in jobs.values()):
        job = next(job for job in jobs.values() if job["model"] == model)
        for mode in ("eager", "compile", "tuned"):
            for mbs in job["peer_batches"]:
                peers[f"{model} PyTorch {mode} MBS {mbs}"] = (model, mode, mbs, max(1, job["gas"]))
    for job in jobs.values():
        for mbs in job.get("tuned_batches", ()):
            peers[f"{job['model']} PyTorch tuned MBS {mbs} GAS {job['gas']}"] = (job["model"], "tuned", mbs, job["gas"])
    return ours, peers


def run(session) -> Report:
    report = Report(session, "training", {
        "item": "program", "tokens_per_second": "tokens/s", "mfu": "MFU", "predicted": "predicted tokens/s",
        "ratio": "predicted / measured", "step_ms": "step ms", "first_step_s": "first step s",
        "start_s": "start to first step s", "used_mib": "MiB in use", "planned_mib": "MiB planned",
        "allocated_mib": "MiB allocated", "graph_nodes": "nodes of graphs", "graph_s": "s to capture",
        "versions": "versions", "sm_mhz": "SM MHz", "watts": "W"})
    jobs = {job["name"]: job for job in json.loads((session.data / "training/jobs.json").read_text())}
    ours, peers = items(jobs)
    # lmc and the peers of one model follow each other, so that they meet the same clocks.
    order = sorted([*ours, *peers], key=lambda item: (item.split(" ")[0] != "llama1b", item in peers))
    if session.dry:
        print("  DRY RUN: neither lmc-run nor PyTorch trains these models")
    why = session.why_not(everything=True)
    no_peer = "" if session.dry or why else absent(session)
    for item in report.items(order, seconds=60):
        if why or (item in peers and no_peer):
            report.skip(item, why or no_peer)
            continue
        with report.guard(item):
            if item in peers:
                peer(session, report, item, *peers[item], jobs)
            elif ours[item][1]:
                bench(session, report, item, jobs[ours[item][0]], ours[item][1])
            else:
                lmc(session, report, item, jobs[ours[item][0]])
    for model in dict.fromkeys(job["model"] for job in jobs.values()):
        compare(report, model, {item: jobs[name] for item, (name, choice) in ours.items() if not choice}, peers)
    rates = {row["item"]: row["tokens_per_second"] for row in report.rows if "tokens_per_second" in row}
    default, measured = (rates.get(f"llama1b lmc bench, products by {choice}") for choice in ("default", "measure"))
    if default and measured:
        report.notes.append(f"products by measure: {measured / default:.3f} times the tokens/s of cuBLASLt's default")
    return report


def logged(text: str) -> dict:
    """Returns the figures of the lines `graph:` and `memory:` of a run's log: nodes and seconds of all graphs, and the
    memory allocated in arenas. Figures of lines that are not there are left out."""
    graphs, memory = GRAPH.findall(text), MEMORY.search(text)
    figures = {"graph_nodes": sum(int(nodes) for _, nodes, _ in graphs),
               "graph_s": round(sum(float(seconds) for _, _, seconds in graphs), 2)} if graphs else {}
    if memory and memory[2] in UNITS:
        figures["allocated_mib"] = float(memory[1]) * UNITS[memory[2]]
    return figures


def bench_command(session, plan: Path, steps: int, *options: str) -> list:
    """Returns the command that times `steps` steps of a plan by `lmc-run --bench`, on random tokens."""
    return [session.lmc_run, plan, f"--bench={steps}", *options, "--set=data.train=[]", "--set=data.validation=[]",
            "--json"]


def benched(text: str, job: dict) -> dict:
    """Returns the figures of a row from what this command prints."""
    made = json.loads(text[text.index("{"):])
    rate = made["tokens_per_second"]
    return {"tokens_per_second": rate, "mfu": rate * job["flops_per_token"] / job["peak_flops"],
            "predicted": job["predicted"], "ratio": job["predicted"] / rate,
            "step_ms": 1e3 * made["step_seconds"]["median"], "loss": made["loss"],
            "planned_mib": made["memory"]["planned_bytes"] / 2**20,
            "allocated_mib": made["memory"]["allocated_bytes"] / 2**20}


def ways(text: str, item: str) -> list[str]:
    """Returns how lmc-run computed each product that can be computed in two ways, as it prints it: the faster one."""
    made = json.loads(text[text.index("{"):])["products"]
    return [f"{item}: {re.sub(' align.*?(?= swiglu| of )', '', re.sub(' by .*', '', product))}: "
            f"{taken['implementation']}, {1e3 * taken['seconds']:.3f} ms"
            for product, taken in made.items() if "swiglu" in product or "experts" in product]


def bench(session, report: Report, item: str, job: dict, choice: str) -> None:
    command = bench_command(session, session.data / "training" / job["plan"], BENCH_STEPS, f"--gemm={choice}")
    report.run(item, command, lambda text: [benched(text, job)], limit=200)


def absent(session, program: str = "peer.py") -> str:
    """Returns why PyTorch cannot be the peer `program` here, "" if it can or if its failure is to be reported."""
    done = call([sys.executable, session.folder / program, "--probe"], min(120, session.seconds_left() - MARGIN_S))
    if "No module named 'torch'" in done.err:
        return f"PyTorch is not here ({sys.executable})"
    try:
        found = json_lines(done.out)[-1]
    except ValueError:
        return ""
    if found.get("lacks"):
        return f"PyTorch {found['torch']} has no {found['lacks']}"
    return "" if found.get("sees_the_gpu", True) else f"PyTorch {found['torch']} does not see the GPU"


def lmc(session, report: Report, item: str, job: dict) -> None:
    name = f"training-{item.replace(' ', '-')}"
    out = session.build / name / datetime.datetime.now().strftime("%H%M%S")
    plan = session.data / "training" / job["plan"]
    steps = STEPS if job["gas"] < 8 else WARM_UP + STEPS_OF_GAS_8
    data = tokens(session, job["vocabulary"], 4 * job["tokens_per_step"] + 1) if not session.dry else ""
    # Far more steps than are wanted: a run that ends saves a checkpoint of many gigabytes.
    command = [session.lmc_run, plan, f"--out={out}", "--steps=1000",
               f'--set=data.train=["{data}"]', f'--set=data.validation=["{data}"]', "--set=data.format=uint32"]
    began = datetime.datetime.now(datetime.timezone.utc)

    def read(text: str) -> list[dict]:
        lines = losses(out)
        counted = lines[WARM_UP:steps]
        rate = statistics.median(line["tokens_per_second"] for line in counted)
        first = lines[0]["step_seconds"]
        end = datetime.datetime.fromisoformat(lines[0]["time"].replace("Z", "+00:00"))
        return [{"tokens_per_second": rate, "mfu": rate * job["flops_per_token"] / job["peak_flops"],
                 "predicted": job["predicted"], "ratio": job["predicted"] / rate,
                 "step_ms": 1e3 * statistics.median(line["step_seconds"] for line in counted),
                 "first_step_s": first, "start_s": (end - began).total_seconds() - first,
                 "planned_mib": lines[0]["memory_bytes"] / 2**20, "loss": counted[-1]["loss"], **logged(text)}]

    def enough() -> bool:
        return (out / "metrics.jsonl").exists() and len(losses(out)) >= steps

    report.run(item, command, read, limit=200, until=enough)


def peer(session, report: Report, item: str, model: str, mode: str, mbs: int, gas: int, jobs: dict) -> None:
    job = next(job for job in jobs.values() if job["model"] == model)

    def read(text: str) -> list[dict]:
        row = json_lines(text)[-1]
        rate = row["tokens_per_second"]
        return [{"tokens_per_second": rate, "mfu": rate * job["flops_per_token"] / job["peak_flops"],
                 "step_ms": row["step_ms"], "first_step_s": row["first_step_s"], "loss": row["loss"],
                 "versions": f"torch {row['torch']}, CUDA {row['cuda']}"}]

    command = [sys.executable, session.folder / "peer.py", json.dumps(job["shape"]), "--mode", mode,
               "--mbs", mbs, "--gas", gas, "--steps",
               STEPS - WARM_UP if gas < 8 else STEPS_OF_GAS_8]
    if session.dry:
        report.run(item, command, read)
        return
    with session.clocks() as clocks:
        done = call(command, min(260, session.seconds_left()))
    if done.code == 0:
        for row in read(done.out):
            report.add(item, **row, **clocks.figures())
    elif "OutOfMemory" in done.err or "out of memory" in done.err:
        report.notes.append(f"{item}: out of memory")  # the peer's largest batch is behind us
    else:
        report.fail(item, done.complaint(), done)


def compare(report: Report, model: str, jobs: dict, peers: dict) -> None:
    rates = {row["item"]: row["tokens_per_second"] for row in report.rows if "tokens_per_second" in row}
    for name in (name for name in jobs if jobs[name]["model"] == model and name in rates):
        gas = max(1, jobs[name]["gas"])  # a step of one micro-batch has more of the optimizer's time
        theirs = {item: rate for item, rate in rates.items()
                  if item in peers and (peers[item][0], peers[item][3]) == (model, gas)}
        if theirs:
            best = max(theirs, key=theirs.get)
            report.notes.append(f"{name}: {rates[name]:.0f} tokens/s, {rates[name] / theirs[best]:.2f} of the "
                                f"best PyTorch that ran ({best}: {theirs[best]:.0f})")
