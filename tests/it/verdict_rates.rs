//! How often verdicts are wrong, on virtual servers whose truth is known: the table of `docs/verdicts.md` in small.

use crate::virtual_servers::table::{page, read};
use crate::virtual_servers::{Objective, SERVERS, Server, objectives};
use llmscen_analysis::judge::{Conditions, rule};
use llmscen_core::check::Ruling;
use std::path::Path;

fn server(name: &str) -> Server {
    SERVERS.into_iter().find(|own| own.name == name).unwrap()
}

/// The objectives with these names.
fn named(server: &Server, names: &[&str]) -> Vec<Objective> {
    objectives(server)
        .into_iter()
        .filter(|own| names.contains(&own.name().as_str()))
        .collect()
}

/// PASS and FAIL of all verdicts with a limit that is this factor easier than the truth.
fn rulings(servers: &[&str], names: &[&str], (n, trials): (usize, u64), easier: f64) -> [f64; 2] {
    let (mut counts, mut all) = ([0.0; 2], 0.0);
    for server in servers.iter().map(|name| server(name)) {
        for trial in 0..trials {
            let sample = server.sample(server.serve(n, trial));
            let conditions = Conditions {
                valid: true,
                load: server.load(),
            };
            for objective in named(&server, names) {
                let ruling = rule(&objective.check(&server, easier), &sample, &conditions).ruling;
                all += 1.0;
                counts
                    .iter_mut()
                    .zip([Ruling::Pass, Ruling::Fail])
                    .for_each(|(count, own)| *count += f64::from(u8::from(ruling == own)));
            }
        }
    }
    counts.map(|count| count / all)
}

const CORRELATED: [&str; 3] = ["AR(1), 0.5", "closed, 16 users", "open, 40 %"];

#[test]
fn a_limit_at_the_truth_is_seldom_passed_or_failed() {
    let [pass, fail] = rulings(
        &CORRELATED,
        &["ttft.p95", "itl.p95", "e2e.p95"],
        (300, 40),
        1.0,
    );
    assert!(pass <= 0.12 && fail <= 0.12, "{pass} passed, {fail} failed");
}

#[test]
fn twice_the_truth_passes() {
    let [pass, fail] = rulings(
        &["independent", "closed, 16 users"],
        &["ttft.p50", "ttft.p95", "itl.p95"],
        (300, 20),
        2.0,
    );
    assert!(pass >= 0.9 && fail == 0.0, "{pass} passed, {fail} failed");
}

#[test]
fn the_truths_are_those_of_the_servers() {
    for (name, objective) in [
        ("closed, 4 users", "ttft.p50"),
        ("closed, 16 users", "itl.p50"),
        ("AR(1), 0.5", "ttft.mean"),
    ] {
        let server = server(name);
        let [own] = named(&server, &[objective])[..] else {
            panic!("{objective}")
        };
        let seen = own.truth(&server.serve(6000, 11), |_| f64::NAN);
        let off = seen / server.truth(objective).unwrap() - 1.0;
        assert!(off.abs() < 0.05, "{name} {objective}: {seen}");
    }
    let lengths = |seed| {
        server("open, 60 %")
            .serve(200, seed)
            .iter()
            .map(|row| row.e2e_ms)
            .collect::<Vec<f64>>()
    };
    assert_eq!(lengths(3), lengths(3));
    assert_ne!(lengths(3), lengths(4));
}

#[test]
fn the_page_has_the_results_of_the_bench() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("docs/verdicts.md")).unwrap();
    let cells = read(include_str!("virtual_servers/results.csv"));
    assert!(
        page(&text, &cells) == text,
        "docs/verdicts.md is not what results.csv says: cargo bench --bench verdicts -- --write"
    );
}
