"""dots.llm1: a router of sigmoids whose bias keeps experts equally busy, a shared expert, and dense layers before those
with experts. The reference is transformers' own model; what its training lacks, the step of the bias, is one line."""

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Dots1Config, Dots1ForCausalLM

from jobs import Job
from programs import USER_ERROR, checkpoints, losses, metrics
from reference import Model, Optimizer
from test_experts import run, with_settings
from test_gradients import relative_error
from test_host_driver import TARGET, host  # noqa: F401 (a fixture)
from test_huggingface import assert_same_bits

STEPS = 10
SPEED = 0.01
BIAS = "mlp.gate.e_score_correction_bias"
KEYS = ("vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings", "rope_theta", "rms_norm_eps",
        "tie_word_embeddings", "attention_bias", "n_routed_experts", "n_shared_experts", "num_experts_per_tok",
        "first_k_dense_replace", "norm_topk_prob", "routed_scaling_factor")


@dataclass(frozen=True)
class Dots1(Model):
    architecture: str = "dots1"
    intermediate_size: int = 96
    moe_intermediate_size: int = 32
    n_routed_experts: int = 8
    n_shared_experts: int = 2
    num_experts_per_tok: int = 3
    first_k_dense_replace: int = 1
    norm_topk_prob: bool = True
    routed_scaling_factor: float = 2.5
    num_hidden_layers: int = 3
    rms_norm_eps: float = 1e-5

    def keys(self) -> dict[str, Any]:
        return {"architecture": self.architecture, **{key: getattr(self, key) for key in KEYS}}

    @property
    def sparse(self) -> bool:
        return True


MODEL = Dots1()
JOB = Job(model=MODEL, optimizer=Optimizer(decay_iters=STEPS), train_iters=STEPS,
          settings={"optimizer": {"router_bias_update_speed": SPEED}})


def made(model: Dots1, seed: int = 7, dtype=torch.float32) -> Dots1ForCausalLM:
    keys = model.keys()
    keys.pop("architecture")
    keys["rope_parameters"] = {"rope_type": "default", "rope_theta": keys.pop("rope_theta")}
    torch.manual_seed(seed)
    config = Dots1Config(**keys, sliding_window=None, attn_implementation="eager", experts_implementation="eager",
                         architectures=["Dots1ForCausalLM"])
    result = Dots1ForCausalLM(config)
    with torch.no_grad():
        for name, tensor in result.state_dict().items():
            if name.endswith("norm.weight"):
                tensor.uniform_(0.5, 1.5)
            elif name.endswith(BIAS):
                tensor.uniform_(-0.2, 0.2)
            else:
                tensor.normal_(std=0.5 if "gate.weight" in name else 1.5 / tensor.shape[-1] ** 0.5)
    return result.to(dtype).eval()


def saved(model: Dots1, tmp_path) -> tuple[Dots1ForCausalLM, str]:
    result = made(model)
    result.save_pretrained(tmp_path / "saved")
    return result, f"--init={tmp_path / 'saved'}"


def drawn(seed: int) -> Dots1:
    chance = random.Random(seed)
    experts = chance.randint(3, 40)
    kv = chance.choice((1, 2, 3))
    layers = chance.randint(1, 3)
    return replace(MODEL, vocab_size=chance.randint(50, 300), hidden_size=4 * chance.randint(4, 20),
                   intermediate_size=chance.randint(20, 100), moe_intermediate_size=chance.randint(5, 50),
                   head_dim=2 * chance.randint(3, 12), num_key_value_heads=kv, num_attention_heads=kv * chance.randint(1, 3),
                   n_routed_experts=experts, num_experts_per_tok=chance.randint(1, min(experts, 6)),
                   n_shared_experts=chance.randint(1, 3), num_hidden_layers=layers,
                   first_k_dense_replace=chance.randint(0, layers), norm_topk_prob=chance.random() < 0.7,
                   routed_scaling_factor=chance.choice((1.0, 2.5)), attention_bias=chance.random() < 0.3)


@pytest.mark.parametrize("seed", range(8))
def test_logits_of_drawn_shapes_are_those_of_transformers(programs, compiled, tmp_path, seed):
    """Weights come from save_pretrained, and go back bit for bit; from_pretrained reads them."""
    model = drawn(seed)
    print(model)
    theirs, initial = saved(model, tmp_path)
    job = Job(model=model, sequence_length=40, batch_size=2, micro_batch_size=2, settings={"monitoring": {"logits": True}})
    dump, exported = tmp_path / "logits.safetensors", tmp_path / "hf"
    programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'run'}", "--resume=none", initial,
                 f"--dump-logits={dump}").ok()
    programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'none'}", "--steps=0", initial, f"--export={exported}").ok()
    assert_same_bits(load_file(exported / "model.safetensors"), load_file(tmp_path / "saved/model.safetensors"))
    back, report = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32, output_loading_info=True,
                                                        attn_implementation="eager", experts_implementation="eager")
    assert type(back) is Dots1ForCausalLM and not any(report.values()), report
    for key in model.keys().keys() - {"architecture", "rope_theta"}:
        assert getattr(back.config, key) == getattr(theirs.config, key), key
    dumped = load_file(dump)
    for each in (theirs, back.eval()):
        with torch.no_grad():
            expected = each(input_ids=dumped["tokens"].long(), use_cache=False).logits
        assert (dumped["logits"] - expected).abs().max() <= 1e-4 * max(1, expected.abs().max())
    assert expected.std() > 0.3


