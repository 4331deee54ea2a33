//! Client measurements compared with the server's log of its writes.

use crate::lab::Lab;
use crate::witness::*;

const AUDIT: &str = "audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n";

#[test]
fn no_stamp_is_before_the_write_and_the_usual_one_is_right_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = format!(
        "version: 1\nname: t\ntarget: {{ url: \"{{url}}\", model: m }}\nrequest: {{ max_tokens: 20 }}\n\
         dataset: {{ kind: prompt, text: hello }}\nload: {{ concurrency: 32, requests: 96 }}\n{AUDIT}"
    );
    let (conducted, pairs) = witness(
        folder.path(),
        "{ alpha: 10ms, beta: 0s, gamma: 0s, delta: 0s }",
        &scenario,
    );
    assert_eq!(conducted.report.cases[0].counts.ok, 96);
    for pair in &pairs {
        assert_eq!(
            (pair.seen.len(), pair.written.len()),
            (20, 20),
            "every token is seen once"
        );
        let early = pair
            .seen
            .iter()
            .zip(&pair.written)
            .filter(|(seen, written)| seen < written)
            .count();
        assert_eq!(early, 0, "nothing arrives before it was written");
        assert!(pair.sent >= pair.intended);
    }
    // Loose enough for a machine that builds something else meanwhile; the bench prints the real figures.
    let (ttft, itl) = (
        quantile(&ttft_errors(&pairs), 0.5),
        quantile(&itl_errors(&pairs), 0.5),
    );
    assert!(
        ttft < 20.0 && itl < 20.0,
        "half of all first tokens are stamped {ttft} ms late, half of all gaps off by {itl} ms"
    );
}

#[test]
fn ttft_starts_at_the_first_content_not_at_the_role() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = format!(
        "version: 1\nname: t\ntarget: {{ url: \"{{url}}\", model: m }}\nrequest: {{ max_tokens: 3 }}\n\
         dataset: {{ kind: prompt, text: hello }}\nload: {{ concurrency: 1, requests: 5 }}\n{AUDIT}"
    );
    let (conducted, pairs) = witness(
        folder.path(),
        "{ alpha: 80ms, faults: { role_chunk: true } }",
        &scenario,
    );
    let distributions = &conducted.report.cases[0].distributions;
    let min = |metric| distributions[&metric].min;
    use llmscen_core::metric::Metric;
    assert!(min(Metric::TtftService) >= 80.0, "{distributions:?}");
    assert!(
        distributions[&Metric::Ttfc].quantile(0.5).unwrap() < 70.0,
        "the role came at once"
    );
    assert!(pairs.iter().all(|pair| pair.seen.len() == 3));
}

#[test]
fn coalesced_tokens_share_a_stamp_and_are_counted_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = format!(
        "version: 1\nname: t\ntarget: {{ url: \"{{url}}\", model: m }}\nrequest: {{ max_tokens: 12 }}\n\
         dataset: {{ kind: prompt, text: hello }}\nload: {{ concurrency: 1, requests: 4 }}\n{AUDIT}"
    );
    let (conducted, pairs) = witness(
        folder.path(),
        "{ alpha: 10ms, faults: { coalesce: 4 } }",
        &scenario,
    );
    for pair in &pairs {
        assert_eq!(pair.seen.len(), 12);
        let mut distinct = pair.seen.clone();
        distinct.dedup();
        assert!(distinct.len() <= 6, "{distinct:?}");
    }
    let notes = conducted.report.cases[0].notes.join("\n");
    assert!(
        notes.contains("read"),
        "the report must tell that tokens shared reads: {notes}"
    );
}

#[test]
fn an_open_loop_sends_what_the_plan_says_when_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = format!(
        "version: 1\nname: t\nseed: 3\ntarget: {{ url: \"{{url}}\", model: m }}\nrequest: {{ max_tokens: 1 }}\n\
         dataset: {{ kind: prompt, text: hello }}\nload: {{ rate: 200/s, duration: 3s }}\n{AUDIT}"
    );
    let (conducted, pairs) = witness(folder.path(), "{ alpha: 1ms }", &scenario);
    use llmscen_core::load::Arrival;
    use llmscen_core::schedule::arrival::Arrivals;
    use llmscen_core::units::Nanos;
    let seed = llmscen_core::seed::Seed(3).child("base").child(0u64);
    let end = Nanos::from_millis(3000);
    let plan: Vec<u64> = Arrivals::new(200.0, Arrival::Poisson, seed)
        .take_while(|due| *due < end)
        .map(|due| due.0)
        .collect();
    let origin = conducted.report.manifest.parts[0].origin_ns;
    let intended: Vec<u64> = pairs.iter().map(|pair| pair.intended - origin).collect();
    assert_eq!(
        intended, plan,
        "the intended times are the plan's, to the nanosecond"
    );
    assert!(send_lags(&pairs)[0] >= 0.0, "none leaves early");
}

#[test]
fn the_grace_counts_from_the_end_of_the_duration_not_from_the_last_arrival() {
    let lab = Lab::new();
    lab.run(&format!(
        "version: 1\nname: t\ntarget: {{ api: simulator, simulator: {{ alpha: 1500ms, beta: 0s, gamma: 0s, delta: 0s }} }}\n\
         request: {{ max_tokens: 1 }}\ndataset: {{ kind: prompt, text: hello }}\n\
         load: {{ rate: 0.1/s, arrivals: constant, duration: 8s, graceful_stop: 10ms }}\n{AUDIT}"
    ))
    .expect(0);
    let counts = &lab.results()["cases"][0]["counts"];
    assert_eq!(
        (&counts["ok"], &counts["scheduled"]),
        (&1.into(), &1.into()),
        "{counts}"
    );
}
