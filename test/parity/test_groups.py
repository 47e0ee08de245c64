"""[[optimizer.group]]: parameters with a weight decay, a learning rate or moments of their own, against PyTorch's param_groups."""

import json
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.torch import load_file, save_file
from torch.optim import _muon

import reference
from jobs import Job
from programs import USER_ERROR, checkpoint_digest, checkpoints, metrics
from reference import Model, Optimizer
from test_adamw8bit import BLOCK, blocks, decode1, decode2
from test_muon import in_f32, is_hidden

STEPS = 10
EMBEDDING, LAST_NORM = "model.embed_tokens.weight", "model.norm.weight"


@dataclass(frozen=True)
class Group:
    name: str
    patterns: tuple[str, ...]
    weight_decay: float | None = None
    lr_mult: float = 1.0
    optim_bits: int | None = None

    def has(self, parameter: str) -> bool:
        return any(fnmatchcase(parameter, pattern) for pattern in self.patterns)

    def keys(self) -> dict:
        optional = {"weight_decay": self.weight_decay, "optim_bits": self.optim_bits}
        return {"name": self.name, "parameters": list(self.patterns), "lr_mult": self.lr_mult,
                **{key: value for key, value in optional.items() if value is not None}}


# Biases and the embedding; a matrix of q, k and v with a norm, which decays; and matrices that decay as all others do.
GROUPS = (
    Group("embeddings", (EMBEDDING, "*_proj.bias"), weight_decay=0.0, lr_mult=0.5),
    Group("keys", ("*.k_proj.weight", "model.norm.*"), weight_decay=0.4, lr_mult=2.0),
    Group("slow", ("model.layers.1.mlp.?p_proj.weight", "*.0.input_layernorm.weight"), lr_mult=0.1),
)


def with_groups(job: Job, *groups: Group) -> Job:
    return replace(job, tables=[("optimizer.group", group.keys()) for group in groups])


# With a larger eps, the rounding of a gradient near zero decides less of an update.
PLAIN = Job(
    model=Model(attention_bias=True),
    optimizer=Optimizer(weight_decay=0.1, eps=1e-6),
    train_iters=STEPS,
    settings={"checkpoint": {"interval": 1, "keep": 0}},
)
JOB = with_groups(PLAIN, *GROUPS)


def options_of(name: str, shape: tuple[int, ...], decay: float, groups: tuple[Group, ...]) -> tuple[float, float]:
    """The weight decay of a parameter, and the factor of its rate."""
    own = decay if len(shape) > 1 else 0.0
    for group in groups:
        if group.has(name):
            return (own if group.weight_decay is None else group.weight_decay), group.lr_mult
    return own, 1.0


@dataclass
class Run:
    losses: list[float] = field(default_factory=list)
    states: list[reference.Weights] = field(default_factory=list)  # after each step


def train(job: Job, groups: tuple[Group, ...], later: tuple[Group, ...] | None = None, change: int = STEPS,
          dtype: torch.dtype = torch.float32) -> Run:
    """With torch's AdamW, and its Muon for the matrices of layers if the job has that. A group of torch for each
    parameter. The groups are `later` after step `change`."""
    parameters = reference.as_parameters(reference.random_weights(job.model, seed=7), dtype)
    settings, options = job.settings.get("optimizer", {}), job.optimizer
    steps_by_muon = settings.get("type") == "muon"
    tables = {True: [], False: []}
    for name, p in parameters.items():
        tables[steps_by_muon and is_hidden(name)].append({"params": [p], "name": name})
    optimizers = [torch.optim.AdamW(tables[False], betas=(options.beta1, options.beta2), eps=options.eps)]
    if steps_by_muon:
        optimizers.append(torch.optim.Muon(tables[True], adjust_lr_fn=settings["muon_adjust_lr_fn"]))
    run = Run()
    for step in range(1, STEPS + 1):
        rate = options.learning_rate(step)
        for optimizer in optimizers:
            peak = settings["muon_lr"] if isinstance(optimizer, torch.optim.Muon) else options.lr
            for table in optimizer.param_groups:
                name = table["name"]
                table["weight_decay"], factor = options_of(name, parameters[name].shape, options.weight_decay,
                                                           groups if step <= change else later)
                table["lr"] = peak * rate / options.lr * factor
            optimizer.zero_grad()
        loss = reference.loss(job.model, parameters, job.windows())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), options.clip_grad)
        for optimizer in optimizers:
            optimizer.step()
        run.losses.append(loss.item())
        run.states.append({name: p.detach().clone() for name, p in parameters.items()})
    assert run.losses[-1] < 0.98 * run.losses[0], "nothing was learnt, so nothing is compared"
    return run


