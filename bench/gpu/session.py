"""What the sections of `run` share: the machine, child processes, programs and reports.

Only Python's standard library, of 3.9 or later: this file runs on machines where nothing can be installed.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import csv
import datetime
import json
import lzma
import os
import platform
import re
import shutil
import signal
import site
import subprocess
import tempfile
import time
import traceback
import zlib
from pathlib import Path

import bets
import failures
from power import Clocks, clocks_of, gpu

FACTS = ("name", "driver_version", "compute_cap", "memory.total", "power.limit", "clocks.max.sm",
         "clocks.max.memory")
MARGIN_S = 5  # a section stops this long before its limit, to write its report


class Stop(Exception):
    """Ends the program with one line on stderr."""


class Ended(BaseException):
    """A signal asks this program to end."""


class Finished:
    """A command that has ended: what was called, and what came of it."""

    def __init__(self, command: list, code: int, out: str, err: str, seconds: float, timed_out: bool,
                 variables: dict | None = None, stdin: str = "", limit: float = 0):
        self.command = [str(part) for part in command]
        self.code, self.out, self.err, self.seconds = code, out, err, seconds
        self.timed_out, self.variables, self.stdin, self.limit = timed_out, variables or {}, stdin, limit

    def complaint(self) -> str:
        """Returns why a command that failed did so, in one line."""
        if self.timed_out:
            return f"not done after {self.seconds:.0f} s"
        lines = [[line for line in text.splitlines() if line.strip()] for text in (self.err, self.out)]
        marked = [[line for line in each if re.search("error|not |wrong|FAIL", line, re.I)] for each in lines]
        chosen = marked[0] or marked[1] or lines[1] or lines[0]
        return failures.ending(self.code) + (f": {chosen[-1].strip()[:200]}" if chosen else "")


def call(command: list, limit: float = 60, stdin: str = "", env: dict | None = None, until=None) -> Finished:
    """Runs `command` for at most `limit` seconds, then ends it with all that it started. If until() becomes
    true, the command has done what it is for; it is ended, and its exit code is 0. A command that cannot be
    started has exit code 127."""
    began = time.monotonic()
    variables = {**os.environ, **(env or {})}
    limit = max(1, limit)

    def finished(code: int, out: str, err: str, timed_out: bool) -> Finished:
        return Finished(command, code, out, err, time.monotonic() - began, timed_out, failures.variables(variables),
                        stdin, limit)

    try:
        child = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True, env=variables,
        )
    except OSError as error:
        return finished(127, "", f"error: {command[0]} cannot be started: {error.strerror}", False)
    enough = timed_out = False
    try:
        while True:
            try:
                out, err = child.communicate(stdin, timeout=0.1 if until else limit)
                break
            except subprocess.TimeoutExpired:
                enough = bool(until and until())
                timed_out = not enough and time.monotonic() - began > limit
                if enough or timed_out:
                    end(child)
                    out, err = child.communicate()
                    break
    except BaseException:  # nothing goes on when this program ends
        end(child)
        raise
    return finished(0 if enough else child.returncode, out, err, timed_out)


def end(child: subprocess.Popen) -> None:
    """Ends a process with all that it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended by itself just now


def on_one_gpu(ranks: int) -> list[str]:
    """Returns the options of lmc-run for ranks that share a GPU, which NCCL does not let them do."""
    return [f"--nproc={ranks}", "--collectives=host"] if ranks > 1 else []


def package_library(folder: str, name: str) -> str | None:
    """Returns a library that is in a Python package, as PyTorch brings NVIDIA's."""
    for packages in (*site.getsitepackages(), site.getusersitepackages()):
        for path in sorted(Path(packages).glob(f"nvidia/{folder}/lib/{name}")):
            return str(path)
    return None


