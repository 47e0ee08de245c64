"""Packed documents: with training.document_mask attention stays within each."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import reference
from jobs import Job, write_tokens
from programs import USER_ERROR, checkpoint_digest, checkpoints, losses, metrics
from reference import Model, Optimizer
from test_gradients import assert_gradients_agree, relative_error

END = 0  # ends a document; no other token is it but by chance, and then it ends one too
MODELS = {
    "llama": Model(tie_word_embeddings=True),
    "llama-one-kv-head": Model(num_key_value_heads=1),
    "mistral-window": Model(architecture="mistral", sliding_window=7),
}
STEPS = 6
OPTIMIZER = Optimizer(clip_grad=1.0, decay_iters=STEPS)


@dataclass
class PackedJob(Job):
    """Documents of 1 to 60 tokens, so that sequences of 32 hold several, one, or a part of one."""

    documents: bool = True  # training.document_mask

    def sections(self):
        sections = super().sections()
        sections["training"]["document_mask"] = self.documents
        sections["data"]["end_of_document"] = END
        return sections

    def tokens(self) -> np.ndarray:
        tokens = super().tokens()
        tokens[tokens == END] = 1
        chance, at = np.random.default_rng(self.seed + 1), -1
        while (at := at + int(chance.integers(1, 20 if chance.random() < 0.7 else 60))) < len(tokens):
            tokens[at] = END
        return tokens


def job_of(name: str, **changes) -> PackedJob:
    settings = {"checkpoint": {"interval": 0}, **changes.pop("settings", {})}
    return PackedJob(
        model=MODELS[name], optimizer=OPTIMIZER, train_iters=STEPS, settings=settings, **changes
    )


def run(programs, plan: Path, out: Path, *options) -> Path:
    programs.run("lmc-run", plan, f"--out={out}", *options).ok()
    return out


def initial(job: Job, folder: Path):
    weights = reference.random_weights(job.model, seed=7)
    save_file(weights, folder / "initial.safetensors")
    return weights, f"--init={folder / 'initial.safetensors'}"


def test_the_reference_is_torch_attention_with_a_block_diagonal_causal_mask():
    """In one row of three documents: PyTorch's own attention, given each document alone."""
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(1, 2, 10, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    tokens = torch.tensor([[5, 6, 7, END, END, 8, 9, 1, 2, 3]])
    document = reference.documents(tokens, END)
    assert document.tolist() == [[0, 0, 0, 0, 1, 2, 2, 2, 2, 2]]
    mask = (document[:, :, None] == document[:, None, :]).tril()
    whole = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])
    for begin, end in ((0, 4), (4, 5), (5, 10)):
        q1, k1, v1 = (x[:, :, begin:end] for x in (q, k, v))
        alone = F.scaled_dot_product_attention(q1, k1, v1, is_causal=True)
        torch.testing.assert_close(whole[:, :, begin:end], alone)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype, bound", [("f32", 1e-5), ("f64", 1e-10)])
def test_gradients_are_those_of_pytorch(programs, compiled, tmp_path, name, dtype, bound):
    job = job_of(name, compute_dtype=dtype, micro_batch_size=4)
    weights, init = initial(job, tmp_path)
    dump = tmp_path / "gradients.safetensors"
    run(programs, compiled(job), tmp_path / "run", init, "--steps=1", f"--dump-gradients={dump}")
    precision = torch.float64 if dtype == "f64" else torch.float32
    theirs = reference.gradients(job.model, weights, job.windows(), precision, END)
    ours = load_file(dump)
    assert_gradients_agree(ours, theirs, bound)
    plain = reference.gradients(job.model, weights, job.windows(), precision)
    assert all(relative_error(plain[key], theirs[key]) > 100 * bound for key in theirs), (
        "the mask changes nothing, so nothing is shown"
    )


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_of_pytorch(programs, compiled, tmp_path, name):
    job = job_of(name, compute_dtype="f32")
    weights, init = initial(job, tmp_path)
    ours = metrics(run(programs, compiled(job), tmp_path / "run", init))
    theirs = reference.train(
        job.model, weights, job.windows(), OPTIMIZER, STEPS, end_of_document=END
    )
    plain = reference.loss(job.model, weights, job.windows()).item()
    assert len(ours) == STEPS
    for mine, other in zip(ours, theirs):
        print(f"step {mine['step']}: loss {mine['loss']:.8f}, PyTorch {other.loss:.8f}")
        assert mine["loss"] == pytest.approx(other.loss, rel=1e-5)
        assert mine["grad_norm"] == pytest.approx(other.grad_norm, rel=1e-4)
    print(f"without the mask: {plain:.8f}")
    assert abs(plain - theirs[0].loss) > 1e-3


