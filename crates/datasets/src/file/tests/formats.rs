//! The same rows from every format.

use crate::PromptError;
use crate::testing::{all, file, opened, spec, texts};
use llmscen_core::dataset::{DatasetSpec, Source};
use llmscen_parquet::written::parquet;
use polars_arrow::array::{Array, PrimitiveArray, Utf8ViewArray};
use serde_json::json;
use std::io::Write;

const ROWS: [(&str, u64); 3] = [("Why?", 3), ("Say \"hi\",\nthen go.", 40), ("grüße", 5)];

fn jsonl() -> String {
    ROWS.iter().map(|(prompt, n)| format!("{}\n", json!({ "prompt": prompt, "output_tokens": n }))).collect()
}

fn list() -> String {
    json!(ROWS.map(|(prompt, n)| json!({ "prompt": prompt, "output_tokens": n }))).to_string()
}

fn csv(delimiter: char) -> String {
    let rows = ROWS.iter().map(|(prompt, n)| format!("\"{}\"{delimiter}{n}\r\n", prompt.replace('"', "\"\"")));
    format!("prompt{delimiter}output_tokens\r\n{}", rows.collect::<String>())
}

fn table() -> Vec<u8> {
    let column = |rows: &[(&str, u64)]| -> Vec<Box<dyn Array>> {
        let prompts: Vec<Option<&str>> = rows.iter().map(|(prompt, _)| Some(*prompt)).collect();
        let counts: Vec<u64> = rows.iter().map(|(_, n)| *n).collect();
        vec![Utf8ViewArray::from_slice(prompts).boxed(), PrimitiveArray::from_slice(counts).boxed()]
    };
    parquet(&["prompt", "output_tokens"], vec![column(&ROWS[..2]), column(&ROWS[2..])])
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn seen(name: &str, bytes: &[u8]) -> Vec<(String, Option<u64>)> {
    let (_dir, path) = file(name, bytes);
    all(&spec(Source::Rows, &path)).into_iter().map(|turns| (turns[0].text.clone(), turns[0].max_tokens)).collect()
}

#[test]
fn every_format_gives_the_same_rows() {
    let known = ROWS.map(|(prompt, n)| (prompt.to_owned(), Some(n)));
    let zstd = |text: &str| zstd::encode_all(text.as_bytes(), 1).unwrap();
    let files: [(&str, Vec<u8>); 11] = [
        ("a.jsonl", jsonl().into()),
        ("a", jsonl().into()),
        ("a.json", list().into()),
        ("b.json", format!("{{\n \"version\": 1, \"data\": {}, \"end\": []}}\n", list()).into()),
        ("a.csv", csv(',').into()),
        ("b.csv", format!("\u{feff}{}", csv(',')).into()),
        ("a.tsv", csv('\t').into()),
        ("a.parquet", table()),
        ("a.csv.gz", gzip(csv(',').as_bytes())),
        ("a.jsonl.zst", zstd(&jsonl())),
        ("a.json.zst", zstd(&format!("\u{feff}{}", list()))),
    ];
    for (name, bytes) in files {
        assert_eq!(seen(name, &bytes), known, "{name}");
    }
}

#[test]
fn plain_lines_are_rows_with_a_text() {
    let (_dir, path) = file("lines.txt", "One line.\n\n  And another. \n");
    assert_eq!(texts(&spec(Source::Rows, &path)), ["One line.", "  And another. "]);
    let (_dir, path) = file("lines.jsonl", "\"One line.\"\n");
    assert_eq!(texts(&spec(Source::Rows, &path)), ["One line."]);
}

#[test]
fn rows_that_lie_inside_a_mapping_are_said_to() {
    let (_dir, path) = file("b.json", "{\"rows\": [{\"prompt\": \"a\"}]}");
    assert_eq!(opened(&spec(Source::Rows, &path)).unwrap().notes, ["the dataset's rows are those of the list `rows`"]);
}

#[test]
fn records_that_do_not_fit_the_header_are_named_by_their_line() {
    let (_dir, path) = file("a.csv", "prompt,n\n\"two\nlines\",1\nshort\n\nlong,1,2\nfine,x\n");
    let prompts = opened(&spec(Source::Rows, &path)).unwrap().prompts;
    let told = [
        format!("{path}:4: the record has 1 fields, the header has 2; the row was left out"),
        format!("{path}:6: the record has 3 fields, the header has 2; the row was left out"),
    ];
    assert_eq!((prompts.problems(), prompts.len()), (told.to_vec(), Some(2)));
    assert_eq!(prompts.session(1).unwrap().turns[0].fields["n"], "x");
}

#[test]
fn empty_cells_at_the_ends_of_a_record_are_cells() {
    let (_dir, path) = file("a.tsv", "id\tprompt\toutput_tokens\n\tWhy?\t\n\n1\tHow?\t7\n");
    let seen: Vec<_> =
        all(&spec(Source::Rows, &path)).into_iter().map(|turns| (turns[0].text.clone(), turns[0].max_tokens)).collect();
    assert_eq!(seen, [("Why?".to_owned(), None), ("How?".to_owned(), Some(7))]);
}

fn refused(name: &str, bytes: &[u8]) -> String {
    let (_dir, path) = file(name, bytes);
    opened(&spec(Source::Rows, &path)).unwrap_err().to_string().replace(&path, name)
}

#[test]
fn what_is_wrong_with_a_whole_file_is_told_before_the_run() {
    let packed = gzip(jsonl().as_bytes());
    let cases: [(&str, &[u8], &str); 8] = [
        ("a.csv", b"a,a\n1,2\n", "a.csv:1: the header names the column `a` twice; expected rows with"),
        ("a.csv", b"prompt\nx\n\"y\n", "a.csv:3: a quote in this record does not end; expected"),
        ("a.json", b"[\n{\"prompt\": \"x\"},\n", "a.json:3: the JSON list does not end; expected"),
        ("a.json", b"[{\"prompt\": \"x\"}\n] x", "a.json:2: there is more text after the JSON list; expected"),
        (
            "a.jsonl",
            b"{\"prompt\": \"x\"}\n{\"prompt\": \"\xff\"}",
            "the dataset a.jsonl is not UTF-8: line 2, byte 28 of the file",
        ),
        ("a.gz", &packed[..packed.len() - 9], "cannot read the dataset a.gz: "),
        ("a.parquet", b"PAR1 and nothing behind it", "cannot read the dataset a.parquet: "),
        ("a.parquet.gz", &gzip(b"PAR1"), "the dataset a.parquet.gz is a compressed parquet file, which is not read"),
    ];
    for (name, bytes, beginning) in cases {
        let error = refused(name, bytes);
        assert!(error.starts_with(beginning), "{error}");
    }
}

#[test]
fn columns_give_fields_their_names() {
    let (_dir, path) = file("a.jsonl", r#"{"meta": {"ask": " Why? ", "n": 9}, "prompt": "no"}"#);
    let columns = [("prompt", "meta.ask"), ("output_tokens", "meta.n")].map(|(name, path)| (name.to_owned(), path.to_owned()));
    let own = DatasetSpec { columns: columns.into(), ..spec(Source::Rows, &path) };
    let prompt = all(&own).remove(0).remove(0);
    assert_eq!((prompt.text.as_str(), prompt.max_tokens), (" Why? ", Some(9)));
    assert_eq!((&prompt.fields["meta"]["n"], &prompt.fields["prompt"]), (&json!(9), &json!(" Why? ")));
}

#[test]
fn a_line_of_a_list_of_messages_is_a_row_only_where_a_kind_says_so() {
    let (_dir, path) =
        file("a.jsonl", "[{\"role\": \"user\", \"content\": \"x\"}]\n[{\"role\": \"user\", \"content\": \"y\"}]\n");
    assert_eq!(texts(&spec(Source::Messages, &path)), ["x", "y"]);
    assert!(matches!(opened(&spec(Source::Rows, &path)), Err(PromptError::NoRows { .. } | PromptError::Row { .. })));
}
