"""A run that hangs or gets slow says why, and goes on."""

import ctypes
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jobs import Job
from programs import INTERRUPTED, checkpoints, end_all, metrics
from reference import Model, Optimizer
from test_slots import events

JOB = Job(model=Model(num_hidden_layers=1), optimizer=Optimizer(decay_iters=100000), train_iters=100000,
          epoch_steps=4, settings={"checkpoint": {"interval": 20}})


class Lone:
    def __init__(self, programs, plan: Path, out: Path, *more: str, console: Path | None = None):
        self.out, self.log = out, out.parent / "stderr"
        self.log.touch()
        with (console or self.log).open("w") as stderr:
            self.process = programs.start("lmc-run", plan, f"--out={out}", *more, stderr=stderr)

    def wait_for_checkpoint_after(self, step: int) -> None:
        deadline = time.monotonic() + 120
        while max(checkpoints(self.out), default=0) <= step:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def hangs(self, kind: str) -> list[dict]:
        return [event for event in events(self.out, "hang") if event["kind"] == kind]

    def has(self, what, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None, self.log.read_text()
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        return True

    def says(self, text: str, seconds: float) -> bool:
        return self.has(lambda: text in self.log.read_text(), seconds)

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)


@pytest.fixture
def lone(programs):
    runs = []

    def start(*args, **how) -> Lone:
        runs.append(Lone(programs, *args, **how))
        return runs[-1]

    yield start
    end_all(run.process for run in runs)


class HeldThread:
    """Stops one thread of a process, and no other. https://man7.org/linux/man-pages/man2/ptrace.2.html"""

    SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000

    def __init__(self, thread: int):
        self.thread = thread
        self.call(self.SEIZE)
        self.call(self.INTERRUPT)
        os.waitpid(thread, self.WALL)

    def release(self) -> None:
        self.call(self.DETACH)

    def call(self, request: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(ctypes.c_long(request), ctypes.c_long(self.thread), None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")


def hold_until(run: Lone, found) -> None:
    """Holds the thread of the steps until `found()`, but not for good: it may just write to a log,
    which has a longer limit."""
    for _ in range(20):
        try:
            held = HeldThread(run.process.pid)
        except PermissionError:
            pytest.skip("this system does not let a process trace another (ptrace)")
        done = run.has(found, seconds=15)
        held.release()
        if done:
            return
        time.sleep(0.05)
    pytest.fail("no warning")


def test_what_hangs_is_named_and_the_run_goes_on(compiled, lone, tmp_path):
    run = lone(compiled(JOB), tmp_path / "run", "--hang-timeout=1")
    run.wait_for_checkpoint_after(0)

    def named() -> list[dict]:
        # A loaded machine may make other events: of the start, or in another activity.
        return [event for event in run.hangs("hangs")
                if event["step"] > 0 and event["activity"] in ("computing", "reading data", "saving")]

    hold_until(run, named)
    assert run.has(lambda: run.hangs("goes_on"), seconds=120)
    assert run.says("warning: the run goes on, after no progress for ", seconds=120)
    assert run.end() == INTERRUPTED
    assert all(f"step {event['step']}" in event["text"] for event in named())
    assert "warning: no progress for " in run.log.read_text()


def test_a_warning_that_nobody_can_read_does_not_end_the_run(compiled, lone, tmp_path):
    run = lone(compiled(JOB), tmp_path / "run", "--hang-timeout=1", console=Path("/dev/full"))
    run.wait_for_checkpoint_after(0)
    hold_until(run, lambda: run.hangs("hangs"))
    assert run.has(lambda: run.hangs("goes_on"), seconds=120)
    assert run.end() == INTERRUPTED


def test_a_slow_step_is_explained(compiled, lone, tmp_path):
    run = lone(compiled(replace(JOB, settings={})), tmp_path / "run")
    deadline = time.monotonic() + 120
    while not (run.out / "metrics.jsonl").exists() or len(metrics(run.out)) < 20:
        assert run.process.poll() is None and time.monotonic() < deadline, run.log.read_text()
        time.sleep(0.02)

    def slow() -> list[dict]:
        return [event for event in events(run.out, "slow_step")
                if event["seconds"] >= 2 and event["seconds"] - event["usual_seconds"] >= 1]

    for _ in range(10):
        run.process.send_signal(signal.SIGSTOP)
        time.sleep(2.1)
        run.process.send_signal(signal.SIGCONT)
        if run.has(slow, seconds=15):
            break
    assert run.end() == INTERRUPTED
    assert slow(), "no event"
    for event in slow():
        assert event["usual_seconds"] < event["seconds"] and event["step"] > 2
        assert event["causes"] and all(cause["cause"] and cause["text"] for cause in event["causes"])
    # There is no warning if work beside the steps explains most of the time.
    leading = {event["causes"][0]["cause"] for event in slow()}
    assert "times the usual" in run.log.read_text() or leading <= {"logs", "save", "validation"}


def test_a_stopped_process_is_no_hang(compiled, lone, tmp_path):
    """As after Ctrl-Z, or while a laptop sleeps."""
    run = lone(compiled(JOB), tmp_path / "run", "--hang-timeout=10")
    run.wait_for_checkpoint_after(0)
    run.process.send_signal(signal.SIGSTOP)
    time.sleep(12)
    run.process.send_signal(signal.SIGCONT)
    run.wait_for_checkpoint_after(max(checkpoints(run.out)))
    assert run.end() == INTERRUPTED
    assert "no progress" not in run.log.read_text() and not events(run.out, "hang")
