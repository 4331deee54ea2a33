use super::*;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SECOND: Nanos = Nanos::from_millis(1000);

/// Writes a process: its parent, its ticks and when it started.
fn process(root: &Path, pid: u32, (parent, ticks, started): (u32, u64, u64), kib: u32) {
    let folder = root.join(format!("proc/{pid}"));
    fs::create_dir_all(&folder).unwrap();
    let stat =
        format!("{pid} (x) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {started} 0 0\n");
    fs::write(folder.join("stat"), stat).unwrap();
    fs::write(
        folder.join("status"),
        format!("Name:\tx\nVmRSS:\t{kib} kB\n"),
    )
    .unwrap();
    fs::write(
        folder.join("io"),
        format!("read_bytes: {}\nwrite_bytes: {ticks}\n", ticks * 10),
    )
    .unwrap();
}

fn ended(root: &Path, pid: u32) {
    fs::remove_dir_all(root.join(format!("proc/{pid}"))).unwrap();
}

fn sample(tree: &mut ProcessTree, at: Instant) -> Result<BTreeMap<String, f64>, String> {
    let mut values = BTreeMap::new();
    tree.sample(at, &mut |value| {
        values.insert(value.name.to_owned(), value.value);
    })?;
    Ok(values)
}

fn figures(values: &BTreeMap<String, f64>) -> [Option<f64>; 4] {
    ["cpu", "memory", "disk_read", "disk_write"]
        .map(|name| values.get(&format!("process.{name}")).copied())
}

#[test]
fn the_total_never_decreases() {
    let mut total = TreeTotal::default();
    assert_eq!(total.update(100, 0, 0), 100, "the first sample");
    assert_eq!(total.update(130, 100, 100), 130);
    assert_eq!(
        total.update(140, 130, 70),
        140,
        "60 are counted by the parent now"
    );
    assert_eq!(
        total.update(75, 140, 70),
        145,
        "70 are lost, the others grew by 5"
    );
    assert_eq!(total.update(10, 75, 20), 145);
}

#[test]
fn descendants_are_found_whatever_their_numbers_and_candidates_are_not() {
    let (folder, begin) = (tempfile::tempdir().unwrap(), Instant::now());
    let (root, at) = (folder.path(), |s| begin + Duration::from_secs(s));
    process(root, 1, (0, 9999, 1), 9);
    process(root, 45, (1, 8888, 6), 9);
    process(root, 50, (45, 100, 7), 1);
    process(root, 30, (20, 5, 8), 2);
    process(root, 20, (50, 5, 8), 4);
    process(root, 40, (1, 7777, 7), 9);
    let mut tree = ProcessTree::with_proc(Proc::new(root), 45, SECOND);
    let members = tree.members();
    assert_eq!(
        figures(&sample(&mut tree, at(0)).unwrap()),
        [None, Some(7.0 * 1024.0), Some(1100.0), Some(110.0)]
    );
    assert_eq!(
        [50, 30, 20, 40, 1, 45].map(|pid| members.contains(pid)),
        [true, true, true, false, false, false]
    );
    // 20 ends and is waited for, its child goes to 1; another starts and works.
    ended(root, 20);
    process(root, 50, (45, 110, 7), 1);
    process(root, 30, (1, 25, 8), 2);
    process(root, 60, (30, 30, 9), 8);
    let values = sample(&mut tree, at(1)).unwrap();
    assert_eq!(
        figures(&values),
        [Some(0.55), Some(11.0 * 1024.0), Some(1650.0), Some(165.0)]
    );
    assert_eq!(
        [30, 20, 60].map(|pid| members.contains(pid)),
        [true, false, true]
    );
}

#[test]
fn one_whose_parent_ended_before_the_first_look_is_counted() {
    let (folder, begin) = (tempfile::tempdir().unwrap(), Instant::now());
    let root = folder.path();
    process(root, 45, (1, 8888, 6), 9);
    process(root, 50, (45, 1, 7), 1);
    // Its parent 49 has gone, and it has gone to 45, which is values only by the second look.
    process(root, 70, (49, 2, 8), 16);
    process(root, 80, (45, 3, 8), 32);
    let mut tree = ProcessTree::with_proc(Proc::new(root), 45, SECOND);
    assert_eq!(
        sample(&mut tree, begin).unwrap()["process.memory"],
        33.0 * 1024.0
    );
    process(root, 70, (45, 2, 8), 16);
    assert_eq!(
        sample(&mut tree, begin).unwrap()["process.memory"],
        49.0 * 1024.0
    );
    assert!(
        tree.members().contains(70) && tree.members().contains(80) && !tree.members().contains(45)
    );
}

#[test]
fn a_number_that_comes_again_is_another_process_and_a_tree_that_has_ended_says_so() {
    let (folder, begin) = (tempfile::tempdir().unwrap(), Instant::now());
    let root = folder.path();
    process(root, 50, (45, 100, 7), 1);
    let mut tree = ProcessTree::with_proc(Proc::new(root), 45, SECOND);
    sample(&mut tree, begin).unwrap();
    process(root, 50, (1, 900, 1000), 1);
    assert_eq!(
        sample(&mut tree, begin),
        Err("the managed server exited".into())
    );
    assert!(!tree.members().contains(50));
    assert!(
        sample(&mut tree, begin).is_err(),
        "nor is it taken for it later"
    );
}

#[test]
fn what_a_server_of_another_user_read_and_wrote_is_not_known() {
    let folder = tempfile::tempdir().unwrap();
    process(folder.path(), 50, (45, 100, 7), 1);
    fs::remove_file(folder.path().join("proc/50/io")).unwrap();
    let mut values = Vec::new();
    let result = ProcessTree::with_proc(Proc::new(folder.path()), 45, SECOND)
        .sample(Instant::now(), &mut |value| {
            values.push(value.name.to_owned())
        });
    assert_eq!(values, ["process.memory"]);
    assert!(result.unwrap_err().contains("50/io: No such file"));
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_real_tree_works_ends_and_is_counted() {
    // A child that works for a while and is waited for, and one that sleeps.
    let script = "sleep 60 & (i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done); echo done; \
    read line; kill $!; wait";
    let mut command = Command::new("sh");
    command
        .args(["-c", "sh -c \"$0\"; :", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut server = KillOnDrop(command.spawn().unwrap());
    let mut tree = ProcessTree::new(server.0.id(), SECOND);
    while sample(&mut tree, Instant::now()).is_err() {}
    let mut tree = ProcessTree::new(server.0.id(), SECOND);
    let begin = Instant::now();
    assert_eq!(figures(&sample(&mut tree, begin).unwrap())[0], None);
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(server.0.stdout.take().unwrap()),
        &mut line,
    )
    .unwrap();
    let values = sample(&mut tree, begin + Duration::from_secs(1)).unwrap();
    assert!(
        figures(&values)[0].unwrap() >= 0.02,
        "a loop of 200,000 turns takes more than two ticks: {values:?}"
    );
    assert!(values["process.memory"] > 100_000.0, "{values:?}");
    assert!(
        tree.descendants.len() >= 2 && !tree.members().contains(server.0.id()),
        "the inner shell and its sleep: {:?}",
        tree.descendants
    );
    drop(server.0.stdin.take());
    server.0.wait().unwrap();
    assert!(sample(&mut tree, begin + Duration::from_secs(2)).is_err());
}
