//! checksums.sha256: what the files that are read back must be. `sha256sum -c checksums.sha256` checks it, too.
//!
//! Once it lists the rows the run is complete, and a journal that a crash left behind counts no more. A file that is replaced
//! is left out meanwhile, so that a crash leaves none that looks damaged.

use crate::store::error::StoreError;
use crate::store::rundir::RunDir;
use crate::store::{manifest, sqlite};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};

/// Name of the file in a run folder.
pub const FILE: &str = "checksums.sha256";

/// The rows.
pub const ROWS: &str = "requests.parquet";
/// What was read beside the requests.
pub const READINGS: &str = "telemetry.parquet";
/// Files that every report is made of. All that exist are listed.
const INPUTS: [&str; 5] = ["plan.yaml", "baseline.json", manifest::FILE, ROWS, READINGS];

/// The listed names and their checksums.
type Sums = BTreeMap<String, String>;

impl RunDir {
    /// Writes the checksums of the files that reports are made of, as they are now.
    ///
    /// # Errors
    /// A file cannot be read, or the list not be written.
    pub fn seal(&self) -> Result<(), StoreError> {
        let mut sums = Sums::new();
        for name in INPUTS.into_iter().filter(|name| self.file(name).exists()) {
            sums.insert(name.into(), self.sum(name)?);
        }
        self.list(&sums)
    }

    /// Whether there are checksums. Earlier versions wrote none.
    pub fn is_sealed(&self) -> bool {
        self.file(FILE).exists()
    }

    /// Whether the rows and all that is known of them were written.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn is_complete(&self) -> Result<bool, StoreError> {
        let journal = self.file(super::journal::FILE).exists();
        Ok(!journal || self.sums()?.is_some_and(|sums| sums.contains_key(ROWS)))
    }

    /// Checks the files that reports are made of.
    ///
    /// # Errors
    /// Names the file that is not what it was.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let Some(sums) = self.sums()? else { return Ok(()) };
        for name in sums.keys().filter(|name| *name != sqlite::FILE) {
            self.check_listed(name, &sums)?;
        }
        let unlisted = |name: &&str| !sums.contains_key(*name) && self.file(name).exists();
        match INPUTS.into_iter().find(unlisted).filter(|_| sums.contains_key(ROWS)) {
            Some(name) => Err(self.damaged(name, "it is not listed in checksums.sha256, so it is not of this run")),
            None => Ok(()),
        }
    }

    /// Checks one file, if it is listed.
    ///
    /// # Errors
    /// It is not what it was.
    pub(super) fn check_file(&self, name: &str) -> Result<(), StoreError> {
        match self.sums()? {
            Some(sums) if sums.contains_key(name) => self.check_listed(name, &sums),
            _ => Ok(()),
        }
    }

    /// Writes a file, whole or not at all, and lists it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_listed(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.enlist(name, false)?;
        self.write(name, bytes)?;
        self.enlist(name, true)
    }

    /// Lists a file as it is now, or leaves it out. Where there is no list, none is made.
    ///
    /// # Errors
    /// The file cannot be read, or the list not be written.
    pub(super) fn enlist(&self, name: &str, listed: bool) -> Result<(), StoreError> {
        let Some(mut sums) = self.sums()? else { return Ok(()) };
        let before = sums.remove(name);
        if listed {
            sums.insert(name.into(), self.sum(name)?);
        }
        if sums.get(name) == before.as_ref() { Ok(()) } else { self.list(&sums) }
    }

    fn check_listed(&self, name: &str, sums: &Sums) -> Result<(), StoreError> {
        if !self.file(name).exists() {
            return Err(self.damaged(name, "it is missing, although checksums.sha256 lists it"));
        }
        match sums.get(name).is_some_and(|own| self.sum(name).is_ok_and(|found| found == *own)) {
            true => Ok(()),
            false => Err(self.damaged(name, "its content does not match checksums.sha256")),
        }
    }

    fn damaged(&self, name: &str, why: &'static str) -> StoreError {
        StoreError::Damaged { path: self.file(name), why, sums: self.file(FILE) }
    }

    fn sum(&self, name: &str) -> Result<String, StoreError> {
        let path = self.file(name);
        let sum = File::open(&path).and_then(sum_of);
        sum.map_err(|source| StoreError::Read { path, source })
    }

    fn list(&self, sums: &Sums) -> Result<(), StoreError> {
        let lines: String = sums.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect();
        self.write(FILE, lines.as_bytes())
    }

    fn sums(&self) -> Result<Option<Sums>, StoreError> {
        if !self.is_sealed() {
            return Ok(None);
        }
        let text = String::from_utf8(self.read(FILE)?).unwrap_or_default();
        let lines = text.lines().map(|line| line.split_once("  ").filter(|(sum, name)| sum.len() == 64 && is_plain(name)));
        let sums: Option<Sums> = lines.map(|line| line.map(|(sum, name)| (name.to_owned(), sum.to_owned()))).collect();
        let sums = sums.filter(|sums| !sums.is_empty() && text.ends_with('\n'));
        sums.map(Some).ok_or_else(|| self.damaged(FILE, "it is not a list of checksums and file names"))
    }
}

