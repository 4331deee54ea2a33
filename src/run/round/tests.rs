use super::*;
use crate::run::prepare::DatasetCache;
use crate::run::requests::row_usage::RowUsage;
use crate::run::requests::tests::context;
use crate::store::{RunLocation, journal};
use llmscen_core::plan::Plan;
use llmscen_scenario::Input;
use std::collections::BTreeMap;
use std::path::Path;

/// The numbers that a shard has sent on the simulator: warm-up requests, and measured ones.
fn sent(plan: &Plan, shard: Shard) -> [Vec<u64>; 2] {
    let folder = tempfile::tempdir().unwrap();
    let context = Context {
        shard,
        ..context(folder.path())
    };
    let case = &plan.cases[0];
    let prepared = DatasetCache::default()
        .prepare_case(0, case, plan, &context)
        .unwrap();
    let run = RunDir::create(&RunLocation {
        explicit: Some(&folder.path().join("run")),
        dir: folder.path(),
        name: "t",
        started: "",
        force: false,
    })
    .unwrap();
    let input = RoundInput {
        index: 0,
        case,
        prepared: &prepared,
        round: 0,
        // The rows of a probe are part of its result.
        probe: Some(ProbeSize {
            share: 1.0,
            may_stop: true,
        }),
        shard,
        seed: plan.seed,
        planned: case.load.planned(),
        strides: RowUsage::default().strides(case, &prepared),
        fail_fast: None,
        earlier: FailFast::default(),
        folder: &run,
        bodies: Bodies::None,
        observer: Arc::new(Observer::new(plan, &context)),
        server: None,
        server_process: None,
        model: None,
    };
    let prepared_round = prepare_round(&input, context.stop.child(), &context).unwrap();
    let journal = Writer::create(&run.file(journal::FILE)).unwrap();
    let result = run_round(&input, prepared_round, journal, None, &context).unwrap();
    assert!(result.fault.is_none() && result.part.ending.is_none());
    let rows = result.rows.unwrap();
    let mut sent = [Vec::new(), Vec::new()];
    let column = |name| rows.column(name, 0..rows.len()).unwrap();
    let (seqs, phases, owners) = (column("seq"), column("phase"), column("shard"));
    assert!(
        owners
            .u32()
            .unwrap()
            .iter()
            .all(|owner| owner == Some(shard.index))
    );
    for (seq, phase) in seqs.u64().unwrap().iter().zip(phases.str().unwrap().iter()) {
        let (seq, phase) = (seq.unwrap(), phase.unwrap());
        // How many cool down depends on the server.
        if phase != "cooldown" {
            sent[usize::from(phase == "measured")].push(seq);
        }
    }
    sent.iter_mut().for_each(|numbers| numbers.sort_unstable());
    sent
}

#[test]
fn each_shard_sends_its_own_numbers_and_all_of_them() {
    for load in [
        "{ concurrency: 5, requests: 20, warmup: 4 }",
        "{ static: { batch: 5, rounds: 4, barrier: none }, warmup: 4 }",
        "{ rate: 500/s, requests: 20, warmup: 4 }",
    ] {
        let text = format!(
            "version: 1\nname: t\ntarget: {{ url: simulator, model: m, simulator: {{ alpha: 1ms }} }}\n\
             dataset: {{ kind: prompt, text: x }}\nrequest: {{ max_tokens: 1 }}\nload: {load}\n"
        );
        let input = Input {
            path: Path::new("t.yaml"),
            text: Some(text),
            env: &BTreeMap::new(),
            set: &[],
        };
        let plan = llmscen_scenario::load(&input)
            .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
            .plan;
        let mut union = [Vec::new(), Vec::new()];
        for index in 0..3 {
            let shard = Shard { index, count: 3 };
            let split = Split::new(shard, &plan.cases[0].load.shape);
            for (all, own) in union.iter_mut().zip(sent(&plan, shard)) {
                assert!(
                    !own.is_empty() && own.iter().all(|&seq| split.owns(seq)),
                    "{own:?}"
                );
                all.extend(own);
            }
        }
        union.iter_mut().for_each(|numbers| numbers.sort_unstable());
        assert_eq!(
            union,
            [(0..4).collect::<Vec<_>>(), (4..24).collect()],
            "{load}"
        );
    }
}
