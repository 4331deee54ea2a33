//! The folder of one run.

use crate::store::atomic::{is_unfinished, point_link, remove_if_there, replace};
use crate::store::error::StoreError;
use crate::store::{bodies, checksums, hlog, journal, manifest, sqlite};
use llmscen_core::redact::Redactor;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of a run, next to its charts. Any of the first seven says that a folder holds one.
const FILES: &[&str] = &[
    "plan.yaml",
    manifest::FILE,
    journal::FILE,
    "results.json",
    checksums::ROWS,
    checksums::READINGS,
    checksums::FILE,
    "cases.csv",
    "report.md",
    "report.html",
    "junit.xml",
    "baseline.json",
    bodies::spool::FILE,
    hlog::FILE,
    sqlite::FILE,
];
const MARKS: usize = 7;
/// Runs of one scenario that may begin in the same second.
const TWINS: u32 = 1000;

/// Where a run is to be kept.
#[derive(Clone, Copy, Debug)]
pub struct Where<'a> {
    /// Exactly this folder (`--output`); None: a new one under `dir`.
    pub explicit: Option<&'a Path>,
    /// Folder of all runs.
    pub dir: &'a Path,
    /// Name of the scenario.
    pub name: &'a str,
    /// Start of the run, `yyyymmddThhmmssZ`.
    pub started: &'a str,
    /// Use `explicit` even if it holds another run, whose files are removed.
    pub force: bool,
}

/// The folder of a run.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Held by the one that writes.
    lock: Option<Arc<File>>,
    /// Strikes the secrets of the run from what is written here.
    redactor: Redactor,
}

impl PartialEq for RunDir {
    fn eq(&self, other: &RunDir) -> bool {
        self.path == other.path
    }
}

impl RunDir {
    /// Makes the folder: `explicit` itself, or `dir/name/started`, which `dir/name/latest` then points to. A second run
    /// in the same second becomes `started-2`.
    ///
    /// # Errors
    /// The folder holds another run and `force` is not set, another process writes to it, or it cannot be made or written.
    pub fn create(place: &Where<'_>) -> Result<RunDir, StoreError> {
        let run = match place.explicit {
            Some(path) => RunDir::exactly(path, place.force)?,
            None => RunDir::under(&place.dir.join(place.name), place.started)?,
        };
        // Found out now rather than when the first result is to be saved.
        run.write(".writable", b"")?;
        fs::remove_file(run.file(".writable")).map_err(|source| StoreError::Write { path: run.path.clone(), source })?;
        Ok(run)
    }

    fn exactly(path: &Path, force: bool) -> Result<RunDir, StoreError> {
        fs::create_dir_all(path).map_err(|source| StoreError::Write { path: path.to_owned(), source })?;
        let run = RunDir::at(path).claim()?;
        let occupied = FILES[..MARKS].iter().any(|name| run.file(name).exists());
        if occupied && !force {
            return Err(StoreError::Occupied { path: path.to_owned() });
        }
        if occupied {
            run.clear().map_err(|source| StoreError::Write { path: path.to_owned(), source })?;
        }
        Ok(run)
    }

