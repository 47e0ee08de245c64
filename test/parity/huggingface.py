"""Models of Hugging Face's transformers, made from the reference's description and weights."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM
from transformers import PreTrainedModel

from reference import Model, Weights


def build(model: Model, weights: Weights) -> PreTrainedModel:
    keys = model.keys()
    keys.pop("architecture")
    # transformers 5 keeps theta and scaling in one place.
    keys["rope_parameters"] = {
        "rope_type": "default",
        **(keys.pop("rope_scaling", None) or {}),
        "rope_theta": keys.pop("rope_theta"),
    }
    if model.architecture == "mistral":
        if keys.pop("attention_bias") or keys.pop("mlp_bias"):
            raise ValueError("a Mistral has no biases")
        keys.setdefault("sliding_window", None)  # its default is 4096, not "none"
        made = MistralForCausalLM(MistralConfig(**keys, attn_implementation="eager"))
    else:
        if model.sliding_window:
            raise ValueError("transformers' Llama has no sliding window")
        made = LlamaForCausalLM(LlamaConfig(**keys, attn_implementation="eager"))
    weights = dict(weights)
    if model.tie_word_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    made.load_state_dict(weights, strict=True)
    return made.eval()


def logits(made: PreTrainedModel, tokens: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return made(input_ids=tokens, use_cache=False).logits
