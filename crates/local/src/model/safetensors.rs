//! Weights of a Hugging Face folder: safetensors files, one tensor at a time in memory beside what was placed.

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

/// The weights where one file has them all.
const WHOLE: &str = "model.safetensors";
/// The list of the files where several have them.
const INDEX: &str = "model.safetensors.index.json";
/// Headers beyond this are no headers, bytes.
const HEADER: u64 = 100 << 20;

/// Where a tensor lies in its file.
#[derive(Clone, Debug, Deserialize)]
struct Piece {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    file: File,
    /// Where the data begin.
    start: u64,
}

/// The weights of a folder.
#[derive(Debug)]
pub struct Folder {
    shards: Vec<Shard>,
    pieces: BTreeMap<String, (usize, Piece)>,
    /// Those that no one has asked for.
    left: BTreeSet<String>,
    dtype: DType,
    device: Device,
    /// What it took.
    pub tally: LoadTally,
}

impl Folder {
    /// Reads the headers.
    ///
    /// # Errors
    /// Files that are not there, or not safetensors.
    pub fn open(folder: &Path, dtype: DType, device: Device) -> Result<Folder, LocalError> {
        let mut tally = LoadTally::default();
        let opened = timed(&mut tally.read, || files(folder)?.into_iter().map(opened).collect::<Result<Vec<_>, _>>())?;
        let mut pieces = BTreeMap::new();
        let mut shards = Vec::new();
        for (number, (shard, own)) in opened.into_iter().enumerate() {
            shards.push(shard);
            pieces.extend(own.into_iter().map(|(name, piece)| (name, (number, piece))));
        }
        let left = pieces.keys().cloned().collect();
        Ok(Folder { shards, pieces, left, dtype, device, tally })
    }

    /// Says which tensor no one has asked for. `tied` heads may lie in the file twice.
    ///
    /// # Errors
    /// Names one that the model of the configuration has no place for.
    pub fn finish(&self, tied: bool) -> Result<(), LocalError> {
        let known = |name: &&String| name.ends_with("rotary_emb.inv_freq") || (tied && name.as_str() == "lm_head.weight");
        match self.left.iter().find(|name| !known(name)) {
            None => Ok(()),
            Some(name) => Err(self.wrong(name, "has no place in the model that config.json describes")),
        }
    }

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, LocalError> {
        let Some((number, piece)) = self.pieces.get(name).cloned() else {
            return Err(self.wrong(name, "is missing"));
        };
        if piece.shape != shape {
            return Err(self.wrong(name, &format!("is {:?} where config.json asks for {shape:?}", piece.shape)));
        }
        let held = match piece.dtype.as_str() {
            "F64" => DType::F64,
            "F32" => DType::F32,
            "F16" => DType::F16,
            "BF16" => DType::BF16,
            other => return Err(self.wrong(name, &format!("is of {other}; F64, F32, F16 and BF16 are computed with"))),
        };
        let [from, to] = piece.data_offsets;
        let bytes =
            to.checked_sub(from).filter(|bytes| *bytes == (shape.iter().product::<usize>() * held.size_in_bytes()) as u64);
        let (Some(bytes), Some(shard)) = (bytes, self.shards.get_mut(number)) else {
            return Err(self.wrong(name, "has not the bytes of its shape"));
        };
        let data = timed(&mut self.tally.read, || {
            let mut data = Vec::new();
            shard.file.seek(SeekFrom::Start(shard.start.saturating_add(from)))?;
            shard.file.by_ref().take(bytes).read_to_end(&mut data)?;
            Ok(data)
        });
        let data = data.map_err(|source| LocalError::Read { path: shard.path.clone(), source })?;
        if data.len() as u64 != bytes {
            return Err(self.wrong(name, "lies beyond the end of the file; was it copied whole?"));
        }
        let tensor = timed(&mut self.tally.convert, || Tensor::from_raw_buffer(&data, held, shape, &Device::Cpu))?;
        self.left.remove(name);
        Ok(self.tally.placed(&tensor, self.dtype, &self.device)?)
    }

    fn wrong(&self, name: &str, reason: &str) -> LocalError {
        let number = self.pieces.get(name).map_or(0, |(number, _)| *number);
        let path = self.shards.get(number).map(|shard| shard.path.clone()).unwrap_or_default();
        LocalError::Malformed { path, reason: format!("the tensor `{name}` {reason}") }
    }
}

/// The files with weights.
fn files(folder: &Path) -> Result<Vec<PathBuf>, LocalError> {
    let index = folder.join(INDEX);
    if !index.exists() {
        return Ok(vec![folder.join(WHOLE)]);
    }
    let malformed = |reason: String| LocalError::Malformed { path: index.clone(), reason };
    let text = bounds::read_text(&index, bounds::CONFIG).map_err(|source| LocalError::Read { path: index.clone(), source })?;
    let value: Value = serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
    let map = value.get("weight_map").and_then(Value::as_object).ok_or_else(|| malformed("it has no `weight_map`".into()))?;
    let names: BTreeSet<&str> = map.values().filter_map(Value::as_str).collect();
    // A name of the index never leads out of its folder.
    let plain = |name: &str| Path::new(name).file_name().is_some_and(|file| file == name);
    match names.iter().find(|name| !plain(name)) {
        Some(name) => Err(malformed(format!("`{name}` is not the name of a file beside it"))),
        None => Ok(names.into_iter().map(|name| folder.join(name)).collect()),
    }
}

/// A file and what lies in it: the length of the header in 8 bytes, the header, the data.
fn opened(path: PathBuf) -> Result<(Shard, BTreeMap<String, Piece>), LocalError> {
    let read = |path: &Path| {
        let mut file = File::open(path)?;
        let mut length = [0; 8];
        file.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        let mut header = Vec::new();
        file.by_ref().take(length.min(HEADER)).read_to_end(&mut header)?;
        Ok((file, length, header))
    };
    let (file, length, header) = read(&path).map_err(|source| LocalError::Read { path: path.clone(), source })?;
    let malformed = |reason: String| LocalError::Malformed { path: path.clone(), reason };
    if header.len() as u64 != length {
        return Err(malformed("it is not a safetensors file".into()));
    }
    let mut all: BTreeMap<String, Value> =
        serde_json::from_slice(&header).map_err(|error| malformed(format!("it is not a safetensors file: {error}")))?;
    all.remove("__metadata__");
    let piece = |(name, value): (String, Value)| {
        let piece = serde_json::from_value(value).map_err(|error| malformed(format!("the tensor `{name}`: {error}")))?;
        Ok((name, piece))
    };
    let pieces = all.into_iter().map(piece).collect::<Result<_, LocalError>>()?;
    Ok((Shard { path, file, start: 8 + length }, pieces))
}

impl Weights for Folder {
    fn matrix(&mut self, name: &str, shape: &[usize; 2]) -> Result<Matrix, LocalError> {
        Ok(Matrix::Dense(self.tensor(&format!("{name}.weight"), shape)?))
    }

    fn vector(&mut self, name: &str, width: usize) -> Result<Tensor, LocalError> {
        self.tensor(name, &[width])
    }

    fn computes(&self) -> (DType, Device) {
        (self.dtype, self.device.clone())
    }
}
