//! Plan files of other tools: each test in them is translated as a command line of the tool, and the tests become one
//! scenario.

mod aiperf;
mod guidellm;
mod inference_perf;
mod inferencex;
mod llm_d;
mod merge;
mod vllm;

use crate::import::Translate;
use crate::import::command::Command;
use crate::import::draft::{Account, Draft};
use crate::import::files::merge::merge;
use crate::import::flags::{CommandLine, Flag, GivenFlag, ImportError, Takes, UNREAD, is_secret};
use crate::import::tools::Places;
use llmscen_scenario::Faults;
use llmscen_scenario::document::{Data, Documents, Mistake, Node, Span, nearest};
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;

/// A supported format of plan files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Profiles, experiments and scenarios of llm-d-benchmark.
    LlmD,
    /// Master configs of InferenceX, formerly InferenceMAX.
    InferenceX,
    /// vLLM's serving-tests JSON.
    VllmServingTests,
    /// Workloads of vLLM's perf-eval.
    VllmPerfEval,
    /// AIPerf's config files.
    Aiperf,
    /// Config files of inference-perf.
    InferencePerf,
    /// GuideLLM's scenario files.
    Guidellm,
}

/// The properties of a format.
struct Spec {
    name: &'static str,
    /// What a file of it is.
    source: &'static str,
    /// The release whose fields are implemented.
    release: &'static str,
    recognizes: fn(&Node) -> bool,
    tests: fn(&mut Files<'_>, &Node) -> Tests,
}

/// In the order of [`FileFormat`], which is that of recognition: llm-d wraps files of other tools.
static SPECS: [Spec; 7] = [
    Spec {
        name: "llm-d",
        source: "a file of llm-d-benchmark",
        release: "llm-d-benchmark of 2026",
        recognizes: llm_d::recognizes,
        tests: llm_d::tests,
    },
    Spec {
        name: "inferencex",
        source: "a master config of InferenceX",
        release: "InferenceX of 2026",
        recognizes: inferencex::recognizes,
        tests: inferencex::tests,
    },
    Spec {
        name: "vllm-serving-tests",
        source: "a serving-tests file of vLLM",
        release: "vLLM of late 2026",
        recognizes: vllm::is_serving_tests,
        tests: vllm::serving_tests,
    },
    Spec {
        name: "vllm-perf-eval",
        source: "a workload of vLLM's perf-eval",
        release: "perf-eval of 2026",
        recognizes: vllm::is_perf_eval,
        tests: vllm::perf_eval,
    },
    Spec {
        name: "aiperf",
        source: "a config file of AIPerf",
        release: "aiperf 0.13",
        recognizes: aiperf::recognizes,
        tests: aiperf::tests,
    },
    Spec {
        name: "inference-perf",
        source: "a config file of inference-perf",
        release: "inference-perf of 2026",
        recognizes: inference_perf::recognizes,
        tests: inference_perf::tests,
    },
    Spec {
        name: "guidellm",
        source: "a scenario of GuideLLM",
        release: "guidellm 0.8",
        recognizes: guidellm::recognizes,
        tests: guidellm::tests,
    },
];

pub(super) use inference_perf::translate as translate_inference_perf;

impl FileFormat {
    /// Every format.
    pub const ALL: [FileFormat; 7] = [
        FileFormat::LlmD,
        FileFormat::InferenceX,
        FileFormat::VllmServingTests,
        FileFormat::VllmPerfEval,
        FileFormat::Aiperf,
        FileFormat::InferencePerf,
        FileFormat::Guidellm,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// Parses [`FileFormat::name`].
    pub fn parse(name: &str) -> Option<FileFormat> {
        FileFormat::ALL
            .into_iter()
            .find(|format| format.name() == name)
    }

    fn spec(self) -> &'static Spec {
        &SPECS[self as usize]
    }
}

/// Why a plan file cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {path}: {why}")]
    Read {
        /// The file.
        path: String,
        /// Why not.
        why: std::io::Error,
    },
    /// No format has such a file.
    #[error("{path}: unknown format; known are {known}")]
    Format {
        /// The file.
        path: String,
        /// The formats.
        known: String,
    },
    /// No test has such a name.
    #[error("no test matches --only {only}; the tests are {names}")]
    Only {
        /// The selection.
        only: String,
        /// The names of all tests.
        names: String,
    },
    /// Errors in the file.
    #[error(transparent)]
    Faults(#[from] Faults),
    /// The scenario cannot be written.
    #[error(transparent)]
    Import(#[from] ImportError),
}

/// A scenario with the tests that it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedScenario {
    /// The first test, as a part of a file name; empty if there is one scenario.
    pub suffix: String,
    /// The scenario; comments at its top list the fields and what became of them.
    pub yaml: String,
}

/// An error at a place of a file.
fn mistake(at: Span, message: impl Into<String>, label: impl Into<String>) -> Box<Mistake> {
    Box::new(Mistake::new(at, message, label))
}

/// The result of a conversion.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedFile {
    /// The recognized format.
    pub format: &'static str,
    /// The scenarios: several where no single one can hold all tests.
    pub scenarios: Vec<NamedScenario>,
    /// The fields of the file, and what became of them; equal ones of several tests once.
    pub accounts: Vec<Account>,
    /// Number of tests.
    pub tests: usize,
}

