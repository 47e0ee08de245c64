"""lmc-data's tokens against those of the libraries that the tokenizer files belong to."""

import base64
import json
import os
import random
import resource
import subprocess
import sys
import time

import pytest
import sentencepiece
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

import tokenizers_of_models as known
from programs import SUCCESS, USER_ERROR

# The lines of each tokenizer's comparison: LMC_TOKENIZER_LINES=1000000 for the long run.
LINES = int(os.environ.get("LMC_TOKENIZER_LINES", 1500))


@pytest.fixture(scope="module")
def text():
    return known.lines(1, 3000)


def pack(programs, folder, tokenizer, documents, *options):
    """The ids of each document, as lmc-data gives them. `tokenizer`: the bytes of a .model, or a Tokenizer."""
    folder.mkdir(exist_ok=True)
    if isinstance(tokenizer, bytes):
        file = folder / "tokenizer.model"
        file.write_bytes(tokenizer)
    else:
        file = folder / "tokenizer.json"
        file.write_text(tokenizer.to_str())
    with open(folder / "text.jsonl", "w", encoding="utf-8") as out:
        for document in documents:
            out.write(json.dumps({"text": document}) + "\n")
    programs.run("lmc-data", "pack", folder / "text.jsonl", "-o", folder / "text.bin", "--tokenizer",
                 file, *(options or ("--bos=none", "--eod=none"))).ok()
    dumped = programs.run("lmc-data", "dump", folder / "text.bin").ok().stdout
    return [list(map(int, each.split())) for each in dumped.splitlines()]


def assert_same(documents, ours, theirs):
    assert len(ours) == len(theirs)
    for document, our, their in zip(documents, ours, theirs):
        assert our == their, f"{document!r}\nlmc        {our}\ntokenizers {their}"


def texts(programs, folder):
    dumped = programs.run("lmc-data", "dump", "--text", folder / "text.bin").ok().stdout
    return [json.loads(each) for each in dumped.rstrip("\n").split("\n")]


def encoded(tokenizer, documents):
    """The documents that have ids, and these, without what the post-processor adds."""
    ids = [each.ids for each in tokenizer.encode_batch(documents, add_special_tokens=False)]
    kept = [(document, each) for document, each in zip(documents, ids) if each]
    return [document for document, _ in kept], [each for _, each in kept]


@pytest.mark.parametrize("make", known.ALL, ids=lambda make: make.__name__)
def test_ids_and_text_are_those_of_tokenizers(programs, tmp_path, text, make):
    # Scores lose bits when they are written and read, so that the file decides.
    tokenizer = Tokenizer.from_str(make(text, 4000).to_str())
    documents, theirs = encoded(tokenizer, known.lines(2, LINES))
    folder = tmp_path / "text"
    ours = pack(programs, folder, tokenizer, documents, "--bos=none", "--eod=none", "--special-tokens=parse")
    assert_same(documents, ours, theirs)
    assert_same(documents, texts(programs, folder), tokenizer.decode_batch(theirs, skip_special_tokens=False))
    if make in known.BYTE_LEVEL and tokenizer.normalizer is None:
        assert_same(documents, texts(programs, folder), documents)
    # By default, special tokens in the text are text.
    special = [t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special]
    documents = [d for d in documents if not any(t in d for t in special)]
    assert_same(documents, pack(programs, folder, tokenizer, documents), encoded(tokenizer, documents)[1])


@pytest.mark.parametrize("pattern", [
    r"[^\w\s]+|\d", r"\w+\b.", r"^.{3}|a$", r"(?i:off|st|k)", r"(\p{N})\1|[\p{L}&&[^\p{Lu}]]{2}+", r"(?<=\p{Ll})\p{M}|\p{Han}\K\p{Han}|\P{L}\R"])
def test_an_expression_matches_as_in_tokenizers(programs, tmp_path, text, pattern):
    tokenizer = known.gpt2(text, 3000)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    documents, theirs = encoded(tokenizer, known.lines(4, LINES) + ["".join(map(chr, range(0x800))), "\ufb01\ufb03\u017f\u212a"])
    ours = pack(programs, tmp_path / "text", tokenizer, documents, "--bos=none", "--eod=none", "--special-tokens=parse")
    assert_same(documents, ours, theirs)


