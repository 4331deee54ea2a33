//! `target.local`: a model in this process.

use crate::draft::Draft;
use crate::fault::{Mistake, Review};
use crate::files::no_file;
use crate::schema_table::{Block, Default, Field, Kind, Rule, field, only_with, unused_with};
use crate::tree::{Data, Node};
use crate::values::target::models;
use llmscen_core::api::Api;
use llmscen_core::local::{Device, Dtype, Local};
use llmscen_core::model_hub;
use llmscen_core::target::{ModelShare, TargetLocation};
use std::path::{Path, PathBuf};

const DEVICE: Kind = Kind::Choice(
    &[
        ("cpu", "The processor"),
        ("cuda", "An NVIDIA GPU; a build with `--features cuda`"),
        ("metal", "An Apple GPU; a build with `--features metal`"),
    ],
    &[],
);

const DTYPE: Kind = Kind::Choice(
    &[
        ("auto", "As in the model's configuration"),
        ("f32", "32 bits"),
        ("f16", "16 bits, IEEE 754"),
        ("bf16", "16 bits with an 8-bit exponent"),
    ],
    &[],
);

pub(crate) static LOCAL: Block = Block {
    doc: "Options of a local model.",
    short: None,
    fields: &[
        field("device", DEVICE, "The device.")
            .default("cpu")
            .example("cuda"),
        field("index", Kind::Whole(0, 1023), "Index of the GPU.")
            .default("0")
            .example("1")
            .rules(&[only_with(&["device"], &["cuda", "metal"])
                .reason("the device is the CPU")
                .help("Remove it, or set the device: `device: cuda`.")]),
        field(
            "dtype",
            DTYPE,
            "The compute dtype; a `.gguf` file defines its own.",
        )
        .default("auto")
        .example("f32"),
        field(
            "threads",
            Kind::Whole(1, 1024),
            "CPU threads; one per core by default.",
        )
        .example("8"),
        field(
            "batch",
            Kind::Whole(1, 65_536),
            "Maximum number of requests in a static batch, which runs to its end. The default is \
            1, or the batch of `load.static`.",
        )
        .example("8"),
    ],
};

pub(crate) const FIELD: Field = field(
    "local",
    Kind::Block(&LOCAL),
    "Options of a local model; only with `api: local`.",
)
.defaults(Default::Where("api", &["local"], "{}"))
.example("{ dtype: f32, batch: 4 }")
.rules(&[only_with(&["target.api"], &["local"])
    .reason("has no effect")
    .beside("this is a server")
    .help("Remove it, or write `api: local`.")]);

/// Keys that describe a server.
pub(crate) const WITHOUT_LOCAL: Rule = unused_with(&["target.api"], &["local"])
    .reason("there is no server")
    .beside("a local model")
    .help("Remove it.");

pub(crate) static KEEP: Block = Block {
    doc: "Data to store for each request.",
    short: None,
    fields: &[field(
        "logits",
        Kind::Bool,
        "The logits of every step, as `logits/CASE/ROUND-SEQ.npy` in the run folder: float32, one \
        row of vocabulary size per token.",
    )
    .default("false")
    .example("true")],
};

/// Fields of a request body that a local model uses.
const READ: [&str; 12] = [
    "messages",
    "prompt",
    "max_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "seed",
    "stop",
    "ignore_eos",
    "stream",
];

/// Adds `target.local` for `api: local`.
pub(crate) fn normalize(root: &mut Node) {
    let Some(api) = root
        .entry_at("target.api")
        .filter(|api| api.value.text().as_deref() == Some(Api::Local.name()))
    else {
        return;
    };
    let at = api.key_at.before();
    if root.get("target.local").is_none() {
        root.set("target.local", at, Node::new(at, Data::Map(Vec::new())));
    }
}

/// Whether a case may have a local model.
pub(crate) fn is_possible(root: &Node) -> bool {
    root.get("target.local").is_some()
}

