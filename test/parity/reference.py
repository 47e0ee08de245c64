"""A Llama, what other families change of it, and a GPT-2, in plain PyTorch, small enough to check by eye: what lmc must agree with.

Weights are a dictionary under Hugging Face's names, so that a safetensors file is a model.
test_reference.py holds it to transformers' own classes; every other
test compares lmc with this, because here the precision of each step is ours to choose.
"""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

Weights = dict[str, torch.Tensor]

# Of so short an original context that a few dozen positions feel every part of it.
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@dataclass(frozen=True)
class Model:
    """The keys of config.json that say what is computed, under their names there."""

    architecture: str = "llama"  # "llama" | "mistral" | "qwen2" | "qwen3" | "olmo2" | "gpt2" | "mixtral" | "qwen3_moe" | "olmoe"
    vocab_size: int = 256
    hidden_size: int = 64
    intermediate_size: int = 176
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 16
    max_position_embeddings: int = 128
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = field(default=None, hash=False)
    rms_norm_eps: float = 1e-5
    layer_norm_epsilon: float = 1e-5  # of GPT-2
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: int = 0  # 0: every earlier key is seen
    embedding_norm: bool = False  # a norm behind the embedding, which transformers does not have
    # Of models with experts.
    num_local_experts: int = 8  # "num_experts" in all but Mixtral
    num_experts_per_tok: int = 2
    router_aux_loss_coef: float = 0.0
    norm_topk_prob: bool = False  # not in Mixtral, which always does
    moe_intermediate_size: int = 32  # of Qwen 3, as the two below
    decoder_sparse_step: int = 1
    mlp_only_layers: tuple[int, ...] = ()

    def keys(self) -> dict[str, Any]:
        """The [model] section: every key that is not at "absent"."""
        absent = {"rope_scaling": None, "sliding_window": 0, "embedding_norm": False}
        others = LLAMA_KEYS if self.architecture == "gpt2" else {"layer_norm_epsilon"}
        others = others | (EXPERT_KEYS - EXPERT_KEYS_OF.get(self.architecture, set()))
        keys = {k: v for k, v in asdict(self).items()
                if k not in others and (k not in absent or v != absent[k])}
        if self.sparse and self.architecture != "mixtral":
            keys["num_experts"] = keys.pop("num_local_experts")
        return keys

    @property
    def sparse(self) -> bool:
        return self.architecture in EXPERT_KEYS_OF

    def has_experts(self, layer: int) -> bool:
        if self.architecture != "qwen3_moe":
            return self.sparse
        return layer not in self.mlp_only_layers and (layer + 1) % self.decoder_sparse_step == 0

    @property
    def expert_size(self) -> int:
        return self.moe_intermediate_size if self.architecture == "qwen3_moe" else self.intermediate_size

    def expert(self, layer: int, number: int) -> tuple[str, str, str]:
        """The names of an expert's gate, up and down."""
        if self.architecture == "mixtral":
            prefix = f"model.layers.{layer}.block_sparse_moe.experts.{number}."
            return prefix + "w1", prefix + "w3", prefix + "w2"
        prefix = f"model.layers.{layer}.mlp.experts.{number}."
        return prefix + "gate_proj", prefix + "up_proj", prefix + "down_proj"

    def router(self, layer: int) -> str:
        return f"model.layers.{layer}." + ("block_sparse_moe.gate" if self.architecture == "mixtral" else "mlp.gate")

    @property
    def embedding(self) -> str:
        return "transformer.wte.weight" if self.architecture == "gpt2" else "model.embed_tokens.weight"

    @property
    def qkv_bias(self) -> bool:
        return self.attention_bias or self.architecture == "qwen2"

    @property
    def head_norm(self) -> str:
        """What the RMSNorms of q and k are over."""
        return {"qwen3": "head", "qwen3_moe": "head", "olmo2": "row", "olmoe": "row"}.get(self.architecture, "")

    @property
    def norms(self) -> tuple[str, str]:
        """Of attention and MLP: before them, and in OLMo 2 behind them."""
        if self.architecture == "olmo2":
            return "post_attention_layernorm", "post_feedforward_layernorm"
        return "input_layernorm", "post_attention_layernorm"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every parameter with its shape; a tied head is the embedding."""
        if self.architecture == "gpt2":
            return gpt2_shapes(self)
        hidden, ffn = self.hidden_size, self.intermediate_size
        query = self.num_attention_heads * self.head_dim
        key_value = self.num_key_value_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocab_size, hidden)
        }
        if self.embedding_norm:
            shapes["model.embed_norm.weight"] = (hidden,)
        for layer in range(self.num_hidden_layers):
            prefix = f"model.layers.{layer}."
            linears = {
                "self_attn.q_proj": (query, hidden, self.qkv_bias),
                "self_attn.k_proj": (key_value, hidden, self.qkv_bias),
                "self_attn.v_proj": (key_value, hidden, self.qkv_bias),
                "self_attn.o_proj": (hidden, query, self.attention_bias),
                "mlp.gate_proj": (ffn, hidden, self.mlp_bias),
                "mlp.up_proj": (ffn, hidden, self.mlp_bias),
                "mlp.down_proj": (hidden, ffn, self.mlp_bias),
            }
            if self.has_experts(layer):
                linears = {name: shape for name, shape in linears.items() if not name.startswith("mlp.")}
                shapes[self.router(layer) + ".weight"] = (self.num_local_experts, hidden)
                for number in range(self.num_local_experts):
                    gate, up, down = self.expert(layer, number)
                    shapes[gate + ".weight"] = shapes[up + ".weight"] = (self.expert_size, hidden)
                    shapes[down + ".weight"] = (hidden, self.expert_size)
            for name, (rows, columns, bias) in linears.items():
                shapes[f"{prefix}{name}.weight"] = (rows, columns)
                if bias:
                    shapes[f"{prefix}{name}.bias"] = (rows,)
            for norm in self.norms:
                shapes[f"{prefix}{norm}.weight"] = (hidden,)
            if self.head_norm:
                per_head = self.head_norm == "head"
                shapes[prefix + "self_attn.q_norm.weight"] = (self.head_dim if per_head else query,)
                shapes[prefix + "self_attn.k_norm.weight"] = (self.head_dim if per_head else key_value,)
        shapes["model.norm.weight"] = (hidden,)
        if not self.tie_word_embeddings:
            shapes["lm_head.weight"] = (self.vocab_size, hidden)
        return shapes


# Keys that only models with experts have, and those of each family.
EXPERT_KEYS = {"num_local_experts", "num_experts_per_tok", "router_aux_loss_coef", "norm_topk_prob",
               "moe_intermediate_size", "decoder_sparse_step", "mlp_only_layers"}
EXPERT_KEYS_OF = {
    "mixtral": {"num_local_experts", "num_experts_per_tok", "router_aux_loss_coef"},
    "olmoe": {"num_local_experts", "num_experts_per_tok", "router_aux_loss_coef", "norm_topk_prob"},
    "qwen3_moe": EXPERT_KEYS,
}
# Keys that a GPT-2 does not have.
LLAMA_KEYS = {"num_key_value_heads", "head_dim", "rope_theta", "rope_scaling", "rms_norm_eps", "attention_bias",
              "mlp_bias", "sliding_window"}


def gpt2_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    hidden, ffn = model.hidden_size, model.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (model.vocab_size, hidden),
        "transformer.wpe.weight": (model.max_position_embeddings, hidden),
    }
    if model.embedding_norm:
        shapes["transformer.embed_norm.weight"] = shapes["transformer.embed_norm.bias"] = (hidden,)
    for layer in range(model.num_hidden_layers):
        prefix = f"transformer.h.{layer}."
        conv1d = {"attn.c_attn": (hidden, 3 * hidden), "attn.c_proj": (hidden, hidden),
                  "mlp.c_fc": (hidden, ffn), "mlp.c_proj": (ffn, hidden)}
        for name, shape in conv1d.items():
            shapes[f"{prefix}{name}.weight"] = shape
            shapes[f"{prefix}{name}.bias"] = shape[1:]
        for norm in ("ln_1", "ln_2"):
            shapes[f"{prefix}{norm}.weight"] = shapes[f"{prefix}{norm}.bias"] = (hidden,)
    shapes["transformer.ln_f.weight"] = shapes["transformer.ln_f.bias"] = (hidden,)
    if not model.tie_word_embeddings:
        shapes["lm_head.weight"] = (model.vocab_size, hidden)
    return shapes


@dataclass(frozen=True)
class Optimizer:
    """AdamW, clipping and the learning rate's schedule, under the names of the TOML."""

    lr: float = 3e-3
    min_lr: float = 3e-4
    warmup_iters: int = 3
    decay_iters: int = 10
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    clip_grad: float = 1.0

    def learning_rate(self, step: int) -> float:
        """Of step 1, 2, ...: linear warm-up from 0, then a cosine down to min_lr."""
        if step <= self.warmup_iters:
            return self.lr * step / self.warmup_iters
        if step >= self.decay_iters:
            return self.min_lr
        progress = (step - self.warmup_iters) / (self.decay_iters - self.warmup_iters)
        return self.min_lr + 0.5 * (self.lr - self.min_lr) * (1 + math.cos(math.pi * progress))


