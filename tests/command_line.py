#!/usr/bin/env python3
"""Runs the program on hostile files and requests: each must end with one clear line on standard error, nothing on standard output, and a
documented exit code; no crash, no sanitizer report, no half-written file. Also the opposite: that the unchanged files work.

usage: tests/command_line.py PROGRAM          (a sanitizer build finds the most)
"""
import concurrent.futures
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

from language_cases import language_cases
from output_cases import output_cases

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASE, KEV, MOE = ROOT / "models/kev-mini-base", ROOT / "models/kev-mini", ROOT / "models/moe-mini"
USAGE, INPUT, DEVICE, INTERNAL = 2, 3, 4, 5
REQUEST = {"state": "Rain fell all day.", "questions": {"q": {"type": "noul", "instructions": "Did it rain?"}}}


class Suite:
    def __init__(self, program):
        self.program, self.passed, self.failed, self.waiting = program, 0, 0, []
        self.pool = concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    def run(self, arguments, text=b"", environment=None):
        return subprocess.run([self.program, *map(str, arguments)], input=text, capture_output=True, timeout=300, env={**os.environ, **(environment or {})})

    def note(self, name, problem, done, line=None):
        if problem is None:
            self.passed += 1
            if line is not None:
                print(line)
            return
        self.failed += 1
        print(f"FAILED {name}: {problem} (exit {done.returncode})\n  stdout: {done.stdout[:300]!r}\n  stderr: {done.stderr[-1500:].decode(errors='replace')}")

    def later(self, name, case, *arguments):
        """Runs the case beside others, one a core; finish() notes what it returns. What it reads must stay as it is until then."""
        self.waiting.append((name, self.pool.submit(case, name, *arguments)))

    def finish(self):
        for name, case in self.waiting:
            self.note(name, *case.result())
        self.waiting = []

    def refused(self, name, arguments, codes=(INPUT,), text=b"", says=(), missing_file=None, environment=None):
        """The command must fail with one of `codes` and one line that contains every string of `says`."""
        self.later(name, self.run_refused, arguments, codes, text, says, missing_file, environment)

    def run_refused(self, name, arguments, codes, text, says, missing_file, environment):
        done = self.run(arguments, text, environment)
        error = done.stderr.decode(errors="surrogateescape")  # bytes that are not UTF-8 are not printable
        error = "".join(line for line in error.splitlines(True) if not line.startswith("Warning: vk"))  # Dawn prints it past its callbacks
        problem = None
        if done.returncode not in codes:
            problem = f"expected exit {codes}"
        elif "Sanitizer" in error or "runtime error" in error:
            problem = "a sanitizer report"
        elif done.stdout:
            problem = "output in spite of the error"
        elif not (error.startswith("chorus: ") and error.endswith("\n") and error[:-1].isprintable()):  # isprintable: also no second line
            problem = "expected exactly one printable line that starts with `chorus: `"
        elif any(f"{mark}{argument}{mark}" in error for argument in map(str, arguments) if "/" in argument for mark in "\"'"):
            problem = "a file name in quotes: names stand bare, at the start of what is said about them"
        elif any(part not in error for part in says):
            problem = f"expected the line to contain {says}"
        elif missing_file is not None and (missing_file.exists() or list(missing_file.parent.glob(missing_file.name + "*"))):
            problem = f"{missing_file.name} or a part of it was left behind"
        return problem, done, f"ok {name}: {error.splitlines()[0] if error else ''}"[:220]

    def output_lost(self, name, arguments, text=b""):
        """Results that nobody can receive: an error that gives the system's reason, not a success, and not the end by a signal."""
        for place, reason in ((">&-", b"Bad file descriptor"), (">/dev/full", b"No space left on device"), ("closed pipe", b"Broken pipe")):
            self.later(f"{name}, {place}", self.run_output_lost, arguments, text, place, reason)

    def run_output_lost(self, name, arguments, text, place, reason):
        command = [self.program, *map(str, arguments)]
        if place == "closed pipe":
            reading, writing = os.pipe()
            os.close(reading)
            done = subprocess.run(command, input=text, stdout=writing, stderr=subprocess.PIPE, timeout=300)
            os.close(writing)
            done.stdout = b""
        else:
            done = subprocess.run(["sh", "-c", f'"$0" "$@" {place}', *command], input=text, capture_output=True, timeout=300)
        good = done.returncode == INTERNAL and done.stderr == b"chorus: standard output: cannot write: " + reason + b"\n"
        return None if good else f"expected exit {INTERNAL} and one line with {reason}", done

    def answers(self, name, arguments, text=b""):
        self.later(name, self.run_answers, arguments, text)

    def run_answers(self, name, arguments, text):
        done = self.run(arguments, text)
        problem = None
        try:
            body = json.loads(done.stdout)
            if done.returncode != 0 or not body["answers"]:
                problem = "expected answers"
        except (ValueError, KeyError) as error:
            problem = f"no response body ({error})"
        return problem, done


