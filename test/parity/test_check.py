"""lmc-run --check: each fault is named before the first step, nothing in the run's folder changes, and
good jobs raise no alarm."""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from jobs import Job, toml_value, write_tokens
from programs import (DOES_NOT_FIT, INTERRUPTED, SECONDS_LIMIT, SUCCESS, USER_ERROR, Finished, checkpoints,
                      losses, tree_digest, until)
from reference import Model, Optimizer

STEPS = 8
TINY = Job(
    model=Model(num_hidden_layers=1, hidden_size=32, intermediate_size=64, head_dim=8),
    optimizer=Optimizer(decay_iters=STEPS),
    sequence_length=16, batch_size=4, micro_batch_size=2, train_iters=STEPS, epoch_steps=STEPS,
    settings={"checkpoint": {"interval": 2, "keep": 2}},
)


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def check(programs, *args: object) -> tuple[Finished, dict]:
    """Runs a check with --json, and asserts that it left no file."""
    out = Path(next(str(a) for a in args if str(a).startswith("--out=")).removeprefix("--out="))
    before = tree_digest(out), names_in(out.parent)
    done = programs.run("lmc-run", *args, "--check", "--json", "--threads=1")
    assert (tree_digest(out), names_in(out.parent)) == before
    print(done.stdout, done.stderr)
    report = json.loads(done.stdout) if done.stdout.startswith("{") else {"findings": []}
    assert done.code == report.get("code", done.code)
    return done, report


def texts(report: dict, level: str) -> list[str]:
    return [f"{f['check']}: {f['text']}" for f in report["findings"] if f["level"] == level]


def names(report: dict, level: str, *parts: str) -> None:
    """Some finding of the level has all the parts."""
    found = texts(report, level)
    assert any(all(part in text for part in parts) for text in found), (parts, found)


def is_good(done: Finished, report: dict) -> None:
    assert done.code == SUCCESS and done.stderr == ""
    assert texts(report, "error") == [] and texts(report, "warning") == []
    names(report, "ok", "trial: 3 steps in one go", "bits of all state")
    assert report["totals"]["step_seconds"] > 0 and report["totals"]["save_seconds"] > 0


@pytest.fixture
def job(compiled, tmp_path):
    """A private copy of TINY's folder, whose token files a test may damage: the plan's path."""
    source = compiled(TINY).parent
    folder = tmp_path / "job"
    folder.mkdir()
    toml = TINY.write(folder)
    assert (source / "job.toml").read_text() == toml.read_text()
    return folder


@pytest.fixture
def plan(programs, job):
    programs.run("lmc", "compile", job / "job.toml", "-o", job / "job.plan").ok()
    return job / "job.plan"


@pytest.fixture
def trained(programs, plan, tmp_path):
    """A run that has done 4 of 8 steps."""
    programs.run("lmc-run", plan, f"--out={tmp_path}/run", "--steps=4", "--threads=1").ok()
    return tmp_path / "run"


# --- good jobs -------------------------------------------------------------------------------


def test_a_new_and_a_resumed_run_are_good_and_go_on_as_if_not_checked(programs, plan, tmp_path):
    out, other = tmp_path / "run", tmp_path / "other"
    done, report = check(programs, plan, f"--out={out}")
    is_good(done, report)
    assert not out.exists()
    totals = report["totals"]
    assert totals["steps"] == STEPS and totals["tokens"] == STEPS * 4 * 16
    assert totals["saves"] == 4 and totals["hours"] > 0
    names(report, "ok", "totals:", "Chinchilla", "20")
    for folder in (out, other):
        programs.run("lmc-run", plan, f"--out={folder}", "--steps=4", "--threads=1").ok()
        if folder == out:
            done, report = check(programs, f"--out={out}")
            is_good(done, report)
            names(report, "ok", "goes on after step 4")
            names(report, "ok", "checkpoints/4 is whole")
        programs.run("lmc-run", f"--out={folder}", "--threads=1").ok()
    assert losses(out) == losses(other)
    table = programs.run("lmc-run", f"--out={out}", "--check")
    assert table.code == SUCCESS and "nothing to train: step 8 of 8 is done" in table.stdout
    assert "check: 0 error(s), 0 warning(s)\n" in table.stdout


