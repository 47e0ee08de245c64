"""A run that stands for a day, compressed: 100,000 small steps with saves, validations and exports, which is killed
20 times and loses its disk twice. Its results are those of a run without a fault, its memory and its descriptors stay
flat, and each file that it leaves is counted.

LMC_STANDING_STEPS is the number of steps; saves (one in 200 steps), validations (one in 500), kills and lost disks
follow from it. `./dev test long` sets 100,000. Without the variable, the tests take a short form of 2,000 steps.
"""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from jobs import Job
from programs import SUCCESS, checkpoint_digest, checkpoint_state, checkpoints, end_all, metrics
from reference import Model, Optimizer
from test_background_saves import events, faulty_disk
from test_restarts import children

STEPS = int(os.environ.get("LMC_STANDING_STEPS", 2000))
KILLS = max(3, STEPS // 5000)
WHOLE = 100_000
FAULTS = ("gone", "full")[:1 if STEPS < WHOLE else 2]  # of the disk, one after the other
SAVE_INTERVAL, VALIDATION_INTERVAL, KEEP = 200, 500, 5
EXPORT_INTERVAL, KEEP_EVERY = max(400, STEPS // 20), max(1000, STEPS // 10)

JOB = Job(
    model=Model(num_hidden_layers=1),
    optimizer=Optimizer(lr=1e-3, min_lr=1e-4, decay_iters=STEPS),
    train_iters=STEPS,
    epoch_steps=100,
    settings={"checkpoint": {"interval": SAVE_INTERVAL, "keep": KEEP, "keep_every": KEEP_EVERY,
                             "export_interval": EXPORT_INTERVAL, "background": True},
              "monitoring": {"validation_interval": VALIDATION_INTERVAL, "validation_iters": 2, "log_interval": 100,
                             "tensorboard": True}},
    tables=[("validation", {"name": "seen", "paths": ["train.bin"]})],
)

MIB = 1 << 20
ENOUGH = 12  # samples of a process
STUCK = 600  # seconds without a new step, after which a run counts as stuck


def last_step(out: Path) -> int:
    """The step of the last whole line of metrics.jsonl; 0 if there is none."""
    try:
        with (out / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 16384))
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return 0
    return json.loads(lines[-1])["step"] if lines else 0


@dataclass
class Sample:
    """What a process holds at a moment."""

    step: int
    resident: int  # bytes
    descriptors: set[tuple[str, str]]  # number, and the file behind it, without the files of unfinished saves
    threads: set[str]

    @staticmethod
    def of(pid: int, step: int) -> "Sample | None":
        """None once the process has ended."""
        try:
            fields = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                          if ":\t" in line)
            if "VmRSS" not in fields:
                return None
            descriptors = set()
            for number in os.listdir(f"/proc/{pid}/fd"):
                try:
                    file = os.readlink(f"/proc/{pid}/fd/{number}")
                except FileNotFoundError:
                    continue  # it was closed meanwhile
                if ".partial" not in file:
                    descriptors.add((number, file))
            return Sample(step, int(fields["VmRSS"].split()[0]) * 1024, descriptors,
                          set(os.listdir(f"/proc/{pid}/task")))
        except (FileNotFoundError, ProcessLookupError):
            return None


@dataclass
class Watched:
    """Samples of one process, from its warm-up to its end."""

    name: str
    samples: list[Sample] = field(default_factory=list)

    def grown(self) -> list[str]:
        """What a process holds at its end and did not hold at first. It holds what it has in all samples of a third: a
        save has its files and its thread for a part of that time only."""
        third = len(self.samples) // 3
        first, last = self.samples[:third], self.samples[-third:]
        found = []
        if (more := last[-1].resident - first[0].resident) > MIB:
            found.append(f"{more / MIB:.2f} MiB of memory")
        for held in ("descriptors", "threads"):
            before, after = (set.intersection(*(getattr(sample, held) for sample in part)) for part in (first, last))
            found += [f"{held}: {each}" for each in sorted(after - before)]
        return found

    def figures(self) -> str:
        resident = [sample.resident / MIB for sample in self.samples]
        last = self.samples[-1]
        return (f"{self.name}: {len(resident)} samples from step {self.samples[0].step} to {last.step}: resident "
                f"{resident[0]:.2f} MiB at first, {resident[-1]:.2f} at last, {min(resident):.2f} to {max(resident):.2f}; "
                f"{len(last.descriptors)} descriptors, {len(last.threads)} threads")


