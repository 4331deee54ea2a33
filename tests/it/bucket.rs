//! Shards that share a bucket, on an S3 server that the test starts (`moto` from PyPI).

use crate::lab::*;
use crate::launch::{is_missing, python_with};
use crate::shards::{
    DATA, KEY, Simulator, assert_received_once, assert_same_requests, codes, expect_codes,
    finish_all, scenario,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ID: &str = "AKIDexample42";
const SECRET: &str = "secret-of-the-bucket-42";

/// A running S3 server with the bucket `bench`.
struct Bucket {
    server: Child,
    address: String,
}

impl Bucket {
    /// None without moto.
    fn start() -> Option<Bucket> {
        let python = python_with("moto.server, flask_cors");
        if is_missing("moto[server]", python.is_some()) {
            return None;
        }
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let server = Command::new(python.unwrap())
            .args([
                "-m",
                "moto.server",
                "-H",
                "127.0.0.1",
                "-p",
                &address.port().to_string(),
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let bucket = Bucket {
            server,
            address: address.to_string(),
        };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "moto does not listen"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(bucket.get("PUT", "/bench").starts_with(b"HTTP/1.1 200"));
        Some(bucket)
    }

    /// A response of the server, whole.
    fn get(&self, method: &str, path: &str) -> Vec<u8> {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            self.address
        );
        socket.write_all(head.as_bytes()).unwrap();
        let mut response = Vec::new();
        socket.read_to_end(&mut response).unwrap();
        response
    }

    /// Keys of all objects.
    fn keys(&self) -> Vec<String> {
        let list = String::from_utf8(self.get("GET", "/bench?list-type=2")).unwrap();
        list.split("<Key>")
            .skip(1)
            .map(|rest| rest.split("</Key>").next().unwrap().to_owned())
            .collect()
    }

    fn shard(&self, lab: &Lab, shard: &str, wait: &str) -> Child {
        let output: &[&str] = if shard.starts_with('0') {
            &["--output", "out"]
        } else {
            &[]
        };
        let args = [
            "run",
            "s.yaml",
            "--shard",
            shard,
            "--via",
            "s3://bench/runs",
            "--run",
            KEY,
            "--wait",
            wait,
        ];
        self.command(lab, &[&args, output].concat())
            .spawn()
            .unwrap()
    }

    fn command(&self, lab: &Lab, args: &[&str]) -> Command {
        let mut command = lab.command(args);
        command.envs([
            ("AWS_ACCESS_KEY_ID", ID),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL", &format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true"),
        ]);
        command
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn four_shards_share_a_bucket() {
    let Some(bucket) = Bucket::start() else {
        return;
    };
    let (lab, alone) = (Lab::new(), Lab::new());
    let text = |url: &str| {
        scenario(
            url,
            &format!("{DATA}load: {{ rate: 60/s, duration: 3s, warmup: 300ms }}\n"),
        )
    };
    let own = Simulator::start(&alone, "target.simulator.alpha=5ms");
    alone.run(&text(&own.url)).expect(0);
    let server = Simulator::start(&lab, "target.simulator.alpha=5ms");
    lab.file("s.yaml", text(&server.url));
    let shards = (0..4)
        .map(|index| bucket.shard(&lab, &format!("{index}/4"), "60s"))
        .collect();
    expect_codes(&finish_all(shards), &[0; 4]);
    let out = lab.path().join("out");
    assert_same_requests(
        "bucket",
        &alone.path().join("out"),
        &out,
        &["intended_ns", "bytes_out", "usage_prompt"],
    );
    assert_received_once("bucket", server.received(), &out);
    // The report can be made again from the bucket alone.
    let again = bucket.command(
        &lab,
        &[
            "merge",
            &format!("s3://bench/runs/{KEY}"),
            "--output",
            "again",
        ],
    );
    Ran::of({ again }.output().unwrap()).expect(0);
    assert_eq!(
        lab.json("again/results.json")["cases"][0]["metrics"],
        lab.results()["cases"][0]["metrics"]
    );
    let keys = bucket.keys();
    assert!(
        keys.contains(&format!("runs/{KEY}/rows/0/3.parquet")),
        "{keys:?}"
    );
    for key in keys {
        let object = bucket.get("GET", &format!("/bench/{key}"));
        for secret in [ID, SECRET] {
            let found = object
                .windows(secret.len())
                .any(|part| part == secret.as_bytes());
            assert!(!found, "{key} contains {secret}");
        }
    }
}

#[test]
fn a_shard_that_is_started_twice_on_a_bucket_ends_the_run() {
    let Some(bucket) = Bucket::start() else {
        return;
    };
    let lab = Lab::new();
    lab.file(
        "s.yaml",
        scenario(
            "http://127.0.0.1:9",
            &format!("{DATA}load: {{ rate: 20/s, requests: 20 }}\n"),
        ),
    );
    let shards = ["1/2", "1/2", "0/2"].map(|shard| bucket.shard(&lab, shard, "15s"));
    let ran = finish_all(shards.into());
    assert!(codes(&ran)[..2].contains(&3), "{ran:#?}");
    assert!(
        ran.iter()
            .any(|ran| ran.err.contains("shard 1 was started twice")),
        "{ran:#?}"
    );
}