def phases_toml() -> str:
    table = [{"name": "short", "share": 0.25}, {"name": "long", "share": 0.75, "sequence_length": 32,
                                                "batch_size": 2, "micro_batch_size": 1}]
    return "".join("\n[[phase]]\n" + "".join(f"{k} = {toml_value(v)}\n" for k, v in each.items())
                   for each in table)


@pytest.mark.parametrize("kind", ["phases", "mixture", "adamw8bit", "bf16", "validation"])
def test_a_good_job_raises_no_alarm(programs, tmp_path, kind):
    generator = np.random.default_rng(4)
    job, more = TINY, ""
    if kind == "phases":  # the border is behind step 2, within the three steps
        job, more = replace(TINY, settings={**TINY.settings, "data": {"shuffle_block": 32}}), phases_toml()
    elif kind == "mixture":
        sources = [{"name": name, "paths": [f"{name}.bin"], "weight": weight}
                   for name, weight in (("web", 0.75), ("books", 0.25))]
        job = replace(TINY, settings={**TINY.settings, "data": {"train": [], "source": sources}})
    elif kind == "adamw8bit":
        job = replace(TINY, settings={**TINY.settings, "optimizer": {"type": "adamw8bit"}})
    elif kind == "bf16":
        job = replace(TINY, compute_dtype="bf16")
    elif kind == "validation":
        job = replace(TINY, settings={**TINY.settings, "data": {"validation": ["books.bin"]},
                                      "checkpoint": {"export_interval": 4}})
    for name in ("web", "books"):
        write_tokens(tmp_path / f"{name}.bin", generator.integers(256, size=2000))
    toml = job.write(tmp_path)
    toml.write_text(toml.read_text() + more)
    programs.run("lmc", "compile", toml, "-o", tmp_path / "job.plan").ok()
    done, report = check(programs, tmp_path / "job.plan", f"--out={tmp_path}/run")
    is_good(done, report)
    if kind == "validation":
        assert report["totals"]["validation_share"] > 0 and report["totals"]["export_seconds"] > 0


def test_initial_weights_are_checked_with_their_run(programs, plan, trained, tmp_path):
    programs.run("lmc-data", "export", trained, "-o", tmp_path / "weights").ok()
    done, report = check(programs, plan, f"--out={tmp_path}/new", f"--init={tmp_path}/weights")
    is_good(done, report)
    names(report, "ok", "begins with the weights of", "weights")
    done, report = check(programs, plan, f"--out={tmp_path}/new", f"--init={tmp_path}/none")
    assert done.code == USER_ERROR
    names(report, "error", "trial:", "none")


def test_all_ranks_check_together(programs, compiled, tmp_path):
    plan = compiled(TINY, "--devices-per-node=2", "--set", "distributed.strategy=zero2")
    done, report = check(programs, plan, f"--out={tmp_path}/run", "--nproc=2")
    is_good(done, report)
    assert [link["name"] for link in report["preflight"]["links"]] == ["shard", "device"]
    names(report, "ok", "memory:", "for 2 ranks of a machine")


# --- data ------------------------------------------------------------------------------------


def test_tokens_beyond_the_vocabulary_are_named(programs, plan, job, tmp_path):
    # At the very end of a file that no epoch of this short job reaches.
    tokens = np.random.default_rng(1).integers(256, size=200_000)
    tokens[-5] = 300
    write_tokens(job / "train.bin", tokens)
    done, report = check(programs, plan, f"--out={tmp_path}/run")
    assert done.code == USER_ERROR
    names(report, "error", "data:", "train.bin", "199995", "300", "256")
    # The start itself says it, too, and goes on.
    started = programs.run("lmc-run", plan, f"--out={tmp_path}/run", "--steps=1", "--threads=1").ok()
    assert "warning: " in started.stderr and "199995" in started.stderr


