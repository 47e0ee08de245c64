"""Runs that must agree: accumulated or not, repeated, fused or not, on other thread counts,
interrupted."""

import json
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from draws import draw_count
from jobs import Job
from programs import (
    INTERRUPTED, STATE_FILES, checkpoint_digest, checkpoint_state, checkpoints, last_losses, losses,
    metrics, tree_digest,
)
from reference import Model, Optimizer

STEPS = 10
JOB = Job(
    model=Model(tie_word_embeddings=True),
    train_iters=STEPS,
    settings={"checkpoint": {"interval": 0}},
)


def run(programs, plan: Path, out: Path, *options: str) -> Path:
    programs.run("lmc-run", plan, f"--out={out}", *options).ok()
    return out


def largest_difference(ours: list[float], theirs: list[float]) -> float:
    """Relative, and shown step by step."""
    assert len(ours) == len(theirs) == STEPS
    assert min(theirs) < 0.99 * theirs[0], "nothing was learnt, so nothing is compared"
    relative = [abs(a - b) / b for a, b in zip(ours, theirs)]
    for step, (a, b, r) in enumerate(zip(ours, theirs, relative), start=1):
        print(f"step {step:2}: {a:.9f} and {b:.9f}, relative {r:.1e}")
    return max(relative)


def assert_same_final_checkpoint(ours: Path, theirs: Path, step: int) -> None:
    found = [checkpoints(out) for out in (ours, theirs)]
    assert [max(steps) for steps in found] == [step, step]
    digests = [checkpoint_digest(steps[step]) for steps in found]
    for key, value in digests[0].items():
        print(f"{key}: {value[:16]}, {digests[1][key][:16]}")
    assert digests[0] == digests[1]


@pytest.mark.parametrize("compute_dtype, bound", [("f32", 1e-6), ("f64", 1e-12)])
def test_accumulation_changes_nothing(programs, compiled, tmp_path, compute_dtype, bound):
    """MBS 8 x GAS 1 = MBS 2 x GAS 4 = MBS 1 x GAS 8."""
    job = replace(JOB, compute_dtype=compute_dtype)
    plans = {mbs: compiled(replace(job, micro_batch_size=mbs)) for mbs in (8, 2, 1)}
    history = {
        mbs: losses(run(programs, plan, tmp_path / str(mbs))) for mbs, plan in plans.items()
    }
    assert largest_difference(history[2], history[8]) <= bound
    assert largest_difference(history[1], history[8]) <= bound


@pytest.mark.parametrize("compute_dtype, bound", [("f32", 1e-6), ("f64", 1e-12)])
def test_the_chunk_of_the_loss_changes_nothing(programs, compiled, tmp_path, compute_dtype, bound):
    """All 256 tokens of a micro-step at once = 96, 96 and 64 = 16 chunks of 16."""
    job = replace(JOB, compute_dtype=compute_dtype)
    history = {}
    for chunk in (256, 96, 16):
        plan = compiled(
            replace(job, settings={**job.settings, "memory": {"loss_chunk": chunk}}))
        report = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
        assert report["loss_chunk"]["tokens"] == chunk
        history[chunk] = losses(run(programs, plan, tmp_path / str(chunk)))
    assert largest_difference(history[96], history[256]) <= bound
    assert largest_difference(history[16], history[256]) <= bound


