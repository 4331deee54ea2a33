//! Loading, and the device.

use crate::error::LocalError;
use crate::model::config::Config;
use crate::model::gguf::Gguf;
use crate::model::network::Network;
use crate::model::rope::Rope;
use crate::model::safetensors::Folder;
use crate::model::weights::RandomWeights;
use crate::model::weights::{LoadTally, timed};
use crate::model::{Model, config, gguf};
use candle_core::{DType, Device};
use llmscen_core::bounds;
use llmscen_core::local::{self, Dtype, Loaded, Local};
use llmscen_core::seed::Seed;
use llmscen_datasets::token::{TemplateSource, Tokenizer};
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::Value;
use std::io::ErrorKind;
use std::path::Path;

/// What was loaded, before it is a model.
struct Parts {
    config: Config,
    network: Network,
    tokenizer: Tokenizer,
    tally: LoadTally,
    /// What it computes in.
    numbers: String,
    /// What a reader of the report must know.
    notes: Vec<String>,
}

/// Whether the model at `path` can be computed with, by its config.json or the metadata of its GGUF file.
///
/// # Errors
/// Names the file, the key and what about it is not supported.
pub fn check(path: &Path) -> Result<(), LocalError> {
    if path.is_dir() {
        read_config(&path.join("config.json")).map(drop)
    } else {
        gguf::Header::open(path, &mut LoadTally::default())?.config().map(drop)
    }
}

fn read_config(file: &Path) -> Result<Config, LocalError> {
    let text = bounds::read_text(file, bounds::CONFIG).map_err(|source| LocalError::Read { path: file.to_owned(), source })?;
    Config::read(file, &text)
}

/// Loads a model.
pub fn load(name: &str, spec: &Local, seed: Seed) -> Result<(Model, Loaded), LocalError> {
    let device = device(spec)?;
    let pool = pool(spec)?;
    let path = Path::new(name);
    let parts = pool.install(|| {
        if name.starts_with(config::PREFIX) {
            drawn(name, spec, seed, device)
        } else if path.is_dir() {
            folder(path, spec, device)
        } else if path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf")) {
            file(path, spec, device)
        } else {
            Err(LocalError::NotThere { name: name.to_owned() })
        }
    })?;
    let Parts { config, network, tokenizer, tally, numbers, notes } = parts;
    let quantised = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf")) && !path.is_dir();
    let loaded = Loaded {
        model: name.to_owned(),
        architecture: config.architecture.to_owned(),
        parameters: tally.parameters,
        dtype: numbers,
        device: words(spec, &pool, quantised),
        read: tally.read.into(),
        convert: tally.convert.into(),
        place: tally.place.into(),
        weight_bytes: tally.bytes,
        attention: network.attention(),
        notes,
    };
    let rope = Rope::new(&config, &network.device)?;
    let Config { eos, limit, vocabulary, intermediate, .. } = config;
    Ok((Model { network, rope, cache: None, tokenizer, eos, limit, vocabulary, intermediate, pool }, loaded))
}

fn drawn(name: &str, spec: &Local, seed: Seed, device: Device) -> Result<Parts, LocalError> {
    if name != "random:tiny" {
        return Err(LocalError::Random { name: name.to_owned() });
    }
    let tokenizer = Tokenizer::builtin();
    let config = config::tiny(tokenizer.vocabulary());
    let dtype = dtype(spec.dtype, None);
    let mut weights = RandomWeights::new(seed, dtype, device);
    let network = Network::load(&config, &mut weights, false)?;
    Ok(Parts { config, network, tokenizer, tally: weights.tally, numbers: dtype.as_str().to_owned(), notes: Vec::new() })
}

fn folder(path: &Path, spec: &Local, device: Device) -> Result<Parts, LocalError> {
    let file = path.join("config.json");
    let mut tally = LoadTally::default();
    let config = timed(&mut tally.read, || {
        let mut config = read_config(&file)?;
        let more = generation(path)?;
        config.eos.extend(more);
        Ok::<_, LocalError>(config)
    })?;
    let tokenizer = timed(&mut tally.read, || Tokenizer::load(path))?;
    let dtype = dtype(spec.dtype, config.dtype.as_deref());
    let mut weights = Folder::open(path, dtype, device)?;
    let network = Network::load(&config, &mut weights, false)?;
    weights.finish(config.tied)?;
    let read = tally.read + weights.tally.read;
    let tally = LoadTally { read, ..weights.tally };
    Ok(Parts { config, network, tokenizer, tally, numbers: dtype.as_str().to_owned(), notes: Vec::new() })
}

