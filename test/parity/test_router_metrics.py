"""What metrics.jsonl says of the routers of experts, against figures that are computed here from the logits of
the reference's routers."""

import json
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

import reference
from jobs import Job
from programs import USER_ERROR, losses, metrics
from reference import Optimizer
from test_experts import BALANCED, MODEL, STEPS, initial_weights, run, with_settings
from test_host_driver import TARGET, host  # noqa: F401 (a fixture)
from test_monitors import TENSORBOARD, compare_with_tensorboard, sender_module, tags_of

# A window is a micro-batch, so that the order in which the sampler draws them changes nothing.
JOB = Job(model=BALANCED, optimizer=Optimizer(decay_iters=STEPS), train_iters=STEPS, micro_batch_size=1,
          compute_dtype="f64")


def figures(model: reference.Model, parameters: reference.Weights, windows: torch.Tensor) -> dict:
    """The fields `router` and `balance_loss` of a step whose micro-batches are a window each."""
    layers: dict[str, dict] = {}
    added = 0.0
    routed: list[list[torch.Tensor]] = []  # of each window
    for window in windows:
        routed.append([])
        reference.logits(model, parameters, window[None, :-1], routers=routed[-1])
        added += model.router_aux_loss_coef * reference.balance_loss(model, routed[-1]).item() / len(windows)
    for layer in range(model.num_hidden_layers):
        logits = torch.cat([of_window[layer] for of_window in routed])
        experts, _ = reference.chosen(model, logits)
        load = F.one_hot(experts, model.num_local_experts).sum((0, 1)) / experts.numel()
        entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
        balance = sum(reference.balance_loss(model, [of_window[layer]]).item() for of_window in routed)
        layers[str(layer)] = {"max_load": load.max().item(), "min_load": load.min().item(),
                              "entropy": entropy.item(), "balance_loss": balance / len(windows)}
    return {"router": layers, "balance_loss": added}


def expected(job: Job, weights: reference.Weights, monkeypatch) -> list[dict]:
    """Those of each step."""
    steps, whole = [], reference.loss

    def recorded(model, parameters, windows, end_of_document=None):
        with torch.no_grad():
            steps.append(figures(model, parameters, windows))
        return torch.stack([whole(model, parameters, window[None], end_of_document) for window in windows]).mean()

    monkeypatch.setattr(reference, "loss", recorded)
    reference.train(job.model, weights, job.windows(), job.optimizer, job.train_iters, torch.float64)
    return steps


def assert_agree(out, steps: list[dict], rel: float) -> None:
    lines = metrics(out)
    assert len(lines) == len(steps)
    for line, step in zip(lines, steps):
        assert line["balance_loss"] == pytest.approx(step["balance_loss"], rel=rel)
        assert line["router"].keys() == step["router"].keys()
        for layer, values in step["router"].items():
            assert line["router"][layer] == pytest.approx(values, rel=rel), (line["step"], layer)


@pytest.mark.parametrize("ranks, recompute", [(1, "none"), (1, "block"), (2, "none"), (2, "block")])
def test_they_are_those_of_the_reference_in_each_step(programs, compiled, tmp_path, monkeypatch, ranks, recompute):
    """Sums over 8 micro-steps of one rank, or 4 of each of two that divide their weights. Values have 7 digits."""
    job = with_settings(JOB, memory={"recompute": recompute})
    if ranks == 2:
        job = with_settings(job, distributed={"devices_per_node": 2, "strategy": "zero3"})
    weights, initial = initial_weights(job, tmp_path)
    run(programs, compiled(job), tmp_path / "run", initial, f"--nproc={ranks}")
    steps = expected(job, weights, monkeypatch)
    assert_agree(tmp_path / "run", steps, 5e-7)
    first = steps[0]["router"]["0"]
    assert first["max_load"] > 0.27 > 0.22 > first["min_load"] and first["entropy"] < math.log(4) - 0.1


