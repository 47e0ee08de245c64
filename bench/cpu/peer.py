"""The peer of bench.py: the same Llama, GPT-2 or OLMoE, trained by PyTorch on the CPU.

Written as one would write it for speed: fused attention, norms and AdamW, bf16 by autocast over
fp32 weights, the experts of a layer by one grouped product or by a loop over them. Prints one line
of JSON: seconds and processor seconds of each timed step, the parameter count, losses.
"""

import argparse
import json
import math
import time
import tomllib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, qk_norm: float = 0):
        """qk_norm: the eps of norms of whole rows of queries and keys; 0 is none."""
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.q_norm, self.k_norm = (Norm(hidden, qk_norm) if qk_norm else None for _ in range(2))

    def forward(self, x, cos, sin):
        batch, seq, hidden = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if self.q_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (part.view(batch, seq, self.heads, -1).transpose(1, 2) for part in (q, k, v))
        attended = F.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True
        )
        return self.out(attended.transpose(1, 2).reshape(batch, seq, hidden))


def rotate(x, cos, sin):
    """RoPE on [batch, heads, seq, head_dim]; element j pairs with j + head_dim / 2."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def rope_angles(dim: int, theta: float, seq: int):
    """Returns [seq, dim / 2]."""
    return torch.outer(torch.arange(seq), theta ** -(torch.arange(0, dim, 2) / dim))


class Norm(nn.Module):
    def __init__(self, hidden: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, ffn: int, eps: float):
        super().__init__()
        self.attention_norm = Norm(hidden, eps)
        self.attention = Attention(hidden, heads)
        self.mlp_norm = Norm(hidden, eps)
        self.gate_up = nn.Linear(hidden, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, model: dict, seq: int):
        super().__init__()
        hidden, heads = model["hidden_size"], model["num_attention_heads"]
        if not model["tie_word_embeddings"] or model.get("num_key_value_heads", heads) != heads:
            raise SystemExit("the peer has a tied head and as many KV heads as query heads")
        self.embedding = nn.Embedding(model["vocab_size"], hidden)
        self.layers = nn.ModuleList(
            Layer(hidden, heads, model["intermediate_size"], model["rms_norm_eps"])
            for _ in range(model["num_hidden_layers"])
        )
        self.norm = Norm(hidden, model["rms_norm_eps"])
        nn.init.normal_(self.embedding.weight, std=0.02)
        for name, weight in self.named_parameters():
            if weight.ndim == 2 and name != "embedding.weight":
                nn.init.normal_(weight, std=1 / math.sqrt(weight.shape[1]))
        angles = rope_angles(hidden // heads, model["rope_theta"], seq)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def grouped_mm(x, weights, counts):
    """Products of the rows of each expert: x [rows, in], weights [experts, out, in], counts [experts]
    of rows. Returns [rows, out]. It is not among the functions that autocast knows."""
    if torch.is_autocast_enabled("cpu"):
        x, weights = x.to(torch.bfloat16), weights.to(torch.bfloat16)
    return F.grouped_mm(x, weights.transpose(1, 2), offs=counts.cumsum(0).to(torch.int32))


class Reorder(torch.autograd.Function):
    """Row i of the result is row `at[i]` of x [tokens, n]: each row of x is `times` rows of the result,
    whose places are `places` [tokens * times]. The gradient gathers too; that of an index of PyTorch
    adds row by row, in one thread."""

    @staticmethod
    def forward(context, x, at, places, times):
        context.save_for_backward(places)
        context.times = times
        return x[at]

    @staticmethod
    def backward(context, gradient):
        (places,) = context.saved_tensors
        rows = gradient[places]
        return rows if context.times == 1 else rows.view(-1, context.times, rows.shape[1]).sum(1), None, None, None


class Experts(nn.Module):
    """The MLP of a mixture of experts without a capacity: OLMoE's, whose weights of a token's choices
    do not add up to 1. The rows of a token's choices are sorted by expert."""

    def __init__(self, model: dict, loop: bool):
        super().__init__()
        hidden, ffn = model["hidden_size"], model["intermediate_size"]
        self.count, self.chosen, self.loop = model["num_experts"], model["num_experts_per_tok"], loop
        self.router = nn.Linear(hidden, self.count, bias=False)
        self.gate_up = nn.Parameter(torch.empty(self.count, 2 * ffn, hidden))
        self.down = nn.Parameter(torch.empty(self.count, hidden, ffn))

    def forward(self, x):
        """x: [tokens, hidden]. Returns [tokens, hidden], and the two factors of the loss that balances
        experts: how often each was chosen, and the sum of its probabilities, [experts] each."""
        if torch.is_autocast_enabled("cpu"):
            x = x.to(torch.bfloat16)  # before its rows are copied
        probabilities = self.router(x).float().softmax(-1)
        weights, experts = probabilities.topk(self.chosen, sorted=False)
        order = experts.flatten().argsort(stable=True)
        counts = torch.bincount(experts.flatten(), minlength=self.count)
        places = torch.empty_like(order)
        places[order] = torch.arange(len(order))
        rows = Reorder.apply(x, order // self.chosen, places, self.chosen)
        if self.loop:
            computed = torch.cat([mlp(part, gate_up, down) for part, gate_up, down in
                                  zip(rows.split(counts.tolist()), self.gate_up, self.down) if len(part)])
        else:
            gate, up = grouped_mm(rows, self.gate_up, counts).chunk(2, dim=-1)
            computed = grouped_mm(F.silu(gate) * up, self.down, counts)
        choices = Reorder.apply(computed, places, order, 1).view(len(x), self.chosen, -1)
        summed = torch.bmm(weights.to(choices.dtype).unsqueeze(1), choices).squeeze(1)
        return summed, counts, probabilities.sum(0)


def mlp(x, gate_up, down):
    gate, up = F.linear(x, gate_up).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, down)


