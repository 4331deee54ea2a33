//! Relative limits: restrictions, and their values in each case.

use crate::fault::{Mistake, Review};
use crate::sections::baseline::{self, BaselineState};
use crate::sections::reference;
use crate::sections::slo::limit::{Limit, word_span};
use crate::suggest::{list, meant_or, nearest};
use crate::tree::{Node, Span};
use llmscen_core::check::relative::{CaseReference, ReferenceKind, ReferenceValue, Relative};
use llmscen_core::check::{Check, Confidence, Subject};
use llmscen_core::label::{Labels, STAGE, Scalar};
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::plan::Case;
use llmscen_core::telemetry::TelemetrySpec;

/// The inputs of relative limits.
pub(crate) struct RelativeContext<'a> {
    pub root: &'a Node,
    pub baseline: &'a BaselineState,
    pub telemetry: &'a TelemetrySpec,
    /// The ids and labels of the cases of the plan.
    pub cases: &'a [(String, Labels)],
}

/// Reports relative limits on a metric without a confidence interval, or with `abort`.
pub(super) fn check_restrictions(limit: &Limit<'_>, review: &mut Review) {
    let check = &limit.check;
    let Some(relative) = &check.relative else {
        return;
    };
    if let Some(entry) = limit.node.entry_at("abort") {
        let mistake = Mistake::new(
            entry.key_at,
            "`abort` on a relative limit",
            "its test needs a number",
        );
        let mistake = mistake.also(place_of(limit, relative.to, review), "relative");
        review.push(mistake.help(
            "Put `abort` on a second limit, with a number that clearly justifies ending the case.",
        ));
    }
    let same_case = relative.case.as_ref().filter(|it| it.is_same_case());
    let other = same_case.and_then(|it| it.subject.as_ref());
    let why = no_interval_reason(&check.subject).or_else(|| no_interval_reason(other?));
    let Some(why) = why else {
        return;
    };
    let counted = matches!(
        check.subject,
        Subject::Metric {
            stat: Some(Stat::Count),
            ..
        }
    );
    if counted || matches!(check.confidence, Confidence::Level(_)) {
        let at = limit.node.get("expr").map_or(limit.node.at, |expr| expr.at);
        let mistake = Mistake::new(at, "this relative limit cannot be tested", why);
        let help = "Relative limits can be used for quantiles, means, throughputs, \
        shares of requests and goodput(…)";
        let point = if counted {
            "."
        } else {
            "; `confidence: point` compares point estimates."
        };
        review.push(mistake.help(format!("{help}{point}")));
    }
}

/// Why a metric has no confidence interval. None where it has one.
fn no_interval_reason(subject: &Subject) -> Option<&'static str> {
    let Subject::Metric { metric, stat, .. } = subject else {
        return None;
    };
    match stat {
        Some(Stat::Quantile(p)) if 0.0 < *p && *p < 1.0 => None,
        Some(Stat::Mean) => None,
        Some(Stat::Quantile(_) | Stat::Min | Stat::Max) => {
            Some("extremes have no confidence bound")
        }
        Some(Stat::Sd) => Some("a standard deviation is compared as a point estimate"),
        Some(Stat::Count) => Some("the plan defines the number of samples"),
        None => match metric {
            Metric::OutputTpsPerUser => None,
            metric if metric.is_request_share() => None,
            metric if metric.is_rate() || metric.cost_basis().is_some() => None,
            _ => Some("a single value per case, without a spread"),
        },
    }
}

/// The check with its limit as a number, where the other run has a value.
pub(super) fn resolve_limit(
    limit: &Limit<'_>,
    case: &Case,
    context: &RelativeContext<'_>,
    review: &mut Review,
) -> Check {
    let check = limit.check.clone();
    let Some(mut relative) = check.relative.clone() else {
        return check;
    };
    let limit_at = place_of(limit, relative.to, review);
    if let (ReferenceKind::Baseline, BaselineState::Loaded(loaded)) =
        (relative.to, context.baseline)
    {
        relative.answers = baseline::find_answers(loaded, &check, case);
    }
    let known =
        match relative.to {
            ReferenceKind::Case if relative.is_same_case() => {
                if let Some(reference) = &mut relative.case {
                    reference.id = case.id.clone();
                }
                None
            }
            ReferenceKind::Case => {
                if let Some(reference) = &mut relative.case {
                    reference.id =
                        find_case(reference, case, context, limit_at, review).unwrap_or_default();
                }
                None
            }
            ReferenceKind::Baseline => baseline_value(&check, case, context, limit_at, review),
            ReferenceKind::Reference if context.root.get("reference").is_none() => {
                let mistake = Mistake::new(
                    limit_at,
                    "a limit relative to a reference, but no `reference:`",
                    "there is none",
                );
                review.push(mistake.help(
                    "For example reference: { output_tps: { \"load.concurrency=1\": 420 } }.",
                ));
                None
            }
            ReferenceKind::Reference => reference::find_value(
                context.root,
                &check,
                &with_stage_label(case),
                limit_at,
                review,
            ),
        };
    let relative = Relative { known, ..relative };
    Check {
        limit: relative.limit(),
        relative: Some(relative),
        ..check
    }
}

/// The case with the labels that a reference uses: a staged case is `load.stage=all`.
fn with_stage_label(case: &Case) -> Case {
    let is_staged_case = case.labels.get(STAGE).is_none() && !case.load.shape.stages().is_empty();
    let labels = if is_staged_case {
        case.labels.with(STAGE, Scalar::Text("all".into()))
    } else {
        case.labels.clone()
    };
    Case {
        labels,
        ..case.clone()
    }
}

