"""Ranks that are processes, each with a CUDA plan on the host driver, train what one rank trains:
with the stand-in for NCCL (test/hostdriver), in CUDA graphs or not, beside other commands or one by
one, and through the host's memory."""

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from jobs import Job
from programs import FAILURE, SUCCESS, Programs, checkpoint_digest, checkpoints, losses, metrics, until
from reference import Model, Optimizer
from test_fp8 import weights_of_many_scales
from test_launch import StoppedThread

LIBRARIES = Path(os.environ.get("LMC_BUILD", Path(__file__).resolve().parents[2] / "build")) / "lib"
pytestmark = pytest.mark.skipif(
    not (LIBRARIES / "libnccl-host.so").exists(),
    reason="the stand-in for NCCL is not built: it needs the headers of a CUDA toolkit and of NCCL",
)

RANK_FAILED = 5
STEPS = 3  # the first is eager, the second is captured

# No number of ranks divides the vocabulary.
JOB = Job(
    model=Model(vocab_size=101, hidden_size=64, intermediate_size=96, num_hidden_layers=1,
                num_attention_heads=1, num_key_value_heads=1, tie_word_embeddings=True),
    sequence_length=32, batch_size=12, train_iters=STEPS, epoch_steps=2 * STEPS,
    optimizer=Optimizer(warmup_iters=1, decay_iters=STEPS), settings={"checkpoint": {"interval": 0}},
)


@dataclass
class Rank:
    code: int
    stderr: str
    report: dict  # of the host driver

    def clean(self) -> "Rank":
        assert self.report["violations"] == [], self.stderr
        assert {k: n for k, n in self.report["leaks"].items() if n} == {}, self.stderr
        return self


@dataclass
class Run:
    ranks: list[Rank]
    out: Path

    def ok(self) -> "Run":
        for rank in self.ranks:
            assert rank.code == SUCCESS, rank.stderr
            rank.clean()
            assert rank.report["patient_collectives"] == 0, "products would go before them"
        return self

    def bits(self) -> dict[str, str]:
        """All that the run computed."""
        steps = [(line["loss"], line["grad_norm"]) for line in metrics(self.out)]
        return {"steps": json.dumps(steps), **checkpoint_digest(checkpoints(self.out)[STEPS])}

    def gradients(self) -> dict:
        return load_file(f"{self.out}.gradients")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def options(dtype: str, strategy: str, nodes: int, devices: int, gas: int) -> tuple[str, ...]:
    """`dtype` is what the job computes in; "f16": f32, and gradients travel in f16."""
    compute, travels = ("f32", "f16") if dtype == "f16" else (dtype, "f32")
    mbs = JOB.batch_size // (nodes * devices * gas)
    return ("--target=cuda:sm_90a", f"--nodes={nodes}", f"--devices-per-node={devices}",
            "--set", f"distributed.strategy={strategy}", "--set", f"training.micro_batch_size={mbs}",
            "--set", f"training.compute_dtype={compute}",
            "--set", f"distributed.reduce_dtype={travels}",
            *(("--set", "distributed.overlap=yes") if nodes * devices > 1 else ()))


@pytest.fixture
def start(programs: Programs, tmp_path):
    """start(plan, ranks, options of lmc-run, of_rank={rank: variables}, variables...) -> the
    processes of the ranks, and a function that waits for them."""
    numbers, started = itertools.count(), []

    def begin(plan: Path, count: int, *more: str, of_rank: dict | None = None, out: Path | None = None,
              dump: bool = False, **asked: object):
        folder = out or tmp_path / f"run{next(numbers)}"
        port, processes, reports = free_port(), [], []
        for rank in range(count):
            reports.append(tmp_path / f"{folder.name}.report{rank}.json")
            environment = {
                "RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1",
                "LMC_PORT": port, "LMC_GEMM": "default",
                "LMC_CUDA_DRIVER": LIBRARIES / "libcuda-host.so",
                "LMC_CUBLASLT": LIBRARIES / "libcublaslt-host.so",
                "LMC_NCCL": LIBRARIES / "libnccl-host.so",
                "LMC_HOST_REPORT": reports[rank], "OMP_NUM_THREADS": 1,
                **asked, **(of_rank or {}).get(rank, {}),
            }
            dumped = [f"--dump-gradients={folder}.gradients"] if dump else []
            processes.append(subprocess.Popen(
                programs.command("lmc-run", plan, f"--out={folder}", *dumped, *more),
                env={**os.environ, **{key: str(value) for key, value in environment.items()}},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True))
        started.extend(processes)

        def finish() -> Run:
            with ThreadPoolExecutor(count) as readers:
                errors = list(readers.map(lambda process: process.communicate(timeout=200)[1],
                                          processes))
            return Run([Rank(process.returncode, stderr,
                             json.loads(report.read_text()) if report.exists() else {})
                        for process, stderr, report in zip(processes, errors, reports)], folder)

        return processes, finish

    yield begin
    for process in started:
        process.kill()


