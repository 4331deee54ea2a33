//! What a file is, by its name and its first bytes.

use std::path::Path;

/// Bytes of the beginning that are looked at.
pub const HEAD: usize = 64 << 10;

/// How a text holds its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// A row is a line of plain text.
    Plain,
    /// A row is a line of JSON.
    Lines,
    /// A row is an element of the JSON list at this offset, the member of a mapping where that has a key.
    List(usize, Option<String>),
    /// A row is a record; its fields are parted by this byte.
    Csv(u8),
}

/// What a kind reads, as far as formats depend on it.
#[derive(Clone, Copy, Debug)]
pub struct FormatOptions {
    /// Lines as they are, whatever they hold.
    pub plain_lines: bool,
    /// A list of messages is a row.
    pub bare_lists: bool,
    /// Columns that hold a list.
    pub list_columns: &'static [&'static str],
}

impl FormatOptions {
    /// Tables of rows, in whatever format.
    pub const ROWS: FormatOptions = FormatOptions { plain_lines: false, bare_lists: false, list_columns: &[] };
}

/// The extension of a file, in lower case, that of its compression left out.
pub fn extension(path: &Path) -> String {
    let own = |path: &Path| path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    match own(path).as_str() {
        "gz" | "gzip" | "zst" | "zstd" => own(Path::new(path.file_stem().unwrap_or_default())),
        plain => plain.to_owned(),
    }
}

/// The format of a text that begins with `head`, which is the whole of it where `whole`. None: more is needed.
pub fn detect(options: FormatOptions, extension: &str, head: &[u8], whole: bool) -> Option<Format> {
    match extension {
        _ if options.plain_lines => return Some(Format::Plain),
        "csv" => return Some(Format::Csv(b',')),
        "tsv" | "tab" => return Some(Format::Csv(b'\t')),
        _ => {}
    }
    let blank = head.len() - head.trim_ascii_start().len();
    let enough = whole || head.len() >= HEAD;
    match head.get(blank) {
        None if !enough => None,
        // A text may begin with a bracket: `[CLS] hello`.
        Some(b'[') if matches!(extension, "txt" | "text") && !opens(&head[blank + 1..]) => Some(Format::Plain),
        Some(b'[') => {
            list(options, &head[blank + 1..], enough).map(|row| if row { Format::Lines } else { Format::List(blank, None) })
        }
        Some(b'{') if !matches!(extension, "jsonl" | "ndjson") => {
            let found = mapping(options, &head[blank..], whole, enough);
            found.map(|list| list.map_or(Format::Lines, |(key, at)| Format::List(blank + at, Some(key))))
        }
        Some(byte) if matches!(extension, "txt" | "text") && *byte != b'{' => Some(Format::Plain),
        _ => Some(Format::Lines),
    }
}

/// Whether a list of JSON could go on so.
fn opens(rest: &[u8]) -> bool {
    rest.trim_ascii_start().first().is_none_or(|byte| b"{[\"]".contains(byte))
}

/// Whether the list that goes on with `rest` is a row itself, a list of messages.
fn list(options: FormatOptions, rest: &[u8], enough: bool) -> Option<bool> {
    let element = rest.trim_ascii_start();
    match element.first() {
        Some(b'{') if options.bare_lists => {
            let walk = walk(element);
            let message = walk.members.iter().any(|(key, _)| key == "role");
            (message || enough || walk.end.is_some()).then_some(message)
        }
        None if options.bare_lists && !enough => None,
        _ => Some(false),
    }
}

/// The list of rows in the mapping that `head` begins with: its key and offset. A mapping that ends where others follow is a
/// row itself, as is one without a list of mappings.
fn mapping(options: FormatOptions, head: &[u8], whole: bool, enough: bool) -> Option<Option<(String, usize)>> {
    let walk = walk(head);
    let rows = |(key, at): &&(String, usize)| {
        let inner = head[*at..].strip_prefix(b"[").map(<[u8]>::trim_ascii_start);
        inner.is_some_and(|inner| inner.starts_with(b"{") || inner.starts_with(b"["))
            && !options.list_columns.contains(&key.as_str())
    };
    let list = walk.members.iter().find(rows).cloned();
    match walk.end {
        Some(end) if !head[end..].trim_ascii().is_empty() => Some(None),
        Some(_) => whole.then_some(list),
        // Text on several lines is not a line of JSONL.
        None if list.is_some() && head[1..].iter().find(|byte| !b" \t\r".contains(byte)) == Some(&b'\n') => Some(list),
        None => enough.then_some(list),
    }
}

/// What was seen of a mapping.
#[derive(Default)]
struct Walk {
    /// Keys, and where their values begin.
    members: Vec<(String, usize)>,
    /// Behind its last byte, where it ends.
    end: Option<usize>,
}