class Session:
    """One call of `run`: a folder made by `./dev gpu pack`, and the machine that it lies on."""

    def __init__(self, folder: Path, out: Path, dry: bool, start_at: str | None, only: str | None = None):
        self.folder, self.out, self.dry, self.start_at, self.only = folder, out, dry, start_at, only
        self.manifest = json.loads((folder / "manifest.json").read_text())
        self.build = folder / "build"
        self.report: Report | None = None  # the one of the section that runs
        self.printed: set[str] = set()  # what is printed once
        self.part = ""  # the item of `next` that runs, "06-steps"
        self.losses: dict[str, float] = {}  # what the section `steps` found, in all its parts
        self.found = not only  # --only has found an item
        self.deadline = 0.0
        self.data = self.unpacked()
        os.environ["PATH"] += os.pathsep + "/usr/local/cuda/bin"
        self.nvcc = shutil.which("nvcc")
        self.lmc_run = folder / "bin/lmc-run"
        # With a stand-in for the driver, lmc-run runs in a dry run too.
        self.has_driver = not dry or bool(os.environ.get("LMC_CUDA_DRIVER"))
        self.devices = call([self.lmc_run, "--devices", "--json"], 30) if self.has_driver else None
        self.machine = self.facts()
        self.arch = self.chosen_arch()

    def unpacked(self) -> Path:
        """Unpacks the large libraries and the data once, and returns the folder of the data."""
        for archive in sorted(self.folder.glob("lib/*.xz")):
            library = archive.with_suffix("")
            if not library.exists():
                # A file gets its name when it is whole: a program that is killed leaves no part of it there.
                part = library.with_name(f"{library.name}-{os.getpid()}")
                with lzma.open(archive) as packed, open(part, "wb") as file:
                    shutil.copyfileobj(packed, file)
                part.rename(library)
        archive = self.folder / "data.tar.xz"
        data = self.build / f"data-{zlib.crc32(archive.read_bytes()):08x}"
        if not data.exists():
            parts = data.with_name(f"{data.name}-{os.getpid()}")
            try:
                shutil.unpack_archive(archive, parts)
            except (shutil.ReadError, EOFError, lzma.LZMAError) as error:
                raise Stop(f"{archive} is damaged: {error}; bring the folder here again")
            parts.rename(data)
        return data

    def facts(self) -> dict:
        """Returns what is known of the machine. nvidia-smi and lmc-run each know a part; one of them is enough."""
        release = re.search(r"release (\S+),", call([self.nvcc, "--version"]).out) if self.nvcc else None
        facts = {**dict.fromkeys(FACTS), "nvcc": release[1] if release else None,
                 "python": platform.python_version(), "host": platform.platform(), "processors": os.cpu_count(),
                 "commit": self.manifest["commit"], "packed_for": self.manifest["arch"]}
        found = devices_of(self.devices)
        if found:
            first = found["devices"][0]
            facts.update(name=first["name"], compute_cap=first["compute_capability"],
                         driver_version=f"for CUDA {found['cuda_driver']}",
                         **{"memory.total": f"{first['memory_bytes'] >> 20} MiB"})
        if self.dry:
            return {**facts, "name": "none (dry run)"}
        asked = call(["nvidia-smi", f"--query-gpu={','.join(FACTS)}", "--format=csv,noheader", f"--id={gpu()}"])
        if asked.code == 0 and asked.out.strip():
            row = next(csv.reader([asked.out.splitlines()[0]], skipinitialspace=True))
            facts.update(zip(FACTS, row))
        elif not found:
            raise Stop(f"there is no GPU to measure: {self.devices.complaint()}; nvidia-smi: {asked.complaint()}; "
                       "--dry-run goes through the sections without one")
        else:
            self.print_once(f"nvidia-smi does not run, so clocks and power are not measured: {asked.complaint()}")
        return facts

    def capability(self) -> tuple[int, int] | None:
        """Returns the device's compute capability, (9, 0); None if there is no device."""
        number = re.fullmatch(r"(\d+)\.(\d+)", self.machine["compute_cap"] or "")
        return (int(number[1]), int(number[2])) if number else None

    def chosen_arch(self) -> str | None:
        """Returns the architecture whose plans run on the device, None if none was packed. Without a device that
        is the one that the folder was packed for."""
        packed, here = [self.manifest["arch"], *self.manifest.get("others", [])], self.capability()
        if here is None:
            return packed[0]
        if here < (8, 0):
            raise Stop(f"the {self.machine['name']} has compute capability {here[0]}.{here[1]}, and lmc needs 8.0 "
                       "or later")
        fitting = [arch for arch in packed if runs_on(arch, *here)]
        return max(fitting, key=number_of, default=None)

    def why_not(self, everything: bool) -> str | None:
        """Returns why a section cannot run on this device, None if it can. Only what was packed for the
        architecture of --arch has `everything`; for the others there are the plans of smoke and conformance."""
        main, name, here = self.manifest["arch"], self.machine["name"], self.machine["compute_cap"]
        if self.arch is None:
            return (f"the folder has no plans for the {name} (compute capability {here}), only for "
                    f"{', '.join([main, *self.manifest.get('others', [])])}; pack again with --arch")
        if everything and self.arch != main:
            return f"it is packed for {main}, and the {name} has compute capability {here}; pack again with --arch"
        return None

    def print_once(self, line: str) -> None:
        if line not in self.printed:
            self.printed.add(line)
            print(f"  {line}", flush=True)

    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def clocks(self) -> Clocks:
        return clocks_of(not self.dry, self.print_once)

    def write(self, name: str, text: str) -> Path | None:
        """Writes a file of the results at once: a program that is killed leaves the one before. If the folder
        cannot be written now, the file goes to another one, and the next tries the folder again."""
        spare = Path(tempfile.gettempdir()) / f"lmc-gpu-results-{os.getpid()}"
        for folder in (self.out, spare):
            path = folder / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(f"{path.name}.part-{os.getpid()}")
                part.write_text(text)
                part.replace(path)
                return path
            except OSError as error:
                self.print_once(f"cannot write {path}: {error.strerror or error}")
        return None

    def program(self, name: str) -> Path:
        """Returns the program that was packed, else the one that compile() made."""
        packed = self.data / "programs" / name
        return packed if packed.exists() and self.arch == self.manifest["arch"] else self.build / name

    def compile(self, programs: dict[str, tuple[Path, list]], sample: int) -> dict[str, str]:
        """Compiles those of `programs` (name -> source, options) that were not packed, in parallel into
        self.build. Returns why those that are not there are not, and fails those that do not compile in the
        report. A dry run compiles the first `sample`, if there is nvcc, and misses none of the others."""
        report = self.report
        self.build.mkdir(exist_ok=True)
        if self.dry:
            print(f"  DRY RUN: {min(sample, len(programs)) if self.nvcc else 0} of {len(programs)} programs "
                  f"are compiled" + ("" if self.nvcc else ", because nvcc is not on this machine"))
            wanted = dict(list(programs.items())[:sample]) if self.nvcc else {}
        else:
            wanted = {name: how for name, how in programs.items() if self.program(name).parent == self.build}
            if wanted and not self.nvcc:
                reason = "it is not packed as a program, and nvcc is neither on the PATH nor in /usr/local/cuda/bin"
                return dict.fromkeys(wanted, reason)

        arch = self.manifest["arch"]
        if self.arch != arch and self.capability():
            arch = "sm_{}{}".format(*self.capability())

        def one(name: str) -> Finished:
            return call(nvcc_command(self.nvcc, arch, self.data, *wanted[name], self.build / name),
                        self.seconds_left() - MARGIN_S)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = dict(zip(wanted, pool.map(one, wanted)))
        broken = {}
        for name, done in results.items():
            if done.code != 0:
                broken[name] = f"does not compile: {done.complaint()}"
                report.fail(name, broken[name], done, source=wanted[name][0])
        return broken


