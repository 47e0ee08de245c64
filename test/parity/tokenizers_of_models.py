"""Tokenizers with the settings of well-known models, trained here on a text drawn in many scripts."""

import base64
import collections
import io
import json
import random
import re
import struct

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# First code points and sizes of blocks with letters, each of another script.
SCRIPTS = [(0x61, 26), (0x41, 26), (0xC0, 60), (0x391, 50), (0x410, 64), (0x531, 38), (0x5D0, 27),
           (0x620, 40), (0x905, 50), (0x995, 30), (0xA05, 30), (0xB85, 40), (0xC05, 50), (0xE01, 50),
           (0xF40, 40), (0x10D0, 33), (0x1200, 90), (0x1780, 60), (0x3041, 80), (0x30A1, 80),
           (0x4E00, 900), (0xAC00, 900), (0x1F600, 60)]
SPACES = [" ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2003", " \n "]
CODE = ["def f(x):\n    return x + 1\n", "for (int i = 0; i < 10; ++i) {\n\tsum += a[i];\n}", "<div class=\"a\">",
        "x==y&&z!=0", "https://example.org/a?b=c&d=%20", "{'key': [1, 2.5e-3]}", "// comment", "\\frac{a}{b}"]
ODD = ["'s", "'S", "'\u017f", "'LL", "'Re", "don't", "WE'VE", "\ufb01", "e\u0301", "\u00e9", "\u1100\u1161\u11a8", "\u212a",
       "\u2581", "\u2581\u2581", "\u200d", "\ufeff", "\u0301", "\uff21\uff22", "\u00bd", "\u2460", "\u0660\u0661",
       "\U0001f468\u200d\U0001f469\u200d\U0001f467", "<0x41>", "</s>", "<s>", "<unk>", "<|endoftext|>", "\x00", "\x7f", "...",
       "!?", "$%&", "'", "\"", "\u00ad", "\u0085", "\u2028", "123456789", "3.14", "2024-01-02"]


def any_character(draw):
    while True:
        c = draw.randrange(0x110000) if draw.random() < 0.5 else draw.randrange(0x3000)
        if not 0xD800 <= c <= 0xDFFF:
            return chr(c)


# Blocks of characters that join, reorder or compose with those beside them.
JOINING = [(0x300, 112), (0x591, 45), (0x600, 6), (0x1100, 256), (0x1AB0, 30), (0x200B, 6), (0x20D0, 33), (0xA9, 6), (0xAC00, 60),
           (0x900, 128), (0xFE00, 16), (0x1F3FB, 5), (0x1E900, 80), (0xFF00, 240), (0xF900, 100), (0x1F00, 255)]


def joining(draw):
    pieces = [draw.choice("aeA\u00e9\u0391\u1100\u3042")]
    for _ in range(draw.randrange(1, 6)):
        first, size = draw.choice(JOINING)
        pieces.append(chr(first + draw.randrange(size)))
    return "".join(pieces)


def word(draw):
    first, size = draw.choice(SCRIPTS)
    # Few of a script's letters are frequent, so that there is something to merge.
    return "".join(chr(first + int(size * draw.random() ** 3)) for _ in range(1 + int(8 * draw.random() ** 2)))


def line(draw, words=12):
    pieces = []
    for _ in range(1 + int(words * draw.random())):
        kind = draw.random()
        if kind < 0.7:
            pieces.append(word(draw))
        elif kind < 0.8:
            pieces.append(str(draw.randrange(10 ** draw.randrange(1, 12))))
        elif kind < 0.86:
            pieces.append(draw.choice(ODD))
        elif kind < 0.92:
            pieces.append(draw.choice(CODE))
        elif kind < 0.96:
            pieces.append(joining(draw))
        else:
            pieces.append("".join(any_character(draw) for _ in range(draw.randrange(1, 5))))
        if draw.random() < 0.8:
            pieces.append(draw.choice(SPACES) * draw.choice((1, 1, 1, 2, 5)))
    return "".join(pieces)


def lines(seed, count, words=12):
    draw = random.Random(seed)
    return [line(draw, words) for _ in range(count)]


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_level(tokenizer, text, size, special, **options):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)
    tokenizer.train_from_iterator(text, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def template(tokenizer, begin, end=None):
    pieces = [begin] * bool(begin) + ["$A"] + [end] * bool(end)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=" ".join(pieces), pair=" ".join(pieces + ["$B:1"]),
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in (begin, end) if t])


