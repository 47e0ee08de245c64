"""Checkpoints and exports are written behind the steps, and nothing that a disk does stops a run."""

import fcntl
import json
import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jobs import Job
from programs import (FAILURE, SUCCESS, checkpoint_digest, checkpoint_state, checkpoints, end_all, last_losses,
                      losses, tree_digest, until)
from reference import Model, Optimizer

JOB = Job(
    model=Model(num_hidden_layers=1),
    optimizer=Optimizer(decay_iters=40),
    train_iters=40,
    epoch_steps=4,
    settings={"checkpoint": {"interval": 5, "keep": 0, "background": True}},
)
AT_ONCE = ["--set", "checkpoint.background=false"]


@pytest.fixture
def faulty_disk(programs, tmp_path):
    """faulty_disk(kind) -> (environment in which the disk has the fault, the file that switches it)."""

    def environment(kind, value=None):
        switch = tmp_path / kind
        return {
            **os.environ,
            "LD_PRELOAD": str(programs.build / "test" / "libfaulty-disk.so"),
            f"LMC_DISK_{kind.upper()}": str(switch if value is None else value),
        }, switch

    return environment


def events(out, name):
    lines = map(json.loads, (out / "events.jsonl").read_text().split("\n")[:-1])  # the last may be half written
    return [line for line in lines if line["event"] == name]


def wait_for_step(out, step, process):
    while not (out / "metrics.jsonl").exists() or len(metrics_so_far(out)) < step:
        assert process.poll() is None, "the run has ended"
        time.sleep(0.005)


def starts(out):
    return len(events(out, "start")) if (out / "events.jsonl").exists() else 0


