"""Muon for the matrices of layers and AdamW for the rest, against torch.optim.Muon and AdamW."""

import inspect
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.optim import _muon

import reference
from jobs import Job
from programs import USER_ERROR, checkpoint_digest, checkpoints, losses, metrics
from reference import Model, Optimizer

STEPS = 10
RATE = 0.02
# Queries, keys and values form one parameter, gate and up another; k and v are wide, gate and up tall.
JOB = Job(
    model=Model(attention_bias=True),
    optimizer=Optimizer(weight_decay=0.1),
    train_iters=STEPS,
    settings={
        "optimizer": {"type": "muon", "muon_lr": RATE, "muon_adjust_lr_fn": "original", "muon_ns_dtype": "f32"},
        "checkpoint": {"interval": 1, "keep": 0},
    },
)


def with_settings(job: Job, **settings) -> Job:
    return replace(job, settings={**job.settings, "optimizer": {**job.settings["optimizer"], **settings}})


def is_hidden(name: str) -> bool:
    return name.endswith(("_proj.weight", "c_attn.weight", "c_fc.weight"))


def to_matrices(model: Model, name: str, weight: torch.Tensor) -> list[torch.Tensor]:
    """The linear maps of a parameter, [out, in] each: GPT-2's are stored transposed, and those to queries, keys and
    values side by side."""
    if model.architecture != "gpt2" or not is_hidden(name):
        return [weight]
    return [part.T.contiguous() for part in weight.chunk(3 if "c_attn" in name else 1, dim=1)]


def with_gradients(weight: torch.Tensor, name: str) -> torch.Tensor:
    """Without the biases of GPT-2's keys: a softmax does not change where all its scores do, so that their gradients
    are rounding alone, which AdamW makes steps of any size of."""
    return torch.cat(weight.chunk(3)[::2]) if name.endswith("c_attn.bias") else weight


def from_matrices(model: Model, name: str, matrices: list[torch.Tensor]) -> torch.Tensor:
    if model.architecture != "gpt2" or not is_hidden(name):
        return matrices[0]
    return torch.cat(matrices).T


def in_f32():
    """torch's own function, but that its one cast is to f32."""
    source = inspect.getsource(_muon._zeropower_via_newtonschulz)
    assert source.count("torch.bfloat16") == 1
    names = dict(vars(_muon))
    exec(source.replace("torch.bfloat16", "torch.float32"), names)
    return names["_zeropower_via_newtonschulz"]


@dataclass
class Run:
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    states: list[reference.Weights] = field(default_factory=list)  # before step 1, and after each step


def train(job: Job, **muon_options) -> Run:
    weights = reference.random_weights(job.model, seed=7)
    leaves = {name: [part.clone().requires_grad_() for part in to_matrices(job.model, name, weight)]
              for name, weight in weights.items()}

    def state() -> reference.Weights:
        return {name: from_matrices(job.model, name, parts) for name, parts in leaves.items()}

    options = job.optimizer
    muon = torch.optim.Muon([p for name, parts in leaves.items() if is_hidden(name) for p in parts],
                            weight_decay=options.weight_decay, **muon_options)
    rest = {name: parts[0] for name, parts in leaves.items() if not is_hidden(name)}
    adamw = torch.optim.AdamW(
        [{"params": [p for p in rest.values() if p.ndim > 1], "weight_decay": options.weight_decay},
         {"params": [p for p in rest.values() if p.ndim == 1], "weight_decay": 0.0}],
        betas=(options.beta1, options.beta2), eps=options.eps)
    run = Run(states=[{name: p.detach().clone() for name, p in state().items()}])
    for step in range(1, STEPS + 1):
        rate = options.learning_rate(step)
        for group in adamw.param_groups:
            group["lr"] = rate
        for group in muon.param_groups:
            group["lr"] = job.settings["optimizer"]["muon_lr"] * rate / options.lr
        for optimizer in (adamw, muon):
            optimizer.zero_grad()
        loss = reference.loss(job.model, state(), job.windows())
        loss.backward()
        every = [p for parts in leaves.values() for p in parts]
        run.norms.append(torch.nn.utils.clip_grad_norm_(every, options.clip_grad).item())
        for optimizer in (adamw, muon):
            optimizer.step()
        run.losses.append(loss.item())
        run.states.append({name: p.detach().clone() for name, p in state().items()})
    return run


