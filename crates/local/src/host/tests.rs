use super::*;
use crate::adapter::Adapter;
use crate::generation_params::{BatchOutput, Ended, GenerationParams, RowOutput};
use llmscen_client::clock::Clock;
use llmscen_client::counters::LiveCounters;
use llmscen_core::outcome::{FailureKind, Phase};
use llmscen_core::request::{ClientCancel, PreparedRequest};
use llmscen_core::seed::Seed;
use serde_json::{Value, json};
use std::sync::Mutex;

/// A token for each byte; a reply is the number of its step. A step takes so long.
struct Fake {
    step: Duration,
    /// Sizes of the batches that it worked on.
    seen: Arc<Mutex<Vec<usize>>>,
}

impl BatchModel for Fake {
    fn tokens(&self, text: &str) -> Result<Vec<u32>, LocalError> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn plain_tokens(&self, text: &str) -> Result<Vec<u32>, LocalError> {
        self.tokens(text)
    }

    fn chat(&self, _messages: &Value) -> Result<Option<String>, LocalError> {
        Ok(None)
    }

    fn limit(&self) -> u64 {
        100_000
    }

    fn vocabulary(&self) -> usize {
        128
    }

    fn work(
        &mut self,
        params: &[GenerationParams],
        clock: &dyn Fn() -> Nanos,
        alive: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<BatchOutput, LocalError> {
        self.seen.lock().unwrap().push(params.len());
        if params
            .iter()
            .any(|params| params.prompt.starts_with(b"boom".map(u32::from).as_slice()))
        {
            return Err(LocalError::Compute {
                reason: "no more memory".into(),
            });
        }
        assert!(
            !params.iter().any(|params| params
                .prompt
                .starts_with(b"panic".map(u32::from).as_slice())),
            "as the test wants it"
        );
        let blank = || RowOutput {
            tokens: vec![],
            text: String::new(),
            stamps: vec![],
            ended: Ended::Length,
            logits: None,
        };
        let mut worked = BatchOutput {
            rows: params.iter().map(|_| blank()).collect(),
            began: clock(),
            prefilled: Nanos::ZERO,
            steps: vec![],
            padded_to: params
                .iter()
                .map(|params| params.prompt.len() as u64)
                .max()
                .unwrap_or(0),
        };
        for step in 0..params
            .iter()
            .map(|params| params.max_tokens)
            .max()
            .unwrap_or(0)
        {
            let going = |row: usize| step < params[row].max_tokens;
            let rows: Vec<usize> = (0..params.len())
                .filter(|row| going(*row) && alive(*row))
                .collect();
            if rows.is_empty() {
                break;
            }
            std::thread::sleep(self.step);
            let now = clock();
            if step == 0 {
                worked.prefilled = now
            } else {
                worked.steps.push(now)
            }
            for row in rows {
                let output = &mut worked.rows[row];
                output.tokens.push(step as u32);
                output.text += &step.to_string();
                output.stamps.push(now);
                if params[row].logits {
                    output
                        .logits
                        .get_or_insert_default()
                        .extend([step as f32, -1.0]);
                }
            }
        }
        Ok(worked)
    }

    fn device_memory(&self) -> Option<u64> {
        None
    }
}

/// 7 bytes at the highest within a batch.
const MEMORY: Resident = Resident {
    anew: || true,
    peak: || 7,
    now: || 3,
    reserved: || Some(9),
};

/// Sizes of batches.
type Sizes = Arc<Mutex<Vec<usize>>>;

fn host(step: Duration) -> (Arc<Host>, Sizes) {
    let seen = Sizes::default();
    let own = seen.clone();
    let load = move || Ok((Fake { step, seen: own }, Loaded::default()));
    let host = Loading::start(load, MEMORY)
        .unwrap()
        .wait(Duration::from_secs(9))
        .ok()
        .unwrap()
        .ok()
        .unwrap();
    (Arc::new(host), seen)
}

fn seat(host: &Arc<Host>, gather: Gather, over: fn() -> bool) -> Adapter {
    let session = Session::new(Clock::new(Instant::now()), gather, Box::new(over), None);
    Adapter {
        host: host.clone(),
        session: Arc::new(session),
        gauges: Arc::<LiveCounters>::default(),
        total: Nanos::from_millis(60_000),
        seed: Seed(1),
        keep_text: true,
        keep_bodies: true,
    }
}

fn call(seq: u64, text: &str, max_tokens: u64) -> PreparedRequest {
    let body =
        json!({ "messages": [{ "role": "user", "content": text }], "max_tokens": max_tokens });
    PreparedRequest {
        seq,
        body: body.to_string().into_bytes(),
        group: Some("g".into()),
        ..PreparedRequest::default()
    }
}

async fn send(seat: &Adapter, call: PreparedRequest) -> llmscen_client::http::CompletedCall {
    seat.call(call, Nanos::ZERO, Phase::Measured, std::future::pending())
        .await
}

#[tokio::test]
async fn a_request_is_stamped_by_the_thread_of_the_model() {
    let (host, _) = host(Duration::from_millis(2));
    let seat = seat(&host, Gather::Waiting(1), || false);
    let finished = send(&seat, call(4, "abc", 3)).await;
    let (outcome, line) = (&finished.outcome, &finished.outcome.timeline);
    assert_eq!(
        (
            outcome.usage.prompt,
            outcome.usage.output,
            outcome.end.as_ref().unwrap().reason.as_str()
        ),
        (Some(3), Some(3), "length")
    );
    assert_eq!(
        (finished.text.as_deref(), line.tokens.len(), line.headers),
        (Some("012"), 3, None)
    );
    assert_eq!(
        (line.first_chunk, line.end),
        (Some(line.tokens[0]), line.tokens[2])
    );
    let server = outcome.server;
    let parts = [server.queue, server.prefill, server.decode].map(Option::unwrap);
    assert_eq!(parts[0] + parts[1] + parts[2], server.total.unwrap());
    assert_eq!(server.total.unwrap(), line.end - line.sent.unwrap());
    assert_eq!(server.decode.unwrap(), line.tokens[2] - line.tokens[0]);
    let kept: Value = serde_json::from_slice(&finished.captured.unwrap().response.bytes).unwrap();
    let usage = json!({ "prompt_tokens": 3, "completion_tokens": 3 });
    let ids = b"abc";
    let expected = json!({ "text": "012", "tokens": [0, 1, 2], "finish_reason": "length",
        "prompt_token_ids": ids, "usage": usage });
    assert_eq!(kept, expected);
    let batches = seat.session.batches();
    let [batch] = batches.as_slice() else {
        panic!("{batches:?}")
    };
    assert_eq!(
        (
            batch.seqs.as_slice(),
            batch.measured,
            batch.group.as_deref()
        ),
        (&[4][..], true, Some("g"))
    );
    assert_eq!(
        (
            batch.prompt_tokens,
            batch.padded_to,
            batch.output_tokens,
            batch.steps.len()
        ),
        (3, 3, 3, 2)
    );
    assert_eq!(
        (batch.prefill, batch.steps[0] + batch.steps[1]),
        (server.prefill.unwrap(), server.decode.unwrap())
    );
    assert_eq!(
        (batch.memory, batch.memory_reserved, batch.device_memory),
        (7, Some(9), None)
    );
}

#[tokio::test]
async fn a_static_round_is_one_batch_however_its_requests_come() {
    let (host, seen) = host(Duration::ZERO);
    let seat = seat(&host, Gather::Full(3), || false);
    let late = async {
        tokio::time::sleep(Duration::from_millis(60)).await;
        send(&seat, call(2, "ccc", 1)).await
    };
    let _ = tokio::join!(
        send(&seat, call(0, "a", 2)),
        send(&seat, call(1, "bb", 4)),
        late
    );
    assert_eq!(*seen.lock().unwrap(), [3]);
    let batch = &seat.session.batches()[0];
    assert_eq!(
        (batch.prompt_tokens, batch.padded_to, batch.output_tokens),
        (6, 3, 7)
    );
}

#[tokio::test]
async fn a_round_that_is_over_is_not_waited_for() {
    let (host, seen) = host(Duration::ZERO);
    let began = Instant::now();
    send(&seat(&host, Gather::Full(3), || true), call(0, "a", 1)).await;
    assert!(began.elapsed() < INCOMPLETE_TIMEOUT && *seen.lock().unwrap() == [1]);
}

#[tokio::test]
async fn a_body_that_cannot_be_read_fails_alone_and_keeps_no_round_waiting() {
    let (host, seen) = host(Duration::ZERO);
    let seat = seat(&host, Gather::Full(2), || false);
    let bad = PreparedRequest {
        body: b"{}".to_vec(),
        ..PreparedRequest::default()
    };
    let (bad, good) = tokio::join!(send(&seat, bad), send(&seat, call(1, "a", 1)));
    assert_eq!(
        (bad.outcome.end.unwrap_err().kind, good.outcome.end.is_ok()),
        (FailureKind::Decode, true)
    );
    assert_eq!(*seen.lock().unwrap(), [1]);
}

#[tokio::test]
async fn a_failing_model_fails_its_requests_and_works_on() {
    let (host, _) = host(Duration::ZERO);
    let seat = seat(&host, Gather::Waiting(1), || false);
    let failure = send(&seat, call(0, "boom", 1))
        .await
        .outcome
        .end
        .unwrap_err();
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (FailureKind::StreamError, "the model failed: no more memory")
    );
    let long = "x".repeat(100_000);
    let failure = send(&seat, call(1, &long, 1))
        .await
        .outcome
        .end
        .unwrap_err();
    assert_eq!(
        failure.message,
        "the prompt has 100000 tokens, the limit of the model is 100000 with the reply"
    );
    assert!(send(&seat, call(2, "a", 1)).await.outcome.end.is_ok());
    assert_eq!(seat.session.batches().len(), 1, "what failed is no batch");
}

