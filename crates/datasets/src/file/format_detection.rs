//! Detects the format of a file by its name and its first bytes.

use std::path::Path;

/// Bytes that are read to detect the format.
pub const HEAD: usize = 64 << 10;

/// The format of the rows of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// A row is a line of plain text.
    Plain,
    /// A row is a line of JSON.
    Lines,
    /// A row is an element of the JSON list at this offset, which is the member with this key of a mapping.
    List(usize, Option<String>),
    /// A row is a record with this delimiter.
    Csv(u8),
}

/// The formats of a kind of dataset.
#[derive(Clone, Copy, Debug)]
pub struct FormatOptions {
    /// Every line is a row, whatever its content.
    pub plain_lines: bool,
    /// A list of messages is a row.
    pub bare_lists: bool,
    /// Columns whose values are lists.
    pub list_columns: &'static [&'static str],
}

impl FormatOptions {
    /// Rows with columns, in any format.
    pub const ROWS: FormatOptions = FormatOptions {
        plain_lines: false,
        bare_lists: false,
        list_columns: &[],
    };
}

/// The extension of a file in lower case, without that of its compression.
pub fn extension(path: &Path) -> String {
    let extension = |path: &Path| {
        path.extension()
            .unwrap_or_default()
            .to_string_lossy()
            .to_ascii_lowercase()
    };
    match extension(path).as_str() {
        "gz" | "gzip" | "zst" | "zstd" => {
            extension(Path::new(path.file_stem().unwrap_or_default()))
        }
        plain => plain.to_owned(),
    }
}

/// The format of a text that begins with `head`. `complete`: `head` is the complete text. None: more bytes are needed.
pub fn detect(
    options: FormatOptions,
    extension: &str,
    head: &[u8],
    complete: bool,
) -> Option<Format> {
    match extension {
        _ if options.plain_lines => return Some(Format::Plain),
        "csv" => return Some(Format::Csv(b',')),
        "tsv" | "tab" => return Some(Format::Csv(b'\t')),
        _ => {}
    }
    let blank = head.len() - head.trim_ascii_start().len();
    let enough = complete || head.len() >= HEAD;
    match head.get(blank) {
        None if !enough => None,
        // A text may begin with a bracket: `[CLS] hello`.
        Some(b'[')
            if matches!(extension, "txt" | "text") && !may_continue_list(&head[blank + 1..]) =>
        {
            Some(Format::Plain)
        }
        Some(b'[') => list_is_row(options, &head[blank + 1..], enough).map(|row| {
            if row {
                Format::Lines
            } else {
                Format::List(blank, None)
            }
        }),
        Some(b'{') if !matches!(extension, "jsonl" | "ndjson") => {
            let found = find_list_in_mapping(options, &head[blank..], complete, enough);
            found.map(|list| {
                list.map_or(Format::Lines, |(key, at)| {
                    Format::List(blank + at, Some(key))
                })
            })
        }
        Some(byte) if matches!(extension, "txt" | "text") && *byte != b'{' => Some(Format::Plain),
        _ => Some(Format::Lines),
    }
}

/// Whether a JSON list may continue with `rest`.
fn may_continue_list(rest: &[u8]) -> bool {
    rest.trim_ascii_start()
        .first()
        .is_none_or(|byte| b"{[\"]".contains(byte))
}

/// Whether the list that continues with `rest` is a row itself (a list of messages). None: more bytes are needed.
fn list_is_row(options: FormatOptions, rest: &[u8], enough: bool) -> Option<bool> {
    let element = rest.trim_ascii_start();
    match element.first() {
        Some(b'{') if options.bare_lists => {
            let mapping = scan_mapping(element);
            let is_message = mapping.members.iter().any(|(key, _)| key == "role");
            (is_message || enough || mapping.end.is_some()).then_some(is_message)
        }
        None if options.bare_lists && !enough => None,
        _ => Some(false),
    }
}

/// The list of rows in the mapping at the beginning of `head`: its key and offset. A mapping that is followed by
/// others or has no list of mappings is a row itself: `Some(None)`. None: more bytes are needed.
fn find_list_in_mapping(
    options: FormatOptions,
    head: &[u8],
    complete: bool,
    enough: bool,
) -> Option<Option<(String, usize)>> {
    let mapping = scan_mapping(head);
    let rows = |(key, at): &&(String, usize)| {
        let inner = head[*at..].strip_prefix(b"[").map(<[u8]>::trim_ascii_start);
        // A list of lists is a list of rows under any name.
        let is_column = options.list_columns.contains(&key.as_str());
        inner.is_some_and(|inner| inner.starts_with(b"{") && !is_column || inner.starts_with(b"["))
    };
    let list = mapping.members.iter().find(rows).cloned();
    match mapping.end {
        Some(end) if !head[end..].trim_ascii().is_empty() => Some(None),
        Some(_) => complete.then_some(list),
        // A mapping over several lines is not a line of JSONL.
        None if list.is_some()
            && head[1..].iter().find(|byte| !b" \t\r".contains(byte)) == Some(&b'\n') =>
        {
            Some(list)
        }
        None => enough.then_some(list),
    }
}

