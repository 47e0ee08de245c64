"""Bits per byte of a validation: the losses in bits over the bytes of text of the scored tokens."""

import json
import math
import struct
from dataclasses import replace

import numpy as np
import pytest
import sentencepiece
from tokenizers import Tokenizer

import tokenizers_of_models as known
from jobs import Job
from programs import metrics
from reference import Model, Optimizer

HEADER = struct.Struct("<8sIIIiQQQQ8x")
UNKNOWN = 0xFFFF


def token_file(path):
    """The ids, the document starts and the bytes of each id, as runtime/data/TokenFormats.h lays them out."""
    raw = path.read_bytes()
    _, version, width, vocabulary, _, tokens, documents, _, tokenizer = HEADER.unpack_from(raw)
    ids = np.frombuffer(raw, f"<u{width}", tokens, HEADER.size).astype(np.int64)
    table = (HEADER.size + tokens * width + 7) // 8 * 8
    starts = np.frombuffer(raw, "<u8", documents, table)
    assert version == 3 and tokenizer != 0 and len(raw) == table + 8 * documents + 2 * vocabulary
    return ids, starts, np.frombuffer(raw, "<u2", vocabulary, table + 8 * documents).astype(np.int64)


def pack(programs, folder, documents, *options):
    folder.mkdir()
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": d}) + "\n" for d in documents))
    programs.run("lmc-data", "pack", folder / "text.jsonl", "-o", folder / "text.bin", *options).ok()
    return token_file(folder / "text.bin")


def bytes_of_documents(ids, starts, sizes):
    return [int(sizes[part].sum()) for part in np.split(ids, starts[1:].astype(np.int64))]


@pytest.mark.parametrize("make", [known.gpt2, known.llama3, known.llama2, known.mistral],
                         ids=lambda make: make.__name__)
def test_tokens_have_the_bytes_of_their_text(programs, tmp_path, make):
    """Those of a document sum up to its bytes, and one for a space that the tokenizer puts before it."""
    tokenizer = Tokenizer.from_str(make(known.lines(1, 2000), 3000).to_str())
    special = [t for t in tokenizer.get_added_tokens_decoder().values() if t.special]
    # Marks of a space and names of bytes that the text has itself are taken for what they mean.
    documents = [d for d in known.lines(4, 300) if d and "\u2581" not in d and "<0x" not in d
                 and not any(t.content in d for t in special)]
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str())
    ids, starts, sizes = pack(programs, tmp_path / "text", documents, "--tokenizer",
                              tmp_path / "tokenizer.json", "--bos=none", f"--eod={special[-1].content}")
    extra = 0 if make in known.BYTE_LEVEL else 1
    kept = [d for d in documents if tokenizer.encode(d, add_special_tokens=False).ids]
    assert bytes_of_documents(ids, starts, sizes) == [len(d.encode()) + extra for d in kept]
    for token in special:
        if tokenizer.token_to_id(token.content) != tokenizer.token_to_id("<unk>"):
            assert sizes[tokenizer.token_to_id(token.content)] == 0


def test_pieces_of_sentencepiece_have_the_bytes_of_their_text(programs, tmp_path):
    model = known.sentencepiece_model(known.lines(1, 2000), 3000, **known.SENTENCEPIECE["llama2"])
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    documents = [d for d in (d.replace("\0", "") for d in known.lines(5, 300)) if processor.encode(d)]
    (tmp_path / "tokenizer.model").write_bytes(model)
    ids, starts, sizes = pack(programs, tmp_path / "text", documents, "--tokenizer",
                              tmp_path / "tokenizer.model", "--bos=none", "--eod=2")
    assert sizes[processor.bos_id()] == sizes[processor.eos_id()] == 0
    assert sizes[processor.unk_id()] == UNKNOWN
    for id in range(3, processor.get_piece_size()):
        expected = 1 if processor.is_byte(id) else len(processor.id_to_piece(id).replace("▁", " ").encode())
        assert sizes[id] == expected, processor.id_to_piece(id)


JOB = Job(
    model=Model(vocab_size=256, num_hidden_layers=1), sequence_length=32, batch_size=4, micro_batch_size=2,
    train_iters=4, optimizer=Optimizer(warmup_iters=1, decay_iters=4),
    settings={"checkpoint": {"interval": 0},
              "monitoring": {"validation_interval": 2, "validation_iters": 3}},
)


