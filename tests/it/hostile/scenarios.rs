//! Mutated scenarios through `validate` and `plan`: no panic, no hang, a message for every error, and the same plan twice.

use super::{random, trials};
use crate::lab::{Lab, Ran};
use llmscen::cli::{World, main as program};
use llmscen_scenario::{Input, load};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Longest time of one trial, on a machine that does much else. Only a hang takes it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Values that no field expects.
const EXTREMES: &[&str] = &[
    "NaN",
    ".nan",
    "-.inf",
    "-0",
    "1e308",
    "1e999",
    "18446744073709551616",
    "-9223372036854775808",
    "9223372036854775807",
    "0",
    "-1",
    "''",
    "null",
    "~",
    "true",
    "[]",
    "{}",
    "[[]]",
    "\"\\0\"",
    "\"\\u202e\\u200b\\e[2J\"",
    "é̂̂",
    "漢字",
    "\u{2028}",
    "\t",
    "1e-320",
    "99999999999h",
    "0s",
    "-5ms",
    "1000000000000000000/s",
    "0.0000001%",
    "101%",
    "/dev/zero",
    "/dev/urandom",
    "/proc/kmsg",
    "..",
    "/",
    "@/dev/zero",
    "@.",
    "!!binary aGk=",
    "!x y",
    "&a b",
    "*a",
    "*nowhere",
    "<<",
    "? x",
    "|",
    ">-",
    "%m %p %%",
    "{{ prompt }}",
    "{{ item.x.y }}",
    "{% if %}",
    "{{ 'x' * 999999999 }}",
    "{{ range(10**9) | list }}",
    "{{ vars.model }}",
    "{{ target.url }}",
    "${HOME}",
    "${NOWHERE}",
    "${NOWHERE:-x}",
    "${",
    "{{",
    "$..*",
    "$[?@.a]",
    "ttft.p99 < 1s",
    "goodput(ttft < 1s) >= 99%",
    "ttft{a=b}.p101 > -1 ms",
    "2x",
    "burst",
    "1..9",
    "{a: 1, a: 2}",
    "random",
    "2024-01-01",
    "0x7fffffffffffffff",
    "0o17",
    "1_000",
    "+.inf",
    "9007199254740993",
    "[1, 2, 3",
    "\"unclosed",
];

/// Signs that mean something in YAML, and some that nothing expects.
const SIGNS: [char; 15] = [
    '\0', '\t', '{', '}', '[', ']', '"', '\'', ':', '#', '&', '*', '\r', '\u{feff}', '%',
];

/// Texts that nest.
fn deep(rng: &mut ChaCha8Rng) -> String {
    let n = [10, 99, 101, 500, 20_000][rng.random_range(0..5)];
    let around = |open: &str, inner: &str, close: &str| {
        format!("{}{inner}{}", open.repeat(n), close.repeat(n))
    };
    match rng.random_range(0..14) {
        0 => around("[", "", "]"),
        1 => around("{a: ", "1", "}"),
        2 => format!("\"{{{{ {}x }}}}\"", "not ".repeat(n)),
        3 => format!("\"{{{{ prompt{} }}}}\"", ".b".repeat(n)),
        4 => format!("\"{{{{ {} }}}}\"", around("(", "seq", ")")),
        5 => format!("\"{{{{ prompt{} }}}}\"", "|upper".repeat(n)),
        6 => format!("\"{}\"", around("{% if seq %}", "x", "{% endif %}")),
        7 => format!("\"{}\"", around("{% for a in b %}", "x", "{% endfor %}")),
        8 => format!("\"$[?{}]\"", around("(", "@.a", ")")),
        9 => format!("\"{}\"", around("${A:-", "x", "}")),
        10 => format!("\"goodput({})\"", "ttft < 1s, ".repeat(n)),
        11 => format!("\"{{{{ seq{} }}}}\"", " if seq else seq".repeat(n)),
        12 => "x".repeat(n * 10),
        _ => "- ".repeat(n.min(500)) + "x",
    }
}

/// Scenarios, templates and YAML blocks that ship.
fn corpus() -> Vec<String> {
    let mut texts = Vec::new();
    for folder in [
        "scenarios",
        "crates/scenario/tests/faults",
        "crates/compat/tests/imports",
        "crates/scenario/tests/plans",
    ] {
        let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let yaml = |path: &PathBuf| {
            path.extension()
                .is_some_and(|end| end == "yaml" || end == "yml")
        };
        texts.extend(
            paths
                .into_iter()
                .filter(yaml)
                .filter_map(|path| fs::read_to_string(path).ok()),
        );
    }
    let mut pages: Vec<PathBuf> = fs::read_dir("docs")
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    pages.sort();
    for page in pages
        .iter()
        .filter(|page| page.extension().is_some_and(|end| end == "md"))
    {
        let text = fs::read_to_string(page).unwrap();
        let blocks = text
            .split("```yaml\n")
            .skip(1)
            .filter_map(|rest| rest.split_once("```"));
        texts.extend(blocks.map(|(block, _)| block.to_owned()));
    }
    assert!(texts.len() > 60, "{} texts only", texts.len());
    texts
}