/// The tokens that end a text by generation_config.json, which is where chat models name theirs.
fn generation(folder: &Path) -> Result<Vec<u32>, LocalError> {
    let path = folder.join("generation_config.json");
    match bounds::read_text(&path, bounds::CONFIG) {
        Ok(text) => {
            let value: Value = serde_json::from_str(&text)
                .map_err(|error| LocalError::Malformed { path: path.clone(), reason: error.to_string() })?;
            Ok(config::ids(value.get("eos_token_id")))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(LocalError::Read { path, source }),
    }
}

fn file(path: &Path, spec: &Local, device: Device) -> Result<Parts, LocalError> {
    if !matches!(spec.dtype, Dtype::Auto | Dtype::F32) {
        let reason = "computes in f32 on the numbers of its file; leave `dtype` out".to_owned();
        return Err(LocalError::Key { path: path.to_owned(), key: "dtype".into(), reason });
    }
    let mut tally = LoadTally::default();
    let mut header = gguf::Header::open(path, &mut tally)?;
    let config = header.config()?;
    let (tokenizer, template) = timed(&mut tally.read, || header.tokenizer())?;
    // The converter of Llama's weights puts the pairs that turn together side by side; those of the others stay apart.
    let neighbours = config.architecture == "llama";
    let mut weights = Gguf::new(path, header.file, header.content, device, tally);
    let network = Network::load(&config, &mut weights, neighbours)?;
    let numbers = weights.kind();
    let notes = vec![template_note(path, &template)];
    Ok(Parts { config, network, tokenizer, tally: weights.tally, numbers, notes })
}

fn template_note(path: &Path, source: &TemplateSource) -> String {
    let model = path.file_name().unwrap_or_default().to_string_lossy();
    match source {
        TemplateSource::Gguf => format!("`{model}`: the chat template is the one in the GGUF file"),
        TemplateSource::File(file) => {
            format!("`{model}`: the GGUF file has no chat template; the one in {} is used", file.display())
        }
        TemplateSource::None => format!("`{model}`: no chat template; a prompt is the contents of its messages, a line each"),
    }
}

/// The numbers to compute in: those asked for, or those that the configuration names.
fn dtype(asked: Dtype, named: Option<&str>) -> DType {
    match (asked, named) {
        (Dtype::F16, _) | (Dtype::Auto, Some("float16")) => DType::F16,
        (Dtype::Bf16, _) | (Dtype::Auto, Some("bfloat16")) => DType::BF16,
        _ => DType::F32,
    }
}

/// The threads that a model works on. The library shares out its quantised products, and what it does with very large tensors
/// number by number, among threads of its own, one for each core, whatever is asked for here.
fn pool(spec: &Local) -> Result<ThreadPool, LocalError> {
    // None: one for each core, which is what the builder takes 0 for.
    let threads = spec.threads.unwrap_or(0) as usize;
    let failed = |error: rayon::ThreadPoolBuildError| LocalError::Device {
        device: "cpu".into(),
        reason: format!("its threads cannot be started: {error}"),
    };
    ThreadPoolBuilder::new().num_threads(threads).thread_name(|at| format!("model-{at}")).build().map_err(failed)
}

fn device(spec: &Local) -> Result<Device, LocalError> {
    let index = spec.index as usize;
    let (device, built, name) = match spec.device {
        local::Device::Cpu => return Ok(Device::Cpu),
        local::Device::Cuda => (Device::new_cuda(index), cfg!(feature = "cuda"), "cuda"),
        local::Device::Metal => (Device::new_metal(index), cfg!(feature = "metal"), "metal"),
    };
    device.map_err(|error| LocalError::Device {
        device: format!("{name}:{index}"),
        reason: match built {
            true => error.to_string(),
            false => format!("this build has no {name}; build with `--features {name}`, or take `device: cpu`"),
        },
    })
}

/// What it runs on; of quantised numbers, whose products are the library's to share out, no number of threads is claimed.
fn words(spec: &Local, pool: &ThreadPool, quantised: bool) -> String {
    match (spec.device, pool.current_num_threads()) {
        (local::Device::Cpu, _) if quantised => "cpu (quantised products on every core)".to_owned(),
        (local::Device::Cpu, 1) => "cpu (1 thread)".to_owned(),
        (local::Device::Cpu, threads) => format!("cpu ({threads} threads)"),
        (local::Device::Cuda, _) => format!("cuda:{}", spec.index),
        (local::Device::Metal, _) => format!("metal:{}", spec.index),
    }
}

/// Bytes in use on the device; None on the processor, or where it does not tell.
pub fn device_memory(device: &Device) -> Option<u64> {
    // CUDA answers for the thread's own context; waiting for the device makes that the device's.
    device.synchronize().ok()?;
    #[cfg(feature = "cuda")]
    if device.is_cuda() {
        let (free, total) = candle_core::cuda_backend::cudarc::driver::result::mem_get_info().ok()?;
        return Some(total.saturating_sub(free) as u64);
    }
    #[cfg(feature = "metal")]
    if let Device::Metal(metal) = device {
        return Some(metal.current_allocated_size() as u64);
    }
    None
}