@pytest.mark.parametrize("name", known.SENTENCEPIECE)
def test_ids_and_text_are_those_of_sentencepiece(programs, tmp_path, text, name):
    model = known.sentencepiece_model(text, 5000, **known.SENTENCEPIECE[name])
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    # A NUL ends the text for the library's table of replacements.
    documents = known.lines(3, LINES)
    # Sums of scores are rounded, and begin again beyond 100000.
    documents = [d.replace("\0", "") for d in documents + [" ".join(documents), "ab " * 40000 + " ".join(documents)]]
    documents = [d for d in documents if processor.encode(d)]
    theirs = processor.encode(documents)
    folder = tmp_path / "text"
    assert_same(documents, pack(programs, folder, model, documents), theirs)
    assert_same(documents, texts(programs, folder), processor.decode(theirs))


def test_no_text_forges_a_special_token(programs, tmp_path, text):
    # Pieces of a Unigram's vocabulary are special tokens too, and a word can be one as a whole.
    whole = known.llama3(text, 3000)
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for tokenizer, special in (known.gpt2(text, 3000), "<|endoftext|>"), (known.t5(text, 3000), "</s>"), (whole, "<|eot_id|>"):
        end = tokenizer.token_to_id(special)
        documents = [special, f"a{special}b", f"{special}\n\n{special}x"]
        options = ("--bos=none", f"--eod={special}")
        added = tokenizer.num_special_tokens_to_add(False)
        ours = pack(programs, tmp_path / "text", tokenizer, documents, *options)
        inner = [ids[:len(ids) - 1] for ids in ours[:-1]] + [ours[-1][:len(ours[-1]) - (added if special == "</s>" else 0)]]
        assert len(ours) == 3 and not any(end in ids for ids in inner)
        command = ["lmc-data", "pack", tmp_path / "text" / "text.jsonl", "-o", tmp_path / "text" / "text.bin", "--tokenizer",
                   tmp_path / "text" / "tokenizer.json", *options]
        assert "special tokens in 4 places" in programs.run(*command).ok().stdout
        refused = programs.run(*command, "--special-tokens=error")
        assert refused.code == USER_ERROR and "spells a special token" in refused.stderr and refused.stderr.count("\n") == 1
        parsed = pack(programs, tmp_path / "text", tokenizer, documents, *options, "--special-tokens=parse")
        assert len(parsed) == 2 and sum(ids.count(end) for ids in parsed) > 1


@pytest.mark.parametrize("name", ["gemma", "albert"])
def test_no_text_forges_a_piece_of_sentencepiece(programs, tmp_path, text, name):
    special = {"gemma": "<start_of_turn>", "albert": "[MASK]"}[name]
    model = known.sentencepiece_model(text, 3000, **known.SENTENCEPIECE[name])
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    end = processor.piece_to_id(special)
    documents = [special, f"a{special}b", f"{special}\n\n{special}x"]
    assert all(end in ids for ids in processor.encode(documents))
    folder = tmp_path / "text"
    options = ("--bos=none", f"--eod={special}")
    ours = pack(programs, folder, model, documents, *options)
    assert [ids.count(end) for ids in ours] == [1, 1, 0] and ours[0][-1] == ours[1][-1] == end
    theirs = processor.decode(processor.encode(documents))
    assert [each.strip().casefold() for each in texts(programs, folder)] == [each.strip().casefold() for each in theirs]
    command = ["lmc-data", "pack", folder / "text.jsonl", "-o", folder / "text.bin", "--tokenizer", folder / "tokenizer.model", *options]
    assert "special tokens in 4 places" in programs.run(*command).ok().stdout
    refused = programs.run(*command, "--special-tokens=error")
    assert refused.code == USER_ERROR and "spells a special token" in refused.stderr
    other = [*command[:-1], "--eod=</s>"]  # the piece stays one
    programs.run(*other).ok()
    assert sum(line.split().count(str(end)) for line in programs.run("lmc-data", "dump", folder / "text.bin").ok().stdout.splitlines()) == 4


# (text, score, type) of pieces; the types: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
LETTERS = [("<unk>", 0, 2), ("a", -9, 1), ("b", -9, 1), ("c", -9, 1)]
BYTE_PIECES = [(f"<0x{byte:02X}>", 0, 6) for byte in range(256)]


def test_equal_scores_with_different_signs_are_ordered_as_in_sentencepiece(programs, tmp_path):
    scores = (0.0, -0.0, 1e-30, -1e-30, 1.0)
    for first, second in ((a, b) for a in scores for b in scores):
        model = known.model_of_pieces(2, [*LETTERS, ("ab", first, 1), ("bc", second, 1)])
        theirs = sentencepiece.SentencePieceProcessor(model_proto=model).encode("abc")
        assert_same([(first, second)], pack(programs, tmp_path / "text", model, ["abc"]), [theirs])


