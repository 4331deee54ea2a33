//! report.html in a real browser: it shows the values of results.json, uses no network, and its script has no errors.

use crate::lab::Lab;
use serde_json::Value;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Two loads with a limit that is broken, and words that try to end a script.
const SCENARIO: &str = "version: 1\nname: t\ndescription: </script><script>alert(1)</script>\n\
    target: { url: simulator, simulator: { alpha: 2ms, gamma: 100us } }\n\
    dataset: { kind: prompt, text: x }\nrequest: { max_tokens: 4 }\n\
    load: { requests: 40, warmup: 4 }\nmatrix: { load.concurrency: [1, 4] }\nslo: [ttft.p95 < 1ns, error_rate < 50%]\n\
    audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\nreport: { formats: [html] }\n";

/// Chromium, if installed: `LLMSCEN_CHROMIUM`, or one of its usual names.
fn chromium() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("LLMSCEN_CHROMIUM") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file());
    if found.is_none() {
        eprintln!(
            "SKIPPED: no Chromium; install it or set LLMSCEN_CHROMIUM to test report.html in a browser"
        );
    }
    found
}

/// A proxy that refuses everything and records the requested hosts.
fn proxy() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, asked) = (
        listener.local_addr().unwrap().port(),
        Arc::new(Mutex::new(Vec::new())),
    );
    let noted = asked.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A preconnected socket may never send anything.
            stream
                .set_read_timeout(Some(Duration::from_millis(500)))
                .unwrap();
            let mut head = [0; 2048];
            let length = stream.read(&mut head).unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            // `GET http://host/path HTTP/1.1` or `CONNECT host:443 HTTP/1.1`.
            let Some(target) = head.split(' ').nth(1) else {
                continue;
            };
            let host = target
                .trim_start_matches("http://")
                .split(['/', ':', '?'])
                .next()
                .unwrap_or_default();
            noted.lock().unwrap().push(host.to_owned());
        }
    });
    (port, asked)
}

/// The result of loading a page in the browser.
struct Opened {
    /// Its elements after its script ran.
    dom: String,
    /// What it wrote to the console.
    said: String,
    /// The requested hosts, without those that the browser itself contacts.
    asked: Vec<String>,
}

fn opened(chromium: &Path, page: &Path) -> Opened {
    let (port, asked) = proxy();
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(chromium);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
    ]);
    command.args([
        "--disable-component-update",
        "--no-first-run",
        "--enable-logging=stderr",
        "--v=0",
        "--dump-dom",
    ]);
    // Loopback would go past a proxy by default, and a request to it is one as well.
    command
        .arg(format!("--proxy-server=127.0.0.1:{port}"))
        .arg("--proxy-bypass-list=<-loopback>");
    command
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg("--virtual-time-budget=4000");
    let ran = command
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("Chromium starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said: Vec<String> = text(&ran.stderr)
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .map(str::to_owned)
        .collect();
    let source = std::fs::read_to_string(page).unwrap();
    let asked = asked
        .lock()
        .unwrap()
        .iter()
        .filter(|host| source.contains(host.as_str()))
        .cloned()
        .collect();
    Opened {
        dom: text(&ran.stdout),
        said: said.join("\n"),
        asked,
    }
}

/// The value of an attribute within a tag.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    tag.split_once(&format!(" {name}=\""))?
        .1
        .split_once('"')
        .map(|(value, _)| value)
}

/// One value on the page: its key, raw value, and text.
#[derive(Debug)]
struct Figure {
    case: String,
    metric: String,
    stat: String,
    slo: Option<String>,
    value: f64,
    shown: String,
}

/// Every figure of the page that belongs to a case.
fn figures(dom: &str) -> Vec<Figure> {
    let (mut article, mut row, mut found) = (None, "", Vec::new());
    let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
    for piece in dom.split('<').skip(1) {
        let Some((tag, text)) = piece.split_once('>') else {
            continue;
        };
        match tag.split(' ').next().unwrap_or_default() {
            "article" => article = attribute(tag, "data-case"),
            "/article" => article = None,
            "tr" => row = tag,
            "td" => {
                let Some(value) = attribute(tag, "data-value") else {
                    continue;
                };
                let Some(case) = attribute(row, "data-case").or(article) else {
                    continue;
                };
                found.push(Figure {
                    case: case.to_owned(),
                    metric: owned(attribute(tag, "data-metric").or(attribute(row, "data-metric"))),
                    stat: owned(attribute(tag, "data-stat")),
                    slo: attribute(row, "data-slo")
                        .map(|slo| slo.replace("&lt;", "<").replace("&gt;", ">")),
                    value: value.parse().unwrap(),
                    shown: text.to_owned(),
                });
            }
            _ => {}
        }
    }
    found
}

