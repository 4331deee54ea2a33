//! The texts of a scenario. Only this module reads files.

use crate::masked::masked;
use crate::tree::{Data, Node, Span};
use llmscen_core::bounds;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

#[derive(Debug)]
struct Text {
    name: String,
    text: Arc<str>,
    folder: PathBuf,
    path: Option<PathBuf>,
    bad: Option<Span>,
    marks: OnceLock<Vec<Mark>>,
    /// The text without literal secrets.
    masked: OnceLock<Arc<str>>,
}

/// A position in a text: its byte, the line ends before it, and the characters since the last line end.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    byte: usize,
    lines: usize,
    column: usize,
}

/// Bytes between the marks of a text: thousands of errors must not each scan all of it.
const STRIDE: usize = 512;

/// The name of the text of a path argument; its errors have no source text.
pub(crate) const COMMAND_LINE: &str = "command line";

/// The dataset that ships with llmscen.
const BUILTIN: &str = "builtin";

/// The texts read so far, each with the name that errors show.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    texts: Vec<Text>,
    /// Whether a stored plan is read to report on it, so that files may be missing.
    pub stored: bool,
}

/// Why a file could not be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    Io(io::Error),
    /// Not UTF-8; the span of the first invalid byte in the converted text.
    NotUtf8(Span),
    /// Not text at all; what it is instead.
    NotText(&'static str),
}

