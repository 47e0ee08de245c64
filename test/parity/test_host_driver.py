"""lmc-run on the host driver (test/hostdriver): the CUDA device, proved without a GPU.

Kernels run from their source text, streams in an adversarial order that a seed decides, and calls
fail where a test asks for it. The host driver reports what broke a rule, and what was not released.
"""

import itertools
import json
import os
import random
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from draws import draw_count
from jobs import Job
from programs import (DOES_NOT_FIT, FAILURE, SUCCESS, USER_ERROR, Programs, checkpoint_digest,
                      checkpoints, losses, metrics)
from reference import Model, Optimizer

LIBRARIES = Path(os.environ.get("LMC_BUILD", Path(__file__).resolve().parents[2] / "build")) / "lib"
pytestmark = pytest.mark.skipif(
    not (LIBRARIES / "libcuda-host.so").exists(),
    reason="the host driver is not built: it needs the headers of a CUDA toolkit",
)

TARGET = "--target=cuda:sm_90a"


def job_of(accumulation: int, dtype: str = "bf16", biases: bool = False, vocab_size: int = 128,
           **changes) -> Job:
    """Four steps, with micro-steps of 2 sequences of 32 tokens."""
    return Job(
        model=Model(vocab_size=vocab_size, tie_word_embeddings=True, attention_bias=biases,
                    mlp_bias=biases), sequence_length=32,
        micro_batch_size=2, batch_size=2 * accumulation, compute_dtype=dtype,
        optimizer=Optimizer(warmup_iters=1, decay_iters=4), train_iters=4, **changes,
    )


# The smallest job that has every function of a plan, a validation, and a checkpoint.
SMALL = Job(
    model=Model(vocab_size=128, num_hidden_layers=1, tie_word_embeddings=True), sequence_length=32,
    micro_batch_size=1, batch_size=2, train_iters=1, compute_dtype="bf16",
    optimizer=Optimizer(warmup_iters=0, decay_iters=1),
    settings={"data": {"validation": ["train.bin"]}, "checkpoint": {"interval": 1},
              "monitoring": {"validation_interval": 1, "validation_iters": 1}},
)


@dataclass
class Run:
    code: int
    errors: list[str]  # the lines of lmc-run's stderr that are errors
    stderr: str
    report: dict  # of the host driver
    out: Path

    def ok(self) -> "Run":
        assert self.code == SUCCESS, self.stderr
        return self.clean()

    def clean(self) -> "Run":
        assert self.report["violations"] == [], self.stderr
        assert {k: n for k, n in self.report["leaks"].items() if n} == {}, self.stderr
        return self


@pytest.fixture
def host(programs: Programs, tmp_path):
    """host(plan, options of lmc-run, seed=..., what else the host driver is asked for) -> Run"""
    numbers = itertools.count()

    def run(plan: Path, *options: str, out: Path | None = None, **asked: object) -> Run:
        number = next(numbers)
        folder = out or tmp_path / f"run{number}"
        report = tmp_path / f"report{number}.json"
        environment = {
            "LMC_GEMM": "default",
            "LMC_CUDA_DRIVER": str(LIBRARIES / "libcuda-host.so"),
            "LMC_CUBLASLT": str(LIBRARIES / "libcublaslt-host.so"),
            "LMC_HOST_REPORT": str(report),
            **{name if name.isupper() else f"LMC_HOST_{name.upper()}": str(value)
               for name, value in asked.items()},
        }
        done = subprocess.run(
            programs.command("lmc-run", plan, f"--out={folder}", *options), text=True,
            env={**os.environ, **environment}, capture_output=True, timeout=300,
        )
        errors = [line for line in done.stderr.splitlines() if line.startswith("lmc-run: error")]
        return Run(done.returncode, errors, done.stderr, json.loads(report.read_text()), folder)

    return run


def state_of(out: Path) -> dict[str, str]:
    """All bits that a run computed: every metric that is no time, and its last checkpoint."""
    steps = [{k: v for k, v in line.items() if k in ("step", "loss", "grad_norm", "update_ratio")}
             for line in metrics(out)]
    return {"steps": json.dumps(steps), **checkpoint_digest(list(checkpoints(out).values())[-1])}


# Relative: of losses, of the norm of all gradients, and of each gradient as a vector. The largest
# differences seen are 3.4e-4, 4.9e-3 and 1.7e-2 in bf16, and 0, 4.6e-7 and 1.4e-6 in f32.
TOLERANCES = {"bf16": (1e-3, 1.5e-2, 4e-2), "f32": (1e-6, 2e-6, 5e-6)}


