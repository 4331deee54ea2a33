//! Which files of a repository are a split: those that the dataset card declares, or else those whose names say so.

use super::glob;
use llmscen_core::remote_data::{HubReference, PinError};
use serde_json::Value;

/// Formats in order of preference, where a split has files of several.
const FORMATS: [&str; 5] = ["parquet", "jsonl", "json", "csv", "tsv"];
/// Ends of compressed files.
const COMPRESSED: [&str; 2] = [".gz", ".zst"];
/// The split of files that name none.
const TRAIN: &str = "train";
/// Splits, each with the words in file names that stand for it.
const SPLITS: [(&str, &[&str]); 3] = [
    (TRAIN, &["train", "training"]),
    ("validation", &["validation", "valid", "val", "dev"]),
    ("test", &["test", "testing", "eval", "evaluation"]),
];

/// A subset that the dataset card declares.
pub struct Config {
    name: String,
    is_default: bool,
    /// Split → patterns of its files.
    splits: Vec<(String, Vec<String>)>,
}

/// A data file, with what its name says.
#[derive(Clone)]
struct DataFile {
    path: String,
    subset: String,
    split: Option<String>,
}

impl Config {
    /// The subsets in `configs` of a dataset card.
    pub fn list(configs: Option<&Value>) -> Vec<Config> {
        let configs = configs.and_then(Value::as_array);
        configs
            .into_iter()
            .flatten()
            .filter_map(Config::parse)
            .collect()
    }

    /// None: the card declares no files of the subset.
    fn parse(config: &Value) -> Option<Config> {
        let name = config.get("config_name")?.as_str()?.to_owned();
        let folder = config.get("data_dir").and_then(Value::as_str);
        let in_folder = |patterns: Vec<String>| match folder {
            Some(folder) => patterns
                .iter()
                .map(|pattern| format!("{}/{pattern}", folder.trim_end_matches('/')))
                .collect(),
            None => patterns,
        };
        let splits = match config.get("data_files")? {
            Value::Object(splits) => splits
                .iter()
                .map(|(split, patterns)| (split.clone(), in_folder(texts(patterns))))
                .collect(),
            Value::Array(items) if items.iter().all(Value::is_object) => items
                .iter()
                .filter_map(|item| {
                    let split = item.get("split")?.as_str()?.to_owned();
                    Some((split, in_folder(texts(item.get("path")?))))
                })
                .collect(),
            patterns => vec![(TRAIN.to_owned(), in_folder(texts(patterns)))],
        };
        Some(Config {
            is_default: config.get("default") == Some(&Value::Bool(true)) || name == "default",
            name,
            splits,
        })
    }
}

/// A text, or the texts of a list.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        value => value.as_str().map(str::to_owned).into_iter().collect(),
    }
}

/// The data files among sorted paths.
pub fn data_files(paths: &[&str]) -> Vec<String> {
    let data = paths.iter().filter(|path| format_rank(path).is_some());
    data.map(|path| (*path).to_owned()).collect()
}

/// The files of a split in the order in which they are read. `paths` are sorted; `converted`: they are
/// `SUBSET/SPLIT/FILE`.
pub fn select(
    reference: &HubReference,
    configs: &[Config],
    paths: &[&str],
    converted: bool,
) -> Result<Vec<String>, PinError> {
    let found = match configs {
        [] => by_name(reference, paths, converted)?,
        configs => by_card(reference, configs, paths)?,
    };
    let best = found.iter().filter_map(|path| format_rank(path)).min();
    let files: Vec<String> = found
        .into_iter()
        .filter(|path| best.is_some() && format_rank(path) == best)
        .collect();
    match files.is_empty() {
        true => Err(PinError::NoData {
            available: paths.iter().map(|path| (*path).to_owned()).collect(),
        }),
        false => Ok(files),
    }
}

fn by_card(
    reference: &HubReference,
    configs: &[Config],
    paths: &[&str],
) -> Result<Vec<String>, PinError> {
    let names: Vec<&str> = configs.iter().map(|config| config.name.as_str()).collect();
    let default = configs.iter().find(|config| config.is_default);
    let default = default.map(|config| config.name.as_str());
    let subset = choose("subset", reference.subset.as_deref().or(default), &names)?;
    let splits: Vec<&(String, Vec<String>)> = configs
        .iter()
        .filter(|config| config.name == subset)
        .flat_map(|config| &config.splits)
        .collect();
    let names: Vec<&str> = splits.iter().map(|(split, _)| split.as_str()).collect();
    let split = choose("split", reference.split.as_deref(), &names)?;
    let mut files: Vec<String> = Vec::new();
    for (_, patterns) in splits.iter().filter(|(name, _)| *name == split) {
        for pattern in patterns {
            for path in paths.iter().filter(|path| glob::matches(pattern, path)) {
                if !files.iter().any(|known| known == path) {
                    files.push((*path).to_owned());
                }
            }
        }
    }
    Ok(files)
}

