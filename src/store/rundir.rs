//! The run folder: its files, their checksums, and the lock of its writer.

use crate::store::atomic::{is_temporary, point_link, remove_if_exists, replace};
use crate::store::checksums::{Checksums, sha256};
use crate::store::error::StoreError;
use crate::store::{bodies, checksums, hlog, journal};
use llmscen_core::redact::Redactor;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the manifest in a run folder.
pub const MANIFEST: &str = "manifest.json";
/// Name of the request table in a run folder.
pub const ROWS: &str = "requests.parquet";
/// Rows of the rounds that had finished before a run went on.
pub const EARLIER: &str = "earlier.parquet";
/// Facts of the finished rounds, one JSON line each, for a run that goes on.
pub const FACTS: &str = "rounds.jsonl";
/// Name of the telemetry table in a run folder.
pub const READINGS: &str = "telemetry.parquet";
/// Name of the SQLite database in a run folder.
pub const DATABASE: &str = "requests.db";
/// Output of the commands of hooks.
pub const HOOKS_LOG: &str = "hooks.log";
/// Output of the commands after the load.
pub const THEN_LOG: &str = "then.log";
/// The folder of all logits.
pub(super) const LOGITS: &str = "logits";
/// Files from which every report is computed. Those that exist are listed with their checksums.
const INPUTS: [&str; 5] = ["plan.yaml", "baseline.json", MANIFEST, ROWS, READINGS];
/// Files that show that a folder contains a run.
const MARKS: &[&str] = &[
    "plan.yaml",
    MANIFEST,
    journal::FILE,
    "results.json",
    ROWS,
    EARLIER,
    FACTS,
    READINGS,
    checksums::FILE,
];
/// The other files of a run, besides charts and logits.
const OTHERS: &[&str] = &[
    "cases.csv",
    "report.md",
    "report.html",
    "junit.xml",
    "baseline.json",
    HOOKS_LOG,
    THEN_LOG,
    bodies::spool::FILE,
    hlog::FILE,
    DATABASE,
];
const CHARTS: &str = "charts";
/// The folder of judgments by other limits.
const JUDGED: &str = "slo";
/// Maximum number of runs of one scenario that start in the same second.
const MAX_RUNS_PER_SECOND: u32 = 1000;

/// Files of a run besides charts and logits.
fn files() -> impl DoubleEndedIterator<Item = &'static str> {
    MARKS.iter().chain(OTHERS).copied()
}

/// The location of a new run folder.
#[derive(Clone, Copy, Debug)]
pub struct RunLocation<'a> {
    /// This folder (`--output`); None: a new one under `dir`.
    pub explicit: Option<&'a Path>,
    /// Folder of all runs.
    pub dir: &'a Path,
    /// Name of the scenario.
    pub name: &'a str,
    /// Start of the run, `yyyymmddThhmmssZ`.
    pub started: &'a str,
    /// Use `explicit` even if it contains another run, whose files are then removed.
    pub force: bool,
}

/// A run folder.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Locked by the writer.
    lock: Option<Arc<File>>,
    /// Removes the secrets of the run from text files.
    redactor: Redactor,
}

impl PartialEq for RunDir {
    fn eq(&self, other: &RunDir) -> bool {
        self.path == other.path
    }
}

impl RunDir {
    /// Creates the folder: `explicit` itself, or `dir/name/started`, to which `dir/name/latest` then points. A second
    /// run in the same second becomes `started-2`.
    ///
    /// # Errors
    /// The folder contains another run and `force` is not set, another process writes to it, or it cannot be created
    /// or written.
    pub fn create(location: &RunLocation<'_>) -> Result<RunDir, StoreError> {
        let run = match location.explicit {
            Some(path) => RunDir::create_explicit(path, location.force)?,
            None => RunDir::create_new(&location.dir.join(location.name), location.started)?,
        };
        // Checked here, before there are results to save.
        run.write(".writable", b"")?;
        fs::remove_file(run.file(".writable")).map_err(|source| StoreError::Write {
            path: run.path.clone(),
            source,
        })?;
        Ok(run)
    }

    fn create_explicit(path: &Path, force: bool) -> Result<RunDir, StoreError> {
        fs::create_dir_all(path).map_err(|source| StoreError::Write {
            path: path.to_owned(),
            source,
        })?;
        let run = RunDir::at(path).claim()?;
        let occupied = MARKS.iter().any(|name| run.file(name).exists());
        if occupied && !force {
            return Err(StoreError::Occupied {
                path: path.to_owned(),
            });
        }
        if occupied {
            run.clear().map_err(|source| StoreError::Write {
                path: path.to_owned(),
                source,
            })?;
        }
        Ok(run)
    }

