"""A mixture of experts: layouts, optimizers and accumulation change nothing that they should not, and mistakes
are said in one line. Logits, gradients and steps are compared with PyTorch's in test_huggingface.py and
test_gradients.py."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import reference
from jobs import Job
from programs import USER_ERROR, checkpoint_digest, checkpoints, losses, metrics
from reference import Model, Optimizer
from test_gradients import assert_gradients_agree
from test_host_driver import TARGET, host  # noqa: F401 (a fixture)

STEPS = 6
MODEL = Model(architecture="mixtral", intermediate_size=96, num_local_experts=4, num_experts_per_tok=2)
BALANCED = replace(MODEL, router_aux_loss_coef=0.1)
JOB = Job(model=MODEL, optimizer=Optimizer(decay_iters=STEPS), train_iters=STEPS)


def with_settings(job: Job, **sections) -> Job:
    return replace(job, settings={name: {**job.settings.get(name, {}), **sections.get(name, {})}
                                  for name in job.settings.keys() | sections.keys()})


def run(programs, plan: Path, out: Path, *options: str) -> list[float]:
    programs.run("lmc-run", plan, f"--out={out}", *options).ok()
    return losses(out)


def initial_weights(job: Job, tmp_path: Path) -> tuple[reference.Weights, str]:
    weights = reference.random_weights(job.model, seed=7)
    save_file(weights, tmp_path / "initial.safetensors")
    return weights, f"--init={tmp_path / 'initial.safetensors'}"


def test_layouts_change_nothing(programs, compiled, tmp_path):
    """One micro-step on one rank, and two of each of two ranks with ZeRO-3 and recompute."""
    whole = replace(JOB, compute_dtype="f64")
    cut = with_settings(replace(whole, micro_batch_size=2), memory={"recompute": "block"},
                        distributed={"devices_per_node": 2, "strategy": "zero3"})
    _, initial = initial_weights(JOB, tmp_path)
    first = run(programs, compiled(whole), tmp_path / "whole", initial)
    assert run(programs, compiled(cut), tmp_path / "cut", initial, "--nproc=2") == pytest.approx(first, rel=1e-12)
    assert first[-1] < 0.9 * first[0]


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_balancing_loss_is_the_mean_over_micro_batches(programs, compiled, tmp_path, ranks):
    """Each micro-batch, of each rank, has one of its own, as in Hugging Face's trainer."""
    job = replace(JOB, model=BALANCED, compute_dtype="f64", micro_batch_size=2)
    if ranks == 2:
        job = with_settings(job, distributed={"devices_per_node": 2, "strategy": "zero1"})
    weights, initial = initial_weights(job, tmp_path)
    (ours,) = run(programs, compiled(job), tmp_path / "run", initial, "--steps=1", f"--nproc={ranks}")
    # The sampler draws its own order: whichever it is, the windows are in pairs.
    parameters = reference.as_parameters(weights, torch.float64)
    windows = job.windows()
    plain = reference.loss(replace(BALANCED, router_aux_loss_coef=0.0), parameters, windows).item()
    pairs = {(a, b): 0.1 * balance_of(parameters, windows[[a, b]]) for a in range(8) for b in range(a)}
    added = ours - plain
    perfect = [sum(pairs[max(p), min(p)] for p in pairing) / 4 for pairing in pairings(list(range(8)))]
    assert min(abs(added - each) for each in perfect) <= 1e-12 * ours
    assert abs(added - 0.1 * balance_of(parameters, windows)) > 1e-9


def balance_of(parameters: reference.Weights, windows: torch.Tensor) -> float:
    routers: list[torch.Tensor] = []
    reference.logits(BALANCED, parameters, windows[:, :-1], routers=routers)
    return reference.balance_loss(BALANCED, routers).item()


def pairings(numbers: list[int]):
    """All ways to divide `numbers` into pairs."""
    if not numbers:
        yield []
        return
    first, *rest = numbers
    for other in rest:
        for others in pairings([n for n in rest if n != other]):
            yield [(first, other), *others]


def test_gradients_in_f64_are_those_of_pytorch(programs, compiled, tmp_path):
    """Far below f32's rounding."""
    job = replace(JOB, model=BALANCED, compute_dtype="f64")
    weights, initial = initial_weights(job, tmp_path)
    dump = tmp_path / "gradients.safetensors"
    run(programs, compiled(job), tmp_path / "run", initial, "--steps=1", f"--dump-gradients={dump}")
    assert_gradients_agree(load_file(dump), reference.gradients(job.model, weights, job.windows(), torch.float64), 1e-10)


