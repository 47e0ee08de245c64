"""What is of GPT-2 alone: learned positions, published checkpoints, and layouts and options that other
tests show for Llama."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import reference
from jobs import Job
from programs import USER_ERROR, checkpoint_digest, checkpoints, losses, metrics
from reference import Model, Optimizer
from test_document_options import job_of as job_of_documents, theirs
from test_generation import assert_most_likely, text  # noqa: F401 (text is a fixture)
from test_gradients import assert_gradients_agree
from test_host_driver import TARGET, host  # noqa: F401 (a fixture)

STEPS = 6
# More positions than a sequence has, and a vocabulary that no padding divides.
MODEL = Model(architecture="gpt2", vocab_size=251, intermediate_size=192, max_position_embeddings=48,
              tie_word_embeddings=True)
JOB = Job(model=MODEL, optimizer=Optimizer(decay_iters=STEPS), train_iters=STEPS)


def with_settings(job: Job, **sections) -> Job:
    return replace(job, settings={name: {**job.settings.get(name, {}), **sections.get(name, {})}
                                  for name in job.settings.keys() | sections.keys()})


def run(programs, plan: Path, out: Path, *options: str) -> list[float]:
    programs.run("lmc-run", plan, f"--out={out}", *options).ok()
    return losses(out)


RANKS = {"devices_per_node": 2, "strategy": "zero3"}
# Everything that a recipe may add, at once.
ADDED = {"training": {"z_loss": 1e-2, "document_mask": True, "document_positions": True},
         "data": {"end_of_document": 0}}


def test_layouts_change_nothing(programs, compiled, tmp_path):
    """One micro-step on one rank, and two of two ranks with ZeRO-3, recompute and a padded vocabulary."""
    whole = with_settings(replace(JOB, model=replace(MODEL, embedding_norm=True), compute_dtype="f64"), **ADDED)
    cut = with_settings(replace(whole, micro_batch_size=2), distributed=RANKS, memory={"recompute": "block"},
                        target={"make_vocab_size_divisible_by": 64})
    first = run(programs, compiled(whole), tmp_path / "whole")
    assert run(programs, compiled(cut), tmp_path / "cut", "--nproc=2") == pytest.approx(first, rel=1e-12)


def test_positions_restart_at_documents(programs, compiled, tmp_path):
    job = job_of_documents(model=replace(MODEL, vocab_size=256), compute_dtype="f64", documents=True, positions=True,
                           loss_mask=True)
    weights = reference.random_weights(job.model, seed=7)
    save_file(weights, tmp_path / "initial.safetensors")
    dump = tmp_path / "gradients.safetensors"
    ours = run(programs, compiled(job), tmp_path / "run", f"--init={tmp_path / 'initial.safetensors'}", "--steps=1",
               f"--dump-gradients={dump}")
    loss, gradients = theirs(job, weights, torch.float64)
    assert ours == pytest.approx([loss], rel=1e-12)
    assert_gradients_agree(load_file(dump), gradients, 1e-10)
    other, _ = theirs(replace(job, positions=False), weights, torch.float64)
    assert abs(other - loss) > 1e-4 * loss, "the positions change nothing, so nothing is shown"


def test_a_norm_behind_the_embedding_is_a_layer_norm_of_the_sum(programs, compiled, tmp_path):
    job = replace(JOB, model=replace(MODEL, embedding_norm=True))
    weights = reference.random_weights(job.model, seed=7)
    save_file(weights, tmp_path / "initial.safetensors")
    ours = run(programs, compiled(job), tmp_path / "run", f"--init={tmp_path / 'initial.safetensors'}")
    steps = reference.train(job.model, weights, job.windows(), job.optimizer, STEPS)
    assert ours == pytest.approx([step.loss for step in steps], rel=1e-5)


def test_moments_of_8_bits_are_divided_between_ranks(programs, compiled, tmp_path):
    job = with_settings(JOB, optimizer={"type": "adamw8bit"})
    weights = reference.random_weights(job.model, seed=7)
    save_file(weights, tmp_path / "initial.safetensors")
    initial = f"--init={tmp_path / 'initial.safetensors'}"
    ours = run(programs, compiled(job), tmp_path / "one", initial)
    exact = reference.train(job.model, weights, job.windows(), job.optimizer, STEPS)
    assert ours == pytest.approx([step.loss for step in exact], rel=2e-3) and ours[-1] < 0.9 * ours[0]
    two = with_settings(replace(job, micro_batch_size=4), distributed=RANKS)
    assert run(programs, compiled(two), tmp_path / "two", initial, "--nproc=2") == pytest.approx(ours, rel=1e-5)


def test_text_is_that_of_transformers(programs, compiled, text, tmp_path):  # noqa: F811
    """Prompts go on at the positions behind them, also where two ranks share them."""
    job = text.job()
    job = replace(job, micro_batch_size=1, model=replace(MODEL, vocab_size=job.model.vocab_size))
    plan = compiled(job, "--devices-per-node=2", "--set", "distributed.strategy=zero3")
    out = tmp_path / "run"
    programs.run("local-ranks", 2, f"plan={plan}", f"out={out}").ok()
    assert_most_likely(text, out, 8)


def test_phases_may_have_other_sequences(programs, compiled, tmp_path):
    """Both phases read the same learned positions, and a run that stops in one goes on bit for bit."""
    job = replace(JOB, model=replace(MODEL, num_hidden_layers=1), epoch_steps=STEPS, tables=[
        ("phase", {"name": "short", "steps": 3}),
        ("phase", {"name": "long", "steps": 3, "sequence_length": 48, "batch_size": 4, "micro_batch_size": 2})])
    job = with_settings(job, checkpoint={"interval": 2})
    plan = compiled(job)
    whole = run(programs, plan, tmp_path / "whole")
    for steps in (2, STEPS):
        programs.run("lmc-run", plan, f"--out={tmp_path / 'parts'}", f"--steps={steps}").ok()
    assert losses(tmp_path / "parts") == whole
    assert checkpoint_digest(checkpoints(tmp_path / "parts")[STEPS]) == \
        checkpoint_digest(checkpoints(tmp_path / "whole")[STEPS])


def test_a_gpus_kernels_train_as_the_cpus(programs, compiled, host, tmp_path):  # noqa: F811
    model = replace(MODEL, num_hidden_layers=1, embedding_norm=True)
    job = with_settings(
        replace(JOB, model=model, batch_size=4, micro_batch_size=2, train_iters=2,
                optimizer=Optimizer(warmup_iters=1, decay_iters=2)),
        **ADDED)
    expected = run(programs, compiled(job), tmp_path / "cpu")
    gpu = host(compiled(job, TARGET)).ok()
    assert losses(gpu.out) == pytest.approx(expected, rel=1e-6)


def test_an_mlp_without_a_gate_is_not_padded(programs, compiled):
    """On a GPU, where lmc would pad a gated MLP of this width, and the report would say so."""
    model = replace(MODEL, hidden_size=256, intermediate_size=999, num_hidden_layers=1)
    plan = compiled(replace(JOB, model=model, compute_dtype="bf16"), TARGET)
    report = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
    assert "intermediate" not in report and report["vocabulary"]["padded"] == 256


# -- Published checkpoints ----------------------------------------------------------------------------------


def published(folder: Path, weights: reference.Weights, dtype: torch.dtype, shards: int) -> Path:
    """Names without "transformer.", and the masks of layers, as openai-community/gpt2 has them."""
    folder.mkdir()
    tensors = {name.removeprefix("transformer."): weight.to(dtype) for name, weight in weights.items()}
    for layer in range(MODEL.num_hidden_layers):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 48, 48).tril()
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    names = sorted(tensors)
    files = {f"model-{i + 1:05}-of-{shards:05}.safetensors": names[i::shards] for i in range(shards)}
    for file, held in files.items():
        save_file({name: tensors[name] for name in held}, folder / file, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {}, "weight_map": {name: file for file, held in files.items() for name in held}}))
    (folder / "config.json").write_text(json.dumps({
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "embd_pdrop": 0.1,
        "layer_norm_epsilon": 1e-5, "model_type": "gpt2", "n_ctx": 48, "n_embd": 64, "n_head": 4,
        "n_inner": MODEL.intermediate_size, "n_layer": 2, "n_positions": 48, "resid_pdrop": 0.1, "torch_dtype": "float16",
        "vocab_size": 251}))
    return folder


@pytest.fixture
def imported(programs, tmp_path):
    """A job whose model is that of a published checkpoint, and its plan."""
    weights = reference.random_weights(MODEL, seed=13)
    folder = published(tmp_path / "published", weights, torch.float16, 3)
    sections = JOB.toml().split("[training]")[1]
    JOB.write(tmp_path)
    (tmp_path / "imported.toml").write_text(f'[model]\nconfig = "published/config.json"\n\n[training]{sections}')
    programs.run("lmc", "compile", tmp_path / "imported.toml", "-o", tmp_path / "imported.plan").ok()
    return weights, folder, tmp_path / "imported.plan"


def test_a_published_checkpoint_of_f16_shards(programs, imported, tmp_path):
    weights, folder, plan = imported
    out = tmp_path / "run"
    done = programs.run("lmc-run", plan, f"--out={out}", "--resume=none", "--steps=1", f"--init={folder}").ok()
    rounded = {name: weight.half().float() for name, weight in weights.items()}
    loss = reference.loss(MODEL, rounded, JOB.windows()).item()
    assert losses(out) == pytest.approx([loss], rel=1e-5)
    warning = "'resid_pdrop' = 0.1, 'embd_pdrop' = 0.1 and 'attn_pdrop' = 0.1 are read as 0, because lmc has no dropout"
    assert warning in done.stderr
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert len([event for event in events if event["event"] == "warning" and warning in event["text"]]) == 1
    checked = programs.run("lmc-run", plan, f"--out={tmp_path / 'checked'}", f"--init={folder}", "--check").ok()
    assert len([line for line in checked.stdout.splitlines() if line.startswith("  warning  job") and warning in line]) == 1


def test_a_published_checkpoint_that_lacks_a_tensor(programs, imported, tmp_path):
    _, folder, plan = imported
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    for name in ("wte.weight", "h.1.ln_1.bias"):
        file = folder / index["weight_map"].pop(name)
        tensors = load_file(file)
        del tensors[name]
        save_file(tensors, file, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    said = programs.run("lmc-run", plan, f"--out={tmp_path / 'run'}", f"--init={folder}")
    assert said.code == USER_ERROR
    assert said.stderr.splitlines()[-1].endswith(
        "lacks 'transformer.wte.weight', 'transformer.h.1.ln_1.bias', which the model has")


def test_a_head_that_was_not_saved(programs, compiled, imported, tmp_path):
    _, folder, _ = imported
    plan = compiled(replace(JOB, model=replace(MODEL, tie_word_embeddings=False)))
    said = programs.run("lmc-run", plan, f"--out={tmp_path / 'run'}", f"--init={folder}")
    assert said.code == USER_ERROR
    assert "no 'lm_head.weight': its head is tied to the embedding, or was not saved; if it is tied, set " \
           "model.tie_word_embeddings = true" in said.stderr


def test_an_export_has_a_padded_vocabulary(programs, compiled, tmp_path):
    out, exported = tmp_path / "run", tmp_path / "exported"
    run(programs, compiled(JOB), out)
    programs.run("lmc-data", "export", out, "--output", exported, "--pad-vocab=64", "--dtype=bf16").ok()
    trained, weights = (load_file(file) for file in (checkpoints(out)[STEPS] / "model.safetensors",
                                                     exported / "model.safetensors"))
    assert json.loads((exported / "config.json").read_text())["vocab_size"] == 256
    embedding = weights.pop(MODEL.embedding)
    assert torch.equal(embedding[:251], trained.pop(MODEL.embedding).bfloat16()) and not embedding[251:].any()
    assert weights.keys() == trained.keys()
    assert all(torch.equal(weights[name], trained[name].bfloat16()) for name in trained)
