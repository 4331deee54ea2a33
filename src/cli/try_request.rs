//! `llmscen try`: sends one request of a scenario and shows the exchange.

use crate::cli::args::TryArgs;
use crate::cli::exit::Exit;
use crate::cli::load_scenarios::{Hub, Source, Sources, load_all};
use crate::cli::output::{indent_json, plural};
use crate::cli::run::new_context;
use crate::cli::signals;
use crate::cli::terminal::Terminal;
use crate::run::error::RunError;
use crate::run::single_request::{Content, SingleRequest, send_one};
use crate::run::stop::Stop;
use crate::store::{RunDir, RunLocation};
use llmscen_core::outcome::{Failure, FailureKind, Outcome, Usage};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::target::TargetLocation;
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;

pub fn try_request(
    args: &TryArgs,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Exit {
    let Some(plans) = load_all(&args.sources, env, Hub::Pin, terminal) else {
        return Exit::Scenario;
    };
    let [Source { plan, .. }] = plans.as_slice() else {
        terminal.error(&format!(
            "`try` sends one request of one scenario, but {} scenarios were given",
            plans.len()
        ));
        return Exit::Scenario;
    };
    let Some((index, case)) = find_case(plan, args.case.as_deref(), terminal) else {
        return Exit::Scenario;
    };
    let folder = match tempfile::Builder::new().prefix("llmscen-try-").tempdir() {
        Ok(folder) => folder,
        Err(error) => {
            terminal.error(&format!(
                "cannot create a temporary folder: {error}; set TMPDIR to a writable folder"
            ));
            return Exit::Error;
        }
    };
    announce(case, terminal);
    match send_request(plan, index, &args.sources, folder.path(), env) {
        Ok(sent) => print_exchange(case, &sent, terminal),
        Err(error) => {
            terminal.error(&error.to_string());
            // The error names the log of the managed server.
            if matches!(error, RunError::Server(_)) {
                let _ = folder.keep();
            }
            if matches!(error, RunError::Interrupted) {
                Exit::Interrupted
            } else {
                Exit::Error
            }
        }
    }
}

/// The case with this id, or the first one.
fn find_case<'a>(
    plan: &'a Plan,
    id: Option<&str>,
    terminal: &mut Terminal,
) -> Option<(usize, &'a Case)> {
    let found = plan
        .cases
        .iter()
        .enumerate()
        .find(|(_, case)| id.is_none_or(|id| case.id == id));
    if found.is_none() {
        let ids: Vec<&str> = plan.cases.iter().map(|case| case.id.as_str()).collect();
        terminal.error(&format!(
            "no case has the id `{}`; available: {}",
            id.unwrap_or_default(),
            ids.join("  ")
        ));
    }
    found
}

fn announce(case: &Case, terminal: &mut Terminal) {
    match (&case.target.server, &case.target.location) {
        (Some(_), _) => terminal.status(&format!("case {}: starting the server", case.id)),
        (None, TargetLocation::Local(_)) => {
            terminal.status(&format!("case {}: loading the model", case.id))
        }
        (None, _) => terminal.status(&format!("case {}", case.id)),
    }
}

pub fn send_request(
    plan: &Plan,
    case: usize,
    sources: &Sources,
    folder: &Path,
    env: &BTreeMap<String, String>,
) -> Result<SingleRequest, RunError> {
    // Nothing receives the events.
    let (events, _) = mpsc::channel();
    let context = new_context(env, sources.filter(), Stop::default(), events.clone());
    signals::listen(context.stop.clone(), events).map_err(RunError::Thread)?;
    let location = RunLocation {
        explicit: Some(folder),
        dir: folder,
        name: "try",
        started: "",
        force: false,
    };
    send_one(plan, case, &RunDir::create(&location)?, &context)
}

/// Prints the exchange and its summary.
fn print_exchange(case: &Case, sent: &SingleRequest, terminal: &mut Terminal) -> Exit {
    terminal.print_raw(&format_exchange(case, sent));
    let hint = sent.hint.as_deref();
    match &sent.outcome.end {
        Ok(_) => {
            hint.into_iter().for_each(|note| terminal.status(note));
            Exit::Pass
        }
        Err(failure) => {
            let hint = hint.map_or_else(String::new, |hint| format!("\n  {hint}"));
            terminal.error(&format!("{}{hint}", describe_failure(failure)));
            if failure.kind == FailureKind::Cancelled {
                Exit::Interrupted
            } else {
                Exit::Error
            }
        }
    }
}

