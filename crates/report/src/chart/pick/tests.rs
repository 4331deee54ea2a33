use super::*;
use crate::fixture::{grid, sweep};
use llmscen_core::check::Ruling;
use llmscen_core::label::Labels;

#[test]
fn the_ends_are_always_shown_and_no_case_twice() {
    for count in 1..=120 {
        let indices = evenly_spaced(count, 12);
        assert_eq!(
            (indices[0], indices[indices.len() - 1], indices.len()),
            (0, count - 1, count.min(12))
        );
        assert!(
            indices.windows(2).all(|pair| pair[0] < pair[1]),
            "{indices:?}"
        );
    }
    assert_eq!(evenly_spaced(0, 12), Vec::<usize>::new());
}

#[test]
fn a_name_is_never_too_long_for_a_legend() {
    let mut case = sweep(1).cases.remove(0);
    case.load = "30/s poisson; chat 75%, summarize 25%".to_owned();
    assert_eq!(case_name(&case), "concurrency=1");
    case.labels.0.clear();
    assert_eq!(case_name(&case), "30/s poisson");
    case.load = "30/s; a 1%, b 99%".to_owned();
    assert_eq!(case_name(&case), case.load);
    case.load = "x".repeat(31);
    assert_eq!(case_name(&case), "concurrency=1");
}

#[test]
fn a_sweep_is_shown_by_rising_load_and_says_what_is_left_out() {
    let mut report = sweep(100);
    report.cases.reverse();
    for case in &mut report.cases {
        case.verdicts.clear();
    }
    let loads = |picked: &[ShownCase<'_>]| -> Vec<f64> {
        picked
            .iter()
            .filter_map(|picked| picked.case.load_value)
            .collect()
    };
    let (picked, remark) = select_cases(&report, 12, |_| true);
    assert_eq!(
        loads(&picked),
        [
            1.0, 10.0, 19.0, 28.0, 37.0, 46.0, 55.0, 64.0, 73.0, 82.0, 91.0, 100.0
        ]
    );
    assert_eq!(picked[0].label, "concurrency=1");
    assert_eq!(
        subtitle(&report, &[remark]),
        "chat  ·  100 cases  ·  12 of 100 cases shown"
    );
    assert_eq!(
        subtitle(&sweep(1), &[shown(1, 1, "cases")]),
        "chat  ·  concurrency 1"
    );
}

#[test]
fn failed_cases_are_shown_first_where_not_all_fit() {
    let mut report = sweep(100);
    for (index, case) in report.cases.iter_mut().enumerate() {
        case.verdicts.truncate(1);
        let is_failed = [40, 80].contains(&index);
        case.verdicts[0].ruling = if is_failed {
            Ruling::Fail
        } else {
            Ruling::Pass
        };
    }
    let (picked, remark) = select_cases(&report, 4, |_| true);
    let loads: Vec<Option<f64>> = picked.iter().map(|picked| picked.case.load_value).collect();
    assert_eq!(loads, [1.0, 41.0, 81.0, 100.0].map(Some));
    assert_eq!(remark, "4 of 100 cases shown, failed ones first");
}

#[test]
fn a_long_name_is_cut_to_what_differs() {
    let report = grid(2);
    let (picked, _) = select_cases(&report, 12, |_| true);
    assert_eq!(picked[0].label, "rate=1/s, max_tokens=128");
    let (single, _) = select_cases(&report, 1, |_| true);
    assert_eq!(single[0].label, report.cases[0].id, "nothing differs");
    let titles: Vec<&str> = picked.iter().map(|picked| picked.title.as_str()).collect();
    assert_eq!(titles[0], "rate=1/s · max_tokens=128");
    assert!(
        (1..titles.len()).all(|at| !titles[..at].contains(&titles[at])),
        "{titles:?}"
    );
}

