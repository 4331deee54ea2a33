//! The rows of a file as sessions, from every format.

use crate::testing::{all, file, opened, spec, texts as all_texts};
use crate::{CacheDir, Opened, Progress, PromptError, open};
use llmscen_core::dataset::{DatasetSpec, OnExhausted, Order, Source};
use llmscen_core::seed::Seed;
use llmscen_parquet::testing::write_parquet as parquet;
use polars_arrow::array::{Array, PrimitiveArray, Utf8ViewArray};
use serde_json::json;
use std::cell::RefCell;
use std::io::Write;
use std::path::PathBuf;

fn texts(spec: &DatasetSpec, first: u64, count: u64) -> Vec<Option<String>> {
    let cache = CacheDir {
        dir: PathBuf::from("unused"),
        hub: String::new(),
        ..CacheDir::default()
    };
    let prompts = open(spec, Seed(42), first, &cache, &|_| ())
        .unwrap()
        .prompts;
    (0..count)
        .map(|seq| {
            prompts
                .session(seq)
                .map(|session| session.turns[0].text.clone())
        })
        .collect()
}

fn some(texts: &[&str]) -> Vec<Option<String>> {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

#[test]
fn rows_cycle_from_the_first_requested_row() {
    let (_dir, path) = file("data.txt", "a\nb\n\nc\n");
    let mut spec = spec(Source::LineByLine, &path);
    assert_eq!(texts(&spec, 0, 4), some(&["a", "b", "c", "a"]));
    assert_eq!(texts(&spec, 5, 3), some(&["c", "a", "b"]));
    assert_eq!(texts(&spec, u64::MAX, 1), some(&["a"]));
    assert_eq!(opened(&spec).unwrap().prompts.len(), Some(3));
    for end in [OnExhausted::Stop, OnExhausted::Fail] {
        spec.on_exhausted = end;
        assert_eq!(
            texts(&spec, 1, 4),
            [some(&["b", "c", "a"]), vec![None]].concat()
        );
    }
}

#[test]
fn any_session_may_be_requested_again_and_out_of_order() {
    let lines: Vec<String> = (0..3000).map(|n| format!("row {n}")).collect();
    let (_dir, path) = file("data.txt", lines.join("\n"));
    let prompts = opened(&spec(Source::LineByLine, &path)).unwrap().prompts;
    for seq in [2900u64, 0, 1, 2900, 2901, 5, 3001, 2, 9001] {
        assert_eq!(
            prompts.session(seq).unwrap().turns[0].text,
            lines[seq as usize % 3000]
        );
    }
    assert_eq!(prompts.len(), Some(3000));
}

#[test]
fn a_shuffle_is_a_permutation_drawn_from_the_seed() {
    let lines: Vec<String> = (0..100).map(|n| format!("row {n}")).collect();
    let (_dir, path) = file("data.txt", lines.join("\n"));
    let shuffled = DatasetSpec {
        order: Order::Shuffle,
        ..spec(Source::LineByLine, &path)
    };
    let seen = texts(&shuffled, 0, 100);
    assert_eq!(seen, texts(&shuffled, 0, 100));
    let mut sorted: Vec<String> = seen.into_iter().flatten().collect();
    assert_ne!(sorted, lines);
    sorted.sort_by_key(|row| row[4..].parse::<u32>().unwrap());
    assert_eq!(sorted, lines);
}

#[test]
fn rows_outside_prompt_tokens_are_dropped_and_counted() {
    let (_dir, path) = file(
        "data.txt",
        "hi\nthe sky is blue\nthe sky is blue and the sea is blue\n",
    );
    let mut spec = spec(Source::LineByLine, &path);
    (spec.min_tokens, spec.max_tokens) = (Some(4), Some(6));
    let Opened {
        prompts, tokenizer, ..
    } = opened(&spec).unwrap();
    assert_eq!((prompts.len(), prompts.dropped()), (Some(1), 2));
    let prompt = prompts.session(0).unwrap().turns.remove(0);
    assert_eq!((prompt.tokens, prompt.approximate), (Some(4), true));
    assert_eq!(
        prompts.session(7).unwrap().turns[0],
        prompt,
        "a row that is read again counts the same"
    );
    assert!(tokenizer.unwrap().approximate());
    assert_eq!(
        prompts.problems(),
        ["2 of 3 dataset rows are blank or outside `prompt_tokens` and were left out"]
    );
    (spec.min_tokens, spec.max_tokens) = (Some(400), None);
    let error = opened(&spec).unwrap_err();
    assert!(
        matches!(error, PromptError::NoRows { dropped: 3, .. }),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .ends_with("has no usable row: 3 of 3 are blank or outside `prompt_tokens`"),
        "{error}"
    );
}

#[test]
fn without_a_tokenizer_nothing_is_counted() {
    let (_dir, path) = file("data.txt", "hi");
    let Opened {
        prompts,
        tokenizer,
        notes,
    } = opened(&spec(Source::LineByLine, &path)).unwrap();
    assert!(tokenizer.is_none() && notes.is_empty());
    assert_eq!(prompts.session(0).unwrap().turns[0].tokens, None);
}

#[test]
fn an_invalid_row_is_described_counted_and_left_out() {
    let rows = "{\"question\": \"Why?\"}\n\n{\"query\": 1}\n{\"question\": \
    2}\n{\"question\": \"How?\"}\n{\"question\"}\n[]\n";
    let (_dir, path) = file("data.jsonl", rows);
    let prompts = opened(&spec(Source::Openqa, &path)).unwrap().prompts;
    assert_eq!((prompts.len(), prompts.dropped()), (Some(2), 4));
    assert_eq!(prompts.session(1).unwrap().turns[0].text, "How?");
    let expected = [
        format!("{path}:3: the row has no `question` (fields: query); the row was left out"),
        format!("{path}:4: `question` is not a text; the row was left out"),
        format!("{path}:6: not JSON (expected `:`); the row was left out"),
        format!("{path}: 4 of 6 dataset rows are invalid and were left out"),
    ];
    assert_eq!(prompts.problems(), expected);
    assert!(prompts.fault().is_none());
}

#[test]
fn a_row_of_more_than_one_text_is_invalid_where_a_request_is_one() {
    let (_dir, path) = file(
        "a.jsonl",
        "{\"prompt\": \"a\"}\n{\"prompt\": \"b\", \"system\": \"s\"}\n{\"messages\": \
        [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": \
        {\"url\": \"x\"}}]}]}\n{\"prompt\": \"c\"}\n",
    );
    let own = DatasetSpec {
        one_text: true,
        ..spec(Source::Rows, &path)
    };
    let opened = opened(&own).unwrap();
    assert_eq!(
        (opened.prompts.len(), opened.prompts.problems().len()),
        (Some(2), 2)
    );
    let expected = format!(
        "{path}:2: the API takes one text per request, and the row has more than one; the row was left out"
    );
    assert_eq!(opened.prompts.problems()[0], expected);
    assert_eq!(all(&spec(Source::Rows, &path)).len(), 4);
}

#[test]
fn the_first_invalid_row_is_an_error_of_a_strict_dataset() {
    let (_dir, path) = file(
        "data.jsonl",
        "{\"question\": \"Why?\"}\n\n{\"query\": \"Why?\"}\n",
    );
    let strict = DatasetSpec {
        strict: true,
        ..spec(Source::Openqa, &path)
    };
    let error = opened(&strict).unwrap_err().to_string();
    let rest =
        "the row has no `question` (fields: query); expected rows such as `{\"question\": \"…\"}`";
    assert_eq!(error, format!("{path}:3: {rest}"));
    let (_dir, list) = file(
        "data.json",
        "[\n {\"instruction\": \"a\"},\n {\"instruction\": 3}\n]",
    );
    let strict = DatasetSpec {
        strict: true,
        ..spec(Source::Longalpaca, &list)
    };
    let error = opened(&strict).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{list}:3: `instruction` is not a text; expected")),
        "{error}"
    );
}

#[test]
fn without_a_usable_row_a_dataset_does_not_open() {
    let (_dir, empty) = file("data.json", "[]");
    assert!(matches!(
        opened(&spec(Source::Openqa, &empty)),
        Err(PromptError::Empty { .. })
    ));
    let (_dir, blank) = file("data.txt", " \r\n\n");
    assert!(matches!(
        opened(&spec(Source::LineByLine, &blank)),
        Err(PromptError::Empty { .. })
    ));
    let (_dir, path) = file("data.jsonl", "{\"question\": \"\"}\n{\"ask\": 1}\n");
    let error = opened(&spec(Source::Openqa, &path))
        .unwrap_err()
        .to_string();
    let why = format!(
        "1 of 2 are blank or outside `prompt_tokens`, 1 of 2 are invalid\n  {path}:2: the row has \
         no `question` (fields: ask); the row was left out; expected rows such as \
         `{{\"question\": \"…\"}}`"
    );
    assert_eq!(
        error,
        format!("the dataset {path} has no usable row: {why}")
    );
}

#[test]
fn a_blank_question_is_dropped_and_its_row_fills_the_fields() {
    let (_dir, path) = file(
        "data.txt",
        "[{\"question\": \" \"}, {\"question\": \"Why?\", \"topic\": \"x\"}]",
    );
    let prompts = opened(&spec(Source::Openqa, &path)).unwrap().prompts;
    assert_eq!((prompts.len(), prompts.dropped()), (Some(1), 1));
    assert_eq!(prompts.session(9).unwrap().turns[0].fields["topic"], "x");
}

#[test]
fn a_system_message_goes_before_a_message_list_that_has_none() {
    let own = r#"[{"role":"system","content":"own"},{"role":"user","content":"x"}]"#;
    let (_dir, path) = file(
        "data.txt",
        format!("[{{\"role\":\"user\",\"content\":\"x\"}}]\n{own}"),
    );
    let spec = DatasetSpec {
        system: Some("Be terse.".into()),
        ..spec(Source::LineByLine, &path)
    };
    let prompts = opened(&spec).unwrap().prompts;
    let first = |seq| {
        prompts.session(seq).unwrap().turns[0]
            .messages
            .as_ref()
            .unwrap()[0]
            .clone()
    };
    assert_eq!(
        first(0),
        json!({ "role": "system", "content": "Be terse." })
    );
    assert_eq!(first(1), json!({ "role": "system", "content": "own" }));
}

#[test]
fn the_built_in_data_is_all_usable_and_no_two_rows_of_it_are_alike() {
    let rerank = Source::Rerank { documents: None };
    let kinds = [
        (Source::Openqa, 209),
        (Source::Messages, 13),
        (Source::Sharegpt, 12),
        (rerank, 12),
    ];
    for (source, rows) in kinds
        .into_iter()
        .chain([(Source::Embeddings { batch: 1 }, 24)])
    {
        let prompts = opened(&spec(source.clone(), "builtin")).unwrap().prompts;
        let different: std::collections::HashSet<String> = (0..rows)
            .map(|seq| prompts.session(seq).unwrap().turns[0].text.clone())
            .collect();
        assert_eq!(
            (prompts.len(), prompts.dropped(), different.len() as u64),
            (Some(rows), 0, rows),
            "{source:?}"
        );
    }
    let none = opened(&spec(Source::Longalpaca, "builtin"))
        .unwrap_err()
        .to_string();
    assert!(
        none.starts_with("`longalpaca` has no built-in data; `path: builtin` is for openqa"),
        "{none}"
    );
    let pathless = DatasetSpec {
        path: None,
        ..spec(Source::LineByLine, "")
    };
    assert_eq!(
        opened(&pathless).unwrap_err().to_string(),
        "a `line_by_line` dataset needs a `path`"
    );
    assert!(matches!(
        opened(&spec(Source::Rows, "/nowhere/x.csv")),
        Err(PromptError::Read { .. })
    ));
}

#[test]
fn opening_reports_progress() {
    let (_dir, path) = file("data.txt", "x\n".repeat(9));
    let steps = RefCell::new(Vec::new());
    let cache = CacheDir {
        dir: PathBuf::new(),
        hub: String::new(),
        ..CacheDir::default()
    };
    open(
        &spec(Source::LineByLine, &path),
        Seed(1),
        0,
        &cache,
        &|step| steps.borrow_mut().push(step),
    )
    .unwrap();
    let fits = |step: &Progress| {
        matches!(
            step,
            Progress::Rows {
                done: 0..=9,
                total: None | Some(0..=9)
            }
        )
    };
    assert!(steps.into_inner().iter().all(fits));
}

const ROWS: [(&str, u64); 3] = [("Why?", 3), ("Say \"hi\",\nthen go.", 40), ("grüße", 5)];

fn jsonl() -> String {
    ROWS.iter()
        .map(|(prompt, n)| format!("{}\n", json!({ "prompt": prompt, "output_tokens": n })))
        .collect()
}

fn list() -> String {
    json!(ROWS.map(|(prompt, n)| json!({ "prompt": prompt, "output_tokens": n }))).to_string()
}

fn csv(delimiter: char) -> String {
    let rows = ROWS
        .iter()
        .map(|(prompt, n)| format!("\"{}\"{delimiter}{n}\r\n", prompt.replace('"', "\"\"")));
    format!(
        "prompt{delimiter}output_tokens\r\n{}",
        rows.collect::<String>()
    )
}

fn table() -> Vec<u8> {
    let column = |rows: &[(&str, u64)]| -> Vec<Box<dyn Array>> {
        let prompts: Vec<Option<&str>> = rows.iter().map(|(prompt, _)| Some(*prompt)).collect();
        let counts: Vec<u64> = rows.iter().map(|(_, n)| *n).collect();
        vec![
            Utf8ViewArray::from_slice(prompts).boxed(),
            PrimitiveArray::from_slice(counts).boxed(),
        ]
    };
    parquet(
        &["prompt", "output_tokens"],
        vec![column(&ROWS[..2]), column(&ROWS[2..])],
    )
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn rows_of(name: &str, bytes: &[u8]) -> Vec<(String, Option<u64>)> {
    let (_dir, path) = file(name, bytes);
    all(&spec(Source::Rows, &path))
        .into_iter()
        .map(|turns| (turns[0].text.clone(), turns[0].max_tokens))
        .collect()
}

#[test]
fn every_format_gives_the_same_rows() {
    let known = ROWS.map(|(prompt, n)| (prompt.to_owned(), Some(n)));
    let zstd = |text: &str| zstd::encode_all(text.as_bytes(), 1).unwrap();
    let files: [(&str, Vec<u8>); 11] = [
        ("a.jsonl", jsonl().into()),
        ("a", jsonl().into()),
        ("a.json", list().into()),
        (
            "b.json",
            format!("{{\n \"version\": 1, \"data\": {}, \"end\": []}}\n", list()).into(),
        ),
        ("a.csv", csv(',').into()),
        ("b.csv", format!("\u{feff}{}", csv(',')).into()),
        ("a.tsv", csv('\t').into()),
        ("a.parquet", table()),
        ("a.csv.gz", gzip(csv(',').as_bytes())),
        ("a.jsonl.zst", zstd(&jsonl())),
        ("a.json.zst", zstd(&format!("\u{feff}{}", list()))),
    ];
    for (name, bytes) in files {
        assert_eq!(rows_of(name, &bytes), known, "{name}");
    }
}

#[test]
fn plain_lines_are_rows_with_a_text() {
    let (_dir, path) = file("lines.txt", "One line.\n\n  And another. \n");
    assert_eq!(
        all_texts(&spec(Source::Rows, &path)),
        ["One line.", "  And another. "]
    );
    let (_dir, path) = file("lines.jsonl", "\"One line.\"\n");
    assert_eq!(all_texts(&spec(Source::Rows, &path)), ["One line."]);
}

#[test]
fn rows_inside_a_mapping_are_noted() {
    let (_dir, path) = file("b.json", "{\"rows\": [{\"prompt\": \"a\"}]}");
    assert_eq!(
        opened(&spec(Source::Rows, &path)).unwrap().notes,
        ["the rows of the dataset are the elements of the list `rows`"]
    );
}

#[test]
fn records_with_other_columns_than_the_header_are_reported_by_line() {
    let (_dir, path) = file(
        "a.csv",
        "prompt,n\n\"two\nlines\",1\nshort\n\nlong,1,2\nfine,x\n",
    );
    let prompts = opened(&spec(Source::Rows, &path)).unwrap().prompts;
    let expected = [
        format!("{path}:4: the record has 1 fields, the header has 2; the row was left out"),
        format!("{path}:6: the record has 3 fields, the header has 2; the row was left out"),
    ];
    assert_eq!(
        (prompts.problems(), prompts.len()),
        (expected.to_vec(), Some(2))
    );
    assert_eq!(prompts.session(1).unwrap().turns[0].fields["n"], "x");
}

#[test]
fn empty_cells_at_the_ends_of_a_record_are_cells() {
    let (_dir, path) = file(
        "a.tsv",
        "id\tprompt\toutput_tokens\n\tWhy?\t\n\n1\tHow?\t7\n",
    );
    let seen: Vec<_> = all(&spec(Source::Rows, &path))
        .into_iter()
        .map(|turns| (turns[0].text.clone(), turns[0].max_tokens))
        .collect();
    assert_eq!(
        seen,
        [("Why?".to_owned(), None), ("How?".to_owned(), Some(7))]
    );
}

fn refused(name: &str, bytes: &[u8]) -> String {
    let (_dir, path) = file(name, bytes);
    opened(&spec(Source::Rows, &path))
        .unwrap_err()
        .to_string()
        .replace(&path, name)
}

#[test]
fn errors_of_the_file_are_reported_before_the_run() {
    let packed = gzip(jsonl().as_bytes());
    let cases: [(&str, &[u8], &str); 8] = [
        (
            "a.csv",
            b"a,a\n1,2\n",
            "a.csv:1: duplicate column `a` in the header; expected rows with",
        ),
        (
            "a.csv",
            b"prompt\nx\n\"y\n",
            "a.csv:3: a quote in this record is not closed; expected",
        ),
        (
            "a.json",
            b"[\n{\"prompt\": \"x\"},\n",
            "a.json:3: the JSON list does not end; expected",
        ),
        (
            "a.json",
            b"[{\"prompt\": \"x\"}\n] x",
            "a.json:2: there is more text after the JSON list; expected",
        ),
        (
            "a.jsonl",
            b"{\"prompt\": \"x\"}\n{\"prompt\": \"\xff\"}",
            "the dataset a.jsonl is not UTF-8: line 2, byte 28 of the file",
        ),
        (
            "a.gz",
            &packed[..packed.len() - 9],
            "cannot read the dataset a.gz: ",
        ),
        (
            "a.parquet",
            b"PAR1 and nothing behind it",
            "cannot read the dataset a.parquet: ",
        ),
        (
            "a.parquet.gz",
            &gzip(b"PAR1"),
            "the dataset a.parquet.gz is a compressed parquet file, which is not supported",
        ),
    ];
    for (name, bytes, beginning) in cases {
        let error = refused(name, bytes);
        assert!(error.starts_with(beginning), "{error}");
    }
}

#[test]
fn columns_give_fields_their_names() {
    let (_dir, path) = file(
        "a.jsonl",
        r#"{"meta": {"ask": " Why? ", "n": 9}, "prompt": "no"}"#,
    );
    let columns = [("prompt", "meta.ask"), ("output_tokens", "meta.n")]
        .map(|(name, path)| (name.to_owned(), path.to_owned()));
    let own = DatasetSpec {
        columns: columns.into(),
        ..spec(Source::Rows, &path)
    };
    let prompt = all(&own).remove(0).remove(0);
    assert_eq!(
        (prompt.text.as_str(), prompt.max_tokens),
        (" Why? ", Some(9))
    );
    assert_eq!(
        (&prompt.fields["meta"]["n"], &prompt.fields["prompt"]),
        (&json!(9), &json!(" Why? "))
    );
}

#[test]
fn a_bare_list_of_messages_is_a_row_only_for_some_kinds() {
    let (_dir, path) = file(
        "a.jsonl",
        "[{\"role\": \"user\", \"content\": \"x\"}]\n[{\"role\": \"user\", \"content\": \"y\"}]\n",
    );
    assert_eq!(all_texts(&spec(Source::Messages, &path)), ["x", "y"]);
    assert!(matches!(
        opened(&spec(Source::Rows, &path)),
        Err(PromptError::NoRows { .. } | PromptError::Row { .. })
    ));
}
