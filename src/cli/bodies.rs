//! `llmscen bodies`: the stored request and response bodies of a run.

use crate::cli::exit::Exit;
use crate::cli::load_scenarios::{load_stored_quietly, open_run};
use crate::cli::output::indent_json;
use crate::cli::terminal::Terminal;
use crate::store::bodies::spool;
use crate::store::sqlite::stored_bodies::{BodyFilter, StoredBodies, StoredBody, stored_bodies};
use crate::store::{RunDir, StoreError};
use clap::Args;
use llmscen_core::artifacts::Bodies;
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct BodiesArgs {
    /// Run folder
    pub folder: PathBuf,
    /// Print the bodies of the request with this number, instead of a list
    #[arg(long, value_name = "N")]
    pub seq: Option<u64>,
    /// Only the case with this id
    #[arg(long, value_name = "ID")]
    pub case: Option<String>,
    /// Only this round, counted from 0
    #[arg(long, value_name = "N")]
    pub round: Option<u32>,
    /// Only this turn of a session, counted from 0
    #[arg(long, value_name = "N")]
    pub turn: Option<u32>,
    /// Only failed requests
    #[arg(long)]
    pub failed: bool,
    /// Maximum number of requests to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: u64,
}

pub fn bodies(args: &BodiesArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let Some(folder) = open_run(&args.folder, terminal) else {
        return Exit::Scenario;
    };
    match print_bodies(args, &folder, terminal) {
        Ok(Some(exit)) => exit,
        Ok(None) => {
            let why = explain_no_bodies(args, &folder, env, terminal)
                .unwrap_or_else(|error| error.to_string());
            terminal.error(&why);
            Exit::Scenario
        }
        Err(error) => {
            terminal.error(&error.to_string());
            if matches!(error, StoreError::Damaged { .. }) {
                Exit::Scenario
            } else {
                Exit::Error
            }
        }
    }
}

/// `None` if no stored bodies match.
fn print_bodies(
    args: &BodiesArgs,
    folder: &RunDir,
    terminal: &mut Terminal,
) -> Result<Option<Exit>, StoreError> {
    let filter = BodyFilter {
        case: args.case.clone(),
        round: args.round,
        seq: args.seq,
        turn: args.turn,
        failed: args.failed,
    };
    let (found, count) = stored_bodies(folder, &filter, args.limit)?;
    if count == 0 {
        return Ok(None);
    }
    match args.seq {
        None => terminal.print_raw(&format_list(&found)),
        Some(_) => {
            for bodies in &found {
                match format_exchange(bodies) {
                    Ok(text) => terminal.print_raw(&text),
                    Err(error) => {
                        terminal.error(&format!(
                            "the bodies of {} cannot be decompressed: {error}",
                            request_name(bodies)
                        ));
                        return Ok(Some(Exit::Error));
                    }
                }
            }
        }
    }
    let more = count.saturating_sub(found.len() as u64);
    if more > 0 {
        terminal.status(&format!("{more} more; show all with --limit {count}"));
    }
    Ok(Some(Exit::Pass))
}

/// A table with a line per request.
fn format_list(found: &[StoredBodies]) -> String {
    let heads = [
        "case", "round", "seq", "turn", "outcome", "status", "TTFT", "end", "request", "response",
    ];
    let row = |bodies: &StoredBodies| {
        let status = bodies.status.map(|status| status.to_string());
        let response = bodies.response.as_ref().map(size);
        [
            bodies.case.clone(),
            bodies.round.to_string(),
            bodies.seq.to_string(),
            bodies.turn.to_string(),
            bodies.outcome.clone(),
            status.unwrap_or_default(),
            after_send(bodies, bodies.first_token).unwrap_or_default(),
            after_send(bodies, Some(bodies.end)).unwrap_or_default(),
            size(&bodies.request),
            response.unwrap_or_else(|| "none".into()),
        ]
    };
    let rows: Vec<[String; 10]> = std::iter::once(heads.map(str::to_owned))
        .chain(found.iter().map(row))
        .collect();
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let padded = |row: &[String; 10]| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(padded).collect()
}