impl Sources {
    /// Adds a text; file names in it are relative to `folder`.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        text: impl Into<Arc<str>>,
        folder: PathBuf,
    ) -> usize {
        self.texts.push(Text {
            name: name.into(),
            text: text.into(),
            folder,
            path: None,
            bad: None,
            marks: OnceLock::new(),
            masked: OnceLock::new(),
        });
        self.texts.len() - 1
    }

    /// Reads a file once; errors show `name`.
    pub fn read(&mut self, path: &Path, name: &str) -> Result<usize, ReadError> {
        let known = self
            .texts
            .iter()
            .position(|text| text.path.as_deref() == Some(path));
        let file = match known {
            Some(file) => file,
            None => {
                let bytes = bounds::read(path, bounds::TEXT).map_err(ReadError::Io)?;
                if let Some(what) = not_text(&bytes) {
                    return Err(ReadError::NotText(what));
                }
                let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
                let file = self.add(name, String::from_utf8_lossy(&bytes), folder);
                let start = std::str::from_utf8(&bytes)
                    .err()
                    .map(|error| error.valid_up_to());
                self.texts[file].bad = start.map(|start| Span {
                    file,
                    start,
                    end: start + '\u{fffd}'.len_utf8(),
                });
                self.texts[file].path = Some(path.to_path_buf());
                file
            }
        };
        self.texts[file]
            .bad
            .map_or(Ok(file), |at| Err(ReadError::NotUtf8(at)))
    }

    pub fn name(&self, file: usize) -> &str {
        self.texts.get(file).map_or("", |text| &text.name)
    }

    pub fn text(&self, file: usize) -> Arc<str> {
        self.texts
            .get(file)
            .map_or_else(|| Arc::from(""), |text| text.text.clone())
    }

    /// The text as errors show it: with an asterisk for each byte of a literal secret.
    pub fn masked_text(&self, file: usize) -> Arc<str> {
        self.texts.get(file).map_or_else(
            || Arc::from(""),
            |text| {
                let masked = text.masked.get_or_init(|| masked(&text.text).into());
                masked.clone()
            },
        )
    }

    /// Line and column of a span's start, both from 1; columns count characters.
    pub fn line_and_column(&self, at: Span) -> (usize, usize) {
        let Some(known) = self.texts.get(at.file) else {
            return (1, 1);
        };
        let text = &*known.text;
        let end = if text.is_char_boundary(at.start) {
            at.start
        } else {
            text.len()
        };
        let marks = known.marks.get_or_init(|| marks(text));
        let mark = marks[..marks.partition_point(|mark| mark.byte <= end)]
            .last()
            .copied()
            .unwrap_or_default();
        let mark = mark.advance(&text[mark.byte..end]);
        (mark.lines + 1, mark.column + 1)
    }

    /// The span of a part of a node's text; the whole node where the source is escaped or folded.
    pub fn part(&self, node: &Node, written: &str, range: Range<usize>) -> Span {
        let text = self.text(node.at.file);
        let slice = text.get(node.at.range()).unwrap_or("");
        let shift = if slice == written {
            0
        } else if slice.len() == written.len() + 2 && slice.get(1..slice.len() - 1) == Some(written)
        {
            1
        } else {
            return node.at;
        };
        let start = node.at.start + shift + range.start;
        Span {
            file: node.at.file,
            start,
            end: start + range.len(),
        }
    }

    /// A number or boolean as it is written: `0.90` is not `0.9` as text. None for other values.
    pub fn written(&self, node: &Node) -> Option<String> {
        if !matches!(node.data, Data::Int(_) | Data::Float(_) | Data::Bool(_)) {
            return None;
        }
        let text = self.text(node.at.file);
        // The value of a reference is written elsewhere.
        let written = text
            .get(node.at.range())
            .filter(|text| Data::plain(text) == node.data);
        Some(written.map_or_else(|| node.json().to_string(), str::to_owned))
    }

    /// The absolute path of a file: relative to the folder of the text, then to the working directory. None where it
    /// does not exist. `builtin` is a dataset that ships with llmscen, unless there is such a file.
    pub fn find(&self, file: usize, named: &str) -> Option<PathBuf> {
        let folder = self
            .texts
            .get(file)
            .map(|text| text.folder.clone())
            .unwrap_or_default();
        let tried = [folder.join(named), PathBuf::from(named)];
        let found = tried.iter().find_map(|path| path.canonicalize().ok());
        let found = found.or_else(|| (named == BUILTIN).then(|| PathBuf::from(BUILTIN)));
        found.or_else(|| {
            self.stored
                .then(|| {
                    tried
                        .first()
                        .and_then(|path| std::path::absolute(path).ok())
                })
                .flatten()
        })
    }

    /// The absolute path of a file or folder, or a name on a hub: `org/name` where there is no folder `org`.
    pub fn find_or_hub(&self, file: usize, named: &str) -> Option<String> {
        let folder = self
            .texts
            .get(file)
            .map(|text| text.folder.clone())
            .unwrap_or_default();
        let here = |named: &Path| {
            [folder.join(named), named.to_path_buf()]
                .iter()
                .any(|path| path.exists())
        };
        let parent = Path::new(named).parent().unwrap_or(Path::new(""));
        if is_hub_name(named) && !here(parent) {
            return Some(named.to_owned());
        }
        self.find(file, named)
            .map(|path| path.display().to_string())
    }

    /// A file in the folder of a text.
    pub fn file_in_folder(&self, file: usize, name: &str) -> Option<PathBuf> {
        let path = self.texts.get(file)?.folder.join(name);
        path.is_file().then_some(path)
    }

    /// A found file as a path that users of `file` would write.
    pub fn display_path(&self, file: usize, named: &str, found: &Path) -> String {
        let beside = Path::new(self.name(file))
            .parent()
            .map(|folder| folder.join(named));
        let beside = beside.filter(|beside| beside.canonicalize().is_ok_and(|path| path == found));
        beside.map_or(named.to_owned(), |beside| beside.display().to_string())
    }

    /// The folders in which a file was searched.
    pub fn looked_in(&self, file: usize, named: &str) -> Option<String> {
        let folder = self
            .texts
            .get(file)
            .map(|text| text.folder.as_path())
            .unwrap_or(Path::new(""));
        let folder = folder.display().to_string();
        match folder.trim_start_matches("./") {
            _ if Path::new(named).is_absolute() => None,
            "" | "." => Some("The path starts in the working directory.".to_owned()),
            folder => Some(format!(
                "The path starts in {}/ or in the working directory.",
                folder.trim_end_matches('/')
            )),
        }
    }

    /// File names near a missing one, for suggestions.
    pub fn siblings(&self, file: usize, named: &str) -> Vec<String> {
        let folder = self
            .texts
            .get(file)
            .map(|text| text.folder.clone())
            .unwrap_or_default();
        let sub = Path::new(named).parent().unwrap_or(Path::new(""));
        let names = [folder.join(sub), Path::new(".").join(sub)]
            .into_iter()
            .filter_map(|dir| std::fs::read_dir(dir).ok());
        let mut names: Vec<String> = names
            .flatten()
            .flatten()
            .map(|entry| sub.join(entry.file_name()).display().to_string())
            .collect();
        names.sort();
        names
    }
}

fn marks(text: &str) -> Vec<Mark> {
    let mut marks = vec![Mark::default()];
    let mut last = Mark::default();
    while text.len() - last.byte > STRIDE {
        let next = (last.byte + STRIDE..)
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(text.len());
        last = last.advance(&text[last.byte..next]);
        marks.push(last);
    }
    marks
}

impl Mark {
    /// The mark after `part`, which follows this one.
    fn advance(self, part: &str) -> Mark {
        let column = match part.rsplit_once('\n') {
            Some((_, line)) => line.chars().count(),
            None => self.column + part.chars().count(),
        };
        Mark {
            byte: self.byte + part.len(),
            lines: self.lines + part.matches('\n').count(),
            column,
        }
    }
}

