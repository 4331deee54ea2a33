use super::*;
use crate::run::tally::Tally;
use llmscen_core::call::Call;
use llmscen_core::outcome::{Outcome, Phase, Timeline};

#[test]
fn every_start_has_a_log_of_its_own() {
    let mut servers = Servers::default();
    let names = ["server.log", "server.log", "other", "server.log", "other"].map(|log| servers.name(log));
    assert_eq!(names, ["server.log", "server-2.log", "other", "server-3.log", "other-2"]);
}

#[test]
fn the_first_token_is_that_of_the_first_answer_without_what_went_before_its_sending() {
    let outcome = |sent: Option<u64>, tokens: &[u64]| {
        let tokens = tokens.iter().map(|at| Nanos::from_millis(*at)).collect();
        Outcome {
            timeline: Timeline { sent: sent.map(Nanos::from_millis), tokens, ..Timeline::default() },
            ..Call::default().outcome(Phase::Measured)
        }
    };
    let all =
        [outcome(Some(17_000), &[17_900]), outcome(Some(17_005), &[17_045, 17_060]), outcome(None, &[]), outcome(Some(1), &[])];
    let first_answer = |outcomes: &[Outcome]| {
        let mut tally = Tally::default();
        outcomes.iter().for_each(|outcome| tally.count(outcome));
        tally.first_answer()
    };
    assert_eq!(first_answer(&all), Some(Nanos::from_millis(40)));
    assert_eq!(first_answer(&all[2..]), None);
}

#[test]
fn an_end_before_time_zero_is_negative() {
    let origin = Instant::now() + Duration::from_secs(1);
    assert_eq!(signed(origin - Duration::from_millis(3), origin), -3_000_000);
    assert_eq!(signed(origin + Duration::from_millis(3), origin), 3_000_000);
}