/// Reports keys of `request.extra` that have no effect.
pub(crate) fn check_extra(draft: &Draft<'_>, api: Api, review: &mut Review) {
    if api != Api::Local || draft.is_swept("target.api") {
        return;
    }
    for (key, _) in draft
        .get("request.extra")
        .and_then(|node| node.json().as_object().cloned())
        .unwrap_or_default()
    {
        if !READ.contains(&key.as_str()) {
            let at = draft.key_span(&format!("request.extra.{key}"));
            let mistake = Mistake::new(
                at,
                format!("a local model does not use `{key}`"),
                "has no effect",
            );
            let mistake = draft.also_api(mistake, "a local model");
            review.push(mistake.help(format!(
                "Remove it. Supported fields are {}.",
                READ.join(", ")
            )));
        }
    }
}

/// How the model runs. Reports features that this build lacks.
pub(crate) fn decode_place(draft: &Draft<'_>, review: &mut Review) -> Option<TargetLocation> {
    let at = draft.get("target.api")?.at;
    if !cfg!(feature = "local") {
        let mistake = Mistake::new(
            at,
            "this llmscen was built without local models",
            "not in this build",
        );
        review.push(mistake.help("Build it with `--features local`."));
        return None;
    }
    let device = match draft.text("target.local.device")?.as_ref() {
        "cuda" => Device::Cuda,
        "metal" => Device::Metal,
        _ => Device::Cpu,
    };
    let missing = match device {
        Device::Cuda if !cfg!(feature = "cuda") => Some("cuda"),
        Device::Metal if !cfg!(feature = "metal") => Some("metal"),
        Device::Cpu | Device::Cuda | Device::Metal => None,
    };
    if let Some(feature) = missing {
        let at = draft.get("target.local.device").map_or(at, |node| node.at);
        let mistake = Mistake::new(
            at,
            format!("this llmscen was built without `{feature}`"),
            "not in this build",
        );
        review.push(mistake.help(format!(
            "Build it with `--features {feature}`, or use `device: cpu`."
        )));
    }
    warn_of_threads(draft, review);
    Some(TargetLocation::Local(Local {
        device,
        index: draft.count("target.local.index")?,
        dtype: match draft.text("target.local.dtype")?.as_ref() {
            "f32" => Dtype::F32,
            "f16" => Dtype::F16,
            "bf16" => Dtype::Bf16,
            _ => Dtype::Auto,
        },
        threads: draft.count("target.local.threads"),
        batch: batch(draft, review),
        logits: draft.flag("request.keep.logits").unwrap_or(false),
    }))
}

fn warn_of_threads(draft: &Draft<'_>, review: &mut Review) {
    let cores = std::thread::available_parallelism().map_or(u64::MAX, |cores| cores.get() as u64);
    if let (Some(threads), Some(node)) = (
        draft.count::<u64>("target.local.threads"),
        draft.get("target.local.threads"),
    ) && threads > cores
        && !review.sources.stored
    {
        review.warn(
            node.at,
            format!("{threads} threads share {cores} cores, which slows down each step"),
        );
    }
}

/// The maximum batch size: that of a static load, or `target.local.batch`.
fn batch(draft: &Draft<'_>, review: &mut Review) -> u32 {
    let configured: Option<u32> = draft.count("target.local.batch");
    let load: Option<u32> = draft.count("load.static.batch");
    if let (Some(configured), Some(load), Some(entry)) =
        (configured, load, draft.entry("target.local.batch"))
        && configured != load
    {
        let mistake = Mistake::new(
            entry.value.at,
            "two batch sizes",
            format!("{configured} here"),
        );
        let mistake = mistake.also(draft.key_span("load.static.batch"), format!("{load} here"));
        review.push(mistake.help("Each round of a static load is one batch; remove this one."));
    }
    load.or(configured).unwrap_or(1)
}

/// Prefix of models with random weights.
const RANDOM: &str = "random:";
/// The only one of them.
const TINY: &str = "random:tiny";

