//! The rows of one stage of a case, as a table of their own.

use crate::table::Table;
use llmscen_core::plan::Excerpt;
use llmscen_core::telemetry::Recorded;

/// The phase of a row that is not the stage's own: it may be in flight during the stage, and counts for nothing else. No
/// file holds this word.
pub(super) const BESIDE: &str = "beside";

impl Table {
    /// The rows of a stage of the case `whole`: they bear the stage's id, and those that were due outside of it stand
    /// beside, for what was in flight.
    pub fn excerpt(&self, whole: &str, stage: &Excerpt) -> Table {
        let rows: Vec<u32> = self.case_range(whole).map(|row| row as u32).collect();
        let mut columns = self.columns.pick(&rows);
        let within = |row: usize| columns.intended.get(row).is_some_and(|at| (stage.from.0..stage.until.0).contains(&at));
        let phase = |row: usize| columns.phase.get(row).filter(|_| within(row)).map_or(BESIDE, |phase| phase);
        columns.phase = (0..rows.len()).map(|row| Some(phase(row))).collect();
        columns.case = rows.iter().map(|_| Some(stage.case.id.as_str())).collect();
        let own = self.recorded().iter().filter(|recorded| recorded.case == whole);
        let recorded = own.map(|recorded| Recorded { case: stage.case.id.clone(), ..recorded.clone() });
        Table::from_columns(columns).beside(recorded.collect())
    }
}

#[cfg(test)]
mod tests {
    use crate::CaseFacts;
    use crate::fixture::{case, failed, stream, table, warmup};
    use crate::sample::sample;
    use llmscen_core::labels::Scalar;
    use llmscen_core::load::{Arrival, Shape};
    use llmscen_core::manifest::Part;
    use llmscen_core::metric::Metric;
    use llmscen_core::outcome::FailureKind;
    use llmscen_core::stage::{Course, RateStage};
    use llmscen_core::units::Nanos;

    #[test]
    fn a_stage_has_the_rows_that_were_due_in_it_and_what_was_in_flight() {
        let stage = |rate| RateStage { rate: Course::Flat(rate), span: Nanos::from_millis(100) };
        let shape = Shape::Rates { stages: [stage(20.0), stage(30.0)].into(), arrival: Arrival::Constant };
        let mut dropped = failed(5, FailureKind::Dropped);
        dropped.timeline.intended = Nanos::from_millis(199);
        // Due at 0 (warm-up), 50; 100, 133, 166, and at 199, dropped. The second is in flight until 150.
        let rows = [
            warmup(stream(0, 0, &[20])),
            stream(1, 50, &[60, 150]),
            stream(2, 100, &[110, 130]),
            stream(3, 133, &[140, 160]),
            stream(4, 166, &[170, 190]),
            dropped,
        ];
        let (table, case) = (table("a", &rows), case(shape));
        let stages = case.stages();
        let seen = |index: usize| {
            let stage = &stages[index];
            let part = Part { case: stage.case.id.clone(), measured_from_ns: stage.from.0, ..Part::default() };
            let facts = CaseFacts { case: &stage.case, parts: &[part], until: Some(stage.until) };
            sample(&table.excerpt("a", stage), &facts)
        };
        assert_eq!((stages[1].case.id.as_str(), stages[1].case.labels.get("load.stage")), ("a/stage=2", Some(&Scalar::Int(2))));
        let (first, second) = (seen(0), seen(1));
        assert_eq!((first.counts.scheduled, first.counts.warmup, first.distributions[&Metric::Ttft].n), (1, 1, 1));
        assert_eq!((second.counts.scheduled, second.counts.ok, second.counts.dropped, second.counts.warmup), (4, 3, 1, 0));
        // From 100 ms to the last end, that of the dropped row's own stamp: two in flight from 100 to 130 and from 133 to
        // 150, the one of the first stage among them.
        assert_eq!((second.scalars[&Metric::ConcurrencyMax], second.scalars[&Metric::RateOffered]), (2.0, 40.0));
        assert_eq!(second.scalars[&Metric::RateAchieved], 30.0);
    }
}
