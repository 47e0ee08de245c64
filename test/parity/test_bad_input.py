"""Every mistake of the user's: its exit code, one clear line with the place, nothing harmed."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file

import reference
from jobs import Job, write_tokens
from programs import (
    DOES_NOT_FIT, FAILURE, SUCCESS, USER_ERROR, Finished, checkpoints, last_losses, tree_digest,
)
from reference import Model, Optimizer

JOB = Job(
    # More ids than bytes, so that text packed byte by byte fits.
    model=Model(num_hidden_layers=1, vocab_size=320),
    optimizer=Optimizer(warmup_iters=1, decay_iters=3),
    train_iters=3,
    settings={"checkpoint": {"interval": 1, "keep": 0}},
)


def assert_one_clear_line(finished: Finished, code: int, *parts: str) -> None:
    print(f"exit code {finished.code}: {finished.stderr.strip()}")
    assert finished.code == code, finished.command
    lines = [line for line in finished.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, "one line was promised"
    for part in parts:
        assert part in lines[0], f"{part!r} is not named"
    for noise in ("terminate called", "Aborted", "Stack dump", "what():", "Assertion"):
        assert noise not in finished.stderr + finished.stdout


# --- configuration ---------------------------------------------------------------------------


def compile_edited(programs, folder: Path, old: str, new: str):
    """Compiles JOB with one line of its TOML replaced: (Finished, line number of the change)."""
    toml = JOB.write(folder)
    lines = toml.read_text().splitlines()
    assert lines.count(old) == 1
    line = lines.index(old) + 1
    lines[line - 1] = new
    toml.write_text("\n".join(lines) + "\n")
    (folder / "job.plan").write_text("an earlier plan")
    before = tree_digest(folder)
    finished = programs.run("lmc", "compile", "job.toml", "-o", "job.plan", cwd=folder)
    assert tree_digest(folder) == before
    return finished, line


@pytest.mark.parametrize(
    "old, new, parts",
    [
        ("hidden_size = 64", "hiden_size = 64", ["'hiden_size'", "[model]", "'hidden_size'"]),
        ("min_lr = 0.0003", "min_rl = 0.0003", ["'min_rl'", "[lr_schedule]", "'min_lr'"]),
        ("hidden_size = 64", 'hidden_size = "64"', ["hidden_size"]),
        ("hidden_size = 64", "hidden_size = 64.5", ["hidden_size"]),
        ("tie_word_embeddings = false", "tie_word_embeddings = 0", ["tie_word_embeddings"]),
        ("hidden_size = 64", "hidden_size = -64", ["hidden_size", "-64"]),
        ("hidden_size = 64", "hidden_size = 0", ["hidden_size", "0"]),
        ("num_key_value_heads = 2", "num_key_value_heads = 3", ["num_key_value_heads", "3", "4"]),
        ("micro_batch_size = 8", "micro_batch_size = 3", ["micro_batch_size", "3", "8"]),
        ('compute_dtype = "f32"', 'compute_dtype = "fp8"', ["compute_dtype", "fp8", "bf16"]),
        ('architecture = "llama"', 'architecture = "gpt5"', ["architecture", "gpt5", "llama"]),
        ("decay_iters = 3", "decay_iters = 3 3", []),
        ("decay_iters = 3", "decay_iters = 4", ["decay_iters", "4", "3"]),
        ("beta1 = 0.9", "beta1 = 1.5", ["beta1", "1.5"]),
    ],
    ids=[
        "unknown-key", "unknown-optional-key", "string-for-integer", "float-for-integer",
        "integer-for-boolean", "negative-size", "zero-size", "kv-heads-do-not-divide",
        "micro-batch-does-not-divide", "unknown-dtype", "unknown-architecture", "not-toml",
        "decay-after-the-end", "out-of-range",
    ],
)
def test_mistake_in_the_toml(programs, tmp_path, old, new, parts):
    finished, line = compile_edited(programs, tmp_path, old, new)
    assert_one_clear_line(finished, USER_ERROR, f"job.toml:{line}:", ": error: ", *parts)


def test_heads_that_do_not_divide_the_hidden_size(programs, tmp_path):
    toml = JOB.write(tmp_path)
    text = toml.read_text().replace("head_dim = 16\n", "")
    toml.write_text(text.replace("num_attention_heads = 4\n", "num_attention_heads = 6\n"))
    finished = programs.run("lmc", "compile", "job.toml", "-o", "job.plan", cwd=tmp_path)
    assert_one_clear_line(finished, USER_ERROR, "job.toml:", "num_attention_heads", "6", "64")
    assert not (tmp_path / "job.plan").exists()


def test_misspelt_override(programs, tmp_path):
    JOB.write(tmp_path)
    finished = programs.run(
        "lmc", "compile", "job.toml", "-o", "job.plan", "--set", "trainig.seed=1", cwd=tmp_path
    )
    assert_one_clear_line(finished, USER_ERROR, "trainig", "training")
    assert not (tmp_path / "job.plan").exists()


def test_missing_toml(programs, tmp_path):
    finished = programs.run("lmc", "compile", "absent.toml", "-o", "job.plan", cwd=tmp_path)
    assert_one_clear_line(finished, USER_ERROR, "absent.toml")
    assert not (tmp_path / "job.plan").exists()


def test_unknown_flag(programs, compiled, tmp_path):
    for name, *args in (
        ("lmc", "compile", "job.toml", "--ouput=x"),
        ("lmc-run", compiled(JOB), f"--out={tmp_path / 'run'}", "--step=1"),
        ("lmc-data", "pack", "in.txt", "--ouput=x"),
    ):
        finished = programs.run(name, *args)
        assert_one_clear_line(finished, USER_ERROR, str(args[-1]).split("=")[0])
    assert not (tmp_path / "run").exists()


def test_plan_that_does_not_fit(programs, tmp_path):
    JOB.write(tmp_path)
    finished = programs.run(
        "lmc", "compile", "job.toml", "-o", "job.plan", "--memory-budget=64KiB", cwd=tmp_path
    )
    print(finished.stderr)
    assert finished.code == DOES_NOT_FIT
    assert "64" in finished.stderr and "budget" in finished.stderr
    assert not (tmp_path / "job.plan").exists()


def test_unwritable_plan(programs, tmp_path):
    JOB.write(tmp_path)
    (tmp_path / "file").write_text("")
    finished = programs.run("lmc", "compile", "job.toml", "-o", "file/job.plan", cwd=tmp_path)
    assert finished.code in (FAILURE, USER_ERROR)
    assert_one_clear_line(finished, finished.code, "file/job.plan")


# --- token files -----------------------------------------------------------------------------


@pytest.fixture
def private_job(programs, tmp_path):
    """JOB compiled in a folder of this test's own, whose train.bin it may spoil."""
    toml = JOB.write(tmp_path)
    programs.run("lmc", "compile", toml, "-o", tmp_path / "job.plan").ok()
    return tmp_path


