//! Rows before the file has been read, whatever the threads do.

use super::super::Kind;
use super::super::reader::process_in_threads;
use super::super::source::Origin;
use super::*;
use crate::rows::OPENQA;
use crate::text::LINE_BY_LINE;
use crate::token::Tokenizer;
use llmscen_core::dataset::{DatasetSpec, Source};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, mpsc};

/// A source that gives what it is sent, and ends when the sender is dropped.
struct Pipe {
    pieces: mpsc::Receiver<Vec<u8>>,
    rest: io::Cursor<Vec<u8>>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.rest.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            let Ok(piece) = self.pieces.recv() else {
                return Ok(0);
            };
            self.rest = io::Cursor::new(piece);
        }
    }
}

fn pipe() -> (mpsc::Sender<Vec<u8>>, Origin) {
    let (sender, pieces) = mpsc::channel();
    (
        sender,
        Origin::Slow(Box::new(Pipe {
            pieces,
            rest: io::Cursor::default(),
        })),
    )
}

fn parser(kind: &'static Kind, spec: DatasetSpec) -> RowParser {
    let tokenizer = spec
        .min_tokens
        .or(spec.max_tokens)
        .map(|_| Arc::new(Tokenizer::builtin()));
    RowParser {
        kind,
        spec,
        tokenizer,
        path: PathBuf::from("data"),
        format: OnceLock::new(),
    }
}

fn started(kind: &'static Kind, spec: DatasetSpec, origin: Origin) -> FilePrompts {
    FilePrompts::start_with_threads(parser(kind, spec), origin, 0, 7, 2).unwrap()
}

fn text(table: &FilePrompts, seq: u64) -> Option<String> {
    table
        .session(seq)
        .map(|mut session| session.turns.remove(0).text)
}

const SOON: Duration = Duration::ZERO;

#[test]
fn the_first_sessions_are_there_before_the_rest_of_the_file() {
    let (sender, origin) = pipe();
    let table = started(&LINE_BY_LINE, DatasetSpec::new(Source::LineByLine), origin);
    sender.send(b"first\nsecond\nthi".to_vec()).unwrap();
    assert_eq!(
        [text(&table, 0), text(&table, 1)],
        [Some("first".into()), Some("second".into())]
    );
    assert_eq!(
        (table.len(), table.ready(2, SOON)),
        (None, false),
        "half a line is no row, and the end is not known"
    );
    sender.send(b"rd\n".to_vec()).unwrap();
    assert_eq!(text(&table, 2).as_deref(), Some("third"));
    drop(sender);
    assert_eq!(
        text(&table, 3).as_deref(),
        Some("first"),
        "the rows start again when the end is known"
    );
    assert_eq!((table.len(), table.ready(99, SOON)), (Some(3), true));
}

#[test]
fn a_dataset_opens_when_enough_of_it_was_looked_at() {
    let (sender, origin) = pipe();
    let spec = DatasetSpec {
        max_tokens: Some(3),
        ..DatasetSpec::new(Source::LineByLine)
    };
    // As many as are read at once, so that nothing comes after them; every second one is too long.
    sender
        .send("row\na row that is too long\n".repeat(600).into_bytes())
        .unwrap();
    let table = started(&LINE_BY_LINE, spec, origin).open(&|_| ()).unwrap();
    assert_eq!(
        (table.len(), table.dropped()),
        (None, 500),
        "a thousand rows were looked at"
    );
    drop(sender);
    assert_eq!(text(&table, 599).as_deref(), Some("row"));
    assert_eq!(
        table.dropped(),
        599,
        "the row behind it was not asked for yet"
    );
    assert_eq!(text(&table, 600).as_deref(), Some("row"));
    assert_eq!((table.len(), table.dropped()), (Some(600), 600));
}

