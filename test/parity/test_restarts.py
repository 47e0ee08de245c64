"""lmc-run --restarts: a run that was killed or that failed is started again, and a mistake is not."""

import os
import re
import resource
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jobs import Job
from programs import (FAILURE, INTERRUPTED, SUCCESS, USER_ERROR, checkpoint_digest, checkpoints, losses)
from reference import Model, Optimizer
from test_ranks import JOB as RANKS_JOB
from test_ranks import options
from test_slots import events

JOB = Job(model=Model(num_hidden_layers=1), optimizer=Optimizer(decay_iters=100000), train_iters=100000,
          epoch_steps=4, settings={"checkpoint": {"interval": 20, "keep": 0}})


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


class Supervised:
    """lmc-run --restarts in the background."""

    def __init__(self, programs, out: Path, *args: object, stderr: int | None = None):
        self.out, self.log = out, out.parent / "stderr"
        with self.log.open("w") as log:
            self.process = programs.start("lmc-run", *args, f"--out={out}",
                                          stderr=log if stderr is None else stderr)

    def wait_for(self, what, *, seconds: float = 120):
        deadline = time.monotonic() + seconds
        while not (found := what()):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return found

    def run_after(self, step: int) -> int:
        """Waits for a checkpoint after the step. Returns the process of the run."""
        self.wait_for(lambda: max(checkpoints(self.out), default=0) > step)
        return self.wait_for(lambda: children(self.process.pid))[0]

    def end(self) -> int:
        return self.process.wait(timeout=120)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def supervised(programs):
    runs = []

    def start(*args, **how) -> Supervised:
        runs.append(Supervised(programs, *args, **how))
        return runs[-1]

    yield start
    for run in runs:
        run.kill()


def test_a_killed_run_starts_again_and_is_one_run(programs, compiled, supervised, tmp_path):
    """Progress resets the count: two kills and one restart. What only the first start may do, as
    --resume=none, is not repeated."""
    plan, out = compiled(JOB), tmp_path / "run"
    run = supervised(out, plan, "--restarts=1", "--resume=none", "--max-hours=10h")
    saved = 0
    for number in (1, 2):
        os.kill(run.run_after(saved), signal.SIGKILL)
        run.wait_for(lambda: len(events(out, "restart")) == number)
        # A slow save may leave the newest checkpoint behind the newest step, and only a step beyond
        # that one is progress.
        saved = events(out, "restart")[-1]["step"]
        assert saved >= max(checkpoints(out))
    run.run_after(saved)
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == INTERRUPTED, run.log.read_text()
    restarts = events(out, "restart")
    assert [event["number"] for event in restarts] == [1, 2]
    assert all(event["signal"] == 9 and event["without_progress"] == 1 for event in restarts)
    assert len(events(out, "start")) == 3
    said = run.log.read_text()
    assert said.count("the run has ended by signal 9 (Killed") == 2
    assert (out / "log.txt").read_text().count("it starts again in 1 s (restart 1 of 1 without progress)") == 2
    limits = re.findall(r"the run saves and ends before (\S+) \(--max-hours=10h\)",
                        (out / "log.txt").read_text())
    assert len(limits) == 3 and len(set(limits)) == 1, "the limit is that of all starts together"

    last = max(checkpoints(out))
    whole = tmp_path / "whole"
    programs.run("lmc-run", plan, f"--out={whole}", f"--steps={last}").ok()
    assert losses(out) == losses(whole)
    assert checkpoint_digest(checkpoints(out)[last]) == checkpoint_digest(checkpoints(whole)[last])


