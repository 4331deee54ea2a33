//! The same weights from each kind of file.

use super::*;
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Tensor};
use llmscen_core::local::{Device, Dtype};
use std::collections::HashMap;
use std::path::Path;

const LOCAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/local");

fn folder(name: &str) -> String {
    format!("{LOCAL}/{name}")
}

fn weights(name: &str) -> HashMap<String, Tensor> {
    let files = std::fs::read_dir(folder(name))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "safetensors"));
    files
        .flat_map(|path| candle_core::safetensors::load(path, &candle_core::Device::Cpu).unwrap())
        .collect()
}

/// What llama.cpp's converter does to the queries and keys of a Llama: pairs half a head apart become neighbours.
fn side_by_side(weight: &Tensor, heads: usize) -> Tensor {
    let (rows, columns) = weight.dims2().unwrap();
    let apart = weight
        .reshape((heads, 2, rows / heads / 2, columns))
        .unwrap();
    apart
        .transpose(1, 2)
        .unwrap()
        .contiguous()
        .unwrap()
        .reshape((rows, columns))
        .unwrap()
}

fn translated(name: &str) -> String {
    let parts = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers", "blk"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
    ];
    parts.iter().fold(name.to_owned(), |name, (theirs, own)| {
        name.replace(theirs, own)
    })
}

fn metadata(name: &str) -> Vec<(String, Value)> {
    let read = |file: &str| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(format!("{}/{file}", folder(name))).unwrap())
            .unwrap()
    };
    let (config, words) = (read("config.json"), read("tokenizer.json"));
    let count = |key: &str| Value::U32(config[key].as_u64().unwrap() as u32);
    let text = |text: &str| Value::String(text.to_owned());
    let mut tokens: Vec<(u64, String)> = words["model"]["vocab"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(token, id)| (id.as_u64().unwrap(), token.clone()))
        .collect();
    tokens.sort();
    let merges = words["model"]["merges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| {
            text(&format!(
                "{} {}",
                pair[0].as_str().unwrap(),
                pair[1].as_str().unwrap()
            ))
        });
    let types = (0..tokens.len())
        .map(|id| Value::I32(if id < 5 { 3 } else { 1 }))
        .collect();
    let template =
        std::fs::read_to_string(format!("{}/chat_template.jinja", folder(name))).unwrap();
    let own = [
        ("embedding_length", count("hidden_size")),
        ("feed_forward_length", count("intermediate_size")),
        ("block_count", count("num_hidden_layers")),
        ("attention.head_count", count("num_attention_heads")),
        ("attention.head_count_kv", count("num_key_value_heads")),
        ("context_length", count("max_position_embeddings")),
        (
            "attention.layer_norm_rms_epsilon",
            Value::F32(config["rms_norm_eps"].as_f64().unwrap() as f32),
        ),
        (
            "rope.freq_base",
            Value::F32(config["rope_parameters"]["rope_theta"].as_f64().unwrap() as f32),
        ),
    ];
    let own = own
        .into_iter()
        .map(|(key, value)| (format!("{name}.{key}"), value));
    let head = config["head_dim"].as_u64().map(|width| {
        (
            format!("{name}.attention.key_length"),
            Value::U32(width as u32),
        )
    });
    let shared = [
        ("general.architecture", text(name)),
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("gpt-2")),
        (
            "tokenizer.ggml.tokens",
            Value::Array(tokens.iter().map(|(_, token)| text(token)).collect()),
        ),
        ("tokenizer.ggml.merges", Value::Array(merges.collect())),
        ("tokenizer.ggml.token_type", Value::Array(types)),
        ("tokenizer.ggml.bos_token_id", Value::U32(0)),
        ("tokenizer.ggml.eos_token_id", Value::U32(1)),
        ("tokenizer.ggml.add_bos_token", Value::Bool(true)),
        ("tokenizer.chat_template", text(&template)),
    ];
    shared
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .chain(own)
        .chain(head)
        .collect()
}