/// Walks over the members of the mapping that `bytes` begin with, as far as they go.
fn walk(bytes: &[u8]) -> Walk {
    let mut walk = Walk::default();
    let mut at = 1;
    loop {
        at = blanks(bytes, at);
        match bytes.get(at) {
            Some(b'}') => {
                walk.end = Some(at + 1);
                return walk;
            }
            Some(b',') => at = blanks(bytes, at + 1),
            _ => {}
        }
        let Some(end) = value(bytes, at) else { return walk };
        let Ok(key) = serde_json::from_slice::<String>(&bytes[at..end]) else { return walk };
        let colon = blanks(bytes, end);
        if bytes.get(colon) != Some(&b':') {
            return walk;
        }
        at = blanks(bytes, colon + 1);
        if at < bytes.len() {
            walk.members.push((key, at));
        }
        let Some(end) = value(bytes, at) else { return walk };
        at = end;
    }
}

fn blanks(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.len() - rest.trim_ascii_start().len()
}

/// Behind the value that begins at `at`; None where it does not end.
fn value(bytes: &[u8], at: usize) -> Option<usize> {
    let (mut depth, mut text, mut escaped) = (0u32, false, false);
    for (index, byte) in bytes.iter().enumerate().skip(at) {
        let was_text = text;
        match byte {
            _ if escaped => escaped = false,
            b'\\' if text => escaped = true,
            b'"' => text = !text,
            _ if text => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' | b',' | b':' if depth == 0 => return (index > at).then_some(index),
            b'}' | b']' => depth -= 1,
            _ => continue,
        }
        if depth == 0 && !text && (was_text || b"}]".contains(byte)) {
            return Some(index + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: FormatOptions = FormatOptions { plain_lines: false, bare_lists: true, list_columns: &["messages"] };

    fn detected(extension: &str, text: &str) -> Option<Format> {
        detect(CHAT, extension, text.as_bytes(), true)
    }

    fn inside(at: usize, key: &str) -> Option<Format> {
        Some(Format::List(at, Some(key.into())))
    }

    #[test]
    fn names_tell_tables_and_the_first_bytes_tell_json() {
        let cases = [
            ("csv", "[x", Format::Csv(b',')),
            ("tsv", "", Format::Csv(b'\t')),
            ("txt", "What is this?\n{}", Format::Plain),
            ("txt", "{\"a\": 1}\n", Format::Lines),
            ("txt", "[CLS] hello\n", Format::Plain),
            ("txt", "[\"a\"]", Format::List(0, None)),
            ("json", " [\n{\"a\": 1}]", Format::List(1, None)),
            ("jsonl", "[{\"role\": \"user\"}]\n[{\"role\": \"user\"}]\n", Format::Lines),
            ("json", "[[{\"role\": \"user\"}]]", Format::List(0, None)),
            ("", "Why?", Format::Lines),
            ("", "", Format::Lines),
        ];
        for (extension, text, format) in cases {
            assert_eq!(detected(extension, text), Some(format), "{extension}: {text}");
        }
        assert_eq!(detect(FormatOptions { plain_lines: true, ..CHAT }, "json", b"[", true), Some(Format::Plain));
    }

    #[test]
    fn a_mapping_is_a_row_or_holds_the_rows() {
        assert_eq!(detected("json", r#"{"v": {"x": [1]}, "data": [{"a": 1}]}"#), inside(26, "data"));
        assert_eq!(detected("json", "{\"a\": [{}]}\n{\"a\": [{}]}\n"), Some(Format::Lines));
        assert_eq!(detected("jsonl", r#"{"data": [{"a": 1}]}"#), Some(Format::Lines));
        assert_eq!(detected("json", r#"{"messages": [{"role": "user"}]}"#), Some(Format::Lines));
        assert_eq!(detected("json", r#"{"tags": ["a", "b"]}"#), Some(Format::Lines));
    }

    #[test]
    fn a_beginning_is_enough_where_it_tells() {
        let partly = |extension: &str, text: &str| detect(CHAT, extension, text.as_bytes(), false);
        assert_eq!(partly("json", "{\n  \"n\": 3, \"data\": [{\"q\": \"wh"), inside(20, "data"));
        assert_eq!(partly("json", "{\"n\": 3, \"data\": [{\"q\": \"wh"), None);
        assert_eq!(partly("json", "{\"n\": 3}\n{"), Some(Format::Lines));
        assert_eq!(partly("json", "[{\"content\": \"x\", \"ro"), None);
        assert_eq!(partly("json", "[{\"content\": \"x\", \"role\": \""), Some(Format::Lines));
        assert_eq!(partly("json", "  "), None);
        let long = format!("{{\"n\": 3, \"data\": [{{\"q\": \"{}", "x".repeat(HEAD));
        assert_eq!(partly("json", &long), inside(17, "data"));
    }

    #[test]
    fn the_extension_of_a_compression_is_passed_over() {
        let seen = ["a/b.JSONL", "b.csv.gz", "b.txt.zst", "b.gz", "b"].map(|path| extension(Path::new(path)));
        assert_eq!(seen, ["jsonl", "csv", "txt", "", ""]);
    }
}
