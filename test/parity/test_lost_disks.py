"""A disk that fails in the middle of a run does not end it: the run says so, and catches up later."""

import itertools
import re
import signal

import pytest

from jobs import Job
from programs import FAILURE, INTERRUPTED, checkpoint_digest, checkpoints, last_losses, losses, until
from reference import Model, Optimizer
from test_background_saves import faulty_disk
from test_slots import events

JOB = Job(model=Model(num_hidden_layers=1), optimizer=Optimizer(decay_iters=100000), train_iters=100000,
          epoch_steps=4, settings={"checkpoint": {"interval": 5}})
ERRORS = {"full": "No space left on device", "read_only": "Read-only file system", "gone": "Input/output error"}


class Training:
    """lmc-run in the background. Its console is on another disk than its folder."""

    def __init__(self, programs, plan, out, *more, **how):
        self.out, self.console = out, out.parent / "console"
        with self.console.open("w") as stderr:
            self.process = programs.start("lmc-run", plan, f"--out={out}", "--threads=1", *more, stderr=stderr, **how)

    def waits_for(self, done, what: str) -> None:
        def is_done() -> bool:
            assert self.process.poll() is None, self.console.read_text()
            return done()
        try:
            until(is_done, what)
        except AssertionError:
            self.process.kill()
            self.process.wait()
            raise

    def failed_saves(self) -> list[str]:
        return [line for line in self.console.read_text().splitlines() if " not saved: " in line]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)

    def errors(self) -> list[str]:
        return [line for line in self.console.read_text().splitlines() if line.startswith("lmc-run: error")]


def expected_losses(programs, plan, out, steps: int, *more: str) -> list[float]:
    programs.run("lmc-run", plan, f"--out={out}", "--threads=1", f"--steps={steps}", *more).ok()
    return losses(out)


CASES = [(1, *case) for case in itertools.product(ERRORS, ("checkpoints", ""), ("false", "true"))]
RANKS = ["--devices-per-node=2", "--set", "training.micro_batch_size=4"]


@pytest.mark.parametrize("ranks, fault, part, background", [*CASES, (2, "full", "", "true"), (2, "gone", "", "true")])
def test_a_run_goes_on_and_catches_up(programs, compiled, tmp_path, faulty_disk, ranks, fault, part, background):
    """`part` of OUT is on the disk; "" is all of it, with the logs and the metrics."""
    out, plan = tmp_path / "run", compiled(JOB, *([] if ranks == 1 else RANKS))
    start = [] if ranks == 1 else [f"--nproc={ranks}"]
    environment, switch = faulty_disk(fault)
    disk = str(out / part) if part else str(out)
    run = Training(programs, plan, out, *start, "--set", f"checkpoint.background={background}",
                   env={**environment, "LMC_DISK": disk})
    run.waits_for(lambda: len(checkpoints(out)) >= 2, "two checkpoints")
    switch.touch()
    run.waits_for(lambda: len(run.failed_saves()) >= 3, "three failed saves")
    if not part:
        run.waits_for(lambda: "metrics are kept in memory until they can be written" in run.console.read_text(),
                      "a warning of the metrics")
    kept = max(checkpoints(out))
    switch.unlink()
    run.waits_for(lambda: max(checkpoints(out)) > kept, "a checkpoint")
    assert run.stop() == INTERRUPTED and run.errors() == []

    failures = run.failed_saves()
    for line in failures:
        assert ERRORS[fault] in line and "the run goes on" in line, line
        assert re.search(rf"the newest.*, of step {kept}, is \d+ s old", line), line
    recorded = events(out, "save_failed")
    assert [event["saved_step"] for event in recorded] == [kept] * len(failures)
    assert all(event["saved_age_seconds"] > 0 for event in recorded)
    if background == "false":  # else it is known only some steps later that a save has failed
        assert recorded[1]["step"] - recorded[0]["step"] < 5, "not before the interval says"
    log = (out / "log.txt").read_text()
    assert log.count(" not saved: ") == len(failures)

    done = losses(out)  # each step once
    assert max(checkpoints(out)) == len(done)
    assert done == expected_losses(programs, plan, tmp_path / "whole", len(done), *start)
    assert (checkpoint_digest(checkpoints(out)[len(done)])
            == checkpoint_digest(checkpoints(tmp_path / "whole")[len(done)]))


@pytest.mark.parametrize("fault", ERRORS)
def test_a_disk_that_stays_away_ends_the_run_with_an_error_and_loses_no_checkpoint(programs, compiled, tmp_path,
                                                                                  faulty_disk, fault):
    out, plan = tmp_path / "run", compiled(JOB)
    environment, switch = faulty_disk(fault)
    run = Training(programs, plan, out, env={**environment, "LMC_DISK": str(out)})
    run.waits_for(lambda: len(checkpoints(out)) >= 2, "two checkpoints")
    switch.touch()
    run.waits_for(lambda: len(run.failed_saves()) >= 2, "two failed saves")
    assert run.stop() == FAILURE
    error, = run.errors()
    assert "the last checkpoint, of step" in error and ERRORS[fault] in error
    assert "metrics.jsonl lacks the last steps" in run.console.read_text()
    kept = max(checkpoints(out))
    programs.run("lmc-run", f"--out={out}", "--threads=1", f"--steps={kept + 7}").ok()
    assert losses(out) == expected_losses(programs, plan, tmp_path / "whole", kept + 7)


@pytest.mark.parametrize("background", ("false", "true"))
def test_a_folder_that_is_moved_away_ends_the_run_and_nothing_else(programs, compiled, tmp_path, background):
    """Another run may take its place, so this one writes nothing more there."""
    out, moved, plan = tmp_path / "run", tmp_path / "moved", compiled(JOB)
    run = Training(programs, plan, out, "--set", f"checkpoint.background={background}")
    run.waits_for(lambda: len(checkpoints(out)) >= 2, "two checkpoints")
    out.rename(moved)
    assert run.process.wait(timeout=120) == FAILURE
    error, = run.errors()
    assert f"{out}: run.lock, which keeps other runs away, was removed or replaced, or the folder was moved" in error
    assert not out.exists()
    kept, steps = max(checkpoints(moved)), max(last_losses(moved))
    assert kept <= steps and events(moved, "exit")[-1]["code"] == FAILURE
    programs.run("lmc-run", f"--out={moved}", "--threads=1", f"--steps={steps + 7}").ok()
    assert losses(moved) == expected_losses(programs, plan, tmp_path / "whole", steps + 7)


def test_a_folder_that_another_run_has_taken_ends_the_run(programs, compiled, tmp_path):
    """On a file system that does not share locks between machines."""
    out = tmp_path / "run"
    run = Training(programs, compiled(JOB), out)
    run.waits_for(lambda: len(checkpoints(out)) >= 2, "two checkpoints")
    (out / "run.lock").write_text("process 1 on elsewhere, 0123\n")
    assert run.process.wait(timeout=120) == FAILURE
    error, = run.errors()
    assert "another run (process 1 on elsewhere) has started to write here" in error
