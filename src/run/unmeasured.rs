//! Cases that could not be measured to their end: their objectives are not judged, and the load generator is not blamed.

use llmscen_analysis::judge;
use llmscen_core::check::Verdict;
use llmscen_core::early_stop::Ending;
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::report::{CaseReport, OFF_PLAN};

/// Why a case was not measured to its end.
pub struct Failure<'a> {
    why: &'a str,
    /// When the case ended by its own decision, in seconds after the start of its only round: stages that were over by then
    /// are whole.
    ended_s: Option<f64>,
}

/// Why this case was not measured to its end, where something other than a signal is the reason.
pub fn failure<'a>(plan: &Plan, case: &Case, manifest: &'a Manifest) -> Option<Failure<'a>> {
    let own: Vec<&Part> = manifest.parts.iter().filter(|part| part.case == case.id).collect();
    let decided = |part: &&Part| part.ending.as_ref().is_some_and(Ending::ends_case);
    let cut = own.iter().any(|part| part.cut_short.is_some());
    let short = plan.quests.is_empty() && own.len() < plan.rounds as usize && !own.iter().any(decided);
    let named = manifest.failed.iter().find(|failed| failed.case == case.id).map(|failed| failed.why.as_str());
    let why = named.or(manifest.error.as_deref().filter(|_| (cut || short) && !manifest.interrupted))?;
    let ended_s = match own.as_slice() {
        [Part { ending: Some(Ending::TargetLost(lost)), .. }] => Some(lost.at_s),
        [Part { ending: Some(Ending::AllFailed(failed)), .. }] => Some(failed.at_s),
        _ => None,
    };
    Some(Failure { why, ended_s: ended_s.filter(|_| plan.rounds == 1) })
}

impl Failure<'_> {
    /// The reports of the case and of its stages, without verdicts on what was not measured whole.
    pub fn applied(&self, case: &Case, mut reports: Vec<CaseReport>) -> Vec<CaseReport> {
        let until = case.stages().into_iter().map(|stage| stage.until.secs());
        let whole = until.map(|until| self.ended_s.is_some_and(|ended| until <= ended));
        for (report, whole) in reports.iter_mut().zip(std::iter::once(false).chain(whole)) {
            if !whole {
                reject(report, self.why);
            }
        }
        reports
    }
}

/// The report of a case without a single success, in a run that failed by it; a reason that was found before stays.
pub fn without_success(report: &mut CaseReport) {
    let explained = |verdict: &Verdict| verdict.note.as_deref().is_some_and(|note| note.starts_with("not measured: "));
    let dead = report.counts.scheduled > 0 && report.counts.ok + report.counts.abandoned == 0;
    if dead && !report.verdicts.iter().any(explained) {
        reject(report, "no request succeeded");
    }
}

fn reject(report: &mut CaseReport, why: &str) {
    let some = report.counts.ok + report.counts.abandoned > 0;
    report.verdicts = judge::not_measured(std::mem::take(&mut report.verdicts), some, why);
    // The headline names the reason, and it is not a fault of the load generator.
    report.audit.reasons.retain(|reason| !reason.starts_with(OFF_PLAN));
    report.audit.valid = report.audit.reasons.is_empty();
}
