//! Syncs that fail: libfiu stands between the server and its C library, as `fiu-run` and `fiu-ctrl` of Debian's fiu-utils put it
//! there.

use std::path::{Path, PathBuf};

use super::disk;

/// The syscalls that fail.
const POINT: &str = "name=posix/io/sync/*";

/// What makes syncs of a server fail.
#[derive(Clone, Debug)]
pub(super) struct Syncs {
    pipes: PathBuf,
}

impl Syncs {
    /// With its pipes in a folder.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn make(folder: &Path) -> Result<Self, String> {
        disk::run("fiu-run", ["-x", "true"])
            .map_err(|reason| format!("{reason}; install fiu-utils"))?;
        Ok(Self {
            pipes: folder.join("fiu"),
        })
    }

    /// What starts a server whose syncs can be made to fail.
    pub(super) fn launcher(&self) -> Vec<String> {
        let pipes = self.pipes.display().to_string();
        ["fiu-run", "-x", "-f", &pipes].map(str::to_owned).to_vec()
    }

    /// From here on syncs of this process fail: all of them, or each with this probability in percent.
    ///
    /// # Errors
    /// The process does not listen to it.
    pub(super) fn fail(&self, process: u32, percent: u64) -> Result<(), String> {
        match percent {
            100.. => self.control(process, &format!("enable {POINT}")),
            _ => self.control(
                process,
                &format!("enable_random {POINT},probability=0.{percent:02}"),
            ),
        }
    }

    /// From here on they work.
    ///
    /// # Errors
    /// The process does not listen to it.
    pub(super) fn mend(&self, process: u32) -> Result<(), String> {
        self.control(process, &format!("disable {POINT}"))
    }

    fn control(&self, process: u32, command: &str) -> Result<(), String> {
        let (pipes, process) = (self.pipes.display().to_string(), process.to_string());
        disk::run("fiu-ctrl", ["-f", &pipes, "-c", command, &process])
    }
}