def run_of(out: Path) -> Run:
    lines = metrics(out)
    assert len(lines) == STEPS
    states = [reference.load_weights(folder / "model.safetensors") for folder in checkpoints(out).values()]
    return Run([line["loss"] for line in lines], states)


def initial(job: Job, folder: Path) -> Path:
    save_file(reference.random_weights(job.model, seed=7), folder / "initial.safetensors")
    return folder / "initial.safetensors"


def lmc(programs, compiled, folder: Path, job: Job, *options: str, ranks: int = 1) -> Run:
    programs.run("local-ranks", ranks, f"plan={compiled(job, *options)}", f"out={folder / 'run'}",
                 f"init={initial(job, folder)}").ok()
    return run_of(folder / "run")


def differences(ours: Run, theirs: Run) -> tuple[float, float]:
    """The largest of the losses (relative) and of the weights of all steps."""
    loss = max(abs(a - b) / b for a, b in zip(ours.losses, theirs.losses, strict=True))
    weights = max(float((a[name] - b[name]).abs().max())
                  for a, b in zip(ours.states, theirs.states, strict=True) for name in b)
    return loss, weights


BOUNDS = {"f32": 1e-5, "f64": 1e-10}
DTYPES = {"f32": torch.float32, "f64": torch.float64}
ZERO3 = ("--devices-per-node=2", "--set", "distributed.strategy=zero3", "--set", "training.micro_batch_size=4")


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_adamw_is_that_of_param_groups(programs, compiled, tmp_path, dtype, ranks):
    job = replace(JOB, compute_dtype=dtype)
    ours = lmc(programs, compiled, tmp_path, job, *(ZERO3 if ranks > 1 else ()), ranks=ranks)
    found = differences(ours, train(job, GROUPS, dtype=DTYPES[dtype]))
    print(f"{dtype}, {ranks} rank(s): losses {found[0]:.1e}, weights {found[1]:.1e}")
    assert max(found) < BOUNDS[dtype]


PLANTED = {
    "no group": (),
    "one group less": GROUPS[:-1],
    "no rate": tuple(replace(group, lr_mult=1.0) for group in GROUPS),
    "no decay": tuple(replace(group, weight_decay=None) for group in GROUPS),
    "a bias less": (replace(GROUPS[0], patterns=(EMBEDDING, "*[!k]_proj.bias")), *GROUPS[1:]),
    "a norm less": (GROUPS[0], replace(GROUPS[1], patterns=("*.k_proj.weight",)), GROUPS[2]),
}


@pytest.mark.parametrize("error", PLANTED)
def test_a_planted_error_is_seen(programs, compiled, tmp_path, error):
    """torch's side has the error."""
    found = differences(lmc(programs, compiled, tmp_path, JOB), train(JOB, PLANTED[error]))
    print(f"{error}: losses {found[0]:.1e}, weights {found[1]:.1e}")
    assert found[1] > 100 * BOUNDS["f32"]


