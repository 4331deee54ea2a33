//! From the paths of the command line to plans, or to every fault in all of them.

use crate::cli::args::Sources;
use crate::cli::terminal::Terminal;
use crate::run::execution::local_model::check_model;
use crate::run::outputs::baseline::baseline_of_folder;
use crate::store::RunDir;
use llmscen_core::plan::Plan;
use llmscen_scenario::{Faults, Input, Loaded};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A plan and the file it came from.
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// The plan.
    pub plan: Plan,
}

/// Loads every scenario named. None: something is wrong, and all of it has been said.
pub fn load(sources: &Sources, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Option<Vec<Source>> {
    let mut files = Vec::new();
    let mut good = true;
    for path in &sources.paths {
        match scenario_files(path) {
            Ok(found) => files.extend(found),
            Err(why) => {
                terminal.error(&why);
                good = false;
            }
        }
    }
    let mut plans = Vec::new();
    let seed = sources.seed.map(|seed| ("seed".to_owned(), seed.to_string()));
    let set: Vec<(String, String)> = sources.set.iter().cloned().chain(seed).collect();
    for path in files {
        match load_one(&path, &set, env, terminal) {
            Some(plan) => plans.push(Source { path, plan }),
            None => good = false,
        }
    }
    if good && !sources.only.is_empty() {
        good = select(&mut plans, &sources.only, terminal);
    }
    good.then_some(plans)
}

/// Loads one scenario; its faults and warnings have been said.
pub fn load_one(path: &Path, set: &[(String, String)], env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Option<Plan> {
    say(llmscen_scenario::load_with(&Input { path, text: None, env, set }, baseline_of_folder, check_model), terminal)
}

/// Loads the stored plan of a run, whose secrets need not be set any more.
pub fn load_stored(path: &Path, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Option<Plan> {
    say(llmscen_scenario::reload(&Input { path, text: None, env, set: &[] }), terminal)
}

/// Loads what a run is judged by instead: a scenario of its own, or the run's plan with the objectives of a file.
pub fn load_judges(path: &Path, stored: &Path, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Option<Plan> {
    match llmscen_scenario::reload_with_slo(&Input { path: stored, text: None, env, set: &[] }, path) {
        Ok(None) => load_one(path, &[], env, terminal),
        Ok(Some(loaded)) => say(Ok(loaded), terminal),
        Err(faults) => say(Err(faults), terminal),
    }
}

/// Likewise, without its warnings: they were for those who ran it.
pub fn load_compared(path: &Path, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Option<Plan> {
    let loaded = llmscen_scenario::reload(&Input { path, text: None, env, set: &[] });
    say(loaded.map(|loaded| Loaded { warnings: Vec::new(), ..loaded }), terminal)
}

/// Says that the files of a run cannot be checked.
pub fn note_unchecked(folder: &RunDir, terminal: &mut Terminal) {
    if !folder.is_sealed() {
        let path = folder.path().display();
        terminal.say(&format!("note: {path} has no checksums.sha256, so its files are not checked for damage"));
    }
}

/// Warnings about a scenario that are shown; further ones are counted.
const MOST_SHOWN: usize = 50;

fn say(loaded: Result<Loaded, Faults>, terminal: &mut Terminal) -> Option<Plan> {
    match loaded {
        Ok(Loaded { plan, warnings }) => {
            terminal.hide(&plan);
            warnings.iter().take(MOST_SHOWN).for_each(|warning| terminal.remark(warning));
            let more = warnings.len().saturating_sub(MOST_SHOWN);
            if more > 0 {
                terminal.warn(&format!("… and {more} more {}", if more == 1 { "warning" } else { "warnings" }));
            }
            Some(plan)
        }
        Err(faults) => {
            terminal.complain(&faults.render(terminal.err_color, terminal.width));
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
    let entries = std::fs::read_dir(path).map_err(|error| format!("cannot read the folder {}: {error}", path.display()))?;
    let is_yaml = |path: &PathBuf| path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_yaml).collect();
    files.sort();
    match files.is_empty() {
        true => Err(format!("the folder {} contains no *.yaml or *.yml file", path.display())),
        false => Ok(files),
    }
}

/// Keeps the cases whose id holds one of the texts, in every plan; a plan left without cases goes.
fn select(plans: &mut Vec<Source>, only: &[String], terminal: &mut Terminal) -> bool {
    let ids: Vec<String> = plans.iter().flat_map(|source| source.plan.cases.iter().map(|case| case.id.clone())).collect();
    for source in plans.iter_mut() {
        source.plan.only(only);
    }
    plans.retain(|source| !source.plan.cases.is_empty());
    if plans.is_empty() {
        terminal.error(&format!("--only {}: no case has such an id; there are: {}", only.join(", "), ids.join("  ")));
    }
    !plans.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_gives_its_yaml_files_by_name() {
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
        assert!(scenario_files(empty.path()).unwrap_err().contains("no *.yaml"));
    }
}
