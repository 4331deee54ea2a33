use super::log::{Reading, Rows};
use super::*;
use crate::testing::written;
use crate::{CacheDir, Opened, open as open_any};
use llmscen_core::dataset::{DatasetSpec, Layout, Source, TraceRows, Turns};
use llmscen_core::distribution::Distribution;
use std::collections::{BTreeMap, HashSet};
use std::io::Write;

const MOONCAKE: &str = r#"{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]}
{"timestamp": 3000, "input_length": 1400, "output_length": 7, "hash_ids": [1, 2, 4]}
{"timestamp": 1000, "input_length": 30, "output_length": 2, "hash_ids": [9]}
"#;
const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 \
    18:15:46.6805900,37,4\r\n2023-11-16 18:15:50.9951690,39,10\r\n";
const BURSTGPT: &str = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response \
    tokens,Total tokens,Log Type\n5,,1.2,ChatGPT,12,18,30,Conversation \
    log\n45,s1,0.1,GPT-4,14,6,20,API log\n118,s2,0.1,GPT-4,9,0,9,API log\n";
const WORKLOAD: &str = r#"{"timestamp": 1700000000.25, "body": {"model": "a", "messages": [{"role": "user", "content": "hi"}]}, "headers": {"x-user": "u1", "x-n": 3}}
{"timestamp": "2023-11-14T22:13:22Z", "body": {"prompt": "go", "max_tokens": 3}, "output_length": 9}
"#;

struct File {
    _folder: tempfile::TempDir,
    path: String,
}

fn file(content: impl AsRef<[u8]>) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.log");
    std::fs::write(&path, content).unwrap();
    File {
        path: path.display().to_string(),
        _folder: folder,
    }
}

fn spec(file: &File, trace: TraceSpec) -> DatasetSpec {
    DatasetSpec {
        path: Some(file.path.clone()),
        ..DatasetSpec::new(Source::Trace(trace))
    }
}

fn opened(spec: &DatasetSpec) -> Result<Opened, PromptError> {
    open_any(
        spec,
        Seed(1),
        0,
        &CacheDir {
            dir: "unused".into(),
            hub: String::new(),
            ..CacheDir::default()
        },
        &|_| (),
    )
}

fn prompts(content: impl AsRef<[u8]>, trace: TraceSpec) -> Box<dyn Prompts> {
    opened(&spec(&file(content), trace)).unwrap().prompts
}

fn prompt(prompts: &dyn Prompts, seq: u64) -> Prompt {
    prompts.session(seq).unwrap().turns.remove(0)
}

fn millis(arrivals: Option<Arc<[Nanos]>>) -> Vec<f64> {
    arrivals.unwrap().iter().map(|at| at.millis()).collect()
}

#[test]
fn every_layout_is_known_by_its_columns_and_sorted_by_time() {
    let seen = |content: &str| {
        let prompts = prompts(content, TraceSpec::default());
        let asks = (0..)
            .map_while(|seq| prompts.session(seq))
            .take(prompts.arrivals().unwrap().len());
        let asks: Vec<_> = asks
            .map(|session| (session.turns[0].tokens, session.turns[0].max_tokens))
            .collect();
        (millis(prompts.arrivals()), asks, prompts.dropped())
    };
    let tokens = |input, output| (Some(input), Some(output));
    assert_eq!(
        seen(MOONCAKE),
        (
            vec![0.0, 1000.0, 3000.0],
            vec![tokens(1100, 5), tokens(30, 2), tokens(1400, 7)],
            0
        )
    );
    assert_eq!(
        seen(AZURE),
        (vec![0.0, 4314.579], vec![tokens(37, 4), tokens(39, 10)], 0)
    );
    assert_eq!(
        seen(BURSTGPT),
        (vec![0.0, 40_000.0], vec![tokens(12, 18), tokens(14, 6)], 1),
        "one had failed"
    );
    assert_eq!(
        seen(WORKLOAD),
        (vec![0.0, 1750.0], vec![(None, None), (None, None)], 0)
    );
}

#[test]
fn equal_block_ids_are_equal_text_and_others_are_not() {
    let prompts = prompts(MOONCAKE, TraceSpec::default());
    let (a, b) = (
        prompt(prompts.as_ref(), 0).text,
        prompt(prompts.as_ref(), 2).text,
    );
    let builtin = Tokenizer::builtin();
    let shared = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let shared = builtin.count(&a[..shared]).unwrap();
    assert!(
        (1023..=1027).contains(&shared),
        "blocks 1 and 2 are alike, 3 and 4 are not: {shared}"
    );
    let c = prompt(prompts.as_ref(), 1).text;
    assert_ne!(a.split(' ').next(), c.split(' ').next());
    assert_eq!(
        [&a, &b, &c].map(|text| builtin.count(text)),
        [Some(1100), Some(1400), Some(30)]
    );
}

#[test]
fn another_pass_over_a_log_of_lengths_asks_in_other_words() {
    let prompts = prompts(MOONCAKE, TraceSpec::default());
    assert_eq!(prompts.len(), None);
    let texts: HashSet<String> = (0..9)
        .map(|seq| prompt(prompts.as_ref(), seq).text)
        .collect();
    assert_eq!(texts.len(), 9);
    assert_eq!(
        (
            prompt(prompts.as_ref(), 7).tokens,
            prompt(prompts.as_ref(), 5).tokens
        ),
        (Some(30), Some(1400))
    );
    assert_eq!(prompt(prompts.as_ref(), 7), prompt(prompts.as_ref(), 7));
    let log = file(MOONCAKE);
    let once = DatasetSpec {
        on_exhausted: OnExhausted::Stop,
        ..spec(&log, TraceSpec::default())
    };
    let once = opened(&once).unwrap().prompts;
    assert_eq!(
        (once.len(), once.session(2).is_some(), once.session(3)),
        (Some(3), true, None)
    );
}

