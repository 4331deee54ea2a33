//! Rows that a command prints.

use crate::testing::opened;
use crate::{Opened, PromptError};
use llmscen_core::dataset::{CommandSpec, DatasetSpec, OnExhausted, Source};
use llmscen_core::units::Nanos;
use std::path::Path;
use std::time::{Duration, Instant};

fn spec(script: &str, cwd: &Path) -> DatasetSpec {
    let command = CommandSpec {
        words: ["sh", "-c", script].map(str::to_owned).to_vec(),
        cwd: cwd.display().to_string(),
        env: vec![("LLMSCEN_SEED".to_owned(), "7".to_owned()), ("LLMSCEN_MODEL".to_owned(), "m".to_owned())],
        timeout: Nanos::from_millis(20_000),
        secrets: Vec::new(),
    };
    let (path, strict, on_exhausted) = (Some("gen".to_owned()), true, OnExhausted::Stop);
    DatasetSpec { path, strict, on_exhausted, ..DatasetSpec::of(Source::Command(command)) }
}

fn open(script: &str) -> Result<Opened, PromptError> {
    opened(&spec(script, &std::env::temp_dir()))
}

fn texts(opened: &Opened) -> Vec<String> {
    (0..).map_while(|seq| opened.prompts.session(seq)).map(|mut session| session.turns.remove(0).text).collect()
}

#[test]
fn rows_come_in_their_order_with_the_environment_and_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"pwd > seen; printf '{"q": "s%s %s"}\n{"q": "two"}\n' "$LLMSCEN_SEED" "$LLMSCEN_MODEL""#;
    let columns = [("prompt".to_owned(), "q".to_owned())].into();
    let spec = DatasetSpec { columns, ..spec(script, folder.path()) };
    let rows = opened(&spec).unwrap();
    assert_eq!(texts(&rows), ["s7 m", "two"]);
    let seen = std::fs::read_to_string(folder.path().join("seen")).unwrap();
    assert_eq!(Path::new(seen.trim()).canonicalize().unwrap(), folder.path().canonicalize().unwrap());
    let again = opened(&DatasetSpec { on_exhausted: OnExhausted::Cycle, ..spec }).unwrap();
    assert_eq!(again.prompts.session(3).unwrap().turns[0].text, "two", "the printed rows come again");
}

#[test]
fn a_command_that_never_ends_is_read_as_far_as_needed_and_ended_with_its_group() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"(while :; do sleep 0.05; touch alive; done) & i=0; while :; do echo "{\"prompt\": \"p$i\"}"; i=$((i+1)); echo $i > count; done"#;
    let rows = opened(&spec(script, folder.path())).unwrap();
    let of = |seq| rows.prompts.session(seq).unwrap().turns[0].text.clone();
    assert_eq!([of(0), of(1), of(300)], ["p0", "p1", "p300"]);
    assert_eq!(rows.prompts.len(), None);
    // A pipe and one read are filled ahead, and no more: rows are about 16 bytes.
    std::thread::sleep(Duration::from_millis(300));
    let count = || std::fs::read_to_string(folder.path().join("count")).unwrap().trim().parse::<u64>().unwrap_or(0);
    let waits = (0..120).any(|_| {
        let held = count();
        std::thread::sleep(Duration::from_secs(1));
        held > 300 && count() == held
    });
    assert!(waits, "the command waits while no row is needed");
    drop(rows);
    let alive = folder.path().join("alive");
    std::thread::sleep(Duration::from_millis(100));
    let _ = std::fs::remove_file(&alive);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!alive.exists(), "what it started in the background has ended too");
}

#[test]
fn what_fails_is_said_with_its_line_or_its_stderr() {
    let error = |script: &str| open(script).unwrap_err().to_string();
    assert_eq!(
        error("echo no model >&2; exit 3"),
        "the command of the dataset failed with exit status 3 (`dataset.command: gen`)\n  no model"
    );
    assert!(error("true").contains("`gen` is empty"), "{}", error("true"));
    let fault = |script: &str| {
        let rows = open(script).unwrap();
        let sent = texts(&rows);
        (sent, rows.prompts.fault().expect("a fault").to_string())
    };
    let (sent, bad) = fault("echo '{\"prompt\": \"a\"}'; echo; echo loading; sleep 0.2");
    assert!(sent == ["a"] && bad.starts_with("`gen`:3: not JSON"), "{sent:?} {bad}");
    let (sent, broken) = fault("echo '{\"prompt\": \"a\"}'; sleep 0.1; echo late >&2; kill -9 $$");
    assert!(sent == ["a"] && broken.contains("failed with signal 9") && broken.ends_with("\n  late"), "{sent:?} {broken}");
}

#[test]
fn a_command_that_prints_nothing_or_does_not_exist_is_an_error_in_time() {
    let began = Instant::now();
    let mut silent = spec("sleep 60", &std::env::temp_dir());
    if let Source::Command(command) = &mut silent.source {
        command.timeout = Nanos::from_millis(200);
    }
    let error = opened(&silent).unwrap_err().to_string();
    assert!(error.starts_with("the command of the dataset printed no row within 0.2 s; raise `dataset.timeout`"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(30));
    if let Source::Command(command) = &mut silent.source {
        command.words = vec!["no-such-program".to_owned()];
    }
    let error = opened(&silent).unwrap_err().to_string();
    assert!(error.starts_with("cannot start the command of the dataset in "), "{error}");
}
