"""What decides which model is trained cannot change in silence when a run goes on."""

import json
import os
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from jobs import Job, write_tokens
from programs import USER_ERROR, checkpoint_state, losses, metrics
from reference import Model, Optimizer

JOB = Job(
    model=Model(num_hidden_layers=1),
    optimizer=Optimizer(decay_iters=20),
    sequence_length=32,
    batch_size=4,
    micro_batch_size=2,
    train_iters=20,
    settings={"data": {"shuffle_block": 64}},
)


def setting(section: str, key: str, value) -> Job:
    settings = {name: dict(keys) for name, keys in JOB.settings.items()}
    settings.setdefault(section, {})[key] = value
    return replace(JOB, settings=settings)


# Keys that are compiled into the plan: another job, and the two values as the error writes them.
COMPILED = {
    "training.sequence_length": (replace(JOB, sequence_length=64), "32", "64"),
    "training.batch_size": (replace(JOB, batch_size=8), "4", "8"),
    "training.compute_dtype": (replace(JOB, compute_dtype="bf16"), "f32", "bf16"),
    "training.document_mask": (setting("training", "document_mask", True), "false", "true"),
    "model.rope_theta": (setting("model", "rope_theta", 5e5), "10000", "500000"),
    "model.rms_norm_eps": (setting("model", "rms_norm_eps", 1e-6), "1e-05", "1e-06"),
    "model.sliding_window": (setting("model", "sliding_window", 8), "0", "8"),
    "optimizer.decay_norms_and_biases":
        (setting("optimizer", "decay_norms_and_biases", True), "false", "true"),
    "optimizer.beta2": (setting("optimizer", "beta2", 0.9), "0.95", "0.9"),
    "lr_schedule.lr": (setting("lr_schedule", "lr", 2e-3), None, "0.002"),
    "lr_schedule.style": (setting("lr_schedule", "style", "linear"), "cosine", "linear"),
    "training.seed": (replace(JOB, seed=5), "1234", "5"),
    "data.shuffle_block": (setting("data", "shuffle_block", 128), "64", "128"),
}
# Keys that say how, not what: they may change freely.
FREE = {
    "training.micro_batch_size": replace(JOB, micro_batch_size=4),
    "memory.recompute": setting("memory", "recompute", "block"),
    "checkpoint.keep": setting("checkpoint", "keep", 2),
}


@pytest.fixture(scope="module")
def folder(programs, tmp_path_factory):
    """Has train.bin for all jobs, and compile(job) -> its plan."""
    folder = tmp_path_factory.mktemp("identity")
    plans = {}

    def compile_job(job: Job):
        if job.toml() not in plans:
            path = folder / f"job{len(plans)}.toml"
            path.write_text(job.toml() + ('\n[data]\n' if "[data]" not in job.toml() else ""))
            text = path.read_text()
            if job.settings.get("training", {}).get("document_mask"):
                path.write_text(text.replace("[data]\n", "[data]\nend_of_document = 3\n"))
            plan = path.with_suffix(".plan")
            programs.run("lmc", "compile", path, "-o", plan).ok()
            plans[job.toml()] = plan
        return plans[job.toml()]

    tokens = np.random.default_rng(1).integers(JOB.model.vocab_size, size=64 * 100 + 1)
    write_tokens(folder / "train.bin", tokens)
    return compile_job


@pytest.mark.parametrize("key", COMPILED)
def test_a_compiled_change_is_refused_or_declared(programs, folder, tmp_path, key):
    job, there, here = COMPILED[key]
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}", "--steps=3").ok()
    before = (tmp_path / "metrics.jsonl").read_text()
    refused = programs.run("lmc-run", folder(job), f"--out={tmp_path}", "--steps=5")
    print(refused.stderr)
    assert refused.code == USER_ERROR
    assert f"{key} is {there or ''}" in refused.stderr and f"there and {here} here" in refused.stderr
    assert f"--change={key}" in refused.stderr
    assert (tmp_path / "metrics.jsonl").read_text() == before
    # One declaration per section: some changes bring defaults of other keys along.
    declared = [f"--change={k}" for k in ("training", "model", "optimizer", "lr_schedule", "data")]
    programs.run("lmc-run", folder(job), f"--out={tmp_path}", "--steps=5", *declared).ok()
    changes = json.loads((tmp_path / "run.json").read_text())["changes"]
    assert [c for c in changes if c["key"] == key and c["step"] == 3 and c["to"] == here]
    assert checkpoint_state(tmp_path / "checkpoints" / "5")["run"]["changes"] == changes


