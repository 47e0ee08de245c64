"""Whether lmc runs on this GPU at all, within a minute: the driver and memory, one kernel of each template, one matrix
product of each kind, a captured graph, a sum by NCCL over one rank, and a training step. Small models train their first
step command by command, and what each command wrote is compared with what the SIMT executor computed of the very same
kernels when the folder was packed."""

import json
import re
import shutil

import failures
from sections.conformance import losses, nccl
from session import Report, call, devices_of, json_lines, on_one_gpu, show

# The largest relative difference of the loss of a step from the recorded one. How far the results of a command may be
# off is in smoke/jobs.json. Products and reductions add in other orders than the executor, and a value next to the
# border of two bf16 numbers is rounded to the other one.
LOSS = {"f32": 2e-6, "bf16": 1e-3}
CHILD_S = 25  # most seconds of a child process
SPARE_S = 1  # what a child leaves to the rest of the section


def name_of(row: dict, plain: list) -> str:
    """Returns the item of a command: a product by its kind (of Llama's, NT is
    forward, NN the gradient of x, TN that of the weights), a kernel by its template. The kernels of one command of
    attention, its gradient or the embedding's gradient are one item; `plain` are those of attention without tensor
    cores."""
    if row["kind"] == "gemm":
        layout = "".join("T" if row[f"transpose_{of}"] else "N" for of in "ab")
        return f"product {layout}" + (", adds" if row["accumulate"] else "") + (
            ", bias" if row["bias"] else "") + (", residual" if row.get("residual") else "")
    if row["kind"] == "launch":
        return "kernel " + re.sub(r"_\d+$", "", row["kernel"])  # "adamw" for "adamw_2"
    return f"kernel {row['kind']}" + (" (plain)" if row["kernel"] in plain else "")


def key(row: dict) -> tuple:
    """Returns what identifies a command of the first step."""
    return row["function"], row["run"], row["command"]


class Job:
    """A small model of smoke/jobs.json."""

    def __init__(self, session, facts: dict):
        self.session, self.name, self.dtype, self.loss = session, facts["name"], facts["dtype"], facts["loss"]
        folder = session.data / "smoke" / session.arch
        self.plan, self.record = folder / f"{self.name}.plan", folder / f"{self.name}.commands"
        self.launch = on_one_gpu(facts["ranks"])
        self.plain, self.tolerance = facts["plain"], facts["tolerance"]
        self.out = session.build / "smoke" / self.name
        self.rows: dict[tuple, dict] = {}  # what was compared
        self.died = False  # the comparison ended before its last command

    def call(self, *options: str):
        return call([self.session.lmc_run, self.plan, "--gemm=default", *self.launch,
                     f'--set=data.train=["{self.session.data / "smoke/train.bin"}"]', *options],
                    min(CHILD_S, self.session.seconds_left() - SPARE_S), env=nccl())

    def trains(self, report: Report, item: str, name: str, *options: str) -> bool:
        """Trains a step into the folder `name`, and returns whether lmc-run ended well."""
        shutil.rmtree(self.out / name, ignore_errors=True)
        done = self.call(f"--out={self.out / name}", "--steps=1", *options)
        if done.code != 0:
            report.fail(item, done.complaint(), done)
        return done.code == 0

    def items(self) -> dict[str, list[dict]]:
        """Returns the recorded commands of each item."""
        made: dict[str, list[dict]] = {}
        for row in json_lines(self.record.read_text())[1:]:
            if row["kind"] == "gemm" or row["kernel"]:
                name = name_of(row, self.plain)
                made.setdefault(f"{name}, {self.dtype}" if row["kind"] == "gemm" else name, []).append(row)
        return made

    def compare(self, report: Report) -> None:
        done = self.call(f"--compare-commands={self.record}", "--json",
                         f"--tolerance={self.tolerance}")
        self.compared = done
        for line in done.err.splitlines():
            if "warning" in line and f"{self.name}: {line}" not in report.notes:
                report.notes.append(f"{self.name}: {line}")
        self.rows = {key(row): row for row in map(json.loads, done.out.splitlines())}
        if done.code != 0 and all(row["ok"] for row in self.rows.values()):
            report.fail(f"commands of {self.name}", done.complaint(), done)
        else:
            self.died = False

    def first_loss(self, name: str) -> float:
        return losses(self.out / name)[0]["loss"]


