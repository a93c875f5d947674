"""Kev 1.0 semantics in plain Python: from a request to token rows, from probabilities to answers. No model here."""
import json
import re

DELIMITERS = {"state": "<|fim_prefix|>", "question": "<|fim_middle|>", "option_start": "<|box_start|>",
              "option_end": "<|box_end|>", "decide": "<|fim_suffix|>"}
FORGED_DELIMITER = re.compile(r"<\|([A-Za-z0-9_]+)\|>")


def scalar_text(value):
    return "" if value is None else str(value)


def render(value, depth=0):
    pad = "  " * depth
    if isinstance(value, dict):
        lines = []
        for key, item in value.items():
            if isinstance(item, (dict, list)):
                lines.append(f"{pad}{key}:\n{render(item, depth + 1)}")
            else:
                lines.append(f"{pad}{key}: {scalar_text(item)}")
        return "\n".join(lines)
    if isinstance(value, list):
        return "\n".join(f"{pad}- {render(item, depth + 1).lstrip()}" for item in value)
    return scalar_text(value)


def described(name, description):
    return name if description is None or description == "" else f"{name}: {render(description)}"


def option_texts(question):
    criteria = question.get("criteria")
    if question["type"] == "noul":
        criteria = criteria or {}
        return [described("no", criteria.get("false")), described("yes", criteria.get("true"))]
    if question["type"] == "choice":
        return [described(name, description) for name, description in criteria.items()]
    return [render(level) for level in criteria]


class Packer:
    """Token rows with a tokenizers.Tokenizer: every piece is encoded on its own, forged delimiters are defused."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.ids = {}
        for role, token in DELIMITERS.items():
            self.ids[role] = tokenizer.token_to_id(token)
            if self.ids[role] is None:
                raise SystemExit(f"the tokenizer has no token {token}")

    def encode(self, text):
        return self.tokenizer.encode(FORGED_DELIMITER.sub("<\u00a6\\1\u00a6>", text), add_special_tokens=False).ids

    def state(self, state):
        return [self.ids["state"]] + self.encode(render(state))

    def branch(self, question, start):
        """Tokens of one question and the positions of its option ends, counted from `start`."""
        tokens = [self.ids["question"]] + self.encode(render(question.get("instructions")))
        ends = []
        for text in option_texts(question):
            tokens += [self.ids["option_start"]] + self.encode(text) + [self.ids["option_end"]]
            ends.append(start + len(tokens) - 1)
        return tokens + [self.ids["decide"]], ends

    def count_plain(self, text):
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)


def normalised(probabilities):
    total = sum(probabilities)
    count = len(probabilities)
    return [p / total for p in probabilities] if total else [1 / count] * count


def choice_confidence(probabilities):
    count = len(probabilities)
    return 1.0 if count == 1 else (max(normalised(probabilities)) - 1 / count) / (1 - 1 / count)


def score_confidence(probabilities):
    count = len(probabilities)
    if count == 1:
        return 1.0
    mode = probabilities.index(max(probabilities))
    spread = sum(p * abs(i - mode) for i, p in enumerate(normalised(probabilities)))
    uniform = sum(abs(i - (count - 1) / 2) for i in range(count)) / count
    return max(0.0, 1 - spread / uniform)


def answer(question, probabilities):
    rounded = [round(p, 4) for p in probabilities]
    if question["type"] == "noul":
        return {"type": "noul", "noul": rounded[1]}
    if question["type"] == "choice":
        names = list(question["criteria"])
        return {"type": "choice", "choice": names[probabilities.index(max(probabilities))],
                "confidence": round(choice_confidence(probabilities), 4), "probabilities": dict(zip(names, rounded))}
    levels = [render(level) for level in question["criteria"]]
    return {"type": "score", "score": round(sum(i * p for i, p in enumerate(probabilities)), 4),
            "legend": {str(i): level for i, level in enumerate(levels)},
            "probabilities": {str(i): p for i, p in enumerate(rounded)},
            "confidence": round(score_confidence(probabilities), 4)}


def answers_text(answers):
    return json.dumps(answers)