class OlmoeLayer(nn.Module):
    def __init__(self, model: dict, loop: bool):
        super().__init__()
        hidden, eps = model["hidden_size"], model["rms_norm_eps"]
        self.attention_norm, self.mlp_norm = Norm(hidden, eps), Norm(hidden, eps)
        self.attention = Attention(hidden, model["num_attention_heads"], qk_norm=eps)
        self.experts = Experts(model, loop)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        summed, counts, sums = self.experts(self.mlp_norm(x).flatten(0, 1))
        return x + summed.view_as(x), counts, sums


class Olmoe(nn.Module):
    def __init__(self, model: dict, seq: int, loop: bool = False):
        super().__init__()
        hidden, heads = model["hidden_size"], model["num_attention_heads"]
        if not model["tie_word_embeddings"] or model.get("num_key_value_heads", heads) != heads:
            raise SystemExit("the peer has a tied head and as many KV heads as query heads")
        self.count, self.factor = model["num_experts"], model["router_aux_loss_coef"]
        self.embedding = nn.Embedding(model["vocab_size"], hidden)
        self.layers = nn.ModuleList(OlmoeLayer(model, loop) for _ in range(model["num_hidden_layers"]))
        self.norm = Norm(hidden, model["rms_norm_eps"])
        for weight in self.parameters():
            if weight.ndim > 1:
                nn.init.normal_(weight, std=0.02)
        angles = rope_angles(hidden // heads, model["rope_theta"], seq)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        counts = sums = 0
        for layer in self.layers:
            x, counted, summed = layer(x, self.cos, self.sin)
            counts, sums = counts + counted, sums + summed
        logits = F.linear(self.norm(x), self.embedding.weight)
        routed = tokens.numel() * len(self.layers)
        balancing = self.count * torch.sum(counts / routed * (sums / routed))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()) + self.factor * balancing


class Gpt2Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, eps: float):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(hidden, eps), nn.LayerNorm(hidden, eps)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, seq, hidden = x.shape
        qkv = self.qkv(self.attention_norm(x))
        q, k, v = qkv.view(batch, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, model: dict, seq: int):
        super().__init__()
        hidden, eps = model["n_embd"], model.get("layer_norm_epsilon", 1e-5)
        if not model["tie_word_embeddings"] or "n_inner" in model:
            raise SystemExit("the peer has a tied head, and an MLP of four times the hidden size")
        self.embedding = nn.Embedding(model["vocab_size"], hidden)
        self.positions = nn.Embedding(model["n_positions"], hidden)
        self.layers = nn.ModuleList(
            Gpt2Layer(hidden, model["n_head"], eps) for _ in range(model["n_layer"]))
        self.norm = nn.LayerNorm(hidden, eps)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * model["n_layer"] if residual else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, tokens, targets):
        x = self.embedding(tokens) + self.positions.weight[:tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--tokens", type=Path, required=True, help="bare uint16")
    parser.add_argument("--mbs", type=int, required=True)
    parser.add_argument("--dtype", choices=["f32", "bf16"], required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--loop", action="store_true", help="experts one by one, not by grouped products")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    config = tomllib.loads(args.config.read_text())
    optimizer, lr = config["optimizer"], config["lr_schedule"]["lr"]
    seq = config["training"]["sequence_length"]

    architecture = config["model"]["architecture"]
    if args.loop and architecture != "olmoe":
        raise SystemExit(f"a {architecture} has no experts to loop over")
    if architecture == "olmoe":
        model = Olmoe(config["model"], seq, args.loop)
    else:
        model = {"llama": Llama, "gpt2": Gpt2}[architecture](config["model"], seq)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    adamw = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": optimizer["weight_decay"]},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=lr, betas=(optimizer["beta1"], optimizer["beta2"]), eps=optimizer.get("eps", 1e-8), fused=True,
    )
    forward = torch.compile(model) if args.compile else model
    stream = torch.from_numpy(np.fromfile(args.tokens, dtype="<u2").astype(np.int64))
    windows = stream.unfold(0, seq + 1, seq)

    def step(index: int) -> float:
        rows = torch.arange(index * args.mbs, (index + 1) * args.mbs) % len(windows)
        batch = windows[rows]
        with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = forward(batch[:, :-1], batch[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), optimizer["clip_grad"])
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        return loss.item()

    losses = [step(i) for i in range(args.warmup)]
    seconds, cpu_seconds = [], []
    for i in range(args.warmup, args.warmup + args.steps):
        began, cpu_began = time.perf_counter(), time.process_time()
        losses.append(step(i))
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.process_time() - cpu_began)
    parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "parameters": parameters,
                      "losses": losses}))


if __name__ == "__main__":
    main()