@pytest.mark.parametrize("accumulation, dtype, biases", [
    (1, "bf16", False), (2, "bf16", False), (4, "bf16", False), (2, "f32", False),
    (2, "bf16", True), (2, "f32", True)])
def test_trains_as_the_cpu_does(programs, compiled, host, tmp_path, accumulation, dtype, biases):
    job = job_of(accumulation, dtype, biases)
    programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'cpu'}").ok()
    gpu = host(compiled(job, TARGET)).ok()
    loss, norm, _ = TOLERANCES[dtype]
    assert losses(gpu.out) == pytest.approx(losses(tmp_path / "cpu"), rel=loss)
    norms = [[line["grad_norm"] for line in metrics(out)] for out in (gpu.out, tmp_path / "cpu")]
    assert norms[0] == pytest.approx(norms[1], rel=norm)


def fp8_job(accumulation: int, mode: str = "tensor", **changes) -> Job:
    job = job_of(accumulation, settings={"training": {"fp8": mode}}, **changes)
    if mode == "block":  # blocks have 128 elements
        wide = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 64}
        job = replace(job, model=replace(job.model, **wide), micro_batch_size=4, batch_size=4 * accumulation)
    return job


def with_experts(job: Job, count: int) -> Job:
    return replace(job, model=replace(job.model, architecture="mixtral", num_local_experts=count, num_experts_per_tok=2,
                                      tie_word_embeddings=False))


# What a plan casts, and what one does that keeps the codes of inputs, as there is memory for them. The gradient of a bias
# reads that of SwiGLU, too, so that it is stored.
CASTS = {
    "tensor": {"transpose", "quantize_transposed"}, "tensor kept": {"quantize_transposed"},
    "block": {"norm_quantize_rows", "norm_quantize_columns", "quantize_rows", "quantize_columns", "quantize_rows_columns",
              "quantize_tiles", "quantize_tiles_both"},
    "block kept": {"norm_quantize_rows", "norm_quantize_columns", "quantize_rows_columns", "swiglu_quantize",
                   "swiglu_grad_quantize"},
}


@pytest.mark.parametrize("mode, accumulation, dtype, biases, arch", [
    ("tensor", 1, "f32", False, "sm_90a"), ("tensor", 3, "f32", False, "sm_90a"), ("tensor", 2, "f32", True, "sm_90"),
    ("tensor kept", 2, "bf16", False, "sm_90a"), ("block", 1, "f32", True, "sm_90a"),
    ("block kept", 3, "f32", False, "sm_90a"), ("block kept", 2, "bf16", False, "sm_90a")])
def test_trains_8_bit_floats_as_the_cpu_does(programs, compiled, host, tmp_path, mode, accumulation, dtype, biases, arch):
    """The GPU's products need transposed codes. With graphs and without, each bit is the same. What the CPU rounds to
    another bf16, in one of 16 cases also has another code, so that losses in bf16 differ as much as by 8-bit floats."""
    job = fp8_job(accumulation, mode.split()[0], dtype=dtype, biases=biases)
    programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'cpu'}").ok()
    kept = ["--set", "memory.recompute=auto"] if "kept" in mode else []
    plan = compiled(job, f"--target=cuda:{arch}", *kept)
    explained = json.loads(programs.run("lmc", "explain", plan, "--json").stdout)
    commands = [c for f in explained["functions"] for c in f["commands"]]
    assert CASTS[mode] <= {c["kind"] for c in commands}
    assert any(c["kind"] == "gemm" and c["dtype"].startswith("f8") for c in commands)
    gpu = host(plan, seed=1).ok()
    ours, theirs = losses(gpu.out), losses(tmp_path / "cpu")
    print(ours, theirs)
    assert ours == pytest.approx(theirs, rel=1e-3 if dtype == "f32" else 5e-3)
    assert state_of(host(plan, "--no-cuda-graphs", seed=2).ok().out) == state_of(gpu.out)


