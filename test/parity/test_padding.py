"""A vocabulary and MLPs that are padded in the plan: the training of the unpadded model, and no trace of
the padding outside of the plan."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from jobs import Job
from programs import USER_ERROR, checkpoints, losses
from reference import Model, Optimizer
from test_equalities import largest_difference
from test_host_driver import TARGET, host  # noqa: F401 (a fixture)

VOCABULARY = 50257
JOB = Job(
    model=Model(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=88, num_hidden_layers=1,
                num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True),
    batch_size=4, micro_batch_size=2, sequence_length=16, train_iters=10,
    optimizer=Optimizer(lr=2e-2, warmup_iters=1),
    settings={"checkpoint": {"interval": 0}},
)


def padded(job: Job, multiple: int = 128) -> Job:
    target = {**job.settings.get("target", {}), "make_vocab_size_divisible_by": multiple}
    return replace(job, settings={**job.settings, "target": target})


@pytest.fixture
def rows_in_plan(programs):
    """rows_in_plan(plan): the columns of its products with the head's weights."""
    def find(plan) -> int:
        report = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
        logits = [c for f in report["functions"] if f["name"] == "eval" for c in f["commands"]
                  if c.get("source") == "loss" and "n" in c]
        assert logits
        return max(each["n"] for each in logits)

    return find


@pytest.mark.parametrize("compute_dtype, bound, tied", [
    ("f32", 1e-6, True), ("f64", 1e-12, True), ("f32", 1e-6, False), ("bf16", 1e-3, False)])
def test_padding_changes_no_loss(programs, compiled, tmp_path, rows_in_plan, compute_dtype, bound,
                                 tied):
    job = replace(JOB, compute_dtype=compute_dtype,
                  model=replace(JOB.model, tie_word_embeddings=tied))
    runs = {}
    for name, each in (("unpadded", padded(job, 1)), ("padded", padded(job))):
        plan = compiled(each)
        assert rows_in_plan(plan) == (50304 if name == "padded" else VOCABULARY)
        runs[name] = tmp_path / name
        programs.run("lmc-run", plan, f"--out={runs[name]}").ok()
    assert largest_difference(losses(runs["padded"]), losses(runs["unpadded"])) <= bound
    weights = [load_file(checkpoints(out)[10] / "model.safetensors") for out in runs.values()]
    assert {k: w.shape for k, w in weights[0].items()} == {k: w.shape for k, w in weights[1].items()}


SMALL = replace(JOB, model=replace(JOB.model, vocab_size=61), train_iters=4,
                optimizer=Optimizer(lr=1e-2, warmup_iters=1, decay_iters=4))


def test_a_checkpoint_goes_from_a_padded_plan_to_one_without(programs, compiled, tmp_path):
    """Two steps with padding, then two without: as four with it."""
    job = replace(SMALL, compute_dtype="f64", settings={"checkpoint": {"interval": 2}})
    plans = {multiple: compiled(padded(job, multiple)) for multiple in (1, 64)}
    whole, both = tmp_path / "whole", tmp_path / "both"
    programs.run("lmc-run", plans[64], f"--out={whole}").ok()
    programs.run("lmc-run", plans[64], f"--out={both}", "--steps=2").ok()
    programs.run("lmc-run", plans[1], f"--out={both}").ok()
    for ours, theirs in zip(losses(both), losses(whole), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize("strategy", ["zero1", "zero3"])
def test_ranks_divide_a_padded_vocabulary(programs, compiled, tmp_path, strategy):
    job = padded(replace(SMALL, compute_dtype="f64"), 64)
    ranks = {"nodes": 1, "devices_per_node": 2, "strategy": strategy}
    two = replace(job, micro_batch_size=2, settings={**job.settings, "distributed": ranks})
    history = []
    for each, count in ((job, 1), (two, 2)):
        out = tmp_path / str(count)
        programs.run("lmc-run", compiled(each), f"--out={out}", f"--nproc={count}").ok()
        history.append(losses(out))
    for ours, theirs in zip(*history, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-12)


def test_a_gpu_plan_pads_by_itself(compiled, host, rows_in_plan):  # noqa: F811
    """In bf16 to 64 rows, in f32 not at all; the losses are those without padding."""
    job = replace(SMALL, compute_dtype="bf16")
    history = {}
    for multiple, rows in (("auto", 64), (1, 61)):
        plan = compiled(padded(job, multiple), TARGET)
        assert rows_in_plan(plan) == rows
        history[multiple] = losses(host(plan).ok().out)
    for ours, theirs in zip(history["auto"], history[1], strict=True):
        assert ours == pytest.approx(theirs, rel=2e-3)
    assert rows_in_plan(compiled(padded(replace(SMALL, compute_dtype="f32"), "auto"), TARGET)) == 61


@pytest.mark.parametrize("tied", [True, False])
def test_an_export_is_padded_on_demand(programs, compiled, tmp_path, tied):
    job = padded(replace(SMALL, model=replace(SMALL.model, tie_word_embeddings=tied)), 64)
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(job), f"--out={out}").ok()
    logits = {}
    for options in ([], ["--pad-vocab=16"], ["--pad-vocab=16", "--dtype=bf16"]):
        folder = tmp_path / ("export" + "".join(options))
        programs.run("lmc-data", "export", out, "-o", folder, *options).ok()
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        assert model.config.vocab_size == (64 if options else 61)
        with torch.no_grad():
            logits[folder.name] = model(torch.arange(16)[None]).logits
    plain, wide, rounded = logits.values()
    assert plain.shape[-1] == 61 and wide.shape[-1] == rounded.shape[-1] == 64
    assert torch.equal(wide[..., :61], plain)
    for each in (wide, rounded):
        assert torch.count_nonzero(each[..., 61:]) == 0


