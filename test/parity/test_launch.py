"""Ranks that are processes: how launchers start them, and what happens when one of them fails."""

import ctypes
import fcntl
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from programs import INTERRUPTED, checkpoint_digest, checkpoints, last_losses, losses, metrics, run_together
from reference import Optimizer
from test_ranks import JOB, STEPS, options, train

RANK_FAILED = 5


def test_processes_train_what_threads_train(programs, compiled, tmp_path):
    """Bit for bit: sums over TCP are formed in the order of the ranks, too."""
    job = replace(JOB, compute_dtype="bf16")
    threads = train(programs, compiled, tmp_path / "threads", job, "hybrid_shard", 2, 2, 3)
    out = tmp_path / "processes"
    done = programs.run("lmc-run", compiled(job, *options("hybrid_shard", 2, 2, 3)), f"--out={out}",
                        "--nproc=4", "--threads=1").ok()
    assert done.stderr == ""
    assert losses(out) == losses(threads)
    assert (checkpoint_digest(checkpoints(out)[STEPS])
            == checkpoint_digest(checkpoints(threads)[STEPS]))


def test_torchrun_starts_the_ranks(programs, compiled, tmp_path):
    """Its agent listens at MASTER_PORT, so that rank 0 must take another port."""
    plan, out = compiled(JOB, *options("zero2", 1, 2, 1)), tmp_path / "run"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
                "--no-python"]
    done = subprocess.run(
        [*torchrun, *programs.command("lmc-run", plan, f"--out={out}", "--threads=1")],
        capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert len(losses(out)) == STEPS


def test_two_launchers_are_one_too_many(programs, compiled, tmp_path, monkeypatch):
    plan = compiled(JOB, *options("zero2", 1, 2, 1))
    done = programs.run("lmc-run", plan, f"--out={tmp_path}/run", "--nproc=2", "--rank=1")
    assert done.code == 2 and "--nproc starts all ranks on this machine; leave out" in done.stderr
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "localhost")):
        monkeypatch.setenv(name, value)
    done = programs.run("lmc-run", plan, f"--out={tmp_path}/run", "--nproc=2")
    assert done.code == 2 and "this process is rank 1 of 2 already" in done.stderr


def test_a_mistake_ends_all_ranks_with_its_code(programs, tmp_path):
    done = programs.run("lmc-run", tmp_path / "none.plan", f"--out={tmp_path}/run", "--nproc=3")
    assert done.code == 2 and "none.plan" in done.stderr
    assert done.seconds < 10


# Of so many steps that it is stopped long before its end.
LONG = replace(JOB, compute_dtype="f32", train_iters=100000, optimizer=Optimizer(decay_iters=100000), epoch_steps=10,
               settings={"checkpoint": {"interval": 5}})


