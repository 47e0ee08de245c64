"""Gradients and losses of a training step, against PyTorch: same weights, same tokens."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

import reference
from jobs import Job
from programs import metrics
from reference import Model, Optimizer

MODELS = {
    "llama-grouped-tied": Model(tie_word_embeddings=True),
    "llama-grouped-untied": Model(),
    "llama-biases": Model(attention_bias=True, mlp_bias=True),
    "llama-odd-sizes": Model(vocab_size=251, hidden_size=60, intermediate_size=91, head_dim=10),
    "mistral-window": Model(architecture="mistral", sliding_window=7),
    "qwen2": Model(architecture="qwen2", tie_word_embeddings=True, num_attention_heads=4, num_key_value_heads=1),
    "qwen3": Model(architecture="qwen3", head_dim=24),
    "gpt2": Model(architecture="gpt2", tie_word_embeddings=True, intermediate_size=256),
    "gpt2-odd-sizes": Model(architecture="gpt2", vocab_size=251, hidden_size=60, intermediate_size=91,
                            num_attention_heads=6, max_position_embeddings=37),
    "olmo2": Model(architecture="olmo2", attention_bias=True),
    "mixtral": Model(architecture="mixtral", intermediate_size=96, num_local_experts=4, num_experts_per_tok=2,
                     router_aux_loss_coef=0.1),
    "mixtral-odd-sizes": Model(architecture="mixtral", vocab_size=251, hidden_size=60, intermediate_size=37, head_dim=10,
                               num_local_experts=7, num_experts_per_tok=3, sliding_window=7),
    "qwen3-moe": Model(architecture="qwen3_moe", head_dim=24, num_local_experts=12, num_experts_per_tok=5, norm_topk_prob=True,
                       router_aux_loss_coef=0.1),
    "qwen3-moe-every-second": Model(architecture="qwen3_moe", num_hidden_layers=4, decoder_sparse_step=2, attention_bias=True,
                                    moe_intermediate_size=40, router_aux_loss_coef=0.1),
    "qwen3-moe-dense-layers": Model(architecture="qwen3_moe", num_hidden_layers=3, mlp_only_layers=(0, 2),
                                    router_aux_loss_coef=0.1),
    "olmoe": Model(architecture="olmoe", num_key_value_heads=4, intermediate_size=48, num_local_experts=12, num_experts_per_tok=4,
                   router_aux_loss_coef=0.1),
    "olmoe-grouped-normalized": Model(architecture="olmoe", vocab_size=251, hidden_size=60, intermediate_size=91, head_dim=10,
                                      num_attention_heads=6, num_local_experts=5, norm_topk_prob=True, attention_bias=True,
                                      router_aux_loss_coef=0.1),
}
# Random weights have gradients of norm above 1, so clipping is part of every comparison.
OPTIMIZER = Optimizer(clip_grad=1.0)
STEPS = 10


def job_of(name: str, compute_dtype: str, **changes) -> Job:
    job = Job(model=MODELS[name], optimizer=OPTIMIZER, train_iters=STEPS, **changes)
    return replace(job, compute_dtype=compute_dtype)


def train(programs, compiled, tmp_path, job: Job, *options):
    """Runs lmc-run from weights that the reference has too: (weights, run folder)."""
    weights = reference.random_weights(job.model, seed=7)
    save_file(weights, tmp_path / "initial.safetensors")
    out = tmp_path / "run"
    programs.run(
        "lmc-run", compiled(job), f"--out={out}", f"--init={tmp_path / 'initial.safetensors'}",
        "--resume=none", *options,
    ).ok()
    return weights, out


def dumped_gradients(programs, compiled, tmp_path, job: Job):
    dump = tmp_path / "gradients.safetensors"
    weights, _ = train(
        programs, compiled, tmp_path, job, "--steps=1", f"--dump-gradients={dump}"
    )
    ours = reference.load_weights(dump)
    assert set(ours) == set(job.model.shapes())
    return weights, ours


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    assert theirs.norm() > 0 and ours.shape == theirs.shape
    return ((ours.double() - theirs.double()).norm() / theirs.double().norm()).item()


def assert_gradients_agree(ours, theirs, bound: float) -> None:
    errors = {name: relative_error(ours[name], theirs[name]) for name in theirs}
    for name, error in errors.items():
        print(f"{name:55} norm {theirs[name].norm():.4e} relative error {error:.2e}")
    assert max(errors.values()) <= bound


@pytest.mark.parametrize("name", MODELS)
def test_f32_gradients_are_those_of_pytorch(programs, compiled, tmp_path, name):
    job = job_of(name, "f32")
    weights, ours = dumped_gradients(programs, compiled, tmp_path, job)
    assert_gradients_agree(ours, reference.gradients(job.model, weights, job.windows()), 1e-5)


def test_accumulated_gradients_are_those_of_pytorch(programs, compiled, tmp_path):
    job = job_of("llama-grouped-tied", "f32", micro_batch_size=2)
    weights, ours = dumped_gradients(programs, compiled, tmp_path, job)
    assert_gradients_agree(ours, reference.gradients(job.model, weights, job.windows()), 1e-5)


def test_f64_gradients_are_those_of_pytorch(programs, compiled, tmp_path):
    """Far below f32's rounding: what agrees here is the formula, not its noise."""
    job = job_of("llama-grouped-tied", "f64")
    weights, ours = dumped_gradients(programs, compiled, tmp_path, job)
    theirs = reference.gradients(job.model, weights, job.windows(), torch.float64)
    assert_gradients_agree(ours, theirs, 1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_ten_f32_adamw_steps_are_those_of_pytorch(programs, compiled, tmp_path, name):
    job = job_of(name, "f32")
    weights, out = train(programs, compiled, tmp_path, job)
    theirs = reference.train(job.model, weights, job.windows(), OPTIMIZER, STEPS)
    ours = metrics(out)
    assert [line["step"] for line in ours] == list(range(1, STEPS + 1))
    for mine, other in zip(ours, theirs):
        print(
            f"step {mine['step']:2}: loss {mine['loss']:.8f}, PyTorch {other.loss:.8f}, "
            f"relative {abs(mine['loss'] - other.loss) / other.loss:.1e}; "
            f"grad norm {mine['grad_norm']:.6f}, PyTorch {other.grad_norm:.6f}; "
            f"lr {mine['lr']:.3e}, PyTorch {other.lr:.3e}"
        )
    # Otherwise the test says nothing about clipping, or about learning.
    assert any(step.grad_norm > OPTIMIZER.clip_grad for step in theirs)
    assert theirs[-1].loss < 0.98 * theirs[0].loss
    for mine, other in zip(ours, theirs):
        assert mine["loss"] == pytest.approx(other.loss, rel=1e-5)
        assert mine["grad_norm"] == pytest.approx(other.grad_norm, rel=1e-4)
        assert mine["lr"] == pytest.approx(other.lr, rel=1e-6)


@pytest.mark.parametrize("name", ["llama-grouped-tied", "mistral-window"])
def test_bf16_gradients_point_where_f32_does(programs, compiled, tmp_path, name):
    job = job_of(name, "bf16")
    weights, ours = dumped_gradients(programs, compiled, tmp_path, job)
    theirs = reference.gradients(job.model, weights, job.windows())
    cosines = {
        n: torch.cosine_similarity(ours[n].double().flatten(), theirs[n].double().flatten(), 0)
        for n in theirs
    }
    for parameter, cosine in cosines.items():
        print(f"{parameter:55} cosine {cosine:.6f}")
    assert min(cosines.values()) > 0.99


@pytest.mark.parametrize("name", ["llama-grouped-tied", "mistral-window"])
def test_ten_bf16_losses_are_near_f32(programs, compiled, tmp_path, name):
    job = job_of(name, "bf16")
    weights, out = train(programs, compiled, tmp_path, job)
    theirs = reference.train(job.model, weights, job.windows(), OPTIMIZER, STEPS)
    ours = metrics(out)
    assert len(ours) == STEPS
    for mine, other in zip(ours, theirs):
        relative = abs(mine["loss"] - other.loss) / other.loss
        print(f"step {mine['step']:2}: bf16 {mine['loss']:.6f}, f32 {other.loss:.6f}, "
              f"relative {relative:.1e}")
        assert relative <= 2e-2
    # bf16 rounding must be there: equal losses would mean that f32 was computed.
    assert any(mine["loss"] != pytest.approx(other.loss, rel=1e-6)
               for mine, other in zip(ours, theirs))