@pytest.mark.parametrize("pieces, byte_fallback, good", [
    (LETTERS, False, True),
    (LETTERS + [("a" * 7999, -1, 1)], False, True),
    (LETTERS + [("a" * 8000, -1, 1)], False, False),
    (LETTERS + [("a" * 8000, -1, 4)], False, False),
    (LETTERS + [("a\0b", -1, 3)], False, False),
    (LETTERS + [("\0", -1, 5)], False, True),
    (LETTERS + [("", -1, 1)], False, False),
    (LETTERS + [("a", -1, 1)], False, False),
    (LETTERS + [("x", float("nan"), 3)], False, False),
    (LETTERS + [("<other>", 0, 2)], False, False),
    (LETTERS[1:], False, False),
    (LETTERS[:1], False, False),
    (LETTERS + BYTE_PIECES, True, True),
    (LETTERS[1:] + BYTE_PIECES, True, True),
    (LETTERS + BYTE_PIECES[1:], True, False),
    (LETTERS + BYTE_PIECES + [("<0xab>", 0, 6)], True, False),
    (LETTERS + BYTE_PIECES[:1], False, False),
])
def test_models_that_sentencepiece_refuses_are_refused(programs, tmp_path, pieces, byte_fallback, good):
    for kind in 1, 2:
        model = known.model_of_pieces(kind, pieces, byte_fallback)
        (tmp_path / "tokenizer.model").write_bytes(model)
        (tmp_path / "text.txt").write_text("abaac")
        done = programs.run("lmc-data", "pack", tmp_path / "text.txt", "-o", tmp_path / "text.bin", "--tokenizer",
                            tmp_path / "tokenizer.model", "--bos=none", "--eod=1")
        assert (done.code == SUCCESS) == good, (kind, done.stderr)
        if not good:
            assert done.code == USER_ERROR and "tokenizer.model: " in done.stderr and done.stderr.count("\n") == 1
        if good:
            sentencepiece.SentencePieceProcessor(model_proto=model)
        elif kind == 1:
            with pytest.raises(RuntimeError):
                sentencepiece.SentencePieceProcessor(model_proto=model)


def test_a_damaged_table_of_replacements_breaks_nothing(programs, tmp_path, text):
    as_json = json.loads(known.xlm(text, 1000).to_str())
    (tmp_path / "text.txt").write_text("".join(known.lines(5, 200)) + "é")
    draw = random.Random(5)
    for _ in range(12):
        table = bytearray(base64.b64decode(as_json["normalizer"]["precompiled_charsmap"]))
        size = int.from_bytes(table[:4], "little")  # of the trie, which the replacements follow
        for _ in range(draw.choice((1, 10, 1000))):
            table[draw.randrange(4, 4 + size)] ^= draw.randrange(1, 256)
        damaged = {**as_json, "normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}}
        (tmp_path / "tokenizer.json").write_text(json.dumps(damaged))
        done = programs.run("lmc-data", "pack", tmp_path / "text.txt", "-o", tmp_path / "out.bin",
                            "--tokenizer", tmp_path / "tokenizer.json", "--eod=0", "--bos=none")
        assert done.code in (SUCCESS, USER_ERROR), (done.code, done.stderr)
        (tmp_path / "out.bin").unlink(missing_ok=True)


@pytest.mark.parametrize("scheme", ["first", "always"])
def test_a_character_that_the_table_deletes_is_still_the_first(programs, tmp_path, text, scheme):
    """A space mark stands before what follows it, as in `tokenizers`."""
    as_json = json.loads(known.xlm(text, 1000).to_str())
    as_json["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": True}
    tokenizer = Tokenizer.from_str(json.dumps(as_json))
    documents = ["\x01the law", "\x01\x02the", "\x7f the", "the\x01 law", "\u200bthe", "the"]
    assert_same(documents, pack(programs, tmp_path, tokenizer, documents), encoded(tokenizer, documents)[1])


# With several batches of 4 MiB for each thread.
def test_the_result_does_not_depend_on_threads(programs, tmp_path, text):
    (tmp_path / "bpe.json").write_text(known.gpt2(text, 2000).to_str())
    (tmp_path / "unigram.model").write_bytes(known.sentencepiece_model(text, 3000, **known.SENTENCEPIECE["t5"]))
    lines = known.lines(4, 1000)
    draw = random.Random(4)
    documents = ["\n".join(draw.sample(lines, 100)) for _ in range(1500)]
    (tmp_path / "text.txt").write_text("\f".join(documents * 3), encoding="utf-8", newline="")
    assert (tmp_path / "text.txt").stat().st_size > 8 * 4 << 20
    for file, end in ("bpe.json", "<|endoftext|>"), ("unigram.model", "</s>"):
        results = []
        for threads in 1, 2, 7:
            out, validation = tmp_path / f"{threads}.bin", tmp_path / f"{threads}.validation.bin"
            programs.run("lmc-data", "pack", tmp_path / "text.txt", "-o", out, "--validation", validation, "--tokenizer",
                         tmp_path / file, "--bos=none", "--eod", end, "--threads", threads).ok()
            results.append((out.read_bytes(), validation.read_bytes()))
        assert results[0] == results[1] == results[2], file


def test_errors_name_the_place_of_the_document(programs, tmp_path):
    tokenizer = known.gpt2(["a b"], 300)
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str())
    (tmp_path / "text.txt").write_text("a\fb\f \n<|endoftext|>\n" + "x" * 100)
    (tmp_path / "text.jsonl").write_text('{"text": "a"}\n\n{"text": "\\n<|endoftext|>"}\n')
    command = ["lmc-data", "pack", "-o", tmp_path / "out.bin", "--tokenizer", tmp_path / "tokenizer.json", "--bos=none",
               "--eod=<|endoftext|>", "--special-tokens=error"]
    for name, place in ("text.txt", "text.txt: byte 4 of the text: "), ("text.jsonl", "text.jsonl:3: "):
        refused = programs.run(*command, tmp_path / name)
        assert refused.code == USER_ERROR and refused.stderr.count("\n") == 1 and place + "'<|endoftext|>" in refused.stderr, refused.stderr


