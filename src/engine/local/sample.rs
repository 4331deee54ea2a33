//! How the next token is chosen from the logits.
