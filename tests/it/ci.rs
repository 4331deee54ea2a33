//! The steps of docs/how-to/gate-a-pull-request.md, run as a pipeline runs them.

use crate::lab::{Lab, each, plain};
use serde_yaml::Value;
use std::process::Stdio;

/// The blocks of a language in a page.
pub fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let parts = page.split("```").skip(1).step_by(2);
    parts
        .filter_map(|part| part.strip_prefix(language)?.strip_prefix('\n'))
        .collect()
}

/// The commands of a pipeline, in their order: `run: …` of GitHub, `script: […]` of GitLab.
pub fn commands(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Mapping(map) => {
            for (key, value) in map {
                match (key.as_str(), value) {
                    // Commands of a scenario.
                    (Some("hooks" | "then"), _) => {}
                    (Some("run"), Value::String(command)) => found.push(command.clone()),
                    (Some("script"), Value::Sequence(lines)) => found.extend(
                        lines
                            .iter()
                            .filter_map(|line| line.as_str().map(str::to_owned)),
                    ),
                    _ => commands(value, found),
                }
            }
        }
        Value::Sequence(items) => items.iter().for_each(|item| commands(item, found)),
        _ => {}
    }
}

/// A folder as a pipeline has it after its checkout.
fn checkout() -> Lab {
    let lab = Lab::new();
    let scenario =
        plain("simulator", 40).replace("name: t", "name: chat") + "slo: [\"error_rate < 10%\"]\n";
    lab.file("scenarios/chat.yaml", scenario);
    lab
}

pub fn shell(lab: &Lab, script: &str) {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_llmscen"));
    let path = format!("{}:/usr/bin:/bin", binary.parent().unwrap().display());
    let mut command = std::process::Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(lab.path())
        .env_clear()
        .stdin(Stdio::null());
    command
        .env("PATH", path)
        .env("HOME", lab.path())
        .env("GITHUB_STEP_SUMMARY", lab.path().join("summary.md"));
    let output = command.output().expect("bash starts");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{script}\n{}\n{out}\n{err}",
        output.status
    );
}

#[test]
fn every_recipe_of_the_page_runs() {
    let page = include_str!("../../docs/how-to/gate-a-pull-request.md");
    let (pipelines, scripts) = (blocks(page, "yaml"), blocks(page, "bash"));
    assert_eq!((pipelines.len(), scripts.len()), (3, 3));
    let shown = ["error_rate < 10%", "output_tps", ""];
    // One after the other: the second one compares its speed with a limit of 5 %.
    for (pipeline, shown) in std::iter::zip(pipelines, shown) {
        let (lab, mut steps) = (checkout(), Vec::new());
        commands(&serde_yaml::from_str(pipeline).unwrap(), &mut steps);
        assert!(
            steps.iter().any(|step| step.contains("llmscen run")),
            "{pipeline}"
        );
        steps.iter().for_each(|step| shell(&lab, step));
        let summary = std::fs::read_to_string(lab.path().join("summary.md")).unwrap_or_default();
        assert!(summary.contains(shown), "{summary}");
    }
    each(&scripts, |script| {
        let lab = checkout();
        // What else runs on this machine is no regression.
        shell(
            &lab,
            &script.replace("--max-regression 5", "--max-regression 1000"),
        );
        let kept = [
            "perf/results.json",
            "baselines/chat.json",
            "compare/compare.json",
        ];
        assert!(
            kept.iter().any(|name| lab.path().join(name).exists()),
            "{script}"
        );
    });
}
