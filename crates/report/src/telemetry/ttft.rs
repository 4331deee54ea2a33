//! The client's TTFT beside the server's own, and where the difference comes from.

use llmscen_core::metric::{Metric, Stat};
use llmscen_core::report::CaseReport;
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::Seen;

/// A line of the comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// What it is.
    pub name: &'static str,
    /// Mean, p50, p95 and p99 in milliseconds; of a difference the mean alone, since quantiles do not subtract.
    pub figures: [Option<Seen>; 4],
}

/// The two, and the parts of the client's mean: lag, queue, work and the rest add up to it. Empty where one is not known.
pub fn apart(case: &CaseReport) -> Vec<Part> {
    let client = |metric: Metric| case.distributions.get(&metric);
    let server = |signal: Signal| case.telemetry.signals.get(&signal).filter(|own| own.mean.is_some());
    let (Some(due), Some(sent), Some(own)) = (client(Metric::Ttft), client(Metric::TtftService), server(Signal::ServerTtft))
    else {
        return Vec::new();
    };
    let queue = server(Signal::ServerQueueTime);
    let mean = |mean: Option<f64>| [mean.map(Seen::Value), None, None, None];
    let shares = [0.50, 0.95, 0.99];
    let told = |signal: Signal| {
        server(signal).map(|own| {
            let [a, b, c] = shares.map(|share| own.at(Stat::Quantile(share)));
            [own.mean.map(Seen::Value), a, b, c]
        })
    };
    let [a, b, c] = shares.map(|share| due.quantile(share).map(Seen::Value));
    let parts = [
        ("client, from when it was due", Some([Some(Seen::Value(due.mean)), a, b, c])),
        ("server, by its own histogram", told(Signal::ServerTtft)),
        ("apart: schedule lag of the client", Some(mean(Some(due.mean - sent.mean)))),
        ("apart: queue in the server", told(Signal::ServerQueueTime)),
        ("apart: the server's work after it", queue.map(|queue| mean(own.mean.zip(queue.mean).map(|(all, queue)| all - queue)))),
        ("apart: the server's queue and work", if queue.is_none() { Some(mean(own.mean)) } else { None }),
        ("apart: network, HTTP, and what the server does before it counts", Some(mean(own.mean.map(|own| sent.mean - own)))),
    ];
    parts.into_iter().filter_map(|(name, figures)| Some(Part { name, figures: figures? })).collect()
}

/// What is to be known of the comparison.
pub fn remarks(case: &CaseReport) -> Vec<String> {
    if apart(case).is_empty() {
        return Vec::new();
    }
    let client = case.distributions.get(&Metric::Ttft).map_or(0, |own| own.n);
    let counted = case.telemetry.signals.get(&Signal::ServerTtft).map_or(0, |own| own.n);
    let differs = format!(
        "server.ttft: the server counted {counted} first tokens between its readings around the window, {client} measured requests \
         had one: warm-up, requests at the edges or those of others are among the server's."
    );
    if counted == client { Vec::new() } else { vec![differs] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, observed};

    #[test]
    fn the_parts_of_the_clients_mean_add_up_to_it() {
        let own = observed();
        let parts = apart(&own);
        let sum: f64 =
            parts.iter().filter(|part| part.name.starts_with("apart")).filter_map(|part| part.figures[0]?.value()).sum();
        assert!((sum - own.distributions[&Metric::Ttft].mean).abs() < 1e-9, "{parts:?}");
        assert_eq!(parts.len(), 6);
        assert_eq!(parts[3].figures[1], Some(Seen::AtMost(300.0)), "the queue's p50 lies in its first bucket");
        let mut blind = own;
        blind.telemetry.signals.remove(&Signal::ServerQueueTime);
        let parts = apart(&blind);
        assert_eq!((parts.len(), parts[3].name), (5, "apart: the server's queue and work"));
        assert!(apart(&case(4)).is_empty() && remarks(&case(4)).is_empty());
    }

    #[test]
    fn what_else_the_server_counted_is_said() {
        let mut own = observed();
        assert_eq!(remarks(&own), [""; 0]);
        own.telemetry.signals.get_mut(&Signal::ServerTtft).unwrap().n = 260;
        assert!(remarks(&own)[0].starts_with("server.ttft: the server counted 260 first tokens"), "{:?}", remarks(&own));
    }
}
