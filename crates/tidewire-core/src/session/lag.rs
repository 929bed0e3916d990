//! The state of a session that reads more slowly than messages are published for it.

use std::collections::VecDeque;

use super::{Session, Sessions};
use crate::address::SessionId;
use crate::membership::ChannelId;

/// The state of a session from when it lags until it has received everything that it missed.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// Whether messages wait that the session has not read.
    pub(crate) is_behind: bool,
    /// Whether enough was sent. The rest follows when the session has read that.
    pub(crate) is_paused: bool,
    /// The records of which the session missed changes and that are not requested yet.
    pub(crate) owed: VecDeque<ChannelId>,
    /// Requested values that have not arrived yet.
    pub(crate) asked: u32,
    /// Bytes of values sent since the session last had read everything.
    pub(crate) given_bytes: usize,
}

impl Session {
    /// Its state of lagging, if it lags or catches up.
    pub(crate) fn lag_mut(&mut self) -> Option<&mut Lag> {
        self.state.as_mut()?.lag.as_deref_mut()
    }
}

impl Sessions {
    /// The state of lagging of a session, if it lags or catches up.
    pub(crate) fn lag_mut(&mut self, id: SessionId) -> Option<&mut Lag> {
        self.find_mut(id)?.lag_mut()
    }
}
