//! A request as statistics will see it, while its case still runs.

use crate::frame::facts::{Fact, Tokens};
use crate::model::outcome::{Outcome, Phase};
use crate::model::sample::Row;
use crate::model::units::Nanos;

/// The row that the report will make of this outcome.
pub fn row(outcome: &Outcome, round: u32) -> Row {
    let line = &outcome.timeline;
    let stamp = |stamp: Option<Nanos>| stamp.map(|stamp| stamp.0);
    let events: Vec<u64> = line.tokens.iter().filter(|_| outcome.streamed).map(|event| event.0).collect();
    let streamed = |list: &'_ [u32]| if outcome.streamed { list.to_vec() } else { Vec::new() };
    let (choices, weights) = (streamed(&line.choices), streamed(&line.weights));
    let (usage, counted, server) = (&outcome.usage, &outcome.counted, &outcome.server);
    let fact = Fact {
        seq: outcome.seq,
        turn: outcome.turn,
        turns: outcome.turns,
        group: outcome.group.as_deref(),
        round,
        own: true,
        measured: outcome.phase == Phase::Measured,
        model: &outcome.model,
        intended: line.intended.0,
        sent: stamp(line.sent),
        first_chunk: stamp(line.first_chunk),
        end: line.end.0,
        events: &events,
        choices: &choices,
        weights: &weights,
        items: outcome.items,
        server: [server.queue, server.load, server.prefill, server.decode, server.total].map(stamp),
        reconnects: outcome.reconnects,
        attempts: outcome.attempts,
        usage: Tokens { prompt: usage.prompt, output: usage.output, reasoning: usage.reasoning, cached: usage.cached },
        counted: Tokens { prompt: counted.prompt, output: counted.output, ..Tokens::default() },
        approximate: counted.approximate,
        failure: outcome.end.as_ref().err().map(|failure| failure.kind),
        status: outcome.status.map(u32::from),
        message: "",
        at: "",
    };
    fact.row()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::fixture::{failed, outcome, stream, table};
    use crate::model::outcome::{FailureKind, ServerTimes};

    #[test]
    fn it_is_the_row_of_the_report() {
        let mut paced = stream(1, 100, &[150, 160, 190]);
        (paced.timeline.choices, paced.timeline.weights) = (vec![0, 1, 0], vec![2, 1, 4]);
        paced.server = ServerTimes { queue: Some(Nanos(5)), total: Some(Nanos(9)), ..ServerTimes::default() };
        let mut whole = stream(2, 200, &[250, 260]);
        whole.streamed = false;
        let rows = [outcome(0), paced, whole, failed(3, FailureKind::Truncated), failed(4, FailureKind::Dropped)];
        let table = table("a", &rows);
        let stored: Vec<Row> = crate::frame::facts::of(&table, "a").unwrap().iter().map(Fact::row).collect();
        let live: Vec<Row> = rows.iter().map(|outcome| row(outcome, 0)).collect();
        assert_eq!(live, stored);
    }
}