def test_options_of_a_tokenizer_need_one(programs, tmp_path):
    (tmp_path / "text.txt").write_text("a")
    for option in "--bos=none", "--special-tokens=error", "--threads=2":
        refused = programs.run("lmc-data", "pack", tmp_path / "text.txt", "-o", tmp_path / "out.bin", option)
        assert refused.code == USER_ERROR and option.split("=")[0] + " needs --tokenizer" in refused.stderr


def test_the_tokenizer_that_was_used_is_kept(programs, tmp_path):
    """Even if its file changes while text is read; and no other one is left if the run ends early."""
    file, out = tmp_path / "tokenizer.json", tmp_path / "out.bin"
    first, second = known.gpt2(["a b"], 300).to_str(), known.gpt2(["b c"], 301).to_str()
    command = programs.command("lmc-data", "pack", "-", "--format=text", "-o", out, "--tokenizer", file, "--bos=none", "--eod=<|endoftext|>")
    file.write_text(first)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    while not (tmp_path / "out.bin.tokenizer.partial" / "tokenizer.json").exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.1)
    file.write_text(second)
    process.communicate(b"a b")
    assert process.returncode == 0 and (tmp_path / "out.bin.tokenizer" / "tokenizer.json").read_text() == first
    assert subprocess.run(command, input=b"\xff").returncode == USER_ERROR
    assert not (tmp_path / "out.bin.tokenizer.partial").exists()
    assert (tmp_path / "out.bin.tokenizer" / "tokenizer.json").read_text() == first
    assert subprocess.run(command, input=b"a", stdout=subprocess.DEVNULL).returncode == 0
    assert (tmp_path / "out.bin.tokenizer" / "tokenizer.json").read_text() == second


def test_a_nul_is_a_character(programs, tmp_path, text):
    documents = ["a\0b", "\0", "x \0 y", "a\0\0"]
    tokenizer = known.llama3(text, 1000)
    assert_same(documents, pack(programs, tmp_path / "json", tokenizer, documents), encoded(tokenizer, documents)[1])
    # Without a table of replacements, the library does not end a text at a NUL.
    model = known.sentencepiece_model(text, 3000, **known.SENTENCEPIECE["llama2"])
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert_same(documents, pack(programs, tmp_path / "model", model, documents), processor.encode(documents))
    assert texts(programs, tmp_path / "model") == documents


