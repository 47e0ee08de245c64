"""Whole steps of llama1b, of Mistral-7B's layers and of a batch whose logits have 2^31 elements, by `lmc-run --bench
--trace`: how long a step takes, and of that each kind of work. One plan has attention by mma.sync, as all had before."""

import json
import lzma
import re

from sections.training import bench_command, benched, ways
from session import Report

STEPS, STEPS_OF_GAS_8 = 10, 4  # of `lmc-run --bench`
FEW_STEPS = 2  # of a job that only has to run
# The weights stay as they are: the loss of every step is that of the initial weights, whatever the number of steps. The
# mean over 32,768 random tokens is within a hundredth of that over four times as many.
UNCHANGED = ("--set=lr_schedule.lr=0", "--set=lr_schedule.min_lr=0")
SAME_LOSS = 0.05
KINDS = (("cross_entropy", "loss_ms"), ("swiglu", "swiglu_ms"), ("norm", "norms_ms"), ("adamw", "adamw_ms"))


def kinds(trace: dict) -> dict:
    """Returns the milliseconds of each kind of work in the step of a trace."""
    times: dict[str, float] = {}
    for event in trace["traceEvents"]:
        if event["ph"] != "X" or event["cat"] == "function":
            continue
        category, kernel = event["cat"].lower(), event["args"].get("kernel", "")
        if category in ("linearswiglu", "swiglulineargrad"):
            name = "products_ms"  # with the kernel behind the product, or without
        elif category in ("gemm", "attention", "attention_grad", "attentiongrad"):
            name = {"gemm": "products_ms", "attention": "attention_ms"}.get(category, "attention_grad_ms")
        else:
            name = next((kind for part, kind in KINDS if part in kernel), "others_ms")
        times[name] = times.get(name, 0.0) + 1e-3 * event["dur"]
    return times


def run(session) -> Report:
    columns = dict.fromkeys(("products_ms", "attention_ms", "attention_grad_ms", "loss_ms", "swiglu_ms", "norms_ms",
                             "adamw_ms", "others_ms"))
    report = Report(session, "steps", {
        "item": "plan", "tokens_per_second": "tokens/s", "mfu": "MFU", "predicted": "predicted tokens/s",
        "ratio": "predicted / measured", "step_ms": "step ms", "loss": "loss",
        **{key: key[:-3].replace("_", " ") + " ms" for key in columns}, "planned_mib": "MiB planned",
        "allocated_mib": "MiB allocated", "sm_mhz": "SM MHz", "watts": "W"})
    jobs = {job["name"]: job for job in json.loads((session.data / "steps/jobs.json").read_text())}
    if session.dry:
        print("  DRY RUN: lmc-run trains none of these models")
    why = session.why_not(everything=True)
    for item in report.items(jobs, seconds=15):
        if why:
            report.skip(item, why)
            continue
        with report.guard(item):
            step(session, report, item, jobs[item])
    rates = {row["item"]: row["tokens_per_second"] for row in report.rows if "tokens_per_second" in row}
    first = next(iter(jobs))
    for item, rate in rates.items():
        if item != first and first in rates and item.startswith(("llama1b", "fp8")):
            report.notes.append(f"{item}: {rate / rates[first]:.3f} times the tokens/s of {first}")
    # A session may run the section in parts.
    session.losses.update({row["item"]: row["loss"] for row in report.rows if "loss" in row})
    losses, whole = session.losses, next((item for item in jobs if "MBS 64" in item), None)
    if whole in rates and first in losses and not abs(losses[whole] - losses[first]) < SAME_LOSS:
        report.fail(whole, f"its loss is {losses[whole]:.4f}, that of {first} {losses[first]:.4f}")
    return report


def step(session, report: Report, item: str, job: dict) -> None:
    name = "steps-" + re.sub(r"\W+", "-", item)
    trace = session.build / f"{name}.trace.json"
    trace.unlink(missing_ok=True)
    command = bench_command(session, session.data / "steps" / job["plan"],
                            FEW_STEPS if "MBS 64" in item else STEPS if job["gas"] < 8 else STEPS_OF_GAS_8,
                            f"--trace={trace}", *UNCHANGED)

    def read(text: str) -> list[dict]:
        report.notes.extend(ways(text, item))
        return [{**benched(text, job), **kinds(json.loads(trace.read_text()))}]

    if report.run(item, command, read, limit=60):
        kept = session.out / f"{name}.trace.json.xz"
        try:
            kept.write_bytes(lzma.compress(trace.read_bytes(), preset=1))
        except OSError as error:
            session.print_once(f"cannot write {kept}: {error.strerror or error}")
