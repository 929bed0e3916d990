//! Measurements on disk, a file for each cell, so that an interrupted run continues with its current cell.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::result::Cell;

/// The role of a contender in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The measured server.
    Tidewire,
    /// Tidewire with another configuration or load, for a comparison with itself.
    Variant,
    /// The reference.
    Null,
    /// A rival's server.
    Rival,
}

/// A contender in results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its name on the command line and in results.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its role in the report.
    pub role: Role,
    /// Its version.
    pub version: String,
}

/// The facts of a run: machine, versions, time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Processor, cores, kernel.
    pub machine: String,
    /// Whether servers and generator had separate cores.
    pub cores_apart: bool,
    /// The commit of this repository, with `-dirty` if the tree was changed.
    pub commit: String,
    /// The time when the run began, or was resumed.
    pub date: String,
    /// `full` or `quick`.
    pub profile: String,
    /// All contenders.
    pub contenders: Vec<Identity>,
}

/// A measured cell, all contenders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredCell {
    /// Identifies contenders, machine and arguments; a file with another key is measured again.
    pub key: String,
    /// Its name in files.
    pub id: String,
    /// The section of the report.
    pub group: String,
    /// Its title.
    pub title: String,
    /// The contenders, in the order of their turns.
    pub contenders: Vec<MeasuredContender>,
}

/// A contender in a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredContender {
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its role in the report.
    pub role: Role,
    /// Its turns; fewer than planned if its time has passed, or it failed.
    pub turns: Vec<Cell>,
    /// Why it has no more turns, if it failed.
    pub failure: Option<String>,
}

impl MeasuredContender {
    /// Before its first turn.
    #[must_use]
    pub fn new(identity: &Identity) -> Self {
        Self {
            name: identity.name.clone(),
            title: identity.title.clone(),
            role: identity.role,
            turns: Vec::new(),
            failure: None,
        }
    }
}

/// The folder of a run.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Opens it and creates a missing one.
    ///
    /// # Errors
    /// It can't be created.
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        let folder = std::path::absolute(folder).map_err(Failure::system("results"))?;
        let cells = folder.join("cells");
        fs::create_dir_all(&cells).map_err(Failure::system(cells.display().to_string()))?;
        Ok(Self { folder })
    }

    /// A file of the folder.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The cell, if it was measured under this key and none of our servers failed in it.
    #[must_use]
    pub fn kept(&self, id: &str, key: &str) -> Option<MeasuredCell> {
        let cell: MeasuredCell = read(&self.cell_file(id)).ok()?;
        let is_whole = |contender: &MeasuredContender| {
            contender.role == Role::Rival || contender.failure.is_none()
        };
        (cell.key == key && cell.contenders.iter().all(is_whole)).then_some(cell)
    }

    /// Writes a cell.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn put(&self, cell: &MeasuredCell) -> Result<(), Failure> {
        write(&self.cell_file(&cell.id), cell)
    }

    /// Writes everything as one file, `results.json`.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn put_results(&self, results: &RunResults) -> Result<(), Failure> {
        write(&self.file("results.json"), results)
    }

    /// Reads `results.json`.
    ///
    /// # Errors
    /// It does not exist, or has another format.
    pub fn results(&self) -> Result<RunResults, Failure> {
        read(&self.file("results.json"))
    }

    fn cell_file(&self, id: &str) -> PathBuf {
        self.folder.join("cells").join(format!("{id}.json"))
    }
}

/// All of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResults {
    /// The facts of the run.
    pub facts: Facts,
    /// The measured cells.
    pub cells: Vec<MeasuredCell>,
}

fn read<T: DeserializeOwned>(file: &Path) -> Result<T, Failure> {
    let system = || Failure::system(file.display().to_string());
    let text = fs::read_to_string(file).map_err(system())?;
    serde_json::from_str(&text).map_err(|error| system()(error.into()))
}

/// By renaming, so that an interrupted run leaves the old file or the new one.
fn write(file: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let system = || Failure::system(file.display().to_string());
    let text = serde_json::to_string(value).map_err(|error| system()(error.into()))?;
    let new = file.with_extension("new");
    fs::write(&new, text + "\n").map_err(system())?;
    fs::rename(&new, file).map_err(system())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_kept_while_its_key_matches_and_tidewire_did_not_fail() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let contender = |role, failure: Option<&str>| MeasuredContender {
            name: "x".to_owned(),
            title: "X".to_owned(),
            role,
            turns: Vec::new(),
            failure: failure.map(str::to_owned),
        };
        let check = |contenders: Vec<MeasuredContender>, key: &str, expected: bool| {
            let cell = MeasuredCell {
                key: "one".to_owned(),
                id: "cell".to_owned(),
                group: "grid".to_owned(),
                title: "10/1".to_owned(),
                contenders,
            };
            store.put(&cell).unwrap();
            let kept = store.kept("cell", key);
            assert_eq!(kept, expected.then_some(cell));
        };
        check(vec![contender(Role::Null, None)], "one", true);
        check(vec![contender(Role::Null, None)], "two", false);
        check(vec![contender(Role::Rival, Some("broke"))], "one", true);
        check(vec![contender(Role::Null, Some("broke"))], "one", false);
        assert_eq!(store.kept("another", "one"), None);
    }

    #[test]
    fn a_folder_without_results_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        assert!(
            store
                .results()
                .unwrap_err()
                .to_string()
                .contains("results.json")
        );
    }
}
