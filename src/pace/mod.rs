//! Floor 1. When requests are due: seeds in, due times out.
