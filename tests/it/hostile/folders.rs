//! Run folders that are damaged, forged, or left by a killed run.
//!
//! A damaged file is named in an error, or changes no result. A forged file, with matching checksums, may change results, but
//! must not cause a panic or a hang.

use super::{random, trials};
use crate::lab::*;
use llmscen::cli::{World, main};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// No command may take longer.
const LONGEST: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 10 });

const RUN: &str = "version: 1\nname: t\ntarget: { url: simulator, model: m, simulator: { alpha: 1ms } }\n\
    dataset: { kind: prompt, text: hello }\nload: { concurrency: 4, requests: 24 }\nrequest: { max_tokens: 4 }\n\
    slo: [\"ttft.p50 < 10s\", \"error_rate < 50%\", { expr: \"e2e.p50 <= 90 * baseline\", confidence: point }]\n\
    audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n\
    report: { formats: [md, csv], store: [sqlite, hlog], bodies: sample }\n";

/// The runs to damage: two complete ones with a baseline, and a killed one.
struct Runs {
    lab: Lab,
}

const WHOLE: [&str; 2] = ["a", "b"];
const KILLED: &str = "killed";

impl Runs {
    fn new() -> Runs {
        let lab = Lab::new();
        lab.file(
            "first.yaml",
            RUN.replace(
                ", { expr: \"e2e.p50 <= 90 * baseline\", confidence: point }",
                "",
            ),
        );
        lab.llmscen(&["run", "first.yaml", "--output", "first"])
            .expect(0);
        lab.llmscen(&["baseline", "update", "first", "--to", "base.json"])
            .expect(0);
        for (name, text) in [
            ("a", RUN.to_owned()),
            ("b", RUN.replace("text: hello", "text: hello there")),
        ] {
            lab.file("s.yaml", format!("{text}baseline: base.json\n"));
            lab.llmscen(&["run", "s.yaml", "--output", name]).expect(0);
        }
        lab.file(
            "s.yaml",
            format!(
                "{}baseline: base.json\n",
                RUN.replace("requests: 24", "duration: 60s")
            ),
        );
        let mut child = lab.spawn(&["run", "s.yaml", "--output", KILLED]);
        let (journal, began) = (lab.path().join(KILLED).join("journal.bin"), Instant::now());
        while !fs::metadata(&journal).is_ok_and(|file| file.len() > 4000) {
            assert!(began.elapsed() < Duration::from_secs(60), "no journal");
            std::thread::sleep(Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        Runs { lab }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.lab.path().join(name)
    }

    /// A copy of a run, without files that reports do not use.
    fn copy(&self, name: &str) -> PathBuf {
        let to = self.path("trial");
        let _ = fs::remove_dir_all(&to);
        fs::create_dir(&to).unwrap();
        for name in files(&self.path(name)) {
            fs::copy(self.path("").join(&name.0), to.join(&name.1)).unwrap();
        }
        to
    }

    /// Output of every command for a folder. `other`: the folder to compare with.
    fn run_all_commands(&self, folder: &Path, other: &Path) -> [CommandOutput; 3] {
        let (folder, other, to) = (
            folder.to_str().unwrap(),
            other.to_str().unwrap(),
            self.path("to.json"),
        );
        let _ = fs::remove_file(&to);
        let mut compared = run_command(&[
            "compare",
            other,
            folder,
            "--format",
            "json",
            "--allow-different",
        ]);
        compared.figures = compared.out.clone();
        let mut updated = run_command(&[
            "baseline",
            "update",
            folder,
            "--to",
            to.to_str().unwrap(),
            "--force",
        ]);
        updated.figures = fs::read_to_string(&to).unwrap_or_default();
        let mut reported = run_command(&["report", folder]);
        let results = fs::read_to_string(Path::new(folder).join("results.json"));
        reported.figures = if reported.code == 2 {
            String::new()
        } else {
            results.unwrap_or_default()
        };
        [compared, updated, reported]
    }
}

/// The files of a run that are read back, with their names.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    const READ: [&str; 9] = [
        "plan.yaml",
        "manifest.json",
        "baseline.json",
        "requests.parquet",
        "telemetry.parquet",
        "requests.db",
        "checksums.sha256",
        "journal.bin",
        "bodies.bin",
    ];
    let all = READ
        .iter()
        .map(|name| (folder.join(name), (*name).to_owned()));
    all.filter(|(path, _)| path.exists()).collect()
}

