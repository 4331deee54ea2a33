//! Starts the processes of one measurement and gathers what they tell.

use crate::cost::Job;
use crate::server::reply::Order;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Who reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Floor,
    Client,
}

/// What is measured, but for the server's address.
#[derive(Clone, Copy)]
pub struct Work {
    pub order: Order,
    pub streams: u64,
    pub requests: u64,
    pub body: usize,
    pub burst: bool,
    pub idle: bool,
    pub spread_s: u64,
    /// Cores of the client; one, unless the work says otherwise.
    pub free: bool,
}

impl Work {
    /// Streams of so many events, each client on one core.
    pub fn new(streams: u64, requests: u64, events: u64, gap_us: u64) -> Work {
        let order = Order {
            events,
            gap_us,
            size: 200,
            stamped: false,
        };
        Work {
            order,
            streams,
            requests,
            body: 1000,
            burst: false,
            idle: false,
            spread_s: 0,
            free: false,
        }
    }

    /// Token events in all.
    pub fn events(&self) -> u64 {
        self.requests * self.order.events
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One run against a server of its own.
pub fn run(who: Who, work: &Work) -> Value {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut server = Running(start(&["--role", "server", "--core", "0"]));
    let mut first = String::new();
    BufReader::new(server.0.stdout.as_mut().expect("a pipe"))
        .read_line(&mut first)
        .expect("an address");
    let Work {
        order,
        streams,
        requests,
        body,
        burst,
        idle,
        spread_s,
        ..
    } = *work;
    let job = Job {
        addr: first.trim().parse().expect("an address"),
        order,
        streams,
        requests,
        body,
        burst,
        idle,
        spread_s,
    };
    let role = if who == Who::Floor { "floor" } else { "client" };
    let (word, core) = (job.word(), (cores - 1).to_string());
    let mut args = vec!["--role", role, "--job", &word];
    if !work.free {
        args.extend(["--core", &core]);
    }
    let output = start(&args).wait_with_output().expect("a client");
    assert!(output.status.success(), "{role} failed at {word}");
    let text = String::from_utf8_lossy(&output.stdout);
    let told: Value =
        serde_json::from_str(text.lines().last().unwrap_or_default()).expect("figures");
    assert!(idle || told["ok"] == requests, "{role} at {word}: {told}");
    told
}

fn start(args: &[&str]) -> Child {
    let program = std::env::current_exe().expect("this program");
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process")
}

/// The median of a figure over runs.
pub fn median(told: &[Value], figure: impl Fn(&Value) -> f64) -> f64 {
    let mut all: Vec<f64> = told.iter().map(figure).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
