//! `llmscen try`: one request of a scenario, and everything that came back.

use crate::cli::args::{Sources, TryArgs};
use crate::cli::exit::Exit;
use crate::cli::load_scenarios::{self, Source};
use crate::cli::output::indented;
use crate::cli::run::{cache, tool};
use crate::cli::signals;
use crate::cli::terminal::Terminal;
use crate::run::error::RunError;
use crate::run::execution::Context;
use crate::run::execution::stop::Stop;
use crate::run::single_request::{Content, SingleRequest, send_one};
use crate::store::{RunDir, RunLocation};
use llmscen_core::outcome::{Failure, FailureKind, Outcome, Usage};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::target::Place;
use llmscen_core::units::Nanos;
use llmscen_report::Inconclusive;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Instant, SystemTime};

pub fn try_request(args: &TryArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let Some(plans) = load_scenarios::load(&args.sources, env, terminal) else { return Exit::Scenario };
    let [Source { plan, .. }] = plans.as_slice() else {
        terminal.error(&format!("`try` sends one request of one scenario, but {} scenarios were given", plans.len()));
        return Exit::Scenario;
    };
    let Some((index, case)) = choose(plan, args.case.as_deref(), terminal) else { return Exit::Scenario };
    let folder = match tempfile::Builder::new().prefix("llmscen-try-").tempdir() {
        Ok(folder) => folder,
        Err(error) => {
            terminal.error(&format!("cannot make a temporary folder: {error}; set TMPDIR to a folder that can be written"));
            return Exit::Error;
        }
    };
    announce(case, terminal);
    match sent((plan, index), &args.sources, folder.path(), env) {
        Ok(sent) => show(case, &sent, terminal),
        Err(error) => {
            terminal.error(&error.to_string());
            // The error names the log of the managed server.
            if matches!(error, RunError::Server(_)) {
                let _ = folder.keep();
            }
            if matches!(error, RunError::Interrupted) { Exit::Interrupted } else { Exit::Error }
        }
    }
}

/// The case of this id, or else the first one.
fn choose<'a>(plan: &'a Plan, id: Option<&str>, terminal: &mut Terminal) -> Option<(usize, &'a Case)> {
    let found = plan.cases.iter().enumerate().find(|(_, case)| id.is_none_or(|id| case.id == id));
    if found.is_none() {
        let ids: Vec<&str> = plan.cases.iter().map(|case| case.id.as_str()).collect();
        terminal.error(&format!("no case has the id `{}`; the cases are: {}", id.unwrap_or_default(), ids.join("  ")));
    }
    found
}

fn announce(case: &Case, terminal: &mut Terminal) {
    match (&case.target.server, &case.target.place) {
        (Some(_), _) => terminal.say(&format!("case {}: starting the server", case.id)),
        (None, Place::Local(_)) => terminal.say(&format!("case {}: loading the model", case.id)),
        (None, _) => terminal.say(&format!("case {}", case.id)),
    }
}

fn sent(
    (plan, index): (&Plan, usize),
    sources: &Sources,
    folder: &Path,
    env: &BTreeMap<String, String>,
) -> Result<SingleRequest, RunError> {
    // The events of a run are not shown here.
    let (events, _) = mpsc::channel();
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let context = Context {
        env: env.clone(),
        cache: cache(env),
        tool: tool(),
        output: None,
        only: sources.only.clone(),
        force: false,
        keep_going: true,
        inconclusive: Inconclusive::Failure,
        origin: Instant::now(),
        wall_ns: wall.as_nanos() as u64,
        stop: Stop::default(),
        events: events.clone(),
    };
    signals::listen(context.stop.clone(), events).map_err(RunError::Thread)?;
    let place = RunLocation { explicit: Some(folder), dir: folder, name: "try", started: "", force: false };
    send_one(plan, index, &RunDir::create(&place)?, &context)
}

