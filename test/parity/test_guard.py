"""A run that diverges stops by itself, one that does not is left alone, and spikes are skipped."""

import json
import time
from dataclasses import replace

from jobs import Job
import numpy as np
import pytest

from programs import DIVERGED, checkpoint_digest, checkpoint_state, checkpoints, losses, metrics
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


class SpikyJob(Job):
    """Its text repeats, so that the loss falls to nearly 0, but for a few windows of random tokens."""

    def tokens(self) -> np.ndarray:
        count = self.epoch_steps * self.batch_size * self.sequence_length + 1
        tokens = np.arange(count) % 16
        random = np.random.default_rng(self.seed)
        for window in (3, 333, 450, 940):
            at = window * self.sequence_length
            tokens[at : at + self.sequence_length] = random.integers(
                self.model.vocab_size, size=self.sequence_length
            )
        return tokens


SPIKY = SpikyJob(
    model=Model(num_hidden_layers=1),
    optimizer=Optimizer(min_lr=3e-3, decay_iters=160),
    train_iters=160,
    epoch_steps=160,
    settings={"guard": {"window": 20}, "checkpoint": {"interval": 0}},
)
SKIP = ["--set", "guard.on_spike=skip"]


def skipped(out):
    return [m["step"] for m in metrics(out) if m.get("skip_reason") == "spike"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_skipped_spike_is_bit_for_bit_a_step_that_was_named(programs, compiled, tmp_path, ranks):
    options = [] if ranks == 1 else ["--devices-per-node=2", "--set", "training.micro_batch_size=4"]
    plan = compiled(SPIKY, *options)
    run = [plan, *([] if ranks == 1 else ["--nproc=2"])]
    programs.run("lmc-run", *run, f"--out={tmp_path}/skip", *SKIP).ok()
    steps = skipped(tmp_path / "skip")
    assert steps and len(steps) < 10, steps
    events = (tmp_path / "skip" / "events.jsonl").read_text()
    assert all(f'"event":"skip","step":{step},"reason":"spike"' in events for step in steps)

    named = f"guard.skip_steps={','.join(map(str, steps))}"
    programs.run("lmc-run", *run, f"--out={tmp_path}/named", "--set", named).ok()
    assert losses(tmp_path / "named") == losses(tmp_path / "skip")
    assert [m["step"] for m in metrics(tmp_path / "named") if "skipped" in m] == steps
    assert all(m["update_ratio"] == 0 for m in metrics(tmp_path / "named") if "skipped" in m)
    digests = [checkpoint_digest(checkpoints(tmp_path / out)[160]) for out in ("skip", "named")]
    assert digests[0] == digests[1]

    # Without either, the same step changes the weights.
    programs.run("lmc-run", *run, f"--out={tmp_path}/plain").ok()
    assert losses(tmp_path / "plain")[: steps[0]] == losses(tmp_path / "skip")[: steps[0]]
    assert losses(tmp_path / "plain")[steps[0]] != losses(tmp_path / "skip")[steps[0]]


def test_spikes_are_skipped_alike_after_interruptions(programs, compiled, tmp_path):
    plan = compiled(SPIKY)
    programs.run("lmc-run", plan, f"--out={tmp_path}/whole", *SKIP).ok()
    first = skipped(tmp_path / "whole")[0]
    out = tmp_path / "parts"
    for steps in (first - 2, first - 1, first, first + 1, 160):
        programs.run("lmc-run", plan, f"--out={out}", *SKIP, f"--steps={steps}").ok()
    assert losses(out) == losses(tmp_path / "whole")
    assert checkpoint_digest(checkpoints(out)[160]) == checkpoint_digest(
        checkpoints(tmp_path / "whole")[160]
    )


def test_a_spike_stops_the_run_where_that_is_asked_for(programs, compiled, tmp_path):
    plan = compiled(SPIKY)
    stopped = programs.run("lmc-run", plan, f"--out={tmp_path}", "--set", "guard.on_spike=stop")
    assert stopped.code == DIVERGED
    assert 'spike: loss' in stopped.stderr and 'guard.on_spike is "stop"' in stopped.stderr


ROLLBACK = ["--set", "guard.on_spike=rollback", "--set", "checkpoint.interval=5"]


def events(out, name):
    lines = map(json.loads, (out / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == name]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_goes_back_and_over_the_data_of_a_spike(programs, compiled, tmp_path, ranks):
    options = [] if ranks == 1 else ["--devices-per-node=2", "--set", "training.micro_batch_size=4"]
    run = [compiled(SPIKY, *options), *([] if ranks == 1 else ["--nproc=2"]), *ROLLBACK]
    run += ["--set", "guard.rollbacks=100"]
    out = tmp_path / "whole"
    programs.run("lmc-run", *run, f"--out={out}").ok()
    back = events(out, "rollback")
    assert back and all(e["step"] < e["spike"] <= e["from"] <= e["spike"] + 1 for e in back)
    assert all(e["step"] % 5 == 0 for e in back)
    assert len(losses(out)) == 160  # each step once; those that were taken back are in undone/
    undone = [m["step"] for m in metrics(out / "undone" / "1")]
    assert undone == list(range(back[0]["step"] + 1, back[0]["from"] + 1))
    # The data went on, and the steps went back.
    tokens = SPIKY.batch_size * SPIKY.sequence_length
    steps = 160 + sum(e["from"] - e["step"] for e in back)
    assert checkpoint_state(checkpoints(out)[160])["position"] == steps * tokens

    # A run that is interrupted before the spike, and before the next checkpoint after it, is the same.
    parts = tmp_path / "parts"
    for stop in (back[0]["step"] + 1, back[0]["step"] + 2, 160):
        programs.run("lmc-run", *run, f"--out={parts}", f"--steps={stop}").ok()
    assert losses(parts) == losses(out)
    assert checkpoint_digest(checkpoints(parts)[160]) == checkpoint_digest(checkpoints(out)[160])


def test_a_rollback_keeps_what_was_declared_since_its_checkpoint(programs, compiled, tmp_path):
    plan = compiled(SPIKY)
    settings = ["--set", "checkpoint.interval=1000"]
    programs.run("lmc-run", plan, f"--out={tmp_path}", *settings, "--steps=20").ok()
    declared = ["--set", "guard.on_spike=rollback", "--change=guard.on_spike",
                "--set", "guard.rollbacks=100"]
    programs.run("lmc-run", plan, f"--out={tmp_path}", *settings, *declared).ok()
    back = events(tmp_path, "rollback")
    assert back and all(e["step"] == 20 for e in back)
    assert len(losses(tmp_path)) == 160


def test_a_kill_behind_a_rollback_loses_nothing(programs, compiled, tmp_path):
    plan = compiled(SPIKY)
    programs.run("lmc-run", plan, f"--out={tmp_path}/whole", *ROLLBACK, "--set", "guard.rollbacks=100").ok()
    back = events(tmp_path / "whole", "rollback")
    out = tmp_path / "killed"
    process = programs.start("lmc-run", plan, f"--out={out}", *ROLLBACK, "--set", "guard.rollbacks=100")
    while not (out / "undone" / "1" / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.002)
    process.kill()
    process.wait()
    programs.run("lmc-run", plan, f"--out={out}", *ROLLBACK, "--set", "guard.rollbacks=100").ok()
    assert losses(out) == losses(tmp_path / "whole")
    assert len(events(out, "rollback")) == len(back)


def test_a_run_goes_back_at_most_so_often(programs, compiled, tmp_path):
    plan = compiled(SPIKY)
    run = [plan, f"--out={tmp_path}", *ROLLBACK, "--set", "guard.rollbacks=1"]
    stopped = programs.run("lmc-run", *run)
    assert stopped.code == DIVERGED
    assert "went back 1 time(s) already, each within 1000 steps of another (guard.rollbacks" in stopped.stderr
    assert len(events(tmp_path, "rollback")) == 1
    none = programs.run("lmc-run", plan, f"--out={tmp_path}/none", *ROLLBACK[:2])
    assert none.code == DIVERGED and "no checkpoint from before it" in none.stderr


def test_what_is_done_at_a_spike_must_be_declared(programs, compiled, tmp_path):
    plan = compiled(SPIKY)
    programs.run("lmc-run", plan, f"--out={tmp_path}", "--steps=2").ok()
    refused = programs.run("lmc-run", plan, f"--out={tmp_path}", *SKIP, "--steps=3")
    assert refused.code == 2 and "--change=guard.on_spike" in refused.stderr
    off = programs.run("lmc-run", plan, f"--out={tmp_path}/off", *SKIP, "--set", "guard.action=off")
    assert off.code == 2 and 'guard.action = "off" looks for no spikes' in off.stderr
    wrong = programs.run("lmc-run", plan, f"--out={tmp_path}/x", "--set", "guard.skip_steps=5-3")
    assert wrong.code == 2 and "'5-3' is no list of steps, such as 120,130-140" in wrong.stderr
