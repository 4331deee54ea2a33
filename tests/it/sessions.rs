//! Sessions of several turns: history, send times, and turns that cannot be sent.

use crate::lab::{Lab, read_request, response, stream};
use crate::witness::context;
use llmscen::run::error::RunError;
use llmscen::run::prepare::prepare_cases;
use llmscen::run::requests::traffic_class::RowStride;
use llmscen::run::round::{RoundInput, prepare_round, run_round};
use llmscen::run::stop::Stop;
use llmscen::run::telemetry::Observer;
use llmscen::store::journal::Writer;
use llmscen::store::{RunDir, RunLocation};
use llmscen_core::artifacts::Bodies;
use llmscen_core::dataset::{OnExhausted, Prompt, Session, TurnLinks, Turns};
use llmscen_core::distribution::{Distribution, Family};
use llmscen_core::manifest::Part;
use llmscen_core::outcome::{Outcome, Phase};
use llmscen_core::plan::Plan;
use llmscen_core::schedule::arrival::Arrivals;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_datasets::Prompts;
use llmscen_scenario::Input;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SEED: Seed = Seed(3);

/// A chat server that keeps request bodies, and responds with `answer(number, body)`.
pub struct Recorder {
    pub url: String,
    pub bodies: Arc<Mutex<Vec<Value>>>,
}

