//! The section of one case.

use crate::cases::{failures, parts, single_figures};
use crate::format::optional;
use crate::table::{case_anchor, rich_html};
use crate::{audit, missing_values, percentiles, repeats, telemetry};
use llmscen_core::report::{CaseReport, TokenSource};
use llmscen_core::units::Unit;
use serde::Serialize;

/// Everything about one case that needs no script; tables are HTML, empty without rows.
#[derive(Serialize)]
pub(super) struct Section {
    anchor: String,
    id: String,
    /// Load, rounds, source of the token counts.
    facts: Vec<String>,
    valid: bool,
    figures: String,
    low: String,
    high: String,
    percentiles: String,
    parts: String,
    signals: String,
    others: String,
    server_ttft: String,
    failures: String,
    audit: String,
    notes: Vec<String>,
}

/// The section of the case at this index of the report.
pub(super) fn section(index: usize, case: &CaseReport) -> Section {
    let alone = || std::iter::once((index, case));
    Section {
        anchor: case_anchor(index),
        id: case.id.clone(),
        facts: facts(case),
        valid: !case.is_invalid(),
        figures: single_figures(case).html("Figures of the case"),
        low: percentiles::low_is_better(case).html("Percentiles"),
        high: percentiles::high_is_better(case).html("Percentiles of what should be high"),
        percentiles: percentiles::percentile_table(case).html("Percentile table"),
        parts: parts(alone()).without_first_column().html("Parts of the case"),
        signals: telemetry::signals(case).html("Telemetry"),
        others: telemetry::others(case),
        server_ttft: telemetry::server_ttft(alone()).without_first_column().html("TTFT by the server and by the client"),
        failures: failures(alone()).without_first_column().html("Failures of the case"),
        audit: audit::audit(alone()).without_first_column().html("Self-audit of the case"),
        notes: missing_values::notes(case).iter().map(|note| rich_html(note)).collect(),
    }
}

fn facts(case: &CaseReport) -> Vec<String> {
    let rounds = repeats::rounds(case);
    let tokens = case.token_source.map(|source| match source {
        TokenSource::Usage => "tokens by the server's usage",
        TokenSource::Tokenizer => "tokens by a local tokenizer",
        TokenSource::Events => "~ tokens counted from events, a lower bound",
    });
    let steady = case.timelines.steady.map(|(from, until)| {
        format!("steady from {} to {}", optional(Some(from), Unit::Seconds), optional(Some(until), Unit::Seconds))
    });
    [case.load.clone(), rounds].into_iter().chain(tokens.map(str::to_owned)).chain(steady).collect()
}
