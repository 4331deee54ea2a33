//! `openqa`: rows with a `question`.

use super::cache::Remote;
use super::file::{FormatOptions, Kind, Parse};
use super::longalpaca::column;

/// Rows of any table. On the hubs it is the open questions of HC3-Chinese; `path: builtin` is the small English set
/// that ships with this tool.
pub const KIND: Kind = Kind {
    name: "openqa",
    formats: FormatOptions::ROWS,
    parse: Parse::Row(|row, _| column(row, "question")),
    words: None,
    expected: "rows such as `{\"question\": \"…\"}`",
    builtin: Some(include_str!("../../../scenarios/data/openqa.jsonl")),
    remote: Some(Remote {
        file: "openqa/open_qa.jsonl",
        homes: &[
            "AI-ModelScope/HC3-Chinese/resolve/master/open_qa.jsonl",
            "Hello-SimpleAI/HC3-Chinese/resolve/main/open_qa.jsonl",
        ],
    }),
};
