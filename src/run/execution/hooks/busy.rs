//! Servers that cannot do an action yet: how they say so, and when the action is sent again.

use llmscen_client::retry::parse_retry_after;
use llmscen_protocols::error_message;
use llmscen_report::format::counted;
use llmscen_telemetry::prometheus::CallReply;
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// Pause before an action is sent again, unless the server asks for a longer one.
const PAUSE: Duration = Duration::from_millis(250);
/// Words of a server that refuses an action because of its requests.
const BUSY: [&str; 6] = [
    "pending",
    "running",
    "waiting",
    "busy",
    "in progress",
    "in-flight",
];

/// Attempts of an action that the server was too busy for.
#[derive(Debug, Default)]
pub(super) struct Busy {
    pub attempts: usize,
    /// Status and message of the latest reply.
    latest: String,
}

impl Busy {
    /// Adds an attempt. Returns the pause before the next one.
    pub fn record(&mut self, reply: &CallReply) -> Duration {
        self.attempts += 1;
        let message = error_message(reply.status, &reply.body);
        self.latest = format!("{}: {}", reply.status, message.replace('\n', " "));
        let Some(value) = &reply.retry_after else {
            return PAUSE;
        };
        self.latest += &format!(" (retry-after: {value})");
        let asked = parse_retry_after(value, SystemTime::now()).unwrap_or_default();
        Duration::from(asked).max(PAUSE)
    }

    /// Why no attempt in this time succeeded.
    pub fn describe(&self, elapsed: Duration) -> String {
        let attempts = counted(self.attempts, "attempt");
        let seconds = elapsed.as_secs_f64();
        format!(
            "the server was busy ({attempts} in {seconds:.1} s): {}",
            self.latest
        )
    }
}

/// Whether a URL is that of a cache reset, such as `/flush_cache` of SGLang and `/reset_prefix_cache` of vLLM.
pub(super) fn is_cache_reset(url: &str) -> bool {
    let path = url.split('?').next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    name.contains("cache")
}

/// Whether the server cannot do the action now, but soon. `is_reset`: the action is a cache reset, which sends
/// nothing that could be wrong, so that 400 is about the state of the server.
pub(super) fn is_busy(reply: &CallReply, is_reset: bool) -> bool {
    let words = || String::from_utf8_lossy(&reply.body).to_lowercase();
    // An adapter that is already loaded, or a profiler that already runs: no later attempt is different.
    let is_done = || words().contains("already");
    match reply.status {
        425 | 429 | 503 => true,
        400 | 409 if is_reset => true,
        409 => !is_done(),
        400 => !is_done() && BUSY.iter().any(|word| words().contains(word)),
        // vLLM answers so to a reset that running requests prevented.
        200..=299 if is_reset => serde_json::from_slice::<Value>(&reply.body)
            .is_ok_and(|body| body["success"] == Value::Bool(false)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, retry_after: Option<&str>, body: &str) -> CallReply {
        CallReply {
            status,
            retry_after: retry_after.map(str::to_owned),
            body: body.into(),
        }
    }

    #[test]
    fn busy_servers_and_refusals() {
        let sglang = "Cache flushed.\nPlease check backend logs for more details. (When there are \
        running or waiting requests, the operation will not be performed.)\n";
        let table = [
            (503, "", true, true),
            (429, "slow down", true, true),
            (425, "", true, true),
            (409, "", true, true),
            (409, "the adapter is already loaded", false, true),
            (400, "", false, true),
            (400, "Flush cache failed.", false, true),
            (400, "Timed out waiting for idle state.", true, true),
            (400, sglang, true, true),
            (
                400,
                r#"{"message":"a weight update is IN PROGRESS"}"#,
                true,
                true,
            ),
            (400, "Profiling is already in progress.", false, true),
            (400, "no such adapter", false, true),
            (401, "requests are pending", false, false),
            (404, "busy", false, false),
            (405, "", false, false),
            (500, "busy", false, false),
            (502, "", false, false),
            (200, "", false, false),
            (200, r#"{"success":false}"#, false, true),
            (200, r#"{"success":true}"#, false, false),
        ];
        for (status, body, plain, reset) in table {
            let found = [false, true].map(|is_reset| is_busy(&reply(status, None, body), is_reset));
            assert_eq!(found, [plain, reset], "{status} {body}");
        }
    }

    #[test]
    fn a_cache_reset_is_known_by_its_path() {
        for (url, expected) in [
            ("http://h:1/flush_cache?timeout=30", true),
            ("http://h/reset_prefix_cache", true),
            ("http://cache.example/start_profile", false),
            ("http://h/v1/load_lora_adapter?from=cache", false),
        ] {
            assert_eq!(is_cache_reset(url), expected, "{url}");
        }
    }

    #[test]
    fn the_pause_is_that_of_the_server_and_the_last_message_is_kept() {
        let mut busy = Busy::default();
        let pauses = [
            busy.record(&reply(503, Some("2"), "starting")),
            busy.record(&reply(503, Some("soon"), "")),
            busy.record(&reply(503, Some("0"), "")),
            busy.record(&reply(400, None, "Flush cache failed.\nTry later.\n")),
        ];
        assert_eq!(pauses.map(|pause| pause.as_millis()), [2000, 250, 250, 250]);
        assert_eq!(
            busy.describe(Duration::from_millis(2740)),
            "the server was busy (4 attempts in 2.7 s): 400: Flush cache failed. Try later."
        );
        let mut once = Busy::default();
        once.record(&reply(
            429,
            Some("120"),
            r#"{"error":{"message":"slow down"}}"#,
        ));
        assert_eq!(
            once.describe(Duration::ZERO),
            "the server was busy (1 attempt in 0.0 s): 429: slow down (retry-after: 120)"
        );
    }
}
