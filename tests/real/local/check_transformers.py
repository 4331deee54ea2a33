#!/usr/bin/env python3
"""Compares the engine with transformers on the CPU in 32 bits: 64 greedy tokens, and the logits of every step.

    pip install torch transformers
    make_tiny.py FOLDER
    check_transformers.py FOLDER     writes expected.json beside each model, with the logits of every step, and runs the comparison
    check_transformers.py            the same for tests/local, but keeps the logits of a few steps only: the fixture of the tests

The comparison itself is the test `it_agrees_with_transformers` of the engine: the tokens must be the same, and the logits of a step
must not differ by more than 1e-4 of the largest of that step.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

ROOT = Path(__file__).parents[3]
PROMPT = "What would you cook in 1984, on a rainy evening? naïve 中文"
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "One, two,"}]
STEPS = 64
FEW = (0, 1, 31, 63)


def reference(folder: Path, every: bool) -> dict:
    # Not AutoTokenizer: for some families it builds another tokenizer than that of the file.
    words = PreTrainedTokenizerFast.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = words(PROMPT, return_tensors="pt").input_ids
    with torch.no_grad():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            min_new_tokens=STEPS,
            max_new_tokens=STEPS,
            eos_token_id=None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
    tokens = out.sequences[0, ids.shape[1] :].tolist()
    steps = range(STEPS) if every else FEW
    return {
        "prompt": PROMPT,
        "ids": ids[0].tolist(),
        "messages": MESSAGES,
        "chat": words.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True),
        "tokens": tokens,
        "text": words.decode(tokens, skip_special_tokens=True),
        "logits": {str(step): [float(f"{value:.7g}") for value in out.logits[step][0].tolist()] for step in steps},
    }


def main() -> None:
    every = len(sys.argv) > 1
    folder = Path(sys.argv[1]).resolve() if every else ROOT / "tests" / "local"
    for config in sorted(folder.glob("*/config.json")):
        (config.parent / "expected.json").write_text(json.dumps(reference(config.parent, every)) + "\n")
    test = ["cargo", "test", "--lib", "it_agrees_with_transformers", "--", "--nocapture"]
    sys.exit(subprocess.run(test, cwd=ROOT, env=dict(os.environ, TINY_MODELS=str(folder))).returncode)


if __name__ == "__main__":
    main()
