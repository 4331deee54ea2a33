//! `llmscen bodies`: the request and reply bodies that a run kept.

use crate::cli::exit::Exit;
use crate::cli::load_scenarios::load_compared;
use crate::cli::output::indented;
use crate::cli::terminal::Terminal;
use crate::store::bodies::spool;
use crate::store::sqlite::{BodyFilter, StoredBodies, StoredBody, stored_bodies};
use crate::store::{RunDir, StoreError};
use clap::Args;
use llmscen_core::artifacts::Bodies;
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct BodiesArgs {
    /// The run folder
    pub folder: PathBuf,
    /// Print the bodies of the request with this number; without it they are listed
    #[arg(long, value_name = "N")]
    pub seq: Option<u64>,
    /// Only this case, by its id
    #[arg(long, value_name = "ID")]
    pub case: Option<String>,
    /// Only this round, from 0
    #[arg(long, value_name = "N")]
    pub round: Option<u32>,
    /// Only this turn of a session, from 0
    #[arg(long, value_name = "N")]
    pub turn: Option<u32>,
    /// Only requests that failed
    #[arg(long)]
    pub failed: bool,
    /// Show at most this many requests
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: u64,
}

pub fn bodies(args: &BodiesArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let folder = match RunDir::open(&args.folder) {
        Ok(folder) => folder,
        Err(error) => {
            terminal.error(&error.to_string());
            return Exit::Scenario;
        }
    };
    let shown = print(args, &folder, terminal).unwrap_or_else(|error| {
        terminal.error(&error.to_string());
        if matches!(error, StoreError::Damaged { .. }) { Shown::Damaged } else { Shown::Failed }
    });
    match shown {
        Shown::Some => Exit::Pass,
        Shown::Failed => Exit::Error,
        Shown::Damaged => Exit::Scenario,
        Shown::None => {
            let why = match why_none(args, &folder, env, terminal) {
                Ok(why) => why,
                Err(error) => error.to_string(),
            };
            terminal.error(&why);
            Exit::Scenario
        }
    }
}

enum Shown {
    Some,
    None,
    Failed,
    /// The database is not what it was.
    Damaged,
}

fn print(args: &BodiesArgs, folder: &RunDir, terminal: &mut Terminal) -> Result<Shown, StoreError> {
    let wanted = BodyFilter { case: args.case.clone(), round: args.round, seq: args.seq, turn: args.turn, failed: args.failed };
    let (found, count) = stored_bodies(folder, &wanted, args.limit)?;
    if count == 0 {
        return Ok(Shown::None);
    }
    match args.seq {
        None => terminal.foreign(&list(&found)),
        Some(_) => {
            for one in &found {
                match whole(one) {
                    Ok(text) => terminal.foreign(&text),
                    Err(error) => {
                        terminal.error(&format!("the bodies of {} cannot be unpacked: {error}", name(one)));
                        return Ok(Shown::Failed);
                    }
                }
            }
        }
    }
    let more = count.saturating_sub(found.len() as u64);
    if more > 0 {
        terminal.say(&format!("{more} more; --limit {count} shows all"));
    }
    Ok(Shown::Some)
}

/// A line per request, columns padded.
fn list(found: &[StoredBodies]) -> String {
    let heads = ["case", "round", "seq", "turn", "outcome", "status", "TTFT", "end", "request", "reply"];
    let line = |one: &StoredBodies| {
        let status = one.status.map(|status| status.to_string());
        let reply = one.response.as_ref().map(size);
        [
            one.case.clone(),
            one.round.to_string(),
            one.seq.to_string(),
            one.turn.to_string(),
            one.outcome.clone(),
            status.unwrap_or_default(),
            after(one, one.first_token).unwrap_or_default(),
            after(one, Some(one.end)).unwrap_or_default(),
            size(&one.request),
            reply.unwrap_or_else(|| "none".into()),
        ]
    };
    let lines: Vec<[String; 10]> = std::iter::once(heads.map(str::to_owned)).chain(found.iter().map(line)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let padded = |line: &[String; 10]| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    lines.iter().map(padded).collect()
}

/// One request with its bodies.
fn whole(one: &StoredBodies) -> std::io::Result<String> {
    let status = one.status.map(|status| format!(", HTTP {status}")).unwrap_or_default();
    let mut text = format!("{}: {}{status}\n", name(one), one.outcome);
    if let Some((message, at)) = &one.error {
        let at = if at.is_empty() { String::new() } else { format!(" ({at})") };
        text.push_str(&format!("error: {message}{at}\n"));
    }
    if let Some(sent) = one.sent {
        let times = [("headers", one.headers), ("first token", one.first_token), ("end", Some(one.end))];
        let times = times.into_iter().filter_map(|(what, at)| Some(format!(", {what} after {}", after(one, at)?)));
        text.push_str(&format!("sent at {:.3} s of the round{}\n", sent.secs(), times.collect::<String>()));
    }
    let body = |text: &str| format!("{}\n\n", indented(text).trim_end_matches('\n'));
    text.push_str(&format!("\nrequest body ({})\n{}", size(&one.request), body(&one.request_text()?)));
    match (&one.response, one.response_text()?) {
        (Some(response), Some(reply)) => text.push_str(&format!("reply body ({})\n{}", size(response), body(&reply))),
        _ => text.push_str("no reply came\n\n"),
    }
    Ok(text)
}

fn name(one: &StoredBodies) -> String {
    let turn = if one.turns > 1 { format!(", turn {}", one.turn) } else { String::new() };
    format!("request {}{turn} of `{}`, round {}", one.seq, one.case, one.round)
}

fn size(body: &StoredBody) -> String {
    let cut = if body.cut { ", only the beginning is stored" } else { "" };
    format!("{} B{cut}", body.bytes)
}

/// The time from the send.
fn after(one: &StoredBodies, at: Option<Nanos>) -> Option<String> {
    Some(format!("{:.1} ms", at?.since(one.sent?).millis()))
}

/// Why there is nothing to show, and what to do.
fn why_none(
    args: &BodiesArgs,
    folder: &RunDir,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Result<String, StoreError> {
    let run = args.folder.display();
    let stored = stored_bodies(folder, &BodyFilter::default(), 0)?.1;
    if stored > 0 {
        let numbers = stored_bodies(folder, &BodyFilter { case: args.case.clone(), ..BodyFilter::default() }, 1)?.1;
        let why = match (&args.case, args.seq) {
            (Some(case), _) if numbers == 0 => format!("no bodies of a case with the id `{case}` are stored in {run}"),
            (_, Some(seq)) => format!("no bodies of request {seq} that fit the flags are stored in {run}"),
            _ => format!("no bodies of requests that fit the flags are stored in {run}"),
        };
        return Ok(format!("{why}; list all {stored} with: llmscen bodies {run} --limit {stored}"));
    }
    if folder.file(spool::FILE).exists() {
        return Ok(format!("the run in {run} did not end normally; store its bodies first with: llmscen report {run}"));
    }
    let kept = load_compared(&folder.file("plan.yaml"), env, terminal).map(|plan| plan.report.bodies);
    Ok(match kept {
        Some(Bodies::Failed) => format!("no bodies are stored in {run}: it keeps those of failed requests, and none failed"),
        Some(Bodies::All | Bodies::Sample) => format!("no bodies are stored in {run}: its requests.db is missing or holds none"),
        _ => format!("no bodies are stored in {run}; set report.bodies: failed (or sample, or all) and run the scenario again"),
    })
}