def gpt2(text, size):
    tokenizer = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_level(tokenizer, text, size, ["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def split_byte_level(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama3(text, size):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = split_byte_level(LLAMA3)
    byte_level(tokenizer, text, size, [])
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    template(tokenizer, "<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), tokenizer.post_processor])
    return tokenizer


def qwen2(text, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split_byte_level(QWEN2)
    byte_level(tokenizer, text, size, [])
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("<think>", normalized=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def o200k(text, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = split_byte_level(O200K)
    return byte_level(tokenizer, text, size, ["<|endoftext|>"])


def olmo(text, size):
    """GPT-NeoX's, with its runs of spaces as added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    byte_level(tokenizer, text, size, ["<|endoftext|>", "<|padding|>"])
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    template(tokenizer, None, "<|endoftext|>")
    return tokenizer


def starcoder(text, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return byte_level(tokenizer, text, size, ["<|endoftext|>", "<fim_prefix>"])


def sentencepiece_decoder(tokenizer, strip=1):
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        + [decoders.Strip(" ", strip, 0)] * bool(strip))


def llama2(text, size):
    """As it was converted first: the normalizer makes the space marks, and there is no pre-tokenizer."""
    # The trainer must not join words, which the real one did not do either.
    training = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    training.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    training.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"] + BYTES, show_progress=False, limit_alphabet=600))
    tokenizer = Tokenizer(training.model)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    template(tokenizer, "<s>")
    sentencepiece_decoder(tokenizer)
    return tokenizer


def mistral(text, size):
    """As transformers converts it now: Metaspace("first"), which does not split."""
    tokenizer = llama2(text, size)
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.add_tokens([AddedToken("[INST]", normalized=False), AddedToken("[/INST]", normalized=False, special=True)])
    return tokenizer


def gemma(text, size):
    tokenizer = llama2(text, size)
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.add_tokens([AddedToken("\n" * n, normalized=False) for n in range(2, 8)])
    tokenizer.add_tokens([AddedToken("\u2581" * n, normalized=False) for n in range(2, 8)])
    sentencepiece_decoder(tokenizer, strip=0)
    return tokenizer


def unigram(text, size, byte_fallback=False):
    training = Tokenizer(models.Unigram())
    training.pre_tokenizer = pre_tokenizers.Metaspace()
    frequent = "".join(c for c, _ in collections.Counter("".join(text)).most_common(600))
    training.normalizer = normalizers.Replace(Regex("[^%s]" % re.escape(frequent).replace("&", "\\&")), "")
    training.train_from_iterator(text, trainers.UnigramTrainer(
        vocab_size=size, special_tokens=["<pad>", "</s>", "<unk>"] + BYTES * byte_fallback, unk_token="<unk>", show_progress=False))
    return training


def t5(text, size):
    tokenizer = unigram(text, size)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.add_tokens([AddedToken("<extra_id_0>", lstrip=True, rstrip=True, single_word=False)])
    template(tokenizer, None, "</s>")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return tokenizer


def sentencepiece_model(text, size, **options):
    """The bytes of a .model file."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=out, vocab_size=size, minloglevel=2, num_threads=1,
        **{"character_coverage": 0.98, **options},
        hard_vocab_limit=False, max_sentence_length=100000)
    return out.getvalue()


def fields(message):
    """(number, value) of each field of a message of protocol buffers."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, message[at:at + size]
        at += size


def field(number, value):
    """One field of a message of protocol buffers: an integer, or bytes."""
    def varint(value):
        return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value >= 0x80 else bytes([value])

    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def model_of_pieces(kind, pieces, byte_fallback=False, table=b""):
    """The bytes of a .model. `kind`: 1 for Unigram, 2 for BPE; `pieces`: (text, score, type)."""
    listed = b"".join(field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + field(3, type))
                      for text, score, type in pieces)
    return listed + field(2, field(3, kind) + field(35, int(byte_fallback))) + field(3, field(2, table) + field(3, 0) + field(4, 0))


def charsmap(model):
    return dict(fields(dict(fields(model))[3]))[2]


def xlm(text, size):
    """A Unigram with SentencePiece's own table of replacements."""
    tokenizer = unigram(text, size, byte_fallback=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.decoder = decoders.Sequence([decoders.Metaspace(prepend_scheme="always"), decoders.ByteFallback(), decoders.Fuse()])
    as_json = json.loads(tokenizer.to_str())
    as_json["model"]["byte_fallback"] = True
    table = base64.b64encode(charsmap(sentencepiece_model(["abc"], 30, model_type="bpe", normalization_rule_name="nmt_nfkc")))
    as_json["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": table.decode()}
    return Tokenizer.from_str(json.dumps(as_json))


# Settings of SentencePiece's trainer, by the model that they are those of.
SENTENCEPIECE = {
    "llama2": dict(model_type="bpe", normalization_rule_name="identity", byte_fallback=True, split_digits=True,
                   remove_extra_whitespaces=False, allow_whitespace_only_pieces=True),
    "gemma": dict(model_type="bpe", normalization_rule_name="identity", byte_fallback=True, add_dummy_prefix=False,
                  remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, pad_id=0, eos_id=1, bos_id=2, unk_id=3,
                  user_defined_symbols=["<start_of_turn>", "\n\n", "def", "\u2581\u2581\u2581"]),
    "t5": dict(model_type="unigram", normalization_rule_name="nmt_nfkc", pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    "albert": dict(model_type="unigram", normalization_rule_name="nmt_nfkc_cf", byte_fallback=True,
                   user_defined_symbols=["[MASK]", "ab"], control_symbols=["[CLS]"]),
    "suffix": dict(model_type="bpe", normalization_rule_name="nfkc", treat_whitespace_as_suffix=True),
}


def lowercase_words(text, size):
    """Normalizers and pre-tokenizers that the others do not have."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>", continuing_subword_prefix="##"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Nmt(), normalizers.NFD()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(False),
         pre_tokenizers.Split("ab", "merged_with_next"), pre_tokenizers.Split(Regex("[xy]+"), "merged_with_previous")])
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=size, special_tokens=["[UNK]", "[CLS]"], show_progress=False, end_of_word_suffix="</w>",
        continuing_subword_prefix="##", limit_alphabet=300))
    tokenizer.add_tokens([AddedToken("def", single_word=True), AddedToken("Return", lstrip=True), AddedToken("10", rstrip=True)])
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


BYTE_LEVEL = [gpt2, llama3, qwen2, o200k, olmo, starcoder]
ALL = BYTE_LEVEL + [llama2, mistral, gemma, t5, xlm, lowercase_words]
