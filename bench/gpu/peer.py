"""The peer of lmc-run on a GPU: the same model, trained by PyTorch.

Written as one would write it for speed: bf16 autocast over f32 weights, scaled_dot_product_attention,
fused AdamW, and torch.compile if asked for. The loss is computed in pieces of `--loss-tokens` tokens whose
logits are computed again in the backward pass, because whole logits of a large vocabulary would limit the
batch. The mode `tuned` is torch.compile with what people add to it for speed: cuDNN's attention where it has one,
and a loss that computes the gradient of the logits at once, so that no logits are computed twice (as Liger's fused
linear cross entropy does). Prints one line of JSON. For PyTorch 2.2 and later, `tuned` for 2.6 and later; --probe
only says which PyTorch is here.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


# rms_norm came with PyTorch 2.4, and enable_gqa of scaled_dot_product_attention with 2.5.
HAS_NORM = hasattr(F, "rms_norm")
HAS_GQA = "enable_gqa" in (F.scaled_dot_product_attention.__doc__ or "")


def norm(x, weight, eps: float):
    """RMSNorm over the last dimension."""
    if HAS_NORM:
        return F.rms_norm(x, weight.shape, weight.to(x.dtype), eps)
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight.to(x.dtype)


def attention(q, k, v):
    """Causal attention on [batch, heads, seq, head_dim], where k and v may have fewer heads."""
    if q.shape[1] == k.shape[1]:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    if HAS_GQA:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    group = q.shape[1] // k.shape[1]
    return F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1),
                                          is_causal=True)


def rotate(x, cos, sin):
    """RoPE on [batch, heads, seq, head_dim]; element j pairs with j + head_dim / 2."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class HeadLoss(torch.autograd.Function):
    """The sum of the losses of x [tokens, hidden] with the head [vocab, hidden] and the targets [tokens], in pieces of
    `piece` tokens. The gradients for a sum of 1 are made in the forward pass."""

    @staticmethod
    def forward(ctx, x, head, targets, piece: int):
        weight = head.to(x.dtype)
        columns = torch.arange(len(weight), device=x.device)
        total, grad_x, grad_weight = 0, [], 0
        for rows, wanted in zip(x.split(piece), targets.split(piece)):
            logits = (rows @ weight.T).float()
            lse = logits.logsumexp(-1, keepdim=True)
            hit = columns == wanted[:, None]
            total = total + (lse.squeeze(-1) - torch.where(hit, logits, 0).sum(-1)).sum()
            grad = (torch.exp(logits - lse) - hit.float()).to(x.dtype)
            grad_x.append(grad @ weight)
            grad_weight = grad_weight + (grad.T @ rows).float()
        ctx.save_for_backward(torch.cat(grad_x), grad_weight)
        return total

    @staticmethod
    def backward(ctx, scale):
        grad_x, grad_weight = ctx.saved_tensors
        return grad_x * scale.to(grad_x.dtype), grad_weight * scale, None, None


class Layer(nn.Module):
    def __init__(self, shape: dict):
        super().__init__()
        self.heads, self.kv_heads = shape["num_attention_heads"], shape["num_key_value_heads"]
        hidden, ffn = shape["hidden_size"], shape["intermediate_size"]
        self.head_dim, self.eps = hidden // self.heads, shape["rms_norm_eps"]
        self.attention_norm = nn.Parameter(torch.ones(hidden))
        self.mlp_norm = nn.Parameter(torch.ones(hidden))
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.kv_heads) * self.head_dim, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, seq, _ = x.shape
        parts = [heads * self.head_dim for heads in (self.heads, self.kv_heads, self.kv_heads)]
        q, k, v = (part.view(batch, seq, -1, self.head_dim).transpose(1, 2)
                   for part in self.qkv(norm(x, self.attention_norm, self.eps)).split(parts, dim=-1))
        y = attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        x = x + self.out(y.transpose(1, 2).reshape(batch, seq, -1))
        gate, up = self.gate_up(norm(x, self.mlp_norm, self.eps)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, shape: dict, loss_tokens: int, tuned: bool):
        super().__init__()
        self.eps, self.loss_tokens, self.tuned = shape["rms_norm_eps"], loss_tokens, tuned
        hidden, seq = shape["hidden_size"], shape["sequence_length"]
        self.embedding = nn.Embedding(shape["vocab_size"], hidden)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape["num_hidden_layers"]))
        self.norm = nn.Parameter(torch.ones(hidden))
        self.head = self.embedding.weight
        if not shape["tie_word_embeddings"]:
            self.head = nn.Parameter(torch.randn(shape["vocab_size"], hidden) / hidden**0.5)
        dim = hidden // shape["num_attention_heads"]
        angles = torch.outer(torch.arange(seq).float(),
                             shape["rope_theta"] ** -(torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("cos", angles.cos().bfloat16())
        self.register_buffer("sin", angles.sin().bfloat16())

    def piece(self, x, targets):
        return F.cross_entropy(F.linear(x, self.head), targets, reduction="sum")

    def forward(self, ids, targets):
        x = self.embedding(ids).bfloat16()
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        x = norm(x, self.norm, self.eps).flatten(0, 1)
        targets = targets.flatten()
        if self.tuned:
            return HeadLoss.apply(x, self.head, targets, self.loss_tokens) / len(targets)
        total = 0
        for rows, wanted in zip(x.split(self.loss_tokens), targets.split(self.loss_tokens)):
            total = total + checkpoint(self.piece, rows, wanted, use_reentrant=False)
        return total / len(targets)


def attention_of(args):
    """Returns the context in which attention is chosen: of `tuned` cuDNN's, then FlashAttention."""
    if args.mode != "tuned" or args.device != "cuda":
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True)


def to_float8(model, recipe: str) -> None:
    """Lets torchao compute the linear layers with 8-bit floats: embedding and head are none."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(recipe))


def main() -> None:
    if sys.argv[1:] == ["--probe"]:
        print(json.dumps({"torch": torch.__version__, "sees_the_gpu": torch.cuda.is_available()}))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", type=json.loads, help="keys of [model], and sequence_length, as JSON")
    parser.add_argument("--mode", choices=["eager", "compile", "tuned"], required=True)
    parser.add_argument("--float8", choices=["tensorwise", "rowwise"], help="a recipe of torchao, which must be installed")
    parser.add_argument("--mbs", type=int, required=True)
    parser.add_argument("--gas", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--loss-tokens", type=int, default=8192)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()

    torch.manual_seed(1)
    seq = args.shape["sequence_length"]
    with torch.device(args.device):
        model = Model(args.shape, args.loss_tokens, args.mode == "tuned")
    if args.float8:
        to_float8(model, args.float8)
    adamw = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    forward = torch.compile(model) if args.mode != "eager" else model
    ids = torch.randint(args.shape["vocab_size"], (args.gas, args.mbs, seq + 1), device=args.device)

    def step() -> float:
        total = 0
        for batch in ids:
            with torch.autocast(args.device, torch.bfloat16), attention_of(args):
                loss = forward(batch[:, :-1], batch[:, 1:])
            (loss / args.gas).backward()
            total += loss.detach() / args.gas
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        return float(total)  # waits for the device

    seconds = []
    for _ in range(args.steps + 3):
        began = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - began)
    median = statistics.median(seconds[3:])
    print(json.dumps({"tokens_per_second": args.gas * args.mbs * seq / median, "step_ms": 1e3 * median,
                      "first_step_s": seconds[0], "loss": loss, "torch": torch.__version__,
                      "cuda": torch.version.cuda}))


if __name__ == "__main__":
    main()