def lmc(programs, compiled, tmp_path: Path, job: Job, *options: str) -> Run:
    weights = reference.random_weights(job.model, seed=7)
    save_file(weights, tmp_path / "initial.safetensors")
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(job), f"--out={out}", "--resume=none", "--threads=1",
                 f"--init={tmp_path / 'initial.safetensors'}", *options).ok()
    lines = metrics(out)
    assert len(lines) == STEPS
    states = [reference.load_weights(folder / "model.safetensors") for folder in checkpoints(out).values()]
    return Run([line["loss"] for line in lines], [line["grad_norm"] for line in lines], [weights, *states])


def differences(ours: Run, theirs: Run) -> tuple[float, float, float]:
    """The largest of the losses (relative), of the weights, and of a matrix's update in a step
    (relative to its norm)."""
    loss = max(abs(a - b) / b for a, b in zip(ours.losses, theirs.losses, strict=True))
    weights = update = 0.0
    for step in range(1, STEPS + 1):
        old, new = ours.states[step - 1], ours.states[step]
        for name, theirs_new in theirs.states[step].items():
            weights = max(weights, float((with_gradients(new[name], name) -
                                          with_gradients(theirs_new, name)).abs().max()))
            if is_hidden(name):
                expected = theirs_new - theirs.states[step - 1][name]
                update = max(update, float((new[name] - old[name] - expected).norm() / expected.norm()))
    return loss, weights, update


def is_exact(found: tuple[float, float, float]) -> bool:
    return found[0] < 1e-6 and found[1] < 5e-5


RULES = ("original", "match_rms_adamw", "spectral_unclamped")


@pytest.mark.parametrize("rule,nesterov", [*((rule, True) for rule in RULES), ("original", False)])
def test_f32_is_torch_with_its_cast_to_f32(programs, compiled, tmp_path, monkeypatch, rule, nesterov):
    monkeypatch.setattr(_muon, "_zeropower_via_newtonschulz", in_f32())
    job = with_settings(JOB, muon_adjust_lr_fn=rule, muon_nesterov=nesterov)
    theirs = train(job, adjust_lr_fn=rule, nesterov=nesterov)
    ours = lmc(programs, compiled, tmp_path, job)
    found = differences(ours, theirs)
    print(f"{rule}: losses {found[0]:.1e}, weights {found[1]:.1e}, updates {found[2]:.1e}")
    assert is_exact(found)
    for norm, expected in zip(ours.norms, theirs.norms):
        assert norm == pytest.approx(expected, rel=1e-4)
    # Otherwise the test says nothing about clipping, or about learning.
    assert theirs.norms[0] > job.optimizer.clip_grad and theirs.losses[-1] < 0.98 * theirs.losses[0]


# GPT-2's weights are [in, out], and its MLP is wide and tall.
GPT2 = replace(JOB, model=Model(architecture="gpt2", tie_word_embeddings=True, intermediate_size=144))


@pytest.mark.parametrize("rule", RULES)
def test_weights_that_are_stored_transposed(programs, compiled, tmp_path, monkeypatch, rule):
    monkeypatch.setattr(_muon, "_zeropower_via_newtonschulz", in_f32())
    job = with_settings(GPT2, muon_adjust_lr_fn=rule)
    theirs = train(job, adjust_lr_fn=rule)
    found = differences(lmc(programs, compiled, tmp_path, job), theirs)
    print(f"{rule}: losses {found[0]:.1e}, weights {found[1]:.1e}, updates {found[2]:.1e}")
    assert is_exact(found)
    assert theirs.losses[-1] < 0.98 * theirs.losses[0]


@pytest.mark.parametrize("error", ["q, k and v as one", "stored as they are"])
def test_matrices_that_are_not_the_logical_ones_are_seen(programs, compiled, tmp_path, monkeypatch, error):
    monkeypatch.setattr(_muon, "_zeropower_via_newtonschulz", in_f32())
    as_one = {"q, k and v as one": lambda model, name, weight: [weight.T.contiguous()] if is_hidden(name) else [weight],
              "stored as they are": lambda model, name, weight: [weight]}[error]
    back = {"q, k and v as one": lambda model, name, parts: parts[0].T if is_hidden(name) else parts[0],
            "stored as they are": lambda model, name, parts: parts[0]}[error]
    monkeypatch.setitem(globals(), "to_matrices", as_one)
    monkeypatch.setitem(globals(), "from_matrices", back)
    found = differences(lmc(programs, compiled, tmp_path, GPT2), train(GPT2, adjust_lr_fn="original"))
    print(f"{error}: losses {found[0]:.1e}, weights {found[1]:.1e}, updates {found[2]:.1e}")
    assert found[0] > 1e-5 and found[1] > 5e-4


