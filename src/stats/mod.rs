//! Floor 1. Small statistical functions, each with its source.
