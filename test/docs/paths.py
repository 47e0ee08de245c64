"""Checks that every path that the documentation names exists.

    paths.py ROOT [MORE.md ...]     the pages of ROOT, docs/**/*.md and the files given

A path is a word that begins with a folder of the tree ("passes/fusion/FoldRope.cpp"), a relative link, or
a file name in backticks (`FoldRope.cpp`, anywhere in the tree). "*" stands for any characters, "{a,b}" for a and for b,
and a word in capitals for a name that the reader chooses: `dialects/NAME/NAMEOps.td` needs one file of that form.
Prints each fault as FILE:LINE: error: ...; exit code 1 where there is one.
"""
import fnmatch
import pathlib
import re
import sys

TOPS = ("bench", "cmake", "compiler", "container", "corpus", "dialects", "docs", "ground", "models", "packaging", "passes", "runtime", "test", "tools")
PATH = re.compile(r"(?<![\w/.-])(?:%s)/[\w./{},*+-]*" % "|".join(TOPS))
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`([\w{},*-]+\.(?:cpp|h|td|def|fbs|cu|cuh|py|mlir|test|cmake|sh|md))`")
CAPITALS = re.compile(r"[A-Z]{4,}(?![a-z])|[A-Z]{4,}(?=[A-Z][a-z])")


def expanded(pattern):
    """`pattern` with each {a,b} replaced by a and by b."""
    braces = re.search(r"\{([^{}]*)\}", pattern)
    if not braces:
        return [pattern]
    return [name for choice in braces.group(1).split(",")
            for name in expanded(pattern[:braces.start()] + choice + pattern[braces.end():])]


class Tree:
    def __init__(self, root):
        self.root = root
        files = [path.relative_to(root) for top in TOPS for path in (root / top).rglob("*")]
        self.paths = {path.as_posix() for path in files} | {
            path.name for path in root.iterdir()} | set(TOPS)
        self.names = {path.name for path in files} | {path.name for path in root.iterdir()}

    def has(self, pattern, names):
        if pattern in names:
            return True
        pattern = CAPITALS.sub("*", pattern)
        return "*" in pattern and bool(fnmatch.filter(names, pattern))

    def missing(self, text, document):
        """The paths of one line of `document` that do not exist."""
        folder = document.parent
        for match in PATH.finditer(LINK.sub("]()", text)):
            for path in expanded(match.group().rstrip(".,/-")):
                if not self.has(path, self.paths):
                    yield path
        for match in LINK.finditer(text):
            if not (folder / match.group(1)).exists():
                yield match.group(1)
        for match in FILE.finditer(text):
            for name in expanded(match.group(1)):
                if not self.has(name, self.names):
                    yield name


def main(root, more):
    tree = Tree(root)
    documents = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md")), *more]
    faults = []
    for document in documents:
        for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
            faults += [f"{document}:{number}: error: names {path}, which does not exist"
                       for path in dict.fromkeys(tree.missing(line, document))]
    print("\n".join(faults) or f"every path of {len(documents)} documents exists")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), [pathlib.Path(name) for name in sys.argv[2:]]))
