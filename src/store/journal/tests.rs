use super::*;
use llmscen_core::early_stop::{Aborted, AllFailed, EarlyStop, Saturated, TargetLost};
use llmscen_core::expect::{AnswerCheck, FailedCheck};
use llmscen_core::manifest::{Vitals, WorkerStalls};
use llmscen_core::outcome::{
    Anomaly, AnomalyKind, Audio, Counted, Failure, FailureKind, Finish, Phase, Playback,
    ReplyFacts, ServerTimes, Timeline, Usage,
};
use llmscen_core::request::PreparedRequest;
use llmscen_core::search::Part as Probe;
use llmscen_core::units::Nanos;
use proptest::option::of;
use proptest::prelude::*;
use std::io::{Seek, SeekFrom, Write as _};

fn outcome(seq: u64, end: Result<Finish, Failure>) -> Record {
    let timeline = Timeline {
        tokens: (1..4).map(|n| Nanos(seq * 1000 + n)).collect(),
        ..Timeline::default()
    };
    let blank = PreparedRequest {
        seq,
        model: "m".into(),
        streamed: true,
        ..PreparedRequest::default()
    }
    .outcome(Phase::Measured);
    let outcome = Outcome {
        timeline,
        status: Some(200),
        reads: 3,
        response_id: Some("id".into()),
        end,
        ..blank
    };
    Record::Outcome {
        case: 1,
        round: 0,
        outcome,
    }
}

fn records() -> Vec<Record> {
    vec![
        Record::Started {
            case: 1,
            round: 0,
            origin_ns: 5,
        },
        outcome(
            0,
            Ok(Finish {
                reason: "stop".into(),
            }),
        ),
        outcome(
            1,
            Err(Failure::new(FailureKind::Truncated, "cut").at("after 3 events")),
        ),
        Record::Ended {
            part: Part {
                case: "c=1".into(),
                sending_until_ns: Some(9),
                ..Part::default()
            },
        },
    ]
}

/// Writes the records. Returns the size of the file after the header and after each record.
fn written(path: &Path, records: &[Record]) -> Vec<u64> {
    let mut writer = Writer::create(path).unwrap();
    let mut sizes = vec![std::fs::metadata(path).unwrap().len()];
    for record in records {
        writer.append(record).unwrap();
        writer.flush().unwrap();
        sizes.push(std::fs::metadata(path).unwrap().len());
    }
    writer.finish().unwrap();
    sizes
}

fn read(path: &Path) -> (Vec<Record>, u64) {
    let mut reader = Reader::open(path).unwrap();
    let records = reader.by_ref().map(Result::unwrap).collect();
    (records, reader.left_out())
}

#[test]
fn a_truncated_journal_keeps_every_complete_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let records = records();
    let sizes = written(&path, &records);
    assert_eq!(read(&path), (records.clone(), 0));
    let file = File::options().write(true).open(&path).unwrap();
    for cut in (0..*sizes.last().unwrap()).rev() {
        file.set_len(cut).unwrap();
        let whole = sizes
            .iter()
            .filter(|size| **size <= cut)
            .count()
            .saturating_sub(1);
        let kept = sizes
            .iter()
            .copied()
            .filter(|size| *size <= cut)
            .max()
            .unwrap_or(0);
        assert_eq!(
            read(&path),
            (records[..whole].to_vec(), cut - kept),
            "cut at {cut}"
        );
    }
}

#[test]
fn a_damaged_byte_loses_only_its_record_and_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let records = records();
    let sizes = written(&path, &records);
    let bytes = std::fs::read(&path).unwrap();
    let others = [&records[..1], &records[2..]].concat();
    for at in sizes[1]..sizes[2] {
        let mut damaged = bytes.clone();
        damaged[at as usize] ^= 0x40;
        std::fs::write(&path, &damaged).unwrap();
        let mut reader = Reader::open(&path).unwrap();
        let kept: Vec<Record> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(
            (kept, reader.left_out()),
            (others.clone(), 0),
            "damaged at {at}"
        );
        assert_eq!(
            reader.damage(),
            Damage {
                gaps: 1,
                bytes: sizes[2] - sizes[1],
                first: sizes[1]
            },
            "damaged at {at}"
        );
    }
}

#[test]
fn a_crash_loses_only_records_that_were_not_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let mut writer = Writer::create(&path).unwrap();
    let records = records();
    writer.append(&records[0]).unwrap();
    writer.flush().unwrap();
    writer.append(&records[1]).unwrap();
    assert_eq!(read(&path), (records[..1].to_vec(), 0));
    writer.flush().unwrap();
    assert_eq!(read(&path), (records[..2].to_vec(), 0));
}

