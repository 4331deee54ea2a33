//! The values of other cases that limits of a case refer to.

use llmscen_analysis::judge::{CaseSamples, RoundDesign, value_of_other_case};
use llmscen_analysis::{CaseFacts, Sample, Table, TableError, sample_case, sample_round};
use llmscen_core::check::relative::Relative;
use llmscen_core::check::{Check, Ruling};
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::report::{CaseReport, InvalidReason};
use std::borrow::Cow;

/// The samples of a case.
struct Measured {
    all: Sample,
    rounds: Vec<Option<Sample>>,
    restarted: bool,
}

impl Measured {
    fn new(
        plan: &Plan,
        case: &Case,
        table: &Table,
        manifest: &Manifest,
    ) -> Result<Measured, TableError> {
        let parts: Vec<Part> = manifest
            .parts
            .iter()
            .filter(|part| part.case == case.id)
            .cloned()
            .collect();
        let facts = CaseFacts {
            case,
            parts: &parts,
            until: None,
        };
        let round = |round: u32| {
            let ran = parts.iter().any(|part| part.round == round);
            ran.then(|| sample_round(table, &facts, round)).transpose()
        };
        Ok(Measured {
            all: sample_case(table, &facts)?,
            rounds: (0..plan.rounds).map(round).collect::<Result<_, _>>()?,
            restarted: Part::restarted(&parts),
        })
    }

    fn samples(&self) -> CaseSamples<'_> {
        CaseSamples {
            all: &self.all,
            rounds: &self.rounds,
        }
    }
}

/// The case with the values of the other cases that its limits refer to.
pub(crate) fn with_other_cases<'a>(
    plan: &Plan,
    case: &'a Case,
    table: &Table,
    manifest: &Manifest,
) -> Result<Cow<'a, Case>, TableError> {
    if !case.checks.iter().any(|check| other_case(check).is_some()) {
        return Ok(Cow::Borrowed(case));
    }
    let own = Measured::new(plan, case, table, manifest)?;
    let resolve = |check: &Check| {
        let found = other_case(check).and_then(|id| {
            let other_case = plan.cases.iter().find(|other| other.id == id)?;
            Some((id, check.relative.clone()?, other_case))
        });
        let Some((id, relative, other_case)) = found else {
            return Ok(check.clone());
        };
        let other = Measured::new(plan, other_case, table, manifest)?;
        // Both values of a round of one case are of the same state of the machine.
        let design = if relative.is_same_case() || plan.alternates(&case.id, id) {
            RoundDesign::Alternating
        } else if own.restarted && other.restarted {
            RoundDesign::Restarted
        } else {
            RoundDesign::Pooled
        };
        let samples = (own.samples(), other.samples());
        let known = value_of_other_case(check, relative.factor, samples, design);
        let relative = Relative { known, ..relative };
        Ok(Check {
            limit: relative.limit(),
            relative: Some(relative),
            ..check.clone()
        })
    };
    let checks = case.checks.iter().map(resolve);
    Ok(Cow::Owned(Case {
        checks: checks.collect::<Result<_, TableError>>()?,
        ..case.clone()
    }))
}

/// The id of the other case that a limit refers to.
fn other_case(check: &Check) -> Option<&str> {
    let relative = check.relative.as_ref()?;
    Some(relative.case.as_ref()?.id.as_str())
}

/// Rejects the verdicts that refer to a case whose measurement is invalid.
pub(crate) fn reject_by_other_cases(cases: &mut [CaseReport]) {
    let invalid: Vec<(String, String)> = cases
        .iter()
        .filter(|case| !case.audit.valid)
        .map(|case| {
            let why = case
                .audit
                .reasons
                .first()
                .map(InvalidReason::to_string)
                .unwrap_or_default();
            (case.id.clone(), why)
        })
        .collect();
    for verdict in cases.iter_mut().flat_map(|case| &mut case.verdicts) {
        let id = other_case(&verdict.check);
        let Some((id, why)) = invalid.iter().find(|(other, _)| Some(other.as_str()) == id) else {
            continue;
        };
        if verdict.ruling != Ruling::Invalid {
            verdict.ruling = Ruling::Invalid;
            verdict.need = None;
            verdict.note = Some(format!("the measurement of `{id}` is invalid: {why}"));
        }
    }
}
