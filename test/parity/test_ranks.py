"""Many ranks train what one rank trains, whatever the strategy, the mesh and the accumulation."""

import itertools
import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from draws import draw_count
from jobs import Job
from programs import checkpoint_digest, checkpoints, losses, metrics
from reference import Model, Optimizer

STRATEGIES = ("no_shard", "zero1", "zero2", "zero3", "hybrid_shard", "hybrid_shard_zero2")
MESHES = ((1, 2), (2, 2), (1, 4), (4, 1))  # nodes, devices per node
GLOBAL_BATCH = 24
STEPS = 4

# No number of ranks divides these sizes, and pieces end within rows.
ODD = Model(vocab_size=101, hidden_size=48, intermediate_size=80, num_attention_heads=2,
            num_key_value_heads=1, tie_word_embeddings=True)
JOB = Job(model=ODD, optimizer=Optimizer(decay_iters=STEPS), batch_size=GLOBAL_BATCH, train_iters=STEPS, epoch_steps=2 * STEPS,
          compute_dtype="f64", settings={"checkpoint": {"interval": 0}})


def options(strategy: str, nodes: int, devices: int, gas: int, *more: str) -> list[str]:
    mbs = GLOBAL_BATCH // (nodes * devices * gas)
    assert mbs * nodes * devices * gas == GLOBAL_BATCH
    return [f"--nodes={nodes}", f"--devices-per-node={devices}",
            "--set", f"distributed.strategy={strategy}", "--set", f"training.micro_batch_size={mbs}",
            *more]


def train(programs, compiled, out: Path, job: Job, strategy: str, nodes: int, devices: int, gas: int,
          *more: str, run: tuple[str, ...] = ()) -> Path:
    """Compiles and trains with the ranks as threads. Asserts that so many ranks took part."""
    ranks = nodes * devices
    plan = compiled(job, *options(strategy, nodes, devices, gas, *more))
    programs.run("local-ranks", ranks, f"plan={plan}", f"out={out}",
                 f"dump_gradients={out}.gradients", *run).ok()
    assert f"x {ranks} rank(s)" in (out / "log.txt").read_text()
    logs = sorted(int(path.parent.name) for path in out.glob("ranks/*/log.txt"))
    assert logs == list(range(1, ranks)), "every rank but the first has a log of its own"
    return out


def gradient_difference(ours: Path, theirs: Path) -> float:
    """The largest difference, relative to the tensor's largest entry."""
    a, b = (load_file(f"{out}.gradients") for out in (ours, theirs))
    assert a.keys() == b.keys() and a
    return max(float((a[name] - b[name]).abs().max() / b[name].abs().max()) for name in a)


def validation_losses(out: Path) -> list[float]:
    return [row["validation_loss"] for row in metrics(out) if row.get("validation_loss") is not None]


def relative(ours: list[float], theirs: list[float]) -> float:
    assert len(ours) == len(theirs) and theirs
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


@pytest.fixture(scope="module")
def reference(programs, compiled, tmp_path_factory):
    """reference(job) -> the folder of the job's run on one rank."""
    runs: dict[str, Path] = {}

    def run(job: Job, *more: str) -> Path:
        key = job.toml() + str(more)
        if key not in runs:
            runs[key] = train(programs, compiled, tmp_path_factory.mktemp("one") / "run", job,
                              "no_shard", 1, 1, 3, *more)
        return runs[key]

    return run


