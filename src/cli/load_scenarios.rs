//! Loads the scenarios of the command line, and the plans of run folders. Errors are printed here.

use crate::cli::output::plural;
use crate::cli::run::cache_dir;
use crate::cli::terminal::Terminal;
use crate::run::outputs::baseline::baseline_of_folder;
use crate::run::resources::local_model::check_model;
use crate::store::RunDir;
use clap::Args;
use llmscen_core::plan::{CaseFilter, Plan};
use llmscen_core::remote_data::{DataPin, PinData, PinError, RemoteReference};
use llmscen_scenario::{Faults, Input, Loaded, Lookups};
use llmscen_telemetry::gpu::name_of_machine;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Scenarios and overrides.
#[derive(Debug, Default, Args)]
pub struct Sources {
    /// Scenario files, folders (all *.yaml and *.yml files, sorted by name), or `-` for stdin
    #[arg(required = true, value_name = "FILE|DIR")]
    pub paths: Vec<PathBuf>,
    /// Override a field: --set load.concurrency=4
    #[arg(long = "set", value_name = "PATH=VALUE", value_parser = parse_override)]
    pub set: Vec<(String, String)>,
    /// Set the seed, as --set seed=N; repeats a run of a scenario with `seed: run`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: Option<u64>,
    /// Run only these cases: a part of their ids, or labels such as variant=mtp3,concurrency=8..64 (repeatable)
    #[arg(long, value_name = "CASES")]
    pub only: Vec<String>,
    /// Do not run these cases (repeatable)
    #[arg(long, value_name = "CASES")]
    pub skip: Vec<String>,
}

impl Sources {
    /// The cases that the options select.
    pub fn filter(&self) -> CaseFilter {
        CaseFilter {
            only: self.only.clone(),
            skip: self.skip.clone(),
        }
    }
}

/// Parses the value of `--set`.
pub fn parse_override(text: &str) -> Result<(String, String), String> {
    let (path, value) = text
        .split_once('=')
        .ok_or("expected PATH=VALUE, such as load.concurrency=4")?;
    Ok((path.trim().to_owned(), value.to_owned()))
}

/// A plan and its scenario file.
pub struct Source {
    pub path: PathBuf,
    pub plan: Plan,
    /// The cases of the scenario that the plan has.
    pub filter: CaseFilter,
}

/// Whether data of the hub are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hub {
    /// The plan gets their commit and checksums.
    Pin,
    /// Nothing is requested from the hub.
    Skip,
}

fn pin_data(
    reference: &RemoteReference,
    env: &BTreeMap<String, String>,
) -> Result<DataPin, PinError> {
    llmscen_datasets::pin_data(reference, &cache_dir(env))
}

/// Loads all scenarios. `None` after printing every error.
pub fn load_all(
    sources: &Sources,
    env: &BTreeMap<String, String>,
    hub: Hub,
    terminal: &mut Terminal,
) -> Option<Vec<Source>> {
    let mut files = Vec::new();
    let mut valid = true;
    for path in &sources.paths {
        match scenario_files(path) {
            Ok(found) => files.extend(found),
            Err(why) => {
                terminal.error(&why);
                valid = false;
            }
        }
    }
    let mut plans = Vec::new();
    let filter = sources.filter();
    let seed = sources
        .seed
        .map(|seed| ("seed".to_owned(), seed.to_string()));
    let set: Vec<(String, String)> = sources.set.iter().cloned().chain(seed).collect();
    for path in files {
        match load_one(&path, &set, env, hub, terminal) {
            Some(plan) => plans.push(Source {
                path,
                plan,
                filter: filter.clone(),
            }),
            None => valid = false,
        }
    }
    if valid && !filter.is_empty() {
        valid = select_cases(&mut plans, &filter, terminal);
    }
    valid.then_some(plans)
}

/// Loads one scenario and prints its errors and warnings.
pub fn load_one(
    path: &Path,
    set: &[(String, String)],
    env: &BTreeMap<String, String>,
    hub: Hub,
    terminal: &mut Terminal,
) -> Option<Plan> {
    report_loaded(
        llmscen_scenario::load_with(
            &Input {
                path,
                text: None,
                env,
                set,
            },
            Lookups {
                figures: baseline_of_folder,
                supports: check_model,
                find_gpu: name_of_machine,
                pin_data: (hub == Hub::Pin).then_some(pin_data as PinData),
            },
        ),
        terminal,
    )
}

