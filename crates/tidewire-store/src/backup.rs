//! Backup and restore of a data folder. A backup can be taken while a server uses the folder.
//!
//! A backup is a folder with a copy of each database and the manifest `backup.json`, which is written last. `spec/store.md`
//! describes the layout. A database is copied within one read transaction, so the copy has the commits of one instant.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};

use super::check::CheckReport;
use super::folder::{self, DataFolder, FolderError};
use super::sqlite::{self, meta, set_meta};

/// The version of `backup.json`.
pub const FORMAT: u64 = 1;
/// The manifest, which lists the other files. A folder without it is not a backup, or the backup was not finished.
pub const MANIFEST: &str = "backup.json";
/// The databases of a data folder. The first one is required.
const FILES: [&str; 2] = [sqlite::FILE, folder::REVOCATIONS_FILE];
/// The subfolder of a data folder that holds the restored files until all of them are complete and verified.
const RESTORING: &str = "restoring";
/// How much a restore adds to `opening`. Servers may have opened the lost folder after the backup and assigned incarnations that must
/// not be assigned again.
pub const OPENING_STEP: i64 = 1 << 12;
/// How long a copy waits for another process that locks the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes per read while a checksum is computed.
const CHUNK_BYTES: usize = 1 << 20;

/// The content of `backup.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    tidewire_backup: u64,
    /// The version of the program that took the backup, for the operator only.
    software: String,
    taken_at_ms: u64,
    records: u64,
    corrupt: u64,
    files: Vec<FileEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEntry {
    name: String,
    bytes: u64,
    crc32c: u32,
}

/// Why a backup or a restore failed. Each message is one line that names the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The data folder can't be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The target of the backup already exists.
    #[error("{0:?} already exists, and nothing is overwritten; name a folder that does not exist")]
    Exists(PathBuf),
    /// The data folder to restore to already holds a store.
    #[error(
        "data folder {0:?} already holds a store, and nothing is overwritten; choose another folder with --data, or move the store away"
    )]
    Occupied(PathBuf),
    /// Not a backup, or a backup that was not finished.
    #[error(
        "{0:?} is not a complete backup: it has no {MANIFEST}; take the backup again, or name another one"
    )]
    NoBackup(PathBuf),
    /// A newer version has taken the backup.
    #[error(
        "backup {path:?} has format {found}, and this version reads up to format {FORMAT}; restore it with a newer version"
    )]
    NewerFormat {
        /// The backup.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// A file of the backup has changed since the backup was taken.
    #[error("{path:?} is damaged: {cause}; restore another backup")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How the file differs.
        cause: String,
    },
    /// The system or the database reported an error.
    #[error("{path:?}: {cause}")]
    Failed {
        /// The file or folder.
        path: PathBuf,
        /// The error.
        cause: String,
    },
}

/// The result of a backup or a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The check of the copy.
    pub check: CheckReport,
    /// Bytes of the files.
    pub bytes: u64,
    /// How long it took.
    pub time: Duration,
    /// Whether a server was using the data folder.
    pub was_in_use: bool,
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f32();
        write!(f, "{} bytes in {seconds:.1} s: {}", self.bytes, self.check)
    }
}

/// Copies the committed contents of the data folder `data` to the new folder `to`. A server may use the data folder.
///
/// # Errors
/// `data` holds no store, `to` already exists, or a file can't be read or written. The incomplete copy is removed.
pub fn backup(data: &Path, to: &Path) -> Result<Copied, BackupError> {
    let start = Instant::now();
    if to.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    // Fails unless the folder holds a store that this version can read.
    drop(sqlite::reader(data)?);
    let lock = match DataFolder::open(data) {
        Ok(lock) => Some(lock),
        Err(FolderError::Locked { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let taken_at = SystemTime::now().duration_since(UNIX_EPOCH);
    folder::create(to)?;
    let take = || {
        for name in FILES.iter().filter(|name| data.join(name).exists()) {
            copy_database(&data.join(name), &to.join(name))?;
        }
        let check = check(to)?;
        let manifest = Manifest {
            tidewire_backup: FORMAT,
            software: env!("CARGO_PKG_VERSION").to_owned(),
            taken_at_ms: taken_at.map_or(0, |since| {
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            }),
            records: check.sound_count + check.corrupt.count,
            corrupt: check.corrupt.count,
            files: entries(to)?,
        };
        manifest.write(to)?;
        Ok(Copied {
            check,
            bytes: manifest.bytes(),
            time: start.elapsed(),
            was_in_use: lock.is_none(),
        })
    };
    take().inspect_err(|_| {
        // An incomplete backup is useless and would block the next attempt.
        let _ = fs::remove_dir_all(to);
    })
}

/// Restores the backup `from` into the data folder `data`, which must not hold a store yet. Names, incarnations, versions and values
/// stay the same; the next start begins a new epoch.
///
/// # Errors
/// The backup is incomplete or damaged; or the data folder is in use, holds a store or can't be written. Nothing is restored then.
pub fn restore(from: &Path, data: &Path) -> Result<Copied, BackupError> {
    let start = Instant::now();
    let manifest = Manifest::read(from)?;
    let lock = DataFolder::open(data)?;
    let log = format!("{}-wal", sqlite::FILE);
    let is_occupied = |name: &str| data.join(name).exists();
    if is_occupied(&log) || FILES.into_iter().any(is_occupied) {
        return Err(BackupError::Occupied(data.to_owned()));
    }
    let temporary = data.join(RESTORING);
    if temporary.exists() {
        // An interrupted restore has left it.
        fs::remove_dir_all(&temporary).map_err(failed(&temporary))?;
    }
    folder::create(&temporary)?;
    let bring = || {
        for file in &manifest.files {
            file.copy(from, &temporary)?;
        }
        let database = temporary.join(sqlite::FILE);
        let check = check(&temporary)?;
        if let Some(line) = check.structure.first() {
            return Err(damaged(&database, line));
        }
        reset_epoch(&database).map_err(failed(&database))?;
        for file in &manifest.files {
            sync_file(&temporary.join(&file.name))?;
        }
        Ok(check)
    };
    let check = bring().inspect_err(|_| {
        // If this fails, the next restore removes the files.
        let _ = fs::remove_dir_all(&temporary);
    })?;
    // Moves the database of records last: until it is there, servers find no store in the folder.
    for file in manifest.files.iter().rev() {
        let target = data.join(&file.name);
        fs::rename(temporary.join(&file.name), &target).map_err(failed(&target))?;
    }
    let _ = fs::remove_dir_all(&temporary);
    folder::sync(data).map_err(failed(data))?;
    drop(lock);
    Ok(Copied {
        check,
        bytes: manifest.bytes(),
        time: start.elapsed(),
        was_in_use: false,
    })
}

impl Manifest {
    fn read(folder: &Path) -> Result<Self, BackupError> {
        let path = folder.join(MANIFEST);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(BackupError::NoBackup(folder.to_owned()));
            }
            Err(error) => return Err(failed(&path)(error)),
        };
        let found: serde_json::Value =
            serde_json::from_slice(&text).map_err(|error| damaged(&path, error))?;
        // Every format has its number in this field, whatever its other fields are.
        if let Some(found) = found["tidewire_backup"].as_u64()
            && found > FORMAT
        {
            let path = folder.to_owned();
            return Err(BackupError::NewerFormat { path, found });
        }
        let manifest: Self =
            serde_json::from_value(found).map_err(|error| damaged(&path, error))?;
        let names: Vec<&str> = manifest.files.iter().map(|file| &*file.name).collect();
        // Names become paths, so only known ones are accepted.
        let is_known = |name: &&str| FILES.contains(name);
        if names.first() != Some(&sqlite::FILE) || !names.iter().all(is_known) {
            return Err(damaged(&path, format!("it lists the files {names:?}")));
        }
        Ok(manifest)
    }

    /// Writes the manifest atomically: after a crash, the complete file exists or none.
    fn write(&self, folder: &Path) -> Result<(), BackupError> {
        let path = folder.join(MANIFEST);
        let draft = folder.join(format!("{MANIFEST}.draft"));
        let write = || -> io::Result<()> {
            let mut file = create_file(&draft)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            folder::sync(folder)
        };
        write().map_err(failed(&path))
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

impl FileEntry {
    /// Copies the file, and verifies its size and checksum on the way.
    fn copy(&self, from: &Path, to: &Path) -> Result<(), BackupError> {
        let (path, target) = (from.join(&self.name), to.join(&self.name));
        let source = File::open(&path).map_err(failed(&path))?;
        let mut copy = create_file(&target).map_err(failed(&target))?;
        let (bytes, crc32c) =
            read_all(source, |chunk| copy.write_all(chunk)).map_err(failed(&target))?;
        if bytes != self.bytes {
            let cause = format!("it has {bytes} bytes instead of {}", self.bytes);
            return Err(damaged(&path, cause));
        }
        if crc32c != self.crc32c {
            return Err(damaged(&path, "it does not pass its checksum"));
        }
        Ok(())
    }
}

/// Syncs the files of a finished copy and returns their entries.
fn entries(folder: &Path) -> Result<Vec<FileEntry>, BackupError> {
    let names = FILES.iter().filter(|name| folder.join(name).exists());
    names
        .map(|name| {
            let path = folder.join(name);
            sync_file(&path)?;
            let file = File::open(&path).map_err(failed(&path))?;
            let (bytes, crc32c) = read_all(file, |_| Ok(())).map_err(failed(&path))?;
            Ok(FileEntry {
                name: (*name).to_owned(),
                bytes,
                crc32c,
            })
        })
        .collect()
}

/// Reads to the end and passes each chunk to `each`. Returns the number of bytes and their CRC-32C.
fn read_all(
    mut input: impl Read,
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<(u64, u32)> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut bytes, mut crc32c) = (0, 0);
    loop {
        let count = input.read(&mut chunk)?;
        let read = &chunk[..count];
        if read.is_empty() {
            return Ok((bytes, crc32c));
        }
        each(read)?;
        bytes += count as u64;
        crc32c = crc32c::crc32c_append(crc32c, read);
    }
}

/// Copies all pages of a database as they were at one instant, even while a server writes to it.
fn copy_database(from: &Path, to: &Path) -> Result<(), BackupError> {
    drop(create_file(to).map_err(failed(to))?);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = |path: &Path| -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "cache_size", -sqlite::PAGE_CACHE_KIB)?;
        connection.pragma_update(None, "mmap_size", 0)?;
        Ok(connection)
    };
    let copy = || -> rusqlite::Result<()> {
        let source = open(from)?;
        // Pages that a crash has left in the log stay there for the next start.
        source.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        let mut target = open(to)?;
        let copy = Backup::new(&source, &mut target)?;
        // All pages in one step are one read transaction.
        match copy.step(-1)? {
            StepResult::Done => Ok(()),
            held => Err(sqlite::failed_with(
                rusqlite::ffi::SQLITE_BUSY,
                &format!("another process locks it ({held:?})"),
            )),
        }
    };
    copy().map_err(failed(from))
}

fn check(folder: &Path) -> Result<CheckReport, BackupError> {
    let mut reader = sqlite::reader(folder)?;
    reader
        .check()
        .map_err(|error| damaged(&folder.join(sqlite::FILE), error.message))
}

/// Marks the store as not closed, so that its next opening begins a new epoch, and advances `opening`, so that new incarnations are
/// higher than all that servers may have assigned in the lost folder.
fn reset_epoch(database: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open(database)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    set_meta(&connection, "clean", 0)?;
    let opening = meta(&connection, "opening")?;
    set_meta(&connection, "opening", opening + OPENING_STEP)
}

fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

fn sync_file(path: &Path) -> Result<(), BackupError> {
    let sync = || File::open(path)?.sync_all();
    sync().map_err(failed(path))
}

fn damaged(path: &Path, cause: impl fmt::Display) -> BackupError {
    BackupError::Damaged {
        path: path.to_owned(),
        cause: cause.to_string(),
    }
}

fn failed<E: fmt::Display>(path: &Path) -> impl FnOnce(E) -> BackupError {
    let path = path.to_owned();
    move |error| BackupError::Failed {
        path,
        cause: error.to_string(),
    }
}
