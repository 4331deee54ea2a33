//! What installs llmscen: the wheel, the Debian package, man pages and completions. The binary is that of the tests.

use crate::ci::blocks;
use crate::lab::{Lab, Ran, plain};
use crate::launch::{is_missing, succeeds};
use crate::pipelines::{action_steps, step};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const BINARY: &str = env!("CARGO_BIN_EXE_llmscen");

/// A tool that `.ci/run` installs into the Python of the tests, or one on PATH.
pub fn python_tool(name: &str) -> PathBuf {
    let own = Path::new(ROOT).join("target/python/bin").join(name);
    if own.is_file() {
        own
    } else {
        PathBuf::from(name)
    }
}

/// Runs a program and returns its stdout.
#[track_caller]
pub fn output_of(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|why| panic!("{command:?}: {why}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The names of the files below a folder, sorted.
fn files_below(folder: &Path) -> Vec<String> {
    let listed = output_of(
        Command::new("find")
            .arg(folder)
            .args(["-type", "f", "-printf", "%P\\n"]),
    );
    let mut files: Vec<String> = listed.lines().map(str::to_owned).collect();
    files.sort();
    files
}

/// A copy of the checkout whose `target` has only the binary of the tests, without symbols, and its extras. Packagers move
/// the binary while they work, which other tests run.
fn checkout() -> Lab {
    let lab = Lab::new();
    for entry in fs::read_dir(ROOT).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if !["target", "reports", ".git"].contains(&name.as_str()) {
            output_of(
                Command::new("cp")
                    .arg("-r")
                    .arg(entry.path())
                    .arg(lab.path()),
            );
        }
    }
    let built = lab.path().join("target/debug");
    fs::create_dir_all(&built).unwrap();
    let stripped = built.join("llmscen");
    output_of(Command::new("strip").arg("-o").arg(&stripped).arg(BINARY));
    lab.llmscen(&["extras", "target/extras"]).expect(0);
    lab
}

/// What maturin starts in place of cargo: the binary is built already.
const BUILT_ALREADY: &str = r#"#!/bin/sh
case "$1" in
rustc) echo '{"reason":"compiler-artifact","package_id":"path+file://LAB#llmscen@VERSION","manifest_path":"LAB/Cargo.toml","target":{"kind":["bin"],"crate_types":["bin"],"name":"llmscen","src_path":"LAB/src/main.rs","edition":"2024","doc":true,"doctest":false,"test":false},"profile":{"opt_level":"0","debuginfo":0,"debug_assertions":true,"overflow_checks":true,"test":false},"features":["default","local"],"filenames":["LAB/target/debug/llmscen"],"executable":"LAB/target/debug/llmscen","fresh":true}' ;;
*) exec "REAL" "$@" ;;
esac
"#;

/// Builds the wheel with maturin and returns its path.
fn wheel(lab: &Lab) -> PathBuf {
    let python = lab.path().join("python");
    let data = python.join("llmscen.data");
    let _ = fs::remove_dir_all(&data);
    lab.llmscen(&["extras", data.join("data").to_str().unwrap()])
        .expect(0);
    let script = BUILT_ALREADY
        .replace("LAB", lab.path().to_str().unwrap())
        .replace("VERSION", env!("CARGO_PKG_VERSION"))
        .replace("REAL", env!("CARGO"));
    let cargo = lab.file("cargo", script);
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let mut maturin = Command::new(python_tool("maturin"));
    maturin
        .args([
            "build",
            "--profile",
            "dev",
            "--locked",
            "--compatibility",
            "linux",
            "--out",
        ])
        .arg(lab.path().join("dist"))
        .env("CARGO", cargo)
        .env_remove("CARGO_TARGET_DIR")
        .current_dir(&python);
    output_of(&mut maturin);
    let mut wheels = fs::read_dir(lab.path().join("dist")).unwrap();
    wheels.next().unwrap().unwrap().path()
}

