//! `llmscen history` over runs against the simulator, and what runs record about themselves.

use crate::docs::text;
use crate::lab::*;
use llmscen_core::seed::Seed;
use llmscen_core::stats::change_points::{change_points, latest_change};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Normal};
use serde_json::Value;

/// A run of a server that takes `alpha` for a step, of this commit.
fn night(lab: &Lab, number: usize, alpha: &str, commit: &str) {
    let scenario = format!(
        "version: 1\nname: chat\nlabels: {{ commit: \"${{GIT_COMMIT}}\" }}\ntarget: {{ url: simulator, simulator: {{ alpha: {alpha} }} }}\n\
         request: {{ max_tokens: 4 }}\ndataset: {{ kind: prompt, text: hello }}\nload: {{ concurrency: 4, requests: 16 }}\n\
         slo: [tpot.p50 < 10s]\nreport: {{ formats: [html] }}\naudit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n"
    );
    lab.file("chat.yaml", scenario);
    let folder = format!("reports/chat/{number}");
    let args = [
        "run",
        "chat.yaml",
        "--output",
        &folder,
        "--quiet",
        "--inconclusive",
        "pass",
    ];
    Ran::of(
        lab.command(&args)
            .env("GIT_COMMIT", commit)
            .output()
            .unwrap(),
    )
    .expect(0);
}

#[test]
fn the_history_finds_a_slowdown_of_the_latest_run_and_links_its_runs() {
    let lab = Lab::new();
    for number in 0..8 {
        night(&lab, number, "30ms", &format!("c{number}"));
    }
    lab.file("reports/chat/killed/manifest.json", "{}");
    // A machine that is busy for some of the runs does change their level, by little.
    let metric = ["--metric", "tpot.p50", "--confidence", "0.999"];
    let before = lab.llmscen(&[&["history", "reports"], &metric[..]].concat());
    let before = before.expect(0);
    assert!(
        before
            .out
            .contains("NO REGRESSION: 8 runs, 1 series: 0 changes"),
        "{}",
        before.out
    );
    night(&lab, 8, "90ms", "c8");
    let elsewhere = ["history", "reports/", "--to", "pages/h.html"];
    lab.llmscen(&[&elsewhere, &metric[..]].concat()).expect(1);
    let page = lab.text("pages/h.html").replace("&#x2f;", "/");
    assert!(page.contains("<a href=\"../reports/chat/8/report.html\""));
    let json = ["history", "reports", "--format", "json"];
    let after = lab.llmscen(&[&json, &metric[..]].concat()).expect(1);
    let history: Value = serde_json::from_str(&after.out).unwrap();
    let change = &history["series"][0]["changes"][0];
    assert_eq!(
        (&change["first"], &change["test"]),
        (&8.into(), &"latest".into())
    );
    assert!(change["ratio"].as_f64().unwrap() > 2.0, "{change}");
    let named = change["differences"].as_array().unwrap();
    for difference in ["commit: c7 → c8", "target.simulator.alpha: 30ms → 90ms"] {
        assert!(named.iter().any(|it| it == difference), "{change}");
    }
    assert_eq!(history["left_out"][0]["folder"], "reports/chat/killed");
    let page = lab.text("reports/history.html").replace("&#x2f;", "/");
    for part in [
        "<span class=\"badge fail\">REGRESSION</span>",
        "commit: c7 → c8",
        "<code>reports/chat/killed</code>",
        "<svg class=\"trend\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for number in 0..9 {
        let link = format!("chat/{number}/report.html");
        assert!(page.contains(&format!("<a href=\"{link}\"")), "{link}");
        assert!(lab.path().join("reports").join(link).exists());
    }
    let allowed = ["history", "reports", "--max-regression", "1000"];
    lab.llmscen(&[&allowed, &metric[..]].concat()).expect(0);
}

#[test]
fn a_folder_without_a_complete_run_is_an_error() {
    let lab = Lab::new();
    lab.file("reports/x/manifest.json", "{}");
    let ran = lab.llmscen(&["history", "reports"]).expect(2);
    assert!(
        ran.err.contains("it has no results.json")
            && ran.err.contains("no complete run in reports"),
        "{}",
        ran.err
    );
    lab.llmscen(&["history", "nowhere"]).expect(2);
}

