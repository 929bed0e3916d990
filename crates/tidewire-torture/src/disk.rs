//! Disks that can be tormented: an ext4 in a file, whose power can be cut, and a small one in memory, which can be full. Both
//! are mounts of this process and end with it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidewire_net::power;

/// The disk of a data folder.
#[derive(Debug)]
pub(super) enum Disk {
    /// That of the machine.
    Own,
    /// One whose power can be cut.
    Volume(Volume),
    /// One that can be full.
    Small(SmallDisk),
}

/// Bytes of the ext4; the file is sparse.
const VOLUME_BYTES: u64 = 256 << 20;
/// The size of the disk that fills up, as mount(8) takes it.
const SMALL_SIZE: &str = "size=64m";
/// Set for the process that has mounts of its own.
const INSIDE: &str = "TIDEWIRE_TORTURE_MOUNTS";

/// Starts this program again where mounts are its own, so that none is left behind however it ends. Comes back where it is
/// there already.
///
/// # Errors
/// Why it can have none. Then no disk can be made.
pub(super) fn own_mounts() -> Result<(), String> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let is_root = rustix::process::geteuid().is_root();
    // Without root it becomes root among its own processes.
    let kind = if is_root { "-m" } else { "-Urm" };
    run("unshare", [kind, "true"])?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let error = Command::new("unshare")
        .arg(kind)
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(format!("unshare: {error}"))
}

/// An ext4 in a file.
#[derive(Debug)]
pub(super) struct Volume {
    image: PathBuf,
    path: PathBuf,
}

impl Volume {
    /// Makes and mounts one in a folder, and cuts its power once to see that it can be.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn make(folder: &Path) -> Result<Self, String> {
        let volume = Self {
            image: folder.join("volume.ext4"),
            path: folder.join("volume"),
        };
        let image = File::create(&volume.image).and_then(|image| image.set_len(VOLUME_BYTES));
        image
            .and_then(|()| fs::create_dir(&volume.path))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        run(
            "mkfs.ext4",
            [OsStr::new("-q"), OsStr::new("-F"), volume.image.as_os_str()],
        )?;
        volume.mount()?;
        volume.cut()?;
        volume.recover()?;
        Ok(volume)
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn mount(&self) -> Result<(), String> {
        run(
            "mount",
            [
                OsStr::new("-o"),
                OsStr::new("loop"),
                self.image.as_os_str(),
                self.path.as_os_str(),
            ],
        )
    }

    /// Cuts the power. Every access fails from here on, and nothing more reaches the disk.
    ///
    /// # Errors
    /// The system does not let it.
    pub(super) fn cut(&self) -> Result<(), String> {
        power::cut(&self.path).map_err(|error| format!("the power can't be cut: {error}"))
    }

    /// Mounts it again when nobody has a file open on it any more.
    ///
    /// # Errors
    /// It can't be.
    pub(super) fn recover(&self) -> Result<(), String> {
        run("umount", [&self.path])?;
        self.mount()
    }
}

/// A small disk in memory.
#[derive(Debug)]
pub(super) struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Makes one in a folder.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn make(folder: &Path) -> Result<Self, String> {
        let path = folder.join("small");
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let arguments = ["-t", "tmpfs", "-o", SMALL_SIZE, "tmpfs"].map(OsStr::new);
        run("mount", arguments.into_iter().chain([path.as_os_str()]))?;
        Ok(Self { path })
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }

    /// Fills it up to the last byte.
    ///
    /// # Errors
    /// It can't be filled.
    pub(super) fn fill(&self) -> Result<(), String> {
        let fill = || -> io::Result<()> {
            let mut file = File::create(self.filler())?;
            let mut piece = vec![0; 1 << 20];
            while !piece.is_empty() {
                match file.write_all(&piece) {
                    Err(error) if error.kind() == ErrorKind::StorageFull => {
                        piece.truncate(piece.len() / 4)
                    }
                    other => other?,
                }
            }
            Ok(())
        };
        fill().map_err(|error| format!("the small disk can't be filled: {error}"))
    }

    /// Makes room again.
    pub(super) fn clear(&self) {
        // It is missing where nothing was filled.
        let _ = fs::remove_file(self.filler());
    }
}

/// Runs a program to its end.
///
/// # Errors
/// It is missing, or what it says.
pub(super) fn run(
    program: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("it failed and said nothing");
    Err(match said.starts_with(program) {
        true => said.to_owned(),
        false => format!("{program}: {said}"),
    })
}