/// The value of results.json at the same key; a share is computed from its counts.
fn recorded(results: &Value, figure: &Figure) -> Option<f64> {
    let case = results["cases"]
        .as_array()
        .unwrap()
        .iter()
        .find(|case| case["id"] == figure.case.as_str())
        .unwrap();
    if let Some(expr) = &figure.slo {
        let slo = case["slo"]
            .as_array()
            .unwrap()
            .iter()
            .find(|slo| slo["expr"] == expr.as_str())
            .unwrap();
        return slo[&figure.stat].as_f64();
    }
    let replies = |reason: Option<&str>| {
        let reasons = case["finish_reasons"].as_array().unwrap().iter();
        reasons
            .filter(|own| reason.is_none_or(|reason| own["reason"] == reason))
            .map(|own| own["count"].as_f64().unwrap())
            .sum::<f64>()
    };
    let lengths = &case["output_lengths"];
    let value = match (figure.metric.as_str(), figure.stat.as_str()) {
        ("counts", stat) => &case["counts"][stat],
        ("audit", stat) => &case["audit"][stat],
        ("replies", path) => case["replies"].pointer(&format!("/{path}"))?,
        ("failures", kind) => &case["counts"]["failures"][kind],
        ("finish_reasons", reason) => return Some(replies(Some(reason))),
        ("finish_shares", reason) => return Some(replies(Some(reason)) / replies(None)),
        ("output_lengths", "share") => {
            return Some(lengths["shorter"].as_f64()? / lengths["n"].as_f64()?);
        }
        ("output_lengths", stat) => &lengths[stat],
        (metric, "") => &case["metrics"][metric],
        (metric, stat) => &case["metrics"][metric][stat],
    };
    value.as_f64()
}

/// Whether a shown figure is the value rounded to the digits that are shown.
fn rounds(shown: &str, value: f64) -> bool {
    let shown = shown.trim_start_matches('~');
    let end = shown
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-')
        .unwrap_or(shown.len());
    let (digits, unit) = shown.split_at(end);
    let scale = match unit.trim() {
        "s" | "k tok/s" | "k req/s" => [1e-3, 1.0],
        "µs" => [1e3, 1e3],
        "%" => [1e2, 1e2],
        "KiB" => [1.0 / 1024.0; 2],
        "MiB" => [1.0 / 1048576.0; 2],
        "GiB" => [1.0 / 1073741824.0; 2],
        _ => [1.0, 1.0],
    };
    let places = digits
        .split_once('.')
        .map_or(0, |(_, fraction)| fraction.len());
    let half = 0.5 * 10f64.powi(-(places as i32)) * (1.0 + 1e-9);
    digits.parse::<f64>().is_ok_and(|read| {
        scale
            .iter()
            .any(|scale| (read - value * scale).abs() <= half)
    })
}

#[test]
fn shown_digits_are_compared_with_the_value() {
    for (shown, value, same) in [
        ("87.3", 87.34, true),
        ("87.4", 87.34, false),
        ("1.24 s", 1240.0, true),
        ("12.4k tok/s", 12_400.0, true),
        ("50%", 0.5, true),
        ("n/a", 1.0, false),
    ] {
        assert_eq!(rounds(shown, value), same, "{shown} {value}");
    }
}

#[test]
fn the_page_in_a_browser_says_what_results_json_says_and_asks_nobody() {
    let Some(chromium) = chromium() else { return };
    let lab = Lab::new();
    lab.run(SCENARIO).expect(1);
    let page = lab.path().join("out/report.html");
    let Opened { dom, said, asked } = opened(&chromium, &page);
    assert_eq!(
        (said.as_str(), asked),
        ("", Vec::new()),
        "console, and hosts"
    );
    let (seen, results) = (figures(&dom), lab.results());
    for figure in &seen {
        assert_eq!(recorded(&results, figure), Some(figure.value), "{figure:?}");
        assert!(rounds(&figure.shown, figure.value), "{figure:?}");
    }
    for id in ["concurrency=1", "concurrency=4"] {
        let of = |metric: &str| {
            seen.iter()
                .filter(|figure| figure.case == id && figure.metric == metric)
                .count()
        };
        assert!(
            of("ttft_ms") >= 12 && of("output_tps") == 2 && of("audit") >= 7 && of("counts") >= 5,
            "{id}"
        );
    }
    assert_eq!(
        seen.iter().filter(|figure| figure.slo.is_some()).count(),
        16 - unbounded(&results),
        "limits"
    );
    assert!(dom.contains(">&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;</p>"));
    // The script ran: charts of the sweep and of the first case, and only of that.
    assert!(dom.contains("class=\"js\"") && dom.matches("class=\"case shown\"").count() == 1);
    assert!(
        dom.matches("<canvas").count() >= 9,
        "{} charts",
        dom.matches("<canvas").count()
    );
}

/// Figures of limits that have no value.
fn unbounded(results: &Value) -> usize {
    let limits = results["cases"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|case| case["slo"].as_array().unwrap());
    limits
        .flat_map(|slo| ["observed", "bound", "limit", "n"].map(|key| slo[key].is_null()))
        .filter(|absent| *absent)
        .count()
}

#[test]
fn without_a_script_the_figures_are_all_there() {
    let Some(chromium) = chromium() else { return };
    let lab = Lab::new();
    lab.run(SCENARIO).expect(1);
    let page = lab.text("out/report.html");
    let (before, _) = page.split_once("<script>").unwrap();
    let bare = lab.file("out/bare.html", format!("{before}</body></html>"));
    let Opened { dom, said, .. } = opened(&chromium, &bare);
    let (bare, whole) = (figures(&dom).len(), figures(&page).len());
    assert_eq!((said.as_str(), bare), ("", whole));
    assert!(!dom.contains("class=\"js\"") && !dom.contains("<canvas"));
}

