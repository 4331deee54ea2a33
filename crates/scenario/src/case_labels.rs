//! Names of swept values in labels and case ids: as written, except for files. A file is named by the shortest unique
//! end of its path, so that a plan does not depend on the working directory, or on being read back from a run.

use crate::fault::{Mistake, Review};
use crate::redactions::Origin;
use crate::schema_table::Kind;
use crate::secrets::{TextSyntax, from_env, is_hidden, write_text};
use crate::sections::local;
use crate::sections::scenario::SCENARIO;
use crate::sweep::{Point, Setting};
use crate::tree::{Node, last_segment};
use llmscen_core::label::{Labels, Scalar};
use llmscen_core::url_secrets::{is_url, redact_url, secret_ranges};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

/// The names of swept values.
pub(crate) struct CaseLabels {
    names: BTreeMap<(String, String), String>,
}

impl CaseLabels {
    /// Names the values of these points. Reports different names of one file that make the same case twice.
    pub fn new(points: &[Point], root: &Node, review: &mut Review) -> CaseLabels {
        let local = local::is_possible(root);
        // Path of the field → text in the scenario → file.
        let mut files: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
        for setting in points.iter().flatten() {
            if let (Some(written), Some(file)) =
                (setting.value.text(), file(setting, local, review))
            {
                files
                    .entry(&setting.path)
                    .or_default()
                    .insert(written.into_owned(), file);
            }
        }
        let mut names = BTreeMap::new();
        for (path, files) in files {
            let all: BTreeSet<&str> = files.values().map(String::as_str).collect();
            for (written, file) in &files {
                let at = if written.starts_with('@') { "@" } else { "" };
                names.insert(
                    (path.to_owned(), written.clone()),
                    format!("{at}{}", tail(file, &all)),
                );
            }
        }
        mask(points, &mut names);
        let labels = CaseLabels { names };
        if !labels.names.is_empty() {
            labels.unique(points, review);
        }
        labels
    }

    pub fn labels(&self, point: &Point) -> Labels {
        let name = |setting: &Setting| {
            let text = spelled(setting)?;
            self.names
                .get(&(setting.path.clone(), text))
                .cloned()
                .map(Scalar::Text)
        };
        Labels(
            point
                .iter()
                .filter_map(|setting| {
                    Some((
                        setting.path.clone(),
                        name(setting).or_else(|| setting.value.scalar())?,
                    ))
                })
                .collect(),
        )
    }

    fn unique(&self, points: &[Point], review: &mut Review) {
        let all: Vec<Labels> = points.iter().map(|point| self.labels(point)).collect();
        for (index, labels) in all.iter().enumerate() {
            let Some(first) = all[..index].iter().position(|other| other == labels) else {
                continue;
            };
            let pair = points[index]
                .iter()
                .zip(&points[first])
                .find(|(setting, other)| setting.value.text() != other.value.text());
            if let Some((setting, other)) = pair {
                let mistake = Mistake::new(
                    setting.value.at,
                    "the same case twice",
                    "the same file with another name",
                );
                review.push(mistake.also(other.value.at, "first here"));
            }
        }
    }
}

/// A swept text or number as text.
fn spelled(setting: &Setting) -> Option<String> {
    let text = setting.value.string();
    text.or_else(|| setting.value.integer().map(|number| number.to_string()))
}

/// Names values that contain variables, URLs or secrets without the hidden parts; equal names are numbered.
fn mask(points: &[Point], names: &mut BTreeMap<(String, String), String>) {
    let mut known: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for setting in points.iter().flatten() {
        let Some(text) = spelled(setting) else {
            continue;
        };
        let shown_before = known.entry(&setting.path).or_default();
        let key = (setting.path.clone(), text.clone());
        if names.contains_key(&key) {
            continue;
        }
        let shown = match Origin::at_path(&setting.path) {
            _ if is_hidden(last_segment(&setting.path), &setting.value) => {
                Some("[redacted]".to_owned())
            }
            Origin::Sent if from_env(&setting.value) => {
                Some(write_text(&setting.value, TextSyntax::Body)).filter(|by| *by != text)
            }
            _ if is_url(&text) && !secret_ranges(&text).is_empty() => Some(redact_url(&text)),
            _ => None,
        };
        if let Some(shown) = shown {
            shown_before.push(shown.clone());
            let before = shown_before.iter().filter(|other| **other == shown).count();
            let number = if before > 1 {
                format!("#{before}")
            } else {
                String::new()
            };
            names.insert(key, shown + &number);
        }
    }
}

