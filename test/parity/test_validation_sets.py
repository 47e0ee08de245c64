"""Validation with several sets: each at its own interval, with the values that it has alone."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

from jobs import Job, write_tokens
from programs import USER_ERROR, checkpoint_digest, checkpoint_state, checkpoints, metrics
from reference import Model, Optimizer

STEPS, LENGTH, BATCH = 12, 16, 4


@pytest.fixture(scope="module")
def files(programs, tmp_path_factory):
    """Texts packed to files, which know the bytes of their tokens, and a file that does not."""
    folder = tmp_path_factory.mktemp("sets")
    for name, lines in {"train": 400, "web": 60, "code": 50}.items():
        (folder / f"{name}.txt").write_text("\f".join(f"{name} {i} has {i % 7}." for i in range(lines)))
        programs.run("lmc-data", "pack", folder / f"{name}.txt", "-o", folder / f"{name}.bin").ok()
    np.random.default_rng(5).integers(256, size=1000).astype("<u2").tofile(folder / "bare.bin")
    return folder


def job(files, *sets, **changes) -> Job:
    data = {"train": [str(files / "train.bin")], "format": "uint16", "allow_repeats": True}
    data |= {} if sets else {"validation": str(files / "web.bin")}
    data |= changes.pop("data", {})
    base = Job(
        model=Model(vocab_size=256, num_hidden_layers=1), sequence_length=LENGTH, batch_size=BATCH,
        micro_batch_size=2, train_iters=STEPS, optimizer=Optimizer(warmup_iters=1, decay_iters=STEPS),
        settings={"data": data, "monitoring": {"validation_interval": 4, "validation_iters": 3},
                  "checkpoint": {"interval": 5}},
        tables=[("validation", keys) for keys in sets])
    return replace(base, **changes)


def both(files, **changes):
    """`web` takes interval and batches of [monitoring]."""
    return job(files, {"name": "web", "paths": [str(files / "web.bin")]},
               {"name": "code", "paths": str(files / "code.bin"), "interval": 3, "iters": 2},
               {"name": "bare", "paths": str(files / "bare.bin"), "interval": 0, "iters": 0}, **changes)


def results(out, name) -> dict[int, dict]:
    """Step -> what metrics.jsonl has of a set."""
    return {line["step"]: line["validation"][name] for line in metrics(out)
            if name in line.get("validation", {})}


def alone(programs, plan, out, path, *settings) -> dict[int, dict]:
    """The same values of a run that validates with data.validation."""
    programs.run("lmc-run", plan, f"--out={out}", "--set", f"data.validation={path}", *settings).ok()
    return {line["step"]: {key.removeprefix("validation_"): line[key] for key in line
                           if key.startswith("validation_") and key != "validation_seconds"}
            for line in metrics(out) if "validation_loss" in line}


@pytest.fixture(scope="module")
def trained(programs, compiled, files, tmp_path_factory):
    plan, out = compiled(both(files)), tmp_path_factory.mktemp("trained") / "run"
    return plan, out, programs.run("lmc-run", plan, f"--out={out}").ok()


def test_each_set_has_its_steps_and_the_values_that_it_has_alone(programs, compiled, files, trained, tmp_path):
    _, out, finished = trained
    plain = compiled(job(files))
    every = "monitoring.validation_interval="
    iters = "monitoring.validation_iters="
    for name, steps, settings in [("web", [4, 8, 12], []),
                                  ("code", [3, 6, 9, 12], ["--set", every + "3", "--set", iters + "2"]),
                                  ("bare", [12], ["--set", every + "0", "--set", iters + "0"])]:
        expected = alone(programs, plain, tmp_path / name, files / f"{name}.bin", *settings)
        assert list(expected) == steps
        assert results(out, name) == expected, name
        for values in expected.values():
            assert values["perplexity"] == pytest.approx(math.exp(values["loss"]), rel=1e-12)
            assert ("bits_per_byte" in values) == (name != "bare")
    assert not any(key.startswith("validation_") and key != "validation_seconds"
                   for line in metrics(out) for key in line)
    last = metrics(out)[-1]["validation"]
    line = finished.stdout.splitlines()
    line = next(text for text in line if text.startswith(f"step {STEPS}/"))
    assert f"validation code: loss {last['code']['loss']:.4f}" in line
    assert f"validation web: loss {last['web']['loss']:.4f}" in line
    events = [json.loads(text) for text in (out / "events.jsonl").read_text().splitlines()]
    events = [event for event in events if event["event"] == "validation"]
    assert [(event["step"], event["set"]) for event in events] == [
        (3, "code"), (4, "web"), (6, "code"), (8, "web"), (9, "code"), (12, "bare"), (12, "code"), (12, "web")]
    for event in events:
        assert event["loss"] == results(out, event["set"])[event["step"]]["loss"]
    assert [event["tokens"] for event in events[-3:]] == [999 // LENGTH * LENGTH, 2 * BATCH * LENGTH,
                                                          3 * BATCH * LENGTH]
    extra = checkpoint_state(checkpoints(out)[STEPS])["extra"]
    assert {key: float(value) for key, value in extra.items() if key.startswith("validation")} == {
        f"validation.{name}.loss": last[name]["loss"] for name in ("bare", "code", "web")}
    assert "validation.code.loss" in checkpoint_state(checkpoints(out)[5])["extra"]


def test_an_evaluation_of_a_checkpoint_has_every_set(programs, files, trained):
    plan, out, _ = trained
    done = programs.run("lmc-run", plan, f"--out={out}", "--eval").ok()
    found = json.loads(done.stdout)
    assert found["step"] == STEPS and set(found) == {"step", "validation"}
    tokens = {name: values.pop("tokens") for name, values in found["validation"].items()}
    assert tokens == {"bare": 999 // LENGTH * LENGTH, "code": 2 * BATCH * LENGTH, "web": 3 * BATCH * LENGTH}
    assert found["validation"] == metrics(out)[-1]["validation"]


def test_the_sets_do_not_touch_the_training_and_a_resume_goes_on(programs, compiled, files, trained, tmp_path):
    plan, out, _ = trained
    programs.run("lmc-run", plan, f"--out={tmp_path}/part", "--steps=7").ok()
    # An end at step 7 evaluates all sets there, which no other run does.
    assert [results(tmp_path / "part", name)[7]["loss"] > 0 for name in ("web", "code", "bare")]
    programs.run("lmc-run", plan, f"--out={tmp_path}/part").ok()
    programs.run("lmc-run", compiled(job(files)), f"--out={tmp_path}/none",
                 "--set", "monitoring.validation_interval=0").ok()
    for other in ("part", "none"):
        assert checkpoint_digest(checkpoints(tmp_path / other)[STEPS]) == checkpoint_digest(checkpoints(out)[STEPS])
    for name in ("web", "code", "bare"):
        again = results(tmp_path / "part", name)
        assert {step: again[step] for step in again if step != 7} == results(out, name)


def test_sets_may_change_when_a_run_goes_on(programs, compiled, files, tmp_path):
    programs.run("lmc-run", compiled(both(files)), f"--out={tmp_path}/run", "--steps=5").ok()
    other = job(files, {"name": "web", "paths": str(files / "code.bin"), "interval": 2})
    done = programs.run("lmc-run", compiled(other), f"--out={tmp_path}/run", "--steps=8").ok()
    assert list(results(tmp_path / "run", "web")) == [4, 5, 6, 8]
    assert "changed: validation.web.paths was " in done.stdout
    programs.run("lmc-run", compiled(other), f"--out={tmp_path}/run", "--set", "validation.web.interval=3").ok()
    assert list(results(tmp_path / "run", "web")) == [4, 5, 6, 8, 9, 12]


def test_two_ranks_have_the_values_of_one(programs, compiled, files, trained, tmp_path):
    two = both(files)
    two.settings["distributed"] = {"nodes": 1, "devices_per_node": 2, "strategy": "zero1"}
    programs.run("lmc-run", compiled(replace(two, micro_batch_size=1)), f"--out={tmp_path}/run", "--nproc=2").ok()
    for name in ("web", "code", "bare"):
        ours, theirs = results(tmp_path / "run", name), results(trained[1], name)
        assert list(ours) == list(theirs)
        for step, values in ours.items():
            assert values == pytest.approx(theirs[step], rel=1e-5)


def test_the_intervals_go_on_over_a_border_of_phases(programs, compiled, files, tmp_path):
    """The end of a phase is not the end of the run: only sets whose interval it meets are evaluated."""
    one = both(files, data={"shuffle_block": 2 * LENGTH})
    long = {"sequence_length": 2 * LENGTH, "batch_size": BATCH // 2, "micro_batch_size": 1}
    two = replace(one, tables=[*one.tables, ("phase", {"name": "short", "steps": 6}),
                               ("phase", {"name": "long", "steps": STEPS - 6, **long})])
    plan = compiled(two)
    for name, arguments in {"one": [compiled(one)], "two": [plan]}.items():
        programs.run("lmc-run", *arguments, f"--out={tmp_path / name}").ok()
    out = tmp_path / "two"
    assert [line["phase"] for line in metrics(out)] == ["short"] * 6 + ["long"] * (STEPS - 6)
    for name, steps in {"web": [4, 8, 12], "code": [3, 6, 9, 12], "bare": [12]}.items():
        assert list(results(out, name)) == steps
        for step in steps:
            if step <= 6:
                assert results(out, name)[step] == results(tmp_path / "one", name)[step]
    found = json.loads(programs.run("lmc-run", plan, f"--out={out}", "--eval").ok().stdout)["validation"]
    assert found["bare"].pop("tokens") == 999 // (2 * LENGTH) * 2 * LENGTH
    assert found["bare"] == results(out, "bare")[STEPS]


def test_a_set_that_is_trained_on_is_named(programs, compiled, files, tmp_path):
    (tmp_path / "copy.bin").write_bytes((files / "train.bin").read_bytes())
    seen = job(files, {"name": "web", "paths": str(files / "web.bin")},
               {"name": "seen", "paths": str(tmp_path / "copy.bin")})
    done = programs.run("lmc-run", compiled(seen), f"--out={tmp_path}/run", "--steps=1").ok()
    assert [line for line in done.stderr.splitlines() if "unseen text" in line] == [
        f"warning: validation.seen.paths has {tmp_path}/copy.bin, and data.train has the same tokens in "
        f"{files}/train.bin: the validation loss does not measure unseen text"]


def test_mistakes_are_found_before_the_first_step(programs, compiled, files, tmp_path):
    plan = compiled(both(files))
    for settings, text in [(["data.validation=x.bin", "validation.web.iters=3"],
                            "data.validation and [[validation]] (web, code, bare) both say what to validate with"),
                           (["validation.web.paths=no.bin"], "validation.web.paths"),
                           (["validation.web.interval=-1"], "it must be from 0 to")]:
        failed = programs.run("lmc-run", plan, f"--out={tmp_path}/run",
                              *[part for setting in settings for part in ("--set", setting)])
        assert failed.code == USER_ERROR and failed.stderr.count("\n") == 1
        assert text in failed.stderr
        assert not (tmp_path / "run/checkpoints").exists()


def test_a_validation_loss_that_rises_is_told_and_its_best_checkpoint_is_saved(programs, compiled, tmp_path):
    """A few sequences are learned by heart, and the validation data is of other text."""
    job = Job(model=Model(num_hidden_layers=1), optimizer=Optimizer(min_lr=3e-3, decay_iters=200), train_iters=200,
              epoch_steps=1, settings={"checkpoint": {"interval": 1000, "keep": 1}, "guard": {"action": "warn"}})
    folder = tmp_path / "job"
    folder.mkdir()
    plan = shutil.copy(compiled(job), folder)
    random = np.random.default_rng(3)
    write_tokens(folder / "train.bin", np.arange(job.batch_size * job.sequence_length + 1) % 250)
    write_tokens(folder / "valid.bin", random.integers(250, size=8 * job.sequence_length + 1))
    run = [plan, "--set", f"data.train={folder}/train.bin", "--set", f"data.validation={folder}/valid.bin",
           "--set", "monitoring.validation_interval=10"]
    done = programs.run("lmc-run", *run, f"--out={tmp_path}/plain").ok()
    event = next(e for e in map(json.loads, (tmp_path / "plain" / "events.jsonl").read_text().splitlines())
                 if e["event"] == "validation_rise")
    assert event["loss"] > event["lowest_loss"] + 0.2
    assert 'set checkpoint.keep_best = "data.validation"' in done.stderr
    best = ["--set", "checkpoint.keep_best=data.validation", "--set", "checkpoint.save_best=true", "--set", "checkpoint.background=false"]
    programs.run("lmc-run", *run, f"--out={tmp_path}/best", *best).ok()
    assert list(checkpoints(tmp_path / "best")) == [event["lowest_step"], 200]
    silent = programs.run("lmc-run", *run, f"--out={tmp_path}/silent", "--set", "guard.validation=0").ok()
    assert "validation loss" not in silent.stderr