@pytest.fixture
def train(start):
    return lambda *args, **asked: start(*args, **asked)[1]()


def difference(ours: list[float], theirs: list[float]) -> float:
    assert len(ours) == len(theirs) == STEPS
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


def gradient_difference(ours: dict, theirs: dict) -> float:
    assert ours.keys() == theirs.keys() and ours
    return max(float((ours[name] - theirs[name]).abs().max() / theirs[name].abs().max())
               for name in ours)


# Of losses, and of each gradient relative to its largest entry.
BOUNDS = {"f32": (1e-6, 5e-6), "bf16": (1e-4, 5e-6), "f16": (1e-5, 2e-3)}

CASES = [("f32", "zero3", 1, 2, 3), ("f32", "no_shard", 1, 2, 1), ("bf16", "zero3", 1, 2, 1),
         ("bf16", "no_shard", 1, 2, 3), ("f32", "hybrid_shard", 2, 2, 3),
         ("bf16", "hybrid_shard", 2, 2, 1), ("f16", "zero3", 1, 2, 3)]


@pytest.fixture(scope="module")
def of_one_rank() -> dict[str, tuple[list[float], dict]]:
    """The losses and gradients of one rank in each dtype, which is trained once."""
    return {}


@pytest.mark.parametrize("dtype, strategy, nodes, devices, gas", CASES)
def test_equals_one_rank(programs, compiled, train, of_one_rank, dtype, strategy, nodes, devices, gas):
    ranks = nodes * devices
    if dtype not in of_one_rank:
        run = train(compiled(JOB, *options(dtype, "no_shard", 1, 1, 1)), 1, dump=True).ok()
        of_one_rank[dtype] = losses(run.out), run.gradients()
    one_losses, one_gradients = of_one_rank[dtype]
    plan = compiled(JOB, *options(dtype, strategy, nodes, devices, gas))
    explained = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
    kinds = [command["kind"] for function in explained["functions"] for command in function["commands"]]
    assert "wait" in kinds, "nothing runs beside a collective"
    graphs = train(plan, ranks, dump=True).ok()
    assert f"x {ranks} rank(s)" in (graphs.out / "log.txt").read_text()
    found = difference(losses(graphs.out), one_losses), gradient_difference(graphs.gradients(), one_gradients)
    print(f"{dtype} {strategy} {nodes}x{devices} GAS {gas}: losses {found[0]:.1e}, gradients "
          f"{found[1]:.1e}")
    assert found[0] < BOUNDS[dtype][0] and found[1] < BOUNDS[dtype][1]
    bits = graphs.bits()
    others = ("--no-cuda-graphs",), ("--collectives=host",) if gas > 1 else ("--check-commands",)
    for seed, more in enumerate(others, 2):
        assert train(plan, ranks, *more, LMC_HOST_SEED=seed).ok().bits() == bits, (seed, more)


SMALL = ("f32", "zero3", 1, 2, 1)


def wait_for_graphs(out: Path, processes: list) -> None:
    """Waits until the ranks train by graphs, which are captured in step 2."""
    file = out / "metrics.jsonl"
    until(lambda: file.exists() and file.read_bytes().count(b"\n") > 4 or any(p.poll() is not None for p in processes),
          "five steps")
    assert [process.poll() for process in processes] == [None, None]


def test_says_how_to_connect_gpus_without_nccl(compiled, train):
    plan = compiled(JOB, *options(*SMALL))
    for library, word in (("/no/libnccl.so.2", "LMC_NCCL=/no/libnccl.so.2"),
                          (LIBRARIES / "libcuda-host.so", "has no nccl")):
        run = train(plan, 2, LMC_NCCL=library)
        for rank in run.ranks:
            assert rank.code in (FAILURE, RANK_FAILED), rank.stderr
            rank.clean()
        errors = [line for line in run.ranks[0].stderr.splitlines() if ": error: " in line]
        assert len(errors) == 1 and word in errors[0], run.ranks[0].stderr


def test_nccl_uses_the_interface_asked_for(compiled, train):
    """Unless the user has told NCCL itself which one to use."""
    plan = compiled(JOB, *options(*SMALL))
    for expected, environment in (("=lo", {}), ("ib", {"NCCL_SOCKET_IFNAME": "ib"})):
        for rank in train(plan, 2, "--interface=lo", "--steps=1", LMC_HOST_NO_KERNELS=1,
                          **environment).ok().ranks:
            assert f"host driver: NCCL would use the interface '{expected}'" in rank.stderr