@pytest.mark.parametrize("arch, dtype", [("sm_90a", "bf16"), ("sm_90a", "f32"), ("sm_90", "bf16")])
def test_trains_experts_of_8_bits_as_the_cpu_does(programs, compiled, host, tmp_path, arch, dtype):
    """In the backward pass the GPU reads the transposes of experts' weights, one beside the other. Behind the first step, another
    rounding gives some tokens other experts."""
    job = with_experts(fp8_job(2, "block", dtype=dtype), 4)
    programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'cpu'}").ok()
    plan = compiled(job, f"--target=cuda:{arch}")
    explained = json.loads(programs.run("lmc", "explain", plan, "--json").stdout)
    kinds = {c["kind"] for f in explained["functions"] for c in f["commands"]}
    assert "expert_scaled_linear" in kinds and "expert_linear" not in kinds
    gpu = host(plan, seed=1).ok()
    ours, theirs = losses(gpu.out), losses(tmp_path / "cpu")
    print(ours, theirs)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5 if dtype == "f32" else 1e-3)
    assert ours == pytest.approx(theirs, rel=4e-2)
    assert state_of(host(plan, "--no-cuda-graphs", seed=2).ok().out) == state_of(gpu.out)


@pytest.mark.parametrize("mode, accumulation, dtype", [
    ("none", 1, "f32"), ("tensor", 3, "f32"), ("block", 2, "f32"), ("none", 2, "bf16"), ("tensor", 2, "bf16")])
def test_trains_from_kept_8_bit_floats_as_the_cpu_does(programs, compiled, host, tmp_path, mode, accumulation, dtype):
    job = fp8_job(accumulation, mode, dtype=dtype)
    job = replace(job, settings={**job.settings, "memory": {"store": "fp8"}})
    programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'cpu'}").ok()
    plan = compiled(job, TARGET)
    gpu = host(plan, seed=1).ok()
    ours, theirs = losses(gpu.out), losses(tmp_path / "cpu")
    print(ours, theirs)
    assert ours == pytest.approx(theirs, rel=1e-3 if dtype == "f32" else 5e-3)
    assert state_of(host(plan, "--no-cuda-graphs", seed=2).ok().out) == state_of(gpu.out)


@pytest.mark.parametrize("accumulation, mode, experts", [(1, "tensor", 0), (3, "tensor", 0), (1, "block", 0), (3, "block", 0),
                                                         (1, "block", 4), (3, "block", 4)])
def test_gradients_of_8_bit_floats_are_the_cpus(programs, compiled, host, tmp_path, accumulation, mode, experts):
    """In f32 both compute the same codes, but where sums in another order lie on both sides of a limit. One such code
    changes later ones of its token; 8-bit floats themselves change gradients by 0.13."""
    job = fp8_job(accumulation, mode, dtype="f32")
    if experts:
        job = with_experts(job, experts)
    programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'cpu'}", "--steps=1",
                 f"--dump-gradients={tmp_path / 'cpu.safetensors'}").ok()
    host(compiled(job, TARGET), "--steps=1", f"--dump-gradients={tmp_path / 'gpu.safetensors'}").ok()
    gpu, cpu = (load_file(tmp_path / f"{name}.safetensors") for name in ("gpu", "cpu"))
    errors = {name: float((gpu[name] - expected).norm() / expected.norm()) for name, expected in cpu.items()}
    print(errors)
    assert max(errors.values()) < (1e-3 if mode == "tensor" else 4e-2)


def test_attention_by_warpgroups_trains_as_by_mma_sync(programs, compiled, host, tmp_path):
    """The same losses, and the same memory: sm_90 has no wgmma, and sm_90a has. Sequences have several tiles."""
    job = replace(job_of(1), sequence_length=128)
    by, planned = {}, {}
    for arch in ("sm_90", "sm_90a"):
        plan = compiled(job, f"--target=cuda:{arch}", "--disable-fusion=swiglu")  # of sm_90a alone
        text = programs.run("lmc", "explain", plan, "--extract-kernel=attention").stdout
        assert ("attentionForwardGroups" in text) == (arch == "sm_90a")
        planned[arch] = json.loads(programs.run("lmc", "explain", plan, "--json").stdout)["memory"]
        by[arch] = losses(host(plan, seed=1).ok().out)
    assert planned["sm_90"] == planned["sm_90a"]
    print(f"losses {by}")
    assert by["sm_90a"] == pytest.approx(by["sm_90"], rel=1e-6)


def test_says_how_large_graphs_are(compiled, host):
    """A graph of many nodes takes seconds to make on a GPU: the log has both."""
    gpu = host(compiled(job_of(4), TARGET)).ok()
    graphs = dict(re.findall(r"graph: (\w+) has (\d+) nodes, captured in \d+\.\d\d s", (gpu.out / "log.txt").read_text()))
    assert graphs.keys() == {"micro_first", "micro", "micro_last", "optimizer", "eval"}
    assert all(int(nodes) > 0 for nodes in graphs.values())
    eager = host(compiled(job_of(4), TARGET), "--no-cuda-graphs").ok()
    assert "graph: " not in (eager.out / "log.txt").read_text()


