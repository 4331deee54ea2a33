//! Floor 1. A sample and a check give a verdict.
