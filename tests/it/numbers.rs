//! Figures and verdicts of run folders, computed again by `tests/check_numbers.py` with numpy and scipy.

use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const PACKAGES: [&str; 5] = ["numpy", "scipy", "pyarrow", "pyyaml", "polars"];

/// Asserts that the script confirms all metrics of these run folders, in one process.
pub fn agree(folders: &[PathBuf]) {
    assert!(!folders.is_empty());
    let script = Path::new(ROOT).join("tests/check_numbers.py");
    let out = Command::new(python())
        .arg(script)
        .args(folders)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said = [out.stdout, out.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    assert!(
        out.status.success() && said.contains(" figures agree, "),
        "tests/check_numbers.py differs:\n{said}"
    );
}

/// A Python with the packages: `LLMSCEN_PYTHON`, or `target/python`, which is created if missing.
pub fn python() -> PathBuf {
    let folder = Path::new(ROOT).join("target/python");
    let own = folder.join("bin/python3");
    let named = std::env::var_os("LLMSCEN_PYTHON").map(PathBuf::from);
    let known = named
        .into_iter()
        .chain([own.clone(), PathBuf::from("python3")]);
    if let Some(python) = known.into_iter().find(|python| {
        runs(Command::new(python).args(["-c", "import numpy, scipy, pyarrow, yaml, polars"]))
    }) {
        return python;
    }
    let made = runs(Command::new("python3").args(["-m", "venv"]).arg(&folder))
        && runs(
            Command::new(&own)
                .args(["-m", "pip", "install", "--quiet"])
                .args(PACKAGES),
        );
    let packages = PACKAGES.join(" ");
    assert!(
        made,
        "no Python with {packages}: install them with pip, and name the interpreter in LLMSCEN_PYTHON"
    );
    own
}

fn runs(command: &mut Command) -> bool {
    command.output().is_ok_and(|out| out.status.success())
}
