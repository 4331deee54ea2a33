mod table {
    use super::super::*;
    use crate::fixture::{failed, frame, outcome};
    use crate::schema as s;
    use llmscen_core::outcome::{FailureKind, Outcome};
    use llmscen_core::units::Nanos;

    fn tagged<'a>(case: &'a str, round: u32, outcome: &'a Outcome) -> TaggedOutcome<'a> {
        TaggedOutcome {
            case,
            round,
            shard: 0,
            outcome,
        }
    }

    #[test]
    fn every_column_has_the_type_of_the_schema_and_the_rows_of_the_range() {
        let [a, b] = [outcome(3), failed(5, FailureKind::Dropped)];
        let table = Table::build([tagged("a", 0, &a), tagged("a", 0, &b)]).unwrap();
        for (name, dtype) in Table::schema() {
            let column = table.column(&name, 1..2).unwrap();
            assert_eq!((column.dtype(), column.len()), (&dtype, 1), "{name}");
        }
        let seq = table.column(s::SEQ, 1..2).unwrap();
        assert_eq!(seq.u64().unwrap().get(0), Some(5));
        assert!(table.column("nothing", 0..2).is_err());
    }

    #[test]
    fn rows_are_ordered_by_case_round_and_seq() {
        let [a, b] = [outcome(1), outcome(0)];
        let rows = [
            tagged("z", 1, &a),
            tagged("a", 0, &a),
            tagged("z", 0, &a),
            tagged("z", 0, &b),
        ];
        let table = Table::build(rows).unwrap();
        let order: Vec<_> = table
            .rows(0..4)
            .iter()
            .map(|row| (row.round(), row.seq()))
            .collect();
        assert_eq!(order, [(0, 0), (0, 1), (1, 1), (0, 1)]);
        assert_eq!(table.columns.case.get(3), Some("a"));
    }

    #[test]
    fn cases_are_in_the_requested_order() {
        let [a, b] = [outcome(1), outcome(0)];
        let mut builder = Builder::with_cases(["a", "z"]);
        for row in [
            tagged("z", 0, &a),
            tagged("a", 1, &a),
            tagged("z", 0, &b),
            tagged("a", 0, &a),
        ] {
            builder.push(&row);
        }
        let table = builder.finish().unwrap();
        let order = (0..4).map(|row| {
            (
                table.columns.case.get(row).unwrap().to_string(),
                table.columns.round.get(row).unwrap(),
            )
        });
        assert_eq!(
            order.collect::<Vec<_>>(),
            [("a", 0), ("a", 1), ("z", 0), ("z", 0)].map(|(case, round)| (case.into(), round))
        );
        assert_eq!(
            (table.columns.seq.get(2), table.columns.seq.get(3)),
            (Some(0), Some(1))
        );
    }

    #[test]
    fn a_failure_keeps_its_message() {
        let bad = failed(0, FailureKind::Http5xx);
        let frame = frame(&Table::build([tagged("a", 0, &bad)]).unwrap());
        let cell = |name: &str| {
            frame
                .column(name)
                .unwrap()
                .str()
                .unwrap()
                .get(0)
                .map(str::to_owned)
        };
        assert_eq!(
            (cell(s::OUTCOME).as_deref(), cell(s::ERROR).as_deref()),
            (Some("http_5xx"), Some("no luck"))
        );
        assert_eq!(
            (cell(s::ERROR_AT).as_deref(), cell(s::FINISH_REASON)),
            (Some("after headers"), None)
        );
    }

    #[test]
    fn an_empty_table_is_one() {
        let table = Table::build([]).unwrap();
        assert!(table.is_empty() && table.batches().next().is_none());
    }

    #[test]
    fn columns_come_back_whatever_is_absent_and_in_whatever_order_the_rows_came() {
        // Each row is there in some rows only, or changes late: every form that a column can have is passed through.
        let odd = |seq: u64| {
            let mut one = outcome(seq);
            one.usage.prompt = seq.is_multiple_of(3).then_some(seq);
            one.usage.cached = (seq > 70).then_some(9);
            one.items = (seq < 65).then_some(2);
            one.group = (seq == 99).then(|| "g".to_owned());
            one.request_id = (seq % 2 == 1).then(|| format!("id {seq}"));
            one.timeline.tokens = (0..seq % 4).map(Nanos).collect();
            one
        };
        let rows: Vec<Outcome> = (0..150).map(|k| odd(k * 7 % 150)).collect();
        let table = Table::build(rows.iter().map(|row| tagged("a", 0, row))).unwrap();
        let held = &table.columns;
        for seq in 0..150 {
            let (row, known) = (seq as usize, odd(seq));
            assert_eq!(
                (held.seq.get(row), held.usage_prompt.get(row)),
                (Some(seq), known.usage.prompt)
            );
            assert_eq!(
                (held.usage_cached.get(row), held.items.get(row)),
                (known.usage.cached, known.items)
            );
            assert_eq!(
                (held.group.get(row), held.status.get(row)),
                (known.group.as_deref(), Some(200))
            );
            assert_eq!(held.events.get(row), (0..seq % 4).collect::<Vec<_>>());
        }
        let ids = frame(&table)
            .column(s::REQUEST_ID)
            .unwrap()
            .str()
            .unwrap()
            .iter()
            .map(|id| id.map(str::to_owned))
            .collect::<Vec<_>>();
        assert_eq!(
            ids,
            (0..150).map(|seq| odd(seq).request_id).collect::<Vec<_>>()
        );
    }
}

