//! What there is no room for, and what memory is told.

use super::*;

#[tokio::test]
async fn a_token_that_the_model_does_not_know_fails_its_request_alone() {
    let (host, seen) = host(Duration::ZERO);
    let seat = seat(&host, Gather::Full(2), || false);
    let (bad, good) = tokio::join!(send(&seat, call(0, "\u{e9}", 1)), send(&seat, call(1, "a", 1)));
    let failure = bad.outcome.end.unwrap_err();
    assert_eq!(failure.message, "the prompt has the token 195, and the model knows 128: the tokenizer is another one's");
    assert!(good.outcome.end.is_ok() && *seen.lock().unwrap() == [1]);
}

#[tokio::test]
async fn a_reply_that_finds_no_room_is_cut_and_counted_or_refused_where_its_length_is_fixed() {
    let (host, _) = host(Duration::ZERO);
    let seat = seat(&host, Gather::Waiting(1), || false);
    let long = "x".repeat(99_998);
    let cut = send(&seat, call(0, &long, 3)).await.outcome;
    assert_eq!((cut.end.unwrap().reason.as_str(), cut.usage.output, seat.session.cut()), ("length", Some(2), 1));
    assert!(send(&seat, call(1, &long, 2)).await.outcome.end.is_ok() && seat.session.cut() == 1);
    let body = json!({ "prompt": long, "max_tokens": 3, "ignore_eos": true });
    let failure = send(&seat, Call { body: body.to_string().into_bytes(), ..Call::default() }).await.outcome.end.unwrap_err();
    let why = "the prompt has 99998 tokens and the reply is to have 3, with `ignore_eos`; the model has room for 100000 in all";
    assert_eq!(failure.message, why);
}

#[test]
fn logits_that_need_too_much_memory_are_refused_with_the_bytes_that_they_need() {
    let ask = |max_tokens, logits| Ask { prompt: vec![1], max_tokens, logits, ..Ask::default() };
    // 2^28 numbers are 1 GiB.
    assert!(batch::too_much(&[ask(1 << 10, true), ask(1 << 10, true), ask(9, false)], 1 << 17).is_none());
    let failure = batch::too_much(&[ask(1 << 10, true), ask((1 << 10) + 1, true)], 1 << 17).unwrap();
    assert_eq!(
        failure.message,
        "the logits of its batch need 1074266112 bytes of memory (2049 tokens of 131072 numbers), and 1073741824 is the most: ask \
         for fewer `max_tokens`, or for smaller batches"
    );
}

#[test]
fn memory_is_told_at_its_highest_where_the_system_begins_anew() {
    assert_eq!(MEMORY.during(|| "done"), ("done", 7));
    assert_eq!(Resident { anew: || false, ..MEMORY }.during(|| ()), ((), 3));
}