def pack(programs, folder: Path) -> bytes:
    """train.bin in lmc's own format: its header promises the tokens that follow."""
    (folder / "text.txt").write_text("It was a bright cold day in April. " * 40)
    programs.run("lmc-data", "pack", folder / "text.txt", "-o", folder / "train.bin").ok()
    return (folder / "train.bin").read_bytes()


def refuses_data(programs, folder: Path, *parts: str) -> None:
    finished = programs.run("lmc-run", folder / "job.plan", f"--out={folder / 'run'}")
    assert_one_clear_line(finished, USER_ERROR, "train.bin", *parts)
    assert not checkpoints(folder / "run")


def test_missing_token_file(programs, private_job):
    (private_job / "train.bin").unlink()
    refuses_data(programs, private_job)


def test_empty_token_file(programs, private_job):
    (private_job / "train.bin").write_bytes(b"")
    refuses_data(programs, private_job, "empty")


def test_token_file_shorter_than_a_sample(programs, private_job):
    write_tokens(private_job / "train.bin", np.arange(JOB.sequence_length))
    refuses_data(programs, private_job)


def test_token_file_of_an_odd_size(programs, private_job):
    data = (private_job / "train.bin").read_bytes()
    (private_job / "train.bin").write_bytes(data[:-1])
    refuses_data(programs, private_job)


@pytest.mark.parametrize("keep", [4, 40, 1000, -2, -1])
def test_truncated_token_file(programs, private_job, keep):
    data = pack(programs, private_job)
    programs.run("lmc-run", private_job / "job.plan", f"--out={private_job / 'whole'}").ok()
    (private_job / "train.bin").write_bytes(data[:keep])
    refuses_data(programs, private_job)


def test_folder_for_a_token_file(programs, private_job):
    (private_job / "train.bin").unlink()
    (private_job / "train.bin").mkdir()
    refuses_data(programs, private_job)


def test_token_beyond_the_vocabulary(programs, private_job):
    tokens = JOB.tokens()
    tokens[77] = JOB.model.vocab_size
    write_tokens(private_job / "train.bin", tokens)
    refuses_data(programs, private_job, "77", "320")


def test_missing_text_to_pack(programs, tmp_path):
    finished = programs.run("lmc-data", "pack", "absent.txt", "-o", "out.bin", cwd=tmp_path)
    assert_one_clear_line(finished, USER_ERROR, "absent.txt")
    assert not (tmp_path / "out.bin").exists()


def test_empty_text_to_pack(programs, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "out.bin").write_text("earlier tokens")
    finished = programs.run("lmc-data", "pack", "empty.txt", "-o", "out.bin", cwd=tmp_path)
    assert_one_clear_line(finished, USER_ERROR, "out.bin")
    assert (tmp_path / "out.bin").read_text() == "earlier tokens"


