//! What a journal holds, and its form in bytes.
//!
//! Postcard writes fields in order, without names. The mirrors below are derived as `remote` types, so that a field
//! added to [`Outcome`] or [`Timeline`] does not compile until it stands here too; a change of either is a new version of
//! the journal.

use llmscen_core::manifest::Part;
use llmscen_core::outcome::{Counted, Failure, Finish, Outcome, Phase, ServerTimes, Timeline, Usage};
use llmscen_core::units::Nanos;
use serde::{Deserialize, Serialize};

/// One entry of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// A round of a case begins.
    Started {
        /// Index of the case in the plan.
        case: u32,
        /// Round, from 0.
        round: u32,
        /// Its time zero, in nanoseconds after the run's start.
        origin_ns: u64,
    },
    /// A request ended.
    Outcome {
        /// Index of the case in the plan.
        case: u32,
        /// Round, from 0.
        round: u32,
        /// What happened.
        #[serde(with = "OutcomeWire")]
        outcome: Outcome,
    },
    /// A round of a case is over.
    Ended {
        /// What is known of it.
        part: Part,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Outcome")]
struct OutcomeWire {
    seq: u64,
    turn: u32,
    turns: u32,
    group: Option<String>,
    phase: Phase,
    model: String,
    streamed: bool,
    #[serde(with = "TimelineWire")]
    timeline: Timeline,
    status: Option<u16>,
    reads: u32,
    bytes_out: u64,
    bytes_in: u64,
    reconnects: u32,
    attempts: u32,
    usage: Usage,
    counted: Counted,
    server: ServerTimes,
    items: Option<u64>,
    max_tokens: Option<u64>,
    response_id: Option<String>,
    request_id: Option<String>,
    end: Result<Finish, Failure>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Timeline")]
struct TimelineWire {
    intended: Nanos,
    sent: Option<Nanos>,
    last_sent: Option<Nanos>,
    headers: Option<Nanos>,
    first_chunk: Option<Nanos>,
    #[serde(with = "gaps")]
    tokens: Vec<Nanos>,
    choices: Vec<u32>,
    weights: Vec<u32>,
    reasoning: u32,
    end: Nanos,
}

/// Stamps as gaps: a gap below 2 ms takes 3 bytes as a varint and one below 268 ms 4, where a stamp an hour into a run
/// takes 6. Differences wrap, so that any list of stamps comes back as it was.
mod gaps {
    use super::Nanos;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(stamps: &[Nanos], serializer: S) -> Result<S::Ok, S::Error> {
        let mut last = 0u64;
        serializer.collect_seq(stamps.iter().map(|stamp| {
            let gap = stamp.0.wrapping_sub(last);
            last = stamp.0;
            gap
        }))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Nanos>, D::Error> {
        let mut last = 0u64;
        let gaps = Vec::<u64>::deserialize(deserializer)?;
        Ok(gaps
            .into_iter()
            .map(|gap| {
                last = last.wrapping_add(gap);
                Nanos(last)
            })
            .collect())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use llmscen_core::early_stop::{Aborted, AllFailed, Ending, Saturated, TargetLost};
    use llmscen_core::manifest::{Vitals, WorkerStalls};
    use llmscen_core::outcome::FailureKind;
    use llmscen_core::search::Part as Probe;
    use proptest::option::of;
    use proptest::prelude::*;

    fn nanos() -> impl Strategy<Value = Nanos> {
        any::<u64>().prop_map(Nanos)
    }

    fn timeline() -> impl Strategy<Value = Timeline> {
        let stamps = proptest::collection::vec(nanos(), 0..40);
        let lists = proptest::array::uniform2(proptest::collection::vec(any::<u32>(), 0..9));
        (nanos(), of(nanos()), of(nanos()), of(nanos()), stamps, lists, nanos()).prop_map(
            |(intended, sent, headers, first_chunk, tokens, [choices, weights], end)| Timeline {
                intended,
                sent,
                last_sent: first_chunk,
                headers,
                first_chunk,
                tokens,
                reasoning: choices.len() as u32,
                choices,
                weights,
                end,
            },
        )
    }

    fn end() -> impl Strategy<Value = Result<Finish, Failure>> {
        let failed = (proptest::sample::select(FailureKind::ALL.to_vec()), ".{0,30}", ".{0,9}")
            .prop_map(|(kind, message, at)| Err(Failure { kind, message, at }));
        prop_oneof![".{0,9}".prop_map(|reason| Ok(Finish { reason })), failed]
    }

    fn outcome() -> impl Strategy<Value = Outcome> {
        let facts = (any::<u64>(), any::<bool>(), ".{0,12}", any::<bool>(), timeline(), of(any::<u16>()), of(".{0,12}"));
        let counts = (any::<u32>(), any::<u64>(), any::<u64>(), any::<u32>(), of(any::<u64>()));
        let tokens = proptest::array::uniform6(of(any::<u64>()));
        (facts, counts, tokens, any::<bool>(), end()).prop_map(|(facts, counts, tokens, approximate, end)| {
            let (seq, warm, model, streamed, timeline, status, response_id) = facts;
            let (reads, bytes_out, bytes_in, reconnects, max_tokens) = counts;
            let [prompt, output, reasoning, cached, counted_prompt, counted_output] = tokens;
            Outcome {
                seq,
                turn: reads % 7,
                turns: reads % 9,
                group: response_id.clone(),
                phase: if warm { Phase::Warmup } else { Phase::Measured },
                model,
                streamed,
                timeline,
                status,
                reads,
                bytes_out,
                bytes_in,
                reconnects,
                attempts: reads % 5,
                usage: Usage { prompt, output, reasoning, cached },
                counted: Counted { prompt: counted_prompt, output: counted_output, approximate },
                server: ServerTimes { queue: prompt.map(Nanos), total: output.map(Nanos), ..ServerTimes::default() },
                items: cached,
                max_tokens,
                request_id: response_id.clone(),
                response_id,
                end,
            }
        })
    }

    fn part() -> impl Strategy<Value = Part> {
        let vitals =
            (0.0..9e9, proptest::collection::vec(0.0..1.0, 0..4), any::<u64>()).prop_map(|(x, cpu_shares, memory_peak)| Vitals {
                stall_ms_p99: x,
                stall_ms_sure: Some(x / 2.0),
                stall_ms_max: 2.0 * x,
                stalls: Some(vec![WorkerStalls {
                    frozen_ms: x,
                    longest: vec![[1, 2, 3, memory_peak].into()],
                    ..WorkerStalls::default()
                }]),
                cpu_shares,
                memory_peak,
                events_per_s: x,
                bytes_in_per_s: x,
                bytes_out_per_s: x,
            });
        (".{0,20}", any::<u32>(), any::<[u64; 4]>(), of(any::<u64>()), of(".{0,20}"), of(vitals)).prop_map(
            |(case, round, [origin_ns, measured_from_ns, rows_dropped, rows_repeated], sending_until_ns, cut_short, vitals)| {
                Part {
                    case,
                    round,
                    origin_ns,
                    measured_from_ns,
                    sending_until_ns,
                    cut_short,
                    ending: ending(rows_repeated),
                    rows_dropped,
                    rows_repeated,
                    probe: (rows_dropped % 2 == 0).then_some(Probe { share: 0.25, hopeless: round % 2 == 0 }),
                    vitals,
                    ..Part::default()
                }
            },
        )
    }

    fn ending(number: u64) -> Option<Ending> {
        let aborted = Aborted { check: number as u32, expr: number.to_string(), planned: Some(number), ..Aborted::default() };
        let saturated = Saturated { at_s: number as f64, ..Saturated::default() };
        let lost = TargetLost { at_s: number as f64, why: number.to_string(), ..TargetLost::default() };
        let failed = AllFailed { after: number, reason: number.to_string(), ..AllFailed::default() };
        let all = [Ending::Aborted(aborted), Ending::Saturated(saturated), Ending::TargetLost(lost), Ending::AllFailed(failed)];
        all.get(number as usize % 5).cloned()
    }

    /// Any record.
    pub fn record() -> impl Strategy<Value = Record> {
        prop_oneof![
            any::<(u32, u32, u64)>().prop_map(|(case, round, origin_ns)| { Record::Started { case, round, origin_ns } }),
            (any::<u32>(), any::<u32>(), outcome()).prop_map(|(case, round, outcome)| Record::Outcome { case, round, outcome }),
            part().prop_map(|part| Record::Ended { part }),
        ]
    }

    proptest! {
        #[test]
        fn a_record_comes_back_as_it_was(record in record()) {
            let bytes = postcard::to_stdvec(&record).unwrap();
            prop_assert_eq!(postcard::from_bytes::<Record>(&bytes).unwrap(), record);
        }
    }

    #[derive(Serialize)]
    struct Wired(#[serde(with = "TimelineWire")] Timeline);

    #[test]
    fn a_token_event_costs_its_gap() {
        let tokens = |gap: u64, n: u64| {
            let hour = 3_600_000_000_000;
            let timeline = Timeline { tokens: (0..n).map(|i| Nanos(hour + i * gap)).collect(), ..Timeline::default() };
            postcard::to_stdvec(&Wired(timeline)).unwrap().len()
        };
        let per_event = |gap| tokens(gap, 100) - tokens(gap, 99);
        assert_eq!([0, 10_000, 1_000_000, 25_000_000, 1_000_000_000].map(per_event), [1, 2, 3, 4, 5]);
    }
}
