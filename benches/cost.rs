//! What a measurement is asked to do, and what a process has cost so far.

use crate::server::reply::Order;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Instant;

/// One measurement of one client.
#[derive(Clone, Debug)]
pub struct Job {
    pub addr: SocketAddr,
    pub order: Order,
    /// Requests in flight.
    pub streams: u64,
    pub requests: u64,
    /// Bytes of a prompt.
    pub body: usize,
    /// All requests are due at once.
    pub burst: bool,
    /// Seconds over which the streams start.
    pub spread_s: u64,
    /// The streams only stand there; the job ends once all do.
    pub idle: bool,
}

impl Job {
    /// The job as one word of a command line.
    pub fn word(&self) -> String {
        let order = self.order.path();
        json!({ "addr": self.addr, "order": order, "streams": self.streams, "requests": self.requests, "body": self.body,
            "burst": self.burst, "idle": self.idle, "spread_s": self.spread_s })
        .to_string()
    }

    /// The job of such a word.
    pub fn parse(word: &str) -> Option<Job> {
        let word: Value = serde_json::from_str(word).ok()?;
        Some(Job {
            addr: word["addr"].as_str()?.parse().ok()?,
            order: Order::parse(word["order"].as_str()?)?,
            streams: word["streams"].as_u64()?,
            requests: word["requests"].as_u64()?,
            body: word["body"].as_u64()? as usize,
            burst: word["burst"].as_bool()?,
            idle: word["idle"].as_bool()?,
            spread_s: word["spread_s"].as_u64()?,
        })
    }
}

/// What this process has cost so far.
#[derive(Clone, Copy)]
pub struct Cost {
    pub at: Instant,
    /// User and system time of all threads, seconds.
    pub cpu_s: f64,
    /// Bytes in memory now, and at the most.
    pub resident: u64,
    pub peak: u64,
}

impl Cost {
    pub fn now() -> Cost {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        Cost {
            at: Instant::now(),
            cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            resident: kib("VmRSS:").unwrap_or(0) << 10,
            peak: kib("VmHWM:").unwrap_or(0) << 10,
        }
    }
    /// What was spent from an earlier state to this one, the memory at both ends.
    pub fn since(&self, began: &Cost) -> Value {
        json!({
            "cpu_s": self.cpu_s - began.cpu_s,
            "wall_s": self.at.duration_since(began.at).as_secs_f64(),
            "began": began.resident,
            "peak": self.peak,
        })
    }
}
