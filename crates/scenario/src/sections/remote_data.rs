//! Datasets of the hub by name and files by their URL, and `pins`: the commit and the files that they mean.

use crate::draft::Draft;
use crate::fault::{Mistake, Review};
use crate::remote_use::RemoteUse;
use crate::schema_table::{Block, Field, Kind, field};
use crate::suggest::{list, meant_or, nearest};
use crate::tree::{Data, Node, Span};
use llmscen_core::dataset::DatasetSpec;
use llmscen_core::plan::Plan;
use llmscen_core::remote_data::{
    DataPin, HubReference, PREFIX, PinError, RemoteData, RemoteReference, is_path,
};
use std::collections::BTreeMap;

/// Most names in an error.
const MAX_NAMES: usize = 20;

/// Keys of a dataset that select files of a repository.
const PARTS: [&str; 3] = ["subset", "split", "revision"];

/// Kinds of datasets that do not read rows of one table.
const OTHER_KINDS: [&str; 4] = ["trace", "images", "audio", "video"];

static PIN: Block = Block {
    doc: "The exact files of a dataset on the hub, or of a URL.",
    short: None,
    fields: &[
        field(
            "commit",
            Kind::Text,
            "Commit of the repository, in hex. A URL has none.",
        )
        .example("0123456789abcdef0123456789abcdef01234567"),
        field(
            "files",
            Kind::Map(&Kind::Text),
            "The files in the order in which they are read: path → SHA-256 in hex.",
        )
        .required()
        .example(
            "{ test.jsonl: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef }",
        ),
    ],
};

static PIN_KIND: Kind = Kind::Block(&PIN);

pub(crate) const FIELD: Field = field(
    "pins",
    Kind::Map(&PIN_KIND),
    "The files of datasets on the hub (`dataset.path: hub:org/name`) and of URLs: the \
    name with its `subset`, `split` and `revision`, or the URL → commit and \
    checksums. `plan` and `run` look up what is missing, and the stored plan has all \
    of them, so that it reads the same bytes or stops with an error.",
)
.example(
    "{ \"hub:org/name split=test\": { commit: 0123456789abcdef0123456789abcdef01234567, \
    files: { test.jsonl: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef } } }",
);

/// The data that `dataset.path` names on the hub or by a URL. Reports keys that do not fit.
pub(crate) fn decode(draft: &Draft<'_>, kind: &str, review: &mut Review) -> Option<RemoteData> {
    let path = draft.get("dataset.path");
    let reference = path.and_then(|node| RemoteReference::parse(&node.text()?));
    let parts = PARTS.into_iter().filter_map(|part| {
        let entry = draft.written(&format!("dataset.{part}"))?;
        Some((part, entry))
    });
    let unused = match &reference {
        None | Some(RemoteReference::Url(_)) => {
            Some(("the path is not `hub:org/name`", &PARTS[..]))
        }
        Some(RemoteReference::Hub(HubReference { file: Some(_), .. })) => {
            Some(("the path names a file", &["subset", "split"][..]))
        }
        Some(_) => None,
    };
    let mut places = Vec::new();
    for (part, entry) in parts {
        places.push((part, entry.value.at));
        let Some((why, _)) = unused.filter(|(_, unused)| unused.contains(&part)) else {
            continue;
        };
        if draft.is_swept("dataset.path") {
            continue;
        }
        let mistake = Mistake::new(entry.key_at, format!("`{part}` has no effect"), why)
            .also_if(path.map(|path| path.at), "the path");
        review.push(mistake.help(format!("Remove `{part}`, or set `path` to `hub:org/name`.")));
    }
    let (path, reference) = (path?, reference?);
    if OTHER_KINDS.contains(&kind) {
        let mistake = Mistake::new(
            path.at,
            format!("`kind: {kind}` does not read data of the hub or of a URL"),
            "not a file on this machine",
        );
        review.push(mistake.help("Download the data and set `path` to it."));
        return None;
    }
    let reference = match reference {
        RemoteReference::Url(url) => RemoteReference::Url(url),
        RemoteReference::Hub(reference) => {
            let selects = reference.file.is_none();
            let part = |name: &str| draft.string(&format!("dataset.{name}"));
            RemoteReference::Hub(HubReference {
                revision: part("revision"),
                subset: part("subset").filter(|_| selects),
                split: part("split").filter(|_| selects),
                ..reference
            })
        }
    };
    if !review
        .remote_uses
        .iter()
        .any(|known| known.reference == reference)
    {
        review.remote_uses.push(RemoteUse {
            reference: reference.clone(),
            path: path.at,
            parts: places,
        });
    }
    Some(RemoteData {
        reference,
        pin: None,
    })
}

/// Pins the data of the plan: by `pins` of the scenario, or else by looking them up. Returns all pins. Reports data
/// that do not exist.
pub(crate) fn pin(
    root: &Node,
    plan: &mut Plan,
    env: &BTreeMap<String, String>,
    review: &mut Review,
) -> BTreeMap<RemoteReference, DataPin> {
    review.section = "dataset".to_owned();
    let mut pins = BTreeMap::new();
    let uses = std::mem::take(&mut review.remote_uses);
    report_unused_pins(root, &uses, review);
    for used in uses {
        let written = root
            .get("pins")
            .and_then(|pins| pins.entry(&used.reference.to_string()));
        let pin = match (written, review.pin_data) {
            (Some(entry), _) => decode_pin(&entry.value, &used.reference, review),
            (None, Some(pin_data)) if !review.sources.stored => pin_data(&used.reference, env)
                .map_err(|error| review.push(pin_mistake(&used, error)))
                .ok(),
            _ => None,
        };
        pins.extend(pin.map(|pin| (used.reference, pin)));
    }
    review.section.clear();
    let set = |dataset: &mut DatasetSpec| {
        if let Some(data) = &mut dataset.remote {
            data.pin = pins.get(&data.reference).cloned();
        }
    };
    for case in &mut plan.cases {
        set(&mut case.dataset);
        case.mix
            .iter_mut()
            .for_each(|entry| set(&mut entry.dataset));
    }
    pins
}

