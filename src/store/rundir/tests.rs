use super::*;

fn location<'a>(explicit: Option<&'a Path>, dir: &'a Path, force: bool) -> RunLocation<'a> {
    RunLocation {
        explicit,
        dir,
        name: "chat",
        started: "20260102T030405Z",
        force,
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn runs_are_under_their_name_and_latest_points_to_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("chat");
    let made: Vec<PathBuf> = (0..3)
        .map(|_| {
            RunDir::create(&location(None, dir.path(), false))
                .unwrap()
                .path
        })
        .collect();
    let expected = [
        "20260102T030405Z",
        "20260102T030405Z-2",
        "20260102T030405Z-3",
    ];
    assert_eq!(made, expected.map(|name| runs.join(name)));
    assert_eq!(
        fs::read_link(runs.join("latest")).unwrap(),
        Path::new(expected[2])
    );
    assert_eq!(
        names(&runs),
        [expected.as_slice(), &["latest"]].concat(),
        "nothing else is left behind"
    );
    assert!(names(&made[0]).is_empty());
}

#[test]
fn an_explicit_folder_is_used_unless_it_contains_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    let run = RunDir::create(&location(Some(&path), dir.path(), false)).unwrap();
    assert_eq!(
        (run.path(), names(dir.path())),
        (path.as_path(), vec!["a".to_owned()])
    );
    run.write("notes.txt", b"mine").unwrap();
    for force in [false, true] {
        let error = RunDir::create(&location(Some(&path), dir.path(), force)).unwrap_err();
        assert!(
            matches!(error, StoreError::InUse { .. }),
            "two runs at once: {error}"
        );
    }
    drop(run);
    let run = RunDir::create(&location(Some(&path), dir.path(), false)).unwrap();
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
    let error = RunDir::create(&location(Some(&path), dir.path(), false))
        .unwrap_err()
        .to_string();
    let remedy = "already contains a run; choose another folder, or pass --force to overwrite it";
    assert_eq!(error, format!("{} {remedy}", path.display()));
    RunDir::create(&location(Some(&path), dir.path(), true)).unwrap();
    assert_eq!(
        names(&path),
        ["charts", "notes.txt"],
        "only files of a run are removed"
    );
    assert_eq!(names(&path.join("charts")), ["mine.txt"]);
}

#[test]
fn a_folder_with_one_file_of_a_run_is_refused() {
    for name in MARKS {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(name), "x").unwrap();
        let refused = RunDir::create(&location(Some(dir.path()), dir.path(), false));
        assert!(
            matches!(refused, Err(StoreError::Occupied { .. })),
            "{name}"
        );
        RunDir::create(&location(Some(dir.path()), dir.path(), true)).unwrap();
        assert!(names(dir.path()).is_empty(), "{name}");
    }
}

#[test]
fn temporary_files_of_a_killed_writer_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        ".requests.db.17.part",
        ".requests.parquet.17.part",
        ".mine.17.part",
        "requests.part",
    ] {
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
    for (explicit, runs, named) in [
        (Some(inside.as_path()), dir.path(), &inside),
        (None, &file, &file.join("chat")),
    ] {
        let error = RunDir::create(&location(explicit, runs, false))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(&format!(
                "cannot write {}: Not a directory",
                named.display()
            )),
            "{error}"
        );
        assert!(
            error.ends_with("choose a writable folder with --output or `report.dir`"),
            "{error}"
        );
    }
}

#[test]
fn files_are_written_read_and_removed_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunDir::at(dir.path());
    run.write("charts/a.png", b"png").unwrap();
    assert_eq!(run.read("charts/a.png").unwrap(), b"png");
    let error = run
        .write_with("charts/a.png", |_| Err(io::Error::other("no more")))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with(&format!(
            "cannot write {}: no more",
            run.file("charts/a.png").display()
        )),
        "{error}"
    );
    run.remove("charts/a.png").unwrap();
    run.remove("charts/a.png").unwrap();
    assert!(run.read("charts/a.png").is_err());
}

#[test]
fn charts_of_an_earlier_report_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunDir::at(dir.path());
    run.write_charts(&[]).unwrap();
    assert!(
        !run.file("charts").exists(),
        "without charts there is no folder"
    );
    run.write_charts(&[("a.png".into(), b"1"), ("b.png".into(), b"1")])
        .unwrap();
    run.write("charts/notes.txt", b"mine").unwrap();
    run.write_charts(&[("a.png".into(), b"2"), ("a.svg".into(), b"2")])
        .unwrap();
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
    assert_eq!(
        missing(dir.path()),
        "it has no plan.yaml, no manifest.json, no requests.parquet or journal.bin"
    );
    run.write("plan.yaml", b"").unwrap();
    assert_eq!(missing(&dir.path().join("plan.yaml")), "it is a file");
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
    assert_eq!(
        [7, 77, 8, 9].map(|inode| lock_holder(locks, inode)),
        [Some(14), Some(12), None, None]
    );
}

#[test]
fn a_folder_has_one_writer_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let first = lock(dir.path()).unwrap();
    assert!(first.is_some() && is_locked(dir.path()));
    let error = lock(dir.path()).unwrap_err().to_string();
    let this_process = format!(" (process {})", std::process::id());
    let rest = "is writing to this folder; wait until it ends, or choose another folder";
    let expected = |owner: &str| {
        format!(
            "{} is in use: another llmscen{owner} {rest}",
            dir.path().display()
        )
    };
    assert!(
        error == expected(&this_process) || error == expected(""),
        "{error}"
    );
    drop(first);
    assert!(!is_locked(dir.path()) && lock(dir.path()).unwrap().is_some());
}
