"""lmc-data pack: what it reads and writes, against independent readers and writers of the formats."""

import gzip
import json
import random
import signal
import struct
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenizers_of_models as known
from draws import draw_count
from programs import USER_ERROR

DTYPES = {4: "<i4", 8: "<u2"}  # by Megatron's code


def read_megatron(prefix):
    """The documents of a data set, as megatron/core/datasets/indexed_dataset.py's rules read them."""
    index = prefix.with_suffix(".idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, documents = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1
    at = 34
    lengths = np.frombuffer(index, "<i4", sequences, at)
    pointers = np.frombuffer(index, "<i8", sequences, at + 4 * sequences)
    borders = np.frombuffer(index, "<i8", documents, at + 12 * sequences)
    assert len(index) == at + 12 * sequences + 8 * documents
    tokens = prefix.with_suffix(".bin").read_bytes()
    size = np.dtype(DTYPES[code]).itemsize
    assert sum(lengths) * size == len(tokens)
    sets = [np.frombuffer(tokens, DTYPES[code], n, p) for n, p in zip(lengths, pointers)]
    return DTYPES[code], [np.concatenate(sets[a:b]).tolist() for a, b in zip(borders, borders[1:])]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    known.gpt2(known.lines(1, 1000), 2000).save(str(path))
    return path


@pytest.fixture(scope="module")
def documents():
    return [each.replace("\f", "") for each in known.lines(7, 300)] + ["x" * 3000, "last"]


def write_jsonl(path, documents):
    with open(path, "w", encoding="utf-8") as out:
        for document in documents:
            out.write(json.dumps({"id": 1, "text": document}) + "\n")
    return path


def failure(programs, *command):
    """The one line of a command that fails for the user's mistake."""
    done = programs.run("lmc-data", *command)
    assert done.code == USER_ERROR, (done.code, done.stdout, done.stderr)
    # A machine that is slow prints lines of progress before it.
    *progress, line = done.stderr.splitlines()
    assert all(" MiB/s" in each for each in progress), done.stderr
    return line


def pack(programs, out, *inputs, options=()):
    programs.run("lmc-data", "pack", *inputs, "-o", out, *options).ok()
    return out.read_bytes()


def options_of(tokenizer):
    return ("--tokenizer", tokenizer, "--bos=none", "--eod=<|endoftext|>")


@pytest.mark.parametrize("wide", [False, True])
def test_megatron_files_are_those_of_their_format(programs, tmp_path, documents, tokenizer, wide):
    source = write_jsonl(tmp_path / "text.jsonl", ["", *documents, ""])
    # A byte is a token, and the id between documents needs more than 16 bits in a vocabulary of its size.
    options = ("--eod=65535",) if wide else options_of(tokenizer)
    pack(programs, tmp_path / "lmc.bin", source, options=options)
    pack(programs, tmp_path / "set.bin", source, options=(*options, "--write=megatron"))
    dumped = programs.run("lmc-data", "dump", tmp_path / "lmc.bin").ok().stdout
    expected = [list(map(int, line.split())) for line in dumped.splitlines()]
    end = expected[0][-1]
    expected[-1].append(end)  # Megatron's last document ends too
    dtype, theirs = read_megatron(tmp_path / "set")
    assert dtype == ("<i4" if wide else "<u2")
    assert theirs == expected
    programs.run("lmc-data", "verify", tmp_path / "set.bin").ok()
    assert {p.name for p in tmp_path.glob("set*")} - {"set.bin.tokenizer"} == {
        "set.bin", "set.bin.audit.json", "set.idx"}


def test_unknown_and_fallback_tokens_are_counted(programs, tmp_path):
    text = known.lines(1, 1000)
    end = ("--bos=none", "--eod=</s>")

    def audit(tokenizer, document):
        (tmp_path / "tokenizer.json").write_text(tokenizer.to_str())
        source = write_jsonl(tmp_path / "text.jsonl", [document])
        pack(programs, tmp_path / "out.bin", source,
             options=("--tokenizer", tmp_path / "tokenizer.json", *end))
        return json.loads((tmp_path / "out.bin.audit.json").read_text())["audit"]

    character = "\U00012345"  # in none of the vocabularies
    found = audit(known.llama2(text, 2000), f"a {character} b {character}")
    assert found["byte_fallback_tokens"]["count"] == 8 and found["unknown_tokens"]["count"] == 0
    found = audit(known.t5(text, 2000), f"a {character} b {character}")
    assert found["byte_fallback_tokens"]["count"] == 0 and found["unknown_tokens"]["count"] == 2
    line = failure(programs, "pack", tmp_path / "text.jsonl", "-o", tmp_path / "strict.bin", "--strict",
                   "--tokenizer", tmp_path / "tokenizer.json", *end)
    assert "2 tokens are the unknown one" in line and not (tmp_path / "strict.bin").exists()


def test_a_document_after_the_cut_is_not_an_empty_one(programs, tmp_path, tokenizer):
    source = write_jsonl(tmp_path / "a.jsonl", ["x y " * 1000, "a b " * 1000, "c d " * 15])
    pack(programs, tmp_path / "a.bin", source, options=(*options_of(tokenizer), "--validation", tmp_path / "v.bin"))
    audit = json.loads((tmp_path / "a.bin.audit.json").read_text())
    assert [file["documents"] for file in audit["files"]] == [2, 2]
    assert audit["audit"]["empty_documents"]["count"] == 0


def test_a_document_has_a_limit(programs, tmp_path, tokenizer):
    with open(tmp_path / "text.txt", "wb") as file:
        file.truncate((1 << 30) + 1)  # takes no room on the disk
    line = failure(programs, "pack", tmp_path / "text.txt", "-o", tmp_path / "out.bin", *options_of(tokenizer))
    assert "text.txt: byte 0 of the text: the document here is longer than 1024 MiB" in line
    assert "--document-separator" in line
    assert [p.name for p in tmp_path.iterdir()] == ["text.txt"]


def write_parquet(path, column, type=pa.string(), **options):
    pq.write_table(pa.table({"id": range(len(column)), "text": pa.array(column, type)}), path, **options)
    return path


def write_sources(folder, documents):
    """The same documents in every format that is read."""
    text = "\f".join(documents).encode()
    lines = write_jsonl(folder / "a.jsonl", documents).read_bytes()
    (folder / "a.txt").write_bytes(text)
    (folder / "a.txt.gz").write_bytes(gzip.compress(text))
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    for name, data in ("a.txt.zst", text), ("a.jsonl.zst", lines):
        with pa.CompressedOutputStream(str(folder / name), "zstd") as out:
            out.write(data)
    for codec in "none", "snappy", "zstd", "gzip":
        write_parquet(folder / f"{codec}.parquet", documents, compression=codec, row_group_size=len(documents) // 4,
                      write_page_checksum=codec == "snappy")
    write_parquet(folder / "plain.parquet", documents, use_dictionary=False, data_page_size=500)
    write_parquet(folder / "large.parquet", documents, pa.large_string(), row_group_size=1)
    write_parquet(folder / "binary.parquet", [d.encode() for d in documents], pa.binary())
    write_parquet(folder / "view.parquet", documents, pa.string_view())
    write_parquet(folder / "dictionary.parquet", documents, pa.dictionary(pa.int32(), pa.string()))
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def sources(tmp_path_factory, documents):
    return write_sources(tmp_path_factory.mktemp("sources"), documents)


def test_every_format_gives_the_same_tokens(programs, tmp_path, sources, tokenizer):
    assert len(sources) == 15
    packed = {source.name: pack(programs, tmp_path / "out.bin", source, options=options_of(tokenizer))
              for source in sources}
    assert len(set(packed.values())) == 1, {name: len(data) for name, data in packed.items()}


def test_drawn_damage_ends_in_one_line(programs, tmp_path, sources):
    draw = random.Random(3)
    for source in sources:
        if source.suffix not in (".gz", ".zst", ".parquet"):
            continue
        data = source.read_bytes()
        for cut in 0, 4, 13, len(data) // 2, len(data) - 1:
            damaged = tmp_path / source.name
            damaged.write_bytes(data[:cut])
            line = failure(programs, "pack", damaged, "-o", tmp_path / "out.bin")
            assert source.name in line or cut == 0
        for _ in range(draw_count(5)):
            flipped = bytearray(data)
            flipped[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            damaged.write_bytes(flipped)
            done = programs.run("lmc-data", "pack", damaged, "-o", tmp_path / "out.bin", "--field=text")
            if done.code == 0:  # in a name, in padding, or in a page without a checksum
                for made in tmp_path.glob("out.bin*"):
                    made.unlink()
                continue
            assert done.code == USER_ERROR and len(done.stderr.splitlines()) == 1, done.stderr
            assert source.name in done.stderr
        damaged.unlink()
        assert list(tmp_path.iterdir()) == []


def test_a_damaged_row_group_is_named(programs, tmp_path, documents):
    path = write_parquet(tmp_path / "a.parquet", documents, compression="zstd", row_group_size=50,
                         write_page_checksum=True)
    column = pq.ParquetFile(path).metadata.row_group(3).column(1)
    begin = column.dictionary_page_offset
    data = bytearray(path.read_bytes())
    for at in range(begin + 40, begin + column.total_compressed_size):
        data[at] ^= 0xFF
    path.write_bytes(data)
    line = failure(programs, "pack", path, "-o", tmp_path / "out.bin")
    assert f"a.parquet: row group 3 (bytes {begin} to {begin + column.total_compressed_size}): cannot be read" in line
    assert [p.name for p in tmp_path.iterdir()] == ["a.parquet"]


def test_parquet_is_read_in_bounded_memory(programs, tmp_path):
    row = "".join(random.Random(1).choices("abcdefgh ", k=20000))
    peaks = []
    for rows in 2000, 6000:  # 40 and 120 MB of text, each in one row group
        path = write_parquet(tmp_path / "a.parquet", [row + str(i) for i in range(rows)], use_dictionary=False)
        assert pq.ParquetFile(path).metadata.num_row_groups == 1
        peaks.append(programs.run("lmc-data", "pack", path, "-o", tmp_path / "out.bin",
                                  measure_memory=True).ok().peak_bytes)
    assert peaks[1] < peaks[0] + 30e6, peaks


def test_what_no_text_can_be_read_from(programs, tmp_path, monkeypatch):
    out = tmp_path / "out.bin"
    path = tmp_path / "a.parquet"
    write_parquet(path, ["one", None, "three"])
    assert 'a.parquet: row 2: the column "text" is null, expected a string; --nulls=empty' in failure(
        programs, "pack", path, "-o", out)
    programs.run("lmc-data", "pack", path, "-o", out, "--nulls=empty").ok()
    assert programs.run("lmc-data", "dump", out, "--text").ok().stdout == '"one"\n"three"\n'
    assert 'a.parquet: no column "body", but id, text; name the one' in failure(
        programs, "pack", path, "-o", out, "--field=body")
    assert 'the column "id" has the type int64, expected strings' in failure(
        programs, "pack", path, "-o", out, "--field=id")
    write_parquet(path, [b"fine", b"caf\xe9 "], pa.binary())
    assert "a.parquet: row 2: 0x20 at byte 4 of the text is not UTF-8" in failure(
        programs, "pack", path, "-o", out)
    programs.run("lmc-data", "pack", path, "-o", out, "--invalid-utf8=replace").ok()
    assert "caf\N{REPLACEMENT CHARACTER} " in json.loads(
        programs.run("lmc-data", "dump", out, "--text").ok().stdout.splitlines()[1])
    assert "-: Parquet is read from its end on" in failure(
        programs, "pack", "-", "-o", out, "--format=parquet")
    (tmp_path / "a.jsonl").write_text('{"text": null}\n{"text": "x"}\n')
    assert 'a.jsonl:1: the field "text" is null, expected a string; --nulls=empty' in failure(
        programs, "pack", tmp_path / "a.jsonl", "-o", out)
    programs.run("lmc-data", "pack", tmp_path / "a.jsonl", "-o", out, "--nulls=empty").ok()
    monkeypatch.setenv("LMC_PARQUET_PLUGIN", "/nowhere/liblmc-parquet.so")
    line = failure(programs, "pack", path, "-o", out)
    assert "/nowhere/liblmc-parquet.so, which is not there; get pyarrow (./dev setup, or pip install pyarrow)" in line


def kill_while_packing(programs, draw, unfinished, command):
    """Kills a pack once it has saved some documents; returns whether it was still at work."""
    def saved():
        try:
            return json.loads((unfinished / "state.json").read_text())["state"]["audit"]["findings"]["documents"]
        except (FileNotFoundError, json.JSONDecodeError):
            return 0

    goal = saved() + draw.randrange(1, 40)
    process = programs.start("lmc-data", *command, "--save-interval=0")
    while process.poll() is None and saved() < goal:
        time.sleep(0.002)
    time.sleep(draw.random() * 0.005)
    process.kill()
    return process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("threads, options", [
    (1, ()), (2, ("--write=megatron",)), (7, ("--validation", "held.bin")), (2, None),
], ids=["lmc", "megatron", "validation", "bytes"])
def test_a_pack_killed_at_drawn_moments_goes_on_as_if_it_was_not(programs, tmp_path, documents, tokenizer, threads, options):
    draw = random.Random(threads)
    (tmp_path / "in").mkdir()
    named = {each.name: each for each in write_sources(tmp_path / "in", documents[:100])}
    inputs = [named[name] for name in ("a.txt", "zstd.parquet", "a.jsonl.gz", "a.txt.zst", "a.jsonl")]
    options = ("--eod=32",) if options is None else (*options_of(tokenizer), "--threads", threads, *options)

    def command(folder):
        folder.mkdir(exist_ok=True)
        placed = [folder / each if str(each).endswith(".bin") else each for each in options]
        return ["pack", *inputs, "-o", folder / "out.bin", *placed]

    def files(folder):
        return {p.name: p.read_bytes().replace(str(folder).encode(), b"") for p in folder.iterdir() if p.is_file()}

    programs.run("lmc-data", *command(tmp_path / "whole"), "--resume=none").ok()
    killed = tmp_path / "killed"
    kill = partial(kill_while_packing, programs, draw, killed / "out.bin.partial", command(killed))
    assert sum(kill() for _ in range(max(5, draw_count(5)))) >= 2
    # A pack that was faster than its end, or was killed after it, begins again.
    while not (kill() and (killed / "out.bin.partial" / "state.json").exists()):
        pass
    assert "goes on after" in programs.run("lmc-data", *command(killed)).ok().stderr
    assert files(killed) == files(tmp_path / "whole")
    assert not list(killed.glob("*.partial*"))


def test_what_a_killed_pack_has_left_is_used_only_for_the_same(programs, tmp_path, documents):
    documents = documents * 10  # more than a fast disk takes before the kill
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    out = tmp_path / "out.bin"
    command = ["pack", source, "-o", out]
    draw = random.Random(1)
    assert kill_while_packing(programs, draw, tmp_path / "out.bin.partial", command)
    other = programs.run("lmc-data", *command, "--eod=1").ok()
    assert "not gone on with: it was of other inputs or options" in other.stderr
    assert kill_while_packing(programs, draw, tmp_path / "out.bin.partial", command)
    write_jsonl(source, ["another", "text"])
    changed = programs.run("lmc-data", *command).ok()
    assert "not gone on with: it was of other inputs or options" in changed.stderr
    assert programs.run("lmc-data", "dump", "--text", out).ok().stdout == '"another"\n"text"\n'
    # What was saved of the tokens is damaged.
    write_jsonl(source, documents)
    whole = pack(programs, tmp_path / "whole.bin", source)
    assert kill_while_packing(programs, draw, tmp_path / "out.bin.partial", command)
    (tmp_path / "out.bin.partial" / "tokens").write_bytes(b"")
    damaged = programs.run("lmc-data", *command).ok()
    assert "has less than was saved" in damaged.stderr and out.read_bytes() == whole


def test_standard_input_is_not_resumed(programs, tmp_path):
    line = failure(programs, "pack", "-", "--format=text", "-o", tmp_path / "out.bin", "--resume=auto")
    assert "standard input: cannot be resumed, because what was read of it is gone" in line
    assert list(tmp_path.iterdir()) == []