fn by_name(
    reference: &HubReference,
    paths: &[&str],
    converted: bool,
) -> Result<Vec<String>, PinError> {
    let mut files: Vec<DataFile> = data_files(paths)
        .into_iter()
        .map(|path| DataFile::from_path(path, converted))
        .collect();
    if files.iter().any(|file| file.split.is_some()) {
        // Other files, such as an index, belong to no split.
        files.retain(|file| file.split.is_some());
    }
    let subsets: Vec<&str> = files.iter().map(|file| file.subset.as_str()).collect();
    if subsets.is_empty() {
        return Ok(Vec::new());
    }
    // Files beside the folders of subsets are the dataset itself.
    let root = subsets.contains(&"").then_some("");
    let subset = choose("subset", reference.subset.as_deref().or(root), &subsets)?;
    files.retain(|file| file.subset == subset);
    let split_of = |file: &DataFile| file.split.clone().unwrap_or_else(|| TRAIN.to_owned());
    let splits: Vec<String> = files.iter().map(split_of).collect();
    let splits: Vec<&str> = splits.iter().map(String::as_str).collect();
    let split = choose("split", reference.split.as_deref(), &splits)?;
    files.retain(|file| split_of(file) == split);
    Ok(files.into_iter().map(|file| file.path).collect())
}

/// The wanted name, or the only one.
fn choose(part: &'static str, wanted: Option<&str>, names: &[&str]) -> Result<String, PinError> {
    let mut available: Vec<String> = Vec::new();
    for name in names {
        if !available.iter().any(|known| known == name) {
            available.push((*name).to_owned());
        }
    }
    match (wanted, available.as_slice()) {
        (Some(wanted), _) if available.iter().any(|name| name == wanted) => Ok(wanted.to_owned()),
        (Some(wanted), _) => {
            available.retain(|name| !name.is_empty());
            Err(PinError::Unknown {
                part,
                value: wanted.to_owned(),
                available,
            })
        }
        (None, [only]) => Ok(only.clone()),
        (None, _) => Err(PinError::Ambiguous { part, available }),
    }
}

/// The path without the end of a compression.
fn uncompressed(path: &str) -> &str {
    COMPRESSED
        .iter()
        .find_map(|end| path.strip_suffix(end))
        .unwrap_or(path)
}

/// The rank of a data file's format; None for other files.
fn format_rank(path: &str) -> Option<usize> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let metadata = ["dataset_infos.json", "dataset_info.json", "state.json"].contains(&name);
    let (_, extension) = uncompressed(name).rsplit_once('.')?;
    FORMATS
        .iter()
        .position(|format| format.eq_ignore_ascii_case(extension))
        .filter(|_| !metadata && !path.starts_with('.'))
}

impl DataFile {
    fn from_path(path: String, converted: bool) -> DataFile {
        let (folders, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let mut folders: Vec<&str> = folders
            .split('/')
            .filter(|folder| !folder.is_empty())
            .collect();
        if converted {
            return DataFile {
                split: folders.pop().map(str::to_owned),
                subset: folders.join("/"),
                path,
            };
        }
        let stem = uncompressed(name)
            .rsplit_once('.')
            .map_or(name, |(stem, _)| stem);
        let mut split = split_of_shard(stem).or_else(|| split_word(stem));
        if let Some(index) = folders
            .iter()
            .rposition(|folder| known_split(folder).is_some())
        {
            split = known_split(folders.remove(index)).map(str::to_owned);
        }
        folders.retain(|folder| *folder != "data");
        DataFile {
            split,
            subset: folders.join("/"),
            path,
        }
    }
}

/// The split of a shard `SPLIT-00000-of-00002`.
fn split_of_shard(stem: &str) -> Option<String> {
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let (rest, count) = stem.split_once("-of-")?;
    let (split, index) = rest.rsplit_once('-')?;
    // A fingerprint may follow the count.
    let count = count.split('-').next().unwrap_or(count);
    (is_number(index) && is_number(count)).then(|| split.to_owned())
}

/// The split that a word of a name stands for.
fn split_word(name: &str) -> Option<String> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter_map(known_split).next().map(str::to_owned)
}

