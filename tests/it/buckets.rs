//! The shared store on a real S3 server.

use crate::lab::Lab;
use crate::moto::Moto;
use llmscen::store::shared_store::{Creation, Objects, SharedStore};
use std::fs;
use std::sync::Barrier;

#[test]
fn a_bucket_keeps_the_objects_of_each_run() {
    let Some(moto) = Moto::start("bench") else {
        return;
    };
    let open = |url, run| SharedStore::open(url, run, &moto.env()).unwrap();
    let (store, other) = (open("s3://bench/a/b", "one"), open("s3://bench", "two"));
    assert_eq!(store.create("hello/3", b"x").unwrap(), Creation::Created);
    let exists = Creation::Exists(b"x".to_vec());
    assert_eq!(store.create("hello/3", b"y").unwrap(), exists);
    assert_eq!(store.get("hello/3").unwrap().unwrap(), b"x");
    assert_eq!(store.get("hello/4").unwrap(), None);
    for content in [b"1", b"2"] {
        store.put("hello/10", content).unwrap();
        assert_eq!(store.get("hello/10").unwrap().unwrap(), content);
    }
    store.put("hello/deep/er", b"").unwrap();
    store.put("hello2", b"").unwrap();
    let keys = ["hello/10", "hello/3", "hello/deep/er"];
    assert_eq!(store.list("hello").unwrap(), keys);
    assert_eq!(store.list("nothing").unwrap(), [""; 0]);
    assert_eq!(other.get("hello/3").unwrap(), None);
    assert_eq!(store.url(), "s3://bench/a/b/one");
    assert!(!store.is_folder());
    // As another tool sees them.
    let whole = open("s3://bench/a", "b");
    assert_eq!(whole.get("one/hello/3").unwrap().unwrap(), b"x");
}

#[test]
fn threads_that_race_for_an_object_of_a_bucket_learn_who_won() {
    let Some(moto) = Moto::start("bench") else {
        return;
    };
    let store = SharedStore::open("s3://bench", "race", &moto.env()).unwrap();
    for key in (0..5).map(|key| format!("hello/{key}")) {
        let start = Barrier::new(8);
        let done: Vec<(u8, Creation)> = std::thread::scope(|scope| {
            let create = |nonce: u8| {
                start.wait();
                (nonce, store.create(&key, &[nonce]).unwrap())
            };
            let threads: Vec<_> = (0..8).map(|i| scope.spawn(move || create(i))).collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let created: Vec<u8> = done
            .iter()
            .filter(|(_, creation)| *creation == Creation::Created)
            .map(|(nonce, _)| *nonce)
            .collect();
        // moto checks, then writes: two may create the same object.
        let kept = store.get(&key).unwrap().unwrap();
        assert!(created.contains(&kept[0]), "{key}: {kept:?} of {done:?}");
        for (nonce, creation) in done {
            if let Creation::Exists(found) = creation {
                assert!(created.contains(&found[0]), "{key}: {found:?} for {nonce}");
            }
        }
    }
}

#[test]
fn files_of_several_parts_are_copied_to_a_bucket_and_back() {
    let Some(moto) = Moto::start("bench") else {
        return;
    };
    let lab = Lab::new();
    let store = SharedStore::open("s3://bench", "big", &moto.env()).unwrap();
    let (from, to) = (lab.path().join("from"), lab.path().join("new/to"));
    for size in [0, 20_000_001_u64] {
        let bytes: Vec<u8> = (0..size)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        fs::write(&from, &bytes).unwrap();
        store.upload("rows/0/1.parquet", &from).unwrap();
        store.download("rows/0/1.parquet", &to).unwrap();
        assert!(fs::read(&to).unwrap() == bytes, "{size} bytes differ");
    }
}

#[test]
fn a_bucket_that_is_missing_or_unreachable_says_so() {
    let Some(mut moto) = Moto::start("bench") else {
        return;
    };
    let wrong = SharedStore::open("s3://other", "r", &moto.env()).unwrap();
    let help = "check the bucket, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL";
    let errors = [
        ("write s3://other/r/a", wrong.put("a", b"x").unwrap_err()),
        ("write s3://other/r/a", wrong.create("a", b"x").unwrap_err()),
        ("read s3://other/r/a", wrong.get("a").unwrap_err()),
        ("list s3://other/r/a", wrong.list("a").unwrap_err()),
    ];
    for (what, error) in errors {
        assert_eq!(
            error.to_string(),
            format!("cannot {what}: the bucket does not exist; {help}")
        );
        assert!(!error.is_transient());
    }
    let store = SharedStore::open("s3://bench", "r", &moto.env()).unwrap();
    moto.stop();
    let error = store.put("a", b"x").unwrap_err();
    assert!(error.is_transient(), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with("cannot write s3://bench/r/a: ")
            && text.ends_with("; check that the store can be reached from this host"),
        "{text}"
    );
}
