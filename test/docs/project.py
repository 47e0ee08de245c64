"""Checks CHANGELOG.md and CONTRIBUTING.md.

    project.py ROOT [FOLDER]      FOLDER has the two files; without it, ROOT

* Each is shorter than 80 lines.
* The changelog begins with "## Unreleased"; the other sections are versions, the newest first, and none is newer than that
  of CMakeLists.txt. The days below a section are dates, the newest first, each with at least one change.
* Each command `./dev NAME` of both is one that `./dev` lists.

Prints each fault as FILE:LINE: error: ...; exit code 1 where there is one.
"""
import datetime
import pathlib
import re
import subprocess
import sys

LONGEST = 80


def version(text):
    return tuple(map(int, text.split(".")))


def changelog_faults(lines, newest):
    sections, day, changes = [], None, 1
    for number, line in enumerate([*lines, "## "], 1):
        if line.startswith("#"):
            if not changes:
                yield number - 1, "a day without a change"
            changes = 1
        if line.startswith("## "):
            name, day = line[3:], None
            if sections and name and not (re.fullmatch(r"\d+\.\d+\.\d+", name) and (
                    version(name) <= newest if len(sections) == 1 else version(name) < version(sections[-1]))):
                yield number, f"'{name}' is no version below the section above it"
            if not sections and name != "Unreleased":
                yield number, "the first section is to be 'Unreleased'"
            sections.append(name)
        elif line.startswith("### "):
            try:
                date = datetime.date.fromisoformat(line[4:])
            except ValueError:
                yield number, f"'{line[4:]}' is no date"
                continue
            if day and date >= day:
                yield number, f"{date} stands below {day}, which is not newer"
            day, changes = date, 0
        elif line.startswith("* "):
            changes += 1


def main(root, folder):
    usage = subprocess.run([root / "dev"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"^  \./dev (\w+)", usage, re.MULTILINE))
    newest = version(re.search(r"project\(lmc VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text(encoding="utf-8")).group(1))
    faults = []
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        found = [(number, f"'./dev {command}' is no command of dev") for number, line in enumerate(lines, 1)
                 for command in re.findall(r"\./dev (\w+)", line) if command not in known]
        if len(lines) >= LONGEST:
            found.append((len(lines), f"{len(lines)} lines: the page is to stay below {LONGEST}"))
        if name == "CHANGELOG.md":
            found += changelog_faults(lines, newest)
        faults += [f"{folder / name}:{number}: error: {what}" for number, what in found]
    print("\n".join(faults) or "both pages are as they should be")
    return 1 if faults else 0


if __name__ == "__main__":
    root_folder = pathlib.Path(sys.argv[1]).resolve()
    sys.exit(main(root_folder, pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else root_folder))
