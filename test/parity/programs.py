"""Runs lmc, lmc-run and lmc-data as a user would, and reads back what they leave."""

import hashlib
import json
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

# Exit codes of the programs (ground/support/Result.h).
SUCCESS, FAILURE, USER_ERROR, DOES_NOT_FIT, DIVERGED, INTERRUPTED = 0, 1, 2, 3, 4, 75

SECONDS_LIMIT = 300  # for one command; each takes a few seconds


def until(done, what: str) -> None:
    """A test that waits for ever has failed."""
    for _ in range(100 * SECONDS_LIMIT):
        if done():
            return
        time.sleep(0.01)
    raise AssertionError(f"not in {SECONDS_LIMIT} seconds: {what}")


def end_all(processes) -> None:
    """No process outlives the test that has started it."""
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


@dataclass
class Finished:
    command: str
    code: int
    stdout: str
    stderr: str
    seconds: float
    peak_bytes: int  # the largest resident set, where it was asked for

    def ok(self) -> "Finished":
        assert self.code == SUCCESS, f"{self.command}\nexit code {self.code}\n{self.stderr}"
        return self


def peak_resident_bytes(pid: int) -> int:
    """0 once the process is gone. wait4's ru_maxrss will not do: through fork and exec it starts
    from the size of this process, which holds PyTorch."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def run_together(commands: list[list[str]], environments: list[dict[str, str]],
                 seconds: float = 60) -> list[tuple[int, str]]:
    """Runs processes at the same time. Returns their exit codes and what they wrote to stderr. None
    goes on after the call."""
    processes = []
    try:
        for command, environment in zip(commands, environments, strict=True):
            processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        errors = [process.communicate(timeout=seconds)[1] for process in processes]
        return [(process.returncode, text) for process, text in zip(processes, errors)]
    finally:
        for process in processes:
            process.kill()
            process.wait()


class Programs:
    """The built programs of one build folder."""

    def __init__(self, build: Path):
        self.build = build

    def path(self, name: str) -> str:
        program = self.build / "bin" / name
        assert program.exists(), f"{program} is not built: run ./dev build, or set LMC_BUILD"
        return str(program)

    def command(self, name: str, *args: object) -> list[str]:
        return [self.path(name), *map(str, args)]

    def start(self, name: str, *args: object, **options) -> subprocess.Popen:
        """Unsupervised, its output dropped: for runs that a test kills."""
        options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
        return subprocess.Popen(self.command(name, *args), **options)

    def run(self, name: str, *args: object, cwd: Path | None = None, measure_memory: bool = False) -> Finished:
        command = self.command(name, *args)
        began = time.monotonic()
        process = subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace",
        )
        peak = 0
        done = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.005):
                peak = max(peak, peak_resident_bytes(process.pid))

        watcher = threading.Thread(target=watch) if measure_memory else None
        if watcher:
            watcher.start()
        try:
            stdout, stderr = process.communicate(timeout=SECONDS_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        finally:
            done.set()
            if watcher:
                watcher.join()
        seconds = time.monotonic() - began
        return Finished(" ".join(command), process.returncode, stdout, stderr, seconds, peak)


def metrics(out: Path) -> list[dict]:
    """The lines of metrics.jsonl that are of optimizer steps, in file order."""
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if "loss" in line]


def losses(out: Path) -> list[float]:
    """Of steps 1, 2, ...: each step must be there exactly once, in order."""
    lines = metrics(out)
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1)), lines
    return [line["loss"] for line in lines]


def last_losses(out: Path) -> dict[int, float]:
    """By step. A step that was logged before its checkpoint was whole is repeated by the run that
    goes on, and its later line counts."""
    return {line["step"]: line["loss"] for line in metrics(out)}


def checkpoints(out: Path) -> dict[int, Path]:
    """Step -> folder, of the checkpoints that are visible, ascending."""
    folder = out / "checkpoints"
    if not folder.is_dir():
        return {}
    found = {int(p.name): p for p in folder.iterdir() if p.name.isdigit()}
    return dict(sorted(found.items()))


# Of every checkpoint; one with moments in 8 bits has their scales too.
STATE_FILES = ("model.safetensors", "moment1.safetensors", "moment2.safetensors")


def checkpoint_state(folder: Path) -> dict:
    return json.loads((folder / "state.json").read_text())["state"]


def checkpoint_digest(folder: Path) -> dict[str, str]:
    """What must be equal for two checkpoints to be the same: all state, byte for byte, and where
    training goes on."""
    files = sorted(folder.glob("*.safetensors"))
    assert {file.name for file in files} >= set(STATE_FILES)
    digest = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    state = checkpoint_state(folder)
    for key in ("step", "samples", "tokens", "fingerprint"):
        digest[key] = str(state[key])
    return digest


def tree_digest(folder: Path) -> dict[str, str]:
    """Every file below a folder, to show that nothing in it was touched."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }
