"""The GPU against the CPU: small models train as the CPU trained them when the folder was packed; graphs
and eager execution, and a run and its resumption, agree bit for bit; memory is what was planned; and one
model is clean under compute-sanitizer."""

import json
import math
import os
import shutil
import struct
from array import array
from pathlib import Path

import failures
from session import Report, call, on_one_gpu, package_library

# Allowed differences from the CPU: of a step's loss, relative; of a gradient and of the weights after
# the last step, the relative L2 norm. Both sides round to bf16 at other places, and sum in other orders.
# The host driver (test/hostdriver) is off by at most 1e-7, 2e-6 and 2.4e-5 in f32, and 2.7e-4, 2.1e-2
# and 2.4e-2 in bf16: a bias starts from 0, and so is as far off as its gradients are.
TOLERANCES = {"f32": {"loss": 2e-6, "gradients": 2e-5, "weights": 1e-4},
              "bf16": {"loss": 1e-3, "gradients": 4e-2, "weights": 5e-2}}
SANITIZED = ("memcheck", "racecheck", "initcheck")
# How each run of a job differs from the first.
RUNS = {"graphs": [], "eager": ["--no-cuda-graphs"], "resumed": []}


def tensors(path: Path) -> dict[str, array]:
    """Returns the tensors of a safetensors file, which are f32."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    made = {}
    for name, entry in header.items():
        if entry["dtype"] != "F32":
            raise ValueError(f"{path.name}: {name} is {entry['dtype']}")
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        made[name] = array("f", data[begin:end])
    return made


def distance(got: Path, wanted: Path) -> tuple[float, str]:
    """Returns the largest relative L2 distance of a tensor, and its name."""
    ours, theirs = tensors(got), tensors(wanted)
    if ours.keys() != theirs.keys():
        raise ValueError(f"{got.name}: other tensors than the CPU's")
    worst = (0.0, "")
    for name, values in ours.items():
        error = math.fsum((a - b) ** 2 for a, b in zip(values, theirs[name]))
        norm = math.fsum(b * b for b in theirs[name])
        off = math.sqrt(error / norm) if norm else math.sqrt(error)
        worst = max(worst, (off if off == off else math.inf, name))
    return worst


def losses(out: Path) -> list[dict]:
    """Returns the lines of a run's steps; one that is being written is left out."""
    lines = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n") and '"loss"' in line]


def same_bits(one: Path, other: Path, step: int) -> list[str]:
    """Returns what differs between two runs that end with step `step`."""
    wrong = [f"{key} of step {a['step']}" for key in ("loss", "grad_norm")
             for a, b in zip(losses(one), losses(other)) if a[key] != b[key]]
    wrong += [f"{len(losses(out))} steps instead of {step} in {out.name}" for out in (one, other)
              if len(losses(out)) != step]
    names = [path.name for path in (one / f"checkpoints/{step}").glob("*.safetensors")]
    if not names:
        wrong.append(f"there is no checkpoint in {one.name}")
    return wrong + [name for name in sorted(names) if (one / f"checkpoints/{step}/{name}").read_bytes() !=
                    (other / f"checkpoints/{step}/{name}").read_bytes()]


def nccl() -> dict[str, str]:
    """Returns the variable that names NCCL, if it is only in a Python package, as PyTorch brings it."""
    found = package_library("nccl", "libnccl.so.2")
    return {"LMC_NCCL": found} if found and "LMC_NCCL" not in os.environ else {}


