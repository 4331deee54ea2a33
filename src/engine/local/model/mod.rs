//! A decoder of the Llama family.

use super::ask::{Ask, Worked};
use super::error::LocalError;
use crate::model::local::{Loaded, Local};
use crate::model::seed::Seed;
use crate::model::units::Nanos;

/// A model that is loaded.
pub struct Model;

impl Model {
    /// Loads a model: a Hugging Face folder, a .gguf file, or `random:tiny`, whose weights are drawn from `seed`.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    pub fn load(name: &str, _spec: &Local, _seed: Seed) -> Result<(Model, Loaded), LocalError> {
        Err(LocalError::NotThere { name: name.to_owned() })
    }

    /// The tokens of a text, the special ones that the tokenizer puts around it among them where `special`.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    pub fn encode(&self, _text: &str, _special: bool) -> Result<Vec<u32>, LocalError> {
        Ok(Vec::new())
    }

    /// The prompt text of a conversation, an array of messages, by the model's chat template; None where it has none.
    ///
    /// # Errors
    /// The template refuses the messages.
    pub fn chat(&self, _messages: &serde_json::Value) -> Result<Option<String>, LocalError> {
        Ok(None)
    }

    /// The tokens that a prompt and its reply may have together.
    pub fn limit(&self) -> u64 {
        0
    }

    /// The width of its logits.
    pub fn vocabulary(&self) -> usize {
        0
    }

    /// Works on a batch. `clock` is read after the device was waited for; `alive` is asked for each row before each step, and
    /// false gives the row up.
    ///
    /// # Errors
    /// A prompt that is empty or too long, or a device that fails.
    pub fn work(
        &mut self,
        _asks: &[Ask],
        _clock: &dyn Fn() -> Nanos,
        _alive: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Worked, LocalError> {
        Err(LocalError::Compute { reason: "not loaded".into() })
    }

    /// Bytes in use on the device; None on the CPU, or where it does not tell.
    pub fn device_memory(&self) -> Option<u64> {
        None
    }
}
