"""What people read: help, units, reasons, lines that come when they are made, the examples; run by command_line.py."""
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASE, KEV, MOE = ROOT / "models/kev-mini-base", ROOT / "models/kev-mini", ROOT / "models/moe-mini"
USAGE = 2
COMMANDS = ["decide", "generate", "chat", "inspect", "verify", "perplexity", "tokenize", "pack", "devices", "bench", "make-checkpoint"]


def name_cases(suite):
    """A word that no command knows is named, with the commands that there are."""
    suite.refused("an unknown command", ["frobnicate"], codes=(USAGE,), says=('"frobnicate"', *COMMANDS, "chorus --help"))
    suite.refused("an unknown command after an option of another", ["frobnicate", "--model", "x"], codes=(USAGE,), says=('"frobnicate"', *COMMANDS))
    suite.refused("no command, named", [], codes=(USAGE,), says=("no command", *COMMANDS))
    suite.refused("an option instead of a command", ["--nonsense"], codes=(USAGE,), says=('"--nonsense"', *COMMANDS))
    suite.refused("an unknown command of bench", ["bench", "frobnicate"], codes=(USAGE,), says=("bench: ", '"frobnicate"', "decide, generate", "chorus bench --help"))
    suite.refused("no command of bench", ["bench"], codes=(USAGE,), says=("bench: no command", "decide, generate"))
    for command in ("decide", "generate", "bench decide"):
        suite.refused(f"{command}: an unknown option", [*command.split(), "--nonsense"], codes=(USAGE,), says=('"--nonsense"', f"chorus {command} --help"))
    suite.refused("decide: a word too many", ["decide", "--model", KEV, "--request", "-", "twice"], codes=(USAGE,), says=('"twice"',))


def help_cases(suite):
    for command in ["", *COMMANDS, "bench decide", "bench generate"]:
        done = suite.run([*command.split(), "--help"])
        text = done.stdout.decode()
        options = [line for line in text.splitlines() if line.startswith("  -")]
        groups = re.findall(r"^(\w[\w -]*):$", text, re.M)
        problem = None
        if done.returncode != 0 or not options:
            problem = "expected options"
        elif any(not re.match(r"  -\S+(,--\S+)?( \S+)?  +\S", line) for line in options):
            problem = "an option without a description on its line"
        elif re.search(r"UINT|FLOAT|\[\d|Excludes|REQUIRED|\n\n\n|\n\n$", text) or f"Usage: {' '.join(['chorus', *command.split()])} [" not in text:
            problem = "what only a parser needs to know"
        elif command and not command.startswith("bench") and groups[-1] != "Rarely needed":
            problem = f"expected what is rarely needed at the end, found {groups}"
        elif "Model" in groups and "Device" in groups and not groups.index("Model") < groups.index("Device") < groups.index("Output"):
            problem = f"expected model, device and output in this order, found {groups}"
        suite.note(f"help of {command or 'the program'}", problem, done)


def unit_cases(suite, folder):
    """Sizes are in units of 1024, and no line is empty on standard error."""
    device = ["--device", "cpu"]
    tiny = ["--layers", "1", "--hidden", "64", "--inner", "64", "--experts", "2", "--top-k", "1", "--heads", "1", "--kv-heads", "1", "--head-dim", "64"]
    once = ["--repetitions", "1", "--warmup", "0", *device]
    for name, arguments, unit in (
        ("generate", ["generate", "--model", MOE, "--prompt", "The sky was", "--max-tokens", "3", "--stats", *device], "MiB"),
        ("generate on a budget", ["generate", "--model", MOE, "--prompt", "The sky was", "--max-tokens", "3", "--stats", "--expert-ram", "2M", *device], "MiB read"),
        ("decide", ["decide", "--model", KEV, "--base", BASE, "--state", "x", "--ask", "a:noul:b", "--explain", *device], "MiB"),
        ("inspect", ["inspect", KEV, "--base", BASE, *device], "MiB"),
        ("pack", ["pack", KEV, "--base", BASE, "--out", folder / "units.safetensors"], "MiB"),
        ("make-checkpoint", ["make-checkpoint", folder / "units", *tiny], "experts of 24.0 KiB, 48.0 KiB of experts"),
        ("bench decide", ["bench", "decide", "--geometry", KEV, "--base", BASE, "--state-tokens", "8", "--questions", "1", "--question-tokens", "4", *once], "GiB/s"),
        ("bench generate", ["bench", "generate", "--geometry", MOE, "--prompt-tokens", "4", "--new-tokens", "2", *once], "GiB/s"),
    ):
        done = suite.run(arguments)
        text = (done.stdout + done.stderr).decode()
        other = re.findall(r"[\d.]+ [kKMGT]B\b.*", text)
        problem = None
        if done.returncode != 0 or unit not in text:
            problem = f"expected {unit}"
        elif other:
            problem = f"other units: {other}"
        elif b"\n\n" in done.stderr or done.stderr.startswith(b"\n"):
            problem = "an empty line on standard error"
        suite.note(f"units of {name}", problem, done)