mod stage_slice {
    use crate::CaseFacts;
    use crate::fixture::{case, failed, sample_case, stream, table, warmup};
    use llmscen_core::label::Scalar;
    use llmscen_core::load::{Arrival, Shape};
    use llmscen_core::manifest::Part;
    use llmscen_core::metric::Metric;
    use llmscen_core::outcome::FailureKind;
    use llmscen_core::stage::{RateProfile, RateStage};
    use llmscen_core::units::Nanos;

    #[test]
    fn a_stage_has_the_rows_that_were_due_in_it_and_what_was_in_flight() {
        let stage = |rate| RateStage {
            rate: RateProfile::Flat(rate),
            span: Nanos::from_millis(100),
        };
        let shape = Shape::Rates {
            stages: [stage(20.0), stage(30.0)].into(),
            arrival: Arrival::Constant,
        };
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
            let part = Part {
                case: stage.case.id.clone(),
                measured_from_ns: stage.from.0,
                ..Part::default()
            };
            let facts = CaseFacts {
                case: &stage.case,
                parts: &[part],
                until: Some(stage.until),
            };
            sample_case(&table.stage_rows("a", stage).unwrap(), &facts)
        };
        assert_eq!(
            (
                stages[1].case.id.as_str(),
                stages[1].case.labels.get("load.stage")
            ),
            ("a/stage=2", Some(&Scalar::Int(2)))
        );
        let (first, second) = (seen(0), seen(1));
        assert_eq!(
            (
                first.counts.scheduled,
                first.counts.warmup,
                first.distributions[&Metric::Ttft].n
            ),
            (1, 1, 1)
        );
        assert_eq!(
            (
                second.counts.scheduled,
                second.counts.ok,
                second.counts.dropped,
                second.counts.warmup
            ),
            (4, 3, 1, 0)
        );
        // From 100 ms to the last end, that of the dropped row's own stamp: two in flight from 100 to 130 and from
        // 133 to 150, the one of the first stage among them.
        assert_eq!(
            (
                second.scalars[&Metric::ConcurrencyMax],
                second.scalars[&Metric::RateOffered]
            ),
            (2.0, 40.0)
        );
        assert_eq!(second.scalars[&Metric::RateAchieved], 30.0);
    }
}