/// Converts a plan file. `only` selects tests whose name contains one of these texts; empty: all.
///
/// # Errors
/// The file cannot be read, has an unknown format, or has a value without a counterpart.
pub fn import_file(
    path: &Path,
    from: Option<FileFormat>,
    only: &[String],
) -> Result<ImportedFile, FileError> {
    let shown = path.display().to_string();
    let mut documents = Documents::default();
    let Some(root) = documents.read(path).map_err(|why| FileError::Read {
        path: shown.clone(),
        why,
    })?
    else {
        return Err(documents.faults().into());
    };
    let recognized = || {
        FileFormat::ALL
            .into_iter()
            .find(|format| (format.spec().recognizes)(&root))
    };
    let Some(format) = from.or_else(recognized) else {
        let known = FileFormat::ALL.map(FileFormat::name).join(", ");
        return Err(FileError::Format { path: shown, known });
    };
    let spec = format.spec();
    let mut files = Files {
        documents: &mut documents,
        folder: path.parent().unwrap_or(Path::new("")),
        read: vec![root.clone()],
        lines: Vec::new(),
        visited: HashSet::new(),
        title: String::new(),
    };
    let tests = match (spec.tests)(&mut files, &root) {
        Ok(tests) if tests.is_empty() => {
            let message = format!("{} without a test", spec.source);
            Err(mistake(root.at.before(), message, "no test in it"))
        }
        other => other,
    };
    let Files {
        read,
        mut lines,
        mut visited,
        title,
        ..
    } = files;
    let mut tests = match tests {
        Ok(tests) => tests,
        Err(found) => return Err(documents.faults_with(*found).into()),
    };
    visited.extend(tests.iter().flat_map(|test| test.draft.visited()));
    let unread = read.iter().flat_map(|root| unread(root, &visited));
    let unread: Vec<Account> = unread.collect();
    if !only.is_empty() {
        lines.retain(|line| {
            line.is_shared || only.iter().any(|part| line.account.flag.contains(part))
        });
        let names: Vec<String> = tests.iter().map(|test| test.name.clone()).collect();
        tests.retain(|test| only.iter().any(|part| test.name.contains(part)));
        if tests.is_empty() {
            return Err(FileError::Only {
                only: only.join(","),
                names: names.join(", "),
            });
        }
    }
    let lines = lines.into_iter().map(|line| line.account);
    let rest: Vec<Account> = unread.into_iter().chain(lines).collect();
    Ok(merge(spec, [&stem(path), &title], tests, &rest)?)
}

/// The fields of a file that no translation has visited: a mapping or a list of which nothing was visited is one of
/// them.
fn unread(root: &Node, visited: &HashSet<Span>) -> Vec<Account> {
    /// Adds the fields within a node. Returns the number of its values, and that of the values in the new accounts.
    fn add(
        node: &Node,
        path: &str,
        visited: &HashSet<Span>,
        found: &mut Vec<(String, usize)>,
    ) -> (usize, usize) {
        let before = found.len();
        let inner: Vec<(String, &Node)> = match &node.data {
            _ if visited.contains(&node.at) => return (1, 0),
            Data::Map(entries) => {
                let dotted = |key: &str| match path {
                    "" => key.to_owned(),
                    _ => format!("{path}.{key}"),
                };
                let entries = entries.iter();
                entries
                    .map(|entry| (dotted(&entry.key), &entry.value))
                    .collect()
            }
            Data::List(items) => {
                let items = items.iter().enumerate();
                items
                    .map(|(index, item)| (format!("{path}[{index}]"), item))
                    .collect()
            }
            Data::Null => return (0, 0),
            _ => {
                found.push((path.to_owned(), 1));
                return (1, 1);
            }
        };
        let counts = inner
            .iter()
            .map(|(path, node)| add(node, path, visited, found));
        let (all, left) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        if left > 0 && left == all && !path.is_empty() {
            found.truncate(before);
            found.push((path.to_owned(), left));
        }
        (all, left)
    }
    let mut found = Vec::new();
    add(root, "", visited, &mut found);
    let note = |values: usize| match values {
        1 => "not understood".to_owned(),
        values => format!("not understood, {values} values"),
    };
    let found = found.into_iter();
    found
        .map(|(path, values)| Account::lost(path, note(values)))
        .collect()
}

