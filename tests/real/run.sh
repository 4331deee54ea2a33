#!/usr/bin/env bash
# Runs the same plan against real engines and compares them: tests/real/run.sh LLMSCEN HOME ENGINE ENGINE…
# ENGINE: vllm, llama, transformers. HOME: what install.sh filled. The runs and the comparison lie in HOME/runs.
set -euo pipefail
[ $# -ge 4 ] || { echo "usage: run.sh LLMSCEN HOME ENGINE ENGINE..." >&2; exit 2; }
llmscen=$(realpath "$1")
export REAL_HOME=$(realpath "$2")
shift 2
here=$(cd "$(dirname "$0")" && pwd)
export PATH="$REAL_HOME/bin:$PATH" no_proxy=127.0.0.1
mkdir -p "$REAL_HOME/runs"
runs=()
for engine in "$@"; do
    code=0
    "$llmscen" run "$here/$engine.yaml" --output "$REAL_HOME/runs/$engine" --force || code=$?
    echo "$engine: exit code $code" >&2
    runs+=("$REAL_HOME/runs/$engine")
done
"$llmscen" compare "${runs[@]}" --output "$REAL_HOME/runs/compare"
