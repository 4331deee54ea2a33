//! `--progress json`: every event as one JSON object in a line on stderr. The keys are a promise; `docs/live.md` states it.

use crate::cli::progress::Show;
use crate::cli::terminal::Terminal;
use crate::run::event::{Event, Progress};
use crate::run::execution::stop::Level;
use llmscen_core::early_stop::Ending;
use llmscen_core::outcome::Phase;
use llmscen_core::plan::Plan;
use llmscen_core::report::{Report, RunVerdict};
use llmscen_report::headline;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Instant;

/// Writes the lines of one run.
pub struct JsonEvents<'a, 'b> {
    terminal: &'a mut Terminal<'b>,
    began: Instant,
    /// The case that runs, and its round.
    case: (String, u32),
}

impl<'a, 'b> JsonEvents<'a, 'b> {
    /// JsonEvents for this terminal; times run from `began`.
    pub fn new(terminal: &'a mut Terminal<'b>, began: Instant) -> JsonEvents<'a, 'b> {
        JsonEvents { terminal, began, case: Default::default() }
    }
}

impl Show for JsonEvents<'_, '_> {
    fn see(&mut self, event: &Event) {
        if let Event::CaseStarted { case, round, .. } = event {
            self.case = (case.clone(), *round);
        }
        if let Some(object) = object(event, (&self.case.0, self.case.1)) {
            self.terminal.line(&timed(object, self.began).to_string());
        }
    }
}

/// The line with which a run begins.
pub fn run_started(plan: &Plan, file: &Path) -> Value {
    let cases = plan.cases.iter().map(|case| json!({ "id": case.id, "load": case.load.shape.to_string() }));
    json!({
        "event": "run_started",
        "scenario": plan.name,
        "file": file.display().to_string(),
        "plan_id": plan.id,
        "cases": cases.collect::<Vec<_>>(),
        "rounds": plan.rounds,
        "search": !plan.quests.is_empty(),
    })
}

/// The line with which a run ends that has a report.
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

/// The last line. `verdict`: of the run that the exit code comes from; None where none came to a verdict.
pub fn done(verdict: Option<RunVerdict>, exit_code: u8) -> Value {
    json!({ "event": "done", "verdict": verdict, "exit_code": exit_code })
}

/// The line with its instant: seconds since the command began.
pub fn timed(mut object: Value, began: Instant) -> Value {
    let seconds = (began.elapsed().as_secs_f64() * 1e3).round() / 1e3;
    if let Some(fields) = object.as_object_mut() {
        fields.insert("time_s".to_owned(), json!(seconds));
    }
    object
}

/// An event as its object; None for the mark that nothing more comes.
fn object(event: &Event, (case, round): (&str, u32)) -> Option<Value> {
    Some(match event {
        Event::Preparing(step) => {
            json!({ "event": "preparing", "what": step.what, "unit": step.unit, "done": step.done, "total": step.total })
        }
        Event::Folder(path) => json!({ "event": "folder", "path": path.display().to_string() }),
        Event::CaseStarted { case, round, part, parts, total, seconds } => json!({
            "event": "case_started", "case": case, "round": round, "part": part, "parts": parts, "total": total,
            "seconds": seconds,
        }),
        Event::Progress(progress) => figures("progress", (case, round), progress),
        Event::CaseEnded(progress) => figures("case_ended", (case, round), progress),
        Event::Note(text) => json!({ "event": "note", "message": text }),
        Event::Ending(ending) => {
            let (reason, message) = match ending {
                Ending::Aborted(lost) => ("aborted", format!("`{}`: {lost}", lost.expr)),
                Ending::Saturated(seen) => ("saturated", seen.to_string()),
                Ending::TargetLost(lost) => ("target_lost", lost.to_string()),
                Ending::AllFailed(failed) => ("all_failed", failed.to_string()),
            };
            json!({ "event": "case_ending", "case": case, "round": round, "reason": reason, "message": message })
        }
        Event::Stopping(level) => json!({ "event": "stopping", "at_once": *level == Level::Now }),
        Event::Probed { case, holds } => json!({ "event": "probed", "case": case, "round": round, "holds": holds }),
        Event::Done => return None,
    })
}

