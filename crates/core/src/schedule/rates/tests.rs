use super::*;

fn stage(rate: RateProfile, millis: u64) -> RateStage {
    RateStage {
        rate,
        span: Nanos::from_millis(millis),
    }
}

fn due(stages: &[RateStage], arrival: Arrival, seed: u64) -> Vec<Nanos> {
    Staged::new(stages.into(), arrival, Seed(seed)).collect()
}

fn constant(stages: &[RateStage]) -> Vec<Nanos> {
    due(stages, Arrival::Constant, 1)
}

fn ramp(from: f64, to: f64, millis: u64) -> RateStage {
    stage(RateProfile::Ramp { from, to }, millis)
}

fn sine(mean: f64, amplitude: f64, period: u64, millis: u64) -> RateStage {
    stage(
        RateProfile::Sine {
            mean,
            amplitude,
            period: Nanos::from_millis(period),
        },
        millis,
    )
}

/// One stage of each kind, and a pause.
fn profile() -> [RateStage; 5] {
    [
        stage(RateProfile::Flat(20.0), 5000),
        ramp(0.0, 60.0, 5000),
        stage(RateProfile::Flat(0.0), 1000),
        sine(40.0, 40.0, 2000, 6000),
        ramp(60.0, 1.0, 4000),
    ]
}

#[test]
fn flat_stages_have_equal_gaps_and_no_arrival_twice() {
    let steps = [
        stage(RateProfile::Flat(2.0), 1000),
        stage(RateProfile::Flat(0.0), 700),
        stage(RateProfile::Flat(4.0), 1000),
    ];
    let known = [0, 500, 1700, 1950, 2200, 2450].map(Nanos::from_millis);
    assert_eq!(constant(&steps), known);
    let pause_first = [
        stage(RateProfile::Flat(0.0), 300),
        stage(RateProfile::Flat(10.0), 200),
    ];
    assert_eq!(constant(&pause_first), [300, 400].map(Nanos::from_millis));
    assert_eq!(constant(&[stage(RateProfile::Flat(0.0), 300)]), []);
}

#[test]
fn a_ramp_from_zero_is_a_square_root() {
    // Λ(t) = t²/2·(20/10): arrival k is at √k.
    let seen = constant(&[ramp(0.0, 20.0, 10_000)]);
    assert_eq!(seen.len(), 100);
    for (k, at) in seen.iter().enumerate() {
        assert_eq!(*at, Nanos::from_secs_f64((k as f64).sqrt()), "{k}");
    }
    // Down to zero it is the same from the other end: 100 − Λ = (10 − t)².
    for (k, at) in constant(&[ramp(20.0, 0.0, 10_000)]).iter().enumerate() {
        let known = Nanos::from_secs_f64(10.0 - (100.0 - k as f64).sqrt());
        assert!(at.0.abs_diff(known.0) <= 1, "{k}: {at:?} {known:?}");
    }
}

#[test]
fn a_ramp_that_hardly_rises_is_as_exact_as_a_flat_stage() {
    let seen = constant(&[ramp(10.0, 10.0 + 1e-12, 100_000)]);
    assert_eq!(seen.len(), 1000);
    assert!(
        seen.iter()
            .enumerate()
            .all(|(k, at)| at.0 == k as u64 * 100_000_000)
    );
}

#[test]
fn a_wave_is_inverted_to_the_nanosecond() {
    for stages in [
        [sine(10.0, 10.0, 3000, 60_000)],
        [sine(0.5, 0.2, 60_000, 600_000)],
        [sine(1000.0, 1.0, 8, 2000)],
    ] {
        let seen = constant(&stages);
        assert_eq!(seen.len(), area(&stages, Nanos(u64::MAX)).round() as usize);
        for (k, at) in seen.iter().enumerate().skip(1) {
            let before = area(&stages, Nanos(at.0 - 1));
            let after = area(&stages, Nanos(at.0 + 1));
            let slack = 1e-9 * k as f64;
            assert!(
                before <= k as f64 + slack && k as f64 <= after + slack,
                "{k}: {before} {after}"
            );
        }
    }
}

#[test]
fn each_stage_has_the_expected_number_of_arrivals() {
    let bounds: Vec<(Nanos, Nanos)> = bounds(profile().iter().map(|stage| stage.span)).collect();
    let mut sums = [0.0; 5];
    for seed in 1..=50 {
        let due = due(&profile(), Arrival::Poisson, seed);
        for (index, (from, until)) in bounds.iter().enumerate() {
            let count = due.iter().filter(|at| (from..until).contains(at)).count() as f64;
            let mean = profile()[index].total();
            assert!(
                (count - mean).abs() <= 4.5 * mean.sqrt(),
                "seed {seed}, stage {index}: {count} of {mean}"
            );
            sums[index] += count;
        }
    }
    for (sum, stage) in sums.iter().zip(profile()) {
        let mean = 50.0 * stage.total();
        assert!((sum - mean).abs() <= 3.5 * mean.sqrt(), "{sum} of {mean}");
    }
    assert_eq!(sums[2], 0.0);
}

/// D_n × √n of the gaps in rescaled time against the exponential of mean 1.
fn kolmogorov(arrival: Arrival, seed: u64) -> f64 {
    let areas: Vec<f64> = due(&profile(), arrival, seed)
        .into_iter()
        .map(|at| area(&profile(), at))
        .collect();
    let mut gaps: Vec<f64> = std::iter::once(&0.0)
        .chain(&areas)
        .zip(&areas)
        .map(|(a, b)| b - a)
        .collect();
    gaps.sort_by(f64::total_cmp);
    let n = gaps.len() as f64;
    let distance = gaps.iter().enumerate().map(|(i, gap)| {
        let cdf = 1.0 - (-gap).exp();
        (cdf - i as f64 / n)
            .abs()
            .max(((i + 1) as f64 / n - cdf).abs())
    });
    distance.fold(0.0, f64::max) * n.sqrt()
}

#[test]
fn rescaled_gaps_are_exponential_where_arrivals_are_poisson() {
    // 2.03 is the 0.05 % point (Kolmogorov), which makes 20 seeds together a test at the 1 % level.
    for seed in 1..=20 {
        assert!(kolmogorov(Arrival::Poisson, seed) < 2.03, "seed {seed}");
        assert!(
            kolmogorov(Arrival::Gamma { burstiness: 0.2 }, seed) > 3.0,
            "seed {seed}"
        );
    }
}

#[test]
fn a_seed_repeats_and_times_never_decrease() {
    for arrival in [
        Arrival::Poisson,
        Arrival::Constant,
        Arrival::Gamma { burstiness: 0.3 },
    ] {
        for seed in 1..=20 {
            let seen = due(&profile(), arrival, seed);
            assert!(seen.is_sorted() && seen.last().unwrap().0 < 21_000_000_000);
            assert_eq!(seen, due(&profile(), arrival, seed));
        }
    }
    assert_ne!(
        due(&profile(), Arrival::Poisson, 1),
        due(&profile(), Arrival::Poisson, 2)
    );
}

#[test]
fn one_flat_stage_is_the_plain_open_loop() {
    let until = Nanos::from_millis(10_000);
    let plain: Vec<Nanos> = Arrivals::new(16.0, Arrival::Poisson, Seed(9))
        .take_while(|at| *at < until)
        .collect();
    // 16 is a power of two: dividing by it rounds nothing.
    assert_eq!(
        due(
            &[stage(RateProfile::Flat(16.0), 10_000)],
            Arrival::Poisson,
            9
        ),
        plain
    );
}
