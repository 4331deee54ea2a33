//! Floor 1. Outcomes as a polars frame, and what is taken from it.