def load_weights(path: Path) -> Weights:
    """The tensors of one safetensors file, or of all in a folder."""
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    weights: Weights = {}
    for file in files:
        weights.update(load_file(file))
    return weights


def random_weights(model: Model, seed: int) -> Weights:
    """Larger than a fresh initialisation, so that no part of the model is nearly linear and a
    gain or bias that is ignored shows."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in model.shapes().items():
        noise = torch.randn(shape, generator=generator)
        if len(shape) == 1:
            weights[name] = 0.1 * noise + (0.0 if name.endswith(".bias") else 1.0)
        elif name in (model.embedding, "transformer.wpe.weight", "lm_head.weight"):
            weights[name] = noise * 1.5 / math.sqrt(model.hidden_size)
        else:
            weights[name] = noise / math.sqrt(shape[1])
    return weights


def inverse_frequencies(model: Model) -> torch.Tensor:
    """Radians per position of each pair of a head's elements: f64 [head_dim / 2].

    rope_scaling as in transformers: "linear" stretches positions by `factor`; "llama3" does so
    for wavelengths beyond original / low_freq_factor, leaves those below original /
    high_freq_factor, and blends between them.
    """
    exponents = torch.arange(0, model.head_dim, 2, dtype=torch.float64) / model.head_dim
    frequencies = model.rope_theta**-exponents
    scaling = model.rope_scaling
    if scaling is None:
        return frequencies
    factor = scaling["factor"]
    if scaling["rope_type"] == "linear":
        return frequencies / factor
    if scaling["rope_type"] == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
        keep = ((turns - low) / (high - low)).clamp(0, 1)
        return frequencies * (keep + (1 - keep) / factor)
    raise ValueError(f"rope_type {scaling['rope_type']!r} has no reference")


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE on [batch, heads, seq, head_dim]; element j pairs with j + head_dim / 2."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def documents(tokens: torch.Tensor, end_of_document: int) -> torch.Tensor:
    """[batch, seq]: the number of the document in its row that a token belongs to. An
    end-of-document token belongs to the document that it ends."""
    ends = tokens == end_of_document
    return ends.cumsum(1) - ends.long()


def logits(
    model: Model, weights: Weights, tokens: torch.Tensor, end_of_document: int | None = None,
    positions: torch.Tensor | None = None, routers: list | None = None,
) -> torch.Tensor:
    """[batch, seq] token ids -> [batch, seq, vocab], in the weights' dtype. With an
    `end_of_document` attention stays within a document. `positions`, [batch, seq], are those of
    RoPE or learned ones; without them token t has position t. The logits of each layer's router,
    [batch * seq, experts], are appended to `routers`."""
    if model.architecture == "gpt2":
        return gpt2_logits(model, weights, tokens, end_of_document, positions)
    batch, seq = tokens.shape
    heads, kv_heads, dim = model.num_attention_heads, model.num_key_value_heads, model.head_dim
    dtype = weights["model.embed_tokens.weight"].dtype

    index = torch.arange(seq, dtype=torch.float64)
    turned = index[None] if positions is None else positions.to(torch.float64)
    angles = turned[:, None, :, None] * inverse_frequencies(model)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)  # [batch, 1, seq, head_dim / 2]
    distance = index[:, None] - index[None, :]  # query - key
    visible = distance >= 0
    if model.sliding_window:
        visible &= distance < model.sliding_window
    if end_of_document is not None:
        document = documents(tokens, end_of_document)
        same = document[:, :, None] == document[:, None, :]
        visible = (visible & same)[:, None]  # [batch, heads, query, key]

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, weights[name + ".weight"], weights.get(name + ".bias"))

    def rms_norm(x: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + model.rms_norm_eps)
        return x * scale * weights[name + ".weight"]

    def split_heads(x: torch.Tensor, count: int) -> torch.Tensor:
        return x.view(batch, seq, count, dim).transpose(1, 2)

    def normed_heads(x: torch.Tensor, count: int, name: str) -> torch.Tensor:
        """[batch, heads, seq, head_dim], of which each head or the whole row is normalised."""
        if model.head_norm == "row":
            x = rms_norm(x, name)
        x = split_heads(x, count)
        return rms_norm(x, name) if model.head_norm == "head" else x

    def residual(x: torch.Tensor, norm: str, branch) -> torch.Tensor:
        if model.architecture == "olmo2":
            return x + rms_norm(branch(x), norm)
        return x + branch(rms_norm(x, norm))

    x = F.embedding(tokens, weights["model.embed_tokens.weight"])
    if model.embedding_norm:
        x = rms_norm(x, "model.embed_norm")
    for layer in range(model.num_hidden_layers):
        prefix = f"model.layers.{layer}."

        def attention(h: torch.Tensor) -> torch.Tensor:
            attn = prefix + "self_attn."
            q = rotate(normed_heads(linear(h, attn + "q_proj"), heads, attn + "q_norm"), cos, sin)
            k = rotate(normed_heads(linear(h, attn + "k_proj"), kv_heads, attn + "k_norm"), cos, sin)
            v = split_heads(linear(h, attn + "v_proj"), kv_heads)
            k = k.repeat_interleave(heads // kv_heads, dim=1)
            v = v.repeat_interleave(heads // kv_heads, dim=1)
            attended = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
            return linear(attended.transpose(1, 2).reshape(batch, seq, heads * dim), attn + "o_proj")

        def mlp(h: torch.Tensor) -> torch.Tensor:
            if model.has_experts(layer):
                return experts(model, weights, layer, h.reshape(batch * seq, -1), routers).view(h.shape)
            gated = F.silu(linear(h, prefix + "mlp.gate_proj")) * linear(h, prefix + "mlp.up_proj")
            return linear(gated, prefix + "mlp.down_proj")

        x = residual(x, prefix + model.norms[0], attention)
        x = residual(x, prefix + model.norms[1], mlp)
    x = rms_norm(x, "model.norm")
    head = "model.embed_tokens.weight" if model.tie_word_embeddings else "lm_head.weight"
    return F.linear(x, weights[head])


def chosen(model: Model, router: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The experts of each token, [tokens, num_experts_per_tok], and their weights, from the router's
    logits. Of equal experts the first come first."""
    probabilities = router.softmax(-1)
    order = probabilities.argsort(dim=-1, descending=True, stable=True)[:, :model.num_experts_per_tok]
    weights = probabilities.gather(1, order)
    if model.norm_topk_prob or model.architecture == "mixtral":
        weights = weights / weights.sum(-1, keepdim=True)
    return order, weights