impl Recorder {
    pub fn start(answer: impl Fn(usize, &Value) -> Vec<u8> + Send + Sync + 'static) -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!(
            "http://{}/v1/chat/completions",
            listener.local_addr().unwrap()
        );
        let (bodies, answer) = (Arc::<Mutex<Vec<Value>>>::default(), Arc::new(answer));
        let kept = bodies.clone();
        std::thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                let (kept, answer) = (kept.clone(), answer.clone());
                std::thread::spawn(move || {
                    while let Some(body) = read_request(&mut socket) {
                        let body: Value = serde_json::from_slice(&body).unwrap();
                        let number = {
                            let mut kept = kept.lock().unwrap();
                            kept.push(body.clone());
                            kept.len() - 1
                        };
                        if socket.write_all(&answer(number, &body)).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Recorder { url, bodies }
    }

    /// The text of the last message of each request, in order of arrival.
    pub fn asked(&self) -> Vec<String> {
        let last = |body: &Value| {
            body["messages"].as_array().unwrap().last().unwrap()["content"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        self.bodies.lock().unwrap().iter().map(last).collect()
    }
}

/// An unstreamed reply with this content.
pub fn says(content: &str) -> Vec<u8> {
    let message = json!({ "role": "assistant", "content": content });
    let reply = json!({ "id": "r", "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] });
    response("200 OK", "application/json", &reply.to_string())
}

struct Fixed(Vec<Session>);

impl Prompts for Fixed {
    fn session(&self, seq: u64) -> Option<Session> {
        self.0.get(seq as usize).cloned()
    }

    fn len(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    fn dropped(&self) -> u64 {
        0
    }
}

fn prompt(text: &str) -> Prompt {
    Prompt {
        text: text.to_owned(),
        ..Prompt::default()
    }
}

/// Sessions of several turns with distinct texts.
fn sessions(count: usize, turns: usize) -> Vec<Session> {
    let session = |seq| {
        let turns = (0..turns).map(|turn| prompt(&format!("s{seq} t{turn}")));
        Session::from(turns.collect::<Vec<_>>())
    };
    (0..count).map(session).collect()
}

pub fn plan(url: &str, load: &str, dataset: &str) -> Plan {
    let text = format!(
        "version: 1\nname: t\ntarget: {{ url: \"{url}\", model: m, timeouts: {{ connect: 5s, read: 20s, total: 30s }} }}\n\
         request: {{ stream: false }}\ndataset: {{ {dataset} }}\nload: {{ {load} }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\ntelemetry: {{ gpu: false }}\n"
    );
    let input = Input {
        path: Path::new("s.yaml"),
        text: Some(text),
        env: &BTreeMap::new(),
        set: &[],
    };
    llmscen_scenario::load(&input)
        .map(|loaded| loaded.plan)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
}

/// A load to play sessions under, and how their turns follow one another.
struct Scene<'a> {
    load: &'a str,
    dataset: &'a str,
    turns: Option<Turns>,
    stop: Stop,
}

/// The result of a round.
struct Played {
    part: Part,
    fault: Option<RunError>,
    outcomes: Vec<Outcome>,
}

impl<'a> Scene<'a> {
    fn new(load: &'a str, think: Option<Distribution>) -> Scene<'a> {
        let turns = Some(Turns {
            think_time: think,
            ..Turns::default()
        });
        Scene {
            load,
            dataset: "kind: prompt, text: x",
            turns,
            stop: Stop::default(),
        }
    }

    fn play(&self, server: &Recorder, sessions: Vec<Session>) -> Played {
        let folder = tempfile::tempdir().unwrap();
        let context = context(folder.path(), self.stop.clone());
        let mut plan = plan(&server.url, self.load, self.dataset);
        plan.cases[0].dataset.turns = self.turns.clone();
        // A cool-down has the sessions that are left.
        plan.cases[0].dataset.on_exhausted = OnExhausted::Stop;
        let mut bench = prepare_cases(&plan, &context).unwrap().remove(0);
        Arc::get_mut(&mut bench.classes[0]).unwrap().prompts = Arc::new(Fixed(sessions));
        let path = folder.path().join("run");
        let run = RunDir::create(&RunLocation {
            explicit: Some(&path),
            dir: folder.path(),
            name: "t",
            started: "",
            force: false,
        })
        .unwrap();
        let input = RoundInput {
            case: &plan.cases[0],
            prepared: &bench,
            index: 0,
            round: 0,
            strides: vec![RowStride::default()],
            shard: Default::default(),
            planned: None,
            seed: SEED,
            server: None,
            fail_fast: None,
            earlier: Default::default(),
            server_process: None,
            probe: None,
            model: None,
            folder: &run,
            bodies: Bodies::None,
            observer: Arc::new(Observer::new(&plan, &context)),
        };
        let prepared = prepare_round(&input, context.stop.child(), &context).unwrap();
        let journal = folder.path().join("journal.bin");
        let played = run_round(
            &input,
            prepared,
            Writer::create(&journal).unwrap(),
            None,
            &context,
        )
        .unwrap();
        Played {
            part: played.part,
            fault: played.fault,
            outcomes: crate::lab::outcomes(&journal)
                .into_iter()
                .filter(|outcome| outcome.phase != Phase::Cooldown)
                .collect(),
        }
    }
}

/// Session, turn and outcome of each record, in order.
fn turn_outcomes(outcomes: &[Outcome]) -> Vec<(u64, u32, &'static str)> {
    outcomes
        .iter()
        .map(|outcome| (outcome.seq, outcome.turn, outcome.outcome_name()))
        .collect()
}

fn failure_message(outcome: &Outcome) -> &str {
    outcome.end.as_ref().unwrap_err().message.as_str()
}

#[test]
fn replies_are_fed_back_word_for_word() {
    let replies = ["1: \"quoted\" \\ é 🙂\n", "two", "3"];
    for streamed in [false, true] {
        let server = Recorder::start(move |number, _| {
            let (head, tail) = replies[number].split_at(1);
            let chunk = |text: &str, finish: Value| {
                json!({ "id": "r", "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": finish }] })
                    .to_string()
            };
            let events = [chunk(head, Value::Null), chunk(tail, json!("stop"))];
            let events = [events[0].as_str(), events[1].as_str(), "[DONE]"];
            if streamed {
                stream(&events, true)
            } else {
                says(replies[number])
            }
        });
        let tool = json!([{ "role": "tool", "tool_call_id": "c", "content": "22" }, { "role": "user", "content": "and?" }]);
        let third = Prompt {
            messages: tool.as_array().cloned(),
            system: Some("Be brief.".into()),
            ..Prompt::default()
        };
        let turns = vec![prompt("first"), prompt("second"), third, prompt("never")];
        let mut scene = Scene::new("concurrency: 1, requests: 1", None);
        scene.dataset = "kind: prompt, text: x, system: Be kind., tokenizer: builtin";
        scene.turns = Some(Turns {
            max: Some(3),
            ..Turns::default()
        });
        let played = scene.play(&server, vec![turns.into()]);
        assert_eq!(
            turn_outcomes(&played.outcomes),
            [(0, 0, "ok"), (0, 1, "ok"), (0, 2, "ok")]
        );
        let said = |role: &str, content: &str| json!({ "role": role, "content": content });
        let (kind, brief) = (said("system", "Be kind."), said("system", "Be brief."));
        let talk = [
            said("user", "first"),
            said("assistant", replies[0]),
            said("user", "second"),
            said("assistant", replies[1]),
        ];
        let bodies = server.bodies.lock().unwrap();
        assert_eq!(bodies[0]["messages"], json!([kind, talk[0]]));
        assert_eq!(
            bodies[1]["messages"],
            json!([kind, talk[0], talk[1], talk[2]])
        );
        // A tool result follows a call, which this reply did not have.
        let id = "call00201";
        let function = json!({ "name": "tool", "arguments": "{}" });
        let called = json!({ "role": "assistant", "content": replies[1],
            "tool_calls": [{ "type": "function", "function": function, "id": id }] });
        let result = json!({ "role": "tool", "tool_call_id": id, "content": "22" });
        assert_eq!(
            bodies[2]["messages"],
            json!([brief, talk[0], talk[1], talk[2], called, result, tool[1]])
        );
        let whole = bodies[1]["messages"].as_array().unwrap();
        let counted = llmscen_datasets::token::Tokenizer::builtin().count_messages(whole);
        assert_eq!(
            played.outcomes[1].counted.prompt, counted,
            "a later turn counts all that is sent"
        );
        assert!(played.outcomes.iter().all(|outcome| outcome.turns == 3));
    }
}

#[test]
fn a_later_turn_is_due_exactly_its_wait_after_the_reply() {
    let server = Recorder::start(|_, _| says("ok"));
    let (think, tool) = (Nanos::from_millis(20), Nanos::from_millis(45));
    let turns = vec![
        prompt("a"),
        prompt("b"),
        Prompt {
            wait: Some(tool),
            ..prompt("c")
        },
        prompt("d"),
    ];
    let played = Scene::new(
        "concurrency: 1, requests: 2",
        Some(Distribution::time(think)),
    )
    .play(&server, vec![turns.clone().into(), turns.into()]);
    let stamps: Vec<_> = played
        .outcomes
        .iter()
        .map(|outcome| outcome.timeline.clone())
        .collect();
    for (index, wait) in [
        (1, think),
        (2, tool),
        (3, think),
        (5, think),
        (6, tool),
        (7, think),
    ] {
        assert_eq!(
            stamps[index].intended,
            stamps[index - 1].end + wait,
            "row {index}"
        );
        assert!(
            stamps[index].sent.unwrap() >= stamps[index].intended,
            "never before"
        );
    }
    assert!(
        stamps[4].intended >= stamps[3].end,
        "the slot was held until the last turn was over"
    );
    assert_eq!(
        played
            .part
            .sending_until_ns
            .map(|until| until >= stamps[7].sent.unwrap().0),
        Some(true)
    );
    assert_eq!(server.bodies.lock().unwrap().len(), 8);
}

#[test]
fn arrivals_of_an_open_loop_are_sessions() {
    let server = Recorder::start(|_, _| says("ok"));
    let think = Some(Distribution::uniform(0, 10_000_000));
    let played =
        Scene::new("rate: 100/s, requests: 30, warmup: 5", think).play(&server, sessions(40, 3));
    let first = |outcome: &&Outcome| outcome.turn == 0;
    let due: Vec<Nanos> = played
        .outcomes
        .iter()
        .filter(first)
        .map(|outcome| outcome.timeline.intended)
        .collect();
    let known: Vec<Nanos> = Arrivals::new(100.0, llmscen_core::load::Arrival::Poisson, SEED)
        .take(35)
        .collect();
    assert_eq!(due, known, "later turns take no arrival");
    assert_eq!(played.outcomes.len(), 105);
    assert!(
        played
            .outcomes
            .iter()
            .all(|outcome| outcome.outcome_name() == "ok")
    );
    let phases = |seq| {
        played
            .outcomes
            .iter()
            .filter(move |outcome| outcome.seq == seq)
            .map(|outcome| outcome.phase)
    };
    assert!(
        phases(4).all(|phase| phase == Phase::Warmup)
            && phases(5).all(|phase| phase == Phase::Measured)
    );
}

/// A turn of a graph, with its text.
fn linked(text: &str, continues: Option<u32>, after: &[u32]) -> Prompt {
    Prompt {
        links: Some(Box::new(TurnLinks {
            continues,
            after: after.to_vec(),
            replies: Vec::new(),
        })),
        ..prompt(text)
    }
}

/// `plan` forks a branch and a sub-agent of two turns, and `merge` joins them.
fn agent() -> Session {
    Session {
        turns: vec![
            linked("plan", None, &[]),
            linked("branch", Some(0), &[]),
            linked("sub", None, &[0]),
            linked("sub more", Some(2), &[]),
            Prompt {
                wait: Some(Nanos::from_millis(30)),
                ..linked("merge", Some(1), &[3])
            },
        ],
        later: None,
    }
}

fn last_text(body: &Value) -> &str {
    let last = body["messages"].as_array().unwrap().last().unwrap();
    last["content"].as_str().unwrap()
}

#[test]
fn turns_of_a_graph_run_at_the_same_time_and_join() {
    // Neither of the turns beside each other is answered before the server has both.
    let both = Arc::new(std::sync::Barrier::new(2));
    let server = Recorder::start(move |_, body| {
        if ["branch", "sub"].contains(&last_text(body)) {
            both.wait();
        }
        says(&format!("reply to {}", last_text(body)))
    });
    let played =
        Scene::new("concurrency: 1, requests: 2", None).play(&server, vec![agent(), agent()]);
    let known: Vec<_> = (0..2)
        .flat_map(|seq| (0..5).map(move |turn| (seq, turn, "ok")))
        .collect();
    let mut found = turn_outcomes(&played.outcomes);
    found.sort();
    assert_eq!(found, known);
    for seq in 0..2 {
        let time = |turn: u32| {
            let is_turn = |outcome: &&Outcome| outcome.seq == seq && outcome.turn == turn;
            &played.outcomes.iter().find(is_turn).unwrap().timeline
        };
        assert_eq!(time(1).intended, time(0).end);
        assert_eq!(time(2).intended, time(0).end);
        assert_eq!(time(3).intended, time(2).end);
        let joined = time(1).end.max(time(3).end);
        assert_eq!(time(4).intended, joined + Nanos::from_millis(30));
        let durations: Vec<Nanos> = played
            .outcomes
            .iter()
            .filter(|outcome| outcome.seq == seq)
            .filter_map(|outcome| outcome.session_duration)
            .collect();
        assert_eq!(durations, [time(4).end - time(0).sent.unwrap()]);
    }
    let bodies = server.bodies.lock().unwrap();
    let merge = bodies
        .iter()
        .find(|body| last_text(body) == "merge")
        .unwrap();
    let texts: Vec<&str> = merge["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert_eq!(
        texts,
        [
            "plan",
            "reply to plan",
            "branch",
            "reply to branch",
            "merge"
        ]
    );
    let sub = bodies.iter().find(|body| last_text(body) == "sub").unwrap();
    assert_eq!(
        sub["messages"].as_array().unwrap().len(),
        1,
        "a history of its own"
    );
}

#[test]
fn a_failed_branch_drops_only_the_turns_that_await_it() {
    let server = Recorder::start(|_, body| match last_text(body) {
        "sub" => response("500 Internal Server Error", "text/plain", "no"),
        _ => says("ok"),
    });
    let played = Scene::new("concurrency: 1, requests: 1", None).play(&server, vec![agent()]);
    let mut outcomes = played.outcomes;
    outcomes.sort_by_key(|outcome| outcome.turn);
    assert_eq!(
        turn_outcomes(&outcomes),
        [
            (0, 0, "ok"),
            (0, 1, "ok"),
            (0, 2, "http_5xx"),
            (0, 3, "dropped"),
            (0, 4, "dropped")
        ]
    );
    assert!(outcomes[3..].iter().all(|outcome| {
        failure_message(outcome) == "skipped: turn 2 of the session (0-based) failed (http_5xx)"
    }));
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.session_duration.is_none())
    );
}

#[test]
fn a_session_of_one_turn_is_a_session() {
    let server = Recorder::start(|_, _| says("ok"));
    let lab = Lab::new();
    let turns = |count: u32| -> Vec<Value> {
        (0..count)
            .map(|turn| json!({ "role": "user", "content": format!("q{turn}") }))
            .flat_map(|user| [user, json!({ "role": "assistant", "content": "a" })])
            .collect()
    };
    let rows = [1, 3, 1, 2].map(|count| json!({ "messages": turns(count) }).to_string());
    lab.file("talks.jsonl", rows.join("\n"));
    lab.run(&format!(
        "version: 1\nname: t\ntarget: {{ url: \"{}\", model: m }}\nrequest: {{ stream: false, max_tokens: 7 }}\n\
         dataset: {{ kind: messages, path: talks.jsonl, turns: {{}} }}\nload: {{ concurrency: 1, sessions: 4 }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100% }}\n",
        server.url
    ))
    .expect(0);
    let case = lab.results()["cases"][0].clone();
    assert_eq!(case["counts"]["ok"], 7);
    assert_eq!(case["metrics"]["session_duration_ms"]["n"], 4);
}

#[test]
fn a_session_that_begins_part_way_fills_the_cache_first() {
    let server = Recorder::start(|_, _| says("live"));
    let lab = Lab::new();
    let said = |role: &str, content: &str| json!({ "role": role, "content": content });
    let talk: Vec<Value> = (0..4)
        .flat_map(|turn| {
            [
                said("user", &format!("q{turn}")),
                said("assistant", &format!("r{turn}")),
            ]
        })
        .collect();
    let rows: Vec<String> = (0..3)
        .map(|_| json!({ "messages": talk }).to_string())
        .collect();
    lab.file("talks.jsonl", rows.join("\n"));
    lab.run(&format!(
        "version: 1\nname: t\ntarget: {{ url: \"{}\", model: m }}\nrequest: {{ stream: false, max_tokens: 7, min_tokens: 5 }}\n\
         dataset: {{ kind: messages, path: talks.jsonl, tokenizer: builtin, turns: {{ replies: recorded, begin: 50% }} }}\n\
         load: {{ concurrency: 1, sessions: 3 }}\naudit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100% }}\n",
        server.url
    ))
    .expect(0);
    let bodies = server.bodies.lock().unwrap();
    let sent: Vec<(usize, &Value, &Value)> = bodies
        .iter()
        .map(|body| {
            (
                body["messages"].as_array().unwrap().len(),
                &body["max_tokens"],
                &body["min_tokens"],
            )
        })
        .collect();
    let (one, five, seven) = (json!(1), json!(5), json!(7));
    let session = [(3, &one, &one), (5, &seven, &five), (7, &seven, &five)];
    assert_eq!(sent, [session, session, session].concat());
    assert_eq!(json!(talk[..5]), bodies[1]["messages"], "recorded replies");
    let results = lab.results();
    let case = &results["cases"][0];
    assert_eq!(
        (&case["counts"]["ok"], &case["counts"]["warmup"]),
        (&json!(6), &json!(3))
    );
    let metric = |name: &str| case["metrics"][name].clone();
    assert_eq!(
        case["metrics"]["session_duration_ms"]["n"],
        3,
        "{}",
        metric("session_duration_ms")
    );
    let share = metric("cacheable_share").as_f64().unwrap();
    assert!((0.5..1.0).contains(&share), "{share}");
}

#[test]
fn a_failed_turn_drops_the_rest_of_its_session() {
    let server = Recorder::start(|_, body| {
        match body["messages"].as_array().unwrap().last().unwrap()["content"] == "s1 t1" {
            true => response("503 Service Unavailable", "application/json", "{}"),
            false => says("ok"),
        }
    });
    let played = Scene::new("concurrency: 2, requests: 2", None).play(&server, sessions(2, 4));
    let known = [
        "ok", "ok", "ok", "ok", "ok", "http_5xx", "dropped", "dropped",
    ];
    assert_eq!(
        turn_outcomes(&played.outcomes)
            .into_iter()
            .map(|row| row.2)
            .collect::<Vec<_>>(),
        known
    );
    let (failed, unsent) = (&played.outcomes[5], &played.outcomes[6..]);
    for outcome in unsent {
        assert_eq!(
            failure_message(outcome),
            "skipped: turn 1 of the session (0-based) failed (http_5xx)"
        );
        assert_eq!(
            (outcome.timeline.sent, outcome.timeline.end),
            (None, failed.timeline.end)
        );
        assert_eq!(
            (outcome.turns, outcome.phase, outcome.model.as_str()),
            (4, Phase::Measured, "m")
        );
    }
    assert_eq!(server.bodies.lock().unwrap().len(), 6);
}

#[test]
fn a_closed_loop_never_has_more_sessions_than_users() {
    let server = Recorder::start(|_, _| {
        std::thread::sleep(Duration::from_millis(3));
        says("ok")
    });
    let played = Scene::new(
        "concurrency: 3, requests: 12",
        Some(Distribution::new(Family::Exponential { mean: 4e6 }, None, None).unwrap()),
    )
    .play(&server, sessions(20, 3));
    assert_eq!(played.outcomes.len(), 36);
    let visits = played.outcomes.chunk_by(|a, b| a.seq == b.seq);
    let spans: Vec<(Nanos, Nanos)> = visits
        .map(|turns| (turns[0].timeline.sent.unwrap(), turns[2].timeline.end))
        .collect();
    let most = spans
        .iter()
        .map(|(at, _)| {
            spans
                .iter()
                .filter(|(from, to)| from <= at && at < to)
                .count()
        })
        .max();
    assert_eq!(most, Some(3));
}

#[test]
fn an_interruption_in_mid_session_loses_nothing() {
    for (presses, reply_after) in [(1, 0), (2, 60_000)] {
        let server = Recorder::start(move |_, _| {
            std::thread::sleep(Duration::from_millis(reply_after));
            says("ok")
        });
        let scene = Scene::new(
            "concurrency: 2, requests: 9, graceful_stop: 20s",
            Some(Distribution::time(Nanos::from_millis(60_000))),
        );
        let (stop, bodies) = (scene.stop.clone(), server.bodies.clone());
        let finger = std::thread::spawn(move || {
            while bodies.lock().unwrap().len() < 2 {
                std::thread::sleep(Duration::from_millis(5));
            }
            (0..presses).for_each(|_| stop.press());
        });
        let played = scene.play(&server, sessions(9, 3));
        finger.join().unwrap();
        let first = if presses == 1 { "ok" } else { "cancelled" };
        assert_eq!(
            turn_outcomes(&played.outcomes),
            [(0, 0, first), (1, 0, first)],
            "turns that were not due leave no row, as sessions that had not begun"
        );
        assert_eq!(played.part.cut_short.as_deref(), Some("interrupted"));
    }
}

#[test]
fn a_duration_ends_sessions_where_they_stand() {
    let server = Recorder::start(|_, _| says("ok"));
    for load in [
        "concurrency: 2, duration: 300ms",
        "rate: 10/s, arrivals: constant, duration: 300ms",
    ] {
        let played = Scene::new(load, Some(Distribution::time(Nanos::from_millis(60_000))))
            .play(&server, sessions(9, 2));
        let begun = if load.starts_with("rate") { 3 } else { 2 };
        let known: Vec<_> = (0..begun).map(|seq| (seq, 0, "ok")).collect();
        assert_eq!(turn_outcomes(&played.outcomes), known, "{load}");
        assert_eq!(played.part.cut_short, None);
    }
}

#[test]
fn a_number_of_requests_ends_sessions_where_they_stand() {
    let server = Recorder::start(|_, _| says("ok"));
    for (load, think) in [
        ("concurrency: 2, requests: 7", "0s"),
        ("rate: 50/s, requests: 7", "0s"),
        (
            "rate: 100/s, max_in_flight: { of: 1, then: hold }, requests: 7",
            "0s",
        ),
        // The second request of a session would be due after a minute.
        ("concurrency: 7, requests: 7", "1m"),
        ("concurrency: 1, requests: 7, sessions: 9, warmup: 1", "0s"),
    ] {
        let lab = Lab::new();
        let before = server.bodies.lock().unwrap().len();
        lab.run(&format!(
            "version: 1\nname: t\ntarget: {{ url: \"{}\", model: m }}\nrequest: {{ stream: false }}\n\
             dataset: {{ kind: random, tokens: 5, turns: {{ count: 5, think_time: {think} }} }}\n\
             load: {{ {load} }}\naudit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100% }}\n",
            server.url
        ))
        .expect(0);
        let results = lab.results();
        let counts = &results["cases"][0]["counts"];
        let warmup = counts["warmup"].as_u64().unwrap();
        assert_eq!(
            (&counts["scheduled"], &counts["ok"]),
            (&7.into(), &7.into()),
            "{load}: {counts}"
        );
        let sent = server.bodies.lock().unwrap().len() - before;
        assert_eq!(
            sent as u64,
            7 + warmup,
            "{load}: nothing is sent after them"
        );
    }
}

#[test]
fn a_conversation_is_one_text_for_a_protocol_without_messages() {
    let server = Recorder::start(|_, _| {
        let reply = json!({ "id": "r", "choices": [{ "index": 0, "text": "live", "finish_reason": "stop" }] });
        response("200 OK", "application/json", &reply.to_string())
    });
    let lab = Lab::new();
    let talk = json!({ "conversations": [
        { "from": "human", "value": "q0" }, { "from": "gpt", "value": "r0" },
        { "from": "human", "value": "q1" }, { "from": "gpt", "value": "r1" },
    ] });
    lab.file("talks.json", json!([talk]).to_string());
    for (replies, reply) in [("live", "live"), ("recorded", "r0")] {
        server.bodies.lock().unwrap().clear();
        lab.run(&format!(
            "version: 1\nname: t\ntarget: {{ url: \"{}\", model: m, api: openai-completions }}\nrequest: {{ stream: false }}\n\
             dataset: {{ kind: sharegpt, path: talks.json, turns: {{ replies: {replies} }} }}\n\
             load: {{ concurrency: 1, sessions: 1 }}\naudit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100% }}\n",
            server.url
        ))
        .expect(0);
        let bodies = server.bodies.lock().unwrap();
        let prompts: Vec<&Value> = bodies.iter().map(|body| &body["prompt"]).collect();
        assert_eq!(
            prompts[..2],
            [&json!("q0"), &json!(format!("q0\n{reply}\nq1"))]
        );
    }
    let system = lab.run(&format!(
        "version: 1\nname: t\ntarget: {{ url: \"{}\", model: m, api: openai-completions }}\n\
         dataset: {{ kind: sharegpt, path: talks.json, system: x, turns: {{}} }}\nload: {{ concurrency: 1, sessions: 1 }}\n",
        server.url
    ));
    assert!(
        system.err.contains("`system` needs messages"),
        "{}",
        system.err
    );
}

#[test]
fn a_logged_session_that_begins_part_way_sends_its_later_prompts() {
    let server = Recorder::start(|_, _| says("ok"));
    let lab = Lab::new();
    // Each prompt has the blocks of the prompt before it.
    let row = |turn: u64| {
        let blocks: Vec<u64> = (0..=turn).collect();
        let parent = turn as i64 - 1;
        json!({ "chat_id": turn, "parent_chat_id": parent, "timestamp": turn, "input_length": 16 * (turn + 1),
            "output_length": 3, "type": "text", "turn": turn + 1, "hash_ids": blocks })
        .to_string()
    };
    lab.file("log.jsonl", (0..6).map(row).collect::<Vec<_>>().join("\n"));
    lab.run(&format!(
        "version: 1\nname: t\ntarget: {{ url: \"{}\", model: m }}\nrequest: {{ stream: false }}\n\
         dataset: {{ kind: trace, path: log.jsonl, trace: {{ layout: bailian, block_tokens: 16 }}, on_exhausted: stop,\n  \
         turns: {{ begin: 50%, max_idle: 1ms }} }}\n\
         load: {{ concurrency: 1, sessions: 1 }}\naudit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100% }}\n",
        server.url
    ))
    .expect(0);
    let bodies = server.bodies.lock().unwrap();
    let texts: Vec<&str> = bodies.iter().map(last_text).collect();
    assert_eq!(
        bodies
            .iter()
            .map(|body| &body["max_tokens"])
            .collect::<Vec<_>>(),
        [&json!(1), &json!(3), &json!(3), &json!(3)],
        "the third turn fills the cache"
    );
    for (shorter, longer) in texts.iter().zip(&texts[1..]) {
        assert!(
            longer.starts_with(shorter),
            "a prompt has the text of the one before it"
        );
    }
    let counts = &lab.results()["cases"][0]["counts"];
    assert_eq!((&counts["ok"], &counts["warmup"]), (&3.into(), &1.into()));
    let deltas = "{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 3, \"session_id\": \"a\"}\n\
                  {\"timestamp\": 5, \"input_length\": 4, \"output_length\": 3, \"session_id\": \"a\"}\n";
    lab.file("deltas.jsonl", deltas);
    let refused = lab.run(&format!(
        "version: 1\nname: t\ntarget: {{ url: \"{}\", model: m }}\n\
         dataset: {{ kind: trace, path: deltas.jsonl, turns: {{ begin: 50% }} }}\nload: {{ concurrency: 1, sessions: 1 }}\n",
        server.url
    ));
    assert!(
        refused.err.contains("remove `dataset.turns.begin`"),
        "{}",
        refused.err
    );
}

#[test]
fn a_session_without_room_is_dropped_whole() {
    let server = Recorder::start(|_, _| {
        std::thread::sleep(Duration::from_millis(100));
        says("ok")
    });
    let played = Scene::new("rate: burst, requests: 4, max_in_flight: 2", None)
        .play(&server, sessions(4, 2));
    let dropped: Vec<&Outcome> = played
        .outcomes
        .iter()
        .filter(|outcome| outcome.outcome_name() == "dropped")
        .collect();
    assert_eq!(
        (
            played.outcomes.len(),
            dropped.len(),
            server.bodies.lock().unwrap().len()
        ),
        (8, 4, 4)
    );
    assert!(
        dropped
            .iter()
            .all(|outcome| failure_message(outcome) == "max_in_flight of 2 was reached")
    );
    assert!(
        dropped
            .chunk_by(|a, b| a.seq == b.seq)
            .all(|turns| turns.len() == 2)
    );
}

#[test]
fn a_conversation_among_single_requests_is_not_played_without_its_replies() {
    let server = Recorder::start(|_, _| says("ok"));
    let scene = Scene {
        turns: None,
        ..Scene::new("concurrency: 1, requests: 2", None)
    };
    let mixed = [sessions(1, 1), sessions(2, 2).split_off(1)].concat();
    let played = scene.play(&server, mixed);
    assert!(
        matches!(
            played.fault,
            Some(RunError::Conversation { seq: 1, turns: 2 })
        ),
        "{:?}",
        played.fault
    );
    assert_eq!(turn_outcomes(&played.outcomes), [(0, 0, "ok")]);
}

#[test]
fn a_scenario_plays_conversations_from_a_file() {
    let server = Recorder::start(|_, body| {
        says(&format!(
            "reply to {}",
            body["messages"].as_array().unwrap().len()
        ))
    });
    let lab = Lab::new();
    let said = |role: &str, content: &str| json!({ "role": role, "content": content });
    let row = |n: u32| {
        let later = json!({ "role": "user", "content": "more", "max_tokens": 7 });
        json!([
            said("user", &format!("q{n}")),
            said("assistant", "as logged"),
            later
        ])
        .to_string()
    };
    lab.file(
        "talks.jsonl",
        (0..4).map(row).collect::<Vec<_>>().join("\n"),
    );
    lab.run(&format!(
        "version: 1\nname: t\ntarget: {{ url: \"{}\", model: m }}\nrequest: {{ stream: false, max_tokens: 3 }}\n\
         dataset: {{ kind: messages, path: talks.jsonl, turns: {{ think_time: 10ms }} }}\n\
         load: {{ concurrency: 1, sessions: 3, warmup: 1 }}\naudit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100% }}\n",
        server.url
    ))
    .expect(0);
    let counts = &lab.results()["cases"][0]["counts"];
    assert_eq!(
        (&counts["ok"], &counts["warmup"]),
        (&6.into(), &2.into()),
        "{counts}"
    );
    let bodies = server.bodies.lock().unwrap();
    let limits = |turn: usize| {
        bodies
            .iter()
            .filter(move |body| body["messages"].as_array().unwrap().len() == turn)
    };
    assert!(
        limits(1).all(|body| body["max_tokens"] == 3)
            && limits(3).all(|body| body["max_tokens"] == 7)
    );
    assert_eq!((limits(1).count(), limits(3).count()), (4, 4));
    assert!(
        limits(3).all(|body| body["messages"][1] == said("assistant", "reply to 1")),
        "not the logged reply"
    );
}

/// A response of the Responses API with its id and text.
fn responds(id: &str, text: &str) -> Vec<u8> {
    let content = json!([{ "type": "output_text", "text": text }]);
    let item = json!({ "type": "message", "id": "m", "status": "completed", "role": "assistant", "content": content });
    let reply = json!({ "id": id, "object": "response", "status": "completed", "model": "m", "output": [item],
        "usage": { "input_tokens": 9, "output_tokens": 1, "total_tokens": 10 } });
    response("200 OK", "application/json", &reply.to_string())
}

/// The text of the last item of a request.
fn last_item(body: &Value) -> &str {
    let last = body["input"].as_array().unwrap().last().unwrap();
    last["content"].as_str().unwrap()
}

/// Runs one session of `row` against a server of the Responses API.
fn run_stored(server: &Recorder, row: &Value, history: &str) -> Lab {
    let lab = Lab::new();
    lab.file("row.jsonl", row.to_string());
    lab.run(&format!(
        "version: 1\nname: t\ntarget: {{ api: openai-responses, url: \"{}\", model: m }}\n\
         request: {{ stream: false, max_tokens: 3 }}\n\
         dataset: {{ kind: messages, path: row.jsonl, tokenizer: builtin, turns: {{ history: {history} }} }}\n\
         load: {{ concurrency: 1, sessions: 1 }}\naudit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n",
        server.url
    ));
    lab
}

#[test]
fn turns_of_a_stored_history_send_the_new_items_and_the_id_of_the_response_that_they_continue() {
    let said = |role: &str, content: &str| json!({ "role": role, "content": content });
    let user = |text: &str| said("user", text);
    let turn = |id: &str, text: &str| json!({ "id": id, "messages": [user(text)] });
    let with = |mut turn: Value, fields: Value| {
        turn.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        turn
    };
    let row = json!({ "system": "Be kind.", "turns": [
        turn("plan", "plan"),
        turn("left", "left"),
        with(turn("right", "right"), json!({ "continues": "plan" })),
        with(turn("sub", "sub"), json!({ "continues": null, "after": ["plan"] })),
        with(turn("merge", "merge"), json!({ "continues": "right", "after": ["left", "sub"] })),
    ] });
    let mut shares = Vec::new();
    for history in ["previous_response_id", "resend"] {
        let server =
            Recorder::start(|_, body| responds(&format!("id of {}", last_item(body)), "yes"));
        let lab = run_stored(&server, &row, history);
        let bodies = server.bodies.lock().unwrap();
        let sent = |text: &str| {
            let mut found = bodies.iter().filter(|body| last_item(body) == text);
            let body = found.next().unwrap().clone();
            assert!(found.next().is_none());
            body
        };
        let body = |input: Value, previous: Option<&str>| {
            let mut body =
                json!({ "model": "m", "input": input, "stream": false, "max_output_tokens": 3 });
            if let Some(previous) = previous {
                body["previous_response_id"] = previous.into();
            }
            body
        };
        let system = said("system", "Be kind.");
        assert_eq!(sent("plan"), body(json!([system, user("plan")]), None));
        assert_eq!(sent("sub"), body(json!([system, user("sub")]), None));
        if history == "resend" {
            let reply = said("assistant", "yes");
            let all = json!([
                system,
                user("plan"),
                reply,
                user("right"),
                reply,
                user("merge")
            ]);
            assert_eq!(sent("merge"), body(all, None));
        } else {
            let continues = |text: &str, before: &str| {
                let id = format!("id of {before}");
                assert_eq!(sent(text), body(json!([user(text)]), Some(&id)));
            };
            continues("left", "plan");
            continues("right", "plan");
            continues("merge", "right");
        }
        let rows = lab.results()["cases"][0].clone();
        assert_eq!(rows["counts"]["ok"], 5, "{rows}");
        shares.push(rows["metrics"]["cacheable_share"].clone());
    }
    assert_eq!(shares[0], shares[1], "the prompt is the same");
    assert_ne!(shares[0], Value::Null);
}

#[test]
fn a_turn_that_continues_a_response_without_an_id_is_dropped() {
    let server = Recorder::start(|_, _| {
        let reply = json!({ "object": "response", "status": "completed", "output": [{ "type": "message",
            "role": "assistant", "content": [{ "type": "output_text", "text": "yes" }] }],
            "usage": { "input_tokens": 9, "output_tokens": 1 } });
        response("200 OK", "application/json", &reply.to_string())
    });
    let user = |text: &str| json!({ "role": "user", "content": text });
    let row =
        json!({ "messages": [user("a"), { "role": "assistant", "content": "b" }, user("c")] });
    let lab = run_stored(&server, &row, "previous_response_id");
    let counts = &lab.results()["cases"][0]["counts"];
    assert_eq!(
        (&counts["ok"], &counts["dropped"]),
        (&1.into(), &1.into()),
        "{counts}"
    );
    assert_eq!(server.bodies.lock().unwrap().len(), 1);
}

#[test]
fn think_times_end_where_no_session_has_a_request_in_flight() {
    let server = Recorder::start(|_, _| says("ok"));
    let lab = Lab::new();
    let turn = |id: &str| json!({ "turns": [{ "messages": [{ "role": "user", "content": id }] }, { "messages": [{ "role": "user", "content": "go on" }] }] });
    let rows = ["a", "b"].map(|id| turn(id).to_string()).join("\n");
    lab.file("s.jsonl", rows);
    let text = |load: &str| {
        format!(
            "version: 1\nname: t\ntarget: {{ url: \"{}\", model: m }}\nrequest: {{ stream: false }}\n\
             dataset: {{ kind: messages, path: s.jsonl, turns: {{ think_time: 1h }} }}\n\
             load: {{ {load} }}\naudit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100% }}\n",
            server.url
        )
    };
    lab.run(&text("concurrency: 2, sessions: 2, max_idle: 50ms"))
        .expect(0);
    let results = lab.results();
    assert_eq!(results["cases"][0]["counts"]["ok"], 4);
    let notes = results["notes"].to_string();
    let left_out = notes
        .split(" s of think time were left out")
        .next()
        .unwrap();
    let seconds = left_out.rsplit(' ').next().unwrap().parse::<f64>();
    // Both sessions wait at the same time, so the hour is left out once.
    assert!(
        seconds.is_ok_and(|s| (3_595.0..3_600.0).contains(&s)),
        "{notes}"
    );
    let open = lab.run(&text("rate: 10/s, sessions: 2, max_idle: 50ms"));
    assert!(
        open.err.contains("`max_idle` needs a concurrency"),
        "{}",
        open.err
    );
}
