"""A model that is killed at drawn moments, and goes on each time, is bit for bit the one that never stopped: sparse ones, and
one whose products are of 8-bit floats, whose scales are no state."""

import json
import os
import random
import time
from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import load_file

from jobs import Job
from programs import checkpoint_digest, checkpoints, end_all, losses, until
from reference import Model, Optimizer
from test_background_saves import AT_ONCE, kill_run, starts, wait_for_lock
from test_dots1 import BIAS, Dots1
from test_experts import with_settings

KILLS = max(1, int(os.environ.get("LMC_KILLS", 20)) // 4)  # of each of the cases
STEPS = 60
LAST = 45  # the last step at which a kill is planned
LONGEST = 5  # steps from a start to its kill

# models/configs/demo-moe.toml, smaller.
OLMOE = Job(
    model=Model(architecture="olmoe", intermediate_size=48, num_key_value_heads=4, num_local_experts=8,
                num_experts_per_tok=2, router_aux_loss_coef=0.01, tie_word_embeddings=True),
    optimizer=Optimizer(lr=4e-3, min_lr=4e-4, warmup_iters=6, decay_iters=STEPS),
    sequence_length=32, batch_size=8, micro_batch_size=4, train_iters=STEPS, epoch_steps=7,
    settings={"checkpoint": {"interval": 2, "keep": 3, "background": True}},
)
# Each step moves the bias of each router by `router_bias_update_speed`, up or down: no optimizer's moment knows it.
DOTS1 = with_settings(replace(OLMOE, model=Dots1(num_hidden_layers=2)), optimizer={"router_bias_update_speed": 0.01})
EIGHT_BITS = with_settings(replace(OLMOE, model=Model(tie_word_embeddings=True), compute_dtype="bf16"),
                           training={"fp8": "tensor"}, memory={"store": "fp8"})
JOBS = {"olmoe": OLMOE, "dots1": DOTS1, "fp8": EIGHT_BITS}


def lines(file) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def saves(out) -> dict[tuple[str, int], int]:
    """How many files each save has that is not whole yet. The keys tell a save of a run from one that an earlier run
    left behind."""
    found = {}
    for folder in out.glob("checkpoints/.*.partial"):
        try:
            found[folder.name, folder.stat().st_mtime_ns] = len(list(folder.iterdir()))
        except FileNotFoundError:  # it has just become a checkpoint
            pass
    return found


def moment(kind: str, out, draw: random.Random):
    """Draws a moment of the run that is about to start. Returns whether it has come, and what it is in words. Files and
    lines decide, no clock does."""
    log, began, saved = lines(out / "log.txt"), starts(out), max(checkpoints(out), default=0)
    if kind == "start":
        more = draw.randint(0, 8)
        return lambda: lines(out / "log.txt") >= log + more, f"{more} lines of log.txt after the launch"
    if kind == "step":
        more = draw.randint(1, LONGEST)
        # A start takes back the lines of steps after the checkpoint before it says that it is one.
        return (lambda: starts(out) > began and max(trained(out), default=0) >= saved + more,
                f"{more} steps after step {saved}")
    newer = saved + draw.choice((0, 0, 2))
    if kind == "saved":
        return lambda: max(checkpoints(out), default=0) > newer, f"a checkpoint after step {newer} is there"
    left, files = saves(out).keys(), draw.randint(0, 3)
    return (lambda: max(checkpoints(out), default=0) >= newer and
            any(count >= files for save, count in saves(out).items() if save not in left),
            f"{files} files of a save after step {newer} are there")


def trained(out) -> dict[int, float]:
    """By step. The last line may be half written."""
    file = out / "metrics.jsonl"
    found = [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []
    return {line["step"]: line["loss"] for line in found if "loss" in line}


@pytest.mark.parametrize("family, ranks, optimizer", [
    ("olmoe", 1, "adamw8bit"), ("olmoe", 2, "adamw"), ("dots1", 1, "adamw"), ("dots1", 2, "adamw8bit"), ("fp8", 2, "adamw")])
def test_kills_at_drawn_moments_change_no_bit(programs, compiled, tmp_path, family, ranks, optimizer):
    """LMC_KILLS: how often, over four cases. Another number draws other moments."""
    job = with_settings(JOBS[family], optimizer={"type": optimizer})
    if ranks == 2:
        job = with_settings(job, distributed={"devices_per_node": 2, "strategy": "zero3"})
    run = [compiled(job), f"--nproc={ranks}", "--threads=1"]
    whole, out = tmp_path / "whole", tmp_path / "run"
    programs.run("lmc-run", *run, f"--out={whole}", *AT_ONCE).ok()
    expected = losses(whole)
    assert len(expected) == STEPS and expected[-1] < expected[0]

    draw, victims = random.Random(f"{family} {ranks} {KILLS}"), np.random.default_rng([ranks, KILLS])
    kinds = [kind for kind, count in (("step", 6), ("save", 8), ("saved", 4), ("start", 2))
             for _ in range(-(-KILLS * count // 20))]
    draw.shuffle(kinds)
    kills = in_save = kept = ended = attempts = 0
    while kills < KILLS:
        attempts += 1
        assert attempts < 3 * KILLS, "most runs end before they can be killed"
        if kept >= LAST or ended:  # from the beginning once more
            out, kept, ended = tmp_path / f"run{kills}", 0, 0
        has_come, words = moment(kinds[kills], out, draw)
        began = starts(out)
        process = programs.start("lmc-run", *run, f"--out={out}", *draw.choice(([], AT_ONCE)))
        try:
            until(lambda: has_come() or process.poll() is not None, words)
            ended = not kill_run(process, victims)  # a slow disk may keep saves from being seen
            process.wait()
        finally:
            end_all([process])
        wait_for_lock(out)
        for step, loss in trained(out).items():
            assert loss == expected[step - 1], step
        assert max(checkpoints(out), default=0) >= kept, "a checkpoint is lost"
        kept = max(checkpoints(out), default=0)
        if ended:
            assert_equal(out, whole, family)
            continue
        kills, in_save = kills + 1, in_save + bool(saves(out))
        print(f"kill {kills}, {words}: step {max(trained(out), default=0)}, "
              f"checkpoints {list(checkpoints(out))}, {starts(out) - began} starts")
    print(f"{kills} kills, {in_save} of them during a save")
    assert in_save > 0 or KILLS < 10, "no kill came while a checkpoint was being saved"
    programs.run("lmc-run", *run, f"--out={out}").ok()
    assert_equal(out, whole, family)


def assert_equal(out, whole, family) -> None:
    """In all losses, and in every byte of the last checkpoint: weights, moments, and the biases of routers."""
    assert losses(out) == losses(whole)
    assert checkpoint_digest(checkpoints(out)[STEPS]) == checkpoint_digest(checkpoints(whole)[STEPS])
    biases = [tensor for name, tensor in load_file(checkpoints(out)[STEPS] / "model.safetensors").items()
              if name.endswith(BIAS)]
    assert len(biases) == (1 if family == "dots1" else 0)
    assert all(bias.unique().numel() > 2 for bias in biases), "no bias was stepped"