#[test]
fn the_window_counts_from_the_first_arrival_and_moves_time_zero() {
    let window = |start, end| {
        let [start, end] = [start, end].map(|at: Option<u64>| at.map(Nanos::from_millis));
        let log = file(MOONCAKE.replace("\"timestamp\": ", "\"timestamp\": 70"));
        opened(&spec(
            &log,
            TraceSpec {
                start,
                end,
                ..TraceSpec::default()
            },
        ))
        .map(|opened| millis(opened.prompts.arrivals()))
    };
    // 700, 703000, 701000: the first one is the origin.
    assert_eq!(window(None, None).unwrap(), [0.0, 700_300.0, 702_300.0]);
    assert_eq!(window(Some(700_000), None).unwrap(), [300.0, 2300.0]);
    assert_eq!(
        window(None, Some(700_300)).unwrap(),
        [0.0, 700_300.0],
        "the end is in it"
    );
    assert_eq!(
        window(Some(700_300), Some(702_299)).unwrap(),
        [0.0],
        "and so is the start"
    );
    let error = window(Some(1), Some(2)).unwrap_err().to_string();
    assert!(
        error.ends_with("t.log has no usable row: none is between `start` and `end`"),
        "{error}"
    );
}

#[test]
fn models_are_mapped_and_unknown_ones_left_to_the_target() {
    let trace = TraceSpec {
        model_mapping: BTreeMap::from([("GPT-4".into(), "big".into())]),
        ..TraceSpec::default()
    };
    let burst = prompts(BURSTGPT, trace);
    assert_eq!(
        [0, 1].map(|seq| prompt(burst.as_ref(), seq).model),
        [None, Some("big".into())]
    );
    let trace = TraceSpec {
        model_mapping: BTreeMap::from([("a".into(), "b".into())]),
        ..TraceSpec::default()
    };
    let bodies = prompts(WORKLOAD, trace);
    let [first, second] = [0, 1].map(|seq| prompt(bodies.as_ref(), seq));
    assert_eq!(
        (first.body.unwrap()["model"].clone(), first.model.as_deref()),
        (json!("b"), Some("b"))
    );
    assert_eq!(
        (second.body.unwrap().get("model"), second.model),
        (None, None)
    );
}

#[test]
fn a_workload_is_sent_as_it_was_logged() {
    let first = prompt(prompts(WORKLOAD, TraceSpec::default()).as_ref(), 0);
    let body = json!({ "model": "a", "messages": [{ "role": "user", "content": "hi" }] });
    assert_eq!(
        (
            first.body.map(Value::Object),
            first.text.as_str(),
            first.tokens
        ),
        (Some(body), "hi", None)
    );
    assert_eq!(
        first.headers,
        [
            ("x-user".to_owned(), "u1".to_owned()),
            ("x-n".to_owned(), "3".to_owned())
        ]
    );
    let log = file(WORKLOAD);
    let counted = DatasetSpec {
        tokenizer: Some("builtin".into()),
        ..spec(&log, TraceSpec::default())
    };
    let counted = prompt(opened(&counted).unwrap().prompts.as_ref(), 0);
    assert_eq!(
        (counted.tokens, counted.approximate),
        (Tokenizer::builtin().count("hi"), true)
    );
}

#[test]
fn outputs_are_matched_where_that_is_asked_for() {
    let trace = TraceSpec {
        match_output_length: true,
        ..TraceSpec::default()
    };
    let first = prompt(prompts(AZURE, trace.clone()).as_ref(), 1);
    assert_eq!(
        (first.max_tokens, Value::Object(first.sampling)),
        (Some(10), json!({ "min_tokens": 10, "ignore_eos": true }))
    );
    assert!(
        prompt(prompts(AZURE, TraceSpec::default()).as_ref(), 1)
            .sampling
            .is_empty()
    );
    let of_request = TraceSpec {
        ignores_output: true,
        ..TraceSpec::default()
    };
    let own = |trace| prompt(prompts(AZURE, trace).as_ref(), 1).max_tokens;
    assert_eq!(
        [own(TraceSpec::default()), own(of_request)],
        [Some(10), None]
    );
    let whole = prompt(prompts(WORKLOAD, trace.clone()).as_ref(), 1);
    assert_eq!(
        whole.body.map(Value::Object),
        Some(json!({ "prompt": "go", "max_tokens": 3 })),
        "the protocol places the length"
    );
    assert_eq!(
        (whole.max_tokens, Value::Object(whole.sampling)),
        (Some(9), json!({ "min_tokens": 9, "ignore_eos": true }))
    );
    let silent = opened(&spec(&file(WORKLOAD.lines().next().unwrap()), trace)).unwrap();
    assert_eq!(
        silent.notes,
        ["the log has no output lengths: `match_output_length` has no effect"]
    );
}

#[test]
fn rows_that_do_not_fit_are_named_counted_and_with_strict_refused() {
    let broken = format!(
        "{AZURE}2023-11-16 18:15:47,x,1\n\nyesterday,1,1\n2023-11-16 18:15:48\n2023-11-16 18:15:48,0,1\n"
    );
    let log = file(&broken);
    let good = opened(&spec(&log, TraceSpec::default())).unwrap();
    assert_eq!(
        (
            good.prompts.dropped(),
            good.prompts.arrivals().unwrap().len()
        ),
        (4, 2)
    );
    let known = format!(
        "4 of 6 rows of the log are invalid and were left out: {0}:4: invalid token count of the prompt: x; \
         {0}:6: invalid time: yesterday; {0}:7: the row has only 1 columns; {0}:8: the prompt has no tokens",
        log.path
    );
    assert_eq!(good.prompts.problems(), std::slice::from_ref(&known));
    assert_eq!(log_of(&log, false).unwrap().notes, [known]);
    let strict = DatasetSpec {
        strict: true,
        ..spec(&log, TraceSpec::default())
    };
    let error = opened(&strict).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!(
            "{}:4: invalid token count of the prompt: x; expected a log in",
            log.path
        )),
        "{error}"
    );
    let read = log_of(&log, true).unwrap_err().to_string();
    assert_eq!(read, error, "a log of arrivals alone is as strict");
    assert_eq!(log_of(&log, false).unwrap().arrivals.len(), 2);
}

fn log_of(file: &File, strict: bool) -> Result<Log, PromptError> {
    super::read_log(file.path.as_ref(), &TraceSpec::default(), strict)
}

