//! Kinds of generated content.

/// The kind of generated content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentKind {
    /// Reasoning before the answer.
    Reasoning,
    /// A summary in place of the reasoning: its tokens are not those that the server counts.
    Summary,
    /// The answer, or the transcript of its audio.
    Answer,
    /// A refusal to answer.
    Refusal,
    /// The name or the arguments of a tool call.
    ToolCall,
    /// Audio, images: content, but no text.
    Media,
}
