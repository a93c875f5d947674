#!/usr/bin/env python3
"""Writes the seed corpora of the fuzz targets from small hand-made files. Run again when a format gains something; commit what it writes.

usage: fuzz/make_seeds.py [PROGRAM]        with the program `chorus` also the packed models, which have hashes
"""
import io
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent
MODELS = ROOT.parent / "models"


def write(target, name, data):
    folder = ROOT / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())


def safetensors(tensors, metadata=None, size=0):
    header = dict({"__metadata__": metadata} if metadata else {}, **tensors)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(size)


def tensor(kind, shape, begin, end):
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    write("safetensors", "empty", safetensors({}))
    write("safetensors", "one", safetensors({"a": tensor("F32", [2, 3], 0, 24)}, size=24))
    write("safetensors", "three", safetensors(
        {"a": tensor("BF16", [4], 0, 8), "b.weight": tensor("F16", [2, 1, 2], 8, 16), "c": tensor("I64", [1], 16, 24)}, {"format": "pt"}, 24))
    write("safetensors", "scalar", safetensors({"s": tensor("F32", [], 0, 4), "z": tensor("U8", [0, 5], 4, 4)}, size=4))
    write("safetensors", "overlap", safetensors({"a": tensor("F32", [2], 0, 8), "b": tensor("F32", [2], 4, 12)}, size=12))
    write("safetensors", "huge", safetensors({"a": tensor("F32", [2**40, 2**40], 0, 2**63)}, size=8))


def small_config():
    """The configuration of kev-mini-base, as it is."""
    return json.loads((MODELS / "kev-mini-base/config.json").read_text())