#[test]
fn a_layout_that_is_not_there_is_an_error_of_its_first_line() {
    let error = |content: &str, layout| {
        let trace = TraceSpec {
            layout,
            ..TraceSpec::default()
        };
        opened(&spec(&file(content), trace))
            .unwrap_err()
            .to_string()
    };
    assert!(
        error("a,b\n1,2\n", Layout::Auto)
            .contains("t.log:1: no known layout has these columns: a,b; expected")
    );
    assert!(error("{\"a\": 1}\n", Layout::Auto).contains(":1: no known layout has these keys: a;"));
    assert!(
        error(AZURE, Layout::Burstgpt)
            .contains(":1: no column `Request tokens` (columns: TIMESTAMP,Con")
    );
    assert!(
        error(MOONCAKE, Layout::Workload)
            .ends_with("3 are invalid, and no other is between `start` and `end`")
    );
    let pathless = DatasetSpec {
        path: None,
        ..spec(&file(""), TraceSpec::default())
    };
    assert_eq!(
        opened(&pathless).unwrap_err().to_string(),
        "a `trace` dataset needs a `path`"
    );
}

#[test]
fn a_packed_log_and_quoted_cells_are_read() {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer
        .write_all(
            b"Timestamp,Model,Request tokens,Response tokens\n1.5,\"a \"\"b\"\", c\",\"3\",4\n",
        )
        .unwrap();
    let trace = TraceSpec {
        model_mapping: BTreeMap::from([("a \"b\", c".into(), "m".into())]),
        ..TraceSpec::default()
    };
    let only = prompt(prompts(packer.finish().unwrap(), trace).as_ref(), 0);
    assert_eq!(
        (only.tokens, only.max_tokens, only.model.as_deref()),
        (Some(3), Some(4), Some("m"))
    );
}

#[test]
fn prompt_tokens_leave_out_requests_and_their_arrivals() {
    let log = file(MOONCAKE);
    let bounded = DatasetSpec {
        max_tokens: Some(1200),
        ..spec(&log, TraceSpec::default())
    };
    let prompts = opened(&bounded).unwrap().prompts;
    assert_eq!(
        (millis(prompts.arrivals()), prompts.dropped()),
        (vec![0.0, 1000.0], 1)
    );
}

#[test]
fn a_long_log_makes_no_text_before_its_turn() {
    // Two billion tokens of text would take the builtin tokenizer the better part of an hour.
    let rows: String = (1..20_000).map(|row| format!("{row},100000,1\n")).collect();
    let prompts = prompts(
        format!("Timestamp,Request tokens,Response tokens\n0,10,1\n{rows}"),
        TraceSpec::default(),
    );
    assert_eq!(
        prompts.arrivals().unwrap()[19_999],
        Nanos::from_millis(19_999_000)
    );
    assert_eq!(prompt(prompts.as_ref(), 0).tokens, Some(10));
}

#[test]
fn a_length_is_all_that_the_model_reads() {
    let (log, builtin) = (
        file(MOONCAKE.replace(": 30,", ": 2,")),
        Tokenizer::builtin(),
    );
    let presided = DatasetSpec {
        system: Some("Answer in rhymes.".into()),
        ..spec(&log, TraceSpec::default())
    };
    let opened = opened(&presided).unwrap();
    let read = |seq| {
        let user = prompt(opened.prompts.as_ref(), seq).text;
        let [system, user] = [("system", "Answer in rhymes."), ("user", &user)]
            .map(|(role, content)| json!({ "role": role, "content": content }));
        builtin.count_messages(&[system, user])
    };
    assert_eq!((read(0), read(2)), (Some(1100), Some(1400)));
    let alone = read(1).unwrap();
    assert_eq!(
        prompt(opened.prompts.as_ref(), 1).tokens,
        Some(alone),
        "a length that cannot be reached is reported as it is"
    );
    assert!(
        alone > 2
            && opened.notes[1].starts_with("1 of 3 prompts of the log have no more tokens than"),
        "{:?}",
        opened.notes
    );
}

/// A log with blocks of 16 tokens.
const SMALL_BLOCKS: &str = r#"{"timestamp": 0, "input_length": 40, "output_length": 5, "hash_ids": [1, 2, 3]}
{"timestamp": 10, "input_length": 33, "output_length": 7, "hash_ids": [1, 2]}
{"timestamp": 20, "input_length": 64, "output_length": 2, "hash_ids": [1, 2, 4, 5]}
"#;

#[test]
fn the_length_of_a_block_is_that_of_the_log() {
    let small = TraceSpec {
        block_tokens: Some(16),
        ..TraceSpec::default()
    };
    let prompts = prompts(SMALL_BLOCKS, small);
    let words = |seq| -> Vec<String> {
        let text = prompt(prompts.as_ref(), seq).text;
        text.split(' ').map(str::to_owned).collect()
    };
    let shared = |a: &[String], b: &[String]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let [first, second, third] = [0, 1, 2].map(words);
    // A word of the built-in tokenizer is about a token: 32 tokens are shared, the third block differs.
    for shared in [shared(&first, &second), shared(&first, &third)] {
        assert!((20..=34).contains(&shared), "{shared}");
    }
    assert_eq!(shared(&first, &second), shared(&first, &third));
}

#[test]
fn block_ids_that_cannot_be_of_the_block_length_are_refused() {
    let refused = |content: &str, block_tokens: u64| {
        let trace = TraceSpec {
            block_tokens: Some(block_tokens),
            ..TraceSpec::default()
        };
        opened(&spec(&file(content), trace))
            .err()
            .map(|error| error.to_string())
    };
    let error = refused(SMALL_BLOCKS, 512).unwrap();
    assert!(
        error.contains(
            "3 hash ids for a prompt of 40 tokens cannot be of blocks of 512 tokens; set \
            `dataset.trace.block_tokens: 16`, which fits all rows"
        ) && error.contains(":1"),
        "{error}"
    );
    assert_eq!(refused(SMALL_BLOCKS, 16), None);
    let error = refused(MOONCAKE, 16).unwrap();
    assert!(
        error.contains("set `dataset.trace.block_tokens: 512`"),
        "{error}"
    );
    let mixed = format!("{SMALL_BLOCKS}{MOONCAKE}");
    let error = refused(&mixed, 512).unwrap();
    assert!(
        error.contains("no length of blocks fits all rows"),
        "{error}"
    );
}

/// A log of one layout, opened with its sessions.
fn sessions(content: &str, trace: TraceSpec) -> Result<Opened, PromptError> {
    opened(&DatasetSpec {
        turns: Some(Turns::default()),
        ..spec(&file(content), trace)
    })
}