def test_steps_with_muon_as_the_cpu_does(programs, compiled, host, tmp_path):
    """In f32: the signs of small singular values are the same on both."""
    job = job_of(2, dtype="f32", settings={"optimizer": {"type": "muon", "muon_ns_dtype": "f32"}})
    programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'cpu'}").ok()
    gpu = host(compiled(job, TARGET)).ok()
    expected = losses(tmp_path / "cpu")
    assert losses(gpu.out) == pytest.approx(expected, rel=1e-5)
    theirs, ours = (load_file(checkpoints(out)[4] / "model.safetensors") for out in (tmp_path / "cpu", gpu.out))
    assert all(float((ours[name] - w).abs().max()) < 1e-4 for name, w in theirs.items())


@pytest.mark.parametrize("seed", [1, 2])
def test_generates_the_text_that_the_cpu_does(programs, compiled, host, tmp_path, seed):
    """With graphs, in any order of streams; tokens are bytes."""
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40)
    programs.run("lmc-data", "pack", tmp_path / "text.txt", "-o", tmp_path / "bytes.bin").ok()
    (tmp_path / "prompts.txt").write_text("the quick\nover\nz\n")
    job = job_of(2, "f32", vocab_size=256, settings={
        "data": {"train": [str(tmp_path / "bytes.bin")]}, "checkpoint": {"interval": 2},
        "generation": {"prompts": str(tmp_path / "prompts.txt"), "interval": 2, "max_new_tokens": 6}})
    programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'cpu'}").ok()
    gpu = host(compiled(job, TARGET), seed=seed).ok()
    texts = (tmp_path / "cpu" / "generated.jsonl").read_text()
    assert texts.count("\n") == 2 * 3 and (gpu.out / "generated.jsonl").read_text() == texts



@pytest.mark.parametrize("dtype, biases", [("bf16", False), ("f32", False), ("bf16", True),
                                           ("f32", True)])
def test_gradients_are_the_cpus(programs, compiled, host, tmp_path, dtype, biases):
    job = job_of(2, dtype, biases)
    programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'cpu'}",
                 f"--dump-gradients={tmp_path / 'cpu.safetensors'}").ok()
    host(compiled(job, TARGET), f"--dump-gradients={tmp_path / 'gpu.safetensors'}").ok()
    gpu, cpu = (load_file(tmp_path / f"{name}.safetensors") for name in ("gpu", "cpu"))
    assert gpu.keys() == cpu.keys()
    for name, expected in cpu.items():
        difference = (gpu[name] - expected).norm() / expected.norm()
        assert difference < TOLERANCES[dtype][2], f"{name}: {difference}"


def test_accumulation_under_graphs_loses_no_micro_batch(compiled, host, tmp_path):
    """What stopped a user of torch.compile who accumulated gradients over CUDA graphs:

        Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run

    A later graph had overwritten the gradients of an earlier one. Here they are added to main
    gradients at addresses of their own: four replayed micro-batches give the gradients of one
    batch of four times the size, at each step.
    """
    gradients = []
    for accumulation, size in ((4, 2), (1, 8)):
        job = Job(
            model=Model(vocab_size=128, tie_word_embeddings=True), sequence_length=32,
            micro_batch_size=size, batch_size=8, compute_dtype="f32",
            optimizer=Optimizer(warmup_iters=1, decay_iters=2), train_iters=2,
        )
        file = tmp_path / f"{accumulation}.safetensors"
        run = host(compiled(job, TARGET), f"--dump-gradients={file}").ok()
        gradients.append((load_file(file), losses(run.out)))
    (accumulated, several), (whole, one) = gradients
    assert several == pytest.approx(one, rel=2e-6)
    for name, gradient in whole.items():
        difference = (accumulated[name] - gradient).norm() / gradient.norm()
        assert difference < TOLERANCES["f32"][2], (name, difference)
        assert gradient.norm() > 0


OPTIONS = [(), ("--no-cuda-graphs",), ("--no-cuda-graphs", "--check-commands")]


@pytest.mark.parametrize("accumulation", [4, 1, 2, 8][:draw_count(1)])
def test_graphs_and_eager_give_the_same_bits_in_drawn_schedules(compiled, host, accumulation):
    plan = compiled(job_of(accumulation), TARGET)
    expected = state_of(host(plan).ok().out)

    def one(seed: int) -> None:
        options = OPTIONS[seed % len(OPTIONS)]
        assert state_of(host(plan, *options, seed=seed).ok().out) == expected, (options, seed)

    seeds = range(2, 2 + max(len(OPTIONS), draw_count(5)))
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        list(workers.map(one, seeds))
    print(f"GAS {accumulation}: {len(seeds)} schedules")