/// Loads a scenario that the program wrote itself.
pub fn load_text(
    text: &str,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Option<Plan> {
    report_loaded(
        llmscen_scenario::load(&Input {
            path: Path::new("scenario"),
            text: Some(text.to_owned()),
            env,
            set: &[],
        }),
        terminal,
    )
}

/// Loads the stored plan of a run. Its secrets need not be set.
pub fn load_stored(
    path: &Path,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Option<Plan> {
    report_loaded(
        llmscen_scenario::reload(&Input {
            path,
            text: None,
            env,
            set: &[],
        }),
        terminal,
    )
}

/// Loads the plan of `report --slo`: a scenario, or the stored plan with the objectives of a file. `gpu`: the name of
/// the GPUs that the run recorded.
pub fn load_slo_override(
    path: &Path,
    stored: &Path,
    gpu: Option<String>,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Option<Plan> {
    match llmscen_scenario::reload_with_slo(
        &Input {
            path: stored,
            text: None,
            env,
            set: &[],
        },
        path,
        gpu,
    ) {
        Ok(None) => load_one(path, &[], env, Hub::Skip, terminal),
        Ok(Some(loaded)) => report_loaded(Ok(loaded), terminal),
        Err(faults) => report_loaded(Err(faults), terminal),
    }
}

/// As [`load_stored`], without warnings.
pub fn load_stored_quietly(
    path: &Path,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Option<Plan> {
    let loaded = llmscen_scenario::reload(&Input {
        path,
        text: None,
        env,
        set: &[],
    });
    report_loaded(
        loaded.map(|loaded| Loaded {
            warnings: Vec::new(),
            ..loaded
        }),
        terminal,
    )
}

/// Opens a run folder, or prints the error.
pub fn open_run(path: &Path, terminal: &mut Terminal) -> Option<RunDir> {
    RunDir::open(path)
        .map_err(|error| terminal.error(&error.to_string()))
        .ok()
}

/// Notes that the files of a run have no checksums.
pub fn note_unchecked(folder: &RunDir, terminal: &mut Terminal) {
    if !folder.is_sealed() {
        let path = folder.path().display();
        terminal.status(&format!(
            "note: {path} has no checksums.sha256, so its files are not checked for damage"
        ));
    }
}

/// Warnings per scenario that are shown; further ones are counted.
const MAX_WARNINGS: usize = 50;

fn report_loaded(loaded: Result<Loaded, Faults>, terminal: &mut Terminal) -> Option<Plan> {
    match loaded {
        Ok(Loaded { plan, warnings }) => {
            terminal.add_secrets(&plan);
            warnings
                .iter()
                .take(MAX_WARNINGS)
                .for_each(|warning| terminal.scenario_warning(warning));
            let more = warnings.len().saturating_sub(MAX_WARNINGS);
            if more > 0 {
                terminal.warn(&format!("… and {}", plural(more, "more warning")));
            }
            Some(plan)
        }
        Err(faults) => {
            terminal.diagnostic(&faults.render(terminal.err_color, terminal.width));
            None
        }
    }
}

fn scenario_files(path: &Path) -> Result<Vec<PathBuf>, String> {
    if path == Path::new("-") {
        return Ok(vec![PathBuf::from("/dev/stdin")]);
    }
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path)
        .map_err(|error| format!("cannot read the folder {}: {error}", path.display()))?;
    let is_yaml = |path: &PathBuf| {
        path.extension()
            .is_some_and(|end| end == "yaml" || end == "yml")
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(is_yaml)
        .collect();
    files.sort();
    match files.is_empty() {
        true => Err(format!(
            "the folder {} contains no *.yaml or *.yml file",
            path.display()
        )),
        false => Ok(files),
    }
}

/// Keeps the cases that the filter selects, and the plans that have such cases.
fn select_cases(plans: &mut Vec<Source>, filter: &CaseFilter, terminal: &mut Terminal) -> bool {
    let ids: Vec<String> = plans
        .iter()
        .flat_map(|source| source.plan.cases.iter().map(|case| case.id.clone()))
        .collect();
    for source in plans.iter_mut() {
        source.plan.select_cases(filter);
    }
    plans.retain(|source| !source.plan.cases.is_empty());
    if plans.is_empty() {
        terminal.error(&format!(
            "{}: no matching case; available: {}",
            filter.options().join(" "),
            ids.join("  ")
        ));
    }
    !plans.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_is_a_path_and_a_value() {
        assert_eq!(
            parse_override("load.rate=8/s"),
            Ok(("load.rate".into(), "8/s".into()))
        );
        assert_eq!(
            parse_override("vars.url=http://a/?b=c"),
            Ok(("vars.url".into(), "http://a/?b=c".into()))
        );
        assert!(parse_override("load.rate").is_err());
    }

    #[test]
    fn a_folder_means_its_yaml_files_sorted_by_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.yml", "note.txt"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let names: Vec<String> = scenario_files(folder.path())
            .unwrap()
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["a.yml", "b.yaml"]);
        let empty = tempfile::tempdir().unwrap();
        assert!(
            scenario_files(empty.path())
                .unwrap_err()
                .contains("no *.yaml")
        );
    }
}
