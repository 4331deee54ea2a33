//! How often a verdict is wrong: `cargo bench --bench verdicts`.
//!
//! Virtual servers give samples, the product judges them, and the limit is the long-run truth, or 1.25 and 2 times easier to keep.
//! Options, after `--`: `--trials 400`, `--n 100,300,1000,3000`, `--servers closed`, `--objectives itl` (parts of names),
//! `--shards 1,4,16` (merged runs of so many shards; `--long` for each cell), `--abort` (runs that `abort` ends instead), `--search` (searches that find the edge instead), `--truths` (prints the table of truths anew), `--check` (prints where it is off),
//! `--write` (results, page and chart of `docs/explanation/error-rates.md`), `--stored` (takes the results of the last `--write`).

#[path = "verdicts/chart.rs"]
mod chart;
#[path = "verdicts/search.rs"]
mod search;
#[path = "../tests/it/virtual_servers/mod.rs"]
mod virtual_servers;

use llmscen_analysis::judge::{Conditions, Watch, rule};
use llmscen_core::check::{Abort, Check, Ruling};
use llmscen_core::stats::sequential::Sequential;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use virtual_servers::table::{Cell, long, page, read, short, write};
use virtual_servers::{Kind, Objective, SERVERS, Server, objectives};

/// Where the results are.
const RESULTS: &str = "tests/it/virtual_servers/results.csv";
const PAGE: &str = "docs/explanation/error-rates.md";
/// False PASS of the rule that took requests as independent, n = 300.
const BEFORE: &str = include_str!("verdicts/before.csv");

/// Requests behind a truth, of several seeds, and those at either end that are left out.
const TRUTH: (usize, u64, usize) = (250_000, 4, 5000);

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let has = |name: &str| args.iter().any(|arg| arg == name);
    let of = |name: &str| {
        args.iter()
            .position(|arg| arg == name)
            .and_then(|at| args.get(at + 1))
            .cloned()
    };
    let servers: Vec<Server> = SERVERS
        .into_iter()
        .filter(|own| of("--servers").is_none_or(|part| own.name.contains(&part)))
        .collect();
    if has("--truths") || has("--check") {
        // Those of series are formulas, and an overload has none.
        let servers: Vec<Server> = servers
            .into_iter()
            .filter(|own| has("--check") || !matches!(own.kind, Kind::Series(_)))
            .filter(|own| !own.overloaded())
            .collect();
        return truths(&servers, has("--check"));
    }
    let trials = of("--trials")
        .and_then(|text| text.parse().ok())
        .unwrap_or(400);
    let sizes = of("--n").unwrap_or("100,300,1000,3000".to_owned());
    let sizes: Vec<usize> = sizes
        .split(',')
        .filter_map(|text| text.parse().ok())
        .collect();
    let wanted = of("--objectives").unwrap_or_default();
    if has("--abort") {
        return aborts(&servers, trials, &wanted);
    }
    if has("--search") {
        return search::table(trials as u64, &of("--servers").unwrap_or_default());
    }
    if let Some(shards) = of("--shards") {
        for shards in shards.split(',').filter_map(|text| text.parse().ok()) {
            let split: Vec<Server> = servers.iter().map(|own| own.split(shards)).collect();
            let cells = cells(&split, &sizes, trials, &wanted);
            println!("{shards} shards, means in percent:\n\n{}", short(&cells));
            if has("--long") {
                println!("{}", long(&cells));
            }
        }
        return;
    }
    let stored = || read(&std::fs::read_to_string(RESULTS).expect("the results"));
    let cells = if has("--stored") {
        stored()
    } else {
        cells(&servers, &sizes, trials, &wanted)
    };
    println!("Means in percent:\n\n{}", short(&cells));
    println!(
        "False PASS / false FAIL at the truth, PASS at 1.25 × and at 2 × the truth, in percent:\n\n{}",
        long(&cells)
    );
    if has("--write") {
        // `cargo bench` starts it in the root of the package.
        let root = Path::new(".");
        std::fs::write(root.join(RESULTS), write(&cells)).expect("the results");
        let text = std::fs::read_to_string(root.join(PAGE)).expect("the page");
        std::fs::write(root.join(PAGE), page(&text, &cells)).expect("the page");
        std::fs::write(
            root.join("docs/explanation/verdicts.svg"),
            chart::svg(&cells, BEFORE),
        )
        .expect("the chart");
    }
}

