#!/usr/bin/env python3
"""Writes src/formats/unicode_tables.inc. Run by hand, with the packages `tokenizers` and `unicodedata2` (Unicode 16).

The tokenizer has to agree with the reference package, whatever Unicode version the system's libraries have:
  kClassRanges   letters, marks, numbers and white space as the reference's split patterns see them (checked to be Unicode 16)
  kInertRanges   characters which the reference's NFC passes through unchanged although Unicode 16 would reorder or compose them,
                 because its normalisation data is older
"""
import pathlib
import sys

import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
BLOCK = 0x800


def members(expression):
    """The code points that the reference's regular expressions count to a class."""
    split = pre_tokenizers.Split(Regex(expression), "removed")
    found = set()
    for first in range(0, 0x110000, BLOCK):
        if 0xD800 <= first < 0xE000:
            continue
        text = "".join(map(chr, range(first, first + BLOCK)))
        kept = {i for _, (a, b) in split.pre_tokenize_str(text) for i in range(a, b)}
        found.update(first + i for i in range(BLOCK) if i not in kept)
    return found


def is_inert(character, normalize):
    """True when Unicode 16 reorders or composes it and the reference does not."""
    standard = unicodedata2.normalize
    text = chr(character)
    samples = ["\u0334"]  # class 1: every other mark with a class sorts after it
    if unicodedata2.combining(text) == 1:
        samples = ["\u0327"]
    probes = ["q" + text + s for s in samples] + ["q" + s + text for s in samples]
    decomposed = standard("NFD", text)
    if decomposed != text:
        probes += [text, decomposed]
    return any(normalize(p) != standard("NFC", p) for p in probes)


def ranges(values):
    result = []
    for character in sorted(values):
        if result and result[-1][1] == character - 1 and result[-1][2] == values[character]:
            result[-1][1] = character
        else:
            result.append([character, character, values[character]])
    return result


def rows(entries, text, per_line):
    lines = []
    for i in range(0, len(entries), per_line):
        lines.append("    " + " ".join(text(e) for e in entries[i : i + per_line]))
    return "\n".join(lines)


def main():
    assert unicodedata2.unidata_version.startswith("16."), unicodedata2.unidata_version
    classes = {}
    for name, expression in (("kLetter", r"\p{L}"), ("kMark", r"\p{M}"), ("kNumber", r"\p{N}"), ("kSpace", r"\s")):
        for character in members(expression):
            assert character not in classes
            classes[character] = name
    for character in CODE_POINTS:
        expected = {"L": "kLetter", "M": "kMark", "N": "kNumber"}.get(unicodedata2.category(chr(character))[0])
        assert classes.get(character) in (expected, "kSpace"), hex(character)

    normalize = normalizers.NFC().normalize_str
    inert = {c for c in CODE_POINTS if is_inert(c, normalize)}
    # A pair that only newer data composes: its first character becomes the barrier.
    for character in list(inert):
        decomposed = unicodedata2.normalize("NFD", chr(character))
        if len(decomposed) > 1:
            inert.add(ord(decomposed[0]))

    out = pathlib.Path(__file__).resolve().parent.parent / "src/formats/unicode_tables.inc"
    out.write_text(
        "// Made by tools/make_unicode_tables.py; not edited by hand.\n"
        "inline constexpr ClassRange kClassRanges[] = {\n"
        + rows(ranges(classes), lambda r: f"{{0x{r[0]:X}, 0x{r[1]:X}, {r[2]}}},", 4)
        + "\n};\ninline constexpr InertRange kInertRanges[] = {\n"
        + rows(ranges({c: 0 for c in inert}), lambda r: f"{{0x{r[0]:X}, 0x{r[1]:X}}},", 6)
        + "\n};\n"
    )
    print(len(ranges(classes)), "class ranges,", len(inert), "inert characters", file=sys.stderr)


if __name__ == "__main__":
    main()
