"""The learning rate of every step that lmc-run trains, beside PyTorch's and transformers' schedulers."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import transformers
from torch.optim import lr_scheduler as torch_schedules

from jobs import Job
from programs import USER_ERROR, checkpoint_digest, checkpoints, metrics
from reference import Model, Optimizer

STEPS = 60
LR, MIN_LR = 3e-3, 3e-4
# The file gives lr, min_lr, warmup_iters and decay_iters; everything else is set when the run starts.
JOB = Job(
    model=Model(vocab_size=64, num_hidden_layers=1), sequence_length=8, batch_size=2, micro_batch_size=2,
    train_iters=STEPS, optimizer=Optimizer(lr=LR, min_lr=MIN_LR, warmup_iters=6, decay_iters=STEPS),
    epoch_steps=STEPS, settings={"checkpoint": {"interval": 15}, "guard": {"action": "off"}},
)


def rates(programs, plan, out, *arguments) -> dict[int, float]:
    programs.run("lmc-run", plan, f"--out={out}", *arguments).ok()
    return {line["step"]: line["lr"] for line in metrics(out)}


def settings(**keys) -> list[str]:
    return [f"--set=lr_schedule.{key}={value}" for key, value in keys.items()]


def scheduled(make, lr=LR, steps=STEPS) -> list[float]:
    """The rates that a scheduler of PyTorch or transformers gives to steps 1, 2, ..."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
    schedule = make(optimizer)
    result = []
    for _ in range(steps):
        optimizer.step()
        schedule.step()
        result.append(schedule.get_last_lr()[0])
    return result


def cosine_from_torch(optimizer):
    warmup = torch_schedules.LambdaLR(optimizer, lambda step: step / 6)
    cosine = torch_schedules.CosineAnnealingLR(optimizer, STEPS - 6, eta_min=MIN_LR)
    return torch_schedules.SequentialLR(optimizer, [warmup, cosine], [6])


def wsd(decay_type, **changes):
    """10 steps of warm-up from min_lr, and a decay over the last 15 of 50 steps."""
    return partial(transformers.get_wsd_schedule, num_warmup_steps=10, num_decay_steps=15, num_training_steps=50,
                   decay_type=decay_type, min_lr_ratio=0.1, **changes)


WSD = dict(style="wsd", warmup_iters=10, warmup_init=MIN_LR, decay_iters=50, wsd_decay_fraction=0.3)
CASES = {
    "constant": (dict(style="constant", warmup_iters=20),
                 partial(transformers.get_constant_schedule_with_warmup, num_warmup_steps=20)),
    "linear": (dict(style="linear", min_lr=0),
               partial(transformers.get_linear_schedule_with_warmup, num_warmup_steps=6, num_training_steps=STEPS)),
    "linear, shorter": (dict(style="linear", min_lr=0, decay_iters=41, warmup_iters=0),
                        partial(transformers.get_linear_schedule_with_warmup, num_warmup_steps=0,
                                num_training_steps=41)),
    "cosine": ({}, cosine_from_torch),
    "inverse_sqrt": (dict(style="inverse_sqrt", min_lr=0),
                     partial(transformers.get_inverse_sqrt_schedule, num_warmup_steps=6)),
    "inverse_sqrt without warm-up": (dict(style="inverse_sqrt", min_lr=0, warmup_iters=0),
                                     partial(transformers.get_inverse_sqrt_schedule, num_warmup_steps=0,
                                             timescale=1)),
    "wsd linear": (dict(WSD), wsd("linear")),
    "wsd cosine": (dict(WSD, wsd_decay_style="cosine"), wsd("cosine")),
    "wsd minus_sqrt": (dict(WSD, wsd_decay_style="minus_sqrt"), wsd("1-sqrt")),
    "ratios": (dict(WSD, warmup_iters="", warmup_ratio=0.2, min_lr_ratio=0.1), wsd("linear")),
}


@pytest.mark.parametrize("case", CASES)
def test_schedules_are_those_of_the_libraries(programs, compiled, tmp_path, case):
    keys, make = CASES[case]
    keys = {key: value for key, value in keys.items() if value != ""}
    expected = scheduled(make)
    if case == "inverse_sqrt without warm-up":
        # The library's first step is number 0, ours number 1: both have the full rate.
        expected = [LR, *scheduled(make)[:-1]]
        assert expected[1] == pytest.approx(LR / math.sqrt(2), rel=1e-12)
    ours = rates(programs, compiled(JOB), tmp_path / "run", *settings(**keys))
    assert list(ours) == list(range(1, STEPS + 1))
    assert list(ours.values()) == pytest.approx(expected, rel=1e-12, abs=1e-18)


def test_schedules_that_no_library_has(programs, compiled, tmp_path):
    plan = compiled(JOB)
    ours = rates(programs, plan, tmp_path / "exponential", *settings(**WSD, wsd_decay_style="exponential"))
    # Megatron-LM's coefficient: 2 x 0.5^progress - 1.
    decay = [MIN_LR + (2 * 0.5 ** (step / 15) - 1) * (LR - MIN_LR) for step in range(1, 16)]
    assert [ours[step] for step in range(10, 36)] == pytest.approx([LR] * 26, rel=1e-12)
    assert [ours[step] for step in range(36, 51)] == pytest.approx(decay, rel=1e-12)
    assert [ours[step] for step in range(50, STEPS + 1)] == pytest.approx([MIN_LR] * 11, rel=1e-12)

    steps, values = [4, 10, 11, 50], [0, 2e-3, 1e-3, 1e-4]
    points = "[" + ", ".join(f'"{step}:{rate}"' for step, rate in zip(steps, values)) + "]"
    ours = rates(programs, plan, tmp_path / "points", *settings(style="piecewise", points=points))
    assert list(ours.values()) == pytest.approx(np.interp(range(1, STEPS + 1), steps, values), rel=1e-12)

    floor = rates(programs, plan, tmp_path / "floor", *settings(style="inverse_sqrt", min_lr_ratio=0.5))
    assert min(floor[step] for step in range(6, STEPS + 1)) == floor[STEPS] == LR / 2 < floor[20]