def test_a_layer_without_a_balancing_loss_says_how_busy_its_experts_are(programs, compiled, tmp_path, monkeypatch):
    """In two micro-steps and f32; a validation between steps adds nothing."""
    job = replace(JOB, model=MODEL, batch_size=2, compute_dtype="f32")
    job = with_settings(job, data={"validation": ["train.bin"]},
                        monitoring={"validation_interval": 1, "validation_iters": 1})
    weights, initial = initial_weights(job, tmp_path)
    run(programs, compiled(job), tmp_path / "run", initial)
    steps = expected(job, weights, monkeypatch)
    for line, step in zip(metrics(tmp_path / "run"), steps, strict=True):
        assert "balance_loss" not in line and "validation_loss" in line
        for layer, values in step["router"].items():
            assert line["router"][layer] == pytest.approx(values, rel=1e-4)


def test_a_resumed_run_says_the_same(programs, compiled, tmp_path):
    plan = compiled(JOB)
    run(programs, plan, tmp_path / "whole")
    for steps in (2, STEPS):
        programs.run("lmc-run", plan, f"--out={tmp_path / 'parts'}", f"--steps={steps}").ok()
    whole, parts = ([(line["balance_loss"], line["router"]) for line in metrics(tmp_path / name)]
                    for name in ("whole", "parts"))
    assert whole == parts and len(whole) == STEPS


@pytest.mark.parametrize("recompute", ["none", "block"])
def test_routers_that_send_all_tokens_to_the_same_experts_need_what_was_planned(programs, compiled, tmp_path, monkeypatch,
                                                                                recompute):
    """All logits are equal in step 1, so that each token takes the first two experts. The bytes are those of the plan,
    and the losses and figures of all steps those of the reference."""
    job = with_settings(JOB, memory={"recompute": recompute})
    weights, _ = initial_weights(job, tmp_path)
    for layer in range(job.model.num_hidden_layers):
        weights[job.model.router(layer) + ".weight"].zero_()
    save_file(weights, tmp_path / "skewed.safetensors")
    plan = compiled(job)
    ours = run(programs, plan, tmp_path / "run", f"--init={tmp_path / 'skewed.safetensors'}")
    steps = expected(job, weights, monkeypatch)
    assert_agree(tmp_path / "run", steps, 5e-7)
    assert steps[0]["router"]["1"]["max_load"] == 0.5 and steps[0]["router"]["1"]["min_load"] == 0
    theirs = reference.train(job.model, weights, job.windows(), job.optimizer, job.train_iters, torch.float64)
    assert ours == pytest.approx([step.loss for step in theirs], rel=1e-9)
    planned = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)["memory"]["arenas"]
    assert {line["memory_bytes"] for line in metrics(tmp_path / "run")} == {sum(arena["bytes"] for arena in planned)}


@pytest.mark.parametrize("micro_batch_size", [2, 1])
def test_a_gpus_kernels_say_the_same(programs, compiled, host, tmp_path, micro_batch_size):  # noqa: F811
    """As graphs, in any order of thread blocks."""
    job = replace(JOB, model=replace(BALANCED, num_hidden_layers=1), batch_size=2, micro_batch_size=micro_batch_size,
                  train_iters=2, compute_dtype="f32", optimizer=Optimizer(warmup_iters=1, decay_iters=2))
    run(programs, compiled(job), tmp_path / "cpu")
    gpu = host(compiled(job, TARGET)).ok()
    cpu = [{"router": line["router"], "balance_loss": line["balance_loss"]} for line in metrics(tmp_path / "cpu")]
    assert_agree(gpu.out, cpu, 1e-4)


def test_tensorboard_and_wandb_show_them(programs, compiled, tmp_path):
    run(programs, compiled(JOB), tmp_path / "run", *TENSORBOARD)
    compare_with_tensorboard(tmp_path / "run")
    for line in metrics(tmp_path / "run"):
        row = sender_module(programs).row_of(line)
        assert {key: row[key] for key in row if not key.startswith("_")} == tags_of(line)
        assert row["router/1/entropy"] == line["router"]["1"]["entropy"]