#[test]
fn sample_sizes_are_one_phrase() {
    let mut report = sweep(3);
    assert_eq!(
        sample_sizes(report.cases[..1].iter(), Metric::Ttft),
        "n = 240 requests"
    );
    assert_eq!(
        sample_sizes(report.cases.iter(), Metric::Ttft),
        "n = 240 requests per case"
    );
    report.cases[1]
        .distributions
        .entry(Metric::Ttft)
        .and_modify(|values| values.n = 100);
    assert_eq!(
        sample_sizes(report.cases.iter(), Metric::Ttft),
        "n = 100 to 240 requests per case"
    );
    assert_eq!(
        sample_sizes(report.cases[..1].iter(), Metric::Itl),
        "n = 240 gaps"
    );
    assert_eq!(sample_sizes(report.cases.iter(), Metric::Items), "");
}

fn case(labels: &[(&str, Scalar)]) -> CaseReport {
    let labels = Labels(
        labels
            .iter()
            .map(|(path, value)| ((*path).to_owned(), value.clone()))
            .collect(),
    );
    CaseReport {
        id: "x".into(),
        labels,
        ..CaseReport::default()
    }
}

fn text(value: &str) -> Scalar {
    Scalar::Text(value.into())
}

fn short(names: &[&str]) -> Vec<String> {
    distinct_parts(
        &names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>(),
    )
}

#[test]
fn an_address_keeps_what_differs() {
    assert_eq!(
        short(&["http://a:8000/v1", "http://b:8001/v1/"]),
        ["a:8000", "b:8001"]
    );
    assert_eq!(
        short(&["http://a:8000/vllm/v1", "http://a:8000/sglang/v1"]),
        ["vllm", "sglang"]
    );
    assert_eq!(
        short(&["Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-72B"]),
        ["Qwen2.5-7B", "Qwen2.5-72B"]
    );
    assert_eq!(
        short(&["simulator", "http://a:8000/v1"]),
        ["simulator", "a:8000/v1"]
    );
    assert_eq!(
        short(&["http://a", "https://a"]),
        ["http://a", "https://a"],
        "never the same name twice"
    );
    assert_eq!(short(&["http://a/v1"]), ["http://a/v1"]);
}

#[test]
fn names_have_only_the_keys_that_vary() {
    let with_labels = |users, seqs| {
        case(&[
            ("load.concurrency", Scalar::Int(users)),
            ("target.server.vars.max_num_seqs", Scalar::Int(seqs)),
            ("request.max_tokens", Scalar::Int(128)),
        ])
    };
    let cases = [with_labels(1, 8), with_labels(96, 8), with_labels(96, 16)];
    let names = CaseNames::new(&cases.iter().collect::<Vec<_>>());
    assert_eq!(names.title(&cases[1]), "concurrency=96 · max_num_seqs=8");
    assert_eq!(names.legend(&cases[1]), "concurrency=96, max_num_seqs=8");
    assert_eq!(names.without_load().legend(&cases[1]), "max_num_seqs=8");
    let alone = CaseNames::new(&[&cases[0], &cases[1]]);
    assert_eq!(
        alone.title(&cases[1]),
        "concurrency=96",
        "one field needs no abbreviation"
    );
}

#[test]
fn short_keys_are_never_the_same() {
    let with_labels = |a, b| {
        case(&[
            ("request.max_tokens", Scalar::Int(a)),
            ("dataset.prompt_tokens", Scalar::Int(b)),
        ])
    };
    let cases = [with_labels(1, 2), with_labels(3, 4)];
    assert_eq!(
        CaseNames::new(&cases.iter().collect::<Vec<_>>()).title(&cases[0]),
        "max_tokens=1 · prompt_tokens=2"
    );
}

#[test]
fn the_name_of_an_engine_needs_no_key() {
    let with_labels =
        |url: &str, users| case(&[("target.url", text(url)), ("load.rate", text(users))]);
    let cases = [
        with_labels("http://a:8000/v1", "8/s"),
        with_labels("http://a:8001/v1", "16/s"),
    ];
    let all: Vec<&CaseReport> = cases.iter().collect();
    assert_eq!(CaseNames::new(&all).title(&cases[1]), "a:8001 · rate=16/s");
    assert_eq!(CaseNames::new(&all).engines().legend(&cases[0]), "a:8000");
    assert_eq!(CaseNames::new(&all[..1]).legend(&cases[0]), "");
}