#[test]
fn a_comparison_in_a_browser_says_what_compare_json_says_and_asks_nobody() {
    let Some(chromium) = chromium() else { return };
    let lab = Lab::new();
    lab.file("t.yaml", SCENARIO);
    for folder in ["a", "b"] {
        lab.llmscen(&["run", "t.yaml", "--output", folder])
            .expect(1);
    }
    lab.llmscen(&[
        "compare",
        "a",
        "b",
        "--max-regression",
        "100000",
        "--inconclusive",
        "pass",
        "--output",
        "cmp",
    ])
    .expect(0);
    let Opened { dom, said, asked } = opened(&chromium, &lab.path().join("cmp/compare.html"));
    assert_eq!(
        (said.as_str(), asked),
        ("", Vec::new()),
        "console, and hosts"
    );
    let (seen, known) = (figures(&dom), lab.json("cmp/compare.json"));
    let rows = known["comparisons"].as_array().unwrap();
    assert!(
        seen.len() >= rows.len() * 2,
        "{} figures of {} comparisons",
        seen.len(),
        rows.len()
    );
    for figure in &seen {
        let row = rows
            .iter()
            .find(|row| {
                row["case"] == figure.case.as_str() && row["metric"] == figure.metric.as_str()
            })
            .unwrap();
        let wanted = match figure.stat.as_str() {
            "ratio" => &row["ratio"]["value"],
            "p_adjusted" => &row["p_adjusted"],
            side => &row[side]["value"],
        };
        assert_eq!(wanted.as_f64(), Some(figure.value), "{figure:?}");
    }
    assert!(
        dom.contains("class=\"js\"") && dom.matches("<svg ").count() >= 4,
        "the script ran, and the charts are there"
    );
}

/// The script of axe-core, which `.ci/run` installs into `target/axe`.
fn axe() -> Option<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/axe/axe.min.js");
    match std::fs::read_to_string(&file) {
        Ok(script) => Some(script),
        Err(error) if std::env::var("LLMSCEN_TEST_TOOLS").as_deref() == Ok("all") => {
            panic!("{}: {error}", file.display())
        }
        Err(_) => {
            eprintln!("SKIPPED: no {}; see .ci/run", file.display());
            None
        }
    }
}

/// The serious and critical faults that axe-core finds on a page in a theme, as its attribute `data-axe`.
fn axe_faults(chromium: &Path, lab: &Lab, axe: &str, page: &str, theme: &str) -> String {
    let check = "axe.run(document, { resultTypes: ['violations'] }).then((found) => { document.body.dataset.axe = \
        found.violations.filter((fault) => ['serious', 'critical'].includes(fault.impact)) \
        .map((fault) => `${fault.id} ${fault.nodes[0].html}`).join(' | ') || 'none'; });";
    let script = format!("document.documentElement.dataset.theme = '{theme}'; {check}");
    let whole = page.replace(
        "</body>",
        &format!("<script>{axe}</script><script>{script}</script></body>"),
    );
    let Opened { dom, .. } = opened(chromium, &lab.file("axe.html", whole));
    let body = dom.split("<body").nth(1).expect("a body");
    attribute(body, "data-axe")
        .expect("axe-core ran")
        .to_owned()
}

#[test]
fn axe_finds_no_serious_fault_in_a_report() {
    let (Some(chromium), Some(axe)) = (chromium(), axe()) else {
        return;
    };
    let single = SCENARIO
        .replace("matrix: { load.concurrency: [1, 4] }\n", "")
        .replace("load: {", "load: { concurrency: 4,");
    for (scenario, code) in [(SCENARIO, 1), (single.as_str(), 1)] {
        let lab = Lab::new();
        lab.run(scenario).expect(code);
        let page = lab.text("out/report.html");
        for theme in ["light", "dark"] {
            assert_eq!(
                axe_faults(&chromium, &lab, &axe, &page, theme),
                "none",
                "{theme}"
            );
        }
    }
}

#[test]
fn axe_finds_a_fault_that_is_there() {
    let (Some(chromium), Some(axe)) = (chromium(), axe()) else {
        return;
    };
    let page = "<html lang='en'><title>t</title><body><img src='data:,'></body></html>";
    let found = axe_faults(&chromium, &Lab::new(), &axe, page, "light");
    assert!(found.contains("image-alt"), "{found}");
}

#[test]
fn a_page_that_asks_is_caught() {
    let Some(chromium) = chromium() else { return };
    let lab = Lab::new();
    let page = lab.file(
        "asks.html",
        "<img src='http://asked.test/x.png'><script>console.error('odd')</script>",
    );
    let Opened { said, asked, .. } = opened(&chromium, &page);
    assert!(
        asked.contains(&"asked.test".to_owned()) && said.contains("odd"),
        "{asked:?} {said}"
    );
}
