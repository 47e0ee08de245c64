"""updates.jsonl against the checkpoints of consecutive steps, and the warnings of its numbers."""

import json
from dataclasses import replace

import pytest
from safetensors.torch import load_file, save_file

from jobs import Job
from programs import checkpoints, metrics
from reference import Model, Optimizer, random_weights

STEPS = 9
# Sizes that no number of ranks divides, with norms, biases and a padded MLP.
MODEL = Model(vocab_size=101, hidden_size=48, intermediate_size=80, num_attention_heads=2, num_key_value_heads=1,
              tie_word_embeddings=True, attention_bias=True)
PADDED = ["--set", "target.make_vocab_size_divisible_by=16", "--set", "target.make_intermediate_size_divisible_by=96"]
JOB = Job(model=MODEL, optimizer=Optimizer(decay_iters=STEPS, weight_decay=0.3), train_iters=STEPS, epoch_steps=STEPS,
          settings={"checkpoint": {"keep": 0, "background": True}})
# 8-bit moments need matrices of whole moment blocks, and biases and norms have none.
CODED = replace(JOB, model=replace(MODEL, vocab_size=96, hidden_size=64, intermediate_size=128, num_attention_heads=4,
                                   num_key_value_heads=2, head_dim=16),
                settings={**JOB.settings, "optimizer": {"type": "adamw8bit"}})


def updates(out):
    return [json.loads(line) for line in (out / "updates.jsonl").read_text().splitlines()]


