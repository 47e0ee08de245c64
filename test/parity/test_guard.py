"""A run that diverges stops by itself, and one that does not is left alone."""

from dataclasses import replace

from jobs import Job
from programs import DIVERGED, checkpoint_state, checkpoints, metrics
from reference import Model, Optimizer

JOB = Job(
    model=Model(num_hidden_layers=1),
    optimizer=Optimizer(min_lr=3e-3, decay_iters=100),
    train_iters=100,
    epoch_steps=4,
    settings={"guard": {"patience": 16}, "checkpoint": {"interval": 10, "keep": 2}},
)
# With a rate of 3, whether the run recovers depends on the rounding of a machine's instructions.
TOO_HIGH = ["--set", "lr_schedule.lr=5", "--set", "lr_schedule.min_lr=5"]
DECLARED = ["--change=lr_schedule.lr", "--change=lr_schedule.min_lr"]


def test_a_run_that_learns_ends_well_and_without_a_warning(programs, compiled, tmp_path):
    run = programs.run("lmc-run", compiled(JOB), f"--out={tmp_path}").ok()
    assert len(metrics(tmp_path)) == 100
    assert run.stderr == ""


def test_a_rate_far_too_high_stops_the_run_and_keeps_its_state_aside(programs, compiled, tmp_path):
    plan = compiled(JOB)
    programs.run("lmc-run", plan, f"--out={tmp_path}", "--steps=20").ok()
    stopped = programs.run("lmc-run", plan, f"--out={tmp_path}", *TOO_HIGH, *DECLARED)
    assert stopped.code == DIVERGED, stopped.stderr
    step = metrics(tmp_path)[-1]["step"]
    assert step < 100
    *warnings, error = stopped.stderr.splitlines()
    assert all(line.startswith("warning: step ") for line in warnings) and len(warnings) <= 2
    aside = tmp_path / "checkpoints" / f"{step}.diverged"
    assert f"step {step}: diverged: since step 2" in error
    assert f"the state is kept in {aside}; go back to before with --rewind=20 " in error
    assert checkpoint_state(aside)["step"] == step
    assert 20 in checkpoints(tmp_path), "the last good one is gone"

    # The same run again is judged from where it was, and so stops where it did.
    again = programs.run("lmc-run", plan, f"--out={tmp_path}", *TOO_HIGH)
    assert again.code == DIVERGED
    # The state that is kept already is not written over.
    assert again.stderr.splitlines()[-1] == error.replace(str(aside), f"{aside}-2")


def test_the_guard_judges_alike_after_an_interruption(programs, compiled, tmp_path):
    plan = compiled(JOB)
    whole = programs.run("lmc-run", plan, f"--out={tmp_path}/whole", *TOO_HIGH)
    assert whole.code == DIVERGED
    for steps in (3, 5, 11):
        out = tmp_path / f"parts{steps}"
        programs.run("lmc-run", plan, f"--out={out}", *TOO_HIGH, f"--steps={steps}").ok()
        parts = programs.run("lmc-run", plan, f"--out={out}", *TOO_HIGH)
        assert parts.code == DIVERGED
        assert metrics(out)[-1]["step"] == metrics(tmp_path / "whole")[-1]["step"]


def test_steps_that_are_not_finite_count_on_after_an_interruption(programs, compiled, tmp_path):
    plan = compiled(replace(JOB, optimizer=replace(JOB.optimizer, weight_decay=0.5)))
    # Weight decay at this rate multiplies the weights by -4 in each step, until they overflow.
    rate = ["--set", "lr_schedule.lr=10", "--set", "lr_schedule.min_lr=10"]
    whole = programs.run("lmc-run", plan, f"--out={tmp_path}/whole", *rate)
    assert whole.code == DIVERGED
    assert "not finite in 10 steps in a row" in whole.stderr
    last = metrics(tmp_path / "whole")[-1]["step"]
    out = tmp_path / "parts"
    programs.run("lmc-run", plan, f"--out={out}", *rate, f"--steps={last - 4}").ok()
    parts = programs.run("lmc-run", plan, f"--out={out}", *rate)
    assert parts.code == DIVERGED
    assert metrics(out)[-1]["step"] == last
