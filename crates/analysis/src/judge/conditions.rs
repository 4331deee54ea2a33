//! What a judge has to know of a case besides its rows.

use llmscen_core::load::Shape;

/// How the load of a case bounds the queue of its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadKind {
    /// Users who wait for their replies: at most one request of each is in the queue.
    FixedUsers,
    /// Arrivals at one rate: the queue may grow without bound, and begins empty.
    Arrivals,
    /// A load that changes with time, or of which nothing is known.
    #[default]
    Other,
}

impl LoadKind {
    /// The kind of a shape.
    pub fn of(shape: &Shape) -> LoadKind {
        match shape {
            Shape::Closed { .. } | Shape::Users { .. } => LoadKind::FixedUsers,
            Shape::Open { .. } => LoadKind::Arrivals,
            Shape::Burst | Shape::Replay { .. } | Shape::Rates { .. } | Shape::Static { .. } => LoadKind::Other,
        }
    }
}

/// The conditions that a case was measured under.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Whether the self-audit found the measurement sound.
    pub valid: bool,
    /// The kind of its load.
    pub load: LoadKind,
}