/// Prints the exchange, then what it came to.
fn show(case: &Case, sent: &SingleRequest, terminal: &mut Terminal) -> Exit {
    let mut text = String::new();
    if let Some(url) = &sent.url {
        text.push_str(&format!("POST {url}\n{}\n", head(&sent.headers)));
    }
    text.push_str(&format!("{}\n\n", indented(&sent.body)));
    if let Some(reply) = &sent.reply {
        let at = sent.outcome.timeline.headers.map(|at| format!("  (after {})", ms(since_send(&sent.outcome, at))));
        text.push_str(&format!("{}{}\n{}\n", reply.status, at.unwrap_or_default(), head(&reply.headers)));
    }
    text.push_str(&content(case, &sent.content));
    let reasoning = sent.message.as_ref().map(|message| message.reasoning.as_str()).filter(|text| !text.is_empty());
    let answer =
        sent.message.as_ref().map(|message| message.content.as_str()).filter(|text| reasoning.is_some() && !text.is_empty());
    for (title, words) in [("reasoning", reasoning), ("text", answer.or(sent.text.as_deref().filter(|_| reasoning.is_none())))] {
        if let Some(words) = words.filter(|words| !words.is_empty()) {
            text.push_str(&format!("{title}:\n{words}\n\n"));
        }
    }
    text.push_str(&format!("{}\n", summary(sent)));
    terminal.foreign(&text);
    let hint = sent.hint.as_deref();
    match &sent.outcome.end {
        Ok(_) => {
            hint.into_iter().for_each(|note| terminal.say(note));
            Exit::Pass
        }
        Err(failure) => {
            let hint = hint.map_or_else(String::new, |hint| format!("\n  {hint}"));
            terminal.error(&format!("{}{hint}", explained(failure)));
            if failure.kind == FailureKind::Cancelled { Exit::Interrupted } else { Exit::Error }
        }
    }
}

fn head(headers: &[(String, String)]) -> String {
    headers.iter().map(|(name, value)| format!("  {name}: {value}\n")).collect()
}

fn content(case: &Case, content: &Content) -> String {
    match content {
        // The text and the times are all that a model in this process makes.
        Content::Document(_) if matches!(case.target.place, Place::Local(_)) => String::new(),
        Content::Document(text) if text.is_empty() => String::new(),
        Content::Document(text) => format!("{}\n\n", indented(text).trim_end_matches('\n')),
        Content::Events(events) => {
            let line = |(at, event): &(Nanos, String)| {
                let mut lines = event.lines();
                let first = format!("{:>10}  {}\n", ms(*at), lines.next().unwrap_or_default());
                first + &lines.map(|line| format!("{:>10}  {line}\n", "")).collect::<String>()
            };
            events.iter().map(line).collect::<String>() + "\n"
        }
    }
}

/// One line: how the request ended, its times after the send, its tokens.
fn summary(sent: &SingleRequest) -> String {
    let outcome = &sent.outcome;
    let after = |at: Nanos| ms(since_send(outcome, at));
    let mut parts = vec![match &outcome.end {
        Ok(_) => "ok".to_owned(),
        Err(failure) => format!("failed ({})", failure.kind),
    }];
    parts.extend(outcome.timeline.tokens.first().map(|first| format!("TTFT {}", after(*first))));
    parts.push(format!("end {}", after(outcome.timeline.end)));
    let (events, usage) = (outcome.timeline.tokens.len(), &outcome.usage);
    if events > 0 {
        parts.push(format!("{} in {}", plural(events as u64, "token event"), plural(u64::from(outcome.reads), "read")));
    }
    parts.extend(tokens(usage, sent.counted));
    parts.extend(outcome.items.map(|items| plural(items, "input")));
    let reason = outcome.end.as_ref().ok().map(|finish| finish.reason.as_str()).filter(|reason| !reason.is_empty());
    parts.extend(reason.map(|reason| format!("finish reason {reason}")));
    parts.join(", ")
}

/// The server's counts, or this side's where it reports none.
fn tokens(usage: &Usage, counted: Option<u64>) -> Option<String> {
    let named = |(name, count): (&str, Option<u64>)| Some(format!("{} {name}", count?));
    let known: Vec<String> = [("prompt", usage.prompt), ("output", usage.output)].into_iter().filter_map(named).collect();
    // Parts of the two.
    let parts = [("reasoning", usage.reasoning), ("cached", usage.cached)].map(|(name, count)| (name, count.filter(|n| *n > 0)));
    let parts: Vec<String> = parts.into_iter().filter_map(named).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    match (known.is_empty(), counted) {
        (false, _) => Some(format!("usage: {} tokens{parts}", known.join(" + "))),
        (true, Some(counted)) => Some(format!("no usage reported, {} counted", plural(counted, "output token"))),
        (true, None) => None,
    }
}

/// What a failed request is reported as.
fn explained(failure: &Failure) -> String {
    let place = if failure.at.is_empty() { String::new() } else { format!(" ({})", failure.at) };
    format!("the request failed: {}{place}", failure.message)
}

fn since_send(outcome: &Outcome, at: Nanos) -> Nanos {
    let timeline = &outcome.timeline;
    at.since(timeline.last_sent.or(timeline.sent).unwrap_or(timeline.intended))
}

fn ms(span: Nanos) -> String {
    format!("{:.1} ms", span.millis())
}

fn plural(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}