def test_other_ways_to_group_ranks_and_kernels_change_little(programs, compiled, tmp_path):
    """Other strategies, and neither merged linear layers nor storages."""
    one = lmc(programs, compiled, tmp_path, replace(JOB, compute_dtype="f64"))
    ways = {"zero1": ("--set", "distributed.strategy=zero1"), "zero2": ("--set", "distributed.strategy=zero2"),
            "no_shard": ("--set", "distributed.strategy=no_shard"), "alone": ("--disable-fusion=linears,state",)}
    for way, options in ways.items():
        (tmp_path / way).mkdir()
        ranks = 1 if way == "alone" else 2
        if ranks > 1:
            options = ("--devices-per-node=2", "--set", "training.micro_batch_size=4", *options)
        found = differences(lmc(programs, compiled, tmp_path / way, replace(JOB, compute_dtype="f64"), *options, ranks=ranks), one)
        print(f"{way}: losses {found[0]:.1e}, weights {found[1]:.1e}")
        assert max(found) < 1e-12


def test_phases_have_the_groups(programs, compiled, tmp_path):
    """Each phase of a run has a program of its own, with scalars of its own."""
    phases = [("phase", {"name": "first", "steps": 4}), ("phase", {"name": "second", "steps": STEPS - 4, "micro_batch_size": 2})]
    found = differences(lmc(programs, compiled, tmp_path, replace(JOB, tables=[*JOB.tables, *phases])), train(JOB, GROUPS))
    print(f"losses {found[0]:.1e}, weights {found[1]:.1e}")
    assert max(found) < BOUNDS["f32"]


def test_muon_is_that_of_param_groups(programs, compiled, tmp_path, monkeypatch):
    """A Muon matrix with a rate and a decay of its own, and AdamW's embedding with another rate."""
    monkeypatch.setattr(_muon, "_zeropower_via_newtonschulz", in_f32())
    muon = {"type": "muon", "muon_lr": 0.02, "muon_adjust_lr_fn": "original", "muon_ns_dtype": "f32"}
    groups = (Group("keys", ("*.k_proj.*", "*.down_proj.weight"), weight_decay=0.5, lr_mult=0.25),
              Group("embeddings", (EMBEDDING,), lr_mult=3.0))
    job = with_groups(replace(PLAIN, settings={**PLAIN.settings, "optimizer": muon}), *groups)
    ours = lmc(programs, compiled, tmp_path, job)
    for name, theirs, isEqual in (("groups", groups, True), ("no rate", (replace(groups[0], lr_mult=1.0), groups[1]), False),
                                  ("no decay", (replace(groups[0], weight_decay=None), groups[1]), False)):
        found = differences(ours, train(job, theirs))
        print(f"{name}: losses {found[0]:.1e}, weights {found[1]:.1e}")
        # Newton-Schulz steps multiply differences, as test_muon.py says.
        assert (found[0] < 1e-6 and found[1] < 5e-5) == isEqual


# Its moments are in 8 bits but for the embedding's; a matrix with a group keeps codes.
CODED = with_groups(
    replace(PLAIN, settings={**PLAIN.settings, "optimizer": {"type": "adamw8bit"}}),
    Group("embeddings", (EMBEDDING, "*_proj.bias"), weight_decay=0.0, lr_mult=0.5, optim_bits=32),
    Group("keys", ("*.k_proj.weight", "model.norm.*"), weight_decay=0.4, lr_mult=2.0))


