//! Texts of scenarios and servers that would act on a terminal or a spreadsheet.

use crate::lab::*;

/// Clears a screen, rings, reorders, deletes.
const HOSTILE: &str = "\u{1b}[2J\u{7}\u{202e}evil\u{2066}\u{200f}\u{9b}31m\u{7f}";

#[track_caller]
fn harmless(place: &str, text: &str) {
    let acts = |c: &char| c.is_control() && *c != '\n' || "\u{202e}\u{2066}\u{200f}".contains(*c);
    if let Some(c) = text.chars().find(acts) {
        panic!("{:?} in {place}: {text:?}", c);
    }
}

fn scenario(url: &str) -> String {
    let odd = serde_json::json!(format!("m{HOSTILE}"));
    let text = format!(
        "version: 1\nname: odd\ndescription: {odd}\ntarget: {{ url: \"{url}\", model: {odd}, timeouts: {{ connect: 2s, read: 1s, total: 5s }} }}\n\
         dataset: {{ kind: prompt, text: {odd} }}\nmatrix: {{ request.extra.label: [{odd}, plain] }}\n\
         load: {{ concurrency: 1, requests: 3 }}\nslo: [{{ preset: mine }}]\npresets: {{ mine: [error_rate < 101%] }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n"
    );
    text.replace(
        "slo: [{ preset: mine }]\npresets: { mine: [error_rate < 101%] }",
        "slo: [ttft.p50 < 10s]",
    )
}

#[test]
fn nothing_in_a_scenario_or_an_answer_acts_on_a_terminal() {
    let words = serde_json::json!(format!("no {HOSTILE}"));
    let error = format!("{{\"error\": {{\"message\": {words}}}}}");
    let server = Server::start(move |stream, _| {
        send(
            stream,
            &response("400 Bad Request", "application/json", &error),
        )
    });
    let lab = Lab::new();
    lab.file("s.yaml", scenario(&server.url()));
    for args in [
        vec!["run", "s.yaml", "--output", "out", "--progress", "plain"],
        vec!["run", "s.yaml", "--output", "out2", "--progress", "json"],
        vec!["validate", "s.yaml"],
        vec!["plan", "s.yaml"],
        vec!["report", "out"],
        vec!["compare", "out", "out2"],
        vec!["run", "s.yaml", "--only", "nothing\u{1b}[2J\u{202e}"],
        vec!["plan", "missing\u{1b}[2J\u{202e}.yaml"],
        vec!["run", "--no\u{1b}[2J\u{202e}"],
        vec!["bodies", "missing\u{1b}[2J\u{202e}"],
    ] {
        let ran = lab.llmscen(&args);
        harmless(&format!("stdout of {args:?}"), &ran.out);
        harmless(&format!("stderr of {args:?}"), &ran.err);
    }
    let ran = lab.llmscen(&["try", "s.yaml"]);
    harmless("stderr of try", &ran.err);
    lab.file(
        "bad.yaml",
        format!(
            "version: 1\nname: {}\nnot\u{202e}a\u{7f}key: 1\n",
            serde_json::json!("x\u{202e}")
        ),
    );
    let ran = lab.llmscen(&["validate", "bad.yaml"]).expect(2);
    harmless("faults", &ran.err);
    assert!(ran.err.contains(r"not\u{202e}a\u{7f}key"), "{}", ran.err);
}

#[test]
fn no_csv_has_a_formula_and_numbers_stay() {
    let lab = Lab::new();
    let text = "version: 1\nname: t\ntarget: { api: simulator }\nrequest: { max_tokens: 4 }\n\
         dataset: { kind: prompt, text: hello }\nload: { concurrency: 1, requests: 3 }\n\
         matrix: { request.extra.label: [\"=1+1\", \"@SUM(A1)\", \"-x\", \"-1\"] }\n\
         audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n\
         report: { formats: [csv], compat: [guidellm, aiperf, lmdeploy] }\n";
    lab.run(text).expect(0);
    let cases = lab.text("out/cases.csv");
    let label = |row: usize| {
        cases
            .lines()
            .nth(row)
            .unwrap()
            .split(',')
            .nth(1)
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        [label(1), label(2), label(3), label(4)],
        ["'=1+1", "'@SUM(A1)", "'-x", "-1"],
        "{cases}"
    );
    let shown = lab
        .llmscen(&["report", "out", "--format", "csv"])
        .expect(0)
        .out;
    let files = walk(&lab.path().join("out"));
    let csv = files
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "csv"));
    let all = csv
        .map(|path| std::fs::read_to_string(path).unwrap())
        .chain([shown])
        .collect::<Vec<_>>();
    assert!(all.len() > 4, "{files:?}");
    for text in all {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(text.as_bytes());
        for record in reader.records() {
            for cell in record
                .unwrap()
                .iter()
                .filter(|cell| cell.starts_with(['=', '+', '-', '@', '\t', '\r']))
            {
                assert!(
                    cell == "-" || cell.parse::<f64>().is_ok(),
                    "{cell:?} in {text}"
                );
            }
        }
    }
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                walk(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}