def test_resumes_with_the_same_bits(compiled, host, tmp_path):
    plan = compiled(job_of(2, settings={"checkpoint": {"interval": 2}}), TARGET)
    expected = state_of(host(plan).ok().out)
    out = tmp_path / "resumed"
    host(plan, "--steps=2", out=out, seed=2).ok()
    host(plan, out=out, seed=3).ok()
    assert state_of(out) == expected


def test_changes_from_one_phase_to_the_next(programs, compiled, host, tmp_path):
    """Each phase opens the device anew: nothing of the one before is left there."""
    phases = [("phase", {"name": "short", "steps": 2, "sequence_length": 16}),
              ("phase", {"name": "long", "steps": 2, "micro_batch_size": 1})]
    job = job_of(2, "f32", tables=phases)
    programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'cpu'}").ok()
    gpu = host(compiled(job, TARGET)).ok()
    assert [line["phase"] for line in metrics(gpu.out)] == ["short"] * 2 + ["long"] * 2
    assert losses(gpu.out) == pytest.approx(losses(tmp_path / "cpu"), rel=TOLERANCES["f32"][0])


def test_keeps_the_products_that_it_has_chosen(compiled, host, tmp_path):
    """Timings differ from run to run, and every algorithm gives other bits. A run that goes on
    takes the choice of its folder, on a machine whose cache knows nothing."""
    plan = compiled(job_of(2, settings={"checkpoint": {"interval": 2}}), TARGET)

    def measured(seed: int, *options: str, **asked: object) -> Run:
        cache = tmp_path / f"cache{seed}"
        return host(plan, *options, seed=seed, LMC_GEMM="measure", XDG_CACHE_HOME=cache, **asked).ok()

    expected = state_of(measured(1).out)
    assert state_of(measured(2).out) != expected, "another choice does not show"
    out = tmp_path / "resumed"
    measured(1, "--steps=2", out=out)
    measured(3, out=out)
    assert state_of(out) == expected


WITH_SWIGLU = ("cuBLASLt with SwiGLU behind it", "lmc swiglu_gemm")


def swiglus(folder: Path) -> dict[str, str]:
    """The choices of a run for products with SwiGLU: product -> implementation."""
    kept = json.loads((folder / "gemm.json").read_text())["choices"]
    return {choice["product"]: choice["implementation"] for choice in kept if "swiglu" in choice["product"]}


def test_products_with_swiglu_are_computed_in_the_faster_way(compiled, host, tmp_path):
    """Without measuring that is cuBLASLt's product and the kernel behind it. A run keeps its ways, which give other
    bits, where other ways would be faster, and on a machine whose cache knows nothing."""
    plan = compiled(job_of(2, settings={"checkpoint": {"interval": 2}}), TARGET)
    default = host(plan).ok()
    assert set(swiglus(default.out).values()) == {WITH_SWIGLU[0]}

    def measured(*options: str, number: int, slow: str, **asked: object) -> Run:
        return host(plan, *options, LMC_GEMM="measure", XDG_CACHE_HOME=tmp_path / f"cache{number}",
                    slow_kernel=slow, **asked).ok()

    expected = {"linear_swiglu": {"swiglu": 0, "swiglu gradient": 1},
                "swiglu_linear_grad": {"swiglu": 1, "swiglu gradient": 0},
                "linear_swiglu_rows": {"swiglu": 1, "swiglu gradient": 1}}
    runs = {}
    for number, (slow, ways) in enumerate(expected.items()):
        run = runs[slow] = measured(number=number, slow=slow)
        assert losses(run.out) == pytest.approx(losses(default.out), rel=TOLERANCES["bf16"][0])
        taken = swiglus(run.out)
        assert len(taken) == 3  # forward, of eval too, and backward
        for kind, way in ways.items():
            assert WITH_SWIGLU[way] in {by for product, by in taken.items()
                                      if product.endswith((f" {kind}", f" {kind}, both"))}, (slow, taken)
    whole = runs["linear_swiglu_rows"]
    assert state_of(whole.out) != state_of(default.out)
    out = tmp_path / "resumed"
    measured("--steps=2", number=3, slow="linear_swiglu_rows", out=out)
    measured(number=4, slow="linear_swiglu", out=out)
    assert swiglus(out) == swiglus(whole.out) and state_of(out) == state_of(whole.out)


