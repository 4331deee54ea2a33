//! The book under docs/: its pages are linked, its generated pages are current, and mdBook builds it without a warning.

use crate::docs::{pages, scenarios, text};
use crate::lab::{Lab, plain};
use crate::launch::is_missing;
use crate::live::get;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    path.components()
        .fold(PathBuf::new(), |mut whole, part| match part {
            Component::ParentDir => {
                whole.pop();
                whole
            }
            Component::CurDir => whole,
            part => whole.join(part),
        })
}

/// The lines of a page outside of its blocks of code.
fn prose(text: &str) -> Vec<&str> {
    let mut fenced = false;
    text.lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            !fenced && !fence
        })
        .collect()
}

/// The ids of a page's headings, as mdBook and GitHub make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    prose(text)
        .into_iter()
        .filter_map(|line| {
            line.strip_prefix('#')?
                .trim_start_matches('#')
                .strip_prefix(' ')
        })
        .map(|title| {
            let kept = title
                .trim()
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                .collect::<String>()
                .replace(' ', "-");
            let count = seen.entry(kept.clone()).or_default();
            *count += 1;
            match *count {
                1 => kept,
                n => format!("{kept}-{}", n - 1),
            }
        })
        .collect()
}

/// The targets of the links and images of a page.
fn links(text: &str) -> Vec<String> {
    let text = prose(text).join("\n");
    // What is in backquotes is no link.
    let plain: String = text.split('`').step_by(2).collect::<Vec<_>>().join("`");
    plain
        .split("](")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()))
        .collect()
}

fn is_external(target: &str) -> bool {
    ["http://", "https://", "mailto:"]
        .iter()
        .any(|start| target.starts_with(start))
}

