"""Pages of commands: runs what a page tells its reader to do, and compares what is printed with what the page shows.

Blocks of a page, by the first word behind the fence: `sh` is run, and `text` right behind it shows lines of its output, in
their order, among others; `toml` and `python` are files, whose first line is a comment with their name. `sh not run: REASON`
needs what the machine of a test does not have.
"""

import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"sh not run: (.+)")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")
TOLERANCE = 0.05  # of a number that the page shows; losses differ in their last digits between machines
PROGRAMS = ("lmc", "lmc-run", "lmc-data")


@dataclass
class Block:
    page: str
    line: int
    kind: str  # what stands behind the fence
    text: str


@dataclass
class Ran:
    command: str
    shown: str  # of its output, by the page
    output: str


def blocks(root: Path, page: str) -> list[Block]:
    text = (root / page).read_text()
    return [Block(page, text.count("\n", 0, match.start()) + 1, *match.groups()) for match in BLOCK.finditer(text)]


def agrees(shown: str, line: str) -> bool:
    """Whether a line is the one that the page shows: '...' stands for any text, a run of spaces for any other, and
    numbers agree within TOLERANCE."""
    number = f"({NUMBER.pattern})"
    parts = [number.join(re.escape(text) for text in NUMBER.split(part)) for part in shown.split("...")]
    pattern = re.sub(r"(?:\\ )+", r"\\s+", ".*".join(parts))
    found = re.fullmatch(pattern, line)
    expected = [value for part in shown.split("...") for value in NUMBER.findall(part)]
    return found is not None and all(
        math.isclose(float(a), float(b), rel_tol=TOLERANCE) for a, b in zip(expected, found.groups(), strict=True))


def missing(shown: str, output: str) -> list[str]:
    """The lines of `shown` that the output does not have, in this order, among others."""
    lines = iter(output.splitlines())
    return [each for each in shown.splitlines() if not any(agrees(each, line) for line in lines)]


def follow(root: Path, page: str, folder: Path, programs) -> list[Ran]:
    """Does in `folder` what the page says."""
    path = f"{programs.build / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = []
    found = blocks(root, page)
    for block, following in zip(found, [*found[1:], Block(page, 0, "", "")]):
        place = f"{page}:{block.line}"
        if block.kind == "sh":
            done = subprocess.run(["bash", "-e", "-c", block.text], cwd=folder, env={**os.environ, "PATH": path}, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
            assert done.returncode == 0, f"{place}: {block.text}{done.stdout}"
            ran.append(Ran(block.text, following.text if following.kind == "text" else "", done.stdout))
        elif block.kind in ("toml", "python"):
            (folder / re.match(r"# (\S+)\n", block.text).group(1)).write_text(block.text)
        else:
            assert block.kind in ("text", "json") or NOT_RUN.fullmatch(block.kind), f"{place}: a block of '{block.kind}' is neither a command nor a file"
    return ran


def unknown_options(text: str, programs) -> list[str]:
    """Options of lmc's programs in shell commands that their help does not have."""
    unknown = []
    for line in text.replace("\\\n", " ").splitlines():
        for program, arguments in re.findall(rf"(?:^|[\s;&|(])({'|'.join(PROGRAMS)}) ([^;&|]*)", line):
            command = re.match(r"[a-z]+ ", arguments) if program != "lmc-run" else None
            known = programs.run(program, *([command.group().strip()] if command else []), "--help").ok().stdout
            unknown += [f"{program} {option}" for option in re.findall(r"(?<!\S)(--[a-z][a-z-]*)", arguments)
                        if not re.search(rf"(?<![\w-]){option}(?![\w-])", known)]
    return unknown
