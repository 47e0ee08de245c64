"""Models of Hugging Face's transformers, made from the reference's description and weights."""

import tempfile

import torch
from safetensors.torch import save_file
from transformers import (AutoModelForCausalLM, MixtralConfig, MixtralForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Olmo2Config, Olmo2ForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)

from reference import Model, Weights

CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "olmo2": (Olmo2Config, Olmo2ForCausalLM),
    "gpt2": (GPT2Config, GPT2LMHeadModel),
    "mixtral": (MixtralConfig, MixtralForCausalLM),
}
# Keys that a class does not have.
ABSENT = {"mistral": ("attention_bias", "mlp_bias"), "qwen2": ("attention_bias", "mlp_bias"),
          "qwen3": ("mlp_bias",), "olmo2": ("mlp_bias",), "mixtral": ("attention_bias", "mlp_bias")}


def options(model: Model) -> dict[str, str]:
    """What from_pretrained is told so that all sizes work: the default for experts wants rows of 16 bytes."""
    return {"attn_implementation": "eager", **({"experts_implementation": "eager"} if model.sparse else {})}


def build(model: Model, weights: Weights) -> PreTrainedModel:
    keys = model.keys()
    keys.pop("architecture")
    if model.architecture == "gpt2":
        keys["n_inner"] = keys.pop("intermediate_size")
    else:  # transformers 5 keeps theta and scaling in one place.
        keys["rope_parameters"] = {
            "rope_type": "default",
            **(keys.pop("rope_scaling", None) or {}),
            "rope_theta": keys.pop("rope_theta"),
        }
    config, made = CLASSES[model.architecture]
    absent = ABSENT.get(model.architecture, ())
    if model.sliding_window and model.architecture not in ("mistral", "mixtral"):
        raise ValueError(f"transformers' {model.architecture} has no sliding window here")
    for key in absent:
        if keys.pop(key):
            raise ValueError(f"a {model.architecture} has no {key}")
    if model.architecture == "mistral":
        keys.setdefault("sliding_window", None)  # its default is 4096, not "none"
    if model.sparse:
        # It keeps all experts in one tensor, and only its reader knows how.
        with tempfile.TemporaryDirectory() as folder:
            config(**keys, architectures=[made.__name__]).save_pretrained(folder)
            save_file(weights, f"{folder}/model.safetensors", metadata={"format": "pt"})
            return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options(model)).eval()
    made = made(config(**keys, attn_implementation="eager"))
    weights = dict(weights)
    if model.tie_word_embeddings:
        weights["lm_head.weight"] = weights[model.embedding]
    made.load_state_dict(weights, strict=True)
    return made.eval()


def logits(made: PreTrainedModel, tokens: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return made(input_ids=tokens, use_cache=False).logits