def step_cases(suite, folder):
    """Into a pipe, a line comes when it is made: the first ones while the program still works."""
    golden = folder / "steps.golden.jsonl"
    golden.write_bytes(b"".join((ROOT / "tests/data/kev-mini.golden.jsonl").read_bytes().splitlines(True)[:16]))
    command = [suite.program, "verify", KEV, "--base", BASE, "--golden", golden, "--device", "cpu"]
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = [process.stdout.readline() for _ in range(2)]
    running = process.poll() is None
    rest, error = process.communicate(timeout=300)
    good = running and first[1].startswith(b"request 1 ") and b"\nverdict: ok" in rest
    suite.note("verify prints line after line", None if good else "expected the first line before the end",
               subprocess.CompletedProcess(command, process.returncode, b"".join(first) + rest, error))


def reason_cases(suite):
    """Where the processor stands in for a GPU, one line says what was asked, what runs, why, and what to do."""
    done = suite.run(["decide", "--model", KEV, "--base", BASE, "--state", "x", "--ask", "a:noul:b", "--explain"], environment={"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"})
    reasons = [line for line in done.stderr.decode().splitlines() if line.startswith("reason: ")]
    good = len(reasons) == 1 and re.fullmatch(r"reason: auto was asked for, the CPU runs it: [^;:]+; (install|to have it, build) .+", reasons[0])
    suite.note("the reason for the CPU", None if good else f"found {reasons}", done)
    done = suite.run(["inspect", KEV, "--base", BASE, "--device", "cpu", "--json"])
    names = [line.split(":")[0] for line in json.loads(done.stdout)["operations"]]
    good = {"linear", "gated_delta", "attention", "pointer_scores"} <= set(names) and not {"router", "expert_ffn", "sample", "attend"} & set(names)
    suite.note("inspect lists what the model uses", None if good else f"found {names}", done)


def example_cases(suite):
    """The shipped model is sure of the requests in examples/, and the example of the README is one that compiles and runs."""
    for request in sorted((ROOT / "examples").glob("*.json")):
        done = suite.run(["decide", "--model", KEV, "--base", BASE, "--device", "cpu", "--json", "--request", request])
        answers = json.loads(done.stdout)["answers"]
        unsure = [name for name, answer in answers.items() if answer.get("confidence", abs(2 * answer.get("noul", 0) - 1)) < 0.9]
        suite.note(f"{request.name} is answered surely", None if answers and not unsure else f"unsure of {unsure}", done)
    code = (ROOT / "examples/decide.cpp").read_text().split("\n", 1)[1]
    quoted = re.search(r"```cpp\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    suite.note("the README quotes examples/decide.cpp", None if quoted and quoted[1].strip() == code.strip() else "they differ", subprocess.CompletedProcess([], 0, b"", b""))
    built = pathlib.Path(suite.program).resolve().parent / "tests"
    if built.is_dir():  # a build without tests has no example
        done = subprocess.run([built / "chorus_example"], cwd=ROOT, capture_output=True, timeout=300)
        suite.note("the example runs", None if done.stdout == b"refund: 1.0000 probability of yes\ntone: angry\n" else "expected two answers", done)


def output_cases(suite, folder):
    name_cases(suite)
    help_cases(suite)
    unit_cases(suite, folder)
    step_cases(suite, folder)
    reason_cases(suite)
    example_cases(suite)