#[test]
fn labels_are_reported_and_compared_and_never_hold_a_secret() {
    let lab = Lab::new();
    let text = plain("simulator", 2).replace("model: m, ", "");
    lab.file(
        "s.yaml",
        text + "labels: { commit: \"${GIT_COMMIT}\", token_of: \"${MY_API_KEY}\" }\n",
    );
    for (folder, commit) in [("a", "4f2e91c"), ("b", "8a1b2c3")] {
        let mut command = lab.command(&["run", "s.yaml", "--output", folder]);
        command
            .env("GIT_COMMIT", commit)
            .env("MY_API_KEY", "hush-1");
        Ran::of(command.output().unwrap()).expect(0);
    }
    let results = ["a", "b"].map(|folder| lab.json(&format!("{folder}/results.json")));
    assert_eq!(results[0]["labels"]["commit"], "4f2e91c");
    assert_eq!(results[0]["labels"]["token_of"], "${MY_API_KEY}");
    assert_eq!(results[0]["plan_id"], results[1]["plan_id"]);
    for file in [
        "plan.yaml",
        "manifest.json",
        "results.json",
        "report.md",
        "report.html",
    ] {
        let text = lab.text(&format!("a/{file}"));
        assert!(
            text.contains("4f2e91c") && !text.contains("hush-1"),
            "{file}"
        );
    }
    let compared = lab.llmscen(&[
        "compare",
        "a",
        "b",
        "--inconclusive",
        "pass",
        "--format",
        "json",
    ]);
    let compared: Value = serde_json::from_str(&compared.out).unwrap();
    let notes = compared["notes"].as_array().unwrap();
    assert!(
        notes
            .iter()
            .any(|note| note == "commit of B: 4f2e91c → 8a1b2c3"),
        "{notes:?}"
    );
    lab.llmscen(&["report", "a"]).expect(0);
    assert_eq!(lab.json("a/results.json")["labels"], results[0]["labels"]);
}

#[test]
fn a_run_records_the_engine_that_its_server_names() {
    let server = Server::start(|socket, number| {
        let json = |body| response("200 OK", "application/json", body);
        let answer = match number {
            0 => stream(&[TOKEN, FINISH, "[DONE]"], true),
            1 => json(r#"{"data":[{"id":"m","owned_by":"vllm"}]}"#),
            _ => json(r#"{"version":"0.11.0"}"#),
        };
        send(socket, &answer)
    });
    let lab = Lab::new();
    lab.run(&plain(&server.url(), 1)).expect(0);
    let targets = &lab.results()["targets"];
    assert_eq!(targets[server.url()], "vllm 0.11.0");
    assert!(lab.text("out/report.html").contains("vllm 0.11.0"));
}

/// Simulated series per cell of the table.
const SERIES: u64 = 300;

/// Logarithms of a series with 3 % between its runs, whose level rises by `shift` from `index` on.
fn simulated(seed: u64, runs: usize, index: usize, shift: f64) -> Vec<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(Seed(seed).child("history").0);
    let noise = Normal::new(0.0, 0.03).unwrap();
    let level = |run| if run < index { 0.0 } else { f64::ln_1p(shift) };
    let value = |run| level(run) + noise.sample(&mut random);
    (0..runs).map(value).collect()
}

fn percent(count: usize) -> String {
    format!("{:.1} %", 100.0 * count as f64 / SERIES as f64)
}

/// How often a change is found at this level, and within one run of its place.
fn changes_found(level: f64, runs: usize, shift: f64) -> [String; 2] {
    let places = (0..SERIES).filter_map(|seed| {
        let found = change_points(&simulated(seed, runs, runs / 2, shift), level, Seed(seed));
        Some(found.first()?.index.abs_diff(runs / 2))
    });
    let places: Vec<usize> = places.collect();
    let near = places.iter().filter(|place| **place <= 1).count();
    [percent(places.len()), percent(near)]
}

fn latest_found(level: f64, new: usize, shift: f64) -> String {
    let is_found = |seed: &u64| {
        latest_change(&simulated(*seed, 20, 20 - new, shift), level, 5, 5, 0.0).is_some()
    };
    percent((0..SERIES).filter(is_found).count())
}

#[test]
fn the_book_has_the_rates_of_change_points() {
    // Half of 5 % for each of both tests, over the series of the page.
    let levels = [0.025, 0.025 / 6.0];
    let mut rows = Vec::new();
    for runs in [20, 60] {
        let found = levels.map(|level| changes_found(level, runs, 0.0)[0].clone());
        rows.push((format!("no change in {runs} runs"), found));
    }
    for shift in [0.05, 0.1] {
        let found = levels.map(|level| changes_found(level, 20, shift));
        let name = format!("{:.0} % from run 11 of 20 on", shift * 100.0);
        rows.push((name.clone(), found.each_ref().map(|it| it[0].clone())));
        rows.push((
            format!("{name}, within one run"),
            found.map(|it| it[1].clone()),
        ));
    }
    let latest = |new, shift| levels.map(|level| latest_found(level, new, shift));
    rows.push(("latest runs, no change".to_owned(), latest(1, 0.0)));
    for (new, name) in [
        (1, "the last run"),
        (2, "the last 2 runs"),
        (3, "the last 3 runs"),
        (5, "the last 5 runs"),
    ] {
        rows.push((format!("10 % in {name} of 20"), latest(new, 0.1)));
    }
    let table: String = rows
        .iter()
        .map(|(name, [alone, of_six])| format!("| {name} | {alone} | {of_six} |\n"))
        .collect();
    let page = text("docs/explanation/comparing-runs.md");
    assert!(page.contains(&table), "the table must be\n{table}");
}
