//! The house rules that the compiler does not know: who may import whom, and through which door a heavy crate enters.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A room's floor. Code imports only from lower floors; rooms on one floor do not know each other.
const FLOORS: &[(&str, u8)] = &[
    ("model", 0),
    ("stats", 1),
    ("bounds", 1),
    ("scenario", 2),
    ("pace", 2),
    ("wire", 2),
    ("token", 2),
    ("frame", 2),
    ("judge", 2),
    ("prompts", 3),
    ("engine", 3),
    ("sim", 3),
    ("telemetry", 3),
    ("store", 3),
    ("view", 3),
    ("track", 3),
    ("run", 4),
    ("cli", 5),
];

/// A heavy crate and the only places that may name it.
const DOORS: &[(&str, &[&str])] = &[
    ("serde_yaml", &["scenario/"]),
    ("granit_parser", &["scenario/"]),
    ("minijinja", &["bounds/", "scenario/", "token/", "view/"]),
    ("minijinja_contrib", &["token/"]),
    ("jsonpath_rust", &["wire/custom"]),
    ("tokenizers", &["token/"]),
    ("polars", &["frame/"]),
    ("polars_arrow", &["frame/"]),
    ("polars_buffer", &["frame/"]),
    ("polars_parquet", &["frame/"]),
    ("plotters", &["view/"]),
    ("resvg", &["view/"]),
    ("png", &["prompts/images"]),
    ("imagesize", &["prompts/images"]),
    ("nvml_wrapper", &["telemetry/gpu/nvml.rs"]),
    ("hdrhistogram", &["run/meter.rs", "store/hlog.rs"]),
    ("rusqlite", &["store/sqlite/"]),
    ("reqwest", &["prompts/fetch.rs", "telemetry/", "track/mlflow.rs"]),
    ("hyper", &["engine/", "cli/metrics/"]),
    ("prometheus_client", &["cli/metrics/"]),
    ("ratatui", &["cli/live/"]),
    ("h2", &["engine/"]),
    ("candle_core", &["engine/local/model/"]),
    ("candle_nn", &["engine/local/model/"]),
    ("candle_transformers", &[]),
    ("rayon", &["engine/local/model/"]),
    ("zstd", &["engine/coding/", "prompts/file/source.rs"]),
    ("rustls", &["engine/", "cli/mod.rs", "prompts/fetch.rs", "telemetry/"]),
    ("clap", &["cli/"]),
    ("indicatif", &["cli/"]),
];

/// Words that a room must never contain.
const BANNED: &[(&str, &[&str])] = &[
    ("model", &["tokio", "Instant", "SystemTime", "std::fs"]),
    ("pace", &["tokio", "Instant", "SystemTime", "thread_rng", "std::fs"]),
    ("scenario", &["tokio", "Instant", "SystemTime", "TcpStream"]),
    ("wire", &["tokio", "Instant", "SystemTime", "std::fs"]),
    ("stats", &["std::fs", "Instant", "SystemTime"]),
    ("judge", &["std::fs", "Instant", "SystemTime"]),
    ("frame", &["std::fs", "Instant", "SystemTime"]),
    ("view", &["std::fs", "Instant", "SystemTime"]),
];

struct Source {
    room: String,
    path: String,
    /// Without the test modules: tests may reach further.
    code: String,
}

fn sources() -> Vec<Source> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    walk(&src, &mut files);
    let tests: Vec<PathBuf> = files.iter().flat_map(|file| test_modules(file)).collect();
    let sources = files.into_iter().filter(|file| !tests.iter().any(|test| file.starts_with(test))).filter_map(|file| {
        let path = file.strip_prefix(&src).ok()?.to_str()?.to_owned();
        let room = path.split('/').next()?.to_owned();
        let text = fs::read_to_string(&file).ok()?;
        let code = text.split("\n#[cfg(test)]\nmod tests {").next()?.to_owned();
        path.contains('/').then_some(Source { room, path, code })
    });
    sources.collect()
}

/// The files and folders of modules that a file declares for tests only.
fn test_modules(file: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(file).unwrap();
    let stem = file.file_stem().unwrap();
    let folder = if stem == "mod" { file.parent().unwrap().to_owned() } else { file.with_extension("") };
    let names = text.split("#[cfg(test)]").skip(1).filter_map(|rest| rest.trim_start().strip_prefix("mod ")?.split_once(';'));
    let names = names.filter(|(name, _)| !name.contains('{'));
    names.flat_map(|(name, _)| [folder.join(format!("{name}.rs")), folder.join(name)]).collect()
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => walk(&path, files),
            false if path.extension().is_some_and(|end| end == "rs") => files.push(path),
            false => {}
        }
    }
}

/// The rooms that a text imports from: every `crate::room`.
fn imports(code: &str) -> impl Iterator<Item = &str> {
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines
        .flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(""))
}

fn code_lines(source: &Source) -> impl Iterator<Item = &str> {
    source.code.lines().filter(|line| !line.trim_start().starts_with("//"))
}

#[test]
fn code_imports_only_from_floors_below() {
    let floors: BTreeMap<&str, u8> = FLOORS.iter().copied().collect();
    let mut wrong = Vec::new();
    let sources = sources();
    assert!(sources.len() > 60, "the walk found {} files only", sources.len());
    for source in &sources {
        let own = floors.get(source.room.as_str()).unwrap_or_else(|| panic!("{} stands in no room of the plan", source.path));
        for other in imports(&source.code).filter(|other| *other != source.room) {
            match floors.get(other) {
                Some(floor) if floor < own => {}
                _ => wrong.push(format!("{} imports from {other}", source.path)),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn heavy_crates_come_in_by_their_own_door() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (name, doors) in DOORS {
            let named =
                code_lines(&source).any(|line| line.contains(&format!("{name}::")) || line.contains(&format!("use {name};")));
            if named && !doors.iter().any(|door| source.path.starts_with(door)) {
                wrong.push(format!("{} names {name}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn rooms_do_not_hold_what_they_must_never_contain() {
    let mut wrong = Vec::new();
    for source in sources() {
        // Files are read in one place of the scenario room, and printing belongs to the command line.
        let files = source.room == "scenario" && source.path != "scenario/source.rs";
        let own = BANNED.iter().filter(|(room, _)| *room == source.room).flat_map(|(_, words)| words.iter().copied());
        let everywhere: &[&str] = if source.room == "cli" { &[] } else { &["println!", "process::exit", "std::env::"] };
        for word in own.chain(everywhere.iter().copied()).chain(files.then_some("std::fs")) {
            if code_lines(&source).any(|line| line.contains(word)) {
                wrong.push(format!("{} contains {word}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