/// Scenario files next to a path, in the working directory and in `scenarios`, as they would be typed.
pub(crate) fn scenarios_near(path: &Path) -> Vec<String> {
    let folders = [
        path.parent().unwrap_or(Path::new("")),
        Path::new(""),
        Path::new("scenarios"),
    ];
    let read = |folder: &&Path| {
        std::fs::read_dir(if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        })
        .ok()
    };
    let files = folders
        .iter()
        .filter_map(|folder| Some((folder, read(folder)?)));
    let files = files.flat_map(|(folder, entries)| {
        entries
            .flatten()
            .map(|entry| folder.join(entry.file_name()))
    });
    let names: BTreeSet<String> = files
        .filter(|file| is_scenario(file))
        .map(|file| file.display().to_string())
        .collect();
    names.into_iter().collect()
}

/// A YAML file with a target, since there are other YAML files.
fn is_scenario(path: &Path) -> bool {
    let yaml = path
        .extension()
        .is_some_and(|ending| ending == "yaml" || ending == "yml");
    let starts = |line: &str| line.starts_with("target:") || line.starts_with("extends:");
    yaml && text(path).is_some_and(|text| text.lines().any(starts))
}

/// What a file without UTF-8 text is. The `>` of the Windows shell writes UTF-16.
fn not_text(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some("UTF-16 text"),
        _ => bytes.contains(&0).then_some("a binary file"),
    }
}

/// The text of a small file that no error points into. None where it cannot be read.
pub fn text(path: &Path) -> Option<String> {
    bounds::read_text(path, bounds::TEXT).ok()
}

/// `org/name`, but not a file: an extension of letters is a file's, so `Qwen2.5-7B` is a name.
pub fn is_hub_name(text: &str) -> bool {
    let plain = |part: &str| {
        let fits = part
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        fits && part.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    let ending = text.rsplit_once('.').map_or("", |(_, ending)| ending);
    let file = !ending.is_empty() && ending.bytes().all(|b| b.is_ascii_alphabetic());
    !file
        && text
            .split_once('/')
            .is_some_and(|(org, name)| plain(org) && plain(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        let mut sources = Sources::default();
        let file = sources.add("a", "é: ü\nz: y\n", PathBuf::new());
        assert_eq!(
            sources.line_and_column(Span {
                file,
                start: 4,
                end: 6
            }),
            (1, 4)
        );
        assert_eq!(
            sources.line_and_column(Span {
                file,
                start: 10,
                end: 11
            }),
            (2, 4)
        );
    }

    #[test]
    fn hub_names_are_not_paths() {
        for name in [
            "Qwen/Qwen2.5-7B-Instruct",
            "meta-llama/Llama-3.1",
            "org/name",
        ] {
            assert!(is_hub_name(name), "{name}");
        }
        for path in [
            "tokenizer.json",
            "a/tokenizer.json",
            "./a",
            "/a",
            "../a",
            "a/b/c",
            "a",
            "a/",
            "a/b c",
        ] {
            assert!(!is_hub_name(path), "{path}");
        }
        let mut sources = Sources::default();
        let file = sources.add("a", "", PathBuf::new());
        assert_eq!(
            sources.find_or_hub(file, "org/name"),
            Some("org/name".into())
        );
        assert_eq!(sources.find_or_hub(file, "builtin"), Some("builtin".into()));
        assert_eq!(
            sources.find_or_hub(file, "tests/nowhere"),
            None,
            "the folder is there, the file is not"
        );
    }

    #[test]
    fn parts_are_located_in_plain_and_quoted_text_only() {
        let mut sources = Sources::default();
        let file = sources.add("a", "abc 'abc' \"a\\x62c\"", PathBuf::new());
        let node = |start, end| Node::new(Span { file, start, end }, Data::Text("abc".into()));
        assert_eq!(
            sources.part(&node(0, 3), "abc", 1..2),
            Span {
                file,
                start: 1,
                end: 2
            }
        );
        assert_eq!(
            sources.part(&node(4, 9), "abc", 1..2),
            Span {
                file,
                start: 6,
                end: 7
            }
        );
        assert_eq!(
            sources.part(&node(10, 18), "abc", 1..2),
            Span {
                file,
                start: 10,
                end: 18
            }
        );
    }

    #[test]
    fn files_are_found_next_to_the_text_that_names_them() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.txt"), [b'a', 0xff]).unwrap();
        let mut sources = Sources::default();
        let file = sources.add("a", "", folder.path().to_path_buf());
        assert_eq!(
            sources.find(file, "x.txt"),
            Some(folder.path().canonicalize().unwrap().join("x.txt"))
        );
        assert_eq!(
            sources.find(file, "Cargo.toml"),
            Some(Path::new("Cargo.toml").canonicalize().unwrap())
        );
        assert_eq!(sources.find(file, "y.txt"), None);
        assert_eq!(
            sources
                .siblings(file, "y.txt")
                .iter()
                .filter(|name| *name == "x.txt")
                .count(),
            1
        );
        let error = sources.read(&folder.path().join("x.txt"), "x").unwrap_err();
        assert!(
            matches!(
                error,
                ReadError::NotUtf8(Span {
                    file: 1,
                    start: 1,
                    end: 4
                })
            ),
            "{error:?}"
        );
    }
}
