//! Fifty random sets with every figure that the library takes from them, for `tests/check_sets.py` to compute again.

use llmscen_core::sample::SummaryStatistics;
use llmscen_core::stats::design::Unit;
use llmscen_core::stats::interval::{Interval, Scale, change as compared, quantile, ratio};
use llmscen_core::stats::long_run::{self, Arrivals, BINS};
use llmscen_core::stats::quantile::{self as quantiles, Method, sort};
use llmscen_core::stats::{
    design, distributions, moments, moments::components, quantile_bound, share, trend,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// A set of one of five kinds: skewed, heavy-tailed, with ties, with memory, or growing.
fn draw(kind: u64, n: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut last = 0.0;
    let one = |place: usize| {
        let (first, second): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
        let bell = (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos();
        last = 0.8 * last + bell;
        match kind {
            0 => -100.0 * first.ln(),
            1 => (4.0 + bell).exp(),
            2 => (10.0 * second).floor() + 1.0,
            3 => 50.0 + last,
            _ => 50.0 + bell + 3.0 * place as f64 / n as f64,
        }
    };
    (0..n).map(one).collect()
}

/// Ten seconds of samples that repeat these values.
fn arrivals(values: &[f64]) -> Arrivals {
    Arrivals {
        seconds: 10.0,
        bins: values
            .iter()
            .map(|value| value.abs())
            .cycle()
            .take(BINS)
            .collect(),
    }
}

fn bounds(of: Option<Interval>) -> Value {
    json!(of.map(|own| [own.value, own.low, own.high]))
}

fn set(number: u64, rng: &mut ChaCha8Rng) -> Value {
    let n = [3, 8, 40, 300, 3000][(number / 5 % 5) as usize] + rng.random_range(0..20usize);
    let (values, other) = (draw(number % 5, n, rng), draw(number % 5, n.max(60), rng));
    let [mut ordered, mut second] = [values.clone(), other.clone()];
    sort(&mut ordered);
    sort(&mut second);
    let p = [0.5, 0.9, 0.95, 0.99][rng.random_range(0..4usize)];
    let weighed: Vec<Unit> = values
        .iter()
        .zip(&other)
        .map(|(&amount, &weight)| Unit {
            amount,
            weight: weight.abs(),
        })
        .collect();
    let (hits, level) = (
        rng.random_range(0..=n as u64),
        [0.9, 0.95, 0.99][rng.random_range(0..3usize)],
    );
    let groups: Vec<Vec<f64>> = values.chunks(n.div_ceil(3)).map(<[f64]>::to_vec).collect();
    let (a, b) = (
        quantile(&ordered, 0.5, level),
        quantile(&second, 0.5, level),
    );
    let scale = Scale {
        level,
        freedom: [f64::INFINITY; 2],
    };
    let change = |series: &[Vec<f64>]| {
        trend::mann_kendall(series).map(|own| json!([own.score, own.p_value, own.slope]))
    };
    let few: Vec<f64> = values.iter().copied().take(600).collect();
    json!({
        "values": values,
        "other": other,
        "quantiles": SummaryStatistics::SHARES.map(|share| quantiles::quantile(&ordered, share, Method::NearestRank)),
        "mean": moments::mean(&values),
        "sd": moments::sd(&values),
        "p": p,
        "level": level,
        "hits": hits,
        "interval": bounds(quantile(&ordered, p, level)),
        "ratio": bounds(a.zip(b).and_then(|(a, b)| ratio(a, b))),
        "ratio_p": a.zip(b).and_then(|(a, b)| compared(a, b, scale)).map(|(_, p)| p),
        "long_run": long_run::mean(&weighed, &vec![0; n]).map(|own| own.ends(level)),
        "rate": long_run::rate(&[arrivals(&values)], 0.7).map(|own| own.ends(level)),
        "share": [share::lower(hits as f64, n as f64, level), share::upper(hits as f64, n as f64, level)],
        "decision": format!("{:?}", quantile_bound::decide(n as f64, hits as f64, 1.0 - p, level)),
        "needed": quantile_bound::needed(1.0 - p, level, number % 4),
        "trend": change(std::slice::from_ref(&few)),
        "trend_apart": change(&few.chunks(few.len().div_ceil(3)).map(<[f64]>::to_vec).collect::<Vec<_>>()),
        "worth": design::effective(std::slice::from_ref(&values)),
        "worth_apart": design::effective(&groups),
        "components": components(&groups, 1.0).map(|own| [own.between, own.within]),
        "ks": distributions::kolmogorov_smirnov(&values, |x| 1.0 - (-x.max(0.0) / 100.0).exp()).map(|fit| fit.distance),
    })
}

#[test]
#[ignore = "writes the sets of tests/check_sets.py to the file that LLMSCEN_SETS names"]
fn writes_random_sets() {
    let file = std::env::var("LLMSCEN_SETS").expect("LLMSCEN_SETS names a file");
    let mut rng = ChaCha8Rng::seed_from_u64(2026);
    let sets: Vec<Value> = (0..50).map(|number| set(number, &mut rng)).collect();
    std::fs::write(file, serde_json::to_vec(&sets).unwrap()).unwrap();
}