def test_a_hole_in_a_file_is_named(programs, plan, job, tmp_path):
    tokens = np.random.default_rng(1).integers(1, 256, size=200_000)
    tokens[150_000:] = 7
    write_tokens(job / "train.bin", tokens)
    done, report = check(programs, plan, f"--out={tmp_path}/run")
    assert done.code == SUCCESS
    names(report, "warning", "data:", "train.bin", "all have the id 7")


@pytest.mark.parametrize("fault", ["missing", "truncated", "short"])
def test_a_bad_file_is_named(programs, plan, job, tmp_path, fault):
    data = (job / "train.bin").read_bytes()
    if fault == "missing":
        (job / "train.bin").unlink()
    elif fault == "truncated":
        (job / "train.bin").write_bytes(data[:-1])
    else:  # a sequence, and a step reads four
        (job / "train.bin").write_bytes(data[: 2 * 20])
    done, report = check(programs, plan, f"--out={tmp_path}/run")
    assert done.code == USER_ERROR and len(texts(report, "error")) == 1
    names(report, "error", "train.bin" if fault != "short" else "batch_size")
    names(report, "skipped", "no step was trained")


def test_validation_that_is_trained_on_is_named(programs, plan, tmp_path):
    done, report = check(programs, plan, f"--out={tmp_path}/run", '--set=data.validation=["train.bin"]')
    assert done.code == SUCCESS
    names(report, "warning", "train.bin", "does not measure unseen text")


def test_separators_of_a_file_are_looked_at(programs, compiled, tmp_path):
    """Every separator twice, as in the file that cost a published run its long contexts; and an id that is nowhere."""
    folder = tmp_path / "job"
    folder.mkdir()
    plan = Path(shutil.copy(compiled(TINY), folder))
    document = list(range(2, 30))
    for name, separators in [("once", [1]), ("twice", [1, 1])]:
        write_tokens(folder / f"{name}.bin", np.array((document + separators) * 400))
    of_start = ["--steps=2", "--threads=1", "--set", "data.validation=[]"]
    for name, eod, parts in [("once", 1, None), ("twice", 1, ("tokens that end documents (id 1) stand directly behind another one",)),
                             ("once", 31, ("no token of a sample of it is 31 (data.end_of_document)", "another tokenizer"))]:
        given = ["--set", f"data.train={folder}/{name}.bin", "--set", f"data.end_of_document={eod}"]
        done, report = check(programs, plan, f"--out={tmp_path}/run", *given, "--set", "data.validation=[]")
        warned = [text for text in texts(report, "warning") if "data: " in text or "job: " in text]
        run = programs.run("lmc-run", plan, f"--out={tmp_path}/{name}{eod}", *given, *of_start)
        assert done.code == run.code == SUCCESS
        if parts is None:
            assert not warned and "warning" not in run.stderr
        else:
            names(report, "warning", *parts)
            assert any(all(part in line for part in parts) for line in run.stderr.splitlines()), run.stderr


def test_another_tokenizer_is_named(programs, plan, job, tmp_path):
    for name, vocabulary in (("a", 200), ("b", 256)):  # LmcTokenHeader of version 1, and one document
        header = b"LMCTOKEN" + np.array([1, 2, vocabulary, 0xFFFFFFFF], "<u4").tobytes()
        tokens = np.random.default_rng(vocabulary).integers(200, size=800).astype("<u2").tobytes()
        header += np.array([800, 1, 0, 0, 0], "<u8").tobytes()
        (job / f"{name}.bin").write_bytes(header + tokens + bytes(8))
    done, report = check(programs, plan, f"--out={tmp_path}/run",
                         f'--set=data.train=["{job}/a.bin", "{job}/b.bin"]')
    assert done.code == SUCCESS
    names(report, "warning", "a.bin", "b.bin", "of different tokenizers")