/// Writes a model of the repository as a GGUF file, its matrices in these blocks.
fn gguf(name: &str, path: &Path, kind: GgmlDType) {
    let mut tensors: Vec<(String, QTensor)> = Vec::new();
    for (key, tensor) in weights(name) {
        let turned =
            name == "llama" && (key.contains("q_proj.weight") || key.contains("k_proj.weight"));
        let heads = if key.contains("q_proj") { 4 } else { 2 };
        let tensor = if turned {
            side_by_side(&tensor, heads)
        } else {
            tensor
        };
        let kind = if tensor.rank() == 2 && tensor.dim(1).unwrap().is_multiple_of(32) {
            kind
        } else {
            GgmlDType::F32
        };
        tensors.push((translated(&key), QTensor::quantize(&tensor, kind).unwrap()));
    }
    if name == "llama" {
        // The scaling of its configuration, as the converter writes it: waves of 1, 27, 707 and 18803 positions over
        // TAU, of which those up to 16 stay, those from 64 on are divided by 8, none is between.
        let factors = Tensor::new(&[1.0f32, 8.0, 8.0, 8.0], &candle_core::Device::Cpu).unwrap();
        tensors.push((
            "rope_freqs.weight".into(),
            QTensor::quantize(&factors, GgmlDType::F32).unwrap(),
        ));
    }
    let metadata = metadata(name);
    let metadata: Vec<(&str, &Value)> = metadata
        .iter()
        .map(|(key, value)| (key.as_str(), value))
        .collect();
    let tensors: Vec<(&str, &QTensor)> = tensors
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor))
        .collect();
    gguf_file::write(
        &mut std::fs::File::create(path).unwrap(),
        &metadata,
        &tensors,
    )
    .unwrap();
}

fn said(model: &mut Model, text: &str) -> RowOutput {
    let params = GenerationParams {
        ignore_eos: true,
        logits: true,
        ..greedy(model.encode(text, true).unwrap(), 32)
    };
    work(model, &[params]).remove(0)
}

#[test]
fn a_gguf_file_says_what_its_folder_says() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["llama", "qwen2", "qwen3"] {
        let text = "One, two, and a story <|user|> in 1984";
        let (mut dense, of_folder) = Model::load(&folder(name), &local(), Seed(0)).unwrap();
        let truth = said(&mut dense, text);
        for (kind, tolerance) in [
            (GgmlDType::F32, 0.0),
            (GgmlDType::Q8_0, 0.05),
            (GgmlDType::Q5_0, 0.5),
            (GgmlDType::Q5_1, 0.5),
            (GgmlDType::Q4_1, 0.5),
        ] {
            let path = dir.path().join(format!("{name}.gguf"));
            gguf(name, &path, kind);
            let (mut model, loaded) =
                Model::load(path.to_str().unwrap(), &local(), Seed(0)).unwrap();
            assert_eq!(
                (loaded.architecture.as_str(), loaded.parameters),
                (name, of_folder.parameters)
            );
            assert_eq!(
                (model.limit, &model.eos, model.tokenizer.vocabulary()),
                (512, &vec![1], 384)
            );
            let messages = serde_json::json!([{ "role": "user", "content": "hi" }]);
            assert_eq!(
                model.chat(&messages).unwrap(),
                dense.chat(&messages).unwrap()
            );
            let output = said(&mut model, text);
            let (own, truth_logits) = (
                output.logits.as_ref().unwrap(),
                truth.logits.as_ref().unwrap(),
            );
            let width = model.vocabulary();
            let off = own[..width]
                .iter()
                .zip(&truth_logits[..width])
                .fold(0f32, |most, (a, b)| most.max((a - b).abs()));
            let largest = truth_logits[..width]
                .iter()
                .fold(0f32, |most, logit| most.max(logit.abs()));
            if kind == GgmlDType::F32 {
                assert_eq!(
                    (output.tokens, loaded.dtype.as_str()),
                    (truth.tokens.clone(), "f32"),
                    "{name}"
                );
                assert!(off < 1e-4 * largest, "{name}: {off}");
            } else {
                assert_eq!(
                    loaded.dtype,
                    format!("{kind:?}").to_lowercase(),
                    "the type in the file, whatever it is brought to"
                );
                assert!(loaded.weight_bytes < of_folder.weight_bytes / 2);
                assert!(
                    off > 0.0 && off < tolerance * largest,
                    "{name} {kind:?}: {off} of {largest}"
                );
            }
            let note = format!("`{name}.gguf`: the chat template of the GGUF file is used");
            assert_eq!(loaded.notes, [note]);
        }
    }
}