def nvcc_command(nvcc: str, arch: str, data: Path, source: Path, options: list, to: Path) -> list:
    return [nvcc, *options, f"-DLMC_WARPGROUPS={int(arch == 'sm_90a')}",
            f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}", "-w",
            "-I", data / "include", "-I", data / "src", source, "-o", to]


def number_of(arch: str) -> tuple[int, bool]:
    """Returns what orders architectures: (90, True) for sm_90a."""
    found = re.match(r"sm_(\d+)(a?)", arch)
    return int(found[1]), bool(found[2])


def runs_on(arch: str, major: int, minor: int) -> bool:
    """Returns true if code for `arch` runs on compute capability major.minor: code for sm_90a on 9.0 only, code
    for sm_80 on every 8.x (runsOn in runtime/device/cuda/Gpu.cpp)."""
    number, exact = number_of(arch)
    return number == major * 10 + minor if exact else number // 10 == major and number % 10 <= minor


def devices_of(done: Finished | None) -> dict | None:
    """Returns what `lmc-run --devices --json` printed, None if it names no device."""
    try:
        found = json.loads(done.out) if done else {}
    except ValueError:
        return None
    return found if found.get("devices") else None


class Report:
    """The rows of a section. Each ends in a JSON file and a table; a dry run has no figures. The files are
    written again after each row, so that a program that is killed leaves what it had."""

    def __init__(self, session: Session, section: str, columns: dict[str, str]):
        self.session, self.section, self.columns = session, section, columns
        self.rows: list[dict] = []
        self.failed: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self.not_run: list[str] = []
        self.left_out: list[str] = []  # by --only
        self.pending: list[str] = []  # the items that are still to come, and the one that runs
        self.notes: list[str] = []
        self.began, self.done, self.path = time.monotonic(), False, None
        self.date = datetime.datetime.now(datetime.timezone.utc)
        session.report = self
        self.write()

    def items(self, names: list[str], seconds: float = 1):
        """Yields the names from --from on that --only finds, as long as `seconds` are left; records the others."""
        names, start = list(names), self.session.start_at
        if start in names:
            names, self.session.start_at = names[names.index(start):], None
        elif start:
            return
        if only := self.session.only:
            self.left_out += [name for name in names if not re.search(only, name)]
            names = [name for name in names if re.search(only, name)]
            self.session.found = self.session.found or bool(names)
        for at, name in enumerate(names):
            if self.session.seconds_left() < seconds + MARGIN_S:
                self.not_run += names[at:]
                break
            self.pending = names[at:]
            self.write()
            yield name
        self.pending = []

    @contextlib.contextmanager
    def guard(self, item: str):
        """Whatever the `with` block raises is a failure of the item."""
        try:
            yield
        except (Exception, SystemExit) as error:
            if isinstance(error, Stop):
                raise
            self.fail(item, f"{type(error).__name__}: {error}", trace=traceback.format_exc())

    def run(self, item: str, command: list, read, limit: float = 60, stdin: str = "",
            until=None, env: dict | None = None, source: Path | None = None) -> list[dict]:
        """Runs `command` on the GPU, and adds the rows that read(stdout) returns. A wrong exit code
        or output that `read` does not understand is a failure of the item."""
        if self.session.dry:
            self.gone_through(item)
            return []
        with self.session.clocks() as clocks:
            done = call(command, min(limit, self.session.seconds_left() - MARGIN_S), stdin, env, until)
        try:
            rows = read(done.out)
        except (ValueError, KeyError, TypeError, IndexError, OSError) as error:
            rows = []
            if done.code == 0:
                self.fail(item, f"unexpected output: {error}", done, source)
        if done.code != 0:
            self.fail(item, done.complaint(), done, source)
        busy, groups = clocks.figures(), clocks.groups(done.out)
        if len(groups) < len(rows):
            groups = [{} for _ in rows]
        for row, own in zip(rows, groups):
            self.add(**{"item": item, **row, **busy, **own})
        return rows

    def add(self, item: str, **figures) -> None:
        row = {"item": item, **figures}
        self.rows.append(row)
        print("  " + "  ".join(f"{show(row.get(key))}" for key in self.columns), flush=True)
        self.write()

    def gone_through(self, item: str) -> None:
        """Adds the row of an item that a dry run has no figures for."""
        self.rows.append({"item": item})
        self.write()

    def skip(self, item: str, why: str) -> None:
        """Says why an item cannot run on this machine, which is no failure."""
        self.skipped[item] = why
        print(f"  skipped {item}: {why}", flush=True)
        self.write()

    def fail(self, item: str, why: str, done: Finished | None = None, source: Path | str | None = None,
             **more) -> None:
        """Records a failure, and writes failures/SECTION-ITEM.json with all that is known of it: the command that
        was `done`, the text or the file of a kernel's `source`, and whatever `more` there is."""
        self.failed[item] = why
        print(f"  FAILED {item}: {why}", flush=True)
        self.write()
        facts = {"section": self.section, "item": item, "why": why, "dry_run": self.session.dry,
                 "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                 "machine": self.session.machine, **more}
        if done:
            facts.update(failures.facts_of(done))
        if isinstance(source, Path):
            facts["kernel"] = source.stem
        try:
            facts["source"] = source.read_text() if isinstance(source, Path) else source
        except OSError as error:
            facts["source"] = f"not read: {error}"
        if done and (again := self.again(done)):
            facts["again"] = failures.facts_of(again)
        if self.session.devices:
            facts["devices"] = self.session.devices.out
        facts["device"] = failures.device(call, gpu())
        self.session.write(f"failures/{self.section}-{re.sub('[^A-Za-z0-9._-]+', '-', item).strip('-')[:150]}.json",
                           failures.fit(facts))

    def again(self, done: Finished) -> Finished | None:
        """Runs lmc-run on a plan that failed once more, so that its error names the op: command by command, in a
        folder of its own. Returns None if that is not the case, or there is no time."""
        left = min(60, self.session.seconds_left() - MARGIN_S)
        compares = any(part.startswith("--compare-commands") for part in done.command)  # command by command
        if (done.command[0] != str(self.session.lmc_run) or "--devices" in done.command or compares or
                done.timed_out or done.code in (0, 127) or left < 5):
            return None
        extra = [option for option in ("--check-commands", "--no-cuda-graphs") if option not in done.command]
        with tempfile.TemporaryDirectory(prefix="lmc-gpu-again") as folder:
            command = [part for part in done.command if not part.startswith("--out=")]
            return call([*command, *extra, f"--out={folder}/run"], left, done.stdin,
                        {**done.variables, "CUDA_LAUNCH_BLOCKING": "1"})

    def facts(self) -> dict:
        session = self.session
        not_run = self.not_run + [name for name in self.pending if name not in self.not_run]
        return {"section": self.section, "dry_run": session.dry, "finished": self.done,
                "date": self.date.isoformat(timespec="seconds"), "seconds": round(time.monotonic() - self.began, 1),
                "machine": session.machine, "failed": self.failed, "skipped": self.skipped, "not_run": not_run,
                "left_out": self.left_out,
                "go_on": f"./run {self.section} --from='{not_run[0]}'" if not_run else None, "notes": self.notes,
                "rows": self.rows,
                "expected": bets.plain(bets.compare(session, self.section, self.rows)) if self.done else []}

    def write(self) -> None:
        """Writes the JSON file and the table."""
        session, facts = self.session, self.facts()
        device = re.sub("[^a-z0-9]+", "-", (session.machine["name"] or "").lower()).strip("-")
        name = (f"dry-run-{session.part or self.section}" if session.dry
                else f"gpu-{self.section}-{device}-{self.date:%Y-%m-%d-%H%M%S}")
        session.write(f"{name}.json", json.dumps(facts, indent=1) + "\n")
        self.path = session.write(f"{name}.md", self.markdown(facts))

    def finish(self) -> bool:
        """Writes the files, and returns whether everything ran and was right."""
        if self.session.start_at:
            raise Stop(f"section {self.section} has no item '{self.session.start_at}' for --from")
        self.not_run += [name for name in self.pending if name not in self.not_run]
        self.done, self.pending, self.seconds = True, [], time.monotonic() - self.began
        self.write()
        for item in self.not_run:
            print(f"  NOT RUN {item}")
        if self.not_run:
            print(f"  out of time; go on with: {self.facts()['go_on']}")
        print(f"  -> {self.path}", flush=True)
        return not self.failed and not self.not_run

    def summary(self) -> str:
        """Returns the line of this section in the summary of all."""
        counts = [f"{what} {len(items)}" for what, items in (
            ("failed", self.failed), ("not run", self.not_run), ("skipped", self.skipped),
            ("left out", self.left_out)) if items]
        if not self.failed and not self.not_run:
            counts.insert(0, "ok")
        return f"  {self.section:12} {self.seconds:7.1f} s  {', '.join(counts)}"

    def markdown(self, facts: dict) -> str:
        machine = facts["machine"]
        lines = [f"# {self.section}" + (": DRY RUN, nothing was measured" if facts["dry_run"] else ""), "",
                 f"{machine['name']}, driver {machine['driver_version']}, nvcc {machine['nvcc']}, "
                 f"power cap {machine['power.limit']}, SM clock at most {machine['clocks.max.sm']}; "
                 f"{facts['date']}; lmc {machine['commit']}, packed for {machine['packed_for']}.", ""]
        if not facts["finished"]:
            lines += ["The section has not ended.", ""]
        if facts["failed"]:
            lines += ["Failed:", "", *(f"* {item}: {why}" for item, why in facts["failed"].items()), ""]
        if facts["not_run"]:
            lines += [f"Not run, for lack of time: {', '.join(facts['not_run'])}. "
                      f"Go on with `{facts['go_on']}`.", ""]
        if facts["left_out"]:
            lines += [f"Left out by `--only='{self.session.only}'`: {', '.join(facts['left_out'])}.", ""]
        reasons = {}
        for item, why in facts["skipped"].items():
            reasons.setdefault(why, []).append(item)
        if reasons:
            lines += ["Skipped:", "", *(f"* {', '.join(items)}: {why}" for why, items in reasons.items()), ""]
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