fn format_exchange(case: &Case, sent: &SingleRequest) -> String {
    let mut text = String::new();
    if let Some(url) = &sent.url {
        let method = sent.method;
        text.push_str(&format!(
            "{method} {url}\n{}\n",
            format_headers(&sent.headers)
        ));
    }
    text.push_str(&format!("{}\n\n", indent_json(&sent.body)));
    if let Some(reply) = &sent.reply {
        let at = sent
            .outcome
            .timeline
            .headers
            .map(|at| format!("  (after {})", format_ms(since_send(&sent.outcome, at))));
        text.push_str(&format!(
            "{}{}\n{}\n",
            reply.status,
            at.unwrap_or_default(),
            format_headers(&reply.headers)
        ));
    }
    text.push_str(&format_content(case, &sent.content));
    let message = sent.message.as_ref();
    let reasoning = message
        .map(|message| message.reasoning.as_str())
        .filter(|text| !text.is_empty());
    // With reasoning, the generated text contains both parts, so the content of the message is shown instead.
    let answer = match reasoning {
        Some(_) => message
            .map(|message| message.content.as_str())
            .filter(|text| !text.is_empty()),
        None => sent.text.as_deref(),
    };
    for (title, part) in [("reasoning", reasoning), ("text", answer)] {
        if let Some(part) = part.filter(|part| !part.is_empty()) {
            text.push_str(&format!("{title}:\n{part}\n\n"));
        }
    }
    text.push_str(&format!("{}\n", format_summary(sent)));
    text
}

fn format_headers(headers: &[(String, String)]) -> String {
    headers
        .iter()
        .map(|(name, value)| format!("  {name}: {value}\n"))
        .collect()
}

fn format_content(case: &Case, content: &Content) -> String {
    match content {
        // The text of a local model is shown below.
        Content::Document(_) if matches!(case.target.location, TargetLocation::Local(_)) => {
            String::new()
        }
        Content::Document(text) if text.is_empty() => String::new(),
        Content::Document(text) => format!("{}\n\n", indent_json(text).trim_end_matches('\n')),
        Content::Events(events) => {
            let line = |(at, event): &(Nanos, String)| {
                let mut lines = event.lines();
                let first = format!(
                    "{:>10}  {}\n",
                    format_ms(*at),
                    lines.next().unwrap_or_default()
                );
                first
                    + &lines
                        .map(|line| format!("{:>10}  {line}\n", ""))
                        .collect::<String>()
            };
            events.iter().map(line).collect::<String>() + "\n"
        }
    }
}

/// Result, times since the send, and tokens, in one line.
fn format_summary(sent: &SingleRequest) -> String {
    let outcome = &sent.outcome;
    let after = |at: Nanos| format_ms(since_send(outcome, at));
    let mut parts = vec![match &outcome.end {
        Ok(_) => "ok".to_owned(),
        Err(failure) => format!("failed ({})", failure.kind),
    }];
    parts.extend(
        outcome
            .timeline
            .tokens
            .first()
            .map(|first| format!("TTFT {}", after(*first))),
    );
    let audio = outcome.audio.as_deref().copied().unwrap_or_default();
    parts.extend(
        audio
            .first
            .map(|first| format!("first audio {}", after(first))),
    );
    parts.push(format!("end {}", after(outcome.timeline.end)));
    let duration = audio.duration.map(Nanos::secs);
    parts.extend(duration.map(|seconds| format!("{seconds:.2} s of audio")));
    let events = outcome.timeline.tokens.len();
    if events > 0 {
        parts.push(format!(
            "{} in {}",
            plural(events, "token event"),
            plural(outcome.reads as usize, "read")
        ));
    }
    parts.extend(format_tokens(&outcome.usage, sent.counted));
    parts.extend(outcome.items.map(|items| plural(items as usize, "item")));
    let reason = outcome
        .end
        .as_ref()
        .ok()
        .map(|finish| finish.reason.as_str())
        .filter(|reason| !reason.is_empty());
    parts.extend(reason.map(|reason| format!("finish reason {reason}")));
    parts.join(", ")
}

/// The token counts of the server, or else the local count.
pub fn format_tokens(usage: &Usage, counted: Option<u64>) -> Option<String> {
    let named = |(name, count): (&str, Option<u64>)| Some(format!("{} {name}", count?));
    let totals: Vec<String> = [("prompt", usage.prompt), ("output", usage.output)]
        .into_iter()
        .filter_map(named)
        .collect();
    // Subsets of prompt and output tokens.
    let parts = [("reasoning", usage.reasoning), ("cached", usage.cached)]
        .map(|(name, count)| (name, count.filter(|n| *n > 0)));
    let parts: Vec<String> = parts.into_iter().filter_map(named).collect();
    let parts = if parts.is_empty() {
        String::new()
    } else {
        format!(" ({})", parts.join(", "))
    };
    match (totals.is_empty(), counted) {
        (false, _) => Some(format!("usage: {} tokens{parts}", totals.join(" + "))),
        (true, Some(counted)) => Some(format!(
            "no usage reported, {} counted",
            plural(counted as usize, "output token")
        )),
        (true, None) => None,
    }
}

pub fn describe_failure(failure: &Failure) -> String {
    let position = if failure.at.is_empty() {
        String::new()
    } else {
        format!(" ({})", failure.at)
    };
    format!("the request failed: {}{position}", failure.message)
}

pub fn since_send(outcome: &Outcome, at: Nanos) -> Nanos {
    let timeline = &outcome.timeline;
    at.since(
        timeline
            .last_sent
            .or(timeline.sent)
            .unwrap_or(timeline.intended),
    )
}

fn format_ms(span: Nanos) -> String {
    format!("{:.1} ms", span.millis())
}