def loss_of(model: Dots1ForCausalLM, windows: torch.Tensor) -> torch.Tensor:
    predicted = model(input_ids=windows[:, :-1], use_cache=False).logits
    return F.cross_entropy(predicted.flatten(0, 1), windows[:, 1:].flatten())


def counts_of(model: Dots1ForCausalLM, windows: torch.Tensor) -> dict[str, torch.Tensor]:
    """The choices that each expert gets, by the name of the bias."""
    found, hooks = {}, []
    for layer, block in enumerate(model.model.layers):
        if hasattr(block.mlp, "gate") and hasattr(block.mlp.gate, "e_score_correction_bias"):
            def keep(_, __, output, layer=layer):
                found[f"model.layers.{layer}.{BIAS}"] = torch.bincount(
                    output[2].flatten(), minlength=model.config.n_routed_experts)
            hooks.append(block.mlp.gate.register_forward_hook(keep))
    with torch.no_grad():
        model(input_ids=windows[:, :-1], use_cache=False)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize("mbs", [8, 2])
def test_gradients_are_those_of_transformers(programs, compiled, tmp_path, mbs):
    """What is passed back to the bias is how many choices each expert got."""
    model, initial = saved(MODEL, tmp_path)
    dump = tmp_path / "gradients.safetensors"
    run(programs, compiled(replace(JOB, micro_batch_size=mbs)), tmp_path / "run", initial, "--steps=1",
        f"--dump-gradients={dump}")
    ours = load_file(dump)
    loss_of(model, JOB.windows()).backward()
    errors = {name: relative_error(ours[name], gradient) for name, gradient in apart(model).items()}
    print(errors)
    assert max(errors.values()) <= 1e-5
    counts = counts_of(model, JOB.windows())
    assert len(counts) == 2 and ours.keys() == errors.keys() | counts.keys()
    for name, count in counts.items():
        assert torch.equal(ours[name], count.to(torch.float32)), name


def apart(model: Dots1ForCausalLM) -> dict[str, torch.Tensor]:
    """The gradients by the names of files, which have experts apart."""
    found = {}
    for name, parameter in model.named_parameters():
        prefix, _, last = name.rpartition(".")
        for number, gradient in enumerate(parameter.grad if prefix.endswith("experts") else []):
            if last == "down_proj":
                found[f"{prefix}.{number}.down_proj.weight"] = gradient
            else:
                found[f"{prefix}.{number}.gate_proj.weight"], found[f"{prefix}.{number}.up_proj.weight"] = gradient.chunk(2)
        if not prefix.endswith("experts"):
            found[name] = parameter.grad
    return found


def trained(model: Dots1ForCausalLM, windows: torch.Tensor, steps: int) -> tuple[list[float], list[float]]:
    """Losses and gradient norms of AdamW, with the bias's step of Wang et al. 2024."""
    optimizer = JOB.optimizer
    parameters = list(model.parameters())
    adamw = torch.optim.AdamW([{"params": [p for p in parameters if p.ndim > 1], "weight_decay": optimizer.weight_decay},
                               {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0}],
                              betas=(optimizer.beta1, optimizer.beta2), eps=optimizer.eps)
    found, norms = [], []
    for step in range(1, steps + 1):
        for group in adamw.param_groups:
            group["lr"] = optimizer.learning_rate(step)
        adamw.zero_grad()
        counts = counts_of(model, windows)
        value = loss_of(model, windows)
        value.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, optimizer.clip_grad).item())
        adamw.step()
        buffers = dict(model.named_buffers())
        for name, count in counts.items():
            buffers[name] += SPEED * torch.sign(count.double().mean() - count)
        found.append(value.item())
    return found, norms


def biases(out) -> dict[str, torch.Tensor]:
    last = checkpoints(out)[max(checkpoints(out))]
    return {name: tensor for name, tensor in load_file(last / "model.safetensors").items() if name.endswith(BIAS)}


def test_ten_steps_are_those_of_transformers(programs, compiled, tmp_path):
    model, initial = saved(MODEL, tmp_path)
    job = with_settings(JOB, checkpoint={"interval": STEPS})
    ours = run(programs, compiled(job), tmp_path / "run", initial)
    theirs, norms = trained(model, JOB.windows(), STEPS)
    assert ours == pytest.approx(theirs, rel=1e-5) and ours[-1] < 0.9 * ours[0]
    # The counts have no part in the norm.
    assert [line["grad_norm"] for line in metrics(tmp_path / "run")] == pytest.approx(norms, rel=1e-4)
    for name, bias in biases(tmp_path / "run").items():
        assert (bias - dict(model.named_buffers())[name]).abs().max() < SPEED / 100, name