/// The result of a command.
#[derive(Debug, Default, Clone)]
struct CommandOutput {
    code: u8,
    out: String,
    err: String,
    /// The computed results.
    figures: String,
}

/// Runs a command in this process. A panic or a hang fails the test.
#[track_caller]
fn run_command(args: &[&str]) -> CommandOutput {
    let (args, (to, ended)) = (
        args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>(),
        mpsc::channel(),
    );
    let name = args.join(" ");
    std::thread::spawn(move || {
        let ran = catch_unwind(|| {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let args = [&["llmscen".to_owned()], args.as_slice()].concat();
            let exit = main(World {
                args,
                env: BTreeMap::new(),
                out: &mut out,
                err: &mut err,
                terminals: (false, false),
            });
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            CommandOutput {
                code: exit.code(),
                out: text(out),
                err: text(err),
                figures: String::new(),
            }
        });
        let _ = to
            .send(ran.map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default()));
    });
    match ended.recv_timeout(LONGEST) {
        Ok(Ok(output)) => output,
        Ok(Err(panic)) => panic!("{name} panicked: {panic}"),
        Err(_) => panic!("{name} goes on after {LONGEST:?}"),
    }
}

/// Writes the checksums of the folder again, so that what was damaged is read.
fn reseal(folder: &Path) {
    let listed = fs::read_to_string(folder.join("checksums.sha256")).unwrap_or_default();
    let sum = |name: &str| {
        let digest = Sha256::digest(fs::read(folder.join(name)).ok()?);
        Some(
            digest
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>(),
        )
    };
    let lines = listed
        .lines()
        .filter_map(|line| Some((sum(&line[66..])?, &line[66..])));
    let text: String = lines
        .map(|(sum, name)| format!("{sum}  {name}\n"))
        .collect();
    fs::write(folder.join("checksums.sha256"), text).unwrap();
}

/// Damages a file; what was done to it.
fn damage(path: &Path, other: &Path, random: &mut ChaCha8Rng) -> &'static str {
    let mut bytes = fs::read(path).unwrap();
    let kind = random.random_range(0..7);
    let at = random.random_range(0..bytes.len().max(1));
    match kind {
        0 => bytes.truncate(at),
        1 => {
            for _ in 0..random.random_range(1..9) {
                let at = random.random_range(0..bytes.len());
                bytes[at] ^= random.random_range(1..=255u8);
            }
        }
        2 => {
            let end = (at + random.random_range(1..200)).min(bytes.len());
            bytes[at..end].fill(random.random());
        }
        3 => {
            let more: Vec<u8> = (0..random.random_range(1..200))
                .map(|_| random.random())
                .collect();
            bytes.splice(at..at, more);
        }
        4 => {
            let end = (at + random.random_range(1..200)).min(bytes.len());
            bytes.drain(at..end);
        }
        5 if other.exists() => bytes = fs::read(other).unwrap(),
        _ => {
            fs::remove_file(path).unwrap();
            return "removed";
        }
    }
    fs::write(path, bytes).unwrap();
    [
        "cut",
        "bytes changed",
        "bytes overwritten",
        "bytes put in",
        "bytes taken out",
        "swapped",
    ][kind]
}

/// Puts another value at some place of a JSON document.
fn distort(value: &mut Value, random: &mut ChaCha8Rng) {
    let deeper = random.random_range(0..8) > 0;
    let inner = match value {
        Value::Array(all) if deeper && !all.is_empty() => {
            let at = random.random_range(0..all.len());
            all.get_mut(at)
        }
        Value::Object(all) if deeper && !all.is_empty() => {
            let key = all
                .keys()
                .nth(random.random_range(0..all.len()))
                .unwrap()
                .clone();
            if random.random_range(0..12) == 0 {
                all.remove(&key);
                return;
            }
            all.get_mut(&key)
        }
        _ => None,
    };
    if let Some(inner) = inner {
        return distort(inner, random);
    }
    let long = "x".repeat(100_000);
    let values = [
        json!(null),
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e308),
        json!(-1e308),
        json!(1e-308),
        json!(u64::from(u32::MAX)),
        json!(9_007_199_254_740_993u64),
        json!(true),
        json!(""),
        json!(long),
        json!("\u{1b}[2J\u{202e}%s{{x}}"),
        json!([]),
        json!({}),
        json!([[[[1]]]]),
    ];
    *value = values.choose(random).unwrap().clone();
}

