use super::*;
use crate::fixture::{observed, report_of, two_groups};
use llmscen_core::check::{Subject, Verdict};
use llmscen_core::label::Scalar;
use llmscen_core::report::RunVerdict;

/// A case of a variant on so many GPUs.
fn case(variant: &str, users: i64, ruling: Ruling, gpus: f64) -> CaseReport {
    let mut case = observed();
    case.id = format!("{variant},concurrency={users}");
    case.labels = Labels(vec![
        (VARIANT.to_owned(), Scalar::Text(variant.to_owned())),
        ("load.concurrency".to_owned(), Scalar::Int(users)),
    ]);
    case.load_value = Some(users as f64);
    case.load_axis = "concurrency";
    case.verdicts.truncate(1);
    case.verdicts
        .iter_mut()
        .for_each(|verdict| verdict.ruling = ruling);
    case.scalars.extend([
        (Metric::OutputTps, 400.0),
        (Metric::OutputTpsPerGpu, 400.0 / gpus),
    ]);
    case
}

#[test]
fn variants_are_ranked_by_what_a_gpu_carries() {
    use Ruling::{Fail, Inconclusive, Pass};
    let report = report_of(
        vec![
            case("tp8", 8, Pass, 8.0),
            case("tp8", 16, Pass, 8.0),
            case("tp2", 8, Pass, 2.0),
            case("tp2", 16, Inconclusive, 2.0),
            case("tp1", 16, Pass, 1.0),
            case("tp1", 8, Fail, 1.0),
        ],
        RunVerdict::Fail,
        1,
    );
    let text = table(&report).markdown();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(
        rows,
        [
            ["1", "tp2", "8", "16 is inconclusive", "2", "4", "200 tok/s"],
            [
                "2",
                "tp8",
                "16",
                "the whole ladder passes",
                "8",
                "2",
                "50 tok/s"
            ],
            ["n/a", "tp1", "n/a", "8 does not pass", "1", "n/a", "n/a"],
        ],
        "{text}"
    );
}

#[test]
fn a_rate_that_was_not_served_is_no_capacity_and_other_work_is_not_ranked_against() {
    let at_rate = |name: &str, work: &str, rate: i64, served: f64| {
        let mut case = case(name, rate, Ruling::Pass, 1.0);
        case.load_axis = "rate";
        case.labels = Labels(vec![
            (work.to_owned(), Scalar::Text(name.to_owned())),
            ("load.rate".to_owned(), Scalar::Text(format!("{rate}/s"))),
        ]);
        case.scalars.insert(Metric::RequestThroughput, served);
        case
    };
    let report = |work: &str| {
        let cases = vec![
            at_rate("a", work, 8, 8.0),
            at_rate("a", work, 64, 23.94),
            at_rate("b", work, 8, 8.0),
            at_rate("b", work, 64, 63.0),
        ];
        rows(&table(&report_of(cases, RunVerdict::Pass, 1)))
    };
    let ranks = |rows: &[Vec<String>]| -> Vec<String> {
        rows.iter().map(|row| row[..4].join(" ")).collect()
    };
    assert_eq!(
        ranks(&report(VARIANT)),
        [
            "1 b 64/s the whole ladder passes",
            "2 a 8/s 64/s was not served: 23.9 req/s",
        ]
    );
    let of_work = report("dataset.tokens");
    assert!(of_work.iter().all(|row| row[1] == "1"), "{of_work:?}");
    let mut unknown = report_of(
        vec![
            case("x", 8, Ruling::Invalid, 1.0),
            case("x", 16, Ruling::Invalid, 1.0),
            case("y", 8, Ruling::Inconclusive, 1.0),
            case("y", 16, Ruling::Inconclusive, 1.0),
        ],
        RunVerdict::Invalid,
        1,
    );
    assert!(rows(&table(&unknown)).is_empty());
    unknown.cases[2].verdicts[0].ruling = Ruling::Pass;
    let some = rows(&table(&unknown));
    assert_eq!(some[1][..4].join(" "), "n/a x n/a 8 is invalid");
}

/// The rows of a table, without its head.
fn rows(table: &Table) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    table.markdown().lines().skip(2).map(cells).collect()
}

/// A ruling on a limit of a cost.
fn cost(ruling: Ruling) -> Verdict {
    let mut cost = case("a", 8, ruling, 1.0).verdicts.remove(0);
    cost.check.expr = "cost_per_1k_requests < 2".to_owned();
    cost.check.subject = Subject::Metric {
        metric: Metric::CostPerThousandRequests,
        stat: None,
        tags: Vec::new(),
    };
    cost
}

