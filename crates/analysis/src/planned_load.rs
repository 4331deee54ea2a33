//! Which level of a planned load that changes a request belongs to. Its requests differ from those of other levels by
//! plan, and not because they depend on each other.

use llmscen_core::load::Shape;
use llmscen_core::mix::is_in_group;
use llmscen_core::plan::Case;
use llmscen_core::stage::RateProfile;
use llmscen_core::units::Nanos;
use std::f64::consts::TAU;

/// Equal parts of the range of rates or users of a load.
const LEVELS: u32 = 4;
/// Instants, evenly spaced, by which the range is known.
const INSTANTS: u64 = 256;

/// The planned levels of the load of a case.
pub(super) struct PlannedLoad<'a> {
    case: &'a Case,
    /// The stages of each traffic class with arrivals of its own, else those of all requests.
    classes: Vec<Vec<Stage>>,
    /// The least and the greatest rate of all classes together; None where it does not change.
    range: Option<(f64, f64)>,
}

/// One stage of a load: of rates, or of users.
struct Stage {
    from: u64,
    span: u64,
    profile: RateProfile,
}

impl<'a> PlannedLoad<'a> {
    pub(super) fn new(case: &'a Case) -> PlannedLoad<'a> {
        let classes: Vec<Vec<Stage>> = match &case.load.shape {
            Shape::Classes { classes } => classes.iter().map(stages).collect(),
            shape => vec![stages(shape)],
        };
        let load = PlannedLoad {
            case,
            classes,
            range: None,
        };
        let range = load.range();
        PlannedLoad { range, ..load }
    }

    fn range(&self) -> Option<(f64, f64)> {
        let changing = self.classes.iter().flatten();
        // A constant rate has no end.
        let ends = changing.filter(|stage| stage.span < u64::MAX);
        let end = u128::from(ends.map(|stage| stage.from + stage.span).max()?);
        let rates = || {
            (0..INSTANTS)
                .map(|place| self.rate((end * u128::from(place) / u128::from(INSTANTS)) as u64))
        };
        let (least, most) = (rates().reduce(f64::min)?, rates().reduce(f64::max)?);
        (least < most).then_some((least, most))
    }

    /// The planned rate or users at an instant, of all classes together.
    fn rate(&self, at: u64) -> f64 {
        let rate = |stages: &Vec<Stage>| {
            let index = stages.partition_point(|stage| stage.from <= at);
            let stage = index.checked_sub(1).and_then(|index| stages.get(index));
            stage.map_or(0.0, |stage| stage.rate(at))
        };
        self.classes.iter().map(rate).sum()
    }

    /// The level of a request of this group that is due at `intended`, in nanoseconds since time zero; one number per
    /// class and level. `first`: when the first measured request of its round was due; a stage that is a case of its
    /// own begins then.
    pub(super) fn part(&self, intended: u64, first: u64, group: Option<&str>) -> u32 {
        let Some((least, most)) = self.range else {
            return 0;
        };
        let is_own = |name: &str| group.is_some_and(|group| is_in_group(group, name));
        let mut entries = self.case.mix.iter();
        let class = entries
            .position(|entry| is_own(&entry.name))
            .unwrap_or_default();
        let at = match &self.classes[..] {
            [stages] if stages.len() == 1 => intended.saturating_sub(first),
            _ => intended,
        };
        let share = (self.rate(at) - least) / (most - least);
        let level = (share * f64::from(LEVELS)).clamp(0.0, f64::from(LEVELS - 1)) as u32;
        class as u32 * LEVELS + level
    }
}

impl Stage {
    /// The rate of the stage at an instant; 0 after its end.
    fn rate(&self, at: u64) -> f64 {
        let within = at.saturating_sub(self.from);
        if within >= self.span {
            return 0.0;
        }
        let within = Nanos(within).secs();
        match self.profile {
            RateProfile::Flat(rate) => rate,
            RateProfile::Ramp { from, to } => from + (to - from) * within / Nanos(self.span).secs(),
            RateProfile::Sine {
                mean,
                amplitude,
                period,
            } => mean + amplitude * (TAU * within / period.secs()).sin(),
        }
    }
}

/// The stages of a shape; a constant rate has one without end.
fn stages(shape: &Shape) -> Vec<Stage> {
    let profiles: Vec<(Nanos, RateProfile)> = match shape {
        Shape::Open { rate, .. } => vec![(Nanos(u64::MAX), RateProfile::Flat(*rate))],
        Shape::Rates { stages, .. } => stages.iter().map(|own| (own.span, own.rate)).collect(),
        Shape::Users { stages } => stages
            .iter()
            .map(|own| {
                let (from, to) = (f64::from(own.from), f64::from(own.to));
                (own.span, RateProfile::Ramp { from, to })
            })
            .collect(),
        _ => Vec::new(),
    };
    let mut from = 0u64;
    let mut stage = |(span, profile): (Nanos, RateProfile)| {
        let begin = from;
        from = from.saturating_add(span.0);
        Stage {
            from: begin,
            span: span.0,
            profile,
        }
    };
    profiles.into_iter().map(&mut stage).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::case;
    use llmscen_core::load::Arrival;
    use llmscen_core::mix::{EntryLoad, MixEntry};
    use llmscen_core::stage::{RateStage, UserStage};

    const SECOND: u64 = 1_000_000_000;

    fn rates(stages: &[(RateProfile, u64)]) -> Case {
        let stage = |&(rate, seconds): &(RateProfile, u64)| RateStage {
            rate,
            span: Nanos(seconds * SECOND),
        };
        case(Shape::Rates {
            stages: stages.iter().map(stage).collect(),
            arrival: Arrival::Poisson,
        })
    }

    fn parts(case: &Case, seconds: &[u64]) -> Vec<u32> {
        let load = PlannedLoad::new(case);
        seconds
            .iter()
            .map(|at| load.part(at * SECOND, 2 * SECOND, None))
            .collect()
    }

    #[test]
    fn a_ramp_has_four_levels_and_a_constant_rate_one() {
        let up = RateProfile::Ramp { from: 1.0, to: 9.0 };
        let down = RateProfile::Ramp { from: 9.0, to: 1.0 };
        let case = rates(&[(RateProfile::Flat(1.0), 10), (up, 40), (down, 40)]);
        assert_eq!(
            parts(&case, &[0, 9, 10, 19, 21, 49, 51, 69, 71, 89, 99]),
            [0, 0, 0, 0, 1, 3, 3, 2, 1, 0, 0]
        );
        let wave = RateProfile::Sine {
            mean: 5.0,
            amplitude: 2.0,
            period: Nanos(12 * SECOND),
        };
        // From the first request on: a quarter of the period later the rate is highest.
        assert_eq!(parts(&rates(&[(wave, 48)]), &[2, 5, 11, 17]), [2, 3, 0, 3]);
        let alternating = [5.0, 9.0, 5.0, 9.0].map(|rate| (RateProfile::Flat(rate), 10));
        assert_eq!(parts(&rates(&alternating), &[5, 15, 25, 35]), [0, 3, 0, 3]);
        let constant = rates(&[(RateProfile::Flat(1.0), 10)]);
        assert_eq!(parts(&constant, &[0, 5, 9]), [0, 0, 0]);
    }

    #[test]
    fn classes_have_the_levels_of_all_together() {
        let ramp = RateStage {
            rate: RateProfile::Ramp { from: 0.0, to: 8.0 },
            span: Nanos(40 * SECOND),
        };
        let arrival = Arrival::Poisson;
        let steady = Shape::Open { rate: 5.0, arrival };
        let rising = Shape::Rates {
            stages: [ramp].into(),
            arrival,
        };
        let mut mixed = case(Shape::Classes {
            classes: [steady, rising].into(),
        });
        let entry = |name: &str| MixEntry {
            name: name.to_owned(),
            load: EntryLoad::Weight(1.0),
            headers: Vec::new(),
            request: mixed.request.clone(),
            dataset: mixed.dataset.clone(),
        };
        mixed.mix = [entry("chat"), entry("batch")].into();
        let load = PlannedLoad::new(&mixed);
        let part = |at: u64, group| load.part(at * SECOND, 0, Some(group));
        assert_eq!([5, 15, 39, 45].map(|at| part(at, "chat")), [0, 1, 3, 0]);
        assert_eq!([5, 39].map(|at| part(at, "batch/long")), [4, 7]);
    }

    #[test]
    fn users_that_change_have_levels_and_constant_loads_have_one() {
        let stage = |from, to| UserStage {
            from,
            to,
            span: Nanos(10 * SECOND),
        };
        let users = case(Shape::Users {
            stages: [stage(4, 4), stage(4, 8), stage(8, 8)].into(),
        });
        assert_eq!(parts(&users, &[5, 10, 19, 20, 25]), [0, 0, 3, 3, 3]);
        let closed = case(Shape::Closed { users: 4 });
        assert_eq!(parts(&closed, &[0, 50]), [0, 0]);
    }
}