/// What each turn of a session awaits, and its wait in milliseconds.
fn links(prompts: &dyn Prompts, seq: u64) -> Vec<(Vec<u32>, f64)> {
    let session = written(prompts, seq);
    let graph = session.dependencies();
    let link = |(index, turn): (u32, &Prompt)| {
        assert_eq!(turn.continued_turn(index), None);
        let awaited = match &graph {
            Some(graph) => graph[index as usize].to_vec(),
            None => index.checked_sub(1).into_iter().collect(),
        };
        (awaited, turn.wait.unwrap().millis())
    };
    (0..).zip(&session.turns).map(link).collect()
}

/// The turns of a session that await the one before, after these waits.
fn chain(waits: &[f64]) -> Vec<(Vec<u32>, f64)> {
    let first = (Vec::new(), 0.0);
    let later = (0..).zip(waits).map(|(before, wait)| (vec![before], *wait));
    std::iter::once(first).chain(later).collect()
}

#[test]
fn a_mooncake_session_waits_for_its_delays() {
    let log = r#"{"session_id": "a", "timestamp": 50, "input_length": 9, "output_length": 5}
{"session_id": "b", "timestamp": 90, "input_length": 9, "output_length": 5}
{"session_id": "a", "input_length": 20, "output_length": 5, "delay": 250.5}
{"session_id": "b", "timestamp": 100, "input_length": 20, "output_length": 5}
{"timestamp": 10, "input_length": 9, "output_length": 5}
"#;
    let opened = sessions(log, TraceSpec::default()).unwrap();
    assert_eq!(millis(opened.prompts.arrivals()), [0.0, 40.0, 80.0]);
    assert_eq!(opened.prompts.session(0).unwrap().turns[0].links, None);
    assert_eq!(links(opened.prompts.as_ref(), 1), chain(&[250.5]));
    assert_eq!(links(opened.prompts.as_ref(), 2), chain(&[10.0]));
    assert!(opened.notes[0].starts_with("the log has no delay before some turns"));
}

/// A Mooncake log of sessions: name, prompt and output tokens, and block ids.
fn mooncake(rows: &[(&str, u64, u64, &str)]) -> String {
    let row = |(at, (name, input, output, ids)): (usize, &(&str, u64, u64, &str))| {
        format!(
            "{{\"session_id\": \"{name}\", \"timestamp\": {at}, \"input_length\": \
             {input}, \"output_length\": {output}, \"hash_ids\": [{ids}]}}\n"
        )
    };
    rows.iter().enumerate().map(row).collect()
}

/// What a log of sessions states about its rows.
fn statement(rows: &[(&str, u64, u64, &str)], stated: Option<TraceRows>) -> String {
    let trace = TraceSpec {
        rows: stated,
        ..TraceSpec::default()
    };
    match sessions(&mooncake(rows), trace) {
        Ok(opened) => opened.prompts.problems().join(" | "),
        Err(error) => {
            let error = error.to_string();
            let (_, problem) = error.split_once("t.log:").unwrap();
            problem.split("; expected").next().unwrap().to_owned()
        }
    }
}

const WHOLE: &str = "the rows of the log are whole prompts, history included: ";
const DELTA: &str =
    "the rows of the log add to the history of their session, which is sent with them: ";

#[test]
fn lengths_and_block_ids_tell_deltas_from_whole_prompts() {
    let of = |rows: &[(&str, u64, u64, &str)]| statement(rows, None);
    let deltas = [("a", 500, 50, ""), ("a", 300, 50, ""), ("a", 300, 50, "")];
    assert_eq!(
        of(&deltas),
        format!("{DELTA}2 of 2 later rows (line 2: 300 tokens after a prompt of 500)")
    );
    assert_eq!(
        of(&[
            ("a", 500, 50, ""),
            ("b", 9, 9, ""),
            ("a", 550, 50, ""),
            ("a", 800, 50, "")
        ]),
        format!("{WHOLE}each later row is long enough for the prompt and the reply before it")
    );
    // Longer than the prompt before it, but not by its reply.
    let between = of(&[("a", 500, 50, ""), ("a", 549, 50, "")]);
    let known = format!(
        "{WHOLE}assumed, since each is longer than the one before it. Some cannot have the reply too (line 2: 549 \
                         tokens after a prompt of 500 and a reply of 50)"
    );
    assert!(between.starts_with(&known), "{between}");
    // Ids decide where a long row may be both.
    assert_eq!(
        of(&[("a", 600, 50, "1, 2"), ("a", 700, 50, "3, 4")]),
        format!(
            "{DELTA}1 of 1 later rows (line 2: its first block id is not that of an earlier row)"
        )
    );
    assert_eq!(
        of(&[("a", 600, 50, "1, 2"), ("a", 590, 50, "1, 3")]),
        format!(
            "{WHOLE}1 of 1 later rows (line 2: its block ids begin like an earlier row of its session)"
        )
    );
    // The only block of the first row is not full, so that a longer prompt does not repeat its id.
    assert!(of(&[("a", 100, 50, "1"), ("a", 700, 50, "2, 3")]).starts_with(WHOLE));
    assert_eq!(
        of(&[("a", 9, 9, ""), ("b", 9, 9, ""), ("b", 20, 9, "")])
            .matches("line")
            .count(),
        0
    );
}

#[test]
fn rows_that_contradict_the_scenario_or_each_other_are_errors() {
    let deltas = [("a", 500, 50, ""), ("a", 300, 50, ""), ("a", 300, 50, "")];
    assert_eq!(
        statement(&deltas, Some(TraceRows::Whole)),
        "2: `dataset.trace.rows: whole` does not fit 2 of 2 later rows (line 2: 300 tokens after \
         a prompt of 500); set `rows: delta` if each row adds to the history"
    );
    let whole = [("a", 600, 50, "1, 2"), ("a", 700, 50, "1, 3")];
    assert_eq!(
        statement(&whole, Some(TraceRows::Delta)),
        "2: `dataset.trace.rows: delta` does not fit 1 of 1 later rows (line 2: its block ids \
         begin like an earlier row of its session); set `rows: whole` if each row is a whole prompt"
    );
    let both = [&whole[..], &[("b", 500, 50, ""), ("b", 300, 50, "")]].concat();
    assert_eq!(
        statement(&both, None),
        "4: the rows of sessions have two meanings: whole prompts in 1 of 2 later rows (line 2: \
         its block ids begin like an earlier row of its session), what is new in 1 of 2 later \
         rows (line 4: 300 tokens after a prompt of 500); set `dataset.trace.rows: whole` or \
         `delta`, or split the log"
    );
    for (stated, meaning) in [(TraceRows::Whole, WHOLE), (TraceRows::Delta, DELTA)] {
        assert!(statement(&both, Some(stated)).starts_with(meaning));
    }
    // A history that is shortened now and then.
    let mut shortened: Vec<(&str, u64, u64, &str)> =
        (1..7).map(|turn| ("a", turn * 200, 50, "")).collect();
    shortened.insert(3, ("a", 100, 50, ""));
    let known = format!(
        "{WHOLE}each later row is long enough for the prompt and the reply before it. The history \
                         seems to be shortened in 1 of 6 later rows (line 4: 100 tokens after a \
                         prompt of 600)"
    );
    assert_eq!(statement(&shortened, None), known);
    assert_eq!(
        statement(&deltas, Some(TraceRows::Delta)),
        format!("{DELTA}`dataset.trace.rows`")
    );
}

