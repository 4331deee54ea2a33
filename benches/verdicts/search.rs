//! How often a search finds the edge of a virtual server: `cargo bench --bench verdicts -- --search`.

use super::virtual_servers::{Objective, SERVERS, Served, Server, objectives};
use llmscen_analysis::judge::{is_futile, pass_probability, required_samples};
use llmscen_core::check::Check;
use llmscen_core::schedule::search::{PASSES, Probe, Search};
use llmscen_core::search::{Evidence, Goal, SearchSpec};
use llmscen_core::stats::distributions::probability;
use llmscen_core::stats::sequential::AlphaSpending;
use llmscen_core::stats::trend::wait_growth;
use llmscen_core::units::Nanos;

/// A server, what its limit is about, and the load up to which the limit holds.
struct Cell {
    server: &'static str,
    objective: &'static str,
    edge: f64,
}

const CELLS: [Cell; 9] = [
    Cell {
        server: "closed, 16 users",
        objective: "tpot.p95",
        edge: 16.0,
    },
    Cell {
        server: "closed, 16 users",
        objective: "ttft.p95",
        edge: 16.0,
    },
    Cell {
        server: "closed, 64 users",
        objective: "ttft.p95",
        edge: 40.0,
    },
    Cell {
        server: "closed, 48 users, little KV cache",
        objective: "e2e.p95",
        edge: 48.0,
    },
    Cell {
        server: "closed, 64 users",
        objective: "ttft.p95",
        edge: 64.0,
    },
    Cell {
        server: "open, 60 %",
        objective: "ttft.p95",
        edge: 34.0 * 0.6,
    },
    Cell {
        server: "open, 75 %",
        objective: "ttft.p95",
        edge: 34.0 * 0.75,
    },
    Cell {
        server: "M/G/8, 70 %",
        objective: "ttft.p95",
        edge: 0.7,
    },
    Cell {
        server: "M/G/8, 90 %",
        objective: "e2e.p95",
        edge: 0.9,
    },
];

/// Requests of a whole probe, and the precision that is asked for.
const WHOLE: u64 = 400;
const PRECISION: f64 = 0.05;
/// As in a search of the product: a probe has at least this many requests of each user; an open loop sends one request before every
/// `START` measured ones.
const EACH_USER: u64 = 2;
const START: usize = 4;
/// The look for a hopeless probe: its chance of being wrong, and the first look.
const ALPHA: f64 = 0.001;
const FIRST: usize = 16;
/// Scores by which an open loop may get slower before its load counts as too much.
const OUTRUN: f64 = 2.0;

/// What many searches came to.
#[derive(Clone, Copy, Default)]
struct Tally {
    covered: usize,
    settled: usize,
    /// Searches with an answer, those of which a probe of the answer passed, and those whose answer is within the precision of the edge,
    /// or within one user.
    answered: usize,
    passed: usize,
    near: usize,
    requests: usize,
}

/// Prints a line for each cell whose server or objective has `wanted` in its name.
pub fn table(seeds: u64, wanted: &str) {
    println!(
        "| server and limit | edge in the interval | settled | answers | a probe of it passed | within 5 % or one user | requests |"
    );
    println!("|---|---|---|---|---|---|---|");
    for cell in CELLS
        .iter()
        .filter(|cell| format!("{} {}", cell.server, cell.objective).contains(wanted))
    {
        let server = SERVERS
            .into_iter()
            .find(|own| own.name == cell.server)
            .expect("a server of the table");
        let objective = objectives(&server)
            .into_iter()
            .find(|own| own.name() == cell.objective)
            .expect("an objective of it");
        let check = Check {
            limit: limit(&server, objective, cell.edge),
            ..objective.check(&server, 1.0)
        };
        let jobs: Vec<u64> = (0..seeds).collect();
        let all = super::spread(&jobs, |seed| searched(&server, &check, cell.edge, *seed));
        let sum = all.into_iter().fold(Tally::default(), |sum, own| Tally {
            covered: sum.covered + own.covered,
            settled: sum.settled + own.settled,
            answered: sum.answered + own.answered,
            passed: sum.passed + own.passed,
            near: sum.near + own.near,
            requests: sum.requests + own.requests,
        });
        let percent = |count: usize| count as f64 * 100.0 / seeds as f64;
        println!(
            "| {}: edge {}, `{}` | {:.0} % | {:.0} % | {} | {} | {} | {} |",
            cell.server,
            cell.edge,
            cell.objective,
            percent(sum.covered),
            percent(sum.settled),
            sum.answered,
            sum.passed,
            sum.near,
            sum.requests as u64 / seeds,
        );
    }
}

