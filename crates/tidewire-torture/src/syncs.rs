//! Makes syncs of a server fail. `fiu-run` of Debian's fiu-utils loads libfiu between the server and its C library, and `fiu-ctrl`
//! controls it.

use std::path::{Path, PathBuf};

use super::disk;

/// The system calls that fail, as a name of libfiu.
const POINT: &str = "name=posix/io/sync/*";

/// Makes syncs of a server fail and work again.
#[derive(Clone, Debug)]
pub(super) struct Syncs {
    pipes: PathBuf,
}

impl Syncs {
    /// Keeps the control pipes of libfiu in a folder.
    ///
    /// # Errors
    /// The system has no fiu-utils.
    pub(super) fn make(folder: &Path) -> Result<Self, String> {
        disk::run("fiu-run", ["-x", "true"])
            .map_err(|reason| format!("{reason}; install fiu-utils"))?;
        Ok(Self {
            pipes: folder.join("fiu"),
        })
    }

    /// The command that starts a server whose syncs can fail.
    pub(super) fn launcher(&self) -> Vec<String> {
        let pipes = self.pipes.display().to_string();
        ["fiu-run", "-x", "-f", &pipes].map(str::to_owned).to_vec()
    }

    /// Makes the syncs of this process fail: all of them, or each with this probability in percent.
    ///
    /// # Errors
    /// The process does not answer `fiu-ctrl`.
    pub(super) fn fail(&self, process: u32, percent: u64) -> Result<(), String> {
        match percent {
            100.. => self.control(process, &format!("enable {POINT}")),
            _ => self.control(
                process,
                &format!("enable_random {POINT},probability=0.{percent:02}"),
            ),
        }
    }

    /// Makes the syncs of this process work again.
    ///
    /// # Errors
    /// The process does not answer `fiu-ctrl`.
    pub(super) fn repair(&self, process: u32) -> Result<(), String> {
        self.control(process, &format!("disable {POINT}"))
    }

    fn control(&self, process: u32, command: &str) -> Result<(), String> {
        let (pipes, process) = (self.pipes.display().to_string(), process.to_string());
        disk::run("fiu-ctrl", ["-f", &pipes, "-c", command, &process])
    }
}
