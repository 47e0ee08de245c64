"""Writes UnicodeTables.inc: what PyPI's tokenizers believes about every code point.

A tokenizer's ids depend on the Unicode version of the library that trained it. The parts of
tokenizers use several versions: the regular expressions of Split (Oniguruma), Rust's char, the
crates regex, unicode_categories and unicode-normalization-alignments. The tables are therefore
not taken from a Unicode release: each is what the library answers for each code point.

    make-unicode-tables.py            writes UnicodeTables.inc beside this file
    make-unicode-tables.py --check    exit code 1 if the file differs from what it would write
"""
import base64
import json
import pathlib
import struct
import sys
import unicodedata

from tokenizers import Regex, Tokenizer, __version__, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
TEXT = "".join(map(chr, ALL))
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Zs Zl Zp Cc Cf Co Cn "
              "Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So").split()


def matched(pattern, text=TEXT):
    """The code points of `text` that an Oniguruma pattern of one character matches."""
    left = set(normalizers.Replace(Regex(pattern), "").normalize_str(text))
    return {ord(c) for c in text if c not in left}


def general_categories():
    """{code point: number in CATEGORIES}. Halves the candidates until one category is left."""
    found = {}

    def search(names, points):
        if len(names) == 1:
            found.update(dict.fromkeys(points, CATEGORIES.index(names[0])))
            return
        first = names[:len(names) // 2]
        inside = matched("[%s]" % "".join(r"\p{%s}" % n for n in first),
                         "".join(map(chr, points)))
        search(first, [c for c in points if c in inside])
        search(names[len(first):], [c for c in points if c not in inside])

    search(CATEGORIES, ALL)
    return found


def isolated(pre_tokenizer):
    """The code points that a pre-tokenizer cuts out of "aXaYaZ"."""
    pieces = pre_tokenizer.pre_tokenize_str("".join("a" + chr(c) for c in ALL))
    return {ALL[begin // 2] for _, (begin, end) in pieces if begin % 2 == 1 and end == begin + 1}


def words_and_spaces():
    """What \\w and \\s of the crate regex match: the pieces of "aX " are "aX", "a" or "a", "X"."""
    words, spaces = set(), set(ALL)
    for _, (begin, end) in pre_tokenizers.Whitespace().pre_tokenize_str(
            "".join("a" + chr(c) + " " for c in ALL)):
        c = ALL[begin // 3]
        if begin % 3 == 1 or end == begin + 2:
            spaces.discard(c)
        if end == begin + 2:
            words.add(c)
    return words, spaces


def transformed(normalizer, strings):
    return normalizer.normalize_str("\n".join(strings)).split("\n")


def maps(normalizer):
    """{code point: string} where a normalizer changes a single character."""
    points = [c for c in ALL if c != 10]
    after = transformed(normalizer, map(chr, points))
    return {c: s for c, s in zip(points, after) if s != chr(c)}


def combining_classes(decompositions):
    """{code point: canonical combining class} where it is not 0, from the order that NFD makes."""
    points = [c for c in ALL if c != 10 and c not in decompositions]
    nfd = normalizers.NFD()

    def moved(first, second):
        strings = ["a" + f + s for f, s in zip(first, second)]
        return [after != before for before, after in zip(strings, transformed(nfd, strings))]

    chars = list(map(chr, points))
    before = moved(["\u0345"] * len(chars), chars)  # class 240: the largest
    after = moved(chars, ["\u0334"] * len(chars))  # class 1: the smallest
    marks = [c for c, b, a in zip(chars, before, after) if b or a]
    known = {}
    for c in ALL:
        if chr(c) in marks and unicodedata.combining(chr(c)):
            known.setdefault(unicodedata.combining(chr(c)), chr(c))
    classes = dict.fromkeys(marks, 0)
    for value, mark in sorted(known.items()):
        for c, m in zip(marks, moved([mark] * len(marks), marks)):
            if not m:
                classes[c] = value
    return {ord(c): v for c, v in classes.items()}


def compositions(decompositions):
    """{(first, second): composed}, without Hangul syllables, which a formula composes."""
    nfc = normalizers.NFC()
    found = [(c, s) for c, s in decompositions.items() if len(s) > 1 and not 0xAC00 <= c <= 0xD7A3]
    first = transformed(nfc, [s[:-1] for _, s in found])
    pairs = [(f + s[-1], c) for f, (c, s) in zip(first, found) if len(f) == 1]
    composed = transformed(nfc, [pair for pair, _ in pairs])
    return {pair: c for (pair, c), after in zip(pairs, composed) if after == chr(c)}


def cluster_counter():
    """A function that counts the grapheme clusters of strings, of at most 5 bytes each.

    Precompiled looks up each cluster of less than 6 bytes, and the characters of longer ones. Its
    table here replaces whatever begins with any byte except a newline by "Y".
    """
    units = [0] * 2048
    units[0] = 256 << 10  # the children of the root: from unit 256 on
    for byte in range(256):
        if byte != 10:
            units[256 ^ byte] = byte | 1 << 8 | 512 << 10  # has a value, 512 units further
            units[256 ^ byte ^ 512] = 1 << 31
    trie = struct.pack("<2048I", *units)
    table = base64.b64encode(struct.pack("<I", len(trie)) + trie + b"Y\0").decode()
    model = {"type": "BPE", "vocab": {}, "merges": []}
    normalizer = Tokenizer.from_str(json.dumps(
        {"version": "1.0", "added_tokens": [], "model": model,
         "normalizer": {"type": "Precompiled", "precompiled_charsmap": table}})).normalizer
    return lambda strings: [len(each) for each in transformed(normalizer, strings)]


def cluster_sets():
    """What decides the ends of grapheme clusters of less than 6 bytes."""
    count = cluster_counter()
    points = [c for c in ALL if c not in (10, 13)]  # CR would join the newline between strings

    def joined(before, after, clusters=1):
        counts = count(before + chr(c) + after for c in points)
        return {c for c, n in zip(points, counts) if n == clusters}

    extends = joined("x", "")
    prepends = joined("", "x")
    # A combining mark belongs to every character before it except controls.
    marked = joined("", "\u0301")
    short = {c for c in points if len(chr(c).encode()) < 4}
    controls = (set(points) - marked) & short | {10, 13}
    # The cluster of a pictograph, a joiner and a pictograph has 7 bytes or more.
    pictographs = joined("\u00a9\u200d", "", 3) - extends
    return extends, prepends, controls, pictographs


def flips(points):
    """The code points at which membership changes, ascending. Surrogates go with U+D7FF."""
    inside, result = False, []
    for c in ALL:
        if (c in points) != inside:
            inside = not inside
            result.append(c)
    return result + ([0x110000] if inside else [])


def runs(values, default):
    """(first code point << 8 | value) of each run of equal values."""
    result, last = [], None
    for c in ALL:
        value = values.get(c, default)
        if value != last:
            result.append(c << 8 | value)
            last = value
    return result


def write_table(out, comment, name, numbers):
    """The numbers lie in one line, because nobody reads them."""
    out += [f"// {comment}", f"constexpr uint32_t {name}[] = {{",
            ",".join(map(str, numbers)) + "};"]


def write_strings(out, comment, name, strings):
    """A table of (code point, its string): the string lies in NAMEText from an index, with a
    length: code point, index << 8 | length."""
    text, entries = [], []
    for c, s in sorted(strings.items()):
        entries += [c, len(text) << 8 | len(s)]
        text += map(ord, s)
    write_table(out, comment + ": code point, index << 8 | length", name, entries)
    write_table(out, f"The strings of {name}", name + "Text", text)


def tables():
    out = [f"// Made by make-unicode-tables.py from tokenizers {__version__}. Do not edit.",
           "// clang-format off"]
    category = general_categories()
    write_table(out, "Oniguruma's general category: code point << 8 | index in kCategoryNames",
                "kCategories", runs(category, CATEGORIES.index("Cn")))
    sets = [("Oniguruma's \\\\s", "kRegexSpace", matched(r"\s")),
            ("Oniguruma's [\\\\w]", "kRegexWord", matched(r"[\w]")),
            ("Oniguruma's \\\\p{Han}", "kRegexHan", matched(r"\p{Han}"))]
    words, spaces = words_and_spaces()
    marks = set(normalizers.StripAccents().normalize_str(TEXT))
    sets += [("The crate regex's \\\\w", "kWord", words),
             ("The crate regex's \\\\s", "kSpace", spaces),
             ("Rust's char::is_numeric", "kNumeric", isolated(pre_tokenizers.Digits(True))),
             ("Punctuation's characters", "kPunctuation",
              isolated(pre_tokenizers.Punctuation("isolated"))),
             ("What StripAccents removes", "kMark", {c for c in ALL if chr(c) not in marks})]
    for comment, name, points in sets:
        write_table(out, comment.replace("\\\\", "\\") + ": where membership changes", name,
                    flips(points))
    for name, points in zip(("Extend", "Prepend", "Control", "Pictograph"), cluster_sets()):
        write_table(out, f"Grapheme clusters, {name}: where membership changes", "kCluster" + name,
                    flips(points))
    write_strings(out, "Rust's char::to_lowercase", "kLowercase", maps(normalizers.Lowercase()))
    canonical = maps(normalizers.NFD())
    compatible = maps(normalizers.NFKD())
    syllables = range(0xAC00, 0xD7A4)
    write_strings(out, "Canonical decompositions, without Hangul syllables", "kCanonical",
                  {c: s for c, s in canonical.items() if c not in syllables})
    write_strings(out, "Compatibility decompositions, where they are not canonical", "kCompatible",
                  {c: s for c, s in compatible.items() if canonical.get(c) != s})
    write_table(out, "Canonical combining classes: code point << 8 | class", "kCombining",
                runs(combining_classes(canonical), 0))
    pairs = sorted(compositions(canonical).items())
    write_table(out, "Compositions: first, second, composed", "kCompositions",
                [n for pair, c in pairs for n in (ord(pair[0]), ord(pair[1]), c)])
    return "\n".join(out) + "\n"


def main():
    path = pathlib.Path(__file__).with_name("UnicodeTables.inc")
    text = tables()
    if "--check" in sys.argv[1:]:
        same = path.read_text(encoding="utf-8") == text
        if not same:
            print(f"{path}: differs from what tokenizers {__version__} answers", file=sys.stderr)
        return 0 if same else 1
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