def test_bf16_losses_are_near_pytorch(programs, compiled, tmp_path):
    job = job_of("llama", compute_dtype="bf16")
    weights, init = initial(job, tmp_path)
    ours = losses(run(programs, compiled(job), tmp_path / "run", init))
    theirs = reference.train(
        job.model, weights, job.windows(), OPTIMIZER, STEPS, end_of_document=END
    )
    for mine, other in zip(ours, theirs):
        assert mine == pytest.approx(other.loss, rel=2e-2)


def logits_of(programs, compiled, folder: Path, length: int, rows: list[list[int]]):
    """f64 [len(rows), length, vocab] of the documents mask's model, each row a sequence."""
    job = PackedJob(
        model=MODELS["llama"], compute_dtype="f64", sequence_length=length, batch_size=len(rows),
        micro_batch_size=len(rows), settings={"monitoring": {"logits": True}},
    )
    folder.mkdir()
    _, init = initial(job, folder)
    # A window is a row and the token after it, which is the next window's first.
    write_tokens(folder / "rows.bin", np.array(sum(rows, []) + [1]))
    dump = folder / "logits.safetensors"
    programs.run(
        "lmc-run", compiled(job), f"--dump-logits={dump}", init, "--set",
        f"data.validation={folder / 'rows.bin'}",
    ).ok()
    dumped = load_file(dump)
    assert dumped["tokens"].tolist() == rows
    return dumped["logits"]


def test_documents_of_a_sequence_are_each_alone(programs, compiled, tmp_path):
    """Through the whole model. RoPE's positions go on across documents; their differences, all
    that attention sees, do not change."""
    chance = np.random.default_rng(4)
    first, second = (list(map(int, chance.integers(1, 256, size=20))) for _ in range(2))
    first[-1] = END
    other = [int(chance.integers(1, 256)) for _ in range(19)] + [END]
    together = logits_of(programs, compiled, tmp_path / "both", 40, [first + second])
    alone = logits_of(programs, compiled, tmp_path / "alone", 20, [first, second])
    beside = logits_of(programs, compiled, tmp_path / "other", 40, [other + second])
    differences = [
        (together[0, :20] - alone[0]).abs().max().item(),
        (together[0, 20:] - alone[1]).abs().max().item(),
    ]
    print(f"largest logit {alone.abs().max():.3f}, largest differences {differences}")
    assert max(differences) < 1e-11
    # What came before is nothing to the second document, not one bit.
    assert together[0, 20:].equal(beside[0, 20:])
    assert not together[0, :20].equal(beside[0, :20])


def test_validation_is_masked_too(programs, compiled, tmp_path):
    """With a last micro-batch that is padded: 8 samples in micro-batches of 3."""
    job = job_of("llama", batch_size=3, micro_batch_size=3, settings={
        "monitoring": {"validation_iters": 3}})
    weights, init = initial(job, tmp_path)
    validation = replace(job, batch_size=8, seed=99)
    write_tokens(tmp_path / "validation.bin", validation.tokens())
    finished = programs.run(
        "lmc-run", compiled(job), "--eval", init, "--set",
        f"data.validation={tmp_path / 'validation.bin'}",
    ).ok()
    ours = json.loads(finished.stdout)
    windows = validation.windows()
    theirs = reference.loss(job.model, weights, windows, END).item()
    print(f"{ours}, PyTorch {theirs:.8f}")
    assert ours["validation_tokens"] == 8 * 32
    assert ours["validation_loss"] == pytest.approx(theirs, rel=1e-5)
    assert abs(reference.loss(job.model, weights, windows).item() - theirs) > 1e-3


