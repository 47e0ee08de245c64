"""Linear layers of 8-bit floats, against PyTorch with its float8 dtypes."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

import reference
from programs import checkpoints, metrics
from test_dots1 import JOB as DOTS1
from test_expert_parallel import COUNTS_WRITES, sent_and_predicted
from test_gradients import MODELS, OPTIMIZER, STEPS, assert_gradients_agree, dumped_gradients, job_of, relative_error, train

SEPARATE = "--disable-fusion=linears"  # each linear layer has its own product, and so its own scales
FP8 = ["llama-grouped-tied", "llama-biases", "mistral-window", "qwen2", "olmo2", "gpt2"]


def scale_of(x: torch.Tensor, largest: float) -> float:
    """The smallest power of two s, 2^-126 or more, with max|x| / s <= largest."""
    mantissa, exponent = math.frexp(x.abs().max().item() / largest)
    if mantissa == 0:
        return 2.0**-126
    return 2.0 ** max(exponent - (mantissa == 0.5), -126)


def rounded(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The numbers that the codes of x stand for."""
    scale = scale_of(x, torch.finfo(dtype).max)
    return (x / scale).to(dtype).to(x.dtype) * scale


def rounded_blocks(x: torch.Tensor, height: int, width: int, dtype: torch.dtype = torch.float8_e4m3fn) -> torch.Tensor:
    """The same with a scale for each block of height x width elements of a matrix."""
    rows, columns = x.shape
    blocks = x.reshape(rows // height, height, columns // width, width)
    largest = torch.finfo(dtype).max
    mantissas, exponents = torch.frexp(blocks.abs().amax((1, 3), keepdim=True) / largest)
    scales = torch.ldexp(torch.ones_like(mantissas), torch.clamp(exponents - (mantissas == 0.5).int(), min=-126))
    scales = torch.where(mantissas == 0, torch.full_like(scales, 2.0**-126), scales)
    return ((blocks / scales).to(dtype).to(x.dtype) * scales).reshape(rows, columns)


class Fp8Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        x, weight = rounded(x, torch.float8_e4m3fn), rounded(weight, torch.float8_e4m3fn)
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dy = rounded(dy, torch.float8_e5m2)
        return dy @ weight, dy.flatten(0, -2).T @ x.flatten(0, -2)


class BlockLinear(torch.autograd.Function):
    """128 elements that a product sums over have a scale, and 128 x 128 of a weight."""

    @staticmethod
    def forward(ctx, x, weight):
        weight = rounded_blocks(weight, 128, 128)
        ctx.save_for_backward(x, weight)
        return (rounded_blocks(x.flatten(0, -2), 1, 128) @ weight.T).unflatten(0, x.shape[:-1])

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        rows = dy.flatten(0, -2)
        dx = (rounded_blocks(rows, 1, 128) @ weight).unflatten(0, x.shape[:-1])
        return dx, rounded_blocks(rows, 128, 1).T @ rounded_blocks(x.flatten(0, -2), 128, 1)


class ExpertLinear(BlockLinear):
    """The gradient of an expert's weight is the product of what the codes were made from."""

    @staticmethod
    def backward(ctx, dy):
        x, _ = ctx.saved_tensors
        dx, _ = BlockLinear.backward(ctx, dy)
        return dx, dy.T @ x


class Conv1d:
    """A weight [in, out] of GPT-2, in x @ weight."""

    def __init__(self, weight, linear):
        self.weight, self.linear = weight, linear

    def __rmatmul__(self, x):
        return self.linear.apply(x, self.weight.T)


class Conv1dWeights(dict):
    def __init__(self, weights, linear):
        super().__init__(weights)
        self.linear = linear

    def __getitem__(self, name):
        weight = super().__getitem__(name)
        return Conv1d(weight, self.linear) if name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")) else weight


@pytest.fixture
def in_fp8(monkeypatch):
    """The reference computes all products of layers, and not the head and routers, of 8-bit floats."""
    gpt2 = reference.gpt2_logits
    plain = reference.F
    head = {}
    chosen = {}
    experts = reference.experts

    def of_experts(model, weights, layer, *rest):
        before, chosen["linear"] = chosen["linear"], ExpertLinear
        try:
            return experts(model, weights, layer, *rest)
        finally:
            chosen["linear"] = before

    monkeypatch.setattr(reference, "experts", of_experts)
    monkeypatch.setattr(reference, "gpt2_logits", lambda model, weights, *rest: gpt2(
        model, Conv1dWeights(weights, chosen["linear"]), *rest))

    def linear(x, weight, bias=None):
        if weight.shape[0] in head:
            return plain.linear(x, weight, bias)
        y = chosen["linear"].apply(x, weight)
        return y if bias is None else y + bias

    names = {name: getattr(plain, name) for name in
             ("embedding", "silu", "scaled_dot_product_attention", "cross_entropy", "one_hot")}
    monkeypatch.setattr(reference, "F", SimpleNamespace(linear=linear, **names))

    def of(job):
        head[job.model.vocab_size] = head[job.model.num_local_experts] = True
        chosen["linear"] = LINEARS[job.settings["training"]["fp8"]]

    return of


LINEARS = {"tensor": Fp8Linear, "block": BlockLinear}
MODES = [*((mode, name) for mode in LINEARS for name in FP8), ("block", "mixtral"), ("block", "olmoe")]


def fp8_job(name: str, dtype: str = "f32", mode: str = "tensor", **changes):
    job = job_of(name, dtype, **changes)
    if mode == "block":  # blocks have 128 elements
        narrow = job.model.architecture in ("gpt2", "olmoe")  # their heads have hidden_size elements together
        # No weight but the head has as many rows as there are words. A code that differs changes later ones of its token,
        # and there are three times as many codes as in the other jobs: one layer keeps that small.
        job = replace(job, model=replace(job.model, vocab_size=320, num_hidden_layers=1, hidden_size=128, intermediate_size=256,
                                         head_dim=32 if narrow else 64,
                                         num_key_value_heads=max(job.model.num_key_value_heads, 2)))
    return replace(job, settings={**job.settings, "training": {"fp8": mode}})


@pytest.mark.parametrize("largest", [448.0, 57344.0])
def test_the_scale_is_the_smallest_that_fits(largest):
    for value in (0.0, 1e-45, 1e-30, 0.7, 1.0, 447.9, 448.0, 448.1, 57344.0, 57345.0, 3e38):
        scale = scale_of(torch.tensor([value, -value / 3]), largest)
        assert value / scale <= largest and (scale == 2.0**-126 or value / (scale / 2) > largest), value


@pytest.mark.parametrize("mode, name", MODES)
def test_gradients_are_those_of_pytorch(programs, compiled, tmp_path, in_fp8, mode, name):
    """Sums of f32 differ in their last bits, and where one lies between two codes, so does a code."""
    job = fp8_job(name, mode=mode)
    in_fp8(job)
    exact = reference.random_weights(job.model, seed=7)
    theirs = reference.gradients(job.model, exact, job.windows())
    weights, ours = dumped_gradients(programs, lambda each: compiled(each, SEPARATE), tmp_path, job)
    assert_gradients_agree(ours, theirs, 5e-3 if mode == "tensor" else 2e-2)


@pytest.mark.parametrize("mode, name", MODES)
def test_gradients_are_not_those_of_f32(programs, compiled, tmp_path, mode, name):
    """What the test before allows is less than what rounding to 8 bits changes."""
    job = fp8_job(name, mode=mode)
    weights, ours = dumped_gradients(programs, lambda each: compiled(each, SEPARATE), tmp_path, job)
    theirs = reference.gradients(job.model, weights, job.windows())
    errors = {n: relative_error(ours[n], theirs[n]) for n in theirs}
    print(errors)
    matrices = [errors[n] for n in theirs if "_proj.weight" in n or ".experts." in n]
    assert min(matrices) > 1e-2 and max(errors.values()) < (0.4 if job.model.sparse else 0.3)


@pytest.mark.parametrize("mode, name", MODES)
def test_losses_are_those_of_pytorch(programs, compiled, tmp_path, in_fp8, mode, name):
    job = fp8_job(name, mode=mode)
    in_fp8(job)
    weights, out = train(programs, lambda each: compiled(each, SEPARATE), tmp_path, job)
    theirs = reference.train(job.model, weights, job.windows(), OPTIMIZER, STEPS)
    losses = [(line["loss"], step.loss) for line, step in zip(metrics(out), theirs, strict=True)]
    print(losses)
    assert losses[0][0] == pytest.approx(losses[0][1], rel=1e-5 if mode == "tensor" else 1e-4)
    # A sum that rounds differently can change a code, and with it all later ones; it can give a token another expert.
    first, later = (8e-2, 8e-2) if job.model.sparse else (1e-2, 5e-2 if mode == "block" else 1e-2)
    bounds = [first] * (STEPS // 2) + [later] * (STEPS - STEPS // 2)
    assert all(mine == pytest.approx(other, rel=bound) for (mine, other), bound in zip(losses, bounds, strict=True))


@pytest.mark.parametrize("name", ["llama-grouped-tied", "gpt2", "mixtral"])
def test_losses_are_near_bf16(programs, compiled, tmp_path, name):
    """Products that share an input are one, whose weights share a scale; GPT-2 has transposed weights; with one scale for a
    tensor, experts and routers stay as they are."""
    runs = []
    for job in (job_of(name, "bf16"), fp8_job(name, "bf16")):
        (tmp_path / str(len(runs))).mkdir()
        _, out = train(programs, compiled, tmp_path / str(len(runs)), job)
        runs.append([line["loss"] for line in metrics(out)])
    print(runs)
    assert runs[0] != runs[1] and runs[1] == pytest.approx(runs[0], rel=1e-1)


@pytest.mark.parametrize("mode", LINEARS)
@pytest.mark.parametrize("recompute", ["full", "block"])
def test_recompute_changes_no_bit(programs, compiled, tmp_path, recompute, mode):
    job = fp8_job("llama-grouped-tied", "bf16", mode, micro_batch_size=4)
    again = replace(job, settings={**job.settings, "memory": {"recompute": recompute}})
    losses = []
    for index, each in enumerate((job, again)):
        (tmp_path / str(index)).mkdir()
        _, out = train(programs, compiled, tmp_path / str(index), each)
        losses.append([(line["loss"], line["grad_norm"]) for line in metrics(out)])
    assert losses[0] == losses[1]


def assert_goes_on(programs, plan, folder, *options):
    """A run that stops after 4 steps and goes on computes the bits of one that does not stop."""
    whole, parts = folder / "whole", folder / "parts"
    programs.run("lmc-run", plan, f"--out={whole}", *options).ok()
    programs.run("lmc-run", plan, f"--out={parts}", "--steps=4", *options).ok()
    programs.run("lmc-run", plan, f"--out={parts}", *options).ok()
    of = [[(line["step"], line["loss"], line["grad_norm"]) for line in metrics(out)] for out in (whole, parts)]
    assert of[0] == of[1] and len(of[0]) == STEPS


@pytest.mark.parametrize("strategy, ranks", [("no_shard", 1), ("zero1", 2), ("zero3", 3)])
@pytest.mark.parametrize("mode", LINEARS)
def test_a_run_goes_on_bit_for_bit(programs, compiled, tmp_path, mode, strategy, ranks):
    """There is no state of scales. Ranks make the codes behind each step and from a checkpoint: these are the same."""
    job = fp8_job("llama-grouped-tied", "bf16", mode, micro_batch_size=4)
    job = replace(job, batch_size=4 * ranks, settings={**job.settings, "distributed": {"strategy": strategy, "devices_per_node": ranks}})
    assert_goes_on(programs, compiled(job), tmp_path, *([f"--nproc={ranks}"] if ranks > 1 else []))


@pytest.mark.parametrize("mode", LINEARS)
def test_ranks_that_divide_weights_give_the_same_bits(programs, compiled, tmp_path, mode):
    """Ranks exchange codes. One rank adds up the micro-steps in another order."""
    job = fp8_job("llama-grouped-tied", "bf16", mode, micro_batch_size=4 if mode == "block" else 2)
    if mode == "block":
        job = replace(job, batch_size=16)
    runs = {}
    for strategy, ranks in (("no_shard", 1), ("zero1", 2), ("zero2", 2), ("zero3", 2), ("hybrid_shard", 4)):
        nodes = 2 if strategy == "hybrid_shard" else 1
        mesh = {"strategy": strategy, "nodes": nodes, "devices_per_node": ranks // nodes}
        out = tmp_path / strategy
        each = replace(job, settings={**job.settings, "distributed": mesh})
        programs.run("lmc-run", compiled(each), f"--out={out}", *([f"--nproc={ranks}"] if ranks > 1 else [])).ok()
        runs[strategy] = [(line["loss"], line["grad_norm"]) for line in metrics(out)]
    assert runs["zero1"] == runs["zero2"] == runs["zero3"] and len(runs["zero1"]) == STEPS
    for run in runs.values():
        assert run[0] == pytest.approx(runs["no_shard"][0], rel=1e-5)
        assert [loss for loss, _ in run] == pytest.approx([loss for loss, _ in runs["no_shard"]], rel=1e-2)


@pytest.mark.parametrize("name, training, optimizer", [
    ("mixtral", {}, "adamw"), ("llama-grouped-tied", {"fp8_filter": ["*.layers.0.mlp.*", "*.o_proj.weight"]}, "adamw"),
    ("llama-grouped-tied", {}, "adamw8bit"), ("llama-grouped-tied", {}, "muon"), ("gpt2", {}, "adamw")])
def test_codes_of_a_part_of_the_weights_travel(programs, compiled, tmp_path, name, training, optimizer):
    """Experts, filtered weights and those that an optimizer leaves to another one are in units of their own."""
    runs = {}
    for strategy, ranks in (("no_shard", 1), ("zero1", 2), ("zero3", 2)):
        mesh = {"strategy": strategy, "devices_per_node": ranks}
        job = job_of(name, "bf16", micro_batch_size=2, settings={
            "training": {"fp8": "tensor", **training}, "optimizer": {"type": optimizer}, "distributed": mesh})
        plan, out = compiled(job), tmp_path / strategy
        if ranks > 1:
            explained = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
            assert any("piece_quantize" in command.get("kernel", "") for f in explained["functions"] for command in f["commands"])
        programs.run("lmc-run", plan, f"--out={out}", *([f"--nproc={ranks}"] if ranks > 1 else [])).ok()
        runs[strategy] = [line["loss"] for line in metrics(out)]
    print(runs)
    for run in runs.values():
        assert run == pytest.approx(runs["no_shard"], rel=3e-2) and len(run) == STEPS


def test_ranks_with_experts_of_8_bits(programs, compiled, tmp_path):
    """With blocks, experts have codes, also those of which each rank has some."""
    runs = {}
    for name, ranks, mesh in (("one", 1, {}), ("zero1", 2, {"strategy": "zero1"}), ("zero3", 2, {"strategy": "zero3"}),
                              ("parallel", 2, {"strategy": "zero1", "expert_parallel": 2}),
                              ("divided", 4, {"strategy": "zero1", "expert_parallel": 2})):
        job = fp8_job("mixtral", "bf16", "block", micro_batch_size=4)
        job = replace(job, batch_size=16, settings={**job.settings, "distributed": {"devices_per_node": ranks, **mesh}})
        plan, out = compiled(job), tmp_path / name
        explained = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
        kinds = {command["kind"] for f in explained["functions"] for command in f["commands"]}
        assert "expert_scaled_linear" in kinds and "expert_linear" not in kinds
        programs.run("lmc-run", plan, f"--out={out}", *([f"--nproc={ranks}"] if ranks > 1 else [])).ok()
        runs[name] = [(line["loss"], line["grad_norm"]) for line in metrics(out)]
    print(runs)
    assert runs["zero1"] == runs["zero3"]
    for run in runs.values():
        assert [loss for loss, _ in run] == pytest.approx([loss for loss, _ in runs["one"]], rel=4e-2) and len(run) == STEPS


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("mode", LINEARS)
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_steps_with_an_infinite_weight_are_left_out(programs, compiled, tmp_path, mode, value, ranks):
    """Its scale is infinite or NaN, and so are the products with it: nothing hides it."""
    job = fp8_job("llama-grouped-tied", "bf16", mode, micro_batch_size=4)
    if ranks > 1:
        job = replace(job, settings={**job.settings, "distributed": {"strategy": "zero3", "devices_per_node": ranks}})
    weights = reference.random_weights(job.model, seed=7)
    weights["model.layers.0.mlp.down_proj.weight"][3, 5] = value
    save_file(weights, tmp_path / "initial.safetensors")
    out = tmp_path / "run"
    done = programs.run("lmc-run", compiled(job), f"--out={out}", f"--init={tmp_path / 'initial.safetensors'}", "--steps=3",
                        *([f"--nproc={ranks}"] if ranks > 1 else [])).ok()
    assert done.stderr.count("the step is skipped, all weights stay as they were") == 3
    after = load_file(checkpoints(out)[3] / "model.safetensors")
    assert all(torch.equal(after[name], weights[name]) for name in weights if name != "model.layers.0.mlp.down_proj.weight")


@pytest.mark.parametrize("mode", LINEARS)
def test_a_planted_outlier(programs, compiled, tmp_path, mode):
    """One weight is ten million times the others, and its input is 0, so that in f32 nothing depends on it. With one scale
    for the tensor all its other codes become 0, and with them the MLP; with blocks those of 128 x 128 elements of 512 x 256."""
    job = replace(fp8_job("llama-grouped-tied", mode="block"), settings={"training": {"fp8": mode}})
    job = replace(job, model=replace(job.model, hidden_size=256, intermediate_size=512))
    errors = {}
    for name in ("none", "planted"):
        weights = reference.random_weights(job.model, seed=7)
        weights["model.layers.0.post_attention_layernorm.weight"][5] = 0
        if name == "planted":
            weights["model.layers.0.mlp.gate_proj.weight"][200, 5] = 1e6
        save_file(weights, tmp_path / "initial.safetensors")
        programs.run("lmc-run", compiled(job, SEPARATE), f"--out={tmp_path / name}", f"--init={tmp_path / 'initial.safetensors'}",
                     "--steps=1", f"--dump-gradients={tmp_path / 'gradients.safetensors'}").ok()
        ours, theirs = load_file(tmp_path / "gradients.safetensors"), reference.gradients(job.model, weights, job.windows())
        down = "model.layers.0.mlp.down_proj.weight"
        errors[name] = relative_error(ours[down], theirs[down])
    print(mode, errors)
    assert errors["none"] < 0.15
    assert errors["planted"] > 0.99 if mode == "tensor" else 0.25 < errors["planted"] < 0.5


def weights_of_many_scales(model, file):
    """Weights of which hardly two tiles have the same scale, and one has only zeros."""
    weights = reference.random_weights(model, seed=7)
    draw = torch.Generator().manual_seed(8)
    for name, weight in weights.items():
        rows, columns = (weight.shape[0] // 128, weight.shape[1] // 128) if name.endswith("_proj.weight") else (0, 0)
        factors = torch.exp2(torch.randint(-6, 2, (rows, 1, columns, 1), generator=draw).float())
        if "gate_proj" in name:
            factors[-1, 0, 0] = 0
        if rows and columns:
            weights[name] = (weight.reshape(rows, 128, columns, 128) * factors).reshape(weight.shape)
    save_file(weights, file)
    return f"--init={file}"


def products(programs, plan, file, ranks, init):
    """What the products of the first micro-step of rank 0 compute: norms and random sums."""
    programs.run("lmc-run", plan, f"--record-commands={file}", "--gemm=default", init,
                 *([f"--nproc={ranks}"] if ranks > 1 else [])).ok()
    return [(line["op"], [(each["norm"], each["projections"]) for each in line["outputs"]])
            for line in map(json.loads, file.read_text().splitlines()[1:])
            if line["function"] == "micro_first" and line["kind"] in ("gemm", "expert_scaled_linear")]


@pytest.mark.parametrize("strategy, ranks", [("zero1", 2), ("zero3", 2), ("zero3", 3), ("hybrid_shard", 4)])
@pytest.mark.parametrize("mode", LINEARS)
def test_codes_that_ranks_exchange_are_those_of_whole_weights(programs, compiled, tmp_path, mode, strategy, ranks):
    """The first micro-step of rank 0 is that of one rank, bit for bit. With three ranks, tiles are on two of them."""
    job = fp8_job("llama-grouped-tied", "bf16", mode, micro_batch_size=4)
    job = replace(job, batch_size=4 * ranks, model=replace(job.model, hidden_size=256, intermediate_size=640))
    init = weights_of_many_scales(job.model, tmp_path / "initial.safetensors")
    made = {}
    for name, count in (("no_shard", 1), (strategy, ranks)):
        nodes = 2 if name == "hybrid_shard" else 1
        mesh = {"strategy": name, "nodes": nodes, "devices_per_node": count // nodes}
        each = replace(job, settings={**job.settings, "distributed": mesh})
        made[name] = products(programs, compiled(each), tmp_path / f"{name}.jsonl", count, init)
    assert made[strategy] == made["no_shard"] and len(made[strategy]) >= 12


@pytest.mark.parametrize("reshard", ["yes", "no"])
def test_ranks_of_zero3_gather_codes(programs, compiled, reshard):
    """What they gather of a layer's matrices is half as long as in bf16, as often."""
    received = {}
    for mode in ("none", "tensor", "block"):
        job = fp8_job("llama-grouped-tied", "bf16", mode="block", micro_batch_size=4)
        mesh = {"strategy": "zero3", "devices_per_node": 2, "reshard_after_forward": reshard}
        job = replace(job, settings={"training": {"fp8": mode}, "distributed": mesh})
        explained = json.loads(programs.run("lmc", "explain", compiled(job), "--json").ok().stdout)
        received[mode] = [
            (function["name"], command["source"], command["bytes"]) for function in explained["functions"]
            for command in function["commands"] if command["kind"] == "all_gather" and function["name"] != "optimizer"
            and function["name"] != "refresh"]
    print(received)
    assert received["tensor"] == received["block"] and len(received["none"]) > 4
    layers = {source for _, source, _ in received["none"]} - {"weights/unit.0"}
    ratios = {(function, source): (size, codes) for (function, source, size), (_, _, codes)
              in zip(received["none"], received["tensor"], strict=True)}
    assert all(size == (codes if "unit.0" in source else 2 * codes) for (_, source), (size, codes) in ratios.items()), layers


@COUNTS_WRITES
@pytest.mark.parametrize("strategy", ["zero1", "zero3"])
@pytest.mark.parametrize("mode", LINEARS)
def test_ranks_send_the_bytes_that_explain_predicts(programs, compiled, tmp_path, mode, strategy):
    job = replace(fp8_job("llama-grouped-tied", "bf16", mode="block", micro_batch_size=4), train_iters=12, epoch_steps=12,
                  settings={"training": {"fp8": mode}, "distributed": {"strategy": strategy, "devices_per_node": 2},
                            "checkpoint": {"interval": 0}})
    job = replace(job, model=replace(job.model, hidden_size=256, intermediate_size=512))
    measured, predicted = sent_and_predicted(programs, compiled(job), tmp_path)
    assert measured == pytest.approx(predicted, rel=0.01)


def test_weights_may_stay_in_the_compute_dtype(programs, compiled, tmp_path):
    """If all do, each bit is as without 8-bit floats. If those of a layer do, that layer is another function."""
    losses = {}
    for name, keys in {"none": {}, "all stay": {"fp8": "tensor", "fp8_filter": ["*"]},
                       "layer 0 stays": {"fp8": "tensor", "fp8_filter": ["model.layers.0.*"]},
                       "tensor": {"fp8": "tensor"}}.items():
        job = job_of("llama-grouped-tied", "bf16", micro_batch_size=2, settings={"training": keys})
        out = tmp_path / name
        programs.run("lmc-run", compiled(job), f"--out={out}").ok()
        losses[name] = [(line["loss"], line["grad_norm"]) for line in metrics(out)]
    assert losses["none"] == losses["all stay"]
    assert losses["layer 0 stays"] not in (losses["none"], losses["tensor"])
    for run in losses.values():
        assert [loss for loss, _ in run] == pytest.approx([loss for loss, _ in losses["none"]], rel=2e-2)


def test_a_pattern_of_no_weight_is_an_error(programs, compiled, tmp_path):
    job = job_of("llama-grouped-tied", "bf16", settings={"training": {"fp8": "tensor", "fp8_filter": ["*.layers.7.*"]}})
    done = programs.run("lmc", "compile", job.write(tmp_path), "-o", tmp_path / "job.plan")
    assert done.code == 2
    assert "'*.layers.7.*' names no parameter of the model; the nearest are model.layers.0." in done.stderr


def test_the_shared_expert_of_dots1_and_its_router_stay(programs, compiled):
    """They read the same input, so they are one product. The first layer has a dense MLP."""
    job = replace(DOTS1, compute_dtype="bf16", settings={**DOTS1.settings, "training": {"fp8": "tensor"}})
    explained = json.loads(programs.run("lmc", "explain", compiled(job), "--json").ok().stdout)
    short = {command["source"] for function in explained["functions"] for command in function["commands"]
             if command["kind"] == "gemm" and command["dtype"].startswith("f8")}
    assert {source.split("/")[0] for source in short if "mlp" in source} == {"layers.0"}
    assert {source.split("/")[0] for source in short if "self_attn" in source} == {"layers.0", "layers.1", "layers.2"}