@pytest.mark.parametrize("compute_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("threads", [1, 2])
def test_two_runs_are_bit_identical(programs, compiled, tmp_path, compute_dtype, threads):
    plan = compiled(replace(JOB, compute_dtype=compute_dtype, micro_batch_size=4))
    first, second = (
        run(programs, plan, tmp_path / name, f"--threads={threads}") for name in ("a", "b")
    )
    assert losses(first) == losses(second)
    assert_same_final_checkpoint(first, second, STEPS)


@pytest.mark.parametrize("compute_dtype", ["f32", "bf16"])
def test_recompute_changes_no_bit(programs, compiled, tmp_path, compute_dtype):
    """Every recompute mode gives the checkpoint of keeping everything, with less memory."""
    job = replace(JOB, compute_dtype=compute_dtype, micro_batch_size=4)
    modes = {
        **{mode: {"recompute": mode} for mode in ("keep-all", "none", "activation", "full", "block")},
        "every second block": {"recompute": "block", "recompute_stride": 2},
    }
    runs, bytes_held = {}, {}
    for name, memory in modes.items():
        plan = compiled(replace(job, settings={**job.settings, "memory": memory}))
        report = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
        assert report["recompute"]["mode"] == memory["recompute"]
        bytes_held[name] = report["memory"]["activation_bytes"]
        runs[name] = run(programs, plan, tmp_path / name)
    print(f"activation bytes: {bytes_held}")
    assert bytes_held["keep-all"] > bytes_held["none"] == bytes_held["activation"]
    assert bytes_held["none"] > bytes_held["full"] > bytes_held["block"]
    assert bytes_held["none"] > bytes_held["every second block"]
    for name in modes:
        assert losses(runs[name]) == losses(runs["keep-all"])
        assert_same_final_checkpoint(runs[name], runs["keep-all"], STEPS)


def test_a_mix_of_recompute_options_changes_no_bit(programs, compiled, tmp_path):
    """What the search gives its layers under a budget trains as recomputing nothing does."""
    job = replace(JOB, compute_dtype="bf16", micro_batch_size=4,
                  model=replace(JOB.model, num_hidden_layers=4))

    def planned(**memory):
        plan = compiled(replace(job, settings={**job.settings, "memory": memory}))
        return plan, json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)

    (kept, most), (_, least) = planned(recompute="none"), planned(recompute="block")
    budget = (most["memory"]["peak_bytes"] + least["memory"]["peak_bytes"]) // 2
    mixed, report = planned(recompute="auto", budget=budget)
    print(f"budget {budget}: {report['recompute']['attempts']}")
    assert report["memory"]["peak_bytes"] <= budget < most["memory"]["peak_bytes"]
    assert report["cost"]["step_seconds"] < least["cost"]["step_seconds"]
    assert len(set(report["recompute"]["layers"])) > 1
    runs = [run(programs, plan, tmp_path / name) for plan, name in ((kept, "kept"), (mixed, "mix"))]
    assert losses(runs[0]) == losses(runs[1])
    assert_same_final_checkpoint(*runs, STEPS)


@pytest.mark.parametrize("compute_dtype", ["f32", "bf16"])
def test_fusion_changes_no_bit(programs, compiled, tmp_path, compute_dtype):
    """Each kind of fusion left out, and all of them: more traffic, the same checkpoint."""
    job = replace(JOB, compute_dtype=compute_dtype, micro_batch_size=4)
    left_out = ["", "siblings", "layers", "producer,siblings,layers"]
    runs, traffic = {}, {}
    for kinds in left_out:
        plan = compiled(job, *([f"--disable-fusion={kinds}"] if kinds else []))
        report = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
        traffic[kinds] = report["fusion"]["layers_bytes_per_token"]
        runs[kinds] = run(programs, plan, tmp_path / kinds)
    print(f"bytes a token in layers, without: {traffic}")
    assert traffic[""] < min(traffic["siblings"], traffic["layers"])
    assert max(traffic["siblings"], traffic["layers"]) < traffic["producer,siblings,layers"]
    for kinds in left_out[1:]:
        assert losses(runs[kinds]) == losses(runs[""])
        assert_same_final_checkpoint(runs[kinds], runs[""], STEPS)


def random_job(seed: int) -> Job:
    """A small model and batch of some shape that a job may have."""
    chance = random.Random(seed)
    kv_heads, groups = chance.choice([1, 2, 3]), chance.choice([1, 2, 4])
    head_dim = chance.choice([8, 16, 24])
    micro_batch_size, steps = chance.choice([1, 2, 3]), chance.choice([1, 2, 3])
    window = chance.choice([0, 0, 5])
    return Job(
        model=Model(
            architecture="mistral" if window else "llama",
            vocab_size=chance.choice([97, 128, 200]),
            hidden_size=kv_heads * groups * head_dim,
            intermediate_size=chance.choice([40, 88, 176]),
            num_hidden_layers=chance.choice([1, 2, 3]),
            num_attention_heads=kv_heads * groups,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            tie_word_embeddings=chance.random() < 0.5,
            sliding_window=window,
        ),
        sequence_length=chance.choice([8, 17, 32]),
        batch_size=micro_batch_size * steps,
        micro_batch_size=micro_batch_size,
        train_iters=3,
        optimizer=Optimizer(warmup_iters=1, decay_iters=3),
        compute_dtype=chance.choice(["f32", "bf16"]),
        seed=seed,
        settings={"checkpoint": {"interval": 0}},
    )