fn baseline_value(
    check: &Check,
    case: &Case,
    context: &RelativeContext<'_>,
    limit_at: Span,
    review: &mut Review,
) -> Option<ReferenceValue> {
    match context.baseline {
        BaselineState::Loaded(loaded) => {
            baseline::find_value(loaded, check, case, limit_at, review)
        }
        BaselineState::Missing | BaselineState::Broken => None,
        BaselineState::Unset => {
            let mistake = Mistake::new(
                limit_at,
                "a limit relative to a baseline, but no `baseline:`",
                "there is none",
            );
            let help = "Set `baseline` to a file from `llmscen baseline update RUN_DIR --to \
            FILE`, or a run folder. `baseline: none` runs without one, to create the first.";
            review.push(mistake.help(help));
            None
        }
    }
}

/// The case with the labels of `own`, except those of the reference. Reports a missing one.
fn find_case(
    reference: &CaseReference,
    own: &Case,
    context: &RelativeContext<'_>,
    limit_at: Span,
    review: &mut Review,
) -> Option<String> {
    let swept = || own.labels.0.iter().map(|(path, _)| path.as_str());
    if let Some((path, _)) = reference
        .labels
        .iter()
        .find(|(path, _)| own.labels.get(path).is_none())
    {
        let label = meant_or(nearest(path, swept()), "is not swept");
        let mistake = Mistake::new(limit_at, format!("`{path}` is not swept"), label);
        let paths = if own.labels.0.is_empty() {
            "the plan has a single case".to_owned()
        } else {
            format!("here {}", list(swept(), "and"))
        };
        review.push(mistake.help(format!(
            "`case(…)` has values of the matrix, of `variant` and of `workload`; {paths}."
        )));
        return None;
    }
    let found: Vec<&str> = matching_cases(reference, own, context.cases).collect();
    if let [id] = found.as_slice() {
        return Some((*id).to_owned());
    }
    let labels = reference
        .labels
        .iter()
        .map(|(path, value)| format!("`{path}={value}`"))
        .collect::<Vec<_>>();
    let labels = list(labels.iter().map(String::as_str), "and");
    let (message, label) = if found.is_empty() {
        (
            format!("no other case for `{}`", own.id),
            format!("no case has {labels} and its other values"),
        )
    } else {
        (
            format!("several other cases for `{}`", own.id),
            list(found.iter().copied(), "and"),
        )
    };
    let ids = context.cases.iter().map(|(id, _)| id.as_str()).take(12);
    review.push(Mistake::new(limit_at, message, label).help(format!(
        "Restrict the limit with `when`, or name one case. Cases are {}.",
        list(ids, "and")
    )));
    None
}

/// The ids of the cases with the labels of `own`, except those of the reference.
fn matching_cases<'a>(
    reference: &'a CaseReference,
    own: &'a Case,
    cases: &'a [(String, Labels)],
) -> impl Iterator<Item = &'a str> {
    let is_other = move |labels: &Labels| {
        labels.0.len() == own.labels.0.len()
            && labels.0.iter().all(|(path, value)| {
                let named = reference.labels.iter().find(|(key, _)| key == path);
                match named {
                    Some((_, named)) => value.meets(&Scalar::Text(named.clone())),
                    None => own.labels.get(path) == Some(value),
                }
            })
    };
    cases
        .iter()
        .filter(move |(_, labels)| is_other(labels))
        .map(|(id, _)| id.as_str())
}

/// Whether a limit would compare a case with itself; it does not apply to that case.
pub(super) fn is_own_reference(limit: &Limit<'_>, own: &Case, cases: &[(String, Labels)]) -> bool {
    let reference = limit
        .check
        .relative
        .as_ref()
        .and_then(|it| it.case.as_ref());
    reference.is_some_and(|reference| {
        if reference.is_same_case() {
            return false;
        }
        let is_swept = |(path, _): &(String, String)| own.labels.get(path).is_some();
        reference.labels.iter().all(is_swept)
            && matching_cases(reference, own, cases).eq([own.id.as_str()])
    })
}

/// Reports a limit relative to another case that only that case itself matches.
pub(super) fn report_no_other_case(limit: &Limit<'_>, review: &mut Review) {
    if limit
        .check
        .relative
        .as_ref()
        .is_none_or(|it| it.case.is_none())
    {
        return;
    }
    let at = place_of(limit, ReferenceKind::Case, review);
    let mistake = Mistake::new(
        at,
        "this limit compares a case with itself",
        "there is no second case",
    );
    review.push(mistake.help("Sweep the value, so that there are cases to compare with it."));
}

/// The span of `baseline`, `reference` or `case` in a limit.
fn place_of(limit: &Limit<'_>, to: ReferenceKind, review: &Review) -> Span {
    word_span(limit, to.name(), review)
}

/// The checks of stages: a relative limit has a value per stage.
pub(super) fn stage_checks(
    limit: &Limit<'_>,
    about: &[Case],
    context: &RelativeContext<'_>,
    review: &mut Review,
) -> Vec<Check> {
    if limit.check.relative.is_none() {
        return vec![limit.check.clone()];
    }
    let one = |stage: &Case| {
        let check = resolve_limit(limit, stage, context, review);
        let Some(number) = stage
            .labels
            .get(STAGE)
            .filter(|_| check.when.get(STAGE).is_none())
        else {
            return check;
        };
        Check {
            when: check.when.with(STAGE, number.clone()),
            ..check
        }
    };
    about.iter().map(one).collect()
}