/// The absolute path of a model, or its name on a hub. None if it is neither.
pub(crate) fn locate(file: usize, named: &str, review: &Review) -> Option<String> {
    if named.starts_with(RANDOM) {
        None
    } else {
        review.sources.find_or_hub(file, named)
    }
}

/// The path of a model that [`found`] returns. None if it is not downloaded yet.
fn on_disk(found: &str, review: &Review) -> Option<PathBuf> {
    let path = PathBuf::from(found);
    if path.is_absolute() {
        Some(path)
    } else {
        model_hub::snapshot(review.hugging_face.as_ref()?, found)
    }
}

/// The model, as an absolute path if it is a file. Reports a missing one.
pub(crate) fn decode_model(draft: &Draft<'_>, review: &mut Review) -> Option<Vec<ModelShare>> {
    const KINDS: &str = "A Hugging Face folder (config.json, safetensors, tokenizer.json), its \
    name on the hub (`org/name`), a .gguf file, or `random:tiny`.";
    let Some(node) = draft.get("target.model") else {
        let mistake = Mistake::new(
            draft.key_span("target"),
            "`target` needs `model`",
            "`model` is missing",
        );
        review.push(mistake.help(KINDS));
        return None;
    };
    let shares = models(node)?;
    let ([ModelShare { name, .. }], Some(_)) = (shares.as_slice(), node.text()) else {
        let mistake = Mistake::new(
            node.at,
            "`api: local` runs one model at a time",
            "names several",
        );
        review.push(mistake.help("Sweep them: `matrix: { target.model: [a, b] }`."));
        return None;
    };
    let one = |name: String| Some(vec![ModelShare { name, weight: 1.0 }]);
    if name.starts_with(RANDOM) {
        if name != TINY {
            review.push(
                Mistake::new(
                    node.at,
                    format!("unknown model `{name}`"),
                    format!("did you mean `{TINY}`?"),
                )
                .help(KINDS),
            );
        }
        return one(name.clone());
    }
    let Some(path) = locate(node.at.file, name, review) else {
        let mistake = no_file(node.at, name, review);
        review.push(mistake.help(format!(
            "{KINDS} Paths are resolved relative to this file, then to the working directory."
        )));
        return None;
    };
    if let Some(local_path) = on_disk(&path, review).filter(|_| !review.sources.stored) {
        if let Some(why) = why_no_model(&local_path) {
            review.push(Mistake::new(node.at, format!("`{name}` is not a model"), why).help(KINDS));
        } else if let Some(Err(why)) = review.supports.map(|supports| supports(&local_path)) {
            let mistake = Mistake::new(
                node.at,
                format!("`{name}` cannot be run as a local model"),
                why,
            );
            review.push(mistake.help("Use another model, or measure a server that runs this one."));
        }
    }
    one(path)
}

/// Why a path is not a model.
fn why_no_model(path: &Path) -> Option<&'static str> {
    let gguf = || {
        path.extension()
            .is_some_and(|end| end.eq_ignore_ascii_case("gguf"))
    };
    match path.is_dir() {
        true => (!path.join("config.json").exists()).then_some("a folder without config.json"),
        false => (!gguf()).then_some("not a .gguf file"),
    }
}

/// The tokenizer of a local model: that in its folder, or that of the random model.
pub(crate) fn tokenizer(draft: &Draft<'_>, review: &Review) -> Option<String> {
    let node = draft
        .get("target.model")
        .filter(|_| draft.api() == Some(Api::Local))?;
    if node.text().as_deref() == Some(TINY) {
        return Some(TINY.to_owned());
    }
    let found = locate(node.at.file, &node.text()?, review)?;
    match on_disk(&found, review) {
        Some(path) => path
            .join("tokenizer.json")
            .exists()
            .then(|| path.display().to_string()),
        None => Some(found),
    }
}

#[cfg(test)]
mod tests;
