//! A thread that goes through a store again and again until its owner drops it. Scrub and sweep say what a pass does.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The thread. It ends, and is waited for, when this is dropped.
#[derive(Debug)]
pub(super) struct Passes {
    /// The thread ends when this is gone.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The thread's end of it.
#[derive(Debug)]
pub(super) struct Stopped(Receiver<()>);

impl Stopped {
    /// Waits; `None` if the thread is to end.
    pub(super) fn pause(&self, time: Duration) -> Option<()> {
        match self.0.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Some(()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

impl Passes {
    /// Starts a thread of this name, which calls `pass` until it gives `None`.
    ///
    /// # Errors
    /// The system has no thread for it.
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
            // It reads a page at most. A panic in it has ended the process already.
            let _ = thread.join();
        }
    }
}