def test_leaves_out_a_kernel_of_swiglu_that_computes_wrong_results(compiled, host, tmp_path):
    """Also where the run's folder wants it."""
    plan = compiled(job_of(1, settings={"checkpoint": {"interval": 0}}), TARGET)
    wrong = {"wrong_kernel": "swiglu_linear_grad", "slow_kernel": "swiglu_linear_grad_rows"}
    run = host(plan, "--steps=1", LMC_GEMM="measure", XDG_CACHE_HOME=tmp_path / "cache", **wrong).ok()

    def check() -> None:
        taken = swiglus(run.out)
        assert {by for product, by in taken.items() if " swiglu gradient" in product} == {WITH_SWIGLU[0]}
        said = (run.out / "log.txt").read_text()
        assert re.search(r"kernel 'swiglu_linear_grad' was left out: element 175 of row 2 of result 1 is 3, and must be ",
                         said)

    check()
    kept = json.loads((run.out / "gemm.json").read_text())
    for choice in kept["choices"]:
        if "swiglu" in choice["product"]:
            choice["implementation"] = WITH_SWIGLU[1]
    (run.out / "gemm.json").write_text(json.dumps(kept))
    (run.out / "log.txt").write_text("")
    host(plan, "--steps=1", out=run.out, **wrong).ok()
    check()


def test_validates(programs, compiled, host, tmp_path):
    programs.run("lmc-run", compiled(SMALL), f"--out={tmp_path / 'cpu'}").ok()
    gpu = host(compiled(SMALL, TARGET)).ok()
    lines = [json.loads(line) for line in (gpu.out / "metrics.jsonl").read_text().splitlines()]
    expected = [json.loads(line)
                for line in (tmp_path / "cpu" / "metrics.jsonl").read_text().splitlines()]
    value = [line["validation_loss"] for line in lines if "validation_loss" in line]
    assert value == pytest.approx(
        [line["validation_loss"] for line in expected if "validation_loss" in line], rel=1e-3)
    assert value


@pytest.mark.parametrize("asked, options, code, words", [
    ({"arch": 80}, (), USER_ERROR, ["sm_90a", "sm_80"]),
    ({"free": 1_000_000}, (), DOES_NOT_FIT, ["are missing"]),
    ({"CUDA_VISIBLE_DEVICES": ""}, (), FAILURE, ["finds none", "CUDA_VISIBLE_DEVICES="]),
    ({"driver_version": 12080}, (), FAILURE, ["supports CUDA 12.8"]),
    ({"devices": 2}, ("--device=2",), USER_ERROR, ["--device=2"]),
])
def test_says_why_a_gpu_cannot_run_a_plan(compiled, host, asked, options, code, words):
    run = host(compiled(SMALL, TARGET), *options, **asked).clean()
    assert run.code == code and len(run.errors) == 1, run.stderr
    for word in words:
        assert word in run.errors[0]
    assert checkpoints(run.out) == {}


@pytest.mark.parametrize("gemm", ["default", "measure"])
@pytest.mark.parametrize("how, words", [("state", ""), ("run", "CUBLAS_STATUS_NOT_SUPPORTED"), ("sum", ", and must be ")])
def test_leaves_out_algorithms_that_do_not_compute_a_product(compiled, host, tmp_path, gemm, how, words):
    """cuBLASLt's first proposal has failed, does not run, or computes wrong sums in the last row."""
    plan = compiled(job_of(1, biases=True, settings={"checkpoint": {"interval": 0}}), TARGET)
    asked = {"LMC_GEMM": gemm, "XDG_CACHE_HOME": tmp_path / "cache"}
    run = host(plan, "--steps=1", bad_algorithm=how, **asked).ok()
    text = (run.out / "log.txt").read_text() + run.stderr
    assert words in text and ("an algorithm of matrix products was left out: " in text) == bool(words), text
    used = {choice["implementation"] for choice in json.loads((run.out / "gemm.json").read_text())["choices"]}
    assert "cuBLASLt proposal 1" not in used or how == "state", used
    good = host(plan, "--steps=1", **{**asked, "XDG_CACHE_HOME": tmp_path / "other"}).ok()
    assert losses(run.out) == pytest.approx(losses(good.out), rel=TOLERANCES["bf16"][0])


LONG = Job(model=Model(vocab_size=128, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
                       num_attention_heads=1, num_key_value_heads=1), sequence_length=32, micro_batch_size=1024,
           batch_size=1024, train_iters=1, compute_dtype="bf16", optimizer=Optimizer(warmup_iters=0, decay_iters=1),
           settings={"checkpoint": {"interval": 0}})


