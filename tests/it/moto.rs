//! A real S3 server for tests: `moto_server` of PyPI, installed by `tests/real/install_moto.sh`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A running server with one bucket; killed when dropped.
pub struct Moto {
    child: Child,
    /// `127.0.0.1:PORT`.
    address: String,
}

impl Moto {
    /// Starts a server with an empty bucket. None if moto is not installed, which is printed.
    pub fn start(bucket: &str) -> Option<Moto> {
        let mut child = Command::new(installed()?)
            .args(["-H", "127.0.0.1", "-p", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("moto_server starts");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("Running on http://")?.1.to_string()))
            .expect("moto_server prints its address");
        // It logs each request, and would stop if nobody read that.
        std::thread::spawn(move || lines.for_each(drop));
        let moto = Moto { child, address };
        moto.create_bucket(bucket);
        Some(moto)
    }

    fn create_bucket(&self, bucket: &str) {
        let answer = self.request("PUT", &format!("/{bucket}"));
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    }

    /// The response to a request without a signature.
    fn request(&self, method: &str, path: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.address).expect("moto accepts connections");
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            self.address
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    }

    /// The objects of a bucket by key, each as the whole response that contains it.
    pub fn objects(&self, bucket: &str) -> BTreeMap<String, Vec<u8>> {
        let listed = self.request("GET", &format!("/{bucket}?list-type=2"));
        let listed = String::from_utf8(listed).unwrap();
        let keys = listed
            .split("<Key>")
            .skip(1)
            .filter_map(|rest| rest.split("</Key>").next());
        keys.map(|key| {
            let object = self.request("GET", &format!("/{bucket}/{key}"));
            (key.to_owned(), object)
        })
        .collect()
    }

    /// The variables that a process needs to use the bucket as `s3://BUCKET`.
    pub fn env(&self) -> BTreeMap<String, String> {
        let endpoint = format!("http://{}", self.address);
        [
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test-secret"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT_URL", &endpoint),
        ]
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .into()
    }

    /// Ends the server; its objects are lost.
    pub fn stop(&mut self) {
        // One that has ended is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The Python that has moto, and with it botocore.
pub fn python() -> Option<PathBuf> {
    Some(installed()?.with_file_name("python3"))
}

/// The server program: `LLMSCEN_MOTO`, or that in `target/moto`.
fn installed() -> Option<PathBuf> {
    let program = std::env::var_os("LLMSCEN_MOTO").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/moto/bin/moto_server"),
        PathBuf::from,
    );
    if program.is_file() {
        return Some(program);
    }
    eprintln!(
        "SKIPPED: no moto; run tests/real/install_moto.sh or set LLMSCEN_MOTO to test a store on S3 and signatures of AWS"
    );
    None
}