def half_again(end: int) -> list[str]:
    """Half the rate, a short warm-up and a higher floor, from step 30 on."""
    return [*settings(restart_step=30, lr=LR / 2, warmup_iters=2, min_lr_ratio=0.4, decay_iters=20),
            "--change=lr_schedule", f"--steps={end}"]


def test_a_run_goes_back_and_on_with_another_schedule(programs, compiled, tmp_path):
    plan, out = compiled(JOB), tmp_path / "run"
    before = rates(programs, plan, out)
    undeclared = programs.run("lmc-run", f"--out={out}", "--rewind=30", *half_again(50)[:5])
    assert undeclared.code == USER_ERROR and "--change=lr_schedule.restart_step" in undeclared.stderr
    after = rates(programs, plan, out, "--rewind=30", *half_again(50))
    assert [after[step] for step in range(1, 31)] == [before[step] for step in range(1, 31)]

    def recipe(optimizer):
        warmup = torch_schedules.LambdaLR(optimizer, lambda step: step / 2)
        cosine = torch_schedules.CosineAnnealingLR(optimizer, 18, eta_min=0.4 * LR / 2)
        return torch_schedules.SequentialLR(optimizer, [warmup, cosine], [2])

    expected = scheduled(recipe, lr=LR / 2, steps=20)
    assert [after[step] for step in range(31, 51)] == pytest.approx(expected, rel=1e-12)
    assert len(after) == 50

    # A stop in the middle, and a start without options, which repeats the schedule.
    other = tmp_path / "other"
    rates(programs, plan, other)
    rates(programs, plan, other, "--rewind=30", *half_again(37))
    assert rates(programs, plan, other, "--steps=50") == after
    assert checkpoint_digest(checkpoints(other)[50]) == checkpoint_digest(checkpoints(out)[50])


def test_a_warm_up_may_start_from_a_rate(programs, compiled, tmp_path):
    plan, out = compiled(JOB), tmp_path / "run"
    before = rates(programs, plan, out, "--steps=30")
    after = rates(programs, plan, out, "--steps=45", "--change=lr_schedule",
                  *settings(restart_step=30, warmup_init=before[30], warmup_iters=10, decay_iters=30,
                            style="constant"))
    expected = np.interp(range(31, 46), [30, 40], [before[30], LR])
    assert [after[step] for step in range(31, 46)] == pytest.approx(expected, rel=1e-12)


def test_a_phase_has_a_schedule_of_its_own(programs, compiled, tmp_path):
    """What a phase does not give, here the cooldown, is as in [lr_schedule]."""
    phases = [("phase", {"name": "base", "steps": 30}),
              ("phase", {"name": "root", "steps": 10, "lr_style": "inverse_sqrt", "warmup_iters": 4, "min_lr": 0}),
              ("phase", {"name": "cooldown", "steps": 20, "lr_style": "wsd", "lr": 1e-3, "min_lr": 1e-4})]
    plan = compiled(replace(JOB, tables=phases))
    ours = rates(programs, plan, tmp_path / "run", *settings(wsd_decay_style="minus_sqrt", wsd_decay_fraction=0.5))
    root = scheduled(partial(transformers.get_inverse_sqrt_schedule, num_warmup_steps=4), steps=10)
    cooldown = scheduled(partial(transformers.get_wsd_schedule, num_warmup_steps=0, num_decay_steps=10,
                                 num_training_steps=20, decay_type="1-sqrt", min_lr_ratio=0.1), lr=1e-3, steps=20)
    expected = [*scheduled(cosine_from_torch, steps=30), *root, *cooldown]
    assert list(ours.values()) == pytest.approx(expected, rel=1e-12)


def test_mistakes_are_found_before_the_first_step(programs, compiled, tmp_path):
    plan = compiled(JOB)
    for keys, text in [
        (dict(restart_step=30), "lr_schedule.decay_iters = 60 is more than train_iters = 60 - restart_step = 30"),
        (dict(restart_step=30, decay_iters=30), "lr_schedule.restart_step is 30, and the run goes on after step 0"),
        (dict(restart_step=60), "lr_schedule.restart_step = 60 is not below train_iters = 60"),
        (dict(min_lr=1e-4, min_lr_ratio=0.1), "lr_schedule.min_lr and min_lr_ratio say the same"),
        (dict(warmup_iters=1, warmup_ratio=0.1), "lr_schedule.warmup_iters and warmup_ratio say the same"),
        (dict(style="piecewise"), "lr_schedule.style = \"piecewise\" needs points"),
        (dict(points='["1:1e-3"]'), "lr_schedule.points do nothing with style = \"cosine\""),
        (dict(style="piecewise", points='["5:0", "5:1"]'), "lr_schedule.points has \"5:1\" behind step 5"),
        (dict(wsd_decay_style="sqrt"), "it must be one of linear, cosine, exponential, minus_sqrt"),
        (dict(warmup_ratio=1.5), "it must be from 0 to 1"),
    ]:
        failed = programs.run("lmc-run", plan, f"--out={tmp_path}/run", *settings(**keys))
        assert failed.code == USER_ERROR and failed.stderr.count("\n") == 1, keys
        assert text in failed.stderr
        assert not (tmp_path / "run/checkpoints").exists()