#[test]
fn half_the_bits_say_nearly_the_same() {
    let text = "One, two, and a story in 1984";
    let (mut whole, _) = Model::load(&folder("qwen3"), &local(), Seed(0)).unwrap();
    let truth = said(&mut whole, text).logits.unwrap();
    for (dtype, name, tolerance) in [(Dtype::F16, "f16", 0.02), (Dtype::Bf16, "bf16", 0.1)] {
        let (mut model, loaded) =
            Model::load(&folder("qwen3"), &Local { dtype, ..local() }, Seed(0)).unwrap();
        assert_eq!(
            (loaded.dtype.as_str(), loaded.weight_bytes),
            (name, loaded.parameters * 2)
        );
        let params = [
            greedy(model.encode(text, true).unwrap(), 4),
            greedy(prompt(3, 0).iter().map(|id| id % 384).collect(), 4),
        ];
        assert_eq!(
            work(&mut model, &params)
                .iter()
                .map(|row| row.tokens.len())
                .collect::<Vec<_>>(),
            [4, 4]
        );
        let own = said(&mut model, text).logits.unwrap();
        let width = model.vocabulary();
        let off = own[..width]
            .iter()
            .zip(&truth[..width])
            .fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        let largest = truth[..width]
            .iter()
            .fold(0f32, |most, logit| most.max(logit.abs()));
        assert!(
            off > 0.0 && off < tolerance * largest,
            "{name}: {off} of {largest}"
        );
    }
}

#[test]
fn a_seed_is_a_model() {
    let of = |seed: u64| {
        let (mut model, loaded) = Model::load("random:tiny", &local(), Seed(seed)).unwrap();
        (
            work(&mut model, &[greedy(prompt(8, 0), 8)])
                .remove(0)
                .tokens,
            loaded,
        )
    };
    let ((a, loaded), (b, _), (c, _)) = (of(1), of(1), of(2));
    assert_eq!(a, b);
    assert_ne!(a, c);
    assert_eq!(
        loaded.parameters,
        2 * 8192 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 192 + 2 * 64) + 64
    );
    assert_eq!(
        (loaded.weight_bytes, loaded.device.as_str()),
        (loaded.parameters * 4, "cpu (1 thread)")
    );
    assert_eq!(
        (loaded.model.as_str(), loaded.architecture.as_str()),
        ("random:tiny", "llama")
    );
}

#[test]
fn loading_errors_name_the_file_and_the_reason() {
    let text = |name: &str, spec: Local| Model::load(name, &spec, Seed(0)).unwrap_err().to_string();
    assert!(text("nowhere/at/all", local()).starts_with(
        "model `nowhere/at/all` not found; set `target.model` to a Hugging Face folder"
    ));
    assert_eq!(
        text("random:huge", local()),
        "unknown random model `random:huge`; use `random:tiny`"
    );
    if !cfg!(feature = "cuda") {
        assert_eq!(
            text(
                "random:tiny",
                Local {
                    device: Device::Cuda,
                    ..local()
                }
            ),
            "device cuda:0 is not available: this build has no cuda; build with `--features \
            cuda`, or set `device: cpu`"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().to_str().unwrap();
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        assert!(
            text(own, local()).contains(&format!("{own}/{file}")) || file == "tokenizer.json",
            "{}",
            text(own, local())
        );
        std::fs::copy(format!("{}/{file}", folder("llama")), dir.path().join(file)).unwrap();
    }
    let mut more = candle_core::safetensors::load(
        dir.path().join("model.safetensors"),
        &candle_core::Device::Cpu,
    )
    .unwrap();
    more.insert(
        "model.layers.0.self_attn.q_proj.bias".into(),
        Tensor::zeros(32, DType::F32, &candle_core::Device::Cpu).unwrap(),
    );
    candle_core::safetensors::save(&more, dir.path().join("model.safetensors")).unwrap();
    let extra = text(own, local());
    assert!(extra.ends_with(
        "the tensor `model.layers.0.self_attn.q_proj.bias` is not part of the \
        model that config.json describes"
    ));
    more.remove("lm_head.weight");
    candle_core::safetensors::save(&more, dir.path().join("model.safetensors")).unwrap();
    assert!(text(own, local()).ends_with("the tensor `lm_head.weight` is missing"));
    std::fs::write(dir.path().join("m.gguf"), "no").unwrap();
    assert!(text(&format!("{own}/m.gguf"), local()).contains("m.gguf: not a GGUF file"));
}