@pytest.mark.parametrize("recompute", ["none", "block", "auto"])
def test_they_change_neither_memory_nor_what_is_recomputed(programs, compiled, recompute):
    reports = []
    for watched in (True, False):
        job = with_settings(JOB, memory={"recompute": recompute}, monitoring={"router": watched})
        reports.append(json.loads(programs.run("lmc", "explain", compiled(job), "--json").ok().stdout))
    watched, unwatched = reports
    # Two layers with three vectors of 4 experts each, and one of all routers.
    added = watched["memory"]["by_category"]["inputs"] - unwatched["memory"]["by_category"]["inputs"]
    assert added == 7 * 4 * 8
    assert abs(watched["memory"]["peak_bytes"] - unwatched["memory"]["peak_bytes"]) < 2 * 7 * 512
    assert watched["recompute"]["flops_overhead"] == unwatched["recompute"]["flops_overhead"]
    commands = [{f["name"]: len(f["commands"]) for f in report["functions"]} for report in reports]
    print(commands)
    assert commands[0]["eval"] == commands[1]["eval"] and commands[0]["optimizer"] == commands[1]["optimizer"]
    more = {name: commands[0][name] - commands[1][name] for name in ("micro_first", "micro", "micro_last")}
    assert more["micro_first"] == 3 * 2 + 1 and max(more.values()) <= 6 * 2 + 2, more


def test_without_the_key_no_command_is_left(programs, compiled, tmp_path):
    plain = with_settings(JOB, monitoring={"router": False})
    report = json.loads(programs.run("lmc", "explain", compiled(plain), "--json").ok().stdout)
    sources = {command["source"] for function in report["functions"] for command in function["commands"]}
    assert "layers.0/router" in sources and not {source for source in sources if "router." in source and "counts" not in
                                                 source and "mass" not in source}
    assert losses_of(programs, compiled(plain), tmp_path / "plain") == losses_of(programs, compiled(JOB), tmp_path / "run")
    assert all("router" not in line and "balance_loss" not in line for line in metrics(tmp_path / "plain"))


def events(out) -> list[dict]:
    return [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]


def losses_of(programs, plan, out) -> list[float]:
    run(programs, plan, out)
    return losses(out)


def test_experts_that_get_no_token_are_reported_once(programs, compiled, tmp_path):
    """Of the logits a, -a, 0 and 0 one of the first two is the largest."""
    job = with_settings(replace(JOB, model=replace(MODEL, num_experts_per_tok=1)), guard={"dead_expert": 3})
    weights, _ = initial_weights(job, tmp_path)
    router = weights[MODEL.router(1) + ".weight"]
    router[1] = -router[0]
    router[2:] = 0
    save_file(weights, tmp_path / "initial.safetensors")
    done = programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'run'}", f"--init={tmp_path / 'initial.safetensors'}",
                        "--set", "lr_schedule.lr=1e-12", "--set", "lr_schedule.min_lr=0").ok()
    (event,) = [each for each in events(tmp_path / "run") if each["event"] == "dead_expert"]
    assert (event["step"], event["steps"], event["experts"]) == (3, 3, {"1": [2, 3]})
    (warning,) = [line for line in done.stderr.splitlines() if "dead_expert" in line]
    assert "step 3: 2 of 8 experts got no token in the last 3 steps (guard.dead_expert): expert 2, 3 of layer 1" in warning
    assert metrics(tmp_path / "run")[0]["router"]["1"]["min_load"] == 0.0
    off = programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'off'}", f"--init={tmp_path / 'initial.safetensors'}",
                       "--set", "guard.dead_expert=0").ok()
    assert "dead_expert" not in off.stderr


def test_a_mistake_is_said_in_one_line(programs, tmp_path):
    job = with_settings(JOB, monitoring={"router": 3})
    done = programs.run("lmc", "compile", job.write(tmp_path), "-o", tmp_path / "bad.plan")
    assert done.code == USER_ERROR and "monitoring.router" in done.stderr and done.stderr.count("error") == 1
