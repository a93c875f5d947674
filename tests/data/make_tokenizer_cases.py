#!/usr/bin/env python3
"""Writes tests/data/tokenizers/*.json and tests/data/tokenizer.cases.json with the reference package (`tokenizers`). Run by hand.

The small tokenizers differ in split pattern, normalisation, whole-piece rule and flags of added tokens. The cases mix composed and decomposed
accents, Hangul, emoji, CJK, right-to-left text, contractions, digits, white space, added tokens and random characters of every block.
`--random SEED COUNT OUT MODEL` writes another COUNT random cases for one tokenizer.json, for a wider comparison than the stored one.
"""
import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

# Characters are written as escapes where a reader could not tell two spellings apart.
FIXED = [
    "",
    " ",
    "e\u0301 \u00e9 E\u0301",
    "nai\u0308ve na\u00efve caf\u00e9 cafe\u0301 cafe\u0301\u0323 cafe\u0323\u0301",
    "\u1112\u1161\u11ab \ud55c \uc0ac\u11a7\u11b8 \u1109\u1169\u11a7\u11b8",
    "a\u0316\u0301\u0327\u0334b \u0301alone \u0344 \u212b \u2126 \ufb01 \u1e9b\u0323",
    "\u0915\u093c \u0958 \u0f73 \u0f71\u0f72 \u304b\u3099 \u304c \uff76\uff9e",
    "newer than the reference's NFC: q\u07fd\u0316 \U00011935\U00011930 \U000105d2\u0307 \U0001e08f\u0316",
    "letters of Unicode 15.1 and 16: \U0002ebf0\U000323b0 \u1c89\ua7dc \U000105c0",
    "'s 'S 't 're 'RE 've 'm 'll 'LL 'd 'x ' '' it'\u017f 'Vexed 'l",
    "1234567 3.14 \u00bd\u00b2\u2167\u2460\u0663\u0664 1\u0301",
    "a  b   c \t\td \n\n e \r\n\r\nf\n \n g  \n",
    "\u00a0x \u3000y\u2028z\u0085w \u200bv \ufeffu",
    "!!!\n\n... ---\r\nfoo_bar::baz() {\n    return 1;\n}\n",
    "<|im_start|>user\n<|im_end|> <|im_startx|> <| im_start|> <|<|im_start|>|>",
    "<think> x </think> y<think><tool_call>\t\n z </tool_call><th <thi",
    "World aWorld World1 World. \u00e9World \u0301World _World World\u200d",
    "a\u0000b\u007fc\u0001",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1ee\U0001f1f9 \U0001f44d\U0001f3fd \u2764\ufe0f",
    "\u4f60\u597d,\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f \u0645\u0631\u062d\u0628\u0627 \u0939\u093f\u0928\u094d\u0926\u0940 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "the" * 60 + " " + "ab" * 70 + "\u4f60\u597d" * 40,
    "=" * 100 + " " * 100 + "\n" * 60 + "x",
]
WORDS = " ".join(FIXED).split(" ") + ["the", "tokens", "Hello", "world", "\n", "\t", "  "]
BLOCKS = [(0x20, 0x7F)] * 4 + [
    (0xA0, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0xE00), (0x1100, 0x1200), (0x1AB0, 0x1B00), (0x1E00, 0x2100),
    (0x3000, 0x3100), (0x4E00, 0x5000), (0xAC00, 0xAD00), (0xF900, 0xFB50), (0x1F300, 0x1F650), (0x2F800, 0x2FA20), (9, 14), (0, 0x110000),
]  # fmt: skip


def random_text(source):
    parts = []
    for _ in range(source.randint(1, 16)):
        if source.random() < 0.5:
            parts.append(source.choice(WORDS))
        else:
            low, high = source.choice(BLOCKS)
            codes = [source.randrange(low, high) for _ in range(source.randint(1, 4))]
            parts += [chr(c) for c in codes if not 0xD800 <= c < 0xE000]
        if source.random() < 0.4:
            parts.append(source.choice([" ", "  ", "\n", "\t", " \n "]))
    return "".join(parts)


def cases_of(tokenizer, texts):
    result = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        result.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    return result


def small_tokenizer(pattern, nfc, ignore_merges):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    corpus = [(ROOT / "tests/data/kev-mini.golden.jsonl").read_text()[:20000]] + FIXED * 3
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False)
    )
    tokenizer.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", normalized=False)])
    tokenizer.add_tokens(
        [
            AddedToken("<think>", normalized=False, lstrip=True),
            AddedToken("</think>", normalized=False, rstrip=True),
            AddedToken("World", normalized=False, single_word=True),
            AddedToken("ca fe", normalized=True),
            AddedToken("<tool_call>", normalized=True, lstrip=True, rstrip=True),
            AddedToken("<th", normalized=False),
            AddedToken("\u304c", normalized=True, single_word=True),
        ]
    )
    return tokenizer


def main():
    if sys.argv[1:2] == ["--random"]:
        source = random.Random(int(sys.argv[2]))
        tokenizer = Tokenizer.from_file(sys.argv[5])
        texts = [random_text(source) for _ in range(int(sys.argv[3]))]
        pathlib.Path(sys.argv[4]).write_text(json.dumps([{"tokenizer": sys.argv[5], "cases": cases_of(tokenizer, texts)}]))
        return
    groups = []
    models_path = "models/kev-mini-base/tokenizer.json"
    source = random.Random(20261130)
    texts = FIXED + [random_text(source) for _ in range(150)]
    groups.append({"tokenizer": models_path, "cases": cases_of(Tokenizer.from_file(str(ROOT / models_path)), texts)})
    for name, pattern, nfc, ignore in (("qwen2", QWEN2, True, False), ("qwen35", QWEN35, True, False), ("llama3", LLAMA3, False, True)):
        path = f"tests/data/tokenizers/{name}.json"
        small_tokenizer(pattern, nfc, ignore).save(str(ROOT / path), pretty=False)
        texts = FIXED + ["ca fe ca\u00a0fe xca fey", "\u304b\u3099 \u304c \u304cx"] + [random_text(source) for _ in range(60)]
        groups.append({"tokenizer": path, "cases": cases_of(Tokenizer.from_file(str(ROOT / path)), texts)})
    (HERE / "tokenizer.cases.json").write_text("[\n" + ",\n".join(json.dumps(g) for g in groups) + "\n]\n")


if __name__ == "__main__":
    main()