def test_text_is_dumped_with_a_tokenizer_that_is_given(programs, tmp_path, text):
    documents = ["Hello world", "x<|endoftext|>"]
    pack(programs, tmp_path, known.gpt2(text, 1000), documents, "--bos=none", "--eod=<|endoftext|>")
    out = tmp_path / "text.bin"
    assert texts(programs, tmp_path) == documents
    (tmp_path / "text.bin.tokenizer" / "tokenizer.json").unlink()
    (tmp_path / "text.bin.tokenizer").rmdir()
    refused = programs.run("lmc-data", "dump", "--text", out)
    assert refused.code == USER_ERROR and "is no byte; give the tokenizer with --tokenizer" in refused.stderr
    dumped = programs.run("lmc-data", "dump", "--text", "--tokenizer", tmp_path / "tokenizer.json", out).ok().stdout
    assert [json.loads(line) for line in dumped.splitlines()] == documents
    refused = programs.run("lmc-data", "dump", "--tokenizer", tmp_path / "tokenizer.json", out)
    assert refused.code == USER_ERROR and "--tokenizer needs --text" in refused.stderr


def refusal(programs, folder, change):
    as_json = json.loads(known.gpt2(["a b"], 300).to_str())
    change(as_json)
    (folder / "text.txt").write_text("a")
    (folder / "tokenizer.json").write_text(json.dumps(as_json))
    done = programs.run("lmc-data", "pack", folder / "text.txt", "-o", folder / "out.bin", "--tokenizer", folder / "tokenizer.json",
                        "--eod=0", "--bos=none")
    assert done.code == USER_ERROR and not (folder / "out.bin").exists(), done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


def split(pattern):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}]}


def template(single, **more):
    return {"type": "TemplateProcessing", "single": single, "pair": [],
            "special_tokens": {"t": {"id": "t", "ids": [0], "tokens": ["t"], **more}}}