    fn under(runs: &Path, started: &str) -> Result<RunDir, StoreError> {
        let failed = |source| StoreError::Write { path: runs.to_owned(), source };
        fs::create_dir_all(runs).map_err(failed)?;
        for twin in 1..=TWINS {
            let name = if twin == 1 { started.to_owned() } else { format!("{started}-{twin}") };
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

    /// Opens the folder of an earlier run, to read it.
    ///
    /// # Errors
    /// Names what is missing or damaged.
    pub fn open(path: &Path) -> Result<RunDir, StoreError> {
        let run = RunDir::at(path);
        let not = |missing: String| Err(StoreError::NotARun { path: path.to_owned(), missing });
        if !path.is_dir() {
            return not(if path.exists() { "it is a file; name its folder".into() } else { "it does not exist".into() });
        }
        let mut missing: Vec<&str> = FILES[..2].iter().copied().filter(|name| !run.file(name).exists()).collect();
        if !run.file(journal::FILE).exists() && !run.file("requests.parquet").exists() {
            missing.push("requests.parquet or journal.bin");
        }
        if !missing.is_empty() {
            return not(format!("it has no {}", missing.join(", no ")));
        }
        run.check()?;
        Ok(run)
    }

    /// The same folder, to write to: no other process may until this is dropped.
    ///
    /// # Errors
    /// Another process writes to it.
    pub fn claim(self) -> Result<RunDir, StoreError> {
        let lock = lock(&self.path)?.map(Arc::new);
        if lock.is_some() {
            self.remove_unfinished();
        }
        Ok(RunDir { lock, ..self })
    }

    /// Removes what a writer that was killed left half written: no other process writes now.
    fn remove_unfinished(&self) {
        let is_own = |name: &str| is_unfinished(name) && FILES.iter().any(|file| name.starts_with(&format!(".{file}.")));
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(is_own) {
                // What cannot be removed harms nothing.
                let _ = remove_if_there(&entry.path());
            }
        }
    }

    /// Whether another process writes to it: its run goes on.
    pub fn is_live(&self) -> bool {
        self.lock.is_none() && is_locked(&self.path)
    }

    /// A folder as it is, which is not looked into.
    pub(super) fn at(path: &Path) -> RunDir {
        RunDir { path: path.to_owned(), lock: None, redactor: Redactor::default() }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of one of its files, such as `report.md` or `charts/ttft_cdf.png`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The same folder, from whose text files these secrets are struck.
    pub fn hiding(self, redactor: Redactor) -> RunDir {
        RunDir { redactor, ..self }
    }

    /// Writes a file, whole or not at all, without the secrets of the run in its text. Folders in its name are made.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        match self.redactor.clean_file(name, bytes) {
            Some(clean) => self.write_with(name, |out| out.write_all(clean.as_bytes())),
            None => self.write_with(name, |out| out.write_all(bytes)),
        }
    }

    /// The same for what is produced piece by piece.
    ///
    /// # Errors
    /// The file cannot be written, or `fill` fails.
    pub fn write_with(&self, name: &str, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), StoreError> {
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

    /// Removes a file; one that is not there is no error.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.file(name);
        remove_if_there(&path).map_err(|source| StoreError::Write { path, source })
    }

    /// Removes the files of a run, and nothing else that may lie here.
    fn clear(&self) -> io::Result<()> {
        self.clear_charts(|_| false)?;
        self.clear_logits()?;
        // The marks go last: a crash in between leaves a folder that is still refused.
        FILES.iter().rev().try_for_each(|name| remove_if_there(&self.file(name)))
    }
}

const CHARTS: &str = "charts";

impl RunDir {
    /// Writes the charts of a report. Those of an earlier one that are not among them go; what is no chart stays.
    ///
    /// # Errors
    /// One of them cannot be written or removed.
    pub fn write_charts(&self, charts: &[(String, &[u8])]) -> Result<(), StoreError> {
        let failed = |source| StoreError::Write { path: self.file(CHARTS), source };
        self.clear_charts(|name| charts.iter().any(|(own, _)| own == name)).map_err(failed)?;
        charts.iter().try_for_each(|(name, bytes)| self.write(&format!("{CHARTS}/{name}"), bytes))
    }

    /// Removes charts, except those to be kept.
    pub(super) fn clear_charts(&self, kept: impl Fn(&str) -> bool) -> io::Result<()> {
        let charts = match fs::read_dir(self.file(CHARTS)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            charts => charts?,
        };
        for chart in charts {
            let path = chart?.path();
            let picture = path.extension().is_some_and(|extension| extension == "png" || extension == "svg");
            if picture && !path.file_name().and_then(|name| name.to_str()).is_some_and(&kept) {
                remove_if_there(&path)?;
            }
        }
        Ok(())
    }
}

