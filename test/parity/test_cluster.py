"""Ranks that are processes: started here or by torchrun, and what happens when one of them fails."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from jobs import Job
from programs import INTERRUPTED, USER_ERROR, checkpoints, losses, metrics
from reference import Model, Optimizer

RANK_FAILED = 5
STEPS = 12
JOB = Job(model=Model(tie_word_embeddings=True), optimizer=Optimizer(decay_iters=STEPS), batch_size=8,
          micro_batch_size=2, train_iters=STEPS, epoch_steps=4, compute_dtype="f32",
          settings={"checkpoint": {"interval": 4}})
OPTIONS = ("--nodes=2", "--devices-per-node=2", "--set", "distributed.strategy=hybrid_shard")
# So many steps that a run is never done before the test ends it.
ENDLESS = replace(JOB, optimizer=Optimizer(decay_iters=STEPS), train_iters=1_000_000,
                  settings={"checkpoint": {"interval": 200, "keep": 2}})


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    return {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1", "LMC_PORT": str(port), "OMP_NUM_THREADS": "1"}


@contextmanager
def ranks(programs, plans: list[Path], out: Path, logs: Path, *options: str):
    """One process per plan; what each prints goes to LOGS/RANK."""
    logs.mkdir()
    port, processes = free_port(), []
    for rank, plan in enumerate(plans):
        with open(logs / str(rank), "w") as log:
            processes.append(subprocess.Popen(
                programs.command("lmc-run", plan, f"--out={out}", *options), stdout=log, stderr=log,
                env=environment(rank, len(plans), port)))
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_for_steps(out: Path, count: int, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if (out / "metrics.jsonl").exists() and len(metrics(out)) >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"{count} steps were not done in {seconds} s")


def ended(processes: list[subprocess.Popen], within: float) -> tuple[list[int], float]:
    """The exit codes, and the seconds until the last has ended."""
    began = time.monotonic()
    codes = [process.wait(timeout=max(0.1, within - (time.monotonic() - began))) for process in processes]
    return codes, time.monotonic() - began


def test_nproc_starts_all_ranks_here(programs, compiled, tmp_path):
    plan = compiled(JOB, *OPTIONS)
    done = programs.run("lmc-run", plan, f"--out={tmp_path}/many", "--nproc=4").ok()
    assert "x 4 rank(s)" in done.stdout
    one = compiled(JOB)
    programs.run("lmc-run", one, f"--out={tmp_path}/one").ok()
    difference = max(abs(a - b) / b for a, b in zip(losses(tmp_path / "many"), losses(tmp_path / "one")))
    print(f"largest relative difference of {STEPS} losses: {difference:.1e}")
    assert difference < 1e-6
    # Threads and processes form the same sums.
    programs.run("local-ranks", 4, f"plan={plan}", f"out={tmp_path}/threads").ok()
    assert losses(tmp_path / "threads") == losses(tmp_path / "many")


def test_torchrun_starts_the_ranks(programs, compiled, tmp_path):
    plan = compiled(JOB, *OPTIONS)
    command = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node=4",
               f"--master-port={free_port()}", programs.path("lmc-run"), str(plan),
               f"--out={tmp_path}/run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(losses(tmp_path / "run")) == STEPS


def test_a_rank_that_is_killed_is_named_by_all_others(programs, compiled, tmp_path):
    plan, out = compiled(ENDLESS, *OPTIONS), tmp_path / "run"
    with ranks(programs, [plan] * 4, out, tmp_path / "logs") as processes:
        wait_for_steps(out, 250)
        processes[2].send_signal(signal.SIGKILL)
        others = processes[:2] + processes[3:]
        codes, seconds = ended(others, within=30)
    print(f"ended {seconds:.1f} s after the kill")
    assert codes == [RANK_FAILED] * 3 and seconds < 5
    for rank in (0, 1, 3):
        last = (tmp_path / "logs" / str(rank)).read_text().splitlines()[-1]
        assert "rank 2" in last and last.startswith("lmc-run: error"), last
    # A restart goes on from the last checkpoint.
    step = max(checkpoints(out))
    programs.run("lmc-run", plan, f"--out={out}", "--nproc=4", f"--steps={step + 3}").ok()
    assert f"resumed at step {step} " in (out / "log.txt").read_text()
    assert len(metrics(out)) == step + 3


def test_a_rank_that_hangs_is_named_by_all_others(programs, compiled, tmp_path):
    plan, out = compiled(ENDLESS, *OPTIONS), tmp_path / "run"
    with ranks(programs, [plan] * 4, out, tmp_path / "logs") as processes:
        wait_for_steps(out, 10)
        processes[1].send_signal(signal.SIGSTOP)
        codes, seconds = ended([processes[0], *processes[2:]], within=40)
    print(f"ended {seconds:.1f} s after the stop")
    assert codes == [RANK_FAILED] * 3 and seconds < 12
    for rank in (0, 2, 3):
        assert "rank 1" in (tmp_path / "logs" / str(rank)).read_text().splitlines()[-1]


@pytest.mark.parametrize("rank", (0, 3))
def test_a_signal_to_one_rank_ends_all_at_one_step(programs, compiled, tmp_path, rank):
    plan, out = compiled(ENDLESS, *OPTIONS), tmp_path / "run"
    with ranks(programs, [plan] * 4, out, tmp_path / "logs") as processes:
        wait_for_steps(out, 10)
        processes[rank].send_signal(signal.SIGTERM)
        codes, seconds = ended(processes, within=30)
    print(f"ended {seconds:.1f} s after the signal")
    assert codes == [INTERRUPTED] * 4
    step = max(checkpoints(out))
    assert len(metrics(out)) == step
    events = [[json.loads(line) for line in path.read_text().splitlines()]
              for path in [out / "events.jsonl", *sorted(out.glob("ranks/*/events.jsonl"))]]
    assert [each[-1]["code"] for each in events] == [INTERRUPTED] * 4
    # The state is that of an undisturbed run.
    programs.run("lmc-run", plan, f"--out={tmp_path}/whole", "--nproc=4", f"--steps={step}").ok()
    assert losses(tmp_path / "whole") == losses(out)


def test_a_different_plan_on_one_rank_is_refused_before_step_1(programs, compiled, tmp_path):
    plan, out = compiled(JOB, *OPTIONS), tmp_path / "run"
    # Other groups, too: ZeRO-3 over all ranks.
    other = compiled(JOB, *OPTIONS[:2], "--set", "distributed.strategy=zero3")
    with ranks(programs, [plan, plan, other, plan], out, tmp_path / "logs") as processes:
        codes, seconds = ended(processes, within=40)
    assert codes == [USER_ERROR] * 4 and seconds < 30
    for rank in range(4):
        last = (tmp_path / "logs" / str(rank)).read_text().splitlines()[-1]
        assert "SHA-256" in last and (rank == 2 or "rank 2" in last), last
    assert not (out / "metrics.jsonl").exists()


def test_folders_that_are_not_shared_are_refused(programs, compiled, tmp_path):
    plan = compiled(JOB, *OPTIONS)
    (tmp_path / "logs").mkdir()
    port, processes = free_port(), []
    for rank in range(4):
        with open(tmp_path / "logs" / str(rank), "w") as log:
            processes.append(subprocess.Popen(
                programs.command("lmc-run", plan, f"--out={tmp_path}/out{rank}"), stdout=log, stderr=log,
                env=environment(rank, 4, port)))
    codes, _ = ended(processes, within=40)
    assert codes == [USER_ERROR] * 4
    assert "one --out on a file system that they share" in (tmp_path / "logs/0").read_text()


def test_data_that_one_rank_cannot_read_ends_all_with_a_checkpoint(programs, compiled, tmp_path):
    """Rank 1's node has another, damaged copy of the data: its reads fail in the middle of the run."""
    job = replace(ENDLESS, settings={**ENDLESS.settings, "data": {"num_workers": 0}})
    plan, out = compiled(job, *OPTIONS), tmp_path / "run"
    folder = tmp_path / "data"
    shutil.copytree(Path(plan).parent, folder)
    data = folder / "train.bin"
    with ranks(programs, [plan] * 4, out, tmp_path / "logs", f"--set=data.train={data}") as processes:
        wait_for_steps(out, 10)
        os.truncate(data, 64)
        codes, _ = ended(processes, within=60)
    text = (tmp_path / "logs/0").read_text()
    assert all(code in (1, 2) for code in codes), (codes, text)
    assert re.search(r"train\.bin", text.splitlines()[-1])
    assert max(checkpoints(out)) == len(metrics(out))