#[test]
fn deltas_continue_the_conversation() {
    let log = mooncake(&[
        ("a", 600, 50, "1, 2"),
        ("b", 9, 9, ""),
        ("a", 300, 40, "7"),
        ("a", 300, 30, "7"),
    ]);
    let opened = sessions(&log, TraceSpec::default()).unwrap();
    let session = written(opened.prompts.as_ref(), 0);
    assert_eq!(session.dependencies(), None, "a conversation");
    let builtin = Tokenizer::builtin();
    let lengths = session.turns.iter().map(|turn| builtin.count(&turn.text));
    assert_eq!(
        lengths.collect::<Vec<_>>(),
        [600, 299, 299].map(Some),
        "a line end between two messages is a token"
    );
    let outputs = session.turns.iter().map(|turn| turn.max_tokens);
    assert_eq!(outputs.collect::<Vec<_>>(), [50, 40, 30].map(Some));
    assert_eq!(
        session.turns[1].text, session.turns[2].text,
        "equal ids are equal text"
    );
    let continued = (0..)
        .zip(&session.turns)
        .map(|(index, turn)| turn.continued_turn(index));
    assert_eq!(continued.collect::<Vec<_>>(), [None, Some(0), Some(1)]);
}

#[test]
fn a_delta_has_its_logged_tokens_after_a_reply() {
    use crate::token::trained::CHATML;
    let folder = CHATML.folder("byte-level");
    let log = file(mooncake(&[("a", 60, 5, ""), ("a", 40, 5, "")]));
    let opened = opened(&DatasetSpec {
        turns: Some(Turns::default()),
        tokenizer: Some(folder.path().display().to_string()),
        system: Some("Be terse.".into()),
        ..spec(&log, TraceSpec::default())
    })
    .unwrap();
    let tokenizer = opened.tokenizer.unwrap();
    let turns = written(opened.prompts.as_ref(), 0).turns;
    let message = |role: &str, content: &str| json!({ "role": role, "content": content });
    let mut messages = vec![
        message("system", "Be terse."),
        message("user", &turns[0].text),
    ];
    let first = tokenizer.count_messages(&messages);
    messages.push(message("assistant", "yes"));
    messages.push(message("user", &turns[1].text));
    let reply = tokenizer.count("yes").unwrap();
    assert_eq!(
        (first, tokenizer.count_messages(&messages)),
        (Some(60), Some(60 + reply + 40))
    );
}

#[test]
fn a_log_of_deltas_without_sessions_says_so() {
    let log = file(mooncake(&[("a", 500, 50, ""), ("a", 300, 50, "")]));
    let opened = opened(&spec(&log, TraceSpec::default())).unwrap();
    let notes = opened.prompts.problems();
    assert!(
        notes[0].starts_with(&format!("it seems that {DELTA}1 of 1 later rows (line 2:"))
            && notes[0]
                .ends_with("set `dataset.turns: {}` to send each with the history of its session"),
        "{notes:?}"
    );
}

#[test]
fn burstgpt_sessions_are_deltas_only_where_the_scenario_says_so() {
    let log = "Timestamp,Session ID,Model,Request tokens,Response tokens\n1,x,m,90,10\n2,x,m,30,10\n3,x,m,30,10\n";
    let open = |rows| {
        let trace = TraceSpec {
            rows,
            ..TraceSpec::default()
        };
        sessions(log, trace).unwrap().prompts
    };
    let whole = open(None);
    assert_eq!(links(whole.as_ref(), 0)[1].0, [0]);
    let notes = whole.problems().join(" ");
    assert!(
        notes.contains("set `dataset.trace.rows: delta` to send it"),
        "{notes}"
    );
    let delta = open(Some(TraceRows::Delta));
    assert_eq!(delta.session(0).unwrap().dependencies(), None);
    let overlapping = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens\n\
                       5,x,1,m,9,1\n8,x,3,m,9,1\n9,x,3,m,9,1\n";
    let trace = TraceSpec {
        rows: Some(TraceRows::Delta),
        ..TraceSpec::default()
    };
    let error = sessions(overlapping, trace).unwrap_err().to_string();
    assert!(
        error.contains(
            ":4: `dataset.trace.rows: delta` needs sessions whose requests follow one another"
        ),
        "{error}"
    );
}

#[test]
fn a_think_time_replaces_unknown_waits() {
    let turns = Turns {
        think_time: Some(Distribution::time(Nanos::from_millis(1))),
        ..Turns::default()
    };
    let opened = opened(&DatasetSpec {
        turns: Some(turns),
        ..spec(&file(BAILIAN), TraceSpec::default())
    });
    let turn = opened.unwrap().prompts.turn(0, 1).unwrap().unwrap();
    assert_eq!(turn.wait, None);
}

const BAILIAN: &str = r#"{"chat_id": 4, "parent_chat_id": 7, "timestamp": 2.5, "input_length": 40, "output_length": 5, "type": "text", "turn": 2, "hash_ids": [1, 2, 5]}
{"chat_id": 7, "parent_chat_id": -1, "timestamp": 1, "input_length": 32, "output_length": 5, "type": "text", "turn": 1, "hash_ids": [1, 2]}
{"chat_id": 8, "parent_chat_id": 7, "timestamp": 2, "input_length": 33, "output_length": 5, "type": "text", "turn": 2, "hash_ids": [1, 2, 6]}
{"chat_id": 9, "parent_chat_id": 8, "timestamp": 4, "input_length": 48, "output_length": 5, "type": "text", "turn": 3, "hash_ids": [1, 2, 7]}
{"chat_id": 1, "parent_chat_id": -1, "timestamp": 1.25, "input_length": 30, "output_length": 5, "type": "text", "turn": 1, "hash_ids": [1, 3]}
"#;

