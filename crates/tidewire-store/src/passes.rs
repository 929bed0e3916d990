//! A thread that repeats passes over a store until its owner drops it. The scrub and the history sweep define what a pass does.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The thread. Dropping this value stops the thread and waits for its end.
#[derive(Debug)]
pub(super) struct Passes {
    /// The thread ends when this sender is dropped.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The thread's end of the stop channel.
#[derive(Debug)]
pub(super) struct Stopped(Receiver<()>);

impl Stopped {
    /// Waits for `time`; `None` if the thread must end.
    pub(super) fn pause(&self, time: Duration) -> Option<()> {
        match self.0.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Some(()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

impl Passes {
    /// Starts a thread with this name, which calls the pass that `passes` returns until the pass returns `None`.
    ///
    /// # Errors
    /// The system can't start a thread.
    pub(super) fn start<P>(name: &str, passes: impl FnOnce(Stopped) -> P) -> std::io::Result<Self>
    where
        P: FnMut() -> Option<()> + Send + 'static,
    {
        let (stop, stopped) = mpsc::channel();
        let mut pass = passes(Stopped(stopped));
        let thread = Builder::new()
            .name(name.to_owned())
            .spawn(move || while pass().is_some() {})?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Passes {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread reads one page more at most. A panic in it has already ended the process.
            let _ = thread.join();
        }
    }
}