def variant(folder, source, name, changes):
    """A copy of a model folder (links) in which `changes` maps file names to new bytes, or to None to leave a file out."""
    target = folder / name
    target.mkdir()
    for path in source.iterdir():
        if path.name not in changes:
            os.symlink(path, target / path.name)
    for file_name, data in changes.items():
        if data is not None:
            (target / file_name).write_bytes(data)
    return target


def split_safetensors(data):
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join_safetensors(header, body):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def safetensors_cases():
    """Name -> bytes of a bad model.safetensors made from the good one."""
    good = (BASE / "model.safetensors").read_bytes()
    header, body = split_safetensors(good)
    names = [name for name in header if name != "__metadata__"]
    first, second = names[0], names[1]

    def changed(name, **fields):
        copy = json.loads(json.dumps(header))
        copy[name].update(fields)
        return join_safetensors(copy, body)

    begin, end = header[second]["data_offsets"]
    poisoned = bytearray(body)
    at = header[first]["data_offsets"][0]
    poisoned[at : at + 2] = b"\xc0\x7f"  # a bf16 NaN
    lost = {name: value for name, value in header.items() if name != first}
    return {
        "empty": b"",
        "seven bytes": good[:7],
        "header length past the end": struct.pack("<Q", len(good)) + good[8:],
        "header length near 2^64": struct.pack("<Q", 2**64 - 1) + good[8:],
        "header cut": good[:500],
        "data cut": good[:-1000],
        "bytes left over": good + b"\0" * 64,
        "not JSON": struct.pack("<Q", 16) + b"{{{{{{{{{{{{{{{{" + body,
        "overlap": changed(second, data_offsets=[begin - 2, end - 2]),
        "gap": changed(second, data_offsets=[begin + 2, end + 2]),
        "offsets reversed": changed(second, data_offsets=[end, begin]),
        "offsets past the end": changed(second, data_offsets=[2**62, 2**62 + end - begin]),
        "shape larger than data": changed(second, shape=[2**31, 2**31]),
        "shape overflows": changed(second, shape=[2**40, 2**40, 2**40]),
        "negative shape": changed(second, shape=[-1, 4]),
        "unknown type": changed(second, dtype="F7"),
        "wrong type for its bytes": changed(second, dtype="F64"),
        "a tensor missing": join_safetensors(lost, body),
        "NaN in a weight": join_safetensors(header, bytes(poisoned)),
    }


