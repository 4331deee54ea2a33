use super::draw;
use super::state::{State, View};
use crate::run::event::Event;
use crate::run::progress::Progress;
use crate::run::stop::Level;
use llmscen_core::early_stop::{EarlyStop, Saturated};
use llmscen_core::plan::Plan;
use llmscen_scenario::Input;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use std::collections::BTreeMap;
use std::path::Path;

const SWEEP: &str = "load: { concurrency: 1, requests: 160 }\nmatrix: { load.concurrency: [1, 4, 16] }\nrounds: 2\n";

fn plan(rest: &str) -> Plan {
    let text = format!(
        "version: 1\nname: chat\ntarget: {{ api: simulator }}\ndataset: {{ kind: prompt, text: x }}\n{rest}"
    );
    let input = Input {
        path: Path::new("t.yaml"),
        text: Some(text),
        env: &BTreeMap::new(),
        set: &[],
    };
    llmscen_scenario::load(&input)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
        .plan
}

fn started(case: &str, round: u32, part: usize) -> Event {
    Event::CaseStarted {
        case: case.into(),
        round,
        part,
        parts: 6,
        total: Some(160),
        seconds: None,
    }
}

/// Progress `second` seconds into a round of `users`: a wave, so that the charts have a shape.
fn progress(users: u64, second: u64) -> Progress {
    let wave = 1.0 + (second as f64 / 3.0).sin() / 2.0;
    Progress {
        done: 8 * second,
        total: Some(160),
        in_flight: users,
        errors: second / 4,
        rate: 8.0,
        tokens_per_s: 120.0 * users as f64 * wave,
        ttft_ms_p50: Some(8.94),
        ttft_ms_p99: Some(44.6),
        ttft_ms_latest: Some((9.0 * wave, 40.0 * wave)),
        itl_ms_p50: Some(8.04),
        itl_ms_p99: Some(16.1),
        e2e_ms_p50: Some(323.0),
        e2e_ms_p99: Some(1345.0),
        elapsed_s: second as f64,
        left_s: Some(20.0 - second as f64),
        ..Progress::default()
    }
}

/// Two finished rounds, and a third one in its twelfth second.
fn running_view() -> View {
    let mut view = View::new(&plan(SWEEP));
    view.apply(&Event::Folder("reports/chat/x".into()), 0.1);
    for (part, users) in [1, 4, 16].into_iter().enumerate() {
        let begin = 22 * part as u64;
        view.apply(
            &started(&format!("concurrency={users}"), 0, part),
            begin as f64,
        );
        let seconds = if part == 2 { 12 } else { 20 };
        (1..=seconds).for_each(|second| {
            view.apply(
                &Event::Progress(progress(users, second)),
                (begin + second) as f64,
            )
        });
        if part < 2 {
            view.apply(
                &Event::CaseEnded(progress(users, 20)),
                (begin + 20) as f64 + 0.3,
            );
        }
    }
    view.apply(
        &Event::Note("3 rows of the data were left out: too long".into()),
        56.5,
    );
    view
}

fn draw_view(view: &View, width: u16, height: u16, color: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| draw(view, 57.0, color, frame))
        .unwrap();
    terminal
}

#[test]
fn a_run_on_a_small_and_on_a_large_screen() {
    insta::assert_snapshot!("80x24", draw_view(&running_view(), 80, 24, true).backend());
    insta::assert_snapshot!(
        "200x50",
        draw_view(&running_view(), 200, 50, true).backend()
    );
}

#[test]
fn before_the_first_event_and_in_a_small_window() {
    insta::assert_snapshot!(
        "begun",
        draw_view(&View::new(&plan(SWEEP)), 80, 24, true).backend()
    );
    insta::assert_snapshot!("corner", draw_view(&running_view(), 40, 10, true).backend());
}

#[test]
fn every_window_size_can_be_drawn() {
    for (width, height) in [
        (1, 1),
        (3, 40),
        (200, 2),
        (49, 17),
        (50, 18),
        (139, 18),
        (140, 18),
        (500, 200),
    ] {
        draw_view(&running_view(), width, height, true);
        draw_view(&View::default(), width, height, true);
    }
}

