"""Weights that a machine damages without an error are found: guard.compare_weights."""

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from jobs import Job
from programs import DIVERGED, checkpoint_digest, checkpoints, losses, metrics, until
from reference import Model, Optimizer
from test_ranks import JOB as RANKS_JOB
from test_ranks import STRATEGIES, options

# The rate is so small that no update changes a bit of a weight: a damaged bit stays, and where a weight lies
# in memory is known by its bits.
STILL = Job(model=Model(num_hidden_layers=1), batch_size=12, micro_batch_size=12,
            optimizer=Optimizer(lr=1e-30, min_lr=1e-30, warmup_iters=0, decay_iters=1000000, weight_decay=0),
            train_iters=1000000, settings={"guard": {"compare_weights": 5}, "checkpoint": {"interval": 20, "keep": 2}})
NAME = "model.layers.0.mlp.down_proj.weight"


def events(out: Path, name: str) -> list[dict]:
    lines = map(json.loads, (out / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == name]


def children_of(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()]


def rank_of(pid: int) -> int | None:
    found = re.search(rb"\0(?:LMC_)?RANK=(\d+)\0", b"\0" + Path(f"/proc/{pid}/environ").read_bytes())
    return int(found.group(1)) if found else None


def damage(pid: int, bits: bytes) -> int:
    """Flips a bit in each place of the process's memory that has these bytes, while it is stopped."""
    places = 0
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            bounds, permissions = line.split()[:2]
            if not permissions.startswith("rw") or "[v" in line:
                continue
            begin, end = (int(bound, 16) for bound in bounds.split("-"))
            try:
                memory.seek(begin)
                content = memory.read(end - begin)
            except OSError:
                continue
            at = content.find(bits)
            while at >= 0:
                memory.seek(begin + at)
                memory.write(bytes([content[at] ^ 4]))
                places += 1
                at = content.find(bits, at + 1)
    return places


def bits_of(out: Path, dtype: torch.dtype) -> bytes:
    """The first elements of a tensor, which all of its pieces are too long for."""
    weights = load_file(checkpoints(out)[max(checkpoints(out))] / "model.safetensors")[NAME]
    return weights.flatten()[:64].to(dtype).view(torch.uint8).numpy().tobytes()


def damaged_run(programs, plan, out: Path, ranks: int, rank: int, dtype: torch.dtype, *more: str):
    """Trains until a checkpoint is there, damages a weight of one rank, and returns how the run ended."""
    process = programs.start("lmc-run", plan, f"--out={out}", "--threads=1",
                             *([f"--nproc={ranks}"] if ranks > 1 else []), *more, stderr=subprocess.PIPE, text=True)
    try:
        def has_checkpoint() -> bool:
            assert process.poll() is None, process.stderr.read()
            return bool(checkpoints(out))
        until(has_checkpoint, "a checkpoint")
        bits = bits_of(out, dtype)
        victim = process.pid
        if ranks > 1:
            pids = children_of(process.pid)
            assert len(pids) == ranks
            victim = next(pid for pid in pids if rank_of(pid) == rank)
        os.kill(victim, signal.SIGSTOP)
        time.sleep(0.1)
        places = damage(victim, bits)
        os.kill(victim, signal.SIGCONT)
        assert places > 0, "the weight is in the memory of the rank"
        _, text = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    return process.returncode, text


@pytest.mark.parametrize("ranks, named", [(2, "ranks 0, 1"), (3, "rank 1")])
def test_a_rank_that_differs_is_named(programs, compiled, tmp_path, ranks, named):
    """Of three ranks the two that agree are right; of two, nobody knows which one is."""
    plan = compiled(STILL, f"--devices-per-node={ranks}", "--set", f"training.micro_batch_size={12 // ranks}",
                    "--set", "distributed.strategy=no_shard")
    code, text = damaged_run(programs, plan, tmp_path / "run", ranks, 1, torch.float32)
    assert code == DIVERGED, text
    assert f"weights were damaged: 1 tensor differs; {NAME} of {named} " in text
    [event] = events(tmp_path / "run", "weights_differ")
    assert event["tensors"] == [{"tensor": NAME, "ranks": [0, 1] if ranks == 2 else [1], "beside_master": False}]
    last = metrics(tmp_path / "run")[-1]["step"]
    # Nothing is saved of damaged weights, and the earlier checkpoints are sound.
    assert event["equal_step"] < event["step"] <= last and event["step"] - event["equal_step"] == 5
    for path in checkpoints(tmp_path / "run").values():
        programs.run("lmc-data", "inspect", path, "--verify").ok()
    digests = {str(checkpoint_digest(path)["model.safetensors"]) for path in checkpoints(tmp_path / "run").values()}
    assert len(digests) == 1


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_sound_run_is_never_stopped(programs, compiled, tmp_path, strategy, dtype):
    """Sizes that no number of ranks divides; and the comparison changes nothing."""
    job = replace(RANKS_JOB, compute_dtype=dtype)
    plan = compiled(job, *options(strategy, 2, 2, 3))
    for every in (0, 1):
        programs.run("local-ranks", 4, f"plan={plan}", f"out={tmp_path / str(every)}",
                     f"set=guard.compare_weights={every}").ok()
    assert losses(tmp_path / "0") == losses(tmp_path / "1")
    newest = checkpoints(tmp_path / "1")[max(checkpoints(tmp_path / "1"))]
    assert json.loads((newest / "state.json").read_text())["state"]["extra"]["equal_weights"] == str(max(checkpoints(tmp_path / "1")))
