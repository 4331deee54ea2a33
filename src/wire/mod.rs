//! Floor 1. Protocols: bytes in, events out.
