"""A vocabulary that is padded in the plan: the training of the unpadded one, and no trace of the
padding outside of the plan."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from jobs import Job
from programs import checkpoints, losses
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