@pytest.mark.parametrize("key", FREE)
def test_a_free_change_goes_on_and_is_told(programs, folder, tmp_path, key):
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}/whole", "--steps=5").ok()
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}/a", "--steps=3").ok()
    on = programs.run("lmc-run", folder(FREE[key]), f"--out={tmp_path}/a", "--steps=5").ok()
    assert f"changed: {key} was " in on.stdout
    events = [json.loads(line) for line in (tmp_path / "a/events.jsonl").read_text().splitlines()]
    assert {"plan", "change"} <= {event["event"] for event in events}
    assert losses(tmp_path / "a") == pytest.approx(losses(tmp_path / "whole"), rel=1e-5)


def test_a_longer_sequence_goes_on_at_the_next_token(programs, folder, tmp_path):
    """3 steps of 4 x 32 tokens, then 2 of 4 x 64: the first epoch has 6400 tokens, and the stream is
    the same for both lengths, so that the position is all that counts."""
    longer = COMPILED["training.sequence_length"][0]
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}", "--steps=3").ok()
    programs.run("lmc-run", folder(longer), f"--out={tmp_path}", "--steps=5",
                 "--change=training.sequence_length").ok()
    state = checkpoint_state(tmp_path / "checkpoints" / "5")
    assert state["position"] == state["tokens"] == 3 * 4 * 32 + 2 * 4 * 64


def test_a_length_that_does_not_divide_the_block_is_refused(programs, folder, tmp_path):
    job = replace(JOB, sequence_length=128, settings={})
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}", "--steps=3").ok()
    refused = programs.run("lmc-run", folder(job), f"--out={tmp_path}", "--steps=5",
                           "--change=training", "--change=model")
    print(refused.stderr)
    assert refused.code == USER_ERROR
    assert "64" in refused.stderr and "128" in refused.stderr


def test_a_restart_without_set_and_without_the_plan_repeats_the_run(programs, folder, tmp_path):
    """The reviewer's case: lr 9.2e-4 became 1.76e-3."""
    sets = ["--set", "lr_schedule.lr=9e-4", "--set", "training.train_iters=30"]
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}/whole", *sets, "--steps=8").ok()
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}/a", *sets, "--steps=4").ok()
    programs.run("lmc-run", f"--out={tmp_path}/a", "--steps=8").ok()
    assert losses(tmp_path / "a") == losses(tmp_path / "whole")
    rates = [[line["lr"] for line in metrics(tmp_path / name)] for name in ("a", "whole")]
    assert rates[0] == rates[1]


def test_a_new_value_in_the_toml_is_not_hidden_by_an_old_set(programs, folder, tmp_path):
    job = setting("lr_schedule", "lr", 5e-4)
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}", "--set", "lr_schedule.lr=9e-4",
                 "--steps=3").ok()
    refused = programs.run("lmc-run", folder(job), f"--out={tmp_path}", "--steps=5")
    assert refused.code == USER_ERROR
    assert "lr_schedule.lr is 0.0009 there and 0.0005 here" in refused.stderr


def test_longer_training_moves_the_default_of_decay_iters(programs, folder, tmp_path):
    """The added steps do not run at min_lr, and the change is declared."""
    optimizer = {k: v for k, v in JOB.sections()["lr_schedule"].items() if k != "decay_iters"}
    text = JOB.toml().replace("decay_iters = 20\n", "")
    assert "decay_iters" not in text and optimizer
    folder_path = folder(JOB).parent
    (folder_path / "nodecay.toml").write_text(text)
    plan = folder_path / "nodecay.plan"
    programs.run("lmc", "compile", folder_path / "nodecay.toml", "-o", plan).ok()
    programs.run("lmc-run", plan, f"--out={tmp_path}", "--steps=20").ok()
    more = ["--set", "training.train_iters=40"]
    refused = programs.run("lmc-run", plan, f"--out={tmp_path}", *more)
    assert refused.code == USER_ERROR
    assert "lr_schedule.decay_iters is 20 there and 40 here (its default follows " \
           "training.train_iters)" in refused.stderr
    programs.run("lmc-run", plan, f"--out={tmp_path}", *more, "--change=training.train_iters").ok()
    rates = [line["lr"] for line in metrics(tmp_path)]
    assert len(rates) == 40 and rates[20] > 1.5 * rates[39]


