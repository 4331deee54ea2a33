//! Tests of the whole room: laws of the engine, queues with known answers, and the server over real sockets.

mod laws;
mod queues;
