"""What decides which model is trained cannot change in silence when a run goes on."""

import json
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
