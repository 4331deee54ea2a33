//! `baseline`: the earlier run that relative limits refer to.

use crate::fault::{Mistake, Review};
use crate::files;
use crate::schema_table::Leaf;
use crate::suggest::{list, nearest};
use crate::tree::{Data, Node, Span};
use crate::values::{expect, object_schema};
use llmscen_core::baseline::{
    BASELINE_SCHEMA, Baseline, BaselineCase, Figure, LEVELS, MIN_RUNS_FOR_SPREAD, ReferenceValue,
    SINGLE_SCHEMA, Spread,
};
use llmscen_core::check::{Check, Confidence, Subject};
use llmscen_core::label::Labels;
use llmscen_core::metric::Metric;
use llmscen_core::plan::{BaselineFile, Case};
use llmscen_core::stats::comparison::Group;
use llmscen_core::stats::share;
use std::path::{Path, PathBuf};

const NONE: &str = "none";
/// The copy of the baseline in a run folder.
pub(crate) const COPY: &str = "baseline.json";
const MAKE: &str =
    "Create one: run with `--set baseline=none`, then `llmscen baseline update RUN_DIR --to FILE`.";

pub(crate) static BASELINE: Leaf = Leaf {
    expected: "a baseline file, a run folder, or `none`",
    sweepable: false,
    schema: || {
        let if_missing = serde_json::json!({ "enum": [ERROR, INCONCLUSIVE] });
        let keys = serde_json::json!({ "path": { "type": "string" }, "if_missing": if_missing });
        serde_json::json!({ "anyOf": [{ "type": "string" }, object_schema(keys, &["path"])] })
    },
    check: |node, review| {
        let keys = |node: &Node| {
            node.entries()
                .iter()
                .all(|entry| ["path", "if_missing"].contains(&entry.key.as_str()))
        };
        let word = node.get("if_missing").map(|word| {
            [ERROR, INCONCLUSIVE]
                .iter()
                .any(|allowed| word.text().as_deref() == Some(allowed))
        });
        let block = node.get("path").is_some_and(|path| path.text().is_some())
            && keys(node)
            && word != Some(false);
        if node.text().is_none() && !block {
            let example = "`baselines/chat.json`, or `{ path: baselines/chat.json, if_missing: inconclusive }`";
            expect(
                node,
                "a baseline file, a run folder, or `none`",
                example,
                review,
            );
        }
    },
};

/// A missing file is an error (the default), or makes relative objectives inconclusive.
const ERROR: &str = "error";
const INCONCLUSIVE: &str = "inconclusive";

/// The baseline of a scenario.
pub(crate) enum BaselineState {
    /// Not configured.
    Unset,
    /// `none`, or the file of a stored plan is missing: relative limits are inconclusive.
    Missing,
    /// Unusable; the error is reported.
    Broken,
    /// A baseline and its place in the scenario.
    Loaded(Box<Baseline>, Span),
}

/// Makes the path absolute, so that a stored plan finds the file.
pub(crate) fn normalize(root: &mut Node, review: &mut Review) {
    let Some(entry) = root.entry_at("baseline").cloned() else {
        return;
    };
    let may_miss = entry
        .value
        .get("if_missing")
        .and_then(Node::text)
        .is_some_and(|word| word == INCONCLUSIVE);
    let node = entry.value.get("path").unwrap_or(&entry.value);
    let Some(named) = node.text().filter(|named| named != NONE) else {
        return;
    };
    let found = review
        .sources
        .find(node.at.file, &named)
        .map(|path| path.display().to_string());
    if found.is_none() && may_miss {
        let message = format!(
            "baseline {named} not found; objectives relative to it will be inconclusive (create it with `llmscen baseline update RUN_DIR --to {named}`)"
        );
        review.warn(node.at, message);
    }
    let path = found.unwrap_or_else(|| {
        if may_miss {
            NONE.to_owned()
        } else {
            named.into_owned()
        }
    });
    root.set(
        "baseline",
        entry.key_at,
        Node::new(node.at, Data::Text(path)),
    );
}