class Job:
    """A job of conformance/jobs.json, with the folder of each of its runs."""

    def __init__(self, session, report: Report, facts: dict):
        self.session, self.report, self.facts = session, report, facts
        self.name, self.steps = facts["name"], facts["steps"]
        self.files = session.data / "conformance"
        self.out = session.build / "conformance" / self.name
        plans = self.files if session.arch == session.manifest["arch"] else self.files / session.arch
        # Products by a fixed choice: those that are timed may differ from run to run.
        self.command = [session.lmc_run, plans / f"{self.name}.plan", "--gemm=default", *on_one_gpu(facts["ranks"]),
                        f'--set=data.train=["{self.files / "train.bin"}"]']

    def train(self, item: str, name: str, *extra) -> bool:
        """Trains into the folder `name`, and returns whether lmc-run ended well."""
        done = call([*self.command, f"--out={self.out / name}", *RUNS[name], *extra],
                    min(120 if not self.session.dry else 300, self.session.seconds_left()), env=nccl())
        if done.code != 0:
            self.report.fail(item, done.complaint(), done)
        for line in (done.err + done.out).splitlines():
            if "warning" in line and f"{self.name}: {line}" not in self.report.notes:
                self.report.notes.append(f"{self.name}: {line}")
        return done.code == 0

    def compare(self, item: str, name: str) -> None:
        out = self.out / name
        shutil.rmtree(out, ignore_errors=True)
        gradients = out.with_suffix(".gradients.safetensors")
        extra = [f"--dump-gradients={gradients}"] if name == "graphs" else []
        out.parent.mkdir(parents=True, exist_ok=True)
        halves = [self.steps // 2, self.steps] if name == "resumed" else [self.steps]
        if not all(self.train(item, name, f"--steps={steps}", *extra) for steps in halves):
            return
        if name == "graphs":
            figures, wrong = self.against_cpu(out, gradients)
        else:
            if not (self.out / "graphs" / "metrics.jsonl").exists() and not self.train(
                    item, "graphs", f"--steps={self.steps}"):
                return
            wrong = same_bits(self.out / "graphs", out, self.steps)
            figures = {"bits": not wrong}
        if wrong:
            self.report.fail(item, "differs: " + ", ".join(wrong[:5]), command=[str(part) for part in self.command],
                             differs=wrong, figures=figures,
                             inputs=failures.inputs_of([str(part) for part in self.command]))
        if self.session.dry:
            self.report.gone_through(item)
            if not wrong:
                print(f"  {item}: agrees, on the stand-in for the driver")
        else:
            self.report.add(item, **figures)

    def against_cpu(self, out: Path, gradients: Path) -> tuple[dict, list[str]]:
        lines, cpu = losses(out), self.facts
        off = max(abs(line["loss"] - loss) / abs(loss) if line["loss"] == line["loss"] else math.inf
                  for line, loss in zip(lines, cpu["losses"]))
        gradient, worst = distance(gradients, self.files / f"{cpu['reference']}.gradients.safetensors")
        weights, _ = distance(out / f"checkpoints/{self.steps}/model.safetensors",
                              self.files / f"{cpu['reference']}.model.safetensors")
        figures = {"loss": off, "gradients": gradient, "weights": weights, "worst": worst,
                   "memory": lines[-1]["memory_bytes"],
                   "planned": cpu.get("others", {}).get(self.session.arch, cpu["planned_bytes"])}
        allowed = TOLERANCES[cpu["dtype"]]
        wrong = [f"{key} by {figures[key]:.2g} (at most {limit:.0e})" for key, limit in allowed.items()
                 if not figures[key] <= limit]
        if len(lines) != self.steps:
            wrong.append(f"{len(lines)} steps instead of {self.steps}")
        if figures["memory"] != figures["planned"]:
            wrong.append(f"memory: {figures['memory']} bytes, planned {figures['planned']}")
        return figures, wrong


def run(session) -> Report:
    report = Report(session, "conformance", {
        "item": "job", "loss": "loss", "gradients": "gradients", "worst": "worst gradient", "weights": "weights",
        "bits": "same bits", "memory": "bytes", "planned": "planned"})
    report.notes.append("loss, gradients and weights: largest relative difference from the CPU; "
                        "allowed: " + json.dumps(TOLERANCES))
    every = json.loads((session.data / "conformance/jobs.json").read_text())
    why, main = session.why_not(everything=False), session.manifest["arch"]
    jobs = {job["name"]: job for job in every if session.arch in (None, main, *job.get("others", {}))}
    if why or len(jobs) < len(every):
        for job in every:
            if why or job["name"] not in jobs:
                report.skip(job["name"], why or f"it is packed for {main} only; this GPU runs plans for {session.arch}")
    if why:
        return report
    items = [f"{job} {name}" for job in jobs for name in RUNS]
    small = next(iter(jobs))
    if session.dry:
        # A stand-in for the driver computes on the host, slowly: one job, one with biases in bf16, and
        # those with collectives must do.
        items = [*(f"{small} {name}" for name in RUNS), *(f"{job} graphs" for job in (
            "biases-bf16-gas4", "two-ranks-f32", *(["nccl-f32-gas2"] if "LMC_NCCL" in os.environ else []))
            if job in jobs)]
    elif shutil.which("compute-sanitizer"):
        items += [f"{tool} {small}" for tool in SANITIZED]
    else:
        report.notes.append("compute-sanitizer is not on this machine, and did not run")
    made = {}
    for item in report.items(items, seconds=20):
        first, second = item.split(" ")
        if not session.has_driver:
            report.gone_through(item)
        elif first in SANITIZED:
            out = session.build / "conformance" / first
            shutil.rmtree(out, ignore_errors=True)
            job = made.setdefault(second, Job(session, report, jobs[second]))
            report.run(item, ["compute-sanitizer", "--tool", first, "--error-exitcode", "9", *job.command,
                              f"--out={out}", "--no-cuda-graphs", "--steps=1"],
                       lambda text: [{"bits": None}], limit=240)
        else:
            with report.guard(item):
                if first not in made:
                    made[first] = Job(session, report, jobs[first])
                made[first].compare(item, second)
    return report