fn known_split(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    SPLITS
        .iter()
        .find(|(_, words)| words.contains(&word.as_str()))
        .map(|(split, _)| *split)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reference(subset: Option<&str>, split: Option<&str>) -> HubReference {
        HubReference {
            subset: subset.map(str::to_owned),
            split: split.map(str::to_owned),
            ..HubReference::parse("hub:org/name").unwrap()
        }
    }

    fn named(
        paths: &[&str],
        subset: Option<&str>,
        split: Option<&str>,
    ) -> Result<Vec<String>, PinError> {
        select(&reference(subset, split), &[], paths, false)
    }

    fn ambiguous(part: &'static str, available: &[&str]) -> Result<Vec<String>, PinError> {
        Err(PinError::Ambiguous {
            part,
            available: available.iter().map(|name| (*name).to_owned()).collect(),
        })
    }

    #[test]
    fn file_names_tell_subset_and_split() {
        let paths = [
            "README.md",
            "data/test-00000-of-00001.parquet",
            "data/train_sft-00000-of-00002-a1b2.parquet",
            "data/train_sft-00001-of-00002-c3d4.parquet",
        ];
        assert_eq!(named(&paths, None, Some("train_sft")).unwrap(), paths[2..]);
        assert_eq!(named(&paths, None, Some("test")).unwrap(), paths[1..2]);
        assert_eq!(
            named(&paths, None, None),
            ambiguous("split", &["test", "train_sft"])
        );
        let subsets = [
            "main/test.jsonl",
            "main/train.jsonl",
            "socratic/dev/x.jsonl",
        ];
        assert_eq!(
            named(&subsets, None, Some("test")),
            ambiguous("subset", &["main", "socratic"])
        );
        assert_eq!(
            named(&subsets, Some("socratic"), Some("validation")).unwrap(),
            subsets[2..]
        );
        assert_eq!(
            named(&subsets, Some("main"), Some("tset")),
            Err(PinError::Unknown {
                part: "split",
                value: "tset".into(),
                available: vec!["test".into(), "train".into()]
            })
        );
        let plain = ["a.csv.gz", "b.csv.gz", "dataset_infos.json", "x.py"];
        assert_eq!(named(&plain, None, None).unwrap(), plain[..2]);
        assert_eq!(named(&plain, None, Some("train")).unwrap(), plain[..2]);
        let both = ["test.csv", "test.parquet"];
        assert_eq!(named(&both, None, None).unwrap(), both[1..]);
        assert!(matches!(
            named(&["x.py"], None, None),
            Err(PinError::NoData { .. })
        ));
    }

    #[test]
    fn converted_files_are_in_folders_of_subset_and_split() {
        let paths = ["main/questions/0000.parquet", "main/test/0000.parquet"];
        let found = select(&reference(None, Some("questions")), &[], &paths, true);
        assert_eq!(found.unwrap(), paths[..1]);
    }

    #[test]
    fn the_card_decides_where_it_declares_files() {
        let card = json!([
            { "config_name": "main", "default": true, "data_files": [
                { "split": "train", "path": "main/train-*" },
                { "split": "test", "path": ["main/b*", "main/a*"] },
            ] },
            { "config_name": "extra", "data_dir": "more", "data_files": "*.jsonl" },
            { "config_name": "undeclared" },
        ]);
        let configs = Config::list(Some(&card));
        let paths = [
            "main/a.jsonl",
            "main/b.jsonl",
            "main/train-0.jsonl",
            "more/x.jsonl",
        ];
        let found = |subset, split| select(&reference(subset, split), &configs, &paths, false);
        assert_eq!(
            found(None, Some("test")).unwrap(),
            ["main/b.jsonl", "main/a.jsonl"],
            "in the order of the patterns"
        );
        assert_eq!(found(Some("extra"), None).unwrap(), ["more/x.jsonl"]);
        assert_eq!(found(None, None), ambiguous("split", &["train", "test"]));
        assert_eq!(
            found(Some("other"), None),
            Err(PinError::Unknown {
                part: "subset",
                value: "other".into(),
                available: vec!["main".into(), "extra".into()]
            })
        );
    }
}