#[test]
fn bailian_requests_await_their_parents() {
    let opened = sessions(BAILIAN, TraceSpec::default()).unwrap();
    assert_eq!(millis(opened.prompts.arrivals()), [0.0, 250.0]);
    let tree = [
        (vec![], 0.0),
        (vec![0], 1000.0),
        (vec![0], 1500.0),
        (vec![1], 2000.0),
    ];
    assert_eq!(links(opened.prompts.as_ref(), 0), tree);
    let lengths = written(opened.prompts.as_ref(), 0).turns;
    let lengths: Vec<_> = lengths.iter().map(|turn| turn.tokens).collect();
    assert_eq!(lengths, [32, 33, 40, 48].map(Some));
    let single = prompts(BAILIAN, TraceSpec::default());
    assert_eq!(
        millis(single.arrivals()),
        [0.0, 250.0, 1000.0, 1500.0, 3000.0],
        "without sessions, each request has its logged time"
    );
}

const WEKA: &str = r#"{
  "id": "a", "block_size": 64, "requests": [
    {"t": 0, "type": "s", "in": 100, "out": 5, "hash_ids": [1, 2], "api_time": 1.5},
    {"t": 2, "type": "subagent", "requests": [
      {"t": 0, "type": "n", "in": 64, "out": 5, "hash_ids": [3], "api_time": 1},
      {"t": 1.25, "type": "n", "in": 70, "out": 5, "hash_ids": [3, 4], "api_time": 1}]},
    {"t": 2.5, "type": "subagent", "requests": [
      {"t": 2.5, "type": "n", "in": 64, "out": 5, "hash_ids": [3], "api_time": 0.5}]},
    {"t": 4.75, "type": "s", "in": 200, "out": 5, "hash_ids": [1, 5, 6, 7], "api_time": 1}]}
{"id": "b", "block_size": 64, "requests": [{"t": 0, "type": "s", "in": 64, "out": 5, "hash_ids": [1]}]}
"#;

#[test]
fn weka_sub_agents_run_beside_each_other() {
    let opened = sessions(WEKA, TraceSpec::default()).unwrap();
    assert_eq!(
        opened.prompts.arrivals(),
        None,
        "its sessions have no times"
    );
    let graph = [
        (vec![], 0.0),
        (vec![0], 500.0),
        (vec![0], 1000.0),
        (vec![1], 250.0),
        (vec![2, 3], 500.0),
    ];
    assert_eq!(links(opened.prompts.as_ref(), 0), graph);
    let texts = |seq| {
        let turns = written(opened.prompts.as_ref(), seq).turns;
        turns.into_iter().map(|turn| turn.text).collect::<Vec<_>>()
    };
    let first = texts(0);
    assert_eq!(first[1], first[2], "equal ids are equal text");
    assert_eq!(shared_tokens(&first[0], &first[4]), 64);
    assert_eq!(
        shared_tokens(&first[0], &texts(1)[0]),
        0,
        "ids of another session are other text"
    );
    let global = WEKA.replace(
        "64, \"requests\"",
        "64, \"hash_id_scope\": \"global\", \"requests\"",
    );
    let global = sessions(&global, TraceSpec::default()).unwrap().prompts;
    let texts = [0, 1].map(|seq| prompt(global.as_ref(), seq).text);
    assert_eq!(shared_tokens(&texts[0], &texts[1]), 64);
}