/// The name of a file without `.yaml`, `.yaml.in` or `.json`.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// What the translations of a file may read besides it.
struct Files<'a> {
    documents: &'a mut Documents,
    /// The folder of the file.
    folder: &'a Path,
    /// The file, and the files that it names.
    read: Vec<Node>,
    /// Fields that are in no test.
    lines: Vec<FileLine>,
    /// Nodes that are used as a whole outside of tests.
    visited: HashSet<Span>,
    /// What the name of the scenario has beside that of the file.
    title: String,
}

/// The line of a field that is in no test.
struct FileLine {
    account: Account,
    /// It belongs to every test.
    is_shared: bool,
}

impl Files<'_> {
    fn line(&mut self, path: &str, node: &Node, why: &str, loses_load: bool) {
        self.mark(Some(node));
        self.lines.push(FileLine {
            account: Account {
                loses_load,
                ..Account::lost(path.to_owned(), why.to_owned())
            },
            is_shared: !loses_load,
        });
    }

    /// Lists a field without a counterpart.
    fn drop(&mut self, path: &str, node: &Node, why: &str) {
        self.line(path, node, why, false);
    }

    /// Lists a case without a counterpart.
    fn lose(&mut self, path: &str, node: &Node, why: &str) {
        self.line(path, node, why, true);
    }

    /// Lists a part of the load of every test without a counterpart.
    fn lose_of_all(&mut self, path: &str, node: &Node, why: &str) {
        self.lose(path, node, why);
        if let Some(line) = self.lines.last_mut() {
            line.is_shared = true;
        }
    }

    /// Records a value that each test replaces: a block is listed, with what is in it.
    fn replaced(&mut self, path: &str, node: Option<&Node>) {
        match node {
            Some(node) if node.scalar().is_none() => {
                self.drop(path, node, "replaced in the tests that give it");
            }
            node => self.mark(node),
        }
    }

    /// Records that a node is used as a whole.
    fn mark(&mut self, node: Option<&Node>) {
        self.visited.extend(node.map(|node| node.at));
    }
}

/// A test of a plan file: a scenario of its own, until [`merge`] makes one of all.
struct Test {
    name: String,
    /// Tests of different groups never share a scenario.
    group: String,
    /// The names of its variant and its workload, if the file has them.
    parts: Option<[String; 2]>,
    draft: Draft,
}

impl Test {
    fn new(name: impl Into<String>, draft: Draft) -> Test {
        Test {
            name: name.into(),
            group: String::new(),
            parts: None,
            draft,
        }
    }

    /// A test that the file does not name; `values` are what it differs in.
    fn unnamed(values: String, draft: Draft) -> Test {
        Test {
            parts: Some(Default::default()),
            ..Test::new(values, draft)
        }
    }
}

/// The tests of a file, or the error in it.
type Tests = Result<Vec<Test>, Box<Mistake>>;

/// The fields of one test, as flags of a command.
struct Fields {
    /// The test.
    at: Span,
    given: Vec<(GivenFlag, Span)>,
}

impl Fields {
    fn new(at: Span) -> Fields {
        Fields {
            at,
            given: Vec::new(),
        }
    }

    fn push(
        &mut self,
        flag: &'static Flag,
        path: &str,
        values: Vec<String>,
        at: Span,
    ) -> &mut GivenFlag {
        let given = GivenFlag::new(flag, path.to_owned(), values);
        let index = self.given.len();
        self.given.push((given, at));
        &mut self.given[index].0
    }

