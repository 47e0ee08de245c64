"""Signals end a run in order and never touch its memory (ground/support/Signals.h).

A product of oneDNN in f32 uses the stack pointer as a pointer into the heap. A handler on its thread overwrites what
lies below: such a run died, or saved wrong weights."""

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from draws import draw_count
from jobs import Job
from programs import INTERRUPTED, checkpoint_digest, checkpoints, end_all, until
from reference import Model, Optimizer

STOPS = draw_count(40)
IS_LONG = draw_count(2) > 2  # in `./dev test long`
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGUSR2, signal.SIGXCPU,
           signal.SIGALRM]
KEPT = 10**6  # more checkpoints than a run writes

# Products so large that oneDNN's sgemm was hit by 8 of 12 stops. A step takes tenths of a second. One rank trains half
# the batch in two micro-steps, whose products are the same, so that the second adds to the gradients of the first.
JOB = Job(
    model=Model(vocab_size=2048, hidden_size=256, intermediate_size=672, tie_word_embeddings=True),
    optimizer=Optimizer(decay_iters=100000), sequence_length=128, batch_size=16, micro_batch_size=4,
    train_iters=100000, epoch_steps=10, settings={"checkpoint": {"interval": 0}},
)


@dataclass
class Case:
    """A plan, the number of its ranks, and which library computes its products where it can."""

    compute_dtype: str
    library: str
    ranks: int
    plan: Path
    choices: Path | None = None  # a gemm.json
    used: int = 0  # products that the library computes
    stops: list = field(default_factory=list)  # (folder of the run, step)

    def __str__(self) -> str:
        return f"{self.compute_dtype}, {self.library}, {self.ranks} rank(s)"

    def options(self) -> list[str]:
        return [f"--nproc={self.ranks}", "--gemm=measure", f"--threads={max(1, 2 // self.ranks)}"]

    def folder(self, out: Path) -> Path:
        """A new folder of a run, with the choices of products."""
        out.mkdir(parents=True)
        (out / "gemm.json").write_bytes(self.choices.read_bytes())
        return out


@pytest.fixture(scope="module")
def cases(programs, compiled, tmp_path_factory):
    """Each library that computes products of this machine, on one rank and on four."""
    folder = tmp_path_factory.mktemp("choices")
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    mkl = Path(sys.prefix, "lib/libmkl_rt.so.3")  # would be searched below XDG_CACHE_HOME
    if mkl.exists() and "LMC_MKL" not in os.environ:
        patch.setenv("LMC_MKL", str(mkl))
    found = []
    for ranks in (1, 4):
        for compute_dtype in ("f32", "bf16"):
            job = Job(**{**vars(JOB), "compute_dtype": compute_dtype, "batch_size": 8 if ranks == 1 else 16})
            plan = compiled(job, "--nodes=1", f"--devices-per-node={ranks}")
            options = Case(compute_dtype, "", ranks, plan).options()
            measured = folder / f"{ranks}-{compute_dtype}"
            programs.run("lmc-run", plan, f"--out={measured}", *options, "--steps=1").ok()
            file = json.loads((measured / "gemm.json").read_text())
            for library in ("oneDNN", "oneDNN sgemm", "packed", "MKL"):
                # A library that cannot compute a product loses it at the first start, which chooses anew.
                trial = folder / f"{ranks}-{compute_dtype}-{library.replace(' ', '-')}"
                trial.mkdir()
                for choice in file["choices"]:
                    choice["implementation"] = library
                (trial / "gemm.json").write_text(json.dumps(file))
                programs.run("lmc-run", plan, f"--out={trial}", *options, "--steps=1").ok()
                kept = json.loads((trial / "gemm.json").read_text())["choices"]
                used = sum(choice["implementation"] == library for choice in kept)
                if used:
                    found.append(Case(compute_dtype, library, ranks, plan, trial / "gemm.json", used))
                else:
                    print(f"skipped: {library} computes no product of {compute_dtype} here")
    yield found
    patch.undo()


def lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_drawn_stops_save_the_weights_of_that_step(programs, cases, tmp_path):
    """Each stop ends with its exit code, and with the weights and moments that a run without a stop has at that step.
    Half of the stops are those of the product that a handler did damage."""
    chance = random.Random(43)
    risky = [case for case in cases if case.library == "oneDNN sgemm"]
    for number in range(STOPS):
        among = risky if number % 2 == 0 and risky else cases
        case = among[number // 2 % len(among)]
        kind = chance.choice(SIGNALS)
        out = case.folder(tmp_path / f"stop{number}")
        # Under nohup these tests ignore SIGHUP, and so would what they start.
        process = programs.start("lmc-run", case.plan, f"--out={out}", *case.options(), stderr=subprocess.PIPE,
                                 preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
        try:
            least = chance.randint(2, 5)
            until(lambda: lines(out / "metrics.jsonl") >= least or process.poll() is not None, f"{least} steps")
            time.sleep(chance.uniform(0, 0.2))
            assert process.poll() is None, f"{case}: ended by itself with {process.returncode}"
            process.send_signal(kind)
            errors = process.communicate(timeout=300)[1].decode()
        finally:
            end_all([process])
        assert process.returncode == INTERRUPTED, f"stop {number}, {kind.name}, {case}: {process.returncode}\n{errors}"
        (step,) = checkpoints(out)
        case.stops.append((out, step))
    for case in cases:
        if not case.stops:
            continue
        whole = case.folder(tmp_path / f"whole-{case.compute_dtype}-{case.library}-{case.ranks}")
        programs.run("lmc-run", case.plan, f"--out={whole}", *case.options(),
                     f"--steps={max(step for _, step in case.stops)}", "--set", "checkpoint.interval=1",
                     "--set", f"checkpoint.keep={KEPT}").ok()
        saved = checkpoints(whole)
        for out, step in case.stops:
            assert checkpoint_digest(checkpoints(out)[step]) == checkpoint_digest(saved[step]), f"{case}, step {step}"
        print(f"{case}, {case.used} products: {len(case.stops)} stops at steps "
              f"{sorted(step for _, step in case.stops)}, bit for bit those of a run without a stop")
    assert sum(len(case.stops) for case in cases) == STOPS


LIBC = ctypes.CDLL(None, use_errno=True)
TGKILL = {"x86_64": 234, "aarch64": 131}[os.uname().machine]
# What may come to any thread and asks nothing: timers, ended children, terminals, descriptors.
STORM = [signal.SIGPROF, signal.SIGVTALRM, signal.SIGCHLD, signal.SIGIO, signal.SIGURG, signal.SIGWINCH]


def processes_of(process: subprocess.Popen) -> list[int]:
    """The process and its children."""
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except FileNotFoundError:
        children = []
    return [process.pid, *map(int, children)]


def threads_of(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except FileNotFoundError:
        return []


def storm(process: subprocess.Popen, done: threading.Event, sent: Counter) -> None:
    """Sends 2,000 signals a second to each thread of the process and of its children, and as many to each process."""
    number = 0
    while not done.is_set() and process.poll() is None:
        began = time.monotonic()
        for pid in processes_of(process):
            threads = threads_of(pid)
            for _ in range(20):
                number += 1
                kind = STORM[number % len(STORM)]
                for thread in threads:
                    sent["threads"] += LIBC.syscall(TGKILL, pid, thread, int(kind)) == 0
                try:
                    os.kill(pid, signal.SIGRTMIN + number % 8 if number % 2 else kind)
                    sent["processes"] += 1
                except ProcessLookupError:
                    break
        time.sleep(max(0.0, 0.01 - (time.monotonic() - began)))


def test_a_drawn_storm_of_signals_changes_no_bit(programs, cases, tmp_path):
    steps = 50 if IS_LONG else 15
    for case in [case for case in cases if case.library == "oneDNN sgemm" or IS_LONG]:
        name = f"{case.compute_dtype}-{case.library}-{case.ranks}"
        command = [f"--steps={steps}", "--set", f"checkpoint.interval={steps}"]
        calm = case.folder(tmp_path / f"calm-{name}")
        programs.run("lmc-run", case.plan, f"--out={calm}", *case.options(), *command).ok()
        out = case.folder(tmp_path / f"storm-{name}")
        process = programs.start("lmc-run", case.plan, f"--out={out}", *case.options(), *command)
        done, sent = threading.Event(), Counter()
        sender = threading.Thread(target=storm, args=(process, done, sent))
        try:
            until(lambda: lines(out / "metrics.jsonl") >= 1 or process.poll() is not None, "the first step")
            sender.start()
            code = process.wait(300)
        finally:
            done.set()
            end_all([process])
            if sender.ident:
                sender.join()
        print(f"{case}: exit code {code}; signals to threads {sent['threads']}, to processes {sent['processes']}")
        assert code == 0 and sent["threads"] > 100
        assert checkpoint_digest(checkpoints(out)[steps]) == checkpoint_digest(checkpoints(calm)[steps]), case


def masks(pid: int) -> dict[str, int]:
    """SigBlk, SigCgt, SigIgn, ShdPnd and SigPnd of a process or a thread: bit s - 1 stands for signal s."""
    text = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: int(value, 16) for name, value in (line.split(":", 1) for line in text)
            if name.startswith(("Sig", "Shd")) and name != "SigQ"}


def bits(*signals: int) -> int:
    return sum(1 << (int(number) - 1) for number in signals)


BLOCKED = bits(*SIGNALS, *STORM, signal.SIGPWR, *range(signal.SIGRTMIN, signal.SIGRTMAX + 1))


@pytest.mark.parametrize("ranks", [1, 4])
def test_all_threads_block_signals_and_none_has_a_handler(programs, cases, tmp_path, ranks):
    """Those of libraries too, while a run trains and saves. Its launcher has one thread. The thread that waits for
    signals shows none as blocked, as the system does for any thread in sigwait()."""
    case = next(case for case in cases if case.ranks == ranks)
    out = case.folder(tmp_path / "run")
    process = programs.start("lmc-run", case.plan, f"--out={out}", *case.options(), "--set", "checkpoint.interval=2",
                             "--set", "checkpoint.background=true")
    try:
        until(lambda: lines(out / "metrics.jsonl") >= 5 or process.poll() is not None, "five steps")
        found = processes_of(process)
        assert len(found) == (1 if ranks == 1 else 1 + ranks)
        for pid in found:
            threads = threads_of(pid)
            assert ranks == 1 or (len(threads) == 1) == (pid == process.pid)
            signal_threads = 0
            for thread in threads:
                try:
                    name, mask = Path(f"/proc/{thread}/comm").read_text().strip(), masks(thread)
                except (FileNotFoundError, ProcessLookupError):  # a thread that wrote a checkpoint has ended
                    continue
                signal_threads += name == "lmc-signals"
                # A launcher has no thread for SIGQUIT, which then has its default action.
                quits = ranks > 1 and pid == process.pid
                assert name == "lmc-signals" or bool(mask["SigBlk"] & bits(signal.SIGQUIT)) == (not quits)
                assert name == "lmc-signals" or mask["SigBlk"] & BLOCKED == BLOCKED, f"{thread}: {mask['SigBlk']:x}"
                # glibc's own: of a thread that is cancelled, and of setuid().
                assert mask["SigCgt"] & ~bits(32, 33) == 0, f"a handler is installed: {mask['SigCgt']:x}"
            assert signal_threads == (len(threads) > 1)
        print(f"{len(found)} process(es), {sum(len(threads_of(pid)) for pid in found)} threads")
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == INTERRUPTED
    finally:
        end_all([process])


def test_a_second_interrupt_ends_the_run_at_once(programs, compiled, tmp_path):
    """The first waits for the step, of 128 micro-steps here; the second does not, and leaves no checkpoint."""
    plan = compiled(Job(**{**vars(JOB), "batch_size": 512, "epoch_steps": 1}))
    out = tmp_path / "run"
    process = programs.start("lmc-run", plan, f"--out={out}")
    try:
        until(lambda: lines(out / "metrics.jsonl") >= 1 or process.poll() is not None, "a step")
        process.send_signal(signal.SIGINT)
        until(lambda: not masks(process.pid)["ShdPnd"] & bits(signal.SIGINT), "that the first is taken")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == -signal.SIGINT
        assert not checkpoints(out)
    finally:
        end_all([process])


def test_what_a_run_starts_has_the_mask_of_its_start(programs, compiled, tmp_path):
    """An export command is stopped by SIGTERM as any program is."""
    short = {"train_iters": 2, "optimizer": Optimizer(warmup_iters=1, decay_iters=2)}
    job = Job(**{**vars(JOB), **short, "settings": {"checkpoint": {
        "interval": 0, "export_interval": 1, "export_command": "grep -E '^Sig(Blk|Ign)' /proc/self/status"}}})
    out = tmp_path / "run"
    programs.run("lmc-run", compiled(job), f"--out={out}").ok()
    log = out / "evaluations/1/output.log"
    until(lambda: log.exists() and log.read_text().count("\n") >= 2, "the command's output")
    # The run ignores the first two. The others are glibc's own, which its posix_spawn() ignores.
    leave_out = ~bits(signal.SIGPIPE, signal.SIGXFSZ, 32, 33)
    own = masks(os.getpid())
    for line in log.read_text().splitlines()[-2:]:
        name, mask = line.split(":")
        assert int(mask, 16) & leave_out == own[name] & leave_out, line
