//! `--progress json`: each event is a JSON object on one line of stderr. The keys are stable;
//! `docs/reference/progress.md` documents them.

use crate::cli::display::Display;
use crate::cli::terminal::Terminal;
use crate::run::event::Event;
use crate::run::progress::Progress;
use crate::run::stop::Level;
use llmscen_core::early_stop::EarlyStop;
use llmscen_core::outcome::Phase;
use llmscen_core::plan::Plan;
use llmscen_core::report::{Report, RunVerdict};
use llmscen_report::headline;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Instant;

/// Writes the events of one run.
pub struct JsonEvents<'a, 'b> {
    terminal: &'a mut Terminal<'b>,
    began: Instant,
    /// The current case and round.
    case: String,
    round: u32,
}

impl<'a, 'b> JsonEvents<'a, 'b> {
    /// Times are relative to `began`.
    pub fn new(terminal: &'a mut Terminal<'b>, began: Instant) -> JsonEvents<'a, 'b> {
        JsonEvents {
            terminal,
            began,
            case: String::new(),
            round: 0,
        }
    }
}

impl Display for JsonEvents<'_, '_> {
    fn show(&mut self, event: &Event) {
        if let Event::CaseStarted { case, round, .. } = event {
            self.case.clone_from(case);
            self.round = *round;
        }
        if let Some(object) = event_object(event, &self.case, self.round) {
            write_event(object, self.began, self.terminal);
        }
    }
}

/// The first event of a run.
pub fn run_started(plan: &Plan, file: &Path) -> Value {
    let cases = plan
        .cases
        .iter()
        .map(|case| json!({ "id": case.id, "load": case.load.shape.to_string() }));
    json!({
        "event": "run_started",
        "scenario": plan.name,
        "file": file.display().to_string(),
        "plan_id": plan.id,
        "cases": cases.collect::<Vec<_>>(),
        "rounds": plan.rounds,
        "search": !plan.searches.is_empty(),
    })
}

/// The last event of a run with a report.
pub fn run_ended(report: &Report, exit_code: u8, folder: &Path) -> Value {
    json!({
        "event": "run_ended",
        "scenario": report.manifest.name,
        "verdict": report.verdict,
        "exit_code": exit_code,
        "reason": headline::reason(report),
        "folder": folder.display().to_string(),
    })
}

/// The last event of the command. `verdict`: that of the run with this exit code, if it has one.
pub fn done(verdict: Option<RunVerdict>, exit_code: u8) -> Value {
    json!({ "event": "done", "verdict": verdict, "exit_code": exit_code })
}

/// Writes an event with its time: seconds since the command began.
pub fn write_event(mut object: Value, began: Instant, terminal: &mut Terminal) {
    let seconds = (began.elapsed().as_secs_f64() * 1e3).round() / 1e3;
    if let Some(fields) = object.as_object_mut() {
        fields.insert("time_s".to_owned(), json!(seconds));
    }
    terminal.err_line(&object.to_string());
}

/// The JSON object of an event during a round of `case`; `None` for the end marker.
fn event_object(event: &Event, case: &str, round: u32) -> Option<Value> {
    Some(match event {
        Event::Preparing(step) => {
            json!({ "event": "preparing", "what": step.what, "unit": step.unit, "done": step.done,
                "total": step.total })
        }
        Event::Folder(path) => json!({ "event": "folder", "path": path.display().to_string() }),
        Event::CaseStarted {
            case,
            round,
            part,
            parts,
            total,
            seconds,
        } => json!({
            "event": "case_started", "case": case, "round": round, "part": part, "parts": parts, "total": total,
            "seconds": seconds,
        }),
        Event::Progress(progress) => progress_object("progress", case, round, progress),
        Event::CaseEnded(progress) => progress_object("case_ended", case, round, progress),
        Event::Note(text) => json!({ "event": "note", "message": text }),
        Event::Ending(ending) => {
            let (reason, message) = match ending {
                EarlyStop::Aborted(lost) => ("aborted", format!("`{}`: {lost}", lost.expr)),
                EarlyStop::Saturated(seen) => ("saturated", seen.to_string()),
                EarlyStop::TargetLost(lost) => ("target_lost", lost.to_string()),
                EarlyStop::AllFailed(failed) => ("all_failed", failed.to_string()),
            };
            json!({ "event": "case_ending", "case": case, "round": round, "reason": reason, "message": message })
        }
        Event::Stopping(level) => json!({ "event": "stopping", "at_once": *level == Level::Now }),
        Event::Probed { case, holds } => {
            json!({ "event": "probed", "case": case, "round": round, "holds": holds })
        }
        Event::Done => return None,
    })
}

