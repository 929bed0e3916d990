//! Backups of a data folder, taken while a server has it, and their way back.
//!
//! A backup is a folder with a copy of each database and `backup.json`, which says what they are and is written last. The
//! layout is described in `spec/store.md`. A copy is made within one read transaction, so it is what one instant has committed.

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
/// Says what the other files are. A folder without it is no backup, or one that was not finished.
pub const MANIFEST: &str = "backup.json";
/// The databases of a data folder. The first one must be there.
const FILES: [&str; 2] = [sqlite::FILE, folder::REVOCATIONS_FILE];
/// Where a data folder holds what is being restored, until all of it is there and right.
const RESTORING: &str = "restoring";
/// How much further `opening` is after a restore. The lost folder may have been opened since the backup, and made incarnations that
/// must not be made again.
pub const OPENING_STEP: i64 = 1 << 12;
/// A copy waits so long for another process that holds the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that are read at a time where a file is compared with its checksum.
const CHUNK_BYTES: usize = 1 << 20;

/// `backup.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    tidewire_backup: u64,
    /// The version of the server that took it; for people.
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

/// Why there is no backup, or nothing was restored. Each message is one line and says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// Because of the data folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// There is something where the backup should be.
    #[error("{0:?} is there already; nothing is overwritten, name a folder that is not")]
    Exists(PathBuf),
    /// There is something where it should be restored to.
    #[error(
        "data folder {0:?} holds a store already; nothing is overwritten, choose another folder with --data or move that away"
    )]
    Occupied(PathBuf),
    /// No backup, or one that was not finished.
    #[error("{0:?} is no whole backup: it has no {MANIFEST}; take it again, or name another one")]
    NoBackup(PathBuf),
    /// A newer version has taken it.
    #[error(
        "backup {path:?} has format {found} and this version knows up to {FORMAT}; restore it with a newer version"
    )]
    NewerFormat {
        /// Where it is.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// It is not what it was when it was taken.
    #[error("{path:?} is damaged: {cause}; restore another backup")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// The system or the database refuses.
    #[error("{path:?}: {cause}")]
    Failed {
        /// The file or folder.
        path: PathBuf,
        /// What was said.
        cause: String,
    },
}

/// What a backup or a restore did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// What is in the copy.
    pub check: CheckReport,
    /// Bytes of the files.
    pub bytes: u64,
    /// How long it took.
    pub time: Duration,
    /// Whether a server had the data folder meanwhile.
    pub beside_server: bool,
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f32();
        write!(f, "{} bytes in {seconds:.1} s: {}", self.bytes, self.check)
    }
}

/// Copies what the data folder `data` has committed to the folder `to`, which is made. A server may have the data folder.
///
/// # Errors
/// There is no store, `to` is there already, or something can't be read or written. What was made is removed.
pub fn backup(data: &Path, to: &Path) -> Result<Copied, BackupError> {
    let start = Instant::now();
    if to.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    // Refuses what is no store of this version.
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
            beside_server: lock.is_none(),
        })
    };
    take().inspect_err(|_| {
        // Nobody could use it, and the next attempt should find its place free.
        let _ = fs::remove_dir_all(to);
    })
}

/// Brings the backup `from` into the data folder `data`, which must not hold a store yet. Names, incarnations, versions and values
/// are as they were; the next start begins a new epoch.
///
/// # Errors
/// It is no whole backup, or damaged; or the data folder is in use, holds a store or can't be written. Nothing is in it then.
pub fn restore(from: &Path, data: &Path) -> Result<Copied, BackupError> {
    let start = Instant::now();
    let manifest = Manifest::read(from)?;
    let lock = DataFolder::open(data)?;
    let log = format!("{}-wal", sqlite::FILE);
    let is_occupied = |name: &str| data.join(name).exists();
    if is_occupied(&log) || FILES.into_iter().any(is_occupied) {
        return Err(BackupError::Occupied(data.to_owned()));
    }
    let place = data.join(RESTORING);
    if place.exists() {
        // Of a restore that was cut off.
        fs::remove_dir_all(&place).map_err(failed(&place))?;
    }
    folder::create(&place)?;
    let bring = || {
        for file in &manifest.files {
            file.copy(from, &place)?;
        }
        let database = place.join(sqlite::FILE);
        let check = check(&place)?;
        if let Some(line) = check.structure.first() {
            return Err(damaged(&database, line));
        }
        begin_anew(&database).map_err(failed(&database))?;
        for file in &manifest.files {
            sync_file(&place.join(&file.name))?;
        }
        Ok(check)
    };
    let check = bring().inspect_err(|_| {
        // What is left of it would be removed by the next restore.
        let _ = fs::remove_dir_all(&place);
    })?;
    // The store comes last: without it the folder holds none.
    for file in manifest.files.iter().rev() {
        let target = data.join(&file.name);
        fs::rename(place.join(&file.name), &target).map_err(failed(&target))?;
    }
    let _ = fs::remove_dir_all(&place);
    folder::sync(data).map_err(failed(data))?;
    drop(lock);
    Ok(Copied {
        check,
        bytes: manifest.bytes(),
        time: start.elapsed(),
        beside_server: false,
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
        // Whatever a newer format has besides, it has its number there.
        if let Some(found) = found["tidewire_backup"].as_u64()
            && found > FORMAT
        {
            let path = folder.to_owned();
            return Err(BackupError::NewerFormat { path, found });
        }
        let manifest: Self =
            serde_json::from_value(found).map_err(|error| damaged(&path, error))?;
        let names: Vec<&str> = manifest.files.iter().map(|file| &*file.name).collect();
        // Names become paths.
        let is_known = |name: &&str| FILES.contains(name);
        if names.first() != Some(&sqlite::FILE) || !names.iter().all(is_known) {
            return Err(damaged(&path, format!("it names the files {names:?}")));
        }
        Ok(manifest)
    }

    /// Writes it so that it is there as a whole or not at all.
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
    /// Copies the file, and compares it with what it was on the way.
    fn copy(&self, from: &Path, to: &Path) -> Result<(), BackupError> {
        let (path, target) = (from.join(&self.name), to.join(&self.name));
        let source = File::open(&path).map_err(failed(&path))?;
        let mut copy = create_file(&target).map_err(failed(&target))?;
        let (bytes, crc32c) =
            read_all(source, |chunk| copy.write_all(chunk)).map_err(failed(&target))?;
        if bytes != self.bytes {
            let cause = format!("it has {bytes} bytes and had {}", self.bytes);
            return Err(damaged(&path, cause));
        }
        if crc32c != self.crc32c {
            return Err(damaged(&path, "it does not pass its checksum"));
        }
        Ok(())
    }
}

/// The files of a finished copy, synced.
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

/// Reads to the end; how many bytes there were, and their CRC-32C.
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

/// Copies a database page by page as it was at one instant, whoever writes to it meanwhile.
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
        // What a crash has left in the log is for the next start.
        source.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        let mut target = open(to)?;
        let copy = Backup::new(&source, &mut target)?;
        // All pages in one step are one read transaction.
        match copy.step(-1)? {
            StepResult::Done => Ok(()),
            held => Err(sqlite::failed_with(
                rusqlite::ffi::SQLITE_BUSY,
                &format!("another process holds it ({held:?})"),
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

/// Marks the store as one that was not closed, so that its next opening begins a new epoch, and lets its incarnations
/// begin behind those that the lost folder may have made.
fn begin_anew(database: &Path) -> rusqlite::Result<()> {
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
