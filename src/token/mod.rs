//! Floor 1. Tokenizers: counting, and text of an exact length.