#[test]
fn other_files_and_other_versions_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    written(&path, &records());
    let mut file = File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(8)).unwrap();
    file.write_all(&(VERSION + 1).to_le_bytes()).unwrap();
    let version = Reader::open(&path).unwrap_err().to_string();
    assert!(version.ends_with(
        "is a journal of version 11, this llmscen reads version 10; use the llmscen that wrote it"
    ));
    std::fs::write(&path, "{}").unwrap();
    assert!(matches!(
        Reader::open(&path),
        Err(StoreError::NotAJournal { .. })
    ));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Reader::open(&path), Err(StoreError::Read { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn records_are_read_in_order(records in proptest::collection::vec(any_record(), 0..20)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        written(&path, &records);
        prop_assert_eq!(read(&path), (records, 0));
    }
}

#[test]
fn the_format_of_version_10_is_unchanged() {
    let hex = |record: &Record| {
        postcard::to_stdvec(record)
            .unwrap()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let all: Vec<String> = records()[..3].iter().map(hex).collect();
    let blank = "000000000000000000000000000000000000";
    let known = [
        "00010005".to_owned(),
        format!(
            "0101000000000001016d010000000000030101010000000001c80103{blank}0102696400000473746f700000000000000000000000000000"
        ),
        format!(
            "0101000100000001016d01000000000003e90701010000000001c80103{blank}01026964000109036375740e61667465722033206576656e74730000000000000000000000000000"
        ),
    ];
    assert_eq!(all, known);
}

/// A journal of an earlier version with these records, whose outcomes lack their last fields.
fn written_by_version(version: u32, missing_fields: usize, path: &Path, records: &[Record]) {
    let mut out = Frames::new(path, File::create(path).unwrap());
    out.write_raw(&header(MAGIC, version)).unwrap();
    for record in records {
        let mut payload = postcard::to_stdvec(record).unwrap();
        if matches!(record, Record::Outcome { .. }) {
            let kept = payload.len() - missing_fields;
            assert!(payload.split_off(kept).iter().all(|byte| *byte == 0));
        }
        out.append(&payload).unwrap();
    }
    out.finish().unwrap();
}

#[test]
fn journals_of_earlier_versions_are_read_without_their_later_fields() {
    for (version, missing_fields) in EARLIER_VERSIONS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        written_by_version(version, missing_fields, &path, &records());
        assert_eq!(read(&path), (records(), 0), "version {version}");
    }
}

fn nanos() -> impl Strategy<Value = Nanos> {
    any::<u64>().prop_map(Nanos)
}

fn timeline() -> impl Strategy<Value = Timeline> {
    let stamps = proptest::collection::vec(nanos(), 0..40);
    let lists = proptest::array::uniform2(proptest::collection::vec(any::<u32>(), 0..9));
    (
        nanos(),
        of(nanos()),
        of(nanos()),
        of(nanos()),
        stamps,
        lists,
        nanos(),
    )
        .prop_map(
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
    let failed = (
        proptest::sample::select(FailureKind::ALL.to_vec()),
        ".{0,30}",
        ".{0,9}",
    )
        .prop_map(|(kind, message, at)| Err(Failure { kind, message, at }));
    prop_oneof![".{0,9}".prop_map(|reason| Ok(Finish { reason })), failed]
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    let facts = (
        any::<u64>(),
        any::<bool>(),
        ".{0,12}",
        any::<bool>(),
        timeline(),
        of(any::<u16>()),
        of(".{0,12}"),
    );
    let counts = (
        any::<u32>(),
        any::<u64>(),
        any::<u64>(),
        any::<u32>(),
        of(any::<u64>()),
    );
    let tokens = proptest::array::uniform6(of(any::<u64>()));
    (facts, counts, tokens, any::<bool>(), end()).prop_map(
        |(facts, counts, tokens, approximate, end)| {
            let (seq, warm, model, streamed, timeline, status, response_id) = facts;
            let (reads, bytes_out, bytes_in, reconnects, max_tokens) = counts;
            let [
                prompt,
                output,
                reasoning,
                cached,
                counted_prompt,
                counted_output,
            ] = tokens;
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
                usage: Usage {
                    prompt,
                    output,
                    reasoning,
                    cached,
                },
                counted: Counted {
                    prompt: counted_prompt,
                    output: counted_output,
                    approximate,
                },
                server: ServerTimes {
                    queue: prompt.map(Nanos),
                    total: output.map(Nanos),
                    ..ServerTimes::default()
                },
                items: cached,
                first_turn: reads % 3,
                cacheable_tokens: counted_prompt,
                prompt_hash: counted_prompt,
                session_duration: counted_output.map(Nanos),
                max_tokens,
                request_id: response_id.clone(),
                endpoint: response_id.as_deref().map(Into::into),
                answer: response_id.as_deref().map(|id| {
                    Box::new(llmscen_core::expect::CheckedAnswer {
                        valid: Some(warm),
                        failed: (!warm).then(|| FailedCheck {
                            check: AnswerCheck::Regex,
                            reason: id.to_owned(),
                        }),
                        text: Some(id.to_owned()),
                        ..Default::default()
                    })
                }),
                held_until: prompt.map(Nanos),
                kept_headers: response_id.as_deref().map(Into::into),
                audio: prompt.map(|nanos| {
                    Box::new(Audio {
                        duration: output.map(Nanos),
                        first: Some(Nanos(nanos)),
                        playback: cached.map(|stalled| Playback {
                            underruns: reads,
                            stalled: Nanos(stalled),
                        }),
                    })
                }),
                reply: ReplyFacts {
                    reasoning_received: warm,
                    characters: bytes_in,
                    replacement_characters: bytes_out,
                    weights_counted: streamed,
                    anomalies: prompt
                        .map(|reported| Anomaly {
                            kind: AnomalyKind::ImpossibleOutput,
                            reported,
                        })
                        .into_iter()
                        .collect(),
                },
                response_id,
                end,
            }
        },
    )
}

fn part() -> impl Strategy<Value = Part> {
    let vitals = (
        0.0..9e9,
        proptest::collection::vec(0.0..1.0, 0..4),
        any::<u64>(),
    )
        .prop_map(|(x, cpu_shares, memory_peak)| Vitals {
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
    (
        ".{0,20}",
        any::<u32>(),
        any::<[u64; 4]>(),
        of(any::<u64>()),
        of(".{0,20}"),
        of(vitals),
    )
        .prop_map(
            |(
                case,
                round,
                [origin_ns, measured_from_ns, rows_dropped, rows_repeated],
                sending_until_ns,
                cut_short,
                vitals,
            )| Part {
                case,
                round,
                origin_ns,
                measured_from_ns,
                sending_until_ns,
                cut_short,
                ending: ending(rows_repeated),
                rows_dropped,
                rows_repeated,
                probe: (rows_dropped % 2 == 0).then_some(Probe {
                    share: 0.25,
                    hopeless: round % 2 == 0,
                }),
                vitals,
                ..Part::default()
            },
        )
}

fn ending(number: u64) -> Option<EarlyStop> {
    let aborted = Aborted {
        check: number as u32,
        expr: number.to_string(),
        planned: Some(number),
        ..Aborted::default()
    };
    let saturated = Saturated {
        at_s: number as f64,
        ..Saturated::default()
    };
    let lost = TargetLost {
        at_s: number as f64,
        why: number.to_string(),
        ..TargetLost::default()
    };
    let failed = AllFailed {
        after: number,
        reason: number.to_string(),
        ..AllFailed::default()
    };
    let all = [
        EarlyStop::Aborted(aborted),
        EarlyStop::Saturated(saturated),
        EarlyStop::TargetLost(lost),
        EarlyStop::AllFailed(failed),
    ];
    all.get(number as usize % 5).cloned()
}

/// Any record.
fn any_record() -> impl Strategy<Value = Record> {
    prop_oneof![
        any::<(u32, u32, u64)>().prop_map(|(case, round, origin_ns)| {
            Record::Started {
                case,
                round,
                origin_ns,
            }
        }),
        (any::<u32>(), any::<u32>(), any_outcome()).prop_map(|(case, round, outcome)| {
            Record::Outcome {
                case,
                round,
                outcome,
            }
        }),
        part().prop_map(|part| Record::Ended { part }),
    ]
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written(record in any_record()) {
        let bytes = postcard::to_stdvec(&record).unwrap();
        prop_assert_eq!(postcard::from_bytes::<Record>(&bytes).unwrap(), record);
    }
}

#[test]
fn a_token_event_is_stored_as_its_gap() {
    let tokens = |gap: u64, n: u64| {
        let hour = 3_600_000_000_000;
        let timeline = Timeline {
            tokens: (0..n).map(|i| Nanos(hour + i * gap)).collect(),
            ..Timeline::default()
        };
        postcard::to_stdvec(&timeline).unwrap().len()
    };
    let per_event = |gap| tokens(gap, 100) - tokens(gap, 99);
    assert_eq!(
        [0, 10_000, 1_000_000, 25_000_000, 1_000_000_000].map(per_event),
        [1, 2, 3, 4, 5]
    );
}