# Newton-Schulz steps multiply small singular values, so that one element which rounds to bf16 in the
# other direction changes an update by 1%. Where no element does, updates are equal to 1e-5. At this
# rate, differences of updates do not make others of gradients.
BF16 = with_settings(JOB, muon_ns_dtype="bf16", muon_lr=RATE / 10)


def test_bf16_is_torch_as_it_is(programs, compiled, tmp_path):
    job = BF16
    theirs = train(job)
    found = differences(lmc(programs, compiled, tmp_path, job), theirs)
    print(f"losses {found[0]:.1e}, weights {found[1]:.1e}, updates {found[2]:.1e}")
    assert found[0] < 5e-5 and found[2] < 0.05


@pytest.mark.parametrize("error", ["4 iterations", "no Nesterov", "no scale"])
def test_a_planted_error_is_seen(programs, compiled, tmp_path, monkeypatch, error):
    """torch's side has the error: in f32 the difference must show far above the bounds."""
    monkeypatch.setattr(_muon, "_zeropower_via_newtonschulz", in_f32())
    options = {"4 iterations": {"ns_steps": 4}, "no Nesterov": {"nesterov": False}, "no scale": {}}[error]
    if error == "no scale":
        monkeypatch.setattr(_muon, "_adjust_lr", lambda lr, adjust_lr_fn, shape: lr)
    theirs = train(JOB, **options)
    found = differences(lmc(programs, compiled, tmp_path, JOB), theirs)
    print(f"{error}: losses {found[0]:.1e}, weights {found[1]:.1e}, updates {found[2]:.1e}")
    assert found[0] > 1e-5 and found[1] > 5e-4 and found[2] > 0.05


def run(programs, plan: Path, out: Path, *options: str) -> Path:
    programs.run("lmc-run", plan, f"--out={out}", "--threads=1", *options).ok()
    return out


def test_resuming_is_bit_identical(programs, compiled, tmp_path):
    plan = compiled(BF16)
    whole = run(programs, plan, tmp_path / "whole")
    parts = run(programs, plan, tmp_path / "parts", "--steps=4")
    run(programs, plan, parts, "--resume=auto")
    assert checkpoint_digest(checkpoints(whole)[STEPS]) == checkpoint_digest(checkpoints(parts)[STEPS])
    assert losses(whole) == losses(parts)


def test_state_is_momentum_for_matrices_and_both_moments_for_the_rest(programs, compiled, tmp_path):
    out = run(programs, compiled(JOB), tmp_path / "run", "--steps=2", "--set=checkpoint.background=true")
    weights, moment1, moment2 = (load_file(checkpoints(out)[2] / f"{kind}.safetensors")
                                 for kind in ("model", "moment1", "moment2"))
    assert moment1.keys() == weights.keys()
    assert moment2.keys() == {name for name in weights if not is_hidden(name)}
    # updates.jsonl is computed from both moments, so it leaves out what has one.
    [line, *_] = map(json.loads, (out / "updates.jsonl").read_text().splitlines())
    assert line["update_ratio"].keys() == moment2.keys()


def test_a_step_that_is_skipped_changes_nothing(programs, compiled, tmp_path):
    """A NaN in one weight makes all gradients NaN."""
    weights = reference.random_weights(JOB.model, seed=7)
    weights["model.norm.weight"][3] = float("nan")
    save_file(weights, tmp_path / "initial.safetensors")
    out = run(programs, compiled(JOB), tmp_path / "run", "--steps=1", f"--init={tmp_path / 'initial.safetensors'}",
              "--set=guard.action=off")
    folder = checkpoints(out)[1]
    for name, after in load_file(folder / "model.safetensors").items():
        assert torch.equal(after.nan_to_num(), weights[name].nan_to_num()), name
    assert all(not moment.any() for moment in load_file(folder / "moment1.safetensors").values())


def test_a_checkpoint_of_another_optimizer_is_refused(programs, compiled, tmp_path):
    out = run(programs, compiled(with_settings(JOB, type="adamw")), tmp_path / "run", "--steps=2")
    refused = programs.run("lmc-run", compiled(JOB), f"--out={out}", "--resume=auto")
    assert refused.code == USER_ERROR
    assert "optimizer.type is adamw there and muon here" in refused.stderr


# Sizes that no number of ranks divides, with biases and a padded MLP, in f64: a difference between
# ranks would otherwise hide in the rounding of sums.
ODD = replace(JOB, model=Model(vocab_size=101, hidden_size=48, intermediate_size=80, num_attention_heads=2,
                               num_key_value_heads=1, attention_bias=True), batch_size=8, compute_dtype="f64")
