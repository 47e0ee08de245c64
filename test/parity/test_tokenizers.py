"""lmc-data's tokens against those of the libraries that the tokenizer files belong to."""

import json
import os

import pytest
from tokenizers import Tokenizer

import tokenizers_of_models as known

# The lines of each tokenizer's comparison: LMC_TOKENIZER_LINES=1000000 for the long run.
LINES = int(os.environ.get("LMC_TOKENIZER_LINES", 1500))


@pytest.fixture(scope="module")
def text():
    return known.lines(1, 3000)


def pack(programs, folder, tokenizer, documents, *options):
    """The ids of each document, as lmc-data gives them."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer if isinstance(tokenizer, str) else tokenizer.to_str())
    with open(folder / "text.jsonl", "w", encoding="utf-8") as out:
        for document in documents:
            out.write(json.dumps({"text": document}) + "\n")
    programs.run("lmc-data", "pack", folder / "text.jsonl", "-o", folder / "text.bin", "--tokenizer",
                 folder / "tokenizer.json", *(options or ("--bos=none", "--eod=none"))).ok()
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
    """The documents that have ids, and these."""
    added = tokenizer.num_special_tokens_to_add(False)
    ids = [each.ids for each in tokenizer.encode_batch(documents)]
    kept = [(document, each) for document, each in zip(documents, ids) if len(each) > added]
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
    # By default, special tokens in the text are text.
    special = [t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special]
    documents = [d for d in documents if not any(t in d for t in special)]
    assert_same(documents, pack(programs, folder, tokenizer, documents), encoded(tokenizer, documents)[1])
