//! A thread or task that panics while requests are sent ends the run as an error: what waits for it would wait for ever.

use crate::run::execution::stop::Stop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;

/// The words of the first panic while requests were sent.
static FIRST: OnceLock<String> = OnceLock::new();
/// The switch of the run.
static SWITCH: Mutex<Option<Stop>> = Mutex::new(None);
/// Rounds that are sending. A panic elsewhere has an error of its own, and nothing to stop.
static SENDING: AtomicUsize = AtomicUsize::new(0);
static PANICKED: Notify = Notify::const_new();

/// How long a round may take to end after a panic.
pub const GRACE: Duration = Duration::from_secs(10);

/// Watches for panics from here on, for as long as the process lives.
pub fn watch() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
        // The main thread only displays the run, and its panics are caught.
        if SENDING.load(Ordering::Acquire) > 0 && thread != "main" {
            let _ = FIRST.set(format!("the {thread} thread panicked: {}", panic.payload_as_str().unwrap_or("no message")));
            // The first press lets requests in flight end, and one of them may be the one that cannot.
            if let Some(stop) = SWITCH.try_lock().ok().as_deref().and_then(Option::as_ref) {
                stop.press();
                stop.press();
            }
            PANICKED.notify_one();
        }
    }));
}

/// Takes the switch that a panic presses.
pub fn presses(stop: &Stop) {
    *SWITCH.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(stop.clone());
}

/// The first panic while requests were sent.
pub fn first() -> Option<&'static str> {
    FIRST.get().map(String::as_str)
}

/// Resolves where a round does not end after a panic.
pub async fn stuck() -> &'static str {
    loop {
        PANICKED.notified().await;
        tokio::time::sleep(GRACE).await;
        if let Some(words) = first().filter(|_| SENDING.load(Ordering::Acquire) > 0) {
            return words;
        }
    }
}

/// A round that is sending, until this is dropped.
pub struct Sending(());

impl Sending {
    /// Begins.
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

/// Presses a switch if its thread panics: the others do not go on without it.
pub struct Alarm(pub Stop);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.press();
        }
    }
}