def experts(model: Model, weights: Weights, layer: int, x: torch.Tensor, routers: list | None) -> torch.Tensor:
    """The MLP of a layer with experts, of x [tokens, hidden]."""
    router = F.linear(x, weights[model.router(layer) + ".weight"])
    if routers is not None:
        routers.append(router)
    order, scores = chosen(model, router)
    result = torch.zeros_like(x)
    for number in range(model.num_local_experts):
        gate, up, down = (weights[name + ".weight"] for name in model.expert(layer, number))
        score = (scores * (order == number)).sum(-1, keepdim=True)  # 0 for tokens of other experts
        result = result + score * F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
    return result


def balance_loss(model: Model, routers: list[torch.Tensor]) -> torch.Tensor:
    """Switch Transformer's loss over the routers of all layers, as transformers'
    load_balancing_loss_func."""
    router = torch.cat(routers)
    order, _ = chosen(model, router)
    counts = F.one_hot(order, model.num_local_experts).sum((0, 1)).to(router.dtype)
    return model.num_local_experts * (counts * router.softmax(-1).sum(0)).sum() / len(router) ** 2


def gpt2_logits(model: Model, weights: Weights, tokens: torch.Tensor, end_of_document: int | None,
                positions: torch.Tensor | None) -> torch.Tensor:
    batch, seq = tokens.shape
    heads, hidden = model.num_attention_heads, model.hidden_size
    index = torch.arange(seq)
    visible = index[:, None] >= index[None, :]
    if end_of_document is not None:
        document = documents(tokens, end_of_document)
        visible = (visible & (document[:, :, None] == document[:, None, :]))[:, None]

    def conv1d(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ weights[name + ".weight"] + weights[name + ".bias"]

    def layer_norm(x: torch.Tensor, name: str) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + model.layer_norm_epsilon)
        return centred * scale * weights[name + ".weight"] + weights[name + ".bias"]

    def gelu(x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3))))

    x = F.embedding(tokens, weights["transformer.wte.weight"])
    x = x + F.embedding(index if positions is None else positions, weights["transformer.wpe.weight"])
    if model.embedding_norm:
        x = layer_norm(x, "transformer.embed_norm")
    for layer in range(model.num_hidden_layers):
        prefix = f"transformer.h.{layer}."
        q, k, v = (part.view(batch, seq, heads, hidden // heads).transpose(1, 2)
                   for part in conv1d(layer_norm(x, prefix + "ln_1"), prefix + "attn.c_attn").chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        x = x + conv1d(attended.transpose(1, 2).reshape(batch, seq, hidden), prefix + "attn.c_proj")
        inner = gelu(conv1d(layer_norm(x, prefix + "ln_2"), prefix + "mlp.c_fc"))
        x = x + conv1d(inner, prefix + "mlp.c_proj")
    head = model.embedding if model.tie_word_embeddings else "lm_head.weight"
    return F.linear(layer_norm(x, "transformer.ln_f"), weights[head])


def loss(
    model: Model, weights: Weights, windows: torch.Tensor, end_of_document: int | None = None
) -> torch.Tensor:
    """Mean cross entropy of [batch, seq + 1] token windows: each token predicts the next, also
    where that begins another document."""
    routers: list[torch.Tensor] = []
    predicted = logits(model, weights, windows[:, :-1], end_of_document, routers=routers)
    value = F.cross_entropy(predicted.flatten(0, 1), windows[:, 1:].flatten())
    if routers and model.router_aux_loss_coef:
        value = value + model.router_aux_loss_coef * balance_loss(model, routers)
    return value


def z_loss(model: Model, weights: Weights, windows: torch.Tensor) -> torch.Tensor:
    """Mean over all tokens of the square of the log of the softmax's denominator."""
    return logits(model, weights, windows[:, :-1]).logsumexp(-1).square().mean()


def as_parameters(weights: Weights, dtype: torch.dtype) -> Weights:
    return {k: v.detach().to(dtype).clone().requires_grad_() for k, v in weights.items()}


def gradients(
    model: Model, weights: Weights, windows: torch.Tensor, dtype: torch.dtype = torch.float32,
    end_of_document: int | None = None,
) -> Weights:
    parameters = as_parameters(weights, dtype)
    loss(model, parameters, windows, end_of_document).backward()
    return {name: parameter.grad for name, parameter in parameters.items()}


@dataclass
class Step:
    loss: float  # before the update
    grad_norm: float  # before clipping
    lr: float


def train(
    model: Model,
    weights: Weights,
    windows: torch.Tensor,
    optimizer: Optimizer,
    steps: int,
    dtype: torch.dtype = torch.float32,
    end_of_document: int | None = None,
    z: float = 0.0,
) -> list[Step]:
    """`steps` AdamW steps, each on all of `windows`. Norm gains and biases are not decayed. Gradients
    are those of the loss and, with `z`, of z z_loss."""
    parameters = as_parameters(weights, dtype)
    matrices = [p for p in parameters.values() if p.ndim > 1]
    vectors = [p for p in parameters.values() if p.ndim == 1]
    adamw = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": optimizer.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        betas=(optimizer.beta1, optimizer.beta2),
        eps=optimizer.eps,
    )
    history = []
    for step in range(1, steps + 1):
        lr = optimizer.learning_rate(step)
        for group in adamw.param_groups:
            group["lr"] = lr
        adamw.zero_grad()
        value = loss(model, parameters, windows, end_of_document)
        (value + z * z_loss(model, parameters, windows) if z else value).backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), optimizer.clip_grad)
        adamw.step()
        history.append(Step(value.item(), norm.item(), lr))
    return history