/// Commands of docs/install.md that are not run, and why.
const NOT_RUN: [(&str, &str); 5] = [
    (
        "cargo install --locked --path .",
        "builds for minutes; the release workflow builds the same",
    ),
    (
        concat!(
            "sudo dpkg --install llmscen_",
            env!("CARGO_PKG_VERSION"),
            "-1_amd64.deb"
        ),
        "a_debian_package_installs_what_it_should installs into a folder",
    ),
    (
        "docker build --tag llmscen .",
        "needs Docker; the release workflow builds and runs the image",
    ),
    (
        "docker run --rm --user \"$(id -u)\" --volume \"$PWD:/work\" llmscen run chat.yaml",
        "as above",
    ),
    (
        ".venv/bin/pip install llmscen",
        "a_wheel_installs_into_a_fresh_environment_and_runs has the wheel",
    ),
];

/// The command lines of docs/project/install.md.
fn page_commands() -> Vec<String> {
    let blocks = blocks(include_str!("../../docs/project/install.md"), "console");
    let lines = blocks.into_iter().flat_map(str::lines);
    lines
        .filter_map(|line| line.strip_prefix("$ "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_other_command_of_the_page_runs() {
    let commands = page_commands();
    for (command, why) in NOT_RUN {
        assert!(
            commands.iter().any(|line| line == command),
            "{command} ({why}) is not in the page"
        );
    }
    let lab = Lab::new();
    let others = commands
        .iter()
        .filter(|line| !NOT_RUN.iter().any(|(own, _)| own == *line));
    let others: Vec<&String> = others.filter(|line| !line.contains(".venv")).collect();
    assert_eq!(others.len(), 2, "{others:?}");
    for line in others {
        step(&lab, line, &Default::default()).expect(0);
    }
    assert!(lab.path().join(".local/share/man/man1/llmscen.1").is_file());
}

#[test]
fn every_crate_has_what_a_registry_needs() {
    let lab = checkout();
    let mut pack = Command::new(env!("CARGO"));
    pack.args([
        "package",
        "--workspace",
        "--no-verify",
        "--allow-dirty",
        "--offline",
        "--locked",
        "--quiet",
    ]);
    let packed = Ran::of(
        pack.current_dir(lab.path())
            .env_remove("CARGO_TARGET_DIR")
            .output()
            .unwrap(),
    );
    // Without the index of the registry there is nothing to resolve with.
    if is_missing(
        "the index of the registry",
        !packed.err.contains("--offline"),
    ) {
        return;
    }
    assert_eq!(packed.code, 0, "{}", packed.err);
    assert!(!packed.err.contains("manifest has no"), "{}", packed.err);
    let crates = fs::read_dir(lab.path().join("target/package"))
        .unwrap()
        .map(|entry| entry.unwrap());
    let mut count = 0;
    for file in crates.filter(|entry| entry.path().extension().is_some_and(|end| end == "crate")) {
        let size = file.metadata().unwrap().len();
        assert!(size < 1_000_000, "{:?}: {size} bytes", file.file_name());
        count += 1;
    }
    assert_eq!(count, 14);
}

#[test]
fn a_wheel_installs_into_a_fresh_environment_and_runs() {
    let python = Path::new(ROOT).join("target/python/bin/python3");
    if is_missing(
        "maturin",
        succeeds(python_tool("maturin"), &["--version"]) && python.is_file(),
    ) {
        return;
    }
    let lab = checkout();
    let wheel = wheel(&lab);
    // The commands of the page, and the first step of the action, with the wheel instead of the registry.
    let path = format!("{}:/usr/bin:/bin", python.parent().unwrap().display());
    let offline = [
        ("PATH", path.as_str()),
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", wheel.parent().unwrap().to_str().unwrap()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let installs = page_commands()
        .into_iter()
        .filter(|line| line.contains(".venv"));
    for line in installs.collect::<Vec<_>>() {
        step(&lab, &line, &offline.clone().into()).expect(0);
    }
    let environment = lab.path().join(".venv");
    let own = environment.join("bin/python3");
    let version = env!("CARGO_PKG_VERSION");
    let (_, script, mut env) = action_steps(&[("scenario", ""), ("version", version)]).remove(0);
    env.extend(offline);
    step(&lab, &script, &env).expect(0);
    let added = lab.text("paths");
    assert!(Path::new(added.trim()).join("llmscen").is_file(), "{added}");

    // What the wheel brings, and the shortest scenario.
    let manual = environment.join("share/man/man1/llmscen-run.1");
    assert!(fs::read_to_string(manual).unwrap().contains(".SH OPTIONS"));
    for name in [
        "bash-completion/completions/llmscen",
        "zsh/site-functions/_llmscen",
    ] {
        assert!(environment.join("share").join(name).is_file(), "{name}");
    }
    let program = environment.join("bin/llmscen");
    let version = output_of(Command::new(&program).arg("--version"));
    assert_eq!(
        version,
        concat!("llmscen ", env!("CARGO_PKG_VERSION"), "\n")
    );
    let quickstart = Path::new(ROOT).join("scenarios/quickstart.yaml");
    let mut run = Command::new(&program);
    run.arg("run")
        .arg(quickstart)
        .args(["--output", "quickstart"]);
    // A verdict depends on the machine.
    let code = run.current_dir(lab.path()).output().unwrap().status.code();
    assert!(matches!(code, Some(0 | 4 | 5)), "{code:?}");
    assert!(lab.path().join("quickstart/report.html").is_file());

    // The scripts of the page, in a folder with the scenario that they name.
    let scripts = blocks(include_str!("../../docs/how-to/python.md"), "python");
    assert_eq!(scripts.len(), 3);
    lab.file("chat.yaml", plain("simulator", 40));
    let libraries = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let libraries = output_of(Command::new(&python).args(["-c", libraries]));
    let libraries = libraries.trim();
    for script in scripts {
        if script.contains(".requests()") && !succeeds(&python, &["-c", "import polars"]) {
            continue;
        }
        let mut run = Command::new(&own);
        run.args(["-c", script]).env("PYTHONPATH", libraries);
        output_of(run.current_dir(lab.path()));
    }

    // The tests of the package, with polars and pandas where the Python of the tests has them.
    let mut tests = Command::new(&own);
    tests.args(["-m", "unittest", "discover", "-s", "tests"]);
    tests
        .env("PYTHONPATH", libraries)
        .current_dir(lab.path().join("python"));
    let ran = tests.output().unwrap();
    let shown = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && shown.contains("\nOK"), "{shown}");
    if is_missing("polars, pandas or pyarrow", !shown.contains("skipped=")) {
        return;
    }
    let mut types = Command::new(python_tool("mypy"));
    types
        .args([
            "--strict",
            "--cache-dir",
            "/dev/null",
            "--python-executable",
        ])
        .arg(&own);
    types
        .args(["llmscen", "tests"])
        .current_dir(lab.path().join("python"));
    output_of(&mut types);
}

#[test]
fn a_debian_package_installs_what_it_should() {
    let found = succeeds("cargo-deb", &["--version"]) && succeeds("dpkg", &["--version"]);
    if is_missing("cargo-deb or dpkg", found) {
        return;
    }
    let lab = checkout();
    let mut build = Command::new("cargo-deb");
    build.args([
        "--no-build",
        "--no-strip",
        "--fast",
        "--locked",
        "--offline",
        "--profile",
        "dev",
        "--output",
    ]);
    build
        .arg(lab.path().join("llmscen.deb"))
        .current_dir(lab.path());
    output_of(
        build
            .env("CARGO", env!("CARGO"))
            .env_remove("CARGO_TARGET_DIR"),
    );

    let fields = output_of(
        Command::new("dpkg-deb")
            .args(["--field", "llmscen.deb"])
            .current_dir(lab.path()),
    );
    for field in [
        "Package: llmscen",
        concat!("Version: ", env!("CARGO_PKG_VERSION")),
        "Depends: libc6",
    ] {
        assert!(fields.contains(field), "{field}\n{fields}");
    }
    // Into a folder of its own, where its dependencies are not.
    let root = lab.path().join("root");
    fs::create_dir_all(root.join("var/lib/dpkg/updates")).unwrap();
    fs::create_dir_all(root.join("var/lib/dpkg/info")).unwrap();
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let mut install = Command::new("dpkg");
    install
        .args([
            "--force-not-root",
            "--force-depends",
            "--log=/dev/null",
            "--root",
        ])
        .arg(&root);
    output_of(
        install
            .args(["--install", "llmscen.deb"])
            .current_dir(lab.path()),
    );
    let installed = files_below(&root.join("usr"));
    for name in [
        "bin/llmscen",
        "share/bash-completion/completions/llmscen",
        "share/doc/llmscen/LICENSE-APACHE",
        "share/doc/llmscen/LICENSE-MIT",
        "share/doc/llmscen/copyright",
        "share/fish/vendor_completions.d/llmscen.fish",
        "share/man/man1/llmscen-run.1.gz",
        "share/zsh/vendor-completions/_llmscen",
    ] {
        assert!(
            installed.iter().any(|file| file == name),
            "{name} is not in {installed:?}"
        );
    }
    let version = output_of(Command::new(root.join("usr/bin/llmscen")).arg("--version"));
    assert_eq!(
        version,
        concat!("llmscen ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn every_command_has_a_man_page_without_errors() {
    let lab = Lab::new();
    lab.llmscen(&["extras", "here"]).expect(0);
    let folder = lab.path().join("here/share/man/man1");
    let pages = files_below(&folder);
    let help = lab.llmscen(&["--help"]).expect(0).out;
    let listed = help.split("\nOptions:").next().unwrap();
    let commands = listed
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    for command in commands.filter(|name| !name.is_empty() && *name != "help") {
        let name = format!("llmscen-{command}.1");
        assert!(pages.contains(&name), "{name} is not in {pages:?}");
    }
    assert!(
        pages.contains(&"llmscen.1".to_owned()) && !pages.contains(&"llmscen-guard.1".to_owned()),
        "{pages:?}"
    );
    assert!(pages.len() > 15, "{pages:?}");
    let shown = fs::read_to_string(folder.join("llmscen.1")).unwrap();
    assert!(shown.contains("Exit codes: 0 pass"), "{shown}");
    if is_missing("mandoc", succeeds("sh", &["-c", "command -v mandoc"])) {
        return;
    }
    output_of(
        Command::new("mandoc")
            .args(["-T", "lint", "-W", "error"])
            .args(&pages)
            .current_dir(&folder),
    );
}

#[test]
fn completion_scripts_have_no_syntax_errors_and_complete() {
    let lab = Lab::new();
    lab.llmscen(&["extras", "here"]).expect(0);
    let share = lab.path().join("here/share");
    let bash = share.join("bash-completion/completions/llmscen");
    let ask = format!(
        ". {}; COMP_WORDS=(llmscen va); COMP_CWORD=1; _llmscen llmscen va llmscen; echo \"${{COMPREPLY[@]}}\"",
        bash.display()
    );
    assert_eq!(
        output_of(Command::new("bash").args(["-c", &ask])),
        "validate\n"
    );
    let others = [
        ("zsh", "zsh/site-functions/_llmscen"),
        ("fish", "fish/vendor_completions.d/llmscen.fish"),
    ];
    for (shell, name) in others {
        if !is_missing(shell, succeeds(shell, &["--version"])) {
            output_of(Command::new(shell).arg("-n").arg(share.join(name)));
        }
    }
}
