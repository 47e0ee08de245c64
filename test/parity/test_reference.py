"""The reference itself, against Hugging Face's implementation."""

from dataclasses import replace

import pytest
import torch

import huggingface
import reference
from reference import LLAMA3_SCALING, Model

MODELS = {
    "one-head": Model(num_attention_heads=1, num_key_value_heads=1, head_dim=64),
    "multi-head": Model(num_key_value_heads=4),
    "grouped-tied": Model(tie_word_embeddings=True),
    "multi-query": Model(num_key_value_heads=1, num_hidden_layers=3),
    "wide-head": Model(head_dim=32),
    "biases": Model(attention_bias=True, mlp_bias=True),
    "odd-sizes": Model(vocab_size=251, hidden_size=60, intermediate_size=91, head_dim=10),
    "rope-theta": Model(rope_theta=500000.0, rms_norm_eps=1e-6),
    "rope-linear": Model(rope_scaling={"rope_type": "linear", "factor": 4.0}),
    "rope-llama3": Model(rope_theta=5000.0, rope_scaling=LLAMA3_SCALING),
    "mistral": Model(architecture="mistral"),
    "mistral-window": Model(architecture="mistral", sliding_window=7),
    "qwen2": Model(architecture="qwen2", tie_word_embeddings=True),
    "qwen2-odd-sizes": Model(architecture="qwen2", vocab_size=251, hidden_size=60, intermediate_size=91, head_dim=10),
    "qwen3": Model(architecture="qwen3", head_dim=24),
    "qwen3-biases": Model(architecture="qwen3", attention_bias=True, num_key_value_heads=1),
    "olmo2": Model(architecture="olmo2", num_key_value_heads=4),
    "gpt2": Model(architecture="gpt2", tie_word_embeddings=True),
    "gpt2-untied-odd-sizes": Model(architecture="gpt2", vocab_size=251, hidden_size=60, intermediate_size=91,
                                   num_attention_heads=6, max_position_embeddings=50, layer_norm_epsilon=1e-3),
    "mixtral": Model(architecture="mixtral", intermediate_size=96, num_local_experts=4, num_experts_per_tok=2),
    "mixtral-tied-window": Model(architecture="mixtral", intermediate_size=40, num_local_experts=7, num_experts_per_tok=3,
                                 tie_word_embeddings=True, sliding_window=7),
    "qwen3-moe": Model(architecture="qwen3_moe", head_dim=24, num_local_experts=12, num_experts_per_tok=5, norm_topk_prob=True),
    "qwen3-moe-every-second": Model(architecture="qwen3_moe", num_hidden_layers=4, decoder_sparse_step=2, attention_bias=True),
    "qwen3-moe-dense-layers": Model(architecture="qwen3_moe", num_hidden_layers=3, mlp_only_layers=(0, 2)),
    "olmoe": Model(architecture="olmoe", num_key_value_heads=4, num_local_experts=12, num_experts_per_tok=6),
    "olmoe-grouped-normalized": Model(architecture="olmoe", vocab_size=251, hidden_size=60, intermediate_size=91, head_dim=10,
                                      num_attention_heads=6, num_local_experts=5, norm_topk_prob=True, attention_bias=True),
    "olmo2-grouped-biases": Model(architecture="olmo2", attention_bias=True, tie_word_embeddings=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_reference_has_the_logits_of_transformers(name):
    model = MODELS[name]
    weights = reference.random_weights(model, seed=1)
    tokens = torch.randint(model.vocab_size, (2, 48), generator=torch.Generator().manual_seed(2))
    theirs = huggingface.logits(huggingface.build(model, weights), tokens)
    ours = reference.logits(model, weights, tokens)
    difference = (ours - theirs).abs().max() / theirs.abs().max()
    print(f"{name}: largest logit {theirs.abs().max():.3f}, difference {difference:.2e} of it")
    assert difference <= 1e-5


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.sparse])
def test_reference_has_the_losses_and_gradients_of_transformers_with_experts(name):
    """With the balancing loss, which transformers adds where it returns the logits of routers."""
    model = replace(MODELS[name], router_aux_loss_coef=0.5)
    weights = reference.random_weights(model, seed=1)
    windows = torch.randint(model.vocab_size, (3, 33), generator=torch.Generator().manual_seed(2))
    made = huggingface.build(model, weights)
    out = made(input_ids=windows[:, :-1], output_router_logits=True, use_cache=False)
    cross_entropy = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), windows[:, 1:].flatten())
    theirs = cross_entropy + made.config.router_aux_loss_coef * out.aux_loss
    theirs.backward()
    ours = reference.loss(model, weights, windows)
    print(f"{name}: loss {ours:.6f}, transformers {theirs:.6f}, of which {0.5 * out.aux_loss:.6f} balances")
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-6)
    gradients = huggingface.joined_experts(model, reference.gradients(model, weights, windows))
    for parameter, value in made.named_parameters():
        error = (gradients[parameter] - value.grad).norm() / value.grad.norm()
        assert error <= 1e-5, (parameter, error)


@pytest.mark.parametrize("key", ["sliding_window", "rope_scaling", "rope_theta", "rms_norm_eps"])
def test_the_comparison_sees_each_key(key):
    """A key that both sides ignore would agree too: each must change the logits."""
    changed = {
        "sliding_window": 7,
        "rope_scaling": LLAMA3_SCALING,
        "rope_theta": 500.0,
        "rms_norm_eps": 1e-2,
    }
    model = Model(architecture="mistral")
    weights = reference.random_weights(model, seed=1)
    tokens = torch.arange(48)[None] % model.vocab_size
    base = reference.logits(model, weights, tokens)
    other = reference.logits(replace(model, **{key: changed[key]}), weights, tokens)
    print(f"{key}: {(other - base).abs().max() / base.abs().max():.2e} of the largest logit")
    assert (other - base).abs().max() > 1e-2 * base.abs().max()


def test_f32_is_precise_enough_for_the_bounds():
    """The bounds on lmc are 1e-5; PyTorch's own f32 must be well within them."""
    model = Model(tie_word_embeddings=True)
    weights = reference.random_weights(model, seed=3)
    windows = torch.randint(
        model.vocab_size, (8, 33), generator=torch.Generator().manual_seed(4)
    )
    single = reference.gradients(model, weights, windows)
    double = reference.gradients(model, weights, windows, torch.float64)
    worst = max(((single[n] - double[n]).norm() / double[n].norm()).item() for n in single)
    optimizer = reference.Optimizer()
    losses = [
        [step.loss for step in reference.train(model, weights, windows, optimizer, 10, dtype)]
        for dtype in (torch.float32, torch.float64)
    ]
    drift = max(abs(a - b) / b for a, b in zip(*losses))
    print(f"f32 against f64: gradients {worst:.2e}, ten losses {drift:.2e}")
    assert worst <= 5e-6 and drift <= 5e-6