# --- plans -----------------------------------------------------------------------------------


def refuses_plan(programs, tmp_path, content: bytes, *parts: str) -> None:
    (tmp_path / "bad.plan").write_bytes(content)
    finished = programs.run("lmc-run", tmp_path / "bad.plan", f"--out={tmp_path / 'run'}")
    assert_one_clear_line(finished, USER_ERROR, "bad.plan", *parts)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("percent", [0, 0.01, 1, 25, 50, 75, 99, 99.9])
def test_truncated_plan(programs, compiled, tmp_path, percent):
    data = compiled(JOB).read_bytes()
    keep = int(percent / 100 * len(data))
    print(f"{keep} of {len(data)} bytes")
    refuses_plan(programs, tmp_path, data[:keep])


def test_text_for_a_plan(programs, compiled, tmp_path):
    refuses_plan(programs, tmp_path, compiled(JOB).with_name("job.toml").read_bytes())


def test_plan_with_another_identifier(programs, compiled, tmp_path):
    data = compiled(JOB).read_bytes()
    assert data[4:8] == b"LMCP"
    refuses_plan(programs, tmp_path, data[:4] + b"LMCX" + data[8:])


def test_missing_plan(programs, tmp_path):
    finished = programs.run("lmc-run", tmp_path / "absent.plan", f"--out={tmp_path / 'run'}")
    assert_one_clear_line(finished, USER_ERROR, "absent.plan")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "setting, parts",
    [
        ("lr_schedule.lrr=1", ["lr_schedule.lrr", "lr_schedule.lr"]),
        ("lr_schedule.lr=fast", ["lr_schedule.lr", "fast"]),
        ("lr_schedule.lr=-1", ["lr_schedule.lr", "-1"]),
        ("model.hidden_size=128", ["model.hidden_size"]),
    ],
    ids=["unknown", "wrong-type", "out-of-range", "compiled-in"],
)
def test_bad_setting_at_run_time(programs, compiled, tmp_path, setting, parts):
    finished = programs.run(
        "lmc-run", compiled(JOB), f"--out={tmp_path / 'run'}", "--set", setting
    )
    assert_one_clear_line(finished, USER_ERROR, *parts)
    assert not checkpoints(tmp_path / "run")


# --- checkpoints and weights -----------------------------------------------------------------


def test_checkpoint_of_another_model(programs, compiled, tmp_path):
    other = replace(JOB, model=replace(JOB.model, intermediate_size=144))
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(other), f"--out={out}").ok()
    before = tree_digest(out / "checkpoints")
    named = checkpoints(out)[JOB.train_iters]
    finished = programs.run(
        "lmc-run", compiled(JOB), f"--out={tmp_path / 'second'}", f"--resume={named}"
    )
    assert_one_clear_line(finished, USER_ERROR, str(named))
    finished = programs.run("lmc-run", compiled(JOB), f"--out={out}", "--resume=auto")
    assert_one_clear_line(finished, USER_ERROR, str(named))
    assert tree_digest(out / "checkpoints") == before


def test_missing_checkpoint(programs, compiled, tmp_path):
    absent = tmp_path / "checkpoints" / "7"
    finished = programs.run(
        "lmc-run", compiled(JOB), f"--out={tmp_path / 'run'}", f"--resume={absent}"
    )
    assert_one_clear_line(finished, USER_ERROR, str(absent))


