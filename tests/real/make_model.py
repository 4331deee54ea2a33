#!/usr/bin/env python3
"""Writes a tiny Llama with random weights, as a Hugging Face folder and, if asked, as GGUF: the same weights for every engine.

    pip install numpy tokenizers safetensors gguf
    python3 tests/real/make_model.py OUT [--gguf] [--seed 42] [--hidden 128] [--layers 4] [--vocab 2048] [--context 2048]

The byte-level BPE tokenizer is trained on this project's own pages (README.md and docs/*.md). The rows of the output matrix that
belong to special tokens, and to tokens that are no UTF-8 by themselves, are zero: greedy decoding never picks them, so that no
answer ends before its limit, also where an engine does not know `ignore_eos`, and every token is text.
"""
import argparse
import json
import pathlib

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "tiny-llama"
BOS, START, END, PAD = SPECIAL = ["<|begin|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def arguments():
    parser = argparse.ArgumentParser(description="A tiny random Llama.")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--gguf", action="store_true", help="also OUT/model.gguf")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--context", type=int, default=2048)
    return parser.parse_args()


def tokenizer(vocab):
    """A byte-level BPE with GPT-2's way of splitting, which every engine knows."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    made.train([str(path) for path in text], trainer)
    return made


def config(args, vocab, eos):
    """Heads of 32: the smallest that vLLM's CPU attention takes; two query heads share each key head."""
    heads = args.hidden // 32
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": args.hidden,
        "intermediate_size": 3 * args.hidden,
        "num_hidden_layers": args.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "head_dim": 32,
        "hidden_act": "silu",
        "max_position_embeddings": args.context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": eos - 2,
        "eos_token_id": eos,
        "pad_token_id": eos + 1,
        "torch_dtype": "float32",
        "initializer_range": 0.02,
    }


def byte_of():
    """From a character of the vocabulary to the byte that it stands for."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + at): byte for at, byte in enumerate(others)}


def is_text(token, table):
    if token in SPECIAL:
        return False
    try:
        bytes(table[char] for char in token).decode()
    except UnicodeDecodeError:
        return False
    return True


def weights(shape, tokens, seed):
    """Drawn so that each layer keeps its input's scale, and that the logits' standard deviation is about 4."""
    rng = np.random.default_rng(seed)

    def drawn(rows, columns, scale=1.0):
        return (rng.standard_normal((rows, columns)) * scale / np.sqrt(columns)).astype(np.float32)

    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    queries, keys = shape["num_attention_heads"] * 32, shape["num_key_value_heads"] * 32
    ones = np.ones(hidden, dtype=np.float32)
    made = {"model.embed_tokens.weight": drawn(len(tokens), hidden, np.sqrt(hidden))}
    for layer in range(shape["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        made[f"{at}.input_layernorm.weight"] = ones.copy()
        made[f"{at}.self_attn.q_proj.weight"] = drawn(queries, hidden)
        made[f"{at}.self_attn.k_proj.weight"] = drawn(keys, hidden)
        made[f"{at}.self_attn.v_proj.weight"] = drawn(keys, hidden)
        made[f"{at}.self_attn.o_proj.weight"] = drawn(hidden, queries)
        made[f"{at}.post_attention_layernorm.weight"] = ones.copy()
        made[f"{at}.mlp.gate_proj.weight"] = drawn(inner, hidden)
        made[f"{at}.mlp.up_proj.weight"] = drawn(inner, hidden)
        made[f"{at}.mlp.down_proj.weight"] = drawn(hidden, inner)
    made["model.norm.weight"] = ones.copy()
    head = drawn(len(tokens), hidden, 4.0)
    table = byte_of()
    head[[at for at, token in enumerate(tokens) if not is_text(token, table)]] = 0
    made["lm_head.weight"] = head
    return made


def write_folder(out, made, shape, tensors):
    texts = {"bos_token": BOS, "eos_token": END, "pad_token": PAD}
    pages = {
        "config.json": shape,
        "generation_config.json": {key: shape[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
        "special_tokens_map.json": texts,
        "tokenizer_config.json": texts
        | {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": shape["max_position_embeddings"],
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE,
        },
    }
    for name, page in pages.items():
        (out / name).write_text(json.dumps(page, indent=2) + "\n")
    made.save(str(out / "tokenizer.json"))
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})


def paired(weight, heads):
    """Rotary pairs side by side, as llama.cpp has them, instead of half a head apart."""
    rows, columns = weight.shape
    return np.ascontiguousarray(weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns))


GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def gguf_tensor(name, weight, shape):
    name = name.removesuffix(".weight")
    if name.startswith("model.layers."):
        _, _, layer, part = name.split(".", 3)
        heads = {"self_attn.q_proj": "num_attention_heads", "self_attn.k_proj": "num_key_value_heads"}.get(part)
        return f"blk.{layer}.{GGUF_NAMES[part]}.weight", paired(weight, shape[heads]) if heads else weight
    return f"{GGUF_NAMES[name]}.weight", weight


def write_gguf(path, made, tokens, shape, tensors):
    import gguf

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name(NAME)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_block_count(shape["num_hidden_layers"])
    writer.add_context_length(shape["max_position_embeddings"])
    writer.add_embedding_length(shape["hidden_size"])
    writer.add_feed_forward_length(shape["intermediate_size"])
    writer.add_head_count(shape["num_attention_heads"])
    writer.add_head_count_kv(shape["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(shape["rms_norm_eps"])
    writer.add_rope_freq_base(shape["rope_theta"])
    writer.add_rope_dimension_count(shape["head_dim"])
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    kinds = gguf.TokenType
    writer.add_token_types([kinds.CONTROL if token in SPECIAL else kinds.NORMAL for token in tokens])
    merges = json.loads(made.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(shape["bos_token_id"])
    writer.add_eos_token_id(shape["eos_token_id"])
    writer.add_pad_token_id(shape["pad_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, weight in tensors.items():
        writer.add_tensor(*gguf_tensor(name, weight, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    args = arguments()
    if args.hidden % 64:
        raise SystemExit("--hidden must be a multiple of 64: heads of 32, two to a key head")
    args.out.mkdir(parents=True, exist_ok=True)
    made = tokenizer(args.vocab)
    tokens = [made.id_to_token(at) for at in range(made.get_vocab_size())]
    shape = config(args, len(tokens), tokens.index(END))
    tensors = weights(shape, tokens, args.seed)
    write_folder(args.out, made, shape, tensors)
    if args.gguf:
        write_gguf(args.out / "model.gguf", made, tokens, shape, tensors)
    for path in sorted(args.out.iterdir()):
        print(f"{path.stat().st_size:>10} {path}")


if __name__ == "__main__":
    main()
