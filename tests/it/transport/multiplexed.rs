//! HTTP/2: requests that share connections, and what may happen to them there.

use super::server::{Act, Server, event};
use super::*;
use crate::lab::{FINISH, TOKEN};
use h2::Reason;
use llmscen_core::target::HttpVersion;
use std::sync::atomic::Ordering;

fn h2_target(server: &Server) -> Target {
    Target {
        version: HttpVersion::Http2,
        ..target(&server.url())
    }
}

/// A stream with a pause before each token but the first.
fn paced(tokens: usize, wait: u64) -> Vec<Act> {
    let mut acts = vec![Act::Head(""), event(TOKEN)];
    (1..tokens).for_each(|_| acts.extend([Act::Wait(wait), event(TOKEN)]));
    acts.extend([event(FINISH), event("[DONE]"), Act::End]);
    acts
}

#[test]
fn a_stream_is_stamped_event_by_event_and_its_head_is_in_order() {
    let server = Server::start(100, None, |_| paced(4, PAUSE_MS));
    let target = Target {
        headers: vec![(
            "connection".into(),
            llmscen_core::redact::Secret::new("x-hop"),
        )],
        ..h2_target(&server)
    };
    let own = vec![
        ("x-trace".to_owned(), "7".to_owned()),
        ("x-hop".to_owned(), "no".to_owned()),
    ];
    let outcome = on_worker(&target, async |engine| {
        send(
            &engine,
            PreparedRequest {
                headers: own,
                ..call(0)
            },
        )
        .await
        .outcome
    });
    assert_ok(&outcome, 4);
    assert_paced(&outcome);
    assert_eq!(
        outcome.bytes_in as usize,
        4 * (TOKEN.len() + 8) + FINISH.len() + 8 + 14
    );
    let heads = server.seen.heads.lock().unwrap();
    let (uri, headers) = &heads[0];
    assert_eq!(uri, &server.url());
    for hop in ["host", "connection", "x-hop", "transfer-encoding"] {
        assert!(!headers.contains_key(hop), "{hop}");
    }
    assert_eq!(
        (&headers["x-trace"], &headers["content-length"]),
        (&"7".parse().unwrap(), &"2".parse().unwrap())
    );
}

#[test]
fn requests_share_a_connection_and_it_outlives_them() {
    let server = Server::start(100, None, |_| paced(3, 40));
    let outcomes = on_worker(&h2_target(&server), async |engine| {
        let mut outcomes = send_all(&engine, 20).await;
        outcomes.extend(send_all(&engine, 20).await);
        outcomes
    });
    outcomes.iter().for_each(|outcome| assert_ok(outcome, 3));
    assert_eq!(server.seen.count(), (1, 40));
    assert_eq!(server.seen.most.load(Ordering::SeqCst), 20);
    assert_eq!(
        outcomes
            .iter()
            .map(|outcome| outcome.reconnects)
            .sum::<u32>(),
        0
    );
}

#[test]
fn a_connection_takes_no_more_than_its_server_allows() {
    let server = Server::start(4, None, |_| paced(3, 100));
    let outcomes = on_worker(&h2_target(&server), async |engine| {
        // The first request reveals the limit; the following burst needs three connections.
        let mut outcomes = send_all(&engine, 1).await;
        outcomes.extend(send_all(&engine, 10).await);
        outcomes
    });
    outcomes.iter().for_each(|outcome| assert_ok(outcome, 3));
    assert_eq!(server.seen.count(), (3, 11));
    assert_eq!(server.seen.most.load(Ordering::SeqCst), 4);
    assert_eq!(
        outcomes
            .iter()
            .map(|outcome| outcome.reconnects)
            .sum::<u32>(),
        0
    );
}

#[test]
fn a_connection_takes_no_more_than_our_own_cap() {
    let server = Server::start(1000, None, |_| paced(2, 300));
    let outcomes = on_worker(&h2_target(&server), async |engine| {
        send_all(&engine, 101).await
    });
    outcomes.iter().for_each(|outcome| assert_ok(outcome, 2));
    assert_eq!(server.seen.count(), (2, 101));
    assert_eq!(
        server.seen.most.load(Ordering::SeqCst),
        llmscen_client::pool::STREAMS
    );
}

#[test]
fn a_connection_per_request_is_shared_by_none() {
    let server = Server::start(100, None, |_| paced(2, 40));
    let target = Target {
        pool: Pool::PerRequest,
        ..h2_target(&server)
    };
    let outcomes = on_worker(&target, async |engine| {
        let outcomes = send_all(&engine, 5).await;
        let closed = async {
            while server.seen.closed.load(Ordering::SeqCst) < 5 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(10), closed)
            .await
            .expect("each connection ends with its request");
        outcomes
    });
    outcomes.iter().for_each(|outcome| assert_ok(outcome, 2));
    assert_eq!(server.seen.count(), (5, 5));
}

#[test]
fn no_stream_waits_for_a_window() {
    let server = Server::start(100, None, |_| paced(1, 0));
    assert_ok(&send_one(&h2_target(&server)), 1);
    assert_eq!(*server.seen.windows.lock().unwrap(), [8 << 20]);
}

#[test]
fn a_connection_lost_before_an_answer_is_replaced_once_and_counted() {
    for loss in [vec![Act::HangUp], vec![Act::Reset(Reason::REFUSED_STREAM)]] {
        let server = Server::start(100, None, move |number| {
            if number == 1 {
                loss.clone()
            } else {
                paced(2, 0)
            }
        });
        let outcomes = on_worker(&h2_target(&server), async |engine| {
            vec![
                send(&engine, call(0)).await.outcome,
                send(&engine, call(1)).await.outcome,
            ]
        });
        outcomes.iter().for_each(|outcome| assert_ok(outcome, 2));
        assert_eq!(
            outcomes
                .iter()
                .map(|outcome| outcome.reconnects)
                .collect::<Vec<_>>(),
            [0, 1]
        );
        assert_eq!(server.seen.count(), (2, 3));
    }
}