def assert_same_run(ours: Path, theirs: Path) -> None:
    assert losses(ours) == losses(theirs)
    digests = [checkpoint_digest(checkpoints(out)[STEPS]) for out in (ours, theirs)]
    assert digests[0] == digests[1]


@pytest.mark.parametrize("compute_dtype", ["f32", "bf16"])
def test_recompute_and_fusion_change_no_bit(programs, compiled, tmp_path, compute_dtype):
    def plan(mode, *options):
        return compiled(job_of("mistral-window", compute_dtype=compute_dtype, micro_batch_size=4,
                               settings={"memory": {"recompute": mode}}), *options)

    plans = {mode: plan(mode) for mode in ("keep-all", "none", "full", "block")}
    plans["unfused"] = plan("none", "--disable-fusion=producer,siblings,layers")
    plans["own bytes"] = plan("block", "--disable-reuse")
    runs = {name: run(programs, path, tmp_path / name) for name, path in plans.items()}
    for name in plans:
        assert_same_run(runs[name], runs["keep-all"])


def test_resuming_is_bit_identical(programs, compiled, tmp_path):
    plan = compiled(job_of("llama", batch_size=4, micro_batch_size=2, epoch_steps=4))
    whole = run(programs, plan, tmp_path / "whole")
    halves = run(programs, plan, tmp_path / "halves", "--steps=3")
    run(programs, plan, halves, "--resume=auto")
    assert_same_run(halves, whole)


def test_packed_files_know_their_documents(programs, compiled, tmp_path):
    """A file of lmc-data trains as the same tokens do whose end-of-document id is given; without
    the mask, otherwise."""
    job = job_of("llama", micro_batch_size=4)
    chance = np.random.default_rng(6)
    text = b"\f".join(
        bytes(chance.integers(32, 127, size=chance.integers(1, 60), dtype=np.uint8))
        for _ in range(60)
    )
    (tmp_path / "text.txt").write_bytes(text)
    programs.run("lmc-data", "pack", tmp_path / "text.txt", "-o", tmp_path / "packed.bin").ok()
    tokens = np.frombuffer(text.replace(b"\f", b"\0"), dtype=np.uint8)
    write_tokens(tmp_path / "bare.bin", tokens)
    plan, unmasked = compiled(job), compiled(replace(job, documents=False))
    runs = {
        name: run(programs, used, tmp_path / name, "--set", f"data.train={tmp_path / file}",
                  *options)
        for name, used, file, options in (
            ("packed", plan, "packed.bin", ["--set", "data.end_of_document=-1"]),
            ("bare", plan, "bare.bin", []),
            ("unmasked", unmasked, "packed.bin", []),
        )
    }
    assert_same_run(runs["packed"], runs["bare"])
    assert losses(runs["packed"])[0] != losses(runs["unmasked"])[0]


def test_megatrons_name_is_understood(programs, tmp_path):
    toml = job_of("llama").write(tmp_path)
    toml.write_text(toml.read_text().replace("document_mask", "reset_attention_mask"))
    programs.run("lmc", "compile", toml, "-o", tmp_path / "job.plan").ok()
    assert b"batch.starts" in (tmp_path / "job.plan").read_bytes()


def test_files_that_do_not_tell_documents_apart(programs, compiled, tmp_path):
    plan = compiled(job_of("llama"))
    finished = programs.run("lmc-run", plan, f"--out={tmp_path / 'run'}", "--set",
                            "data.end_of_document=-1")
    print(finished.stderr)
    assert finished.code == USER_ERROR
    (line,) = finished.stderr.splitlines()
    for part in ("data.train", "train.bin", "training.document_mask", "data.end_of_document",
                 "lmc-data pack"):
        assert part in line
    finished = programs.run("lmc-run", plan, f"--out={tmp_path / 'run'}", "--set",
                            "data.end_of_document=256")
    assert finished.code == USER_ERROR
    (line,) = finished.stderr.splitlines()
    assert "data.end_of_document is 256" in line and "256 (model.vocab_size)" in line
