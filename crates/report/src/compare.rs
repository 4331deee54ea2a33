//! Runs side by side: a table for a terminal, values for a spreadsheet, Markdown, HTML and JSON.

mod json;
mod labels;
mod notes;
mod pages;
mod tables;

pub use json::{COMPARISON_SCHEMA, json};
pub use labels::ended;
pub use notes::{differs, notes};
pub use pages::{html, markdown};
pub use tables::{separated, table};

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