def with_validation(job: Job) -> Job:
    # The training data serves: a loss of any tokens will do.
    settings = {**job.settings, "data": {**job.settings.get("data", {}), "validation": ["train.bin"]},
                "monitoring": {"validation_interval": 2, "validation_iters": 2}}
    return replace(job, settings=settings)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_mesh_and_accumulation_equals_one_rank_in_f64(
        programs, compiled, reference, tmp_path, strategy):
    job = with_validation(JOB)
    one = reference(job)
    assert len(validation_losses(one)) == 2
    for (nodes, devices), gas in itertools.product(MESHES, (1, 3)):
        reduce = ("each", "last")[gas % 2 if nodes == 1 else (gas + 1) % 2] if gas > 1 else "auto"
        many = train(programs, compiled, tmp_path / f"{nodes}x{devices}x{gas}", job, strategy, nodes,
                     devices, gas, "--set", f"distributed.reduce_gradients={reduce}")
        found = (relative(losses(many), losses(one)),
                 relative(validation_losses(many), validation_losses(one)),
                 gradient_difference(many, one))
        print(f"{strategy} {nodes}x{devices} GAS {gas} {reduce}: losses {found[0]:.1e}, "
              f"validation {found[1]:.1e}, gradients {found[2]:.1e}")
        assert max(found) < 1e-12


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_f32_is_as_near_as_f32_can_be(programs, compiled, reference, tmp_path, strategy):
    job = with_validation(replace(JOB, compute_dtype="f32"))
    one = reference(job)
    for (nodes, devices), gas in (((2, 2), 1), ((1, 4), 3)):
        many = train(programs, compiled, tmp_path / f"{nodes}x{devices}", job, strategy, nodes,
                     devices, gas)
        found = (relative(losses(many), losses(one)),
                 relative(validation_losses(many), validation_losses(one)),
                 gradient_difference(many, one))
        print(f"{strategy} {nodes}x{devices} GAS {gas}: losses {found[0]:.1e}, validation "
              f"{found[1]:.1e}, gradients {found[2]:.1e}")
        assert max(found[:2]) < 1e-6 and found[2] < 5e-6


# Each pair is a kind of job, and the bounds of its losses and of its gradients.
KINDS = {
    "bf16": (replace(JOB, compute_dtype="bf16"), (), 5e-5, 5e-6),
    "8-bit AdamW": (replace(JOB, compute_dtype="f32", optimizer=Optimizer(decay_iters=STEPS)),
                    ("--set", "optimizer.type=adamw8bit"), 2e-6, 5e-6),
    "document mask": (replace(JOB, settings={
        **JOB.settings, "data": {"end_of_document": 7}, "training": {"document_mask": True}}),
        (), 1e-12, 1e-12),
    "recompute": (JOB, ("--set", "memory.recompute=block"), 1e-12, 1e-12),
    "kept weights": (JOB, ("--set", "distributed.reshard_after_forward=no"), 1e-12, 1e-12),
    "biases": (replace(JOB, model=replace(ODD, attention_bias=True)), (), 1e-12, 1e-12),
    # With ODD, padding keeps sums of gradients from lying where the gradients do.
    "sizes without padding": (replace(JOB, model=replace(ODD, vocab_size=128, hidden_size=64,
                                                         intermediate_size=128)), (), 1e-12, 1e-12),
    "gradients reduced in bf16": (replace(JOB, compute_dtype="f32"),
                                  ("--set", "distributed.reduce_dtype=bf16"), 5e-5, 2e-2),
    "gradients reduced in f16": (replace(JOB, compute_dtype="f32"),
                                 ("--set", "distributed.reduce_dtype=f16"), 1e-5, 2e-3),
    "gradients of f64 keep f64": (JOB, ("--set", "distributed.reduce_dtype=f16"), 1e-12, 1e-12),
}


def test_kept_weights_change_no_bit(programs, compiled, tmp_path):
    runs = [train(programs, compiled, tmp_path / reshard, replace(JOB, compute_dtype="f32"), "zero3", 1, 4, 3,
                  "--set", f"distributed.reshard_after_forward={reshard}") for reshard in ("yes", "no", "auto")]
    for other in runs[1:]:
        assert losses(other) == losses(runs[0]) and gradient_difference(other, runs[0]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_job(programs, compiled, reference, tmp_path, kind):
    job, more, loss_bound, gradient_bound = KINDS[kind]
    one = reference(job, *more)
    for strategy, (nodes, devices), gas in (("zero3", (1, 4), 3), ("hybrid_shard", (2, 2), 1),
                                            ("zero1", (1, 3), 2), ("no_shard", (2, 1), 3)):
        many = train(programs, compiled, tmp_path / strategy, job, strategy, nodes, devices, gas, *more)
        found = relative(losses(many), losses(one)), gradient_difference(many, one)
        print(f"{kind}, {strategy} {nodes}x{devices} GAS {gas}: losses {found[0]:.1e}, gradients "
              f"{found[1]:.1e}")
        assert found[0] < loss_bound and found[1] < gradient_bound


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_memory_of_a_rank_is_what_the_plan_says(programs, compiled, tmp_path, strategy):
    """lmc-run itself compares what each rank has allocated with the plan, and ends if they differ."""
    job = replace(JOB, compute_dtype="bf16")
    out = train(programs, compiled, tmp_path / "run", job, strategy, 2, 2, 3)
    plan = compiled(job, *options(strategy, 2, 2, 3))
    planned = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)["memory"]["peak_bytes"]
    print(f"{strategy}: {planned} bytes")
    assert {row["memory_bytes"] for row in metrics(out)} == {planned}