#[test]
fn the_text_is_the_same_without_colors() {
    let colored = draw_view(&running_view(), 80, 24, true);
    let plain = draw_view(&running_view(), 80, 24, false);
    let text = |terminal: &Terminal<TestBackend>| terminal.backend().to_string();
    assert_eq!(text(&colored), text(&plain));
    assert!(
        plain
            .backend()
            .buffer()
            .content()
            .iter()
            .all(|cell| cell.fg == Color::Reset)
    );
    assert!(
        colored
            .backend()
            .buffer()
            .content()
            .iter()
            .any(|cell| cell.fg == Color::Red),
        "there were errors"
    );
}

#[test]
fn the_time_left_is_estimated_from_planned_requests() {
    let mut view = running_view();
    // 60 s for 160 + 40 + 10 requests per user, 210 more to come, and 8 s of the running round.
    assert!(
        (view.left_s().unwrap() - 68.0).abs() < 1e-9,
        "{:?}",
        view.left_s()
    );
    view.apply(&Event::Stopping(Level::Drain), 58.0);
    assert_eq!(view.left_s(), None, "no further round starts");
    let timed = View::new(&plan(
        "load: { concurrency: 1, duration: 30s }\nrounds: 3\n",
    ));
    assert_eq!(timed.left_s(), Some(90.0));
}

#[test]
fn a_search_shows_the_result_of_each_probe() {
    let mut view = View::new(&plan(
        "load: { concurrency: 8, requests: 60 }\nslo: [ttft.p90 < 60ms]\nsearch: { vary: \
        load.concurrency, range: [1, 64] }\n",
    ));
    assert!(view.parts.is_empty());
    for (part, (users, holds)) in [(8, Some(0.99)), (16, None), (32, Some(0.004))]
        .into_iter()
        .enumerate()
    {
        view.apply(
            &started(&format!("concurrency={users}"), 0, part),
            part as f64,
        );
        view.apply(&Event::CaseEnded(progress(users, 5)), part as f64 + 0.5);
        view.apply(
            &Event::Probed {
                case: format!("concurrency={users}"),
                holds,
            },
            part as f64 + 0.6,
        );
    }
    let states: Vec<&State> = view.parts.iter().map(|part| &part.state).collect();
    assert_eq!(
        states,
        [
            &State::Probed(Some(0.99)),
            &State::Probed(None),
            &State::Probed(Some(0.004))
        ]
    );
    let text = draw_view(&view, 80, 30, true).backend().to_string();
    for word in [
        "search, 3 probes done",
        "passes: 99%",
        "INVALID",
        "passes: 0.4%",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn an_early_stop_stays_the_state_of_a_case() {
    let mut view = running_view();
    view.apply(
        &Event::Ending(EarlyStop::Saturated(Saturated {
            from_s: 3.0,
            ..Saturated::default()
        })),
        57.0,
    );
    view.apply(&Event::CaseEnded(progress(16, 13)), 57.2);
    assert_eq!(
        (view.parts[1].state.clone(), view.parts[2].state.clone()),
        (State::Ended, State::StoppedEarly("SATURATED"))
    );
    assert_eq!(
        view.notes.back().unwrap().split(':').next(),
        Some("saturated at 3.0 s")
    );
    assert_eq!(
        view.transcript.len(),
        6,
        "folder, two rounds, note, ending, last round: {:?}",
        view.transcript
    );
}

#[test]
fn pauses_have_empty_seconds_and_errors_are_counted_once() {
    let view = running_view();
    assert!(
        view.seconds
            .iter()
            .zip(view.seconds.iter().skip(1))
            .all(|(earlier, later)| later.at == earlier.at + 1)
    );
    assert_eq!(
        view.seconds.iter().map(|second| second.errors).sum::<u64>(),
        5 + 5 + 3
    );
    let at = |second: u64| {
        view.seconds
            .iter()
            .find(|entry| entry.at == second)
            .unwrap()
    };
    assert_eq!(
        (at(21).tokens_per_s(), at(21).ttft_p99, at(56).in_flight()),
        (0.0, None, 16.0)
    );
}