class Running:
    """lmc-run --nproc in the background."""

    def __init__(self, programs, plan: Path, out: Path | None, ranks: int, *more: str, **how):
        self.out = out
        folder = () if out is None else (f"--out={out}",)
        self.process = programs.start("lmc-run", plan, *folder, f"--nproc={ranks}", "--threads=1",
                                      *more, stderr=subprocess.PIPE, text=True, **how)

    def ranks(self) -> list[int]:
        """The processes that live, by rank."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        by_rank = {}
        for child in map(int, children):
            try:
                environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue  # It has ended since the list was read.
            for variable in environment:  # none where the process has ended but is still listed
                if variable.startswith(b"RANK="):
                    by_rank[int(variable[5:])] = child
        return [by_rank[rank] for rank in sorted(by_rank)]

    def wait_for_checkpoint(self) -> None:
        deadline = time.monotonic() + 60
        while not checkpoints(self.out):
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def kill(self) -> None:
        """Whatever it does now."""
        if self.process.poll() is None:
            for rank in self.ranks():
                os.kill(rank, signal.SIGKILL)
            self.process.kill()
            self.process.wait()

    def end(self) -> tuple[int, str, float]:
        began = time.monotonic()
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors, time.monotonic() - began


@pytest.fixture
def running(programs):
    """running(PLAN, OUT, RANKS, OPTIONS...): a Running that does not outlive the test."""
    runs = []

    def start(*args, **how) -> Running:
        runs.append(Running(programs, *args, **how))
        return runs[-1]

    yield start
    for run in runs:
        run.kill()


@pytest.mark.parametrize("victim", (0, 2))
def test_a_killed_rank_ends_the_run_which_then_goes_on(programs, running, compiled, tmp_path, victim):
    plan = compiled(LONG, *options("zero3", 1, 3, 1))
    run = running(plan, tmp_path / "run", 3)
    run.wait_for_checkpoint()
    os.kill(run.ranks()[victim], signal.SIGKILL)
    code, errors, seconds = run.end()
    assert code == RANK_FAILED and seconds < 5
    assert f"lmc-run: error: rank {victim} was ended by signal 9 (Killed)" in errors
    said = [line for line in errors.splitlines()
            if "lmc-run: error: " in line and f" rank {victim} (host " in line]
    assert len(said) == 2 and all("has ended" in line for line in said), errors
    saved = max(checkpoints(tmp_path / "run"))
    programs.run("lmc-run", plan, f"--out={tmp_path}/run", "--nproc=3", "--threads=1",
                 f"--steps={saved + 3}").ok()
    whole = programs.run("lmc-run", plan, f"--out={tmp_path}/whole", "--nproc=3", "--threads=1",
                         f"--steps={saved + 3}").ok()
    assert whole.stderr == ""
    assert last_losses(tmp_path / "run") == last_losses(tmp_path / "whole")


def test_a_stopped_rank_is_named_within_ten_seconds(running, compiled, tmp_path):
    run = running(compiled(LONG, *options("zero3", 1, 2, 1)), tmp_path / "run", 2)
    run.wait_for_checkpoint()
    victim = run.ranks()[1]
    os.kill(victim, signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while len(run.ranks()) == 2:  # rank 0 notices, and leaves
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(victim, signal.SIGCONT)
    code, errors, _ = run.end()
    assert code == RANK_FAILED
    assert ": rank 1 (host " in errors and "has not answered for 8 s" in errors


class StoppedThread:
    """Stops one thread of a process, and no other, while it computes. https://man7.org/linux/man-pages/man2/ptrace.2.html"""

    CONT, SEIZE, INTERRUPT = 7, 0x4206, 0x4207

    def __init__(self, thread: int):
        self.thread = thread
        self.call(self.SEIZE)
        deadline = time.monotonic() + 10
        while True:
            self.call(self.INTERRUPT)
            os.waitpid(thread, 0x40000000)  # __WALL
            # "-1 STACK PC": it was not in a system call, as it is while it waits for other ranks.
            if Path(f"/proc/{thread}/syscall").read_text().startswith("-1 "):
                return
            assert time.monotonic() < deadline
            self.call(self.CONT)
            time.sleep(0.003)

    def call(self, request: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(ctypes.c_long(request), ctypes.c_long(self.thread), None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def wait_for_its_end(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            thread, status = os.waitpid(self.thread, 0x40000000 | os.WNOHANG)
            if thread and not os.WIFSTOPPED(status):
                return
            if thread:
                self.call(self.CONT)
            assert time.monotonic() < deadline
            time.sleep(0.01)


def stop_main_thread(run: Running, rank: int) -> StoppedThread:
    try:
        return StoppedThread(run.ranks()[rank])
    except PermissionError:
        run.process.kill()
        pytest.skip("this system does not let a process trace another (ptrace)")


def test_a_main_thread_that_hangs_is_named(running, compiled, tmp_path):
    """Its process gives signs of life all the time."""
    run = running(compiled(LONG, *options("zero3", 1, 2, 1)), tmp_path / "run", 2,
                  "--hang-timeout=2", "--slow-timeout=4")
    run.wait_for_checkpoint()
    victim = stop_main_thread(run, 1)
    began = time.monotonic()
    victim.wait_for_its_end()  # its other threads end the process
    code, errors, _ = run.end()
    assert code == RANK_FAILED
    assert re.search(r"error: rank 1 \(host .*\) has made no progress for \d+ s \([a-z ]+, step \d+(: .*)?\), "
                     r"and the others wait for it", errors), errors
    # The rank may have hung while it saved; then a warning about that checkpoint says so, too.
    named = re.findall(r"error: .*rank 1 \(host [^)]*\) has made no progress", errors)
    assert len(named) == 2, f"rank 0 and rank 1 say so: {errors}"
    assert time.monotonic() - began < 12


def test_a_main_thread_that_hangs_in_a_bench_is_named(running, compiled):
    run = running(compiled(LONG, *options("zero3", 1, 2, 1)), None, 2, "--hang-timeout=2",
                  "--slow-timeout=2", "--bench=10000")
    time.sleep(2)  # a bench says nothing before its end
    victim, deadline = stop_main_thread(run, 1), time.monotonic() + 15
    while len(run.ranks()) == 2:  # rank 0 notices, and leaves
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(victim.thread, signal.SIGKILL)
    victim.wait_for_its_end()
    code, errors, _ = run.end()
    assert code == RANK_FAILED
    assert re.search(r"rank 1 \(host .*\) has made no progress for \d+ s \(.*\), and the others wait for it",
                     errors), errors


def test_a_console_that_takes_no_more_output_is_no_hang(running, compiled, tmp_path):
    """As a terminal after Ctrl-S: rank 0 cannot write for longer than a rank may compute."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    run = running(compiled(LONG, *options("zero3", 1, 2, 1)), tmp_path / "run", 2,
                  "--hang-timeout=1", stdout=writer)
    os.close(writer)
    run.wait_for_checkpoint()
    deadline, steps = time.monotonic() + 60, 0
    while (done := len(metrics(tmp_path / "run"))) > steps:
        assert time.monotonic() < deadline
        steps = done
        time.sleep(0.7)
    time.sleep(2.5)
    assert run.process.poll() is None, run.process.stderr.read()
    with open(reader, "rb") as console:
        printer = threading.Thread(target=console.read)
        printer.start()
        os.kill(run.process.pid, signal.SIGTERM)
        code, errors, _ = run.end()
        printer.join()
    assert (code, errors) == (INTERRUPTED, "")
    # The step that it was in may be the last.
    assert max(last_losses(tmp_path / "run")) >= steps


# Its steps compute for some 20 ms, so that most pauses of a rank come while it computes.
HEAVY = replace(LONG, model=replace(JOB.model, hidden_size=128, intermediate_size=352), sequence_length=128)


def test_a_slow_rank_is_named(running, compiled, tmp_path):
    """It is stopped for three quarters of the time, in pauses shorter than a sign of life."""
    out = tmp_path / "run"
    run = running(compiled(HEAVY, *options("zero3", 1, 2, 1)), out, 2)
    run.wait_for_checkpoint()
    victim = run.ranks()[1]

    def slow() -> list[dict]:
        events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
        return [event for event in events if event["event"] == "slow_rank"]

    deadline = time.monotonic() + 60
    while not slow():
        assert time.monotonic() < deadline, "no warning"
        for _ in range(5):
            os.kill(victim, signal.SIGSTOP)
            time.sleep(0.15)
            os.kill(victim, signal.SIGCONT)
            time.sleep(0.05)
    os.kill(run.process.pid, signal.SIGTERM)
    code, errors, _ = run.end()
    assert code == INTERRUPTED, errors
    event = slow()[0]
    assert event["ranks"] == [1] and event["busy_seconds"] > 1.3 * event["others_busy_seconds"]
    assert re.search(r"warning: rank 1 \(host .*\) is busy for \S+ s of a step \(reading data or "
                     r"computing\), and the others for \S+ s: they wait for it", errors)


def test_a_launcher_that_gives_a_rank_too_few_threads_is_named(programs, compiled, tmp_path):
    """torchrun sets OMP_NUM_THREADS=1. A rank that is bound to CPUs of its own may use all of them."""
    plan, processors = compiled(JOB, *options("zero2", 1, 2, 1)), sorted(os.sched_getaffinity(0))
    if len(processors) < 2:
        pytest.skip("with one CPU, one thread is what each rank should have")

    def train(name: str, **environment: str) -> str:
        """Starts rank 0 with two CPUs, and rank 1 with one of them. Returns the warnings of rank 0."""
        own = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        ends = run_together(
            [["taskset", "-c", cpus, *programs.command("lmc-run", plan, f"--out={tmp_path / name}")]
             for cpus in (f"{processors[0]},{processors[1]}", str(processors[0]))],
            [{**own, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LMC_PORT": port,
              "MASTER_ADDR": "127.0.0.1", **environment} for rank in (0, 1)])
        assert [code for code, _ in ends] == [0, 0], ends
        return ends[0][1]

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    # CPU 0 is for both, and CPU 1 for rank 0 alone: 1.5 threads.
    assert train("fair") == ""
    assert train("too_many", OMP_NUM_THREADS="2") == (
        "warning: OMP_NUM_THREADS=2 gives rank 0 2 threads, and its part of the CPUs of its host is 1: "
        "unset the variable, or give --threads\n")


def test_a_signal_to_one_rank_stops_all_at_one_step(running, compiled, tmp_path):
    for number, target in enumerate(("launcher", "rank 1")):
        out = tmp_path / str(number)
        run = running(compiled(LONG, *options("zero3", 1, 2, 1)), out, 2)
        run.wait_for_checkpoint()
        os.kill(run.process.pid if target == "launcher" else run.ranks()[1], signal.SIGTERM)
        code, errors, _ = run.end()
        assert code == INTERRUPTED, errors
        steps = sorted(last_losses(out))
        assert max(checkpoints(out)) == steps[-1]