def difference(ours: list[float], theirs: list[float]) -> float:
    """The largest relative one."""
    assert len(ours) == len(theirs) > 1 and ours[0] != ours[-1]
    worst = max(abs(a - b) / b for a, b in zip(ours, theirs))
    print(f"{ours[0]:.9f} to {ours[-1]:.9f}, relative difference {worst:.1e}")
    return worst


# Both sizes are odd, and both are padded.
ODD = replace(JOB, model=replace(JOB.model, intermediate_size=171, num_hidden_layers=2,
                                 tie_word_embeddings=False), train_iters=6,
              optimizer=Optimizer(lr=2e-2, warmup_iters=1, decay_iters=6))


def both_padded(job: Job, vocabulary: int = 128, intermediate: int = 16) -> Job:
    job = padded(job, vocabulary)
    target = {**job.settings["target"], "make_intermediate_size_divisible_by": intermediate}
    return replace(job, settings={**job.settings, "target": target})


@pytest.fixture
def width_in_plan(programs):
    """width_in_plan(plan): the columns that the products of down_proj read."""
    def find(plan) -> int:
        report = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
        down = [c for f in report["functions"] if f["name"] == "eval" for c in f["commands"]
                if c.get("source", "").endswith("down_proj") and "k" in c]
        assert down
        return max(each["k"] for each in down)

    return find


def assert_same_tensors(ours, theirs, bound: float) -> None:
    assert {k: w.shape for k, w in ours.items()} == {k: w.shape for k, w in theirs.items()}
    for name, weight in ours.items():
        torch.testing.assert_close(weight.double(), theirs[name].double(), rtol=bound, atol=bound)


@pytest.mark.parametrize("mlp_bias", [False, True])
@pytest.mark.parametrize("compute_dtype, bound", [("f32", 1e-6), ("f64", 1e-12), ("bf16", 1e-3)])
def test_both_sizes_padded_change_no_loss(programs, compiled, tmp_path, rows_in_plan, width_in_plan,
                                          compute_dtype, bound, mlp_bias):
    job = replace(ODD, compute_dtype=compute_dtype, model=replace(ODD.model, mlp_bias=mlp_bias))
    runs, counts = {}, set()
    for name, each in (("unpadded", both_padded(job, 1, 1)), ("padded", both_padded(job))):
        plan = compiled(each)
        assert rows_in_plan(plan) == (50304 if name == "padded" else VOCABULARY)
        assert width_in_plan(plan) == (176 if name == "padded" else 171)
        model = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)["model"]
        counts.add((model["parameters"], model["flops_per_token_causal"]))
        runs[name] = tmp_path / name
        programs.run("lmc-run", plan, f"--out={runs[name]}").ok()
    assert len(counts) == 1
    assert difference(losses(runs["padded"]), losses(runs["unpadded"])) <= bound
    for file in ("model.safetensors", "moment1.safetensors", "moment2.safetensors"):
        ours, theirs = (load_file(checkpoints(out)[6] / file) for out in runs.values())
        if file == "model.safetensors":
            assert ours["model.layers.1.mlp.down_proj.weight"].shape == (32, 171)
        if compute_dtype != "bf16":
            assert_same_tensors(ours, theirs, 100 * bound)


ODD_SMALL = replace(ODD, model=replace(ODD.model, vocab_size=61), train_iters=4,
                    optimizer=Optimizer(lr=1e-2, warmup_iters=1, decay_iters=4))


