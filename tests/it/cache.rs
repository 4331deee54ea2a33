//! The cache audit: prompts that are unique within a run, but cached by the server from an earlier run.

use crate::lab::*;
use std::io::{BufRead, BufReader};
use std::process::Child;

/// A simulator that stays up between runs and keeps a prefix cache; ended with its owner.
struct Cached {
    child: Child,
    url: String,
}

impl Cached {
    fn start(lab: &Lab) -> Cached {
        let set = "target.simulator={ alpha: 1ms, prefix_cache: true }";
        let mut child = lab.spawn(&[
            "simulate",
            "--quiet",
            "--listen",
            "127.0.0.1:0",
            "--set",
            set,
        ]);
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut address)
            .unwrap();
        Cached {
            child,
            url: format!("{}/v1/chat/completions", address.trim()),
        }
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        // One that has ended is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const RANDOM: &str = "{ kind: random, tokens: 160 }";

fn scenario(server: &Cached, dataset: &str, more: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ url: \"{}\", model: m }}\nrequest: {{ max_tokens: 3 }}\ndataset: {dataset}\n\
         load: {{ concurrency: 4, requests: 40 }}\nslo: [\"error_rate < 20%\"]\nreport: {{ formats: [md] }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100% }}\n{more}",
        server.url
    )
}

/// Runs a scenario into a folder; its exit code and the note of its verdict.
fn run(lab: &Lab, scenario: &str, folder: &str, args: &[&str]) -> (i32, String) {
    lab.file("s.yaml", scenario);
    let ran = lab.llmscen(&[&["run", "s.yaml", "--output", folder], args].concat());
    let note = lab.json(&format!("{folder}/results.json"))["cases"][0]["slo"][0]["note"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (ran.code, note)
}

#[test]
fn a_second_run_served_from_the_cache_is_invalid_and_a_new_seed_is_valid() {
    let lab = Lab::new();
    let server = Cached::start(&lab);
    let fixed = scenario(&server, RANDOM, "");
    assert_eq!(
        run(&lab, &fixed, "a", &[]).0,
        0,
        "{}",
        lab.text("a/report.md")
    );
    let (code, note) = run(&lab, &fixed, "b", &[]);
    assert_eq!(code, 4, "{note}");
    for part in [
        "the server answered from its prefix cache",
        "of seed 42 were sent in an earlier run",
        "`seed: run`",
        "restart the server",
        "cache_bust",
    ] {
        assert!(note.contains(part), "{part}: {note}");
    }
    let audit = lab.json("b/results.json")["cases"][0]["audit"].clone();
    assert!(
        audit["cached"].as_f64().unwrap() > 0.8 && audit["cached_unique"].as_f64().unwrap() > 0.4,
        "{audit:#}"
    );
    assert_eq!(
        lab.json("a/results.json")["cases"][0]["audit"]["cached"],
        0.0
    );

    // A new seed for each run, which the stored plan has and `--seed` repeats.
    let fresh = scenario(&server, RANDOM, "seed: run\n");
    assert_eq!(run(&lab, &fresh, "c", &[]).0, 0);
    assert_eq!(run(&lab, &fresh, "d", &[]).0, 0);
    let seed = |folder: &str| {
        lab.json(&format!("{folder}/manifest.json"))["seed"]
            .as_u64()
            .unwrap()
    };
    assert_ne!(seed("c"), seed("d"));
    assert!(
        lab.text("c/plan.yaml")
            .contains(&format!("\nseed: {}\n", seed("c"))),
        "{}",
        lab.text("c/plan.yaml")
    );
    let before = lab.text("c/results.json");
    lab.llmscen(&["report", "c"]).expect(0);
    assert_eq!(lab.text("c/results.json"), before);
    let (code, note) = run(&lab, &fresh, "e", &["--seed", &seed("c").to_string()]);
    assert!(
        code == 4
            && note.contains(&format!(
                "of seed {} were sent in an earlier run",
                seed("c")
            )),
        "{code} {note}"
    );
    assert_eq!(seed("e"), seed("c"));

    // A difference that the cache may have caused is not tested; without the cache there is none.
    let cached = lab.llmscen(&["compare", "a", "b"]);
    assert!(
        cached
            .err
            .contains("not tested: cached prompt tokens were 0.0 % in A"),
        "{}{}",
        cached.out,
        cached.err
    );
    let plain = lab.llmscen(&["compare", "c", "d", "--max-regression", "300"]);
    assert!(
        !plain.err.contains("cached prompt tokens"),
        "{}{}",
        plain.out,
        plain.err
    );
}

#[test]
fn cache_bust_never_repeats_unless_the_scenario_says_so() {
    let lab = Lab::new();
    let server = Cached::start(&lab);
    for (place, dataset) in [
        "{ kind: openqa, path: builtin, cache_bust: true, shape: { tokens: 160, mode: exact } }",
        "{ kind: random, tokens: 160, cache_bust: true }",
    ]
    .into_iter()
    .enumerate()
    {
        let fresh = scenario(&server, dataset, "");
        for round in 0..2 {
            let (code, note) = run(&lab, &fresh, &format!("fresh-{place}-{round}"), &[]);
            assert_eq!(code, 0, "{dataset} {round}: {note}");
        }
        let fixed = scenario(&server, dataset, "cache_seed: 7\n");
        let codes = [0, 1].map(|round| run(&lab, &fixed, &format!("fixed-{place}-{round}"), &[]).0);
        assert_eq!(codes, [0, 4], "{dataset}");
        // The stored plan repeats its run.
        let stored = lab.text(&format!("fresh-{place}-0/plan.yaml"));
        assert!(!stored.contains("cache_seed: run"), "{stored}");
        assert_eq!(run(&lab, &stored, &format!("again-{place}"), &[]).0, 4);
    }
}

#[test]
fn a_beginning_that_prompts_share_by_design_is_no_fault() {
    let lab = Lab::new();
    let server = Cached::start(&lab);
    let shared = scenario(
        &server,
        "{ kind: prefix, groups: 2, prefix_tokens: 128, tokens: 32 }",
        "",
    );
    assert_eq!(run(&lab, &shared, "a", &[]).0, 0);
    let audit = lab.json("a/results.json")["cases"][0]["audit"].clone();
    assert!(
        audit["cached"].as_f64().unwrap() > 0.3 && audit["cached_unique"].is_null(),
        "{audit:#}"
    );
    // A system message in front of unique prompts.
    let system = "Answer in one short sentence, and never in more than twenty words. Say so where you are not sure of it.";
    let with_system = scenario(
        &server,
        &format!("{{ kind: random, tokens: 160, system: {system:?} }}"),
        "seed: run\n",
    );
    assert_eq!(
        [0, 1].map(|round| run(&lab, &with_system, &format!("b{round}"), &[]).0),
        [0, 0]
    );
    let audit = lab.json("b1/results.json")["cases"][0]["audit"].clone();
    assert!(
        audit["cached"].as_f64().unwrap() > 0.02 && audit["cached_unique"] == 0.0,
        "{audit:#}"
    );
}