/// Changes a file so that it still is one of its kind, mostly.
fn forge(path: &Path, random: &mut ChaCha8Rng) {
    match path.extension().and_then(|end| end.to_str()) {
        Some("json") => {
            let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            (0..random.random_range(1..4)).for_each(|_| distort(&mut value, random));
            fs::write(path, value.to_string()).unwrap();
        }
        Some("yaml") => {
            let text = fs::read_to_string(path).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let at = random.random_range(0..lines.len());
            let values = [
                "0",
                "-1",
                "18446744073709551615",
                "1e308",
                "[]",
                "{}",
                "null",
                "99999999h",
                "\"\"",
                "100%",
            ];
            match lines[at].split_once(": ") {
                Some((key, _)) => lines[at] = format!("{key}: {}", values.choose(random).unwrap()),
                None => drop(lines.remove(at)),
            }
            fs::write(path, lines.join("\n") + "\n").unwrap();
        }
        _ => {
            let mut bytes = fs::read(path).unwrap();
            for _ in 0..random.random_range(1..4) {
                // The metadata is at the end of a Parquet file; random positions hit it too seldom.
                let from = if random.random() {
                    bytes.len().saturating_sub(4000)
                } else {
                    0
                };
                let at = random.random_range(from..bytes.len());
                bytes[at] = if random.random() {
                    bytes[at] ^ (1 << random.random_range(0..8))
                } else {
                    random.random()
                };
            }
            if random.random_range(0..6) == 0 {
                bytes.truncate(random.random_range(0..bytes.len()));
            }
            fs::write(path, bytes).unwrap();
        }
    }
}

/// The first line in which two texts differ.
fn difference(one: &str, other: &str) -> String {
    let differs = one
        .lines()
        .zip(other.lines())
        .find(|(one, other)| one != other);
    differs.map_or_else(
        || format!("{} and {} bytes", one.len(), other.len()),
        |(one, other)| format!("{one}\n{other}"),
    )
}

/// The results are those of the complete folder, or the error names the damaged or missing file.
fn harmless(output: &CommandOutput, whole: &CommandOutput, file: &str, what: &str) {
    let named = output.err.contains(file) && (output.code == 2 || output.code == 3);
    let all = format!("{}{}", output.err, output.figures);
    let said = file == "journal.bin"
        && ["is damaged in ", "ends with an incomplete"]
            .iter()
            .any(|words| all.contains(words));
    let same = output.figures == whole.figures && output.code == whole.code;
    let differs = || difference(&output.figures, &whole.figures);
    assert!(
        named || said || same,
        "{what} of {file}: exit code {}, {}\n{}",
        output.code,
        output.err,
        differs()
    );
}

/// A run folder, and the output for it before the damage.
fn wholes(runs: &Runs) -> BTreeMap<&'static str, [CommandOutput; 3]> {
    let of = |name: &'static str| {
        (
            name,
            runs.run_all_commands(&runs.copy(name), &runs.path("a")),
        )
    };
    [WHOLE[0], WHOLE[1], KILLED].map(of).into()
}

