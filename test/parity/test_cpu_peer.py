"""The sparse model that bench/cpu trains in PyTorch is transformers' OLMoE."""

import runpy

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import OlmoeConfig, OlmoeForCausalLM

MODEL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 4, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "num_experts": 8,
         "num_experts_per_tok": 3, "router_aux_loss_coef": 0.5, "tie_word_embeddings": True}
SEQUENCE = 24
NAMES = {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm", "attention.out": "self_attn.o_proj",
         "attention.q_norm": "self_attn.q_norm", "attention.k_norm": "self_attn.k_norm", "experts.router": "mlp.gate",
         "experts.gate_up": "mlp.experts.gate_up_proj", "experts.down": "mlp.experts.down_proj"}


def tensors(model, of) -> dict[str, torch.Tensor]:
    """Returns what `of` reads of each weight of transformers' OLMoE, by the names of the peer."""
    theirs = {name: of(weight) for name, weight in model.named_parameters()}
    found = {"embedding.weight": theirs["model.embed_tokens.weight"], "norm.weight": theirs["model.norm.weight"]}
    for layer in range(MODEL["num_hidden_layers"]):
        ours, at = f"layers.{layer}.", f"model.layers.{layer}."
        for name, theirs_name in NAMES.items():
            suffix = "" if name in ("experts.gate_up", "experts.down") else ".weight"
            found[f"{ours}{name}{suffix}"] = theirs[f"{at}{theirs_name}{suffix}"]
        found[f"{ours}attention.qkv.weight"] = torch.cat(
            [theirs[f"{at}self_attn.{part}_proj.weight"] for part in "qkv"])
    return found


@pytest.mark.parametrize("loop", [False, True], ids=["grouped", "loop"])
def test_the_peer_is_transformers_olmoe(root, loop):
    torch.manual_seed(1)
    tokens = torch.randint(MODEL["vocab_size"], (2, SEQUENCE + 1))
    theirs = OlmoeForCausalLM(OlmoeConfig(**MODEL, output_router_logits=True, pad_token_id=None, bos_token_id=None,
                                          eos_token_id=None))
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    ours = runpy.run_path(str(root / "bench/cpu/peer.py"))["Olmoe"](MODEL, SEQUENCE, loop)
    ours.load_state_dict({**tensors(theirs, torch.Tensor.detach)}, strict=True)
    loss = ours(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    output = theirs(tokens[:, :-1])
    expected = (cross_entropy(output.logits.flatten(0, 1), tokens[:, 1:].flatten())
                + MODEL["router_aux_loss_coef"] * output.aux_loss)
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    gradients = tensors(theirs, lambda weight: weight.grad)
    for name, weight in ours.named_parameters():
        torch.testing.assert_close(weight.grad, gradients[name], rtol=1e-4, atol=1e-6, msg=lambda text: f"{name}: {text}")