def golden_cases(folder):
    """Name -> bytes of a golden.safetensors that must not lead to any verdict."""
    header, body = split_safetensors((folder / "golden.safetensors").read_bytes())

    def changed(edit):
        """`edit` gets name -> [type, shape, bytes]; the file is laid out anew."""
        tensors = {name: [info["dtype"], info["shape"], body[slice(*info["data_offsets"])]] for name, info in header.items() if name != "__metadata__"}
        edit(tensors)
        out, data = {}, b""
        for name, (dtype, shape, part) in sorted(tensors.items(), key=lambda item: len(item[1][2]) % 8):
            out[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
            data += part
        return join_safetensors(out, data)

    def flat(tensors):
        shape = tensors["prompt0.logits"][1]
        tensors["prompt0.logits"][1] = [shape[0] * shape[1]]

    def poisoned(tensors):
        tensors["prompt1.logits"][2] = tensors["prompt1.logits"][2][:-4] + struct.pack("<f", float("nan"))

    return {
        "no prompt": changed(lambda tensors: tensors.clear()),
        "a prompt in the middle missing": changed(lambda tensors: tensors.pop("prompt1.input_ids")),
        "the last prompt without its ids": changed(lambda tensors: tensors.pop("prompt2.input_ids")),
        "the first hidden state missing": changed(lambda tensors: tensors.pop("prompt0.hidden.0")),
        "logits missing": changed(lambda tensors: tensors.pop("prompt0.logits")),
        "margins missing": changed(lambda tensors: tensors.pop("prompt2.greedy_margin")),
        "logits of another shape": changed(flat),
        "NaN among the logits": changed(poisoned),
        "ids of another type": changed(lambda tensors: tensors["prompt0.input_ids"].__setitem__(0, "F32")),
    }


def rezip_head(pickle=None, drop=None, storages=None):
    """head.pt with another pickle, without one of its members, or with other storage bytes."""
    source = zipfile.ZipFile(KEV / "head.pt")
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as target:
            for info in source.infolist():
                if drop and info.filename.endswith(drop):
                    continue
                data = source.read(info)
                if pickle is not None and info.filename.endswith("data.pkl"):
                    data = pickle(data)
                for end, new in (storages or {}).items():
                    if info.filename.endswith(end):
                        data = new
                target.writestr(info.filename, data)
        file.seek(0)
        return file.read()


def head_cases(witness):
    good = (KEV / "head.pt").read_bytes()
    call = b"\x80\x02cposix\nsystem\nX" + struct.pack("<I", len(f"touch {witness}")) + f"touch {witness}".encode() + b"\x85R."
    return {
        "empty": b"",
        "not a zip": b"hello" * 100,
        "zip cut": good[: len(good) // 2],
        "a call of system": rezip_head(lambda old: call),
        "pickle cut": rezip_head(lambda old: old[:200]),
        "pickle without an end": rezip_head(lambda old: old[:-1]),
        "unknown opcode": rezip_head(lambda old: old[:2] + b"\xff" + old[3:]),
        "deep nesting": rezip_head(lambda old: b"\x80\x02" + b"]" * 3000000 + b"."),
        "memo index huge": rezip_head(lambda old: b"\x80\x02}r\xff\xff\xff\xffj\xfe\xff\xff\xff."),
        "string length past the end": rezip_head(lambda old: b"\x80\x02X\xff\xff\xff\x7fabc."),
        "another class": rezip_head(lambda old: old.replace(b"collections\nOrderedDict", b"collections\nOrderedLock")),
        "no pickle": rezip_head(drop="data.pkl"),
        "no weights": rezip_head(drop="data/0"),
        "short weights": rezip_head(storages={"data/0": b"\0" * 100}),
        "NaN weights": rezip_head(storages={"data/1": struct.pack("<f", float("nan")) * 256}),
        "head_dim disagrees": rezip_head(lambda old: old.replace(b"head_dimq,M\x00\x01", b"head_dimq,M\x80\x00")),
        "shape disagrees": rezip_head(lambda old: old.replace(b"K\x00M\x00\x01K\xc0\x86q\r", b"K\x00M\x00\x01K\xbf\x86q\r")),
        "temperature zero": rezip_head(lambda old: old.replace(b"temperatureq1G?\xf2\xcf\x0bRE\xe8\xf3", b"temperatureq1G" + b"\0" * 8)),
        "temperature NaN": rezip_head(lambda old: old.replace(b"G?\xf2\xcf\x0bRE\xe8\xf3", b"G" + struct.pack(">d", float("nan")))),
    }


def tokenizer_cases():
    good = json.loads((BASE / "tokenizer.json").read_text())

    def changed(edit):
        copy = json.loads(json.dumps(good))
        edit(copy)
        return json.dumps(copy).encode()

    def drop_delimiter(tokenizer):
        tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["content"] != "<|fim_suffix|>"]

    def bad_merge(tokenizer):
        tokenizer["model"]["merges"][0] = ["no such piece", "nor this"]

    return {
        "cut": json.dumps(good).encode()[:5000],
        "an array": b"[]",
        "no model": changed(lambda tokenizer: tokenizer.pop("model")),
        "no vocabulary": changed(lambda tokenizer: tokenizer["model"].pop("vocab")),
        "another model type": changed(lambda tokenizer: tokenizer["model"].update(type="Unigram")),
        "another normaliser": changed(lambda tokenizer: tokenizer.update(normalizer={"type": "NFKC"})),
        "a merge of unknown pieces": changed(bad_merge),
        "an id that is no number": changed(lambda tokenizer: tokenizer["model"]["vocab"].update({"zz": "one"})),
        "two pieces with one id": changed(lambda tokenizer: tokenizer["model"]["vocab"].update({"zzzz": 5})),
        "a delimiter missing": changed(drop_delimiter),
    }


def config_cases():
    good = json.loads((BASE / "config.json").read_text())

    def changed(**fields):
        return json.dumps({**good, **fields}).encode()

    return {
        "cut": json.dumps(good).encode()[:-20],
        "another architecture": changed(model_type="llama"),
        "no layers": changed(num_hidden_layers=0),
        "a billion layers": changed(num_hidden_layers=10**9),
        "negative size": changed(hidden_size=-192),
        "size as text": changed(hidden_size="192"),
        "size that the weights do not have": changed(hidden_size=good["hidden_size"] * 2),
        "heads that do not divide": changed(num_key_value_heads=3, num_attention_heads=4),
        "layer kinds of another length": changed(layer_types=["full_attention"]),
        "vocabulary of another size": changed(vocab_size=good["vocab_size"] + 1),
        "a size past 64 bits": changed(hidden_size=2**64),
    }


def request_cases():
    question = REQUEST["questions"]["q"]

    def body(**fields):
        return json.dumps({**REQUEST, **fields}).encode()

    def one(**fields):
        return body(questions={"q": {**question, **fields}})

    return {
        "empty": b"",
        "cut": b'{"state": "x", "questions": {"q"',
        "an array": b"[]",
        "text after it": body() + b" x",
        "not UTF-8": b'{"state": "\xff\xfe", "questions": {"q": {"type": "noul"}}}',
        "lone surrogate": b'{"state": "\\ud800", "questions": {"q": {"type": "noul"}}}',
        "NaN": b'{"state": {"a": NaN}, "questions": {"q": {"type": "noul"}}}',
        "number past a double": b'{"state": 1e999, "questions": {"q": {"type": "noul"}}}',
        "duplicate key": b'{"state": {"a": 1, "a": 2}, "questions": {"q": {"type": "noul"}}}',
        "duplicate question": b'{"state": "x", "questions": {"q": {"type": "noul"}, "q": {"type": "noul"}}}',
        "deep": b'{"state": ' + b"[" * 100000 + b"]" * 100000 + b', "questions": {"q": {"type": "noul"}}}',
        "no questions": body(questions={}),
        "questions of another kind": body(questions=[1, 2]),
        "unknown type": one(type="essay"),
        "choice without options": one(type="choice", criteria={}),
        "256 options": one(type="choice", criteria={f"o{i}": None for i in range(256)}),
        "256 levels": one(type="score", criteria=[f"l{i}" for i in range(256)]),
        "score with an object": one(type="score", criteria={"a": None}),
        "criteria of another kind": one(type="choice", criteria=7),
    }


def whole_number_cases(suite, kev):
    """Every option that takes a whole number refuses one that 64 bits do not hold, with the text; none is rounded, wrapped or read as octal."""
    commands = {
        ("decide", *kev, "--state", "x", "--ask", "a:noul:one"): ("--state-tokens-max", "--row-tokens-max", "--memory-max", "--threads"),
        ("generate", "--model", "x", "--prompt", "x"): ("--max-tokens", "--top-k", "--seed", "--logprobs", "--threads"),
        ("chat", "--model", "x"): ("--max-tokens", "--top-k", "--seed"),
        ("perplexity", "x", "-"): ("--window", "--stride", "--threads"),
        ("inspect", "x"): ("--plan-tokens",),
        ("bench", "decide", "--geometry", "x"): ("--state-tokens", "--questions", "--question-tokens", "--options", "--repetitions", "--warmup", "--seed"),
        ("bench", "generate", "--geometry", "x"): ("--prompt-tokens", "--new-tokens", "--batch", "--chunk", "--repetitions", "--warmup", "--seed"),
        ("make-checkpoint", "x"): ("--layers", "--hidden", "--inner", "--experts", "--top-k", "--heads", "--kv-heads", "--head-dim", "--vocabulary", "--context", "--seed"),
    }
    texts = ("18446744073709551616", "99999999999999999999999", "-18446744073709551615", "-1", "1e3", "0x10", "010", "")
    turn = 0
    for command, options in commands.items():
        for option in options:
            turn += 1
            for text in {texts[0], texts[turn % len(texts)]}:
                suite.refused(f"{command[0]} {option} {text!r}", [*command, f"{option}={text}" if text else option, *([] if text else [""])], codes=(USAGE,), says=(option.split("=")[0], text))
    for command in (("generate", "--model", "x", "--prompt", "x"), ("chat", "--model", "x"), ("bench", "generate", "--geometry", "x")):
        for option in ("--expert-ram", "--expert-vram", "--sequence-memory")[: 2 if command[0] == "bench" else 3]:
            suite.refused(f"{command[0]} {option}", [*command, option, "18446744073709551616"], codes=(USAGE,), says=(option, "18446744073709551616"))


def lost_page(suite):
    """Weights that another program cuts while they are mapped end the program with a line, not with the system's "Bus error"."""
    command = [suite.program, "chat", "--model", str(MOE), "--device", "cpu", "--max-tokens", "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as chat:
        chat.stdin.write(b"rain\n")
        chat.stdin.flush()
        chat.stdout.read(1)  # the model is open
        chat.send_signal(signal.SIGBUS)
        out, err = chat.communicate(timeout=300)
        done = subprocess.CompletedProcess(command, chat.returncode, out, err)
    clean = done.returncode == INPUT and b"a model file was cut" in err
    suite.note("a page of the weights is lost", None if clean else "expected a line and the code of bad input", done)


def killed_packs(suite, folder):
    """A pack that is killed leaves nothing beside the file that it would have written."""
    place = folder / "killed"
    place.mkdir()
    command = [suite.program, "pack", str(KEV), "--base", str(BASE), "--out", str(place / "packed")]
    for delay in (0.02, 0.05, 0.1, 0.2):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as pack:
            time.sleep(delay)
            pack.kill()
            done = subprocess.CompletedProcess(command, pack.wait(), b"", pack.stderr.read())
        left = [file.name for file in place.iterdir() if file.name != "packed"]
        suite.note(f"pack killed after {delay} s", f"left {left}" if left else None, done)


def main():
    suite = Suite(sys.argv[1])
    kev = ["--model", KEV, "--base", BASE, "--device", "cpu"]
    ask = ["decide", "--request", "-", "--json"]
    good = json.dumps(REQUEST).encode()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        witness = folder / "witness"
        suite.answers("the unchanged model", ask + kev, good)
        for name, data in safetensors_cases().items():
            base = variant(folder, BASE, f"base {name}", {"model.safetensors": data})
            suite.refused(f"safetensors: {name}", ask + ["--model", KEV, "--base", base, "--device", "cpu"], text=good)
        out = folder / "packed.safetensors"
        bad = folder / "base NaN in a weight"
        suite.refused("pack of NaN weights", ["pack", KEV, "--base", bad, "--out", out, "--dtype", "f32"], missing_file=out)
        for name, data in head_cases(witness).items():
            model = variant(folder, KEV, f"head {name}", {"head.pt": data})
            suite.refused(f"head.pt: {name}", ask + ["--model", model, "--base", BASE, "--device", "cpu"], text=good)
        suite.finish()
        if witness.exists():
            suite.failed += 1
            print("FAILED head.pt: the call in the pickle was carried out")
        for kind, cases, file_name in (("tokenizer", tokenizer_cases(), "tokenizer.json"), ("config", config_cases(), "config.json")):
            for name, data in cases.items():
                base = variant(folder, BASE, f"{kind} {name}", {file_name: data})
                suite.refused(f"{file_name}: {name}", ask + ["--model", KEV, "--base", base, "--device", "cpu"], text=good)
        for name, changes in (("no config", {"config.json": None}), ("no weights", {"model.safetensors": None}), ("no tokenizer", {"tokenizer.json": None})):
            base = variant(folder, BASE, name, changes)
            suite.refused(f"base: {name}", ask + ["--model", KEV, "--base", base, "--device", "cpu"], text=good)
        model = variant(folder, KEV, "adapter cut", {"adapter_model.safetensors": (KEV / "adapter_model.safetensors").read_bytes()[:-7]})
        suite.refused("adapter: data cut", ask + ["--model", model, "--base", BASE, "--device", "cpu"], text=good)
        suite.refused("no such model", ask + ["--model", folder / "nothing", "--device", "cpu"], text=good, says=("nothing",))
        suite.refused("a file that is no model", ask + ["--model", BASE / "config.json", "--device", "cpu"], text=good)
        for name, data in request_cases().items():
            suite.refused(f"request: {name}", ask + kev, text=data)
        long_state = json.dumps({**REQUEST, "state": "word " * 3000}).encode()
        suite.refused("state over the limit", ask + kev + ["--state-tokens-max", "100"], text=long_state, says=("100",))
        suite.answers("the same, cut on request", ask + kev + ["--state-tokens-max", "100", "--truncate"], long_state)
        endless_state = json.dumps({**REQUEST, "state": "word " * 20000}).encode()
        suite.refused("state over the model's context", ask + kev, text=endless_state)
        suite.answers("the same, cut so that the question has room", ask + kev + ["--truncate"], endless_state)
        long_question = json.dumps({**REQUEST, "questions": {"q": {"type": "noul", "instructions": "word " * 3000}}}).encode()
        suite.refused("question over the limit", ask + kev + ["--row-tokens-max", "200"], text=long_question, says=("200",))
        suite.refused("memory plan over the limit", ask + kev + ["--memory-max", "1"], codes=(3, 4), text=good)
        suite.refused("duplicate ids on the command line", ["decide", *kev, "--state", "x", "--ask", "a:noul:one", "--ask", "a:noul:two"], codes=(2, 3))
        suite.refused("a malformed question", ["decide", *kev, "--state", "x", "--ask", "a:essay:one"], codes=(2, 3))
        suite.refused("no such request", ["decide", *kev, "--request", folder / "none.json"], says=("none.json",))
        suite.refused("an unknown option", ["decide", *kev, "--nonsense"], codes=(USAGE,))
        suite.refused("no command", [], codes=(USAGE,))
        for option, values in {
            "--temperature": ("nan", "inf", "0", "-1", "1e-300", "1e300", "warm"),
            "--state-tokens-max": ("0", "-1", "4294967296"),
            "--row-tokens-max": ("0", "1.5"),
            "--memory-max": ("0", "-1", "18446744073709551615"),
            "--threads": ("-1",),
        }.items():
            for value in values:
                suite.refused(f"{option} {value}", ask + kev + [option, value], codes=(USAGE, INPUT), text=good)
        for name in ("line\nbreak", "\x1b[31mred", b"\xff".decode(errors="surrogateescape"), ""):
            suite.refused(f"a model called {name!r}", ask + ["--model", name, "--device", "cpu"], text=good)
        suite.refused("a model without a name", ask + ["--model", "", "--device", "cpu"], text=good, says=("model: expected", 'found ""'))
        suite.refused("a folder as request", ["decide", *kev, "--request", folder], says=(str(folder),))
        suite.refused("a request's error names the file", ["decide", *kev, "--request", BASE / "tokenizer.json"], says=("tokenizer.json",))
        suite.refused("a question past the model's positions", ask + kev, text=long_question.replace(b"word ", b"word word "), says=("questions.q",))
        looped = variant(folder, KEV, "a link to itself", {"adapter_model.safetensors": None})
        os.symlink(looped / "adapter_model.safetensors", looped / "adapter_model.safetensors")
        suite.refused("a link to itself", ask + ["--model", looped, "--base", BASE, "--device", "cpu"], text=good)
        overflow = json.loads((KEV / "adapter_config.json").read_text())
        overflow["lora_alpha"] = 2**63
        model = variant(folder, KEV, "weights that overflow", {"adapter_config.json": json.dumps(overflow).encode()})
        suite.refused("weights that overflow", ask + ["--model", model, "--base", BASE, "--device", "cpu"], text=good, says=("overflow",))
        base = variant(folder, BASE, "epsilon below f32", {"config.json": (BASE / "config.json").read_bytes().replace(b"1e-06", b"1e-300")})
        suite.refused("epsilon below f32", ask + ["--model", KEV, "--base", base, "--device", "cpu"], text=good, says=("rms_norm_eps",))
        nowhere = {"VK_DRIVER_FILES": "/nonexistent"}
        with_webgpu = b"CHORUS_WEBGPU=OFF" not in suite.run(ask + kev[:-1] + ["webgpu"], good, nowhere).stderr
        suite.refused("no adapter", ask + kev[:-1] + ["webgpu"], codes=(DEVICE if with_webgpu else INPUT,), text=good, environment=nowhere)
        # A pipe of our own stands for every device: a faulty program would put a file in its place.
        os.mkfifo(folder / "pipe")
        for target in ("", folder, folder / "pipe", folder / "none" / "packed"):
            suite.refused(f"pack to {target}", ["pack", KEV, "--base", BASE, "--out", target])
        copy = variant(folder, BASE, "own weights", {"model.safetensors": (BASE / "model.safetensors").read_bytes()})
        suite.refused("pack over the weights it reads", ["pack", KEV, "--base", copy, "--out", copy / "model.safetensors"])
        suite.finish()
        if (copy / "model.safetensors").read_bytes() != (BASE / "model.safetensors").read_bytes():
            suite.failed += 1
            print("FAILED pack over the weights it reads: they changed")
        out = folder / "too-large.safetensors"
        limited = ["sh", "-c", 'ulimit -f 4; "$0" "$@"', suite.program, "pack", KEV, "--base", BASE, "--out", out]
        done = subprocess.run([str(part) for part in limited], capture_output=True, timeout=300)
        clean = done.returncode == INTERNAL and done.stderr.count(b"\n") == 1 and not list(folder.glob("too-large*"))
        suite.note("pack past the file size limit", None if clean else "expected one line and no file", done)
        lost_page(suite)
        killed_packs(suite, folder)
        for name in ("chat_template.jinja", "generation_config.json", "tokenizer_config.json"):
            broken = variant(folder, MOE, f"{name} leads nowhere", {name: None})
            os.symlink(folder / "nothing", broken / name)
            suite.refused(f"{name}: a link that leads nowhere", ["generate", "--model", broken, "--messages", "-", "--device", "cpu"], text=b'[{"role": "user", "content": "rain"}]', says=(name,))
        language = ROOT / "tests/data/qwen3_5_text"
        for name, data in golden_cases(language).items():
            golden = folder / f"{name}.safetensors"
            golden.write_bytes(data)
            suite.refused(f"golden: {name}", ["verify", language, "--golden", golden, "--device", "cpu"], says=(str(golden),))
        request = folder / "request.json"
        request.write_bytes(good)
        for name, arguments in {
            "decide": ["decide", *kev, "--request", request],
            "tokenize": ["tokenize", *kev[:4], "rain"],
            "help": ["--help"],
            "version": ["--version"],
            "devices": ["devices", "--device", "cpu"],
            "inspect": ["inspect", KEV, "--base", BASE, "--device", "cpu", "--tensors"],
            "verify": ["verify", language, "--device", "cpu"],
            "pack": ["pack", KEV, "--base", BASE, "--out", folder / "lost.safetensors"],
            "bench decide": ["bench", "decide", "--geometry", KEV, "--base", BASE, "--state-tokens", "8", "--questions", "1", "--question-tokens", "4", "--repetitions", "1", "--warmup", "0", "--device", "cpu"],
        }.items():
            suite.output_lost(name, arguments)
        whole_number_cases(suite, kev)
        language_cases(suite, folder, variant)
        output_cases(suite, folder)
        suite.finish()
    print(f"{suite.passed} cases passed, {suite.failed} failed")
    sys.exit(0 if suite.failed == 0 and suite.passed > 50 else 1)


main()