def config_seeds():
    flat = small_config()
    write("config", "flat", flat)
    write("config", "multimodal", {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": flat, "vision_config": {"depth": 2}})
    write("config", "adapter", json.loads((MODELS / "kev-mini/adapter_config.json").read_text()))
    write("config", "short", {"model_type": "qwen3_5_text", "hidden_size": 8})
    for path in sorted((ROOT.parent / "tests/data").glob("*/config.json")):
        write("config", "language-" + path.parent.name, json.loads(path.read_text()))
    write("config", "generation", {"eos_token_id": [1, 2], "do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0, "repetition_penalty": 1.1})
    write("config", "packed-experts", {"dtype": "bf16", "hidden": 64, "inner": 32, "biases": False})


def tiny_tokenizer():
    """The shipped tokenizer with the byte alphabet, a few merges and its added tokens."""
    full = json.loads((MODELS / "kev-mini-base/tokenizer.json").read_text())
    model = full["model"]
    pieces = sorted((piece for piece in model["vocab"] if len(piece) == 1), key=model["vocab"].get)
    merges = []
    for merge in model["merges"]:
        left, right = merge if isinstance(merge, list) else merge.split(" ")
        if left in pieces and right in pieces and len(merges) < 12:
            merges.append(merge)
            pieces.append(left + right)
    model["vocab"] = {piece: index for index, piece in enumerate(pieces)}
    model["merges"] = merges
    for index, token in enumerate(full["added_tokens"]):
        token["id"] = len(pieces) + index
    return full


def tokenizer_seeds():
    tiny = tiny_tokenizer()
    write("tokenizer", "tiny", tiny)
    plain = json.loads(json.dumps(tiny))
    plain["added_tokens"] = []
    plain["model"]["merges"] = []
    write("tokenizer", "no_merges", plain)
    write("tokenizer", "short", {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})


def text_seeds():
    for name, text in {
        "english": "Don't panic: it's 12 o'clock, we'll see.\n\n  Indented   text\t\r\n",
        "accents": "Cafe\u0301 caf\u00e9 \u00c5ngstr\u00f6m \u1e9b\u0323 \uac00\u1100\u1161",
        "scripts": "\u4f60\u597d \u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947 \U0001f642\U0001f469\u200d\U0001f4bb",
        "markers": "<|fim_suffix|><|box_end|><tool_call></think><|im_start|>user<|unknown|>",
        "code": "for (int i = 0; i < 10; ++i) { sum += a[i]; }  // 100%\n",
    }.items():
        write("text", name, text.encode())


def request_seeds():
    for path in sorted((ROOT.parent / "examples").glob("*.json")):
        write("request", path.stem, path.read_bytes())
    write("request", "kinds", {"state": {"a": None, "b": [1, 1.5, True, "x"], "c": {"d": []}}, "questions": {
        "n": {"type": "noul", "criteria": {"true": "yes", "false": ["a", {"b": 1}]}},
        "c": {"type": "choice", "instructions": ["one", "two"], "criteria": {"x": None, "y": "why", "z": 0}},
        "s": {"type": "score", "criteria": ["low", 1, None]}}})
    write("request", "dates", {"state": "From July 4, 2026 to 2026-07-01 and June 26, 2026.", "questions": {"q": {"type": "noul"}}})
    write("request", "numbers", b'{"state": [1180591620717411303424, -0, -0.0, 1E5, 1e16, 1e-5, 0.1], "questions": {"q": {"type": "noul"}}}')
    write("request", "escapes", b'{"state": "<|fim_suffix|> \\ud83d\\ude42 \\u0000", "questions": {"<|box_end|>": {"type": "noul", "instructions": "<|decide|>"}}}')


def pickle_of_head(head_dim, hidden):
    """The pickle of a head as PyTorch writes it (protocol 2), for given sizes below 256."""
    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    def weight(key, shape):
        count = 1
        for size in shape:
            count *= size
        strides = [shape[1], 1] if len(shape) == 2 else [1]
        dims = b"".join(b"K" + bytes([size]) for size in shape) + (b"\x86" if len(shape) == 2 else b"\x85")
        steps = b"".join(b"K" + bytes([size]) for size in strides) + (b"\x86" if len(shape) == 2 else b"\x85")
        return (b"ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + b"M"
                + struct.pack("<H", count) + b"tQK\x00" + dims + steps + b"\x89ccollections\nOrderedDict\n)RtR")

    return (b"\x80\x02}(" + text("base") + text("tiny") + text("base_revision") + b"N" + text("head") + b"}("
            + text("q.weight") + weight("0", [head_dim, hidden]) + text("q.bias") + weight("1", [head_dim])
            + text("k.weight") + weight("2", [head_dim, hidden]) + text("k.bias") + weight("3", [head_dim]) + b"u"
            + text("lora") + b"K\x04" + text("head_dim") + b"K" + bytes([head_dim]) + text("option_isolation") + b"\x89"
            + text("temperature") + b"G" + struct.pack(">d", 1.25) + text("holdout") + b"](" + text("a") + b"e" + text("weights") + text("lora") + b"u.")


def head_seeds():
    head_dim, hidden = 4, 6
    storages = {"0": head_dim * hidden, "1": head_dim, "2": head_dim * hidden, "3": head_dim}
    for name, pickle in {"tiny": pickle_of_head(head_dim, hidden), "wrong_shape": pickle_of_head(head_dim, hidden + 1), "empty": b"\x80\x02}."}.items():
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            def add(path, data):
                archive.writestr(zipfile.ZipInfo("head/" + path, (2026, 1, 1, 0, 0, 0)), data)

            add("data.pkl", pickle)
            add("byteorder", b"little")
            for key, count in storages.items():
                add("data/" + key, struct.pack(f"<{count}f", *[index / 16 for index in range(count)]))
            add("version", b"3\n")
        write("head_pt", name, file.getvalue())


def pickle_seeds():
    write("pickle", "tiny", pickle_of_head(4, 6))
    write("pickle", "protocol4", b"\x80\x04\x95\x1d" + bytes(7) + b"}\x94(\x8c\x05torch\x94\x8c\x0cFloatStorage\x94\x93\x94K\x01u.")
    write("pickle", "system", b"\x80\x02cos\nsystem\n(X\x01\x00\x00\x00xtR.")
    write("pickle", "state_dict", b"\x80\x02ccollections\nOrderedDict\n)R}(X\x01\x00\x00\x00a](K\x01NeX\x01\x00\x00\x00b\x8a\x02\x00\x80u" + b"b.")


def template_seeds():
    """The templates and short expressions that the tests compare with Jinja2."""
    data = ROOT.parent / "tests/data"
    for path in sorted((data / "templates").glob("*.jinja")):
        write("template", path.stem, path.read_bytes())
    for case in json.loads((data / "templates.cases.json").read_text())["cases"]:
        if isinstance(case["template"], str):
            write("template", case["name"].replace(".", "-"), case["template"].encode())


def expert_pack_seeds():
    """Tiny packed models."""
    sizes = {"--layers": 1, "--hidden": 8, "--inner": 8, "--experts": 2, "--top-k": 1, "--heads": 1, "--kv-heads": 1, "--head-dim": 8, "--vocabulary": 8, "--context": 16}
    for layout in ("qwen3_moe", "olmoe"):
        with tempfile.TemporaryDirectory() as scratch:
            made, packed = pathlib.Path(scratch) / "made", pathlib.Path(scratch) / "packed"
            options = [str(part) for pair in sizes.items() for part in pair]
            subprocess.run([sys.argv[1], "make-checkpoint", made, "--layout", layout, *options], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([sys.argv[1], "pack", made, "--out", packed], check=True, stdout=subprocess.DEVNULL)
            write("expert_pack", layout, packed.read_bytes())


if len(sys.argv) > 1:
    expert_pack_seeds()
for seeds in (safetensors_seeds, config_seeds, tokenizer_seeds, text_seeds, request_seeds, head_seeds, pickle_seeds, template_seeds):
    seeds()