def test_releases_of_nccl(compiled, train):
    plan = compiled(JOB, *options(*SMALL))
    for version, words in ((21803, None), (22200, None), (22907, None), (21200, "NCCL 2.12.0 is installed"),
                           (30000, "NCCL 3.0.0 is installed")):
        run = train(plan, 2, "--steps=1", LMC_HOST_NO_KERNELS=1, LMC_HOST_NCCL_VERSION=version)
        if words is None:
            run.ok()
        for rank in run.ranks if words else ():
            errors = [line for line in rank.clean().stderr.splitlines() if ": error: " in line]
            assert rank.code in (FAILURE, RANK_FAILED) and len(errors) == 1 and words in errors[0], rank.stderr


def test_ranks_of_a_machine_take_devices_of_their_own(compiled, train):
    """NCCL refuses two ranks on one GPU, as when a launcher gives the same one to both."""
    plan = compiled(JOB, *options(*SMALL))
    train(plan, 2, "--steps=1", LMC_HOST_NO_KERNELS=1, LMC_HOST_DEVICES=2).ok()
    run = train(plan, 2, "--steps=1", LMC_HOST_NO_KERNELS=1, LMC_HOST_DEVICES=2, CUDA_VISIBLE_DEVICES="1")
    for rank in run.ranks:
        errors = [line for line in rank.stderr.splitlines() if ": error: " in line]
        assert rank.code in (FAILURE, RANK_FAILED) and len(errors) == 1, rank.stderr
    assert any("of a communicator have one device" in text for rank in run.ranks for text in rank.report["violations"])


@pytest.mark.parametrize("call, number", [
    ("ncclGetVersion", 1), ("ncclGetUniqueId", 1), ("ncclCommInitRank", 1), ("ncclAllGather", 1),
    ("ncclReduceScatter", 2), ("ncclCommGetAsyncError", 5), ("ncclCommDestroy", 1)])
def test_every_call_of_nccl_may_fail(compiled, train, call, number):
    """One clear error on the rank whose call fails; the other ends with the cause, too, and neither
    leaks or waits."""
    began = time.monotonic()
    run = train(compiled(JOB, *options(*SMALL)), 2,
                of_rank={0: {"LMC_HOST_FAIL_CALL": f"{call}:{number}"}})
    assert f"{call}, fails" in run.ranks[0].stderr, run.ranks[0].stderr
    if call == "ncclCommDestroy":  # at the end, when all is done
        run.ok()
        return
    for rank in run.ranks:
        rank.clean()
        errors = [line for line in rank.stderr.splitlines() if ": error: " in line]
        assert rank.code in (FAILURE, RANK_FAILED) and len(errors) == 1, rank.stderr
    assert "NCCL cannot " in run.ranks[0].stderr
    assert time.monotonic() - began < 30


def test_a_rank_that_cannot_enqueue_is_seen_to_wait(compiled, start, tmp_path):
    """The driver's queue is short, so that rank 0 waits in a call that only enqueues: its GPU waits for
    the GPU of rank 1, whose main thread has stopped, perhaps in such a call, too."""
    plan = compiled(replace(JOB, train_iters=100_000, epoch_steps=100_000), *options(*SMALL))
    out = tmp_path / "run"
    processes, finish = start(plan, 2, "--hang-timeout=2", "--slow-timeout=3", out=out,
                              LMC_HOST_QUEUE=1)
    wait_for_graphs(out, processes)
    try:
        StoppedThread(processes[1].pid)
    except PermissionError:
        pytest.skip("this system does not let a process trace another (ptrace)")
    processes[0].wait(timeout=20)
    processes[1].kill()
    stderr = finish().ranks[0].stderr
    assert re.search(r"(rank 1 \(host .*\) has made no|no rank has made) progress for \d+ s", stderr), stderr


def test_a_rank_that_dies_ends_the_other(compiled, start, tmp_path):
    plan = compiled(replace(JOB, train_iters=100_000, epoch_steps=100_000), *options(*SMALL))
    processes, finish = start(plan, 2, out=tmp_path / "run", LMC_HOST_NO_KERNELS=1)
    wait_for_graphs(tmp_path / "run", processes)
    processes[1].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    run = finish()
    assert time.monotonic() - killed < 10
    assert run.ranks[0].code == RANK_FAILED and "rank 1" in run.ranks[0].stderr, run.ranks[0].stderr
    assert run.ranks[0].report, "it did not end by itself: NCCL's abort waited for a graph with its collectives"
    run.ranks[0].clean()
    assert not list(Path("/dev/shm").glob(f"lmc-nccl-{processes[0].pid}-*"))