fn figures(event: &str, (case, round): (&str, u32), now: &Progress) -> Value {
    let ended = |phase: Phase| {
        let own = now.totals.outcomes.iter().filter(|((of, _), _)| *of == phase);
        own.map(|((_, word), count)| ((*word).to_owned(), json!(count))).collect::<Map<String, Value>>()
    };
    json!({
        "event": event,
        "case": case,
        "round": round,
        "done": now.done,
        "total": now.total,
        "in_flight": now.in_flight,
        "errors": now.errors,
        "rate": now.rate,
        "tokens_per_s": now.tokens_per_s,
        "ttft_ms_p50": now.ttft_ms_p50,
        "ttft_ms_p99": now.ttft_ms_p99,
        "itl_ms_p50": now.itl_ms_p50,
        "itl_ms_p99": now.itl_ms_p99,
        "e2e_ms_p50": now.e2e_ms_p50,
        "e2e_ms_p99": now.e2e_ms_p99,
        "elapsed_s": now.elapsed_s,
        "left_s": now.left_s,
        "outcomes": { "warmup": ended(Phase::Warmup), "measured": ended(Phase::Measured) },
        "token_events": now.totals.events,
        "prompt_tokens": now.totals.prompt_tokens,
        "output_tokens": now.totals.output_tokens,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::collector::live_metrics::LiveTotals;
    use crate::run::event::Preparing;

    fn of(event: Event) -> Value {
        object(&event, ("a", 1)).unwrap()
    }

    #[test]
    fn every_event_has_its_object() {
        let step = Preparing { what: "counting", unit: "rows", done: 3, total: None };
        let table = [
            (Event::Preparing(step), json!({"event": "preparing", "what": "counting", "unit": "rows", "done": 3, "total": null})),
            (Event::Folder("reports/x".into()), json!({"event": "folder", "path": "reports/x"})),
            (
                Event::CaseStarted { case: "b".into(), round: 2, part: 0, parts: 4, total: Some(9), seconds: None },
                json!({"event": "case_started", "case": "b", "round": 2, "part": 0, "parts": 4, "total": 9, "seconds": null}),
            ),
            (Event::Note("n".into()), json!({"event": "note", "message": "n"})),
            (Event::Stopping(Level::Drain), json!({"event": "stopping", "at_once": false})),
            (Event::Stopping(Level::Now), json!({"event": "stopping", "at_once": true})),
            (
                Event::Probed { case: "b".into(), holds: Some(0.5) },
                json!({"event": "probed", "case": "b", "round": 1, "holds": 0.5}),
            ),
        ];
        for (event, wanted) in table {
            assert_eq!(of(event), wanted);
        }
        let ending = of(Event::Ending(Ending::Aborted(Default::default())));
        assert_eq!(
            (&ending["event"], &ending["case"], &ending["reason"]),
            (&"case_ending".into(), &"a".into(), &"aborted".into())
        );
        assert_eq!(object(&Event::Done, ("a", 1)), None);
    }

    #[test]
    fn progress_tells_warm_up_apart() {
        let outcomes = [((Phase::Warmup, "ok"), 2), ((Phase::Measured, "ok"), 5), ((Phase::Measured, "http_5xx"), 1)].into();
        let totals = LiveTotals { outcomes, events: 40, ..LiveTotals::default() };
        let line = of(Event::CaseEnded(Progress { done: 8, totals, ..Progress::default() }));
        assert_eq!(line["outcomes"], json!({"warmup": {"ok": 2}, "measured": {"ok": 5, "http_5xx": 1}}));
        assert_eq!(
            (&line["event"], &line["round"], &line["done"], &line["token_events"]),
            (&"case_ended".into(), &1.into(), &8.into(), &40.into())
        );
        assert!(line["ttft_ms_p50"].is_null() && line.as_object().unwrap().contains_key("ttft_ms_p50"));
    }
}