#[tokio::test]
async fn a_thread_that_is_gone_keeps_nobody_waiting() {
    let (host, _) = host(Duration::ZERO);
    let seat = seat(&host, Gather::Waiting(1), || false);
    for text in ["panic", "a"] {
        let failure = send(&seat, call(0, text, 1)).await.outcome.end.unwrap_err();
        assert_eq!(
            (failure.kind, failure.message.as_str()),
            (
                FailureKind::StreamError,
                "the thread of the model stopped unexpectedly"
            )
        );
    }
}

#[tokio::test]
async fn users_leave_by_tokens_and_by_time() {
    let (host, _) = host(Duration::from_millis(5));
    let seat = seat(&host, Gather::Waiting(1), || false);
    let by = |leave| PreparedRequest {
        cancel: Some(leave),
        ..call(0, "a", 1000)
    };
    let tokens = send(&seat, by(ClientCancel::Tokens(4))).await.outcome;
    let failure = tokens.end.unwrap_err();
    assert_eq!(
        (failure.kind, failure.at.as_str()),
        (FailureKind::Abandoned, "after 4 token events")
    );
    assert_eq!(
        (tokens.timeline.tokens.len(), tokens.usage.output),
        (4, Some(4))
    );
    let time = send(&seat, by(ClientCancel::After(Nanos::from_millis(30))))
        .await
        .outcome;
    assert_eq!(time.end.unwrap_err().kind, FailureKind::Abandoned);
    assert!(
        time.timeline
            .tokens
            .iter()
            .all(|stamp| *stamp <= time.timeline.end)
            && time.timeline.tokens.len() < 1000
    );
    let slow = Adapter {
        total: Nanos::from_millis(30),
        ..seat
    };
    assert_eq!(
        send(&slow, call(0, "a", 1000))
            .await
            .outcome
            .end
            .unwrap_err()
            .kind,
        FailureKind::TimeoutTotal
    );
}

