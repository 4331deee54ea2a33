//! checksums.sha256: the checksums of the files that are read back, in the format of `sha256sum -c`.
//!
//! Once the list contains the rows, the run is complete, and a journal left by a crash is ignored. A file is removed
//! from the list while it is replaced, so that a crash does not leave a file that seems damaged.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};

/// Name of the file in a run folder.
pub const FILE: &str = "checksums.sha256";

/// The listed file names and their checksums.
#[derive(Debug, Default)]
pub(super) struct Checksums(BTreeMap<String, String>);

impl Checksums {
    /// None if the text is not a list of checksums and file names.
    pub fn parse(text: &str) -> Option<Checksums> {
        let mut sums = BTreeMap::new();
        for line in text.lines() {
            let (sum, name) = line.split_once("  ")?;
            if sum.len() != 64 || !is_plain_name(name) {
                return None;
            }
            sums.insert(name.to_owned(), sum.to_owned());
        }
        (!sums.is_empty() && text.ends_with('\n')).then_some(Checksums(sums))
    }

    pub fn render(&self) -> String {
        self.0
            .iter()
            .map(|(name, sum)| format!("{sum}  {name}\n"))
            .collect()
    }

    pub fn insert(&mut self, name: &str, sum: String) {
        self.0.insert(name.to_owned(), sum);
    }

    pub fn remove(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    pub fn get(&self, name: &str) -> Option<&String> {
        self.0.get(name)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The listed file names.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }
}

/// Whether this is the name of a file in the folder itself.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// The SHA-256 of a file in hex.
pub fn sha256(mut file: File) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => hash.update(buffer.get(..read).unwrap_or_default()),
        }
    }
    let mut text = String::new();
    hash.finalize()
        .iter()
        .for_each(|byte| _ = write!(text, "{byte:02x}"));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::rundir::{DATABASE, MANIFEST, READINGS, ROWS, RunDir};

    /// A folder with the files of a run.
    fn folder() -> (tempfile::TempDir, RunDir) {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::at(dir.path());
        for name in ["plan.yaml", MANIFEST, ROWS] {
            run.write(name, name.as_bytes()).unwrap();
        }
        (dir, run)
    }

    fn why(run: &RunDir) -> String {
        RunDir::open(run.path())
            .unwrap_err()
            .to_string()
            .replace(&run.path().display().to_string(), "RUN")
    }

    #[test]
    fn the_list_is_one_that_sha256sum_reads() {
        let (_dir, run) = folder();
        run.seal().unwrap();
        let text = String::from_utf8(run.read(FILE).unwrap()).unwrap();
        let names: Vec<&str> = text.lines().map(|line| &line[66..]).collect();
        assert_eq!(names, ["manifest.json", "plan.yaml", "requests.parquet"]);
        assert!(
            text.lines().all(|line| line.find("  ") == Some(64)),
            "{text}"
        );
        assert_eq!(
            sha256(File::open("/dev/null").unwrap()).unwrap(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn a_changed_missing_or_added_file_is_named() {
        let (_dir, run) = folder();
        assert!(
            RunDir::open(run.path()).is_ok(),
            "a folder of an earlier version has no checksums"
        );
        run.seal().unwrap();
        assert!(RunDir::open(run.path()).is_ok());
        let remedy = "restore it from a copy, or delete RUN/checksums.sha256 to read the folder without checks";
        run.write(ROWS, b"requests.parqueT").unwrap();
        assert_eq!(
            why(&run),
            format!(
                "RUN/requests.parquet is damaged: its content does not match checksums.sha256; {remedy}"
            )
        );
        run.write(ROWS, ROWS.as_bytes()).unwrap();
        run.write(READINGS, b"of another run").unwrap();
        assert!(
            why(&run).starts_with("RUN/telemetry.parquet is damaged: it is not listed"),
            "{}",
            why(&run)
        );
        run.seal().unwrap();
        run.remove(READINGS).unwrap();
        assert!(
            why(&run).starts_with("RUN/telemetry.parquet is damaged: it is missing"),
            "{}",
            why(&run)
        );
        for list in ["", "x", "\u{0}", "0123  plan.yaml\n"] {
            run.write(FILE, list.as_bytes()).unwrap();
            assert!(
                why(&run).starts_with("RUN/checksums.sha256 is damaged: it is not a list"),
                "{}",
                why(&run)
            );
        }
        run.write(FILE, b"\xff\xfe").unwrap();
        assert!(
            why(&run).starts_with("RUN/checksums.sha256 is damaged"),
            "{}",
            why(&run)
        );
    }

    #[test]
    fn a_database_is_listed_while_it_is_complete() {
        let (_dir, run) = folder();
        run.seal().unwrap();
        run.write(DATABASE, b"rows").unwrap();
        run.check_file(DATABASE).unwrap();
        run.list_file(DATABASE).unwrap();
        run.check_file(DATABASE).unwrap();
        run.write(DATABASE, b"rowS").unwrap();
        assert!(
            run.check_file(DATABASE)
                .unwrap_err()
                .to_string()
                .contains("requests.db is damaged")
        );
        assert!(
            RunDir::open(run.path()).is_ok(),
            "it is checked where it is read"
        );
        run.unlist_file(DATABASE).unwrap();
        run.check_file(DATABASE).unwrap();
    }

    #[test]
    fn the_rows_complete_a_run() {
        let (_dir, run) = folder();
        assert!(run.is_complete().unwrap());
        run.write(crate::store::journal::FILE, b"").unwrap();
        assert!(!run.is_complete().unwrap());
        run.seal().unwrap();
        assert!(run.is_complete().unwrap());
    }
}