class StandingRun:
    """lmc-run --restarts, and what a day does to it."""

    def __init__(self, programs, plan: Path, out: Path, environment: dict[str, str]):
        self.out, self.log = out, out.parent / "stderr"
        with self.log.open("w") as log:
            self.process = programs.start("lmc-run", plan, f"--out={out}", "--threads=1", "--restarts=1000",
                                          stderr=log, env={**environment, "LMC_DISK": str(out)})
        self.killed = 0

    def ended(self) -> bool:
        return self.process.poll() is not None

    def waits_for(self, done, what: str) -> bool:
        """False if the run has ended by itself before."""
        newest, since = last_step(self.out), time.monotonic()
        while not done():
            if self.ended():
                return False
            if (step := last_step(self.out)) != newest:
                newest, since = step, time.monotonic()
            assert time.monotonic() - since < STUCK, f"no step in {STUCK} seconds, waiting for {what}"
            time.sleep(0.003)
        return True

    def kill(self) -> bool:
        pids = children(self.process.pid)
        if not pids:
            return False
        before = self.restarts()
        try:
            os.kill(pids[0], signal.SIGKILL)
        except ProcessLookupError:
            return False
        if not self.waits_for(lambda: self.restarts() > before, "a restart"):
            return False
        self.killed += 1
        return self.waits_for(lambda: children(self.process.pid), "a process")

    def restarts(self) -> int:
        """By the console, which is on another disk."""
        return self.log.read_text().count("; it starts again in ")

    def failed_saves(self) -> int:
        return self.log.read_text().count(" not saved: ")

    def loses_its_disk(self, switch: Path) -> bool:
        """Until three saves have failed, or the run has come to its end, which fails without a disk."""
        failed, restarts, recorded = self.failed_saves(), self.restarts(), len(events(self.out, "save_failed"))

        def has_failed() -> bool:
            return self.restarts() > restarts

        switch.touch()
        more = self.waits_for(lambda: self.failed_saves() >= failed + 3 or has_failed(), "three failed saves")
        saved = max(checkpoints(self.out), default=0)
        switch.unlink()
        # Events that could not be written are in the run's memory until the next one. A kill before would lose them.
        return (more and self.waits_for(lambda: max(checkpoints(self.out), default=0) > saved, "a checkpoint")
                and self.waits_for(lambda: len(events(self.out, "save_failed")) - recorded >= self.failed_saves() - failed
                                   or has_failed(), "all events"))

    def stands(self) -> tuple[Watched, Watched]:
        """Watches the processes of the run to the end, at most 20 times a second. The warm-up is an eighth of all steps,
        which has an export, and what else a run does."""
        begin = last_step(self.out)
        pid = (children(self.process.pid) or [0])[0]
        run, parent = Watched("the run"), Watched("its parent")
        since, newest = time.monotonic(), begin
        while not self.ended():
            step = last_step(self.out)
            if step != newest:
                newest, since = step, time.monotonic()
            assert time.monotonic() - since < STUCK, f"no step in {STUCK} seconds"
            if begin + STEPS // 8 <= step < STEPS:
                for watched, process in ((run, pid), (parent, self.process.pid)):
                    if (sample := Sample.of(process, step)) is not None:
                        watched.samples.append(sample)
            time.sleep(min(1, 0.05 * STEPS / 5000))
        return run, parent