/// Changes one file of a copied folder per trial. Every command then names the file, or prints the results of the complete folder.
fn change_one_file(
    seed: u64,
    names: &[&'static str],
    change: impl Fn(&Path, &Path, &mut ChaCha8Rng) -> String,
) {
    let runs = Runs::new();
    let wholes = wholes(&runs);
    for trial in 0..trials(4) {
        let mut random = random(seed + trial as u64);
        let name = *names.choose(&mut random).unwrap();
        let folder = runs.copy(name);
        let all = files(&folder);
        let (path, file) = all.choose(&mut random).unwrap();
        let other = runs.path(if name == "a" { "b" } else { "a" }).join(file);
        let what = change(path, &other, &mut random);
        let output = runs.run_all_commands(&folder, &runs.path("a"));
        for (output, whole) in output.iter().zip(&wholes[name]) {
            harmless(
                output,
                whole,
                file,
                &format!("trial {trial}, {name}: {what}"),
            );
        }
    }
}

#[test]
fn damaged_folders_are_refused_by_name_or_give_the_same_figures() {
    change_one_file(0, &[WHOLE[0], WHOLE[1], KILLED], |path, other, random| {
        damage(path, other, random).to_owned()
    });
}

#[test]
fn a_flip_of_one_bit_is_refused_by_name_or_changes_nothing() {
    change_one_file(1_000_000, &[WHOLE[0], KILLED], |path, _, random| {
        let mut bytes = fs::read(path).unwrap();
        let at = random.random_range(0..bytes.len());
        bytes[at] ^= 1 << random.random_range(0..8);
        fs::write(path, bytes).unwrap();
        format!("a bit of byte {at}")
    });
}

#[test]
fn forged_folders_end_no_command_in_a_panic() {
    let runs = Runs::new();
    for trial in 0..trials(4) {
        let mut random = random(2_000_000 + trial as u64);
        let name = *WHOLE.choose(&mut random).unwrap();
        let folder = runs.copy(name);
        let all: Vec<_> = files(&folder)
            .into_iter()
            .filter(|(_, file)| file != "checksums.sha256")
            .collect();
        let (path, file) = all.choose(&mut random).unwrap();
        forge(path, &mut random);
        reseal(&folder);
        // What fails is named by the trial and the file.
        println!("trial {trial}: {file}");
        runs.run_all_commands(&folder, &runs.path("a"));
        run_command(&["bodies", folder.to_str().unwrap()]);
        if random.random_range(0..20) == 0 {
            let ran = runs.lab.llmscen(&["report", folder.to_str().unwrap()]);
            assert!((0..=5).contains(&ran.code) || ran.code == 130, "{ran:?}");
            assert!(!ran.err.contains("panicked"), "{ran:?}");
        }
    }
}

#[test]
fn a_kill_at_any_instant_costs_at_most_a_second() {
    // A small campaign shares its cores with other tests.
    let (most, first) = if trials(1) > 1 { (1, 0) } else { (2, 2200) };
    let most = Duration::from_secs(most);
    for trial in 0..trials(1) {
        let mut random = random(3_000_000 + trial as u64);
        let ended: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let served = ended.clone();
        let server = Server::start(move |client, _| {
            std::thread::sleep(Duration::from_millis(3));
            let whole = send(client, &stream(&[TOKEN, FINISH, "[DONE]"], true));
            served.lock().unwrap().push(Instant::now());
            whole
        });
        let lab = Lab::new();
        // Some of the short ones are killed while they write their report.
        let load = if first > 0 || random.random() {
            "duration: 60s"
        } else {
            "duration: 700ms"
        };
        let text = plain(&server.url(), 1)
            .replace("requests: 1 }", &format!("{load} }}"))
            .replace("concurrency: 1", "concurrency: 4");
        lab.file("s.yaml", format!("{text}report: {{ formats: [md] }}\n"));
        let child = lab.spawn(&["run", "s.yaml", "--output", "out"]);
        let began = Instant::now();
        while ended.lock().unwrap().is_empty() {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "no request after a minute"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(random.random_range(first..2500)));
        let killed = Instant::now();
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        finish(child);
        let ran = lab.llmscen(&["report", "out"]);
        assert!(
            [0, 1, 4, 5, 130].contains(&ran.code),
            "trial {trial}: {ran:?}"
        );
        let stored = lab.results()["cases"].as_array().map_or(0, |cases| {
            cases
                .iter()
                .map(|case| case["counts"]["ok"].as_u64().unwrap_or(0))
                .sum::<u64>() as usize
        });
        let due = ended
            .lock()
            .unwrap()
            .iter()
            .filter(|end| killed.duration_since(**end) > most)
            .count();
        assert!(
            stored >= due,
            "trial {trial}: {stored} rows of {due} that ended {most:?} before the kill"
        );
        println!(
            "trial {trial}: {stored} stored, {} ended, {due} due",
            ended.lock().unwrap().len()
        );
    }
}