/// The beginning of a mapping.
#[derive(Default)]
struct PartialMapping {
    /// Keys with the offsets of their values.
    members: Vec<(String, usize)>,
    /// The offset after the mapping, where it ends.
    end: Option<usize>,
}

/// Scans the members of the mapping at the beginning of `bytes`.
fn scan_mapping(bytes: &[u8]) -> PartialMapping {
    let mut mapping = PartialMapping::default();
    let mut at = 1;
    loop {
        at = skip_blanks(bytes, at);
        match bytes.get(at) {
            Some(b'}') => {
                mapping.end = Some(at + 1);
                return mapping;
            }
            Some(b',') => at = skip_blanks(bytes, at + 1),
            _ => {}
        }
        let Some(end) = skip_value(bytes, at) else {
            return mapping;
        };
        let Ok(key) = serde_json::from_slice::<String>(&bytes[at..end]) else {
            return mapping;
        };
        let colon = skip_blanks(bytes, end);
        if bytes.get(colon) != Some(&b':') {
            return mapping;
        }
        at = skip_blanks(bytes, colon + 1);
        if at < bytes.len() {
            mapping.members.push((key, at));
        }
        let Some(end) = skip_value(bytes, at) else {
            return mapping;
        };
        at = end;
    }
}

fn skip_blanks(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.len() - rest.trim_ascii_start().len()
}

/// The offset after the value at `at`; None where it does not end.
fn skip_value(bytes: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0u32;
    let mut text = false;
    let mut escaped = false;
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

    const CHAT: FormatOptions = FormatOptions {
        plain_lines: false,
        bare_lists: true,
        list_columns: &["messages"],
    };

    fn detected(extension: &str, text: &str) -> Option<Format> {
        detect(CHAT, extension, text.as_bytes(), true)
    }

    fn inside(at: usize, key: &str) -> Option<Format> {
        Some(Format::List(at, Some(key.into())))
    }

    #[test]
    fn tables_are_detected_by_name_and_json_by_content() {
        let cases = [
            ("csv", "[x", Format::Csv(b',')),
            ("tsv", "", Format::Csv(b'\t')),
            ("txt", "What is this?\n{}", Format::Plain),
            ("txt", "{\"a\": 1}\n", Format::Lines),
            ("txt", "[CLS] hello\n", Format::Plain),
            ("txt", "[\"a\"]", Format::List(0, None)),
            ("json", " [\n{\"a\": 1}]", Format::List(1, None)),
            (
                "jsonl",
                "[{\"role\": \"user\"}]\n[{\"role\": \"user\"}]\n",
                Format::Lines,
            ),
            ("json", "[[{\"role\": \"user\"}]]", Format::List(0, None)),
            ("", "Why?", Format::Lines),
            ("", "", Format::Lines),
        ];
        for (extension, text, format) in cases {
            assert_eq!(
                detected(extension, text),
                Some(format),
                "{extension}: {text}"
            );
        }
        assert_eq!(
            detect(
                FormatOptions {
                    plain_lines: true,
                    ..CHAT
                },
                "json",
                b"[",
                true
            ),
            Some(Format::Plain)
        );
    }

    #[test]
    fn a_mapping_is_a_row_or_contains_the_rows() {
        assert_eq!(
            detected("json", r#"{"v": {"x": [1]}, "data": [{"a": 1}]}"#),
            inside(26, "data")
        );
        assert_eq!(
            detected("json", "{\"a\": [{}]}\n{\"a\": [{}]}\n"),
            Some(Format::Lines)
        );
        assert_eq!(
            detected("jsonl", r#"{"data": [{"a": 1}]}"#),
            Some(Format::Lines)
        );
        assert_eq!(
            detected("json", r#"{"messages": [{"role": "user"}]}"#),
            Some(Format::Lines)
        );
        assert_eq!(
            detected("json", r#"{"tags": ["a", "b"]}"#),
            Some(Format::Lines)
        );
    }

    #[test]
    fn a_beginning_is_enough_where_it_is_clear() {
        let partly = |extension: &str, text: &str| detect(CHAT, extension, text.as_bytes(), false);
        assert_eq!(
            partly("json", "{\n  \"n\": 3, \"data\": [{\"q\": \"wh"),
            inside(20, "data")
        );
        assert_eq!(partly("json", "{\"n\": 3, \"data\": [{\"q\": \"wh"), None);
        assert_eq!(partly("json", "{\"n\": 3}\n{"), Some(Format::Lines));
        assert_eq!(partly("json", "[{\"content\": \"x\", \"ro"), None);
        assert_eq!(
            partly("json", "[{\"content\": \"x\", \"role\": \""),
            Some(Format::Lines)
        );
        assert_eq!(partly("json", "  "), None);
        let long = format!("{{\"n\": 3, \"data\": [{{\"q\": \"{}", "x".repeat(HEAD));
        assert_eq!(partly("json", &long), inside(17, "data"));
    }

    #[test]
    fn the_extension_of_a_compression_is_skipped() {
        let extensions = ["a/b.JSONL", "b.csv.gz", "b.txt.zst", "b.gz", "b"]
            .map(|path| extension(Path::new(path)));
        assert_eq!(extensions, ["jsonl", "csv", "txt", "", ""]);
    }
}
