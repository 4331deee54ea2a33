//! A minimal blocking client that returns responses as received, including their framing.

use crate::{Running, Truth, start};
use llmscen_core::seed::Seed;
use llmscen_core::simulator::{Faults, Simulator};
use llmscen_core::units::Nanos;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A response as received.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// The body: one string per HTTP chunk, or one string with `content-length`.
    pub(crate) chunks: Vec<String>,
    /// The error before the end of the body, if any.
    pub(crate) broken: Option<io::ErrorKind>,
}

impl Answer {
    pub(crate) fn body(&self) -> String {
        self.chunks.concat()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body()).unwrap()
    }

    /// The JSON of each event except `[DONE]`: of `data:` lines, and of NDJSON lines.
    pub(crate) fn events(&self) -> Vec<serde_json::Value> {
        let body = self.body();
        let data = body.lines().filter_map(|line| {
            line.strip_prefix("data:")
                .or(line.starts_with('{').then_some(line))
        });
        data.map(str::trim)
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    /// The names of named events.
    pub(crate) fn names(&self) -> Vec<String> {
        let body = self.body();
        body.lines()
            .filter_map(|line| line.strip_prefix("event:"))
            .map(|name| name.trim().to_owned())
            .collect()
    }
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(server: &Running) -> Client {
        let stream = TcpStream::connect(server.addr()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Client {
            stream,
            buffer: Vec::new(),
        }
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.raw(&format!("GET {path} HTTP/1.1\r\nHost: sim\r\n\r\n"))
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Answer {
        self.post_with(path, "", body)
    }

    /// A POST with additional header lines.
    pub(crate) fn post_with(&mut self, path: &str, headers: &str, body: &str) -> Answer {
        let length = body.len();
        self.raw(&format!(
            "POST {path} HTTP/1.1\r\nHost: sim\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        ))
    }

    /// A chat with three prompt tokens and additional fields.
    pub(crate) fn chat(&mut self, fields: &str) -> Answer {
        let body = format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"123456789"}}]{fields}}}"#
        );
        self.post("/v1/chat/completions", &body)
    }

    pub(crate) fn raw(&mut self, request: &str) -> Answer {
        self.stream.write_all(request.as_bytes()).unwrap();
        self.answer()
    }

    pub(crate) fn answer(&mut self) -> Answer {
        let mut answer = Answer::default();
        answer.broken = self.read_into(&mut answer).err().map(|error| error.kind());
        answer
    }

    fn read_into(&mut self, answer: &mut Answer) -> io::Result<()> {
        answer.head = self.until("\r\n\r\n")?;
        answer.status = answer.head[9..12].parse().unwrap();
        let length = answer
            .head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        if let Some(length) = length {
            let body = self.exactly(length.parse().unwrap())?;
            answer.chunks.push(body);
            return Ok(());
        }
        while answer.head.contains("transfer-encoding: chunked") {
            let size = self.until("\r\n")?;
            let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
            let chunk = self.exactly(size + 2)?;
            if size == 0 {
                return Ok(());
            }
            answer.chunks.push(chunk[..size].to_owned());
        }
        Ok(())
    }

    fn until(&mut self, end: &str) -> io::Result<String> {
        loop {
            if let Some(at) = self
                .buffer
                .windows(end.len())
                .position(|bytes| bytes == end.as_bytes())
            {
                return self.exactly(at + end.len());
            }
            self.fill()?;
        }
    }

    fn exactly(&mut self, length: usize) -> io::Result<String> {
        while self.buffer.len() < length {
            self.fill()?;
        }
        Ok(String::from_utf8(self.buffer.drain(..length).collect()).unwrap())
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut bytes = [0; 16 << 10];
        let read = self.stream.read(&mut bytes)?;
        self.buffer.extend_from_slice(&bytes[..read]);
        if read == 0 {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok(())
        }
    }
}

/// A simulator with steps of one millisecond and a truth log.
pub(crate) fn simulator(faults: Faults) -> Running {
    serving(&Simulator { faults, ..fast() })
}

/// A simulator with this configuration and a truth log.
pub(crate) fn serving(config: &Simulator) -> Running {
    start(
        config,
        Seed(7),
        "127.0.0.1:0".parse().unwrap(),
        Truth::since(Instant::now()),
    )
    .unwrap()
}

pub(crate) fn fast() -> Simulator {
    Simulator {
        alpha: Nanos::from_millis(1),
        beta: Nanos(0),
        gamma: Nanos(0),
        delta: Nanos(0),
        ..Simulator::default()
    }
}