#[test]
fn only_offsets_and_what_is_ahead_are_held() {
    let (sender, origin) = pipe();
    let table = started(&LINE_BY_LINE, DatasetSpec::new(Source::LineByLine), origin);
    for part in 0..100 {
        sender
            .send(
                (0..1000)
                    .map(|row| format!("row {}\n", part * 1000 + row))
                    .collect::<String>()
                    .into_bytes(),
            )
            .unwrap();
    }
    drop(sender);
    for seq in [70_000, 70_001, 99_999, 3] {
        assert_eq!(text(&table, seq), Some(format!("row {seq}")));
    }
    let index = table.reader.index();
    assert!(
        index.ready.len() <= 3072,
        "{} sessions are held",
        index.ready.len()
    );
    assert_eq!(index.rows.len(), 100_000);
}

#[test]
fn threads_change_nothing() {
    let rows: String = (0..5000)
        .map(|n| format!("row {n}{}\n", " and more".repeat(n % 7)))
        .collect();
    let rows: &'static [u8] = Box::leak(rows.into_bytes().into_boxed_slice());
    for order in [Order::Sequential, Order::Shuffle] {
        let seen = [1, 2, 8].map(|threads| {
            let spec = DatasetSpec {
                order,
                max_tokens: Some(12),
                ..DatasetSpec::new(Source::LineByLine)
            };
            let table = FilePrompts::start_with_threads(
                parser(&LINE_BY_LINE, spec),
                Origin::Fixed(rows),
                0,
                7,
                threads,
            )
            .unwrap()
            .open(&|_| ())
            .unwrap();
            (0..1500)
                .map(|seq| (text(&table, seq), table.dropped()))
                .collect::<Vec<_>>()
        });
        assert!(seen[0] == seen[1] && seen[0] == seen[2], "{order:?}");
        assert_ne!(seen[0][1499].1, 0, "some rows are left out");
    }
}

#[test]
fn an_error_later_in_a_file_is_reported_when_it_is_reached() {
    let (sender, origin) = pipe();
    let table = started(&OPENQA, DatasetSpec::new(Source::Openqa), origin);
    sender
        .send("{\"question\": \"a\"}\n".repeat(2000).into_bytes())
        .unwrap();
    let table = table.open(&|_| ()).unwrap();
    sender
        .send(b"{\"question\": \"\xff\"}\n{\"question\": \"b\"}\n".to_vec())
        .unwrap();
    assert_eq!(text(&table, 1999).as_deref(), Some("a"));
    assert!(table.session(2000).is_none());
    let fault = table.fault().unwrap().to_string();
    assert!(
        fault.starts_with("the dataset data is not UTF-8: line 2001, byte 36014 of the file"),
        "{fault}"
    );
    assert_eq!(
        text(&table, 5).as_deref(),
        Some("a"),
        "earlier rows are still available"
    );
    assert_eq!(table.len(), None);
}

#[test]
fn a_strict_dataset_ends_at_the_first_invalid_row() {
    let rows: &'static str =
        Box::leak(format!("{}{{}}\n", "{\"question\": \"a\"}\n".repeat(2000)).into_boxed_str());
    let spec = DatasetSpec {
        strict: true,
        on_exhausted: OnExhausted::Stop,
        ..DatasetSpec::new(Source::Openqa)
    };
    let table = started(&OPENQA, spec, Origin::Fixed(rows.as_bytes()))
        .open(&|_| ())
        .unwrap();
    assert_eq!(text(&table, 1999).as_deref(), Some("a"));
    assert!(table.session(2000).is_none());
    assert!(matches!(
        table.fault().as_deref(),
        Some(PromptError::Row { line: 2001, .. })
    ));
}

