"""Holds every #include of the product against the arrows that cmake/Layers.cmake allows.

A folder may include its own headers and those of the folders that it has arrows to. An arrow that
no include needs is an error too, and so is one to a folder further down: the list is the map that
people read. Prints each fault as FILE:LINE: error: ...; exit code 1 where there is one.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOPS = ("ground", "corpus", "runtime", "dialects", "passes", "compiler", "models", "tools")
LIST = ROOT / "cmake/Layers.cmake"
INCLUDE = re.compile(r'^\s*(?:#\s*)?include "([^"]+)"')
# Headers that a build makes, by the folder that they are made in.
GENERATED = {"plan_generated.h": "ground/plan"}

faults = []


def fault(path, line, message):
    faults.append(f"{path.relative_to(ROOT)}:{line}: error: {message}")


def declared():
    """{folder: {arrow: line}} of the list, in its order."""
    layers = {}
    text = LIST.read_text(encoding="utf-8")
    code = re.sub(r"#.*", lambda comment: " " * len(comment.group()), text)
    for call in re.finditer(r"lmc_(?:layer|program|plugin)\(([^)]*)\)", code):
        words = [(m.group(), code.count("\n", 0, call.start(1) + m.start()) + 1)
                 for m in re.finditer(r"\S+", call.group(1))]
        (folder, line), arrows = words[0], dict(words[1:])
        for word in ("MLIR", "LIBRARY"):
            arrows.pop(word, None)
        for arrow, where in arrows.items():
            if arrow not in layers:
                fault(LIST, where, f"{folder} has an arrow to {arrow}, which is not declared above")
        if folder in layers:
            fault(LIST, line, f"{folder} is declared twice")
        layers[folder] = arrows
    return layers


def folder_of(name, layers):
    """The layer that a path from the root lies in; None outside of the product."""
    parts = pathlib.PurePosixPath(name).parts
    for depth in (2, 1):
        if "/".join(parts[:depth]) in layers and len(parts) > depth:
            return "/".join(parts[:depth])
    return None


def main():
    layers = declared()
    used = {folder: set() for folder in layers}
    files = [path for top in TOPS for path in sorted((ROOT / top).rglob("*"))
             if path.suffix in (".h", ".cpp", ".td", ".def", ".cuh", ".cu")]
    for path in files:
        folder = folder_of(path.relative_to(ROOT).as_posix(), layers)
        if folder is None:
            fault(path, 1, "lies in no folder of cmake/Layers.cmake")
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            include = INCLUDE.match(line)
            if not include:
                continue
            name = include.group(1)
            to = GENERATED.get(name) or folder_of(name, layers)
            if name.split("/")[0] in (*TOPS, "test", "bench") and to is None:
                fault(path, number, f"includes {name}, which lies outside of the product's folders")
            if to is None or to == folder:
                continue
            used[folder].add(to)
            if to not in layers[folder]:
                fault(path, number, f"{folder} has no arrow to {to} in cmake/Layers.cmake")
    for folder, arrows in layers.items():
        for arrow, line in arrows.items():
            if arrow not in used[folder]:
                fault(LIST, line, f"nothing in {folder} includes {arrow}: take the arrow out")
    print("\n".join(faults) or f"{len(files)} files in {len(layers)} folders keep to their arrows")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