@pytest.mark.parametrize("strategy", ["zero1", "zero3"])
def test_ranks_and_micro_steps_change_nothing(programs, compiled, tmp_path, strategy):
    whole = with_settings(replace(JOB, compute_dtype="f64", train_iters=4, optimizer=Optimizer(decay_iters=4, warmup_iters=1)),
                          checkpoint={"interval": 4})
    cut = with_settings(replace(whole, micro_batch_size=2), memory={"recompute": "block"},
                        distributed={"devices_per_node": 2, "strategy": strategy})
    _, initial = saved(MODEL, tmp_path)
    first = run(programs, compiled(whole), tmp_path / "whole", initial)
    assert run(programs, compiled(cut), tmp_path / "cut", initial, "--nproc=2") == pytest.approx(first, rel=1e-12)
    one, two = biases(tmp_path / "whole"), biases(tmp_path / "cut")
    assert len(one) == 2 and one.keys() == two.keys()
    for name, bias in one.items():
        assert torch.equal(bias, two[name]), name
    assert any(bias.std() > 0 for bias in one.values())


@pytest.mark.parametrize("strategy", ["zero1", "ddp"])
def test_counts_are_not_rounded_on_their_way(programs, compiled, tmp_path, strategy):
    """In bf16 an odd sum of more than 256 choices would be."""
    job = replace(JOB, batch_size=32, micro_batch_size=16, train_iters=1, optimizer=Optimizer(decay_iters=1, warmup_iters=0))
    job = with_settings(job, distributed={"devices_per_node": 2, "strategy": strategy, "reduce_dtype": "bf16"})
    model, initial = saved(MODEL, tmp_path)
    dump = tmp_path / "gradients.safetensors"
    run(programs, compiled(job), tmp_path / "run", initial, "--nproc=2", f"--dump-gradients={dump}")
    ours, counts = load_file(dump), counts_of(model, job.windows())
    assert any(n > 256 and n % 2 for count in counts.values() for n in count.tolist())
    for name, count in counts.items():
        assert torch.equal(ours[name], count.to(torch.float32)), name


def test_the_bias_balances_experts(programs, compiled, tmp_path):
    """With a router that prefers two experts by far, the others get tokens after some steps; without the bias's steps
    they do not."""
    model = made(MODEL)
    with torch.no_grad():
        for block in model.model.layers[1:]:
            block.mlp.gate.weight.mul_(0.01)
            block.mlp.gate.e_score_correction_bias.zero_()
            block.mlp.gate.e_score_correction_bias[:3] = 0.05
    model.save_pretrained(tmp_path / "saved")
    job = with_settings(replace(JOB, train_iters=12), optimizer={"router_bias_update_speed": 0.01}, checkpoint={"interval": 12})
    job = replace(job, optimizer=replace(job.optimizer, lr=1e-9, min_lr=1e-9))
    tokens = JOB.windows().shape[0] * JOB.sequence_length
    worst = {}
    for name, speed in (("still", 0.0), ("moved", 0.01)):
        each = with_settings(job, optimizer={"router_bias_update_speed": speed})
        run(programs, compiled(each), tmp_path / name, f"--init={tmp_path / 'saved'}")
        exported = tmp_path / f"{name}.hf"
        programs.run("lmc-run", compiled(each), f"--out={tmp_path / name}", "--steps=12", f"--export={exported}").ok()
        back = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32, attn_implementation="eager",
                                                    experts_implementation="eager").eval()
        worst[name] = max(int(count.max()) for count in counts_of(back, JOB.windows()).values())
    assert worst["still"] == tokens and worst["moved"] < 0.75 * tokens, worst


def test_a_gpus_kernels_train_as_the_cpus(programs, compiled, host, tmp_path):  # noqa: F811
    job = replace(JOB, model=replace(MODEL, num_hidden_layers=2), batch_size=4, micro_batch_size=2, train_iters=2,
                  optimizer=Optimizer(warmup_iters=1, decay_iters=2))
    _, initial = saved(job.model, tmp_path)
    expected = run(programs, compiled(job), tmp_path / "cpu", initial)
    gpu = host(compiled(job, TARGET), initial).ok()
    assert losses(gpu.out) == pytest.approx(expected, rel=1e-6)


def test_mistakes_are_said_in_one_line(programs, tmp_path):
    for changes, words in (({"num_experts_per_tok": 9}, "num_experts_per_tok = 9 is more than n_routed_experts = 8"),
                           ({"n_routed_experts": 0}, "n_routed_experts")):
        (tmp_path / "bad").mkdir(exist_ok=True)
        job = replace(JOB, model=replace(MODEL, **changes))
        done = programs.run("lmc", "compile", job.write(tmp_path / "bad"), "-o", tmp_path / "bad.plan")
        assert done.code == USER_ERROR and words in done.stderr and done.stderr.count("error") == 1
