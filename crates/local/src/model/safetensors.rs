//! Weights of a Hugging Face folder in safetensors files. Only one tensor at a time is in CPU memory before it is
//! placed.

use crate::error::LocalError;
use crate::model::linear::Matrix;
use crate::model::weights::{LoadTally, Weights, timed};
use candle_core::{DType, Device, Tensor};
use llmscen_core::bounds;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The single file of weights.
const SINGLE_FILE: &str = "model.safetensors";
/// The index of several files.
const INDEX: &str = "model.safetensors.index.json";
/// Limit of a header in bytes.
const MAX_HEADER: u64 = 100 << 20;

/// The location of a tensor in its file.
#[derive(Clone, Debug, Deserialize)]
struct TensorInfo {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    file: File,
    /// Offset of the data.
    start: u64,
}

/// The weights of a folder.
#[derive(Debug)]
pub struct Folder {
    shards: Vec<Shard>,
    tensors: BTreeMap<String, (usize, TensorInfo)>,
    /// Names of the tensors that have not been read.
    unused: BTreeSet<String>,
    dtype: DType,
    device: Device,
    pub tally: LoadTally,
}

impl Folder {
    /// Reads the headers.
    ///
    /// # Errors
    /// Files are missing or not safetensors.
    pub fn open(folder: &Path, dtype: DType, device: Device) -> Result<Folder, LocalError> {
        let mut tally = LoadTally::default();
        let opened = timed(&mut tally.read, || {
            weight_files(folder)?
                .into_iter()
                .map(open_shard)
                .collect::<Result<Vec<_>, _>>()
        })?;
        let mut tensors = BTreeMap::new();
        let mut shards = Vec::new();
        for (number, (shard, infos)) in opened.into_iter().enumerate() {
            shards.push(shard);
            tensors.extend(infos.into_iter().map(|(name, info)| (name, (number, info))));
        }
        let unused = tensors.keys().cloned().collect();
        Ok(Folder {
            shards,
            tensors,
            unused,
            dtype,
            device,
            tally,
        })
    }

    /// Checks that all tensors were read. A `tied` head may be in the file too.
    ///
    /// # Errors
    /// A tensor is not part of the configured model.
    pub fn check_unused(&self, tied: bool) -> Result<(), LocalError> {
        let is_known = |name: &&String| {
            name.ends_with("rotary_emb.inv_freq") || (tied && name.as_str() == "lm_head.weight")
        };
        match self.unused.iter().find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => {
                Err(self.tensor_error(name, "is not part of the model that config.json describes"))
            }
        }
    }

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, LocalError> {
        let Some((number, info)) = self.tensors.get(name).cloned() else {
            return Err(self.tensor_error(name, "is missing"));
        };
        if info.shape != shape {
            return Err(self.tensor_error(
                name,
                &format!("is {:?} but config.json requires {shape:?}", info.shape),
            ));
        }
        let dtype = match info.dtype.as_str() {
            "F64" => DType::F64,
            "F32" => DType::F32,
            "F16" => DType::F16,
            "BF16" => DType::BF16,
            other => {
                return Err(self.tensor_error(
                    name,
                    &format!(
                        "has the unsupported dtype {other}; supported are F64, F32, F16 and BF16"
                    ),
                ));
            }
        };
        let [from, to] = info.data_offsets;
        let bytes = to.checked_sub(from).filter(|bytes| {
            *bytes == (shape.iter().product::<usize>() * dtype.size_in_bytes()) as u64
        });
        let (Some(bytes), Some(shard)) = (bytes, self.shards.get_mut(number)) else {
            return Err(self.tensor_error(name, "has another size than its shape"));
        };
        let data = timed(&mut self.tally.read, || {
            let mut data = Vec::new();
            shard
                .file
                .seek(SeekFrom::Start(shard.start.saturating_add(from)))?;
            shard.file.by_ref().take(bytes).read_to_end(&mut data)?;
            Ok(data)
        });
        let data = data.map_err(|source| LocalError::Read {
            path: shard.path.clone(),
            source,
        })?;
        if data.len() as u64 != bytes {
            return Err(self.tensor_error(
                name,
                "is beyond the end of the file, which may be incomplete",
            ));
        }
        let tensor = timed(&mut self.tally.convert, || {
            Tensor::from_raw_buffer(&data, dtype, shape, &Device::Cpu)
        })?;
        self.unused.remove(name);
        Ok(self.tally.place_tensor(&tensor, self.dtype, &self.device)?)
    }

    fn tensor_error(&self, name: &str, reason: &str) -> LocalError {
        let number = self.tensors.get(name).map_or(0, |(number, _)| *number);
        let path = self
            .shards
            .get(number)
            .map(|shard| shard.path.clone())
            .unwrap_or_default();
        LocalError::Malformed {
            path,
            reason: format!("the tensor `{name}` {reason}"),
        }
    }
}

