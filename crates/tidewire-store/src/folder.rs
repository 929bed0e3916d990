//! The data folder: created, checked and locked before the server opens any file in it.
//!
//! The server writes only into this folder, temporary files included. If the folder can't be used, the error is one line
//! that names the remedy, and the contents of the folder stay unchanged.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use thiserror::Error;

/// The data folder if none is configured.
pub const DEFAULT_PATH: &str = "./tidewire-data";

/// The database of revocations. Authentication reads and writes it; a backup copies it.
pub const REVOCATIONS_FILE: &str = "auth.db";

/// The file that the running server locks. It contains the server's process id.
const LOCK_FILE: &str = "lock";

/// The mode of private files: only the owner can read and write them.
const PRIVATE: u32 = 0o600;
/// The mode bits that give group and others access to a file.
const OTHERS: u32 = 0o077;

/// The mode bits that let group and others create files in a folder.
const OTHERS_WRITE: u32 = 0o022;

/// The free bytes that a start requires. With less, the first commits would fail: the store's first pages, its log and the log's
/// index need a part of them at once.
const FREE_BYTES_MIN: u64 = 4 << 20;

/// Why a data folder can't be used. Each message is one line that names the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FolderError {
    /// Another process has locked it.
    #[error(
        "data folder {path:?} is in use by {}; stop it, or choose another folder with --data",
        holder(*.pid)
    )]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The process, unless it has not written its id yet.
        pid: Option<u32>,
    },
    /// Written by a newer version.
    #[error(
        "data folder {path:?} has format {found}, and this version reads up to format {known}; start a newer version, move the records with `tidewire store export` of the newer version and `tidewire store import` of this one, or choose another folder with --data"
    )]
    NewerFormat {
        /// The folder.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format that this version reads.
        known: i64,
    },
    /// On a network file system, where the store can't guarantee acknowledged writes.
    #[error(
        "data folder {path:?} is on {kind}, a network file system, where acknowledged writes could be lost; choose a folder on a local disk with --data"
    )]
    NetworkFileSystem {
        /// The folder.
        path: PathBuf,
        /// The kind of file system.
        kind: String,
    },
    /// Other users of the machine can write into it, and could replace the server's files.
    #[error(
        "data folder {path:?} can be written by other users (mode {mode:04o}); run `chmod go-w {}`, or choose another folder with --data",
        shell_quoted(path)
    )]
    Open {
        /// The folder.
        path: PathBuf,
        /// The folder's mode.
        mode: u32,
    },
    /// No permission, a read-only file system, or not a folder at all.
    #[error(
        "data folder {path:?} can't be written ({cause}); fix that, or choose another folder with --data"
    )]
    NotWritable {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        cause: String,
    },
    /// Not enough free space for a start.
    #[error("data folder {path:?} is full; make room, or choose another folder with --data")]
    Full {
        /// The folder.
        path: PathBuf,
    },
    /// Another process reads it for longer than a start waits.
    #[error(
        "data folder {path:?} is being read by another process, such as a backup; start again when that process has finished"
    )]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// The folder does not exist, or has no database of records.
    #[error("data folder {path:?} holds no store; choose the right one with --data")]
    NoStore {
        /// The folder.
        path: PathBuf,
    },
    /// Its database is not a store, or is too damaged to be opened.
    #[error(
        "data folder {path:?} can't be opened ({cause}); restore it from a backup, or choose another folder with --data"
    )]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// The store's error.
        cause: String,
    },
}

fn holder(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

/// A path, quoted for a shell if necessary.
fn shell_quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "/._-+".contains(character);
    match text.chars().all(is_plain) && !text.starts_with('-') {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// A folder that this process has locked. The lock ends when the value is dropped, or when the process ends in any way.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Creates the folder with mode 0700 if it is missing, checks it and locks it.
    ///
    /// # Errors
    /// Another process has locked it, other users can write into it, or a store would not be safe in it.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        create(path)?;
        refuse_open(path)?;
        refuse_network(path)?;
        let lock = lock(path)?;
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// The path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether the file system of `path` has less than `bytes` free for this process; false if that is unknown.
pub(super) fn has_less_than(path: &Path, bytes: u64) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|stat| stat.f_bavail.saturating_mul(stat.f_frsize) < bytes)
}

