use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use llmscen_analysis::TaggedOutcome;
use llmscen_core::manifest::Part;
use llmscen_core::outcome::{Failure, FailureKind, Outcome, Phase, Timeline};
use llmscen_core::request::PreparedRequest;
use llmscen_core::units::Nanos;

/// A stream sent at `from`, with tokens after these spans, in microseconds.
fn outcome(seq: u64, from: u64, spans: &[u64]) -> Outcome {
    let at = |micros: u64| Nanos(micros * 1000);
    let tokens: Vec<Nanos> = spans.iter().map(|span| at(from + span)).collect();
    let end = tokens.last().copied().unwrap_or(at(from));
    let timeline = Timeline {
        intended: at(from),
        sent: Some(at(from)),
        tokens,
        end,
        ..Timeline::default()
    };
    Outcome {
        timeline,
        ..PreparedRequest {
            seq,
            turns: 1,
            streamed: true,
            ..PreparedRequest::default()
        }
        .outcome(Phase::Measured)
    }
}

fn manifest(parts: &[(&str, u32, u64)]) -> Manifest {
    let part = |(case, round, origin_ns): &(&str, u32, u64)| Part {
        case: (*case).to_owned(),
        round: *round,
        origin_ns: *origin_ns,
        ..Part::default()
    };
    Manifest {
        started_unix_ns: 1_700_000_000_123_000_000,
        parts: parts.iter().map(part).collect(),
        ..Manifest::default()
    }
}

fn log(table: &Table, manifest: &Manifest) -> Vec<u8> {
    let mut log = Vec::new();
    write(table, manifest, &mut log).unwrap();
    log
}

/// Tag, start in ms after the base, length in ms, and the histogram of every line.
fn read(log: &[u8]) -> Vec<(String, u64, u64, Histogram<u64>)> {
    let mut lines = Vec::new();
    for entry in IntervalLogIterator::new(log) {
        if let LogEntry::Interval(line) = entry.unwrap() {
            let bytes = STANDARD.decode(line.encoded_histogram()).unwrap();
            let histogram = Deserializer::new()
                .deserialize(&mut bytes.as_slice())
                .unwrap();
            let millis = |span: Duration| span.as_millis() as u64;
            let tag = line.tag().unwrap().as_str().to_owned();
            lines.push((
                tag,
                millis(line.start_timestamp()),
                millis(line.duration()),
                histogram,
            ));
        }
    }
    lines
}

#[test]
fn lines_are_sorted_by_time_and_have_case_and_metric_as_tag() {
    let rows = [
        outcome(0, 0, &[500_000, 900_000]),
        outcome(1, 100_000, &[1_000_000, 1_800_000]),
    ];
    let other = outcome(0, 0, &[10, 20]);
    let failed = Outcome {
        end: Err(Failure::new(FailureKind::Truncated, "x")),
        ..outcome(1, 0, &[10, 20])
    };
    let warm = Outcome {
        phase: Phase::Warmup,
        ..outcome(2, 0, &[10, 20])
    };
    let tagged = |case, round, outcome| TaggedOutcome {
        case,
        round,
        shard: 0,
        outcome,
    };
    let all = [
        tagged("a=1,b=x y", 0, &rows[0]),
        tagged("a=1,b=x y", 0, &rows[1]),
        tagged("z", 0, &other),
    ];
    let table = Table::build(
        all.into_iter()
            .chain([tagged("z", 0, &failed), tagged("z", 0, &warm)]),
    )
    .unwrap();
    let manifest = manifest(&[("a=1,b=x y", 0, 5_000_000_000), ("z", 0, 2_000_000_000)]);
    let text = log(&table, &manifest);
    let head = "#[Histogram log format version 1.3]\n#[llmscen: values in nanoseconds, \
                Interval_Max in milliseconds]\n#[StartTime: 1700000000.123 (seconds since \
                epoch)]\n#[BaseTime: 1700000000.123 (seconds since epoch)]\n";
    assert!(
        text.starts_with(head.as_bytes()),
        "{}",
        String::from_utf8_lossy(&text)
    );
    let lines: Vec<_> = read(&text)
        .into_iter()
        .map(|(tag, start, length, histogram)| (tag, start, length, histogram.len()))
        .collect();
    let line = |tag: &str, start: u64| (tag.to_owned(), start, 1000, 1);
    let of = |case: &str, start: u64| {
        ["ttft", "itl", "e2e", "tpot"]
            .map(|metric| line(&format!("{case}/{metric}"), start))
            .to_vec()
    };
    assert_eq!(
        lines,
        [
            of("z", 2000),
            of("a=1;b=x%20y", 5000),
            of("a=1;b=x%20y", 6000)
        ]
        .concat()
    );
    assert_eq!(log(&table, &manifest), text, "same rows, same bytes");
}

#[test]
fn merged_lines_have_the_quantiles_of_the_rows_to_three_digits() {
    let exact: Vec<u64> = (0..4000u64)
        .map(|n| 1 + (n * n * 7919) % 250_000_000)
        .collect();
    let rows: Vec<Outcome> = exact
        .iter()
        .zip(0..)
        .map(|(micros, seq)| outcome(seq, seq * 1000, &[*micros]))
        .collect();
    let table = Table::build(rows.iter().map(|outcome| TaggedOutcome {
        case: "c",
        round: 1,
        shard: 0,
        outcome,
    }))
    .unwrap();
    let lines = read(&log(&table, &manifest(&[("c", 1, 0)])));
    assert!(
        lines.iter().filter(|line| line.0 == "c/ttft").count() > 100,
        "{}",
        lines.len()
    );
    let mut merged = Histogram::<u64>::new_with_bounds(1, MAX_VALUE, DIGITS).unwrap();
    lines
        .iter()
        .filter(|line| line.0 == "c/ttft")
        .for_each(|line| merged.add(&line.3).unwrap());
    let mut sorted = exact;
    sorted.sort();
    assert_eq!(merged.len(), 4000);
    for share in [0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
        let exact = sorted[(share * 4000.0f64).ceil() as usize - 1] as f64 * 1000.0;
        let merged_value = merged.value_at_quantile(share) as f64;
        assert!(
            (merged_value / exact - 1.0).abs() < 1e-3,
            "{share}: {merged_value} for {exact}"
        );
    }
}

#[test]
fn a_long_round_has_intervals_of_ten_seconds() {
    let rows = [outcome(0, 0, &[5]), outcome(1, 700_000_000, &[5])];
    let table = Table::build(rows.iter().map(|outcome| TaggedOutcome {
        case: "c",
        round: 0,
        shard: 0,
        outcome,
    }))
    .unwrap();
    let lines = read(&log(&table, &manifest(&[("c", 0, 0)])));
    let places: Vec<_> = lines.iter().map(|line| (line.1, line.2)).collect();
    assert_eq!(places[..2], [(0, 10_000); 2]);
    assert_eq!(places.last(), Some(&(700_000, 10_000)));
}

#[test]
fn tags_of_different_cases_differ() {
    let cases = ["a,b", "a;b", "a%3Bb", "a b", "a%20b", "a\nb", "é=ü"];
    let tags: std::collections::HashSet<String> =
        cases.iter().map(|case| tag(case, "itl")).collect();
    assert_eq!(tags.len(), cases.len());
    assert!(tags.iter().all(|tag| Tag::new(tag).is_some()), "{tags:?}");
    assert_eq!(
        (tag("a,b", "itl"), tag("a b", "itl")),
        ("a;b/itl".into(), "a%20b/itl".into())
    );
}