/// Locks a folder until the result is dropped. None: the file system has no locks.
///
/// # Errors
/// Another process has the lock.
fn lock(folder: &Path) -> Result<Option<File>, StoreError> {
    let Ok(file) = File::open(folder) else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::Error(_)) => Ok(None),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: folder.to_owned(), owner: owner(&file) }),
    }
}

/// Whether another process has the lock.
fn is_locked(folder: &Path) -> bool {
    let tried = File::open(folder).map(|file| file.try_lock_shared());
    matches!(tried, Ok(Err(TryLockError::WouldBlock)))
}

/// ` (process N)` where Linux lists the lock; nothing elsewhere.
fn owner(file: &File) -> String {
    let Ok(inode) = file.metadata().map(|data| data.ino()) else { return String::new() };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    holder(&locks, inode).map_or_else(String::new, |process| format!(" (process {process})"))
}

/// The process with the lock on a file, in lines such as `1: FLOCK  ADVISORY  WRITE 4711 fd:01:2097 0 EOF`.
fn holder(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, process, file) = (words.next()?, words.nth(2)?, words.next()?);
        let own = file.rsplit(':').next()?.parse() == Ok(inode);
        if kind == "FLOCK" && own { process.parse().ok().filter(|process| *process > 0) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place<'a>(explicit: Option<&'a Path>, dir: &'a Path, force: bool) -> Where<'a> {
        Where { explicit, dir, name: "chat", started: "20260102T030405Z", force }
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn runs_lie_under_their_name_and_latest_points_to_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let runs = dir.path().join("chat");
        let made: Vec<PathBuf> = (0..3).map(|_| RunDir::create(&place(None, dir.path(), false)).unwrap().path).collect();
        let expected = ["20260102T030405Z", "20260102T030405Z-2", "20260102T030405Z-3"];
        assert_eq!(made, expected.map(|name| runs.join(name)));
        assert_eq!(fs::read_link(runs.join("latest")).unwrap(), Path::new(expected[2]));
        assert_eq!(names(&runs), [expected.as_slice(), &["latest"]].concat(), "nothing else is left behind");
        assert!(names(&made[0]).is_empty());
    }

    #[test]
    fn an_explicit_folder_is_taken_as_it_is_unless_it_holds_a_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let run = RunDir::create(&place(Some(&path), dir.path(), false)).unwrap();
        assert_eq!((run.path(), names(dir.path())), (path.as_path(), vec!["a".to_owned()]));
        run.write("notes.txt", b"mine").unwrap();
        for force in [false, true] {
            let error = RunDir::create(&place(Some(&path), dir.path(), force)).unwrap_err();
            assert!(matches!(error, StoreError::InUse { .. }), "two runs at once: {error}");
        }
        drop(run);
        let run = RunDir::create(&place(Some(&path), dir.path(), false)).unwrap();
        for name in [
            "telemetry.parquet",
            "checksums.sha256",
            "plan.yaml",
            "report.md",
            "charts/old.png",
            "charts/old.svg",
            "charts/mine.txt",
        ] {
            run.write(name, b"x").unwrap();
        }
        drop(run);
        let error = RunDir::create(&place(Some(&path), dir.path(), false)).unwrap_err().to_string();
        let remedy = "holds another run; name another folder (`run --force` overwrites it)";
        assert_eq!(error, format!("{} {remedy}", path.display()));
        RunDir::create(&place(Some(&path), dir.path(), true)).unwrap();
        assert_eq!(names(&path), ["charts", "notes.txt"], "only files of a run are removed");
        assert_eq!(names(&path.join("charts")), ["mine.txt"]);
    }

    #[test]
    fn a_folder_with_one_file_of_a_run_is_refused() {
        for name in [checksums::ROWS, checksums::READINGS, checksums::FILE] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(name), "x").unwrap();
            let refused = RunDir::create(&place(Some(dir.path()), dir.path(), false));
            assert!(matches!(refused, Err(StoreError::Occupied { .. })), "{name}");
            RunDir::create(&place(Some(dir.path()), dir.path(), true)).unwrap();
            assert!(names(dir.path()).is_empty(), "{name}");
        }
    }

    #[test]
    fn what_a_killed_writer_left_half_written_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        for name in [".requests.db.17.part", ".requests.parquet.17.part", ".mine.17.part", "requests.part"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        RunDir::at(dir.path()).claim().unwrap();
        assert_eq!(names(dir.path()), [".mine.17.part", "requests.part"]);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let inside = file.join("run");
        for (explicit, runs, named) in [(Some(inside.as_path()), dir.path(), &inside), (None, &file, &file.join("chat"))] {
            let error = RunDir::create(&place(explicit, runs, false)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("cannot write {}: Not a directory", named.display())), "{error}");
            assert!(error.ends_with("name a folder that can be written with --output or `report.dir`"), "{error}");
        }
    }

    #[test]
    fn files_are_written_read_and_removed_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::at(dir.path());
        run.write("charts/a.png", b"png").unwrap();
        assert_eq!(run.read("charts/a.png").unwrap(), b"png");
        let error = run.write_with("charts/a.png", |_| Err(io::Error::other("no more"))).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write {}: no more", run.file("charts/a.png").display())), "{error}");
        run.remove("charts/a.png").unwrap();
        run.remove("charts/a.png").unwrap();
        assert!(run.read("charts/a.png").is_err());
    }

    #[test]
    fn charts_of_an_earlier_report_do_not_stay() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::at(dir.path());
        run.write_charts(&[]).unwrap();
        assert!(!run.file("charts").exists(), "no charts need no folder");
        run.write_charts(&[("a.png".into(), b"1"), ("b.png".into(), b"1")]).unwrap();
        run.write("charts/notes.txt", b"mine").unwrap();
        run.write_charts(&[("a.png".into(), b"2"), ("a.svg".into(), b"2")]).unwrap();
        assert_eq!(names(&run.file("charts")), ["a.png", "a.svg", "notes.txt"]);
        assert_eq!(run.read("charts/a.png").unwrap(), b"2");
    }

    #[test]
    fn opening_names_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let missing = |path: &Path| match RunDir::open(path) {
            Err(StoreError::NotARun { missing, .. }) => missing,
            other => panic!("{other:?}"),
        };
        let run = RunDir::at(dir.path());
        assert_eq!(missing(&dir.path().join("gone")), "it does not exist");
        assert_eq!(missing(dir.path()), "it has no plan.yaml, no manifest.json, no requests.parquet or journal.bin");
        run.write("plan.yaml", b"").unwrap();
        assert_eq!(missing(&dir.path().join("plan.yaml")), "it is a file; name its folder");
        run.write("journal.bin", b"").unwrap();
        assert_eq!(missing(dir.path()), "it has no manifest.json");
        run.write("manifest.json", b"").unwrap();
        assert_eq!(RunDir::open(dir.path()).unwrap(), run);
    }

    #[test]
    fn the_holder_of_a_lock_is_found_by_its_file() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fd:01:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 fd:01:77 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 fd:01:7 0 EOF\n3: FLOCK  ADVISORY  WRITE 14 fd:01:7 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 fd:01:8 0 EOF\n";
        assert_eq!([7, 77, 8, 9].map(|inode| holder(locks, inode)), [Some(14), Some(12), None, None]);
    }

    #[test]
    fn a_folder_has_one_writer_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path()).unwrap();
        assert!(first.is_some() && is_locked(dir.path()));
        let error = lock(dir.path()).unwrap_err().to_string();
        let own = format!(" (process {})", std::process::id());
        let rest = "is writing to this folder; wait until it ends, or name another folder";
        let expected = |owner: &str| format!("{} is in use: another llmscen{owner} {rest}", dir.path().display());
        assert!(error == expected(&own) || error == expected(""), "{error}");
        drop(first);
        assert!(!is_locked(dir.path()) && lock(dir.path()).unwrap().is_some());
    }
}
