//! `action.yml`, `templates/ci/`, the pre-commit hook, the workflows and the Dockerfile: linted, and their steps executed.

use crate::ci::{blocks, commands};
use crate::lab::{Lab, Ran, plain};
use crate::launch::{is_missing, succeeds};
use crate::packages::{output_of, python_tool};
use serde_yaml::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const BINARY: &str = env!("CARGO_BIN_EXE_llmscen");
const ACTION: &str = include_str!("../../action.yml");

fn yaml(name: &str) -> Value {
    let text = std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
    serde_yaml::from_str(&text).unwrap_or_else(|why| panic!("{name}: {why}"))
}

/// A folder with a scenario whose errors must stay below a share.
fn checkout(slo: &str) -> Lab {
    let lab = Lab::new();
    let scenario = plain("simulator", 40).replace("name: t", "name: chat");
    lab.file(
        "scenarios/chat.yaml",
        format!("{scenario}slo: [\"{slo}\"]\n"),
    );
    lab
}

/// Runs a step with llmscen on PATH, and with the variables of GitHub.
pub fn step(lab: &Lab, script: &str, env: &BTreeMap<String, String>) -> Ran {
    let folder = Path::new(BINARY).parent().unwrap();
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", script])
        .current_dir(lab.path())
        .env_clear()
        .stdin(Stdio::null())
        .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
        .env("HOME", lab.path())
        .env("RUNNER_TEMP", lab.path())
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_OUTPUT", lab.path().join("outputs"))
        .env("GITHUB_PATH", lab.path().join("paths"))
        .env("GITHUB_STEP_SUMMARY", lab.path().join("summary.md"))
        .envs(env);
    Ran::of(bash.output().expect("bash starts"))
}

/// The steps of the action that run a script, each with its variables.
pub fn action_steps(inputs: &[(&str, &str)]) -> Vec<(String, String, BTreeMap<String, String>)> {
    let action = yaml("action.yml");
    let input = |name: &str| {
        let given = inputs
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| *value);
        let default = action["inputs"][name]["default"].as_str();
        given
            .or(default)
            .unwrap_or_else(|| panic!("input {name}"))
            .to_owned()
    };
    let steps = action["runs"]["steps"].as_sequence().unwrap();
    let scripts = steps.iter().filter(|step| step["run"].is_string());
    scripts
        .map(|step| {
            let env = step["env"]
                .as_mapping()
                .unwrap()
                .iter()
                .map(|(name, value)| {
                    let value = value.as_str().unwrap();
                    let name_of_input = value
                        .strip_prefix("${{ inputs.")
                        .unwrap()
                        .strip_suffix(" }}")
                        .unwrap();
                    (name.as_str().unwrap().to_owned(), input(name_of_input))
                });
            let text = |key: &str| step[key].as_str().unwrap().to_owned();
            (text("name"), text("run"), env.collect())
        })
        .collect()
}

/// Runs all scripts of the action; the exit code of its run, and its annotations.
fn act(lab: &Lab, inputs: &[(&str, &str)]) -> (i32, String) {
    let (mut code, mut annotations) = (None, String::new());
    for (name, script, env) in action_steps(inputs) {
        let ran = step(lab, &script, &env);
        match name.as_str() {
            "Run" => {
                code = Some(ran.code);
                let lines = ran.err.lines().filter(|line| line.starts_with("::"));
                annotations = lines.map(|line| format!("{line}\n")).collect();
            }
            _ => drop(ran.expect(0)),
        }
    }
    (code.expect("a step `Run`"), annotations)
}

#[test]
fn the_action_runs_and_annotates() {
    let lab = checkout("error_rate < 10%");
    let inputs = [
        ("scenario", "scenarios/chat.yaml"),
        ("args", "--set load.requests=30 --seed 7"),
    ];
    let (code, annotations) = act(&lab, &inputs);
    assert_eq!((code, annotations.as_str()), (0, ""));
    assert_eq!(lab.text("outputs"), "verdict=pass\n");
    assert_eq!(lab.json("llmscen-report/results.json")["seed"], 7);
    assert!(lab.path().join("llmscen-report/report.html").is_file());
    assert!(lab.text("summary.md").contains("error_rate < 10%"));
    // llmscen was on PATH.
    assert!(!lab.path().join("paths").exists());

    let lab = checkout("error_rate > 50%");
    let (code, annotations) = act(&lab, &[("scenario", "scenarios/chat.yaml")]);
    assert_eq!((code, lab.text("outputs").as_str()), (1, "verdict=fail\n"));
    let expected =
        "::error title=llmscen chat::FAIL: error_rate > 50%25 in base: 0%25 (0.00x of the limit)\n";
    assert_eq!(annotations, expected);

    let lab = checkout("nonsense < 1");
    let (code, annotations) = act(&lab, &[("scenario", "scenarios/chat.yaml")]);
    assert_eq!((code, lab.text("outputs").as_str()), (2, "verdict=error\n"));
    assert_eq!(annotations, "");
}

