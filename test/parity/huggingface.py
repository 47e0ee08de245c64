"""Models of Hugging Face's transformers, made from the reference's description and weights."""

import tempfile

import torch
from safetensors.torch import save_file
from transformers import (AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Olmo2Config, Olmo2ForCausalLM, OlmoeConfig,
                          OlmoeForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3MoeConfig, Qwen3MoeForCausalLM)

from reference import Model, Weights

CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "olmo2": (Olmo2Config, Olmo2ForCausalLM),
    "gpt2": (GPT2Config, GPT2LMHeadModel),
    "mixtral": (MixtralConfig, MixtralForCausalLM),
    "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM),
    "olmoe": (OlmoeConfig, OlmoeForCausalLM),
}
# Keys that a class does not have.
ABSENT = {"mistral": ("attention_bias", "mlp_bias"), "qwen2": ("attention_bias", "mlp_bias"),
          "qwen3": ("mlp_bias",), "olmo2": ("mlp_bias",), "mixtral": ("attention_bias", "mlp_bias"),
          "qwen3_moe": ("mlp_bias",), "olmoe": ("mlp_bias",)}


def options(model: Model) -> dict[str, str]:
    """What from_pretrained is told so that all sizes work: the default for experts wants rows of 16 bytes."""
    return {"attn_implementation": "eager", **({"experts_implementation": "eager"} if model.sparse else {})}


def joined_experts(model: Model, weights: Weights) -> Weights:
    """The weights under the names that transformers 5 has in memory: those of a layer's experts are two tensors,
    [experts, 2 * width, hidden] of gate and up, and [experts, hidden, width] of down."""
    weights = dict(weights)
    for layer in range(model.num_hidden_layers):
        if not model.has_experts(layer):
            continue
        gates, ups, downs = zip(*[[weights.pop(name + ".weight") for name in model.expert(layer, number)]
                                  for number in range(model.num_local_experts)])
        prefix = f"model.layers.{layer}.mlp."
        weights[prefix + "experts.gate_up_proj"] = torch.stack([torch.cat(pair) for pair in zip(gates, ups)])
        weights[prefix + "experts.down_proj"] = torch.stack(downs)
        weights[prefix + "gate.weight"] = weights.pop(model.router(layer) + ".weight")
    return weights


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
    if "mlp_only_layers" in keys:
        keys["mlp_only_layers"] = list(keys["mlp_only_layers"])
    if model.sparse:
        keys.update(pad_token_id=None, eos_token_id=None)  # those of OLMoE are beyond a small vocabulary
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
