//! Every block of code in README.md and the book is true: scenarios validate and plan, commands run.

use crate::ci::{commands, shell};
use crate::lab::{Lab, Ran, Server, each, port};
use crate::numbers;
use crate::shards::Simulator;
use serde_yaml::{Mapping, Value};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Blocks that run elsewhere or cannot run here: page, language, and why.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    (
        "docs/how-to/gate-a-pull-request.md",
        "yaml",
        "tests/it/ci.rs runs every step of the pipelines",
    ),
    (
        "docs/how-to/gate-a-pull-request.md",
        "bash",
        "tests/it/ci.rs runs the scripts",
    ),
    (
        "docs/reference/output-files.md",
        "python",
        "needs packages of Python; tests/it/data.rs reads the same files",
    ),
    (
        "docs/how-to/query-results.md",
        "sql",
        "tests/it/data.rs runs every query",
    ),
    (
        "docs/how-to/query-results.md",
        "python",
        "tests/it/data.rs runs every block",
    ),
    (
        "docs/reference/metrics.md",
        "python",
        "tests/it/data.rs compares the figures with results.json",
    ),
    (
        "docs/how-to/several-machines.md",
        "yaml",
        "tests/it/launch.rs validates and runs the templates",
    ),
    (
        "docs/project/install.md",
        "console",
        "tests/it/packages.rs runs each command, or says why not",
    ),
    (
        "docs/project/install.md",
        "yaml",
        "tests/it/pipelines.rs compares them with action.yml and the hook",
    ),
    (
        "docs/how-to/python.md",
        "python",
        "tests/it/packages.rs runs them with the wheel",
    ),
    ("docs/how-to/several-machines.md", "bash", "as above"),
    ("docs/how-to/several-machines.md", "python", "as above"),
    ("docs/how-to/several-machines.md", "hcl", "as above"),
    #[cfg(not(feature = "local"))]
    (
        "docs/how-to/local-models.md",
        "yaml",
        "this build has no local models",
    ),
];

/// Commands that are replaced, and why.
const INSTEAD: [(&str, &str, &str); 5] = [
    (
        "LLM_URL=http://127.0.0.1:8000/v1/chat/completions LLM_MODEL=qwen2.5 llmscen run scenarios/chat.yaml",
        "LLM_URL=http://127.0.0.1:8000/v1/chat/completions LLM_MODEL=qwen2.5 llmscen plan scenarios/chat.yaml",
        "needs a server on port 8000",
    ),
    (
        "pip install llmscen",
        "llmscen --version",
        "needs a package index",
    ),
    (
        "cargo run --release -- run scenarios/chat.yaml",
        "llmscen run scenarios/chat.yaml --set load.requests=20",
        "every_shipped_scenario_runs_alone sends all of its requests",
    ),
    (
        "cargo test",
        "llmscen --version",
        "these tests are that command",
    ),
    (
        "LLM_URL=http://127.0.0.1:8000/v1/chat/completions LLM_MODEL=qwen2.5 cargo run --release -- run scenarios/chat.yaml",
        "LLM_URL=http://127.0.0.1:8000/v1/chat/completions LLM_MODEL=qwen2.5 llmscen plan scenarios/chat.yaml",
        "needs a server on port 8000",
    ),
];

/// A machine busy with other tests is no reason to call a run invalid here.
const CALM: &str = "audit: { lag_p99: 1h, stall_p99: 1h, cpu: 1, achieved: 0 }\n";

struct Block {
    page: String,
    line: usize,
    language: String,
    text: String,
}

