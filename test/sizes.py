"""Holds each room to a number of lines, each folder to a number of files, and bench/results to one JSON file of
each bench, section and device: sizes.py [LIST].

LIST has a line "ROOM LINES" for each, and "files N" for the folders of all rooms. A room that grows
beyond it is either tidied, or the limit is raised in a commit that says why. Generated tables (*.inc)
do not count. Exit code 1 if something is too large.
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIST = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "test/sizes.txt"
limits = dict(row.split() for row in LIST.read_text().splitlines() if row and not row.startswith("#"))
most = int(limits.pop("files"))
faults, folders = [], collections.Counter()
for room, limit in limits.items():
    files = [path for path in (ROOT / room).rglob("*") if path.is_file() and path.suffix not in (".inc", ".pyc")]
    folders.update(path.parent for path in files)
    if (lines := sum(path.read_bytes().count(b"\n") for path in files)) > int(limit) or not files:
        faults.append(f"{room}: {lines} lines, at most {limit}")
faults += [f"{folder.relative_to(ROOT)}: {count} files, at most {most}" for folder, count in folders.items() if count > most]
results = collections.Counter(re.sub(r"-20\d\d-.*", "", path.stem) for path in (ROOT / "bench/results").glob("*.json"))
older = [f"bench/results: {count} JSON files of {name}: keep the newest" for name, count in results.items() if count > 1]
for fault in faults:
    print(f"{fault}: take some out, or raise test/sizes.txt in a commit that says why")
for line in older:
    print(line)
sys.exit(1 if faults or older else 0)