def test_an_expert_without_tokens_has_zero_gradients(programs, compiled, tmp_path):
    """One expert of one layer gets all tokens, so that the others get none."""
    model = replace(MODEL, num_experts_per_tok=1, num_hidden_layers=1)
    job = replace(JOB, model=model, compute_dtype="f64", batch_size=4, micro_batch_size=2)
    weights = reference.random_weights(model, seed=7)
    weights[model.router(0) + ".weight"].zero_()  # equal probabilities: the first expert is chosen
    save_file(weights, tmp_path / "initial.safetensors")
    dump = tmp_path / "gradients.safetensors"
    (loss,) = run(programs, compiled(job), tmp_path / "run", f"--init={tmp_path / 'initial.safetensors'}", "--steps=1",
                  f"--dump-gradients={dump}")
    ours = load_file(dump)
    theirs = reference.gradients(model, weights, job.windows(), torch.float64)
    assert loss == pytest.approx(reference.loss(model, reference.as_parameters(weights, torch.float64),
                                                job.windows()).item(), rel=1e-12)
    for number in range(MODEL.num_local_experts):
        for name in model.expert(0, number):
            gradient = ours[name + ".weight"]
            assert torch.equal(gradient, torch.zeros_like(gradient)) == (number > 0), name
    assert_gradients_agree(ours, {name: g for name, g in theirs.items() if g.norm() > 0}, 1e-10)


@pytest.mark.parametrize("optimizer, bound", [("adamw8bit", 2e-3), ("muon", None)])
def test_optimizers_take_experts_as_any_parameter(programs, compiled, tmp_path, optimizer, bound):
    job = with_settings(JOB, optimizer={"type": optimizer})
    weights, initial = initial_weights(job, tmp_path)
    ours = run(programs, compiled(job), tmp_path / "one", initial)
    if bound:
        exact = reference.train(job.model, weights, job.windows(), job.optimizer, STEPS)
        assert ours == pytest.approx([step.loss for step in exact], rel=bound)
    two = with_settings(replace(job, micro_batch_size=4), distributed={"devices_per_node": 2, "strategy": "zero3"})
    rel = 1e-5 if optimizer == "adamw8bit" else 2e-2  # bf16 in Newton-Schulz
    assert run(programs, compiled(two), tmp_path / "two", initial, "--nproc=2") == pytest.approx(ours, rel=rel)
    assert ours[-1] < 0.95 * ours[0]


def test_a_resumed_run_has_the_same_bits(programs, compiled, tmp_path):
    job = with_settings(replace(JOB, model=BALANCED, compute_dtype="bf16", micro_batch_size=2), checkpoint={"interval": 2})
    plan = compiled(job)
    whole = run(programs, plan, tmp_path / "whole", "--threads=2")
    for steps in (2, 4, STEPS):
        programs.run("lmc-run", plan, f"--out={tmp_path / 'parts'}", f"--steps={steps}", "--threads=1",
                     "--gemm=default").ok()
    assert run(programs, plan, tmp_path / "default", "--gemm=default") == losses(tmp_path / "parts")
    assert checkpoint_digest(checkpoints(tmp_path / "parts")[STEPS]) == \
        checkpoint_digest(checkpoints(tmp_path / "default")[STEPS])
    assert losses(tmp_path / "parts") == pytest.approx(whole, rel=1e-2)


@pytest.mark.parametrize("dtype, bound, norm", [("f32", 1e-6, 2e-5), ("bf16", 1e-2, 5e-2)])
def test_a_gpus_kernels_train_as_the_cpus(programs, compiled, host, tmp_path, dtype, bound, norm):  # noqa: F811
    """In bf16 on tensor cores, where rounding may give a token another expert; as graphs, in any order of thread
    blocks."""
    job = replace(JOB, model=replace(BALANCED, num_hidden_layers=1), batch_size=4, micro_batch_size=2, train_iters=2,
                  compute_dtype=dtype, optimizer=Optimizer(warmup_iters=1, decay_iters=2))
    expected = run(programs, compiled(job), tmp_path / "cpu")
    gpu = host(compiled(job, TARGET)).ok()
    assert losses(gpu.out) == pytest.approx(expected, rel=bound)
    norms = [[line["grad_norm"] for line in metrics(out)] for out in (gpu.out, tmp_path / "cpu")]
    assert norms[0] == pytest.approx(norms[1], rel=norm)