#[test]
fn every_link_of_a_page_has_its_target() {
    let own = [
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "reports/sample/report.md",
    ];
    let mut wrong = Vec::new();
    let mut checked = 0;
    for page in pages().into_iter().chain(own.map(str::to_owned)) {
        for link in links(&text(&page)).iter().filter(|link| !is_external(link)) {
            checked += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = match file {
                "" => PathBuf::from(&page),
                file => normal(&Path::new(&page).parent().unwrap().join(file)),
            };
            let exists = Path::new(ROOT).join(&path).exists();
            let linked = exists
                && (anchor.is_empty() || anchors(&text(path.to_str().unwrap())).contains(anchor));
            if !linked {
                wrong.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(checked > 150, "{checked} links");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_summary_lists_every_page_once() {
    let mut listed: Vec<String> = links(&text("docs/SUMMARY.md"))
        .iter()
        .map(|link| format!("docs/{link}"))
        .collect();
    listed.sort();
    let mut pages = pages();
    pages.retain(|page| page.starts_with("docs/") && page != "docs/SUMMARY.md");
    assert_eq!(listed, pages);
}

#[test]
fn lines_of_prose_are_at_most_100_characters_long() {
    // Written by `llmscen`, from its tables.
    let generated = ["docs/reference/scenario.md", "docs/reference/cli.md"];
    let mut long = Vec::new();
    for page in pages() {
        if generated.contains(&page.as_str()) {
            continue;
        }
        for line in prose(&text(&page)) {
            // A table has one line per row, and some code and links cannot be broken.
            let breaks = line.trim_start().trim_start_matches(['-', '*', '>']).trim();
            let whole = ["|", "#", "!["]
                .iter()
                .any(|start| breaks.starts_with(start))
                || (breaks.starts_with('`') && breaks.trim_end_matches(['.', ':']).ends_with('`'));
            if line.chars().count() > 100 && !whole {
                long.push(format!("{page}: {line}"));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// The help of a command and of its subcommands. A line that names a subcommand is found by asking the program.
fn help(lab: &Lab, path: &[&str], page: &mut String) {
    let ran = lab.llmscen(&[path, &["--help"]].concat()).expect(0);
    let title = [&["llmscen"], path].concat().join(" ");
    let level = "#".repeat(path.len().max(1) + 1);
    let help: Vec<&str> = ran.out.lines().map(str::trim_end).collect();
    let help = help.join("\n");
    *page += &format!("\n{level} {title}\n\n```text\n{}\n```\n", help.trim());
    let words: BTreeSet<&str> = ran
        .out
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase()))
        .filter(|word| *word != "help")
        .collect();
    for word in words {
        let path = [path, &[word]].concat();
        let own = format!("Usage: llmscen {}", path.join(" "));
        let ran = lab.llmscen(&[&path[..], &["--help"]].concat());
        if ran.code == 0 && ran.out.contains(&own) {
            self::help(lab, &path, page);
        }
    }
}

/// `INSTA_UPDATE=always cargo test --test it book::the_cli_page` writes the page.
#[test]
fn the_cli_page_is_the_help_of_the_program() {
    let lab = Lab::new();
    let mut page = "# Command line\n\nThe help of every command, as `llmscen COMMAND --help` prints it. A test compares this page with the\nprogram.\n".to_owned();
    help(&lab, &[], &mut page);
    let path = Path::new(ROOT).join("docs/reference/cli.md");
    if std::env::var("INSTA_UPDATE").is_ok_and(|how| how == "always") {
        fs::write(&path, &page).unwrap();
    }
    for command in ["run", "report", "baseline update"] {
        assert!(page.contains(&format!(" llmscen {command}\n")), "{command}");
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == page,
        "write the page again: INSTA_UPDATE=always cargo test --test it book::the_cli_page"
    );
}

/// The question that a scenario answers: the first comment after the editor's line.
fn question(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().peekable();
    let schema = lines.next().unwrap_or_default();
    assert!(
        schema.starts_with("# yaml-language-server: $schema=../")
            && schema.ends_with("../docs/scenario.schema.json"),
        "{}",
        path.display()
    );
    lines
        .next()
        .unwrap_or_default()
        .trim_start_matches("# ")
        .to_owned()
}

#[test]
fn every_shipped_scenario_begins_with_its_question_and_is_in_the_index() {
    let page = text("docs/reference/scenarios.md");
    let rows: BTreeMap<&str, &str> = page
        .lines()
        .filter_map(|line| {
            let (name, question) = line.strip_prefix("| [")?.split_once(" | ")?;
            Some((
                name.split(']').next()?,
                question.split(" | ").next()?.trim_end_matches(" |"),
            ))
        })
        .collect();
    let plans = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/ci")).unwrap();
    let plans = plans.map(|entry| entry.unwrap().path());
    let files: Vec<_> = scenarios().into_iter().chain(plans).collect();
    for path in &files {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let question = question(path);
        assert!(question.ends_with('?'), "{name}: `{question}`");
        assert_eq!(rows.get(name), Some(&question.as_str()), "{name}");
    }
    assert_eq!(rows.len(), files.len());
}

#[test]
fn images_of_the_book_are_of_the_sample_report_or_of_a_bench() {
    let benches = ["performance.svg", "verdicts.svg"];
    let mut images = 0;
    for page in pages() {
        for line in text(&page).lines().filter(|line| line.starts_with("![")) {
            let target = &links(line)[0];
            let file = target.rsplit('/').next().unwrap();
            assert!(
                benches.contains(&file) || target.contains("reports/sample/charts/"),
                "{page}: {target}"
            );
            images += 1;
        }
    }
    assert!(images >= 4, "{images}");
}

/// The names of the metrics in the queries of the dashboard.
fn dashboard_metrics(board: &serde_json::Value) -> BTreeSet<String> {
    let expressions = board["panels"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap());
    let variables = board["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|own| own["query"]["query"].as_str());
    expressions
        .chain(variables)
        .flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter(|word| word.starts_with("llmscen_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_run_exports_every_metric_that_the_grafana_dashboard_shows() {
    let text = fs::read_to_string(Path::new(ROOT).join("templates/grafana/llmscen.json")).unwrap();
    let shown = dashboard_metrics(&serde_json::from_str(&text).unwrap());
    assert!(shown.len() >= 10, "{shown:?}");
    let lab = Lab::new();
    let scenario = plain("simulator", 40);
    lab.file("s.yaml", scenario);
    let mut child = lab.spawn(&[
        "run",
        "s.yaml",
        "--output",
        "out",
        "--metrics-addr",
        "127.0.0.1:0",
        "--metrics-linger",
        "60",
    ]);
    let address = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap)
        .find_map(|line| {
            let address = line.strip_prefix("metrics: http://")?;
            Some(address.strip_suffix("/metrics")?.parse().unwrap())
        })
        .expect("stderr has the port");
    // It serves until the first scrape after the end of the run.
    let mut missing = shown.clone();
    while !missing.is_empty() {
        let Some(page) = get(address, "/metrics") else {
            panic!("not exported: {missing:?}");
        };
        missing.retain(|name| {
            !page
                .lines()
                .any(|line| line.split(['{', ' ']).next() == Some(name))
        });
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().ok();
    child.wait().unwrap();
}

/// The links of an HTML page.
fn hrefs(html: &str) -> Vec<String> {
    ["href=\"", "src=\""]
        .iter()
        .flat_map(|key| html.split(key).skip(1))
        .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
        .filter(|link| !is_external(link) && !link.starts_with("data:") && !link.is_empty())
        .collect()
}

#[test]
fn the_book_builds_without_a_warning_and_its_links_work() {
    let found = Command::new("mdbook")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if is_missing("mdbook", found) {
        return;
    }
    let site = tempfile::tempdir().unwrap();
    let output = Command::new(Path::new(ROOT).join(".ci/book"))
        .arg(site.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    for word in ["WARN", "ERROR"] {
        assert!(!said.contains(word), "{said}");
    }
    let mut built = 0;
    for page in pages().iter().filter(|page| page.starts_with("docs/")) {
        if page == "docs/SUMMARY.md" {
            continue;
        }
        let html = site.path().join(page).with_extension("html");
        let content = fs::read_to_string(&html).unwrap_or_else(|why| panic!("{html:?}: {why}"));
        for link in hrefs(&content) {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let file = file.split('?').next().unwrap();
            let path = match file {
                "" => html.clone(),
                file => normal(&html.parent().unwrap().join(file)),
            };
            assert!(path.exists(), "{page}: {link}");
            assert!(
                anchor.is_empty()
                    || fs::read_to_string(&path)
                        .unwrap()
                        .contains(&format!("id=\"{anchor}\"")),
                "{page}: {link}"
            );
        }
        built += 1;
    }
    assert!(built >= 40, "{built}");
    assert!(site.path().join("docs/scenario.schema.json").exists());
}