def test_a_plan_of_another_hash_is_refused(programs, folder, tmp_path):
    plan = folder(JOB)
    shown = programs.run("lmc", "explain", plan).ok().stdout.splitlines()[0]
    hash = shown.removeprefix("plan: SHA-256 ")
    run = programs.run("lmc-run", plan, f"--out={tmp_path}/a", "--steps=1", f"--expect-hash={hash}")
    assert f"plan: SHA-256 {hash}" in run.ok().stdout
    refused = programs.run("lmc-run", folder(FREE["memory.recompute"]), f"--out={tmp_path}/b",
                           f"--expect-hash={hash}")
    assert refused.code == USER_ERROR and hash in refused.stderr


def test_a_toml_that_changed_after_the_compile_is_told(programs, folder, tmp_path):
    folder_path = folder(JOB).parent
    toml = folder_path / "edited.toml"
    toml.write_text(JOB.toml())
    plan = folder_path / "edited.plan"
    programs.run("lmc", "compile", toml, "-o", plan).ok()
    quiet = programs.run("lmc-run", plan, f"--out={tmp_path}", "--steps=1").ok()
    assert quiet.stderr == ""
    toml.write_text(JOB.toml().replace("1234", "1235"))
    told = programs.run("lmc-run", plan, f"--out={tmp_path}", "--steps=2").ok()
    assert "edited.toml has changed since the plan was compiled" in told.stderr


@pytest.mark.parametrize("variable", ["OMP_THREAD_LIMIT=1", "OMP_DYNAMIC=true",
                                      "OMP_MAX_ACTIVE_LEVELS=0"])
def test_the_environment_does_not_change_what_is_trained(programs, folder, tmp_path, monkeypatch,
                                                         variable):
    """OpenMP then gives fewer threads than were asked for, and oneDNN left parts of the gradients
    at zero."""
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}/a", "--steps=4", "--threads=2").ok()
    monkeypatch.setenv(*variable.split("="))
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}/b", "--steps=4", "--threads=2").ok()
    assert losses(tmp_path / "a") == losses(tmp_path / "b")


def test_an_empty_declaration_declares_nothing(programs, folder, tmp_path):
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}", "--steps=3").ok()
    refused = programs.run("lmc-run", folder(JOB), f"--out={tmp_path}", "--steps=4", "--change=",
                           "--set", "lr_schedule.lr=9e-3")
    assert refused.code == USER_ERROR, refused.stderr


def test_a_set_that_equals_the_default_is_repeated(programs, folder, tmp_path):
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}", "--steps=3", "--set",
                 "lr_schedule.min_lr=0.0001", "--set", "lr_schedule.lr=0.002").ok()
    programs.run("lmc-run", f"--out={tmp_path}", "--steps=5").ok()
    settings = json.loads((tmp_path / "run.json").read_text())["settings"]
    assert settings["lr_schedule.min_lr"]["origin"] == "lmc-run --set"


def test_a_trailing_slash_is_no_way_around_the_identity(programs, folder, tmp_path):
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}", "--steps=3").ok()
    refused = programs.run("lmc-run", folder(JOB), f"--out={tmp_path}", "--steps=4",
                           f"--resume={tmp_path}/checkpoints/3/", "--set", "lr_schedule.lr=9e-3")
    assert refused.code == USER_ERROR and "--change=lr_schedule.lr" in refused.stderr


def test_a_folder_takes_no_second_run(programs, folder, tmp_path):
    for name, steps in (("a", 5), ("b", 3)):
        programs.run("lmc-run", folder(JOB), f"--out={tmp_path / name}", f"--steps={steps}").ok()
    refused = programs.run("lmc-run", folder(JOB), f"--out={tmp_path / 'b'}",
                           f"--resume={tmp_path / 'a'}", "--steps=8")
    assert refused.code == USER_ERROR and "holds another run" in refused.stderr


