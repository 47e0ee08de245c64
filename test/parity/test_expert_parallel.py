"""Expert parallelism: ranks that have the experts between them train as one rank that has all of them."""

import json
import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import reference
from jobs import Job
from programs import USER_ERROR, checkpoint_digest, losses, metrics
from reference import Model, Optimizer
from test_dots1 import Dots1
from test_experts import with_settings

STEPS = 4
MODEL = Model(architecture="olmoe", intermediate_size=48, num_key_value_heads=4, num_local_experts=8, num_experts_per_tok=3)
JOB = Job(model=MODEL, optimizer=Optimizer(decay_iters=STEPS), batch_size=8, micro_batch_size=2, train_iters=STEPS,
          compute_dtype="f64")
BALANCED = replace(JOB, model=replace(MODEL, router_aux_loss_coef=0.1))


def divided(job: Job, ranks: int, experts: int, strategy: str, **distributed) -> Job:
    return with_settings(job, distributed={"devices_per_node": ranks, "strategy": strategy, "expert_parallel": experts,
                                           **distributed})


@pytest.fixture(scope="module")
def initial(tmp_path_factory) -> dict[str, str]:
    """Weights to start from. With "one", all tokens choose the same experts: those with the lowest numbers, which one
    rank has if it has as many."""
    folder, options = tmp_path_factory.mktemp("initial"), {}
    for kind in ("drawn", "one"):
        weights = reference.random_weights(MODEL, seed=7)
        for layer in range(MODEL.num_hidden_layers):
            if kind == "one":
                weights[MODEL.router(layer) + ".weight"].zero_()
        save_file(weights, folder / f"{kind}.safetensors")
        options[kind] = f"--init={folder / f'{kind}.safetensors'}"
    return options


def run(programs, plan: Path, out: Path, *options: str) -> list[float]:
    programs.run("lmc-run", plan, f"--out={out}", *options).ok()
    return losses(out)


def relative(ours: list[float], theirs: list[float]) -> float:
    assert len(ours) == len(theirs) > 0
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


@pytest.fixture(scope="module")
def whole(programs, compiled, tmp_path_factory, initial):
    """The losses of one rank."""
    known: dict[tuple[str, str], list[float]] = {}

    def run_once(dtype: str, kind: str) -> list[float]:
        if (dtype, kind) not in known:
            known[dtype, kind] = run(programs, compiled(replace(JOB, compute_dtype=dtype)),
                                     tmp_path_factory.mktemp("whole") / "run", initial[kind])
        return known[dtype, kind]
    return run_once


@pytest.mark.parametrize("strategy", ["zero1", "zero3"])
@pytest.mark.parametrize("ranks, experts", [(2, 1), (2, 2), (4, 1), (4, 2), (4, 4)])
def test_ranks_and_parts_equal_one_rank(programs, compiled, tmp_path, initial, whole, ranks, experts, strategy):
    """Also where all tokens choose the experts of one rank."""
    for dtype, bound in (("f64", 1e-12), ("f32", 1e-6)):
        plan = compiled(divided(replace(JOB, compute_dtype=dtype), ranks, experts, strategy))
        for kind in ("drawn", "one") if experts > 1 else ("drawn",):
            out = tmp_path / f"{dtype}-{kind}"
            programs.run("local-ranks", ranks, f"plan={plan}", f"out={out}", initial[kind].removeprefix("--")).ok()
            assert relative(losses(out), whole(dtype, kind)) <= bound, (dtype, kind)
    assert whole("f64", "one")[-1] < whole("f64", "one")[0]


@pytest.mark.parametrize("nodes, strategy, gas, more", [
    (1, "zero2", 2, {"reduce_gradients": "last", "reduce_dtype": "bf16"}),
    (2, "hybrid_shard", 1, {"overlap": "no"}),
    (2, "hybrid_shard_zero2", 2, {"overlap": "yes"}),
    (2, "zero3", 2, {"reshard_after_forward": "no"})])
