//! `baseline`: the earlier run that relative limits refer to.

use crate::fault::{Mistake, Review};
use crate::files;
use crate::schema_table::Leaf;
use crate::suggest::{list, nearest};
use crate::tree::{Data, Entry, Node, Span};
use crate::values::{expect, object_schema};
use llmscen_core::baseline::{
    BASELINE_SCHEMA, Baseline, BaselineCase, Figure, LEVELS, MAX_RUNS, MIN_RUNS_FOR_SPREAD,
    SINGLE_SCHEMA,
};
use llmscen_core::check::relative::{Answers, ReferenceValue, Replicates, Spread};
use llmscen_core::check::{Check, Confidence, Subject};
use llmscen_core::label::Labels;
use llmscen_core::metric::Metric;
use llmscen_core::plan::{BaselineFile, Case};
use llmscen_core::stats::comparison::{Center, Group};
use llmscen_core::stats::share;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const NONE: &str = "none";
/// The copy of the baseline in a run folder.
pub(crate) const COPY: &str = "baseline.json";
const MAKE: &str = "Create one: run with `--set baseline=none`, then `llmscen baseline update \
    RUN_DIR --to FILE`.";

const EXPECTED: &str = "a baseline file, a run folder, or `none`";

pub(crate) static BASELINE: Leaf = Leaf {
    expected: EXPECTED,
    sweepable: false,
    schema: || {
        let keys = serde_json::json!({
            "path": { "type": "string" },
            "if_missing": { "enum": [ERROR, INCONCLUSIVE] },
            "runs": { "type": "integer", "minimum": 1, "maximum": MAX_RUNS },
            "of": { "enum": [MEAN, MEDIAN] },
        });
        serde_json::json!({ "anyOf": [{ "type": "string" }, object_schema(keys, &["path"])] })
    },
    check: |node, review| {
        let valid = |entry: &Entry| {
            let is_one_of = |words: [&str; 2]| {
                entry
                    .value
                    .text()
                    .is_some_and(|text| words.contains(&text.as_ref()))
            };
            match entry.key.as_str() {
                "path" => entry.value.text().is_some(),
                "if_missing" => is_one_of([ERROR, INCONCLUSIVE]),
                "runs" => entry
                    .value
                    .integer()
                    .is_some_and(|runs| (1..=MAX_RUNS as i128).contains(&runs.into())),
                "of" => is_one_of([MEAN, MEDIAN]),
                _ => false,
            }
        };
        let block = node.get("path").is_some() && node.entries().iter().all(valid);
        if node.text().is_none() && !block {
            let example = "`baselines/chat.json`, `{ path: baselines/chat.json, \
                           if_missing: inconclusive }`, or `{ path: reports/chat, \
                           runs: 10, of: median }` (at most 20 runs)";
            expect(node, EXPECTED, example, review);
        }
    },
};

/// The center of several runs that a limit is a multiple of.
const MEAN: &str = "mean";
const MEDIAN: &str = "median";

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
    /// A usable baseline.
    Loaded(Box<LoadedBaseline>),
}

/// A baseline, and how limits use it.
pub(crate) struct LoadedBaseline {
    pub baseline: Baseline,
    /// The value of several runs that a limit is a multiple of.
    pub center: Center,
    /// Its place in the scenario.
    pub at: Span,
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
            "baseline {named} not found; objectives relative to it will be inconclusive (create \
            it with `llmscen baseline update RUN_DIR --to {named}`)"
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
    let path = Node::new(node.at, Data::Text(path));
    let several = entry
        .value
        .entries()
        .iter()
        .filter(|entry| ["runs", "of"].contains(&entry.key.as_str()));
    let several: Vec<Entry> = several.cloned().collect();
    let value = if several.is_empty() {
        path
    } else {
        let path = Entry {
            key: "path".to_owned(),
            key_at: entry.key_at,
            value: path,
        };
        let entries = std::iter::once(path).chain(several).collect();
        Node::new(entry.value.at, Data::Map(entries))
    };
    root.set("baseline", entry.key_at, value);
}