#[test]
fn after_a_goaway_open_streams_end_well_and_new_ones_go_elsewhere() {
    let server = Server::start(100, None, |number| {
        let mut acts = paced(3, 100);
        if number == 0 {
            acts.insert(2, Act::GoAway);
        }
        acts
    });
    let outcomes = on_worker(&h2_target(&server), async |engine| {
        let early = {
            let engine = engine.clone();
            tokio::task::spawn_local(async move { send(&engine, call(0)).await.outcome })
        };
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let late = send(&engine, call(1)).await.outcome;
        [early.await.unwrap(), late]
    });
    outcomes.iter().for_each(|outcome| assert_ok(outcome, 3));
    assert_eq!(server.seen.count(), (2, 2));
}

#[test]
fn what_was_lost_on_a_new_connection_is_not_sent_again() {
    let server = Server::start(100, None, |_| vec![Act::HangUp]);
    let outcome = send_one(&h2_target(&server));
    assert_failed(
        &outcome,
        FailureKind::Connect,
        "the server closed the connection before it responded",
    );
    assert_eq!((server.seen.count(), outcome.reconnects), ((1, 1), 0));
}

#[test]
fn a_server_that_refuses_every_stream_is_asked_twice() {
    let server = Server::start(100, None, |_| vec![Act::Reset(Reason::REFUSED_STREAM)]);
    let outcome = send_one(&h2_target(&server));
    assert_failed(
        &outcome,
        FailureKind::Connect,
        "the server accepted no further stream",
    );
    assert_eq!((server.seen.count(), outcome.reconnects), ((2, 2), 1));
    let server = Server::start(100, None, |_| vec![Act::Reset(Reason::INTERNAL_ERROR)]);
    let outcome = send_one(&h2_target(&server));
    assert_failed(
        &outcome,
        FailureKind::Connect,
        "reset the stream before it responded",
    );
    assert_eq!((server.seen.count(), outcome.reconnects), ((1, 1), 0));
}

#[test]
fn a_stream_that_is_reset_is_truncated_and_its_neighbours_go_on() {
    for reason in [Reason::INTERNAL_ERROR, Reason::CANCEL] {
        let server = Server::start(100, None, move |number| match number {
            0 => vec![
                Act::Head(""),
                event(TOKEN),
                event(TOKEN),
                Act::Wait(50),
                Act::Reset(reason),
            ],
            _ => paced(4, 50),
        });
        let outcomes = on_worker(&h2_target(&server), async |engine| {
            send_all(&engine, 3).await
        });
        assert_failed(&outcomes[0], FailureKind::Truncated, "");
        assert_eq!(outcomes[0].timeline.tokens.len(), 2);
        outcomes[1..]
            .iter()
            .for_each(|outcome| assert_ok(outcome, 4));
        assert_eq!(server.seen.count(), (1, 3));
    }
}

#[test]
fn a_connection_lost_in_mid_stream_truncates_all_of_its_streams() {
    let server = Server::start(100, None, |number| match number {
        0 => vec![Act::Head(""), event(TOKEN), Act::Wait(200), Act::HangUp],
        _ => vec![Act::Head(""), event(TOKEN), event(TOKEN), Act::Wait(9_000)],
    });
    let outcomes = on_worker(&h2_target(&server), async |engine| {
        send_all(&engine, 2).await
    });
    for (outcome, tokens) in outcomes.iter().zip([1, 2]) {
        assert_failed(outcome, FailureKind::Truncated, "the connection broke");
        assert_eq!(
            (outcome.timeline.tokens.len(), outcome.reconnects),
            (tokens, 0)
        );
    }
}

#[test]
fn a_silent_stream_times_out_though_its_neighbours_talk() {
    let server = Server::start(100, None, |number| match number {
        0 => vec![Act::Head(""), event(TOKEN), Act::Wait(9_000)],
        _ => paced(20, 100),
    });
    let mut target = h2_target(&server);
    target.timeouts.read = Nanos(800_000_000);
    let outcomes = on_worker(&target, async |engine| send_all(&engine, 2).await);
    assert_failed(&outcomes[0], FailureKind::TimeoutRead, "no byte for 800ms");
    assert_eq!(outcomes[0].timeline.tokens.len(), 1);
    assert_ok(&outcomes[1], 20);
}

#[test]
fn a_user_who_leaves_takes_no_neighbour_along() {
    let server = Server::start(100, None, |_| paced(4, 50));
    let leaver = PreparedRequest {
        cancel: Some(llmscen_core::request::ClientCancel::Tokens(2)),
        ..call(0)
    };
    let outcomes = on_worker(&h2_target(&server), async |engine| {
        let others = send_all(&engine, 2);
        let (left, others) = tokio::join!(send(&engine, leaver), others);
        // The connection still takes requests.
        let later = send(&engine, call(3)).await.outcome;
        [vec![left.outcome, later], others].concat()
    });
    assert_failed(
        &outcomes[0],
        FailureKind::Abandoned,
        "cancelled by `request.cancel.tokens` after 2 token events",
    );
    assert_eq!(outcomes[0].timeline.tokens.len(), 2);
    outcomes[1..]
        .iter()
        .for_each(|outcome| assert_ok(outcome, 4));
    assert_eq!(server.seen.count(), (1, 4));
}