pub(crate) fn decode(root: &Node, review: &mut Review) -> (BaselineState, Option<BaselineFile>) {
    let Some(node) = root.get("baseline").filter(|node| node.text().is_some()) else {
        return (BaselineState::Unset, None);
    };
    let named = node.text().unwrap_or_default().into_owned();
    if named == NONE {
        return (BaselineState::Missing, None);
    }
    let Some(path) = locate(node, &named, review) else {
        if review.sources.stored {
            review.warn(
                node.at,
                format!(
                    "baseline {named} not found; objectives relative to it will be inconclusive"
                ),
            );
            return (
                BaselineState::Missing,
                Some(BaselineFile {
                    path: named,
                    text: None,
                }),
            );
        }
        let mistake = files::no_file(node.at, &named, review).help(MAKE);
        review.push(mistake);
        return (BaselineState::Broken, None);
    };
    let Some(text) = read_text(node, &named, &path, review) else {
        return (BaselineState::Broken, None);
    };
    match parse(&text) {
        Ok(baseline) => (
            BaselineState::Loaded(Box::new(baseline), node.at),
            Some(BaselineFile {
                path: named,
                text: Some(text),
            }),
        ),
        Err(why) => {
            let read = path.file_name().map_or_else(
                || file_name(&named),
                |name| name.to_string_lossy().into_owned(),
            );
            let mistake = Mistake::new(node.at, format!("`{read}` is not a baseline"), why);
            review.push(mistake.help(MAKE));
            (BaselineState::Broken, None)
        }
    }
}

/// The baseline file. A stored plan prefers the copy in its run folder, others the file itself.
fn locate(node: &Node, named: &str, review: &Review) -> Option<PathBuf> {
    let copy = review
        .sources
        .file_in_folder(node.at.file, "manifest.json")
        .and(review.sources.file_in_folder(node.at.file, COPY));
    let file = || {
        review
            .sources
            .find(node.at.file, named)
            .filter(|path| path.exists())
    };
    if review.sources.stored {
        copy.or_else(file)
    } else {
        file().or(copy)
    }
}

fn read_text(node: &Node, named: &str, path: &Path, review: &mut Review) -> Option<String> {
    let results = path.file_name().is_some_and(|name| name == "results.json");
    let folder = if results {
        path.parent()
            .filter(|folder| folder.join("manifest.json").exists())
    } else {
        Some(path)
    };
    let Some(folder) = folder.filter(|folder| folder.is_dir()) else {
        let file = files::load(node.at, path, named, review)?;
        return Some(review.sources.text(file).to_string());
    };
    let read = review.figures.map_or_else(
        || Err("a run folder cannot be read here".to_owned()),
        |read| read(folder),
    );
    match read {
        Ok(text) => Some(text),
        Err(why) => {
            review.push(
                Mistake::new(
                    node.at,
                    format!("`{}` cannot be used as a baseline", file_name(named)),
                    why,
                )
                .help(MAKE),
            );
            None
        }
    }
}