def draw_job(seed: int) -> tuple[Job, str, tuple[int, int], int, list[str]]:
    """A job, a strategy, a mesh, GAS, and options of the compiler."""
    draw = random.Random(seed)
    heads = draw.choice((1, 2, 4))
    head_dim = draw.choice((8, 16, 24))
    model = Model(
        architecture=draw.choice(("llama", "mistral")), vocab_size=draw.randrange(32, 300),
        hidden_size=heads * head_dim * draw.choice((1, 2)), head_dim=head_dim,
        intermediate_size=draw.randrange(8, 200), num_hidden_layers=draw.randrange(1, 4),
        num_attention_heads=heads, num_key_value_heads=draw.choice([n for n in (1, 2, 4) if heads % n == 0]),
        tie_word_embeddings=draw.random() < 0.5, sliding_window=0)
    if model.architecture == "mistral":
        model = replace(model, sliding_window=draw.choice((0, 5, 16)))
    else:
        model = replace(model, attention_bias=draw.random() < 0.3)
    nodes, devices = draw.choice(((1, 2), (2, 1), (1, 3), (3, 1), (2, 2), (1, 4), (3, 2), (2, 3)))
    gas, mbs = draw.choice((1, 2, 3)), draw.choice((1, 2))
    strategy = draw.choice(STRATEGIES)
    group = "auto"
    if strategy != "no_shard" and not strategy.startswith("hybrid"):
        group = draw.choice(["auto"] + [str(n) for n in range(2, nodes * devices + 1)
                                        if nodes * devices % n == 0])
    job = replace(JOB, model=model, batch_size=nodes * devices * gas * mbs, micro_batch_size=mbs,
                  sequence_length=draw.choice((8, 17, 32)), seed=seed)
    more = [f"--nodes={nodes}", f"--devices-per-node={devices}"]
    for key, value in (("strategy", strategy), ("shard_group", group),
                       ("reduce_gradients", draw.choice(("auto", "each", "last"))),
                       ("reshard_after_forward", draw.choice(("auto", "yes", "no"))),
                       ("overlap", draw.choice(("yes", "no", "auto")))):
        more += ["--set", f"distributed.{key}={value}"]
    more += ["--set", f"memory.recompute={draw.choice(('none', 'block', 'auto'))}"]
    return job, strategy, (nodes, devices), gas, more


def test_drawn_models_on_drawn_meshes(programs, compiled, tmp_path):
    for seed in range(draw_count(10)):
        job, strategy, (nodes, devices), gas, more = draw_job(seed)
        one, many = tmp_path / f"{seed}-one", tmp_path / f"{seed}-many"
        mbs = job.batch_size
        plan = compiled(job, "--set", f"training.micro_batch_size={mbs}")
        programs.run("local-ranks", 1, f"plan={plan}", f"out={one}",
                     f"dump_gradients={one}.gradients").ok()
        plan = compiled(job, *more)
        programs.run("local-ranks", nodes * devices, f"plan={plan}", f"out={many}",
                     f"dump_gradients={many}.gradients").ok()
        found = relative(losses(many), losses(one)), gradient_difference(many, one)
        print(f"{seed}: {job.model}, {nodes}x{devices} GAS {gas} {' '.join(more[2:])}: losses "
              f"{found[0]:.1e}, gradients {found[1]:.1e}")
        assert max(found) < 1e-12


@pytest.mark.parametrize("strategy", ("hybrid_shard", "zero1"))
def test_runs_agree_bit_for_bit_with_and_without_overlap(programs, compiled, tmp_path, strategy):
    job = replace(JOB, compute_dtype="bf16")
    digests = []
    for number, overlap in enumerate(("yes", "yes", "gathers", "no")):
        out = train(programs, compiled, tmp_path / str(number), job, strategy, 2, 2, 3,
                    "--set", f"distributed.overlap={overlap}")
        digests.append((losses(out), checkpoint_digest(checkpoints(out)[STEPS])))
    assert digests.count(digests[0]) == 4


