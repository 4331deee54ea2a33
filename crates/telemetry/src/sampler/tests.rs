use super::*;
use llmscen_core::units::Nanos;

/// Emits these samples, then nothing.
struct Fake {
    interval: Nanos,
    samples: Vec<Result<Vec<(&'static str, f64)>, String>>,
    taken: usize,
}

impl Fake {
    fn new(samples: Vec<Result<Vec<(&'static str, f64)>, String>>) -> Fake {
        Fake {
            interval: Nanos::from_millis(5),
            samples,
            taken: 0,
        }
    }
}

impl TelemetrySource for Fake {
    fn kind(&self) -> Source {
        Source::Prometheus
    }

    fn interval(&self) -> Nanos {
        self.interval
    }

    fn sample(
        &mut self,
        _at: Instant,
        emit: &mut dyn FnMut(SampledValue<'_>),
    ) -> Result<(), String> {
        let sample = self
            .samples
            .get(self.taken)
            .cloned()
            .unwrap_or_else(|| Ok(Vec::new()));
        self.taken += 1;
        sample?.into_iter().for_each(|(name, value)| {
            emit(SampledValue {
                name,
                labels: "",
                device: None,
                value,
            })
        });
        Ok(())
    }

    fn notes(&mut self) -> Vec<String> {
        vec!["by the way".into()]
    }
}

#[test]
fn readings_count_from_time_zero_and_those_before_it_are_negative() {
    let begin = Instant::now();
    let at = |millis| begin + Duration::from_millis(millis);
    let samples = [1.0, 2.0, 3.0].map(|value| Ok(vec![("server.waiting", value)]));
    let (mut log, mut source) = (Log::new(begin, 1), Fake::new(samples.to_vec()));
    log.sample(0, &mut source, at(0));
    log.count_from(at(7));
    log.sample(0, &mut source, at(7));
    log.sample(0, &mut source, at(20));
    let (readings, notes) = log.into_parts();
    let values: Vec<(i64, f64)> = readings
        .iter()
        .map(|reading| (reading.at_ns, reading.value))
        .collect();
    assert_eq!(values, [(-7_000_000, 1.0), (0, 2.0), (13_000_000, 3.0)]);
    assert_eq!(notes, Vec::<String>::new());
}

#[test]
fn a_common_name_is_kept_every_time_and_an_own_name_where_it_changed() {
    let begin = Instant::now();
    let sample = |own| {
        Ok(vec![
            ("gpu.power", 7.0),
            ("vllm:x", own),
            ("vllm:nan", f64::NAN),
        ])
    };
    let (mut log, mut source) = (
        Log::new(begin, 1),
        Fake::new(vec![sample(1.0), sample(1.0), sample(2.0), sample(1.0)]),
    );
    (0..4).for_each(|_| log.sample(0, &mut source, begin));
    let (readings, _) = log.into_parts();
    let named = |name: &str| {
        readings
            .iter()
            .filter(|reading| &*reading.name == name)
            .map(|reading| reading.value)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (named("gpu.power"), named("vllm:x"), named("vllm:nan")),
        (vec![7.0; 4], vec![1.0, 2.0, 1.0], vec![])
    );
}

#[test]
fn a_source_that_fails_is_noted_once_and_sampled_again() {
    let (value, lost) = (
        || Ok(vec![("gpu.power", 1.0)]),
        |why: &str| Err(why.to_owned()),
    );
    let (mut log, mut source) = (
        Log::new(Instant::now(), 2),
        Fake::new(vec![value(), lost("gone"), lost("still"), value()]),
    );
    (0..4).for_each(|_| log.sample(1, &mut source, Instant::now()));
    let (readings, notes) = log.into_parts();
    assert_eq!(readings.len(), 2);
    assert_eq!(
        notes,
        ["telemetry of prometheus: 2 of 4 samples failed, first error: gone"]
    );
}

#[test]
fn deadlines_are_absolute_and_missed_ones_are_skipped() {
    let origin = Instant::now() + Duration::from_secs(1);
    let at = |millis| origin + Duration::from_millis(millis);
    let each = Duration::from_millis(100);
    let due = [0, 99, 100, 101, 930].map(|now| next_due(origin, each, at(now)));
    assert_eq!(due, [100, 100, 200, 200, 1000].map(at));
    assert_eq!(
        next_due(origin, each, origin - each),
        at(100),
        "time zero itself comes right after the first sample"
    );
}

#[test]
fn every_source_is_sampled_before_and_after_and_at_its_own_interval_between() {
    let endless = || {
        Fake::new(
            (0..1000)
                .map(|n| Ok(vec![("gpu.power", f64::from(n))]))
                .collect(),
        )
    };
    let slow = Fake {
        interval: Nanos::from_millis(3_600_000),
        ..Fake::new(vec![
            Ok(vec![("gpu.clock", 1.0)]),
            Ok(vec![("gpu.clock", 2.0)]),
        ])
    };
    let sampler = Sampler::start(vec![Box::new(endless()), Box::new(slow)]).unwrap();
    let origin = Instant::now();
    sampler.count_from(origin);
    std::thread::sleep(Duration::from_millis(60));
    let ended = origin.elapsed().as_nanos() as i64;
    let (readings, notes) = sampler.finish();
    let named = |name: &str| {
        readings
            .iter()
            .filter(|reading| &*reading.name == name)
            .collect::<Vec<_>>()
    };
    let (fast, slow) = (named("gpu.power"), named("gpu.clock"));
    assert!(
        fast.len() >= 3 && fast.windows(2).all(|pair| pair[0].at_ns < pair[1].at_ns),
        "{fast:?}"
    );
    let values: Vec<f64> = fast.iter().map(|reading| reading.value).collect();
    assert_eq!(
        values,
        (0..values.len()).map(|n| n as f64).collect::<Vec<_>>(),
        "in the order in which they were emitted"
    );
    assert_eq!(
        slow.iter().map(|reading| reading.value).collect::<Vec<_>>(),
        [1.0, 2.0],
        "first and last, no more"
    );
    for both in [&fast, &slow] {
        assert!(
            both[0].at_ns < 0 && both[both.len() - 1].at_ns >= ended,
            "{both:?}"
        );
    }
    assert_eq!(notes, ["by the way", "by the way"]);
}

#[test]
fn no_sources_need_no_thread_and_a_round_that_does_not_come_to_be_leaves_none() {
    assert_eq!(
        Sampler::start(Vec::new()).unwrap().finish(),
        (Vec::new(), Vec::new())
    );
    let sampler = Sampler::start(vec![Box::new(Fake::new(vec![Ok(vec![(
        "gpu.power",
        1.0,
    )])]))])
    .unwrap();
    let (readings, _) = sampler.finish();
    assert_eq!(
        readings.len(),
        1,
        "before time zero nothing but the first sample"
    );
}
