//! Decoding in this process beside the plain loop of the same library.
//!
//! `cargo bench --features plain-loop --bench local`: one set of weights, written to a folder, is loaded by the engine and by
//! candle-transformers' Llama. Both decode greedily from the same prompt, turn by turn, so that what else the machine does falls on
//! both; each is timed from its first token to its last. Prints the medians, and the ratio that must be 0.9 at least.

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama, LlamaConfig};
use llmscen_core::local::Local;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_local::generation_params::GenerationParams;
use llmscen_local::model::Model;
use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

/// Of the prompt, and decoded.
const TOKENS: (usize, usize) = (128, 256);
const TURNS: usize = 15;
/// The sizes of `random:tiny`: vocabulary, hidden, inner, layers, heads, heads of keys and values.
const SIZES: [usize; 6] = [8192, 64, 192, 2, 4, 2];

fn main() {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path());
    let prompt: Vec<u32> = (0..TOKENS.0 as u32).map(|at| at * 7919 % 8192).collect();
    let name = dir.path().display().to_string();
    let (mut model, loaded) =
        Model::load(&name, &Local::default(), Seed(0)).expect("the engine loads it");
    let (llama, config) = plain(dir.path());
    let ask = GenerationParams {
        prompt: prompt.clone(),
        max_tokens: TOKENS.1 as u64,
        ignore_eos: true,
        ..GenerationParams::default()
    };
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        let (tokens, rate) = engine(&mut model, &ask);
        let (other, plain) = looped(&llama, &config, &prompt);
        assert_eq!(tokens, other, "both decode the same tokens");
        // The first turn warms both up.
        if turn > 0 {
            own.push(rate);
            theirs.push(plain);
        }
    }
    let (own, theirs) = (median(own), median(theirs));
    println!(
        "{} parameters in {}, {}, {} tokens after {}",
        loaded.parameters, loaded.dtype, loaded.device, TOKENS.1, TOKENS.0
    );
    println!("engine      {own:9.1} tokens/s");
    println!("plain loop  {theirs:9.1} tokens/s");
    println!("ratio       {:9.3}", own / theirs);
}

fn engine(model: &mut Model, ask: &GenerationParams) -> (Vec<u32>, f64) {
    let start = Instant::now();
    let clock = || Nanos::from(start.elapsed());
    let mut worked = model
        .work(std::slice::from_ref(ask), &clock, &|_| true)
        .expect("the engine works");
    let end = worked.steps.last().copied().expect("steps");
    let rate = worked.steps.len() as f64 / end.since(worked.prefilled).secs();
    (worked.rows.remove(0).tokens, rate)
}

fn looped(llama: &Llama, config: &Config, prompt: &[u32]) -> (Vec<u32>, f64) {
    let device = Device::Cpu;
    let mut cache = Cache::new(true, DType::F32, config, &device).expect("a cache");
    let mut next = |tokens: &[u32], at: usize| -> candle_core::Result<u32> {
        let input = Tensor::new(tokens, &device)?.unsqueeze(0)?;
        llama
            .forward(&input, at, &mut cache)?
            .squeeze(0)?
            .argmax(0)?
            .to_scalar::<u32>()
    };
    let mut tokens = vec![next(prompt, 0).expect("the first token")];
    let start = Instant::now();
    for step in 1..TOKENS.1 {
        let last = tokens[step - 1];
        tokens.push(next(&[last], prompt.len() + step - 1).expect("a token"));
    }
    let rate = (TOKENS.1 - 1) as f64 / start.elapsed().as_secs_f64();
    (tokens, rate)
}

fn plain(folder: &Path) -> (Llama, Config) {
    let text = std::fs::read_to_string(folder.join("config.json")).expect("config.json");
    let config: LlamaConfig = serde_json::from_str(&text).expect("a configuration");
    let config = config.into_config(false);
    let tensors = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu)
        .expect("weights");
    let weights = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
    (
        Llama::load(weights, &config).expect("the library loads it"),
        config,
    )
}

fn write(folder: &Path) {
    let [vocabulary, hidden, inner, layers, heads, kv_heads] = SIZES;
    let kv = hidden / heads * kv_heads;
    let drawn = |rows: usize, columns: usize, scale: f64| {
        Tensor::randn(0f32, 1.0, (rows, columns), &Device::Cpu)
            .and_then(|drawn| drawn * scale)
            .expect("weights")
    };
    let ones = || Tensor::ones(hidden, DType::F32, &Device::Cpu).expect("ones");
    let mut all = HashMap::from([
        (
            "model.embed_tokens.weight".to_owned(),
            drawn(vocabulary, hidden, 1.0),
        ),
        ("lm_head.weight".to_owned(), drawn(vocabulary, hidden, 0.2)),
        ("model.norm.weight".to_owned(), ones()),
    ]);
    for layer in 0..layers {
        let shapes = [
            ("self_attn.q_proj", hidden, hidden),
            ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, hidden),
            ("mlp.gate_proj", inner, hidden),
            ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
        ];
        for (name, rows, columns) in shapes {
            all.insert(
                format!("model.layers.{layer}.{name}.weight"),
                drawn(rows, columns, (columns as f64).powf(-0.5)),
            );
        }
        for name in ["input_layernorm", "post_attention_layernorm"] {
            all.insert(format!("model.layers.{layer}.{name}.weight"), ones());
        }
    }
    candle_core::safetensors::save(&all, folder.join("model.safetensors")).expect("a file");
    let config = serde_json::json!({
        "model_type": "llama", "hidden_act": "silu", "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 2048, "tie_word_embeddings": false,
    });
    std::fs::write(folder.join("config.json"), config.to_string()).expect("a file");
    // The bench decodes ids; a vocabulary of one word is enough of a tokenizer.
    let words = serde_json::json!({ "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null, "model": { "type": "WordLevel", "vocab": { "?": 0 }, "unk_token": "?" } });
    std::fs::write(folder.join("tokenizer.json"), words.to_string()).expect("a file");
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
