"""Compares the figures of llmscen and of `vllm bench serve` with the server's own counters and histograms over the same requests.

    against_server.py LLMSCEN HOME [vllm] [llama] [transformers]

HOME is the folder that install.sh filled. Each engine serves SmolLM2 and is started once. llmscen (the scenario that `llmscen import vllm` writes) and
`vllm bench serve` then send the same load, interleaved three times; the server's /metrics endpoint is read before and after each of them. The table is
Markdown on stdout. Exit code 1: llmscen disagrees with the server.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROUNDS, CONCURRENCY, INPUT, OUTPUT = 3, 4, 64, 32
# transformers answers one request after another.
REQUESTS = {"vllm": 40, "llama": 40, "transformers": 8}
# Means of client and server may differ by the network and the server's HTTP layer: this share and this many milliseconds.
SHARE, MILLIS = 0.05, 5.0

llmscen, home = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
gguf = f"{home}/smollm2.gguf"
runs = Path(home) / "runs"
environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "no_proxy": "127.0.0.1"}

SERVERS = {
    "vllm": (18011, f"{home}/bin/vllm serve {home}/smollm2 --served-model-name smollm2 --host 127.0.0.1 --port 18011 --max-model-len 2048 --dtype float32"
             " --enforce-eager --no-enable-prefix-caching"),
    "llama": (18012, f"{home}/bin/llama-server --model {gguf} --alias smollm2 --port 18012 --ctx-size 8192 --parallel 4 --threads 1 --metrics"),
    "transformers": (18013, f"{home}/bin/transformers serve smollm2 --host 127.0.0.1 --port 18013 --device cpu"),
}
# The server's names for what is compared: a counter, or a histogram of seconds.
PROMPT = {"vllm": "vllm:prompt_tokens_total", "llama": "llamacpp:prompt_tokens_total"}
GENERATED = {"vllm": "vllm:generation_tokens_total", "llama": "llamacpp:tokens_predicted_total"}
TTFT = {"vllm": "vllm:time_to_first_token_seconds"}
ITL = {"vllm": "vllm:inter_token_latency_seconds"}


def get(url):
    with urllib.request.urlopen(url, timeout=10) as reply:
        return reply.read().decode()


def scrape(port):
    """Sums of all series of each name; empty where the server has no metrics."""
    try:
        page = get(f"http://127.0.0.1:{port}/metrics")
    except OSError:
        return {}
    sums = {}
    for line in page.splitlines():
        if match := re.match(r"([a-zA-Z_:][\w:]*)(?:\{.*\})? (\S+)", line):
            sums[match[1]] = sums.get(match[1], 0.0) + float(match[2])
    return sums


def wait_until_ready(process, port):
    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"the server exited with {process.returncode}")
        try:
            return get(f"http://127.0.0.1:{port}/health")
        except OSError:
            time.sleep(0.5)
    sys.exit("the server was not ready after 300 s")


def flags(engine, port):
    out = ["--model", "smollm2", "--tokenizer", f"{home}/smollm2", "--base-url", f"http://127.0.0.1:{port}", "--dataset-name", "random"]
    out += ["--random-input-len", str(INPUT), "--random-output-len", str(OUTPUT), "--num-prompts", str(REQUESTS[engine]), "--max-concurrency", str(CONCURRENCY)]
    return [*out, "--ignore-eos"]


def run_llmscen(engine, port, turn):
    scenario, folder = runs / f"{engine}-{turn}.yaml", runs / f"{engine}-{turn}"
    imported = subprocess.run([llmscen, "import", "vllm", "--", "bench", "serve", *flags(engine, port), "--seed", str(turn)], capture_output=True, check=True)
    # transformers answers 422 to ignore_eos, which `vllm bench serve` always sends with this dataset: llmscen alone can measure it.
    text = imported.stdout.decode()
    scenario.write_text(text.replace("  ignore_eos: true\n", "") if engine == "transformers" else text)
    ended = subprocess.run([llmscen, "run", scenario, "--output", folder, "--force"], capture_output=True, env=environment)
    results = json.loads((folder / "results.json").read_text())
    case = results["cases"][0]
    metrics, counts = case["metrics"], case["counts"]
    total = lambda name: metrics[name]["mean"] * metrics[name]["n"] if metrics[name] else None
    mean = lambda name: metrics[name]["mean"] if metrics[name] else None
    row = {"ok": counts["ok"], "prompt": total("prompt_tokens"), "output": total("output_tokens"), "ttft": mean("ttft_ms"), "itl": mean("itl_ms")}
    row["code"] = ended.returncode
    row["tps"] = metrics["output_tps"]["value"] if isinstance(metrics["output_tps"], dict) else metrics["output_tps"]
    return row


def run_vllm_bench(engine, port, turn):
    out = runs / f"{engine}-bench-{turn}.json"
    command = [f"{home}/bin/vllm", "bench", "serve", *flags(engine, port), "--seed", str(100 + turn), "--disable-tqdm", "--ready-check-timeout-sec", "0"]
    ended = subprocess.run([*command, "--save-result", "--result-filename", str(out)], capture_output=True, env=environment)
    if ended.returncode:
        sys.exit(ended.stderr.decode()[-2000:])
    found = json.loads(out.read_text())
    row = {"ok": found["completed"], "prompt": found["total_input_tokens"], "output": found["total_output_tokens"]}
    return {**row, "ttft": found["mean_ttft_ms"], "itl": found["mean_itl_ms"], "tps": found["output_throughput"], "code": 0}


def server_row(engine, before, after):
    grown = lambda name: after[name] - before.get(name, 0.0) if name in after else None

    def mean(name):
        count = name and grown(f"{name}_count")
        return 1000 * grown(f"{name}_sum") / count if count else None

    return {
        "prompt": grown(PROMPT.get(engine)),
        "output": grown(GENERATED.get(engine)),
        "ttft": mean(TTFT.get(engine)),
        "itl": mean(ITL.get(engine)),
    }


def shown(value):
    return "n/a" if value is None else f"{value:.0f}" if float(value).is_integer() else f"{value:.2f}"


def agrees(mine, server, exact):
    if mine is None or server is None:
        return True
    return mine == server if exact else abs(mine - server) <= max(SHARE * server, MILLIS)


def measure(engine):
    port, command = SERVERS[engine]
    log = open(runs / f"{engine}.server.log", "wb")
    process = subprocess.Popen(command.split(), stdout=log, stderr=log, env=environment, cwd=home)
    good = True
    try:
        wait_until_ready(process, port)
        run_llmscen(engine, port, 0)  # warms the server up; not compared
        for turn in range(1, ROUNDS + 1):
            for name, tool in (("llmscen", run_llmscen), ("vllm bench", run_vllm_bench))[: 1 if engine == "transformers" else 2]:
                before = scrape(port)
                row = tool(engine, port, turn)
                time.sleep(1.0)  # some servers update their metrics at the next step
                server = server_row(engine, before, scrape(port))
                cells = [engine, str(turn), name, f"{row['ok']} of {REQUESTS[engine]}", str(REQUESTS[engine] * INPUT)]
                for key in ("prompt", "output", "ttft", "itl"):
                    cells += [shown(row[key]), shown(server[key])]
                print("|", " | ".join([*cells, shown(row["tps"])]), "|", flush=True)
                if name == "llmscen":
                    good &= row["ok"] == REQUESTS[engine]
                    good &= all(agrees(row[key], server[key], key in ("prompt", "output")) for key in ("prompt", "output", "ttft", "itl"))
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
    return good


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is stopped too
runs.mkdir(parents=True, exist_ok=True)
heads = ["engine", "turn", "client", "ok", "prompt tokens asked", "usage", "server", "output tokens", "server", "TTFT mean (ms)", "server", "ITL mean (ms)", "server"]
print("|", " | ".join([*heads, "output tok/s"]), "|")
print("|" + "--|" * (len(heads) + 1))
results = [measure(engine) for engine in sys.argv[3:] or SERVERS]
sys.exit(0 if all(results) else 1)