#[test]
fn a_sub_agent_that_is_nested_too_deeply_is_an_invalid_row() {
    let request = r#"{"t": 1, "in": 9, "out": 5}"#;
    let nested = |levels: usize| {
        let (open, close) = (format!(r#"{{"t": 1, "requests": [{request}, "#), "]}");
        let inner = open.repeat(levels) + request + &close.repeat(levels);
        let log = format!(r#"{{"block_size": 64, "requests": [{request}, {inner}]}}"#);
        let opened = sessions(&log, TraceSpec::default()).unwrap();
        let turns = opened.prompts.session(0).unwrap().count();
        (
            turns,
            opened.prompts.dropped(),
            opened.prompts.problems().join(" "),
        )
    };
    assert_eq!(nested(256), (258, 0, String::new()));
    let (turns, dropped, notes) = nested(3000);
    assert_eq!((turns, dropped), (257, 1));
    assert!(
        notes.contains("sub-agents are nested in more than 256 levels"),
        "{notes}"
    );
}

#[test]
fn spans_are_ordered_by_their_times_within_their_parents() {
    let span = |id: &str, parent: &str, millis: [u64; 2], operation: &str| {
        let [start, end] = millis.map(|at| (at * 1_000_000).to_string());
        json!({
            "traceId": "t", "spanId": id, "parentSpanId": parent,
            "startTimeUnixNano": start, "endTimeUnixNano": end,
            "attributes": [
                { "key": "gen_ai.operation.name", "value": { "stringValue": operation } },
                { "key": "gen_ai.usage.input_tokens", "value": { "intValue": "20" } },
                { "key": "gen_ai.usage.output_tokens", "value": { "intValue": "3" } },
                { "key": "gen_ai.request.model", "value": { "stringValue": "big" } },
            ],
        })
    };
    let spans = [
        span("agent", "", [0, 1000], "invoke_agent"),
        span("plan", "agent", [10, 100], "chat"),
        span("tool a", "agent", [110, 500], "execute_tool"),
        span("tool b", "agent", [120, 400], "execute_tool"),
        span("a1", "tool a", [130, 200], "chat"),
        span("a2", "tool a", [230, 450], "chat"),
        span("b1", "tool b", [150, 220], "chat"),
        span("answer", "agent", [510, 900], "chat"),
    ];
    // Console exporters print one span per line, in the order of their ends.
    let lines: String = spans.iter().rev().map(|span| format!("{span}\n")).collect();
    let export = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": spans }] }] });
    for log in [lines, format!("{export}\n")] {
        let opened = sessions(&log, TraceSpec::default()).unwrap();
        assert_eq!(millis(opened.prompts.arrivals()), [0.0]);
        let graph = [
            (vec![], 0.0),
            (vec![0], 30.0),
            (vec![0], 50.0),
            (vec![1], 30.0),
            (vec![2, 3], 60.0),
        ];
        assert_eq!(links(opened.prompts.as_ref(), 0), graph, "{log}");
        let single = prompts(&log, TraceSpec::default());
        assert_eq!(millis(single.arrivals()), [0.0, 120.0, 140.0, 220.0, 500.0]);
    }
}

#[test]
fn burstgpt_sessions_wait_from_end_to_start() {
    let log = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens\n\
               5,x,1.5,m,9,1\n6,,1,m,9,1\n8,x,2,m,9,1\n9.5,x,1,m,9,1\n10.25,x,1,m,9,1\n";
    let opened = sessions(log, TraceSpec::default()).unwrap();
    assert_eq!(millis(opened.prompts.arrivals()), [0.0, 1000.0]);
    let overlapping = [
        (vec![], 0.0),
        (vec![0], 1500.0),
        (vec![0], 3000.0),
        (vec![1], 250.0),
    ];
    assert_eq!(links(opened.prompts.as_ref(), 0), overlapping);
}

#[test]
fn servegen_rows_are_requests() {
    let log = "request_id,timestamp,input_tokens,output_tokens\n0,0.5,10,20\n1,1.2,15,25\n";
    let prompts = prompts(log, TraceSpec::default());
    assert_eq!(millis(prompts.arrivals()), [0.0, 700.0]);
    let second = prompt(prompts.as_ref(), 1);
    assert_eq!((second.tokens, second.max_tokens), (Some(15), Some(25)));
}

/// Number of leading tokens that two texts share.
fn shared_tokens(a: &str, b: &str) -> usize {
    let builtin = Tokenizer::builtin();
    let [a, b] = [a, b].map(|text| builtin.encode(text, false).unwrap());
    a.iter().zip(&b).take_while(|(a, b)| a == b).count()
}

#[test]
fn replayed_prompts_share_as_many_tokens_as_the_log() {
    for (layout, block, pairs_with_sharing) in [
        (Layout::Mooncake, 512, true),
        (Layout::Bailian, 16, true),
        (Layout::Weka, 64, false),
    ] {
        let opened = opened(&DatasetSpec {
            path: Some("builtin".into()),
            turns: Some(Turns::default()),
            on_exhausted: OnExhausted::Stop,
            tokenizer: Some("builtin".into()),
            ..DatasetSpec::new(Source::Trace(TraceSpec {
                layout,
                ..TraceSpec::default()
            }))
        })
        .unwrap();
        let reading = Reading {
            strict: true,
            sessions: true,
        };
        let trace = TraceSpec {
            layout,
            ..TraceSpec::default()
        };
        let rows = Rows::read("builtin".as_ref(), &trace, reading, &mut Vec::new()).unwrap();
        let builtin = Tokenizer::builtin();
        let mut requests: Vec<(usize, Vec<u64>, Vec<u32>, u64)> = Vec::new();
        for number in 0..rows.len() {
            let turns = written(opened.prompts.as_ref(), number as u64).turns;
            for (turn, sent) in (0..).zip(turns) {
                let logged = rows.turn_of_session(number, turn).unwrap();
                let LoggedRequest::Lengths { input, blocks, .. } = logged.entry.request else {
                    panic!("not a log of lengths")
                };
                let tokens = builtin.encode(&sent.text, false).unwrap();
                assert_eq!(tokens.len() as u64, input);
                assert_eq!(sent.tokens, Some(input));
                requests.push((number, blocks, tokens, sent.cacheable_tokens.unwrap()));
            }
        }
        let mut sharing = 0;
        for (index, (session, ids, tokens, cacheable)) in requests.iter().enumerate() {
            let mut most = 0;
            for (other_session, other_ids, other, _) in &requests[..index] {
                let equal = session == other_session || pairs_with_sharing;
                let ids = ids.iter().zip(other_ids).take_while(|(a, b)| a == b);
                let expected = ids.count() * block;
                let expected = expected.min(tokens.len()).min(other.len());
                let shared = tokens.iter().zip(other).take_while(|(a, b)| a == b).count();
                if !equal {
                    // Different words may begin with the same token.
                    assert!(shared < 4, "{layout:?}: {session} and {other_session}");
                    continue;
                }
                assert_eq!(
                    shared, expected,
                    "{layout:?}: {session} and {other_session}"
                );
                most = most.max(shared);
                sharing += usize::from(expected > block);
            }
            assert_eq!(*cacheable, most as u64, "{layout:?}: {session}");
        }
        assert!(sharing > 10, "{layout:?}: {sharing}");
    }
}

#[test]
fn a_part_of_a_block_is_shared_as_a_part() {
    let row = |at: u64, input: u64, ids: &str| {
        format!(
            "{{\"timestamp\": {at}, \"input_length\": {input}, \"output_length\": 5, \"hash_ids\": [{ids}]}}\n"
        )
    };
    let log = [
        row(0, 1000, "1, 2"),
        row(1, 1500, "1, 2, 3"),
        row(2, 1500, "1, 2, 3"),
        row(3, 600, "1, 2"),
        row(4, 600, "2, 1"),
    ];
    let log_file = file(log.concat());
    let counted = DatasetSpec {
        tokenizer: Some("builtin".into()),
        ..spec(&log_file, TraceSpec::default())
    };
    let counted = opened(&counted).unwrap().prompts;
    let shared = [0, 1, 2, 3, 4].map(|seq| prompt(counted.as_ref(), seq).cacheable_tokens);
    assert_eq!(shared, [0, 1000, 1500, 600, 0].map(Some));
    let first = prompt(prompts(log.concat(), TraceSpec::default()).as_ref(), 1);
    assert_eq!(first.cacheable_tokens, None, "no tokenizer counts them");
}

#[test]
fn cache_bust_precedes_every_turn_of_a_logged_session() {
    for system in [None, Some("be kind".to_owned())] {
        let busted = opened(&DatasetSpec {
            path: Some("builtin".into()),
            turns: Some(Turns::default()),
            cache_bust: true,
            tokenizer: Some("builtin".into()),
            system: system.clone(),
            ..DatasetSpec::new(Source::Trace(TraceSpec {
                layout: Layout::Mooncake,
                ..TraceSpec::default()
            }))
        });
        let busted = busted.unwrap().prompts;
        let session = written(busted.as_ref(), 0);
        assert!(session.turns.len() > 1);
        for prompt in &session.turns {
            let sent = match &prompt.messages {
                Some(messages) => messages.clone(),
                None => vec![json!({ "content": prompt.text })],
            };
            let texts: Vec<&str> = sent
                .iter()
                .map(|message| message["content"].as_str().unwrap())
                .collect();
            assert_eq!(texts.len(), 1 + usize::from(system.is_some()));
            let words = texts[0].split('\n').next().unwrap();
            assert!(words.len() == 16 && u64::from_str_radix(words, 16).is_ok());
            assert!(texts.last().unwrap().len() > 100);
            assert_eq!(prompt.cacheable_tokens, Some(0));
        }
    }
}

#[test]
fn sessions_that_cannot_be_sent_are_errors_of_their_row() {
    let error = |log: &str| sessions(log, TraceSpec::default()).unwrap_err().to_string();
    let bailian = |from: &str, to: &str| error(&BAILIAN.replace(from, to));
    let mooncake = |rest: &str| {
        let lengths = r#""input_length": 9, "output_length": 5"#;
        error(&format!(
            "{{\"session_id\": 1, \"timestamp\": 50, {lengths}}}\n\n{{\"session_id\": 1, {lengths}{rest}}}\n"
        ))
    };
    let span = |id: &str, parent: &str| {
        format!(
            "{{\"traceId\": \"t\", \"spanId\": \"{id}\", \"parentSpanId\": \"{parent}\", \"startTimeUnixNano\": \"1\", \"endTimeUnixNano\": \"2\", \"attributes\": []}}\n"
        )
    };
    for (error, expected) in [
        (
            bailian("parent_chat_id\": 8", "parent_chat_id\": 55"),
            ":4: the parent 55 of 9 is not in the log; expected",
        ),
        (
            bailian("7, \"parent_chat_id\": -1", "7, \"parent_chat_id\": 9"),
            ":1: the parents of 4 form a cycle; expected",
        ),
        (
            bailian("\"timestamp\": 4,", "\"timestamp\": 1.5,"),
            ":4: 9 is earlier than its parent 8; expected",
        ),
        (
            bailian("\"chat_id\": 9", "\"chat_id\": 8"),
            ":4: two requests have the id 8; expected",
        ),
        (
            mooncake(r#", "delay": -2.5"#),
            ":3: negative `delay`: -2.5 ms; expected",
        ),
        (
            mooncake(r#", "delay": 1e11"#),
            ":3: a `delay` of more than a year; expected",
        ),
        (
            mooncake(r#", "timestamp": 40"#),
            ":3: the request is earlier than the one before it in its session; expected",
        ),
        (mooncake(""), ":3: the request needs a `delay`, or a"),
        (
            error(&WEKA.replace("\"t\": 4.75", "\"t\": 1.75")),
            ": `t` is earlier than that of the request before it; expected",
        ),
        (
            error(&WEKA.replace("\"b\", \"block_size\": 64", "\"b\", \"block_size\": 48")),
            ": `block_size` and `hash_id_scope` differ from",
        ),
        (
            error(&WEKA.replace("\"block_size\": 64", "\"block_size\": 32")),
            ":3: 2 hash ids for a prompt of 100 tokens cannot be of blocks of 32 tokens; \
            `block_size: 64` fits all rows",
        ),
        (
            error(&WEKA.replace("\"block_size\": 64", "\"block_size\": 0")),
            ":3: `block_size` is 0",
        ),
        (
            error(&(span("a", "") + &span("b", "c"))),
            ":2: the parent c of span b is not in the log",
        ),
        (
            error(&(span("a", "b") + &span("b", "a"))),
            ":1: the parents of a form a cycle",
        ),
        (
            error(AZURE),
            "none of its sessions has a second request; remove `dataset.turns`",
        ),
        (
            opened(&spec(&file(WEKA), TraceSpec::default()))
                .unwrap_err()
                .to_string(),
            "add `turns: {}` to a `trace` dataset",
        ),
    ] {
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_rows_below_an_invalid_one_are_left_out() {
    let broken = BAILIAN.replace(
        "8, \"parent_chat_id\": 7, \"timestamp\": 2,",
        "8, \"parent_chat_id\": 7,",
    );
    let opened = sessions(&broken, TraceSpec::default()).unwrap();
    let ids = |seq: u64| opened.prompts.session(seq).unwrap().count();
    assert_eq!([ids(0), ids(1)], [2, 1]);
    assert_eq!(opened.prompts.dropped(), 2);
    let notes = opened.prompts.problems().join(" ");
    assert!(
        notes.contains("the parent 8 of 9 is not among the valid rows"),
        "{notes}"
    );
    let span = |id: &str, parent: &str, end: &str| {
        let lengths = r#"{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}, {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "20"}}, {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "3"}}"#;
        format!(
            "{{\"traceId\": \"t\", \"spanId\": \"{id}\", \"parentSpanId\": \"{parent}\", \"startTimeUnixNano\": \"1\"{end}, \"attributes\": [{lengths}]}}\n"
        )
    };
    let end = ", \"endTimeUnixNano\": \"2\"";
    let log = span("a", "", end) + &span("a2", "", end) + &span("b", "", "") + &span("c", "b", end);
    let opened = sessions(&log, TraceSpec::default()).unwrap();
    assert_eq!(opened.prompts.dropped(), 2, "{:?}", opened.notes);
    let cut: Vec<&str> = broken
        .lines()
        .filter(|line| !line.contains("\"chat_id\": 7"))
        .collect();
    let error = sessions(&cut.join("\n"), TraceSpec::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the parent 7 of 4 is not in the log"),
        "two parents are missing, and one row is invalid: {error}"
    );
}

#[test]
fn a_window_takes_whole_sessions() {
    let trace = TraceSpec {
        start: Some(Nanos::from_millis(100)),
        ..TraceSpec::default()
    };
    let opened = sessions(BAILIAN, trace);
    let error = opened.unwrap_err().to_string();
    assert!(
        error.contains("none of its sessions has a second request"),
        "{error}"
    );
    let trace = TraceSpec {
        end: Some(Nanos::from_millis(100)),
        ..TraceSpec::default()
    };
    let opened = sessions(BAILIAN, trace).unwrap();
    assert_eq!(opened.prompts.len(), None);
    assert_eq!(opened.prompts.session(0).unwrap().count(), 4);
    assert_eq!(opened.prompts.arrivals().unwrap().len(), 1);
}