/// The file name of a path, because the user did not write the absolute path.
fn file_name(named: &str) -> String {
    Path::new(named).file_name().map_or_else(
        || named.to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn parse(text: &str) -> Result<Baseline, String> {
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|why| format!("not JSON: {why}"))?;
    match value.get("schema").and_then(|schema| schema.as_str()) {
        Some(BASELINE_SCHEMA | SINGLE_SCHEMA) => {
            let baseline: Baseline = serde_json::from_value(value).map_err(|why| why.to_string())?;
            baseline.find_inconsistency().map_or(Ok(baseline), Err)
        }
        Some(schema) if schema.starts_with("llmscen/results/") => {
            Err("results have no confidence intervals; name their run folder, or create a baseline from it".to_owned())
        }
        Some(schema) => Err(format!("its schema is `{schema}`, not `{BASELINE_SCHEMA}`")),
        None => Err("it has no `schema`".to_owned()),
    }
}

/// Whether this is a throughput of an old baseline, which includes the drain.
fn counts_drain(case: &BaselineCase, check: &Check) -> bool {
    let of = |subject: &Subject| matches!(subject, Subject::Metric { metric, .. } if Metric::WINDOWED.contains(metric));
    of(&check.subject) && case.figure(Metric::ThroughputWindow.name()).is_none()
}

/// The baseline's value for a check of a case; `place` is the span of the limit. Reports a missing value.
pub(crate) fn find_value(
    baseline: &Baseline,
    check: &Check,
    case: &Case,
    limit_at: Span,
    review: &mut Review,
) -> Option<ReferenceValue> {
    let same =
        |labels: &Labels| case.labels.0.len() == labels.0.len() && case.labels.covers(labels);
    let labels = |case: &BaselineCase| Labels(case.labels.clone().into_iter().collect());
    let Some(base_case) = baseline
        .cases
        .iter()
        .find(|base_case| same(&labels(base_case)))
    else {
        let cases = list(
            baseline.cases.iter().map(|base_case| base_case.id.as_str()),
            "and",
        );
        let mistake = Mistake::new(
            limit_at,
            format!("the baseline has no case `{}`", case.id),
            "nothing to compare with",
        );
        let help = format!(
            "It has {cases}. Restrict the limit with `when`, or refresh it: `llmscen baseline update RUN_DIR`."
        );
        review.push(mistake.help(help));
        return None;
    };
    let name = check.figure_name();
    let Some(figure) = base_case.figure(&name) else {
        let message = format!("the baseline has no `{name}` in case `{}`", case.id);
        let names = || base_case.metrics.iter().map(|(name, _)| name.as_str());
        let label = nearest(&name, names()).map_or("does not exist in it".to_owned(), |near| {
            format!("it has `{near}`")
        });
        let help = "A baseline contains every metric that its run measured, and those of the limits of its plan. Refresh it from a run of this scenario: `llmscen baseline update RUN_DIR`.";
        review.push(Mistake::new(limit_at, message, label).help(help));
        return None;
    };
    if counts_drain(base_case, check) {
        let message =
            format!("`{name}` of the baseline includes the drain, which throughputs exclude now");
        review.warn(
            limit_at,
            format!("{message}; refresh it: `llmscen baseline update RUN_DIR`"),
        );
    }
    let Confidence::Level(level) = check.confidence else {
        return Some(figure.reference_value(None));
    };
    let Some(index) = baseline.level(level) else {
        let most = baseline.confidences.last().copied().unwrap_or(LEVELS[0]);
        let mistake = Mistake::new(
            limit_at,
            format!("the baseline has no bounds at confidence {level}"),
            "higher than its confidence levels",
        );
        review.push(mistake.help(format!("Its highest confidence level is {most}.")));
        return None;
    };
    Some(
        spread_of_runs(figure, check, level).unwrap_or_else(|| figure.reference_value(Some(index))),
    )
}

/// The value with the spread between runs. None where there are too few runs, or a value of 0, which has no logarithm.
fn spread_of_runs(figure: &Figure, check: &Check, level: f64) -> Option<ReferenceValue> {
    let values: Vec<f64> = figure.runs.iter().copied().flatten().collect();
    if values.len() < MIN_RUNS_FOR_SPREAD {
        return None;
    }
    let runs = values.len() as u32;
    if matches!(
        check.subject,
        Subject::Goodput(_)
            | Subject::Metric {
                metric: Metric::ErrorRate,
                ..
            }
    ) {
        let group = Group::from_values(&values)?;
        // Bounds of a share from the number of requests of one run, at the mean of all runs.
        let n = figure.n as f64;
        let low = share::lower(group.mean * n, n, level);
        let high = share::upper(group.mean * n, n, level);
        let low = Some(low.min(group.mean));
        let high = Some(high.max(group.mean));
        return Some(ReferenceValue {
            value: group.mean,
            low,
            high,
            n: Some(figure.n),
            spread: Some(Spread {
                runs,
                reach: group.prediction_half_width(level)?,
            }),
        });
    }
    let logs: Vec<f64> = values
        .iter()
        .filter(|value| **value > 0.0)
        .map(|value| value.ln())
        .collect();
    let group = Group::from_values(&logs).filter(|group| group.n == values.len())?;
    let reach = group.prediction_half_width(level)?;
    let of = |log: f64| Some(log.exp());
    let value = group.mean.exp();
    let low = of(group.mean - reach);
    let high = of(group.mean + reach);
    Some(ReferenceValue {
        value,
        low,
        high,
        n: Some(figure.n),
        spread: Some(Spread { runs, reach }),
    })
}
