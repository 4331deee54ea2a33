//! The tables that `cargo bench --bench speed` prints.

use crate::chart::Point;
use crate::runs::{Who, Work, median, run};
use serde_json::Value;

/// How much is measured.
struct Scale {
    /// Turns of floor and client.
    turns: usize,
    /// Token events of an unpaced row.
    events: u64,
    /// Token events of a paced stream.
    paced: u64,
    /// One-token requests.
    requests: u64,
}

/// Measures and prints everything, or the part that is named; draws the first table where a file is named for it.
pub fn print(quick: bool, only: Option<&str>, chart: Option<&str>) {
    let scale = match quick {
        true => Scale {
            turns: 1,
            events: 300_000,
            paced: 50,
            requests: 10_000,
        },
        false => Scale {
            turns: 3,
            events: 1_000_000,
            paced: 100,
            requests: 30_000,
        },
    };
    let wanted = |part: &str| only.is_none_or(|only| only == part);
    println!(
        "{} cores; the server on the first, the client on the last; 200-byte events, each a chunk of its own",
        cores()
    );
    if wanted("streams") {
        let (unpaced, paced) = streams(&scale, quick);
        if let Some(file) = chart {
            std::fs::write(file, crate::chart::svg(&unpaced, &paced)).expect("a chart");
        }
    }
    if wanted("requests") {
        requests(&scale);
    }
    if wanted("memory") {
        memory(quick);
    }
    if wanted("long") {
        long(&scale);
    }
    if wanted("instants") {
        instants(quick);
    }
    if wanted("many") && (!quick || only.is_some()) {
        many();
    }
    if wanted("rows") && (!quick || only.is_some()) {
        rows();
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn turns(count: usize, work: &Work) -> (Vec<Value>, Vec<Value>) {
    (0..count)
        .map(|_| (run(Who::Floor, work), run(Who::Client, work)))
        .unzip()
}

fn cpu(told: &Value) -> f64 {
    told["cpu_s"].as_f64().unwrap_or(f64::NAN)
}

fn mib(told: &Value, figure: &str) -> f64 {
    told[figure].as_f64().unwrap_or(f64::NAN) / (1 << 20) as f64
}

fn streams(scale: &Scale, quick: bool) -> (Vec<Point>, Vec<Point>) {
    println!(
        "\n| streams | events | floor events/s per core | llmscen events/s per core | floor µs/event | llmscen µs/event | CPU ratio | floor µs/request | llmscen µs/request | floor peak MiB | llmscen peak MiB | whole run µs/event |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let counts: &[u64] = if quick {
        &[1, 32, 1024]
    } else {
        &[1, 32, 256, 1024, 8192]
    };
    let unpaced = counts.iter().map(|&streams| {
        let events = (scale.events / (2 * streams)).clamp(100, 20_000);
        let requests = (scale.events / events)
            .max(2 * streams)
            .next_multiple_of(streams);
        row(
            "unpaced",
            scale.turns,
            &Work::new(streams, requests, events, 0),
        )
    });
    let unpaced = unpaced.collect();
    let paced = counts.iter().map(|&streams| {
        // The server's core cannot write 800 thousand events a second one by one.
        let (pace, slower) = if streams > 4096 {
            ("100 ms gaps", 10)
        } else {
            ("10 ms gaps", 1)
        };
        // Few streams go on for longer: the beginning of a case must not be most of what is counted.
        let events = if streams > 32 {
            scale.paced
        } else {
            5 * scale.paced
        };
        row(
            pace,
            scale.turns,
            &Work::new(streams, streams, events / slower, 10_000 * slower),
        )
    });
    (unpaced, paced.collect())
}

fn row(pace: &str, count: usize, work: &Work) -> Point {
    let (floor, client) = turns(count, work);
    let (n, each) = (work.events() as f64, work.requests as f64);
    let micros = |told: &[Value], of: f64| median(told, cpu) * 1e6 / of;
    let peak = |told: &[Value]| median(told, |told| mib(told, "peak"));
    let whole = median(&client, |told| {
        told["whole_cpu_s"].as_f64().unwrap_or(f64::NAN)
    }) * 1e6
        / n;
    println!(
        "| {} | {pace} | {:.0} | {:.0} | {:.3} | {:.3} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} | {whole:.3} |",
        work.streams,
        1e6 / micros(&floor, n),
        1e6 / micros(&client, n),
        micros(&floor, n),
        micros(&client, n),
        micros(&client, n) / micros(&floor, n),
        micros(&floor, each),
        micros(&client, each),
        peak(&floor),
        peak(&client),
    );
    (
        work.streams,
        1e6 / micros(&floor, n),
        1e6 / micros(&client, n),
    )
}

fn requests(scale: &Scale) {
    println!(
        "\nRequests of one token:\n\n| in flight | floor requests/s per core | llmscen requests/s per core | floor µs | llmscen µs | ratio |"
    );
    println!("|---|---|---|---|---|---|");
    for streams in [1, 64, 1024] {
        let work = Work::new(streams, scale.requests, 1, 0);
        let (floor, client) = turns(scale.turns, &work);
        let micros = |told: &[Value]| median(told, cpu) * 1e6 / work.requests as f64;
        let (floor, client) = (micros(&floor), micros(&client));
        println!(
            "| {streams} | {:.0} | {:.0} | {floor:.1} | {client:.1} | {:.2} |",
            1e6 / floor,
            1e6 / client,
            client / floor
        );
    }
}

fn memory(quick: bool) {
    let streams = if quick { 2000 } else { 8192 };
    // One event each, and then nothing for a minute.
    let idle = Work {
        idle: true,
        ..Work::new(streams, streams, 2, 60_000_000)
    };
    let told = run(Who::Client, &idle);
    let grown =
        told["resident"].as_f64().unwrap_or(f64::NAN) - told["began"].as_f64().unwrap_or(f64::NAN);
    println!(
        "\nmemory of an idle stream: {:.1} KiB ({streams} streams)",
        grown / 1024.0 / streams as f64
    );
    let events = if quick { 10_000 } else { 100_000 };
    let (few, many) = (
        run(Who::Client, &Work::new(32, 64, 1000, 0)),
        run(Who::Client, &Work::new(32, 64, events, 0)),
    );
    let most = |told: &Value| told["peak"].as_f64().unwrap_or(f64::NAN);
    println!(
        "memory of a recorded token event: {:.1} bytes",
        (most(&many) - most(&few)) / (64.0 * (events - 1000) as f64)
    );
}

fn long(scale: &Scale) {
    let mut work = Work::new(64, 128, 20, 0);
    (work.body, work.order.size) = (1 << 20, 100 << 10);
    let (floor, client) = turns(scale.turns, &work);
    let rate = |told: &[Value]| {
        median(told, |told| {
            (work.requests * (work.body as u64 + work.order.events * 102_400)) as f64
                / 1e6
                / cpu(told)
        })
    };
    println!(
        "\n64 requests at a time with 1 MB bodies, 20 events of 100 KB each: floor {:.0} MB per CPU second, llmscen {:.0}; peak {:.0} MiB",
        rate(&floor),
        rate(&client),
        median(&client, |told| mib(told, "peak"))
    );
}

fn instants(quick: bool) {
    let burst = Work {
        burst: true,
        free: true,
        ..Work::new(1000, 1000, 1, 0)
    };
    let told = run(Who::Client, &burst);
    println!(
        "\na burst of 1000 left within {} ms (all cores, the server's among them)",
        told["sent_spread_ms"]
    );
    println!(
        "\n| requests at a time | replies | sent after the slot was free, p99 ms | stamp after the server's, µs: least, p50, p99, most | audit |"
    );
    println!("|---|---|---|---|---|");
    let requests = if quick { 2000 } else { 20_000 };
    for streams in [1, 32, 256] {
        instant("one token, unpaced", Work::new(streams, requests, 1, 0));
    }
    for streams in [1, 32, 256] {
        // Started one after another: replies that end at the same instant would measure each other.
        let work = Work::new(streams, (streams * 50).min(requests), 20, 10_000);
        instant(
            "20 events, 10 ms gaps",
            Work {
                spread_s: 1,
                ..work
            },
        );
    }
}

fn instant(replies: &str, mut work: Work) {
    work.order.stamped = true;
    let told = run(Who::Client, &work);
    let audit = told["audit"].as_str().unwrap_or_default();
    println!(
        "| {} | {replies} | {} | {} | {audit} |",
        work.streams, told["lag_ms_p99"], told["late_us"]
    );
}

/// Ten thousand streams, a core for either side: all due at the same instant, and one after another.
fn many() {
    for (spread_s, how) in [(0, "all due at once"), (10, "started over 10 s")] {
        let told = run(
            Who::Client,
            &Work {
                spread_s,
                ..Work::new(10_000, 10_000, 80, 250_000)
            },
        );
        println!(
            "\n10000 streams of 4 events/s each, {how}: {:.1} s, CPU {:.1} s ({:.2} cores), peak {:.0} MiB, sent late p99 {} ms, audit {}",
            told["wall_s"].as_f64().unwrap_or(f64::NAN),
            cpu(&told),
            cpu(&told) / told["wall_s"].as_f64().unwrap_or(f64::NAN),
            mib(&told, "peak"),
            told["lag_ms_p99"],
            match told["audit"].as_str() {
                None | Some("") => "valid".to_owned(),
                Some(reasons) => format!("invalid: {reasons}"),
            }
        );
    }
}

/// A million short requests in one case: does memory grow with anything but its rows?
fn rows() {
    let told = run(Who::Client, &Work::new(64, 1_000_000, 1, 0));
    println!(
        "\na million requests of one token in {:.0} s, peak {:.0} MiB",
        told["wall_s"].as_f64().unwrap_or(f64::NAN),
        mib(&told, "peak")
    );
    println!("\n| requests done | memory, MiB | bytes a request |\n|---|---|---|");
    let began = told["began"].as_f64().unwrap_or(f64::NAN);
    let samples: Vec<[f64; 2]> =
        serde_json::from_value(told["samples"].clone()).unwrap_or_default();
    for share in 1..=4 {
        let least = 250_000.0 * f64::from(share);
        if let Some([done, resident]) = samples.iter().find(|sample| sample[0] >= least) {
            println!(
                "| {done} | {:.0} | {:.0} |",
                resident / (1 << 20) as f64,
                (resident - began) / done
            );
        }
    }
}
