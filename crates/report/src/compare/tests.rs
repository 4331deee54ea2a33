use super::*;
use crate::chart::Chart;
use crate::fixture::comparison::{comparison, doubtful};
use crate::format::short_folder;

#[test]
fn the_table_has_the_verdict_and_the_rule() {
    let text = table(&comparison(1, 2), None, false);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        ["RUN", "FOLDER", "STARTED", "VERDICT", "SCENARIO"]
    );
    let row = |name: &str| {
        let line = lines.iter().find(|line| line.contains(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let slower = "REGRESSION concurrency=1 e2e.p95 ↓ B 1.70 s 1.90 s +12.0% +4.2% … +21.0% 0.012 small (δ +0.21)";
    assert_eq!(row("e2e.p95"), slower);
    let errors = "noise concurrency=1 error_rate ↓ B 0% 1.25% +1.25 pp -0.40 pp … +3.60 pp 0.310 small (h +0.22)";
    assert_eq!(row("error_rate"), errors);
    assert!(row("ttft.p99").contains(" +12.0% n/a n/a small"), "{text}");
    assert!(
        text.contains(
            "REGRESSION: 8 regressions, 0 worse within tolerance, 1 improved, 1 not \
        significant, 1 not tested.\n"
        ),
        "{text}"
    );
    let rule = "p adjusted for 10 tests: Holm. Significant: p < 0.05. Regression: significant and \
    worse by more than 5%. Intervals: 95%, unadjusted.\n";
    let verdict_at = text.find(rule).unwrap();
    assert!(verdict_at < text.find("FINDING").unwrap(), "{text}");
    let narrow = table(&comparison(2, 3), Some(80), false);
    let rows: Vec<&str> = narrow
        .lines()
        .filter(|line| line.contains(['↓', '↑']))
        .collect();
    assert!(
        rows.len() == 36 && rows.iter().all(|line| line.chars().count() <= 80),
        "{narrow}"
    );
    assert!(narrow.ends_with(
        "Not listed: 8 rows without a significant change, or without a test; \
    `--format md` has all.\n"
    ));
    assert!(table(&comparison(1, 2), Some(80), true).contains("\u{1b}[31mREGRESSION\u{1b}[0m"));
}

#[test]
fn every_format_has_a_row_for_every_contrast() {
    let comparison = comparison(2, 3);
    assert_eq!(comparison.contrasts.len(), 2 * 2 * 11);
    let csv = separated(&comparison, b',');
    assert_eq!(csv.lines().count(), 45);
    assert!(
        csv.lines()
            .skip(1)
            .all(|line| line.split(',').count() == 24),
        "{csv}"
    );
    assert!(
        csv.contains("concurrency=1,output_tps,tok/s,higher,C,"),
        "{csv}"
    );
    assert_eq!(
        separated(&comparison, b'\t')
            .lines()
            .next()
            .unwrap()
            .split('\t')
            .count(),
        24
    );
    let json: serde_json::Value = serde_json::from_str(&json(&comparison).unwrap()).unwrap();
    let rows = json["comparisons"].as_array().unwrap();
    assert_eq!(
        (rows.len(), json["schema"].as_str()),
        (44, Some(COMPARISON_SCHEMA))
    );
    assert_eq!(
        (&json["verdict"], &json["tests"], &json["correction"]),
        (&"regression".into(), &40.into(), &"holm".into())
    );
    let p99 = rows.iter().find(|row| row["metric"] == "ttft.p99").unwrap();
    assert_eq!(
        (
            p99["finding"].as_str(),
            p99["ratio"].is_null(),
            p99["effect"]["magnitude"].as_str()
        ),
        (Some("unknown"), true, Some("small"))
    );
}

#[test]
fn markdown_begins_with_the_verdict_and_links_the_charts() {
    let chart = Chart {
        name: "forest_b",
        title: "Change of B".into(),
        png: Vec::new(),
        svg: String::new(),
    };
    let text = markdown(&comparison(2, 2), &[chart]);
    assert!(
        text.starts_with(
            "# REGRESSION: chat\n\n16 regressions, 0 worse within tolerance, 2 improved"
        ),
        "{text}"
    );
    assert!(
        text.contains("![Change of B](charts/forest_b.png)")
            && text.contains("### `concurrency=1`: 8 regressions\n"),
        "{text}"
    );
    for table in text.split("\n\n").filter(|block| block.starts_with('|')) {
        let columns: Vec<usize> = table
            .lines()
            .map(|line| line.replace("\\|", "").matches('|').count())
            .collect();
        assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
    }
    let many = markdown(&comparison(12, 2), &[]);
    assert_eq!(
        (
            many.matches("<details>").count(),
            many.matches("</details>").count(),
            many.contains("## Charts")
        ),
        (12, 12, false)
    );
}

#[test]
fn every_difference_is_noted() {
    let comparison = doubtful();
    assert!(comparison.has_invalid_run());
    let notes = notes(&comparison);
    for expected in [
        "B was interrupted; the comparison uses its results so far",
        "B, concurrency=1: invalid measurement: a worker thread was busy",
        "plan of B: load.concurrency: 4 → 8",
        "plan of B: target.url: http://a → not set",
        "seed of B: 42 → 7",
        "concurrency=1: verdict inconclusive in A, invalid in B",
        "1 case exists only in A: old|one",
        "1 case exists only in B: new",
        "ttft.p99 of concurrency=1 in B, ttft.p99 of concurrency=2 in B: not tested: too few",
    ] {
        assert!(
            notes.iter().any(|note| note.starts_with(expected)),
            "{expected}: {notes:#?}"
        );
    }
    assert!(
        notes
            .iter()
            .any(|note| note.starts_with("host of B: ") && note.contains("→ other (")),
        "{notes:#?}"
    );
    let text = markdown(&comparison, &[]);
    assert!(
        text.starts_with("# INVALID") && text.contains("old\\|one"),
        "{text}"
    );
    let mut same = crate::fixture::comparison::comparison(1, 2);
    same.runs[1] = llmscen_core::compare::Run {
        label: "B".into(),
        ..same.runs[0].clone()
    };
    assert!(super::notes(&same).contains(&"A and B are the same run".to_owned()));
}

#[test]
fn a_folder_is_shortened_to_its_end() {
    assert_eq!(
        short_folder("reports/chat/20260101T000000Z/"),
        "chat/20260101T000000Z"
    );
    assert_eq!(
        (short_folder("a"), short_folder("/")),
        ("a".to_owned(), String::new())
    );
    assert_eq!(short_folder(&"x".repeat(50)).chars().count(), 36);
}

#[test]
fn sides_of_several_runs_are_named_and_single_runs_have_a_warning() {
    let warning = "one run per side: differences below about 5 % may come from restarting the server; \
                 compare several runs with --base and --candidate";
    assert_eq!(
        notes(&comparison(2, 2))
            .iter()
            .filter(|note| *note == warning)
            .count(),
        1
    );
    let mut several = comparison(1, 4);
    several.sides = vec!["A".into(), "B".into()];
    for (run, (label, side)) in
        several
            .runs
            .iter_mut()
            .zip([("A1", 0), ("A2", 0), ("B1", 1), ("B2", 1)])
    {
        (run.label, run.side) = (label.to_owned(), side);
    }
    several.contrasts.retain(|contrast| contrast.run == 1);
    several
        .contrasts
        .iter_mut()
        .for_each(|contrast| (contrast.base.replicates, contrast.other.replicates) = (2, 2));
    assert!(
        !notes(&several)
            .iter()
            .any(|note| note.starts_with("one run per side"))
    );
    let text = table(&several, None, false);
    assert!(
        text.contains(
            "unadjusted. Welch's test on the logarithm of one value per run: A 2, B 2.\n"
        ),
        "{text}"
    );
    assert!(
        text.lines()
            .filter(|line| line.contains('↓'))
            .all(|line| line.contains(" B ")),
        "{text}"
    );
    let read: serde_json::Value = serde_json::from_str(&json(&several).unwrap()).unwrap();
    assert_eq!(
        read["sides"][1],
        serde_json::json!({ "label": "B", "runs": ["B1", "B2"] })
    );
    assert_eq!(read["comparisons"][0]["base"]["replicates"], 2);
    for run in &mut several.runs {
        run.report.cases[0].restarted = true;
    }
    assert!(
        table(&several, None, false)
            .contains("one value per run or round on a restarted server: A 2, B 2.")
    );
}
