use super::*;

fn read(json: &str) -> [Option<u64>; 2] {
    let times = parse_timings(serde_json::from_str(json).unwrap());
    [times.prefill, times.decode].map(|span| span.map(|span| span.0))
}

#[test]
fn milliseconds_become_nanoseconds_and_bad_ones_are_absent() {
    assert_eq!(
        read(r#"{"cache_n":14,"prompt_n":1,"prompt_ms":0.676,"predicted_ms":3.105}"#),
        [Some(676_000), Some(3_105_000)]
    );
    assert_eq!(
        read(r#"{"prompt_ms":null,"predicted_ms":0}"#),
        [None, Some(0)]
    );
    assert_eq!(read(r#"{"prompt_ms":-1}"#), [None, None]);
    assert_eq!(read(r#"{"prompt_ms":"1","predicted_ms":2}"#), [None, None]);
    assert_eq!(read("7"), [None, None]);
}

#[test]
fn the_longer_time_of_two_choices_counts() {
    let times = |prefill: Option<u64>, decode: u64| ServerTimes {
        prefill: prefill.map(Nanos),
        decode: Some(Nanos(decode)),
        ..ServerTimes::default()
    };
    assert_eq!(
        max_times(times(Some(7), 1), times(Some(6), 2)),
        times(Some(7), 2)
    );
    assert_eq!(
        max_times(times(None, 3), times(Some(6), 2)),
        times(Some(6), 3)
    );
}
