//! Outcomes, cases and measured requests for tests. Timestamps are whole milliseconds.

use crate::columns::TaggedOutcome;
use crate::measured_requests::{MeasuredRequests, RequestFields, RequestsBuilder};
use crate::table::Table;
use crate::{CaseFacts, Sample};
use llmscen_core::dataset::{DatasetSpec, Source};
use llmscen_core::label::Labels;
use llmscen_core::load::{Load, Shape};
use llmscen_core::metric::Metric;
use llmscen_core::outcome::{
    Counted, Failure, FailureKind, Finish, Outcome, Phase, Timeline, Usage,
};
use llmscen_core::plan::Case;
use llmscen_core::request::RequestSpec;
use llmscen_core::target::Target;
use llmscen_core::units::Nanos;
use polars::prelude::{DataFrame, ParquetReader, SerReader};
use std::io::Cursor;

fn ms(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

/// A reply that is not streamed: scheduled, sent and ended at `100 × seq`, `+ 2` and `+ 82` ms, with 10 prompt and 4
/// output tokens.
pub(super) fn outcome(seq: u64) -> Outcome {
    let timeline = Timeline {
        intended: ms(100 * seq),
        sent: Some(ms(100 * seq + 2)),
        headers: Some(ms(100 * seq + 80)),
        first_chunk: Some(ms(100 * seq + 81)),
        end: ms(100 * seq + 82),
        ..Timeline::default()
    };
    Outcome {
        seq,
        turn: 0,
        turns: 1,
        group: None,
        phase: Phase::Measured,
        model: "m".into(),
        streamed: false,
        timeline,
        status: Some(200),
        reads: 1,
        bytes_out: 50,
        bytes_in: 100,
        reconnects: 0,
        attempts: 1,
        usage: Usage {
            prompt: Some(10),
            output: Some(4),
            ..Usage::default()
        },
        counted: Counted::default(),
        server: Default::default(),
        items: None,
        max_tokens: Some(16),
        response_id: Some(format!("r{seq}")),
        request_id: None,
        endpoint: None,
        held_until: None,
        kept_headers: None,
        first_turn: 0,
        cacheable_tokens: None,
        session_duration: None,
        answer: None,
        audio: None,
        end: Ok(Finish {
            reason: "stop".into(),
        }),
        reply: Default::default(),
        prompt_hash: None,
    }
}

/// A stream scheduled and sent at `sent` ms with a token event of one token at each of `tokens`; it ends with the
/// last one.
pub(super) fn stream(seq: u64, sent: u64, tokens: &[u64]) -> Outcome {
    let last = tokens.last().copied().unwrap_or(sent);
    let timeline = Timeline {
        intended: ms(sent),
        sent: Some(ms(sent)),
        headers: Some(ms(sent + 1)),
        first_chunk: Some(ms(sent + 1)),
        tokens: tokens.iter().copied().map(ms).collect(),
        end: ms(last),
        ..Timeline::default()
    };
    let usage = Usage {
        prompt: Some(10),
        output: Some(tokens.len() as u64),
        ..Usage::default()
    };
    Outcome {
        streamed: true,
        timeline,
        usage,
        ..outcome(seq)
    }
}

/// A failed request; a dropped one was never sent.
pub(super) fn failed(seq: u64, kind: FailureKind) -> Outcome {
    let whole = outcome(seq);
    let sent = whole.timeline.sent.filter(|_| kind != FailureKind::Dropped);
    let timeline = Timeline {
        sent,
        ..whole.timeline
    };
    Outcome {
        timeline,
        usage: Usage::default(),
        end: Err(Failure::new(kind, "no luck").at("after headers")),
        ..whole
    }
}

/// The outcome as warm-up.
pub(super) fn warmup(outcome: Outcome) -> Outcome {
    Outcome {
        phase: Phase::Warmup,
        ..outcome
    }
}

/// A table of one round of one case.
pub(super) fn table(case: &str, outcomes: &[Outcome]) -> Table {
    Table::build(outcomes.iter().map(|outcome| TaggedOutcome {
        case,
        round: 0,
        shard: 0,
        outcome,
    }))
    .unwrap()
}

/// A case `a` with this load, without end or warm-up.
pub(super) fn case(shape: Shape) -> Case {
    let load = Load::new(shape);
    Case {
        id: "a".into(),
        labels: Labels::default(),
        target: target(),
        request: RequestSpec {
            stream: true,
            ..RequestSpec::default()
        },
        dataset: DatasetSpec::new(Source::Prompt("x".into())),
        mix: Vec::new(),
        load,
        hooks: Default::default(),
        trace: None,
        checks: Vec::new(),
        stage_checks: Vec::new(),
    }
}

fn target() -> Target {
    Target::chat("http://127.0.0.1:1/v1/chat/completions")
}

/// The facts of a case without manifest parts.
pub(super) fn facts(case: &Case) -> CaseFacts<'_> {
    CaseFacts {
        case,
        parts: &[],
        until: None,
    }
}

/// A measured request as a test writes it down.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TestRequest {
    pub round: u32,
    pub turn: u32,
    pub group: Option<String>,
    pub model: String,
    pub endpoint: Option<String>,
    pub finish_reason: Option<String>,
    pub prompt_hash: Option<u64>,
    pub ok: bool,
    pub left: bool,
    pub reasoning_alone: bool,
    pub part: u32,
    pub scheduled_s: f64,
    pub busy_ms: f64,
    pub output_tokens: Option<f64>,
    pub values: Vec<(Metric, f64)>,
    pub gaps: Vec<f64>,
}

impl TestRequest {
    pub(super) fn value(&self, metric: Metric) -> Option<f64> {
        let tokens = self
            .output_tokens
            .map(|tokens| (Metric::OutputTokens, tokens));
        self.values
            .iter()
            .chain(&tokens)
            .find(|(name, _)| *name == metric)
            .map(|(_, value)| *value)
    }
}

impl FromIterator<TestRequest> for MeasuredRequests {
    fn from_iter<I: IntoIterator<Item = TestRequest>>(all: I) -> MeasuredRequests {
        let mut requests = RequestsBuilder::default();
        for (session, request) in all.into_iter().enumerate() {
            let TestRequest {
                round,
                turn,
                ref group,
                ref model,
                ref endpoint,
                ref finish_reason,
                prompt_hash,
                ok,
                left,
                reasoning_alone,
                part,
                scheduled_s,
                busy_ms,
                ..
            } = request;
            let (session, group) = (session as u64, group.as_deref());
            let fields = RequestFields {
                round,
                session,
                turn,
                begins_session: turn == 0,
                group,
                model,
                endpoint: endpoint.as_deref(),
                kept_headers: None,
                finish_reason: finish_reason.as_deref(),
                prompt_hash,
                ok,
                left,
                reasoning_alone,
                part,
                scheduled_s,
                busy_ms,
            };
            requests.push(fields, |metric| request.value(metric), &request.gaps);
        }
        requests.finish().unwrap()
    }
}

/// A sample of these requests alone.
pub(super) fn sample_of(requests: impl IntoIterator<Item = TestRequest>) -> Sample {
    Sample {
        requests: requests.into_iter().collect(),
        ..Sample::default()
    }
}

/// The sample of a case.
pub(super) fn sample_case(table: &Table, facts: &CaseFacts<'_>) -> Sample {
    crate::sample::sample_case(table, facts).unwrap()
}

/// The table as polars reads its file.
pub(super) fn frame(table: &Table) -> DataFrame {
    let mut file = Vec::new();
    table.write_parquet(&mut file).unwrap();
    ParquetReader::new(Cursor::new(file)).finish().unwrap()
}
