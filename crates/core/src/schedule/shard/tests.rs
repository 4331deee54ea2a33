use super::*;
use crate::load::{Arrival, AtLimit};
use crate::stage::UserStage;
use crate::units::Nanos;
use proptest::prelude::*;

fn shape(users: Option<u32>) -> Shape {
    match users {
        Some(users) => Shape::Closed { users },
        None => Shape::Open {
            rate: 1.0,
            arrival: Arrival::Poisson,
        },
    }
}

fn splits(count: u32, users: Option<u32>) -> Vec<Split> {
    (0..count)
        .map(|index| Split::new(Shard { index, count }, &shape(users)))
        .collect()
}

proptest! {
    #[test]
    fn shares_sum_to_the_total(total in any::<u64>(), count in 1u32..2000) {
        let shares: Vec<u64> = (0..count).map(|index| Shard { index, count }.share(total)).collect();
        prop_assert_eq!(shares.iter().map(|share| u128::from(*share)).sum::<u128>(), u128::from(total));
        prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
    }

    #[test]
    fn the_local_index_counts_own_numbers(
        count in 1u32..=16,
        users in proptest::option::of(1u32..70),
        far in 0u64..1 << 40,
    ) {
        for split in splits(count, users) {
            let mut below = 0;
            for seq in 0..300 {
                prop_assert_eq!(split.local_index(seq), below, "{:?} at {}", split, seq);
                prop_assert_eq!(split.owns(seq), split.owner(seq) == split.shard().index);
                below += u64::from(split.owns(seq));
            }
            prop_assert_eq!(split.local_index(far + 1) - split.local_index(far), u64::from(split.owns(far)));
        }
        let all: u64 = splits(count, users).iter().map(|split| split.local_index(far)).sum();
        prop_assert_eq!(all, far, "each number has one owner");
    }

    #[test]
    fn a_user_keeps_its_shard_and_users_are_shared_evenly(count in 1u32..=16, users in 1u32..70,
        seq in 0u64..1 << 40) {
        let splits = splits(count, Some(users));
        let owner = splits[0].owner(seq);
        prop_assert_eq!(u64::from(owner), seq % u64::from(users) % u64::from(count));
        prop_assert_eq!(owner, splits[0].owner(seq + u64::from(users)), "the next request of the user");
        let own: Vec<u32> = splits.iter().map(|split| split.users(users)).collect();
        prop_assert_eq!(own.iter().sum::<u32>(), users);
        prop_assert!(own.iter().max().unwrap() - own.iter().min().unwrap() <= 1);
    }

    #[test]
    fn a_shard_is_read_as_it_is_written(index in any::<u32>(), count in any::<u32>()) {
        let text = format!("{index}/{count}");
        let shard = if index < count {
            Ok(Shard { index, count })
        } else {
            Err(ShardError::OutOfRange { index, count })
        };
        prop_assert_eq!(text.parse::<Shard>(), shard.clone());
        prop_assert!(shard.is_err() || shard.unwrap().to_string() == text);
    }
}

#[test]
fn a_plain_run_owns_every_number() {
    for shape in [shape(None), shape(Some(3)), Shape::Static { batch: 4 }] {
        let split = Split::new(Shard::default(), &shape);
        assert!((0..100).all(|seq| split.owns(seq) && split.local_index(seq) == seq));
    }
    assert_eq!(Shard::default().share(7), 7);
}

#[test]
fn what_is_no_shard_is_refused() {
    for text in ["", "3", "a/8", "3/b", "-1/8", "3/8/1", "1.5/2"] {
        assert_eq!(
            text.parse::<Shard>(),
            Err(ShardError::Syntax(text.to_owned()))
        );
    }
    let refused = |text: &str| text.parse::<Shard>().unwrap_err().to_string();
    assert_eq!(
        refused("8/8"),
        "there is no shard 8 of 8: shards count from 0\n  help: use 0 to 7"
    );
    assert_eq!(
        refused("0/0"),
        "there is no shard 0 of 0: shards count from 0\n  help: the number of shards is at least 1"
    );
}

fn found(variables: &[(&str, &str)]) -> Result<EngineShard, ShardError> {
    from_env(&|name| {
        let known = variables.iter().find(|(known, _)| *known == name);
        known.map(|(_, value)| (*value).to_owned())
    })
}

const STEP: [(&str, &str); 4] = [
    ("SLURM_JOB_ID", "71"),
    ("SLURM_STEP_ID", "2"),
    ("SLURM_PROCID", "3"),
    ("SLURM_STEP_NUM_TASKS", "8"),
];
const ARRAY: [(&str, &str); 5] = [
    ("SLURM_JOB_ID", "93"),
    ("SLURM_ARRAY_JOB_ID", "90"),
    ("SLURM_ARRAY_TASK_ID", "7"),
    ("SLURM_ARRAY_TASK_MIN", "5"),
    ("SLURM_ARRAY_TASK_COUNT", "4"),
];

