//! Tests of the whole room: laws of the engine, queues with known answers, and the server over real sockets.

mod answers;
mod anthropic;
mod choices;
mod client;
mod dashscope;
mod faults;
mod http;
mod laws;
mod ollama;
mod pooled;
mod protocol_faults;
mod queues;
mod responses;
mod search;
mod sharing;
mod tgi;
mod timing;