pub(crate) fn decode(root: &Node, review: &mut Review) -> (BaselineState, Option<BaselineFile>) {
    let Some(block) = root.get("baseline") else {
        return (BaselineState::Unset, None);
    };
    let node = block.get("path").unwrap_or(block);
    if node.text().is_none() {
        return (BaselineState::Unset, None);
    }
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
    let runs = block
        .get("runs")
        .and_then(Node::integer)
        .and_then(|runs| usize::try_from(runs).ok());
    let Some(text) = read_text(node, &named, (&path, runs), review) else {
        return (BaselineState::Broken, None);
    };
    match parse(&text) {
        Ok(baseline) => (
            BaselineState::Loaded(Box::new(LoadedBaseline {
                baseline,
                center: match block.get("of").and_then(Node::text).as_deref() {
                    Some(MEDIAN) => Center::Median,
                    _ => Center::Mean,
                },
                at: node.at,
            })),
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

/// The text of a baseline file, of a run folder, or of the newest `runs` below a folder.
fn read_text(
    node: &Node,
    named: &str,
    (path, runs): (&Path, Option<usize>),
    review: &mut Review,
) -> Option<String> {
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
        |read| read(folder, runs),
    );
    match read {
        Ok(read) => {
            for note in read.notes {
                review.warn(node.at, note);
            }
            Some(read.text)
        }
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
            let baseline: Baseline =
                serde_json::from_value(value).map_err(|why| why.to_string())?;
            baseline.find_inconsistency().map_or(Ok(baseline), Err)
        }
        Some(schema) if schema.starts_with("llmscen/results/") => Err(
            "results have no confidence intervals; name their run folder, or \
            create a baseline from it"
                .to_owned(),
        ),
        Some(schema) => Err(format!("its schema is `{schema}`, not `{BASELINE_SCHEMA}`")),
        None => Err("it has no `schema`".to_owned()),
    }
}

/// Whether this is a throughput of an old baseline, which includes the drain.
fn counts_drain(case: &BaselineCase, check: &Check) -> bool {
    let of = |subject: &Subject| matches!(subject, Subject::Metric { metric, .. } if Metric::WINDOWED.contains(metric));
    of(&check.subject) && case.figure(Metric::ThroughputWindow.name()).is_none()
}

/// The case of a baseline with the labels of a case.
fn find_case<'a>(baseline: &'a Baseline, case: &Case) -> Option<&'a BaselineCase> {
    let is_same = |base_case: &&BaselineCase| {
        let labels = Labels(base_case.labels.clone().into_iter().collect());
        case.labels.0.len() == labels.0.len() && case.labels.covers(&labels)
    };
    baseline.cases.iter().find(is_same)
}

/// The answers that a limit on `match_rate` is paired with; None for other limits, and in a baseline without answers.
pub(crate) fn find_answers(
    loaded: &LoadedBaseline,
    check: &Check,
    case: &Case,
) -> Option<Arc<Answers>> {
    let is_of_answers = check.subject.is_match_rate();
    let base_case = is_of_answers.then(|| find_case(&loaded.baseline, case))?;
    base_case?.answers.clone()
}

/// The baseline's value for a check of a case; `place` is the span of the limit. Reports a missing value.
pub(crate) fn find_value(
    LoadedBaseline {
        baseline, center, ..
    }: &LoadedBaseline,
    check: &Check,
    case: &Case,
    limit_at: Span,
    review: &mut Review,
) -> Option<ReferenceValue> {
    let Some(base_case) = find_case(baseline, case) else {
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
            "It has {cases}. Restrict the limit with `when`, or refresh it: `llmscen \
            baseline update RUN_DIR`."
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
        let help = "A baseline contains every metric that its run measured, and those of the \
        limits of its plan. Refresh it from a run of this scenario: `llmscen baseline update \
        RUN_DIR`.";
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
        spread_of_runs(figure, check, (level, *center))
            .unwrap_or_else(|| figure.reference_value(Some(index))),
    )
}