/// The limit that holds up to the edge: between two whole numbers of users where the load is one.
fn limit(server: &Server, objective: Objective, edge: f64) -> f64 {
    let at = |load: f64| {
        let served = server.at(load, true).serve(300_000, 777);
        objective.truth(&served[5000..295_000], |_| f64::NAN)
    };
    if server.rate().is_none() {
        (at(edge) * at(edge + 1.0)).sqrt()
    } else {
        at(edge)
    }
}

fn searched(server: &Server, check: &Check, edge: f64, seed: u64) -> Tally {
    let closed = server.rate().is_none();
    let (start, low, high) = if closed {
        (4.0, 1.0, 512.0)
    } else {
        (edge * 0.25, edge * 0.04, edge * 6.0)
    };
    let vary = if closed {
        "load.concurrency"
    } else {
        "load.rate"
    }
    .to_owned();
    let (goal, drain) = (Goal::Slo, Nanos::ZERO);
    let spec = SearchSpec {
        vary,
        low,
        high,
        start,
        integer: closed,
        precision: PRECISION,
        confirm: 2,
        goal,
        drain,
    };
    let (mut search, mut requests) = (Search::new(&spec, &spec.grid()), 0);
    while let Some(next) = search.next() {
        let seed = seed * 1000 + search.probes().len() as u64 + 5_000_000;
        let (evidence, sent) = probed(server, check, (next, &spec), seed);
        search.record_probe(next.index, evidence);
        requests += sent;
    }
    let found = search.finding();
    let inside = found.interval.0.is_none_or(|low| low <= edge * 1.0001)
        && edge <= found.interval.1 * 1.0001;
    let is_of_answer = |load: f64| found.answer == Some(load);
    let passed = search
        .probes()
        .iter()
        .any(|probe| is_of_answer(probe.load) && probe.evidence.pass_probability >= PASSES);
    let is_near = |answer: f64| {
        (answer / edge).ln().abs() <= PRECISION || closed && (answer - edge).abs() <= 1.0
    };
    Tally {
        covered: usize::from(inside),
        settled: usize::from(found.converged),
        answered: usize::from(found.answer.is_some()),
        passed: usize::from(passed),
        near: usize::from(found.answer.is_some_and(is_near)),
        requests,
    }
}

/// What a probe shows, and how many requests it sent.
fn probed(
    server: &Server,
    check: &Check,
    (probe, spec): (Probe, &SearchSpec),
    seed: u64,
) -> (Evidence, usize) {
    let of_all = |requests: u64| requests as f64 / WHOLE as f64;
    let decided = of_all(required_samples(check).unwrap_or(1)).min(1.0);
    let share = match server.rate() {
        None => probe
            .length
            .max(decided)
            .max(of_all(EACH_USER * probe.load as u64)),
        Some(_) => (probe.length * (probe.load / spec.start).max(1.0)).max(decided),
    };
    let own = server.at(probe.load, false);
    let measured = (WHOLE as f64 * share).ceil() as usize;
    let before = if own.rate().is_some() {
        measured / START
    } else {
        0
    };
    let mut served = own.serve(measured + before, seed);
    // What cools down is neither judged nor counted here.
    served.truncate(measured + before);
    served
        .iter_mut()
        .take(before)
        .for_each(|row| row.measured = false);
    let end = |row: &Served| row.scheduled_s + row.e2e_ms / 1e3;
    let (mut kept, mut sent) = (
        served
            .iter()
            .filter(|row| row.measured)
            .cloned()
            .collect::<Vec<_>>(),
        served.len(),
    );
    let (mut looks, mut seen) = ([AlphaSpending::new(ALPHA)], FIRST);
    while seen < kept.len() {
        let some = kept[..seen].to_vec();
        let over = some.iter().map(end).fold(0.0, f64::max);
        if is_futile(std::slice::from_ref(check), &own.sample(some), &mut looks) {
            sent = served.iter().filter(|row| row.scheduled_s <= over).count();
            kept.truncate(seen);
        }
        seen *= 2;
    }
    let waits: Vec<f64> = kept.iter().map(|row| row.e2e_ms).collect();
    let requests = kept.len() as u64;
    let holds = pass_probability(std::slice::from_ref(check), &own.sample(kept));
    let slower = own
        .rate()
        .and_then(|rate| wait_growth(&waits, rate))
        .unwrap_or_default();
    let holds = if slower > OUTRUN {
        holds.min(1.0 - probability(slower))
    } else {
        holds
    };
    (
        Evidence {
            pass_probability: holds,
            requests,
            goodput: (0.0, 0.0),
        },
        sent,
    )
}
