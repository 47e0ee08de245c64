"""Sequences of whole documents (data.packing = "best_fit"): how many, and that a run goes on."""

import bisect
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from jobs import Job
from programs import USER_ERROR, checkpoint_digest, checkpoints, losses
from reference import Model, Optimizer

LENGTH = 64
JOB = Job(
    model=Model(num_hidden_layers=1),
    optimizer=Optimizer(decay_iters=10),
    sequence_length=LENGTH,
    batch_size=4,
    micro_batch_size=2,
    train_iters=10,
    settings={"data": {"packing": "best_fit"}, "training": {"document_mask": True}},
)


@pytest.fixture(scope="module")
def folder(programs, tmp_path_factory):
    """A text of 3000 documents, packed, and a plan that trains on it."""
    folder = tmp_path_factory.mktemp("packing")
    random = np.random.default_rng(9)
    lengths = np.minimum(random.lognormal(3.0, 1.0, size=3000).astype(int) + 1, 4 * LENGTH)
    with open(folder / "text.jsonl", "w") as file:
        for length in lengths:
            letters = random.integers(ord("a"), ord("z") + 1, size=length)
            file.write(json.dumps({"text": "".join(map(chr, letters))}) + "\n")
    programs.run("lmc-data", "pack", folder / "text.jsonl", "-o", folder / "train.bin").ok()
    (folder / "job.toml").write_text(JOB.toml())
    programs.run("lmc", "compile", folder / "job.toml", "-o", folder / "job.plan").ok()
    return folder


def best_fit_decreasing(lengths: list[int], window: int) -> int:
    """The number of windows."""
    pieces = [window] * sum(length // window for length in lengths)
    pieces += [length % window for length in lengths if length % window]
    rooms: list[int] = []  # ascending
    windows = 0
    for piece in sorted(pieces, reverse=True):
        at = bisect.bisect_left(rooms, piece)
        if at == len(rooms):
            windows += 1
            room = window
        else:
            room = rooms.pop(at)
        bisect.insort(rooms, room - piece)
    return windows


def test_as_many_windows_as_best_fit_decreasing(programs, folder, tmp_path):
    dumped = programs.run("lmc-data", "dump", folder / "train.bin").ok().stdout
    lengths = [len(line.split()) for line in dumped.splitlines()]
    assert len(lengths) == 3000
    started = programs.run("lmc-run", folder / "job.plan", f"--out={tmp_path}/a", "--steps=1").ok()
    said = re.search(r"data: (\d+) tokens .*, (\d+) in whole blocks \(best fit: ([\d.]+)% padding, "
                     r"(\d+) documents longer than a block\)", started.stdout)
    tokens, blocks, padding, longer = (float(group) for group in said.groups())
    windows = best_fit_decreasing(lengths, LENGTH)
    print(f"{blocks / LENGTH:.0f} windows, {windows} by the definition; {padding}% padding")
    assert tokens == sum(lengths)
    assert abs(blocks / LENGTH - windows) <= 0.01 * windows
    assert padding == pytest.approx(100 * (1 - tokens / blocks), abs=0.005)
    assert longer == sum(length > LENGTH for length in lengths)


def test_a_run_goes_on_bit_for_bit(programs, folder, tmp_path):
    programs.run("lmc-run", folder / "job.plan", f"--out={tmp_path}/whole").ok()
    for steps in (4, 10):
        programs.run("lmc-run", folder / "job.plan", f"--out={tmp_path}/parts",
                     f"--steps={steps}").ok()
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    assert checkpoint_digest(checkpoints(tmp_path / "parts")[10]) == \
        checkpoint_digest(checkpoints(tmp_path / "whole")[10])
    refused = programs.run("lmc-run", folder / "job.plan", f"--out={tmp_path}/parts", "--set",
                           "data.packing=concatenate")
    assert refused.code == USER_ERROR
    assert "data.packing is best_fit there and concatenate here" in refused.stderr


def test_a_block_is_a_sequence(programs, tmp_path):
    settings = {**JOB.settings, "data": {"packing": "best_fit", "shuffle_block": 2 * LENGTH}}
    (tmp_path / "job.toml").write_text(replace(JOB, settings=settings).toml())
    refused = programs.run("lmc", "compile", tmp_path / "job.toml", "-o", tmp_path / "job.plan")
    assert refused.code == USER_ERROR
    assert "shuffle_block = 128 must be sequence_length = 64" in refused.stderr
