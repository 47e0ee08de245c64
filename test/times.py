#!/usr/bin/env python3
"""Where the time of `./dev test` went: times.py BUILD SINCE.

BUILD/times.tsv has a line per suite: name, processor seconds (user and system), seconds of wall
clock. SINCE is the second, since 1970, at which the run began: of the build only later steps are
listed. Prints the suites, and the ten slowest tests and build steps by wall clock. BUILD/times.json
keeps all of it.
"""

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

MOST = 10


def build_steps(build: Path, since: float) -> dict[str, float]:
    """Output -> seconds, of the steps that ended after `since`."""
    steps = {}
    log = build / ".ninja_log"
    for line in log.read_text().splitlines() if log.exists() else []:
        fields = line.split("\t")
        if len(fields) == 5 and int(fields[2]) / 1e9 >= since:
            steps[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return steps


def gtests(log: Path) -> dict[str, float]:
    text = log.read_text(errors="replace") if log.exists() else ""
    found = re.findall(r"^\d+/\d+ Testing: (\S+).*?^Test time = +([\d.]+) sec", text, re.S | re.M)
    return {name: float(seconds) for name, seconds in found}


def junit(file: Path) -> dict[str, float]:
    """Of lit and of pytest, which both write JUnit's format."""
    if not file.exists():
        return {}
    cases = ElementTree.parse(file).getroot().iter("testcase")
    return {f"{case.get('classname')}/{case.get('name')}": float(case.get("time") or 0) for case in cases}


def main() -> None:
    build, since = Path(sys.argv[1]), float(sys.argv[2])
    suites = [line.split("\t") for line in (build / "times.tsv").read_text().splitlines()]
    tests = {}
    for file, read in (("Testing/Temporary/LastTest.log", gtests), ("lit.xml", junit), ("parity.xml", junit),
                       ("parity-alone.xml", junit)):
        if (build / file).exists() and (build / file).stat().st_mtime >= since:
            tests |= read(build / file)
    steps = build_steps(build, since)
    print(f"\n{'suite':<14}{'processor s':>12}{'wall s':>10}")
    for name, processor, wall in suites:
        print(f"{name:<14}{float(processor):>12.0f}{float(wall):>10.0f}")
    print(f"{'all':<14}{sum(float(s[1]) for s in suites):>12.0f}{sum(float(s[2]) for s in suites):>10.0f}")
    for title, times in (("tests", tests), ("build steps", steps)):
        if times:
            print(f"\nslowest of {len(times)} {title}, wall s")
        for name in sorted(times, key=times.get, reverse=True)[:MOST]:
            print(f"{times[name]:>8.1f}  {name}")
    (build / "times.json").write_text(json.dumps(
        {"suites": {s[0]: {"processor_seconds": float(s[1]), "wall_seconds": float(s[2])} for s in suites},
         "tests": tests, "build_steps": steps}, indent=1))


if __name__ == "__main__":
    main()