@pytest.mark.parametrize("name", ["model.safetensors", "moment2.safetensors", "state.json"])
def test_damaged_checkpoint(programs, compiled, tmp_path, name):
    """Named, it is refused; resuming by itself falls back to the one before, and says so."""
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(JOB), f"--out={out}").ok()
    whole = last_losses(out)
    newest = checkpoints(out)[JOB.train_iters]
    data = bytearray((newest / name).read_bytes())
    if name == "state.json":
        data = data[: len(data) * 3 // 4]
    else:
        data[len(data) * 3 // 4] ^= 0x10
    (newest / name).write_bytes(data)
    finished = programs.run(
        "lmc-run", compiled(JOB), f"--out={tmp_path / 'second'}", f"--resume={newest}"
    )
    assert_one_clear_line(finished, USER_ERROR, str(newest))
    finished = programs.run("lmc-run", compiled(JOB), f"--out={out}", "--resume=auto").ok()
    print(finished.stderr)
    assert str(newest) in finished.stderr
    assert last_losses(out) == whole


@pytest.mark.parametrize("mistake", ["missing", "extra", "misshapen", "truncated", "absent"])
def test_weights_that_do_not_fit(programs, compiled, tmp_path, mistake):
    weights = reference.random_weights(JOB.model, seed=5)
    named = "model.layers.0.mlp.up_proj.weight"
    if mistake == "missing":
        del weights[named]
    elif mistake == "extra":
        named = "model.layers.1.mlp.up_proj.weight"
        weights[named] = weights["model.layers.0.mlp.up_proj.weight"].clone()
    elif mistake == "misshapen":
        weights[named] = weights[named].t().contiguous()
    file = tmp_path / "weights.safetensors"
    if mistake != "absent":
        save_file(weights, file)
    if mistake == "truncated":
        file.write_bytes(file.read_bytes()[:-5])
    finished = programs.run(
        "lmc-run", compiled(JOB), f"--out={tmp_path / 'run'}", f"--init={file}"
    )
    parts = [named] if mistake in ("missing", "extra", "misshapen") else []
    assert_one_clear_line(finished, USER_ERROR, str(file), *parts)
    assert not checkpoints(tmp_path / "run")


# --- output disks ----------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """small_disk(bytes, options) mounts a tmpfs of that size."""
    mounted = []

    def mount(size: int, options: str = "rw") -> Path:
        folder = tmp_path / "disk"
        folder.mkdir(exist_ok=True)
        result = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},{options}", "tmpfs", folder],
            capture_output=True, text=True,
        )
        if result.returncode != 0:
            reason = f"cannot mount a tmpfs as user {os.getuid()}: {result.stderr.strip()}"
            print(reason)
            pytest.skip(reason)
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


def test_output_path_below_a_file(programs, compiled, tmp_path):
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "run"
    finished = programs.run("lmc-run", compiled(JOB), f"--out={out}")
    assert finished.code in (FAILURE, USER_ERROR)
    assert_one_clear_line(finished, finished.code, str(out.parent))


def test_read_only_output_disk(programs, compiled, small_disk):
    out = small_disk(1 << 20, "ro") / "run"
    finished = programs.run("lmc-run", compiled(JOB), f"--out={out}")
    assert finished.code in (FAILURE, USER_ERROR)
    assert_one_clear_line(finished, finished.code, str(out.parent))


def checkpoint_bytes(programs, compiled, tmp_path) -> int:
    out = tmp_path / "measured"
    programs.run("lmc-run", compiled(JOB), f"--out={out}", "--steps=1").ok()
    return sum(p.stat().st_size for p in checkpoints(out)[1].iterdir())


def test_full_output_disk(programs, compiled, tmp_path, small_disk):
    """Room for one checkpoint and a half: the later ones fail, the first stays, and with more
    room the run goes on from it to the same end. A save that fails on the way may be a warning;
    the end of the run must be an error."""
    size = checkpoint_bytes(programs, compiled, tmp_path)
    plan, disk = compiled(JOB), small_disk(size * 3 // 2 + 65536)
    finished = programs.run("lmc-run", plan, f"--out={disk / 'run'}")
    print(f"exit code {finished.code}: {finished.stderr.strip()}")
    assert finished.code == FAILURE
    errors = [line for line in finished.stderr.splitlines() if "error: " in line]
    assert len(errors) == 1 and str(disk / "run") in errors[0]
    assert list(checkpoints(disk / "run")) == [1]

    subprocess.run(["mount", "-o", f"remount,size={size * 5}", disk], check=True)
    programs.run("lmc-run", plan, f"--out={disk / 'run'}", "--resume=auto").ok()
    whole = tmp_path / "whole"
    programs.run("lmc-run", plan, f"--out={whole}").ok()
    assert last_losses(disk / "run") == last_losses(whole)


def test_disk_too_small_for_any_checkpoint(programs, compiled, tmp_path, small_disk):
    disk = small_disk(checkpoint_bytes(programs, compiled, tmp_path) // 2)
    finished = programs.run("lmc-run", compiled(JOB), f"--out={disk / 'run'}")
    print(f"exit code {finished.code}: {finished.stderr.strip()}")
    assert finished.code == FAILURE
    errors = [line for line in finished.stderr.splitlines() if "error: " in line]
    assert len(errors) == 1 and str(disk / "run") in errors[0]
    assert not checkpoints(disk / "run")


def test_full_disk_for_packed_tokens(programs, tmp_path, small_disk):
    (tmp_path / "text.txt").write_text("It was a bright cold day in April. " * 40000)
    disk = small_disk(64 << 10)
    out = disk / "out.bin"
    finished = programs.run("lmc-data", "pack", tmp_path / "text.txt", "-o", out)
    assert_one_clear_line(finished, FAILURE, str(out))
    assert not list(disk.iterdir())


def test_the_job_itself_is_good(programs, compiled, tmp_path):
    """Otherwise every refusal above could be of something else."""
    finished = programs.run("lmc-run", compiled(JOB), f"--out={tmp_path / 'run'}")
    assert finished.code == SUCCESS
    assert list(checkpoints(tmp_path / "run")) == [1, 2, 3]
