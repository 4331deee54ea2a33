//! Tests of a group.
