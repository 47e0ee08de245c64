#!/usr/bin/env python3
"""The tests that a change asks for: changed.py BUILD [COMMIT].

Compares the working tree with COMMIT (default: origin/main, or where there is none, HEAD) and prints a
line per suite for `./dev test changed`:

    gtest NUMBERS   for ctest -I
    lit REGEX       for lit --filter
    parity FILE...

* gtest: of the programs that have an object of a changed file (or of a file that includes one), all
  tests but those of slow.txt; of the folders that mirror the changed ones also slow tests that took at
  most 5 s when they last ran.
* lit: all tests but those of slow.txt, where a program or a lit test changed; and each changed test.
* parity: the files that of-folders.txt names for the changed folders.

What is left out is said on stderr.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 5  # seconds of a slow test that is run all the same


def lines_of(*command: str, cwd: Path = ROOT) -> list[str]:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout.splitlines()


def changed_files(commit: str) -> list[str]:
    new = lines_of("git", "ls-files", "--others", "--exclude-standard")
    return sorted({*lines_of("git", "diff", "--name-only", commit), *new})


def patterns(file: str, kind: str) -> list[str]:
    rows = [row.split(None, 1) for row in (ROOT / "test" / file).read_text().splitlines()
            if row and not row.startswith("#")]
    return [value.strip() for key, value in rows if key == kind]


def programs_with(build: Path, files: list[str], programs: set[str]) -> set[str]:
    """Those of `programs` that are made of a changed file, or of an object that includes one."""
    wanted = {str(ROOT / file) for file in files}
    touched, output = set(wanted), None
    for line in lines_of("ninja", "-t", "deps", cwd=build):
        if line and not line[0].isspace():
            output = line.split(":", 1)[0]
        elif os.path.normpath(build / line.strip()) in wanted:
            touched.add(output)
    found = set()
    for program in programs:
        inputs = lines_of("ninja", "-t", "inputs", os.path.relpath(program, build), cwd=build)
        if touched & {*inputs, *(os.path.normpath(build / i) for i in inputs)}:
            found.add(program)
    return found


def gtests(build: Path, files: list[str]) -> tuple[list[int], int]:
    """The numbers of the tests to run, and how many of the same programs are left out."""
    tests = {test["name"]: test.get("command", [""])[0]
             for test in json.loads("\n".join(lines_of("ctest", "--show-only=json-v1", cwd=build)))["tests"]}
    programs = programs_with(build, files, set(tests.values()))
    suites = set()
    for file in files:
        folder = Path(file).parent
        mirror = folder if folder.parts[:1] == ("test",) else Path("test") / folder
        for source in (ROOT / mirror).glob("*Test.cpp"):
            suites |= set(re.findall(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),", source.read_text(), re.M))
    costs = {}
    known = build / "Testing/Temporary/CTestCostData.txt"
    for line in known.read_text().split("---")[0].splitlines() if known.exists() else []:
        name, _, seconds = line.rsplit(" ", 2)
        costs[name] = float(seconds)
    slow = re.compile("|".join(patterns("slow.txt", "gtest")))
    of_changed = re.compile(r"(^|/)(%s)\." % "|".join(suites)) if suites else None
    mine = [(number, name) for number, (name, program) in enumerate(tests.items(), 1) if program in programs]
    chosen = [number for number, name in mine if not slow.search(name) or
              of_changed and of_changed.search(name) and costs.get(name, LONGEST + 1) <= LONGEST]
    return chosen, len(mine) - len(chosen)


def main() -> None:
    build = Path(sys.argv[1]).resolve()
    commit = sys.argv[2] if len(sys.argv) > 2 else ""
    if not commit:
        has_origin = subprocess.run(["git", "rev-parse", "-q", "--verify", "origin/main"], cwd=ROOT,
                                    capture_output=True).returncode == 0
        commit = "origin/main" if has_origin else "HEAD"
    files = changed_files(commit)
    note = lambda text: print(f"dev: {text}", file=sys.stderr)
    note(f"{len(files)} files differ from {commit}")

    numbers, left = gtests(build, files)
    if numbers:
        print("gtest 0,0,0," + ",".join(map(str, numbers)))
    note(f"gtest: {len(numbers)} tests; left out of the same programs: {left} slow ones (./dev test gtest runs all)")

    slow = patterns("slow.txt", "lit")
    own = [re.escape(file[len("test/"):]) for file in files if re.search(r"^test/.*\.(test|mlir)$", file) and (ROOT / file).exists()]
    code = [file for file in files if re.match(r"(compiler|passes|dialects|models|tools|runtime|test/.*Inputs)/", file)]
    if own or code:
        rest = [r"^(?!.*(%s))" % "|".join(slow)] if code else []
        print("lit", "|".join(own + rest))
    note("lit: " + (f"all but {', '.join(slow)}" if code else f"{len(own)} changed tests") +
         " (./dev test lit runs all)")

    parity = sorted({file for folder, *of in map(str.split, open(ROOT / "test/parity/of-folders.txt"))
                     if folder != "#" and any(f.startswith(folder) for f in files) for file in of} |
                    {Path(f).name for f in files if re.match(r"test/parity/test_\w+\.py$", f)})
    if parity:
        print("parity", *parity)
    count = len(list((ROOT / "test/parity").glob("test_*.py")))
    note(f"parity: {', '.join(parity) or 'nothing'}; {count - len(parity)} files left out (./dev test parity runs all)")


if __name__ == "__main__":
    main()