@pytest.mark.parametrize("victim", ["rank", "launcher"])
def test_many_ranks_start_again(compiled, supervised, tmp_path, victim):
    """Ranks that outlive their launcher have ended before the next start."""
    job = replace(RANKS_JOB, compute_dtype="f32", train_iters=100000, epoch_steps=10,
                  settings={"checkpoint": {"interval": 5}})
    out = tmp_path / "run"
    run = supervised(out, compiled(job, *options("zero3", 1, 2, 1)), "--nproc=2", "--threads=1",
                     "--restarts=1")
    launcher = run.run_after(0)
    ranks = run.wait_for(lambda: children(launcher))
    os.kill(ranks[1] if victim == "rank" else launcher, signal.SIGKILL)
    run.wait_for(lambda: events(out, "restart"))
    run.run_after(max(checkpoints(out)))
    run.process.send_signal(signal.SIGINT)
    assert run.end() == INTERRUPTED, run.log.read_text()
    event, = events(out, "restart")
    assert event.get("code") == 5 if victim == "rank" else event.get("signal") == 9
    losses(out)  # each step is there once


def status(pid: int) -> dict[str, str] | None:
    """The fields of /proc/PID/status; None if there is no such process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def test_a_command_for_events_neither_delays_a_restart_nor_is_ended(compiled, supervised, tmp_path):
    """The parent of the run inherits the command, and takes its entry from the table of processes when
    it has ended."""
    out, heard, go = tmp_path / "run", tmp_path / "heard", tmp_path / "go"
    command = (f'[ "$LMC_EVENT" = start ] || exit 0; echo $$ >> {heard}; '
               f'while [ ! -e {go} ]; do sleep 0.1; done')
    run = supervised(out, compiled(JOB), "--restarts=1", "--set", f"monitoring.on_event={command}")
    try:
        launcher = run.run_after(0)
        pid = int(run.wait_for(lambda: heard.exists() and heard.read_text().split())[0])
        os.kill(launcher, signal.SIGKILL)
        run.wait_for(lambda: len(events(out, "start")) == 2)
        found = status(pid)
        assert found and int(found["PPid"]) == run.process.pid and found["State"][0] != "Z"
    finally:
        go.touch()
    run.wait_for(lambda: status(pid) is None)
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == INTERRUPTED, run.log.read_text()


def test_a_console_that_is_gone_does_not_end_the_run(compiled, supervised, tmp_path):
    out = tmp_path / "run"
    reads, writes = os.pipe()
    run = supervised(out, compiled(JOB), "--restarts=1", stderr=writes)
    os.close(writes)
    os.close(reads)
    os.kill(run.run_after(0), signal.SIGKILL)
    run.wait_for(lambda: len(events(out, "start")) == 2)
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == INTERRUPTED


def test_a_run_that_makes_no_progress_is_given_up(programs, compiled, tmp_path):
    """No file may get as large as a checkpoint: each start fails with exit code 1."""
    plan, out, log = compiled(JOB), tmp_path / "run", tmp_path / "stderr"
    with log.open("w") as stderr:
        process = programs.start(
            "lmc-run", plan, f"--out={out}", "--steps=4", "--restarts=1", stderr=stderr,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000)))
        code = process.wait(timeout=120)
    said = log.read_text()
    assert code == FAILURE, said
    assert "and 1 restart(s) in a row made no progress" in said
    assert not checkpoints(out)


def test_a_mistake_is_not_tried_again(programs, compiled, tmp_path):
    plan, out = compiled(JOB), tmp_path / "run"
    done = programs.run("lmc-run", plan, f"--out={out}", "--restarts=3", "--set", "optimizer.eps=no")
    assert done.code == USER_ERROR and "starts again" not in done.stderr
    done = programs.run("lmc-run", plan, f"--out={out}", "--restarts=3", "--steps=2")
    assert done.code == SUCCESS and done.stderr == "" and not events(out, "restart")


def test_restarts_are_for_runs_that_train(programs, compiled, tmp_path):
    plan = compiled(JOB)
    for options_ in ((), (f"--out={tmp_path / 'run'}", "--eval"), ("--bench=2",)):
        done = programs.run("lmc-run", plan, "--restarts=3", *options_)
        assert done.code == USER_ERROR and "--restarts" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