/// One request with its bodies.
fn format_exchange(bodies: &StoredBodies) -> std::io::Result<String> {
    let status = bodies
        .status
        .map(|status| format!(", HTTP {status}"))
        .unwrap_or_default();
    let mut text = format!("{}: {}{status}\n", request_name(bodies), bodies.outcome);
    if let Some((message, at)) = &bodies.error {
        let at = if at.is_empty() {
            String::new()
        } else {
            format!(" ({at})")
        };
        text.push_str(&format!("error: {message}{at}\n"));
    }
    if let Some(sent) = bodies.sent {
        let times = [
            ("headers", bodies.headers),
            ("first token", bodies.first_token),
            ("end", Some(bodies.end)),
        ];
        let times = times
            .into_iter()
            .filter_map(|(what, at)| Some(format!(", {what} after {}", after_send(bodies, at)?)));
        text.push_str(&format!(
            "sent at {:.3} s of the round{}\n",
            sent.secs(),
            times.collect::<String>()
        ));
    }
    let body = |text: &str| format!("{}\n\n", indent_json(text).trim_end_matches('\n'));
    text.push_str(&format!(
        "\nrequest body ({})\n{}",
        size(&bodies.request),
        body(&bodies.request_text()?)
    ));
    match (&bodies.response, bodies.response_text()?) {
        (Some(response), Some(content)) => text.push_str(&format!(
            "response body ({})\n{}",
            size(response),
            body(&content)
        )),
        _ => text.push_str("no response\n\n"),
    }
    Ok(text)
}

fn request_name(bodies: &StoredBodies) -> String {
    let turn = if bodies.turns > 1 {
        format!(", turn {}", bodies.turn)
    } else {
        String::new()
    };
    format!(
        "request {}{turn} of `{}`, round {}",
        bodies.seq, bodies.case, bodies.round
    )
}

fn size(body: &StoredBody) -> String {
    let cut = if body.cut { ", truncated" } else { "" };
    format!("{} B{cut}", body.bytes)
}

/// Time since the request was sent.
fn after_send(bodies: &StoredBodies, at: Option<Nanos>) -> Option<String> {
    Some(format!("{:.1} ms", at?.since(bodies.sent?).millis()))
}

/// Why no stored bodies match, and what to do.
fn explain_no_bodies(
    args: &BodiesArgs,
    folder: &RunDir,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Result<String, StoreError> {
    let run = args.folder.display();
    let stored = stored_bodies(folder, &BodyFilter::default(), 0)?.1;
    if stored > 0 {
        let of_case = stored_bodies(
            folder,
            &BodyFilter {
                case: args.case.clone(),
                ..BodyFilter::default()
            },
            1,
        )?
        .1;
        let why = match (&args.case, args.seq) {
            (Some(case), _) if of_case == 0 => format!("no bodies of case `{case}` in {run}"),
            (_, Some(seq)) => format!("no bodies of request {seq} match the flags in {run}"),
            _ => format!("no bodies match the flags in {run}"),
        };
        return Ok(format!(
            "{why}; list all {stored} with: llmscen bodies {run} --limit {stored}"
        ));
    }
    if folder.file(spool::FILE).exists() {
        return Ok(format!(
            "the run in {run} was interrupted; extract its bodies first with: llmscen report {run}"
        ));
    }
    let kept = load_stored_quietly(&folder.file("plan.yaml"), env, terminal)
        .map(|plan| plan.report.bodies);
    Ok(match kept {
        Some(Bodies::Failed) => {
            format!(
                "no bodies in {run}: `report.bodies: failed` keeps failed requests only, and none failed"
            )
        }
        Some(Bodies::All | Bodies::Sample) => {
            format!("no bodies in {run}: its requests.db is missing or empty")
        }
        _ => format!(
            "no bodies in {run}; set `report.bodies: failed` (or sample, or all) and run the scenario again"
        ),
    })
}
