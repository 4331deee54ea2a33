//! Decoding in this process beside the plain loop of the same library.

fn main() {}