@pytest.mark.parametrize("compute_dtype, bound", [("f32", 1e-6), ("f64", 1e-12)])
def test_a_checkpoint_goes_both_ways_bit_for_bit(programs, compiled, tmp_path, compute_dtype, bound):
    """A checkpoint that another plan loads and saves again has the same bytes of every tensor; and
    two steps in one plan and two in the other are four in one."""
    job = replace(ODD_SMALL, compute_dtype=compute_dtype, settings={"checkpoint": {"interval": 2}})
    plans = {"padded": compiled(both_padded(job, 64, 64)), "plain": compiled(both_padded(job, 1, 1))}
    whole = {}
    for name, plan in plans.items():
        whole[name] = tmp_path / name
        programs.run("lmc-run", plan, f"--out={whole[name]}").ok()
    assert difference(losses(whole["padded"]), losses(whole["plain"])) <= bound
    for first, second in (("padded", "plain"), ("plain", "padded")):
        both = tmp_path / f"{first}-{second}"
        programs.run("lmc-run", plans[first], f"--out={both}", "--steps=2").ok()
        programs.run("lmc-run", plans[second], f"--out={both}").ok()
        assert difference(losses(both), losses(whole[first])) <= bound
        # No step is left: the plan loads the state and saves it again as an export.
        exported = {}
        for name, plan in plans.items():
            folder = tmp_path / f"{first}-{second}-{name}"
            programs.run("lmc-run", plan, f"--out={both}", f"--export={folder}").ok()
            exported[name] = load_file(folder / "model.safetensors")
        saved = load_file(checkpoints(both)[4] / "model.safetensors")
        for tensors in exported.values():
            assert set(tensors) == set(saved)
            assert all(torch.equal(tensors[name], weight) for name, weight in saved.items())


def test_padding_stays_zero(programs, compiled, tmp_path):
    """Seen through exports: a model whose padding had become anything else would give other losses
    after its padding is cut off and put back as zeros."""
    job = replace(ODD_SMALL, compute_dtype="f64", train_iters=40, settings={
        "checkpoint": {"interval": 20}}, optimizer=Optimizer(
            lr=3e-2, warmup_iters=1, decay_iters=40, weight_decay=0.3))
    plan = compiled(both_padded(job, 64, 64))
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    programs.run("lmc-run", plan, f"--out={whole}").ok()
    programs.run("lmc-run", plan, f"--out={halves}", "--steps=20").ok()
    programs.run("lmc-run", plan, f"--out={halves}").ok()
    assert losses(whole) == losses(halves)  # the second half's padding is zeros: bit for bit


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3"])
def test_ranks_divide_padded_mlps(programs, compiled, tmp_path, strategy):
    """And their checkpoint goes on on one rank, unpadded."""
    job = replace(ODD_SMALL, compute_dtype="f64", settings={"checkpoint": {"interval": 2}})
    ranks = {"nodes": 1, "devices_per_node": 2, "strategy": strategy}
    one = both_padded(job, 64, 64)
    two = replace(one, micro_batch_size=2, settings={**one.settings, "distributed": ranks})
    out = {name: tmp_path / name for name in ("one", "two", "mixed")}
    programs.run("lmc-run", compiled(one), f"--out={out['one']}").ok()
    programs.run("lmc-run", compiled(two), f"--out={out['two']}", "--nproc=2").ok()
    programs.run("lmc-run", compiled(two), f"--out={out['mixed']}", "--nproc=2", "--steps=2").ok()
    programs.run("lmc-run", compiled(both_padded(job, 1, 1)), f"--out={out['mixed']}").ok()
    for name in ("two", "mixed"):
        assert difference(losses(out[name]), losses(out["one"])) <= 1e-12
    ours, theirs = (load_file(checkpoints(out[name])[4] / "model.safetensors")
                    for name in ("two", "one"))
    assert_same_tensors(ours, theirs, 1e-10)


def test_a_gpu_plan_with_both_sizes_padded(compiled, host, rows_in_plan, width_in_plan):  # noqa: F811
    """On the SIMT executor, with the losses of the unpadded plan."""
    job = replace(ODD_SMALL, compute_dtype="f32")
    history = {}
    for name, each in (("padded", both_padded(job, 64, 64)), ("plain", both_padded(job, 1, 1))):
        plan = compiled(each, TARGET)
        assert rows_in_plan(plan) == (64 if name == "padded" else 61)
        assert width_in_plan(plan) == (192 if name == "padded" else 171)
        history[name] = losses(host(plan).ok().out)
    assert difference(history["padded"], history["plain"]) <= 1e-6


def test_an_export_has_the_odd_width(programs, compiled, tmp_path):
    job = both_padded(ODD_SMALL, 64, 64)
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(job), f"--out={out}").ok()
    programs.run("lmc-data", "export", out, "-o", tmp_path / "export").ok()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "export", dtype=torch.float32)
    assert model.config.intermediate_size == 171 and model.config.vocab_size == 61
    assert model.model.layers[1].mlp.down_proj.weight.shape == (32, 171)
    programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'again'}",
                 f"--init={tmp_path / 'export'}", "--steps=1").ok()


def test_adamw8bit_refuses_padded_columns(programs, tmp_path):
    job = both_padded(ODD_SMALL, 1, 64)
    toml = replace(job, settings={**job.settings, "optimizer": {"type": "adamw8bit"}}).write(tmp_path)
    finished = programs.run("lmc", "compile", toml, "-o", tmp_path / "job.plan")
    assert finished.code == USER_ERROR
    assert "intermediate_size = 171 cannot be padded to a multiple of 64 with adamw8bit" in (
        finished.stderr)