/// Reports pins of data that no dataset uses: a typing mistake there would look the data up again.
fn report_unused_pins(root: &Node, uses: &[RemoteUse], review: &mut Review) {
    let used: Vec<String> = uses.iter().map(|used| used.reference.to_string()).collect();
    let pins = root.get("pins").map_or(&[][..], |pins| pins.entries());
    for entry in pins.iter().filter(|entry| !used.contains(&entry.key)) {
        let names = used.iter().map(String::as_str);
        let label = meant_or(nearest(&entry.key, names), "no dataset uses these data");
        review.push(
            Mistake::new(entry.key_at, "unused pin", label)
                .help("Remove it, or write the data as `dataset.path` names them."),
        );
    }
}

fn decode_pin(node: &Node, reference: &RemoteReference, review: &mut Review) -> Option<DataPin> {
    let is_hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let commit = node.get("commit");
    let files = node.entry("files")?;
    let mut reject = |at: Span, what: &str, label: &str| {
        review.push(
            Mistake::new(at, what, label)
                .help("Remove the pin: `llmscen plan` looks it up, and the plan of a run has it."),
        );
        None
    };
    match (commit, reference) {
        (Some(commit), RemoteReference::Url(_)) => {
            return reject(commit.at, "a commit of a URL", "only the hub has commits");
        }
        (None, RemoteReference::Hub(_)) => {
            return reject(node.at, "a pin without a commit", "has no `commit`");
        }
        (Some(commit), _) if !commit.text().is_some_and(|text| is_hex(&text, 40)) => {
            return reject(commit.at, "not a commit", "not 40 hex digits");
        }
        _ => {}
    }
    for entry in files.value.entries() {
        if !is_path(&entry.key) {
            return reject(
                entry.key_at,
                "not a path in a repository",
                "not a relative path",
            );
        }
        if !entry.value.text().is_some_and(|digest| is_hex(&digest, 64)) {
            return reject(entry.value.at, "not a SHA-256", "not 64 hex digits");
        }
    }
    // The digests of files are compared as text.
    let files: Vec<(String, String)> = files
        .value
        .string_pairs()
        .map(|(path, digest)| (path, digest.to_ascii_lowercase()))
        .collect();
    if files.is_empty() {
        return reject(node.at, "a pin without files", "has no `files`");
    }
    Some(DataPin {
        commit: commit
            .and_then(Node::string)
            .map(|commit| commit.to_ascii_lowercase()),
        files,
    })
}

/// The tree with the pins, so that the stored plan has them.
pub(crate) fn with_pins(mut root: Node, pins: &BTreeMap<RemoteReference, DataPin>) -> Node {
    let at = root.at.before();
    let text = |text: &str| Node::new(at, Data::Text(text.to_owned()));
    root.remove("pins");
    if pins.is_empty() {
        return root;
    }
    let mut section = Node::new(at, Data::Map(Vec::new()));
    for (reference, pin) in pins {
        let mut files = Node::new(at, Data::Map(Vec::new()));
        for (path, digest) in &pin.files {
            files.set_key(path, at, text(digest));
        }
        let mut entry = Node::new(at, Data::Map(Vec::new()));
        if let Some(commit) = &pin.commit {
            entry.set_key("commit", at, text(commit));
        }
        entry.set_key("files", at, files);
        section.set_key(&reference.to_string(), at, entry);
    }
    root.set_key("pins", at, section);
    root
}

fn pin_mistake(used: &RemoteUse, error: PinError) -> Mistake {
    let named = match &used.reference {
        RemoteReference::Hub(reference) => format!("{PREFIX}{}", reference.repo),
        RemoteReference::Url(url) => url.clone(),
    };
    let place = |part: &str| {
        let found = used.parts.iter().find(|(name, _)| *name == part);
        found.map_or(used.path, |(_, at)| *at)
    };
    match error {
        PinError::Unknown {
            part,
            value,
            available,
        } => {
            let label = meant_or(
                nearest(&value, available.iter().map(String::as_str)),
                "does not exist",
            );
            let message = format!("`{named}` has no {part} `{value}`");
            Mistake::new(place(part), message, label)
                .help(format!("Existing: {}.", names(&available)))
        }
        PinError::Ambiguous { part, available } => {
            let message = format!("`{named}` has several {part}s");
            Mistake::new(used.path, message, format!("needs `{part}`"))
                .help(format!("Set `{part}` to one of {}.", names(&available)))
        }
        PinError::NoData { available } => Mistake::new(
            used.path,
            format!("`{named}` has no .parquet, .jsonl, .json, .csv or .tsv file for this dataset"),
            "no data",
        )
        .help(format!("Files: {}.", names(&available))),
        PinError::Failed(why) => {
            let (message, help) = why.split_once("\n  ").unwrap_or((&why, ""));
            let mistake = Mistake::new(used.path, message, "cannot be looked up");
            match help {
                "" => mistake.help(
                    "With HF_HUB_OFFLINE=1, data that were used before are read \
                from the cache. HF_ENDPOINT sets a mirror.",
                ),
                help => mistake.help(help),
            }
        }
    }
}

/// The first names, and the number of the others.
fn names(all: &[String]) -> String {
    let shown = list(all.iter().take(MAX_NAMES).map(String::as_str), "and");
    match all.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