def test_meshes_accumulation_and_recompute_change_nothing(programs, compiled, tmp_path, nodes, strategy, gas, more):
    """The losses with the balancing loss and a shared expert, by processes that talk over TCP, are those of the same
    ranks with all experts each."""
    model = replace(Dots1(num_hidden_layers=3), num_local_experts=4)
    job = with_settings(replace(JOB, model=model, batch_size=4 * gas, micro_batch_size=1), memory={"recompute": "block"},
                        distributed={"nodes": nodes, **more})
    found = []
    for experts in (1, 2):
        plan = compiled(divided(job, 4 // nodes, experts, strategy))
        out = tmp_path / str(experts)
        programs.run("local-ranks", 4, f"plan={plan}", f"out={out}").ok()
        found.append(losses(out))
    assert relative(found[1], found[0]) <= (1e-3 if more.get("reduce_dtype") == "bf16" else 1e-12)
    assert found[0][-1] < found[0][0]


def test_a_checkpoint_does_not_know_who_had_which_expert(programs, compiled, tmp_path):
    """Saved by four ranks, of which two have each half of the experts; resumed by one rank, two and four."""
    job = with_settings(replace(JOB, compute_dtype="f32", train_iters=6), checkpoint={"interval": 3})
    first = tmp_path / "first"
    programs.run("local-ranks", 4, f"plan={compiled(divided(job, 4, 2, 'zero3'))}", f"out={first}").ok()
    saved = load_file(first / "checkpoints/3/model.safetensors")
    assert saved[MODEL.expert(0, 7)[0] + ".weight"].shape == (48, 64)
    for ranks, experts, strategy in ((1, 1, "no_shard"), (2, 2, "zero1"), (4, 4, "zero3")):
        out = tmp_path / f"{ranks}-{experts}"
        plan = compiled(divided(replace(job, micro_batch_size=2), ranks, experts, strategy))
        programs.run("local-ranks", ranks, f"plan={plan}", f"out={out}", f"resume={first / 'checkpoints/3'}").ok()
        found = {line["step"]: line["loss"] for line in metrics(out)}
        assert relative([found[step] for step in (4, 5, 6)], losses(first)[-3:]) < 1e-6, (ranks, experts)


def test_a_run_is_the_same_bit_for_bit(programs, compiled, tmp_path):
    """Twice the same run in bf16 with 8-bit AdamW, once without overlap; and resumed in the middle."""
    job = with_settings(replace(BALANCED, compute_dtype="bf16"), optimizer={"type": "adamw8bit"}, checkpoint={"interval": 2})
    digests = []
    for number, overlap in enumerate(("yes", "yes", "no")):
        out = tmp_path / str(number)
        plan = compiled(divided(job, 4, 2, "zero3", overlap=overlap))
        for steps in ((2, STEPS) if number == 1 else (STEPS,)):
            programs.run("local-ranks", 4, f"plan={plan}", f"out={out}", f"steps={steps}").ok()
        digests.append((losses(out), checkpoint_digest(out / f"checkpoints/{STEPS}")))
    assert digests.count(digests[0]) == 3


def test_muon_takes_experts_that_ranks_divide(programs, compiled, tmp_path):
    job = with_settings(replace(JOB, compute_dtype="f32"), optimizer={"type": "muon"})
    found = []
    for experts in (1, 2):
        out = tmp_path / str(experts)
        plan = compiled(divided(job, 2, experts, "zero3"))
        programs.run("local-ranks", 2, f"plan={plan}", f"out={out}").ok()
        found.append(losses(out))
    assert relative(found[1], found[0]) < 2e-2  # bf16 in Newton-Schulz


@pytest.mark.parametrize("ranks, experts", [(2, 2), (4, 4)])
@pytest.mark.parametrize("kind", ["drawn", "one"])
def test_windows_of_rows_change_nothing_and_are_counted(programs, compiled, tmp_path, initial, whole, ranks, experts, kind):
    """`late` is the share of choices that are beyond a rank's first window, here counted by PyTorch."""
    job = replace(JOB, compute_dtype="f64", micro_batch_size=8 // ranks)
    for capacity in (1, 1.3) if ranks == 2 else (1,):
        cut = with_settings(divided(job, ranks, experts, "zero3"), distributed={"expert_capacity": capacity})
        cut = with_settings(cut, memory={"recompute": "block"} if capacity > 1 else {})
        out = tmp_path / f"{capacity}"
        programs.run("local-ranks", ranks, f"plan={compiled(cut)}", f"out={out}", initial[kind].removeprefix("--")).ok()
        assert relative(losses(out), whole("f64", kind)) <= 1e-12
        routers: list[torch.Tensor] = []
        weights = reference.as_parameters(load_file(initial[kind].removeprefix("--init=")), torch.float64)
        reference.logits(MODEL, weights, job.windows()[:, :-1], routers=routers)
        found = metrics(out)[0]["router"]
        for layer, logits in enumerate(routers):
            chosen, _ = reference.chosen(MODEL, logits)
            counts = torch.bincount(chosen.flatten(), minlength=MODEL.num_local_experts)
            window = math.ceil(capacity * chosen.numel() / ranks)
            late = (counts.reshape(experts, -1).sum(1) - window).clamp(min=0).sum() / chosen.numel()
            assert found[str(layer)]["late"] == pytest.approx(float(late), abs=1e-6)
            assert kind == "drawn" or late > 0.3


def sent_and_predicted(programs, plan, folder: Path) -> tuple[float, float]:
    """Bytes that each of two ranks sends in a step, as the kernel counts them for all processes of a run (ten more steps
    write so many more bytes), and as lmc explain predicts them."""
    predicted = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)["comm"]["sent_bytes_per_step"]

    def written(steps: int) -> int:
        command = programs.command("lmc-run", plan, "--nproc=2", f"--steps={steps}", f"--out={folder / str(steps)}")
        done = subprocess.run(["sh", "-c", '"$@" > log && cat /proc/$$/io', "sh", *command], cwd=folder,
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return int(re.search(r"wchar: (\d+)", done.stdout)[1])

    measured = (written(12) - written(2)) / 10 / 2
    print(f"predicted {predicted:.0f}, measured {measured:.0f} bytes a step")
    return measured, predicted


COUNTS_WRITES = pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the kernel does not count what processes write")


@COUNTS_WRITES
@pytest.mark.parametrize("strategy", ["zero1", "zero3"])
def test_ranks_send_the_bytes_that_explain_predicts(programs, compiled, tmp_path, strategy):
    job = replace(JOB, compute_dtype="f32", sequence_length=128, train_iters=12, epoch_steps=12)
    plan = compiled(with_settings(divided(job, 2, 2, strategy), checkpoint={"interval": 0}))
    measured, predicted = sent_and_predicted(programs, plan, tmp_path)
    assert measured == pytest.approx(predicted, rel=0.01)


def test_what_cannot_be_divided_is_one_error(programs, tmp_path):
    def compile(job: Job, text: str):
        (tmp_path / "job.toml").write_text(job.toml())
        done = programs.run("lmc", "compile", tmp_path / "job.toml", "-o", tmp_path / "job.plan")
        assert done.code == USER_ERROR and text in done.stderr and done.stderr.count("\n") == 1, done.stderr

    compile(divided(replace(JOB, batch_size=6), 3, 3, "zero3"), "expert_parallel = 3 does not divide the 8 experts of a layer (num_experts); use 2 or 4")
    compile(divided(JOB, 4, 8, "zero3"), "expert_parallel = 8 does not divide the 4 devices that divide the state; use expert_parallel = 4")
    compile(divided(JOB, 2, 2, "no_shard"), 'which strategy = "no_shard" does not; use strategy = "zero1", or expert_parallel = 1')
    muon = with_settings(JOB, optimizer={"type": "muon"})
    compile(divided(muon, 4, 2, "zero3"), 'with optimizer.type = "muon", the ranks that divide the state divide the experts too')
    less = with_settings(divided(JOB, 2, 2, "zero1"), distributed={"expert_capacity": 0.5})
    compile(less, "expert_capacity = 0.5 is less than 1, and a device gets as many choices as its own tokens have")
    alone = with_settings(JOB, distributed={"expert_capacity": 2})
    compile(alone, "leaves each its own; leave it out, or give expert_parallel")
    compile(divided(replace(JOB, model=Model()), 2, 2, "zero1"), "expert_parallel = 2 is for models with experts")
