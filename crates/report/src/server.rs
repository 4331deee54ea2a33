//! Managed servers: their startup times, and how they exited during a run.

use crate::format::{ABSENT, millis, plain, value};
use crate::repeats;
use crate::table::{Cell, Column, Columns, Table};
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::target::{ServerEnd, Startup};
use llmscen_core::units::{Nanos, Unit};
use serde_json::{Value, json};

/// How a server exited, in a sentence.
pub(super) struct ServerExit {
    pub(super) sentence: String,
    /// The last lines of its log.
    pub(super) log: Vec<String>,
}

/// Every start by case, without stages, which repeat the starts of their case.
fn starts(report: &Report) -> impl Iterator<Item = (usize, &CaseReport, &Startup)> {
    let cases = report
        .cases
        .iter()
        .enumerate()
        .filter(|(_, case)| !case.is_stage());
    cases.flat_map(|(index, case)| {
        case.startups
            .iter()
            .map(move |startup| (index, case, startup))
    })
}

/// The table of server starts.
pub(super) fn starts_table(report: &Report) -> Table {
    type Start<'a> = (usize, &'a CaseReport, &'a Startup);
    let time = |position: usize| {
        move |(.., startup): &Start<'_>| {
            let (name, time) = startup_times(startup)[position];
            Cell::figure(format_time(time), time.map(Nanos::secs)).with_stat("startup", name)
        }
    };
    let text = |head: &str| Column::text().documents(head);
    let number = |head: &str| Column::number().documents(head);
    Columns::<Start<'_>>::new()
        .add_case(text("Case"))
        .add(number("PID"), |(.., startup)| {
            Cell::count(u64::from(startup.pid)).with_stat("startup", "pid")
        })
        .add(number("Process"), time(0))
        .add(number("Port open"), time(1))
        .add(number("Ready"), time(2))
        .add(number("First token"), time(3))
        .add(text("Log"), |(.., startup)| Cell::prose(&startup.log))
        .add(text("Command"), |(.., startup)| {
            Cell::code(&startup.command)
        })
        .table_by_case(starts(report))
}

/// The times of a start in their order, with their names in results.json.
fn startup_times(startup: &Startup) -> [(&'static str, Option<Nanos>); 4] {
    [
        ("spawned_s", Some(startup.spawned)),
        ("port_open_s", startup.port_open),
        ("ready_s", Some(startup.ready)),
        ("first_token_s", startup.first_token),
    ]
}

fn format_time(time: Option<Nanos>) -> String {
    match time {
        None => ABSENT.to_owned(),
        Some(time) if time.secs() < 1.0 => millis(time.millis()),
        Some(time) => value(time.secs(), Unit::Seconds),
    }
}

/// How servers exited.
pub(super) fn server_exits(report: &Report) -> Vec<ServerExit> {
    let cases = report.cases.iter().filter(|case| !case.is_stage());
    let all = cases.flat_map(|case| {
        case.server_ends
            .iter()
            .map(move |(round, end)| (case, *round, end))
    });
    all.map(|(case, round, end)| ServerExit {
        sentence: exit_sentence(case, round, end),
        log: end.log.iter().map(|line| plain(line)).collect(),
    })
    .collect()
}

fn exit_sentence(case: &CaseReport, round: u32, end: &ServerEnd) -> String {
    let at = end.at_ns as f64 / 1e9;
    let when = if end.at_ns < 0 { "before" } else { "into" };
    format!(
        "The server of `{}` exited {} {when} {}: {}. Sending then stopped.",
        case.id,
        value(at.abs(), Unit::Seconds),
        if round == 0 {
            "the case".to_owned()
        } else {
            format!("repetition {}", round + 1)
        },
        end.how
    )
}

/// The starts and exits for a terminal; empty if no server was started.
pub fn server_lines(report: &Report) -> String {
    let mut text = String::new();
    let all: Vec<&Startup> = starts(report).map(|(_, _, startup)| startup).collect();
    let ready = || all.iter().map(|startup| startup.ready);
    match (all.as_slice(), ready().min(), ready().max()) {
        ([startup], ..) => {
            let [spawned, port, ready, first] =
                startup_times(startup).map(|(_, time)| format_time(time));
            text = format!(
                "server: ready after {ready} (process {spawned}, port open {port}), first token after {first}\n"
            );
        }
        (all, Some(least), Some(most)) => {
            text = format!(
                "server: {} starts, ready after {} to {}\n",
                all.len(),
                format_time(Some(least)),
                format_time(Some(most))
            );
        }
        _ => {}
    }
    if let Some(restarts) = repeats::restarts(report) {
        text += &format!("{restarts}\n");
    }
    server_exits(report)
        .iter()
        .for_each(|end| text += &format!("{}\n", plain(&end.sentence)));
    text
}

/// A start in results.json, times in seconds from the start of its process.
pub(super) fn startup_json(startup: &Startup) -> Value {
    let mut object = json!({ "pid": startup.pid, "command": startup.command, "log": startup.log });
    for (name, time) in startup_times(startup) {
        object[name] = json!(time.map(Nanos::secs));
    }
    object
}

/// A server exit in results.json, its time in seconds after the start of the round.
pub(super) fn exit_json((round, end): &(u32, ServerEnd)) -> Value {
    json!({ "round": round, "at_s": end.at_ns as f64 / 1e9, "how": end.how, "log": end.log })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, report_of};
    use llmscen_core::report::RunVerdict;

    fn start(ready_ms: u64) -> Startup {
        let [spawned, ready] = [3, ready_ms].map(Nanos::from_millis);
        let (command, log) = ("serve --key [redacted]".to_owned(), "server.log".to_owned());
        Startup {
            pid: 71,
            command,
            log,
            spawned,
            port_open: Some(Nanos::from_millis(900)),
            ready,
            first_token: None,
        }
    }

    #[test]
    fn a_start_has_a_row_and_a_line() {
        let mut managed = case(2);
        managed.startups = vec![start(12_340)];
        managed.server_ends = vec![(
            1,
            ServerEnd {
                at_ns: 2_500_000_000,
                how: "signal 9".into(),
                log: vec!["oh\u{1b}[31m".into()],
            },
        )];
        let mut report = report_of(vec![case(1), managed], RunVerdict::Error, 3);
        let row = [
            "`concurrency=2`",
            "71",
            "3 ms",
            "900 ms",
            "12.3 s",
            "n/a",
            "server.log",
            "`serve --key [redacted]`",
        ];
        assert_eq!(starts_table(&report).markdown_rows(), [row]);
        assert_eq!(server_exits(&report)[0].log, ["oh [31m"]);
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
        assert_eq!(
            server_lines(&report),
            "server: 2 starts, ready after 800 ms to 12.3 s\n"
        );
        report
            .cases
            .iter_mut()
            .for_each(|case| case.startups.clear());
        assert_eq!(
            (
                server_lines(&report).as_str(),
                starts_table(&report).rows.len()
            ),
            ("", 0)
        );
    }

    #[test]
    fn results_json_has_seconds() {
        assert_eq!(
            startup_json(&start(1500)),
            json!({ "pid": 71, "command": "serve --key [redacted]", "log": "server.log",
                "spawned_s": 0.003, "port_open_s": 0.9, "ready_s": 1.5, "first_token_s": null })
        );
        let end = ServerEnd {
            at_ns: -500_000_000,
            how: "exit status 1".into(),
            log: Vec::new(),
        };
        assert_eq!(
            exit_json(&(2, end)),
            json!({ "round": 2, "at_s": -0.5, "how": "exit status 1", "log": [] })
        );
    }
}