fn weight_files(folder: &Path) -> Result<Vec<PathBuf>, LocalError> {
    let index = folder.join(INDEX);
    if !index.exists() {
        return Ok(vec![folder.join(SINGLE_FILE)]);
    }
    let malformed = |reason: String| LocalError::Malformed {
        path: index.clone(),
        reason,
    };
    let text = bounds::read_text(&index, bounds::CONFIG).map_err(|source| LocalError::Read {
        path: index.clone(),
        source,
    })?;
    let value: Value = serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
    let map = value
        .get("weight_map")
        .and_then(Value::as_object)
        .ok_or_else(|| malformed("no `weight_map`".into()))?;
    let names: BTreeSet<&str> = map.values().filter_map(Value::as_str).collect();
    // The index must not lead out of its folder.
    let is_file_name = |name: &str| Path::new(name).file_name().is_some_and(|file| file == name);
    match names.iter().find(|name| !is_file_name(name)) {
        Some(name) => Err(malformed(format!(
            "`{name}` is not the name of a file in its folder"
        ))),
        None => Ok(names.into_iter().map(|name| folder.join(name)).collect()),
    }
}

/// A file and its tensors. It consists of the length of the header in 8 bytes, the header, and the data.
fn open_shard(path: PathBuf) -> Result<(Shard, BTreeMap<String, TensorInfo>), LocalError> {
    let read = |path: &Path| {
        let mut file = File::open(path)?;
        let mut length = [0; 8];
        file.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        let mut header = Vec::new();
        file.by_ref()
            .take(length.min(MAX_HEADER))
            .read_to_end(&mut header)?;
        Ok((file, length, header))
    };
    let (file, length, header) = read(&path).map_err(|source| LocalError::Read {
        path: path.clone(),
        source,
    })?;
    let malformed = |reason: String| LocalError::Malformed {
        path: path.clone(),
        reason,
    };
    if header.len() as u64 != length {
        return Err(malformed("not a safetensors file".into()));
    }
    let mut entries: BTreeMap<String, Value> = serde_json::from_slice(&header)
        .map_err(|error| malformed(format!("not a safetensors file: {error}")))?;
    entries.remove("__metadata__");
    let parse = |(name, value): (String, Value)| {
        let info = serde_json::from_value(value)
            .map_err(|error| malformed(format!("the tensor `{name}`: {error}")))?;
        Ok((name, info))
    };
    let tensors = entries
        .into_iter()
        .map(parse)
        .collect::<Result<_, LocalError>>()?;
    Ok((
        Shard {
            path,
            file,
            start: 8 + length,
        },
        tensors,
    ))
}

impl Weights for Folder {
    fn matrix(&mut self, name: &str, shape: &[usize; 2]) -> Result<Matrix, LocalError> {
        Ok(Matrix::Dense(
            self.tensor(&format!("{name}.weight"), shape)?,
        ))
    }

    fn vector(&mut self, name: &str, width: usize) -> Result<Tensor, LocalError> {
        self.tensor(name, &[width])
    }

    fn target(&self) -> (DType, Device) {
        (self.dtype, self.device.clone())
    }
}
