"""Positions that restart at each document (training.document_positions), and no loss for the last
token of a document (training.document_loss_mask), against transformers."""

import json
from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import huggingface
import reference
from jobs import write_tokens
from programs import USER_ERROR, losses, metrics
from test_documents import (
    END, MODELS, OPTIMIZER, STEPS, PackedJob, assert_same_run, initial, run,
)
from test_gradients import assert_gradients_agree, relative_error
from test_host_driver import TARGET, host  # noqa: F401 (a fixture)


@dataclass
class OptionsJob(PackedJob):
    positions: bool = False
    loss_mask: bool = False

    def sections(self):
        sections = super().sections()
        sections["training"]["document_positions"] = self.positions
        sections["training"]["document_loss_mask"] = self.loss_mask
        return sections


def job_of(**changes) -> OptionsJob:
    return OptionsJob(**{"model": MODELS["llama"], "optimizer": OPTIMIZER, "micro_batch_size": 4,
                         "train_iters": STEPS,
                         "settings": {"checkpoint": {"interval": 0}}, **changes})


def megatron(tokens: torch.Tensor):
    """The position ids [batch, seq], the attention mask [batch, 1, seq, seq] (true: visible) and the
    loss mask [batch, seq] of a row, by Megatron's definitions, token by token."""
    batch, seq = tokens.shape
    positions = torch.zeros_like(tokens)
    visible = torch.zeros(batch, 1, seq, seq, dtype=torch.bool)
    for row in range(batch):
        start = 0
        for t in range(seq):
            positions[row, t] = t - start
            visible[row, 0, t, start:t + 1] = True
            if tokens[row, t] == END:
                start = t + 1
    return positions, visible, tokens != END


def theirs(job: OptionsJob, weights, dtype):
    """The loss and the gradients: in f32 those of transformers, with explicit position_ids and a 4-D
    mask; in f64 those of the reference, because transformers has RoPE's tables in f32."""
    windows = job.windows()
    tokens, targets = windows[:, :-1], windows[:, 1:].clone()
    positions, visible, has_loss = megatron(tokens)
    if not job.positions:
        positions = torch.arange(tokens.shape[1]).expand_as(tokens)
    if not job.documents:
        visible = torch.ones_like(visible).tril()
    if job.loss_mask:
        targets[~has_loss] = -100
    if dtype == torch.float32:
        model = huggingface.build(job.model, weights)
        mask = torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(dtype).min)
        logits = model(input_ids=tokens, attention_mask=mask, position_ids=positions,
                       use_cache=False).logits
        parameters = dict(model.named_parameters())
    else:
        parameters = reference.as_parameters(weights, dtype)
        logits = reference.logits(job.model, parameters, tokens, END if job.documents else None,
                                  positions)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    return loss.item(), {name: parameter.grad for name, parameter in parameters.items()}


