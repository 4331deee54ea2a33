//! Servers under management: how they came up, and how they ended by themselves.

use crate::format::{ABSENT, millis, plain, value};
use crate::repeats;
use crate::table::{Cell, Column, Row, Table};
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::server::{ServerEnd, Startup};
use llmscen_core::units::{Nanos, Unit};
use serde_json::{Value, json};

/// How a server ended by itself, in words.
pub(super) struct End {
    /// What happened.
    pub(super) sentence: String,
    /// The last lines of its log.
    pub(super) log: Vec<String>,
}

/// Every start, by case; stages of a case are the case's own.
fn starts(report: &Report) -> impl Iterator<Item = (usize, &CaseReport, &Startup)> {
    let cases = report.cases.iter().enumerate().filter(|(_, case)| !case.is_stage());
    cases.flat_map(|(index, case)| case.startups.iter().map(move |startup| (index, case, startup)))
}

/// The starts as a table.
pub(super) fn starts_table(report: &Report) -> Table {
    let columns = vec![
        Column::text().documents("Case"),
        Column::number().documents("PID"),
        Column::number().documents("Process"),
        Column::number().documents("Port open"),
        Column::number().documents("Ready"),
        Column::number().documents("First token"),
        Column::text().documents("Log"),
        Column::text().documents("Command"),
    ];
    let row = |(index, case, startup): (usize, &CaseReport, &Startup)| {
        let times = spans(startup).map(|(name, time)| Cell::figure(span(time), time.map(Nanos::secs)).of("startup", name));
        let mut cells = vec![Cell::case(index, &case.id), Cell::count(u64::from(startup.pid)).of("startup", "pid")];
        cells.extend(times);
        cells.extend([Cell::prose(&startup.log), Cell::code(&startup.command)]);
        Row::new(cells).case(&case.id)
    };
    Table::new(columns, starts(report).map(row).collect())
}

/// The steps of a start in their order, each by its name in results.json.
fn spans(own: &Startup) -> [(&'static str, Option<Nanos>); 4] {
    [
        ("spawned_s", Some(own.spawned)),
        ("port_open_s", own.port_open),
        ("ready_s", Some(own.ready)),
        ("first_token_s", own.first_token),
    ]
}

/// A step's time as it is shown.
fn span(own: Option<Nanos>) -> String {
    match own {
        None => ABSENT.to_owned(),
        Some(own) if own.secs() < 1.0 => millis(own.millis()),
        Some(own) => value(own.secs(), Unit::Seconds),
    }
}

/// How servers ended by themselves.
pub(super) fn ends(report: &Report) -> Vec<End> {
    let cases = report.cases.iter().filter(|case| !case.is_stage());
    let all = cases.flat_map(|case| case.server_ends.iter().map(move |(round, end)| (case, *round, end)));
    all.map(|(case, round, end)| End {
        sentence: end_sentence(case, round, end),
        log: end.log.iter().map(|line| plain(line)).collect(),
    })
    .collect()
}

fn end_sentence(case: &CaseReport, round: u32, end: &ServerEnd) -> String {
    let (at, when) = (end.at_ns as f64 / 1e9, if end.at_ns < 0 { "before" } else { "into" });
    format!(
        "The server of `{}` exited {} {when} {}: {}. Sending then stopped.",
        case.id,
        value(at.abs(), Unit::Seconds),
        if round == 0 { "the case".to_owned() } else { format!("repetition {}", round + 1) },
        end.how
    )
}

/// What a terminal says of the starts and ends: a line or two; empty where no server was started.
pub fn server_lines(report: &Report) -> String {
    let mut text = String::new();
    let all: Vec<&Startup> = starts(report).map(|(_, _, own)| own).collect();
    let ready = || all.iter().map(|own| own.ready);
    match (all.as_slice(), ready().min(), ready().max()) {
        ([own], ..) => {
            let [spawned, port, ready, first] = spans(own).map(|own| span(own.1));
            text = format!("server: ready after {ready} (process {spawned}, port open {port}), first token after {first}\n");
        }
        (all, Some(least), Some(most)) => {
            text = format!("server: {} starts, ready after {} to {}\n", all.len(), span(Some(least)), span(Some(most)));
        }
        _ => {}
    }
    if let Some(restarts) = repeats::restarts(report) {
        text += &format!("{restarts}\n");
    }
    ends(report).iter().for_each(|end| text += &format!("{}\n", plain(&end.sentence)));
    text
}

/// A start in results.json, times in seconds from the start of its process.
pub(super) fn startup(own: &Startup) -> Value {
    let mut object = json!({ "pid": own.pid, "command": own.command, "log": own.log });
    for (name, span) in spans(own) {
        object[name] = json!(span.map(Nanos::secs));
    }
    object
}

/// An end in results.json, its time in seconds after the round's start.
pub(super) fn end((round, own): &(u32, ServerEnd)) -> Value {
    json!({ "round": round, "at_s": own.at_ns as f64 / 1e9, "how": own.how, "log": own.log })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, report_of};
    use llmscen_core::report::RunVerdict;

    fn start(ready_ms: u64) -> Startup {
        let [spawned, ready] = [3, ready_ms].map(Nanos::from_millis);
        let (command, log) = ("serve --key [redacted]".to_owned(), "server.log".to_owned());
        Startup { pid: 71, command, log, spawned, port_open: Some(Nanos::from_millis(900)), ready, first_token: None }
    }

    #[test]
    fn a_start_is_told_step_by_step() {
        let mut told = case(2);
        told.startups = vec![start(12_340)];
        told.server_ends =
            vec![(1, ServerEnd { at_ns: 2_500_000_000, how: "signal 9".into(), log: vec!["oh\u{1b}[31m".into()] })];
        let mut report = report_of(vec![case(1), told], RunVerdict::Error, 3);
        let row = ["`concurrency=2`", "71", "3 ms", "900 ms", "12.3 s", "n/a", "server.log", "`serve --key [redacted]`"];
        assert_eq!(starts_table(&report).markdown_rows(), [row]);
        assert_eq!(ends(&report)[0].log, ["oh [31m"]);
        let lines = server_lines(&report);
        assert_eq!(
            lines.lines().collect::<Vec<_>>(),
            [
                "server: ready after 12.3 s (process 3 ms, port open 900 ms), first token after n/a",
                "The server of `concurrency=2` exited 2.50 s into repetition 2: signal 9. Sending then stopped."
            ]
        );
        report.cases[0].startups = vec![start(800)];
        report.cases[1].server_ends.clear();
        assert_eq!(server_lines(&report), "server: 2 starts, ready after 800 ms to 12.3 s\n");
        report.cases.iter_mut().for_each(|case| case.startups.clear());
        assert_eq!((server_lines(&report).as_str(), starts_table(&report).rows.len()), ("", 0));
    }

    #[test]
    fn results_tell_seconds() {
        assert_eq!(
            startup(&start(1500)),
            json!({ "pid": 71, "command": "serve --key [redacted]", "log": "server.log", "spawned_s": 0.003, "port_open_s": 0.9, "ready_s": 1.5, "first_token_s": null })
        );
        let own = ServerEnd { at_ns: -500_000_000, how: "exit status 1".into(), log: Vec::new() };
        assert_eq!(end(&(2, own)), json!({ "round": 2, "at_s": -0.5, "how": "exit status 1", "log": [] }));
    }
}
