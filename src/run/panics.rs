//! Ends the run when a thread or task panics while requests are sent: whatever waits for it would wait forever.

use crate::run::stop::Stop;
use llmscen_core::bounds::LIMITED_THREAD;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;

/// Message of the first panic while requests were sent.
static FIRST: OnceLock<String> = OnceLock::new();
/// The switch of the run.
static SWITCH: Mutex<Option<Stop>> = Mutex::new(None);
/// Rounds that are sending. A panic at any other time is reported by its thread, and there is nothing to stop.
static SENDING: AtomicUsize = AtomicUsize::new(0);
static PANICKED: Notify = Notify::const_new();

/// How long a round may take to end after a panic.
pub const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Installs the panic hook, for the rest of the process.
pub fn watch() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        let thread = std::thread::current()
            .name()
            .unwrap_or("unnamed")
            .to_owned();
        // The main thread only displays the run, and its panics are caught. A template that panics is an error of its
        // caller.
        let is_harmless = ["main", LIMITED_THREAD].contains(&thread.as_str());
        if SENDING.load(Ordering::Acquire) > 0 && !is_harmless {
            let _ = FIRST.set(format!(
                "the {thread} thread panicked: {}",
                panic.payload_as_str().unwrap_or("no message")
            ));
            // Twice: one press lets requests in flight finish, but the one that panicked cannot.
            if let Some(stop) = SWITCH.try_lock().ok().as_deref().and_then(Option::as_ref) {
                stop.press();
                stop.press();
            }
            PANICKED.notify_one();
        }
    }));
}

/// Sets the switch that a panic presses.
pub fn set_switch(stop: &Stop) {
    *SWITCH
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(stop.clone());
}

/// Message of the first panic while requests were sent.
pub fn first() -> Option<&'static str> {
    FIRST.get().map(String::as_str)
}

/// Resolves if a round does not end after a panic.
pub async fn stuck() -> &'static str {
    loop {
        PANICKED.notified().await;
        tokio::time::sleep(END_TIMEOUT).await;
        if let Some(message) = first().filter(|_| SENDING.load(Ordering::Acquire) > 0) {
            return message;
        }
    }
}

/// Counts a round as sending, until dropped.
pub struct Sending(());

impl Sending {
    /// Starts.
    pub fn begin() -> Sending {
        SENDING.fetch_add(1, Ordering::AcqRel);
        Sending(())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        SENDING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Presses a switch if its thread panics, so that the other threads stop too.
pub struct PressOnPanic(pub Stop);

impl Drop for PressOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.press();
        }
    }
}
