//! Values with a notation of their own: what is expected, how it is parsed, its JSON Schema.

pub(crate) mod jsonpath;
pub(crate) mod load;
pub(crate) mod number;
pub(crate) mod target;
pub(crate) mod text;
pub(crate) mod time;

use crate::fault::{Mistake, Review};
use crate::tree::Node;
use crate::validate::found;

/// Files that a value is not `noun`, with examples of what is.
pub(crate) fn expect(node: &Node, noun: &str, examples: &str, review: &mut Review) {
    let mistake = Mistake::new(node.at, format!("`{}` must be {noun}", review.key), found(node, noun));
    review.push(if examples.is_empty() { mistake } else { mistake.help(format!("For example {examples}.")) });
}