#[test]
fn every_engine_names_its_shard() {
    let shard = |variables: &[(&str, &str)]| {
        let found = found(variables).unwrap();
        (found.shard.to_string(), found.engine, found.run)
    };
    let plain = |text: &str, engine| (text.to_owned(), engine, None);
    let shards = ("LLMSCEN_SHARDS", "8");
    for (index, engine) in [
        ("LLMSCEN_SHARD", "environment"),
        ("JOB_COMPLETION_INDEX", "Kubernetes"),
        ("NOMAD_ALLOC_INDEX", "Nomad"),
    ] {
        assert_eq!(shard(&[(index, "3"), shards]), plain("3/8", engine));
        let missing = found(&[(index, "3"), ("LLMSCEN_SHARDS", "")]).unwrap_err();
        assert_eq!(
            missing.to_string(),
            format!(
                "{index} is set, but not LLMSCEN_SHARDS, so the number of shards is \
                 unknown\n  help: set LLMSCEN_SHARDS to the number of shards"
            )
        );
    }
    for (index, count, engine) in [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI"),
        ("PMI_RANK", "PMI_SIZE", "PMI"),
        ("RANK", "WORLD_SIZE", "RANK and WORLD_SIZE"),
    ] {
        assert_eq!(shard(&[(index, "0"), (count, "2")]), plain("0/2", engine));
    }
    let run = |text: &str| Some(text.to_owned());
    assert_eq!(shard(&STEP), ("3/8".into(), "Slurm", run("71.2")));
    assert_eq!(shard(&ARRAY), ("2/4".into(), "Slurm array", run("90")));
    let stepped = [&ARRAY[..], &[("SLURM_ARRAY_TASK_STEP", "2")]].concat();
    assert_eq!(shard(&stepped).0, "1/4");
}

#[test]
fn a_restarted_job_is_another_attempt() {
    for (restarts, suffix) in [("0", ""), ("2", ".restart2")] {
        let run = |variables: &[(&str, &str)]| {
            let restarted = [variables, &[("SLURM_RESTART_COUNT", restarts)]].concat();
            found(&restarted).unwrap().run.unwrap()
        };
        assert_eq!(run(&STEP), format!("71.2{suffix}"));
        assert_eq!(run(&ARRAY), format!("90{suffix}"));
    }
}

#[test]
fn the_first_engine_of_several_counts() {
    let mpi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
    let task = [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")];
    let engine = |variables: &[&[(&str, &str)]]| {
        let found = found(&variables.concat()).unwrap();
        (found.shard.to_string(), found.engine)
    };
    assert_eq!(engine(&[&mpi, &STEP]), ("1/4".into(), "Open MPI"));
    assert_eq!(engine(&[&task, &mpi]), ("1/4".into(), "Open MPI"));
    assert_eq!(engine(&[&task, &ARRAY]), ("2/4".into(), "Slurm array"));
    assert_eq!(engine(&[&STEP, &ARRAY]), ("3/8".into(), "Slurm"));
    assert_eq!(engine(&[&task]), ("0/1".into(), "Slurm"));
    let pmi = [("PMI_RANK", "3"), ("PMI_SIZE", "8")];
    assert_eq!(engine(&[&pmi, &STEP]), ("3/8".into(), "Slurm"));
    let by_hand = [("LLMSCEN_SHARD", "5"), ("LLMSCEN_SHARDS", "6")];
    assert_eq!(
        engine(&[&STEP, &mpi, &by_hand]),
        ("5/6".into(), "environment")
    );
}

#[test]
fn a_wrong_environment_is_an_error() {
    assert_eq!(found(&[]), Err(ShardError::NotFound));
    // A batch script: a rank, but no step.
    assert_eq!(found(&[("SLURM_PROCID", "0")]), Err(ShardError::NotFound));
    assert_eq!(
        found(&[("RANK", "4"), ("WORLD_SIZE", "4")]),
        Err(ShardError::OutOfRange { index: 4, count: 4 })
    );
    assert_eq!(
        found(&[("RANK", "0"), ("WORLD_SIZE", "0")]),
        Err(ShardError::OutOfRange { index: 0, count: 0 })
    );
    let value = |name, value: &str| {
        let value = value.to_owned();
        Err(ShardError::Variable { name, value })
    };
    assert_eq!(
        found(&[("RANK", "one"), ("WORLD_SIZE", "4")]),
        value("RANK", "one")
    );
    assert_eq!(
        found(&[("LLMSCEN_SHARD", "0"), ("LLMSCEN_SHARDS", "-4")]),
        value("LLMSCEN_SHARDS", "-4")
    );
    let uneven = [&ARRAY[..], &[("SLURM_ARRAY_TASK_STEP", "4")]].concat();
    assert_eq!(found(&uneven), value("SLURM_ARRAY_TASK_ID", "7"));
}

#[test]
fn a_load_that_cannot_be_split_is_refused() {
    let eight = Shard { index: 3, count: 8 };
    let load = |shape, max_in_flight: Option<u32>| Load {
        max_in_flight: max_in_flight.map(|of| MaxInFlight {
            of,
            then: AtLimit::Drop,
        }),
        ..Load::new(shape)
    };
    let stage = UserStage {
        from: 0,
        to: 7,
        span: Nanos(1),
    };
    let ramp = Shape::Users {
        stages: [stage].into(),
    };
    for (load, text) in [
        (load(Shape::Static { batch: 64 }, None), "`load.static`"),
        (
            load(shape(Some(7)), None),
            "the number of users is 7, less than the number of shards (8)",
        ),
        (load(ramp, None), "the number of users is 7"),
        (
            load(shape(None), Some(7)),
            "`load.max_in_flight` is 7, less than",
        ),
    ] {
        let refused = eight.check_load(&load).unwrap_err();
        assert!(
            refused.starts_with(text) && refused.contains("\n  help: "),
            "{refused}"
        );
        assert_eq!(Shard::default().check_load(&load), Ok(()));
    }
    for load in [
        load(shape(Some(8)), None),
        load(shape(None), Some(8)),
        load(shape(None), None),
    ] {
        assert_eq!(eight.check_load(&load), Ok(()));
    }
}
