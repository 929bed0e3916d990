//! Disks that can fail: an ext4 volume in a file, whose power can be cut, and a small disk in memory, which can be filled. Both
//! are mounts in the process's own namespace and disappear with it.

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
    /// The disk of the machine.
    Own,
    /// A disk whose power can be cut.
    Volume(Volume),
    /// A disk that can be filled.
    Small(SmallDisk),
}

/// The size of the ext4 volume in bytes; the file is sparse.
const VOLUME_BYTES: u64 = 256 << 20;
/// The size of the small disk, as an option of mount(8).
const SMALL_SIZE: &str = "size=64m";
/// This variable is set for the process that has its own mount namespace.
const INSIDE: &str = "TIDEWIRE_TORTURE_MOUNTS";

/// Starts this program again in its own mount namespace, so that no mount remains however it ends. Returns at once if the process
/// already has one.
///
/// # Errors
/// The system does not allow a mount namespace. The test can then make no disk.
pub(super) fn own_mounts() -> Result<(), String> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let is_root = rustix::process::geteuid().is_root();
    // Without root rights it becomes root of a new user namespace.
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

/// An ext4 volume in a file.
#[derive(Debug)]
pub(super) struct Volume {
    image: PathBuf,
    path: PathBuf,
}

impl Volume {
    /// Makes and mounts a volume in a folder, and cuts its power once to check that this works.
    ///
    /// # Errors
    /// The system lacks a program or a right.
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

    /// The folder on which it is mounted.
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

    /// Cuts the power. After that every access fails, and no write reaches the disk.
    ///
    /// # Errors
    /// The system refuses it.
    pub(super) fn cut(&self) -> Result<(), String> {
        power::cut(&self.path).map_err(|error| format!("can't cut the power: {error}"))
    }

    /// Mounts it again. No process may have a file open on it.
    ///
    /// # Errors
    /// The volume can't be unmounted or mounted.
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
    /// Makes and mounts a small disk in a folder.
    ///
    /// # Errors
    /// The system lacks a program or a right.
    pub(super) fn make(folder: &Path) -> Result<Self, String> {
        let path = folder.join("small");
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let arguments = ["-t", "tmpfs", "-o", SMALL_SIZE, "tmpfs"].map(OsStr::new);
        run("mount", arguments.into_iter().chain([path.as_os_str()]))?;
        Ok(Self { path })
    }

    /// The folder on which it is mounted.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }

    /// Fills the disk to the last byte.
    ///
    /// # Errors
    /// A write failed, but not because the disk is full.
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
        fill().map_err(|error| format!("can't fill the small disk: {error}"))
    }

    /// Frees the space that [`Self::fill`] took.
    pub(super) fn clear(&self) {
        // The file is missing if the disk was not filled.
        let _ = fs::remove_file(self.filler());
    }
}

/// Runs a program and waits for its end.
///
/// # Errors
/// The program is missing or failed. The text is its first line of error output.
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
    let said = said
        .lines()
        .next()
        .unwrap_or("failed without an error message");
    Err(match said.starts_with(program) {
        true => said.to_owned(),
        false => format!("{program}: {said}"),
    })
}