/// The absolute path of the file in a swept value, if it exists.
fn file(setting: &Setting, local: bool, review: &Review) -> Option<String> {
    let text = setting.value.text()?;
    let from = setting.value.at.file;
    let found = |named: &str| Some(review.sources.find(from, named)?.display().to_string());
    let file = match SCENARIO.kind_at(&setting.path)? {
        Kind::File | Kind::Data | Kind::Template => found(&text),
        Kind::Hub => review.sources.find_or_hub(from, &text),
        Kind::Text if last_segment(&setting.path) == "text" => found(text.strip_prefix('@')?),
        _ if setting.path == "target.model" && local => local::locate(from, &text, review),
        _ => None,
    };
    file.filter(|file| Path::new(file).is_absolute())
}

/// The shortest end of a path that no other path has.
fn tail(file: &str, all: &BTreeSet<&str>) -> String {
    let segments = parts(file);
    let alone = |count: usize| {
        let end = |parts: &[String]| parts[parts.len().saturating_sub(count)..].to_vec();
        all.iter()
            .filter(|other| **other != file)
            .all(|other| end(&parts(other)) != end(&segments))
    };
    let count = (1..segments.len())
        .find(|count| alone(*count))
        .unwrap_or(segments.len());
    segments[segments.len() - count..].join("/")
}

fn parts(file: &str) -> Vec<String> {
    let normal = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    };
    Path::new(file).components().filter_map(normal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, load, reload};

    #[test]
    fn files_are_named_by_their_shortest_unique_end() {
        let all = BTreeSet::from(["/a/x/p.jsonl", "/b/x/p.jsonl", "/b/q.jsonl", "/p.jsonl"]);
        let tails: Vec<String> = all.iter().map(|file| tail(file, &all)).collect();
        assert_eq!(tails, ["a/x/p.jsonl", "q.jsonl", "b/x/p.jsonl", "p.jsonl"]);
        assert_eq!(
            tail("/a/x/p.jsonl", &BTreeSet::from(["/a/x/p.jsonl"])),
            "p.jsonl"
        );
    }

    fn ids(text: &str, path: &Path, stored: bool) -> (Vec<String>, String) {
        let input = Input {
            path,
            text: Some(text.to_owned()),
            env: &BTreeMap::new(),
            set: &[],
        };
        let loaded = if stored { reload(&input) } else { load(&input) };
        let plan = loaded
            .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
            .plan;
        (
            plan.cases.into_iter().map(|case| case.id).collect(),
            plan.resolved,
        )
    }

    #[test]
    fn case_ids_survive_resolving_and_deleted_files() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["one/a.jsonl", "two/a.jsonl", "b.jsonl"] {
            std::fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(name), "{\"prompt\": \"hello\"}\n").unwrap();
        }
        let text = "version: 1\nname: t\ntarget: {url: simulator}\ndataset: {kind: rows, path: \
                    b.jsonl}\nload: {concurrency: 1, requests: 1}\nmatrix: {dataset.path: \
                    [one/a.jsonl, two/a.jsonl, b.jsonl]}\n";
        let known = ["path=one/a.jsonl", "path=two/a.jsonl", "path=b.jsonl"];
        let (read_ids, resolved) = ids(text, &folder.path().join("s.yaml"), false);
        assert_eq!(read_ids, known);
        assert_eq!(
            ids(&resolved, Path::new("/elsewhere/plan.yaml"), false),
            (read_ids, resolved.clone())
        );
        drop(folder);
        assert_eq!(ids(&resolved, Path::new("plan.yaml"), true).0, known);
    }

    #[test]
    fn two_names_of_one_file_are_a_duplicate_case() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.jsonl"), "{\"prompt\": \"hello\"}\n").unwrap();
        let text = "version: 1\nname: t\ntarget: {url: simulator}\ndataset: {kind: rows}\nload: \
                    {concurrency: 1, requests: 1}\nmatrix: {dataset.path: [a.jsonl, ./a.jsonl]}\n";
        let path = folder.path().join("s.yaml");
        let input = Input {
            path: &path,
            text: Some(text.to_owned()),
            env: &BTreeMap::new(),
            set: &[],
        };
        let faults = load(&input).unwrap_err();
        assert_eq!(
            faults
                .iter()
                .map(|fault| fault.message())
                .collect::<Vec<_>>(),
            ["the same case twice"]
        );
    }
}