#[test]
fn the_gitlab_job_runs() {
    let job = yaml("templates/ci/gitlab.yml")[".llmscen"].clone();
    let env = job["variables"].as_mapping().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let env: BTreeMap<String, String> =
        env.map(|(name, value)| (text(name), text(value))).collect();
    let lab = checkout("error_rate < 10%");
    let before = job["before_script"].as_sequence().unwrap();
    let mut scripts: Vec<String> = before.iter().map(text).collect();
    commands(&job, &mut scripts);
    assert!(scripts.len() >= 3, "{scripts:?}");
    for script in scripts {
        step(&lab, &script, &env).expect(0);
    }
    let junit = text(&job["artifacts"]["reports"]["junit"]).replace("$OUTPUT", &env["OUTPUT"]);
    assert!(lab.text(&junit).contains("error_rate &lt; 10%"));
}

#[test]
fn the_pre_commit_hook_refuses_a_wrong_scenario() {
    let pre_commit = python_tool("pre-commit");
    let found = succeeds(&pre_commit, &["--version"]) && succeeds("git", &["--version"]);
    if is_missing("pre-commit or git", found) {
        return;
    }
    let lab = checkout("error_rate < 10%");
    let script = r#"
        git init --quiet hooks && cp "$ROOT/.pre-commit-hooks.yaml" hooks/
        git init --quiet project && cp -r scenarios project/
        for folder in hooks project; do git -C $folder add -A; git -C $folder commit --quiet -m all; done
        cd project && "$PRE_COMMIT" try-repo ../hooks llmscen-validate --all-files --verbose"#;
    let mut env: BTreeMap<String, String> = [
        ("ROOT", ROOT),
        ("PRE_COMMIT", pre_commit.to_str().unwrap()),
        ("GIT_AUTHOR_NAME", "a"),
        ("GIT_AUTHOR_EMAIL", "a@localhost"),
        ("GIT_COMMITTER_NAME", "a"),
        ("GIT_COMMITTER_EMAIL", "a@localhost"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    env.insert(
        "PRE_COMMIT_HOME".to_owned(),
        lab.path().join("cache").display().to_string(),
    );
    let ran = step(&lab, script, &env).expect(0);
    assert!(
        ran.out.contains("scenarios/chat.yaml: ok, 1 case"),
        "{}",
        ran.out
    );

    let lab = checkout("nonsense < 1");
    let ran = step(&lab, script, &env);
    assert!(
        ran.code != 0 && ran.out.contains("nonsense"),
        "{}\n{}",
        ran.out,
        ran.err
    );
}

#[test]
fn workflows_and_templates_are_valid() {
    let (actionlint, schemas) = (python_tool("actionlint"), python_tool("check-jsonschema"));
    let found = succeeds(&actionlint, &["-version"]) && succeeds(&schemas, &["--version"]);
    if is_missing("actionlint or check-jsonschema", found) {
        return;
    }
    // shellcheck checks the scripts, if it is there.
    let path = format!(
        "{ROOT}/target/python/bin:{}",
        std::env::var("PATH").unwrap()
    );
    let workflows = [".github/workflows/ci.yml", ".github/workflows/release.yml"];
    output_of(
        Command::new(actionlint)
            .args(workflows)
            .env("PATH", path)
            .current_dir(ROOT),
    );
    let kinds: [(&[&str], &str); 3] = [
        (&["vendor.github-workflows"], workflows[1]),
        (&["vendor.github-actions"], "action.yml"),
        (
            &["vendor.gitlab-ci", "--data-transform", "gitlab-ci"],
            "templates/ci/gitlab.yml",
        ),
    ];
    for (schema, file) in kinds {
        let mut check = Command::new(&schemas);
        output_of(
            check
                .arg("--builtin-schema")
                .args(schema)
                .arg(file)
                .current_dir(ROOT),
        );
    }
}

#[test]
fn every_action_has_a_version() {
    let workflows =
        ["ci.yml", "release.yml"].map(|name| format!("{ROOT}/.github/workflows/{name}"));
    let texts = workflows
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap());
    let text = texts.chain([ACTION.to_owned()]).collect::<String>();
    let uses: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once("uses: "))
        .map(|(_, action)| action)
        .collect();
    assert!(uses.len() > 10, "{uses:?}");
    for action in uses.iter().filter(|action| !action.starts_with("./")) {
        let version = action.split_once('@').expect(action).1;
        assert!(
            version.trim_start_matches("release/").starts_with('v'),
            "{action}"
        );
    }
}