@pytest.mark.parametrize("kind", ["8 bits", "bf16", "8 bits on 2 ranks"])
def test_every_step_is_that_of_numpy(programs, compiled, tmp_path, kind):
    """From the checkpoint before each step and the gradients in between: the model's own precision does not matter."""
    job, groups = (replace(JOB, compute_dtype="bf16"), GROUPS) if kind == "bf16" else (CODED, ())
    if not groups:
        groups = tuple(Group(keys["name"], tuple(keys["parameters"]), keys["weight_decay"], keys["lr_mult"])
                       for _, keys in CODED.tables)
    ranks = 2 if kind.endswith("ranks") else 1
    plan = compiled(job, *(ZERO3 if ranks > 1 else ()))
    weights = initial(job, tmp_path)
    out = tmp_path / "run"
    programs.run("local-ranks", ranks, f"plan={plan}", f"out={out}", f"init={weights}").ok()
    lines, saved, options = metrics(out), checkpoints(out), job.optimizer
    kinds = [kind for kind in ("model", "moment1", "moment2", "moment1_scale", "moment2_scale")
             if (saved[1] / f"{kind}.safetensors").exists()]
    coded = set(load_arrays(saved[1] / "moment1_scale.safetensors")) if len(kinds) == 5 else set()
    names = job.model.shapes()
    assert coded == ({name for name, shape in names.items() if len(shape) == 2 and name != EMBEDDING} if job is CODED else set())
    worst = 0.0
    for step in range(1, STEPS + 1):
        dump = tmp_path / f"gradients-{step}.safetensors"
        begin = f"resume={saved[step - 1]}" if step > 1 else f"init={weights}"
        programs.run("local-ranks", ranks, f"plan={plan}", f"out={tmp_path / f'again-{step}'}", begin, f"steps={step}",
                     f"dump_gradients={dump}").ok()
        gradients = load_arrays(dump)
        if step > 1:
            old = {kind: load_arrays(saved[step - 1] / f"{kind}.safetensors") for kind in kinds}
        else:
            old = {"model": load_arrays(weights)}
        new = load_arrays(saved[step] / "model.safetensors")
        rate = lines[step - 1]["lr"]
        clip = min(1.0, options.clip_grad / (lines[step - 1]["grad_norm"] + 1e-6))
        for name, shape in names.items():
            g = gradients[name].astype(np.float64) * clip
            m = v = np.zeros(shape)
            if step > 1 and name in coded:
                m, v = (decode(blocks(old[f"moment{k}"][name]), old[f"moment{k}_scale"][name][:, None]).reshape(shape)
                        for k, decode in ((1, decode1), (2, decode2)))
            elif step > 1:
                m, v = (old[f"moment{k}"][name].astype(np.float64) for k in (1, 2))
            m = options.beta1 * m + (1 - options.beta1) * g
            v = options.beta2 * v + (1 - options.beta2) * g * g
            decay, factor = options_of(name, shape, options.weight_decay, groups)
            root = np.sqrt(v / (1 - options.beta2**step)) + options.eps
            p = old["model"][name].astype(np.float64)
            p = p * (1 - rate * factor * decay) - rate * factor / (1 - options.beta1**step) * m / root
            worst = max(worst, np.abs(p - new[name]).max())
    print(f"{kind}: weights {worst:.1e}")
    assert worst < 1e-5


def test_moments_of_32_bits_are_those_of_adamw(programs, compiled, tmp_path):
    """As the checkpoint has them, and in the bytes that are planned."""
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(CODED), f"--out={out}", "--steps=2").ok()
    moments = load_arrays(checkpoints(out)[2] / "moment1.safetensors")
    assert moments[EMBEDDING].dtype == np.float32 and moments["lm_head.weight"].dtype == np.int8
    report = json.loads(programs.run("lmc", "explain", compiled(CODED), "--json").ok().stdout)
    plain = replace(PLAIN, settings={**PLAIN.settings, "optimizer": {"type": "adamw8bit"}})
    without = json.loads(programs.run("lmc", "explain", compiled(plain), "--json").ok().stdout)
    rows, columns = JOB.model.shapes()[EMBEDDING]
    more = report["memory"]["by_category"]["optimizer_state"] - without["memory"]["by_category"]["optimizer_state"]
    # Storages are filled up to rows of 4096 elements.
    assert more == pytest.approx(rows * columns * (8 - 2 - 2 * 4 / BLOCK), abs=8 * 4096 * 4)


