#!/usr/bin/env python3
"""Writes *.golden.jsonl: reference outputs of a Kev checkpoint for a list of requests.

Each line of the input is a request, or an object with a `request` (and perhaps `labels`, which are kept): so an existing
golden file can be used as the list. Each line of the output has `request`, `labels`, `rows` (per question: token_ids,
state_tokens, option_ends, logits divided by the temperature, probabilities), `answers`, `input_tokens`, `output_tokens`.

The reference is transformers and PEFT on the CPU: float32, eager attention, LoRA merged in float32, every row computed
from its first token, no cache.

    write_decisions.py CHECKPOINT --requests FILE --out kev.golden.jsonl [--base FOLDER]
    write_decisions.py CHECKPOINT --check kev.golden.jsonl [--base FOLDER]      exit 1 on a difference
"""
import argparse
import json
import pathlib
import sys

import torch
from tokenizers import Tokenizer
from transformers import AutoModel, AutoModelForCausalLM

from system_one import Packer, answer, answers_text

LOGIT_TOLERANCE = 2e-4
PROBABILITY_TOLERANCE = 1e-4


class Model:
    """Backbone, pointer head, temperature and tokenizer of a checkpoint in adapter or full-weight form."""

    def __init__(self, checkpoint, base):
        head = torch.load(checkpoint / "head.pt", map_location="cpu", weights_only=True)
        adapter = (checkpoint / "adapter_config.json").exists()
        if head.get("weights", "lora") != ("lora" if adapter else "full"):
            sys.exit(f"{checkpoint}: head.pt says weights {head.get('weights')!r}, which the folder does not have")
        base = base or (find_base(checkpoint) if adapter else checkpoint)
        self.packer = Packer(Tokenizer.from_file(str(base / "tokenizer.json")))
        self.backbone = load_adapted(base, checkpoint) if adapter else load_full(checkpoint)
        self.head = {name: tensor.float() for name, tensor in head["head"].items()}
        self.scale = head.get("head_dim", 256) ** -0.5
        self.temperature = float(head.get("temperature", 1.0))

    @torch.no_grad()
    def logits(self, tokens, option_ends):
        hidden = self.backbone(torch.tensor([tokens]), use_cache=False).last_hidden_state[0].float()
        linear = torch.nn.functional.linear
        q = linear(hidden[-1], self.head["q.weight"], self.head["q.bias"])
        k = linear(hidden[option_ends], self.head["k.weight"], self.head["k.bias"])
        return (k @ q) * self.scale / self.temperature


def find_base(checkpoint):
    name = json.loads((checkpoint / "adapter_config.json").read_text())["base_model_name_or_path"]
    for candidate in (pathlib.Path(name), checkpoint / name, checkpoint.resolve().parent / name):
        if (candidate / "config.json").exists():
            return candidate
    sys.exit(f"{checkpoint}: base {name!r} not found beside it: give --base")


def load_adapted(base, checkpoint):
    from peft import PeftModel

    backbone = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager").model
    backbone = getattr(backbone, "language_model", backbone)
    return PeftModel.from_pretrained(backbone, checkpoint).merge_and_unload().eval()


def load_full(checkpoint):
    return AutoModel.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="eager").eval()


def decide(model, request):
    state = model.packer.state(request["state"])
    rows, answers, packed = {}, {}, len(state)
    for name, question in request["questions"].items():
        branch, option_ends = model.packer.branch(question, len(state))
        logits = model.logits(state + branch, option_ends)
        probabilities = torch.softmax(logits, -1)
        rows[name] = {"token_ids": state + branch, "state_tokens": len(state), "option_ends": option_ends,
                      "logits": logits.tolist(), "probabilities": probabilities.tolist()}
        answers[name] = answer(question, probabilities.tolist())
        packed += len(branch)
    return {"rows": rows, "answers": answers, "input_tokens": packed, "output_tokens": model.packer.count_plain(answers_text(answers))}


def read_lines(path):
    records = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            record = json.loads(line)
            records.append(record if "request" in record else {"request": record})
    return records


def near_rounding_edge(value):
    """Within the probability tolerance of a value that rounds differently at 4 decimals."""
    return round(value - PROBABILITY_TOLERANCE, 4) != round(value + PROBABILITY_TOLERANCE, 4)


def largest(found, expected):
    return max((abs(a - b) for a, b in zip(found, expected)), default=0.0)


def compare(index, found, expected):
    """Differences of one record as texts, and its largest logit and probability errors."""
    problems, logit_error, probability_error = [], 0.0, 0.0
    for name, row in expected["rows"].items():
        ours = found["rows"][name]
        for key in ("token_ids", "state_tokens", "option_ends"):
            if ours[key] != row[key]:
                problems.append(f"{name}: {key} differ")
        logit_error = max(logit_error, largest(ours["logits"], row["logits"]))
        probability_error = max(probability_error, largest(ours["probabilities"], row["probabilities"]))
        edge = any(near_rounding_edge(p) for p in row["probabilities"])
        if found["answers"][name] != expected["answers"][name] and not edge:
            problems.append(f"{name}: answer {found['answers'][name]}, expected {expected['answers'][name]}")
    for key in ("input_tokens", "output_tokens"):
        if found[key] != expected[key]:
            problems.append(f"{key} {found[key]}, expected {expected[key]}")
    if not (logit_error <= LOGIT_TOLERANCE and probability_error <= PROBABILITY_TOLERANCE):
        problems.append(f"logits differ by {logit_error:g}, probabilities by {probability_error:g}")
    return problems, logit_error, probability_error


def check(model, records):
    bad, worst_logit, worst_probability = 0, 0.0, 0.0
    for index, record in enumerate(records):
        problems, logit_error, probability_error = compare(index, decide(model, record["request"]), record)
        worst_logit, worst_probability = max(worst_logit, logit_error), max(worst_probability, probability_error)
        bad += bool(problems)
        for problem in problems:
            print(f"request {index}: {problem}")
    print(f"{len(records)} requests, {bad} differ; largest error: logits {worst_logit:.3g}, probabilities {worst_probability:.3g}")
    return bad == 0 and bool(records)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--base", type=pathlib.Path)
    parser.add_argument("--requests", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--check", type=pathlib.Path)
    arguments = parser.parse_args()
    if not arguments.check and not (arguments.requests and arguments.out):
        parser.error("give --check, or --requests and --out")
    model = Model(arguments.checkpoint, arguments.base)
    if arguments.check and not check(model, read_lines(arguments.check)):
        sys.exit(1)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            for record in read_lines(arguments.requests):
                kept = {key: record[key] for key in ("request", "labels") if key in record}
                file.write(json.dumps(kept | decide(model, record["request"]), ensure_ascii=False) + "\n")
        print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
