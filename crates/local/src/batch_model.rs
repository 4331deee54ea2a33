//! What the thread of a model needs of it.

use crate::error::LocalError;
use crate::generation_params::{BatchOutput, GenerationParams};
use llmscen_core::units::Nanos;
use serde_json::Value;

/// How the resident memory of this process is told, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Resident {
    /// Forgets how high it was; false where the system does not let it.
    pub anew: fn() -> bool,
    /// At its highest since then.
    pub peak: fn() -> u64,
    /// Now.
    pub now: fn() -> u64,
    /// What the allocator has mapped for this process now; None where the system does not report it.
    pub reserved: fn() -> Option<u64>,
}

impl Resident {
    /// Does some work; with what it gives, the memory at its highest meanwhile, or where the system does not tell that,
    /// after it.
    pub fn during<T>(self, work: impl FnOnce() -> T) -> (T, u64) {
        let anew = (self.anew)();
        let done = work();
        (done, if anew { (self.peak)() } else { (self.now)() })
    }
}

/// A model that works on batches.
pub trait BatchModel {
    /// The tokens of a text that a chat template made: no special tokens are added.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    fn tokens(&self, text: &str) -> Result<Vec<u32>, LocalError>;

    /// The tokens of a prompt that no chat template made: with the special tokens that the model's files ask for.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    fn plain_tokens(&self, text: &str) -> Result<Vec<u32>, LocalError>;

    /// The prompt text of a conversation by the model's chat template; None where it has none.
    ///
    /// # Errors
    /// The template refuses the messages.
    fn chat(&self, messages: &Value) -> Result<Option<String>, LocalError>;

    /// The tokens that a prompt and its reply may have together.
    fn limit(&self) -> u64;

    /// The width of its logits.
    fn vocabulary(&self) -> usize;

    /// BatchModel on a batch to its end. `clock` is read after the device was waited for; `alive` is asked for each row before each
    /// step, and false gives the row up; a step, or the work on the prompts, that nobody waits for any more may end half done.
    ///
    /// # Errors
    /// A device that fails.
    fn work(
        &mut self,
        asks: &[GenerationParams],
        clock: &dyn Fn() -> Nanos,
        alive: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<BatchOutput, LocalError>;

    /// Bytes in use on the device; None on the processor, or where it does not tell.
    fn device_memory(&self) -> Option<u64>;
}

#[cfg(feature = "local")]
impl BatchModel for crate::model::Model {
    fn tokens(&self, text: &str) -> Result<Vec<u32>, LocalError> {
        self.encode(text, false)
    }

    fn plain_tokens(&self, text: &str) -> Result<Vec<u32>, LocalError> {
        self.encode(text, true)
    }

    fn chat(&self, messages: &Value) -> Result<Option<String>, LocalError> {
        self.chat(messages)
    }

    fn limit(&self) -> u64 {
        self.limit()
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary()
    }

    fn work(
        &mut self,
        asks: &[GenerationParams],
        clock: &dyn Fn() -> Nanos,
        alive: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<BatchOutput, LocalError> {
        self.work(asks, clock, alive)
    }

    fn device_memory(&self) -> Option<u64> {
        self.device_memory()
    }
}