def test_a_restart_with_another_decay_and_rate(programs, compiled, tmp_path):
    """Five steps, and five with other values: without their declaration the start is refused."""
    plan, out, weights = compiled(JOB), tmp_path / "run", initial(JOB, tmp_path)
    programs.run("lmc-run", plan, f"--out={out}", f"--init={weights}", "--steps=5", "--threads=1").ok()
    decay, rate = "optimizer.group.embeddings.weight_decay", "optimizer.group.keys.lr_mult"
    changes = [f"--set={decay}=0.5", f"--set={rate}=0.25"]
    refused = programs.run("lmc-run", plan, f"--out={out}", "--threads=1", *changes, f"--change={rate}")
    print(refused.stderr)
    assert refused.code == USER_ERROR and f"{decay} is 0 there and 0.5 here" in refused.stderr
    assert f"--change={decay}" in refused.stderr and len(metrics(out)) == 5
    programs.run("lmc-run", plan, f"--out={out}", "--threads=1", *changes, "--change=optimizer.group", "--steps=7").ok()
    # A start without options repeats them.
    programs.run("lmc-run", f"--out={out}", "--threads=1").ok()
    later = (replace(GROUPS[0], weight_decay=0.5), replace(GROUPS[1], lr_mult=0.25), GROUPS[2])
    found = differences(run_of(out), train(JOB, GROUPS, later, change=5))
    print(f"losses {found[0]:.1e}, weights {found[1]:.1e}")
    assert max(found) < BOUNDS["f32"]
    assert differences(run_of(out), train(JOB, GROUPS))[1] > 100 * BOUNDS["f32"]


def test_a_decay_that_the_job_does_not_give_is_of_the_plan(programs, compiled, tmp_path):
    """The norm of the group would not decay, as it does where the TOML gives the key."""
    refused = programs.run("lmc-run", compiled(JOB), f"--out={tmp_path}", "--set=optimizer.group.slow.weight_decay=1")
    assert refused.code == USER_ERROR and "is fixed in the plan; change the TOML and compile again" in refused.stderr


def test_other_groups_are_another_identity(programs, compiled, tmp_path):
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(PLAIN), f"--out={out}", "--steps=2").ok()
    refused = programs.run("lmc-run", compiled(JOB), f"--out={out}", "--steps=3")
    assert refused.code == USER_ERROR and "optimizer.group.keys.parameters is absent there" in refused.stderr
    programs.run("lmc-run", compiled(JOB), f"--out={out}", "--steps=3", "--change=optimizer.group").ok()
    # Moments of other bits are no change that a run goes on with.
    refused = programs.run("lmc-run", compiled(CODED), f"--out={out}", "--change=optimizer")
    print(refused.stderr)
    assert refused.code == USER_ERROR and max(checkpoints(out)) == 3


def test_resuming_is_bit_identical(programs, compiled, tmp_path):
    runs = {}
    for parts in (["--steps=10"], ["--steps=4", "--steps=10"]):
        out = tmp_path / str(len(parts))
        for part in parts:
            programs.run("lmc-run", compiled(JOB), f"--out={out}", "--threads=1", part).ok()
        runs[len(parts)] = checkpoint_digest(checkpoints(out)[STEPS])
    assert runs[1] == runs[2]


