"""A run in slots of time: it saves and leaves before its limit, and the next start goes on."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jobs import Job
from programs import (INTERRUPTED, SUCCESS, USER_ERROR, checkpoint_digest, checkpoints, last_losses, losses)
from reference import Model, Optimizer
from test_ranks import JOB as RANKS_JOB
from test_ranks import options

JOB = Job(model=Model(num_hidden_layers=1), optimizer=Optimizer(decay_iters=100000), train_iters=100000,
          epoch_steps=4)


def events(out: Path, name: str) -> list[dict]:
    lines = map(json.loads, (out / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == name]


def run_for_a_slot(programs, plan: Path, out: Path, *more: str) -> int:
    """Trains until the time limit. Returns the step. On a slow machine the slot is longer."""
    seconds = 2
    while True:
        done = programs.run("lmc-run", plan, f"--out={out}", f"--max-hours={seconds}s", *more)
        if done.code == INTERRUPTED:
            assert "stopped in time for --max-hours" in done.stdout
            return max(checkpoints(out))
        assert done.code == USER_ERROR and "nothing was trained" in done.stderr, done.stderr
        seconds *= 2


def wait_for_checkpoint_after(out: Path, step: int, process) -> None:
    deadline = time.monotonic() + 120
    while max(checkpoints(out), default=0) <= step:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_in_slots_is_one_run(programs, compiled, tmp_path):
    """Its slots end by the time limit, by SIGUSR1 and by kill -9."""
    plan, out = compiled(JOB), tmp_path / "slots"
    first = run_for_a_slot(programs, plan, out)
    limit = events(out, "time_limit")[-1]
    assert limit["step"] == first and limit["source"].startswith("--max-hours=")
    assert events(out, "exit")[-1]["reason"] == "time_limit"
    assert len(losses(out)) == first, "the last step is the saved one"

    saved = first
    for end in (signal.SIGUSR1, signal.SIGKILL):
        process = programs.start("lmc-run", f"--out={out}", "--set", "checkpoint.interval=10",
                                 "--set", "checkpoint.keep=0")
        wait_for_checkpoint_after(out, saved, process)
        process.send_signal(end)
        code = process.wait(timeout=120)
        assert code == (INTERRUPTED if end == signal.SIGUSR1 else -signal.SIGKILL)
        saved = max(checkpoints(out))
        if end == signal.SIGUSR1:
            assert events(out, "exit")[-1]["reason"] == "signal"
    last = saved + 5
    programs.run("lmc-run", f"--out={out}", f"--steps={last}").ok()
    assert events(out, "exit")[-1]["reason"] == "done"

    whole = tmp_path / "whole"
    programs.run("lmc-run", plan, f"--out={whole}", f"--steps={last}").ok()
    assert losses(out) == losses(whole)  # and each step is there once
    assert checkpoint_digest(checkpoints(out)[last]) == checkpoint_digest(checkpoints(whole)[last])


def test_all_ranks_leave_at_one_step(programs, compiled, tmp_path):
    """Whatever the limits of the others: that of rank 0 counts."""
    job = replace(RANKS_JOB, compute_dtype="f32", train_iters=100000, epoch_steps=10)
    plan, out = compiled(job, *options("zero3", 1, 2, 1)), tmp_path / "run"
    step = run_for_a_slot(programs, plan, out, "--nproc=2", "--threads=1")
    assert step == max(last_losses(out)) == events(out, "time_limit")[-1]["step"]
    other = json.loads((out / "ranks/1/events.jsonl").read_text().splitlines()[-1])
    assert other["event"] == "exit" and other["code"] == INTERRUPTED and other["reason"] == "time_limit"


def test_the_end_of_a_slurm_job_is_the_limit(programs, compiled, tmp_path, monkeypatch):
    plan, out = compiled(JOB), tmp_path / "run"
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 1))
    done = programs.run("lmc-run", plan, f"--out={out}")
    assert done.code == USER_ERROR
    assert "SLURM_JOB_END_TIME leaves " in done.stderr and "nothing was trained" in done.stderr
    assert not checkpoints(out)
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 100000))
    done = programs.run("lmc-run", plan, f"--out={out}", "--steps=2").ok()
    assert "(SLURM_JOB_END_TIME)" in done.stdout and "the run saves and ends before 20" in done.stdout
    monkeypatch.setenv("SLURM_JOB_END_TIME", "1000")
    done = programs.run("lmc-run", plan, f"--out={out}", "--steps=3", "--deadline=none").ok()
    assert "SLURM" not in done.stdout


def test_a_validation_that_is_cut_off_is_said(programs, compiled, tmp_path):
    """Also behind the last step."""
    plan, data, out = compiled(JOB), tmp_path / "long.bin", tmp_path / "run"
    np.ones(1 << 27, dtype=np.uint16).tofile(data)
    for seconds in (4, 8, 16, 32):  # a slow machine needs a longer slot for one step
        done = programs.run("lmc-run", plan, f"--out={out}", "--steps=1", f"--max-hours={seconds}s",
                            "--set", f'data.validation=["{data}"]', "--set", "monitoring.validation_iters=0",
                            "--set", "monitoring.validation_interval=1")
        if done.code != USER_ERROR:
            break
    data.unlink()
    assert done.code == SUCCESS and list(checkpoints(out)) == [1], done.stderr
    assert f"step 1: --max-hours={seconds}s leaves no time for the validation" in done.stderr
    event, = events(out, "validation_cut_off")
    assert event["step"] == 1 and event["source"] == f"--max-hours={seconds}s"


def test_a_restart_that_comes_too_late_is_no_mistake(programs, compiled, tmp_path, monkeypatch):
    """As a parent (--restarts) starts a run again."""
    plan, out = compiled(JOB), tmp_path / "run"
    monkeypatch.setenv("LMC_TIME_LIMIT", "1000.5 --max-hours=3h")
    monkeypatch.setenv("LMC_RESTART", "1")
    done = programs.run("lmc-run", plan, f"--out={out}", "--max-hours=3h")
    assert done.code == INTERRUPTED, done.stderr
    assert "--max-hours=3h leaves 0.0 s " in done.stderr


@pytest.mark.parametrize("given, error", [
    ("--max-hours=soon", "--max-hours: 'soon' is no duration"),
    ("--max-hours=11000d", "--max-hours: '11000d' is longer than 10 years"),
    ("--deadline=9999-01-01T00:00Z", "--deadline: '9999-01-01T00:00Z' is not before the year 2200"),
    ("--deadline=soon", "--deadline: 'soon' is no time"),
    ("--deadline=2020-01-01T00:00Z", "--deadline=2020-01-01T00:00Z: this time is over"),
])
def test_a_wrong_limit_is_named(programs, compiled, tmp_path, given, error):
    done = programs.run("lmc-run", compiled(JOB), f"--out={tmp_path / 'run'}", given)
    assert done.code == USER_ERROR and error in done.stderr and done.stderr.count("\n") == 1