def test_a_checkpoint_of_four_ranks_goes_on_on_any_number(programs, compiled, tmp_path):
    """Saved with ZeRO-3 on 4 ranks, resumed on 1, 2, 3 and 4 with other strategies and
    accumulation: the next ten losses agree."""
    job = replace(JOB, compute_dtype="f32", train_iters=STEPS + 10, epoch_steps=2 * STEPS + 20)
    saved = train(programs, compiled, tmp_path / "saved", job, "zero3", 1, 4, 3, run=(f"steps={STEPS}",))
    whole = train(programs, compiled, tmp_path / "whole", job, "no_shard", 1, 1, 1)
    for strategy, (nodes, devices), gas in (("no_shard", (1, 1), 3), ("zero1", (1, 2), 2),
                                            ("zero2", (3, 1), 1), ("hybrid_shard", (2, 2), 3)):
        out = tmp_path / f"{nodes}x{devices}"
        shutil.copytree(saved, out)
        shutil.rmtree(out / "ranks")
        train(programs, compiled, out, job, strategy, nodes, devices, gas)
        rows = metrics(out)
        assert [row["step"] for row in rows] == list(range(1, STEPS + 11))
        difference = relative(losses(out)[STEPS:], losses(whole)[STEPS:])
        print(f"{strategy} {nodes}x{devices} GAS {gas}: {difference:.1e}")
        assert difference < 1e-6
        state = json.loads((out / "checkpoints" / str(STEPS + 10) / "state.json").read_text())
        assert state["state"]["samples"] == (STEPS + 10) * GLOBAL_BATCH


def test_an_export_of_many_ranks_is_that_of_one(programs, compiled, tmp_path):
    """The export of a plan that divides its weights holds them as its checkpoint does."""
    out = train(programs, compiled, tmp_path / "run", replace(JOB, compute_dtype="f32"), "zero3", 1, 4,
                3, run=(f"export={tmp_path}/hf",))
    weights = load_file(checkpoints(out)[STEPS] / "model.safetensors")
    exported = load_file(tmp_path / "hf/model.safetensors")
    assert exported.keys() == weights.keys()
    assert all(exported[name].equal(weights[name]) for name in weights)
    assert not list(tmp_path.glob("*.partial"))


def test_bench_and_eval_run_on_all_ranks(programs, compiled, reference, tmp_path):
    job = with_validation(JOB)
    plan = compiled(job, *options("zero3", 2, 2, 3))
    out = train(programs, compiled, tmp_path / "run", job, "zero3", 2, 2, 3)
    done = programs.run("local-ranks", 4, f"plan={plan}", f"out={out}", "eval=1").ok()
    found = json.loads(done.stdout)
    assert relative([found["validation_loss"]], validation_losses(out)[-1:]) < 1e-12
    done = programs.run("local-ranks", 4, f"plan={plan}", "bench=2").ok()
    assert "bench: 2 steps" in done.stdout


def test_ranks_that_do_not_match_the_plan_are_refused(programs, compiled, tmp_path):
    plan = compiled(JOB, *options("zero3", 1, 4, 1))
    done = programs.run("lmc-run", plan, f"--out={tmp_path}/run")
    assert done.code == 2 and "compiled for 4 rank(s) (1 x 4), and one was started" in done.stderr
    assert "--nproc=4" in done.stderr
    done = programs.run("local-ranks", 2, f"plan={plan}", f"out={tmp_path}/run")
    assert done.code == 2 and "and 2 were started" in done.stderr


def test_a_rank_that_was_given_other_settings_is_refused(programs, compiled, tmp_path):
    plan = compiled(JOB, *options("zero3", 1, 4, 1))
    done = programs.run("local-ranks", 4, f"plan={plan}", f"out={tmp_path}/run",
                        "rank2_set=lr_schedule.lr=0.5")
    assert done.code == 2
    assert "rank 2: it differs from rank 0" in done.stderr and "lr_schedule.lr" in done.stderr
    assert not (tmp_path / "run/metrics.jsonl").exists()
