#!/usr/bin/env python3
"""Tries the additions of this folder: whether the house is as open as docs/adding.md says.

    test/additions/try.py [NAME...] [--count] [--keep=DIR]

Each NAME.patch adds one thing that lmc does not have: a command, an optimizer, a target, a model
family. Lines before the diff say what it is held to:

    Section: A command        of docs/adding.md, or several, joined by " + ". The tables there name
                              every product file that the patch touches; the patch touches every
                              file that they name, except in rows whose text begins with "only"
    Files: 9                  at most so many product files (tests, docs and bench do not count)
    Folders: 1 1              instead of Files: new folders in the compiler and in the runtime,
                              with one changed line each outside of them
    Build: compiler-tests     targets of the build
    Test: build/bin/... ...   the command that shows that it works, from the root of the copy

The script applies a patch to a copy of the committed tree, counts what it touches, builds the copy
and runs its test. --count stops after counting; --keep leaves the copy in DIR/NAME. Exit code 1
where a patch does not apply, touches other files than it may, or fails. It takes a build per patch,
so it is not part of ./dev test. It needs the programs git and patch.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PRODUCT = ("compiler/", "dialects/", "passes/", "models/", "ground/", "corpus/", "runtime/", "tools/", "cmake/",
           "CMakeLists.txt")


def header(text, key):
    found = re.search(rf"^{key}: *(.*)$", text.split("\ndiff --git")[0], re.MULTILINE)
    return found.group(1).strip() if found else ""


def touched(text):
    """{product file: (is new, lines that are added or removed)} of a patch."""
    files = {}
    for part in re.split(r"^diff --git ", text, flags=re.MULTILINE)[1:]:
        name = re.match(r"a/\S+ b/(\S+)", part).group(1)
        if name.startswith(PRODUCT) and not name.startswith("models/configs/"):
            changed = re.findall(r"^[+-](?![+-]{2} ).*\S", part, re.MULTILINE)
            files[name] = ("\nnew file mode" in part, len(changed))
    return files


def fault_of(text, files):
    """Why a patch touches more than it may; "" where it does not."""
    if header(text, "Files"):
        bound = int(header(text, "Files"))
        return f"it touches {len(files)} files, at most {bound}" if len(files) > bound else ""
    bounds = [int(word) for word in header(text, "Folders").split()]
    sides = {"compiler": 0, "runtime": 0}
    folders = {side: set() for side in sides}
    for name, (new, lines) in files.items():
        side = "runtime" if name.startswith(("ground/", "runtime/")) else "compiler"
        if new:
            folders[side].add(str(pathlib.PurePosixPath(name).parent))
        else:
            sides[side] += lines
    for side, bound in zip(sides, bounds):
        if len(folders[side]) > bound or sides[side] > 1:
            return (f"it touches {len(folders[side])} new folders and {sides[side]} changed lines in "
                    f"the {side}, at most {bound} and 1")
    return ""


def rows_of(section):
    """(paths of docs/adding.md as regular expressions, whether every patch touches them)"""
    page = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(section)}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if not found:
        raise SystemExit(f"docs/adding.md has no section '{section}'")
    for files, text in re.findall(r"^\|([^|\n]*`[^|\n]*)\|([^\n]*)", found.group(1), re.MULTILINE):
        for path in re.findall(r"`([^`]*)`", files):
            pattern = re.escape(path).replace("NAME", r"\w+") + (".*" if path.endswith("/") else "")
            yield path, pattern, not text.strip().startswith("only")


def difference_to_docs(text, files):
    """How the files differ from those that docs/adding.md lists; "" where they do not."""
    listed = [row for section in header(text, "Section").split(" + ") for row in rows_of(section)]
    for name in files:
        if not any(re.fullmatch(pattern, name) for _, pattern, _ in listed):
            return f"it touches {name}, which docs/adding.md does not list"
    for path, pattern, always in listed:
        if always and not any(re.fullmatch(pattern, name) for name in files):
            return f"docs/adding.md lists {path}, which it does not touch"
    return ""


def run(patch, arguments):
    text = patch.read_text(encoding="utf-8")
    files = touched(text)
    fault = fault_of(text, files) or difference_to_docs(text, files)
    print(f"{patch.stem}: {len(files)} product files" +
          "".join(f"\n  {'new ' if new else '    '}{name} ({lines} lines)"
                  for name, (new, lines) in sorted(files.items())), flush=True)
    if fault:
        print(f"{patch.stem}: error: {fault}")
        return False
    folder = pathlib.Path(arguments.keep or tempfile.mkdtemp()).resolve() / patch.stem
    try:
        folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "x"], cwd=folder, input=archive.stdout, check=True)
        # Not `git apply` in a folder below a repository: it would leave out what it takes for
        # somebody else's.
        applied = subprocess.run(["patch", "-p1", "--quiet", "--dry-run" if arguments.count else "--force",
                                  "-i", str(patch)], cwd=folder, capture_output=True, text=True)
        if applied.returncode:
            print(f"{patch.stem}: error: it does not apply:\n{applied.stdout}{applied.stderr}")
            return False
        if arguments.count:
            return True
        steps = ["cmake --preset release -B build > /dev/null",
                 f"cmake --build build --target {header(text, 'Build')}", header(text, "Test")]
        # ccache then takes what copies in other folders have compiled.
        environment = {**os.environ, "CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"}
        for step in steps:
            done = subprocess.run(["bash", "-c", step], cwd=folder, capture_output=True, text=True,
                                  env=environment)
            if done.returncode:
                print(f"{patch.stem}: error: '{step}' failed:\n" +
                      (done.stdout + done.stderr)[-4000:])
                return False
        print(f"{patch.stem}: builds, and its test passes")
        return True
    finally:
        if not arguments.keep:
            shutil.rmtree(folder.parent, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--keep", default="")
    arguments = parser.parse_args()
    patches = [HERE / f"{name}.patch" for name in arguments.names] or sorted(HERE.glob("*.patch"))
    return 0 if all([run(patch, arguments) for patch in patches]) else 1


if __name__ == "__main__":
    sys.exit(main())
