"""A fault of the machine that begins in the middle of a run is named within 20 steps."""

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from jobs import Job
from programs import INTERRUPTED, checkpoints, end_all, until
from reference import Model, Optimizer
from test_background_saves import faulty_disk
from test_launch import RANK_FAILED, running
from test_slots import events

WITHIN = 20  # steps
HEALTHY = 15  # steps before the fault: more than a run needs to know what is usual

JOB = Job(model=Model(num_hidden_layers=1), optimizer=Optimizer(decay_iters=100000), train_iters=100000,
          epoch_steps=4)
# A step of one thread takes about a tenth of a second, so that what makes it slow is no noise.
LONG = replace(JOB, model=Model(num_hidden_layers=2, hidden_size=256, intermediate_size=704), sequence_length=64,
               batch_size=16, micro_batch_size=16)


def of_ranks(strategy: str, micro_batch: int) -> list[str]:
    return ["--devices-per-node=2", "--set", f"distributed.strategy={strategy}",
            "--set", f"training.micro_batch_size={micro_batch}"]


def steps_of(out: Path) -> int:
    """The last step in the metrics, of which the last line may be half written."""
    path = out / "metrics.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


class Run:
    """lmc-run in the background, with all that it writes to stderr in a file."""

    def __init__(self, programs, plan: Path, out: Path, *more: str, **how):
        self.out, self.log = out, out.parent / "stderr"
        with self.log.open("w") as stderr:
            self.process = programs.start("lmc-run", plan, f"--out={out}", *more, stderr=stderr, **how)

    def steps(self) -> int:
        return steps_of(self.out)

    def waits_for(self, done, what: str) -> None:
        def is_done() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return done()
        until(is_done, what)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=120) == INTERRUPTED, self.log.read_text()


@pytest.fixture
def started(programs):
    """started(PLAN, OUT, OPTIONS...): a Run that does not outlive the test."""
    runs = []

    def start(*args, **how) -> Run:
        runs.append(Run(programs, *args, **how))
        return runs[-1]

    yield start
    end_all(run.process for run in runs)


@contextmanager
def computing(cpu: int, count: int):
    """Gives a function that lets so many processes compute on the CPU, all at once. Other tests may make
    all CPUs busy; these must make a difference all the same."""
    command = ["sh", "-c", "kill -STOP $$; while :; do :; done"]
    processes = [subprocess.Popen(command, preexec_fn=lambda: os.sched_setaffinity(0, {cpu})) for _ in range(count)]

    def is_stopped(process: subprocess.Popen) -> bool:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def begin() -> None:
        until(lambda: all(map(is_stopped, processes)), "the processes that compute")
        for process in processes:
            process.send_signal(signal.SIGCONT)

    try:
        yield begin
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def assert_soon(event: dict, began: int) -> None:
    """`began`: the last step that was recorded when the fault was there."""
    print(f"named {event['step'] - began} steps later: {event}")
    assert event["step"] - began <= WITHIN


def write_at_once(path: Path, text: str) -> None:
    path.with_suffix(".partial").write_text(text)
    path.with_suffix(".partial").rename(path)


def test_a_throttled_disk_of_the_data(compiled, started, tmp_path, faulty_disk):
    plan, (environment, slow) = compiled(JOB), faulty_disk("slow")
    run = started(plan, tmp_path / "run", "--set", "data.num_workers=1",
                  env={**environment, "LMC_DISK": str(plan.parent)})
    run.waits_for(lambda: run.steps() >= HEALTHY, "steps")
    before = run.steps()
    # 8 rows of 33 tokens of 2 bytes: three seconds for each batch.
    write_at_once(slow, str(8 * 33 * 2 / 3))
    began = run.steps()

    def named() -> list[dict]:
        return [event for event in events(run.out, "slow_step")
                if event["step"] > before and event["causes"] and event["causes"][0]["cause"] == "data"]

    run.waits_for(named, "the event")
    slow.unlink()
    run.end()
    assert_soon(named()[0], began)
    assert "waiting for data took" in run.log.read_text()