@pytest.mark.parametrize("key, value, place", [
    ("pre_tokenizer", {"type": "BertPreTokenizer"}, "pre_tokenizer.type: 'BertPreTokenizer' is not supported"),
    ("pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "extra": 1}, "pre_tokenizer.extra: is not supported"),
    ("pre_tokenizer", split("(" * 30000 + "a" + ")" * 30000), "parse depth limit over"),
    ("pre_tokenizer", split("[" * 30000 + "a" + "]" * 30000), "parse depth limit over"),
    ("pre_tokenizer", split(r"\p{L}" * 20000), "a regular expression of 100000 bytes"),
    ("pre_tokenizer", split(r"a\X"), r"pre_tokenizer.pretokenizers[0].pattern.Regex: '\X' is not supported"),
    ("pre_tokenizer", split("[[:alpha:]]"), "'[:' is not supported"),
    ("pre_tokenizer", split("a*"), "match the empty string is not supported"),
    ("pre_tokenizer", split("(?=a)"), "match the empty string is not supported"),
    ("pre_tokenizer", split(r"\p{Greek}"), "invalid character property name {Greek}"),
    ("pre_tokenizer", split("(?i:\u00e9)"), "'(?i:\u00e9' is not supported"),
    ("pre_tokenizer", split("(?mi)a"), "'(?mi' is not supported"),
    ("normalizer", {"type": "BertNormalizer"}, "normalizer.type: 'BertNormalizer' is not supported"),
    ("decoder", {"type": "CTC"}, "decoder.type: 'CTC' is not supported"),
    ("post_processor", {"type": "Other"}, "post_processor.type: 'Other' is not supported"),
    ("truncation", {"max_length": 5}, "truncation: is not supported"),
    ("model", {"type": "WordPiece"}, "model.type: 'WordPiece' is not supported"),
    ("model", {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}, "model.merges: the merge of 'a' and 'b': 'b' is not in the vocabulary"),
    ("model", {"type": "BPE", "vocab": {"a": 0}, "merges": None}, "model.merges: expected an array, found null"),
    ("model", {"type": "BPE", "vocab": {"a": 0}, "merges": {"0": ["a", "a"]}}, "model.merges: expected an array, found object"),
    ("model", {"type": "BPE", "vocab": {"a": 0}, "merges": ["#version: 0.2", "a"]}, "model.merges[1]: expected two pieces"),
    ("normalizer", {"type": "Replace", "pattern": {"String": "a", "Regex": "b"}, "content": ""}, "normalizer.pattern: expected either String or Regex"),
    ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA=AAAA"}, "normalizer.precompiled_charsmap: is not base64"),
    ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAAA"}, "normalizer.precompiled_charsmap: is not base64"),
    ("post_processor", template([{"Sequence": {"id": "A", "type_id": 0, "x": 1}}]), "post_processor.single[0].Sequence.x: is not supported"),
    ("post_processor", template([{"SpecialToken": {"id": "t", "x": 1}}]), "post_processor.single[0].SpecialToken.x: is not supported"),
    ("post_processor", template([{"SpecialToken": {"id": "t"}, "Sequence": {"id": "A"}}]), "post_processor.single[0]: expected either Sequence or SpecialToken"),
    ("post_processor", template([{"SpecialToken": {"id": "t"}}, {"Sequence": {"id": "A"}}], x=1), "post_processor.special_tokens.t.x: is not supported"),
    ("model", {"type": "BPE", "vocab": {"a": 1048577}, "merges": []}, "model.vocab.a: expected an id below 1048577"),
    ("post_processor", {"type": "BertProcessing", "sep": ["a", 5000], "cls": ["b", 0]}, "post_processor: adds the id 5000, which no token has"),
    ("other", 1, "other: is not supported"),
])
def test_what_is_not_supported_is_refused_by_its_place(programs, tmp_path, key, value, place):
    assert place in refusal(programs, tmp_path, lambda as_json: as_json.update({key: value}))


def test_the_files_beside_the_tokenizer_say_what_ends_a_document(programs, tmp_path, text):
    tokenizer = known.llama3(text, 1000)
    begin, end = map(tokenizer.token_to_id, ("<|begin_of_text|>", "<|end_of_text|>"))
    documents = ["a b", "c"]
    ids = [each.ids for each in tokenizer.encode_batch(documents)]
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str())
    (tmp_path / "text.txt").write_text("a b\fc")
    command = ["lmc-data", "pack", tmp_path / "text.txt", "-o", tmp_path / "text.bin", "--tokenizer", tmp_path]
    done = programs.run(*command)
    assert done.code == USER_ERROR and "nothing says which token ends a document" in done.stderr

    def packed():
        programs.run(*command).ok()
        return [list(map(int, line.split())) for line in programs.run("lmc-data", "dump", tmp_path / "text.bin").ok().stdout.splitlines()]

    config = {"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|end_of_text|>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    # The post-processor puts the begin already.
    assert ids[0][0] == begin and packed() == [ids[0] + [end], ids[1]]
    copy = tmp_path / "text.bin.tokenizer"
    assert Tokenizer.from_file(str(copy / "tokenizer.json")).to_str() == tokenizer.to_str()
    assert json.loads((copy / "tokenizer_config.json").read_text()) == config


@pytest.mark.parametrize("template, options, config, parts", [
    ("[lang] <s> $A </s>", ["--bos=<s>", "--eod=</s>"], {}, "[lang] <s> A </s> [lang] <s> B </s>"),
    ("[lang] <s> $A </s> [lang]", ["--bos=<s>", "--eod=</s>"], {}, "[lang] <s> A </s> [lang] [lang] <s> B </s> [lang]"),
    ("[lang] $A", ["--bos=<s>", "--eod=</s>"], {}, "<s> [lang] A </s> <s> [lang] B"),
    ("[lang] <s> $A", ["--bos=none", "--eod=</s>"], {}, "A </s> B"),
    ("<s> $A </s>", ["--bos=<s>", "--eod=none"], {}, "<s> A <s> B"),
    ("<s> $A", [], {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": False}, "A </s> B"),
    ("<s> $A", [], {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}, "<s> A </s> <s> B"),
    ("$A", [], {"eos_token": {"content": "</s>"}}, "A </s> B"),
    ("</s> $A", ["--bos=</s>", "--eod=</s>"], {}, "</s> A </s> B"),
    ("$A", ["--bos=<s>"], {"bos_token": None, "eos_token": "</s>"}, "<s> A </s> <s> B"),
    ("$A", ["--eod=5", "--bos=none"], {}, "A 5 B"),
    ("$A", ["--bos=none"], "special_tokens_map.json", "A </s> B"),
    ("$A", [], "special_tokens_map.json", "<s> A </s> <s> B"),
])
def test_each_token_around_documents_is_written_once(programs, tmp_path, template, options, config, parts):
    tokenizer = known.gpt2(["a b"], 300)
    tokenizer.add_special_tokens(["<s>", "</s>", "[lang]"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, pair=template + " $B:1", special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("<s>", "</s>", "[lang]")])
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str())
    name = config if isinstance(config, str) else "tokenizer_config.json"
    (tmp_path / name).write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"} if name == config else config))
    (tmp_path / "text.txt").write_text("A\fB")
    programs.run("lmc-data", "pack", tmp_path / "text.txt", "-o", tmp_path / "text.bin", "--tokenizer", tmp_path, *options).ok()
    dumped = programs.run("lmc-data", "dump", tmp_path / "text.bin").ok().stdout.split()
    assert list(map(int, dumped)) == [int(part) if part.isdigit() else tokenizer.token_to_id(part) for part in parts.split()]


def test_a_model_names_the_tokens_around_documents(programs, tmp_path):
    model = known.model_of_pieces(1, [*LETTERS, ("<s>", 0, 3), ("</s>", 0, 3)])
    assert pack(programs, tmp_path, model, ["a", "bc"], "--threads=1") == [[4, 1, 5], [4, 2, 3]]


def test_a_trained_tokenizer_is_one_of_tokenizers(programs, tmp_path, text):
    (tmp_path / "text.txt").write_text("\f".join(text), newline="")
    programs.run("lmc-data", "tokenizer", "train", tmp_path / "text.txt", "-o", tmp_path / "own", "--vocab-size=2000").ok()
    ours = Tokenizer.from_file(str(tmp_path / "own" / "tokenizer.json"))
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = known.split_byte_level(known.LLAMA3)
    known.byte_level(theirs, text, 2000, ["<|endoftext|>"])
    assert ours.get_vocab_size() == theirs.get_vocab_size() == 2000
    tokens = [sum(len(each.ids) for each in tokenizer.encode_batch(text)) for tokenizer in (ours, theirs)]
    assert tokens[0] <= 1.01 * tokens[1], tokens
    documents = known.lines(5, 300)
    ours.encode_special_tokens = True
    assert_same(documents, pack(programs, tmp_path / "text", ours, documents), [each.ids for each in ours.encode_batch(documents)])


@pytest.mark.parametrize("end, why", [("", "--eod needs a value"), ("a", "it is the character of a byte"), ("\u0120", "it is the character of a byte"),
                                      (b"\xff<eod>", "it is not UTF-8")])
def test_a_token_that_cannot_end_documents_is_refused_before_training(programs, tmp_path, end, why):
    (tmp_path / "text.txt").write_text("a b")
    option = b"--eod=" + (end if isinstance(end, bytes) else end.encode())
    done = subprocess.run([*programs.command("lmc-data", "tokenizer", "train", tmp_path / "text.txt", "-o", tmp_path / "own"), option],
                          capture_output=True)
    assert done.returncode == USER_ERROR and why in done.stderr.decode() and done.stderr.count(b"\n") == 1
    assert not (tmp_path / "own").exists()


def test_no_merge_makes_the_token_that_ends_documents(programs, tmp_path):
    (tmp_path / "text.txt").write_text("END ENDS END THEEND " * 20)
    own = tmp_path / "own"
    train = ["lmc-data", "tokenizer", "train", tmp_path / "text.txt", "-o", own, "--vocab-size=300", "--eod=END"]
    programs.run(*train, "--format=text", "--document-separator=\\n", "--invalid-utf8=replace").ok()
    tokenizer = json.loads((own / "tokenizer.json").read_text())
    assert tokenizer["model"]["vocab"]["END"] == 0 and not any("".join(merge) == "END" for merge in tokenizer["model"]["merges"])
    programs.run("lmc-data", "pack", tmp_path / "text.txt", "-o", tmp_path / "text.bin", "--tokenizer", own).ok()
    assert "0" not in programs.run("lmc-data", "dump", tmp_path / "text.bin").ok().stdout.split()
    (own / "tokenizer.json").unlink()
    again = programs.run(*train)
    assert again.code == USER_ERROR and "tokenizer_config.json: exists already" in again.stderr


def test_bytes_that_are_not_utf8_are_replaced_as_python_does(programs, tmp_path):
    draw = random.Random(6)
    lead = [0xC3, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98, 0x80, 0xED, 0xA0, 0xF4, 0x90, 0xC0, 0xFF, 0x41, 0x20]
    whole = bytes(draw.choice(lead) for _ in range(100000)) + b"\xe2\x82"
    (tmp_path / "text.txt").write_bytes(whole)
    lines = [json.dumps({"text": text}).replace("/u", "\\u")
             for text in ("a/ud800b", "/ude00/ud83d", "/ud83d/ude00", "//ud83d/ud83d/ude00x", "c\\/ud800")]
    (tmp_path / "text.jsonl").write_text("\n".join(lines))

    def packed(name):
        programs.run("lmc-data", "pack", tmp_path / name, "-o", tmp_path / "out.bin", "--invalid-utf8=replace", "--eod=none",
                     "--document-separator=").ok()
        dumped = programs.run("lmc-data", "dump", tmp_path / "out.bin").ok().stdout
        return [bytes(map(int, line.split())) for line in dumped.splitlines()]

    assert packed("text.txt") == [whole.decode(errors="replace").encode()]
    assert packed("text.jsonl") == [json.loads(line)["text"].encode(errors="replace") for line in lines]
    done = programs.run("lmc-data", "pack", tmp_path / "text.txt", "-o", tmp_path / "out.bin")
    assert done.code == USER_ERROR and "is not UTF-8" in done.stderr


@pytest.fixture(scope="module")
def real_text(programs, root):
    """This project's sources, the English text of the demo, and drawn lines."""
    english = (programs.build / "demo" / "text.txt").read_text(encoding="utf-8")
    sources = sorted(file for folder in ("ground", "corpus", "runtime", "compiler", "passes", "test", "docs") for file in (root / folder).rglob("*.*")
                     if file.suffix in (".cpp", ".h", ".md", ".py", ".mlir"))
    return [file.read_text(encoding="utf-8").replace("\f", "") for file in sources] + \
        [english[at:at + 5000] for at in range(0, len(english), 5000)] + \
        ["\n".join(known.lines(seed, 40)).replace("\0", "") for seed in range(50)]


def check_speed(programs, folder, tokenizer, documents, encode, at_least):
    """One thread's CPU time to encode, beside that of encode(). `tokenizer`: a file. Ours includes reading and writing."""
    def seconds(text):
        (folder / "text.txt").write_text(text, encoding="utf-8", newline="")
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        programs.run("lmc-data", "pack", folder / "text.txt", "-o", folder / "out.bin", "--tokenizer", tokenizer, "--bos=none",
                     "--eod=none", "--threads=1").ok()
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime

    megabytes = sum(len(document.encode()) for document in documents) / 1e6
    began = time.process_time()
    encode(documents)
    theirs = time.process_time() - began
    load = min(seconds("a") for _ in range(3))
    ours = min(seconds("\f".join(documents)) for _ in range(3)) - load
    print(f"{megabytes:.1f} MB; the library {megabytes / theirs:.1f} MB/s, lmc-data {megabytes / ours:.1f} MB/s, "
          f"{theirs / ours:.1f} times; {load:.2f} s to load")
    assert theirs / ours >= at_least


@pytest.mark.skipif("LMC_TOKENIZER_LINES" not in os.environ, reason="measures times")
@pytest.mark.parametrize("make", [known.gpt2, known.llama3, known.qwen2, known.llama2, known.mistral, known.gemma, known.t5],
                         ids=lambda make: make.__name__)
def test_speed_beside_tokenizers(programs, real_text, tmp_path, make, monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    tokenizer = make([line for document in real_text for line in document.split("\n")], 16000)
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str())
    check_speed(programs, tmp_path, tmp_path / "tokenizer.json", real_text, tokenizer.encode_batch_fast, 2)


@pytest.mark.skipif("LMC_TOKENIZER_LINES" not in os.environ, reason="measures times")
@pytest.mark.parametrize("name", ["llama2", "gemma", "t5", "albert"])
def test_speed_beside_sentencepiece(programs, real_text, tmp_path, name):
    lines = [line for document in real_text for line in document.split("\n") if line]
    model = known.sentencepiece_model(lines[:40000], 16000, **known.SENTENCEPIECE[name])
    (tmp_path / "tokenizer.model").write_bytes(model)
    check_speed(programs, tmp_path, tmp_path / "tokenizer.model", real_text,
                sentencepiece.SentencePieceProcessor(model_proto=model).encode, 2)


@pytest.mark.skipif("LMC_TOKENIZER_LINES" not in os.environ, reason="asks the library for every code point: a minute")
def test_the_unicode_tables_are_those_of_the_library(root):
    subprocess.run([sys.executable, root / "corpus/tokenizer/unicode/make-unicode-tables.py", "--check"], check=True)
