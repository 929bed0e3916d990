//! The disk alone: a write into a file with allocated blocks of fixed size, and `fdatasync`. No store can be faster
//! on the same disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Bare, StoredRow};
use crate::failure::Failure;

/// At its end the file is overwritten from its start.
const FILE_BYTES: usize = 16 << 20;
/// The smallest write of a database.
const PAGE_BYTES: usize = 4096;

/// A file that is written and synced.
#[derive(Debug)]
pub struct Disk {
    file: File,
    offset: usize,
}

impl Disk {
    /// Makes the file in a folder.
    ///
    /// # Errors
    /// The folder has no room.
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join("synced");
        let make = || -> io::Result<File> {
            let file = File::create_new(&path)?;
            file.write_all_at(&vec![0; FILE_BYTES], 0)?;
            file.sync_all()?;
            Ok(file)
        };
        let file = make().map_err(Failure::system(path.display().to_string()))?;
        Ok(Self { file, offset: 0 })
    }
}

impl Bare for Disk {
    fn label(&self) -> &'static str {
        "fdatasync"
    }

    fn commit(&mut self, rows: &[StoredRow]) -> Result<(), Failure> {
        let bytes: usize = rows.iter().map(|row| row.name.len() + row.data.len()).sum();
        let page = vec![rows[0].version as u8; bytes.next_multiple_of(PAGE_BYTES)];
        if self.offset + page.len() > FILE_BYTES {
            self.offset = 0;
        }
        let write = || -> io::Result<()> {
            self.file.write_all_at(&page, self.offset as u64)?;
            self.file.sync_data()
        };
        write().map_err(Failure::system("fdatasync"))?;
        self.offset += page.len();
        Ok(())
    }
}