impl Block {
    fn location(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    /// The file that the block's first line names: `# base.yaml`.
    fn file(&self) -> Option<&str> {
        let name = self.text.lines().next()?.strip_prefix("# ")?;
        [".yaml", ".py"]
            .iter()
            .any(|end| name.ends_with(end))
            .then_some(name)
    }
}

/// README.md and every page of the book.
pub fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(Path::new(ROOT).join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().into_string().unwrap());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.ends_with(".md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

pub fn text(page: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(page)).unwrap()
}

/// The fenced blocks of all pages, but for those that run elsewhere.
fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for page in pages() {
        let mut open: Option<Block> = None;
        let mut indent = 0;
        for (index, line) in text(&page).lines().enumerate() {
            match (line.trim().strip_prefix("```"), &mut open) {
                (Some(language), None) => {
                    let language = language.trim().to_owned();
                    // A block of a list item is indented.
                    indent = line.len() - line.trim_start().len();
                    open = Some(Block {
                        page: page.clone(),
                        line: index + 1,
                        language,
                        text: String::new(),
                    });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (None, Some(block)) => {
                    let line = line.get(indent..).unwrap_or_default();
                    block.text += &format!("{line}\n");
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{page}: a block is not closed");
    }
    blocks.retain(|block| {
        !ELSEWHERE
            .iter()
            .any(|(page, language, _)| *page == block.page && *language == block.language)
    });
    blocks
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        fs::copy(from, to).unwrap();
    }
}

/// The scenario that fragments of the pages are parts of.
const FRAME: &str = "version: 1\nname: chat\ntarget: { url: http://127.0.0.1:8000/v1/chat/completions, metrics: http://127.0.0.1:8000/metrics, model: m }\ndataset: { kind: prompt, text: hi }\nload: { requests: 60 }\nmatrix: { load.concurrency: [1, 16] }\n";

/// The hub with the dataset that the pages use.
fn hub() -> Server {
    Server::start_of_paths(|path| {
        let text = match path.rsplit('/').next()? {
            "v1.0?blobs=true" => {
                r#"{"sha": "0123456789abcdef0123456789abcdef01234567", "siblings": [{"rfilename": "main/test.jsonl"}]}"#
            }
            "test.jsonl" => r#"{"question": "What is 1 + 1?", "category": "math"}"#,
            "prompts.jsonl" => r#"{"prompt": "What is 1 + 1?"}"#,
            _ => return None,
        };
        Some(text.as_bytes().to_vec())
    })
}

/// A scratch folder with the files that the pages use: shipped scenarios, runs, a baseline, a model.
fn prepared() -> Lab {
    static MADE: OnceLock<Lab> = OnceLock::new();
    let lab = Lab::new();
    copy(MADE.get_or_init(made).path(), lab.path());
    std::os::unix::fs::symlink("before", lab.path().join("reports/chat/latest")).unwrap();
    lab
}

fn made() -> Lab {
    let lab = Lab::new();
    for folder in ["scenarios", "templates"] {
        copy(&Path::new(ROOT).join(folder), &lab.path().join(folder));
    }
    copy(
        &Path::new(ROOT).join("tests/local/qwen2"),
        &lab.path().join("models/Qwen2.5-0.5B-Instruct"),
    );
    lab.file("serving-tests.json", crate::import_docs::shown("{"));
    let relative =
        "slo: [ ttft.p95 <= 1.10 * baseline, goodput(ttft < 500ms) >= 0.98 * baseline ]\n";
    let own = FRAME.replace(
        "url: http://127.0.0.1:8000/v1/chat/completions, metrics: http://127.0.0.1:8000/metrics",
        "url: simulator, simulator: { faults: { error: 5% } }",
    );
    let chat = format!(
        "{own}request: {{ max_tokens: 4 }}\nbaseline: baselines/chat.json\n{relative}{CALM}report: {{ store: [parquet, sqlite], bodies: all }}\n"
    );
    lab.file("chat.yaml", chat);
    lab.llmscen(&[
        "run",
        "chat.yaml",
        "--set",
        "baseline=none",
        "--output",
        "reports/chat/before",
        "--quiet",
    ]);
    lab.llmscen(&[
        "baseline",
        "update",
        "reports/chat/before",
        "--to",
        "baselines/chat.json",
        "--force",
    ])
    .expect(0);
    for twin in ["reports/chat/after", "base", "candidate", "a", "b", "c"] {
        copy(
            &lab.path().join("reports/chat/before"),
            &lab.path().join(twin),
        );
    }
    // Runs that count once each.
    for folder in ["old/1", "old/2", "old/3", "new/1", "new/2", "new/3"] {
        let set = [
            "--set",
            "baseline=none",
            "--set",
            "load.requests=20",
            "--set",
            "report.formats=[json]",
        ];
        lab.llmscen(
            &[
                &["run", "chat.yaml", "--output", folder, "--quiet"],
                &set[..],
            ]
            .concat(),
        );
    }
    lab
}

/// Replacements for resources that need the network.
const OFFLINE: [(&str, &str); 2] = [
    ("dataset: openqa", "dataset.path=builtin"),
    (
        "tokenizer: Qwen/",
        "dataset.tokenizer=models/Qwen2.5-0.5B-Instruct",
    ),
];

/// A fragment within the frame: its sections replace those of the frame.
fn framed(fragment: &Mapping) -> String {
    let mut whole: Mapping = serde_yaml::from_str(FRAME).unwrap();
    if fragment.contains_key("load") || fragment.contains_key("matrix") {
        whole.remove("matrix");
        whole.insert(
            "load".into(),
            serde_yaml::from_str("{ concurrency: 8, requests: 100 }").unwrap(),
        );
    }
    for (key, value) in fragment {
        whole.insert(key.clone(), value.clone());
    }
    if let Some(target) = whole.get_mut("target").and_then(Value::as_mapping_mut) {
        target.entry("model".into()).or_insert("m".into());
        // Figures of a managed server need one.
        if fragment
            .get("slo")
            .is_some_and(|slo| format!("{slo:?}").contains("process."))
        {
            target.insert(
                "server".into(),
                serde_yaml::from_str("{ preset: vllm }").unwrap(),
            );
        }
    }
    serde_yaml::to_string(&whole).unwrap()
}

#[test]
fn every_yaml_block_is_a_scenario_or_a_part_of_one() {
    let lab = prepared();
    let hub = hub();
    let (scripts, blocks): (Vec<Block>, Vec<Block>) = blocks()
        .into_iter()
        .filter(|block| ["yaml", "python"].contains(&block.language.as_str()))
        .partition(|block| block.language == "python");
    assert!(blocks.len() >= 10, "{} blocks", blocks.len());
    for script in scripts {
        let name = script
            .file()
            .unwrap_or_else(|| panic!("{}: its first line names no file", script.location()));
        lab.file(name, &script.text);
    }
    let mut wrong = Vec::new();
    for block in blocks {
        let value: Value = serde_yaml::from_str(&block.text)
            .unwrap_or_else(|why| panic!("{}: {why}", block.location()));
        let mut steps = Vec::new();
        commands(&value, &mut steps);
        if !steps.is_empty() {
            // The steps of a pipeline begin with a checkout.
            let lab = prepared();
            for step in &steps {
                run(&lab, step, &block.location());
            }
            continue;
        }
        // A list is one of objectives, as `report --slo` takes it.
        let value = if value.is_sequence() {
            Mapping::from_iter([("slo".into(), value)]).into()
        } else {
            value
        };
        let fragment = value
            .as_mapping()
            .unwrap_or_else(|| panic!("{}: neither a scenario nor steps", block.location()));
        let whole = fragment.contains_key("version") || fragment.contains_key("extends");
        let scenario = if whole {
            block.text.clone()
        } else {
            framed(fragment)
        };
        let scenario = scenario.replace("https://host/", &format!("http://{}/", hub.addr));
        let name = block.file().unwrap_or("block.yaml");
        lab.file(name, &scenario);
        for verb in ["validate", "plan"] {
            let mut args = vec![verb, name];
            OFFLINE
                .iter()
                .filter(|(own, _)| scenario.contains(own))
                .for_each(|(_, set)| args.extend(["--set", set]));
            let mut command = lab.command(&args);
            command
                .env("HF_TOKEN", "t")
                .env("HF_ENDPOINT", format!("http://{}", hub.addr));
            let output = command.output().unwrap();
            let ran = Ran::of(output);
            if ran.code != 0 {
                wrong.push(format!(
                    "{} ({verb})\n{scenario}\n{}",
                    block.location(),
                    ran.err
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The exit code of a command, and what it printed on both streams.
#[derive(Default)]
struct Output {
    code: i32,
    text: String,
}

/// The command that runs here in place of this one of a page.
fn instead(line: &str) -> String {
    INSTEAD
        .iter()
        .find(|(own, ..)| *own == line)
        .map_or(line, |(_, instead, _)| *instead)
        .replace("cargo run --release --", "llmscen")
}

/// Runs a command line of a page. A verdict depends on the machine; a wrong command or scenario does not.
fn run(lab: &Lab, line: &str, place: &str) -> Output {
    let line = instead(line);
    shell(
        lab,
        &format!(
            "code=0; {line} >out.txt 2>err.txt || code=$?; echo $code >code.txt; case $code in 0|1|4|5) ;; *) echo \"{place}: exit $code\"; cat err.txt; exit 1;; esac"
        ),
    );
    Output {
        code: lab.text("code.txt").trim().parse().unwrap(),
        text: lab.text("out.txt") + &lab.text("err.txt"),
    }
}

/// A line of a console without its prompt and its remark.
fn command(line: &str) -> Option<&str> {
    let line = line.strip_prefix("$ ")?;
    Some(line.split("  #").next().unwrap_or(line).trim_end())
}

#[test]
fn every_command_of_a_console_runs_and_prints_what_the_page_shows() {
    // A page shows a file before it uses it.
    let named: Vec<Block> = blocks()
        .into_iter()
        .filter(|block| block.file().is_some())
        .collect();
    let blocks: Vec<Block> = blocks()
        .into_iter()
        .filter(|block| ["console", "bash"].contains(&block.language.as_str()))
        .collect();
    assert!(blocks.len() >= 6, "{} blocks", blocks.len());
    each(&blocks, |block| {
        let lab = prepared();
        if block.page.starts_with("docs/tutorial/") {
            return; // `the_tutorial_is_one_path_that_works` runs it.
        }
        if block.page == "docs/how-to/import.md" {
            fs::remove_file(lab.path().join("chat.yaml")).unwrap();
        }
        if block.language == "bash" {
            run(&lab, &format!("{{ {}\n}}", block.text), &block.location());
            return;
        }
        for own in named.iter().filter(|own| own.page == block.page) {
            lab.file(own.file().unwrap(), &own.text);
        }
        console(block, |line| run(&lab, &calm(line), &block.location()));
    });
}

/// As `instead`, but a run is not INVALID on a busy machine.
fn calm(line: &str) -> String {
    let mut line = instead(line);
    if line.contains("llmscen run ") {
        line += " --set 'audit={ lag_p99: 1h, stall_p99: 1h, cpu: 1, achieved: 0 }'";
    }
    line
}

/// Whether two lines differ in measured values, the number of samples after one, and blanks only.
fn is_like(shown: &str, own: &str) -> bool {
    let words = |line: &str| {
        let mut measured = false;
        let mut words: Vec<String> = Vec::new();
        let mut line = line.split_whitespace().peekable();
        while let Some(word) = line.next() {
            let is_unit = |word: &str| ["ms", "s", "req/s", "tok/s"].contains(&word);
            let number = word.trim_end_matches(['%', 'x']).parse::<f64>().is_ok();
            let of_unit = line.peek().is_some_and(|next| is_unit(next));
            let has_unit = word.ends_with(['%', 'x']);
            let plain = number && (measured || of_unit || has_unit);
            measured = is_unit(word) || (plain && has_unit);
            words.push(if plain { "#" } else { word }.to_owned());
        }
        words
    };
    words(shown) == words(own)
}

/// Runs the commands of a console and checks the output that it shows. On a busy machine a verdict may be another one.
fn console(block: &Block, run: impl Fn(&str) -> Output) {
    let mut shown = Output::default();
    // A command may go on in the next line.
    for line in block
        .text
        .replace("\\\n", "\\\x0b")
        .lines()
        .filter(|line| !line.trim().is_empty())
    {
        let line = &line.replace('\x0b', "\n");
        if let Some(line) = command(line) {
            shown = run(line);
            continue;
        }
        if shown.code != 0 && (line.contains("PASS") || line.contains("VERDICT") || line == "0") {
            continue;
        }
        if shown.text.lines().any(|own| is_like(line, own)) {
            continue;
        }
        // `…` is what differs from run to run.
        let missing: Vec<&str> = line
            .split('…')
            .filter(|part| !shown.text.contains(part.trim()))
            .collect();
        assert!(
            missing.is_empty(),
            "{}: `{line}` is not in\n{}",
            block.location(),
            shown.text
        );
    }
}

/// The blocks of a tutorial, in their order and in one folder that is empty at first.
#[test]
fn the_tutorial_is_one_path_that_works() {
    let lab = Lab::new();
    let server = Simulator::start(&lab, "");
    let blocks = blocks();
    let tutorial: Vec<&Block> = blocks
        .iter()
        .filter(|block| block.page.starts_with("docs/tutorial/"))
        .collect();
    assert!(tutorial.len() >= 8, "{} blocks", tutorial.len());
    let code = std::cell::Cell::new(0);
    for block in tutorial {
        if let Some(name) = block.file() {
            lab.file(name, &block.text);
        }
        if block.language != "console" {
            continue;
        }
        console(block, |line| {
            if line == "echo $?" {
                let text = code.get().to_string();
                return Output {
                    code: code.get(),
                    text,
                };
            }
            let line = line.replace("http://127.0.0.1:8000", &server.url);
            let output = run(&lab, &calm(&line), &block.location());
            code.set(output.code);
            output
        });
    }
}

#[test]
fn every_block_has_a_language_that_is_checked() {
    for block in blocks() {
        // `text` shows a form, nothing to run.
        assert!(
            ["yaml", "console", "bash", "python", "text"].contains(&block.language.as_str()),
            "{}: `{}`",
            block.location(),
            block.language
        );
    }
}

#[test]
fn commands_within_sentences_have_options_that_exist() {
    let lab = Lab::new();
    let help = |path: &[&str]| lab.llmscen(&[path, &["--help"]].concat()).expect(0).out;
    let mut checked = 0;
    for page in pages() {
        let text = text(&page);
        let spans = text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter_map(|span| span.strip_prefix("llmscen "));
        for span in spans.filter(|span| !span.contains('\n')) {
            // What follows `--` is another tool's.
            let words: Vec<&str> = span
                .split(" -- ")
                .next()
                .unwrap_or(span)
                .split_whitespace()
                .collect();
            let verb = words[0];
            if verb.starts_with('-')
                || verb.chars().any(|c| !c.is_ascii_lowercase())
                || verb == "guard"
            {
                continue;
            }
            let usage = help(&[verb]);
            let usage = if verb == "baseline" {
                usage + &help(&[verb, "update"]) + &help(&[verb, "doctor"])
            } else {
                usage
            };
            for flag in words
                .iter()
                .filter(|word| word.starts_with("--"))
                .map(|word| word.split('=').next().unwrap_or(word))
            {
                assert!(
                    usage.contains(flag),
                    "{page}: `llmscen {span}`: {flag} is not an option of {verb}"
                );
            }
            checked += 1;
        }
    }
    assert!(checked >= 10, "{checked}");
}

/// The shipped scenarios.
pub fn scenarios() -> Vec<PathBuf> {
    let files = fs::read_dir(Path::new(ROOT).join("scenarios"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .collect();
    files.sort();
    files
}

/// Each scenario in a folder with the shipped data alone, without variables.
#[test]
fn every_shipped_scenario_runs_alone() {
    let files = scenarios();
    assert!(files.len() >= 25, "{}", files.len());
    let ran = Mutex::new(Vec::new());
    each(&files, |path| {
        let lab = runs_alone(path);
        ran.lock().unwrap().extend(lab);
    });
    let ran = ran.into_inner().unwrap();
    numbers::agree(
        &ran.iter()
            .map(|lab| lab.path().join("out"))
            .collect::<Vec<_>>(),
    );
}

fn runs_alone(path: &Path) -> Option<Lab> {
    let stem = path.file_stem().unwrap().to_str().unwrap();
    if stem.starts_with("local") && !cfg!(feature = "local") {
        return None;
    }
    let lab = Lab::new();
    // The port of the example may be in use on this machine.
    let port = port();
    let name = format!("{stem}.yaml");
    copy(
        &Path::new(ROOT).join("scenarios/data"),
        &lab.path().join("data"),
    );
    lab.file(
        &name,
        fs::read_to_string(path)
            .unwrap()
            .replace("18080", &port.to_string()),
    );
    if stem == "agents" {
        let data = path.with_file_name("data/agents.jsonl");
        lab.file("data/agents.jsonl", fs::read(data).unwrap());
    }
    let args = [
        "run",
        &name,
        "--output",
        "out",
        "--set",
        "audit={ lag_p99: 1h, stall_p99: 1h, cpu: 1, achieved: 0, idle: 1 }",
    ];
    let ran = lab.llmscen(&args);
    // On a busy machine, objectives may fail or be inconclusive; nothing else may happen.
    assert!(
        [0, 1, 5].contains(&ran.code),
        "{stem}: exit {}\n{}",
        ran.code,
        ran.err
    );
    let results = lab.results();
    for case in results["cases"].as_array().unwrap() {
        let count = |key: &str| case["counts"][key].as_u64().unwrap();
        assert!(count("ok") > 0, "{stem}: no request succeeded\n{}", ran.err);
        if stem == "slo-fail" {
            continue;
        }
        assert!(count("scheduled") >= 4, "{stem}: {}", case["counts"]);
        assert_eq!(
            (count("ok"), count("failed"), count("dropped")),
            (count("scheduled"), 0, 0),
            "{stem}: {}",
            case["failures"]
        );
        // Audio and images have no place for counts.
        let is_counted = !["speech", "images-out"].contains(&stem);
        assert_eq!(
            case["metrics"]["prompt_tokens"]["n"].as_u64(),
            is_counted.then(|| count("ok")),
            "{stem}: the simulator reports its counts"
        );
    }
    match stem {
        "slo-fail" => assert_eq!(ran.code, 1, "{}", ran.err),
        "regression" => {
            let warning = "baseline baselines/regression.json not found; objectives relative to it will be inconclusive";
            assert!(ran.err.contains(warning) && ran.code != 0, "{}", ran.err);
        }
        _ => {}
    }
    Some(lab)
}

/// Phrases that a reader must read twice.
const BANNED: [&str; 16] = [
    "held against",
    "so many",
    "at the most",
    "at the least",
    "for the eye",
    "by which it would",
    "under management",
    "asked different things",
    "more than noise",
    "found no room",
    "there twice",
    "whoever",
    "somebody",
    "stands for",
    "told apart",
    "is worth",
];

#[test]
fn no_page_has_a_banned_phrase() {
    let generated = ["docs/reference/cli.md"];
    let own = ["CONTRIBUTING.md", "CHANGELOG.md"].map(str::to_owned);
    let mut found = Vec::new();
    for page in pages().into_iter().chain(own) {
        if generated.contains(&page.as_str()) {
            continue;
        }
        let text = text(&page).to_lowercase();
        found.extend(
            BANNED
                .iter()
                .filter(|phrase| text.contains(**phrase))
                .map(|phrase| (page.clone(), *phrase)),
        );
    }
    for path in scenarios() {
        let text = fs::read_to_string(&path).unwrap().to_lowercase();
        found.extend(
            BANNED
                .iter()
                .filter(|phrase| text.contains(**phrase))
                .map(|phrase| (path.display().to_string(), *phrase)),
        );
    }
    assert!(found.is_empty(), "{found:#?}");
}