/// Whether it names a file of the folder itself.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

fn sum_of(mut file: File) -> io::Result<String> {
    let (mut hash, mut piece) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut piece)? {
            0 => break,
            read => hash.update(piece.get(..read).unwrap_or_default()),
        }
    }
    let mut text = String::new();
    hash.finalize().iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with the files of a run.
    fn folder() -> (tempfile::TempDir, RunDir) {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::at(dir.path());
        for name in ["plan.yaml", manifest::FILE, ROWS] {
            run.write(name, name.as_bytes()).unwrap();
        }
        (dir, run)
    }

    fn why(run: &RunDir) -> String {
        RunDir::open(run.path()).unwrap_err().to_string().replace(&run.path().display().to_string(), "RUN")
    }

    #[test]
    fn the_list_is_one_that_sha256sum_reads() {
        let (_dir, run) = folder();
        run.seal().unwrap();
        let text = String::from_utf8(run.read(FILE).unwrap()).unwrap();
        let names: Vec<&str> = text.lines().map(|line| &line[66..]).collect();
        assert_eq!(names, ["manifest.json", "plan.yaml", "requests.parquet"]);
        assert!(text.lines().all(|line| line.find("  ") == Some(64)), "{text}");
        assert_eq!(
            sum_of(File::open("/dev/null").unwrap()).unwrap(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn a_file_that_changed_is_gone_or_came_is_named() {
        let (_dir, run) = folder();
        assert!(RunDir::open(run.path()).is_ok(), "a folder of an earlier version has no checksums");
        run.seal().unwrap();
        assert!(RunDir::open(run.path()).is_ok());
        let remedy = "restore it from a copy, or delete RUN/checksums.sha256 to read the folder without checks";
        run.write(ROWS, b"requests.parqueT").unwrap();
        assert_eq!(why(&run), format!("RUN/requests.parquet is damaged: its content does not match checksums.sha256; {remedy}"));
        run.write(ROWS, ROWS.as_bytes()).unwrap();
        run.write(READINGS, b"of another run").unwrap();
        assert!(why(&run).starts_with("RUN/telemetry.parquet is damaged: it is not listed"), "{}", why(&run));
        run.seal().unwrap();
        run.remove(READINGS).unwrap();
        assert!(why(&run).starts_with("RUN/telemetry.parquet is damaged: it is missing"), "{}", why(&run));
        for list in ["", "x", "\u{0}", "0123  plan.yaml\n"] {
            run.write(FILE, list.as_bytes()).unwrap();
            assert!(why(&run).starts_with("RUN/checksums.sha256 is damaged: it is not a list"), "{}", why(&run));
        }
        run.write(FILE, b"\xff\xfe").unwrap();
        assert!(why(&run).starts_with("RUN/checksums.sha256 is damaged"), "{}", why(&run));
    }

    #[test]
    fn a_database_is_listed_while_it_is_whole() {
        let (_dir, run) = folder();
        run.seal().unwrap();
        run.write(sqlite::FILE, b"rows").unwrap();
        run.check_file(sqlite::FILE).unwrap();
        run.enlist(sqlite::FILE, true).unwrap();
        run.check_file(sqlite::FILE).unwrap();
        run.write(sqlite::FILE, b"rowS").unwrap();
        assert!(run.check_file(sqlite::FILE).unwrap_err().to_string().contains("requests.db is damaged"));
        assert!(RunDir::open(run.path()).is_ok(), "it is checked where it is read");
        run.enlist(sqlite::FILE, false).unwrap();
        run.check_file(sqlite::FILE).unwrap();
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
