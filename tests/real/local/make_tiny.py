#!/usr/bin/env python3
"""Writes tiny models with random weights, as transformers saves them: a Llama, a Qwen2 and a Qwen3, each with a byte-level BPE
tokenizer that is trained on the text below.

    pip install torch transformers
    make_tiny.py [FOLDER]          default: tests/local

Every weight, norms and biases too, is drawn, so that none can be left out unseen. The Llama has the rotary scaling of Llama 3.1, the
Qwen2 shares its embeddings with its head, the Qwen3 lies in several files.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

TEXT = """
A model reads its prompt at once and writes its reply a token at a time. The first token costs the whole prompt; each later one costs
a step. Whoever measures both apart sees where the time goes: long prompts are bound by arithmetic, short steps by memory. Keys and
values of what was read are kept, so that nothing is read twice. Where many rows are worked on together, the weights are read once
for all of them, and a step of eight costs hardly more than a step of one, until the arithmetic is bound too. Rows of different
lengths are padded, and what is padded must not be seen. A row in a batch says what it would say alone. One, two, three, four, five;
10, 20, 30; 1984, 2001 and 2026. What would you cook on a rainy evening? Soup, bread, and a story by the fire.
"""
CHAT = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
SIZES = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)


def tokenizer() -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        [TEXT], trainers.BpeTrainer(vocab_size=384, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    )
    inner.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])
    fast = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<|begin|>", eos_token="<|end|>")
    fast.chat_template = CHAT
    return fast


def drawn(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5)
            elif weight.dim() == 1:
                weight.normal_(0.0, 0.3)
            elif "embed" in name:
                weight.normal_(0.0, 1.0)
            else:
                weight.normal_(0.0, 1.5 * weight.shape[1] ** -0.5)
    return model.eval()


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "local"
    words = tokenizer()
    common = dict(SIZES, vocab_size=len(words), max_position_embeddings=512, bos_token_id=0, eos_token_id=1)
    three = dict(
        rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64
    )
    llama = LlamaConfig(**common, rope_parameters=three, rms_norm_eps=1e-5)
    qwen2 = Qwen2Config(**common, rope_parameters=dict(rope_type="default", rope_theta=1000000.0), tie_word_embeddings=True)
    qwen3 = Qwen3Config(**common, head_dim=16, rope_parameters=dict(rope_type="default", rope_theta=1000000.0))
    models = {
        "llama": (LlamaForCausalLM(llama), "1GB"),
        "qwen2": (Qwen2ForCausalLM(qwen2), "1GB"),
        "qwen3": (Qwen3ForCausalLM(qwen3), "60KB"),
    }
    for number, (name, (model, shard)) in enumerate(models.items()):
        drawn(model, number).save_pretrained(folder / name, max_shard_size=shard)
        words.save_pretrained(folder / name)
        bytes_ = sum(file.stat().st_size for file in (folder / name).iterdir())
        print(json.dumps({"model": name, "parameters": model.num_parameters(), "bytes": bytes_}))


if __name__ == "__main__":
    main()
