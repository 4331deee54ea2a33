//! Loading of models, and devices.

use crate::error::LocalError;
use crate::model::config::Config;
use crate::model::gguf::Gguf;
use crate::model::network::Network;
use crate::model::rope::Rope;
use crate::model::safetensors::Folder;
use crate::model::weights::{LoadTally, RandomWeights, timed};
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

/// The loaded parts of a model.
struct Parts {
    config: Config,
    network: Network,
    tokenizer: Tokenizer,
    tally: LoadTally,
    /// Compute dtype or block format, for the report.
    dtype: String,
    /// Notes for the report.
    notes: Vec<String>,
}

/// Checks the config.json or the GGUF metadata of the model at `path`.
///
/// # Errors
/// The model is not supported.
pub fn check(path: &Path) -> Result<(), LocalError> {
    if path.is_dir() {
        read_config(&path.join("config.json")).map(drop)
    } else {
        gguf::Header::open(path, &mut LoadTally::default())?
            .config()
            .map(drop)
    }
}

fn read_config(file: &Path) -> Result<Config, LocalError> {
    let text = bounds::read_text(file, bounds::CONFIG).map_err(|source| LocalError::Read {
        path: file.to_owned(),
        source,
    })?;
    Config::read(file, &text)
}

/// Loads a model.
pub fn load(name: &str, spec: &Local, seed: Seed) -> Result<(Model, Loaded), LocalError> {
    let device = open_device(spec)?;
    let pool = start_pool(spec)?;
    let path = Path::new(name);
    let parts = pool.install(|| {
        if name.starts_with(config::PREFIX) {
            load_random(name, spec, seed, device)
        } else if path.is_dir() {
            load_folder(path, spec, device)
        } else if path
            .extension()
            .is_some_and(|end| end.eq_ignore_ascii_case("gguf"))
        {
            load_gguf(path, spec, device)
        } else {
            Err(LocalError::NotThere {
                name: name.to_owned(),
            })
        }
    })?;
    let Parts {
        config,
        network,
        tokenizer,
        tally,
        dtype,
        notes,
    } = parts;
    let quantized = path
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("gguf"))
        && !path.is_dir();
    let loaded = Loaded {
        model: name.to_owned(),
        architecture: config.architecture.to_owned(),
        parameters: tally.parameters,
        dtype,
        device: describe_device(spec, &pool, quantized),
        read: tally.read.into(),
        convert: tally.convert.into(),
        place: tally.place.into(),
        weight_bytes: tally.bytes,
        attention: network.attention(),
        notes,
    };
    let rope = Rope::new(&config, &network.device)?;
    let Config {
        eos,
        limit,
        vocabulary,
        intermediate,
        ..
    } = config;
    Ok((
        Model {
            network,
            rope,
            cache: None,
            tokenizer,
            eos,
            limit,
            vocabulary,
            intermediate,
            pool,
        },
        loaded,
    ))
}

fn load_random(name: &str, spec: &Local, seed: Seed, device: Device) -> Result<Parts, LocalError> {
    if name != "random:tiny" {
        return Err(LocalError::Random {
            name: name.to_owned(),
        });
    }
    let tokenizer = Tokenizer::builtin();
    let config = config::tiny(tokenizer.vocabulary());
    let dtype = compute_dtype(spec.dtype, None);
    let mut weights = RandomWeights::new(seed, dtype, device);
    let network = Network::load(&config, &mut weights, false)?;
    Ok(Parts {
        config,
        network,
        tokenizer,
        tally: weights.tally,
        dtype: dtype.as_str().to_owned(),
        notes: Vec::new(),
    })
}

fn load_folder(path: &Path, spec: &Local, device: Device) -> Result<Parts, LocalError> {
    let file = path.join("config.json");
    let mut tally = LoadTally::default();
    let config = timed(&mut tally.read, || {
        let mut config = read_config(&file)?;
        config.eos.extend(read_generation_eos(path)?);
        Ok::<_, LocalError>(config)
    })?;
    let tokenizer = timed(&mut tally.read, || Tokenizer::load(path))?;
    let dtype = compute_dtype(spec.dtype, config.dtype.as_deref());
    let mut weights = Folder::open(path, dtype, device)?;
    let network = Network::load(&config, &mut weights, false)?;
    weights.check_unused(config.tied)?;
    let read = tally.read + weights.tally.read;
    let tally = LoadTally {
        read,
        ..weights.tally
    };
    Ok(Parts {
        config,
        network,
        tokenizer,
        tally,
        dtype: dtype.as_str().to_owned(),
        notes: Vec::new(),
    })
}