def test_update_ratios_know_the_groups(programs, compiled, tmp_path):
    """As test_update_ratios.py: against consecutive checkpoints."""
    plan, weights = compiled(JOB), initial(JOB, tmp_path)
    # The save after step 5 finds no other that goes on, so that this step has a line.
    for out, background, interval in (("wait", "false", 1), ("run", "true", 5)):
        programs.run("lmc-run", plan, f"--out={tmp_path / out}", f"--init={weights}", "--threads=1",
                     f"--set=checkpoint.background={background}", f"--set=checkpoint.interval={interval}").ok()
    saved = checkpoints(tmp_path / "wait")
    lines = [json.loads(line) for line in (tmp_path / "run/updates.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["step"] > 1]
    assert lines
    worst = 0.0
    for line in lines:
        before, after = (load_file(saved[step] / "model.safetensors") for step in (line["step"] - 1, line["step"]))
        assert line["update_ratio"].keys() == after.keys()
        for name, ratio in line["update_ratio"].items():
            expected = float((after[name].double() - before[name].double()).norm() / before[name].double().norm())
            # Weights are rounded to 24 bits, which is much of a small update. Which steps have lines depends
            # on how long saves take.
            worst = max(worst, (abs(ratio - expected) - 2**-24) / expected)
    print(f"{len(lines)} steps: {worst:.1e}")
    assert worst < 1e-4


def explain(programs, plan: Path) -> dict:
    return json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)


def test_what_stays_apart_is_reported(programs, compiled):
    refused = [entry for entry in explain(programs, compiled(JOB))["fusion"]["refused"] if "groups" in entry["reason"]]
    assert [(entry["producer"], entry["consumer"]) for entry in refused] == \
        [("self_attn.q_proj", "self_attn.k_proj"), ("mlp.gate_proj", "mlp.up_proj")]
    assert {entry["reason"] for entry in refused} == {"their parameters are of different groups of the optimizer"}
    assert all(entry["bytes"] > 0 and entry["seconds"] > 0 and entry["kind"] == "siblings" for entry in refused)
    assert not [entry for entry in explain(programs, compiled(PLAIN))["fusion"]["refused"] if "groups" in entry["reason"]]
    text = programs.run("lmc", "explain", compiled(JOB), "--fusion").ok().stdout
    assert "their parameters are of different groups of the optimizer" in text


def test_mistakes_have_their_place(programs, tmp_path):
    """The names are those of the model: q_proj apart, and no head with tied embeddings."""
    def error(job: Job) -> str:
        path = job.write(tmp_path)
        done = programs.run("lmc", "compile", path, "-o", tmp_path / "job.plan")
        assert done.code == USER_ERROR and len(done.stderr.splitlines()) == 1, done.stderr
        line = path.read_text().splitlines().index(f"parameters = {json.dumps(job.tables[-1][1]['parameters'])}") + 1
        assert done.stderr.startswith(f"{path}:{line}:14: error: ")
        return done.stderr.split("error: ", 1)[1].strip()

    assert error(with_groups(PLAIN, Group("a", ("*", "*.qkv_proj.weight")))) == (
        "'*.qkv_proj.weight' names no parameter of the model; the nearest are model.layers.0.self_attn.q_proj.weight, "
        "model.layers.0.self_attn.k_proj.weight and model.layers.0.self_attn.v_proj.weight")
    tied = replace(PLAIN, model=replace(PLAIN.model, tie_word_embeddings=True))
    assert error(with_groups(tied, Group("a", ("lm_head.weight",)))).startswith(
        "'lm_head.weight' names no parameter of the model; the nearest are ")
    assert error(with_groups(PLAIN, Group("a", ("*.q_proj.*",)), Group("b", ("model.layers.1.*", EMBEDDING)))) == (
        "model.layers.1.self_attn.q_proj.bias (and 1 more) is of both [[optimizer.group]] a and [[optimizer.group]] b; change "
        "the patterns so that each parameter is of one group")


@pytest.mark.parametrize("options", [
    ["--set=memory.recompute=auto", "--memory-budget=1GiB"], ["--target=cuda:sm_90a", "--set=memory.recompute=auto"],
    ["--set=optimizer.type=adamw8bit"], ["--set=optimizer.type=muon"], ["--set=training.compute_dtype=bf16", "--target=cuda:sm_90a"]])
def test_groups_of_single_layers_are_planned(programs, tmp_path, options):
    """The search for what to recompute probes models with fewer layers, where such a pattern names nothing."""
    groups = (Group("deep", ("model.layers.7.self_attn.q_proj.weight", "model.layers.9.*norm.weight"), 0.2, 0.5),)
    job = with_groups(replace(PLAIN, model=replace(PLAIN.model, num_hidden_layers=12)), *groups)
    plan = tmp_path / "job.plan"
    programs.run("lmc", "compile", job.write(tmp_path), "-o", plan, *options).ok()
    names = [entry["consumer"] for entry in explain(programs, plan)["fusion"]["refused"] if "groups" in entry["reason"]]
    assert names == ["self_attn.k_proj"]  # v is merged with k
