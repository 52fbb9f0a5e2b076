"""The judge of `memray-eval demo`: verdicts that were written together with the demo's answers."""

import json
from pathlib import Path

LINES = Path(__file__).with_name("verdicts.jsonl").read_text(encoding="utf-8").splitlines()
VERDICTS = {verdict["response"]: verdict for verdict in map(json.loads, LINES)}


def verdict(messages, judgment):
    """The recorded verdict on the answer in the prompt, in the form that its metric asks for."""
    prompt = "\n".join(message["content"] for message in messages)
    found = next((VERDICTS[text] for text in VERDICTS if text in prompt), None)
    if found is None:
        raise LookupError("verdicts are recorded only for the demo's own answers; use --judge")
    uses, tokens = found["uses"], {"input_tokens": 0, "output_tokens": 0}
    if "meets" in judgment.model_fields:
        reason = "keeps to what is expected" if found["meets"] else "does not do what is expected"
        return {
            "evidence": list(uses.values()),
            "reasoning": reason,
            "meets": found["meets"],
        }, tokens
    evidence = [{"key": key, "quote": quote} for key, quote in uses.items()]
    return {"evidence": evidence, "reasoning": "", "cited_keys": list(uses)}, tokens