#[test]
fn the_cost_of_a_ladder_is_judged_at_its_largest_load_that_passes() {
    use Ruling::{Fail, Inconclusive, Pass};
    let with_cost = |variant, users, ruling, of_cost| {
        let mut case = case(variant, users, ruling, 1.0);
        case.verdicts.push(cost(of_cost));
        case
    };
    let report = report_of(
        vec![
            with_cost("cheap", 4, Pass, Fail),
            with_cost("cheap", 8, Pass, Pass),
            with_cost("cheap", 16, Fail, Pass),
            with_cost("dear", 8, Pass, Fail),
            with_cost("dear", 16, Pass, Fail),
            with_cost("open", 8, Pass, Fail),
            with_cost("open", 16, Pass, Inconclusive),
            with_cost("broken", 8, Fail, Fail),
            with_cost("broken", 16, Fail, Pass),
        ],
        RunVerdict::Fail,
        1,
    );
    let known: Vec<Vec<String>> = rows(&table(&report));
    let known: Vec<[&str; 3]> = known
        .iter()
        .map(|row| [1, 2, 3].map(|at| row[at].as_str()))
        .collect();
    assert_eq!(
        known,
        [
            ["cheap", "8", "16 does not pass"],
            [
                "dear",
                "16",
                "the end of the ladder; but cost_per_1k_requests &lt; 2 is not met there, nor at less load"
            ],
            [
                "open",
                "16",
                "the end of the ladder; cost_per_1k_requests &lt; 2 is undecided there"
            ],
            ["broken", "n/a", "8 does not pass"],
        ]
    );
}

#[test]
fn candidates_for_the_highest_goodput_are_ranked_by_it_in_each_group() {
    let report = two_groups();
    let table = table(&report);
    let text = table.markdown();
    let head: Vec<&str> = text.lines().next().unwrap().split('|').collect();
    let head: Vec<&str> = head.iter().map(|cell| cell.trim()).collect();
    assert_eq!(
        head[1..9],
        [
            "Group",
            "Rank",
            "Configuration",
            "Highest goodput",
            "Evidence",
            "GPUs",
            "Per GPU",
            "Output tok/s per GPU"
        ]
    );
    let rows = rows(&table);
    let short: Vec<[&str; 6]> = rows
        .iter()
        .map(|row| [0, 1, 2, 3, 4, 6].map(|at| row[at].as_str()))
        .collect();
    assert_eq!(
        short,
        [
            [
                "tokens=100",
                "1",
                "max_num_seqs=16",
                "18 req/s",
                "90% CI 16 to 22 req/s, at concurrency 16",
                "9 req/s"
            ],
            [
                "tokens=100",
                "2",
                "max_num_seqs=8",
                "10 req/s",
                "90% CI 8 to 14 req/s, at concurrency 16",
                "5 req/s"
            ],
            [
                "tokens=900",
                "1",
                "max_num_seqs=8",
                "6 req/s",
                "90% CI 4 to 10 req/s, at concurrency 16",
                "3 req/s"
            ],
            [
                "tokens=900",
                "2",
                "max_num_seqs=16",
                "4 req/s",
                "90% CI 2 to 8 req/s, at concurrency 16",
                "2 req/s"
            ],
        ]
    );
    assert_eq!(
        rows[0][8..],
        ["8 to 11 req/s per GPU (4 probes)", "best, confirmed"]
    );
}

#[test]
fn only_a_confirmed_result_is_called_so() {
    let mut report = two_groups();
    let end = |report: &Report| method(report).unwrap().split_once(". ").unwrap().1;
    let estimates = "; the others are estimates with fewer probes.";
    assert_eq!(
        end(&report),
        format!("Only the best candidate is a confirmed result{estimates}")
    );
    for search in &mut report.searches {
        search.finding.confirmed = 0;
    }
    assert_eq!(
        end(&report),
        format!("Only the best candidate is a result{estimates}")
    );
    assert_eq!(fate(&report.searches[1]), "best, without confirmation");
    report.searches[1].finding.converged = false;
    assert_eq!(
        fate(&report.searches[1]),
        "best, not converged: the budget was used up"
    );
}

#[test]
fn one_ladder_is_not_ranked() {
    let report = report_of(
        vec![
            case("a", 8, Ruling::Pass, 1.0),
            case("a", 16, Ruling::Fail, 1.0),
        ],
        RunVerdict::Fail,
        1,
    );
    assert!(table(&report).rows.is_empty());
}
