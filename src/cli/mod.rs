//! Floor 4. The command line.
