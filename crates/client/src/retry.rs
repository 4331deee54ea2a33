//! Request ids and retries.

use llmscen_core::outcome::FailureKind;
use llmscen_core::request::{PreparedRequest, Retry};
use llmscen_core::schedule::delays::exponential_backoff;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use std::time::{Duration, SystemTime};

/// Request ids and retries of one round of a case.
#[derive(Clone, Debug)]
pub struct RequestPolicy {
    /// Retry rules per entry of the case's mix; one entry without a mix.
    pub retry: Vec<Option<Retry>>,
    /// The round's seed.
    pub seed: Seed,
    /// Prefix of the request ids of the round.
    pub id_prefix: String,
}

impl Default for RequestPolicy {
    /// No retries.
    fn default() -> RequestPolicy {
        RequestPolicy {
            retry: Vec::new(),
            seed: Seed(0),
            id_prefix: String::new(),
        }
    }
}

impl RequestPolicy {
    /// The id of an attempt, counted from 0. It is the same in every run of a plan.
    pub(super) fn request_id(&self, call: &PreparedRequest, attempt: u32) -> String {
        let first = format!("{}-{}-{}", self.id_prefix, call.seq, call.turn);
        if attempt == 0 {
            first
        } else {
            format!("{first}-{attempt}")
        }
    }

    /// The id of a session. It is the same in every run of a plan, whichever shard sends it.
    pub(super) fn session_id(&self, call: &PreparedRequest) -> String {
        format!("{}-{}", self.id_prefix, call.seq)
    }

    /// The delay before the next attempt, after `attempts` of which the last one failed with `status` and `kind`;
    /// `None` if the call is not retried.
    pub(super) fn retry_delay(
        &self,
        call: &PreparedRequest,
        attempts: u32,
        status: Option<u16>,
        kind: FailureKind,
        retry_after: Option<Nanos>,
    ) -> Option<Nanos> {
        let retry = self.retry.get(call.entry)?.as_ref()?;
        if attempts > retry.max || !is_retried(retry, status, kind) {
            return None;
        }
        Some(
            retry_after
                .filter(|_| retry.honor)
                .unwrap_or_else(|| self.backoff(retry.wait, call, attempts)),
        )
    }

    fn backoff(&self, wait: Nanos, call: &PreparedRequest, attempts: u32) -> Nanos {
        let seed = self
            .seed
            .child("retry")
            .child(call.seq)
            .child(u64::from(call.turn))
            .child(u64::from(attempts));
        exponential_backoff(wait, Nanos(u64::MAX), attempts, seed)
    }
}

fn is_retried(retry: &Retry, status: Option<u16>, kind: FailureKind) -> bool {
    let by_status = status.is_some_and(|status| {
        kind == FailureKind::from_status(status) && retry.statuses.contains(&status)
    });
    by_status || retry.kinds.contains(&kind)
}

/// The delay of a `Retry-After` at `now`: seconds, or a date in any form of RFC 9110 (10.2.3, 5.6.7). It is 0 for a
/// past date.
pub fn parse_retry_after(value: &str, now: SystemTime) -> Option<Nanos> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::from(u32::MAX))).into());
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(at.duration_since(now).unwrap_or_default().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manners(honor: bool) -> RequestPolicy {
        let kinds = vec![FailureKind::Connect];
        let retry = Retry {
            statuses: vec![429, 503],
            kinds,
            honor,
            max: 2,
            wait: Nanos::from_millis(100),
        };
        RequestPolicy {
            retry: vec![Some(retry)],
            seed: Seed(7),
            id_prefix: "ab-0-1".into(),
        }
    }

    fn delay_ms(
        manners: &RequestPolicy,
        attempts: u32,
        status: Option<u16>,
        kind: FailureKind,
    ) -> Option<f64> {
        let retry_after = Some(Nanos::from_millis(3000));
        manners
            .retry_delay(
                &PreparedRequest::default(),
                attempts,
                status,
                kind,
                retry_after,
            )
            .map(Nanos::millis)
    }

    #[test]
    fn only_failures_that_the_scenario_names_are_retried() {
        let first_delay = |status, kind| delay_ms(&manners(true), 1, status, kind);
        assert_eq!(first_delay(Some(429), FailureKind::Http429), Some(3000.0));
        assert_eq!(first_delay(Some(503), FailureKind::Http5xx), Some(3000.0));
        assert_eq!(first_delay(None, FailureKind::Connect), Some(3000.0));
        assert_eq!(first_delay(Some(500), FailureKind::Http5xx), None);
        assert_eq!(first_delay(Some(503), FailureKind::TimeoutTotal), None);
        assert_eq!(
            delay_ms(
                &RequestPolicy::default(),
                1,
                Some(429),
                FailureKind::Http429
            ),
            None
        );
        let is_retried = |attempts| {
            delay_ms(&manners(true), attempts, Some(429), FailureKind::Http429).is_some()
        };
        assert_eq!([1, 2, 3].map(is_retried), [true, true, false]);
    }

    #[test]
    fn delays_double_and_depend_on_the_attempt_only() {
        let manners = manners(false);
        let wait = |seq, attempts| {
            manners
                .backoff(
                    Nanos(1000),
                    &PreparedRequest {
                        seq,
                        ..PreparedRequest::default()
                    },
                    attempts,
                )
                .0
        };
        for seq in 0..100 {
            assert!((500..=1000).contains(&wait(seq, 1)) && (2000..=4000).contains(&wait(seq, 3)));
        }
        assert_eq!(wait(5, 1), wait(5, 1));
        assert!((0..100).any(|seq| wait(seq, 1) != wait(seq + 1, 1)));
        assert!(wait(0, 200) >= u64::MAX / 2, "no overflow");
        assert!(delay_ms(&manners, 1, Some(429), FailureKind::Http429).unwrap() <= 100.0);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        // The example of RFC 9110, section 5.6.7, in its three forms: 784111777 seconds after 1970.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        let read = |value| parse_retry_after(value, now).map(Nanos::secs);
        assert_eq!(
            [read("120"), read(" 0 "), read("-1"), read("soon"), read("")],
            [Some(120.0), Some(0.0), None, None, None]
        );
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(read(date), Some(7.0), "{date}");
        }
        assert_eq!(read("Sun, 06 Nov 1994 08:49:00 GMT"), Some(0.0));
        assert!(read("99999999999999999999999").unwrap() >= 4e9);
    }

    #[test]
    fn ids_differ_by_request_turn_and_attempt() {
        let call = PreparedRequest {
            seq: 12,
            turn: 3,
            ..PreparedRequest::default()
        };
        assert_eq!(
            [0, 2].map(|attempt| manners(true).request_id(&call, attempt)),
            ["ab-0-1-12-3", "ab-0-1-12-3-2"]
        );
    }
}