#[tokio::test]
async fn a_model_is_idle_when_what_was_given_up_is_done() {
    let (host, seen) = host(Duration::ZERO);
    let seat = seat(&host, Gather::Waiting(1), || false);
    assert!(host.is_idle());
    let busy = seen.lock().unwrap();
    let job = Job {
        session: seat.session.clone(),
        seq: 0,
        turn: 0,
        group: None,
        measured: true,
        request: GenerationRequest::parse(&call(0, "a", 3).body, 0),
        leave_after: None,
        cancelled: Arc::default(),
        // Nobody waits for its answer any more.
        answer: oneshot::channel().0,
    };
    assert!(host.send(job) && !host.is_idle());
    drop(busy);
    while !host.is_idle() {
        std::thread::yield_now();
    }
    assert_eq!(
        (seat.session.batches().len(), seen.lock().unwrap().len()),
        (1, 1),
        "its batch is done"
    );
    send(&seat, call(1, "panic", 1)).await;
    while !host.is_idle() {
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn what_is_cancelled_keeps_the_tokens_that_it_had() {
    let (host, _) = host(Duration::from_millis(5));
    let seat = seat(&host, Gather::Waiting(1), || false);
    let soon = tokio::time::sleep(Duration::from_millis(40));
    let outcome = seat
        .call(call(0, "a", 90_000), Nanos::ZERO, Phase::Measured, soon)
        .await
        .outcome;
    assert_eq!(outcome.end.unwrap_err().kind, FailureKind::Cancelled);
    assert!(!outcome.timeline.tokens.is_empty());
}

#[tokio::test]
async fn logits_go_to_their_keeper_by_request() {
    let (host, _) = host(Duration::ZERO);
    let kept = Arc::new(Mutex::new(Vec::new()));
    let own = kept.clone();
    let keep = move |logits: &Logits<'_>| {
        own.lock()
            .unwrap()
            .push((logits.seq, logits.values.to_vec(), logits.vocabulary));
    };
    let mut seat = seat(&host, Gather::Waiting(1), || false);
    seat.session = Arc::new(Session::new(
        Clock::new(Instant::now()),
        Gather::Waiting(1),
        Box::new(|| false),
        Some(Box::new(keep)),
    ));
    send(&seat, call(5, "a", 2)).await;
    assert_eq!(
        *kept.lock().unwrap(),
        [(5, vec![0.0, -1.0, 1.0, -1.0], 128)]
    );
}

#[test]
fn a_model_that_cannot_be_loaded_says_why() {
    let load = || Err::<(Fake, Loaded), _>(LocalError::NotThere { name: "x".into() });
    let why = Loading::start(load, MEMORY)
        .unwrap()
        .wait(Duration::from_secs(9))
        .err()
        .unwrap();
    assert!(matches!(why, Some(LocalError::NotThere { .. })));
}

mod bounds {
    use super::*;

    #[tokio::test]
    async fn an_unknown_token_fails_only_its_request() {
        let (host, seen) = host(Duration::ZERO);
        let seat = seat(&host, Gather::Full(2), || false);
        let (bad, good) = tokio::join!(
            send(&seat, call(0, "\u{e9}", 1)),
            send(&seat, call(1, "a", 1))
        );
        let failure = bad.outcome.end.unwrap_err();
        assert_eq!(
            failure.message,
            "the prompt has the token id 195, the vocabulary of the model has 128 tokens; use the \
            tokenizer of the model"
        );
        assert!(good.outcome.end.is_ok() && *seen.lock().unwrap() == [1]);
    }

    #[tokio::test]
    async fn a_reply_beyond_the_limit_is_cut_and_counted_or_rejected_if_its_length_is_fixed() {
        let (host, _) = host(Duration::ZERO);
        let seat = seat(&host, Gather::Waiting(1), || false);
        let long = "x".repeat(99_998);
        let cut = send(&seat, call(0, &long, 3)).await.outcome;
        assert_eq!(
            (
                cut.end.unwrap().reason.as_str(),
                cut.usage.output,
                seat.session.cut()
            ),
            ("length", Some(2), 1)
        );
        assert!(
            send(&seat, call(1, &long, 2)).await.outcome.end.is_ok() && seat.session.cut() == 1
        );
        let body = json!({ "prompt": long, "max_tokens": 3, "ignore_eos": true });
        let failure = send(
            &seat,
            PreparedRequest {
                body: body.to_string().into_bytes(),
                ..PreparedRequest::default()
            },
        )
        .await
        .outcome
        .end
        .unwrap_err();
        let why = "the prompt has 99998 tokens, the reply 3 (`ignore_eos`); the limit of the model is 100000 in total";
        assert_eq!(failure.message, why);
    }

    #[test]
    fn logits_that_need_too_much_memory_are_rejected() {
        let params = |max_tokens, logits| GenerationParams {
            prompt: vec![1],
            max_tokens,
            logits,
            ..GenerationParams::default()
        };
        // 2^28 numbers are 1 GiB.
        assert!(
            check_logits_memory(
                &[
                    params(1 << 10, true),
                    params(1 << 10, true),
                    params(9, false)
                ],
                1 << 17
            )
            .is_none()
        );
        let failure = check_logits_memory(
            &[params(1 << 10, true), params((1 << 10) + 1, true)],
            1 << 17,
        )
        .unwrap();
        assert_eq!(
            failure.message,
            "the logits of the batch need 1074266112 bytes (2049 tokens × 131072 numbers), limit \
             1073741824 bytes; lower `max_tokens` or the batch size"
        );
    }

    #[test]
    fn memory_is_the_peak_where_the_system_resets_it() {
        assert_eq!(MEMORY.measure(|| "done"), ("done", 7));
        assert_eq!(
            Resident {
                anew: || false,
                ..MEMORY
            }
            .measure(|| ()),
            ((), 3)
        );
    }
}
