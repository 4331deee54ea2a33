use super::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

fn of(values: &[f64]) -> Trend {
    mann_kendall(&[values.to_vec()]).unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-12
}

/// Beside scipy.stats.kendalltau(range(n), values, method="exact") and scipy.stats.theilslopes.
#[test]
fn few_values_have_the_exact_probability() {
    let rising = of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    assert!(
        rising.score == 10 && close(rising.p_value, 2.0 / 120.0) && rising.slope == 1.0,
        "{rising:?}"
    );
    assert!(close(of(&[3.0, 2.0, 1.0]).p_value, 1.0 / 3.0));
    let mixed = of(&[3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.6, 5.3]);
    assert!(
        mixed.score == 12 && close(mixed.p_value, 0.178_869_047_619_047_62),
        "{mixed:?}"
    );
    assert!(close(mixed.slope, 0.433_333_333_333_333_33));
    assert_eq!(
        (mann_kendall(&[]), mann_kendall(&[vec![1.0]])),
        (None, None)
    );
}

/// Beside a count by hand of the variance: 10 values, two tied pairs and a triple.
#[test]
fn ties_take_the_normal_law_with_less_variance() {
    let tied = of(&[1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 4.0, 5.0, 6.0, 6.0]);
    assert!(close(
        variance(&[1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 4.0, 5.0, 6.0, 6.0]),
        (2250.0 - 18.0 - 66.0 - 18.0) / 18.0
    ));
    assert_eq!(tied.score, 40);
    assert!((tied.p_value - 2.0 * probability(-39.0 / (2148.0f64 / 18.0).sqrt())).abs() < 1e-12);
    assert_eq!(of(&[7.0; 6]).p_value, 1.0);
}

#[test]
fn series_are_compared_with_themselves_alone() {
    let both = mann_kendall(&[vec![10.0, 11.0, 12.0], vec![1.0, 2.0, 3.0]]).unwrap();
    assert!(
        both.score == 6 && close(both.p_value, 2.0 / 36.0) && both.slope == 1.0,
        "{both:?}"
    );
}

#[test]
fn chance_is_taken_for_a_trend_as_often_as_it_says() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut alarms = |n: usize, series: usize, level: f64| {
        let mut one = || (0..n).map(|_| rng.random::<f64>()).collect::<Vec<f64>>();
        let mut draw = || {
            mann_kendall(&(0..series).map(|_| one()).collect::<Vec<_>>())
                .unwrap()
                .p_value
                <= level + 1e-12
        };
        (0..2000).filter(|_| draw()).count()
    };
    // 1.67 % of 5 values, 5 % of 3 series of 40.
    let seen = [alarms(5, 1, 1.0 / 60.0), alarms(40, 3, 0.05)];
    assert!(
        (20..=50).contains(&seen[0]) && (75..=130).contains(&seen[1]),
        "{seen:?} of 2000"
    );
}

#[test]
fn a_few_wild_points_do_not_bend_the_line() {
    let mut points: Vec<(f64, f64)> = (0..1000)
        .map(|k| (f64::from(k), 5.0 + 0.5 * f64::from(k)))
        .collect();
    points
        .iter_mut()
        .step_by(10)
        .for_each(|point| point.1 += 1e6);
    points.rotate_left(7);
    let (slope, start) = fit_line(&points).unwrap();
    assert!(
        (slope - 0.5).abs() < 1e-9 && (start - 5.0).abs() < 1e-9,
        "{slope} {start}"
    );
}

#[test]
fn equal_places_have_no_slope() {
    assert_eq!(fit_line(&[(512.0, 1.0), (512.0, 9.0)]), None);
    assert_eq!((fit_line(&[]), fit_line(&[(1.0, 1.0)])), (None, None));
}

