"""The implementations of matrix products: timed once, then kept, so that bits repeat."""

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from jobs import Job
from programs import USER_ERROR, checkpoint_digest, checkpoints, losses, run_together
from reference import Model, Optimizer

JOB = Job(
    model=Model(num_hidden_layers=1), sequence_length=32, batch_size=2, micro_batch_size=2,
    optimizer=Optimizer(warmup_iters=1, decay_iters=4), train_iters=4,
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The user's cache, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/lmc/gemm.json"


@pytest.fixture
def train(programs, compiled, tmp_path):
    def run(out: str, *options: str):
        return programs.run("lmc-run", compiled(JOB), f"--out={tmp_path / out}", *options)

    return run


def choices(path) -> dict[str, dict]:
    return {choice["product"]: choice for choice in json.loads(path.read_text())["choices"]}


def gemm_events(folder) -> list[dict]:
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == "gemm"]


def digest(folder) -> dict[str, str]:
    """Of the last checkpoint."""
    return checkpoint_digest(list(checkpoints(folder).values())[-1])


def note(finished) -> str:
    return next(line for line in finished.stdout.splitlines() if line.startswith("gemm: "))


def test_products_are_timed_once(train, cache, tmp_path):
    first = train("a", "--gemm=measure").ok()
    assert "measured in" in note(first)
    kept = choices(cache)
    assert kept == choices(tmp_path / "a/gemm.json")
    assert all(choice["seconds"] > 0 for choice in kept.values())
    second = train("b", "--gemm=measure").ok()
    assert f"{len(kept)} from the cache" in note(second) and "measured" not in note(second)
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    event, = gemm_events(tmp_path / "a")
    assert event["products"] == {p: c["implementation"] for p, c in kept.items()}


# The instructions that lmc's kernels and the libraries may use, from the oldest processors on.
INSTRUCTIONS = {
    "x86-64": ("SSE41", "SSE4_2"),
    "x86-64-v3": ("AVX2", "AVX2"),
    "x86-64-v4": ("AVX512_CORE", "AVX512"),
}


