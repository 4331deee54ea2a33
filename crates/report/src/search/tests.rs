use super::*;
use crate::fixture::searched;
use llmscen_core::check::Subject;
use llmscen_core::metric::Metric;
use llmscen_core::search::{Extent, Finding, SearchSpec};

#[test]
fn a_search_is_a_sentence_and_every_probe_a_row() {
    let report = searched();
    let known = "maximum concurrency that meets every objective: 16 (97% CI 15 to 17, limited \
    by `ttft.p99 < 500ms`, 4 probes, 400 requests)";
    assert_eq!(sentence(&report, &report.searches[0]), known);
    let rows = probes(&report, &[(0, &report.searches[0])]).markdown_rows();
    let last = ["4", "16", "confirm", "100", "pass", "99%", "400 ms"].map(str::to_owned);
    assert_eq!((rows.len(), &rows[3]), (4, &last.to_vec()));
    assert_eq!(rows[1][4..], ["fail, stopped early", "<0.1%", "1 s ❌"]);
    let pareto = pareto(&report.searches[0]).markdown_rows();
    let slowest = pareto.last().unwrap();
    assert_eq!(
        (slowest[0].as_str(), slowest[4].as_str()),
        ("32", "dominated")
    );
}

#[test]
fn a_terminal_shows_every_probe_and_each_of_several_results() {
    let mut report = searched();
    report.searches[0].finding.converged = false;
    report.searches[0].probes.truncate(2);
    insta::assert_snapshot!(probe_table(&report, None, false), @r"
        #  LOAD  PHASE      N  PROBE                P(PASS)  OBJECTIVES
        1     8  bracket  100  pass                     99%  ttft.p99 < 500ms: 250 ms
        2    32  bracket  100  fail, stopped early    <0.1%  ttft.p99 < 500ms: 1 s
        ");
    report.searches.push(report.searches[0].clone());
    let text = probe_table(&report, Some(80), false);
    assert_eq!(text.matches("not converged").count(), 2, "{text}");
    assert!(
        text.lines()
            .skip(1)
            .all(|line| line.starts_with("not converged") || line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn the_sentence_covers_contradictions_and_the_ends_of_the_range() {
    let mut report = searched();
    let text = |report: &Report| sentence(report, &report.searches[0]);
    let found = report.searches[0].finding.clone();
    report.searches[0].finding.non_monotone = Some((8.0, 32.0));
    assert!(
        text(&report).ends_with(
            "; not monotonic: 8 fails but 32 passes, so there is more than one boundary"
        ),
        "{}",
        text(&report)
    );
    report.searches[0].finding = Finding {
        answer: None,
        interval: (None, 1.0),
        extent: Extent::Nothing,
        ..found.clone()
    };
    assert!(text(&report).starts_with(
        "no load in the range meets the objectives; concurrency 1, the lowest, already fails \
        (97% CI below 1 to 1,"
    ));
    report.searches[0].finding = Finding {
        answer: Some(64.0),
        extent: Extent::AtLeast,
        ..found
    };
    assert!(text(&report).starts_with(
        "maximum concurrency that meets every objective: at least 64, the end of the range"
    ));
}

#[test]
fn the_result_of_a_search_that_did_not_converge_is_a_load_that_passed() {
    let mut report = searched();
    report.searches[0].finding.converged = false;
    let mut texts = |answer, above| {
        let finding = &mut report.searches[0].finding;
        (finding.answer, finding.above) = (answer, above);
        let text = sentence(&report, &report.searches[0]);
        let text = text.split_once(". ").unwrap().1.split_once(" (").unwrap().0;
        (text.to_owned(), short_result(&report, &report.searches[0]))
    };
    let of = |long: &str, short: &str| (long.to_owned(), short.to_owned());
    assert_eq!(
        texts(Some(4.0), Some((8.0, LoadVerdict::NotMeasured))),
        of(
            "Concurrency 4 passes, 8 was not measured",
            "maximum concurrency 4 (97% CI 15 to 17, not converged: 8 was not measured)"
        )
    );
    assert_eq!(
        texts(Some(4.0), Some((8.0, LoadVerdict::Inconclusive))).0,
        "Concurrency 4 passes, 8 was inconclusive"
    );
    assert_eq!(
        texts(None, Some((8.0, LoadVerdict::Failed))),
        of("No probe passed; concurrency 8 failed", "no result")
    );
}

#[test]
fn a_planned_search_says_how_often_it_is_confirmed() {
    let of = |confirm: u32| {
        let spec = SearchSpec {
            confirm,
            ..searched().searches.remove(0).spec
        };
        let search = CapacitySearch {
            group: 0,
            grid: spec.grid(),
            spec,
            labels: Labels::default(),
            first: 0,
        };
        let text = describe_search(&search, 1);
        text.rsplit_once(", ").unwrap().1.to_owned()
    };
    assert_eq!(
        [0, 1, 2].map(of),
        ["not confirmed\n", "confirmed once\n", "confirmed 2 times\n"]
    );
}

#[test]
fn a_cost_never_limits_the_load_and_is_judged_at_the_result() {
    let mut report = searched();
    let text = |report: &Report| sentence(report, &report.searches[0]);
    let cost = |observed: f64| {
        let mut verdict = report.searches[0].probes[0].verdicts[0].clone();
        verdict.check.expr = "cost_per_1k_requests < 2".to_owned();
        verdict.check.subject = Subject::Metric {
            metric: Metric::CostPerThousandRequests,
            stat: None,
            tags: Vec::new(),
        };
        verdict.check.limit = 2.0;
        verdict.observed = Some(observed);
        verdict.ruling = match observed < 2.0 {
            true => Ruling::Pass,
            false => Ruling::Fail,
        };
        verdict
    };
    let costs = [9.0, 4.0, 3.0, 3.0].map(cost);
    let search = &mut report.searches[0];
    for (probe, cost) in search.probes.iter_mut().zip(costs) {
        probe.verdicts.push(cost);
        probe.futile = false;
    }
    let found = "maximum concurrency that meets every other objective: 16 (97% CI 15 to 17, \
    limited by `ttft.p99 < 500ms`, 4 probes, 400 requests); but `cost_per_1k_requests < 2` is \
    not met there, nor at less load: 3";
    assert_eq!(text(&report), found);
}

#[test]
fn an_interrupted_or_invalid_search_has_no_result() {
    let mut report = searched();
    report.searches[0].finding.converged = false;
    let text = |report: &Report| sentence(report, &report.searches[0]);
    let effort = "4 probes, 400 requests)";
    let near = "Concurrency 16 passes, 32 failed (97% CI 15 to 17,";
    assert_eq!(
        text(&report),
        format!(
            "not converged: the probe budget was used up. {near} limited by `ttft.p99 < 500ms`, {effort}"
        )
    );
    report.manifest.interrupted = true;
    let cut = "no result: the search was interrupted (97% CI 15 to 17 so far,";
    assert_eq!(
        (text(&report), found_load(&report, &report.searches[0])),
        (format!("{cut} {effort}"), None)
    );
    report.manifest.interrupted = false;
    report.searches[0].probes[1].pass_probability = None;
    assert!(text(&report).starts_with(
        "not converged: 1 of 4 probes measured the load generator, not the server. \
        Concurrency 16 passes, 32 failed ("
    ));
    report.searches[0]
        .probes
        .iter_mut()
        .for_each(|probe| probe.pass_probability = None);
    let invalid =
        "no result: the load generator was the bottleneck; no probe passed its self-audit (";
    assert_eq!(
        (text(&report), found_load(&report, &report.searches[0])),
        (format!("{invalid}{effort}"), None)
    );
    assert_eq!(
        verdict_text(&report.searches[0].probes[1]),
        "invalid, stopped early"
    );
    report.searches[0].probes.clear();
    assert_eq!(
        text(&report),
        "no result: the run ended before the first probe"
    );
}

#[test]
fn a_key_of_a_mix_has_its_traffic_class_and_a_rate_its_unit() {
    let key = |vary: &str| {
        varied_key(&SearchSpec {
            vary: vary.to_owned(),
            ..searched().searches.remove(0).spec
        })
    };
    assert_eq!(key("mix.chat.rate"), ("chat rate".to_owned(), "/s"));
    assert_eq!(
        key("mix.1.request.max_tokens"),
        ("mix.1 max_tokens".to_owned(), "")
    );
    assert_eq!(
        (key("load.rate"), key("load.concurrency")),
        (("rate".into(), "/s"), ("concurrency".into(), ""))
    );
}