@pytest.mark.parametrize("seed", range(draw_count(4)))
def test_memory_planning_of_drawn_jobs_changes_no_bit(programs, compiled, tmp_path, seed):
    """What is kept, what is computed again and which values share bytes are nothing to the
    losses, the gradients and the state; nor is all of it without fusion."""
    job = random_job(seed)
    print(job)

    def plan(*options: str, **memory) -> Path:
        return compiled(replace(job, settings={**job.settings, "memory": memory}), *options)

    def report(path: Path) -> dict:
        return json.loads(programs.run("lmc", "explain", path, "--json").ok().stdout)

    plans = {mode: plan(recompute=mode) for mode in ("none", "keep-all", "full", "block")}
    plans["own bytes"] = plan("--disable-reuse", recompute="none")
    plans["unfused"] = plan("--disable-fusion=producer,siblings,layers", recompute="full")
    plans["own bytes, block"] = plan("--disable-reuse", recompute="block")
    peaks = {name: report(path)["memory"]["peak_bytes"] for name, path in plans.items()}
    # Between what the modes need at most and at least: auto may mix them.
    least = min(peaks[mode] for mode in ("none", "full", "block"))
    plans["auto"] = plan(recompute="auto", budget=(least + peaks["none"]) // 2)
    print(peaks, report(plans["auto"])["recompute"]["layers"])
    assert peaks["own bytes"] > peaks["none"]
    assert peaks["own bytes, block"] > peaks["block"]

    runs, gradients = {}, {}
    for name, path in plans.items():
        runs[name] = run(programs, path, tmp_path / name)
        dump = tmp_path / f"{name}.safetensors"
        run(programs, path, tmp_path / f"{name}, one step", "--steps=1", f"--dump-gradients={dump}")
        gradients[name] = load_file(dump)
    for name in plans:
        assert losses(runs[name]) == losses(runs["none"]), name
        assert gradients[name].keys() == gradients["none"].keys()
        for key, gradient in gradients["none"].items():
            assert gradient.abs().max() > 0
            assert gradients[name][key].equal(gradient), f"{key} with {name}"
        assert_same_final_checkpoint(runs[name], runs["none"], job.train_iters)


def test_one_and_two_threads_agree(programs, compiled, tmp_path):
    plan = compiled(JOB)
    history = [
        losses(run(programs, plan, tmp_path / str(threads), f"--threads={threads}"))
        for threads in (1, 2)
    ]
    assert largest_difference(*history) <= 1e-6


def test_another_seed_is_another_run(programs, compiled, tmp_path):
    """The equalities above are of something: weights do follow the seed."""
    history = [
        losses(run(programs, compiled(replace(JOB, seed=seed)), tmp_path / str(seed)))
        for seed in (1234, 1235)
    ]
    print(f"{history[0][:3]} and {history[1][:3]}")
    assert history[0][0] != history[1][0]


# Several epochs of 50 steps, so that a resumed run must also go on at the right sample.
LONG = Job(
    model=Model(tie_word_embeddings=True, num_hidden_layers=1),
    optimizer=Optimizer(decay_iters=240),
    batch_size=4,
    micro_batch_size=2,
    train_iters=240,
    epoch_steps=50,
    settings={"checkpoint": {"interval": 1, "keep": 3}},
)


@pytest.fixture(scope="module")
def long_plan(compiled):
    return compiled(LONG)


@pytest.fixture(scope="module")
def uninterrupted(programs, long_plan, tmp_path_factory):
    """(run folder, seconds it took) of LONG."""
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    began = time.monotonic()
    run(programs, long_plan, out, "--threads=2")
    return out, time.monotonic() - began


def test_resuming_is_bit_identical(programs, long_plan, uninterrupted, tmp_path):
    """120 steps, then as many resumed, are 240."""
    out = tmp_path / "run"
    run(programs, long_plan, out, "--threads=2", "--steps=120")
    assert max(checkpoints(out)) == 120
    run(programs, long_plan, out, "--threads=2", "--resume=auto")
    assert losses(out) == losses(uninterrupted[0])
    assert_same_final_checkpoint(out, uninterrupted[0], LONG.train_iters)


def test_resuming_from_a_named_checkpoint_is_bit_identical(
    programs, long_plan, uninterrupted, tmp_path
):
    first, second = tmp_path / "first", tmp_path / "second"
    run(programs, long_plan, first, "--threads=2", "--steps=7")
    before = tree_digest(first)
    run(programs, long_plan, second, "--threads=2", f"--resume={checkpoints(first)[6]}")
    assert tree_digest(first) == before
    assert [line["step"] for line in metrics(second)] == list(range(7, LONG.train_iters + 1))
    assert_same_final_checkpoint(second, uninterrupted[0], LONG.train_iters)


def wait_for(condition, process, seconds: float = 60) -> bool:
    """False when the process ends first."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline, "lmc-run makes no progress"
        time.sleep(0.0005)
    return True


def test_sigterm_writes_a_checkpoint_to_go_on_from(
    programs, long_plan, uninterrupted, tmp_path
):
    out = tmp_path / "run"
    # No checkpoint of its own accord: the one that is there was written for the signal.
    process = programs.start(
        "lmc-run", long_plan, f"--out={out}", "--threads=2", "--set", "checkpoint.interval=0"
    )
    file = out / "metrics.jsonl"
    assert wait_for(lambda: file.exists() and file.read_bytes().count(b"\n") >= 5, process)
    process.send_signal(signal.SIGTERM)
    code = process.wait(60)
    print(f"exit code {code}, checkpoints {list(checkpoints(out))}")
    assert code == INTERRUPTED
    (step,) = checkpoints(out)
    assert 5 <= step < LONG.train_iters
    assert len(losses(out)) == step
    run(programs, long_plan, out, "--threads=2", "--resume=auto")
    assert losses(out) == losses(uninterrupted[0])
    assert_same_final_checkpoint(out, uninterrupted[0], LONG.train_iters)


def unfinished(out: Path) -> list[Path]:
    """What a save that was cut short left behind."""
    folder = out / "checkpoints"
    entries = folder.iterdir() if folder.is_dir() else []
    return [p for p in entries if not p.name.isdigit() and p.is_dir()]


def complete(folder: Path) -> bool:
    """Whether every file of a checkpoint is there and whole."""
    return checkpoint_state(folder)["step"] == int(folder.name) and all(
        load_file(folder / name) for name in STATE_FILES
    )


def test_sigkill_at_any_moment_loses_nothing(programs, long_plan, uninterrupted, tmp_path):
    """50 kills, each a random moment into a run that saves after every step."""
    kills, chance, out = 50, random.Random(20), tmp_path / "run"
    reference_run, seconds = uninterrupted
    step_seconds = seconds / LONG.train_iters
    in_save = done = 0
    for kill in range(kills):
        process = programs.start(
            "lmc-run", long_plan, f"--out={out}", "--threads=2", "--resume=auto"
        )
        newest = max(checkpoints(out), default=0)
        if kill % 10 == 9:  # while it starts and reads the checkpoint
            time.sleep(chance.uniform(0, 0.1))
        else:  # soon after it saved once more, so that training advances
            alive = wait_for(lambda: max(checkpoints(out), default=0) > newest, process)
            if kill % 2 == 0:  # and the next save is on its way
                alive = alive and wait_for(lambda: unfinished(out), process)
            assert alive, f"ended by itself with {process.returncode} at kill {kill}"
            time.sleep(chance.uniform(0, step_seconds))
        assert process.poll() is None, f"ended by itself with {process.returncode}"
        process.send_signal(signal.SIGKILL)
        process.wait()
        left = checkpoints(out)
        in_save += bool(unfinished(out))
        assert max(left, default=0) >= newest
        assert all(complete(folder) for folder in left.values())
        done = max(left, default=0)
    print(f"{kills} kills, {in_save} of them during a save; step {done} of {LONG.train_iters}")
    assert 0 < done < LONG.train_iters and in_save > 0
    run(programs, long_plan, out, "--threads=2", "--resume=auto")
    assert_same_final_checkpoint(out, reference_run, LONG.train_iters)
    assert last_losses(out) == last_losses(reference_run)
    assert not unfinished(out)