    fn create_new(runs: &Path, started: &str) -> Result<RunDir, StoreError> {
        let failed = |source| StoreError::Write {
            path: runs.to_owned(),
            source,
        };
        fs::create_dir_all(runs).map_err(failed)?;
        for number in 1..=MAX_RUNS_PER_SECOND {
            let name = if number == 1 {
                started.to_owned()
            } else {
                format!("{started}-{number}")
            };
            match fs::create_dir(runs.join(&name)) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
                Ok(()) => {
                    point_link(&runs.join("latest"), &name).map_err(failed)?;
                    return RunDir::at(&runs.join(name)).claim();
                }
            }
        }
        Err(failed(io::Error::from(ErrorKind::AlreadyExists)))
    }

    /// Opens the folder of an earlier run for reading.
    ///
    /// # Errors
    /// Names the missing or damaged file.
    pub fn open(path: &Path) -> Result<RunDir, StoreError> {
        let run = RunDir::at(path);
        let not_a_run = |missing: String| {
            Err(StoreError::NotARun {
                path: path.to_owned(),
                missing,
            })
        };
        if !path.is_dir() {
            return not_a_run(if path.exists() {
                "it is a file".into()
            } else {
                "it does not exist".into()
            });
        }
        let mut missing: Vec<&str> = ["plan.yaml", MANIFEST]
            .into_iter()
            .filter(|name| !run.file(name).exists())
            .collect();
        if !run.file(journal::FILE).exists() && !run.file(ROWS).exists() {
            missing.push("requests.parquet or journal.bin");
        }
        if !missing.is_empty() {
            return not_a_run(format!("it has no {}", missing.join(", no ")));
        }
        run.check()?;
        Ok(run)
    }

    /// Locks the folder for writing, until this is dropped.
    ///
    /// # Errors
    /// Another process writes to it.
    pub fn claim(self) -> Result<RunDir, StoreError> {
        let lock = lock(&self.path)?.map(Arc::new);
        if lock.is_some() {
            self.remove_temporary_files();
        }
        Ok(RunDir { lock, ..self })
    }

    /// Removes the temporary files of a writer that was killed.
    fn remove_temporary_files(&self) {
        let is_temporary_file = |name: &str| {
            is_temporary(name) && files().any(|file| name.starts_with(&format!(".{file}.")))
        };
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(is_temporary_file) {
                // A file that cannot be removed does no harm.
                let _ = remove_if_exists(&entry.path());
            }
        }
    }

    /// Whether another process writes to it, so that its run is in progress.
    pub fn is_live(&self) -> bool {
        self.lock.is_none() && is_locked(&self.path)
    }

    /// A folder without any check.
    pub(super) fn at(path: &Path) -> RunDir {
        RunDir {
            path: path.to_owned(),
            lock: None,
            redactor: Redactor::default(),
        }
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of one of its files, such as `report.md` or `charts/ttft_cdf.png`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The folder within this one for the reports of a judgment by the limits of a file.
    pub fn judged(&self, limits: &Path) -> RunDir {
        let stem = limits.file_stem().unwrap_or_default().to_string_lossy();
        // `..` is no name of a folder.
        let name = match stem.trim_start_matches('.') {
            "" => "limits",
            name => name,
        };
        RunDir {
            path: self.path.join(JUDGED).join(name),
            ..self.clone()
        }
    }

    /// The same folder, with secrets removed from the text files written to it.
    pub fn with_redactor(self, redactor: Redactor) -> RunDir {
        RunDir { redactor, ..self }
    }

    /// Writes a file atomically, without the secrets of the run in its text. Creates the folders in its name.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        match self.redactor.redact_file(name, bytes) {
            Some(clean) => self.write_with(name, |out| out.write_all(clean.as_bytes())),
            None => self.write_with(name, |out| out.write_all(bytes)),
        }
    }

    /// The same for content that `fill` writes in pieces.
    ///
    /// # Errors
    /// The file cannot be written, or `fill` fails.
    pub fn write_with(
        &self,
        name: &str,
        fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let path = self.file(name);
        replace(&path, fill).map_err(|source| StoreError::Write { path, source })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let path = self.file(name);
        fs::read(&path).map_err(|source| StoreError::Read { path, source })
    }

    /// Removes a file if it exists.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.file(name);
        remove_if_exists(&path).map_err(|source| StoreError::Write { path, source })
    }

    /// Writes the checksums of the files from which reports are computed.
    ///
    /// # Errors
    /// A file cannot be read, or the list cannot be written.
    pub fn seal(&self) -> Result<(), StoreError> {
        let mut sums = Checksums::default();
        for name in INPUTS.into_iter().filter(|name| self.file(name).exists()) {
            sums.insert(name, self.sum_file(name)?);
        }
        self.write_checksums(&sums)
    }

    /// Removes a file and its checksum, if it exists.
    ///
    /// # Errors
    /// The file or the list cannot be written.
    pub fn remove_listed(&self, name: &str) -> Result<(), StoreError> {
        if !self.file(name).exists() {
            return Ok(());
        }
        self.unlist_file(name)?;
        self.remove(name)
    }

    /// Whether there are checksums. Early versions wrote none.
    pub fn is_sealed(&self) -> bool {
        self.file(checksums::FILE).exists()
    }

    /// Whether the rows and the facts of the run were written.
    ///
    /// # Errors
    /// The list of checksums cannot be read.
    pub fn is_complete(&self) -> Result<bool, StoreError> {
        let has_journal = self.file(journal::FILE).exists();
        Ok(!has_journal || self.checksums()?.is_some_and(|sums| sums.contains(ROWS)))
    }

    /// Writes a file atomically and lists its checksum.
    ///
    /// # Errors
    /// The file or the list cannot be written.
    pub fn write_listed(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.unlist_file(name)?;
        self.write(name, bytes)?;
        self.list_file(name)
    }

    /// Lists the checksum of a file, if there is a list.
    pub(super) fn list_file(&self, name: &str) -> Result<(), StoreError> {
        let Some(mut sums) = self.checksums()? else {
            return Ok(());
        };
        let sum = self.sum_file(name)?;
        if sums.get(name) == Some(&sum) {
            return Ok(());
        }
        sums.insert(name, sum);
        self.write_checksums(&sums)
    }

    /// Removes a file from the list of checksums.
    pub(super) fn unlist_file(&self, name: &str) -> Result<(), StoreError> {
        let Some(mut sums) = self.checksums()? else {
            return Ok(());
        };
        match sums.remove(name) {
            Some(_) => self.write_checksums(&sums),
            None => Ok(()),
        }
    }

    /// Checks the files from which reports are computed.
    fn check(&self) -> Result<(), StoreError> {
        let Some(sums) = self.checksums()? else {
            return Ok(());
        };
        // The database is checked when it is read.
        sums.names()
            .filter(|name| *name != DATABASE)
            .try_for_each(|name| self.check_listed(name, &sums))?;
        let is_unlisted = |name: &&str| !sums.contains(name) && self.file(name).exists();
        match INPUTS
            .into_iter()
            .find(is_unlisted)
            .filter(|_| sums.contains(ROWS))
        {
            Some(name) => Err(self.damaged(
                name,
                "it is not listed in checksums.sha256, so it does not belong to this run",
            )),
            None => Ok(()),
        }
    }

    /// Checks one file, if it is listed.
    pub(super) fn check_file(&self, name: &str) -> Result<(), StoreError> {
        match self.checksums()? {
            Some(sums) if sums.contains(name) => self.check_listed(name, &sums),
            _ => Ok(()),
        }
    }

    fn check_listed(&self, name: &str, sums: &Checksums) -> Result<(), StoreError> {
        if !self.file(name).exists() {
            return Err(self.damaged(name, "it is missing, although checksums.sha256 lists it"));
        }
        let matches = sums
            .get(name)
            .is_some_and(|sum| self.sum_file(name).is_ok_and(|found| found == *sum));
        if matches {
            Ok(())
        } else {
            Err(self.damaged(name, "its content does not match checksums.sha256"))
        }
    }

    fn damaged(&self, name: &str, why: &'static str) -> StoreError {
        StoreError::Damaged {
            path: self.file(name),
            why,
            sums: self.file(checksums::FILE),
        }
    }

    fn sum_file(&self, name: &str) -> Result<String, StoreError> {
        let path = self.file(name);
        let sum = File::open(&path).and_then(sha256);
        sum.map_err(|source| StoreError::Read { path, source })
    }

    /// The list of checksums; None if there is none.
    fn checksums(&self) -> Result<Option<Checksums>, StoreError> {
        if !self.is_sealed() {
            return Ok(None);
        }
        let text = String::from_utf8(self.read(checksums::FILE)?).unwrap_or_default();
        let invalid = || {
            self.damaged(
                checksums::FILE,
                "it is not a list of checksums and file names",
            )
        };
        Checksums::parse(&text).map(Some).ok_or_else(invalid)
    }

    fn write_checksums(&self, sums: &Checksums) -> Result<(), StoreError> {
        self.write(checksums::FILE, sums.render().as_bytes())
    }

    /// Writes the charts of a report and removes other charts of an earlier report. Files that are not charts stay.
    ///
    /// # Errors
    /// A chart cannot be written or removed.
    pub fn write_charts(&self, charts: &[(String, &[u8])]) -> Result<(), StoreError> {
        let failed = |source| StoreError::Write {
            path: self.file(CHARTS),
            source,
        };
        self.remove_charts(|name| charts.iter().any(|(chart, _)| chart == name))
            .map_err(failed)?;
        charts
            .iter()
            .try_for_each(|(name, bytes)| self.write(&format!("{CHARTS}/{name}"), bytes))
    }

    /// Removes the files of a run, and no others.
    fn clear(&self) -> io::Result<()> {
        self.remove_charts(|_| false)?;
        self.remove_logits()?;
        // Judgments of the records that go.
        match fs::remove_dir_all(self.file(JUDGED)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The marks last: after a crash in between, the folder is still recognized as that of a run.
        files()
            .rev()
            .try_for_each(|name| remove_if_exists(&self.file(name)))
    }

    /// Removes charts, except those to be kept.
    fn remove_charts(&self, is_kept: impl Fn(&str) -> bool) -> io::Result<()> {
        for path in list_folder(&self.file(CHARTS))? {
            let is_chart = path
                .extension()
                .is_some_and(|extension| extension == "png" || extension == "svg");
            if is_chart
                && !path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .is_some_and(&is_kept)
            {
                remove_if_exists(&path)?;
            }
        }
        Ok(())
    }

    /// Removes the logits of an earlier run, and the folders that are empty then.
    pub(super) fn remove_logits(&self) -> io::Result<()> {
        let logits = self.file(LOGITS);
        for case in list_folder(&logits)?
            .into_iter()
            .filter(|path| path.is_dir())
        {
            for file in list_folder(&case)?
                .iter()
                .filter(|path| path.extension().is_some_and(|extension| extension == "npy"))
            {
                remove_if_exists(file)?;
            }
            // A folder that is not empty contains files of the user.
            let _ = fs::remove_dir(case);
        }
        let _ = fs::remove_dir(logits);
        Ok(())
    }
}