def run(session) -> Report:
    report = Report(session, "smoke", {"item": "item", "difference": "difference", "commands": "commands", "ok": "ok",
                                       "what": "what"})
    report.notes.append("difference: the largest of a command's results from the SIMT executor's, an estimate of "
                        "relative L2")
    if why := session.why_not(everything=False):
        for item in report.items(["context", "memory", "kernels", "products", "graph", "nccl", "step"]):
            with report.guard(item):
                device(session, report, item) if item in ("context", "memory") else report.skip(item, why)
        return report
    made = [Job(session, facts) for facts in json.loads((session.data / "smoke/jobs.json").read_text())]
    made = [job for job in made if job.plan.exists()]  # some need a newer architecture
    jobs = {job.name: job for job in made}
    compared = [job for job in made if job.name != "nccl"]
    templates: dict[str, list] = {}  # item -> its jobs with the commands
    for job in compared:
        with report.guard(f"commands of {job.name}"):
            for item, rows in job.items().items():
                templates.setdefault(item, []).append((job, rows))
    kernels, products = (sorted(item for item in templates if item.startswith(what)) for what in ("kernel", "product"))
    # The step of `nccl` sums gradients over its one rank in a graph; the losses show the initial values, too.
    steps = {"graph": jobs["f32"], "nccl": jobs["nccl"], "step": jobs["f32"], "step in bf16": jobs["heads64"]}
    ran = False
    for item in report.items(["context", "memory", *kernels, *products, *steps], seconds=-3):
        with report.guard(item):
            if item in ("context", "memory"):
                device(session, report, item)
            elif not session.has_driver:
                report.gone_through(item)
            elif item == "graph":
                graph(report, steps[item])
            elif item in steps:
                step(report, item, steps[item])
            else:
                if not ran:
                    ran = True
                    for job in compared:
                        job.died = True  # until it is compared
                        if session.seconds_left() < 2 * SPARE_S:
                            report.fail(f"commands of {job.name}", "no time is left")
                            continue
                        with report.guard(f"commands of {job.name}"):
                            job.compare(report)
                commands(report, item, templates[item])
    return report


def well(report: Report, item: str, **figures) -> None:
    """Adds the row of an item that is right."""
    if report.session.dry:
        report.gone_through(item)
        print(f"  ok  {item}", flush=True)
        return
    row = {"item": item, "ok": True, **figures}
    report.rows.append(row)
    print(f"  ok  {item}" + "".join(f"  {name} {show(value)}" for name, value in figures.items()), flush=True)
    report.write()


def device(session, report: Report, item: str) -> None:
    """The items `context` and `memory`, from what `lmc-run --devices --json` printed."""
    if not session.has_driver:
        report.gone_through(item)
        return
    done, found = session.devices, devices_of(session.devices)
    memory = found["devices"][0].get("memory", {}) if found else {}
    if item == "context" and found:
        first = found["devices"][0]
        well(report, item, what=f"{first['name']}, compute capability {first['compute_capability']}, driver for CUDA "
             f"{found['cuda_driver']}" + "".join(f", {name} {library.get('version', 'not found')}"
                                                 for name, library in found["libraries"].items()))
    elif item == "memory" and memory.get("ok"):
        well(report, item, what=f"{memory['bytes'] >> 20} MiB there and back at "
             f"{2e-9 * memory['bytes'] / max(memory['seconds'], 1e-9):.1f} GB/s")
    else:
        report.fail(item, done.complaint(), done)


def commands(report: Report, item: str, parts: list) -> None:
    """A kernel or a product: all commands of it, in all models."""
    worst, wrong, missing, count = 0.0, [], [], 0
    for job, recorded in parts:
        for command in recorded:
            row = job.rows.get(key(command))
            if row is None:
                missing.append((job, command))
                continue
            count += 1
            if row["ok"]:
                worst = max(worst, row["difference"])
            else:
                wrong.append((job, row))
    if wrong:
        job, row = wrong[0]
        place = f"{row['function']} command {row['command']} ({row['op']}) of {job.name}"
        kernel = row["kernel"]
        # JSON has no infinity: other elements are finite than on the executor.
        off = "other elements are not finite" if row["difference"] is None else f"differs by {row['difference']:.2g}"
        report.fail(item, f"{place}: {off} (at most "
                    f"{job.tolerance:.0e}); {len(wrong)} of {count} commands differ", job.compared,
                    source=failures.source_of(job.plan, kernel) if kernel else None,
                    commands=[row for _, row in wrong[:20]])
    elif count:
        well(report, item, difference=worst, commands=count)
    elif died := [job for job, _ in missing if job.died]:
        # That its model's commands did not run has been reported.
        report.skip(item, f"not compared, because the commands of {died[0].name} did not run")
    else:
        job, command = missing[0]
        report.fail(item, f"lmc-run printed no line of a command of {job.name}", job.compared, commands=[command])


def graph(report: Report, job: Job) -> None:
    if job.trains(report, "graph", "graph") and job.trains(report, "graph", "eager", "--no-cuda-graphs"):
        replayed, eager = job.first_loss("graph"), job.first_loss("eager")
        if replayed == eager:
            well(report, "graph", what="the same loss as command by command, bit for bit")
        else:
            report.fail("graph", f"the loss is {replayed!r} with graphs and {eager!r} without")


def step(report: Report, item: str, job: Job) -> None:
    """Compares the loss of a step with the recorded one. Only right initial values give it."""
    if not job.trains(report, item, "step"):
        return
    loss, allowed = job.first_loss("step"), LOSS[job.dtype]
    off = abs(loss - job.loss) / abs(job.loss)
    if off <= allowed:
        well(report, item, difference=off, what=f"loss {loss:.6g}")
    else:
        report.fail(item, f"the loss is {loss!r}, and was {job.loss!r} when the folder was packed: "
                    f"differs by {off:.2g} (at most {allowed:.0e})")