def test_an_abort_of_nccl_that_never_returns_does_not_keep_the_rank(compiled, start, tmp_path):
    """It is reported of NCCL where a rank of the same machine was killed. A launcher waits for the other."""
    plan = compiled(replace(JOB, train_iters=100_000, epoch_steps=100_000), *options(*SMALL))
    processes, finish = start(plan, 2, out=tmp_path / "run", LMC_HOST_NO_KERNELS=1, LMC_HOST_ABORT_HANGS=1)
    wait_for_graphs(tmp_path / "run", processes)
    processes[1].send_signal(signal.SIGKILL)
    rank = finish().ranks[0]
    errors = [line for line in rank.stderr.splitlines() if ": error: " in line]
    assert rank.code == RANK_FAILED and len(errors) == 1 and "rank 1" in errors[0], rank.stderr


@pytest.mark.parametrize("mode, strategy, nodes, devices", [
    ("tensor", "zero1", 1, 2), ("tensor", "zero3", 1, 2), ("tensor", "hybrid_shard", 2, 2), ("block", "zero1", 1, 2),
    ("block", "zero3", 1, 2)])
def test_ranks_that_exchange_codes_are_near_one_rank(programs, compiled, train, tmp_path, mode, strategy, nodes, devices):
    """Sums in another order can change a code. Also without graphs, and through the host's memory."""
    fp8 = "--set", f"training.fp8={mode}"
    job, cast, transposes, size, init = JOB, "piece_quantize", {"transpose"}, (), []
    if mode == "block":  # a micro-step has 128 tokens
        size = "--set", "training.batch_size=4", "--set", "training.micro_batch_size=1"
        job = replace(JOB, sequence_length=128, model=replace(JOB.model, hidden_size=256, intermediate_size=384, num_attention_heads=2,
                                                               num_key_value_heads=2, head_dim=128, num_hidden_layers=1))
        cast, transposes = "piece_quantize_tiles", {"transpose", "transpose_scales"}
        init = [weights_of_many_scales(job.model, tmp_path / "initial.safetensors")]
    one = train(compiled(job, *options("f32", "no_shard", 1, 1, 1), *fp8, *size), 1, *init, dump=True).ok()
    plan = compiled(job, *options("f32", strategy, nodes, devices, 2), *fp8, *size)
    explained = json.loads(programs.run("lmc", "explain", plan, "--json").ok().stdout)
    commands = [command for function in explained["functions"] for command in function["commands"]]
    assert cast in {command.get("kernel") for command in commands}
    assert transposes <= {command["kind"] for command in commands} | {command.get("kernel") for command in commands}
    graphs = train(plan, nodes * devices, *init, dump=True).ok()
    found = difference(losses(graphs.out), losses(one.out)), gradient_difference(graphs.gradients(), one.gradients())
    print(f"losses {found[0]:.1e}, gradients {found[1]:.1e}")
    assert found[0] < 1e-2 and found[1] < 1e-2
    for seed, more in enumerate((("--no-cuda-graphs",), ("--collectives=host",)), 2):
        assert train(plan, nodes * devices, *init, *more, LMC_HOST_SEED=seed).ok().bits() == graphs.bits(), (seed, more)


def test_experts_that_ranks_divide_equal_one_rank(programs, compiled, train):
    """Two pairs of ranks. Also without graphs, and with the exchange of tokens through the host's memory."""
    model = Model(architecture="olmoe", vocab_size=128, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
                  num_attention_heads=2, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2)
    job = replace(JOB, model=model, sequence_length=16)
    one = train(compiled(job, *options("f32", "no_shard", 1, 1, 1)), 1, dump=True).ok()
    plan = compiled(job, *options("f32", "zero3", 1, 4, 3), "--set", "distributed.expert_parallel=2")
    graphs = train(plan, 4, dump=True).ok()
    found = (difference(losses(graphs.out), losses(one.out)),
             gradient_difference(graphs.gradients(), one.gradients()))
    print(f"losses {found[0]:.1e}, gradients {found[1]:.1e}")
    assert found[0] < BOUNDS["f32"][0] and found[1] < BOUNDS["f32"][1]
    for seed, more in enumerate((("--no-cuda-graphs",), ("--collectives=host",)), 2):
        assert train(plan, 4, *more, LMC_HOST_SEED=seed).ok().bits() == graphs.bits(), (seed, more)