/// The value with the spread between runs. None where there are too few runs, or a value of 0, which has no logarithm.
fn spread_of_runs(
    figure: &Figure,
    check: &Check,
    (level, center): (f64, Center),
) -> Option<ReferenceValue> {
    let values: Vec<f64> = figure.runs.iter().copied().flatten().collect();
    if values.len() < MIN_RUNS_FOR_SPREAD {
        return None;
    }
    let runs = values.len() as u32;
    if check.subject.is_share() {
        let group = Group::from_values(&values)?;
        let value = center.of(&values)?;
        // Bounds of a share from the number of requests of one run, at the center of all runs.
        let n = figure.n as f64;
        let low = share::lower(value * n, n, level);
        let high = share::upper(value * n, n, level);
        let low = Some(low.min(value));
        let high = Some(high.max(value));
        return Some(ReferenceValue {
            value,
            low,
            high,
            n: Some(figure.n),
            spread: Some(Spread {
                runs,
                of: Replicates::Runs,
                reach: group.prediction_half_width(level, center)?,
            }),
        });
    }
    let logs: Vec<f64> = values
        .iter()
        .filter(|value| **value > 0.0)
        .map(|value| value.ln())
        .collect();
    let group = Group::from_values(&logs).filter(|group| group.n == values.len())?;
    let reach = group.prediction_half_width(level, center)?;
    let middle = center.of(&logs)?;
    Some(ReferenceValue {
        value: middle.exp(),
        low: Some((middle - reach).exp()),
        high: Some((middle + reach).exp()),
        n: Some(figure.n),
        spread: Some(Spread {
            runs,
            reach,
            of: Replicates::Runs,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::check::Op;
    use llmscen_core::stats::interval::predicted;

    /// Standard normal values (Box and Muller) from splitmix64.
    struct Normal(u64);

    impl Normal {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = self.0;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }

        fn next(&mut self) -> f64 {
            let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
            radius * (std::f64::consts::TAU * self.uniform()).cos()
        }
    }

    /// Shares of new runs that FAIL `ttft.p95 <= baseline`, for runs whose TTFT has the standard deviation 3 %
    /// between runs.
    fn failed(runs: usize, slowdown: f64, (level, center): (f64, Center), pairs: usize) -> f64 {
        let check = crate::check::parse("ttft.p95 <= 1.0 * baseline").unwrap();
        let check = Check {
            expr: String::new(),
            subject: check.subject,
            op: Op::AtMost,
            limit: 0.0,
            relative: None,
            confidence: Confidence::Level(level),
            when: Labels::default(),
            of: llmscen_core::check::RequestSet::Ok,
            no_data: llmscen_core::check::NoData::Fail,
            abort: None,
            is_default: false,
        };
        let mut normal = Normal(7);
        let mut run = |level: f64| level * (0.03 * normal.next()).exp();
        let mut count = 0;
        for _ in 0..pairs {
            let figure = Figure {
                runs: (0..runs).map(|_| Some(run(100.0))).collect(),
                ..Figure::default()
            };
            let known = spread_of_runs(&figure, &check, (level, center)).unwrap();
            let reach = known.spread.unwrap().reach;
            let compared = predicted(run(100.0 * slowdown), known.value, reach, 1.0);
            count += usize::from(compared.interval.low > compared.limit);
        }
        count as f64 / pairs as f64
    }

    #[test]
    fn false_alarms_against_earlier_runs_have_their_nominal_rate() {
        for (level, center, bounds) in [
            (0.95, Center::Mean, 0.045..=0.055),
            (0.90, Center::Mean, 0.09..=0.11),
            // The variance of the median is that of many runs, which is above that of ten.
            (0.95, Center::Median, 0.035..=0.055),
        ] {
            let rate = failed(10, 1.0, (level, center), 20_000);
            assert!(bounds.contains(&rate), "{level} {center:?}: {rate}");
        }
        // Three standard errors of 300 pairs.
        let few = failed(10, 1.0, (0.95, Center::Mean), 300);
        assert!(few <= 0.05 + 0.038, "{few}");
    }

    #[test]
    fn a_slowdown_of_10_percent_is_found_against_earlier_runs() {
        let power = |runs, level| failed(runs, 1.1, (level, Center::Mean), 20_000);
        for (runs, level, bounds) in [
            (10, 0.95, 0.83..=0.88),
            (10, 0.90, 0.92..=0.96),
            (20, 0.95, 0.88..=0.93),
        ] {
            let found = power(runs, level);
            assert!(bounds.contains(&found), "{runs} runs at {level}: {found}");
        }
    }

    #[test]
    fn the_median_of_runs_ignores_one_bad_night() {
        assert_eq!(Center::Median.of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(Center::Median.of(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(Center::Median.of(&[]), None);
        assert_eq!(Center::Mean.of(&[1.0, 2.0, 6.0]), Some(3.0));
    }
}
