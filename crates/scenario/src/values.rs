//! Values with a notation of their own, a file each: what is expected, how it is read, what an editor is told.

pub(crate) mod address;
pub(crate) mod duration;
pub(crate) mod jsonpath;
pub(crate) mod models;
pub(crate) mod quantity;
pub(crate) mod quantity_with_unit;
pub(crate) mod rate;
pub(crate) mod retry_on;
pub(crate) mod seed;
pub(crate) mod share;
pub(crate) mod sizes;
pub(crate) mod stage;
pub(crate) mod times;
pub(crate) mod version;
pub(crate) mod wait;
pub(crate) mod word;

use crate::fault::{Mistake, Review};
use crate::tree::Node;
use crate::validate::found;

/// Files that a value is not `noun`, with examples of what is.
pub(crate) fn expect(node: &Node, noun: &str, examples: &str, review: &mut Review) {
    let mistake = Mistake::new(node.at, format!("`{}` must be {noun}", review.key), found(node, noun));
    review.push(if examples.is_empty() { mistake } else { mistake.help(format!("For example {examples}.")) });
}
