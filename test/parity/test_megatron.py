"""Megatron's indexed data sets: the tokens in a .bin, all about them in an .idx beside it. The writer
here follows megatron/core/datasets/indexed_dataset.py's rules and shares no code with it."""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jobs import Job
from programs import USER_ERROR, losses
from reference import Optimizer

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float64": 6, "float32": 7,
         "uint16": 8}
JOB = Job(train_iters=3, optimizer=Optimizer(warmup_iters=1, decay_iters=3),
          settings={"checkpoint": {"interval": 0}})


def write_megatron(prefix: Path, documents: list[np.ndarray], dtype: str) -> Path:
    """One sequence per document, as preprocess_data.py writes them without --split-sentences."""
    lengths = np.array([len(document) for document in documents])
    pointers = (lengths.cumsum() - lengths) * np.dtype(dtype).itemsize
    with open(prefix.with_suffix(".idx"), "wb") as index:
        index.write(b"MMIDIDX\x00\x00")
        index.write(struct.pack("<QBQQ", 1, CODES[dtype], len(lengths), len(lengths) + 1))
        index.write(lengths.astype("<i4").tobytes())
        index.write(pointers.astype("<i8").tobytes())
        index.write(np.arange(len(lengths) + 1).astype("<i8").tobytes())
    path = prefix.with_suffix(".bin")
    np.concatenate(documents).astype(dtype).tofile(path)
    return path


@pytest.fixture(scope="module")
def corpus(programs, tmp_path_factory):
    """(packed.bin of lmc-data, its documents as ids): text, of which a byte is a token."""
    folder = tmp_path_factory.mktemp("corpus")
    chance = np.random.default_rng(6)
    texts = [bytes(chance.integers(32, 127, size=chance.integers(1, 60), dtype=np.uint8))
             for _ in range(60)]
    (folder / "text.txt").write_bytes(b"\f".join(texts))
    programs.run("lmc-data", "pack", folder / "text.txt", "-o", folder / "packed.bin").ok()
    # lmc-data pack ends each document but the last with the id 0.
    documents = [np.frombuffer(text + b"\0", dtype=np.uint8) for text in texts]
    documents[-1] = documents[-1][:-1]
    return folder / "packed.bin", documents


def train(programs, plan: Path, out: Path, tokens: Path, *options) -> list[float]:
    programs.run("lmc-run", plan, f"--out={out}", "--set", f"data.train={tokens}", *options).ok()
    return losses(out)


@pytest.mark.parametrize("document_mask", [False, True])
def test_training_reads_what_lmc_data_packed(programs, compiled, tmp_path, corpus, document_mask):
    packed, documents = corpus
    plan = compiled(replace(JOB, settings={
        **JOB.settings, "training": {"document_mask": document_mask}}))
    expected = train(programs, plan, tmp_path / "packed", packed)
    for dtype in ("int32", "uint16", "int64", "uint8"):
        tokens = write_megatron(tmp_path / dtype, documents, dtype)
        assert train(programs, plan, tmp_path / f"run-{dtype}", tokens) == expected, dtype


def test_int32_ids_are_not_taken_for_uint16(programs, compiled, tmp_path, corpus):
    packed, documents = corpus
    plan = compiled(JOB)
    tokens = write_megatron(tmp_path / "set", documents, "int32")
    expected = train(programs, plan, tmp_path / "packed", packed)
    assert train(programs, plan, tmp_path / "run", tokens) == expected
    # Without its index the file is refused, until the user says what it is.
    tokens.with_suffix(".idx").unlink()
    for command in (["lmc-run", plan, f"--out={tmp_path / 'bare'}", "--set",
                     f"data.train={tokens}"],
                    ["lmc-data", "verify", tokens], ["lmc-data", "inspect", tokens]):
        finished = programs.run(*command)
        assert finished.code == USER_ERROR
        (line,) = finished.stderr.splitlines()
        for part in ("set.bin", "these seem to be 32-bit ids", "data.format", "uint32"):
            assert part in line
    asked = train(programs, plan, tmp_path / "uint32", tokens, "--set", "data.format=uint32")
    assert asked == expected
    # What bare uint16 makes of the file: every second token is 0.
    wrong = train(programs, plan, tmp_path / "uint16", tokens, "--set", "data.format=uint16")
    assert wrong != expected


@pytest.mark.parametrize("name, damage, part", [
    ("set.idx", lambda data: data[:40], "truncated"),
    ("set.idx", lambda data: data[:9] + b"\x02" + data[10:], "version 2"),
    ("set.idx", lambda data: data[:17] + b"\x07" + data[18:], "float32"),
    ("set.bin", lambda data: data[:-4], "set.idx"),
])
def test_damaged_sets(programs, compiled, tmp_path, corpus, name, damage, part):
    _, documents = corpus
    tokens = write_megatron(tmp_path / "set", documents, "int32")
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    finished = programs.run("lmc-run", compiled(JOB), f"--out={tmp_path / 'run'}", "--set",
                            f"data.train={tokens}")
    assert finished.code == USER_ERROR
    (line,) = finished.stderr.splitlines()
    assert "data.train" in line and part in line
    assert programs.run("lmc-data", "verify", tokens).code == USER_ERROR
