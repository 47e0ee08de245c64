"""What the sections of `run` share: the machine, child processes, nvcc and reports.

Only Python's standard library, of 3.9 or later: this file runs on machines where nothing can be installed.
"""

from __future__ import annotations

import concurrent.futures
import csv
import datetime
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import threading
import time
import zlib
from pathlib import Path

import bets

FACTS = ("name", "driver_version", "compute_cap", "memory.total", "power.limit", "clocks.max.sm",
         "clocks.max.memory")
MARGIN_S = 5  # a section stops this long before its limit, to write its report


class Stop(Exception):
    """Ends the program with one line on stderr."""


class Finished:
    def __init__(self, code: int, out: str, err: str, seconds: float, timed_out: bool):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds
        self.timed_out = timed_out

    def complaint(self) -> str:
        """Returns why a command that failed did so, in one line."""
        if self.timed_out:
            return f"not done after {self.seconds:.0f} s"
        lines = [line for line in (self.err + self.out).splitlines() if line.strip()]
        chosen = [line for line in lines if re.search("error|not |wrong|FAIL", line, re.I)] or lines
        return f"exit code {self.code}" + (f": {chosen[-1].strip()[:200]}" if chosen else "")


def call(command: list, limit: float = 60, stdin: str = "", env: dict | None = None, until=None) -> Finished:
    """Runs `command` for at most `limit` seconds, then ends it with all that it started. If until() becomes
    true, the command has done what it is for; it is ended, and its exit code is 0."""
    began = time.monotonic()
    child = subprocess.Popen(
        [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
        env={**os.environ, **(env or {})},
    )
    enough = timed_out = False
    while True:
        try:
            out, err = child.communicate(stdin, timeout=0.1 if until else max(1, limit))
            break
        except subprocess.TimeoutExpired:
            enough = bool(until and until())
            timed_out = not enough and time.monotonic() - began > max(1, limit)
            if enough or timed_out:
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass  # it ended by itself just now
                out, err = child.communicate()
                break
    return Finished(0 if enough else child.returncode, out, err, time.monotonic() - began, timed_out)


def gpu() -> str:
    """Returns the GPU that programs here see first, in the form that nvidia-smi takes."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"


class Clocks:
    """Samples the SM clock, the power draw and the memory in use while the `with` block runs."""

    def __init__(self, on: bool):
        self.on, self.samples = on, []

    def __enter__(self):
        if self.on:
            query = ["--query-gpu=clocks.sm,power.draw,memory.used", "--format=csv,noheader,nounits"]
            self.child = subprocess.Popen(
                ["nvidia-smi", *query, "-lms", "100", f"--id={gpu()}"], stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True)
            self.reader = threading.Thread(target=self.read, daemon=True)
            self.reader.start()
        return self

    def read(self) -> None:
        for line in self.child.stdout:
            try:
                clock, power, memory = (float(part) for part in line.split(","))
            except ValueError:
                continue  # the GPU does not measure all of them: "[N/A]"
            if line.endswith("\n"):  # the end of the program may cut a line short
                self.samples.append((clock, power, memory))

    def __exit__(self, *_) -> None:
        if self.on:
            self.child.kill()
            self.child.wait()
            self.reader.join()

    def figures(self) -> dict:
        """Returns the medians of the clock and the power over the half of the samples with the most
        power, when the GPU was busy, and the most memory that was in use (of all processes)."""
        if not self.samples:
            return {}
        busiest = sorted(self.samples, key=lambda sample: -sample[1])[: (len(self.samples) + 1) // 2]
        return {"sm_mhz": statistics.median(sample[0] for sample in busiest),
                "watts": statistics.median(sample[1] for sample in busiest),
                "used_mib": max(sample[2] for sample in self.samples)}


class Session:
    """One call of `run`: a folder made by `./dev gpu pack`, and the machine that it lies on."""

    def __init__(self, folder: Path, out: Path, dry: bool, start_at: str | None, limit: float):
        self.folder, self.out, self.dry, self.start_at, self.limit = folder, out, dry, start_at, limit
        self.manifest = json.loads((folder / "manifest.json").read_text())
        self.build = folder / "build"
        archive = folder / "data.tar.xz"
        self.data = self.build / f"data-{zlib.crc32(archive.read_bytes()):08x}"
        if not self.data.exists():
            # The folder gets its name when it is whole: a program that is killed leaves no part of it there.
            parts = self.data.with_name(f"{self.data.name}-{os.getpid()}")
            shutil.unpack_archive(archive, parts)
            parts.rename(self.data)
        os.environ["PATH"] += os.pathsep + "/usr/local/cuda/bin"
        # With a stand-in for the driver, lmc-run runs in a dry run too.
        self.has_driver = not dry or bool(os.environ.get("LMC_CUDA_DRIVER"))
        self.machine = self.facts()
        self.deadline = 0.0

    def facts(self) -> dict:
        nvcc = shutil.which("nvcc")
        release = re.search(r"release (\S+),", call([nvcc, "--version"]).out) if nvcc else None
        facts = {"nvcc": release[1] if release else None, "python": platform.python_version(),
                 "host": platform.platform(), "processors": os.cpu_count(),
                 "commit": self.manifest["commit"], "packed_for": self.manifest["arch"]}
        if self.dry:
            return {**dict.fromkeys(FACTS), **facts, "name": "none (dry run)"}
        if not shutil.which("nvidia-smi"):
            raise Stop("nvidia-smi is not on this machine, so there is no GPU to measure; "
                       "--dry-run goes through the sections without one")
        asked = call(["nvidia-smi", f"--query-gpu={','.join(FACTS)}", "--format=csv,noheader", f"--id={gpu()}"])
        if asked.code != 0:
            raise Stop(f"nvidia-smi fails: {asked.complaint()}")
        row = next(csv.reader([asked.out.splitlines()[0]], skipinitialspace=True))
        facts.update(zip(FACTS, row))
        packed = re.match(r"sm_(\d+)", self.manifest["arch"])[1]
        if facts["compute_cap"].replace(".", "") != packed:
            raise Stop(f"this folder is packed for {self.manifest['arch']}, and the {facts['name']} has "
                       f"compute capability {facts['compute_cap']}; pack again with --arch")
        if not nvcc:
            raise Stop("nvcc is neither on the PATH nor in /usr/local/cuda/bin")
        return facts

    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def clocks(self) -> Clocks:
        return Clocks(not self.dry)

    def compile(self, programs: dict[str, tuple[Path, list]], sample: int) -> dict[str, str]:
        """Compiles `programs` (name -> source, options) in parallel into self.build. Returns what the
        compiler said of those that failed. A dry run compiles the first `sample`, if there is nvcc."""
        self.build.mkdir(exist_ok=True)
        nvcc = shutil.which("nvcc")
        if self.dry:
            print(f"  DRY RUN: {min(sample, len(programs)) if nvcc else 0} of {len(programs)} programs "
                  f"are compiled" + ("" if nvcc else ", because nvcc is not on this machine"))
            programs = dict(list(programs.items())[:sample]) if nvcc else {}

        arch = self.manifest["arch"]
        # cuBLASLt is beside nvcc, where the loader may not look by itself.
        library = ["-lcublasLt", "-Xlinker", f"-rpath={Path(nvcc).resolve().parents[1]}/lib64"] if nvcc else []

        def one(name: str) -> str | None:
            source, options = programs[name]
            done = call([nvcc, *options, f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}", "-w",
                         "-I", self.data / "include", "-I", self.data / "src", source,
                         "-o", self.build / name, *(library if name == "gemm" else [])],
                        self.seconds_left() - MARGIN_S)
            return None if done.code == 0 else done.complaint()

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = dict(zip(programs, pool.map(one, programs)))
        return {name: why for name, why in results.items() if why}


class Report:
    """The rows of a section. Each ends in a JSON file and a table; a dry run has no figures."""

    def __init__(self, session: Session, section: str, columns: dict[str, str]):
        self.session, self.section, self.columns = session, section, columns
        self.rows: list[dict] = []
        self.failed: dict[str, str] = {}
        self.not_run: list[str] = []
        self.notes: list[str] = []
        self.began = time.monotonic()

    def items(self, names: list[str], seconds: float = 1):
        """Yields the names from --from on, as long as `seconds` are left; records the others."""
        names, start = list(names), self.session.start_at
        if start in names:
            names, self.session.start_at = names[names.index(start):], None
        elif start:
            return
        for at, name in enumerate(names):
            if self.session.seconds_left() < seconds + MARGIN_S:
                self.not_run += names[at:]
                return
            yield name

    def run(self, item: str, command: list, read, limit: float = 60, stdin: str = "",
            until=None) -> list[dict]:
        """Runs `command` on the GPU, and adds the rows that read(stdout) returns. A wrong exit code
        or output that `read` does not understand is a failure of the item."""
        if self.session.dry:
            self.rows.append({"item": item})
            return []
        with self.session.clocks() as clocks:
            done = call(command, min(limit, self.session.seconds_left() - MARGIN_S), stdin, until=until)
        try:
            rows = read(done.out)
        except (ValueError, KeyError, TypeError, IndexError, OSError) as error:
            rows = []
            if done.code == 0:
                self.fail(item, f"unexpected output: {error}")
        if done.code != 0:
            self.fail(item, done.complaint())
        for row in rows:
            self.add(**{"item": item, **row, **clocks.figures()})
        return rows

    def add(self, item: str, **figures) -> None:
        row = {"item": item, **figures}
        self.rows.append(row)
        print("  " + "  ".join(f"{show(row.get(key))}" for key in self.columns), flush=True)

    def fail(self, item: str, why: str) -> None:
        self.failed[item] = why
        print(f"  FAILED {item}: {why}", flush=True)

    def finish(self) -> bool:
        """Writes the files, and returns whether everything ran and was right."""
        if self.session.start_at:
            raise Stop(f"section {self.section} has no item '{self.session.start_at}' for --from")
        session, machine = self.session, self.session.machine
        now = datetime.datetime.now(datetime.timezone.utc)
        go_on = f"./run {self.section} --from='{self.not_run[0]}'" if self.not_run else None
        facts = {"section": self.section, "dry_run": session.dry, "date": now.isoformat(timespec="seconds"),
                 "seconds": round(time.monotonic() - self.began, 1), "machine": machine,
                 "failed": self.failed, "not_run": self.not_run, "go_on": go_on, "notes": self.notes,
                 "rows": self.rows, "expected": bets.plain(bets.compare(session, self.section, self.rows))}
        device = re.sub("[^a-z0-9]+", "-", (machine["name"] or "").lower()).strip("-")
        name = (f"dry-run-{self.section}" if session.dry
                else f"gpu-{self.section}-{device}-{now:%Y-%m-%d-%H%M%S}")
        session.out.mkdir(parents=True, exist_ok=True)
        (session.out / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")
        (session.out / f"{name}.md").write_text(self.markdown(facts))
        for item in self.not_run:
            print(f"  NOT RUN {item}")
        if go_on:
            print(f"  out of time; go on with: {go_on}")
        print(f"  -> {session.out / name}.md", flush=True)
        return not self.failed and not self.not_run

    def markdown(self, facts: dict) -> str:
        machine = facts["machine"]
        lines = [f"# {self.section}" + (": DRY RUN, nothing was measured" if facts["dry_run"] else ""), "",
                 f"{machine['name']}, driver {machine['driver_version']}, nvcc {machine['nvcc']}, "
                 f"power cap {machine['power.limit']}, SM clock at most {machine['clocks.max.sm']}; "
                 f"{facts['date']}; lmc {machine['commit']}, packed for {machine['packed_for']}.", ""]
        if facts["failed"]:
            lines += ["Failed:", "", *(f"* {item}: {why}" for item, why in facts["failed"].items()), ""]
        if facts["not_run"]:
            lines += [f"Not run, for lack of time: {', '.join(facts['not_run'])}. "
                      f"Go on with `{facts['go_on']}`.", ""]
        lines += [*(f"* {note}" for note in facts["notes"]), ""] if facts["notes"] else []
        if self.rows:
            lines += ["| " + " | ".join(self.columns.values()) + " |", "|---" * len(self.columns) + "|"]
        for row in self.rows:
            cells = (("dry run" if facts["dry_run"] and key != "item" else "") if row.get(key) is None
                     else show(row[key]) for key in self.columns)
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines + bets.section_markdown(facts["expected"])) + "\n"


def show(value) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:.4g}" if isinstance(value, float) and abs(value) < 1e4 else (
        f"{value:.0f}" if isinstance(value, float) else str(value))


def json_lines(text: str) -> list[dict]:
    """Returns the lines that are JSON objects; at least one must be there."""
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if not rows:
        raise ValueError("no line of JSON")
    return rows