/// Makes the entries of a folder durable. A new folder's own entry needs a sync of its parent.
pub(super) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

pub(super) fn create(path: &Path) -> Result<(), FolderError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let made = std::fs::create_dir_all(parent)
        .and_then(|()| match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
            Ok(()) => sync(parent),
        })
        .and_then(|()| std::fs::metadata(path));
    match made {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(not_writable(path, "not a folder")),
        Err(error) => Err(from_io(path, &error)),
    }
}

/// Creates a file that only its owner can read and write. If the file exists, removes all other permissions from it. SQLite gives its
/// log and the log's index the same permissions as the database.
///
/// # Errors
/// The file can't be created, or belongs to another user.
pub fn make_private(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.mode(PRIVATE).open(path)?;
    keep_private(path)
}

/// If the file exists, removes the permissions of group and others. Earlier versions created files that every user could read.
///
/// # Errors
/// The file belongs to another user.
pub(crate) fn keep_private(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.mode() & OTHERS != 0 => {
            std::fs::set_permissions(path, Permissions::from_mode(PRIVATE))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn refuse_open(path: &Path) -> Result<(), FolderError> {
    let metadata = std::fs::metadata(path).map_err(|error| from_io(path, &error))?;
    let mode = metadata.mode() & 0o7777;
    match mode & OTHERS_WRITE {
        0 => Ok(()),
        _ => Err(FolderError::Open {
            path: path.to_owned(),
            mode,
        }),
    }
}

/// Runs before the lock, because locking a file on an unreachable network server can hang.
fn refuse_network(path: &Path) -> Result<(), FolderError> {
    let stat = rustix::fs::statfs(path).map_err(|error| from_io(path, &error.into()))?;
    let kind = match network_file_system(stat.f_type.cast_unsigned()) {
        FileSystem::Network(kind) => Some(kind.to_owned()),
        FileSystem::Fuse => fuse_kind(path).filter(|kind| is_network_fuse(kind)),
        FileSystem::Local => None,
    };
    match kind {
        Some(kind) => Err(FolderError::NetworkFileSystem {
            path: path.to_owned(),
            kind,
        }),
        None => Ok(()),
    }
}

fn lock(path: &Path) -> Result<File, FolderError> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE)
        // The file is truncated below, and a symbolic link could lead to any file.
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path.join(LOCK_FILE))
        .map_err(|error| match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => {
                not_writable(path, "\"lock\" is a symbolic link")
            }
            _ => from_io(path, &error),
        })?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(FolderError::Locked {
                path: path.to_owned(),
                pid: read_pid(&mut file),
            });
        }
        Err(TryLockError::Error(error)) => return Err(from_io(path, &error)),
    }
    if has_less_than(path, FREE_BYTES_MIN) {
        return Err(FolderError::Full {
            path: path.to_owned(),
        });
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(|error| from_io(path, &error))?;
    Ok(file)
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn not_writable(path: &Path, cause: &str) -> FolderError {
    FolderError::NotWritable {
        path: path.to_owned(),
        cause: cause.to_owned(),
    }
}

fn from_io(path: &Path, error: &io::Error) -> FolderError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FolderError::Full {
            path: path.to_owned(),
        },
        _ => not_writable(path, &error.to_string()),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum FileSystem {
    Local,
    Network(&'static str),
    /// Local or not; the mount table decides.
    Fuse,
}

/// Finds the kind by the magic number of `statfs(2)`. On network file systems, the shared memory between processes that the
/// store's log index needs does not work, and locks and syncs can't be trusted.
fn network_file_system(magic: u64) -> FileSystem {
    match magic & 0xffff_ffff {
        0x6969 => FileSystem::Network("NFS"),
        0x517b => FileSystem::Network("SMB"),
        0xfe53_4d42 => FileSystem::Network("SMB2"),
        0xff53_4d42 => FileSystem::Network("CIFS"),
        0x0102_1997 => FileSystem::Network("9P"),
        0x5346_414f | 0x6b41_4653 => FileSystem::Network("AFS"),
        0x00c3_6400 => FileSystem::Network("Ceph"),
        0x7375_7245 => FileSystem::Network("Coda"),
        0x564c => FileSystem::Network("NCP"),
        0x0bd0_0bd0 => FileSystem::Network("Lustre"),
        0x6573_5546 => FileSystem::Fuse,
        _ => FileSystem::Local,
    }
}

/// Whether a FUSE file system keeps its files on another machine.
fn is_network_fuse(kind: &str) -> bool {
    const KINDS: [&str; 14] = [
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.goofys",
        "fuse.mountpoint-s3",
        "fuse.gcsfuse",
        "fuse.blobfuse",
        "fuse.blobfuse2",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.ceph-fuse",
        "fuse.davfs",
        "fuse.juicefs",
        "fuse.curlftpfs",
    ];
    KINDS.contains(&kind)
}

/// The type that the mount table gives for the file system of `path`.
fn fuse_kind(path: &Path) -> Option<String> {
    let device = std::fs::metadata(path).ok()?.dev();
    let device = format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mount_kind(&table, &device)
}

/// Finds a device in the text of `/proc/self/mountinfo`, see proc(5): the third field is the device, and the type
/// follows a field that is a single hyphen.
fn mount_kind(table: &str, device: &str) -> Option<String> {
    table
        .lines()
        .filter(|line| line.split(' ').nth(2) == Some(device))
        .find_map(|line| line.split_once(" - ")?.1.split(' ').next())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_missing_folder_is_made_for_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("parent/data");
        let folder = DataFolder::open(&path).unwrap();
        let mode = std::fs::metadata(folder.path())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
        let pid = std::fs::read_to_string(path.join(LOCK_FILE)).unwrap();
        assert_eq!(pid.trim(), std::process::id().to_string());
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused_with_the_command_to_repair_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("it's mine");
        std::fs::create_dir(&path).unwrap();
        for mode in [0o777, 0o775, 0o1777, 0o2770, 0o702] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let refused = DataFolder::open(&path).unwrap_err();
            let FolderError::Open { mode: found, .. } = &refused else {
                panic!("{mode:o}: {refused:?}");
            };
            assert_eq!(*found, mode);
            let is_locked = path.join(LOCK_FILE).exists();
            assert!(!is_locked, "it must be refused before anything is created");
            let line = refused.to_string();
            let command = line.split('`').nth(1).expect("a command");
            let repaired = std::process::Command::new("sh")
                .args(["-c", command])
                .status();
            assert!(repaired.unwrap().success(), "{command}");
            assert!(DataFolder::open(&path).is_ok(), "after {command}");
            std::fs::remove_file(path.join(LOCK_FILE)).unwrap();
        }
        for mode in [0o700, 0o750, 0o755, 0o500] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let opened = DataFolder::open(&path);
            assert!(!matches!(opened, Err(FolderError::Open { .. })), "{mode:o}");
        }
    }

    #[test]
    fn a_lock_that_is_a_link_is_refused_and_its_target_stays() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        std::fs::write(&target, "precious").unwrap();
        let path = directory.path().join("data");
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        std::os::unix::fs::symlink(&target, path.join(LOCK_FILE)).unwrap();
        let refused = DataFolder::open(&path).unwrap_err().to_string();
        assert!(refused.contains("symbolic link"), "{refused}");
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
    }

    #[test]
    fn files_are_for_their_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        let (new, old) = (directory.path().join("new"), directory.path().join("old"));
        make_private(&new).unwrap();
        std::fs::write(&old, "kept").unwrap();
        std::fs::set_permissions(&old, Permissions::from_mode(0o644)).unwrap();
        make_private(&old).unwrap();
        assert_eq!((mode(&new), mode(&old)), (0o600, 0o600));
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "kept");
        keep_private(&directory.path().join("missing")).unwrap();
        assert!(!directory.path().join("missing").exists());
    }

    #[test]
    fn the_lock_ends_with_the_value() {
        let directory = tempfile::tempdir().unwrap();
        let first = DataFolder::open(directory.path()).unwrap();
        match DataFolder::open(directory.path()) {
            Err(FolderError::Locked { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("not refused as locked: {other:?}"),
        }
        drop(first);
        assert!(DataFolder::open(directory.path()).is_ok());
    }

    #[test]
    fn a_lock_without_a_readable_holder_is_still_refused() {
        let directory = tempfile::tempdir().unwrap();
        let _first = DataFolder::open(directory.path()).unwrap();
        for text in ["", "not a number", "-1", "99999999999999999999"] {
            std::fs::write(directory.path().join(LOCK_FILE), text).unwrap();
            match DataFolder::open(directory.path()) {
                Err(FolderError::Locked { pid: None, .. }) => {}
                other => panic!("with {text:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn unwritable_folders_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        // Even root can't write the last one.
        for path in [
            file.clone(),
            file.join("below"),
            "/proc/tidewire-data".into(),
        ] {
            match DataFolder::open(&path) {
                Err(FolderError::NotWritable { .. }) => {}
                other => panic!("{path:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn network_file_systems_are_known_by_number() {
        let cases = [
            (0x6969, FileSystem::Network("NFS")),
            (0xff53_4d42, FileSystem::Network("CIFS")),
            (0xfe53_4d42, FileSystem::Network("SMB2")),
            // Some architectures report a negative 32-bit number.
            (0xffff_ffff_fe53_4d42, FileSystem::Network("SMB2")),
            (0x0102_1997, FileSystem::Network("9P")),
            (0x6573_5546, FileSystem::Fuse),
            (0xef53, FileSystem::Local),
            (0x0102_1994, FileSystem::Local),
            (0x794c_7630, FileSystem::Local),
        ];
        for (magic, expected) in cases {
            assert_eq!(network_file_system(magic), expected, "for {magic:#x}");
        }
    }

    #[test]
    fn fuse_file_systems_are_recognized_by_the_mount_table() {
        let table = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
            90 22 0:52 / /mnt/a\\040b rw,nosuid shared:3 - fuse.sshfs host:/x rw\n\
            91 22 0:53 / /mnt/c rw - fuse.gocryptfs /y rw\n";
        let cases = [
            ("0:52", Some("fuse.sshfs"), true),
            ("0:53", Some("fuse.gocryptfs"), false),
            ("0:5", None, false),
        ];
        for (device, kind, is_network) in cases {
            let found = mount_kind(table, device);
            assert_eq!(found.as_deref(), kind, "device {device}");
            assert_eq!(found.is_some_and(|kind| is_network_fuse(&kind)), is_network);
        }
    }

    #[test]
    fn every_refusal_is_one_line_that_says_what_to_do() {
        let path = PathBuf::from("data");
        let cause = "cause".to_owned();
        let errors = [
            FolderError::Locked {
                path: path.clone(),
                pid: Some(7),
            },
            FolderError::NewerFormat {
                path: path.clone(),
                found: 2,
                known: 1,
            },
            FolderError::NetworkFileSystem {
                path: path.clone(),
                kind: "NFS".to_owned(),
            },
            FolderError::Open {
                path: path.clone(),
                mode: 0o777,
            },
            FolderError::NotWritable {
                path: path.clone(),
                cause: cause.clone(),
            },
            FolderError::Full { path: path.clone() },
            FolderError::NoStore { path: path.clone() },
            FolderError::Damaged { path, cause },
        ];
        for error in errors {
            let text = error.to_string();
            assert!(text.contains("\"data\"") && text.contains("; "), "{text}");
            assert!(text.contains("--data") && !text.contains('\n'), "{text}");
        }
    }
}
