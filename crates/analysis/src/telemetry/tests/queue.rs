use super::*;

/// What vLLM's page says of its queue, in milliseconds.
fn queue(tenths: i64, page: &str) -> Vec<Reading> {
    let page = std::fs::read_to_string(format!("../../tests/wire/metrics/{page}.txt")).unwrap();
    let lines = page.lines().filter_map(|line| line.strip_prefix("vllm:request_queue_time_seconds_"));
    let told = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        let value: f64 = value.parse().unwrap();
        let label = match name.split_once('{')?.0 {
            "bucket" => match name.split("le=\"").nth(1)?.split('"').next()?.parse::<f64>().ok()? {
                f64::INFINITY => "le=+Inf".to_owned(),
                bound => format!("le={}", bound * 1000.0),
            },
            "sum" => return Some(server(tenths, Signal::ServerQueueTime, "sum", value * 1000.0)),
            "count" => "count".to_owned(),
            _ => return None,
        };
        Some(server(tenths, Signal::ServerQueueTime, &label, value))
    };
    lines.filter_map(told).collect()
}

#[test]
fn a_queue_that_was_hardly_there_is_only_known_to_be_within_the_first_bucket() {
    let seen = over([queue(8, "vllm_cpu.idle"), queue(45, "vllm_cpu.after")].concat());
    let stat = &seen.signals[&Signal::ServerQueueTime];
    assert_eq!((stat.n, stat.mean), (12, Some(1.223429004312493 / 12.0)));
    assert_eq!(stat.buckets[0], (300.0, 12.0));
    assert_eq!([0.5, 0.99, 1.0].map(|share| stat.at(Stat::Quantile(share))), [Some(Seen::AtMost(300.0)); 3]);
}