def with_data(job, path):
    return replace(job, settings={**job.settings, "data": {"train": [str(path)], "validation": [str(path)]}})


@pytest.mark.parametrize("nproc", [1, 2])
def test_a_run_reports_bits_per_byte(programs, compiled, tmp_path, nproc):
    documents = [f"Document {i} has {i % 7} of seven.\n" for i in range(60)]
    ids, _, sizes = pack(programs, tmp_path / "data", documents)
    job = with_data(JOB, tmp_path / "data/text.bin")
    if nproc == 2:
        job.settings["distributed"] = {"nodes": 1, "devices_per_node": 2, "strategy": "zero1"}
        job = replace(job, micro_batch_size=1)
    plan = compiled(job)
    out = tmp_path / "run"
    programs.run("lmc-run", plan, f"--out={out}", f"--nproc={nproc}").ok()
    rows = [row for row in metrics(out) if "validation_loss" in row]
    assert [row["step"] for row in rows] == [2, 4]
    targets = ids[1:3 * 4 * 32 + 1]
    assert 0 in targets, "a border is scored"
    for row in rows:
        nats = row["validation_loss"] * len(targets)
        bits = nats / math.log(2) / int(np.count_nonzero(targets))
        assert row["validation_bits_per_byte"] == pytest.approx(bits, rel=1e-12)
        assert row["validation_perplexity"] == pytest.approx(math.exp(row["validation_loss"]), rel=1e-12)
    assert sizes[0] == 0 and set(sizes[1:]) == {1}
    done = programs.run("lmc-run", plan, f"--out={out}", "--eval", f"--nproc={nproc}").ok()
    assert json.loads(done.stdout)["validation_bits_per_byte"] == rows[-1]["validation_bits_per_byte"]


def test_validation_data_of_another_tokenizer_is_a_warning(programs, compiled, tmp_path):
    pack(programs, tmp_path / "a", ["abc " * 200])
    other = bytearray((tmp_path / "a/text.bin").read_bytes())
    other[48] ^= 1  # the hash of the tokenizer
    other[64] ^= 1
    (tmp_path / "other.bin").write_bytes(other)
    job = with_data(JOB, tmp_path / "a/text.bin")
    job.settings["data"]["validation"] = [str(tmp_path / "other.bin")]
    started = programs.run("lmc-run", compiled(job), f"--out={tmp_path / 'run'}", "--steps=1").ok()
    assert f"{tmp_path / 'other.bin'} (data.validation) and {tmp_path / 'a/text.bin'} were made by different tokenizers" \
        in started.stderr


def test_bits_per_byte_are_not_reported_where_bytes_are_not_known(programs, compiled, tmp_path):
    """A file without the table, files that disagree, and a scored token of unknown characters."""
    documents = ["abc " * 200]
    pack(programs, tmp_path / "a", documents)
    other = bytearray((tmp_path / "a/text.bin").read_bytes())
    other[-2 * 100] ^= 3
    (tmp_path / "other.bin").write_bytes(other)
    unknown = bytearray((tmp_path / "a/text.bin").read_bytes())
    at = len(unknown) - 2 * (256 - ord("b"))
    unknown[at:at + 2] = b"\xff\xff"
    (tmp_path / "unknown.bin").write_bytes(unknown)
    np.full(2000, 97, "<u2").tofile(tmp_path / "bare.bin")
    plan = compiled(with_data(JOB, tmp_path / "a/text.bin"))
    for name, files in {"bare": ["bare.bin"], "unknown": ["unknown.bin"],
                        "disagree": ["a/text.bin", "other.bin"]}.items():
        validation = json.dumps([str(tmp_path / file) for file in files])
        out = tmp_path / name
        programs.run("lmc-run", plan, f"--out={out}", f"--set=data.validation={validation}",
                     "--set=data.format=uint16", "--set=data.allow_repeats=true").ok()
        rows = [row for row in metrics(out) if "validation_loss" in row]
        assert rows and all("validation_bits_per_byte" not in row for row in rows)
