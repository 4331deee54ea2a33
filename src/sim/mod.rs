//! Floor 2. The built-in server: an independent witness that logs its own writes.