@pytest.mark.parametrize("compute_dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("instructions", [*INSTRUCTIONS, "all"])
def test_default_bits_do_not_depend_on_the_number_of_threads(programs, compiled, tmp_path, monkeypatch,
                                                             instructions, compute_dtype):
    """The gradients of weights sum over 2,304 tokens: libraries divide such sums among threads."""
    if instructions != "all":
        onednn, mkl = INSTRUCTIONS[instructions]
        monkeypatch.setenv("LMC_CPU_ISA", instructions)
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", onednn)
        monkeypatch.setenv("MKL_ENABLE_INSTRUCTIONS", mkl)
    plan = compiled(replace(JOB, batch_size=72, micro_batch_size=72, compute_dtype=compute_dtype))
    digests = {}
    for threads in (1, 2, 3, 4):
        out = tmp_path / str(threads)
        run = programs.run("lmc-run", plan, f"--out={out}", "--gemm=default", f"--threads={threads}")
        if "the CPU's kernels exist for" in run.stderr:
            pytest.skip(f"this machine has no {instructions}: {run.stderr}")
        run.ok()
        digests[threads] = digest(out), losses(out)
    assert all(found == digests[1] for found in digests.values())


def test_a_run_goes_on_with_its_own_choices(train, cache, tmp_path):
    """Whatever the cache has by then, and whatever --gemm says."""
    train("whole", "--gemm=default").ok()
    train("parts", "--gemm=default", "--steps=2").ok()
    assert not cache.exists()
    goes_on = train("parts", "--gemm=measure").ok()
    products = choices(tmp_path / "parts/gemm.json")
    assert f"{len(products)} as in the run" in note(goes_on)
    assert {c["implementation"] for c in products.values()} == {"packed"}
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    assert digest(tmp_path / "parts") == digest(tmp_path / "whole")


def test_another_machine_times_again_and_says_so(train, cache, tmp_path):
    train("a", "--gemm=measure", "--steps=2").ok()
    path = tmp_path / "a/gemm.json"
    document = json.loads(path.read_text())
    for choice in document["choices"]:
        choice["device"] = "a 6502, 1 thread"
    path.write_text(json.dumps(document))
    cache.unlink()
    goes_on = train("a", "--gemm=measure").ok()
    assert "the run's choices are for another device or other libraries (a 6502, 1 thread)" in (
        goes_on.stdout)
    first, second = gemm_events(tmp_path / "a")
    assert "former_device" not in first and second["former_device"] == "a 6502, 1 thread"
    assert second["step"] == 2


def test_ranks_choose_together_and_go_on_so(programs, compiled, cache, tmp_path):
    """What rank 1 has timed is not what rank 0 has timed: rank 0 decides, also after a restart."""
    job = replace(JOB, batch_size=4)
    plan = compiled(job, "--devices-per-node=2", "--set", "distributed.strategy=zero2")

    def train(out: str, *more: str) -> Path:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        command = programs.command("lmc-run", plan, f"--out={tmp_path / out}", "--gemm=measure",
                                   "--threads=1", *more)
        ends = run_together([command] * 2, [
            {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
             "MASTER_ADDR": "127.0.0.1", "LMC_PORT": port,
             "XDG_CACHE_HOME": str(tmp_path / f"cache{rank}")} for rank in (0, 1)])
        assert [code for code, _ in ends] == [0, 0], ends
        return tmp_path / out

    measured = json.loads((train("first", "--steps=1") / "gemm.json").read_text())
    for rank, implementation in ((0, "packed"), (1, "oneDNN")):
        for choice in measured["choices"]:
            choice["implementation"] = implementation
        (tmp_path / f"cache{rank}/lmc/gemm.json").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"cache{rank}/lmc/gemm.json").write_text(json.dumps(measured))
    whole = train("whole")
    assert {choice["implementation"] for choice in choices(whole / "gemm.json").values()} == {"packed"}
    train("parts", "--steps=2")
    parts = train("parts")
    assert losses(parts) == losses(whole)
    assert digest(parts) == digest(whole)


def test_damaged_choices_are_made_again(train, cache, tmp_path):
    cache.parent.mkdir(parents=True)
    cache.write_text('{"version": 1, "choices": [{"device": ')
    first = train("a", "--gemm=measure", "--steps=2").ok()
    assert f"warning: {cache}: " in first.stderr and "measured in" in note(first)
    assert choices(cache)
    (tmp_path / "a/gemm.json").write_text("[]")
    second = train("a", "--gemm=measure").ok()
    assert f"warning: {tmp_path / 'a/gemm.json'}: " in second.stderr
    assert "from the cache" in note(second)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("LMC_GEMM", "fast", "--gemm=fast: must be default or measure"),
        ("LMC_MKL", "/none/libmkl_rt.so", "LMC_MKL=/none/libmkl_rt.so: "),
        ("LMC_MKL", "libc.so.6", "lacks functions of libmkl_rt.so"),
        ("LMC_CPU_ISA", "x86-64-v9", "LMC_CPU_ISA=x86-64-v9: the CPU's kernels exist for x86-64"),
    ],
)
def test_mistakes_are_one_clear_line(train, monkeypatch, variable, value, message):
    monkeypatch.setenv(variable, value)
    finished = train("a")
    assert finished.code == USER_ERROR
    assert message in finished.stderr and len(finished.stderr.splitlines()) == 1


def test_the_kernels_of_a_narrower_machine_train_the_same_model(train, cache, monkeypatch, tmp_path):
    train("wide").ok()
    monkeypatch.setenv("LMC_CPU_ISA", "x86-64")
    train("narrow").ok()
    assert losses(tmp_path / "narrow") == pytest.approx(losses(tmp_path / "wide"), rel=1e-4)
    device = next(iter(choices(tmp_path / "narrow/gemm.json").values()))["device"]
    assert "kernels x86-64," in device