# --- disk and folder -------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """small_disk(KiB, options) mounts a file system of that size."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(kib: int, options: str = "rw") -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k,{options}", "tmpfs", folder]
        if subprocess.run(command, capture_output=True).returncode != 0:
            pytest.skip("no right to mount a file system (root is needed)")
        return folder

    yield mount
    subprocess.run(["umount", folder], capture_output=True)


def checkpoint_kib(report: dict) -> int:
    return report["totals"]["save_bytes"] // 1024


def test_a_disk_without_room_for_checkpoints_is_named(programs, plan, small_disk, tmp_path):
    size = checkpoint_kib(check(programs, plan, f"--out={tmp_path}/run")[1])
    out = small_disk(int(2.5 * size)) / "run"
    done, report = check(programs, plan, f"--out={out}")
    assert done.code == DOES_NOT_FIT
    names(report, "error", "disk:", "3 checkpoints of", "checkpoint.keep + 1", "are free")
    # The short form warns and trains; while it runs, the save that will fail is foreseen once.
    run = programs.run("lmc-run", plan, f"--out={out}", "--threads=1")
    assert run.stderr.count("lower checkpoint.keep, or give another --out") == 1
    assert run.stderr.count("next 2 save(s)") + run.stderr.count("next 1 save(s)") == 1
    assert run.stderr.index("save(s)") < run.stderr.index("not saved")


def test_exports_that_fill_the_disk_are_named(programs, plan, small_disk, tmp_path):
    size = checkpoint_kib(check(programs, plan, f"--out={tmp_path}/run")[1])
    out = small_disk(4 * size) / "run"
    done, report = check(programs, plan, f"--out={out}", "--set=checkpoint.export_interval=1")
    assert done.code == SUCCESS
    names(report, "warning", "disk:", "8 export(s)", "are free")


def test_a_read_only_folder_is_named(programs, plan, small_disk):
    out = small_disk(1000, "ro")
    done, report = check(programs, plan, f"--out={out}/run")
    assert done.code == USER_ERROR
    names(report, "error", "folder:", "Read-only file system", "another --out")


def test_a_locked_folder_is_named(programs, trained):
    with (trained / "run.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done, report = check(programs, f"--out={trained}")
    assert done.code == USER_ERROR
    names(report, "error", "folder:", "another run", "is writing here")


def test_a_damaged_checkpoint_is_named(programs, trained):
    weights = checkpoints(trained)[4] / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-10] ^= 1
    weights.write_bytes(data)
    done, report = check(programs, f"--out={trained}")
    assert done.code == USER_ERROR
    names(report, "error", "folder:", "checkpoints/4", "damaged", "restore")
    weights.write_bytes(data[:-100])  # its size shows it
    done, report = check(programs, f"--out={trained}")
    assert done.code == USER_ERROR
    names(report, "error", "folder:", "checkpoints/4", "damaged", "restore")


def test_a_folder_of_another_run_is_named(programs, compiled, trained):
    other = compiled(replace(TINY, seed=77))
    done, report = check(programs, other, f"--out={trained}")
    assert done.code == USER_ERROR
    names(report, "error", "job:", "training.seed", "another --out")


def test_a_damaged_record_is_named_and_stays(programs, trained):
    plan = next((trained / "plans").iterdir())
    (trained / "run.json").write_text("{")
    done, report = check(programs, plan, f"--out={trained}")
    assert done.code == SUCCESS
    names(report, "warning", "run.json")


def test_all_faults_are_named_together(programs, plan, job, small_disk):
    tokens = np.random.default_rng(1).integers(256, size=200_000)
    tokens[0] = 999
    write_tokens(job / "train.bin", tokens)
    done, report = check(programs, plan, f"--out={small_disk(60)}/run",
                         '--set=data.validation=["none.bin"]')
    assert done.code == USER_ERROR
    names(report, "error", "999")
    names(report, "error", "none.bin")
    names(report, "error", "disk:", "are free")
    assert len(texts(report, "error")) == 3