fn progress_object(event: &str, case: &str, round: u32, progress: &Progress) -> Value {
    let outcomes = |phase: Phase| {
        let of_phase = progress
            .totals
            .outcomes
            .iter()
            .filter(|((other, _), _)| *other == phase);
        of_phase
            .map(|((_, outcome), count)| ((*outcome).to_owned(), json!(count)))
            .collect::<Map<String, Value>>()
    };
    json!({
        "event": event,
        "case": case,
        "round": round,
        "done": progress.done,
        "total": progress.total,
        "in_flight": progress.in_flight,
        "errors": progress.errors,
        "rate": progress.rate,
        "tokens_per_s": progress.tokens_per_s,
        "ttft_ms_p50": progress.ttft_ms_p50,
        "ttft_ms_p99": progress.ttft_ms_p99,
        "itl_ms_p50": progress.itl_ms_p50,
        "itl_ms_p99": progress.itl_ms_p99,
        "e2e_ms_p50": progress.e2e_ms_p50,
        "e2e_ms_p99": progress.e2e_ms_p99,
        "elapsed_s": progress.elapsed_s,
        "left_s": progress.left_s,
        "outcomes": {
            "warmup": outcomes(Phase::Warmup),
            "measured": outcomes(Phase::Measured),
            "cooldown": outcomes(Phase::Cooldown),
        },
        "token_events": progress.totals.events,
        "prompt_tokens": progress.totals.prompt_tokens,
        "output_tokens": progress.totals.output_tokens,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::event::Preparing;
    use crate::run::progress::LiveTotals;

    fn rendered(event: Event) -> Value {
        event_object(&event, "a", 1).unwrap()
    }

    #[test]
    fn every_event_has_its_object() {
        let step = Preparing {
            what: "counting",
            unit: "rows",
            done: 3,
            total: None,
        };
        let table = [
            (
                Event::Preparing(step),
                json!({"event": "preparing", "what": "counting", "unit": "rows", "done": 3, "total": null}),
            ),
            (
                Event::Folder("reports/x".into()),
                json!({"event": "folder", "path": "reports/x"}),
            ),
            (
                Event::CaseStarted {
                    case: "b".into(),
                    round: 2,
                    part: 0,
                    parts: 4,
                    total: Some(9),
                    seconds: None,
                },
                json!({"event": "case_started", "case": "b", "round": 2, "part": 0, "parts": 4,
                    "total": 9, "seconds": null}),
            ),
            (
                Event::Note("n".into()),
                json!({"event": "note", "message": "n"}),
            ),
            (
                Event::Stopping(Level::Drain),
                json!({"event": "stopping", "at_once": false}),
            ),
            (
                Event::Stopping(Level::Now),
                json!({"event": "stopping", "at_once": true}),
            ),
            (
                Event::Probed {
                    case: "b".into(),
                    holds: Some(0.5),
                },
                json!({"event": "probed", "case": "b", "round": 1, "holds": 0.5}),
            ),
        ];
        for (event, expected) in table {
            assert_eq!(rendered(event), expected);
        }
        let ending = rendered(Event::Ending(EarlyStop::Aborted(Default::default())));
        assert_eq!(
            (&ending["event"], &ending["case"], &ending["reason"]),
            (&"case_ending".into(), &"a".into(), &"aborted".into())
        );
        assert_eq!(event_object(&Event::Done, "a", 1), None);
    }

    #[test]
    fn outcomes_are_separated_by_phase() {
        let outcomes = [
            ((Phase::Warmup, "ok"), 2),
            ((Phase::Measured, "ok"), 5),
            ((Phase::Measured, "http_5xx"), 1),
        ]
        .into();
        let totals = LiveTotals {
            outcomes,
            events: 40,
            ..LiveTotals::default()
        };
        let line = rendered(Event::CaseEnded(Progress {
            done: 8,
            totals,
            ..Progress::default()
        }));
        assert_eq!(
            line["outcomes"],
            json!({"warmup": {"ok": 2}, "measured": {"ok": 5, "http_5xx": 1}, "cooldown": {}})
        );
        assert_eq!(
            (
                &line["event"],
                &line["round"],
                &line["done"],
                &line["token_events"]
            ),
            (&"case_ended".into(), &1.into(), &8.into(), &40.into())
        );
        assert!(
            line["ttft_ms_p50"].is_null() && line.as_object().unwrap().contains_key("ttft_ms_p50")
        );
    }
}