/// A queue with Poisson arrivals and several servers with exponential service times of mean 1, empty at first, up
/// to its `most`-th reply: after how many replies, and when, it was found to only fill.
fn stop(servers: u32, load: f64, most: u64, seed: u64) -> Option<(u64, Growth)> {
    let (mut rng, mut drift) = (ChaCha8Rng::seed_from_u64(seed), JointTrend::default());
    let mut wait = |mean: f64| -mean * (1.0 - rng.random::<f64>()).ln();
    let whole = |time: f64| (time * 1e9) as u64;
    let mut free: BinaryHeap<Reverse<u64>> = (0..servers).map(|_| Reverse(0)).collect();
    let (mut ends, mut arrival): (BinaryHeap<Reverse<(u64, u64)>>, f64) = (BinaryHeap::new(), 0.0);
    for reply in 1..=most {
        while ends
            .peek()
            .is_none_or(|Reverse((end, _))| *end > whole(arrival))
        {
            let start = free.pop().unwrap().0.max(whole(arrival));
            let end = start + whole(wait(1.0));
            free.push(Reverse(end));
            ends.push(Reverse((end, start - whole(arrival))));
            arrival += wait(1.0 / (load * f64::from(servers)));
        }
        let Reverse((end, waited)) = ends.pop().unwrap();
        if let Some(growth) =
            drift.observe(end as f64 / 1e9, [ends.len() as f64, waited as f64 / 1e9])
        {
            return Some((reply, growth));
        }
    }
    None
}

#[test]
fn a_busy_server_is_hardly_ever_taken_for_one_that_falls_behind() {
    let stops: Vec<usize> = [1, 8, 32]
        .map(|servers| {
            (0..300)
                .filter_map(|seed| stop(servers, 0.8, 2048, seed))
                .count()
        })
        .into();
    assert!(
        stops.iter().sum::<usize>() <= 9,
        "at a load of 80 %, of 300 runs each: {stops:?}"
    );
}

#[test]
fn one_that_falls_behind_is_found_within_a_bounded_number_of_replies() {
    for servers in [1, 8, 32] {
        let mut replies: Vec<u64> = (0..50)
            .filter_map(|seed| Some(stop(servers, 1.2, 8192, seed)?.0))
            .collect();
        replies.sort_unstable();
        assert_eq!(replies.len(), 50, "every overloaded run is stopped");
        assert!(replies[25] <= 1024 && replies[44] <= 2048, "{replies:?}");
    }
}

#[test]
fn growth_has_a_start_and_slopes() {
    let (mut drift, noise) = (JointTrend::default(), |at: u64| (at * 7 % 5) as f64 / 100.0);
    let grown = (1..=512).find_map(|at| {
        drift.observe(
            at as f64,
            [10.0 + at as f64 + noise(at), 2.0 * at as f64 - noise(at)],
        )
    });
    let Growth { from, slopes } = grown.unwrap();
    // The window before the last began with the 33rd of 64 bins of 4.
    assert_eq!(from, 130.5);
    assert!(
        (slopes[0] - 1.0).abs() < 1e-3 && (slopes[1] - 2.0).abs() < 1e-3,
        "{slopes:?}"
    );
}

#[test]
fn one_series_that_grows_is_not_enough_and_a_flat_one_never_is() {
    let run = |second: fn(u64) -> f64| {
        let mut drift = JointTrend::default();
        (1..=4096).find_map(|at| drift.observe(at as f64, [at as f64, second(at)]))
    };
    assert_eq!(
        (
            run(|_| 5.0),
            run(|_| 0.0),
            run(|at| -(at as f64)),
            run(|_| f64::NAN)
        ),
        (None, None, None, None)
    );
    assert!(run(|at| at as f64).is_some());
}

#[test]
fn the_knee_is_where_the_curve_turns_up() {
    assert_eq!(
        knee(&[(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 1.2), (4.0, 9.0)]),
        Some(3)
    );
    // The queue of a single server at 10 to 90 % of its capacity: deepest where the slope is that of the chord.
    let queue: Vec<(f64, f64)> = (1..=9)
        .map(|k| f64::from(k) / 10.0)
        .map(|busy| (busy, 1.0 / (1.0 - busy)))
        .collect();
    assert_eq!(knee(&queue), Some(6));
}

#[test]
fn other_curves_have_no_knee() {
    assert_eq!(
        knee(&[(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0)]),
        None
    );
    assert_eq!(
        knee(&[(0.0, 0.0), (1.0, 3.0), (2.0, 3.9), (3.0, 4.0)]),
        None,
        "it bends downwards"
    );
    assert_eq!(
        knee(&[(0.0, 1.0), (1.0, 1.0), (2.0, 9.0)]),
        None,
        "three points"
    );
    assert_eq!(
        knee(&[(0.0, 2.0), (1.0, 1.0), (2.0, 1.0), (3.0, 1.0)]),
        None,
        "it falls"
    );
    assert_eq!(
        knee(&[(0.0, 1.0), (1.0, f64::NAN), (2.0, 1.0), (3.0, 9.0)]),
        None
    );
    assert_eq!(knee(&[]), None);
}