@pytest.mark.parametrize("background", ("false", "true"))
def test_a_throttled_disk_of_the_checkpoints(compiled, started, tmp_path, faulty_disk, background):
    environment, slow = faulty_disk("slow")
    run = started(compiled(JOB), tmp_path / "run", "--set", "checkpoint.interval=5",
                  "--set", f"checkpoint.background={background}", env=environment)
    run.waits_for(lambda: len(checkpoints(run.out)) >= 2 and len(events(run.out, "checkpoint")) >= 3, "checkpoints")
    saved = events(run.out, "checkpoint")
    usual = max(event["seconds"] for event in saved)
    write_at_once(slow, str(saved[-1]["bytes"] / (3 + 3 * usual)))
    began = run.steps()
    run.waits_for(lambda: events(run.out, "slow_save"), "the event")
    slow.unlink()
    run.end()
    event = events(run.out, "slow_save")[0]
    assert event["seconds"] >= 2 * event["usual_seconds"]
    assert "one usually takes" in run.log.read_text()
    if background == "true":
        # Steps go on meanwhile, as many as the machine can do. A save that is due then says so at once.
        event = next(event for event in events(run.out, "late_save") if event["step"] >= began)
    assert_soon(event, began)


def test_a_busy_core_of_a_run(compiled, started, tmp_path):
    cpu = min(os.sched_getaffinity(0))
    with computing(cpu, 12) as begin:
        run = started(compiled(LONG), tmp_path / "run", "--threads=1",
                      preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
        run.waits_for(lambda: run.steps() >= HEALTHY, "steps")
        before = run.steps()
        begin()
        began = run.steps()

        def named() -> list[dict]:
            return [event for event in events(run.out, "slow_step") if event["step"] > before
                    and any(cause["cause"] == "other_processes" for cause in event["causes"])]

        run.waits_for(named, "the event")
    run.end()
    assert_soon(named()[0], began)


def test_a_busy_core_of_one_rank(compiled, running, tmp_path):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("both ranks have the same CPU")
    job = replace(LONG, model=Model(hidden_size=128, intermediate_size=352))
    plan = compiled(job, *of_ranks("zero2", LONG.batch_size // 2))

    def start_on_two_cpus(out: Path):
        run = running(plan, out, 2)
        until(lambda: len(run.ranks()) == 2 and steps_of(out) > 0, "ranks")
        for rank, cpu in zip(run.ranks(), cpus):
            for thread in os.listdir(f"/proc/{rank}/task"):
                os.sched_setaffinity(int(thread), {cpu})
        until(lambda: steps_of(out) >= HEALTHY, "steps")
        return run

    with computing(cpus[1], 40) as begin:
        for attempt in range(10):
            out = tmp_path / str(attempt)
            run = start_on_two_cpus(out)
            named = lambda: [event for event in events(out, "slow_rank") if event["ranks"] == [1]]
            if not named():
                break
            run.kill()  # it was slow because of other processes, and a warning is not repeated soon
        begin()
        began = steps_of(out)
        until(lambda: run.process.poll() is not None or named(), "the event")
    run.process.send_signal(signal.SIGTERM)
    code, errors, _ = run.end()
    assert code == INTERRUPTED and "warning: rank 1 (host " in errors, errors
    assert_soon(named()[0], began)


@pytest.mark.parametrize("victim", (0, 1))
def test_a_stopped_rank(compiled, running, tmp_path, victim):
    out = tmp_path / "run"
    run = running(compiled(JOB, *of_ranks("zero3", JOB.batch_size // 2)), out, 2)
    until(lambda: steps_of(out) >= HEALTHY, "steps")
    rank = run.ranks()[victim]
    os.kill(rank, signal.SIGSTOP)
    began = steps_of(out)
    until(lambda: len(run.ranks()) == 1, "the end of the other rank")
    os.kill(rank, signal.SIGKILL)
    code, errors, _ = run.end()
    assert code == RANK_FAILED
    assert f": rank {victim} (host " in errors and "has not answered for" in errors, errors
    assert steps_of(out) - began <= WITHIN
    if victim != 0:
        end = events(out, "exit")[-1]
        assert end["reason"] == "rank_failed" and f"rank {victim} (host " in end["error"]