def test_leaves_out_an_algorithm_that_mixes_rows_up(compiled, host):
    """32768 rows of 32 elements: random numbers that repeat each 2^19 elements made the halves equal."""
    run = host(compiled(LONG, TARGET), "--steps=1", no_kernels=1, bad_algorithm="rows").clean()
    assert run.code == SUCCESS, run.stderr
    used = {choice["product"]: choice["implementation"]
            for choice in json.loads((run.out / "gemm.json").read_text())["choices"]}
    assert any("32768" in product for product in used)
    assert [product for product, by in used.items() if by == "cuBLASLt proposal 1"] == [], used


def test_takes_algorithms_that_cut_bits_off_long_sums(compiled, host):
    """Tensor cores cut the sums of a few terms off and do not round them, so that a sum of 32768 is off by more than rounding."""
    run = host(compiled(LONG, TARGET), "--steps=1", no_kernels=1, cuts=1).clean()
    assert run.code == SUCCESS, run.stderr
    assert "was left out" not in (run.out / "log.txt").read_text() + run.stderr


@pytest.mark.parametrize("seed", [1, 2])
def test_says_that_a_product_has_no_algorithm(compiled, host, seed):
    """cuBLASLt says so by an error, or by an answer without proposals."""
    run = host(compiled(SMALL, TARGET), seed=seed, no_algorithm=3, no_kernels=1).clean()
    assert run.code == FAILURE and len(run.errors) == 1, run.stderr
    assert "cuBLASLt has no algorithm to multiply [" in run.errors[0]


