//! Relative limits: restrictions, and their values in each case.

use crate::fault::{Mistake, Review};
use crate::sections::baseline::{self, BaselineState};
use crate::sections::reference;
use crate::sections::slo::limit::{Limit, word_span};
use crate::tree::{Node, Span};
use llmscen_core::baseline::{ReferenceKind, ReferenceValue, Relative};
use llmscen_core::check::{Check, Confidence, Subject};
use llmscen_core::label::{STAGE, Scalar};
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::plan::Case;
use llmscen_core::telemetry::TelemetrySpec;

/// The inputs of relative limits.
pub(crate) struct RelativeContext<'a> {
    pub root: &'a Node,
    pub baseline: BaselineState,
    pub telemetry: TelemetrySpec,
}

/// Reports relative limits on a metric without a confidence interval, or with `abort`.
pub(super) fn check_restrictions(limit: &Limit<'_>, review: &mut Review) {
    let check = &limit.check;
    let Some(relative) = check.relative else {
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
    let Some(why) = no_interval_reason(&check.subject) else {
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
        let help = "Relative limits can be used for quantiles, means, throughputs, `error_rate` and goodput(…)";
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
    use Metric::{ErrorRate, OutputTpsPerUser};
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
            ErrorRate | OutputTpsPerUser => None,
            metric if metric.is_rate() => None,
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
    let Some(relative) = check.relative else {
        return check;
    };
    let limit_at = place_of(limit, relative.to, review);
    let known =
        match relative.to {
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
    match &context.baseline {
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
            let help = "Set `baseline` to a file from `llmscen baseline update RUN_DIR --to FILE`, or a run folder. `baseline: none` runs without one, to create the first.";
            review.push(mistake.help(help));
            None
        }
    }
}

/// The span of `baseline` or `reference` in a limit.
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