/// The end-of-text tokens of generation_config.json, where chat models define theirs.
fn read_generation_eos(folder: &Path) -> Result<Vec<u32>, LocalError> {
    let path = folder.join("generation_config.json");
    match bounds::read_text(&path, bounds::CONFIG) {
        Ok(text) => {
            let value: Value =
                serde_json::from_str(&text).map_err(|error| LocalError::Malformed {
                    path: path.clone(),
                    reason: error.to_string(),
                })?;
            Ok(config::parse_ids(value.get("eos_token_id")))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(LocalError::Read { path, source }),
    }
}

fn load_gguf(path: &Path, spec: &Local, device: Device) -> Result<Parts, LocalError> {
    if !matches!(spec.dtype, Dtype::Auto | Dtype::F32) {
        let reason = "must be omitted for a GGUF file, which is computed in f32".to_owned();
        return Err(LocalError::Key {
            path: path.to_owned(),
            key: "dtype".into(),
            reason,
        });
    }
    let mut tally = LoadTally::default();
    let mut header = gguf::Header::open(path, &mut tally)?;
    let config = header.config()?;
    let (tokenizer, template) = timed(&mut tally.read, || header.tokenizer())?;
    // In converted Llama weights the numbers of a rotated pair are neighbors; in others they are half a head apart.
    let interleaved = config.architecture == "llama";
    let mut weights = Gguf::new(path, header.file, header.content, device, tally);
    let network = Network::load(&config, &mut weights, interleaved)?;
    let dtype = weights.main_format();
    let notes = vec![template_note(path, &template)];
    Ok(Parts {
        config,
        network,
        tokenizer,
        tally: weights.tally,
        dtype,
        notes,
    })
}

fn template_note(path: &Path, source: &TemplateSource) -> String {
    let model = path.file_name().unwrap_or_default().to_string_lossy();
    match source {
        TemplateSource::Gguf => format!("`{model}`: the chat template of the GGUF file is used"),
        TemplateSource::File(file) => {
            format!(
                "`{model}`: the GGUF file has no chat template; the one in {} is used",
                file.display()
            )
        }
        TemplateSource::None => {
            format!(
                "`{model}`: no chat template; a prompt consists of the contents of its messages, \
                separated by line breaks"
            )
        }
    }
}

/// The compute dtype: that of the scenario, or that of the configuration.
fn compute_dtype(requested: Dtype, configured: Option<&str>) -> DType {
    match (requested, configured) {
        (Dtype::F16, _) | (Dtype::Auto, Some("float16")) => DType::F16,
        (Dtype::Bf16, _) | (Dtype::Auto, Some("bfloat16")) => DType::BF16,
        _ => DType::F32,
    }
}

/// The threads of a model. For quantized products and elementwise operations on very large tensors the library uses
/// separate threads, one per core, whatever is requested here.
fn start_pool(spec: &Local) -> Result<ThreadPool, LocalError> {
    // 0 means one thread per core.
    let threads = spec.threads.unwrap_or(0) as usize;
    let failed = |error: rayon::ThreadPoolBuildError| LocalError::Device {
        device: "cpu".into(),
        reason: format!("cannot start threads: {error}"),
    };
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|at| format!("model-{at}"))
        .build()
        .map_err(failed)
}

fn open_device(spec: &Local) -> Result<Device, LocalError> {
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
            false => format!(
                "this build has no {name}; build with `--features {name}`, or set `device: cpu`"
            ),
        },
    })
}

/// Description of the device. Quantized products use threads of the library, so their number is not reported.
fn describe_device(spec: &Local, pool: &ThreadPool, quantized: bool) -> String {
    match (spec.device, pool.current_num_threads()) {
        (local::Device::Cpu, _) if quantized => "cpu (quantized products on every core)".to_owned(),
        (local::Device::Cpu, 1) => "cpu (1 thread)".to_owned(),
        (local::Device::Cpu, threads) => format!("cpu ({threads} threads)"),
        (local::Device::Cuda, _) => format!("cuda:{}", spec.index),
        (local::Device::Metal, _) => format!("metal:{}", spec.index),
    }
}

/// Used memory of the device in bytes; None on the CPU, or where it is unknown.
pub fn device_memory(device: &Device) -> Option<u64> {
    // CUDA reports the context of the thread; synchronizing makes it that of the device.
    device.synchronize().ok()?;
    #[cfg(feature = "cuda")]
    if device.is_cuda() {
        let (free, total) =
            candle_core::cuda_backend::cudarc::driver::result::mem_get_info().ok()?;
        return Some(total.saturating_sub(free) as u64);
    }
    #[cfg(feature = "metal")]
    if let Device::Metal(metal) = device {
        return Some(metal.current_allocated_size() as u64);
    }
    None
}
