"""What a library may change for the whole process changes nothing that a run computes or writes."""

import json
import os
import resource
import subprocess
from pathlib import Path

import pytest

from jobs import Job
from programs import checkpoint_digest, checkpoints, losses
from reference import Model, Optimizer

STEPS = 6
JOB = Job(
    model=Model(tie_word_embeddings=True), optimizer=Optimizer(warmup_iters=1, decay_iters=STEPS),
    train_iters=STEPS, epoch_steps=3, micro_batch_size=2,
    settings={"checkpoint": {"interval": 0}},
)


def train(programs, plan: Path, out: Path, *options: str, environment: dict | None = None, **popen) -> str:
    """Returns what the run wrote to stderr."""
    ended = subprocess.run(programs.command("lmc-run", plan, f"--out={out}", *options), text=True, timeout=300,
                           env={**os.environ, **(environment or {})}, capture_output=True, check=False, **popen)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


def same(ours: Path, theirs: Path) -> None:
    assert losses(ours) == losses(theirs)
    assert checkpoint_digest(checkpoints(ours)[STEPS]) == checkpoint_digest(checkpoints(theirs)[STEPS])


@pytest.fixture
def rude(programs) -> dict[str, str]:
    """The environment that loads test/ground/support/RudeLibrary.cpp."""
    library = programs.build / "test" / "librude-library.so"
    assert library.exists(), f"{library} is not built"
    return {"LD_PRELOAD": str(library)}


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("gemm", ["default", "measure"])
def test_rounding_and_locale_of_a_library_change_nothing(programs, compiled, tmp_path, rude, ranks, gemm, monkeypatch):
    """Rounding to zero, flushed subnormal numbers, and numbers written with a comma."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plan = compiled(JOB, "--nodes=1", f"--devices-per-node={ranks}")
    options = [f"--nproc={ranks}", "--threads=2", f"--gemm={gemm}"]
    train(programs, plan, tmp_path / "calm", *options)
    (tmp_path / "rude").mkdir()
    (tmp_path / "rude/gemm.json").write_bytes((tmp_path / "calm/gemm.json").read_bytes())
    assert "the rude library was here" in train(programs, plan, tmp_path / "rude", *options, environment=rude)
    same(tmp_path / "rude", tmp_path / "calm")
    for line in (tmp_path / "rude/metrics.jsonl").read_text().splitlines():
        json.loads(line)


def test_options_are_read_with_a_point_whatever_the_locale(programs, tmp_path, rude):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"document {number}\n" for number in range(400)))
    sizes = []
    for name, environment in (("calm", {}), ("rude", rude)):
        subprocess.run(programs.command("lmc-data", "pack", text, "-o", tmp_path / f"{name}.bin", "--validation",
                                        tmp_path / f"{name}-validation.bin", "--validation-fraction=0.25"),
                       env={**os.environ, **environment}, check=True, capture_output=True, timeout=300)
        sizes.append((tmp_path / f"{name}-validation.bin").stat().st_size)
    assert sizes[0] == sizes[1] > 0


@pytest.mark.parametrize("gemm", ["default", "measure"])
def test_small_stacks_are_enough(programs, compiled, tmp_path, gemm, monkeypatch):
    """Stacks of 64 KiB for the threads of OpenMP and 128 KiB for all others, where 8 MiB are usual."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plan = compiled(JOB)
    train(programs, plan, tmp_path / "calm", "--threads=2", f"--gemm={gemm}")
    (tmp_path / "small").mkdir()
    (tmp_path / "small/gemm.json").write_bytes((tmp_path / "calm/gemm.json").read_bytes())
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    train(programs, plan, tmp_path / "small", "--threads=2", f"--gemm={gemm}", environment={"OMP_STACKSIZE": "64k"},
          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (128 << 10, hard)))
    same(tmp_path / "small", tmp_path / "calm")