fn pick<'a, T: ?Sized>(rng: &mut ChaCha8Rng, all: &[&'a T]) -> &'a T {
    all[rng.random_range(0..all.len())]
}

/// A random character boundary.
fn random_boundary(rng: &mut ChaCha8Rng, text: &str) -> usize {
    text.floor_char_boundary(rng.random_range(0..=text.len()))
}

/// A value instead of another one.
fn value(rng: &mut ChaCha8Rng) -> String {
    if rng.random_range(0..4) == 0 {
        deep(rng)
    } else {
        pick(rng, EXTREMES).to_owned()
    }
}

fn mutate(rng: &mut ChaCha8Rng, text: &mut String, others: &[String]) {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        lines.push(String::new());
    }
    let at = rng.random_range(0..lines.len());
    match rng.random_range(0..17) {
        0 => {
            let at = random_boundary(rng, text);
            let sign = SIGNS[rng.random_range(0..SIGNS.len())];
            text.insert(at, sign);
            return;
        }
        1 => {
            let (a, b) = (random_boundary(rng, text), random_boundary(rng, text));
            text.replace_range(
                a.min(b)
                    ..a.max(b)
                        .min(text.ceil_char_boundary(a.min(b) + 30))
                        .max(a.min(b)),
                "",
            );
            return;
        }
        2 => {
            let at = random_boundary(rng, text);
            text.truncate(at);
            return;
        }
        3 => {
            let other = &others[rng.random_range(0..others.len())];
            let (at, from) = (random_boundary(rng, text), random_boundary(rng, other));
            text.replace_range(at.., &other[from..]);
            return;
        }
        4 => lines.insert(at, lines[at].clone()),
        5 => {
            let line = lines.remove(at);
            let to = rng.random_range(0..=lines.len());
            lines.insert(to, line);
        }
        6 => lines[at] = format!("{}{}", " ".repeat(rng.random_range(1..9)), lines[at]),
        7 => lines[at] = lines[at].trim_start().to_owned(),
        8 => {
            let own = lines[at].clone();
            let (indent, key) = (
                own.len() - own.trim_start().len(),
                own.trim().split(':').next().unwrap_or("").to_owned(),
            );
            lines.insert(
                at + 1,
                format!("{}{}: {{ {key}: {} }}", " ".repeat(indent), key, value(rng)),
            );
        }
        9 => lines[at] = lines[at].replacen(": ", ": &a ", 1),
        10 => lines[at] = lines[at].replacen(": ", ": *a #", 1),
        11 => {
            let own = lines[at].clone();
            let indent = own.len() - own.trim_start().len();
            lines.insert(
                at,
                format!(
                    "{}<<: {}",
                    " ".repeat(indent),
                    pick(rng, &["*a", "{a: 1}", "[{b: 1}, {b: 2}]", "1"])
                ),
            );
        }
        12..=14 => {
            // The value that another scenario gives the same key.
            if let Some((key, _)) = lines[at].clone().split_once(": ") {
                let other = &others[rng.random_range(0..others.len())];
                let same = other
                    .lines()
                    .filter_map(|line| line.split_once(": "))
                    .find(|(own, _)| own.trim() == key.trim());
                if let Some((_, value)) = same {
                    lines[at] = format!("{key}: {value}");
                }
            }
        }
        _ => {
            let new = value(rng);
            if let Some((key, _)) = lines[at].clone().split_once(": ") {
                lines[at] = format!("{key}: {new}");
            }
        }
    }
    *text = lines.join(if rng.random_range(0..20) == 0 {
        "\r\n"
    } else {
        "\n"
    });
}