def test_products_of_experts_are_computed_in_the_faster_way(programs, compiled, host, tmp_path):  # noqa: F811
    """By kernels with a block for each tile, unless those whose blocks stay on their SMs were faster. Of these, one
    computes a wrong element."""
    model = replace(BALANCED, num_hidden_layers=1, num_local_experts=2, num_experts_per_tok=1)
    job = replace(JOB, model=model, batch_size=2, micro_batch_size=2, train_iters=1, compute_dtype="bf16",
                  optimizer=Optimizer(warmup_iters=0, decay_iters=1))
    plan = compiled(job, TARGET)
    report = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
    kernels = [kernel["name"] for kernel in report["kernels"]
               if kernel["name"].startswith("expert_gemm_") and not kernel["name"].startswith("expert_gemm_grad")]
    slow, persistent = kernels[:2]
    assert len(kernels) == 8 and persistent == slow + "_persistent"

    def ways(out: Path) -> dict[str, str]:
        kept = json.loads((out / "gemm.json").read_text())["choices"]
        return {choice["product"]: choice["implementation"] for choice in kept if "experts" in choice["product"]}

    default = host(plan).ok()
    assert len(ways(default.out)) == 4 and set(ways(default.out).values()) == {"lmc expert_gemm"}
    asked = {"LMC_GEMM": "measure", "slow_kernel": slow}
    run = host(plan, **asked, XDG_CACHE_HOME=tmp_path / "cache").ok()
    assert "lmc expert_gemm, persistent" in ways(run.out).values()
    assert losses(run.out) == pytest.approx(losses(default.out), rel=1e-2)
    wrong = host(plan, **asked, wrong_kernel=persistent, XDG_CACHE_HOME=tmp_path / "other").ok()
    text = (wrong.out / "log.txt").read_text()
    assert f"kernel '{persistent}' was left out: element " in text and " of row 2 of result 0 is 3, and must be " in text


def test_memory_is_what_was_planned_whatever_the_router_chooses(programs, compiled, tmp_path):
    """A router that sends all tokens to the same two experts, and one that spreads them."""
    plan = compiled(replace(JOB, train_iters=STEPS))
    used = []
    for skewed in (False, True):
        weights = reference.random_weights(MODEL, seed=7)
        if skewed:
            for layer in range(MODEL.num_hidden_layers):
                weights[MODEL.router(layer) + ".weight"].zero_()
        save_file(weights, tmp_path / f"{skewed}.safetensors")
        out = tmp_path / str(skewed)
        run(programs, plan, out, f"--init={tmp_path / f'{skewed}.safetensors'}", "--steps=2")
        used.append(metrics(out)[-1]["memory_bytes"])
    report = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
    assert used[0] == used[1] == sum(arena["bytes"] for arena in report["memory"]["arenas"])


def test_mistakes_are_said_in_one_line(programs, compiled, tmp_path):
    job = replace(JOB, model=replace(MODEL, num_experts_per_tok=5))
    done = programs.run("lmc", "compile", job.write(tmp_path), "-o", tmp_path / "bad.plan")
    assert done.code == USER_ERROR
    assert "num_experts_per_tok = 5 is more than num_local_experts = 4" in done.stderr and done.stderr.count("error") == 1

    for patterns, code in ((["*.experts.2.*"], USER_ERROR), (["*.w2.weight"], USER_ERROR), (["*.experts.*"], 0)):
        job = replace(JOB, tables=[("optimizer.group", {"name": "some", "parameters": patterns, "lr_mult": 0.5})])
        done = programs.run("lmc", "compile", job.write(tmp_path / str(len(patterns[0]))), "-o", tmp_path / "group.plan")
        assert done.code == code and ("the experts of a layer are of one" in done.stderr) == bool(code), done.stderr

    config = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 256, "hidden_size": 64,
              "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
              "router_jitter_noise": 0.1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    sections = JOB.toml().split("[training]")[1]
    (tmp_path / "imported.toml").write_text(f'[model]\nconfig = "config.json"\n\n[training]{sections}')
    done = programs.run("lmc", "compile", tmp_path / "imported.toml", "-o", tmp_path / "bad.plan")
    assert done.code == USER_ERROR and done.stderr.count("error") == 1
    assert "config.json: error: 'router_jitter_noise' is 0.1; lmc has only 0.0" in done.stderr
