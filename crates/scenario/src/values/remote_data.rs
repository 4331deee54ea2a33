//! Names of data on the hub, and URLs of data.

use crate::fault::{Mistake, Review};
use crate::tree::Node;
use llmscen_core::remote_data::{HubReference, PREFIX, is_web_url};
use llmscen_core::url_secrets::secret_ranges;

/// Reports a name of the hub that has not the right form, and a URL with a secret, which a plan cannot store.
pub(crate) fn check_name(node: &Node, review: &mut Review) {
    let named = node.text().unwrap_or_default();
    if is_web_url(&named) {
        if !secret_ranges(&named).is_empty() {
            let mistake = Mistake::new(
                node.at,
                "this URL contains a secret, which is not stored in a plan",
                "user, password, or a value of the query",
            );
            review.push(mistake.help("Download the file and set `path` to it."));
        }
        return;
    }
    if HubReference::parse(&named).is_none() {
        let mistake = Mistake::new(
            node.at,
            format!("`{named}` is not a dataset of the hub"),
            "not `hub:org/name`",
        );
        review.push(
            mistake.help("Write `hub:org/name/file.parquet`, or `hub:org/name` and a `split`."),
        );
    }
}

/// Whether a path names data that are downloaded.
pub(crate) fn is_name(path: &str) -> bool {
    path.starts_with(PREFIX) || is_web_url(path)
}