#[test]
fn the_dockerfile_has_no_findings_and_the_version_of_rust() {
    let docker = std::fs::read_to_string(Path::new(ROOT).join("Dockerfile")).unwrap();
    let rust = format!("FROM rust:{}-alpine ", env!("CARGO_PKG_RUST_VERSION"));
    assert!(docker.contains(&rust), "{rust}");
    let hadolint = python_tool("hadolint");
    if !is_missing("hadolint", succeeds(&hadolint, &["--version"])) {
        output_of(Command::new(hadolint).arg("Dockerfile").current_dir(ROOT));
    }
}

#[test]
fn a_release_takes_its_notes_out_of_the_changelog() {
    let notes = |version: &str, changelog: &Path| {
        let script = Path::new(ROOT).join(".ci/release-notes");
        Ran::of(
            Command::new(script)
                .arg(version)
                .arg(changelog)
                .output()
                .unwrap(),
        )
    };
    let lab = Lab::new();
    let text = "# Changelog\n\n## Unreleased\n\n- later\n\n## 1.10.0 - 2026-01-02\n\n### Added\n- new\n\n## 1.1.0 - 2026-01-01\n- old\n";
    let changelog = lab.file("CHANGELOG.md", text);
    assert_eq!(
        notes("1.10.0", &changelog).expect(0).out,
        "### Added\n- new\n"
    );
    assert_eq!(notes("1.1.0", &changelog).expect(0).out, "- old\n");
    let missing = notes("1.0.0", &changelog).expect(1);
    assert!(
        missing.err.contains("CHANGELOG.md has no notes for 1.0.0"),
        "{}",
        missing.err
    );
    // The file of this project has the same form.
    let own = Path::new(ROOT).join("CHANGELOG.md");
    assert!(notes("Unreleased", &own).expect(0).out.starts_with("### "));
}

#[test]
fn the_page_uses_the_action_and_the_hook_as_they_are() {
    let page = include_str!("../../docs/project/install.md");
    let examples = blocks(page, "yaml");
    let [action, hooks] = <[&str; 2]>::try_from(examples).expect("an action and a hook");
    let value: Value = serde_yaml::from_str(action).unwrap();
    let given = value["steps"][1]["with"].as_mapping().unwrap();
    let declared = &yaml("action.yml")["inputs"];
    for (name, _) in given {
        assert!(declared[name].is_mapping(), "{name:?} is not an input");
    }
    let value: Value = serde_yaml::from_str(hooks).unwrap();
    let hook = yaml(".pre-commit-hooks.yaml")[0]["id"].clone();
    assert_eq!(value["repos"][0]["hooks"][0]["id"], hook);
    // The versions are those of this release.
    for used in ["OWNER/llmscen@v", "rev: v", "llmscen_"] {
        let current = format!("{used}{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(
            page.matches(used).count(),
            page.matches(&current).count(),
            "{used}"
        );
    }
}

#[test]
fn versions_agree() {
    let own = env!("CARGO_PKG_VERSION");
    let file = |name: &str| std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
    // The wheel takes its version from Cargo.toml.
    let project = file("python/pyproject.toml");
    assert!(project.contains("dynamic = [\"version\"]") && !project.contains("\nversion ="));
    // The crates refer to each other by this version.
    let manifest = file("Cargo.toml");
    let members = manifest
        .lines()
        .filter(|line| line.contains("path = \"crates/"));
    for line in members {
        assert!(line.contains(&format!("version = \"{own}\"")), "{line}");
    }
    // `cargo binstall` looks for the archives under the names that the workflow gives them.
    assert!(manifest.contains("/v{ version }/llmscen-v{ version }-{ target }.tar.gz"));
    let release = file(".github/workflows/release.yml");
    assert!(
        release.contains("root=\"llmscen-v$VERSION-$TARGET\"")
            && release.contains("\"dist/$root.tar.gz\"")
    );
    // The newest release of the changelog is this version; before the first one there is none.
    let changelog = file("CHANGELOG.md");
    let mut headings = changelog
        .lines()
        .filter_map(|line| line.strip_prefix("## "));
    assert_eq!(headings.clone().next(), Some("Unreleased"));
    if let Some(newest) = headings.nth(1) {
        assert_eq!(newest.split(' ').next(), Some(own), "{newest}");
    }
}
