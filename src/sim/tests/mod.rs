//! Tests of the whole room: laws of the engine, queues with known answers, and the server over real sockets.

mod answers;
mod client;
mod faults;
mod http;
mod laws;
mod queues;
mod timing;
