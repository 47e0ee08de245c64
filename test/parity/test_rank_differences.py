"""Ranks that are given different things: a plan, a folder, data that one of them cannot read."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from jobs import Job
from programs import USER_ERROR, checkpoints, metrics
from reference import Model, Optimizer

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
def ranks(programs, plans: list[Path], out: Path, logs: Path, own: dict[int, list[str]] | None = None):
    """One process per plan, with options of its own; what each prints goes to LOGS/RANK."""
    logs.mkdir()
    port, processes = free_port(), []
    for rank, plan in enumerate(plans):
        with open(logs / str(rank), "w") as log:
            processes.append(subprocess.Popen(
                programs.command("lmc-run", plan, f"--out={out}", *(own or {}).get(rank, ())), stdout=log,
                stderr=log, env=environment(rank, len(plans), port)))
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
    """Rank 1 has a copy of the data, which is damaged in the middle of the run."""
    plan, out = compiled(ENDLESS, *OPTIONS), tmp_path / "run"
    copy = tmp_path / "copy.bin"
    shutil.copy(Path(plan).parent / "train.bin", copy)
    with ranks(programs, [plan] * 4, out, tmp_path / "logs",
               own={1: [f'--set=data.train=["{copy}"]']}) as processes:
        wait_for_steps(out, 10)
        os.truncate(copy, 64)
        codes, _ = ended(processes, within=60)
    logs = [(tmp_path / "logs" / str(rank)).read_text().splitlines()[-1] for rank in range(4)]
    assert len(set(codes)) == 1 and codes[0] in (1, 2), (codes, logs)
    assert all("copy.bin" in log and (rank == 1 or "rank 1" in log) for rank, log in enumerate(logs)), logs
    assert max(checkpoints(out)) == len(metrics(out))
