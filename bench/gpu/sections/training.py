"""Training speed: lmc-run beside PyTorch on this machine in one run. llama1b at the batch that lmc predicts
to be best, at MBS 16 and at MBS 64; and layers in the shape of Mistral-7B at 8192 tokens, as many as fit."""

import datetime
import json
import random
import statistics
import sys
from array import array

from sections.conformance import losses
from session import Report, call, json_lines

STEPS, WARM_UP = 14, 4  # the steps that are timed, and how many of the first do not count


def tokens(session, vocabulary: int, count: int):
    """Returns a file of random token ids, 32 bits each."""
    path = session.build / f"tokens-{vocabulary}-{count}.bin"
    if not path.exists():
        session.build.mkdir(exist_ok=True)
        chance = random.Random(1)
        array("I", (chance.randrange(vocabulary) for _ in range(count))).tofile(path.open("wb"))
    return path


def run(session) -> Report:
    report = Report(session, "training", {
        "item": "program", "tokens_per_second": "tokens/s", "mfu": "MFU", "predicted": "predicted tokens/s",
        "ratio": "predicted / measured", "step_ms": "step ms", "first_step_s": "first step s",
        "start_s": "start to first step s", "used_mib": "MiB in use", "planned_mib": "MiB planned",
        "versions": "versions", "sm_mhz": "SM MHz", "watts": "W"})
    jobs = {job["name"]: job for job in json.loads((session.data / "training/jobs.json").read_text())}
    # The first start may time matrix products; the second finds the choices in the user's cache.
    first = next(iter(jobs))
    jobs = {first: jobs[first], f"{first}, again with warm caches": jobs[first], **jobs}
    peers = {}
    for model in dict.fromkeys(job["model"] for job in jobs.values()):
        for mode in ("eager", "compile"):
            for mbs in next(job for job in jobs.values() if job["model"] == model)["peer_batches"]:
                peers[f"{model} PyTorch {mode} MBS {mbs}"] = (model, mode, mbs)
    # lmc and the peers of one model follow each other, so that they meet the same clocks.
    items = sorted([*jobs, *peers], key=lambda item: (item.split(" ")[0] != "llama1b", item in peers))
    if session.dry:
        print("  DRY RUN: neither lmc-run nor PyTorch trains these models")
    for item in report.items(items, seconds=60):
        if item in peers:
            peer(session, report, item, *peers[item], jobs)
        else:
            lmc(session, report, item, jobs[item])
    for model in dict.fromkeys(job["model"] for job in jobs.values()):
        compare(report, model, jobs, peers)
    return report


def lmc(session, report: Report, item: str, job: dict) -> None:
    name = f"training-{item.replace(' ', '-')}"
    out = session.build / name / datetime.datetime.now().strftime("%H%M%S")
    plan = session.data / "training" / job["plan"]
    data = tokens(session, job["vocabulary"], 4 * job["tokens_per_step"] + 1) if not session.dry else ""
    # Far more steps than are wanted: a run that ends saves a checkpoint of many gigabytes.
    command = [session.folder / "bin/lmc-run", plan, f"--out={out}", "--steps=1000",
               f'--set=data.train=["{data}"]', "--set=data.format=uint32"]
    began = datetime.datetime.now(datetime.timezone.utc)

    def read(_: str) -> list[dict]:
        lines = losses(out)
        counted = lines[WARM_UP:STEPS]
        rate = statistics.median(line["tokens_per_second"] for line in counted)
        first = lines[0]["step_seconds"]
        end = datetime.datetime.fromisoformat(lines[0]["time"].replace("Z", "+00:00"))
        return [{"tokens_per_second": rate, "mfu": rate * job["flops_per_token"] / job["peak_flops"],
                 "predicted": job["predicted"], "ratio": job["predicted"] / rate,
                 "step_ms": 1e3 * statistics.median(line["step_seconds"] for line in counted),
                 "first_step_s": first, "start_s": (end - began).total_seconds() - first,
                 "planned_mib": lines[0]["memory_bytes"] / 2**20, "loss": counted[-1]["loss"]}]

    def enough() -> bool:
        return (out / "metrics.jsonl").exists() and len(losses(out)) >= STEPS

    report.run(item, command, read, limit=200, until=enough)


def peer(session, report: Report, item: str, model: str, mode: str, mbs: int, jobs: dict) -> None:
    job = next(job for job in jobs.values() if job["model"] == model)

    def read(text: str) -> list[dict]:
        row = json_lines(text)[-1]
        rate = row["tokens_per_second"]
        return [{"tokens_per_second": rate, "mfu": rate * job["flops_per_token"] / job["peak_flops"],
                 "step_ms": row["step_ms"], "first_step_s": row["first_step_s"], "loss": row["loss"],
                 "versions": f"torch {row['torch']}, CUDA {row['cuda']}"}]

    command = [sys.executable, session.folder / "peer.py", json.dumps(job["shape"]), "--mode", mode,
               "--mbs", mbs, "--gas", max(1, job["gas"]), "--steps", STEPS - WARM_UP]
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
        report.fail(item, done.complaint())


def compare(report: Report, model: str, jobs: dict, peers: dict) -> None:
    rates = {row["item"]: row["tokens_per_second"] for row in report.rows if "tokens_per_second" in row}
    theirs = {item: rate for item, rate in rates.items() if item in peers and peers[item][0] == model}
    if theirs:
        best = max(theirs, key=theirs.get)
        for name in (name for name in jobs if jobs[name]["model"] == model and name in rates):
            report.notes.append(f"{name}: {rates[name]:.0f} tokens/s, {rates[name] / theirs[best]:.2f} of the "
                                f"best PyTorch that ran ({best}: {theirs[best]:.0f})")