/// The paths in a folder; none if it does not exist.
fn list_folder(path: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// Locks a folder until the result is dropped. None: the file system does not support locks.
///
/// # Errors
/// Another process has the lock.
fn lock(folder: &Path) -> Result<Option<File>, StoreError> {
    let Ok(file) = File::open(folder) else {
        return Ok(None);
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::Error(_)) => Ok(None),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse {
            path: folder.to_owned(),
            owner: owner(&file),
        }),
    }
}

/// Whether another process has the lock.
fn is_locked(folder: &Path) -> bool {
    let tried = File::open(folder).map(|file| file.try_lock_shared());
    matches!(tried, Ok(Err(TryLockError::WouldBlock)))
}

/// ` (process N)` if /proc/locks lists the lock, else empty.
fn owner(file: &File) -> String {
    let Ok(inode) = file.metadata().map(|data| data.ino()) else {
        return String::new();
    };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    lock_holder(&locks, inode).map_or_else(String::new, |process| format!(" (process {process})"))
}

/// The process with the lock on a file, in lines such as `1: FLOCK  ADVISORY  WRITE 4711 fd:01:2097 0 EOF`.
fn lock_holder(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, process, file) = (words.next()?, words.nth(2)?, words.next()?);
        let is_file = file.rsplit(':').next()?.parse() == Ok(inode);
        if kind == "FLOCK" && is_file {
            process.parse().ok().filter(|process| *process > 0)
        } else {
            None
        }
    })
}

/// Folders are searched for runs down to this depth.
const MAX_DEPTH: usize = 8;

/// The run folders below a folder, in the order of their names. Links, such as `latest`, are not followed.
///
/// # Errors
/// The folder cannot be read; folders below it that cannot be read are left out.
pub fn find_runs(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect_runs(folder, MAX_DEPTH, &mut found)?;
    Ok(found)
}

fn collect_runs(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let is_run = |name: &str| folder.join(name).is_file();
    if is_run("results.json") || is_run(MANIFEST) {
        found.push(folder.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)?
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    for entry in entries.iter().filter(|_| depth > 0) {
        // A folder without permission inside is not the user's mistake.
        let _ = collect_runs(entry, depth - 1, found);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