    /// Adds a field as a flag of the command; an unknown flag is listed as such.
    fn flag(&mut self, command: &'static Command, name: &str, path: &str, node: &Node) {
        let name = match name.starts_with("--") {
            true => name.replace('_', "-"),
            false => name.to_owned(),
        };
        let flag = command
            .flags
            .iter()
            .find(|flag| flag.names().any(|known| known == name));
        if node.is_null() && flag.is_none_or(|flag| !matches!(flag.takes, Takes::Nothing)) {
            return self.dropped(path, node, "no value");
        }
        let Some(flag) = flag else {
            let near = nearest(&name, command.flags.iter().flat_map(Flag::names));
            let hint =
                near.map(|near| format!("; did you mean `{}`?", near.trim_start_matches('-')));
            return self.lost(
                path,
                node,
                format!("not understood{}", hint.unwrap_or_default()),
            );
        };
        let is_off = node.flag() == Some(false) || node.number() == Some(0.0);
        if flag.loses_load && is_off {
            return self.dropped(path, node, "off");
        }
        if matches!(flag.takes, Takes::Nothing) {
            match (&node.data, node.text().as_deref()) {
                (Data::Bool(false), _) => return self.dropped(path, node, "off"),
                (Data::Bool(true), _) | (_, Some("" | "none")) => {
                    self.push(flag, path, Vec::new(), node.at);
                    return;
                }
                _ => {}
            }
        }
        self.push(flag, path, values(node), node.at);
    }

    /// Adds a field whose path is the name of a flag.
    fn own(&mut self, command: &'static Command, path: &str, node: &Node) {
        self.flag(command, path, path, node);
    }

    /// Adds a field that became these keys.
    fn placed(&mut self, path: &str, node: &Node, key: &str) {
        let keys = vec![key.replace('/', ".")];
        self.push(&UNREAD, path, shown(path, node), node.at).keys = keys;
    }

    /// Adds a field without a counterpart.
    fn dropped(&mut self, path: &str, node: &Node, reason: impl Into<String>) {
        let reason = reason.into();
        self.push(&UNREAD, path, shown(path, node), node.at).note = Some(reason);
    }

    /// Adds a field without which the load is another one.
    fn lost(&mut self, path: &str, node: &Node, reason: impl Into<String>) {
        let given = self.push(&UNREAD, path, shown(path, node), node.at);
        given.note = Some(reason.into());
        given.loses_load = true;
    }

    /// Adds the fields of a mapping by their places.
    fn table(&mut self, command: &'static Command, places: &Places, prefix: &str, node: &Node) {
        for entry in node.entries() {
            let path = match prefix {
                "" => entry.key.clone(),
                _ => format!("{prefix}.{}", entry.key),
            };
            match places.get(&path) {
                Some(place) => self.place(command, place, &path, &entry.value),
                None if !entry.value.entries().is_empty() => {
                    self.table(command, places, &path, &entry.value);
                }
                None => self.own(command, &path, &entry.value),
            }
        }
    }

    /// Adds a field with a place of [`Places`].
    fn place(&mut self, command: &'static Command, place: &str, path: &str, node: &Node) {
        if let Some(key) = place.strip_prefix('=') {
            self.placed(path, node, key);
        } else if let Some(reason) = place.strip_prefix('!') {
            // A dump of all defaults has blocks that are off.
            let batch = node.get("batch_size").and_then(Node::number);
            match node.is_null() || batch == Some(0.0) {
                true => self.dropped(path, node, "off"),
                false => self.lost(path, node, reason),
            }
        } else if place.starts_with("--") {
            self.flag(command, place, path, node);
        } else {
            self.dropped(path, node, place);
        }
    }