#[test]
fn a_file_that_breaks_off_gives_its_rows_first() {
    struct Torn(bool);
    impl Read for Torn {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(io::Error::other("the disk is gone"));
            }
            buffer[..4].copy_from_slice(b"a\nb\n");
            Ok(4)
        }
    }
    let table = started(
        &LINE_BY_LINE,
        DatasetSpec::new(Source::LineByLine),
        Origin::Slow(Box::new(Torn(false))),
    );
    assert_eq!(
        [text(&table, 0), text(&table, 1), text(&table, 2)],
        [Some("a".into()), Some("b".into()), None]
    );
    assert_eq!(
        table.fault().unwrap().to_string(),
        "cannot read the dataset data: the disk is gone"
    );
}

#[test]
fn the_line_of_a_row_is_known_far_into_a_file() {
    let rows = format!(
        "{}\n{{\"question\": 1}}\n",
        "{\"question\": \"a\"}\n\n".repeat(40_000)
    );
    let spec = DatasetSpec {
        strict: true,
        ..DatasetSpec::new(Source::Openqa)
    };
    let rows: &'static str = Box::leak(rows.into_boxed_str());
    let table = started(&OPENQA, spec, Origin::Fixed(rows.as_bytes()));
    assert!(table.session(40_000).is_none());
    assert!(
        matches!(
            table.fault().as_deref(),
            Some(PromptError::Row { line: 80_002, .. })
        ),
        "{:?}",
        table.fault()
    );
}

/// Voluntary context switches of this thread.
fn context_switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("voluntary_ctxt_switches:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn callers_that_wait_for_different_rows_do_not_wake_each_other() {
    let (sender, origin) = pipe();
    let prompts = started(&LINE_BY_LINE, DatasetSpec::new(Source::LineByLine), origin);
    let wait = |seq| {
        let prompts = &prompts;
        move || {
            let before = context_switches();
            assert!(!prompts.ready(seq, Duration::from_millis(300)));
            context_switches() - before
        }
    };
    let switches: u64 = std::thread::scope(|scope| {
        let waiting = [
            scope.spawn(wait(10)),
            scope.spawn(wait(20)),
            scope.spawn(wait(30)),
        ];
        waiting
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert!(switches < 100, "{switches} wake-ups");
    drop(sender);
}

#[test]
fn a_caller_that_waits_for_a_later_row_gets_it_though_earlier_rows_are_taken() {
    let (sender, origin) = pipe();
    let prompts = started(&LINE_BY_LINE, DatasetSpec::new(Source::LineByLine), origin);
    sender.send("row\n".repeat(2000).into_bytes()).unwrap();
    std::thread::scope(|scope| {
        let later = scope.spawn(|| prompts.ready(5000, Duration::from_secs(10)));
        while prompts.reader.index().requested < 5000 {
            std::thread::yield_now();
        }
        assert_eq!(text(&prompts, 10).as_deref(), Some("row"));
        sender.send("row\n".repeat(4000).into_bytes()).unwrap();
        assert!(
            later.join().unwrap(),
            "the reader stopped before the requested row"
        );
    });
    drop(sender);
}

#[test]
fn without_threads_the_caller_does_the_work() {
    let sum = Mutex::new(0);
    // More memory than an address space has.
    let builder = || Builder::new().stack_size(1 << 60);
    process_in_threads(1..=4, 4, &builder, &|n| *sum.lock().unwrap() += n);
    assert_eq!(*sum.lock().unwrap(), 10);
}

#[test]
fn an_error_near_the_beginning_comes_after_the_rows_before_it() {
    let rows = b"[{\"question\": \"a\"}, {\"question\": \"b\"} {\"question\": \"c\"}]";
    let prompts = started(
        &OPENQA,
        DatasetSpec::new(Source::Openqa),
        Origin::Fixed(rows),
    );
    assert_eq!(
        [text(&prompts, 0), text(&prompts, 1), text(&prompts, 2)],
        [Some("a".into()), Some("b".into()), None]
    );
    assert!(
        matches!(
            prompts.fault().as_deref(),
            Some(PromptError::Row { line: 1, .. })
        ),
        "{:?}",
        prompts.fault()
    );
}
