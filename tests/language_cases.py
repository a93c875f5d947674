"""Hostile files and options for the commands of language models (generate, chat, perplexity, bench generate); run by command_line.py."""
import json
import pathlib
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "models/moe-mini"
TALK = json.dumps([{"role": "user", "content": "How did Iris feel?"}]).encode()
USAGE, INPUT = 2, 3


def split_safetensors(data):
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), bytearray(data[8 + length :])


def join_safetensors(header, body):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(body)


def changed_config(**fields):
    config = json.loads((MODEL / "config.json").read_text())
    config.update(fields)
    return json.dumps(config).encode()


def weight_cases():
    """Name -> bytes of a bad model.safetensors and what the error must say."""
    data = (MODEL / "model.safetensors").read_bytes()
    header, body = split_safetensors(data)
    expert = next(name for name in header if "experts" in name and "shared" not in name and "down" in name)
    router = next(name for name in header if name.endswith("mlp.gate.weight"))
    fewer = json.loads(json.dumps(header))
    begin, end = fewer[expert]["data_offsets"]
    count = fewer[expert]["shape"][0]
    fewer[expert]["shape"][0] = count // 2
    without = {name: value for name, value in header.items() if name != expert}
    poisoned = bytearray(body)
    poisoned[begin : begin + 2] = b"\xc0\x7f"  # a bf16 NaN
    blown_up = bytearray(body)
    first, last = header[router]["data_offsets"]
    blown_up[first:last] = b"\x7f\x7f\x7f\xff" * ((last - first) // 4)  # the largest bf16 numbers of either sign: sums are infinite, and not numbers
    return {
        "half of the experts": (join_safetensors(fewer, body), ()),
        "an expert left out": (join_safetensors(without, body), ()),
        "NaN in an expert": (join_safetensors(header, poisoned), ("layer", "expert")),
        "a router that yields NaN": (join_safetensors(header, blown_up), ("NaN",)),
        "data cut": (data[:-5000], ()),
    }


def checkpoint_cases(suite, folder):
    """make-checkpoint: refused before it writes, or nothing of it stays."""
    tiny = ["--layers", "1", "--hidden", "16", "--inner", "16", "--experts", "2", "--top-k", "1", "--heads", "1", "--kv-heads", "1", "--head-dim", "16"]
    out = folder / "made"
    make = ["make-checkpoint", out, *tiny]
    huge = ["--hidden", "65536", "--inner", "65536", "--experts", "256", "--layers", "16"]
    too_large = folder / "too large"
    suite.refused("make-checkpoint: larger than the disk", ["make-checkpoint", too_large, *huge], codes=(5,), says=(str(too_large), "bytes", "free"), missing_file=too_large)
    suite.refused("make-checkpoint: no tokenizer's folder", [*make, "--tokenizer", folder / "none"], says=("--tokenizer", "none"), missing_file=out)
    (folder / "no tokenizer").mkdir(exist_ok=True)
    suite.refused("make-checkpoint: no tokenizer in the folder", [*make, "--tokenizer", folder / "no tokenizer"], says=("tokenizer.json",), missing_file=out)
    suite.refused("make-checkpoint: a vocabulary below the tokenizer's", [*make, "--tokenizer", MODEL, "--vocabulary", "100"], says=("--vocabulary 100",), missing_file=out)
    suite.refused("make-checkpoint: sizes that are no model", ["make-checkpoint", out, "--kv-heads", "3", "--heads", "4", "--layers", "1"], missing_file=out)
    suite.finish()
    limited = ["sh", "-c", 'ulimit -f 4; "$0" "$@"', suite.program, *map(str, make)]
    done = subprocess.run(limited, capture_output=True, timeout=300)
    clean = done.returncode == 5 and done.stderr.count(b"\n") == 1 and not list(folder.glob("made*"))
    suite.note("make-checkpoint past the file size limit", None if clean else "expected one line and no folder", done)
    done = suite.run([*make, "--tokenizer", MODEL])
    there = sorted(path.name for path in out.iterdir()) if out.exists() else []
    good = done.returncode == 0 and {"config.json", "model.safetensors", "tokenizer.json"} <= set(there) and list(folder.glob("made*")) == [out]
    suite.note("make-checkpoint writes a model", None if good else f"expected a model, found {there}", done)
    done = suite.run(["generate", "--model", out, "--prompt", "The", "--max-tokens", "2", "--device", "cpu"])
    suite.note("which runs", None if done.returncode == 0 else "expected text", done)
    before = (out / "config.json").read_bytes()
    suite.refused("make-checkpoint: over another model", make, says=(str(out), "empty folder"))
    suite.finish()
    suite.note("the other model stays", None if (out / "config.json").read_bytes() == before else "it changed", done)
    place, link, nowhere = folder / "empty place", folder / "link to a place", folder / "link to nothing"
    place.mkdir()
    link.symlink_to(place)
    nowhere.symlink_to(folder / "nothing")
    done = suite.run(["make-checkpoint", link, *make[2:]])
    good = done.returncode == 0 and link.is_symlink() and (place / "config.json").exists() and not list(folder.glob("*.partial-*"))
    suite.note("make-checkpoint through a link to an empty folder", None if good else "expected a model where the link leads", done)
    suite.refused("make-checkpoint: a link to nothing", ["make-checkpoint", nowhere, *make[2:]], says=(str(nowhere), "empty folder"), missing_file=folder / "nothing")


def null_case(suite, folder, variant):
    """Text with a U+0000 in it is printed whole."""
    ask = ["generate", "--max-tokens", "4", "--device", "cpu", "--model"]
    tokens = json.loads(suite.run([*ask, MODEL, "--prompt", "The sky", "--json"]).stdout)["tokens"]
    tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    name = next(name for name, number in vocabulary.items() if number == tokens[0])
    zero = "\u0100"  # byte 0, as byte-level tokenizers write it
    vocabulary[name], vocabulary[zero] = vocabulary[zero], vocabulary[name]
    model = variant(folder, MODEL, "first answer token is a zero byte", {"tokenizer.json": json.dumps(tokenizer).encode()})
    expected = json.loads(suite.run([*ask, model, "--prompt", "The sky", "--json"]).stdout)["text"]
    done = suite.run([*ask, model, "--prompt", "The sky", "--prompt", "The sky"])
    good = len(expected) > 1 and expected[0] == "\0" and done.stdout == 2 * (expected + "\n").encode()
    suite.note("a text with U+0000 is printed whole", None if good else f"expected {expected!r} twice", done)


def language_cases(suite, folder, variant):
    device = ["--device", "cpu"]
    talk = ["generate", "--messages", "-", "--max-tokens", "8", *device]
    here = [*talk, "--model", MODEL]
    for name, (data, says) in weight_cases().items():
        model = variant(folder, MODEL, f"moe {name}", {"model.safetensors": data})
        suite.refused(f"language model: {name}", [*talk, "--model", model], text=TALK, says=says)
    configs = {
        "more experts than the files have": changed_config(num_experts=32),
        "more experts a token than there are": changed_config(num_experts_per_tok=17),
        "no experts": changed_config(num_experts=0),
        "an unknown architecture": changed_config(model_type="gpt_of_tomorrow"),
        "a layer too many": changed_config(num_hidden_layers=9),
        "a huge layer": changed_config(hidden_size=1 << 30),
        "a layer count past 64 bits": changed_config(num_hidden_layers=2**70),
        "not JSON": b"{",
    }
    for name, data in configs.items():
        model = variant(folder, MODEL, f"moe config {name}", {"config.json": data})
        suite.refused(f"language model: config.json: {name}", [*talk, "--model", model], text=TALK)
    templates = {
        "an open block": (b"{% for m in messages %}", "line 1"),
        "an unknown filter": (b"a\n{{ messages|nonsense }}", "line 2"),
        "an endless loop": (b"{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}", "line 1"),
        "a macro that calls itself": (b"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deep"),
        "not UTF-8": (b"\xff", "chat"),
        "an exception": (b"{{ raise_exception('no\nthanks') }}", "no"),
    }
    for name, (data, says) in templates.items():
        model = variant(folder, MODEL, f"template {name}", {"chat_template.jinja": data})
        suite.refused(f"template: {name}", [*talk, "--model", model], text=TALK, says=(says,))
    model = variant(folder, MODEL, "no template", {"chat_template.jinja": None})
    suite.refused("template: none", [*talk, "--model", model], text=TALK, says=("template",))
    model = variant(folder, MODEL, "bad generation config", {"generation_config.json": b'{"eos_token_id": [1, "x"]}'})
    suite.refused("generation_config.json: an end token that is none", [*talk, "--model", model], text=TALK, says=("eos_token_id",))
    for name, text in {"empty": b"", "not JSON": b"[", "no list": b"5", "no messages": b"[]", "no role": b'[{"content": "x"}]', "no objects": b"[1]", "not UTF-8": b'[{"role": "\xff"}]',
                       "without content": b'[{"role": "user"}]', "deep": b"[" * 5000}.items():
        suite.refused(f"messages: {name}", here, text=text)
    suite.refused("messages: a file that is not there", ["generate", "--model", MODEL, "--messages", folder / "none.json", *device], says=("none.json",))
    suite.refused("prompt: over the context", ["generate", "--model", MODEL, "--prompt", "word " * 5000, *device], says=("4096",))
    suite.refused("prompt: empty", ["generate", "--model", MODEL, "--prompt", "", *device], says=("prompt",))
    suite.refused("prompt: a file that is not there", ["generate", "--model", MODEL, "--prompt", "@/nothing", *device], says=("/nothing",))
    suite.refused("a budget below one expert", [*here, "--expert-ram", "64K"], text=TALK, says=("--expert-ram",))
    for name, option in {"a size with a fraction": ["--expert-ram", "1.5G"], "a size of nothing": ["--expert-ram", "0"], "a size without number": ["--expert-vram", "G"], "no tokens": ["--max-tokens", "0"],
                         "a negative seed": ["--seed", "-1"], "a negative top-k": ["--top-k", "-1"], "logprobs without number": ["--logprobs", "x"], "too many logprobs": ["--logprobs", "101"], "an unknown device": ["--device", "abacus"]}.items():
        suite.refused(f"option: {name}", [*here, *option], codes=(USAGE,), text=TALK)
    for option in (["--temperature", "-1"], ["--temperature", "nan"], ["--top-p", "0"], ["--top-p", "1.5"], ["--min-p", "2"], ["--repetition-penalty", "0"], ["--presence-penalty", "inf"], ["--stop", ""],
                   ["--template-variables", "[1]"], ["--template-variables", "{"]):
        suite.refused(f"option: {' '.join(option)}", [*here, *option], codes=(USAGE, INPUT), text=TALK)
    suite.refused("generate without a prompt", ["generate", "--model", MODEL], codes=(USAGE,))
    suite.refused("generate without a model", ["generate", "--prompt", "x"], codes=(USAGE,))
    suite.refused("perplexity of one token", ["perplexity", MODEL, "-", *device], text=b"a", says=("two tokens",))
    suite.refused("perplexity: a window over the context", ["perplexity", MODEL, "-", "--window", "5000", *device], text=TALK, says=("4096",))
    suite.refused("perplexity: a stride over the window", ["perplexity", MODEL, "-", "--window", "16", "--stride", "16", *device], text=TALK, says=("stride",))
    suite.refused("perplexity: not UTF-8", ["perplexity", MODEL, "-", *device], text=b"\xff\xfe")
    suite.refused("bench of an unknown geometry", ["bench", "generate", "--geometry", "gpt-0", *device], says=("olmoe-1b-7b",))
    suite.refused("bench of a geometry under a budget", ["bench", "generate", "--geometry", "olmoe-1b-7b", "--expert-ram", "1G", *device], says=("--expert-ram",))
    suite.output_lost("generate", ["generate", "--model", MODEL, "--prompt", "The", "--max-tokens", "3", *device])
    suite.output_lost("generate two", ["generate", "--model", MODEL, "--prompt", "The", "--prompt", "A", "--max-tokens", "3", *device])
    suite.output_lost("chat", ["chat", "--model", MODEL, "--max-tokens", "3", *device], b"How did Iris feel?\nWho has the key?\n")
    suite.output_lost("inspect a language model", ["inspect", MODEL, *device])
    text = folder / "text"
    text.write_text("The sky was blue. Iris had the key.")
    suite.output_lost("perplexity", ["perplexity", MODEL, text, "--window", "64", *device])
    suite.output_lost("bench generate", ["bench", "generate", "--geometry", MODEL, "--prompt-tokens", "4", "--new-tokens", "2", "--repetitions", "1", "--warmup", "0", *device])
    checkpoint_cases(suite, folder)
    null_case(suite, folder, variant)
    several = ["generate", "--model", MODEL, "--max-tokens", "4", *device]
    alone = suite.run([*several, "--prompt", "The sky", "--json", "--stats"])
    needed = json.loads(alone.stdout)["stats"]["sequence_bytes_peak"]
    done = suite.run([*several, "--prompt", "The sky", "--prompt", "word " * 600, "--prompt", "The sky", "--sequence-memory", needed])
    lines = done.stdout.decode().splitlines()
    good = done.returncode == 4 and done.stderr.startswith(b"chorus: sequence memory: ") and done.stderr.count(b"\n") == 1 and lines == 2 * [json.loads(alone.stdout)["text"]]
    suite.note("a prompt over the sequence memory leaves the others", None if good else "expected one line, and two texts", done)
    suite.refused("a sequence memory below any prompt", [*several, "--prompt", "x", "--sequence-memory", "1K"], codes=(4,), says=("sequence memory", "1024"))
    for command in (["generate", "--prompt", "x"], ["chat"]):
        suite.refused(f"{command[0]} of a model without a name", [*command, "--model", "", *device], text=b"x\n", says=("model: expected", 'found ""'))
    done = suite.run(["chat", "--model", MODEL, "--max-tokens", "4", "--temperature", "-1", *device], b"Hello\n")
    suite.note("chat prints nothing before an error", None if done.returncode == INPUT and done.stdout == b"" and done.stderr.count(b"\n") == 1 else "expected one line and no output", done)
    done = suite.run(["chat", "--model", MODEL, "--max-tokens", "4", *device], b"How did Iris feel?\n/nonsense\n\n/reset\n\xff\nWho has the key?\n/exit\nnever read\n")
    lines = done.stdout.decode(errors="replace").splitlines()
    suite.note("chat goes on after bad lines", None if done.returncode == INPUT and len(lines) == 2 and done.stderr.count(b"chorus: ") == 2 else "expected two answers and two complaints", done)
    done = suite.run([*here, "--json"], TALK)
    good = done.returncode == 0 and json.loads(done.stdout)["finish"] in ("end", "length")
    suite.note("the unchanged language model answers", None if good else "expected an answer", done)
