#!/usr/bin/env python3
"""Writes golden.safetensors: reference outputs of a causal language model in Hugging Face form.

For each prompt I: promptI.input_ids; promptI.logits in float32 (all rows, or the last rows of a long prompt);
promptI.greedy_ids and promptI.greedy_margin (greedy continuation by full recomputation, and the gap between the two best
logits at each step). For prompt 0 also prompt0.hidden.K, the hidden states as transformers returns them: embeddings
first, after the final norm last.

The reference is transformers on the CPU: float32, eager attention, no cache.

    write_golden.py MODEL --out golden.safetensors             random prompts, from a seed
    write_golden.py MODEL --out new.safetensors --like OLD     the prompts and sizes of an existing file
    write_golden.py MODEL --check OLD                          recompute OLD and compare; exit 1 on a difference
"""
import argparse
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

PROMPT_LENGTHS = (37, 5, 150)
NEW_TOKENS = (24, 24, 8)
LONG_PROMPT = 64  # a longer prompt keeps its last rows of logits only
LONG_PROMPT_ROWS = 4
TIE_MARGIN = 2e-3  # greedy steps with a smaller gap may go either way
LOGIT_TOLERANCE = 2e-4


def load_model(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def random_prompts(model, seed):
    generator = torch.Generator().manual_seed(seed)
    vocabulary = model.config.get_text_config().vocab_size
    plans = []
    for length, new_tokens in zip(PROMPT_LENGTHS, NEW_TOKENS):
        ids = torch.randint(0, vocabulary, (length,), generator=generator).tolist()
        rows = length if length <= LONG_PROMPT else LONG_PROMPT_ROWS
        plans.append({"ids": ids, "rows": rows, "new_tokens": new_tokens})
    return plans


def prompts_like(golden):
    plans = []
    while f"prompt{len(plans)}.input_ids" in golden:
        name = f"prompt{len(plans)}"
        plans.append({"ids": golden[f"{name}.input_ids"].tolist(), "rows": golden[f"{name}.logits"].shape[0],
                      "new_tokens": golden[f"{name}.greedy_ids"].shape[0] if f"{name}.greedy_ids" in golden else 0})
    if not plans:
        sys.exit("the file holds no prompt0.input_ids")
    return plans


@torch.no_grad()
def greedy(model, ids, count):
    chosen, margins = [], []
    for _ in range(count):
        logits = model(torch.tensor([ids + chosen]), use_cache=False).logits[0, -1]
        best = torch.topk(logits, 2)
        chosen.append(int(best.indices[0]))
        margins.append(float(best.values[0] - best.values[1]))
    return chosen, margins


@torch.no_grad()
def compute(model, plans):
    tensors = {}
    for i, plan in enumerate(plans):
        out = model(torch.tensor([plan["ids"]]), use_cache=False, output_hidden_states=i == 0)
        tensors[f"prompt{i}.input_ids"] = torch.tensor(plan["ids"], dtype=torch.int32)
        tensors[f"prompt{i}.logits"] = out.logits[0, -plan["rows"]:].float().contiguous()
        if i == 0:
            for k, hidden in enumerate(out.hidden_states or ()):
                tensors[f"prompt0.hidden.{k}"] = hidden[0].float().clone().contiguous()
        if plan["new_tokens"]:
            chosen, margins = greedy(model, plan["ids"], plan["new_tokens"])
            tensors[f"prompt{i}.greedy_ids"] = torch.tensor(chosen, dtype=torch.int32)
            tensors[f"prompt{i}.greedy_margin"] = torch.tensor(margins, dtype=torch.float32)
    return tensors


def greedy_agree(new, old, name):
    """Equal up to the first step that the reference calls a tie."""
    for step, margin in enumerate(old[f"{name}.greedy_margin"].tolist()):
        if margin < TIE_MARGIN:
            return True
        if int(new[f"{name}.greedy_ids"][step]) != int(old[f"{name}.greedy_ids"][step]):
            print(f"{name}.greedy_ids: step {step} differs, margin {margin:g}")
            return False
    return True


def compare(new, old):
    good = True
    for name, expected in sorted(old.items()):
        if name.endswith((".greedy_ids", ".greedy_margin")):
            continue
        found = new.get(name)
        if found is None or found.shape != expected.shape:
            print(f"{name}: expected shape {tuple(expected.shape)}, found {None if found is None else tuple(found.shape)}")
            good = False
            continue
        error = float((found.double() - expected.double()).abs().max()) if expected.numel() else 0.0
        inside = error <= (0 if name.endswith(".input_ids") else LOGIT_TOLERANCE)  # false for NaN as well
        print(f"{name}: largest difference {error:.3g}{'' if inside else '  OUTSIDE'}")
        good = good and inside
    for name in sorted({key.split(".")[0] for key in old if key.endswith(".greedy_ids")}):
        agree = greedy_agree(new, old, name)
        print(f"{name}.greedy_ids: {'equal up to ties' if agree else 'DIFFERENT'}")
        good = good and agree
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="folder with config.json and weights")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--like", type=pathlib.Path)
    parser.add_argument("--check", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not arguments.out and not arguments.check:
        parser.error("give --out or --check")
    model = load_model(arguments.model)
    pattern = arguments.check or arguments.like
    tensors = compute(model, prompts_like(load_file(pattern)) if pattern else random_prompts(model, arguments.seed))
    if arguments.out:
        save_file(tensors, arguments.out)
        print(f"{arguments.out}: {len(tensors)} tensors")
    if arguments.check and not compare(tensors, load_file(arguments.check)):
        sys.exit(1)


if __name__ == "__main__":
    main()