    /// Translates the fields; an error points at its field.
    fn translate(self, translate: Translate) -> Result<Draft, Box<Mistake>> {
        let visited: Vec<Span> = self.given.iter().map(|(_, at)| *at).collect();
        let places: Vec<(String, Span)> = self
            .given
            .iter()
            .map(|(given, at)| (given.written.clone(), *at))
            .collect();
        let mut draft = Draft::new(CommandLine {
            variables: Vec::new(),
            given: self.given.into_iter().map(|(given, _)| given).collect(),
        });
        let located = |error: ImportError| match error {
            ImportError::Value { flag, expected, .. } => {
                let at = places.iter().find(|(path, _)| *path == flag);
                mistake(
                    at.map_or(self.at, |(_, at)| *at),
                    format!("`{flag}` has no counterpart"),
                    format!("expected {expected}"),
                )
            }
            ImportError::Missing(what) => {
                let what = what.trim_start_matches('-').replace('-', "_");
                mistake(self.at.before(), format!("no `{what}`"), "in this test")
            }
            other => mistake(self.at, other.to_string(), "here"),
        };
        draft
            .carry_flags()
            .and_then(|()| translate(&mut draft))
            .map_err(located)?;
        draft.visit(visited);
        let of_load = |key: &String| {
            let section = key.split('.').next().unwrap_or_default();
            ["load", "matrix", "search"].contains(&section)
        };
        match draft
            .accounts()
            .iter()
            .flat_map(|account| &account.keys)
            .any(of_load)
        {
            true => Ok(draft),
            false => Err(mistake(
                self.at.before(),
                "no field of this test says how requests are sent",
                "a test without a load",
            )),
        }
    }
}

/// The value at a path in which `[2]` selects an item of a list.
fn value_at<'n>(node: &'n Node, path: &str) -> Option<&'n Node> {
    let Some((list, rest)) = path.split_once('[') else {
        return node.get(path);
    };
    let (index, rest) = rest.split_once(']')?;
    let item = node.get(list)?.items().get(index.parse::<usize>().ok()?)?;
    match rest.strip_prefix('.') {
        Some(rest) => value_at(item, rest),
        None => Some(item),
    }
}

/// Sets a value at such a path. False: there is no such item.
fn replace(node: &mut Node, path: &str, key_at: Span, value: &Node) -> bool {
    let Some((list, rest)) = path.split_once('[') else {
        node.set(path, key_at, value.clone());
        return true;
    };
    let Some((index, rest)) = rest.split_once(']') else {
        return false;
    };
    let whole = node.get(list).map(|node| (node.at, node.items().to_vec()));
    let (Some((at, mut items)), Ok(index)) = (whole, index.parse::<usize>()) else {
        return false;
    };
    let Some(item) = items.get_mut(index) else {
        return false;
    };
    let is_set = match rest.strip_prefix('.') {
        Some(rest) => replace(item, rest, key_at, value),
        None => {
            *item = value.clone();
            true
        }
    };
    if is_set {
        node.set(list, key_at, Node::new(at, Data::List(items)));
    }
    is_set
}

/// The error of an override without a place.
fn no_place(key_at: Span, key: &str) -> Box<Mistake> {
    mistake(
        key_at,
        format!("`{key}` is not in the file"),
        "nothing to replace",
    )
}

/// The values of a field: those of a list one by one. A mapping is JSON.
fn values(node: &Node) -> Vec<String> {
    let text = |node: &Node| match node.scalar() {
        Some(scalar) => scalar.to_string(),
        None => node.json().to_string(),
    };
    match &node.data {
        Data::Null => Vec::new(),
        Data::List(items) => items.iter().map(text).collect(),
        _ => vec![text(node)],
    }
}

/// The values of a field for the head of the scenario: not those of a block, which has a line of its own, and no
/// secrets.
fn shown(path: &str, node: &Node) -> Vec<String> {
    match &node.data {
        Data::Map(_) => Vec::new(),
        Data::List(items) if items.iter().any(|item| item.scalar().is_none()) => Vec::new(),
        _ if path.rsplit('.').next().is_some_and(is_hidden) => vec!["***".to_owned()],
        _ => values(node),
    }
}

/// `KEY=VALUE` of a value that names a test; None of a block or a secret.
fn label(key: &str, value: &Node) -> Option<String> {
    let last = key.rsplit('.').next().unwrap_or(key);
    let value = value.scalar().filter(|_| !is_hidden(last))?;
    Some(format!("{key}={value}"))
}

/// Whether the value of a name is never written.
fn is_hidden(name: &str) -> bool {
    is_secret(name) || name.to_lowercase().ends_with("token")
}

/// A value for the scenario.
fn scalar(node: &Node) -> Value {
    match &node.data {
        Data::List(_) | Data::Map(_) => Value::from(node.json().to_string()),
        _ => node.json(),
    }
}

/// The URL of a server that the run starts.
fn local(port: u16, route: &str) -> String {
    format!("http://127.0.0.1:{port}/{route}")
}

#[cfg(test)]
mod tests;