/// Every job on the cores there are, in any order; what they give, in their own.
fn spread<J: Sync, R: Send>(jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((at, job)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|at| Some((at, jobs.get(at)?)))
                {
                    let given = work(job);
                    done.lock().expect("no worker panics").push((at, given));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no worker panics");
    done.sort_by_key(|own: &(usize, R)| own.0);
    done.into_iter().map(|own| own.1).collect()
}

fn cells(servers: &[Server], sizes: &[usize], trials: usize, wanted: &str) -> Vec<Cell> {
    let parts = 8;
    let jobs: Vec<(Server, usize, usize)> = servers
        .iter()
        .flat_map(|server| sizes.iter().map(move |n| (*server, *n)))
        .flat_map(|(server, n)| (0..parts).map(move |part| (server, n, part)))
        .collect();
    let done = spread(&jobs, |&(server, n, part)| {
        let own: Vec<Objective> = objectives(&server)
            .into_iter()
            .filter(|own| own.name().contains(wanted))
            .collect();
        let blank = |objective: &Objective| {
            let (server, objective, saturated) =
                (server.name.to_owned(), objective.name(), server.saturated);
            Cell {
                server,
                objective,
                saturated,
                n,
                trials: 0,
                counts: [0; 4],
                effect: 0.0,
            }
        };
        let mut cells: Vec<Cell> = own.iter().map(blank).collect();
        for trial in (0..trials).skip(part).step_by(parts) {
            let sample = server.sample(server.serve(n, (n as u64) << 32 | trial as u64));
            let conditions = Conditions::of(&sample, server.load());
            for (cell, objective) in cells.iter_mut().zip(&own) {
                let judged =
                    |easier: f64| rule(&objective.check(&server, easier), &sample, &conditions);
                let at = judged(1.0);
                let passes = |easier: f64| judged(easier).ruling == Ruling::Pass;
                let seen = [
                    at.ruling == Ruling::Pass,
                    at.ruling == Ruling::Fail,
                    passes(1.25),
                    passes(2.0),
                ];
                cell.counts
                    .iter_mut()
                    .zip(seen)
                    .for_each(|(count, seen)| *count += usize::from(seen));
                cell.trials += 1;
                cell.effect += at
                    .effective_n
                    .map_or(0.0, |effective| at.n as f64 / effective)
                    / trials as f64;
            }
        }
        cells
    });
    let mut all: Vec<Cell> = Vec::new();
    for cell in done.into_iter().flatten() {
        let same = |own: &&mut Cell| {
            (&own.server, &own.objective, own.n) == (&cell.server, &cell.objective, cell.n)
        };
        match all.iter_mut().find(same) {
            Some(own) => {
                own.trials += cell.trials;
                own.effect += cell.effect;
                own.counts
                    .iter_mut()
                    .zip(cell.counts)
                    .for_each(|(count, more)| *count += more);
            }
            None => all.push(cell),
        }
    }
    all
}

/// How many runs of 3000 requests `abort` ends: with the limit at the truth, and where the truth is 1.25 times the limit; by the
/// evidence alone, and as the product does.
fn aborts(servers: &[Server], trials: usize, wanted: &str) {
    const N: usize = 3000;
    let abort = Abort {
        min_samples: 200,
        alpha: 0.01,
    };
    let enough = -abort.alpha.ln();
    let done = spread(servers, |server| {
        let own = objectives(server)
            .into_iter()
            .filter(|own| own.name().contains(wanted));
        let own: Vec<Objective> = own
            .filter(|own| own.check(server, 1.0).allowed().is_some())
            .collect();
        let mut counts = vec![[[0; 2]; 2]; own.len()];
        for trial in 0..trials {
            let sample = server.sample(server.serve(N, (N as u64) << 32 | trial as u64));
            for (objective, counts) in own.iter().zip(&mut counts) {
                for (counts, easier) in counts.iter_mut().zip([1.0, 0.8]) {
                    let check = Check {
                        abort: Some(abort),
                        ..objective.check(server, easier)
                    };
                    let Some(mut watch) = Watch::new(&check) else {
                        continue;
                    };
                    let mut plain = Sequential::new(
                        check.allowed().unwrap_or_default(),
                        abort.alpha,
                        abort.min_samples,
                    );
                    let (mut ended, mut alone) = (false, false);
                    for breaks in sample
                        .requests
                        .iter()
                        .filter_map(|request| watch.breaks(request))
                        .collect::<Vec<bool>>()
                    {
                        ended = ended || watch.add(breaks);
                        plain.observe(breaks);
                        alone |=
                            plain.counts().0 >= abort.min_samples && plain.evidence() >= enough;
                    }
                    *counts = [
                        counts[0] + usize::from(alone),
                        counts[1] + usize::from(ended),
                    ];
                }
            }
        }
        own.into_iter().zip(counts).collect::<Vec<_>>()
    });
    println!(
        "| server | objective | ends at the truth, evidence alone | with the design effect | truth 1.25 × the limit | with the effect |"
    );
    println!("|---|---|---|---|---|---|");
    for (server, own) in servers.iter().zip(done) {
        for (objective, counts) in own {
            let [[a, b], [c, d]] =
                counts.map(|own| own.map(|count| count as f64 * 100.0 / trials as f64));
            println!(
                "| {} | {} | {a:.1} | {b:.1} | {c:.0} | {d:.0} |",
                server.name,
                objective.name()
            );
        }
    }
}

/// Prints the long-run truths as they stand in `truths.rs`, or how far they are off.
fn truths(servers: &[Server], check: bool) {
    let (most, seeds, out) = TRUTH;
    let done = spread(servers, |server| {
        let mut known: Vec<(String, f64)> = Vec::new();
        // Goodput comes last: its limits are truths.
        let (shares, others): (Vec<Objective>, Vec<Objective>) = objectives(server)
            .into_iter()
            .partition(|own| *own == Objective::Goodput);
        for pass in [others, shares].into_iter().filter(|pass| !pass.is_empty()) {
            let mut sums = vec![0.0; pass.len()];
            for seed in 0..seeds {
                let mut served = server.serve(most, u64::MAX - seed - u64::from(check) * seeds);
                served.truncate(most - out);
                let served = served.split_off(out);
                let limit = |name: &str| match server.truth(name) {
                    Some(own) if check => own,
                    _ => known
                        .iter()
                        .find(|own| own.0 == name)
                        .map_or(f64::NAN, |own| own.1),
                };
                sums.iter_mut()
                    .zip(&pass)
                    .for_each(|(sum, objective)| *sum += objective.truth(&served, limit));
            }
            known.extend(
                pass.iter()
                    .zip(sums)
                    .map(|(objective, sum)| (objective.name(), sum / seeds as f64)),
            );
        }
        known
    });
    for (server, known) in servers.iter().zip(done) {
        for (name, truth) in known {
            if check {
                let off = server
                    .truth(&name)
                    .map_or(f64::NAN, |own| (truth / own - 1.0) * 100.0);
                println!("{:<36} {name:<12} {truth:>12.4} {off:>8.2} %", server.name);
            } else {
                println!("    ({:?}, {name:?}, {truth:.5}),", server.name);
            }
        }
    }
}