fn environment(home: &Path) -> BTreeMap<String, String> {
    let home = home.display().to_string();
    let pairs = [
        ("HOME", home.as_str()),
        ("LLMSCEN_HUB", "http://127.0.0.1:1"),
        ("A", "1"),
        ("OPENAI_API_KEY", "sk-x"),
    ];
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// One command in this process.
fn run(command: &str, path: &Path, home: &Path) -> Ran {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = vec![
        "llmscen".to_owned(),
        command.to_owned(),
        path.display().to_string(),
    ];
    let exit = program(World {
        args,
        env: environment(home),
        out: &mut out,
        err: &mut err,
        terminals: (false, false),
    });
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is UTF-8");
    Ran {
        code: exit.code().into(),
        out: text(out),
        err: text(err),
    }
}

fn check(text: &str, path: &Path, home: &Path) -> &'static str {
    fs::write(path, text).unwrap();
    let ran = run("validate", path, home);
    let valid = match ran.code {
        0 => true,
        2 => false,
        code => panic!("validate ends with {code}: {}", ran.err),
    };
    assert!(
        valid
            || ran
                .err
                .lines()
                .any(|line| line.contains("×") || line.contains("error")),
        "no message: {:?}",
        ran.err
    );
    assert!(ran.err.len() < 1 << 20, "{} bytes of errors", ran.err.len());
    if valid {
        let env = environment(home);
        // Unless the plan sets one, each run has a different cache seed.
        let seeds = [("cache_seed".to_owned(), "7".to_owned())];
        let plan = || {
            load(&Input {
                path,
                text: None,
                env: &env,
                set: &seeds,
            })
        };
        // As text: the limit of a missing baseline is NaN, which is not equal to itself.
        let (first, second) = (
            plan().map(|one| format!("{:?}", one.plan)),
            plan().map(|one| format!("{:?}", one.plan)),
        );
        assert_eq!(first.ok(), second.ok(), "two plans of one text");
    }
    // A command of a dataset would be started; and a debug build counts the tokens of the speed benchmark for seconds.
    if text.contains("command") || text.contains("speed_benchmark") {
        return if valid { "valid" } else { "refused" };
    }
    let planned = run("plan", path, home);
    assert!(
        [0, 2, 3].contains(&planned.code),
        "plan ends with {}: {}",
        planned.code,
        planned.err
    );
    assert!(
        planned.code == 0 || !planned.err.trim().is_empty(),
        "plan without a message"
    );
    assert!(
        valid || planned.code == 2,
        "validate refuses what plan does not: {}",
        planned.code
    );
    if valid { "valid" } else { "refused" }
}

/// The folder of the shipped scenarios, with their data.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let copied = std::process::Command::new("cp")
        .args(["-r", "scenarios/.", "crates/scenario/tests/faults/."])
        .arg(folder.path())
        .status();
    assert!(copied.unwrap().success());
    folder
}

fn mutated(seed: u64, corpus: &[String]) -> String {
    let mut rng = random(seed);
    // Two of three begin as a scenario that is sound, so that some are still sound behind the mutation.
    let sound: Vec<&String> = corpus
        .iter()
        .filter(|text| text.starts_with("# yaml-language-server"))
        .collect();
    let mut text = match rng.random_range(0..3) {
        0 => corpus[rng.random_range(0..corpus.len())].clone(),
        _ => sound[rng.random_range(0..sound.len())].clone(),
    };
    for _ in 0..rng.random_range(1..4) {
        mutate(&mut rng, &mut text, corpus);
    }
    text
}

#[test]
fn mutated_scenarios_are_refused_with_a_message_or_planned_twice_alike() {
    let corpus = corpus();
    let (folder, first) = (
        folder(),
        std::env::var("LLMSCEN_HOSTILE_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or(0),
    );
    let (mut valid, mut faults) = (0, Vec::new());
    let count = trials(100) as u64;
    for seed in first..first + count {
        let text = mutated(seed, &corpus);
        let (path, home) = (folder.path().join("mutated.yaml"), folder.path().to_owned());
        let (send, done) = channel();
        let own = text.clone();
        let trial = std::thread::spawn(move || {
            let what = std::panic::catch_unwind(|| check(&own, &path, &home));
            let _ = send.send(what.map_err(|panic| {
                match panic.downcast_ref::<String>() {
                    Some(message) => message.clone(),
                    None => panic
                        .downcast_ref::<&str>()
                        .map_or_else(|| "a panic".to_owned(), |message| (*message).to_owned()),
                }
            }));
        });
        match done.recv_timeout(PATIENCE) {
            Ok(Ok(what)) => valid += usize::from(what == "valid"),
            Ok(Err(why)) => faults.push((seed, why)),
            Err(RecvTimeoutError::Timeout) => faults.push((seed, "no end within 30 s".to_owned())),
            Err(RecvTimeoutError::Disconnected) => {
                faults.push((seed, "the thread ended".to_owned()))
            }
        }
        if faults.last().is_some_and(|(own, _)| *own == seed) {
            fs::write(
                std::env::temp_dir().join(format!("llmscen-mutated-{seed}.yaml")),
                &text,
            )
            .unwrap();
        } else {
            trial.join().unwrap();
        }
    }
    println!(
        "{count} mutated scenarios: {valid} valid, {} at fault",
        faults.len()
    );
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(
        count < 50 || valid > 0,
        "no mutation is valid: the campaign sees nothing behind the first error"
    );
}

#[test]
fn a_few_of_them_go_through_the_binary() {
    let corpus = corpus();
    let lab = Lab::new();
    for seed in 1_000_000..1_000_000 + trials(4) as u64 {
        lab.file("s.yaml", mutated(seed, &corpus));
        let ran = lab.llmscen(&["validate", "s.yaml"]);
        assert!(
            [0, 2].contains(&ran.code),
            "seed {seed} ends with {}: {}",
            ran.code,
            ran.err
        );
        assert!(
            ran.code == 0 || !ran.err.trim().is_empty(),
            "seed {seed}: no message"
        );
    }
}
