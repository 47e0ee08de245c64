"""memory.store = "fp8": what layers keep in 8 bits, against PyTorch."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import reference
from programs import checkpoints, metrics
from test_fp8 import assert_goes_on, rounded_blocks
from test_gradients import STEPS, assert_gradients_agree, dumped_gradients, job_of, relative_error, train

FAMILIES = ["llama-grouped-tied", "llama-biases", "mistral-window", "qwen2", "qwen3", "olmo2", "gpt2", "mixtral", "olmoe",
            "qwen3-moe-every-second"]


def rounded_rows(x: torch.Tensor) -> torch.Tensor:
    """E4M3 with a scale for each row."""
    rows = x.reshape(-1, x.shape[-1])
    return rounded_blocks(rows, 1, x.shape[-1]).view(x.shape)


def straight(x: torch.Tensor) -> torch.Tensor:
    """The rounded x, whose gradient is that of x."""
    return x + (rounded_rows(x) - x).detach()


class Kept(torch.autograd.Function):
    """f(values), whose gradient is that of f at the rounded values."""

    @staticmethod
    def forward(ctx, f, *values):
        ctx.f, ctx.values = f, [rounded_rows(value) for value in values]
        return f(*values)

    @staticmethod
    def backward(ctx, *cotangents):
        values = [value.detach().requires_grad_() for value in ctx.values]
        with torch.enable_grad():
            torch.autograd.backward(ctx.f(*values), cotangents)
        return None, *(value.grad for value in values)


def kept(f, *values):
    return Kept.apply(f, *values)


class Weighted(torch.autograd.Function):
    """score * y, with y [tokens, hidden] and score [tokens, 1]. The gradient of the score reads the rounded y."""

    @staticmethod
    def forward(ctx, score, y):
        ctx.save_for_backward(score, rounded_rows(y))
        return score * y

    @staticmethod
    def backward(ctx, cotangent):
        score, y = ctx.saved_tensors
        return (cotangent * y).sum(-1, keepdim=True), cotangent * score


class Attention(torch.autograd.Function):
    """[batch, heads, seq, dim]. Its gradient reads its rounded result, as FlashAttention's does: the sum of a row of
    P dP is that of dO O."""

    @staticmethod
    def forward(ctx, q, k, v, visible):
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~visible, float("-inf"))
        probabilities = scores.softmax(-1)
        ctx.save_for_backward(q, k, v, probabilities)
        return probabilities @ v

    @staticmethod
    def backward(ctx, dout):
        q, k, v, p = ctx.saved_tensors
        batch, heads, seq, dim = q.shape
        out = rounded_rows((p @ v).transpose(1, 2).reshape(batch, seq, heads * dim))
        out = out.view(batch, seq, heads, dim).transpose(1, 2)
        ds = p * (dout @ v.mT - (dout * out).sum(-1, keepdim=True)) / dim**0.5
        return ds @ k, ds.mT @ q, p.mT @ dout, None


def logits(model, weights, tokens, end_of_document=None, positions=None, routers=None):
    """reference.logits, with rounded values in the backward pass, and in attention also in the forward pass."""
    batch, seq = tokens.shape
    gpt2, olmo2 = model.architecture == "gpt2", model.architecture == "olmo2"
    heads, dim = model.num_attention_heads, model.head_dim
    kv_heads = heads if gpt2 else model.num_key_value_heads
    dim = model.hidden_size // heads if gpt2 else dim
    index = torch.arange(seq)
    distance = index[:, None] - index[None, :]
    visible = distance >= 0
    if not gpt2 and model.sliding_window:
        visible = visible & (distance < model.sliding_window)

    def linear(x, name):
        weight = weights[name + ".weight"]
        y = x @ weight if gpt2 else x @ weight.T
        return y + weights[name + ".bias"] if name + ".bias" in weights else y

    def norm(x, name, over=None):
        weight = weights[name + ".weight"]
        if gpt2:
            return F.layer_norm(x, weight.shape, weight, weights[name + ".bias"], model.layer_norm_epsilon)
        y = x if over is None else x.unflatten(-1, (-1, over))
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + model.rms_norm_eps) * weight
        return y.flatten(-2) if over else y

    def split(x, count):
        return x.view(batch, seq, count, dim).transpose(1, 2)

    def rope(x, count):
        if gpt2:
            return x
        angles = index.double()[None, :, None] * reference.inverse_frequencies(model)
        turned = reference.rotate(split(x, count), angles.cos().to(x.dtype), angles.sin().to(x.dtype))
        return turned.transpose(1, 2).reshape(batch, seq, count * dim)

    def attention(x, names):
        if gpt2:
            q, k, v = linear(x, names["qkv"]).chunk(3, dim=-1)
        else:
            q, k, v = (linear(x, names[each]) for each in "qkv")
        if not gpt2 and model.head_norm:
            over = dim if model.head_norm == "head" else None
            q, k = (kept(lambda y, name=name: norm(y, names[name] + "_norm", over), y)
                    for y, name in ((q, "q_"), (k, "k_")))
        q, k, v = straight(rope(q, heads)), straight(rope(k, kv_heads)), straight(v)
        k, v = (split(y, kv_heads).repeat_interleave(heads // kv_heads, dim=1) for y in (k, v))
        attended = Attention.apply(split(q, heads), k, v, visible)
        return kept(lambda y: linear(y, names["o"]), attended.transpose(1, 2).reshape(batch, seq, heads * dim))

    def down(names):
        if gpt2:
            return lambda inner: linear(F.gelu(inner, approximate="tanh"), names["down"])
        return lambda gate, up: linear(F.silu(gate) * up, names["down"])

    def experts(x, number, second):
        """reference.experts of norm(x). Gate and up are one row, and have one scale."""
        x = x.flatten(0, 1)
        router = kept(lambda y: linear(norm(y, second), model.router(number)), x)
        if routers is not None:
            routers.append(router)
        order, scores = reference.chosen(model, router)
        rows = kept(lambda y: norm(y, second), x)
        result = torch.zeros_like(x)
        for expert in range(model.num_local_experts):
            gate, up, down = model.expert(number, expert)
            inner = kept(lambda y, names=(gate, up): torch.cat([linear(y, name) for name in names], -1), rows)

            def outer(y, name=down):
                halves = y.chunk(2, -1)
                return linear(F.silu(halves[0]) * halves[1], name)

            score = (scores * (order == expert)).sum(-1, keepdim=True)
            result = result + Weighted.apply(score, kept(outer, inner))
        return result.view(batch, seq, -1)

    def layer(x, number):
        prefix = f"transformer.h.{number}." if gpt2 else f"model.layers.{number}."
        if gpt2:
            names = {"qkv": prefix + "attn.c_attn", "o": prefix + "attn.c_proj", "up": prefix + "mlp.c_fc", "down": prefix + "mlp.c_proj"}
            first, second = prefix + "ln_1", prefix + "ln_2"
        else:
            names = {key: f"{prefix}self_attn.{key}_proj" for key in "qkvo"}
            names |= {"q_": prefix + "self_attn.q", "k_": prefix + "self_attn.k"}
            names |= {key: f"{prefix}mlp.{key}_proj" for key in ("gate", "up", "down")}
            first, second = (prefix + each for each in model.norms)
        inner = ("up",) if gpt2 else ("gate", "up")
        if olmo2:
            x = x + kept(lambda y: norm(y, first), attention(x, names))
            made = kept(lambda y: tuple(linear(y, names[each]) for each in inner), x)
            return x + kept(lambda y: norm(y, second), kept(down(names), *made))
        x = x + attention(norm(x, first), names)
        if model.has_experts(number):
            return x + experts(x, number, second)
        made = kept(lambda y: tuple(linear(norm(y, second), names[each]) for each in inner), x)
        return x + kept(down(names), *made)

    x = F.embedding(tokens, weights[model.embedding])
    if gpt2:
        x = x + weights["transformer.wpe.weight"][:seq]
    for number in range(model.num_hidden_layers):
        x = layer(x, number)
    head = weights[model.embedding if model.tie_word_embeddings else "lm_head.weight"]
    return norm(x, "transformer.ln_f" if gpt2 else "model.norm") @ head.T


@pytest.fixture
def stored(monkeypatch):
    monkeypatch.setattr(reference, "logits", logits)


def stored_job(name: str, dtype: str = "f32", fp8: str = "none", **memory):
    job = job_of(name, dtype, micro_batch_size=4 if fp8 == "block" else 8)
    if fp8 == "block":  # blocks have 128 elements
        job = replace(job, model=replace(job.model, hidden_size=128, intermediate_size=256, head_dim=64, num_hidden_layers=2))
    return replace(job, settings={"memory": {"store": "fp8", **memory}, "training": {"fp8": fp8}})


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_are_those_of_pytorch(programs, compiled, tmp_path, stored, name):
    """Sums of f32 differ in their last bits, and where one lies between two codes, so does a code. An expert has few rows, of
    which each counts more."""
    job = stored_job(name)
    weights, ours = dumped_gradients(programs, compiled, tmp_path, job)
    assert_gradients_agree(ours, reference.gradients(job.model, weights, job.windows()), 1.5e-2 if job.model.sparse else 3e-3)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_are_not_those_of_f32(programs, compiled, tmp_path, name):
    """What the test before allows is less than what rounding changes. The result changes by attention alone."""
    job = stored_job(name)
    weights, ours = dumped_gradients(programs, compiled, tmp_path, job)
    theirs = reference.gradients(job.model, weights, job.windows())
    errors = {n: relative_error(ours[n], theirs[n]) for n in theirs}
    print(errors)
    assert min(error for n, error in errors.items() if "weight" in n) > (2e-2 if job.model.sparse else 4e-3)
    assert max(errors.values()) < (0.5 if job.model.sparse else 0.2)


@pytest.mark.parametrize("name", ["llama-grouped-tied", "gpt2", "mixtral", "olmoe"])
@pytest.mark.parametrize("fp8", ["none", "tensor"])
def test_losses_are_near_those_without(programs, compiled, tmp_path, name, fp8):
    runs = []
    for job in (job_of(name, "bf16", settings={"training": {"fp8": fp8}}), stored_job(name, "bf16", fp8)):
        (tmp_path / str(len(runs))).mkdir()
        _, out = train(programs, compiled, tmp_path / str(len(runs)), job)
        runs.append([line["loss"] for line in metrics(out)])
    print(runs)
    assert runs[0] != runs[1] and runs[1] == pytest.approx(runs[0], rel=1e-1)


@pytest.mark.parametrize("fp8", ["none", "tensor", "block"])
@pytest.mark.parametrize("recompute", ["full", "block", "keep-all"])
def test_recompute_changes_no_bit(programs, compiled, tmp_path, recompute, fp8):
    """What is recomputed is rounded again."""
    losses = []
    for index, mode in enumerate(("none", recompute)):
        (tmp_path / str(index)).mkdir()
        _, out = train(programs, compiled, tmp_path / str(index), stored_job("llama-grouped-tied", "bf16", fp8, recompute=mode))
        losses.append([(line["loss"], line["grad_norm"]) for line in metrics(out)])
    assert losses[0] == losses[1] and len(losses[0]) == STEPS


@pytest.mark.parametrize("fp8", ["none", "tensor"])
def test_ranks_that_divide_weights_give_the_same_bits(programs, compiled, tmp_path, fp8):
    job = replace(stored_job("llama-grouped-tied", "bf16", fp8), micro_batch_size=2)
    runs = {}
    for strategy in ("zero1", "zero2", "zero3"):
        mesh = {"strategy": strategy, "devices_per_node": 2}
        out = tmp_path / strategy
        each = replace(job, settings={**job.settings, "distributed": mesh})
        programs.run("lmc-run", compiled(each), f"--out={out}", "--nproc=2").ok()
        runs[strategy] = [(line["loss"], line["grad_norm"]) for line in metrics(out)]
    assert runs["zero1"] == runs["zero2"] == runs["zero3"] and len(runs["zero1"]) == STEPS


def test_a_run_goes_on_bit_for_bit(programs, compiled, tmp_path):
    assert_goes_on(programs, compiled(stored_job("llama-grouped-tied", "bf16", "tensor")), tmp_path)


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("weight", ["self_attn.v_proj", "mlp.up_proj"])
def test_steps_with_an_infinite_weight_are_left_out(programs, compiled, tmp_path, weight, value):
    """The row's scale is infinite or NaN, and so is what its codes stand for: nothing hides it."""
    job = stored_job("llama-grouped-tied", "bf16")
    weights = reference.random_weights(job.model, seed=7)
    name = f"model.layers.0.{weight}.weight"
    weights[name][3, 5] = value
    save_file(weights, tmp_path / "initial.safetensors")
    out = tmp_path / "run"
    done = programs.run("lmc-run", compiled(job), f"--out={out}", f"--init={tmp_path / 'initial.safetensors'}", "--steps=3").ok()
    assert done.stderr.count("the step is skipped, all weights stay as they were") == 3
    after = load_file(checkpoints(out)[3] / "model.safetensors")
    assert all(torch.equal(after[each], weights[each]) for each in weights if each != name)