def events(out):
    lines = map(json.loads, (out / "events.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == "update_ratio"]


def initial(job, folder, change=lambda weights: None):
    """The path of weights to begin with."""
    weights = random_weights(job.model, seed=3)
    change(weights)
    save_file(weights, folder / "initial.safetensors")
    return folder / "initial.safetensors"


def relative(ours, theirs):
    return abs(ours - theirs) / theirs


# The bounds are those of tensors with plain moments.
KINDS = {"f32": (JOB, 1e-4), "f64": (replace(JOB, compute_dtype="f64"), 1e-12), "bf16": (replace(JOB, compute_dtype="bf16"), 1e-4),
         "8-bit": (CODED, 1e-4)}
MESHES = {"one": (1, []), "zero1": (2, ["--devices-per-node=2"]), "zero3": (4, ["--devices-per-node=4"]),
          "hybrid_shard": (4, ["--nodes=2", "--devices-per-node=2"]), "no_shard": (2, ["--nodes=2", "--devices-per-node=1"])}


@pytest.mark.parametrize("kind,mesh", [(kind, mesh) for kind in KINDS for mesh in MESHES if kind != "bf16" or mesh == "one"])
def test_ratios_are_those_of_consecutive_checkpoints(programs, compiled, tmp_path, kind, mesh):
    job, bound = KINDS[kind]
    ranks, options = MESHES[mesh]
    if ranks > 1:
        options = [*options, "--set", f"distributed.strategy={mesh}", "--set", f"training.micro_batch_size={8 // ranks}"]
    plan = compiled(job, *([] if kind == "8-bit" else PADDED), *options)
    weights = initial(job, tmp_path)

    def run(name, *settings):
        programs.run("local-ranks", ranks, f"plan={plan}", f"out={tmp_path}/{name}", f"init={weights}",
                     *(f"set=checkpoint.{setting}" for setting in settings)).ok()
        return tmp_path / name

    saved = checkpoints(run("wait", "background=false", "interval=1"))
    states = {step: load_file(folder / "model.safetensors") for step, folder in saved.items()}
    states[0] = {name: w.to(states[1][name].dtype) for name, w in load_file(weights).items()}
    coded = set(load_file(saved[1] / "moment1_scale.safetensors")) if kind == "8-bit" else set()
    assert bool(coded) == (kind == "8-bit")
    lines = [line for interval in (1, 4) for line in updates(run(str(interval), f"interval={interval}"))]
    # The first save of a run does not find another under way.
    assert {1, 4} <= {line["step"] for line in lines}
    rates = {line["step"]: line["lr"] for line in metrics(tmp_path / "wait")}
    worst = {False: 0.0, True: 0.0}
    for line in lines:
        step = line["step"]
        before, after = states[step - 1], states[step]
        assert line["lr"] == rates[step]
        assert line["update_ratio"].keys() == line["weight_rms"].keys() == after.keys()
        for name, ratio in line["update_ratio"].items():
            old, new = before[name].double(), after[name].double()
            expected = float((new - old).norm() / old.norm())
            assert relative(line["weight_rms"][name], float(new.square().mean().sqrt())) < 1e-12, name
            worst[name in coded] = max(worst[name in coded], relative(ratio, expected))
    print(f"{kind}, {mesh}: {worst[False]:.1e}, 8-bit {worst[True]:.1e}")
    assert worst[False] < bound and worst[True] < 0.01


def plant(name, factor):
    def change(weights):
        weights[name] *= factor
    return change


PLANTED = "model.layers.1.mlp.up_proj.weight"


def test_a_matrix_out_of_scale_is_named_once(programs, compiled, tmp_path):
    weights = initial(JOB, tmp_path, plant(PLANTED, 1e-4))
    run = [compiled(JOB), f"--init={weights}", "--set", "checkpoint.interval=1"]
    done = programs.run("lmc-run", *run, f"--out={tmp_path}/run").ok()
    first = updates(tmp_path / "run")[0]
    ratio = first["update_ratio"][PLANTED]
    assert first["step"] == 1 and ratio > 10
    warnings = [line for line in done.stderr.splitlines() if "out of range" in line]
    assert len(warnings) == 1
    assert f"step 1: the updates of 1 of {len(first['update_ratio'])} tensors" in warnings[0]
    assert f"{PLANTED} changes by {ratio:.3g} of its weights (guard.update_ratio = 0.1)" in warnings[0]
    [event] = events(tmp_path / "run")
    assert event["step"] == 1 and event["tensors"] == {PLANTED: {"fault": "ratio", "ratio": ratio}}
    for number, setting in enumerate(("guard.update_ratio=0", "guard.action=off")):
        out = tmp_path / str(number)
        done = programs.run("lmc-run", *run, f"--out={out}", "--set", setting).ok()
        assert "out of range" not in done.stderr and events(out) == [] and updates(out)[0] == first


def test_tensors_without_a_gradient_are_named(programs, compiled, tmp_path):
    """If the second factor of an MLP's product and the matrix behind it are zero, no gradient comes to the MLP."""

    def change(weights):
        for name in ("up", "down"):
            weights[f"model.layers.1.mlp.{name}_proj.weight"].zero_()

    weights = initial(JOB, tmp_path, change)
    out = tmp_path / "run"
    done = programs.run("lmc-run", compiled(JOB), f"--out={out}", f"--init={weights}", "--set", "guard.update_ratio=1",
                        "--set", "checkpoint.interval=5", "--steps=6").ok()
    layer = "model.layers.1."
    names = {f"{layer}mlp.{name}_proj.weight" for name in ("gate", "up", "down")} | {f"{layer}post_attention_layernorm.weight"}
    assert "step 5: the updates of 4 of" in done.stderr and "_proj.weight has no gradient, and 1 more" in done.stderr
    [event] = events(out)
    assert event["tensors"].keys() == names and {each["fault"] for each in event["tensors"].values()} == {"no_gradient"}
    [line] = updates(out)
    ratios = line["update_ratio"]
    assert {name for name, ratio in ratios.items() if ratio is None} == {f"{layer}mlp.{name}_proj.weight" for name in ("up", "down")}
    assert relative(ratios[f"{layer}mlp.gate_proj.weight"], line["lr"] * JOB.optimizer.weight_decay) < 1e-6  # decay alone
    assert ratios[f"{layer}post_attention_layernorm.weight"] == 0
    # The run that goes on knows of them.
    programs.run("lmc-run", f"--out={out}", "--set", "checkpoint.interval=4").ok()
    assert [line["step"] for line in updates(out)] == [5, 8] and events(out) == [event]


@pytest.mark.parametrize("kind", ("f32", "8-bit"))
@pytest.mark.parametrize("warmup", [0, 10])
def test_an_ordinary_run_has_no_warning(programs, compiled, tmp_path, kind, warmup):
    """At half of the deviation of the initial weights as the rate. All tensors are judged from step 50 on."""
    optimizer = replace(JOB.optimizer, lr=1e-2, min_lr=1e-3, warmup_iters=warmup, decay_iters=80, weight_decay=0.1)
    plan = compiled(replace(KINDS[kind][0], optimizer=optimizer, train_iters=80, epoch_steps=4))
    for interval in (1, 60):
        out = tmp_path / str(interval)
        done = programs.run("lmc-run", plan, f"--out={out}", "--set", f"checkpoint.interval={interval}", "--set", "checkpoint.keep=2").ok()
        ratios = [(ratio, name, line["step"]) for line in updates(out) for name, ratio in line["update_ratio"].items()
                  if ratio and "bias" not in name]
        print(f"{kind}: {len(updates(out))} steps, the highest ratio is {max(ratios)}")
        assert "out of range" not in done.stderr and events(out) == []


def test_a_skipped_step_has_no_update(programs, compiled, tmp_path):
    out = tmp_path / "run"
    run = [compiled(JOB), f"--out={out}", "--set", "checkpoint.interval=2", "--skip-steps=2-2"]
    programs.run("lmc-run", *run, "--steps=3").ok()
    assert 2 in checkpoints(out) and updates(out) == []
    programs.run("lmc-run", *run, "--steps=5").ok()
    assert [line["step"] for line in updates(out)] == [4]


def test_a_rewind_moves_later_lines(programs, compiled, tmp_path):
    out = tmp_path / "run"
    interval = ["--set", "checkpoint.interval=3"]
    programs.run("lmc-run", compiled(JOB), f"--out={out}", "--steps=4", *interval).ok()
    programs.run("lmc-run", compiled(JOB), f"--out={out}", "--steps=7").ok()
    three, six = updates(out)
    assert (three["step"], six["step"]) == (3, 6)
    programs.run("lmc-run", f"--out={out}", "--rewind=4", "--steps=5").ok()
    assert updates(out) == [three]
    assert (out / "undone/1/updates.jsonl").read_text() == json.dumps(six, separators=(",", ":")) + "\n"
    programs.run("lmc-run", f"--out={out}", "--steps=7").ok()
    assert updates(out) == [three, six]
    # A start that writes nothing behind the steps takes lines back, too.
    programs.run("lmc-run", f"--out={out}", "--rewind=5", "--steps=7", "--set", "checkpoint.background=false").ok()
    assert updates(out) == [three]