# Which of the three are on: the mask, the positions, the loss mask.
CASES = {
    "positions": (False, True, False),
    "mask and positions": (True, True, False),
    "loss mask": (False, False, True),
    "all": (True, True, True),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype, bound", [("f32", 1e-5), ("f64", 1e-10)])
def test_losses_and_gradients_are_those_of_transformers(programs, compiled, tmp_path, case, dtype,
                                                        bound):
    documents, positions, loss_mask = CASES[case]
    job = job_of(compute_dtype=dtype, documents=documents, positions=positions, loss_mask=loss_mask)
    weights, init = initial(job, tmp_path)
    dump = tmp_path / "gradients.safetensors"
    out = run(programs, compiled(job), tmp_path / "run", init, "--steps=1",
              f"--dump-gradients={dump}")
    precision = torch.float64 if dtype == "f64" else torch.float32
    loss, gradients = theirs(job, weights, precision)
    print(f"loss {metrics(out)[0]['loss']:.12f}, transformers {loss:.12f}")
    assert metrics(out)[0]["loss"] == pytest.approx(loss, rel=bound)
    assert_gradients_agree(load_file(dump), gradients, bound)
    plain = replace(job, documents=documents, positions=False, loss_mask=False)
    _, without = theirs(plain, weights, precision)
    differs = max(relative_error(without[name], gradients[name]) for name in gradients)
    if case != "mask and positions":  # attention within a document sees differences alone
        assert differs > 1e-3, "the options change nothing, so nothing is shown"
    else:
        assert differs < 1e-4


def test_the_reference_has_positions_as_transformers_does():
    weights = reference.random_weights(MODELS["llama"], seed=1)
    tokens = torch.randint(256, (2, 48), generator=torch.Generator().manual_seed(2))
    tokens[:, 20] = END
    positions, _, _ = megatron(tokens)
    assert positions[0, 19:23].tolist() == [19, 20, 0, 1]
    ours = reference.logits(MODELS["llama"], weights, tokens, positions=positions)
    model = huggingface.build(MODELS["llama"], weights)
    # Without a mask, transformers takes positions that restart for a document mask.
    mask = torch.full((2, 1, 48, 48), torch.finfo(torch.float32).min).triu(1)
    with torch.no_grad():
        other = model(input_ids=tokens, attention_mask=mask, position_ids=positions,
                      use_cache=False).logits
    assert (ours - other).abs().max() <= 1e-5 * other.abs().max()


@pytest.mark.parametrize("compute_dtype", ["f32", "bf16"])
def test_recompute_and_fusion_change_no_bit(programs, compiled, tmp_path, compute_dtype):
    def plan(mode, *options):
        return compiled(job_of(compute_dtype=compute_dtype, positions=True, settings={
            "memory": {"recompute": mode}}), *options)

    plans = {mode: plan(mode) for mode in ("keep-all", "none", "block")}
    plans["unfused"] = plan("none", "--disable-fusion=producer,siblings,layers")
    plans["own bytes"] = plan("block", "--disable-reuse")
    runs = {name: run(programs, path, tmp_path / name) for name, path in plans.items()}
    for name in plans:
        assert_same_run(runs[name], runs["keep-all"])


def test_a_gpu_trains_with_positions_as_the_cpu_does(programs, compiled, tmp_path, host):  # noqa: F811
    job = job_of(compute_dtype="f32", documents=False, positions=True, loss_mask=True)
    ours = metrics(host(compiled(job, TARGET)).ok().out)
    cpu = metrics(run(programs, compiled(job), tmp_path / "cpu"))
    for mine, other in zip(ours, cpu, strict=True):
        assert mine["loss"] == pytest.approx(other["loss"], rel=1e-5)


def test_best_fit_windows_have_positions_of_their_documents(programs, compiled, tmp_path):
    """Each piece of a window counts from 0: with the mask too, losses are those without positions
    but for rounding."""
    text = b"\f".join(bytes([65 + i % 26]) * (3 + 7 * i % 29) for i in range(200))
    (tmp_path / "text.txt").write_bytes(text)
    programs.run("lmc-data", "pack", tmp_path / "text.txt", "-o", tmp_path / "packed.bin").ok()
    history = []
    for positions in (False, True):
        job = job_of(compute_dtype="f64", positions=positions, settings={
            "checkpoint": {"interval": 0}, "data": {"packing": "best_fit"}})
        out = run(programs, compiled(job), tmp_path / str(positions), "--set",
                  f"data.train={tmp_path / 'packed.bin'}")
        history.append(losses(out))
    assert history[0] == pytest.approx(history[1], rel=1e-10)


def test_validation_has_no_loss_across_borders_either(programs, compiled, tmp_path):
    job = job_of(loss_mask=True, settings={"monitoring": {"validation_iters": 3}})
    weights, init = initial(job, tmp_path)
    validation = replace(job, batch_size=8, seed=99)
    write_tokens(tmp_path / "validation.bin", validation.tokens())
    finished = programs.run("lmc-run", compiled(job), "--eval", init, "--set",
                            f"data.validation={tmp_path / 'validation.bin'}").ok()
    ours = json.loads(finished.stdout)
    loss, _ = theirs(validation, weights, torch.float32)
    ends = (validation.windows()[:, :-1] == END).sum().item()
    assert ends > 5 and ours["validation_tokens"] == 8 * 32 - ends
    assert ours["validation_loss"] == pytest.approx(loss, rel=1e-5)


def test_megatrons_names_are_understood(programs, tmp_path):
    toml = job_of(positions=True, loss_mask=True).write(tmp_path)
    text = toml.read_text()
    for ours, megatrons in (("document_positions", "reset_position_ids"),
                            ("document_loss_mask", "eod_mask_loss")):
        text = text.replace(ours, megatrons)
    toml.write_text(text)
    programs.run("lmc", "compile", toml, "-o", tmp_path / "job.plan").ok()
    assert b"batch.positions" in (tmp_path / "job.plan").read_bytes()


@pytest.mark.parametrize("option", ["document_positions", "document_loss_mask"])
def test_files_that_do_not_tell_documents_apart(programs, compiled, tmp_path, option):
    job = job_of(documents=False, positions=option == "document_positions",
                 loss_mask=option == "document_loss_mask")
    finished = programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'run'}", "--set",
                            "data.end_of_document=-1")
    assert finished.code == USER_ERROR
    (line,) = finished.stderr.splitlines()
    assert f"which training.{option} needs" in line
