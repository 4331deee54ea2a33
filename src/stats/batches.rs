//! How much less samples say that come one after another from a queue: neighbours are alike.

/// Fewer samples than this make no batches.
const LEAST: usize = 64;

/// By how much the variance of a share is greater than that of as many independent samples, at least 1, from batch means:
/// √n batches of √n neighbours each, the variance of their means over p (1 − p) / batch (Law, "Simulation Modeling and
/// Analysis", 5th edition, section 9.5.3). `breaking`: which samples count towards the share, in the order of their time.
pub fn inflation(breaking: &[bool]) -> f64 {
    let n = breaking.len();
    if n < LEAST {
        return 1.0;
    }
    let size = n.isqrt();
    let means: Vec<f64> = breaking.chunks_exact(size).map(share).collect();
    let mean = means.iter().sum::<f64>() / means.len() as f64;
    let independent = mean * (1.0 - mean) / size as f64;
    let seen = means.iter().map(|own| (own - mean).powi(2)).sum::<f64>() / (means.len() - 1) as f64;
    if independent > 0.0 { (seen / independent).max(1.0) } else { 1.0 }
}

fn share(batch: &[bool]) -> f64 {
    batch.iter().filter(|own| **own).count() as f64 / batch.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn independent_samples_keep_their_worth_and_clumps_lose_it() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        let mut drawn: Vec<bool> = (0..10_000).map(|_| rng.random_range(0.0..1.0) < 0.1).collect();
        assert!(inflation(&drawn) < 1.5, "{}", inflation(&drawn));
        drawn.sort();
        assert!(inflation(&drawn) > 50.0, "all in one clump: {}", inflation(&drawn));
        // Each of 1000 draws ten times over: ten samples say as much as one.
        let clumps: Vec<bool> = (0..1000).flat_map(|_| [rng.random_range(0.0..1.0) < 0.1; 10]).collect();
        assert!((6.0..14.0).contains(&inflation(&clumps)), "{}", inflation(&clumps));
    }

    #[test]
    fn nothing_is_said_of_few_samples_or_of_none_that_break() {
        assert_eq!((inflation(&[true; 63]), inflation(&[false; 1000]), inflation(&[true; 1000])), (1.0, 1.0, 1.0));
    }
}
