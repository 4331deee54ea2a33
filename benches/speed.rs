//! How fast and how light the client is, beside the least that a client can do: `cargo bench --bench speed [-- --quick]`.
//!
//! Three processes of this one program: a server that writes ready-made events on one core; on another either llmscen, a
//! whole run of it, or the floor, a reader that only counts the ends of events. Both get the same bytes from the same
//! server, turn by turn; what is compared is CPU time for the same work, and of several turns the median counts.

mod chart;
mod client;
mod cost;
mod floor;
mod runs;
mod server;
mod tables;

use cost::{Cost, Job};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};
use server::reply::Reply;
use std::net::TcpListener;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let of = |flag: &str| {
        args.iter()
            .position(|arg| arg == flag)
            .and_then(|place| args.get(place + 1))
    };
    raise_files();
    if let Some(core) = of("--core") {
        stay_on(core.parse().expect("a core"));
    }
    let job = of("--job").map(|word| Job::parse(word).expect("a job"));
    match (of("--role").map(String::as_str), job) {
        (Some("server"), _) => serve(),
        (Some("floor"), Some(job)) => println!("{}", floor(&job)),
        (Some("client"), Some(job)) => println!("{}", client::run(&job)),
        _ => tables::print(
            args.iter().any(|arg| arg == "--quick"),
            of("--only").map(String::as_str),
            of("--chart").map(String::as_str),
        ),
    }
}

fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    println!("{}", listener.local_addr().expect("an address"));
    server::serve(listener).expect("a server");
}

fn floor(job: &Job) -> Value {
    let (reply, body) = (Reply::new(job.order), vec![b'x'; job.body]);
    let began = Cost::now();
    let counted =
        floor::run(job.addr, &reply, &body, job.streams as usize, job.requests).expect("the floor");
    let ended = Cost::now();
    assert_eq!(
        counted.ends,
        counted.requests * (job.order.events + 2),
        "the floor miscounted"
    );
    let mut told = ended.since(&began);
    told["ok"] = json!(counted.requests);
    told
}

/// Threads that are started later stay there too.
fn stay_on(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    // A machine may not allow it; then the scheduler decides.
    let _ = sched_setaffinity(None, &set);
}

fn raise_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}
