//! Where a scenario names data that are downloaded.

use crate::tree::Span;
use llmscen_core::remote_data::RemoteReference;

/// Where a scenario names data that are downloaded.
#[derive(Clone, Debug)]
pub(crate) struct RemoteUse {
    pub reference: RemoteReference,
    pub path: Span,
    /// The place of each part that is set.
    pub parts: Vec<(&'static str, Span)>,
}
