"""Every function of the GPU's libraries that lmc loads stands in test/hostdriver/contracts.md, with its rules, the check of each
rule in the stand-in, and the test that breaks the rule on purpose. This file compares that table with the sources; the tests that it
names run elsewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "test" / "hostdriver" / "contracts.md"
PRODUCT = ("ground", "corpus", "runtime", "compiler", "passes", "dialects", "models", "tools")
LIBRARY = r"(?:cu[A-Z]|cublasLt[A-Z]|nccl[A-Z]|nvrtc[A-Z]|nvml[A-Z])\w+"
# A row of a list for the preprocessor, or the text that a source gives to dlsym.
LOADED = re.compile(rf'^LMC_\w+_FUNCTION\(({LIBRARY})\)|"({LIBRARY})"|^  X\(\w+, ({LIBRARY})\)', re.M)
NOT_CHECKED, ELSEWHERE = "not checked", ("NVRTC itself", "–")


def sources(folders: tuple[str, ...], suffixes: tuple[str, ...]) -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for folder in folders
            for path in sorted((ROOT / folder).rglob("*")) if path.suffix in suffixes}


def loaded() -> set[str]:
    """The functions that the product looks up in libraries at run time."""
    return {name for path, text in sources(PRODUCT, (".cpp", ".h", ".def")).items()
            if path.suffix == ".def" or "dlsym" in text
            for row in LOADED.findall(text) for name in row if name}


def rules() -> list[tuple[str, str, str, str]]:
    """(function, rule, check, proof) of each row."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert rows[0] == ["Function", "Rule", "Docs", "Check", "Proof"]
    assert all(len(row) == 5 and all(row) for row in rows), [row for row in rows if len(row) != 5]
    return [(row[0], row[1], row[3], row[4]) for row in rows[1:]]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def cases() -> set[str]:
    """All tests of gtest ("Suite.Case") and of this folder ("test_file.py::test_name")."""
    found = {f"{suite}.{case}" for text in sources(("test",), (".cpp",)).values()
             for suite, case in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", text, re.M)}
    for path, text in sources(("test/parity",), (".py",)).items():
        found |= {f"{path.name}::{name}" for name in re.findall(r"^def (test_\w+)\(", text, re.M)}
    return found


def missing() -> list[str]:
    """What the table lacks, or names although it does not exist."""
    table, wanted, known = rules(), loaded(), cases()
    stand_in = "\n".join(sources(("test/hostdriver",), (".cpp", ".h")).values())
    functions = {name for row in table for name in names_in(row[0])}
    problems = [f"{name}: no row in contracts.md" for name in sorted(wanted - functions)]
    problems += [f"{name}: nothing loads it" for name in sorted(functions - wanted)]
    for function, rule, check, proof in table:
        if check not in ELSEWHERE:
            (name,) = names_in(check)
            if not re.search(rf"\b{re.escape(name.split('::')[-1])}\(", stand_in):
                problems.append(f"{function}, {rule}: there is no function {name}")
        proofs = names_in(proof)
        if not proofs and proof != NOT_CHECKED:
            problems.append(f"{function}, {rule}: the proof is no test")
        problems += [f"{function}, {rule}: there is no test {name}" for name in proofs if name not in known]
    return problems


def test_every_loaded_function_and_every_proof_is_there():
    assert len(loaded()) > 80
    assert missing() == []
    table = rules()
    unchecked = [row for row in table if row[3] == NOT_CHECKED]
    proofs = {name for row in table for name in names_in(row[3])}
    print(f"{len(loaded())} functions, {len(table)} rules: {len(table) - len(unchecked)} proved by "
          f"{len(proofs)} tests, {len(unchecked)} not checked")
    for function, rule, _, _ in unchecked:
        print(f"  not checked: {function}: {rule}")


@pytest.mark.parametrize("before, after, complaint", [
    ("| `cuGraphUpload` |", "| `cuGraphLaunch` |", "cuGraphUpload: no row"),
    ("| `cuGraphUpload` |", "| `cuGraphUplod` |", "cuGraphUplod: nothing loads it"),
    ("`Nccl.AGraphMustNotOutliveItsCommunicator`", "`Nccl.AGraphMayOutlive`", "there is no test Nccl.AGraphMayOutlive"),
    ("`PlanCommands::findCollective`", "`PlanCommands::findNothing`", "there is no function PlanCommands::findNothing"),
])
def test_a_gap_in_the_table_is_found(monkeypatch, tmp_path, before, after, complaint):
    text = TABLE.read_text(encoding="utf-8")
    assert before in text
    (tmp_path / "contracts.md").write_text(text.replace(before, after), encoding="utf-8")
    monkeypatch.setitem(globals(), "TABLE", tmp_path / "contracts.md")
    assert any(complaint in problem for problem in missing()), missing()
