//! A case with few requests, whose metrics can be calculated by hand.

use crate::export::{File, Measured, export};
use llmscen_analysis::{CaseFacts, Table, TaggedOutcome, timed_requests};
use llmscen_core::artifacts::ExportFormat;
use llmscen_core::dataset::{DatasetSpec, Source};
use llmscen_core::label::{Labels, Scalar};
use llmscen_core::load::{Load, Shape};
use llmscen_core::manifest::Manifest;
use llmscen_core::metric::Metric;
use llmscen_core::outcome::{Failure, FailureKind, Finish, Outcome, Phase, Timeline, Usage};
use llmscen_core::plan::Case;
use llmscen_core::report::{CaseReport, FailureExample};
use llmscen_core::request::{PreparedRequest, RequestSpec};
use llmscen_core::sample::Counts;
use llmscen_core::target::{ModelShare, Target};
use llmscen_core::units::Nanos;

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn request(seq: u64, timeline: Timeline) -> Outcome {
    let blank = PreparedRequest {
        seq,
        turns: 1,
        model: "org/m-7b".into(),
        streamed: true,
        ..PreparedRequest::default()
    }
    .outcome(Phase::Measured);
    Outcome {
        timeline,
        usage: Usage {
            prompt: Some(10),
            ..Usage::default()
        },
        ..blank
    }
}

/// A stream scheduled 1 ms before it is sent, with a token at each of these milliseconds and 10 prompt tokens. It
/// ends 2 ms after the last token.
fn stream(seq: u64, sent: u64, tokens: &[u64]) -> Outcome {
    let end = ms(tokens[tokens.len() - 1] + 2);
    let tokens: Vec<Nanos> = tokens.iter().copied().map(ms).collect();
    Outcome {
        end: Ok(Finish {
            reason: "stop".into(),
        }),
        ..request(
            seq,
            Timeline {
                intended: ms(sent - 1),
                sent: Some(ms(sent)),
                tokens,
                end,
                ..Timeline::default()
            },
        )
    }
}

fn failed(seq: u64, kind: FailureKind, sent: Option<u64>) -> Outcome {
    Outcome {
        end: Err(Failure::new(kind, "no \"luck\", at all")),
        ..request(
            seq,
            Timeline {
                intended: ms(900),
                sent: sent.map(ms),
                end: ms(950),
                ..Timeline::default()
            },
        )
    }
}

/// Four streams, one failure and one request that was never sent, over a window of 2 s.
pub(crate) fn rows() -> Vec<Outcome> {
    vec![
        stream(0, 100, &[150, 170, 200]),
        stream(1, 101, &[191, 211, 231, 291]),
        stream(2, 300, &[340, 350]),
        failed(3, FailureKind::Http5xx, Some(901)),
        failed(4, FailureKind::Dropped, None),
        stream(5, 1000, &[1100]),
    ]
}

pub(crate) fn case(shape: Shape) -> Case {
    Case {
        id: "concurrency=2".into(),
        labels: Labels(vec![("load.concurrency".into(), Scalar::Int(2))]),
        target: Target {
            models: vec![ModelShare {
                name: "org/m-7b".into(),
                weight: 1.0,
            }],
            ..Target::chat("http://127.0.0.1:8000/v1/chat/completions")
        },
        request: RequestSpec {
            stream: true,
            ..RequestSpec::default()
        },
        dataset: DatasetSpec::new(Source::Openqa),
        mix: Vec::new(),
        load: Load::new(shape),
        hooks: Default::default(),
        trace: None,
        checks: Vec::new(),
        stage_checks: Vec::new(),
    }
}

pub(crate) fn report() -> CaseReport {
    let failure = |kind| FailureExample {
        kind,
        count: 1,
        status: None,
        message: "no \"luck\", at all".into(),
        at: String::new(),
    };
    CaseReport {
        id: "concurrency=2".into(),
        rounds: 1,
        scalars: [(Metric::Window, 2.0)].into(),
        counts: Counts {
            scheduled: 6,
            ok: 4,
            failed: 1,
            dropped: 1,
            ..Counts::default()
        },
        failures: vec![failure(FailureKind::Http5xx), failure(FailureKind::Dropped)],
        ..CaseReport::default()
    }
}

pub(crate) fn manifest() -> Manifest {
    Manifest {
        run_id: "20260102T030405Z-1f2e".into(),
        name: "chat".into(),
        tool_version: "0.1.0".into(),
        seed: 42,
        started_at: "2026-01-02T03:04:05.250Z".into(),
        started_unix_ns: 1_767_323_045_250_000_000,
        ..Manifest::default()
    }
}

/// The exported files of a case.
pub(crate) fn files(peer: ExportFormat, case: &Case, rows: Vec<Outcome>) -> Vec<File> {
    let (manifest, report, mut export) = (manifest(), report(), export(peer));
    let table = Table::build(rows.iter().map(|outcome| TaggedOutcome {
        case: &case.id,
        round: 0,
        shard: 0,
        outcome,
    }))
    .unwrap();
    let rows = timed_requests(
        &table,
        &CaseFacts {
            case,
            parts: &[],
            until: None,
        },
    );
    let mut files = export
        .case(&Measured {
            manifest: &manifest,
            case,
            report: &report,
            rows,
        })
        .unwrap();
    files.extend(export.end().unwrap());
    files
}

/// The exported files of the case above, as text by name.
pub(crate) fn texts(peer: ExportFormat) -> Vec<(String, String)> {
    let files = files(peer, &case(Shape::Closed { users: 2 }), rows());
    files
        .into_iter()
        .map(|file| (file.name, String::from_utf8(file.bytes).unwrap()))
        .collect()
}