def test_a_run_that_began_elsewhere_begins_there_again(programs, folder, tmp_path):
    """It was killed before its first checkpoint: here, it had nothing to train at its first start."""
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}/a", "--steps=5").ok()
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}/b", f"--resume={tmp_path}/a",
                 "--steps=5", "--set", "lr_schedule.lr=0.004").ok()
    on = programs.run("lmc-run", f"--out={tmp_path}/b", "--steps=7").ok()
    assert "resumed at step 5 from" in on.stdout
    assert [line["step"] for line in metrics(tmp_path / "b")] == [6, 7]
    settings = json.loads((tmp_path / "b/run.json").read_text())["settings"]
    assert settings["lr_schedule.lr"]["value"] == "0.004"


def test_initial_weights_are_remembered(programs, folder, tmp_path):
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}/a", "--steps=5",
                 f"--export={tmp_path}/hf").ok()
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}/b", "--steps=0",
                 f"--init={tmp_path}/hf").ok()
    on = programs.run("lmc-run", f"--out={tmp_path}/b", "--steps=1").ok()
    assert f"initial weights: {tmp_path}/hf" in on.stdout


def test_checkpoints_that_are_gone_are_no_new_start(programs, folder, tmp_path):
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}", "--steps=3").ok()
    (tmp_path / "checkpoints/3").rename(tmp_path / "elsewhere")
    refused = programs.run("lmc-run", f"--out={tmp_path}", "--steps=5")
    assert refused.code == USER_ERROR
    assert f"{tmp_path}/checkpoints/3" in refused.stderr


def test_a_fall_back_behind_a_declared_change_asks_for_a_rewind(programs, folder, tmp_path):
    run = ["lmc-run", folder(JOB), f"--out={tmp_path}"]
    programs.run(*run, "--steps=3").ok()
    programs.run(*run, "--steps=5", "--set", "lr_schedule.lr=9e-3", "--change=lr_schedule.lr").ok()
    programs.run(*run, "--steps=7", "--set", "lr_schedule.lr=1e-3", "--change=lr_schedule.lr").ok()
    for step in (5, 7):
        with (tmp_path / f"checkpoints/{step}/model.safetensors").open("ab") as file:
            file.write(b"x")
    refused = programs.run("lmc-run", f"--out={tmp_path}", "--steps=9")
    assert refused.code == USER_ERROR and "--rewind=3" in refused.stderr
    programs.run("lmc-run", f"--out={tmp_path}", "--rewind=3", "--steps=4").ok()
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}/whole", "--steps=4").ok()
    assert metrics(tmp_path)[-1]["lr"] == metrics(tmp_path / "whole")[-1]["lr"]


def test_a_rewind_takes_the_plan_of_its_checkpoint(programs, folder, tmp_path):
    other = COMPILED["training.batch_size"][0]
    programs.run("lmc-run", folder(JOB), f"--out={tmp_path}", "--steps=3").ok()
    programs.run("lmc-run", folder(other), f"--out={tmp_path}", "--steps=5",
                 "--change=training.batch_size").ok()
    programs.run("lmc-run", f"--out={tmp_path}", "--rewind=3", "--steps=4").ok()
    state = checkpoint_state(tmp_path / "checkpoints/4")
    assert state["tokens"] == 4 * 4 * 32


def test_a_path_that_is_no_utf8_is_no_crash(programs, folder, tmp_path):
    strange = os.fsencode(tmp_path) + b"/nu\xff"
    os.mkdir(strange)
    plan = strange + b"/t.plan"
    shutil.copy(folder(JOB), plan)
    out = strange + b"/out"
    for steps in (2, 4):
        done = subprocess.run([programs.path("lmc-run").encode(), plan, b"--out=" + out,
                               b"--steps=%d" % steps], capture_output=True)
        assert done.returncode == 0, done.stderr


def test_validation_data_that_cannot_be_read_loses_no_step(programs, folder, tmp_path):
    """The validation file has an id beyond the vocabulary after its first batch."""
    tokens = np.random.default_rng(2).integers(JOB.model.vocab_size, size=32 * 40 + 1)
    tokens[32 * 30] = JOB.model.vocab_size
    write_tokens(tmp_path / "validation.bin", tokens)
    failed = programs.run("lmc-run", folder(JOB), f"--out={tmp_path}/a", "--set",
                          f"data.validation={tmp_path}/validation.bin", "--set",
                          "monitoring.validation_interval=3", "--steps=6")
    assert failed.code != 0 and "validation.bin" in failed.stderr
    assert checkpoint_state(tmp_path / "a/checkpoints/3")["step"] == 3
    assert metrics(tmp_path / "a")[-1]["step"] == 3
