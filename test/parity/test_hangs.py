"""A run that hangs or gets slow says why, and goes on."""

import ctypes
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jobs import Job
from programs import INTERRUPTED, checkpoints, metrics
from reference import Model, Optimizer
from test_slots import events

JOB = Job(model=Model(num_hidden_layers=1), optimizer=Optimizer(decay_iters=100000), train_iters=100000,
          epoch_steps=4, settings={"checkpoint": {"interval": 20}})


class Lone:
    def __init__(self, programs, plan: Path, out: Path, *more: str):
        self.out, self.log = out, out.parent / "stderr"
        with self.log.open("w") as stderr:
            self.process = programs.start("lmc-run", plan, f"--out={out}", *more, stderr=stderr)

    def wait_for_checkpoint_after(self, step: int) -> None:
        deadline = time.monotonic() + 120
        while max(checkpoints(self.out), default=0) <= step:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def says(self, text: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while text not in self.log.read_text():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        return True

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)


@pytest.fixture
def lone(programs):
    runs = []

    def start(*args) -> Lone:
        runs.append(Lone(programs, *args))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()


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


def test_what_hangs_is_named_and_the_run_goes_on(compiled, lone, tmp_path):
    run = lone(compiled(JOB), tmp_path / "run", "--hang-timeout=1")
    run.wait_for_checkpoint_after(0)
    for _ in range(20):
        try:
            held = HeldThread(run.process.pid)
        except PermissionError:
            pytest.skip("this system does not let a process trace another (ptrace)")
        # It may just write to a log, which has a longer limit.
        found = run.says("warning: no progress for ", seconds=8)
        held.release()
        if found:
            break
        time.sleep(0.05)
    assert found, "no warning"
    assert run.says("warning: the run goes on, after no progress for ", seconds=60)
    assert run.end() == INTERRUPTED
    hangs, goes_on = events(run.out, "hang")[:2]
    assert hangs["kind"] == "hangs" and goes_on["kind"] == "goes_on"
    assert hangs["step"] > 0 and f"step {hangs['step']}" in hangs["text"]
    assert hangs["activity"] in ("computing", "reading data", "saving"), hangs


def test_a_slow_step_is_explained(compiled, lone, tmp_path):
    run = lone(compiled(replace(JOB, settings={})), tmp_path / "run")
    deadline = time.monotonic() + 120
    while not (run.out / "metrics.jsonl").exists() or len(metrics(run.out)) < 20:
        assert run.process.poll() is None and time.monotonic() < deadline, run.log.read_text()
        time.sleep(0.02)

    def slow() -> list[dict]:
        return [event for event in events(run.out, "slow_step") if event["seconds"] >= 2]

    for _ in range(10):
        run.process.send_signal(signal.SIGSTOP)
        time.sleep(2.1)
        run.process.send_signal(signal.SIGCONT)
        time.sleep(1)
        if slow():
            break
    assert run.end() == INTERRUPTED
    event = slow()[0]
    assert event["usual_seconds"] < event["seconds"] and event["step"] > 2
    assert event["causes"] and all(cause["cause"] and cause["text"] for cause in event["causes"])
    assert "times the usual" in run.log.read_text() or event["causes"][0]["cause"] == "logs"


def test_a_stopped_process_is_no_hang(compiled, lone, tmp_path):
    """As after Ctrl-Z, or while a laptop sleeps."""
    run = lone(compiled(JOB), tmp_path / "run", "--hang-timeout=3")
    run.wait_for_checkpoint_after(0)
    run.process.send_signal(signal.SIGSTOP)
    time.sleep(5)
    run.process.send_signal(signal.SIGCONT)
    run.wait_for_checkpoint_after(max(checkpoints(run.out)))
    assert run.end() == INTERRUPTED
    assert "no progress" not in run.log.read_text() and not events(run.out, "hang")