def test_memory_that_libraries_take_is_no_surprise(compiled, host):
    """The context, kernels, cuBLASLt and graphs take memory of the GPU that the plan does not have. If
    too little is left for any of them, one line says so, and nothing has been trained."""
    plan, takes = compiled(SMALL, TARGET), 32 << 20
    takers = host(plan, no_kernels=1, takes=takes).ok().report["takers"]
    assert takers > 8
    codes = []
    for free in (0, 1, 2, takers // 2, takers - 3, takers - 2, takers - 1, takers, takers + 1):
        run = host(plan, no_kernels=1, free=free * takes, takes=takes).clean()
        codes.append(run.code)
        if run.code == SUCCESS:
            continue
        assert run.code in (FAILURE, DOES_NOT_FIT) and len(run.errors) == 1, run.stderr
        assert "memory" in run.errors[0].lower(), run.errors
        assert checkpoints(run.out) == {}
    print(f"{takers} parts of {takes >> 20} MiB: {codes}")
    assert SUCCESS not in codes[:-2] and codes[-1] == SUCCESS, codes


NVML = """
#include <string.h>
struct process { unsigned pid; unsigned long long bytes; unsigned instance, compute; };
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  *device = (void *)uuid;
  return strncmp(uuid, "GPU-", 4) ? 6 : 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *all) {
  const unsigned room = *count;
  *count = 70;
  if (room < 70) return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
  for (unsigned i = 0; i < 70; ++i) all[i] = (struct process){4000000000u + i, 1ull << 30, 0, 0};
  return 0;
}
"""


def test_names_what_holds_the_memory(compiled, host, tmp_path):
    """NVML, which comes with the driver, lists the processes; the driver does without it."""
    library = tmp_path / "nvml.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=NVML, text=True, check=True)
    plan = compiled(SMALL, TARGET)
    for path, words in ((library, "process 4000000069 holds 1.00 GiB"), ("/no/nvml.so", "are missing; compile")):
        run = host(plan, free=1_000_000, LMC_NVML=path).clean()
        assert run.code == DOES_NOT_FIT and words in run.errors[0], run.errors


def test_frees_what_copies_staged_before_it_trains(compiled, host):
    run = host(compiled(SMALL, TARGET)).ok()
    assert 0 < run.report["pinned_at_launch"] < 1 << 20


def test_names_a_choice_of_the_run_that_cannot_be_used(compiled, host, tmp_path):
    """cuBLASLt refuses the algorithm, under the same names and versions."""
    plan, out = compiled(job_of(1, settings={"checkpoint": {"interval": 2}}), TARGET), tmp_path / "run"
    host(plan, "--steps=2", out=out).ok()
    kept = json.loads((out / "gemm.json").read_text())
    damaged = kept["choices"][0]
    damaged["payload"] = "ff" + damaged["payload"][2:]
    (out / "gemm.json").write_text(json.dumps(kept))
    host(plan, out=out).ok()
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    first, second = [event for event in events if event["event"] == "gemm"]
    assert "rejected" not in first and second["rejected"] == [damaged["product"]]


# A run of a function in an error: its step and its micro-step, or 9 for what comes behind those.
RUN = re.compile(r"\(?step (\d+)(?:, micro-step (\d) of 4)?")


def runs_in(error: str) -> list[tuple[int, int]]:
    return [(int(step), int(micro or 9)) for step, micro in RUN.findall(error)]


def test_late_errors_of_drawn_commands_name_the_runs_that_may_have_failed(compiled, host):
    """With --check-commands the error names the op of the run that failed. Without it the GPU
    reports the same fault some calls later: the error then names the first and the last run that
    were not known to have ended, and the failed one is among them."""
    plan = compiled(job_of(4), TARGET)
    commands = host(plan, "--no-cuda-graphs", no_kernels=1).ok().report["commands"]
    several = 0
    for n in random.Random(1).sample(range(commands // 3, commands), max(8, draw_count(8))):
        asked = {"fault_at": n, "no_kernels": 1}
        exact = host(plan, "--no-cuda-graphs", "--check-commands", **asked).clean()
        for options in ((), ("--no-cuda-graphs",)):
            if " command " not in exact.errors[0]:
                continue  # a copy failed, outside of functions
            late = host(plan, *options, **asked).clean()
            assert late.code == exact.code == FAILURE and len(late.errors) == 1, late.stderr
            assert "not known to have ended: " in late.errors[0], late.errors
            assert "; start again with --check-commands to learn the op" in late.errors[0]
            named = runs_in(late.errors[0])
            assert 1 <= len(named) <= 2, late.errors
            several += len(named) == 2
            assert named[0] <= runs_in(exact.errors[0])[0] <= named[-1], (exact.errors, late.errors)
    assert several


def check_failure(run: Run, expected: dict[str, str] | None, n: int) -> None:
    """A call or a command failed. The run may succeed all the same, if the failure was at its end;
    otherwise one line says what failed. Checkpoints that are visible are whole."""
    run.clean()
    assert run.code in (SUCCESS, FAILURE), f"{n}: {run.stderr}"
    assert len(run.errors) == (run.code != SUCCESS), f"{n}: {run.stderr}"
    for folder in checkpoints(run.out).values():
        assert checkpoint_digest(folder) == expected, n
    assert checkpoints(run.out) or run.code != SUCCESS, n


def sweep(host, plan: Path, numbers: list[int], expected: dict[str, str], kind: str, **asked):
    """Fails the calls or commands `numbers`, a run for each."""
    def one(n: int) -> None:
        check_failure(host(plan, **{kind: n}, **asked), expected, n)

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        list(workers.map(one, numbers))
    print(f"{len(numbers)} failed one by one ({kind} {asked})")


def ends_of_places(names: list[str]) -> set[int]:
    """The numbers of the first and the last call of each place: a name between the names before and after it."""
    places: dict[tuple[str, ...], list[int]] = {}
    for n in range(len(names)):
        places.setdefault(tuple(names[max(0, n - 1):n + 2]), []).append(n + 1)
    return {n for numbers in places.values() for n in (numbers[0], numbers[-1])}


def test_calls_of_every_place_and_drawn_ones_may_fail(compiled, host):
    """All calls are tried if LMC_FUZZ asks for more than usual."""
    plan = compiled(SMALL, TARGET)
    whole = host(plan, no_kernels=1).ok()
    every = range(1, whole.report["calls"] + 1)
    ends = ends_of_places(whole.report["names"])
    assert len(ends) >= 200
    numbers = every if draw_count(30) > 30 else ends | set(random.Random(1).sample(every, draw_count(30)))
    sweep(host, plan, sorted(numbers), checkpoint_digest(checkpoints(whole.out)[1]), "fail_at", no_kernels=1)


def test_drawn_calls_and_commands_may_fail_while_kernels_run(compiled, host):
    plan = compiled(SMALL, TARGET)
    whole = host(plan).ok()
    expected = checkpoint_digest(checkpoints(whole.out)[1])
    draw = random.Random(1)
    for kind, count, total in (("fail_at", 30, whole.report["calls"]),
                               ("fault_at", 20, whole.report["commands"])):
        # All of them take three minutes, and are tried if LMC_FUZZ asks for more than usual.
        numbers = range(1, total + 1)
        if draw_count(count) <= count:
            numbers = draw.sample(numbers, draw_count(count))
        sweep(host, plan, list(numbers), expected, kind)
