#!/usr/bin/env python3
"""Runs a small plan that tells a real MLflow server and the real wandb client, and reads both back.

    python3 -m venv v && v/bin/pip install mlflow wandb && v/bin/python tests/real/trackers.py target/debug/llmscen

Everything stays on loopback and in a temporary folder; wandb is offline.
"""
import csv
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

PLAN = """
version: 1
name: tracked
target: {{ url: simulator, model: m }}
dataset: {{ kind: prompt, text: hi }}
request: {{ max_tokens: 8 }}
load: {{ concurrency: 1, requests: 20 }}
matrix: {{ load.concurrency: [1, 2] }}
audit: {{ lag_p99: 1h, stall_p99: 1h, cpu: 1, achieved: 0 }}
report:
  track:
    mlflow: {{ url: "http://127.0.0.1:{port}", tags: {{ team: infra }} }}
    wandb: {{ project: serving, mode: offline, python: "{python}", tags: [nightly] }}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(url):
    for _ in range(240):
        try:
            return urllib.request.urlopen(url, timeout=1).read()
        except OSError:
            time.sleep(0.5)
    sys.exit("the MLflow server did not come up")


def main(binary):
    import mlflow

    binary, port = str(pathlib.Path(binary).resolve()), free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{folder}/m.db", "--artifacts-destination", f"{folder}/artifacts"]
        server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            wait_for(f"http://127.0.0.1:{port}/health")
            pathlib.Path(folder, "plan.yaml").write_text(PLAN.format(port=port, python=sys.executable))
            ran = subprocess.run([binary, "run", "plan.yaml", "--output", "out"], cwd=folder, capture_output=True, text=True)
            assert ran.returncode == 0 and ran.stderr.count("tracked:") == 2, ran.stderr
            check_mlflow(mlflow, port, pathlib.Path(folder, "out"))
            kept = sorted(pathlib.Path(folder, "out", "wandb").glob("offline-run-*/run-*.wandb"))
            assert len(kept) == 3, kept
        finally:
            os.killpg(server.pid, 15)
            server.wait()
    print("MLflow has the metrics, parameters and files of the run; wandb keeps three offline runs.")


def check_mlflow(mlflow, port, out):
    client = mlflow.MlflowClient(f"http://127.0.0.1:{port}")
    runs = client.search_runs([client.get_experiment_by_name("tracked").experiment_id])
    cases = {run.data.params["case"]: run for run in runs if "case" in run.data.params}
    (whole,) = [run for run in runs if "case" not in run.data.params]
    rows = list(csv.DictReader(open(out / "cases.csv")))
    assert len(rows) == len(cases) == 2 and all(run.info.status == "FINISHED" for run in runs)
    for row in rows:
        run = cases[row["case"]]
        assert run.data.tags["mlflow.parentRunId"] == whole.info.run_id
        for name in ("ttft_ms_p50", "ttft_ms_p99.9", "e2e_ms_mean", "output_tps"):
            assert run.data.metrics[name] == float(row[name]), name
    verdict = json.load(open(out / "results.json"))["verdict"]
    assert whole.data.tags["llmscen.verdict"] == verdict
    files = {file.path for file in client.list_artifacts(whole.info.run_id)}
    assert {"report.md", "results.json", "charts"} <= files and "requests.parquet" not in files, files


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "target/debug/llmscen")