MESHES = {
    "zero1": (2, ["--devices-per-node=2"]), "zero2": (2, ["--devices-per-node=2"]),
    "zero3": (4, ["--devices-per-node=4"]), "hybrid_shard": (4, ["--nodes=2", "--devices-per-node=2"]),
    "no_shard": (2, ["--nodes=2", "--devices-per-node=1"]),
}


KINDS = ["f64", "padded", "f32", "bf16", "gpt2"]


@pytest.mark.parametrize("owners", ["no", "yes"])
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_train_what_one_rank_trains(programs, compiled, tmp_path, kind, owners):
    """Whether all ranks orthogonalize all matrices, or each its own. Each kind of job is tried on each mesh with one of
    the two, and so is each mesh with both."""
    job = {"f64": ODD, "padded": ODD, "f32": replace(ODD, compute_dtype="f32"),
           "bf16": replace(BF16, model=ODD.model, compute_dtype="f32"),
           "gpt2": replace(ODD, model=replace(GPT2.model, vocab_size=101, hidden_size=48, num_attention_heads=2))}[kind]
    padding = ["--set", "target.make_intermediate_size_divisible_by=96"] if kind == "padded" else []
    bounds = {"f64": (1e-12, 1e-12), "padded": (1e-12, 1e-12), "gpt2": (1e-12, 1e-12), "f32": (1e-6, 5e-5), "bf16": (5e-5, 5e-3)}[kind]
    weights = tmp_path / "initial.safetensors"
    save_file(reference.random_weights(job.model, seed=7), weights)

    def trained(name: str, ranks: int, *options: str):
        out = tmp_path / name
        programs.run("local-ranks", ranks, f"plan={compiled(job, *options)}", f"out={out}", f"init={weights}").ok()
        return losses(out), load_file(checkpoints(out)[STEPS] / "model.safetensors")

    one = trained("one", 1)
    for number, (mesh, (ranks, options)) in enumerate(MESHES.items()):
        if (number + KINDS.index(kind)) % 2 != (owners == "yes"):
            continue
        many = trained(mesh, ranks, *padding, *options, "--set", f"distributed.strategy={mesh}",
                       "--set", f"training.micro_batch_size={8 // ranks}", "--set", f"optimizer.muon_owners={owners}")
        loss = max(abs(a - b) / b for a, b in zip(many[0], one[0], strict=True))
        weight = max(float((with_gradients(many[1][name], name) - with_gradients(w, name)).abs().max())
                     for name, w in one[1].items())
        print(f"{kind}, owners {owners}, {mesh}: losses {loss:.1e}, weights {weight:.1e}")
        assert loss < bounds[0] and weight < bounds[1]


def test_owners_change_no_bit(programs, compiled, tmp_path):
    """Each matrix is computed by the same commands, on whichever rank."""
    digests = {}
    for owners in ("no", "yes"):
        plan = compiled(replace(BF16, batch_size=8), "--devices-per-node=4", "--set", "distributed.strategy=zero2",
                        "--set", "training.micro_batch_size=2", "--set", f"optimizer.muon_owners={owners}")
        programs.run("local-ranks", 4, f"plan={plan}", f"out={tmp_path / owners}").ok()
        digests[owners] = checkpoint_digest(checkpoints(tmp_path / owners)[STEPS])
    assert digests["no"] == digests["yes"]


def test_links_decide_who_orthogonalizes(programs, root, tmp_path):
    """Matrix products of the optimizer, for 8 ranks in a node of H100s, and with links of a megabyte per second."""
    spec = (root / "compiler/cost/devices/h100-sxm.toml").read_text()
    fast = "bandwidth = 361e9"
    assert spec.count(fast) == 1
    (tmp_path / "slow.toml").write_text(spec.replace(fast, "bandwidth = 1e6"))

    def products(owners: str, *options: str) -> int:
        job = root / "models/configs/llama1b.toml"
        report = programs.run("lmc", "explain", job, "--json", "--target=cuda:sm_90a", "--nodes=1", "--devices-per-node=8",
                              "--set=optimizer.type=muon", f"--set=optimizer.muon_owners={owners}", *options).ok()
        [optimizer] = [f for f in json.loads(report.stdout)["functions"] if f["name"] == "optimizer"]
        return sum(command.get("batch", 1) for command in optimizer["commands"] if command["kind"] == "gemm")

    slow = f"--set=target.spec={tmp_path / 'slow.toml'}"
    assert products("auto") == products("yes") < products("no") / 7
    assert products("auto", slow) == products("no")
