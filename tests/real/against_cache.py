"""Runs llmscen against a vLLM server that stays up and keeps its prefix cache: a second run with the same seed must be INVALID.

    against_cache.py LLMSCEN HOME

HOME is the folder that install.sh filled. vLLM serves SmolLM2 with its prefix cache. Three pairs of runs of 256 random prompt tokens are made: with a
fixed seed (the second is INVALID and names the cache), with `seed: run` (both are valid, and `compare` finds no change), and the first pair again without
cached tokens in the replies, where the server's metrics have the hit rate. Exit code 1: one of them is not so.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

PORT, REQUESTS = 18014, 40

llmscen, home = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
runs = Path(home) / "runs" / "cache"
runs.mkdir(parents=True, exist_ok=True)
environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "no_proxy": "127.0.0.1"}


def serve(*more):
    words = f"{home}/bin/vllm serve {home}/smollm2 --served-model-name smollm2 --host 127.0.0.1 --port {PORT} --max-model-len 2048 --dtype float32"
    log = open(runs / "server.log", "ab")
    command = [*words.split(), "--enforce-eager", "--enable-prefix-caching", *more]
    process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"the server exited with {process.returncode}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=10).read()
            return process
        except OSError:
            time.sleep(0.5)
    sys.exit("the server was not ready after 300 s")


def stop(process):
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(timeout=60)


def run(name, seed, metrics=""):
    scenario = runs / f"{name}.yaml"
    scenario.write_text(f"""\
version: 1
name: cache
seed: {seed}
target: {{ url: http://127.0.0.1:{PORT}/v1/chat/completions, model: smollm2{metrics} }}
dataset: {{ kind: random, tokens: 256, tokenizer: {home}/smollm2 }}
request: {{ max_tokens: 8, ignore_eos: true }}
load: {{ concurrency: 2, requests: {REQUESTS}, warmup: 2 }}
slo: [error_rate < 10%, ttft.p50 < 60s]
audit: {{ lag_p99: 10s, stall_p99: 10s }}
""")
    ended = subprocess.run([llmscen, "run", scenario, "--output", runs / name, "--force"], capture_output=True, text=True, env=environment)
    case = json.loads((runs / name / "results.json").read_text())["cases"][0]
    audit = case["audit"]
    row = {"code": ended.returncode, "cached": audit["cached"], "unique": audit["cached_unique"], "note": case["slo"][0]["note"] or ""}
    print(f"{name:16} {json.dumps(row)}", flush=True)
    return row


failures = []


def expect(what, holds):
    if not holds:
        failures.append(what)


def pair(prefix, metrics=""):
    first, second = run(f"{prefix}-1", 42, metrics), run(f"{prefix}-2", 42, metrics)
    expect(f"{prefix}: the first run is valid", first["code"] == 0)
    named = all(part in second["note"] for part in ["prefix cache", "seed 42", "`seed: run`"])
    expect(f"{prefix}: the second run is INVALID and names cache, seed and remedy", second["code"] == 4 and named)


server = serve("--enable-prompt-tokens-details")
try:
    pair("fixed")
    fresh = [run(f"fresh-{number}", "run") for number in (1, 2)]
    expect("fresh: both runs are valid", [row["code"] for row in fresh] == [0, 0])
    compared = subprocess.run([llmscen, "compare", runs / "fresh-1", runs / "fresh-2", "--format", "json"], capture_output=True, text=True)
    findings = [row["finding"] for row in json.loads(compared.stdout)["comparisons"]] if compared.stdout else []
    print("compare:", compared.returncode, sorted(findings), flush=True)
    expect("fresh: compare finds no change", findings and not {"regression", "worse", "better"} & {word.lower() for word in findings})
finally:
    stop(server)
server = serve()
try:
    pair("metrics", f", metrics: {{ url: http://127.0.0.1:{PORT}/metrics, interval: 500ms }}")
finally:
    stop(server)
for failure in failures:
    print("FAILED", failure)
sys.exit(bool(failures))