# --- device, ranks, the trial ----------------------------------------------------------------


def test_a_device_that_cannot_run_the_plan_is_named(programs, plan, tmp_path, monkeypatch):
    monkeypatch.setenv("LMC_CPU_ISA", "x86-64-v9")
    done, report = check(programs, plan, f"--out={tmp_path}/run")
    assert done.code == USER_ERROR
    names(report, "error", "trial:", "x86-64-v9")


def test_a_plan_for_other_ranks_and_a_taken_port_are_named(programs, compiled, plan, tmp_path):
    done, _ = check(programs, plan, f"--out={tmp_path}/run", "--nproc=2")
    assert done.code == USER_ERROR and "1 rank" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done, _ = check(programs, compiled(TINY, "--devices-per-node=2"), f"--out={tmp_path}/run",
                        "--rank=0", "--world-size=2", "--master-addr=127.0.0.1",
                        f"--master-port={port}", "--join-timeout=2")
        assert done.code != SUCCESS and str(port) in done.stderr


def test_a_step_that_is_not_finite_is_named(programs, plan, trained, tmp_path):
    weights = load_file(checkpoints(trained)[4] / "model.safetensors")
    weights["model.norm.weight"][0] = float("nan")
    save_file(weights, tmp_path / "bad.safetensors")
    done, report = check(programs, plan, f"--out={tmp_path}/new", f"--init={tmp_path}/bad.safetensors")
    assert done.code == USER_ERROR
    names(report, "error", "trial:", "step 1 is not finite")


def test_an_interrupted_check_leaves_nothing(programs, plan, tmp_path):
    """Nor does one that was killed, after a check some time later."""
    out = tmp_path / "run"
    before = names_in(tmp_path)
    for kind in (signal.SIGINT, signal.SIGKILL):
        process = programs.start("lmc-run", plan, f"--out={out}", "--check", "--threads=1")
        until(lambda: process.poll() is not None or list(tmp_path.glob(".lmc-check-*/straight")),
              "a trial")
        process.send_signal(kind)
        code = process.wait(SECONDS_LIMIT)
        left = list(tmp_path.glob(".lmc-check-*"))
        if kind == signal.SIGINT:
            assert code in (INTERRUPTED, SUCCESS) and left == []
    (tmp_path / ".lmc-check-1.file").write_text("")  # of one that was killed as it began
    left = sorted(tmp_path.glob(".lmc-check-*"))
    run = lambda: programs.run("lmc-run", plan, f"--out={out}", "--check", "--threads=1").ok()
    run()
    assert sorted(tmp_path.glob(".lmc-check-*")) == left, "they could be of a check that begins"
    for path in left:
        os.utime(path, (time.time() - 1000,) * 2)
    run()
    assert names_in(tmp_path) == before


def test_nothing_that_watches_the_run_sees_the_trial_and_no_limit_ends_it(programs, plan, tmp_path):
    heard = tmp_path / "heard"
    done, report = check(programs, plan, f"--out={tmp_path}/run", "--max-hours=0.0001",
                         f"--set=monitoring.on_event=echo $LMC_EVENT >> {heard}",
                         f"--set=monitoring.prometheus={tmp_path}/lmc.prom",
                         "--set=monitoring.tensorboard=true")
    is_good(done, report)  # which finds no new file
    time.sleep(0.2)  # a command of an event would run on its own
    assert not heard.exists()


def test_a_check_is_no_bench(programs, plan, tmp_path):
    done = programs.run("lmc-run", plan, f"--out={tmp_path}/run", "--check", "--bench=3")
    assert done.code == USER_ERROR and "--check trains nothing that is kept" in done.stderr
    done = programs.run("lmc-run", plan, "--check")
    assert done.code == USER_ERROR and "--out=DIR is needed" in done.stderr