def in_the_first_half() -> list[tuple[int, str]]:
    """(step, what happens from this step on): "kill", "kill soon" after the kill before, or a fault of the disk."""
    random = np.random.default_rng(STEPS)
    what = ["kill soon" if random.integers(4) == 0 else "kill" for _ in range(KILLS)]
    happenings = [(int(random.integers(1, STEPS // 2)), each) for each in (*what, *FAULTS)]
    return sorted(happenings)


def without_times(line: dict) -> dict:
    """What must be equal in the lines of two runs."""
    return {key: line[key] for key in ("step", "loss", "lr", "grad_norm", "update_ratio", "tokens", "validation")
            if key in line}


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def multiples(interval: int) -> set[int]:
    return set(range(interval, STEPS + 1, interval))


def kept_of(saved: set[int]) -> set[int]:
    """The newest ones and the permanent ones."""
    return set(sorted(saved)[-KEEP:]) | {step for step in saved if step % KEEP_EVERY == 0}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def assert_no_remains(out: Path) -> None:
    remains = [path for path in out.rglob("*") if path.name.startswith(".") or ".partial" in path.name
               or ".tmp" in path.name or path.name.endswith((".damaged", ".diverged"))]
    assert not remains


@pytest.fixture
def whole(programs, compiled, tmp_path):
    """A run of the job without a fault, whose steps wait for its saves."""
    out = tmp_path / "whole"
    process = programs.start("lmc-run", compiled(JOB), f"--out={out}", "--threads=1", "--set", "checkpoint.background=false")
    try:
        assert process.wait() == SUCCESS
    finally:
        end_all([process])
    return out


def test_what_grows_is_found():
    def sample(step: int) -> Sample:
        return Sample(step, 30 * MIB, {("3", "metrics.jsonl")}, {"7"})

    def watched(change) -> list[str]:
        samples = [sample(step) for step in range(ENOUGH)]
        for each in samples:
            change(each)
        return Watched("a run", samples).grown()

    def grows(each: Sample) -> None:
        each.resident += each.step * MIB // 8

    assert watched(lambda each: None) == []
    assert watched(grows) == ["1.38 MiB of memory"]
    assert watched(lambda each: each.step > 5 and each.descriptors.add(("4", "state.json"))) == [
        "descriptors: ('4', 'state.json')"]
    assert watched(lambda each: each.step > 5 and each.threads.add("8")) == ["threads: 8"]
    assert watched(lambda each: each.step % 3 == 0 and each.threads.add("8")) == [], "a thread of each save"


def test_a_run_that_stands_for_a_day_is_one_run(programs, compiled, tmp_path, faulty_disk, whole):
    began, random = time.monotonic(), np.random.default_rng([STEPS, 1])
    out = tmp_path / "run"
    environment, switches = dict(os.environ), {}
    for fault in FAULTS:
        added, switches[fault] = faulty_disk(fault)
        environment.update(added)
    run = StandingRun(programs, compiled(JOB), out, environment)
    try:
        lost = 0
        for step, what in in_the_first_half():
            if what == "kill soon" and run.killed > 0:
                time.sleep(float(random.uniform(0, 0.3)))
            else:
                run.waits_for(lambda: last_step(out) >= step, f"step {step}")
                time.sleep(float(random.uniform(0, 0.02)))
            if what.startswith("kill"):
                run.kill()
            else:
                lost += run.loses_its_disk(switches[what])
        watched = run.stands()
        assert run.process.wait() == SUCCESS, run.log.read_text()[-4000:]
    finally:
        end_all([run.process])
    print(f"{STEPS} steps, {run.killed} kills, {lost} lost disks: {time.monotonic() - began:.0f} s")
    if STEPS < WHOLE and not (run.killed and lost):
        pytest.skip("the machine is too busy: the short run had ended before something happened to it")
    assert run.killed > 0 and lost > 0
    for process in watched:
        # A busy machine may leave few samples of the short form.
        if STEPS >= WHOLE or len(process.samples) >= ENOUGH:
            print(process.figures())
            assert process.grown() == []

    # The results.
    expected = {line["step"]: without_times(line) for line in metrics(whole)}
    assert sorted(expected) == list(range(1, STEPS + 1))
    lines = lines_of(out / "metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1)), "a line for each step, in order"
    assert all(without_times(line) == expected[line["step"]] for line in lines)
    assert {line["step"] for line in lines if "validation" in line} >= multiples(VALIDATION_INTERVAL)
    assert checkpoint_digest(checkpoints(out)[STEPS]) == checkpoint_digest(checkpoints(whole)[STEPS])

    # The files of a run without a fault.
    assert [event["step"] for event in events(whole, "checkpoint")] == sorted(multiples(SAVE_INTERVAL))
    assert names(whole / "checkpoints") == {str(step) for step in kept_of(multiples(SAVE_INTERVAL))}
    assert names(whole / "exports") == {str(step) for step in multiples(EXPORT_INTERVAL)}
    assert_no_remains(whole)

    # The files of this one. A kill between a checkpoint and its event leaves no event, but the next start
    # goes on from there.
    assert_no_remains(out)
    starts = events(out, "start")
    begins = {event["step"] for event in starts}
    saved = {event["step"] for event in events(out, "checkpoint")} | (begins - {0})
    failed, late = ({event["step"] for event in events(out, kind)} for kind in ("save_failed", "late_save"))
    assert multiples(SAVE_INTERVAL) <= saved | failed | late
    late_permanent = {step for step, folder in checkpoints(out).items()
                      if "stands_for" in checkpoint_state(folder).get("extra", {})}
    assert names(out / "checkpoints") == {str(step) for step in kept_of(saved) | late_permanent}
    exported = {event["step"] for event in events(out, "export")}
    said = (out / "log.txt").read_text()
    there = {int(name) for name in names(out / "exports")}
    assert exported <= there <= exported | begins, "beside an export without its event, the run goes on from its step"
    missing = {step for step in multiples(EXPORT_INTERVAL) - there - late
               if f"export of step {step} not written" not in said}
    assert missing <= begins, "an export is missing without a reason"
    assert len(events(out, "restart")) == run.restarts() >= run.killed and len(starts) <= run.restarts() + 1
    assert len(names(out / "plans")) == 1 and len(names(out / "tensorboard")) <= len(starts)

    # What a resume has taken back are the same steps.
    undone = sorted((out / "undone").iterdir()) if (out / "undone").exists() else []
    assert len(undone) <= run.restarts()
    for folder in undone:
        assert names(folder) <= {"metrics.jsonl", "updates.jsonl"}
        for line in lines_of(folder / "metrics.jsonl") if (folder / "metrics.jsonl").exists() else []:
            assert without_times(line) == expected[line["step"]]

    # The record of events has no more than what happened.
    records = {folder: Counter(line["event"] for line in lines_of(folder / "events.jsonl")) for folder in (whole, out)}
    print(f"events: {dict(records[out])}; without a fault {dict(records[whole])}")
    slow = sum(records[out][kind] for kind in ("late_save", "lost_save", "slow_save", "slow_step"))  # by the machine
    most = records[whole].total() + 20 * (run.restarts() + 1) + 3 * records[out]["save_failed"] + 2 * slow
    assert records[out].total() <= most
    assert (out / "events.jsonl").stat().st_size <= 1000 * most
