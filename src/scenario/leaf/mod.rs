//! Values with a notation of their own, a file each: what is expected, how it is read, what an editor is told.

pub(crate) mod duration;
pub(crate) mod models;
pub(crate) mod quantity;
pub(crate) mod rate;
pub(crate) mod share;
pub(crate) mod times;
pub(crate) mod word;

use crate::scenario::fault::{Mistake, Review};
use crate::scenario::shape::found;
use crate::scenario::tree::Node;

/// Files that `node` is not what was expected.
pub(crate) fn expect(node: &Node, expected: &str, review: &mut Review) {
    review.push(Mistake::new(node.at, format!("this is not {expected}"), found(node, expected)));
}