def wait_for_lock(out):
    """A process that was killed ends a moment later."""
    if (out / "run.lock").exists():
        with open(out / "run.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)


def metrics_so_far(out):
    """A line may be half written."""
    return (out / "metrics.jsonl").read_text().split("\n")[:-1]


@pytest.mark.parametrize("ranks", [1, 4])
def test_explain_tells_the_host_memory_of_the_copy(programs, compiled, tmp_path, ranks):
    """It is what the start of the run allocates."""
    plan = compiled(JOB, f"--devices-per-node={ranks}", "--set", f"training.micro_batch_size={8 // ranks}")
    text = programs.run("lmc", "explain", plan).ok().stdout
    rank, node = re.search(r"of the host's memory: (.+) on a rank, (.+) on a node", text).groups()
    done = programs.run("lmc-run", plan, f"--out={tmp_path}/run", "--steps=1", *(["--nproc=4"] if ranks == 4 else []))
    value, unit = re.search(r"from a copy of the state in ([\d.]+) (\w+) of host memory", done.ok().stdout).groups()
    assert rank == f"{float(value):.1f} {unit}"
    assert (rank == node) == (ranks == 1)
    at_once = compiled(replace(JOB, settings={"checkpoint": {"interval": 5, "background": False}}))
    assert "of the host's memory" not in programs.run("lmc", "explain", at_once).ok().stdout


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_is_the_same_whether_it_waits_for_saves_or_not(programs, compiled, tmp_path, ranks):
    options = [] if ranks == 1 else ["--devices-per-node=2", "--set", "training.micro_batch_size=4"]
    run = [compiled(JOB, *options), *([] if ranks == 1 else ["--nproc=2"])]
    programs.run("lmc-run", *run, f"--out={tmp_path}/wait", *AT_ONCE).ok()
    exports = ["--set", "checkpoint.export_interval=20"]
    programs.run("lmc-run", *run, f"--out={tmp_path}/behind", *exports).ok()
    assert losses(tmp_path / "behind") == losses(tmp_path / "wait")
    waited, behind = checkpoints(tmp_path / "wait"), checkpoints(tmp_path / "behind")
    assert list(waited) == [5, 10, 15, 20, 25, 30, 35, 40]
    # Those that were due while another was being written follow it.
    assert behind[40] and len(behind) > 1
    for step in set(waited) & set(behind):
        assert checkpoint_digest(waited[step]) == checkpoint_digest(behind[step]), step
    assert len(list((tmp_path / "behind" / "exports").iterdir())) >= 1


def test_steps_go_on_while_a_disk_is_stuck(programs, compiled, tmp_path, faulty_disk):
    environment, gate = faulty_disk("gate")
    out = tmp_path / "run"
    exports = ["--set", "checkpoint.export_interval=5"]
    process = programs.start("lmc-run", compiled(JOB), f"--out={out}", *exports, env=environment)
    wait_for_step(out, 33, process)  # the checkpoint of step 5 has not one byte yet
    assert list(checkpoints(out)) == []
    assert [line["step"] for line in events(out, "late_save")][:3] == [10, 15, 20]
    gate.touch()
    assert process.wait() == SUCCESS
    assert min(checkpoints(out)) == 5 and max(checkpoints(out)) == 40
    assert (out / "exports" / "40").exists(), "the late export is lost"
    assert "what was saved after step 5 is still being written" in (out / "log.txt").read_text()
    programs.run("lmc-run", compiled(JOB), f"--out={tmp_path}/wait", *AT_ONCE).ok()
    assert losses(out) == losses(tmp_path / "wait")
    for step, folder in checkpoints(out).items():
        assert checkpoint_digest(folder) == checkpoint_digest(checkpoints(tmp_path / "wait").get(step, folder))


def stands_for(folder: Path) -> int | None:
    extra = checkpoint_state(folder)["extra"]
    return int(extra["stands_for"]) if "stands_for" in extra else None


def test_no_permanent_checkpoint_or_export_is_lost_in_silence(programs, compiled, tmp_path, faulty_disk):
    """A disk that is slower than the interval: the late one takes the place of the one that was due, and says so.
    Whatever the machine's speed, each is there, has a late one in its place, or is named as lost."""
    steps, every = 600, 50
    plan = compiled(replace(JOB, train_iters=steps, settings={"checkpoint": {
        "interval": 2, "keep": 1, "keep_every": every, "export_interval": every, "background": True}}))
    environment, _ = faulty_disk("rate", 20e6)
    out = tmp_path / "run"
    assert programs.start("lmc-run", plan, f"--out={out}", env=environment).wait() == SUCCESS
    saved = checkpoints(out)
    kept = {stands_for(folder) or step for step, folder in saved.items()}
    exported = {line.get("stands_for", line["step"]) for line in events(out, "export")}
    lost = {(line["what"], line["step"]) for line in events(out, "lost_save")}
    due = range(every, steps + 1, every)
    for step in due:
        assert step in kept or ("permanent checkpoint", step) in lost, (step, kept, lost)
        assert step in exported or ("export", step) in lost, (step, exported, lost)
    assert len(kept & set(due)) > 2
    for step, folder in saved.items():
        assert step % every == 0 or stands_for(folder) in due or step == max(saved)
    log = (out / "log.txt").read_text()
    for line in events(out, "checkpoint"):
        if line.get("stands_for") is not None:
            assert f"the checkpoint of step {line['step']} is kept for the permanent one of step {line['stands_for']}" in log
    for what, step in lost:
        assert f"there is no {what} of step {step}" in log


def test_a_permanent_checkpoint_that_failed_is_made_later(programs, compiled, tmp_path, faulty_disk):
    environment, full = faulty_disk("full")
    full.touch()
    out = tmp_path / "run"
    plan = compiled(replace(JOB, train_iters=3000, settings={"checkpoint": {
        "interval": 10, "keep": 1, "keep_every": 1000, "background": True}}))
    process = programs.start("lmc-run", plan, f"--out={out}", env=environment)
    while not (out / "events.jsonl").exists() or not any(line["step"] >= 1000 for line in events(out, "save_failed")):
        assert process.poll() is None
        time.sleep(0.001)
    full.unlink()
    assert process.wait() == SUCCESS
    kept = {stands_for(folder) or step for step, folder in checkpoints(out).items()}
    assert {1000, 2000, 3000} <= kept | {line["step"] for line in events(out, "lost_save")}
    assert 1000 not in checkpoints(out)


def test_permanent_steps_are_due_whatever_the_interval(programs, compiled, tmp_path):
    plan = compiled(replace(JOB, settings={"checkpoint": {"interval": 7, "keep": 1, "keep_every": 10, "background": False}}))
    programs.run("lmc-run", plan, f"--out={tmp_path}/run").ok()
    assert list(checkpoints(tmp_path / "run")) == [10, 20, 30, 40]


@pytest.mark.parametrize("background", ("false", "true"))
def test_an_export_that_a_kill_has_interrupted_is_written_by_the_next_start(programs, compiled, tmp_path, faulty_disk,
                                                                            background):
    environment, _ = faulty_disk("gate")
    plan, out, whole = compiled(JOB), tmp_path / "run", tmp_path / "whole"
    options = ["--set", "checkpoint.export_interval=5", "--set", f"checkpoint.background={background}"]
    process = programs.start("lmc-run", plan, f"--out={out}", *options, env={**environment, "LMC_DISK": str(out / "exports")})
    try:
        until(lambda: (out / "exports" / ".5.partial").exists(), "a part of an export")
    finally:
        end_all([process])
    wait_for_lock(out)
    assert max(checkpoints(out)) == 5 and not (out / "exports" / "5").exists()
    for folder in (out, whole):
        programs.run("lmc-run", plan, f"--out={folder}", "--steps=10", "--set", "checkpoint.export_interval=5", *AT_ONCE).ok()
    assert sorted(path.name for path in (out / "exports").iterdir()) == ["10", "5"]
    assert tree_digest(out / "exports") == tree_digest(whole / "exports")


def test_a_failed_save_is_reported_and_tried_again_soon(programs, compiled, tmp_path, faulty_disk):
    environment, full = faulty_disk("full")
    full.touch()
    out = tmp_path / "run"
    plan = compiled(replace(JOB, train_iters=400, settings={"checkpoint": {"interval": 10, "background": True}}))
    process = programs.start("lmc-run", plan, f"--out={out}", env=environment)
    while not (out / "events.jsonl").exists() or len(events(out, "save_failed")) < 3:
        assert process.poll() is None
        time.sleep(0.005)
    full.unlink()
    assert process.wait() == SUCCESS
    failed = events(out, "save_failed")
    assert "No space left on device" in failed[0]["error"] and "saved_step" not in failed[0]
    # Not ten steps later, as the interval says: 1, 2, ... steps after the failure is known.
    assert failed[1]["step"] % 10 != 0 or failed[2]["step"] % 10 != 0
    saved = events(out, "checkpoint")
    assert saved[0]["step"] > failed[-1]["step"] and saved[-1]["step"] == 400
    log = (out / "log.txt").read_text()
    assert "checkpoint of step 10 not saved" in log and "has no checkpoint yet" in log


def test_a_disk_that_stays_full_ends_the_run_with_an_error(programs, compiled, tmp_path, faulty_disk):
    environment, full = faulty_disk("full")
    full.touch()
    out = tmp_path / "run"
    process = programs.start("lmc-run", compiled(JOB), f"--out={out}", env=environment)
    assert process.wait() == FAILURE
    assert len(losses(out)) == 40
    assert list(checkpoints(out)) == []


def kill_run(process, random) -> bool:
    """Kills a run with all of its ranks, or one rank alone. Returns False if it had ended by itself."""
    process.send_signal(signal.SIGSTOP)  # so that it starts no more ranks
    if process.returncode is not None:
        return False
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    ranks = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    if ranks and random.integers(2):  # the others end by themselves
        os.kill(int(random.choice(ranks)), signal.SIGKILL)
        process.send_signal(signal.SIGCONT)
        return True
    for victim in (process.pid, *ranks):
        os.kill(int(victim), signal.SIGKILL)
    return True


@pytest.mark.parametrize("ranks", [1, 4])
def test_nothing_is_lost_by_a_kill_at_any_moment(programs, compiled, tmp_path, ranks):
    """LMC_KILLS: how often, over both numbers of ranks. Another number draws other moments."""
    job = replace(JOB, train_iters=200, settings={"checkpoint": {"interval": 2, "keep": 2, "background": True}})
    options = [] if ranks == 1 else ["--devices-per-node=4", "--set", "training.micro_batch_size=2"]
    run = [compiled(job, *options), "--threads=1", *([] if ranks == 1 else ["--nproc=4"])]
    programs.run("lmc-run", *run, f"--out={tmp_path}/whole", *AT_ONCE).ok()
    expected = losses(tmp_path / "whole")
    kills = int(os.environ.get("LMC_KILLS", 8)) // 2
    random = np.random.default_rng([ranks, kills])
    out = tmp_path / "run"
    done, reached, inside, done_by_itself = 0, 0, 0, 0
    for kill in range(kills):
        if reached >= 190:  # from the beginning once more
            out, done = tmp_path / f"run{kill}", 0
        began = starts(out)
        process = programs.start("lmc-run", *run, f"--out={out}")
        if random.integers(8) == 0:  # perhaps before it trains
            time.sleep(float(random.uniform(0, 0.5)))
        else:
            until(lambda: starts(out) > began, "a start")
            wait_for_step(out, min(done + int(random.integers(1, 30)), 190), process)
            time.sleep(float(random.uniform(0, 0.02)))
        done_by_itself += not kill_run(process, random)
        process.wait()
        wait_for_lock(out)
        inside += any(path.name.endswith(".partial") for path in out.glob("checkpoints/.*"))
        lines = last_losses(out) if (out / "metrics.jsonl").exists() else {}
        assert all(lines[step] == expected[step - 1] for step in lines)
        reached = max(lines, default=0)
        saved = max(checkpoints(out), default=0)
        assert saved >= done, "a checkpoint is lost"
        done = saved
    print(f"{kills - done_by_itself} kills, {inside} of them inside a save")
    programs.run("lmc-run", *run, f"--out={out}").ok()
    assert losses(out) == expected
    assert checkpoint_digest(checkpoints(out)[200]) == checkpoint_digest(checkpoints(tmp_path / "whole")[200])
